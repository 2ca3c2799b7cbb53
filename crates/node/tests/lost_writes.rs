//! A disk that loses what was written and tells somebody else: the gate stays shut, and the next run mends it.
mod support;

use std::path::Path;

use engine::{ErrorClass, RunOutcome, StepOutcome};
use host::disk::Disk;
use host::fake::{Crash, Fault, Repeat};
use host::units::UnitName;

use support::{FakeNode, bundle, expect_converged, rich_bundle};

fn failed(report: &engine::Report) -> (&str, &str) {
    match &report.outcome {
        RunOutcome::Failed { step, message, class: ErrorClass::NeedsOperator, advice } => {
            assert!(advice.as_ref().is_some_and(|advice| advice.contains("dmesg")), "{advice:?}");
            (step.as_str(), message)
        }
        other => panic!("{other:?}"),
    }
}

/// As Linux does it: the run is killed, and what it wrote is lost on its way to the disk before the next one comes.
#[test]
fn files_that_only_the_kernel_remembers_shut_the_gate_and_are_written_anew() {
    let bundle = bundle();
    let effects = {
        let node = FakeNode::new(&bundle);
        let before = node.disk.operations();
        node.apply(&bundle, 0).expect("runs");
        node.disk.operations() - before
    };
    let mut shut = 0;
    for at in 1..=effects {
        let node = FakeNode::new(&bundle);
        node.disk.crash_point().lose_writeback_at(node.disk.operations() + at);
        let report = node.apply(&bundle, 0).expect("runs");
        let case = format!("lost after effect {at}");
        if !node.gate_is_open() {
            shut += 1;
            let (_, message) = failed(&report);
            assert!(message.contains("the disk lost what was written to"), "{case}: {message}");
        }
        // After a power cut or without one.
        let crash = [Crash::ProcessKill, Crash::PowerLoss][at as usize % 2];
        let node = node.after(crash, at);
        node.assert_gate_tells_the_truth(&bundle, &case);
        let again = node.apply(&bundle, 0).expect("runs");
        expect_converged(&again, &case);
        node.after(Crash::PowerLoss, at).assert_gate_tells_the_truth(&bundle, &case);
        assert!(node.after(Crash::PowerLoss, at).gate_is_open(), "{case}");
        let idle = node.apply(&bundle, 0).expect("runs");
        assert_eq!(idle.outcome, RunOutcome::NothingToDo, "{case}: doubt is settled");
    }
    assert!(shut > 0, "nothing was ever lost");
}

#[test]
fn a_sync_that_failed_has_every_file_written_anew_until_a_run_has_read_them_from_the_disk() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let starts = node.units.jobs().len();
    // Whoever asked for it, and whatever they wrote.
    node.disk.crash_point().fail_at(node.disk.operations() + 1, Fault::INPUT_OUTPUT, Repeat::Once);
    node.disk.sync_file_system(Path::new("/etc")).expect_err("it fails");
    let report = node.apply(&bundle, 0).expect("runs");
    expect_converged(&report, "in doubt");
    for step in ["stage-files", "commit-files", "open-gate"] {
        assert_eq!(report.step(step).map(|step| step.outcome), Some(StepOutcome::Done), "{step}");
    }
    let renamed =
        node.disk.log().iter().filter(|line| line.contains("rename") && line.contains("kubelet.yaml")).count();
    assert_eq!(renamed, 2, "once by each run");
    assert_eq!(node.units.jobs().len(), starts, "whoever reads the files has read the same bytes");
    let idle = node.apply(&bundle, 0).expect("runs");
    assert_eq!(idle.outcome, RunOutcome::NothingToDo);
    // Another bundle has not written its files since.
    let other = rich_bundle();
    let report = node.apply(&other, 0).expect("runs");
    expect_converged(&report, "another bundle");
    let rewritten =
        |path: &str| node.disk.log().iter().filter(|line| line.contains(&format!("{path}.nodestrap-new"))).count();
    assert!(rewritten("bootstrap-kubelet.kubeconfig") >= 3, "the same in both bundles, and written all the same");
    assert!(node.units.runs(&UnitName("containerd.service".to_owned())) > 0);
}

#[test]
fn a_gate_that_is_open_already_is_shut_when_the_disk_has_lost_a_file_behind_it() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let file = bundle.files.iter().find(|file| file.path.ends_with("kubelet.yaml")).expect("it has one");
    // Somebody else wrote it, with the right bytes, and the disk lost them; and there is some other drift.
    let others = node.disk.uncounted();
    others.remove(file.path.as_path()).expect("removed");
    others.create(file.path.as_path(), file.mode, &file.content).expect("written");
    node.disk.lose_writeback();
    others.remove(Path::new("/etc/containerd/config.toml")).expect("removed");
    let report = node.apply(&bundle, 0).expect("runs");
    let (step, message) = failed(&report);
    assert_eq!(step, "open-gate");
    assert!(message.contains("kubelet.yaml"), "{message}");
    assert!(!node.gate_is_open());
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "the next one");
    assert!(node.after(Crash::PowerLoss, 0).gate_is_open());
}
