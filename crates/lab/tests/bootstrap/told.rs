//! A booted node tells how its first boot went: to systemd, to its journal, and to those who look from outside.

use lab::{LabOptions, WorkerSpec};

use crate::support::{PATIENCE, lab, node, user_data};

const NODE_COMPLETE: &str = "MESSAGE_ID=5d3c8a1ef04b4c0c9a0f6b5d2f7e9c11";
const RUN_FAILED: &str = "MESSAGE_ID=b0a1c4d2e6f74e3d8c5b7a9f1e2d3c42";

#[test]
fn a_first_boot_is_told_to_systemd_its_journal_and_the_outside() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let machine = lab.add_node(node("n1", &user_data(&WorkerSpec::of(&lab)))).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");

    let entries = |matches: &[&str]| {
        let command = [&["journalctl", "-b", "-o", "json", "--no-pager"], matches].concat();
        let lines = machine.run(&command).expect("the journal");
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<serde_json::Value>>()
    };
    let opened = entries(&["NODESTRAP_STEP=open-gate", "NODESTRAP_OUTCOME=done"]);
    assert_eq!(opened.len(), 1, "{opened:#?}");
    assert_eq!(opened[0]["_SYSTEMD_UNIT"], "k8s-node-bootstrap.service");
    assert!(opened[0]["NODESTRAP_PLAN"].as_str().expect("a plan").starts_with("sha256:"));
    let complete = entries(&[NODE_COMPLETE]);
    assert_eq!((complete.len(), &complete[0]["PRIORITY"]), (1, &"5".into()), "{complete:#?}");
    // Nothing is said twice.
    let unit = ["journalctl", "-b", "-o", "cat", "--no-pager", "-u", "k8s-node-bootstrap.service"];
    let said = machine.run(&unit).expect("the journal");
    assert_eq!(said.matches("open-gate: done").count(), 1, "{said}");

    let success = machine.read_file("/run/nodestrap/success").expect("a sentinel");
    assert!(success.contains("n1 of") && success.contains("complete"), "{success}");
    assert_eq!(machine.read_file("/run/cluster-api/bootstrap-success.complete").expect("the file"), "success");
    let status = machine.run(&["nodestrap", "status", "--watch", "--json"]).expect("it ends: the node is complete");
    assert!(status.contains("/proc/sys/kernel/random/boot_id"), "{status}");

    // A failure: systemd shows the last word, the journal can be asked for it, and nothing claims success.
    machine
        .run(&["sh", "-c", "rm /etc/kubernetes/kubelet.env; mv /usr/bin/containerd /usr/bin/containerd.away"])
        .expect("broken");
    machine.exec(&["systemctl", "start", "--no-block", "k8s-node-bootstrap.service"]).expect("started");
    machine
        .wait_until("a failed run is in the journal", PATIENCE, |_| Ok(!entries(&[RUN_FAILED]).is_empty()))
        .expect("told");
    let failed = entries(&[RUN_FAILED]);
    assert_eq!((&failed[0]["PRIORITY"], &failed[0]["NODESTRAP_STEP"]), (&"3".into(), &"check-programs".into()));
    let shown = machine.run(&["systemctl", "show", "-P", "StatusText", "k8s-node-bootstrap.service"]);
    assert!(shown.expect("systemctl").contains("check-programs"), "the words of ExecStartPre reach systemd");
    let failed = machine.read_file("/run/nodestrap/failed").expect("a sentinel");
    assert!(failed.contains("FAILED at check-programs, the gate is shut"), "{failed}");
    machine.run(&["sh", "-c", "mv /usr/bin/containerd.away /usr/bin/containerd"]).expect("mended");
    machine
        .wait_until("success is told again", PATIENCE, |node| Ok(node.read_file("/run/nodestrap/success").is_ok()))
        .expect("told");
}
