//! A reboot in the middle of a first boot, on a fake machine: asked for, cut off, refused, repeated.

mod support;

use std::path::Path;

use bundle::Bundle;
use engine::{Report, RunOutcome};
use host::disk::Disk;
use host::fake::{Crash, Moment};

use support::{FakeNode, bundle, expect_converged, rich_bundle};

const MARKERS: [&str; 2] = ["/run/reboot-required", "/run/nodestrap/reboot-required"];

/// The same machine in its n-th boot: `/run` is new.
fn booted(node: &FakeNode, boot: u32) -> FakeNode {
    put(node, "/run/nodestrap/boot_id", format!("00000000-0000-4000-8000-{boot:012}\n").as_bytes());
    node.clone()
}

fn put(node: &FakeNode, path: &str, content: &[u8]) {
    host::files::write_volatile(&node.disk.uncounted(), Path::new(path), 0o644, content).expect("written");
}

fn reboot(node: &FakeNode, boot: u32, seed: u64) -> FakeNode {
    booted(&node.after(Crash::PowerLoss, seed), boot)
}

fn is_rebooting(report: &Report) -> bool {
    matches!(report.outcome, RunOutcome::Rebooting { .. })
}

fn tree_without_reboot(bundle: &Bundle) -> String {
    let node = FakeNode::new(bundle);
    expect_converged(&node.apply(bundle, 0).expect("runs"), "reference");
    node.tree()
}

#[test]
fn either_marker_reboots_once_and_the_gate_opens_after_it() {
    for (bundle, marker) in [(bundle(), MARKERS[0]), (rich_bundle(), MARKERS[1])] {
        let tree = tree_without_reboot(&bundle);
        let node = booted(&FakeNode::new(&bundle), 1);
        put(&node, marker, b"*** a new kernel ***\n");
        let report = node.apply(&bundle, 0).expect("runs");
        let RunOutcome::Rebooting { why, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
        assert!(why.contains(marker) && why.contains("a new kernel"), "{why}");
        assert!(!node.gate_is_open() && node.units.reboots() == 1);
        let node = reboot(&node, 2, 7);
        expect_converged(&node.apply(&bundle, 1).expect("runs"), "after the reboot");
        assert!(node.gate_is_open());
        assert_eq!(node.tree(), tree);
        // A complete node is rebooted by nobody here.
        put(&node, marker, b"");
        assert_eq!(node.apply(&bundle, 2).expect("runs").outcome, RunOutcome::NothingToDo);
        assert_eq!(node.units.reboots(), 0);
    }
}

#[test]
fn a_crash_at_every_effect_around_the_request_ends_in_one_reboot_more_at_most() {
    let bundle = bundle();
    let tree = tree_without_reboot(&bundle);
    let clean = booted(&FakeNode::new(&bundle), 1);
    put(&clean, MARKERS[0], b"");
    assert!(is_rebooting(&clean.apply(&bundle, 0).expect("runs")));
    let effects = clean.disk.operations();
    for at in 1..=effects {
        for (crash, moment) in [
            (Crash::ProcessKill, Moment::Before),
            (Crash::ProcessKill, Moment::After),
            (Crash::PowerLoss, Moment::Before),
            (Crash::PowerLoss, Moment::Midway),
            (Crash::PowerLoss, Moment::After),
        ] {
            let case = format!("{crash:?} {moment:?} effect {at}");
            let node = booted(&FakeNode::new(&bundle), 1);
            put(&node, MARKERS[0], b"");
            node.disk.crash_point().crash_at(at, moment);
            let _ = node.apply(&bundle, at);
            let mut node = node.after(crash, at);
            assert!(!node.gate_is_open(), "{case}: opened before the reboot");
            let mut boot = 1;
            if crash == Crash::PowerLoss {
                boot += 1;
                node = booted(&node, boot);
            }
            // The marker is on a file system that a boot empties: after a loss of power nothing asks any more.
            let mut report = node.apply(&bundle, at).expect("runs");
            if crash == Crash::ProcessKill {
                assert!(is_rebooting(&report), "{case}: {:?}", report.outcome);
                node = reboot(&node, boot + 1, at);
                report = node.apply(&bundle, at).expect("runs");
            }
            expect_converged(&report, &case);
            assert_eq!(node.tree(), tree, "{case}");
        }
    }
}

#[test]
fn a_marker_that_comes_back_at_every_boot_stops_after_two_reboots() {
    let bundle = bundle();
    let mut node = FakeNode::new(&bundle);
    for boot in 1..=2 {
        node = reboot(&node, boot, u64::from(boot));
        put(&node, MARKERS[0], b"");
        assert!(is_rebooting(&node.apply(&bundle, 0).expect("runs")), "boot {boot}");
    }
    for boot in 3..=5 {
        node = reboot(&node, boot, u64::from(boot));
        put(&node, MARKERS[0], b"");
        let report = node.apply(&bundle, 0).expect("runs");
        let RunOutcome::Failed { step, message, .. } = &report.outcome else { panic!("a loop: {:?}", report.outcome) };
        assert_eq!(step.0, "reboot-if-required");
        assert!(message.contains("2 times") && message.contains(MARKERS[0]), "{message}");
        assert_eq!(node.units.reboots(), 0);
        assert!(!node.gate_is_open());
    }
    node.disk.remove(Path::new(MARKERS[0])).expect("mended");
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "mended");
    assert!(node.gate_is_open());
}

#[test]
fn a_reboot_that_does_not_happen_or_is_refused_leaves_the_gate_shut() {
    let bundle = bundle();
    let node = booted(&FakeNode::new(&bundle), 1);
    put(&node, MARKERS[0], b"");
    for round in 1..=4 {
        assert!(is_rebooting(&node.apply(&bundle, round).expect("runs")));
        assert_eq!(node.units.reboots(), round, "asked again");
    }
    node.disk.remove(Path::new(MARKERS[0])).expect("removed");
    assert!(is_rebooting(&node.apply(&bundle, 9).expect("runs")), "promised is promised");
    node.units.set_reboot_refused(true);
    let report = node.apply(&bundle, 10).expect("runs");
    let RunOutcome::Failed { step, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(step.0, "reboot-if-required");
    assert!(message.contains("refused"), "{message}");
    assert!(!node.gate_is_open());
    node.units.set_reboot_refused(false);
    let node = reboot(&node, 2, 3);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "at last");
}
