//! `kill -9` and power cuts in the middle of `apply`, on a booted node with a real disk.
//!
//! strace stops the real binary at its n-th change of the disk. Then either the process or the whole machine is killed,
//! and the next boot must end in the same tree, Ready.

use std::path::Path;

use anyhow::Result;
use lab::{Lab, LabOptions, Node, WorkerSpec};

use crate::support::{PATIENCE, exists, lab, node, tree, user_data, wait_spent};

/// The n-th call of one thread to that system call, spread over the run. strace counts for each thread by itself, and
/// steps run on several: these are few enough to be reached whichever thread does the work, and the test checks that.
const POINTS: [(&str, u32); 10] = [
    ("mkdirat", 1),   // the lock's folder: nothing is done yet
    ("openat", 2),    // before the first file is staged
    ("openat", 9),    // in the middle of them
    ("syncfs", 1),    // all staged, nothing durable
    ("renameat", 1),  // durable, nothing switched
    ("renameat", 10), // all but one switched
    ("syncfs", 2),    // all switched, the switch not durable
    ("sendmsg", 4),   // in the middle of a call to systemd
    ("fsync", 1),     // the journal before the gate
    ("fsync", 4),     // around the gate itself
];

/// What strace saw, on the node.
const TRACE: &str = "/var/log/interrupted.strace";

#[derive(Clone, Copy, Debug)]
enum End {
    /// `kill -9` of nodestrap; systemd starts it again.
    Process,
    /// The machine loses power and is started again.
    Machine,
}

/// Makes the first run of the bootstrap unit stop at its n-th change, once.
fn stop_at(root: &Path, (call, count): (&str, u32), end: End) -> Result<()> {
    let signal = match end {
        End::Process => "SIGKILL",
        End::Machine => "SIGSTOP",
    };
    // The marker lives on the disk: the second run, or the second boot, is undisturbed.
    let script = format!(
        "#!/bin/sh\nif [ -e /var/lib/interrupted ]; then exec /usr/bin/nodestrap apply; fi\n: > /var/lib/interrupted\nsync\n\
         exec strace -f -o {TRACE} -e trace={call} -e inject={call}:signal={signal}:when={count} \
         /usr/bin/nodestrap apply\n"
    );
    let program = root.join("usr/local/bin/interrupted-apply");
    std::fs::create_dir_all(root.join("usr/local/bin"))?;
    std::fs::write(&program, script)?;
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let folder = root.join("etc/systemd/system/k8s-node-bootstrap.service.d");
    std::fs::create_dir_all(&folder)?;
    // strace has to do what the unit forbids nodestrap.
    let drop_in = "[Service]\nExecStartPre=\nExecStartPre=/usr/local/bin/interrupted-apply\nRestartSec=1\n\
                   SystemCallFilter=\nCapabilityBoundingSet=~\n";
    std::fs::write(folder.join("interrupt.conf"), drop_in)?;
    Ok(())
}

fn wait_for_stop(machine: &Node) -> Result<()> {
    machine.wait_until("apply is stopped", PATIENCE, |node| {
        let states = node.exec(&["ps", "-C", "nodestrap", "-o", "stat="])?;
        Ok(String::from_utf8_lossy(&states.stdout).lines().any(|state| state.trim_start().starts_with(['T', 't'])))
    })
}

/// One node, interrupted once; the tree it ends in.
fn interrupted(lab: &Lab, user_data: &[u8], name: &str, point: (&'static str, u32), end: End) -> Result<String> {
    let machine = lab.add_node(node(name, user_data).before_boot(move |root| stop_at(root, point, end)))?;
    if matches!(end, End::Machine) {
        wait_for_stop(&machine)?;
        machine.kill()?;
        machine.start()?;
    }
    lab.wait_node_ready(name, PATIENCE)?;
    machine.wait_until("the CNI configuration is there", PATIENCE, |node| {
        exists(node, "/etc/cni/net.d/10-nodestrap.conflist")
    })?;
    wait_spent(&machine)?;
    if matches!(end, End::Process) {
        let trace = machine.read_file(TRACE)?;
        anyhow::ensure!(trace.contains("killed by SIGKILL"), "the run was never interrupted:\n{trace}");
    }
    let tree = tree(&machine)?;
    machine.poweroff()?;
    Ok(tree)
}

/// The CNI configuration carries the node's own range, and the drop-in is the test's: neither is part of the comparison.
fn comparable(tree: &str) -> String {
    tree.lines()
        .filter(|line| !line.contains("10-nodestrap.conflist") && !line.contains("interrupt.conf"))
        .filter(|line| !line.ends_with("etc/kubernetes/kubelet.env"))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

fn run(end: End) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let user_data = user_data(&WorkerSpec::of(&lab));
    let machine = lab.add_node(node("clean", &user_data)).expect("boots");
    lab.wait_node_ready("clean", PATIENCE).expect("Ready");
    wait_spent(&machine).expect("spent");
    let expected = comparable(&tree(&machine).expect("tree"));
    assert!(expected.contains("etc/kubernetes/kubelet.yaml"), "{expected}");
    machine.poweroff().expect("off");
    for (index, point) in POINTS.into_iter().enumerate() {
        let name = format!("n{index}");
        let found = interrupted(&lab, &user_data, &name, point, end);
        let found = found.unwrap_or_else(|error| panic!("{end:?} at {point:?}: {error:#}"));
        assert_eq!(comparable(&found), expected, "{end:?} at {point:?}");
        println!("{end:?} at {point:?}: Ready, same tree");
    }
}

#[test]
fn ready_with_the_same_tree_after_kill_9_at_ten_points_of_apply() {
    run(End::Process);
}

#[test]
fn ready_with_the_same_tree_after_a_power_cut_at_ten_points_of_apply() {
    run(End::Machine);
}
