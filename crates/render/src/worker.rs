//! The bundle of a worker: which files, units and programs, where they lie, and when they start.

use std::collections::BTreeMap;

use spec::{CompleteCluster, CompleteGroup, CompleteSpec, PodNetwork};

use crate::bundle::{Bundle, File, Gate, Join, NodeKind, Runtime, Secrecy, Start, Unit};
use crate::containerd::{self, CONTAINERD_UNIT};
use crate::error::RenderError;
use crate::gate::GATE_PATH;
use crate::kubelet::{self, ARGUMENTS_VARIABLE, KUBELET_UNIT};
use crate::network::{self, NETWORK_SETTINGS_PATH, NETWORK_UNIT, NetworkSettings};

// Flags by which the spec says where our files lie.
const CONFIG_FLAG: &str = "config";
const BOOTSTRAP_KUBECONFIG_FLAG: &str = "bootstrap-kubeconfig";
const KUBECONFIG_FLAG: &str = "kubeconfig";
/// Under which name the kubelet registers, if not that of the host.
const NODE_NAME_FLAG: &str = "hostname-override";

const AUTHORITY_PATH: &str = "/etc/kubernetes/pki/ca.crt";
const CONTAINERD_CONFIG_PATH: &str = "/etc/containerd/config.toml";

/// The bundle of one group of nodes.
pub fn render_bundle(spec: &CompleteSpec, group: &str) -> Result<Bundle, RenderError> {
    let Some(group) = spec.groups.iter().find(|candidate| candidate.name.value.as_str() == group) else {
        let known = spec.groups.iter().map(|known| known.name.value.to_string()).collect();
        return Err(RenderError::UnknownGroup { group: group.to_owned(), known });
    };
    let (name, group_name) = (spec.name.value.as_str(), group.name.value.as_str());
    let (cluster, group) = (&spec.cluster, &group.spec);
    let runtime = &group.container_runtime;
    let mut bundle = Bundle {
        cluster: name.to_owned(),
        group: group_name.to_owned(),
        kubernetes_version: group.kubernetes_version.value.to_string(),
        kind: NodeKind {
            role: group.role.value.to_string(),
            os: group.os.value.to_string(),
            provider: cluster.provider.value.to_string(),
            layout: cluster.layout.value.to_string(),
        },
        required_programs: vec![group.kubelet.binary.value.to_string(), runtime.binary.value.to_string()],
        files: node_files(name, cluster, group)?,
        units: vec![unit(CONTAINERD_UNIT, Start::BeforeGate), unit(KUBELET_UNIT, Start::AfterGate)],
        hooks: Vec::new(),
        runtime: Runtime {
            name: runtime.name.value.to_string(),
            source: runtime.source.value.to_string(),
            archive: None,
            package: None,
        },
        gate: gate(name, group_name, group)?,
        join: Join {
            api_server: cluster.api_server.value.as_str().to_owned(),
            bootstrap_kubeconfig: required_flag(group, BOOTSTRAP_KUBECONFIG_FLAG)?.to_owned(),
            kubeconfig: required_flag(group, KUBECONFIG_FLAG)?.to_owned(),
            node_name: group.kubelet.flags.get(NODE_NAME_FLAG).map(|setting| setting.value.clone()),
            client_certificate: format!("{}/kubelet-client-current.pem", certificate_folder(group)),
            kubelet_unit: KUBELET_UNIT.to_owned(),
        },
    };
    match cluster.networking.pod_network.value {
        PodNetwork::Bridge => add_bridge_network(&mut bundle, group)?,
        PodNetwork::None => {}
    }
    bundle.files.sort_by(|one, other| one.path.cmp(&other.path));
    bundle.validate().map_err(|source| RenderError::Bundle { source })?;
    Ok(bundle)
}

/// A flag without which the kubelet would not find what we write for it.
fn required_flag<'a>(group: &'a CompleteGroup, flag: &'static str) -> Result<&'a str, RenderError> {
    group.kubelet.flags.get(flag).map(|setting| setting.value.as_str()).ok_or(RenderError::MissingFlag { flag })
}

/// The kubelet's own default, unless the user says otherwise.
fn certificate_folder(group: &CompleteGroup) -> &str {
    group.kubelet.flags.get("cert-dir").map_or("/var/lib/kubelet/pki", |setting| setting.value.as_str())
}

fn gate(cluster: &str, name: &str, group: &CompleteGroup) -> Result<Gate, RenderError> {
    let environment = BTreeMap::from([
        (ARGUMENTS_VARIABLE.to_owned(), kubelet::render_arguments(&group.kubelet.flags)?),
        ("NODESTRAP_CLUSTER".to_owned(), cluster.to_owned()),
        ("NODESTRAP_GROUP".to_owned(), name.to_owned()),
    ]);
    Ok(Gate { path: GATE_PATH.to_owned(), environment, facts: Vec::new() })
}

fn node_files(name: &str, cluster: &CompleteCluster, group: &CompleteGroup) -> Result<Vec<File>, RenderError> {
    let authority = cluster.join.certificate_authority.value.as_str();
    let network_unit = match cluster.networking.pod_network.value {
        PodNetwork::Bridge => Some(NETWORK_UNIT),
        PodNetwork::None => None,
    };
    let bootstrap_kubeconfig = kubelet::render_bootstrap_kubeconfig(
        name,
        cluster.api_server.value.as_str(),
        authority,
        cluster.join.bootstrap_token.as_ref().map_or("", |token| token.value.expose()),
    );
    Ok(vec![
        public(required_flag(group, CONFIG_FLAG)?, kubelet::render_config(&group.kubelet.config)),
        secret(required_flag(group, BOOTSTRAP_KUBECONFIG_FLAG)?, bootstrap_kubeconfig),
        public(AUTHORITY_PATH, authority.as_bytes().to_vec()),
        public(CONTAINERD_CONFIG_PATH, containerd::render_config(&group.container_runtime.config)?),
        public(&unit_path(KUBELET_UNIT), kubelet::render_unit(group.kubelet.binary.value.as_str(), network_unit)?),
    ])
}

/// A bridge on each node: `nodestrap network` configures it once the node has registered and knows its pod CIDRs.
fn add_bridge_network(bundle: &mut Bundle, group: &CompleteGroup) -> Result<(), RenderError> {
    let plugins = &group.container_runtime.cni_binaries.value;
    bundle.required_programs.extend(network::PLUGINS.map(|plugin| format!("{plugins}/{plugin}")));
    bundle.units.push(unit(NETWORK_UNIT, Start::ByOthers));
    let settings = NetworkSettings {
        bridge: "cni0".to_owned(),
        cni_config: "/etc/cni/net.d/10-nodestrap.conflist".to_owned(),
        kubeconfig: bundle.join.kubeconfig.clone(),
        client_certificate: bundle.join.client_certificate.clone(),
        node_name: bundle.join.node_name.clone(),
    };
    bundle.files.extend([
        public(NETWORK_SETTINGS_PATH, settings.to_json().into_bytes()),
        public(&unit_path(NETWORK_UNIT), network::render_unit(KUBELET_UNIT)?),
    ]);
    Ok(())
}

fn public(path: &str, content: Vec<u8>) -> File {
    File { path: path.to_owned(), mode: 0o644, secrecy: Secrecy::Public, content }
}

fn secret(path: &str, content: Vec<u8>) -> File {
    File { path: path.to_owned(), mode: 0o600, secrecy: Secrecy::Secret, content }
}

fn unit(name: &str, start: Start) -> Unit {
    Unit { name: name.to_owned(), start }
}

fn unit_path(name: &str) -> String {
    format!("/etc/systemd/system/{name}")
}
