//! The bundle of a node: the table of contents. What each part says is in the module that it is named after.

use std::collections::{BTreeMap, BTreeSet};

use bundle::network::PLUGINS;
use bundle::{
    ARGUMENTS_VARIABLE, AbsolutePath, Bundle, Component, Content, GATE_PATH, Gate, Join, NodeKind, Packages, Start,
    UnitNature,
};
use spec::{CompleteCluster, CompleteGroup, CompleteNodeGroup, CompleteSpec, ExecCredential, Layout, PodNetwork, Role};

use crate::error::RenderError;
use crate::extras::{self, HookInputs};
use crate::gate_unit;
use crate::kubeconfig::{Credential, render_kubeconfig};
use crate::kubelet::{
    self, BOOTSTRAP_KUBECONFIG_FLAG, CONFIG_FLAG, KUBECONFIG_FLAG, KUBELET_UNIT, KubeletUnit, NODE_NAME_FLAG,
    required_flag,
};
use crate::network::{self, NETWORK_UNIT};
use crate::part::{Part, name, path, public, secret, unit, unit_file};
use crate::spending;
use crate::unit::Argument;
use crate::{layout, packages, readers, runtime, static_pods, system, trees, webhook};

pub(crate) const AUTHORITY_PATH: &str = "/etc/kubernetes/pki/ca.crt";

/// The bundle of one group of nodes.
pub fn render_bundle(spec: &CompleteSpec, group: &str) -> Result<Bundle, RenderError> {
    render_node(spec, find_group(spec, group)?)
}

pub(crate) fn find_group<'s>(spec: &'s CompleteSpec, name: &str) -> Result<&'s CompleteNodeGroup, RenderError> {
    spec.groups.iter().find(|candidate| candidate.name.value.as_str() == name).ok_or_else(|| {
        let known = spec.groups.iter().map(|known| known.name.value.to_string()).collect();
        RenderError::UnknownGroup { group: name.to_owned(), known }
    })
}

pub(crate) fn render_node(spec: &CompleteSpec, group: &CompleteNodeGroup) -> Result<Bundle, RenderError> {
    let mut bundle = match spec.cluster.layout.value {
        Layout::Nodestrap => render(spec, group),
        Layout::Eksctl => layout::eksctl::render(spec, group),
        Layout::Tectonic => layout::tectonic::render(spec, group),
    }?;
    readers::assign(&mut bundle, &group.spec);
    finish(bundle)
}

/// In the order of a bundle, with what its unit files say, and held against the rules that all bundles keep.
pub(crate) fn finish(mut bundle: Bundle) -> Result<Bundle, RenderError> {
    bundle.files.sort_by(|one, other| one.path.cmp(&other.path));
    bundle.idle_units.sort_by(|one, other| one.name.cmp(&other.name));
    for index in 0..bundle.units.len() {
        let file = bundle.unit_file(&bundle.units[index].name);
        let nature = file.map(|file| UnitNature::of(&String::from_utf8_lossy(&file.content)));
        bundle.units[index].brought = nature;
    }
    bundle.validate().map_err(|problem| RenderError::Bundle { problem })?;
    Ok(bundle)
}

/// nodestrap's own layout.
fn render(spec: &CompleteSpec, node_group: &CompleteNodeGroup) -> Result<Bundle, RenderError> {
    let (cluster, group) = (&spec.cluster, &node_group.spec);
    let name = spec.name.value.as_str();
    let identity = Identity::of(cluster, group)?;
    let join = join(cluster, group, &identity)?;

    let mut part = system::render_system(cluster, group, &[KUBELET_UNIT])?;
    part.add(runtime::render_runtime(group, &cluster.registry_mirrors.value)?);
    part.add(extras::render_extra_units(&group.units.value)?);
    part.add(kubelet_part(name, cluster, group, &identity)?);
    let pod_network = pod_network(cluster, group, &mut part)?;
    part.files.extend(extras::render_file_assets(group)?);
    part.files.extend(static_pods::render_static_pods(cluster, group)?);
    let (hook_files, hooks) = extras::render_hooks(&group.hooks.value, &HookInputs::of(cluster, group))?;
    part.files.extend(hook_files);
    let packages = match packages::render_packages(cluster, group)? {
        Some((packages, files)) => {
            part.files.extend(files);
            Some(packages)
        }
        None => None,
    };

    Ok(Bundle {
        cluster: name.to_owned(),
        group: node_group.name.value.to_string(),
        kubernetes_version: group.kubernetes_version.value.to_string(),
        node: kind(cluster, group),
        files: part.files,
        units: part.units,
        idle_units: part.idle_units,
        hooks,
        runtime: runtime::describe(group)?,
        downloads: trees::render_downloads(spec, node_group),
        trees: trees::render_trees(node_group)?,
        extensions: trees::render_extensions(node_group)?,
        required_programs: required_programs(cluster, group, &identity, packages.as_ref())?,
        packages,
        follow: None,
        gate: gate(spec, node_group, kubelet::render_arguments(&group.kubelet.flags)?)?,
        join,
        pod_network,
        snap: None,
        webhook: webhook::render_webhook(&cluster.report),
    })
}

pub(crate) fn kind(cluster: &CompleteCluster, group: &CompleteGroup) -> NodeKind {
    NodeKind {
        role: group.role.value,
        os: group.os.value,
        provider: cluster.provider.value,
        layout: cluster.layout.value,
    }
}

fn gate(spec: &CompleteSpec, group: &CompleteNodeGroup, arguments: String) -> Result<Gate, RenderError> {
    let environment = BTreeMap::from([
        (ARGUMENTS_VARIABLE.to_owned(), arguments),
        ("NODESTRAP_CLUSTER".to_owned(), spec.name.value.to_string()),
        ("NODESTRAP_GROUP".to_owned(), group.name.value.to_string()),
    ]);
    Ok(Gate { path: path(GATE_PATH)?, environment, facts: BTreeSet::new(), max_pods: None })
}

/// What a kubelet shows to the API server before it has a certificate.
enum Identity<'a> {
    Token(&'a str),
    /// It never gets a certificate: the program is asked again and again.
    Exec(&'a ExecCredential),
    /// Of the control plane itself. It holds the key of the authority anyway, and a token exists only once an API
    /// server runs, for which this very kubelet is needed.
    SuperAdmin(&'a str),
}

impl<'a> Identity<'a> {
    /// The kubelet gets a certificate for it, and goes on with that.
    fn is_spent_by_joining(&self) -> bool {
        match self {
            Self::Token(_) | Self::SuperAdmin(_) => true,
            Self::Exec(_) => false,
        }
    }

    fn of(cluster: &'a CompleteCluster, group: &CompleteGroup) -> Result<Self, RenderError> {
        if group.role.value == Role::ControlPlane {
            let files = cluster.pki.folder.as_ref().ok_or(RenderError::NoPki)?.value.files();
            return files
                .get(static_pods::SUPER_ADMIN)
                .map(|file| Self::SuperAdmin(file.expose()))
                .ok_or(RenderError::NoPki);
        }
        match (&cluster.join.bootstrap_token, &cluster.join.exec) {
            (_, Some(exec)) => Ok(Self::Exec(&exec.value)),
            (Some(token), None) => Ok(Self::Token(token.value.expose())),
            (None, None) => Err(RenderError::NoCredential),
        }
    }
}

fn join(cluster: &CompleteCluster, group: &CompleteGroup, identity: &Identity<'_>) -> Result<Join, RenderError> {
    let kubeconfig = path(required_flag(group, KUBECONFIG_FLAG)?)?;
    let (bootstrap_kubeconfig, client_certificate) = match identity {
        // The kubeconfig is all there is, from the beginning.
        Identity::Exec(_) => (kubeconfig.clone(), kubeconfig.clone()),
        Identity::Token(_) | Identity::SuperAdmin(_) => {
            (path(required_flag(group, BOOTSTRAP_KUBECONFIG_FLAG)?)?, path(kubelet::client_certificate(group))?)
        }
    };
    Ok(Join {
        api_server: cluster.api_server.value.as_str().to_owned(),
        bootstrap_kubeconfig,
        kubeconfig,
        client_certificate,
        kubelet_unit: name(KUBELET_UNIT)?,
        node_name: group.kubelet.flags.get(NODE_NAME_FLAG).map(|setting| setting.value.clone()),
    })
}

fn kubelet_part(
    cluster_name: &str,
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    identity: &Identity<'_>,
) -> Result<Part, RenderError> {
    let authority = cluster.join.certificate_authority.value.as_str();
    let server = cluster.api_server.value.as_str();
    let kubeconfig = |user, credential: Credential<'_>| {
        Content::from(render_kubeconfig(cluster_name, server, authority, user, &credential))
    };
    let (flag, credentials) = match identity {
        Identity::Token(token) => {
            (BOOTSTRAP_KUBECONFIG_FLAG, kubeconfig("kubelet-bootstrap", Credential::Token(token)))
        }
        Identity::Exec(program) => (KUBECONFIG_FLAG, kubeconfig("kubelet", Credential::Exec(program))),
        Identity::SuperAdmin(text) => (BOOTSTRAP_KUBECONFIG_FLAG, Content::from(*text)),
    };
    let task = match group.components.have_artefacts() {
        true => Some(spending::Task::Programs),
        false => identity.is_spent_by_joining().then_some(spending::Task::Credentials),
    };
    let nodestrap = group.delivery.nodestrap.path.value.as_str();
    let kubelet = KubeletUnit {
        binary: group.kubelet.binary.value.as_str(),
        arguments: vec![Argument::SplitVariable(ARGUMENTS_VARIABLE)],
        nodestrap,
        runtime_unit: runtime::unit_name(group.container_runtime.name.value),
        followers: [
            (cluster.networking.pod_network.value == PodNetwork::Bridge).then_some(NETWORK_UNIT),
            task.map(|_| bundle::SPENDING_UNIT),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    let mut files = vec![
        public(required_flag(group, CONFIG_FLAG)?, kubelet::render_config(&group.kubelet.config))?,
        secret(required_flag(group, flag)?, credentials)?,
        unit_file(KUBELET_UNIT, kubelet::render_unit(kubelet)?)?,
    ];
    // A control plane has the same certificate among its own.
    if group.role.value == Role::Worker {
        files.push(public(AUTHORITY_PATH, authority)?);
    }
    let mut part = Part { files, units: vec![unit(KUBELET_UNIT, Start::AfterGate)?], ..Part::default() };
    part.add(gate_unit::render(KUBELET_UNIT, nodestrap, GATE_PATH)?);
    if let Some(task) = task {
        part.add(spending::render(KUBELET_UNIT, nodestrap, task)?);
    }
    Ok(part)
}

/// A bridge on each node: `nodestrap network` configures it once the node has registered and knows its pod CIDRs.
pub(crate) fn pod_network(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    part: &mut Part,
) -> Result<Option<bundle::PodNetwork>, RenderError> {
    match cluster.networking.pod_network.value {
        PodNetwork::None => return Ok(None),
        PodNetwork::Bridge => {}
    }
    let nodestrap = group.delivery.nodestrap.path.value.as_str();
    part.files.push(unit_file(NETWORK_UNIT, network::render_unit(KUBELET_UNIT, nodestrap)?)?);
    part.units.push(unit(NETWORK_UNIT, Start::ByOthers)?);
    Ok(Some(bundle::PodNetwork {
        bridge: "cni0".to_owned(),
        cni_config: path("/etc/cni/net.d/10-nodestrap.conflist")?,
        unit: name(NETWORK_UNIT)?,
    }))
}

/// What the image must still bring.
fn required_programs(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    identity: &Identity<'_>,
    packages: Option<&Packages>,
) -> Result<Vec<AbsolutePath>, RenderError> {
    let mut programs = Vec::new();
    // They are what everything else is installed with.
    for program in packages.into_iter().flat_map(|packages| packages.manager.programs()) {
        programs.push(path(*program)?);
    }
    if !group.components.is_brought(Component::Kubelet) {
        programs.push(group.kubelet.binary.value.clone());
    }
    // Of a bare name only the kubelet's PATH knows where it is.
    if let Identity::Exec(program) = identity
        && program.command.as_str().starts_with('/')
    {
        programs.push(path(program.command.as_str())?);
    }
    programs.extend(runtime::required_program(group));
    if !group.components.is_brought(Component::CniPlugins) {
        programs.extend(network_plugins(cluster, group)?);
    }
    Ok(programs)
}

/// What the pod network of nodestrap's takes.
pub(crate) fn network_plugins(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
) -> Result<Vec<AbsolutePath>, RenderError> {
    let folder = &group.container_runtime.cni_binaries.value;
    match cluster.networking.pod_network.value {
        PodNetwork::Bridge => PLUGINS.iter().map(|plugin| path(format!("{folder}/{plugin}"))).collect(),
        PodNetwork::None => Ok(Vec::new()),
    }
}
