//! Pods of the probe image: they answer their name on TCP 8080 and can be asked to connect to each other.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cache::PROBE_IMAGE;
use crate::command::stdout_of;
use crate::lab::Lab;
use crate::network::inside;
use crate::node::Node;
use crate::wait::wait_until;

/// The image is on the node already; what takes time is a node under load.
const POD_DEADLINE: Duration = Duration::from_secs(90);

/// Another one than the pod's own, so that only a proxy can answer there.
const SERVICE_PORT: u16 = 80;

/// A running pod.
#[derive(Debug, Clone)]
pub struct Pod {
    pub name: String,
    /// One, or two in a dual-stack lab; IPv4 first.
    pub addresses: Vec<String>,
}

impl Lab {
    /// Runs a probe pod on a node and returns when it is Ready.
    pub fn run_pod(&self, name: &str, node: &str) -> Result<Pod> {
        self.start_pod(name, &probe_pod(name, node))
    }

    /// A pod that the scheduler puts on this node, behind a Service of its name: returns when the cluster's address of that answers
    /// on the node itself with the name of the pod. Somebody has to proxy services there.
    pub fn service_answers(&self, name: &str, node: &Node) -> Result<Pod> {
        let pod = self.start_pod(name, &scheduled_pod(name, node.name()))?;
        self.kubectl_with_input(&["apply", "-f", "-"], &service(name).to_string())?;
        let address = self.kubectl_json(&["get", "service", name])?["spec"]["clusterIP"].take();
        let address = address.as_str().filter(|address| *address != "None").context("the service has no address")?;
        wait_until(&format!("the service {name} to answer at {address} on {}", node.name()), POD_DEADLINE, || {
            let mut probe = inside(self.name(), node.name(), &self.cache().probe);
            let answer = stdout_of(probe.args(["connect", address, &SERVICE_PORT.to_string()]))?;
            ensure!(answer.trim() == name, "'{}' answered", answer.trim());
            Ok(Some(()))
        })
        .with_context(|| node.diagnosis(&["kubelet.service", "nodestrap-lab-images.service"]))?;
        Ok(pod)
    }

    fn start_pod(&self, name: &str, manifest: &Value) -> Result<Pod> {
        wait_until("the default service account", POD_DEADLINE, || {
            self.kubectl(&["get", "serviceaccount", "default"]).map(Some)
        })?;
        self.kubectl_with_input(&["apply", "-f", "-"], &manifest.to_string())?;
        let pod = wait_until(&format!("pod {name} to be Ready"), POD_DEADLINE, || {
            let pod = self.kubectl_json(&["get", "pod", name])?;
            Ok(is_ready(&pod).then_some(pod))
        })
        .with_context(|| self.kubectl(&["describe", "pod", name]).unwrap_or_default())?;
        let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
        let addresses: Vec<String> = addresses.filter_map(|entry| entry["ip"].as_str().map(Into::into)).collect();
        if addresses.is_empty() {
            bail!("pod {name} is Ready and has no address");
        }
        Ok(Pod { name: name.to_owned(), addresses })
    }

    /// Runs a command in a pod and returns its standard output.
    pub fn pod_exec(&self, pod: &str, words: &[&str]) -> Result<String> {
        self.kubectl(&[&["exec", pod, "--"], words].concat())
    }

    /// Connects from one pod to an address and returns what answered: the name of the pod that listens there.
    pub fn pod_connect(&self, from: &str, address: &str) -> Result<String> {
        Ok(self.pod_exec(from, &["/probe", "connect", address])?.trim().to_owned())
    }
}

fn probe_pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "probe"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "probe", "image": PROBE_IMAGE, "imagePullPolicy": "Never"}],
        },
    })
}

/// As a user writes it: who runs it is for the scheduler to say, among the nodes of this name.
fn scheduled_pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "probe", "image": PROBE_IMAGE, "imagePullPolicy": "Never"}],
        },
    })
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": SERVICE_PORT, "targetPort": 8080}]},
    })
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
