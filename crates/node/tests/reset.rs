//! What was there before comes back: after a clean run, after a crash anywhere in `apply`, and after a crash anywhere in
//! `reset` itself.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle::Bundle;
use engine::{Report, RunOutcome};
use host::disk::{Disk, Kind};
use host::fake::{Crash, Entry, Fault, Moment, Repeat};
use host::units::{ActiveState, UnitName, Units};
use node::{Forgotten, ResetOptions, SessionError};

use support::{
    FakeNode, GATE, al2_bundle, bundle, clock, expect_converged, hook_unit, rich_bundle, surroundings, ubuntu_bundle,
};

const CONTAINERD: &str = "/etc/containerd/config.toml";

/// A kubelet's, whose authority the system may trust: it stays.
const OF_THIS_CLUSTER_PERHAPS: &[u8] = b"contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n\
      clusters: [{name: c, cluster: {server: 'https://10.0.0.10:6443'}}]\n";

/// A machine that was used before: one of our files is there with other content, mode and owner, containerd runs and is
/// enabled, and a foreign file is where the gate will be, and where another layout would have it.
fn used(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    let image = node.disk.uncounted();
    let put = |path: &str, mode: u32, content: &[u8]| {
        host::files::write_durable(&image, Path::new(path), mode, content, Some((7, 8))).expect("written");
    };
    put(CONTAINERD, 0o640, b"version = 1 # mine\n");
    for gate in [GATE, &bundle.gate.path] {
        put(gate, 0o600, b"FOREIGN=1\n");
    }
    put("/var/lib/etcd/member/data", 0o600, b"precious");
    put("/var/lib/kubelet/pki/kubelet-client-current.pem", 0o600, b"identity");
    if bundle.file(&bundle.join.kubeconfig).is_none() {
        put(&bundle.join.kubeconfig, 0o600, OF_THIS_CLUSTER_PERHAPS);
    }
    let containerd = UnitName("containerd.service".to_owned());
    let units = host::fake::FakeUnits::new(&image);
    units.enable(std::slice::from_ref(&containerd)).expect("enabled");
    host::files::sync_all(&image, &[Path::new("/etc")]).expect("synced");
    node.units.set_active(&containerd, ActiveState::Active);
    node
}

/// Everything but what a boot forgets, and the parents of the state folder.
fn tree(node: &FakeNode) -> BTreeMap<PathBuf, Entry> {
    let mut tree = node.disk.snapshot();
    tree.retain(|path, _| !path.starts_with("/run") && !["/var", "/var/lib"].iter().any(|one| path == Path::new(one)));
    tree
}

/// The same without folders: a crash before anything was recorded may leave an empty one.
fn files(node: &FakeNode) -> BTreeMap<PathBuf, Entry> {
    let mut tree = tree(node);
    tree.retain(|_, entry| entry.kind != Kind::Folder);
    tree
}

#[track_caller]
fn assert_same(found: &BTreeMap<PathBuf, Entry>, expected: &BTreeMap<PathBuf, Entry>, case: &str) {
    let differing = |one: &BTreeMap<PathBuf, Entry>, other: &BTreeMap<PathBuf, Entry>| -> Vec<PathBuf> {
        one.iter().filter(|(path, entry)| other.get(*path) != Some(entry)).map(|(path, _)| path.clone()).collect()
    };
    let (more, less) = (differing(found, expected), differing(expected, found));
    assert!(more.is_empty() && less.is_empty(), "{case}: not as before: {more:?}; missing: {less:?}");
}

fn reset(
    node: &FakeNode,
    bundle: &Bundle,
    options: ResetOptions,
    order: u64,
) -> Result<(Option<Report>, Forgotten), SessionError> {
    node::reset(&node.host(), Some(bundle), options, &surroundings(&clock(), order))
}

#[track_caller]
fn expect_reset(node: &FakeNode, bundle: &Bundle, case: &str) {
    let (report, _) = reset(node, bundle, ResetOptions::default(), 0).unwrap_or_else(|error| panic!("{case}: {error}"));
    if let Some(report) = report {
        expect_converged(&report, case);
    }
}

#[test]
fn what_hooks_said_goes_with_the_rest() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    let hook = hook_unit("first");
    node.units.say(&hook, "a secret\n");
    node.apply(&bundle, 0).expect("runs");
    let log = format!("/run/nodestrap/hooks/{}.log", hook.0);
    assert!(node.disk.stat(Path::new(&log)).unwrap().is_some());
    expect_reset(&node, &bundle, "with hooks");
    assert!(node.disk.stat(Path::new("/run/nodestrap/hooks")).unwrap().is_none());
}

#[test]
fn what_was_there_before_is_back_and_a_second_reset_finds_nothing() {
    for bundle in [bundle(), rich_bundle()] {
        let node = used(&bundle);
        let before = tree(&node);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "apply");
        assert!(node.gate_is_open());
        let (report, forgotten) = reset(&node, &bundle, ResetOptions::default(), 0).expect("runs");
        assert_eq!((report.expect("a run").outcome, forgotten), (RunOutcome::Done, Forgotten::Everything));
        assert_same(&tree(&node), &before, "after the reset");
        let state = |unit: &str| node.units.state(&UnitName(unit.to_owned())).expect("known");
        assert_eq!(state("kubelet.service").active, ActiveState::NotFound);
        assert!(state("containerd.service").enabled, "it was enabled before");
        assert_eq!(state("containerd.service").active, ActiveState::Active, "it ran before");
        let (report, forgotten) = reset(&node, &bundle, ResetOptions::default(), 0).expect("runs");
        assert!(report.is_none() && forgotten == Forgotten::NothingThere);
        // And the way is free for another bootstrap.
        expect_converged(&node.apply(&bundle, 1).expect("runs"), "again");
        assert!(node.gate_is_open());
    }
}

/// eksctl's own scripts were here before: each of their files is there, and none is as ours will be.
#[test]
fn what_eksctls_layout_replaced_is_back() {
    for bundle in [al2_bundle(), ubuntu_bundle()] {
        let node = used(&bundle);
        let image = node.disk.uncounted();
        for file in bundle.files.iter().filter(|file| file.path != CONTAINERD) {
            let content = [b"# eksctl's\n", &*file.content].concat();
            host::files::write_durable(&image, file.path.as_path(), 0o640, &content, Some((7, 8))).expect("written");
        }
        let before = tree(&node);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "apply");
        assert!(node.gate_is_open());
        expect_reset(&node, &bundle, "reset");
        assert_same(&tree(&node), &before, bundle.node.os.as_str());
        let again = node.apply(&bundle, 1).expect("runs");
        expect_converged(&again, "again");
    }
}

#[test]
fn the_oldest_original_stays_through_many_bundles() {
    let first = bundle();
    let mut second = first.clone();
    for file in &mut second.files {
        file.content = [&file.content[..], b"# second\n"].concat().into();
    }
    let node = used(&first);
    let before = tree(&node);
    for bundle in [&first, &second, &first, &second] {
        expect_converged(&node.apply(bundle, 0).expect("runs"), "apply");
        let again = node.apply(bundle, 0).expect("runs");
        assert_eq!(again.outcome, RunOutcome::NothingToDo);
    }
    expect_reset(&node, &second, "reset");
    assert_same(&tree(&node), &before, "after four bundles");
}

#[test]
fn what_a_new_bundle_does_not_have_any_more_is_undone_by_apply() {
    let (old, new) = (rich_bundle(), bundle());
    let node = used(&old);
    let clean = used(&new);
    expect_converged(&clean.apply(&new, 0).expect("runs"), "clean");
    expect_converged(&node.apply(&old, 0).expect("runs"), "old");
    let runs = UnitName("runs.service".to_owned());
    assert_eq!(node.units.state(&runs).expect("known").active, ActiveState::Active);
    let report = node.apply(&new, 0).expect("runs");
    assert_eq!(report.outcome, RunOutcome::Done);
    assert_eq!(node.units.state(&runs).expect("known").active, ActiveState::NotFound);
    let without_story = |node: &FakeNode| {
        let mut files = files(node);
        files.retain(|path, _| {
            !path.starts_with("/var/lib/nodestrap") && path != Path::new("/etc/nodestrap/bundle.json")
        });
        files
    };
    assert_same(&without_story(&node), &without_story(&clean), "as if the old bundle had never been");
    assert_eq!(node.apply(&new, 0).expect("runs").outcome, RunOutcome::NothingToDo);
}

#[test]
fn a_crash_at_every_effect_of_a_change_of_bundles_ends_in_the_same_files() {
    let (old, new) = (rich_bundle(), bundle());
    let start = used(&old);
    let before = files(&start);
    expect_converged(&start.apply(&old, 0).expect("runs"), "old");
    let clean = start.after(Crash::ProcessKill, 0);
    let wanted = {
        expect_converged(&clean.apply(&new, 0).expect("runs"), "clean");
        clean.tree()
    };
    let effects = clean.disk.operations();
    for at in 1..=effects {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            let case = format!("{crash:?} after effect {at}");
            let node = start.after(Crash::ProcessKill, 0);
            node.disk.crash_point().crash_at(at, Moment::After);
            let _ = node.apply(&new, at);
            let wreck = node.after(crash, at);
            expect_converged(&wreck.apply(&new, at).expect("runs"), &case);
            assert_eq!(wreck.tree(), wanted, "{case}");
            if at % 5 == 0 {
                expect_reset(&wreck, &new, &case);
                assert_same(&files(&wreck), &before, &case);
            }
        }
    }
}

#[test]
fn a_crash_anywhere_in_apply_can_be_undone() {
    for (bundle, step) in [(bundle(), 1), (rich_bundle(), 3), (al2_bundle(), 3), (ubuntu_bundle(), 3)] {
        let clean = used(&bundle);
        let before = (tree(&clean), files(&clean));
        let from = clean.disk.operations();
        expect_converged(&clean.apply(&bundle, 0).expect("runs"), "clean");
        let effects = clean.disk.operations() - from;
        assert!(effects > 40, "{effects}");
        for at in (1..=effects).step_by(step) {
            for (crash, moment) in [
                (Crash::ProcessKill, Moment::Midway),
                (Crash::ProcessKill, Moment::After),
                (Crash::PowerLoss, Moment::Midway),
                (Crash::PowerLoss, Moment::After),
            ] {
                let case = format!("{crash:?} {moment:?} effect {at} of apply");
                let node = used(&bundle);
                node.disk.crash_point().crash_at(from + at, moment);
                let _ = node.apply(&bundle, at);
                let wreck = node.after(crash, at);
                expect_reset(&wreck, &bundle, &case);
                match crash {
                    Crash::ProcessKill => assert_same(&tree(&wreck), &before.0, &case),
                    Crash::PowerLoss => assert_same(&files(&wreck), &before.1, &case),
                }
            }
        }
    }
}

#[test]
fn a_crash_anywhere_in_reset_is_resumed_and_never_starts_a_kubelet() {
    let bundle = rich_bundle();
    let applied = used(&bundle);
    let before = tree(&applied);
    expect_converged(&applied.apply(&bundle, 0).expect("runs"), "apply");
    let clean = applied.after(Crash::ProcessKill, 0);
    expect_reset(&clean, &bundle, "clean");
    let effects = clean.disk.operations();
    assert!(effects > 60, "{effects}");
    for at in 1..=effects {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            for moment in [Moment::Before, Moment::Midway, Moment::After] {
                let case = format!("{crash:?} {moment:?} effect {at} of reset");
                let node = applied.after(Crash::ProcessKill, 0);
                node.disk.crash_point().crash_at(at, moment);
                let _ = reset(&node, &bundle, ResetOptions::default(), at);
                let wreck = node.after(crash, at);
                wreck.assert_gate_is_foreign_or_true(&bundle, &case);
                expect_reset(&wreck, &bundle, &case);
                assert_same(&tree(&wreck), &before, &case);
            }
        }
    }
}

#[test]
fn a_reset_that_was_cut_off_does_not_keep_the_node_from_being_bootstrapped_again() {
    let bundle = bundle();
    let applied = used(&bundle);
    let before = files(&applied);
    expect_converged(&applied.apply(&bundle, 0).expect("runs"), "apply");
    let wanted = applied.tree();
    let clean = applied.after(Crash::ProcessKill, 0);
    expect_reset(&clean, &bundle, "clean");
    for at in 1..=clean.disk.operations() {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            let case = format!("{crash:?} after effect {at} of reset");
            let node = applied.after(Crash::ProcessKill, 0);
            node.disk.crash_point().crash_at(at, Moment::After);
            let _ = reset(&node, &bundle, ResetOptions::default(), at);
            let wreck = node.after(crash, at);
            expect_converged(&wreck.apply(&bundle, at).expect("runs"), &case);
            assert_eq!(wreck.tree(), wanted, "{case}");
            expect_reset(&wreck, &bundle, &case);
            assert_same(&files(&wreck), &before, &case);
        }
    }
}

#[test]
fn a_disk_that_refuses_any_effect_loses_nothing() {
    let bundle = bundle();
    let applied = used(&bundle);
    let before = tree(&applied);
    expect_converged(&applied.apply(&bundle, 0).expect("runs"), "apply");
    let clean = applied.after(Crash::ProcessKill, 0);
    expect_reset(&clean, &bundle, "clean");
    for at in 1..=clean.disk.operations() {
        for fault in [Fault::DISK_FULL, Fault::INPUT_OUTPUT, Fault::READ_ONLY] {
            let node = applied.after(Crash::ProcessKill, 0);
            node.disk.crash_point().fail_at(at, fault, Repeat::FromThenOn);
            let _ = reset(&node, &bundle, ResetOptions::default(), at);
            node.disk.crash_point().heal();
            expect_reset(&node, &bundle, &format!("{fault:?} at {at}"));
            assert_same(&tree(&node), &before, &format!("{fault:?} at {at}"));
        }
    }
}

#[test]
fn what_somebody_changed_is_refused_or_kept() {
    let bundle = bundle();
    let node = used(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "apply");
    let changed = "/etc/kubernetes/kubelet.yaml";
    node.disk.remove(Path::new(changed)).expect("removed");
    node.disk.create(Path::new(changed), 0o640, b"mine").expect("written");
    let tree_before = tree(&node);
    let (report, _) = reset(&node, &bundle, ResetOptions::default(), 0).expect("runs");
    let RunOutcome::Failed { step, message, .. } = report.expect("a run").outcome else { panic!("not refused") };
    assert_eq!(step.0, "check-changes");
    assert!(message.contains(changed) && !message.contains("kubelet.service"), "{message}");
    let without_journal = |mut tree: BTreeMap<PathBuf, Entry>| {
        tree.remove(Path::new(node::JOURNAL_PATH));
        tree
    };
    assert_same(&without_journal(tree(&node)), &without_journal(tree_before), "refused");
    let options = ResetOptions { force: true, ..ResetOptions::default() };
    let (report, _) = reset(&node, &bundle, options, 0).expect("runs");
    expect_converged(&report.expect("a run"), "forced");
    let saved = format!("{}{changed}", node::SAVED_FOLDER);
    assert_eq!(node.disk.read(Path::new(&saved), 100).expect("readable").as_deref(), Some(&b"mine"[..]));
    assert_eq!(node.disk.stat(Path::new(&saved)).expect("readable").expect("there").mode, 0o640);
    assert_eq!(node.disk.stat(Path::new(changed)).expect("readable"), None);
}

#[test]
fn data_is_never_touched_and_credentials_only_when_asked() {
    let bundle = bundle();
    let identity = Path::new("/var/lib/kubelet/pki/kubelet-client-current.pem");
    for kubelet_state in [false, true] {
        let node = used(&bundle);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "apply");
        let options = ResetOptions { kubelet_state, ..ResetOptions::default() };
        let (report, _) = reset(&node, &bundle, options, 0).expect("runs");
        expect_converged(&report.expect("a run"), "reset");
        assert_eq!(node.disk.stat(identity).expect("readable").is_none(), kubelet_state);
        let data = node.disk.read(Path::new("/var/lib/etcd/member/data"), 100).expect("readable");
        assert_eq!(data.as_deref(), Some(&b"precious"[..]));
    }
}

#[test]
fn a_complete_node_without_a_record_is_left_alone() {
    for bundle in [bundle(), al2_bundle(), ubuntu_bundle()] {
        let node = used(&bundle);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "apply");
        node.disk.remove(Path::new("/var/lib/nodestrap/before/record.json")).expect("removed");
        let refused = reset(&node, &bundle, ResetOptions::default(), 0);
        assert!(matches!(refused, Err(SessionError::NoRecord)), "{}", bundle.node.os);
        assert!(node.gate_is_open());
    }
}

#[test]
fn somebody_else_at_work_is_told() {
    let bundle = bundle();
    let node = used(&bundle);
    let _held = node.disk.try_lock(Path::new(node::LOCK_PATH)).expect("lockable").expect("free");
    assert!(matches!(reset(&node, &bundle, ResetOptions::default(), 0), Err(SessionError::Busy)));
}

#[test]
fn what_was_undone_on_a_mount_of_its_own_stays_undone_after_a_power_cut() {
    let bundle = bundle();
    for mount in ["/etc/kubernetes", "/etc/containerd", "/etc/systemd/system"] {
        let node = FakeNode::new(&bundle);
        node.disk.mount(Path::new(mount)).expect("mounted");
        let before = files(&node);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), mount);
        node.disk.sync_everything().expect("synced");
        expect_reset(&node, &bundle, mount);
        assert_same(&files(&node), &before, mount);
        for seed in 0..50 {
            assert_same(&files(&node.after(Crash::PowerLoss, seed)), &before, &format!("{mount}, after a power cut"));
        }
    }
}

#[test]
fn what_a_killed_reset_has_undone_is_synced_by_the_next_one() {
    let bundle = bundle();
    let complete = FakeNode::new(&bundle);
    let before = files(&complete);
    expect_converged(&complete.apply(&bundle, 0).expect("runs"), "apply");
    complete.disk.sync_everything().expect("synced");
    let effects = {
        let node = complete.after(Crash::ProcessKill, 0);
        expect_reset(&node, &bundle, "whole");
        node.disk.operations()
    };
    for at in 1..=effects {
        let node = complete.after(Crash::ProcessKill, 0);
        node.disk.crash_point().crash_at(at, Moment::After);
        let _ = reset(&node, &bundle, ResetOptions::default(), 0);
        let node = node.after(Crash::ProcessKill, 0);
        expect_reset(&node, &bundle, &format!("effect {at}"));
        for seed in 0..4 {
            let cut = node.after(Crash::PowerLoss, seed);
            assert_same(&files(&cut), &before, &format!("killed at {at}, then a power cut"));
        }
    }
}
