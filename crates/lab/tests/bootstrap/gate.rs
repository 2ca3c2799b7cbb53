//! The gate on a booted node: nothing gets past it, and what waits in front of it goes on by itself once it opens.

use std::path::Path;

use anyhow::Result;
use lab::{LabOptions, Node, WorkerSpec};

use crate::support::{
    GATE, PATIENCE, assert_bootstrap_skipped, exists, lab, node, status, user_data, wait_mended,
    wait_ready_in_this_boot,
};

const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.yaml";
const EDIT: &str = "# until the incident is over\n";
const FAILING: &str = "[Service]\nExecStartPre=/bin/sh -c 'echo the disk of images is gone; exit 7'\n";
const DROP_IN: &str = "/etc/systemd/system/containerd.service.d/failing.conf";

/// The image has the runtime masked, and failing underneath.
fn break_runtime(root: &Path) -> Result<()> {
    let units = root.join("etc/systemd/system");
    std::fs::create_dir_all(units.join("containerd.service.d"))?;
    std::fs::write(root.join(DROP_IN.trim_start_matches('/')), FAILING)?;
    // nspawn's image keeps its own unit below /usr, so the mask hides it.
    std::os::unix::fs::symlink("/dev/null", units.join("containerd.service"))?;
    Ok(())
}

fn property(machine: &Node, unit: &str, name: &str) -> Result<String> {
    Ok(machine.run(&["systemctl", "show", "-P", name, unit])?.trim().to_owned())
}

fn assert_no_kubelet(machine: &Node) {
    assert!(!exists(machine, GATE).expect("test"), "the gate is open");
    assert!(
        !machine.exec(&["pgrep", "-x", "kubelet"]).expect("pgrep").status.success(),
        "a kubelet runs before the gate"
    );
    let journal = kubelet_starts(machine);
    assert_eq!(journal, 0, "the kubelet was started before the gate");
}

/// How often systemd got as far as the kubelet's own program.
fn kubelet_starts(machine: &Node) -> usize {
    let journal = machine.run(&["journalctl", "-b", "-o", "cat", "--no-pager", "_PID=1"]).expect("journal");
    journal.matches("Started kubelet.service").count()
}

/// The status says all of this, with this exit code; while a run is under way it tells of that one, so it is waited for.
fn wait_for_status(machine: &Node, code: i32, words: &[&str]) {
    let mut text = String::new();
    machine
        .wait_until("the status names what is wrong", PATIENCE, |node| {
            let output = status(node)?;
            text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(output.status.code() == Some(code) && words.iter().all(|word| text.contains(word)))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {words:?} in:\n{text}"));
}

#[test]
fn the_kubelet_waits_at_the_gate_while_the_bootstrap_fails_and_starts_by_itself_when_it_opens() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let machine = lab.add_node(node("n1", &user_data).before_boot(break_runtime)).expect("the node boots");

    // Masked: a person is needed, and is told so.
    wait_for_status(&machine, 4, &["unit \"containerd.service\" is masked", "unmask it"]);
    assert_no_kubelet(&machine);

    // Somebody starts the kubelet by hand: it fails at the gate, again and again.
    machine.exec(&["systemctl", "start", "--no-block", "kubelet.service"]).expect("asked for");
    machine
        .wait_until("the kubelet has been tried three times", PATIENCE, |node| {
            Ok(property(node, "kubelet.service", "NRestarts")?.parse::<u32>()? >= 3)
        })
        .expect("it crash-loops");
    assert_no_kubelet(&machine);

    // Unmasked, but failing: the unit's own last words are told, and it is tried again.
    machine.run(&["rm", "/etc/systemd/system/containerd.service"]).expect("unmasked");
    machine.run(&["systemctl", "daemon-reload"]).expect("reloaded");
    machine
        .wait_until("the bootstrap has failed with the words of the unit", PATIENCE, |node| {
            let events = node.exec(&["cat", "/var/lib/nodestrap/journal"])?;
            let events = String::from_utf8_lossy(&events.stdout).into_owned();
            Ok(events.contains("containerd.service") && events.contains("the disk of images is gone"))
        })
        .expect("the journal of nodestrap has what the unit said");
    assert_no_kubelet(&machine);
    let failures = property(&machine, "k8s-node-bootstrap.service", "NRestarts").expect("systemctl");
    assert!(failures.parse::<u32>().expect("a number") >= 1, "the bootstrap unit has not been restarted: {failures}");

    // Healed. Nobody starts anything.
    machine.run(&["rm", DROP_IN]).expect("healed");
    machine.run(&["systemctl", "daemon-reload"]).expect("reloaded");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready without further help");
    assert!(kubelet_starts(&machine) >= 1);

    missing_bus_is_named(&machine);
    damage_is_mended_in_the_same_boot(&machine);
    an_edit_survives_a_restart(&machine);

    machine.reboot().expect("reboots");
    machine.wait_booted(PATIENCE).expect("booted again");
    wait_ready_in_this_boot(&lab, &machine).expect("Ready again");
    assert_bootstrap_skipped(&machine);
    assert!(machine.read_file(KUBELET_CONFIG).expect("read").starts_with(EDIT), "a reboot does not revert an edit");
}

/// What the gate vouches for turns into zero bytes, as a lost write would leave it.
fn damage_is_mended_in_the_same_boot(machine: &Node) {
    let boot = machine.boot_id().expect("boot id");
    // systemd itself reads the first, and does not come to the kubelet's own check of it.
    for path in [GATE, KUBELET_CONFIG, "/etc/kubernetes/pki/ca.crt"] {
        let before = machine.read_file(path).expect("read");
        machine.run(&["sh", "-c", &format!("head -c {} /dev/zero > {path}", before.len())]).expect("zeroed");
        machine.exec(&["systemctl", "restart", "--no-block", "kubelet.service"]).expect("asked for");
        // Nobody but the kubelet's unit looks at the gate meanwhile.
        machine
            .wait_until("the file is as it was", PATIENCE, |node| {
                Ok(node.exec(&["cat", path])?.stdout == before.as_bytes())
            })
            .unwrap_or_else(|error| panic!("{path}: {error:#}"));
        wait_mended(machine, GATE, "kubelet.service").expect("mended");
    }
    assert_eq!(machine.boot_id().expect("boot id"), boot);
    let said = gate_journal(machine);
    assert!(said.contains("kubelet.yaml, which the kubelet needs, is damaged"), "{said}");
}

/// At three in the morning.
fn an_edit_survives_a_restart(machine: &Node) {
    machine.run(&["sed", "-i", &format!("1i {}", EDIT.trim_end()), KUBELET_CONFIG]).expect("edited");
    machine.run(&["systemctl", "restart", "kubelet.service"]).expect("the kubelet starts");
    machine.run(&["systemctl", "is-active", "-q", "kubelet.service"]).expect("it runs");
    assert!(machine.read_file(KUBELET_CONFIG).expect("read").starts_with(EDIT));
    let said = gate_journal(machine);
    assert!(said.contains("warning: /etc/kubernetes/kubelet.yaml is not as nodestrap wrote it"), "{said}");
}

/// What `nodestrap gate` said, by its own unit and before the kubelet.
fn gate_journal(machine: &Node) -> String {
    let arguments = ["journalctl", "-b", "-o", "cat", "--no-pager", "-t", "nodestrap"];
    machine.run(&arguments).expect("journal")
}

/// The run looks at units first of all, finds nobody to ask, and says so; the node is left as it was.
fn missing_bus_is_named(machine: &Node) {
    let script =
        "mount -t tmpfs none /run/dbus && mount -t tmpfs none /run/systemd/private 2>/dev/null; exec nodestrap apply";
    let output = machine.exec(&["unshare", "--mount", "sh", "-c", script]).expect("runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "a retry may succeed: {text}");
    assert!(text.contains("cannot reach the service manager"), "{text}");
    let gate = machine.exec(&["nodestrap", "gate"]).expect("runs");
    assert!(gate.status.success(), "the gate is still whole");
}
