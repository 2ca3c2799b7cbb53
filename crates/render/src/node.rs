//! The bundle of a node: the table of contents. What each part says is in the module that it is named after.

use std::collections::BTreeMap;

use spec::{CompleteCluster, CompleteGroup, CompleteNodeGroup, CompleteSpec, ExecCredential, Layout, PodNetwork, Role};

use crate::bundle::{Bundle, File, Gate, Join, NodeKind, Part, Start, Unit};
use crate::content::Content;
use crate::error::RenderError;
use crate::extras::{self, HookInputs};
use crate::gate::GATE_PATH;
use crate::kubeconfig::{Credential, render_kubeconfig};
use crate::kubelet::{
    self, ARGUMENTS_VARIABLE, BOOTSTRAP_KUBECONFIG_FLAG, CONFIG_FLAG, KUBECONFIG_FLAG, KUBELET_UNIT, KubeletUnit,
    NODE_NAME_FLAG, required_flag,
};
use crate::network::{self, NETWORK_SETTINGS_PATH, NETWORK_UNIT, NetworkSettings};
use crate::shared::Shared;
use crate::{layout, runtime, static_pods, system, webhook};

pub(crate) const AUTHORITY_PATH: &str = "/etc/kubernetes/pki/ca.crt";

/// The bundle of one group of nodes.
pub fn render_bundle(spec: &CompleteSpec, group: &str) -> Result<Bundle, RenderError> {
    render_node(spec, find_group(spec, group)?, &Shared::default())
}

pub(crate) fn find_group<'s>(spec: &'s CompleteSpec, name: &str) -> Result<&'s CompleteNodeGroup, RenderError> {
    spec.groups.iter().find(|candidate| candidate.name.value.as_str() == name).ok_or_else(|| {
        let known = spec.groups.iter().map(|known| known.name.value.to_string()).collect();
        RenderError::UnknownGroup { group: name.to_owned(), known }
    })
}

pub(crate) fn render_node<'s>(
    spec: &'s CompleteSpec,
    group: &'s CompleteNodeGroup,
    shared: &Shared<'s>,
) -> Result<Bundle, RenderError> {
    let mut bundle = match spec.cluster.layout.value {
        Layout::Nodestrap => render(spec, group, shared),
        Layout::Eksctl => layout::eksctl::render(spec, group, shared),
        Layout::Tectonic => layout::tectonic::render(spec, group, shared),
    }?;
    bundle.files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    shared.finish(&mut bundle).map_err(|problem| RenderError::Bundle { problem })?;
    Ok(bundle)
}

/// nodestrap's own layout.
fn render<'s>(
    spec: &'s CompleteSpec,
    node_group: &'s CompleteNodeGroup,
    shared: &Shared<'s>,
) -> Result<Bundle, RenderError> {
    let (cluster, group) = (&spec.cluster, &node_group.spec);
    let name = spec.name.value.as_str();
    let identity = Identity::of(cluster, group)?;
    let join = join(cluster, group, &identity)?;

    let mut part = system::render_system(cluster, group, &[KUBELET_UNIT], shared)?;
    part.add(runtime::render_runtime(&group.container_runtime, &cluster.registry_mirrors.value, shared)?);
    part.add(extras::render_extra_units(&group.units.value));
    part.add(kubelet_part(name, cluster, group, &identity, shared)?);
    part.add(network_part(cluster, group, &join, shared)?);
    part.files.extend(webhook::render_webhook(&cluster.report));
    part.files.extend(extras::render_file_assets(&group.file_assets.value));
    part.files.extend(static_pods::render_static_pods(cluster, group)?);
    let (hook_files, hooks) = extras::render_hooks(&group.hooks.value, &HookInputs::of(cluster, group))?;
    part.files.extend(hook_files);

    Ok(Bundle {
        cluster: name.to_owned(),
        group: node_group.name.value.to_string(),
        kubernetes_version: group.kubernetes_version.value.to_string(),
        kind: kind(cluster, group),
        required_programs: required_programs(cluster, group, &identity),
        files: part.files,
        units: part.units,
        hooks,
        runtime: runtime::describe(&group.container_runtime, &cluster.assets.file_repositories.value),
        gate: gate(spec, node_group, kubelet::render_arguments(&group.kubelet.flags)?),
        join,
    })
}

pub(crate) fn kind(cluster: &CompleteCluster, group: &CompleteGroup) -> NodeKind {
    NodeKind {
        role: group.role.value.as_str().to_owned(),
        os: group.os.value.as_str().to_owned(),
        provider: cluster.provider.value.as_str().to_owned(),
        layout: cluster.layout.value.as_str().to_owned(),
    }
}

pub(crate) fn gate(spec: &CompleteSpec, group: &CompleteNodeGroup, arguments: String) -> Gate {
    let environment = BTreeMap::from([
        (ARGUMENTS_VARIABLE.to_owned(), arguments),
        ("NODESTRAP_CLUSTER".to_owned(), spec.name.value.to_string()),
        ("NODESTRAP_GROUP".to_owned(), group.name.value.to_string()),
    ]);
    Gate { path: GATE_PATH.to_owned(), environment, facts: Vec::new() }
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
    let kubeconfig = required_flag(group, KUBECONFIG_FLAG)?.to_owned();
    let (bootstrap_kubeconfig, client_certificate) = match identity {
        // The kubeconfig is all there is, from the beginning.
        Identity::Exec(_) => (kubeconfig.clone(), kubeconfig.clone()),
        Identity::Token(_) | Identity::SuperAdmin(_) => {
            (required_flag(group, BOOTSTRAP_KUBECONFIG_FLAG)?.to_owned(), kubelet::client_certificate(group))
        }
    };
    Ok(Join {
        api_server: cluster.api_server.value.as_str().to_owned(),
        bootstrap_kubeconfig,
        kubeconfig,
        client_certificate,
        kubelet_unit: KUBELET_UNIT.to_owned(),
        node_name: group.kubelet.flags.get(NODE_NAME_FLAG).map(|setting| setting.value.clone()),
    })
}

fn kubelet_part<'s>(
    name: &str,
    cluster: &CompleteCluster,
    group: &'s CompleteGroup,
    identity: &Identity<'_>,
    shared: &Shared<'s>,
) -> Result<Part, RenderError> {
    let authority = cluster.join.certificate_authority.value.as_str();
    let server = cluster.api_server.value.as_str();
    let kubeconfig = |user, credential: Credential<'_>| {
        shared.kubeconfig.of(user, |user| Ok(render_kubeconfig(name, server, authority, user, &credential)))
    };
    let (flag, credentials) = match identity {
        Identity::Token(token) => {
            (BOOTSTRAP_KUBECONFIG_FLAG, kubeconfig("kubelet-bootstrap", Credential::Token(token))?)
        }
        Identity::Exec(program) => (KUBECONFIG_FLAG, kubeconfig("kubelet", Credential::Exec(program))?),
        Identity::SuperAdmin(text) => (BOOTSTRAP_KUBECONFIG_FLAG, Content::from(*text)),
    };
    let unit = KubeletUnit {
        binary: group.kubelet.binary.value.as_str(),
        nodestrap: group.delivery.nodestrap.path.value.as_str(),
        runtime_unit: runtime::unit_name(group.container_runtime.name.value),
        network_unit: match cluster.networking.pod_network.value {
            PodNetwork::Bridge => Some(NETWORK_UNIT),
            PodNetwork::None => None,
        },
    };
    let mut files = vec![
        File::public(required_flag(group, CONFIG_FLAG)?, kubelet::render_config(&group.kubelet.config)),
        File::secret(required_flag(group, flag)?, credentials),
        File::unit(KUBELET_UNIT, shared.kubelet_unit.of(unit, kubelet::render_unit)?),
    ];
    // A control plane has the same certificate among its own.
    if group.role.value == Role::Worker {
        files.push(File::public(AUTHORITY_PATH, authority));
    }
    Ok(Part { files, units: vec![Unit::new(KUBELET_UNIT, Start::AfterGate)] })
}

/// A bridge on each node: `nodestrap network` configures it once the node has registered and knows its pod CIDRs.
fn network_part<'s>(
    cluster: &CompleteCluster,
    group: &'s CompleteGroup,
    join: &Join,
    shared: &Shared<'s>,
) -> Result<Part, RenderError> {
    match cluster.networking.pod_network.value {
        PodNetwork::None => return Ok(Part::default()),
        PodNetwork::Bridge => {}
    }
    let settings = NetworkSettings {
        bridge: "cni0".to_owned(),
        cni_config: "/etc/cni/net.d/10-nodestrap.conflist".to_owned(),
        kubeconfig: join.kubeconfig.clone(),
        client_certificate: join.client_certificate.clone(),
        node_name: join.node_name.clone(),
    };
    let nodestrap = group.delivery.nodestrap.path.value.as_str();
    let unit = shared.network_unit.of(nodestrap, |nodestrap| network::render_unit(KUBELET_UNIT, nodestrap))?;
    Ok(Part {
        files: vec![File::public(NETWORK_SETTINGS_PATH, settings.to_json()), File::unit(NETWORK_UNIT, unit)],
        units: vec![Unit::new(NETWORK_UNIT, Start::ByOthers)],
    })
}

fn required_programs(cluster: &CompleteCluster, group: &CompleteGroup, identity: &Identity<'_>) -> Vec<String> {
    let mut programs = vec![group.kubelet.binary.value.to_string()];
    // Of a bare name only the kubelet's PATH knows where it is.
    if let Identity::Exec(program) = identity
        && program.command.as_str().starts_with('/')
    {
        programs.push(program.command.to_string());
    }
    programs.extend(runtime::required_program(&group.container_runtime));
    if cluster.networking.pod_network.value == PodNetwork::Bridge {
        let folder = &group.container_runtime.cni_binaries.value;
        programs.extend(network::PLUGINS.map(|plugin| [folder.as_str(), "/", plugin].concat()));
    }
    programs
}
