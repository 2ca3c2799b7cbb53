//! A lab, the spec that fits it, and a node that is bootstrapped by nodestrap.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab::{Lab, LabOptions, Node, NodeOptions};

/// Generous: the machine is small and other tests run beside this one. Nothing is asserted about the time taken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// The static binary, as `make booted` built it.
pub(crate) fn nodestrap() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// `None` where no lab can run; says so aloud.
pub(crate) fn lab(options: LabOptions) -> Option<Lab> {
    lab::require().then(|| Lab::up(options).unwrap_or_else(|error| panic!("the lab comes up: {error:#}")))
}

/// What is said about this cluster; each test may say it wrong.
#[derive(Clone)]
pub(crate) struct SpecText {
    pub(crate) token: String,
    pub(crate) authority: String,
    pub(crate) service_cidrs: &'static str,
}

impl SpecText {
    pub(crate) fn of(lab: &Lab) -> Self {
        Self {
            token: lab.bootstrap_token().to_owned(),
            authority: lab.ca_pem().to_owned(),
            service_cidrs: "[10.98.0.0/24]",
        }
    }

    /// The settings below `kubelet` and `containerRuntime` are what this kind of machine needs; see crates/lab/README.md.
    fn text(&self) -> String {
        let authority = self.authority.lines().fold(String::new(), |text, line| text + "      " + line + "\n");
        format!(
            "apiVersion: nodestrap.io/v1alpha1\nkind: Cluster\nmetadata: {{name: lab}}\nspec:\n  apiServer: \
             https://10.99.0.1:6443\n  join:\n    bootstrapToken: {}\n    certificateAuthority: |\n{authority}  networking: \
             {{serviceCIDRs: {}}}\n---\napiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: workers}}\n\
             spec:\n  labels: {{example.com/pool: workers}}\n  kubelet:\n    config: {{cgroupDriver: cgroupfs, failCgroupV1: \
             false, failSwapOn: false, localStorageCapacityIsolation: false}}\n  containerRuntime:\n    sandboxImage: \
             nodestrap.local/pause:1\n    config: {{plugins: {{io.containerd.cri.v1.runtime: {{restrict_oom_score_adj: \
             true}}}}}}\n",
            self.token, self.service_cidrs
        )
    }

    /// The user data that `nodestrap render` makes of it.
    pub(crate) fn user_data(&self) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("cluster.yaml");
        std::fs::write(&file, self.text())?;
        let output = Command::new(nodestrap()).arg("render").arg(&file).output().context("nodestrap runs")?;
        ensure!(output.status.success(), "render: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// A node with nodestrap in its image and this user data, not yet started.
pub(crate) fn node(name: &str, user_data: &str) -> NodeOptions<'static> {
    NodeOptions::named(name).user_data(user_data.to_owned()).nodestrap(nodestrap())
}

pub(crate) fn status(node: &Node) -> Result<Output> {
    node.exec(&["/usr/bin/nodestrap", "status"])
}

/// What nodestrap made, one line a file: mode, owner, digest, path. Times and the journal are left out.
pub(crate) fn tree(node: &Node) -> Result<String> {
    let script = "cd / && find etc/kubernetes etc/containerd etc/nodestrap etc/systemd/system etc/cni \
                  \\( -type f -o -type l \\) | sort | while read -r f; do \
                  if [ -L \"$f\" ]; then echo \"link $(readlink \"$f\") $f\"; \
                  else echo \"$(stat -c '%a %u:%g' \"$f\") $(sha256sum < \"$f\" | cut -c1-64) $f\"; fi; done";
    node.run(&["sh", "-c", script])
}
