//! The pod network of a node whose pods are joined by a Linux bridge.
//!
//! The ranges of a node's pods are known only once it has registered, so the bundle carries [`NetworkSettings`] and
//! `nodestrap network` finishes on the node: it reads the ranges from the Node object and writes [`cni_config`].

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::RenderError;
use crate::json::pretty;
use crate::unit::{Section, UnitFile, arguments};

/// Where the bundle puts the settings of `nodestrap network`.
pub const NETWORK_SETTINGS_PATH: &str = "/etc/nodestrap/network.json";

/// Pulled in by the kubelet's unit, so that no target waits for a node that cannot register yet.
pub(crate) const NETWORK_UNIT: &str = "nodestrap-network.service";

/// The CNI plug-ins that [`cni_config`] names, and `loopback`, which containerd itself runs for every pod.
pub(crate) const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];

/// What `nodestrap network` needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkSettings {
    /// Name of the bridge, as an interface.
    pub bridge: String,
    /// Path of the kubelet's own certificate, which appears when the node has joined.
    pub client_certificate: String,
    /// Path of the CNI configuration to write.
    pub cni_config: String,
    /// Path of the kubelet's own kubeconfig.
    pub kubeconfig: String,
    /// `None`: the host name, as the kubelet registers it.
    pub node_name: Option<String>,
}

impl NetworkSettings {
    /// Reads the file at [`NETWORK_SETTINGS_PATH`].
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// The file of the bundle.
    pub(crate) fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a document has string keys and plain types only");
        text.push('\n');
        text
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

/// `nodestrap-network.service`; it has no `[Install]` section because the kubelet's unit wants it.
pub(crate) fn render_unit(kubelet_unit: &str, nodestrap: &str) -> Result<Vec<u8>, RenderError> {
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Pod network of this node")
            .text("Documentation", "https://www.cni.dev/docs/spec/")
            .words("After", &[kubelet_unit])
            .text("StartLimitIntervalSec", "0"),
        Section::new("Service")
            // Not a oneshot: systemd before 244 refuses Restart= for those. Nothing is ordered after this unit, so
            // it does not matter that it counts as started while it still waits for the node to register.
            .text("Type", "simple")
            // The kubelet's restarts pull the unit in again; once is enough until the next boot.
            .text("RemainAfterExit", "yes")
            .command("ExecStart", nodestrap, arguments(["network"]))
            .text("Restart", "on-failure")
            .text("RestartSec", "2"),
    ])
    .render()
}
