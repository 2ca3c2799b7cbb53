//! A lab, the spec that fits it, and a node that is bootstrapped by nodestrap.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use anyhow::Result;
use lab::{Lab, LabOptions, Node, NodeOptions, WorkerSpec};

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

/// The user data of a worker that is told this.
pub(crate) fn user_data(spec: &WorkerSpec) -> String {
    spec.user_data(&nodestrap()).unwrap_or_else(|error| panic!("{error:#}"))
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
