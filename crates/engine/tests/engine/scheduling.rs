use std::{
    collections::BTreeSet,
    sync::{Barrier, Mutex},
    time::Duration,
};

use engine::{EventKind, Finish, Plan, RunOutcome, Workers};
use proptest::prelude::*;

use crate::support::{Action, FakeClock, FakeExecutor, FakeStore, SEQUENTIAL, lock, plan, run_on, step};

/// Random needs on earlier steps, listed in an order that says nothing about them.
fn any_plan() -> impl Strategy<Value = Plan<Action>> {
    (1..24_usize)
        .prop_flat_map(|count| {
            let needs = prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), count);
            (needs, Just((0..count).collect::<Vec<_>>()).prop_shuffle())
        })
        .prop_map(|(needs, order)| {
            let name = |n: usize| format!("s{n}");
            let make = |n: usize| {
                let needs: Vec<_> = needs[n].iter().filter(|_| n > 0).map(|index| name(index.index(n))).collect();
                let mut step = step(&name(n), &needs.iter().map(String::as_str).collect::<Vec<_>>());
                step.barrier = n % 5 == 3;
                step
            };
            plan(order.into_iter().map(make).collect())
        })
}

fn each_step_once_after_its_needs(plan: &Plan<Action>, workers: Workers) {
    let finished = Mutex::new(BTreeSet::new());
    let executor = FakeExecutor::scripted(|step, _| {
        let mut finished = lock(&finished);
        for need in &step.needs {
            assert!(finished.contains(need), "{} started before {need} was done", step.id);
        }
        assert!(finished.insert(step.id.clone()), "{} ran twice", step.id);
        Ok(())
    });
    let (report, _) = run_on(FakeStore::default(), plan, &executor, &FakeClock::default(), workers);
    assert_eq!(report.outcome, RunOutcome::Done);
    assert_eq!(executor.applied().len(), plan.steps.len());
}

proptest! {
    #[test]
    fn any_plan_runs_each_step_once_after_its_needs_in_any_order(plan in any_plan(), order: u64) {
        each_step_once_after_its_needs(&plan, Workers::Sequential { order });
    }

    #[test]
    fn any_plan_runs_each_step_once_after_its_needs_on_threads(plan in any_plan(), threads in 0..6_usize) {
        each_step_once_after_its_needs(&plan, Workers::Threads(threads));
    }

    #[test]
    fn an_order_is_repeatable(plan in any_plan(), order: u64) {
        let once = || {
            let executor = FakeExecutor::new();
            let workers = Workers::Sequential { order };
            let (_, events) = run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), workers);
            events
        };
        prop_assert_eq!(once(), once());
    }
}

#[test]
fn independent_steps_really_run_at_the_same_time() {
    // Each waits for the other inside apply: only possible if both run at once.
    let meeting = Barrier::new(2);
    let executor = FakeExecutor::scripted(|_, _| {
        meeting.wait();
        Ok(())
    });
    let plan = plan(vec![step("a", &[]), step("b", &[])]);
    let (report, _) = run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), Workers::Threads(2));
    assert_eq!(report.outcome, RunOutcome::Done);
}

#[test]
fn a_step_starts_when_its_own_needs_are_done_and_not_with_a_wave() {
    // `late` is in the first wave and ends only after `deep` of the third wave has started.
    let meeting = Barrier::new(2);
    let executor = FakeExecutor::scripted(|step, _| {
        if ["late", "deep"].contains(&step.id.as_str()) {
            meeting.wait();
        }
        Ok(())
    });
    let plan = plan(vec![step("late", &[]), step("a", &[]), step("b", &["a"]), step("deep", &["b"])]);
    let (report, _) = run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), Workers::Threads(2));
    assert_eq!(report.outcome, RunOutcome::Done);
}

#[test]
fn no_more_steps_are_under_way_than_there_are_places() {
    let (now, most) = (Mutex::new(0), Mutex::new(0));
    let executor = FakeExecutor::scripted(|_, _| {
        let current = {
            let mut now = lock(&now);
            *now += 1;
            *now
        };
        let mut most = lock(&most);
        *most = current.max(*most);
        drop(most);
        std::thread::yield_now();
        *lock(&now) -= 1;
        Ok(())
    });
    let steps = (0..40).map(|n| step(&format!("s{n}"), &[])).collect();
    run_on(FakeStore::default(), &plan(steps), &executor, &FakeClock::default(), Workers::Threads(3));
    assert!(*lock(&most) <= 3);
}

#[test]
fn a_step_that_is_already_so_is_not_started_and_frees_its_dependents() {
    let executor = FakeExecutor::new();
    lock(&executor.so).push("a".into());
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    let (report, events) = run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), SEQUENTIAL);
    assert_eq!(report.outcome, RunOutcome::Done);
    assert_eq!(executor.applied(), ["b"]);
    let finish = EventKind::StepFinished { id: "a".into(), outcome: Finish::AlreadySo };
    assert!(events.iter().any(|event| event.kind == finish));
}

#[test]
fn events_tell_the_story_in_order_and_details_are_part_of_it() {
    let (_, events) = run_on(
        FakeStore::default(),
        &plan(vec![step("a", &[])]),
        &FakeExecutor::new(),
        &FakeClock::default(),
        SEQUENTIAL,
    );
    let kinds: Vec<_> = events.iter().map(|event| serde_json::to_value(event).unwrap()["kind"].clone()).collect();
    assert_eq!(kinds, ["runStarted", "stepStarted", "stepDetail", "stepFinished", "runFinished"]);
    let EventKind::StepStarted { why, attempt, .. } = &events[1].kind else { panic!("{events:?}") };
    assert_eq!((why.as_str(), *attempt), ("a is missing", 1));
}

#[test]
fn a_run_with_nothing_to_do_writes_nothing_and_syncs_nothing() {
    let (store, executor, clock) = (FakeStore::default(), FakeExecutor::new(), FakeClock::default());
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    run_on(store.clone(), &plan, &executor, &clock, SEQUENTIAL);
    let (before, syncs) = (store.contents(), *lock(&store.syncs));
    for workers in [SEQUENTIAL, Workers::Threads(4)] {
        let (report, events) = run_on(store.clone(), &plan, &executor, &clock, workers);
        assert_eq!(report.outcome, RunOutcome::NothingToDo);
        assert_eq!((report.run, report.steps[1].done_in_run), (2, Some(1)));
        assert!(matches!(events.last().unwrap().kind, EventKind::RunFinished { outcome: RunOutcome::NothingToDo }));
    }
    assert_eq!((store.contents(), *lock(&store.syncs)), (before, syncs));
}

#[test]
fn a_node_that_was_made_so_by_others_leaves_an_empty_journal() {
    let (store, executor) = (FakeStore::default(), FakeExecutor::new());
    lock(&executor.so).push("a".into());
    let (report, _) = run_on(store.clone(), &plan(vec![step("a", &[])]), &executor, &FakeClock::default(), SEQUENTIAL);
    assert_eq!((report.outcome, store.contents().len()), (RunOutcome::NothingToDo, 0));
}

#[test]
fn the_journal_is_synced_only_around_barriers_and_at_the_end() {
    let syncs = |barrier| -> usize {
        let mut steps = vec![step("a", &[]), step("gate", &["a"]), step("b", &[])];
        steps[1].barrier = barrier;
        let store = FakeStore::default();
        run_on(store.clone(), &plan(steps), &FakeExecutor::new(), &FakeClock::default(), SEQUENTIAL);
        *lock(&store.syncs)
    };
    assert_eq!((syncs(false), syncs(true)), (1, 3));
}

#[test]
fn a_clock_that_is_set_during_the_run_does_not_bend_durations() {
    struct Jumping(FakeClock);
    impl engine::Clock for Jumping {
        fn now(&self) -> engine::Timestamp {
            // From the epoch to today, as at a first boot when the network comes up.
            let passed = self.0.monotonic() - Duration::from_secs(77);
            if passed.is_zero() { engine::Timestamp(5_000) } else { engine::Timestamp(1_735_787_045_000) }
        }
        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }
        fn sleep(&self, duration: Duration) {
            self.0.sleep(duration);
        }
    }
    let clock = Jumping(FakeClock::default());
    let executor = FakeExecutor::scripted(|_, _| {
        clock.0.advance(Duration::from_secs(2));
        Ok(())
    });
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    let (report, _) = run_on(FakeStore::default(), &plan, &executor, &clock, SEQUENTIAL);
    assert_eq!((report.started_at.0, report.duration_ms), (5_000, 4_000));
    assert_eq!((report.steps[1].started_ms, report.steps[1].ended_ms), (Some(2_000), Some(4_000)));
}

#[test]
fn a_panic_in_a_step_passes_through_and_does_not_hang_the_run() {
    let run = |workers| {
        let executor = FakeExecutor::scripted(|step, _| match step.id.as_str() {
            "bad" => std::panic::resume_unwind(Box::new("a bug")),
            _ => Ok(()),
        });
        let plan = plan(vec![step("bad", &[]), step("b", &[]), step("c", &["bad"])]);
        run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), workers)
    };
    for workers in [SEQUENTIAL, Workers::Threads(1), Workers::Threads(3)] {
        let quiet = std::panic::AssertUnwindSafe(|| run(workers));
        assert!(std::panic::catch_unwind(quiet).is_err(), "{workers:?}");
    }
}
