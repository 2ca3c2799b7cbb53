//! A disk that is copied to another machine is no second node of the same name.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use lab::{LabOptions, WorkerSpec};

use crate::support::{PATIENCE, lab, node, user_data};

/// What makes a complete node, from one root to another; the machine-id is emptied, as image tools do.
fn copy_disk(from: &Path, to: &Path) -> Result<()> {
    for folder in ["etc", "var/lib/nodestrap", "var/lib/kubelet/pki"] {
        std::fs::create_dir_all(to.join(folder))?;
        let copied = Command::new("cp").arg("-a").arg(from.join(folder).join(".")).arg(to.join(folder)).status()?;
        ensure!(copied.success(), "{folder} cannot be copied");
    }
    std::fs::copy(from.join("var/lib/kubelet/kubeconfig"), to.join("var/lib/kubelet/kubeconfig"))?;
    Ok(std::fs::write(to.join("etc/machine-id"), "")?)
}

#[test]
fn a_copied_disk_starts_no_kubelet_until_its_node_is_adopted() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let original = lab.add_node(node("n1", &user_data)).expect("boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");

    let root = original.root();
    let copy = node("n2", b"#cloud-config\n{}\n").before_boot(move |to| copy_disk(&root, to));
    let copy = lab.add_node(copy).expect("boots");
    copy.wait_until("the kubelet is kept back", PATIENCE, |node| {
        Ok(node.journal("kubelet.service").contains("the kubelet does not start: this disk is that of a complete node"))
    })
    .expect("its gate knows the machine");
    let kubelet_runs = || copy.exec(&["pgrep", "-x", "kubelet"]).expect("pgrep").status.success();
    assert!(!kubelet_runs(), "a kubelet runs under the identity of another machine");
    let apply = copy.exec(&["nodestrap", "apply"]).expect("runs");
    let said = String::from_utf8_lossy(&apply.stderr).into_owned();
    assert_eq!(apply.status.code(), Some(4), "{said}");
    assert!(said.contains("nodestrap reset") && said.contains("apply --adopt"), "{said}");
    assert!(!kubelet_runs());

    lab.wait_node_ready("n1", PATIENCE).expect("the original is none the worse");
    assert_eq!(lab.kubectl(&["get", "nodes", "-o", "name"]).expect("nodes").trim(), "node/n1");

    original.poweroff().expect("the original is gone");
    copy.run(&["nodestrap", "apply", "--adopt"]).expect("the node is taken over");
    copy.run(&["nodestrap", "gate"]).expect("this machine's now");
    copy.wait_until("the kubelet runs", PATIENCE, |_| Ok(kubelet_runs())).expect("it starts");
}
