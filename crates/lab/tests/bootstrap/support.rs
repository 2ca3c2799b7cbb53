//! A lab, the spec that fits it, and a node that is bootstrapped by nodestrap.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::Result;
use lab::flow::Prepared;
use lab::{Flow, Lab, LabOptions, Node, NodeOptions, Patch, WorkerSpec, stdout_of};

/// Generous: the machine is small and other tests run beside this one. Nothing is asserted about the time taken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) const GATE: &str = "/etc/kubernetes/kubelet.env";
const KUBELET: &str = "kubelet.service";

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
pub(crate) fn user_data(spec: &WorkerSpec) -> Vec<u8> {
    spec.user_data(&nodestrap()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// A node with nodestrap in its image and this user data, not yet started.
pub(crate) fn node(name: &str, user_data: &[u8]) -> NodeOptions<'static> {
    NodeOptions::named(name).user_data(user_data.to_owned()).nodestrap(nodestrap())
}

/// Ready by the word of a kubelet that was started in the boot that is running, not by that of an earlier one.
pub(crate) fn wait_ready_in_this_boot(lab: &Lab, machine: &Node) -> Result<()> {
    lab.wait_ready_in_this_boot(machine, PATIENCE)
}

/// A node of that flow which is Ready, and what stands around it.
pub(crate) fn ready_by(flow: Flow, lab: &Lab, name: &str) -> Prepared {
    let prepared = flow.prepare(lab, name, &nodestrap(), &|_| ()).unwrap_or_else(|error| panic!("{error:#}"));
    prepared.boot_until_ready(lab, PATIENCE).expect("Ready");
    prepared
}

/// By the word of a kubelet of that patch.
#[track_caller]
pub(crate) fn wait_ready_with(lab: &Lab, machine: &Node, patch: Patch) {
    let wanted = format!("v{}", patch.kubernetes_version());
    machine
        .wait_until(&format!("a kubelet of {wanted}"), PATIENCE, |node| {
            let seen = lab.kubectl_json(&["get", "node", node.name()])?;
            Ok(seen["status"]["nodeInfo"]["kubeletVersion"] == wanted.as_str())
        })
        .expect("the kubelet of the new bundle");
    lab.wait_ready_in_this_boot(machine, PATIENCE).expect("Ready");
}

/// The bundle of another spec, in the place of the one before.
pub(crate) fn deliver(machine: &Node, spec: &WorkerSpec) {
    let bundle = spec.render(&nodestrap(), &["--format", "bundle"]).expect("a bundle").bytes;
    std::fs::write(machine.root().join("etc/nodestrap/bundle.json"), bundle).expect("delivered");
}

/// What is in folders of a root, whether or not anybody runs in it: one line for each file or link.
pub(crate) fn files_below(root: &Path, folders: &[&str]) -> String {
    let script = list_script(&root.display().to_string(), &folders.join(" "));
    stdout_of(Command::new("sh").args(["-c", &script])).expect("a list")
}

pub(crate) fn exists(node: &Node, path: &str) -> Result<bool> {
    Ok(node.exec(&["test", "-e", path])?.status.success())
}

pub(crate) fn wait_for_gate(machine: &Node) -> Result<()> {
    machine.wait_until("the gate is open", PATIENCE, |node| exists(node, GATE))
}

/// Damages a gate behind our back, which is then taken away: the bootstrap runs again by itself.
pub(crate) fn damage_gate(machine: &Node, gate: &str) -> Result<()> {
    machine.run(&["sh", "-c", &format!("echo KUBELET_ARGS= > {gate}")])?;
    machine.exec(&["systemctl", "restart", "--no-block", KUBELET])?;
    wait_mended(machine, gate, KUBELET)
}

/// The gate is whole again, after it was damaged, and the kubelet runs.
pub(crate) fn wait_mended(machine: &Node, gate: &str, kubelet: &str) -> Result<()> {
    machine.wait_until("the gate is whole again and the kubelet runs", PATIENCE, |node| {
        let is_whole = node.exec(&["nodestrap", "gate", "--path", gate])?.status.success();
        Ok(is_whole && node.exec(&["systemctl", "is-active", "-q", kubelet])?.status.success())
    })
}

/// As it is on every boot that finds the node complete.
#[track_caller]
pub(crate) fn assert_bootstrap_skipped(machine: &Node) {
    let condition = machine.run(&["systemctl", "show", "-P", "ConditionResult", "k8s-node-bootstrap.service"]);
    assert_eq!(condition.expect("systemctl").trim(), "no", "the bootstrap must be skipped on later boots");
}

/// What the node joined with has been taken away.
pub(crate) fn wait_spent(machine: &Node) -> Result<()> {
    machine.wait_until("the bootstrap credentials are spent", PATIENCE, |node| {
        Ok(!exists(node, "/etc/kubernetes/bootstrap-kubelet.kubeconfig")?)
    })
}

pub(crate) fn status(node: &Node) -> Result<Output> {
    node.exec(&["/usr/bin/nodestrap", "status"])
}

/// What nodestrap made, one line a file: mode, owner, digest, path. Times and the journal are left out.
pub(crate) fn tree(node: &Node) -> Result<String> {
    files_in(
        node,
        "etc/kubernetes etc/containerd etc/nodestrap etc/systemd/system etc/cni etc/sysctl.d etc/modules-load.d",
    )
}

/// The same of the programs that nodestrap brought, and of what it fetched for them.
pub(crate) fn programs(node: &Node) -> Result<String> {
    files_in(node, "opt usr/local/bin var/lib/nodestrap/store")
}

fn files_in(node: &Node, folders: &str) -> Result<String> {
    node.run(&["sh", "-c", &list_script("/", folders)])
}

fn list_script(root: &str, folders: &str) -> String {
    // With none of the folders there, find would look everywhere; the first is no file, and never listed.
    format!(
        "cd {root} && find /dev/null $(ls -d {folders} 2>/dev/null) \\( -type f -o -type l \\) | sort | while read -r f; do \
         if [ -L \"$f\" ]; then echo \"link $(readlink \"$f\") $f\"; \
         else echo \"$(stat -c '%a %u:%g' \"$f\") $(sha256sum < \"$f\" | cut -c1-64) $f\"; fi; done"
    )
}

/// What the one who runs the tests says; absent is for the test to decide.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}
