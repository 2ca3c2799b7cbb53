//! A reboot in the middle of a first boot, and the way back to a bare machine, on booted nodes.

use lab::{LabOptions, WorkerSpec};

use crate::support::{GATE, PATIENCE, exists, lab, node, nodestrap, status, user_data, wait_spent};

#[test]
fn a_hook_that_asks_for_a_reboot_gets_one_and_the_gate_opens_after_it() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let group = "hooks:\n  \
                 - {name: kernel, slot: before-kubelet, unit: 'ExecStart=/bin/sh -c \"cat /proc/sys/kernel/random/boot_id >> \
                 /var/tmp/asked; echo new-kernel > /run/reboot-required\"'}\n";
    let spec = WorkerSpec { group: group.to_owned(), ..WorkerSpec::of(&lab) };
    let machine = lab.add_node(node("n1", &user_data(&spec))).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready after the reboot, without help");

    let events = machine.run(&["nodestrap", "timeline", "-o", "json"]).expect("timeline");
    let asked = machine.read_file("/var/tmp/asked").expect("the hook left its mark");
    assert_eq!(asked.lines().count(), 1, "the hook ran once: {asked}\n{events}");
    assert_ne!(asked.trim(), machine.boot_id().expect("boot id"), "the gate opened in another boot");
    assert_eq!(machine.boots().expect("boots"), 2, "one reboot, not more");
    let requests = events.matches("\"rebootRequested\"").count();
    assert_eq!(requests, 1, "{events}");
    let timeline = machine.run(&["nodestrap", "timeline"]).expect("timeline");
    assert!(timeline.contains("rebooting after"), "{timeline}");
    // What asks for a reboot of a complete node is for those who drain it first.
    machine.run(&["sh", "-c", ": > /run/reboot-required"]).expect("a marker");
    let again = machine.run(&["nodestrap", "apply"]).expect("a rerun succeeds");
    assert!(again.contains("nothing to do"), "{again}");
    let verified = machine.run(&["nodestrap", "verify"]).expect("nothing drifted");
    assert!(verified.contains("nothing drifted"), "{verified}");
}

#[test]
fn a_marker_that_comes_back_at_every_boot_stops_after_two_reboots() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let marked = node("n1", &user_data).before_boot(|root| {
        let folder = root.join("etc/tmpfiles.d");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("always.conf"), "f /run/nodestrap/reboot-required 0644 root root - always\n")?;
        Ok(())
    });
    let machine = lab.add_node(marked).expect("the node boots");
    let mut text = String::new();
    machine
        .wait_until("the status says that two reboots were enough", PATIENCE, |node| {
            let output = status(node)?;
            text = String::from_utf8_lossy(&output.stdout).into_owned();
            let words = ["reboot-if-required", "2 times", "/run/nodestrap/reboot-required", "always"];
            Ok(output.status.code() == Some(4) && words.iter().all(|word| text.contains(word)))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {text}"));
    assert_eq!(machine.boots().expect("boots"), 3, "two reboots");
    assert!(!exists(&machine, GATE).expect("test"));
    machine.run(&["rm", "/etc/tmpfiles.d/always.conf", "/run/nodestrap/reboot-required"]).expect("mended");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready without further help");
}

#[test]
fn a_node_that_is_reset_is_bare_again_and_can_be_bootstrapped_anew() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let spec = WorkerSpec::of(&lab);
    let machine = lab.add_node(node("n1", &user_data(&spec))).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    wait_spent(&machine).expect("it has its own credentials");
    let shown = machine.run(&["nodestrap", "reset", "--dry-run"]).expect("dry run");
    assert!(shown.contains("stop-kubelet") && shown.contains("removed   /etc/kubernetes/kubelet.yaml"), "{shown}");
    let refused = machine.exec(&["nodestrap", "reset"]).expect("runs");
    assert_eq!(refused.status.code(), Some(2), "nobody was asked, so nothing is done");

    let said = machine.run(&["nodestrap", "reset", "--yes", "--kubelet-state"]).expect("reset");
    assert!(said.contains("undone"), "{said}");
    let gone = [GATE, "/etc/kubernetes/kubelet.yaml", "/etc/systemd/system/kubelet.service"];
    for path in
        gone.into_iter().chain(["/etc/cni/net.d/10-nodestrap.conflist", "/var/lib/nodestrap", "/var/lib/kubelet/pki"])
    {
        assert!(!exists(&machine, path).expect("test"), "{path} is still there");
    }
    assert!(!machine.exec(&["pgrep", "-x", "kubelet"]).expect("pgrep").status.success(), "the kubelet must not run");
    let load = machine.exec(&["systemctl", "show", "-P", "LoadState", "kubelet.service"]).expect("systemctl");
    assert_eq!(String::from_utf8_lossy(&load.stdout).trim(), "not-found");
    assert!(machine.run(&["nodestrap", "reset", "--yes"]).expect("again").contains("nothing to undo"));

    lab.kubectl(&["delete", "node", "n1"]).expect("forgotten by the cluster too");
    // The token that it joined with was spent, so the bundle is delivered again.
    let bundle = spec.render(&nodestrap(), &["--format", "bundle"]).expect("a bundle").bytes;
    std::fs::write(machine.root().join("etc/nodestrap/bundle.json"), bundle).expect("delivered");
    machine.run(&["nodestrap", "apply"]).expect("bootstrapped anew");
    // The kubelet's start pulls the bootstrap unit in, and waits for it.
    let bootstrap =
        machine.run(&["systemctl", "show", "-P", "SubState", "k8s-node-bootstrap.service"]).expect("systemctl");
    assert_ne!(bootstrap.trim(), "auto-restart", "the kubelet need not wait until somebody has found nothing to do");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready again");
}
