//! `kill -9` and power cuts in the middle of `apply`, on a booted node with a real disk.
//!
//! strace stops the real binary at its n-th change of the disk. Then either the process or the whole machine is killed,
//! and the next boot must end in the same tree, Ready.

use std::path::Path;

use anyhow::Result;
use lab::{Lab, LabOptions, Node};

use crate::support::{PATIENCE, SpecText, lab, node, tree};

/// System calls that change a disk; a run of the slice makes about 60 of them.
const CHANGES: &str = "mkdirat,renameat,renameat2,fsync,fdatasync,syncfs,fchmod,fchown,unlinkat,write,sendmsg,sendto";
/// Spread over the run: staging, sync, switching, reload, enabling, starting, arming, the gate, after the gate.
const POINTS: [u32; 10] = [1, 6, 14, 22, 30, 38, 46, 54, 62, 70];

#[derive(Clone, Copy, Debug)]
enum End {
    /// `kill -9` of nodestrap; systemd starts it again.
    Process,
    /// The machine loses power and is started again.
    Machine,
}

/// Makes the first run of the bootstrap unit stop at its n-th change, once.
fn stop_at(root: &Path, point: u32, end: End) -> Result<()> {
    let signal = match end {
        End::Process => "SIGKILL",
        End::Machine => "SIGSTOP",
    };
    // The marker lives on the disk: the second run, or the second boot, is undisturbed.
    let script = format!(
        "#!/bin/sh\nif [ -e /var/lib/interrupted ]; then exec /usr/bin/nodestrap apply; fi\n: > /var/lib/interrupted\nsync\n\
         exec strace -f -o /var/log/interrupted.strace -e trace={CHANGES} -e inject={CHANGES}:signal={signal}:when={point} \
         /usr/bin/nodestrap apply\n"
    );
    let program = root.join("usr/local/bin/interrupted-apply");
    std::fs::create_dir_all(root.join("usr/local/bin"))?;
    std::fs::write(&program, script)?;
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let folder = root.join("etc/systemd/system/k8s-node-bootstrap.service.d");
    std::fs::create_dir_all(&folder)?;
    let drop_in = "[Service]\nExecStartPre=\nExecStartPre=/usr/local/bin/interrupted-apply\nRestartSec=1\n";
    std::fs::write(folder.join("interrupt.conf"), drop_in)?;
    Ok(())
}

/// The process that strace stopped, if it got that far; `false` if the run ended before the point was reached.
fn wait_for_stop(machine: &Node) -> Result<bool> {
    let mut stopped = false;
    machine.wait_until("apply is stopped, or done", PATIENCE, |node| {
        let states = node.exec(&["ps", "-C", "nodestrap", "-o", "stat="])?;
        stopped = String::from_utf8_lossy(&states.stdout).lines().any(|state| state.trim_start().starts_with(['T', 't']));
        Ok(stopped || node.exec(&["systemctl", "is-active", "-q", "k8s-node-bootstrap.service"])?.status.success())
    })?;
    Ok(stopped)
}

/// One node, interrupted once; the tree it ends in.
fn interrupted(lab: &Lab, user_data: &str, name: &str, point: u32, end: End) -> Result<String> {
    let machine = lab.add_node(node(name, user_data).before_boot(move |root| stop_at(root, point, end)))?;
    if matches!(end, End::Machine) && wait_for_stop(&machine)? {
        machine.kill()?;
        machine.start()?;
    }
    lab.wait_node_ready(name, PATIENCE)?;
    machine.wait_until("the CNI configuration is there", PATIENCE, |node| {
        Ok(node.exec(&["test", "-e", "/etc/cni/net.d/10-nodestrap.conflist"])?.status.success())
    })?;
    let interrupted = machine.exec(&["test", "-e", "/var/lib/interrupted"])?.status.success();
    anyhow::ensure!(interrupted, "the interruption was never armed");
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
    let user_data = SpecText::of(&lab).user_data().expect("rendered");
    let machine = lab.add_node(node("clean", &user_data)).expect("boots");
    lab.wait_node_ready("clean", PATIENCE).expect("Ready");
    let expected = comparable(&tree(&machine).expect("tree"));
    assert!(expected.contains("etc/kubernetes/kubelet.yaml"), "{expected}");
    machine.poweroff().expect("off");
    for point in POINTS {
        let name = format!("n{point}");
        let found = interrupted(&lab, &user_data, &name, point, end);
        let found = found.unwrap_or_else(|error| panic!("{end:?} at change {point}: {error:#}"));
        assert_eq!(comparable(&found), expected, "{end:?} at change {point}");
        println!("{end:?} at change {point}: Ready, same tree");
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
