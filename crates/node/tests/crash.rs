//! The whole first boot on a fake machine, cut off everywhere.
//!
//! For every effect of a run (each file system call and each call to the service manager), the process or the machine
//! dies before, in the middle of or after it; un-synced data is lost or torn by a seed. Whatever happens: a gate that is
//! there is a true gate, and the next run ends in the same tree.
//!
//! One failing case is replayed by `NODESTRAP_SEED=<seed> cargo test -p node --test crash one_seed -- --nocapture`.
#![allow(clippy::disallowed_methods, reason = "the test reads the seed to replay")]

mod support;

use std::path::Path;

use bundle::Stub;
use bundle::{BUNDLE_PATH, Bundle};
use engine::RunOutcome;
use host::disk::Disk;
use host::fake::{Crash, Fault, Moment, Repeat};
use host::units::{ActiveState, UnitName, Units};
use node::{Delivered, SessionError};

use support::{FakeNode, GATE, al2_bundle, bundle, expect_converged, rich_bundle, ubuntu_bundle};

/// A clean run: the tree to end in, and how many effects there are to interrupt.
fn reference(bundle: &Bundle) -> (String, u64) {
    let node = FakeNode::new(bundle);
    let before = node.disk.operations();
    expect_converged(&node.apply(bundle, 0).expect("runs"), "reference");
    (node.tree(), node.disk.operations() - before)
}

fn kinds() -> impl Iterator<Item = (Crash, Moment)> {
    [Crash::ProcessKill, Crash::PowerLoss]
        .into_iter()
        .flat_map(|crash| [Moment::Before, Moment::Midway, Moment::After].map(move |moment| (crash, moment)))
}

/// Crashes at the n-th effect, checks the wreck, runs again and compares.
fn crash_and_resume(bundle: &Bundle, tree: &str, at: u64, crash: Crash, moment: Moment, seed: u64) {
    let case = format!("seed {seed}: {crash:?} {moment:?} effect {at}");
    let node = FakeNode::new(bundle);
    node.disk.crash_point().crash_at(at, moment);
    let first = node.apply(bundle, seed);
    let wreck = node.after(crash, seed);
    wreck.assert_gate_tells_the_truth(bundle, &case);
    if matches!(&first, Ok(report) if report.outcome == RunOutcome::Done) {
        assert!(wreck.gate_is_open(), "{case}: the run said done, but the gate did not survive");
    }
    if crash == Crash::ProcessKill && wreck.gate_is_open() {
        let kubelet = UnitName(bundle.join.kubelet_unit.to_string());
        let watch = wreck.units.state(&UnitName("nodestrap-kubelet-gate.path".to_owned())).expect("known").active;
        let will_start = wreck.units.jobs().contains(&kubelet) || watch == ActiveState::Active;
        assert!(will_start, "{case}: the gate is open, but nobody will start the kubelet");
    }
    let report = wreck.apply(bundle, seed / 2).unwrap_or_else(|error| panic!("{case}: {error}"));
    expect_converged(&report, &case);
    assert_eq!(wreck.tree(), tree, "{case}: another tree");
    let again = wreck.apply(bundle, seed / 3).expect("runs");
    assert_eq!(again.outcome, RunOutcome::NothingToDo, "{case}: a third run found something to do");
}

#[test]
fn a_rerun_does_nothing_at_all() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let effects = node.disk.operations();
    let report = node.apply(&bundle, 1).expect("runs");
    assert_eq!(report.outcome, RunOutcome::NothingToDo);
    // Taking the lock is the only trace.
    assert!(node.disk.operations() <= effects + 1, "{:#?}", node.disk.log());
}

#[test]
fn what_an_interrupted_write_of_any_state_left_is_swept() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    // Of a file that no release knows yet.
    let left = Path::new("/var/lib/nodestrap/.of-a-later-release.json.nodestrap-new");
    node.disk.uncounted().create(left, 0o600, b"{").expect("written");
    expect_converged(&node.apply(&bundle, 1).expect("runs"), "second");
    assert!(node.disk.stat(left).expect("readable").is_none());
    assert_eq!(node.apply(&bundle, 2).expect("runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn ends_in_the_same_tree_after_a_crash_at_every_effect() {
    crash_at_every_effect(&bundle(), 2);
}

#[test]
fn a_required_hook_has_run_before_the_gate_is_open_whatever_crashes() {
    crash_at_every_effect(&rich_bundle(), 1);
}

#[test]
fn eksctls_node_of_amazon_linux_ends_in_the_same_tree_whatever_crashes() {
    let bundle = with_a_short_map(al2_bundle());
    crash_at_every_effect(&bundle, 1);
    crash_again_and_again(&bundle, 60);
}

#[test]
fn eksctls_node_of_ubuntu_ends_in_the_same_tree_whatever_crashes() {
    let bundle = with_a_short_map(ubuntu_bundle());
    crash_at_every_effect(&bundle, 1);
    crash_again_and_again(&bundle, 60);
}

/// Thousands of runs would spend their time with the hundreds of instance types.
fn with_a_short_map(mut bundle: Bundle) -> Bundle {
    let map = bundle.files.iter_mut().find(|file| file.path == bundle::MAX_PODS_MAP_PATH).expect("there is one");
    map.content = b"m5.large 29\n".into();
    bundle
}

fn crash_at_every_effect(bundle: &Bundle, seeds: u64) {
    let (tree, effects) = reference(bundle);
    assert!(effects > 30, "the fake machine sees the run: {effects}");
    let mut seed = 0;
    for at in 1..=effects + 2 {
        for (crash, moment) in kinds() {
            for _ in 0..seeds {
                seed += 1;
                crash_and_resume(bundle, &tree, at, crash, moment, seed);
            }
        }
    }
    assert!(seed > 500, "{seed}");
}

#[test]
fn ends_in_the_same_tree_after_a_crash_during_the_recovery_too() {
    crash_again_and_again(&bundle(), 400);
    crash_again_and_again(&rich_bundle(), 150);
}

fn crash_again_and_again(bundle: &Bundle, seeds: u64) {
    let (tree, effects) = reference(bundle);
    for seed in 0..seeds {
        let mut node = FakeNode::new(bundle);
        for round in 0..3 {
            let chance = seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(round * 17) >> 8;
            let crash = if chance & 1 == 0 { Crash::ProcessKill } else { Crash::PowerLoss };
            node.disk.crash_point().crash_at(1 + chance % effects, Moment::After);
            let _ = node.apply(bundle, chance);
            node = node.after(crash, chance);
            node.assert_gate_tells_the_truth(bundle, &format!("seed {seed} round {round}"));
        }
        expect_converged(&node.apply(bundle, seed).expect("runs"), &format!("seed {seed}"));
        assert_eq!(node.tree(), tree, "seed {seed}");
    }
}

/// The same node, with a stub where the bundle would be.
fn referring(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    let stub = Stub::new(bundle, &["https://store.example/bundles".to_owned()], None, None).expect("a good stub");
    let image = node.disk.uncounted();
    host::files::write_durable(&image, Path::new(BUNDLE_PATH), 0o600, stub.to_json().as_bytes(), None)
        .expect("written");
    node
}

/// Loads the bundle of the stub, and says whether the store was asked. `None`: the machine died.
fn load_referred(node: &FakeNode, bundle: &Bundle) -> Option<(Delivered, bool)> {
    let asked = std::cell::Cell::new(false);
    let fetch = |stub: &Stub| {
        asked.set(true);
        Ok(stub.accept(bundle.to_json().as_bytes()).expect("the store has it"))
    };
    let delivered = node::load_bundle(&node.disk, Path::new(BUNDLE_PATH), &node.disk, Some(&fetch)).ok()?;
    Some((delivered, asked.get()))
}

#[test]
fn a_fetched_bundle_survives_a_crash_at_every_effect_or_is_fetched_again() {
    let bundle = bundle();
    let clean = referring(&bundle);
    let (delivered, asked) = load_referred(&clean, &bundle).expect("alive");
    assert!(asked);
    expect_converged(&clean.apply_delivered(&delivered, 0).expect("runs"), "clean");
    let (tree, effects) = (clean.tree(), clean.disk.operations());
    let mut seed = 0;
    // The copy is kept in the first effects; the rest is walked through in full by the test above.
    for at in (1..=effects).filter(|at| *at <= 40 || at % 7 == 0) {
        for (crash, moment) in kinds() {
            seed += 1;
            let case = format!("seed {seed}: {crash:?} {moment:?} effect {at}");
            let node = referring(&bundle);
            node.disk.crash_point().crash_at(at, moment);
            // A run that could not keep the copy ended before it had a plan.
            let first = load_referred(&node, &bundle)
                .and_then(|(found, _)| node.apply_delivered(&found, seed).ok())
                .filter(|report| report.plan.is_some());
            let wreck = node.after(crash, seed);
            wreck.assert_gate_tells_the_truth(&bundle, &case);
            let (found, asked) = load_referred(&wreck, &bundle).expect("alive");
            assert!(!asked || first.is_none(), "{case}: the run went on before the copy was durable");
            assert!(!asked || !wreck.gate_is_open(), "{case}: the gate is open, and the store is asked");
            expect_converged(&wreck.apply_delivered(&found, seed / 2).expect("runs"), &case);
            assert_eq!(wreck.tree(), tree, "{case}: another tree");
            let later = wreck.after(Crash::PowerLoss, seed);
            let (found, asked) = load_referred(&later, &bundle).expect("alive");
            assert!(!asked, "{case}: after a reboot of a complete node the store is asked");
            assert_eq!(found.bundle.digest(), bundle.digest());
        }
    }
    assert!(seed > 300, "{seed}");
}

#[test]
fn fails_closed_when_the_disk_refuses_any_effect() {
    let bundle = bundle();
    let (tree, effects) = reference(&bundle);
    for errno in [28, 5, 30] {
        for at in 1..=effects {
            let case = format!("errno {errno} at effect {at}");
            let node = FakeNode::new(&bundle);
            node.disk.crash_point().fail_at(at, Fault::Errno(errno), Repeat::FromThenOn);
            if let Ok(report) = node.apply(&bundle, at) {
                let converged = matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo);
                assert!(!converged || node.gate_is_open(), "{case}: it said done without a gate");
            }
            node.assert_gate_tells_the_truth(&bundle, &case);
            node.disk.crash_point().heal();
            expect_converged(&node.apply(&bundle, at).expect("runs"), &case);
            assert_eq!(node.tree(), tree, "{case}");
        }
    }
}

#[test]
fn a_changed_bundle_shuts_the_gate_before_it_changes_the_first_file() {
    let old = bundle();
    let mut new = old.clone();
    let config = new.files.iter_mut().find(|file| file.path.ends_with("kubelet.yaml")).expect("there is one");
    config.content = [&config.content[..], b"# changed\n"].concat().into();
    let node = FakeNode::new(&old);
    expect_converged(&node.apply(&old, 0).expect("runs"), "old");
    let before = node.disk.operations();
    let clean = FakeNode::new(&new);
    expect_converged(&clean.apply(&new, 0).expect("runs"), "new");
    let effects = clean.disk.operations();
    for at in before + 1..before + effects {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            let node = FakeNode::new(&old);
            expect_converged(&node.apply(&old, 0).expect("runs"), "old");
            node.disk.crash_point().crash_at(at, Moment::After);
            let _ = node.apply(&new, at);
            let wreck = node.after(crash, at);
            let bundle_of_gate = if wreck.gate_is_open() && gate_names(&wreck, &old) { &old } else { &new };
            wreck.assert_gate_tells_the_truth(bundle_of_gate, &format!("{crash:?} after effect {at}"));
            expect_converged(&wreck.apply(&new, at).expect("runs"), "resumed");
            let found = wreck.disk.read(Path::new(&config_path(&new)), 1 << 20).expect("readable").expect("there");
            assert!(found.ends_with(b"# changed\n"));
        }
    }
}

fn config_path(bundle: &Bundle) -> String {
    bundle.files.iter().find(|file| file.path.ends_with("kubelet.yaml")).expect("there is one").path.to_string()
}

fn gate_names(node: &FakeNode, bundle: &Bundle) -> bool {
    let gate = node.disk.read(Path::new(GATE), 1 << 20).expect("readable").unwrap_or_default();
    String::from_utf8_lossy(&gate).contains(bundle.digest().as_str())
}

#[test]
fn a_damaged_gate_counts_as_absent() {
    let bundle = bundle();
    let (tree, _) = reference(&bundle);
    for damage in [&b""[..], b"KUBELET_ARGS=", b"\0\0\0\0"] {
        let node = FakeNode::new(&bundle);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
        node.disk.remove(Path::new(GATE)).expect("removed");
        node.disk.create(Path::new(GATE), 0o644, damage).expect("damaged");
        let report = node.apply(&bundle, 0).expect("runs");
        assert_eq!(report.outcome, RunOutcome::Done, "{damage:?}");
        assert_eq!(node.tree(), tree, "{damage:?}");
    }
}

#[test]
fn a_lost_or_damaged_journal_costs_a_restart_and_nothing_else() {
    let bundle = bundle();
    let (tree, _) = reference(&bundle);
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    node.disk.truncate(Path::new(node::JOURNAL_PATH), 100).expect("cut");
    let report = node.apply(&bundle, 0).expect("runs");
    assert_eq!(report.outcome, RunOutcome::Done);
    assert_eq!(node.tree(), tree);
    assert_eq!(node.units.state(&UnitName("kubelet.service".to_owned())).expect("known").active, ActiveState::Active);
}

#[test]
fn a_second_nodestrap_at_once_is_told_that_the_node_is_busy() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    let _held = node.disk.try_lock(Path::new(node::LOCK_PATH)).expect("lockable").expect("free");
    assert!(matches!(node.apply(&bundle, 0), Err(SessionError::Busy)));
}

#[test]
fn a_masked_or_failing_runtime_leaves_the_gate_shut_and_says_why() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    node.units.end_jobs_with(&UnitName("containerd.service".to_owned()), host::units::JobResult::Failed);
    let report = node.apply(&bundle, 0).expect("runs");
    let RunOutcome::Failed { step, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(step.0, "start-containerd");
    assert!(message.contains("containerd.service"), "{message}");
    assert!(!node.gate_is_open());
}

/// Replays one seed of the crash test; the seed picks nothing by itself, so the kind is tried in every form.
#[test]
fn one_seed() {
    let Ok(seed) = std::env::var("NODESTRAP_SEED") else { return };
    let seed: u64 = seed.parse().expect("a number");
    let bundle = bundle();
    let (tree, effects) = reference(&bundle);
    for at in 1..=effects {
        for (crash, moment) in kinds() {
            crash_and_resume(&bundle, &tree, at, crash, moment, seed);
        }
    }
}
