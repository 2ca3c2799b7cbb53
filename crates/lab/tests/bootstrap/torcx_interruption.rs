//! `kill -9` and power cuts while an update is staged, an addon is chosen, fetched and used. Each node ends as one that nobody disturbed,
//! and at no instant before its last boot is there a gate.

use anyhow::Result;
use lab::consumers::IgnitionSpec;
use lab::{FIRST_OS_VERSION, Lab, LabOptions, NEXT_OS_VERSION, Node};

use crate::interruption::{End, Point, TRACE, settled, stop_at, wait_for_stop};
use crate::support::{GATE, files_below, lab, number};
use crate::torcx::{Fleet, NODESTRAP};

/// On each commit, of ten in all.
const SAMPLE: u64 = 1;

/// The n-th call of one thread, in a folder or anywhere.
const POINTS: [(&str, Option<&str>, u32); 10] = [
    ("mkdirat", Some("/var/lib/nodestrap"), 1), // nothing is kept of what was there
    ("renameat", Some("/var/lib/nodestrap"), 1), // what update_engine says, or what was resolved, is not known yet
    ("renameat", Some("/var/lib/torcx/store/2605.6.0"), 1), // an image is not where torcx looks
    ("openat", Some("/var/lib/nodestrap/store/staging"), 20), // in the middle of an image
    ("renameat", Some("/var/lib/nodestrap/store/staging"), 1),
    ("renameat", Some("/etc/torcx/profiles"), 1), // torcx knows nothing of it
    ("renameat", Some("/etc/torcx"), 1),          // nor which profile
    ("fsync", Some("/etc/torcx"), 1),
    ("syncfs", None, 1), // all staged, nothing durable
    ("fsync", None, 4),
];

/// What a node ends in. Of the system that ran first there may be no addon: a loss of power can be what boots the next one.
fn outcome(lab: &Lab, machine: &Node) -> Result<String> {
    let tree = settled(lab, machine)?;
    let store = format!("var/lib/torcx/store/{NEXT_OS_VERSION}");
    Ok(tree + &files_below(&machine.root(), &["etc/torcx", &store]))
}

fn interrupted(lab: &Lab, machine: &Node, point: &Point, end: End) -> Result<String> {
    stop_at(&machine.root(), NODESTRAP, point, end)?;
    machine.start()?;
    if matches!(end, End::Machine) {
        wait_for_stop(machine, "nodestrap")?;
        machine.kill()?;
        anyhow::ensure!(!machine.root().join(GATE.trim_start_matches('/')).exists(), "the gate is there too soon");
        machine.start()?;
    }
    let found = outcome(lab, machine)?;
    if matches!(end, End::Process) {
        let trace = machine.read_file(TRACE)?;
        anyhow::ensure!(trace.contains("killed by SIGKILL"), "the run was never interrupted:\n{trace}");
    }
    machine.poweroff()?;
    Ok(found)
}

fn run(end: End) {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let fleet = Fleet::start(&lab, &[FIRST_OS_VERSION, NEXT_OS_VERSION]);
    let node = |name: &str| fleet.node(&lab, name, IgnitionSpec::Three, Some(NEXT_OS_VERSION));
    let machine = node("clean");
    machine.start().expect("boots");
    let expected = outcome(&lab, &machine).expect("Ready");
    assert!(expected.contains("etc/torcx/next-profile"), "{expected}");
    machine.poweroff().expect("off");
    // Others for each commit; three has no factor in common with ten, so none comes twice.
    let first = number("NODESTRAP_SAMPLE").unwrap_or(0) % 10;
    for index in 0..number("NODESTRAP_INTERRUPTIONS").unwrap_or(SAMPLE).min(10) {
        let (call, at, count) = POINTS[usize::try_from((first + 3 * index) % 10).expect("below ten")];
        let point = Point { call, at: at.map(str::to_owned), count };
        let found = interrupted(&lab, &node(&format!("n{index}")), &point, end);
        let found = found.unwrap_or_else(|error| panic!("{end:?} at {point:?}: {error:#}"));
        assert_eq!(found, expected, "{end:?} at {point:?}");
        println!("{end:?} at {point:?}: Ready, same tree, same addon");
    }
}

#[test]
fn ready_with_the_same_addon_after_kill_9_while_it_is_chosen_fetched_and_used() {
    run(End::Process);
}

#[test]
fn ready_with_the_same_addon_after_a_power_cut_while_it_is_chosen_fetched_and_used() {
    run(End::Machine);
}
