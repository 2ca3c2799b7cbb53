//! The spec of a worker that fits a lab, and the user data that nodestrap makes of it.
//!
//! In: a lab, and what a test wants to say wrong on purpose. Out: text. Fails if the program does not render it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::lab::Lab;
use crate::network::API_SERVER_URL;

/// What is said about the cluster.
#[derive(Clone)]
pub struct WorkerSpec {
    pub token: String,
    pub authority_pem: String,
    pub service_cidrs: &'static str,
    /// More lines for the spec of the cluster, indented by two.
    pub more_of_cluster: String,
    /// More lines for the spec of the group, indented by two.
    pub more_of_group: String,
}

impl WorkerSpec {
    /// As it should be for this lab.
    pub fn of(lab: &Lab) -> Self {
        Self {
            token: lab.bootstrap_token().to_owned(),
            authority_pem: lab.ca_pem().to_owned(),
            service_cidrs: "[10.98.0.0/24]",
            more_of_cluster: String::new(),
            more_of_group: String::new(),
        }
    }

    /// The settings of kubelet and containerd are what this kind of machine needs; the README of this crate says why.
    pub fn text(&self) -> String {
        let authority = self.authority_pem.lines().fold(String::new(), |text, line| text + "      " + line + "\n");
        let Self { token, service_cidrs, more_of_cluster, more_of_group, .. } = self;
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
{more_of_cluster}---
apiVersion: nodestrap.io/v1alpha1
kind: NodeGroup
metadata: {{name: workers}}
spec:
  labels: {{example.com/pool: workers}}
  kubelet:
    config: {{cgroupDriver: cgroupfs, failCgroupV1: false, failSwapOn: false, localStorageCapacityIsolation: false}}
  containerRuntime:
    sandboxImage: nodestrap.local/pause:1
    config: {{plugins: {{io.containerd.cri.v1.runtime: {{restrict_oom_score_adj: true}}}}}}
{more_of_group}"
        )
    }

    /// What `nodestrap render` makes of it, for cloud-init.
    pub fn user_data(&self, nodestrap: &Path) -> Result<String> {
        let file = std::env::temp_dir().join(format!("nodestrap-lab-spec-{}-{:p}.yaml", std::process::id(), self));
        std::fs::write(&file, self.text()).with_context(|| format!("writing {}", file.display()))?;
        let output = Command::new(nodestrap).arg("render").arg(&file).output();
        std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        let output = output.with_context(|| format!("running {}", nodestrap.display()))?;
        ensure!(output.status.success(), "rendering the spec: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}
