//! The spec of a worker that fits a lab, and what nodestrap makes of it.
//!
//! In: a lab, and what a test wants to say otherwise or wrong on purpose. Out: text. Fails if the program does not render it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::KUBE_PROXY_IMAGE;
use crate::identities::Identities;
use crate::lab::Lab;
use crate::network::API_SERVER_URL;

/// What is said about the cluster.
#[derive(Clone)]
pub struct WorkerSpec {
    pub token: String,
    pub authority_pem: String,
    pub service_cidrs: &'static str,
    /// Of the group, as a mapping in YAML.
    pub labels: &'static str,
    /// More fields of the Cluster's spec, in YAML, from the first column on.
    pub cluster: String,
    /// More fields of the NodeGroup's spec, likewise.
    pub group: String,
}

/// What `nodestrap render` gave.
#[derive(Clone)]
pub struct Rendered {
    pub bytes: Vec<u8>,
    /// What it said beside that, for a person.
    pub remarks: String,
}

impl WorkerSpec {
    /// As it should be for this lab.
    pub fn of(lab: &Lab) -> Self {
        Self {
            token: lab.bootstrap_token().to_owned(),
            authority_pem: lab.ca_pem().to_owned(),
            service_cidrs: if lab.is_dual_stack() { "[10.98.0.0/24, 'fd98::/112']" } else { "[10.98.0.0/24]" },
            labels: "{example.com/pool: workers}",
            cluster: String::new(),
            group: String::new(),
        }
    }

    /// With kube-proxy as a static pod, whose image [`Lab::kube_proxy_image`] has.
    pub fn with_kube_proxy(mut self, lab: &Lab) -> Result<Self> {
        let kubeconfig = indented(&Identities::in_lab(lab.folder()).kube_proxy_kubeconfig()?, 4);
        // A network namespace cannot say how many connections the machine may track.
        self.cluster.push_str(&format!(
            "kubeProxy:\n  image: {KUBE_PROXY_IMAGE}\n  config: {{conntrack: {{maxPerCore: 0, min: 0}}}}\n  kubeconfig: |\n{kubeconfig}"
        ));
        Ok(self)
    }

    /// The settings of kubelet and containerd are what this kind of machine needs; the README of this crate says why.
    pub fn text(&self) -> String {
        let authority = indented(&self.authority_pem, 6);
        let (cluster, group) = (indented(&self.cluster, 2), indented(&self.group, 2));
        let Self { token, service_cidrs, labels, .. } = self;
        format!(
            "\
apiVersion: nodestrap.io/v1alpha1
kind: Cluster
metadata: {{name: lab}}
spec:
  apiServer: {API_SERVER_URL}
  join:
    bootstrapToken: {token}
    certificateAuthority: |
{authority}  networking: {{serviceCIDRs: {service_cidrs}}}
{cluster}---
apiVersion: nodestrap.io/v1alpha1
kind: NodeGroup
metadata: {{name: workers}}
spec:
  labels: {labels}
  kubelet:
    config: {{cgroupDriver: cgroupfs, failCgroupV1: false, failSwapOn: false, localStorageCapacityIsolation: false}}
  containerRuntime:
    sandboxImage: nodestrap.local/pause:1
    config: {{plugins: {{io.containerd.cri.v1.runtime: {{restrict_oom_score_adj: true}}}}}}
{group}"
        )
    }

    /// User data, in the form that the spec decides on.
    pub fn user_data(&self, nodestrap: &Path) -> Result<Vec<u8>> {
        self.render(nodestrap, &[]).map(|rendered| rendered.bytes)
    }

    /// `nodestrap render` with more arguments, such as `&["--format", "bundle"]`.
    pub fn render(&self, nodestrap: &Path, arguments: &[&str]) -> Result<Rendered> {
        let folder = tempfile::tempdir().context("making a folder for the spec")?;
        let file = folder.path().join("spec.yaml");
        std::fs::write(&file, self.text()).with_context(|| format!("writing {}", file.display()))?;
        let output = Command::new(nodestrap).arg("render").arg(&file).args(arguments).output();
        let output = output.with_context(|| format!("running {}", nodestrap.display()))?;
        let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "rendering the spec: {remarks}");
        Ok(Rendered { bytes: output.stdout, remarks })
    }
}

fn indented(text: &str, columns: usize) -> String {
    text.lines().map(|line| format!("{:columns$}{line}\n", "")).collect()
}
