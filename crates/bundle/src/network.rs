//! The pod network of a node whose pods are joined by a Linux bridge.
//!
//! The ranges of a node's pods are known only once it has registered, so a node keeps [`NetworkSettings`] and
//! `nodestrap network` finishes on the node: it reads the ranges from the Node object and writes [`cni_config`].

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bundle::{Bundle, File};
use crate::json::pretty;
use crate::names::AbsolutePath;

/// Where a node keeps the settings of `nodestrap network`.
pub const NETWORK_SETTINGS_PATH: &str = "/etc/nodestrap/network.json";

/// The CNI plug-ins that [`cni_config`] names, and `loopback`, which containerd itself runs for every pod.
pub const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];

/// What `nodestrap network` needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkSettings {
    /// Name of the bridge, as an interface.
    pub bridge: String,
    /// Path of the kubelet's own certificate, which appears when the node has joined.
    pub client_certificate: AbsolutePath,
    /// Path of the CNI configuration to write.
    pub cni_config: AbsolutePath,
    /// Path of the kubelet's own kubeconfig.
    pub kubeconfig: AbsolutePath,
    /// `None`: the host name, as the kubelet registers it.
    pub node_name: Option<String>,
}

impl NetworkSettings {
    /// Reads the file at [`NETWORK_SETTINGS_PATH`].
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// What a bundle says of it, if its nodes have such a network.
    pub(crate) fn of(bundle: &Bundle) -> Option<Self> {
        let (network, join) = (bundle.pod_network.as_ref()?, &bundle.join);
        Some(Self {
            bridge: network.bridge.clone(),
            client_certificate: join.client_certificate.clone(),
            cni_config: network.cni_config.clone(),
            kubeconfig: join.kubeconfig.clone(),
            node_name: join.node_name.clone(),
        })
    }

    pub(crate) fn to_file(&self, bundle: &Bundle) -> File {
        let unit = bundle.pod_network.as_ref().map(|network| network.unit.clone());
        File::public(AbsolutePath::known(NETWORK_SETTINGS_PATH), pretty(self)).read_by(unit)
    }
}

/// The CNI configuration that joins the pods of this node, with one range for each of its pod CIDRs.
///
/// The CIDRs are those of the registered Node: at least one, at most one of each family.
pub fn cni_config(pod_cidrs: &[String], bridge: &str) -> String {
    let ranges: Vec<Value> = pod_cidrs.iter().map(|cidr| json!([{ "subnet": cidr }])).collect();
    let is_v6 = |cidr: &String| cidr.contains(':');
    let mut routes = Vec::new();
    if pod_cidrs.iter().any(|cidr| !is_v6(cidr)) {
        routes.push(json!({ "dst": "0.0.0.0/0" }));
    }
    if pod_cidrs.iter().any(is_v6) {
        routes.push(json!({ "dst": "::/0" }));
    }
    pretty(&json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": bridge,
                "isGateway": true,
                // Pod addresses are routed between nodes; what leaves the cluster is translated by whoever routes it.
                "ipMasq": false,
                // A pod may reach itself through its own service.
                "hairpinMode": true,
                "ipam": { "type": "host-local", "ranges": ranges, "routes": routes },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    }))
}
