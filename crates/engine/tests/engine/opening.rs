use std::cell::RefCell;

use engine::{
    Event, EventKind, FactNote, Journal, Opening, Patience, PlannedRun, Report, RetryPolicy, RunOutcome, StepError,
    Timeline,
};

use crate::support::{FakeClock, FakeExecutor, FakeStore, SEQUENTIAL, plan, step};

fn fact() -> FactNote {
    FactNote { name: "os".into(), value: "debian 12".into(), source: "os-release".into() }
}

/// One run that fails in its first phase, and what the journal holds afterwards.
fn failing_run(store: &FakeStore, boot_id: &str, message: &str) -> (Report, Vec<Event>) {
    let (mut journal, _) = Journal::open(store.clone()).unwrap();
    let clock = FakeClock::default();
    let opening = Opening::new(&mut journal, &|_| {}, &clock, boot_id);
    let failed: Result<(), StepError> = opening.phase("load-bundle", || Err(StepError::transient(message)));
    let report = opening.give_up("load-bundle", failed.unwrap_err());
    (report, Journal::open(store.clone()).unwrap().0.events().to_vec())
}

#[test]
fn a_run_that_never_had_a_plan_is_reported_and_recorded() {
    let store = FakeStore::default();
    let (report, events) = failing_run(&store, "boot-1", "no answer");
    assert_eq!(Report::from_events(&events), Some(report.clone()));
    assert!(matches!(&report.outcome, RunOutcome::Failed { step, .. } if step.as_str() == "load-bundle"));
    assert_eq!((report.plan, report.steps.len(), report.boot_id.as_str()), (None, 0, "boot-1"));
    assert_eq!(report.phases[0].error.as_ref().map(|error| error.message.as_str()), Some("no answer"));
}

#[test]
fn the_same_failure_is_written_once_a_boot() {
    let store = FakeStore::default();
    let (_, first) = failing_run(&store, "boot-1", "no answer");
    let (again, second) = failing_run(&store, "boot-1", "no answer");
    assert_eq!(first, second);
    assert_eq!(again.run, 2, "it is reported all the same");
    let (_, other_reason) = failing_run(&store, "boot-1", "refused");
    assert!(other_reason.len() > second.len());
    let (_, other_boot) = failing_run(&store, "boot-2", "refused");
    assert!(other_boot.len() > other_reason.len());
}

#[test]
fn phases_and_facts_are_part_of_the_run_that_follows() {
    let store = FakeStore::default();
    let (mut journal, _) = Journal::open(store.clone()).unwrap();
    let (clock, executor, heard) = (FakeClock::default(), FakeExecutor::new(), RefCell::new(Vec::new()));
    let sink = |event: &Event| heard.borrow_mut().push(event.clone());
    let plan = plan(vec![step("a", &[])]);
    let opening = Opening::new(&mut journal, &sink, &clock, "boot-1");
    opening.phase("gather-facts", || Ok::<_, StepError>(())).unwrap();
    opening.facts(vec![fact()]);
    let (jitter, retry, workers) = (&|| 0, RetryPolicy::default(), SEQUENTIAL);
    let report = opening.run(PlannedRun {
        plan: &plan,
        digest: plan.digest(),
        identity: plan.digest(),
        executor: &executor,
        jitter,
        retry,
        workers,
        patience: Patience::ENDLESS,
    });
    assert_eq!((report.run, report.outcome.clone()), (1, RunOutcome::Done));
    assert_eq!((report.facts.clone(), report.phases.len()), (vec![fact()], 1));
    let recorded = Journal::open(store).unwrap().0.events().to_vec();
    assert_eq!(recorded, heard.into_inner());
    assert_eq!(Report::from_events(&recorded), Some(report));
    assert!(Timeline::from_events(&recorded).to_svg().contains("gather-facts"));
}

#[test]
fn a_run_that_finds_nothing_to_do_leaves_no_trace_unless_it_asked_somebody() {
    for (asks, kept) in [(false, 0), (true, 7)] {
        let store = FakeStore::default();
        let (mut journal, _) = Journal::open(store.clone()).unwrap();
        let (clock, executor) = (FakeClock::default(), FakeExecutor::new());
        let plan = plan(vec![]);
        let opening = Opening::new(&mut journal, &|_| {}, &clock, "boot-1");
        opening
            .phase("load-bundle", || {
                if asks {
                    opening.detail("load-bundle", "asking the store");
                }
                Ok::<_, StepError>(())
            })
            .unwrap();
        opening.facts(vec![fact()]);
        let (jitter, retry, workers) = (&|| 0, RetryPolicy::default(), SEQUENTIAL);
        opening.run(PlannedRun {
            plan: &plan,
            digest: plan.digest(),
            identity: plan.digest(),
            executor: &executor,
            jitter,
            retry,
            workers,
            patience: Patience::ENDLESS,
        });
        let events = Journal::open(store).unwrap().0.events().to_vec();
        assert_eq!(events.len(), kept, "{events:?}");
        if let Some(last) = events.last() {
            assert_eq!(last.kind, EventKind::RunFinished { outcome: RunOutcome::NothingToDo });
        }
    }
}

#[test]
fn what_was_done_before_a_failed_opening_still_counts() {
    let store = FakeStore::default();
    let plan = plan(vec![step("a", &[])]);
    let (clock, executor) = (FakeClock::default(), FakeExecutor::new());
    crate::support::run_on(store.clone(), &plan, &executor, &clock, SEQUENTIAL);
    failing_run(&store, "boot-1", "no answer");
    let (journal, _) = Journal::open(store).unwrap();
    assert!(journal.history(&plan.digest()).contains(&"a".into()));
}
