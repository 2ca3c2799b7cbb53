//! A journal that failing runs have filled is cut, wherever the machine dies meanwhile.

mod support;

use std::path::Path;

use engine::RunOutcome;
use host::disk::Disk;
use host::fake::{Crash, Moment};
use host::units::{JobResult, UnitName};

use support::{FakeNode, expect_converged, rich_bundle};

/// A node whose last hook fails in every run, until its journal is as long as it may be.
fn long_failing() -> FakeNode {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    node.units.end_jobs_with(&UnitName("nodestrap-hook-fifth-b.service".to_owned()), JobResult::Failed);
    let mut longest = 0;
    for round in 0..2000 {
        let report = node.apply(&bundle, round).expect("runs");
        assert!(matches!(report.outcome, RunOutcome::Failed { .. }));
        let length = journal_length(&node);
        if length < longest {
            break;
        }
        longest = length;
        if length > 256 * 1024 {
            break;
        }
    }
    assert!(longest > 256 * 1024, "{longest}");
    node
}

fn journal_length(node: &FakeNode) -> u64 {
    node.disk.stat(Path::new(node::JOURNAL_PATH)).expect("readable").map_or(0, |stat| stat.size)
}

#[test]
fn the_next_run_cuts_it_and_remembers_which_hooks_have_run() {
    let bundle = rich_bundle();
    let full = long_failing();
    full.units.end_jobs_with(&UnitName("nodestrap-hook-fifth-b.service".to_owned()), JobResult::Done);
    let first = UnitName("nodestrap-hook-first.service".to_owned());
    let clean = full.after(Crash::ProcessKill, 0);
    expect_converged(&clean.apply(&bundle, 0).expect("runs"), "clean");
    assert!(journal_length(&clean) < 200 * 1024, "{}", journal_length(&clean));
    assert_eq!(clean.units.runs(&first), 1, "a hook that had run is not run again");
    let cutting = clean.disk.log().iter().position(|line| line.contains("journal") && line.contains("rename"));
    let cutting = cutting.expect("the journal was replaced") as u64;
    for at in 1..=cutting + 4 {
        for (crash, moment) in [
            (Crash::ProcessKill, Moment::Before),
            (Crash::ProcessKill, Moment::Midway),
            (Crash::PowerLoss, Moment::Midway),
            (Crash::PowerLoss, Moment::After),
        ] {
            let case = format!("{crash:?} {moment:?} effect {at}");
            let node = full.after(Crash::ProcessKill, 0);
            node.disk.crash_point().crash_at(at, moment);
            let _ = node.apply(&bundle, at);
            let wreck = node.after(crash, at);
            expect_converged(&wreck.apply(&bundle, at).expect("runs"), &case);
            assert_eq!(wreck.units.runs(&first), 1, "{case}: a hook was forgotten");
            assert_eq!(wreck.apply(&bundle, at).expect("runs").outcome, RunOutcome::NothingToDo, "{case}");
        }
    }
}
