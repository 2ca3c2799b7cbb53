//! `kill -9` and power cuts while an extension is fetched, put into its place and merged. Each node ends as one that nobody
//! disturbed, and after a reset as it was before.

use anyhow::Result;
use lab::flow::ExtensionStore;
use lab::{Lab, LabOptions, Node, NodeOptions, Patch};

use crate::interruption::{End, Point, TRACE, settled, stop_at, wait_for_stop};
use crate::support::{exists, files_below, lab, nodestrap, number};
use crate::sysext::{NODESTRAP, TOUCHED};

/// On each commit, of ten in all.
const SAMPLE: u64 = 1;

/// The n-th call of one thread, in a folder or anywhere.
const POINTS: [(&str, Option<&str>, u32); 10] = [
    ("mkdirat", Some("/var/lib/nodestrap/store"), 1), // nothing is fetched yet
    ("openat", Some("/var/lib/nodestrap/store/staging"), 40), // in the middle of the image
    ("renameat", Some("/var/lib/nodestrap/store/staging"), 1), // it is whole, and not in the store
    ("fsync", Some("/var/lib/nodestrap/store/sha256"), 1), // it is there, and its name is not durable
    ("renameat", Some("/opt/extensions/kubernetes"), 1), // it is not in its place
    ("symlinkat", Some("/etc/extensions"), 1),        // no link leads to it
    ("renameat", Some("/etc/extensions"), 1),         // the link is not in its place
    ("sendmsg", None, 6),                             // while systemd is asked for something
    ("syncfs", None, 1),                              // all staged, nothing durable
    ("fsync", None, 4),
];

/// What a node ends in, with what is linked and what is merged.
fn outcome(lab: &Lab, machine: &Node) -> Result<String> {
    let tree = settled(lab, machine)?;
    // Without the time since when it is so.
    let merged = "ls /usr/bin/kubelet /usr/libexec/cni && systemd-sysext status --no-legend | awk '{print $1, $2}'";
    let merged = machine.run(&["sh", "-c", merged])?;
    Ok(tree + &files_below(&machine.root(), &["etc/extensions", "opt/extensions"]) + &merged)
}

fn interrupted(lab: &Lab, options: NodeOptions<'static>, point: &Point, end: End) -> Result<String> {
    let machine = lab.add_node(options.not_started())?;
    stop_at(&machine.root(), NODESTRAP, point, end)?;
    let before = files_below(&machine.root(), &TOUCHED);
    machine.start()?;
    if matches!(end, End::Machine) {
        wait_for_stop(&machine, "nodestrap")?;
        machine.kill()?;
        machine.start()?;
    }
    let found = outcome(lab, &machine)?;
    if matches!(end, End::Process) {
        let trace = machine.read_file(TRACE)?;
        anyhow::ensure!(trace.contains("killed by SIGKILL"), "the run was never interrupted:\n{trace}");
    }
    machine.run(&[NODESTRAP, "reset", "--yes", "--kubelet-state"])?;
    let after = files_below(&machine.root(), &TOUCHED);
    anyhow::ensure!(after == before, "a reset left\n{after}\nof\n{before}");
    anyhow::ensure!(!exists(&machine, "/usr/bin/kubelet")?, "the extension is merged after a reset");
    machine.poweroff()?;
    Ok(found)
}

fn run(end: End) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let store = ExtensionStore::start(&lab, &nodestrap()).expect("a store");
    store.publish(&lab, &nodestrap(), Patch::Newest).expect("published");
    let options = |name: &str| store.node(&lab, name, Patch::Newest, &nodestrap()).expect("a config");
    let machine = lab.add_node(options("clean")).expect("boots");
    let expected = outcome(&lab, &machine).expect("Ready");
    assert!(expected.contains("etc/extensions/kubernetes.raw"), "{expected}");
    machine.poweroff().expect("off");
    // Others for each commit; three has no factor in common with ten, so none comes twice.
    let first = number("NODESTRAP_SAMPLE").unwrap_or(0) % 10;
    for index in 0..number("NODESTRAP_INTERRUPTIONS").unwrap_or(SAMPLE).min(10) {
        let (call, at, count) = POINTS[usize::try_from((first + 3 * index) % 10).expect("below ten")];
        let point = Point { call, at: at.map(str::to_owned), count };
        let found = interrupted(&lab, options(&format!("n{index}")), &point, end);
        let found = found.unwrap_or_else(|error| panic!("{end:?} at {point:?}: {error:#}"));
        assert_eq!(found, expected, "{end:?} at {point:?}");
        println!("{end:?} at {point:?}: Ready, same tree, same extension; after a reset as before");
    }
}

#[test]
fn ready_with_the_same_extension_after_kill_9_while_it_is_fetched_and_merged() {
    run(End::Process);
}

#[test]
fn ready_with_the_same_extension_after_a_power_cut_while_it_is_fetched_and_merged() {
    run(End::Machine);
}
