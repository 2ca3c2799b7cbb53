//! A node that joins with a kubelet configured by hand: what the lab proves itself with, without nodestrap.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use pki::{Credential, Kubeconfig, Secret};
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::network::Addresses;
use crate::node::{Node, NodeOptions};
use crate::node_root::{Enable, install_unit, write_file};
use crate::paths::recipe;
use crate::wait::wait_until;

const JOIN_DEADLINE: Duration = Duration::from_secs(120);

/// Each line was needed on a machine with cgroup v1 and no swap control; see the README.
const KUBELET_CONFIGURATION: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
rotateCertificates: true
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
";

impl Lab {
    /// Adds a node with a hand-made kubelet and returns when it is Ready.
    pub fn add_plain_node(&self, name: &str) -> Result<Node> {
        let options = NodeOptions::named(name).not_started();
        let node = self.add_node(options)?;
        self.configure_kubelet(&node.root(), name, &node.addresses())?;
        node.start()?;
        let ranges = wait_until(&format!("pod ranges of node {name}"), JOIN_DEADLINE, || {
            let ranges = self.kubectl_json(&["get", "node", name])?["spec"]["podCIDRs"].take();
            Ok(ranges.as_array().cloned().filter(|ranges| !ranges.is_empty()))
        })
        .with_context(|| node.diagnosis(&["kubelet.service", "containerd.service"]))?;
        let network = bridge_network(&ranges).to_string();
        write_file(&node.root().join("etc/cni/net.d/10-bridge.conflist"), &network)?;
        self.wait_node_ready(name, JOIN_DEADLINE)?;
        Ok(node)
    }

    fn configure_kubelet(&self, root: &Path, name: &str, addresses: &Addresses) -> Result<()> {
        let kubernetes = root.join("etc/kubernetes");
        write_file(&kubernetes.join("ca.crt"), self.ca_pem())?;
        write_file(&kubernetes.join("kubelet.yaml"), KUBELET_CONFIGURATION)?;
        let token = Secret::new(self.bootstrap_token());
        let bootstrap = Kubeconfig {
            cluster_name: "lab",
            server: self.api_server_url(),
            authority_pem: self.ca_pem(),
            user_name: "bootstrap",
            credential: Credential::Token(&token),
        };
        write_file(&kubernetes.join("bootstrap.kubeconfig"), bootstrap.render().expose())?;
        let node_ip =
            if self.is_dual_stack() { format!("{},{}", addresses.v4, addresses.v6) } else { addresses.v4.to_string() };
        write_file(&root.join("etc/kubernetes/node.env"), format!("NODE_NAME={name}\nNODE_IP={node_ip}\n"))?;
        install_unit(root, &recipe("node").join("containerd.service"), Enable::AsInstallSectionSays)?;
        install_unit(root, &recipe("plain-kubelet").join("kubelet.service"), Enable::AsInstallSectionSays)
    }
}

/// One address range per family, the node itself as the pods' gateway, no masquerading: the hub routes pod addresses.
fn bridge_network(ranges: &[Value]) -> Value {
    let subnets: Vec<Value> = ranges.iter().map(|range| json!([{"subnet": range}])).collect();
    let is_v6 = |range: &Value| range.as_str().is_some_and(|text| text.contains(':'));
    let default_route = |range| json!({"dst": if is_v6(range) { "::/0" } else { "0.0.0.0/0" }});
    let routes: Vec<Value> = ranges.iter().map(default_route).collect();
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
                "ipam": {"type": "host-local", "ranges": subnets, "routes": routes},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}
