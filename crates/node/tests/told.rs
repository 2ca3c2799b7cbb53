//! Looking touches nothing, and what the outside is told is true whatever crashes.
#![allow(clippy::disallowed_methods, reason = "the bundles of the tests come from real files")]

mod support;

use std::path::Path;

use engine::{ErrorClass, RunOutcome};
use host::disk::Disk;
use host::fake::{Crash, FakeDisk, Fault, Moment, Repeat};
use node::{
    Adopt, Applied, BundleSourceError, CLUSTER_API_PATH, Delivered, FAILED_PATH, NodeReport, Phase, REPORT_PATH,
    RunResult, SUCCESS_PATH, Surroundings,
};

use support::{FakeNode, bundle, clock, rich_bundle, surroundings};

fn exists(disk: &FakeDisk, path: &str) -> bool {
    disk.stat(Path::new(path)).expect("readable").is_some()
}

/// A whole run, as the command makes it: what was told is withdrawn at the first change, and told again at the end.
fn run_and_tell(
    node: &FakeNode,
    deliver: &dyn Fn() -> Result<Delivered, BundleSourceError>,
) -> Option<(Applied, NodeReport)> {
    let (clock, host) = (clock(), node.host());
    let surroundings = Surroundings {
        sink: &|event| {
            if matches!(event.kind, engine::EventKind::StepStarted { .. }) {
                let _ = node::withdraw(&node.disk);
            }
        },
        ..surroundings(&clock, 0)
    };
    let applied = node::apply_delivery(&host, &|_| deliver(), None, Adopt::No, &surroundings).ok()?;
    let report = NodeReport::new(&host, &applied);
    let _ = node::tell(&node.disk, &report);
    Some((applied, report))
}

#[test]
fn a_plan_over_a_fake_machine_has_no_effect_at_all() {
    for bundle in [bundle(), rich_bundle()] {
        let node = FakeNode::new(&bundle);
        for round in 0..2 {
            let before = (node.disk.operations(), node.disk.snapshot());
            let (clock, host) = (clock(), node.host());
            let (facts, plan) = node::prepare(&host, &bundle).expect("a plan");
            let previews = node::preview(&host, &bundle, &facts, &plan, &clock).expect("a look");
            assert_eq!(previews.len(), plan.steps.len());
            node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status");
            assert_eq!((node.disk.operations(), node.disk.snapshot()), before, "{:#?}", node.disk.log());
            if round == 0 {
                node.apply(&bundle, 0).expect("runs");
            }
        }
    }
}

#[test]
fn success_is_told_only_while_the_gate_is_open_whatever_crashes() {
    let bundle = bundle();
    let deliver = || Ok(bundle.clone().into());
    let node = FakeNode::new(&bundle);
    let before = node.disk.operations();
    let (_, report) = run_and_tell(&node, &deliver).expect("runs");
    assert_eq!((report.result, report.gate_open), (RunResult::Success, true));
    let effects = node.disk.operations() - before;
    let other = support::render("  sysctls: {vm.swappiness: \"1\"}\n", "");
    for at in 1..=effects + 20 {
        let moment = [Moment::Before, Moment::Midway, Moment::After][at as usize % 3];
        // Told once, then a run of another bundle is cut off: the process dies, the files stay.
        let node = FakeNode::new(&bundle);
        run_and_tell(&node, &deliver).expect("runs");
        node.disk.crash_point().crash_at(at, moment);
        run_and_tell(&node, &|| Ok(other.clone().into()));
        let wreck = node.after(Crash::ProcessKill, at);
        if exists(&wreck.disk, SUCCESS_PATH) || exists(&wreck.disk, CLUSTER_API_PATH) {
            assert!(wreck.gate_is_open(), "effect {at} {moment:?}: success was told of a node that is not complete");
        }
        let (_, report) = run_and_tell(&wreck, &|| Ok(other.clone().into())).expect("runs");
        assert_eq!(report.result, RunResult::Success);
        assert!(exists(&wreck.disk, SUCCESS_PATH) && exists(&wreck.disk, CLUSTER_API_PATH), "effect {at}");
        assert!(!exists(&wreck.disk, FAILED_PATH), "effect {at}");
    }
}

#[test]
fn a_disk_that_refuses_every_word_fails_no_run() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    node.apply(&bundle, 0).expect("runs");
    let host = node.host();
    let report = node.apply(&bundle, 0).expect("runs");
    let applied = Applied { report, bundle: Some(bundle.clone()) };
    node.disk.crash_point().fail_at(1, Fault::READ_ONLY, Repeat::FromThenOn);
    let report = NodeReport::new(&host, &applied);
    assert!(node::tell(&node.disk, &report).is_err(), "the caller can say so");
    assert!(report.gate_open && !exists(&node.disk, REPORT_PATH));
}

#[test]
fn a_bundle_that_does_not_come_is_a_failed_run_that_status_knows() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    let absent = || Err(BundleSourceError::Absent { path: "/x".to_owned() });
    assert!(run_and_tell(&node, &absent).is_none(), "where nothing was delivered there is nothing to tell");
    assert!(!exists(&node.disk, node::JOURNAL_PATH) && !exists(&node.disk, FAILED_PATH));
    let nowhere = || Err(fetch::FetchError::NoMirror { what: "the bundle".to_owned() }.into());
    let (applied, report) = run_and_tell(&node, &nowhere).expect("a report");
    assert!(applied.bundle.is_none());
    assert!(matches!(
        &applied.report.outcome,
        RunOutcome::Failed { step, class: ErrorClass::WrongInput, .. } if step.as_str() == "load-bundle"
    ));
    assert_eq!(report.result, RunResult::Failure);
    assert!(exists(&node.disk, FAILED_PATH) && !exists(&node.disk, SUCCESS_PATH));
    let (status, _) = node::observe_status(&node.host(), nowhere()).expect("a status");
    assert_eq!(status.phase, Phase::BundleBroken);
    assert!(status.blocked.is_some_and(|blocked| blocked.since.is_some()));
    // The same once more is told again, but not recorded again.
    let journal = || node.disk.read(Path::new(node::JOURNAL_PATH), 1 << 20).expect("readable");
    let recorded = journal();
    run_and_tell(&node, &nowhere).expect("a report");
    assert_eq!(journal(), recorded);
}

#[test]
fn a_kill_while_a_run_is_told_of_leaves_nothing_that_the_next_run_does_not_make_good() {
    let bundle = bundle();
    let complete = FakeNode::new(&bundle);
    let report = complete.apply(&bundle, 0).expect("runs");
    // As of a hook after the kubelet: the gate is open.
    let (step, class) = ("run-hook-last".into(), ErrorClass::Permanent);
    let failed = RunOutcome::Failed { step, class, message: "no".to_owned(), advice: None };
    for outcome in [report.outcome.clone(), failed] {
        let case = format!("{outcome:?}");
        let report = engine::Report { outcome, ..report.clone() };
        kill_while_told(&complete, &Applied { report, bundle: Some(bundle.clone()) }, &bundle, &case);
    }
}

/// At every moment of it; the next run, which finds nothing to do, is told of to its end.
fn kill_while_told(complete: &FakeNode, applied: &Applied, bundle: &bundle::Bundle, case: &str) {
    let told = |node: &FakeNode, applied: &Applied| node::tell(&node.disk, &NodeReport::new(&node.host(), applied));
    let effects = {
        let node = complete.after(Crash::ProcessKill, 0);
        told(&node, applied).expect("told");
        node.disk.operations()
    };
    for at in 1..=effects {
        for moment in [Moment::Before, Moment::Midway, Moment::After] {
            let node = complete.after(Crash::ProcessKill, 0);
            node.disk.crash_point().crash_at(at, moment);
            let _ = told(&node, applied);
            let node = node.after(Crash::ProcessKill, 0);
            let report = node.apply(bundle, 0).expect("runs");
            assert_eq!(report.outcome, RunOutcome::NothingToDo);
            told(&node, &Applied { report, bundle: Some(bundle.clone()) }).expect("told");
            let case = format!("{case}, killed {moment:?} effect {at}");
            assert_eq!(node.disk.find_name(".nodestrap-new"), None, "{case}");
            for path in [REPORT_PATH, SUCCESS_PATH, CLUSTER_API_PATH, node::DURABLE_REPORT_PATH] {
                assert!(exists(&node.disk, path), "{case}: {path} is missing");
            }
            assert!(!exists(&node.disk, FAILED_PATH), "{case}: told of twice");
        }
    }
}
