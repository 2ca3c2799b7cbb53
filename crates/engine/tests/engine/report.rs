use std::time::Duration;

use engine::{Event, EventKind, Journal, Report, RunOutcome, StepError, StepOutcome, Timestamp, Workers};
use proptest::prelude::*;

use crate::support::{FakeClock, FakeExecutor, FakeStore, SEQUENTIAL, plan, run_on, step};

#[test]
fn without_a_run_there_is_no_report() {
    assert_eq!(Report::from_events(&[]), None);
    assert_eq!(Report::from_events(&[Event { at: Timestamp(1), kind: EventKind::Unknown }]), None);
}

#[test]
fn the_report_of_the_journal_is_the_report_of_the_run() {
    let store = FakeStore::default();
    let clock = FakeClock::default();
    let executor = FakeExecutor::scripted(|step, attempt| {
        clock.advance(Duration::from_millis(120));
        match (step.id.as_str(), attempt) {
            ("b", 1) => Err(StepError::transient("not yet")),
            ("c", _) => Err(StepError::permanent("never").with_advice("give up")),
            _ => Ok(()),
        }
    });
    let plan = plan(vec![step("a", &[]), step("b", &["a"]), step("c", &["b"]), step("d", &["c"])]);
    let (report, _) = run_on(store.clone(), &plan, &executor, &clock, SEQUENTIAL);
    let (journal, _) = Journal::open(store).unwrap();
    assert_eq!(Report::from_events(journal.events()).as_ref(), Some(&report));

    use StepOutcome::{Blocked, Done, Failed};
    assert_eq!(report.steps.iter().map(|step| step.outcome).collect::<Vec<_>>(), [Done, Done, Failed, Blocked]);
    assert_eq!(
        report.step("b").map(|step| (step.started_ms, step.ended_ms, step.attempts)),
        Some((Some(120), Some(460), 2))
    );
    assert_eq!(
        report.step("c").and_then(|step| step.error.clone()).and_then(|error| error.advice),
        Some("give up".into())
    );
    assert_eq!(report.step("d").and_then(|step| step.blocked_by.clone()), Some("c".into()));
    assert_eq!(report.critical_path, ["a", "b", "c"].map(engine::StepId::from));
    assert_eq!(report.duration_ms, 580);
}

#[test]
fn the_report_is_camel_case_json_without_empty_fields() {
    let plan = plan(vec![step("a", &[])]);
    let (report, _) = run_on(FakeStore::default(), &plan, &FakeExecutor::new(), &FakeClock::default(), SEQUENTIAL);
    let json = serde_json::to_value(&report).unwrap();
    let step = serde_json::json!({
        "id": "a", "outcome": "done", "startedMs": 0, "endedMs": 0, "attempts": 1, "detail": "doing a",
    });
    assert_eq!((json["outcome"].as_str(), &json["steps"][0]), (Some("done"), &step));
    assert_eq!((json["startedAt"].as_u64(), json["bootId"].as_str()), (Some(1_735_787_045_000), Some("boot-1")));
}

#[test]
fn a_run_that_was_cut_off_is_unfinished_and_names_what_it_waited_for() {
    let plan = plan(vec![step("a", &[]), step("b", &["a"]), step("c", &["b"])]);
    let (_, events) = run_on(FakeStore::default(), &plan, &FakeExecutor::new(), &FakeClock::default(), SEQUENTIAL);
    let cut =
        events.iter().position(|event| matches!(&event.kind, EventKind::StepDetail { id, .. } if id.as_str() == "b"));
    let report = Report::from_events(&events[..cut.unwrap()]).unwrap();
    assert_eq!(report.outcome, RunOutcome::Unfinished);
    use StepOutcome::{Blocked, Done, Unfinished};
    assert_eq!(report.steps.iter().map(|step| step.outcome).collect::<Vec<_>>(), [Done, Unfinished, Blocked]);
    assert_eq!(report.steps[2].blocked_by, Some("b".into()));
}

#[test]
fn the_report_of_a_resumed_run_knows_what_earlier_runs_did() {
    let (store, clock) = (FakeStore::default(), FakeClock::default());
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    let broken = std::sync::atomic::AtomicBool::new(true);
    let executor = FakeExecutor::scripted(|step, _| match step.id.as_str() {
        "b" if broken.load(std::sync::atomic::Ordering::Relaxed) => Err(StepError::permanent("no")),
        _ => Ok(()),
    });
    run_on(store.clone(), &plan, &executor, &clock, SEQUENTIAL);
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let (report, _) = run_on(store, &plan, &executor, &clock, SEQUENTIAL);
    assert_eq!((report.run, &report.outcome), (2, &RunOutcome::Done));
    let seen: Vec<_> = report.steps.iter().map(|step| (step.outcome, step.done_in_run)).collect();
    assert_eq!(seen, [(StepOutcome::AlreadySo, Some(1)), (StepOutcome::Done, None)]);
}

#[test]
fn a_failure_that_others_mended_is_settled_with_one_record() {
    let (store, clock) = (FakeStore::default(), FakeClock::default());
    let plan = plan(vec![step("a", &[])]);
    let executor = FakeExecutor::scripted(|_, _| Err(StepError::permanent("no")));
    run_on(store.clone(), &plan, &executor, &clock, SEQUENTIAL);
    let lines = store.text().lines().count();
    crate::support::lock(&executor.so).push("a".into());
    for _ in 0..3 {
        let (report, _) = run_on(store.clone(), &plan, &executor, &clock, SEQUENTIAL);
        assert_eq!(report.outcome, RunOutcome::NothingToDo);
        assert_eq!(store.text().lines().count(), lines + 1);
        let (journal, _) = Journal::open(store.clone()).unwrap();
        let read_back = Report::from_events(journal.events()).unwrap();
        assert_eq!((read_back.outcome, read_back.run), (RunOutcome::NothingToDo, 2));
        assert_eq!(read_back.steps[0].outcome, StepOutcome::AlreadySo);
    }
}

#[test]
fn a_failure_of_another_plan_is_settled_too() {
    let (store, clock) = (FakeStore::default(), FakeClock::default());
    let (failing, empty) = (plan(vec![step("a", &[])]), plan(vec![step("b", &[])]));
    let executor = FakeExecutor::scripted(|_, _| Err(StepError::permanent("no")));
    run_on(store.clone(), &failing, &executor, &clock, SEQUENTIAL);
    crate::support::lock(&executor.so).push("b".into());
    run_on(store.clone(), &empty, &executor, &clock, SEQUENTIAL);
    let length = store.contents().len();
    run_on(store.clone(), &empty, &executor, &clock, SEQUENTIAL);
    assert_eq!(store.contents().len(), length);
    let (journal, _) = Journal::open(store).unwrap();
    let report = Report::from_events(journal.events()).unwrap();
    assert_eq!((report.plan, report.outcome), (Some(empty.digest()), RunOutcome::NothingToDo));
}

/// Any event about a few steps, in no order that makes sense.
fn any_event() -> impl Strategy<Value = Event> {
    let id = prop::sample::select(vec!["a", "b", "c", "stranger"]);
    let outcome = prop::sample::select(vec![RunOutcome::Done, RunOutcome::NothingToDo, RunOutcome::Unfinished]);
    (0..13_usize, id, 0..4_u32, outcome, any::<u64>()).prop_map(|(kind, id, attempt, outcome, at)| {
        let id = engine::StepId::from(id);
        let outline = |id: &str, needs: &[&str]| engine::StepOutline {
            id: id.into(),
            needs: needs.iter().map(|&need| need.into()).collect(),
            deadline_ms: 0,
        };
        let kind = match kind {
            0 | 1 => EventKind::RunStarted {
                plan: engine::Digest::of(b"p"),
                identity: None,
                boot_id: format!("b{attempt}"),
                steps: vec![outline("a", &["c"]), outline("b", &["a"]), outline("c", &["b", "nobody"])],
            },
            2 => EventKind::StepStarted { id, attempt, why: "\u{1b}[31m<&>".into() },
            3 => EventKind::StepDetail { id, text: "t".into() },
            4 => EventKind::StepFinished { id, outcome: engine::Finish::Done },
            5 => EventKind::StepFailed {
                id,
                attempt,
                class: engine::ErrorClass::Transient,
                message: "m\n\u{0}".into(),
                advice: Some("<a>".into()),
                retry_in_ms: (attempt % 2 == 0).then_some(5),
            },
            6 => EventKind::RunFinished { outcome },
            7 => EventKind::RunOpened { boot_id: format!("b{attempt}") },
            8 => EventKind::PhaseStarted { phase: id },
            9 => EventKind::PhaseDetail { phase: id, text: "\u{1b}<a>".into() },
            10 => EventKind::PhaseFinished { phase: id },
            11 => EventKind::PhaseFailed {
                phase: id,
                class: engine::ErrorClass::Transient,
                message: "m\n<a>".into(),
                advice: Some("<a>".into()),
            },
            _ => EventKind::Unknown,
        };
        Event { at: Timestamp(at), kind }
    })
}

proptest! {
    #[test]
    fn events_without_sense_still_give_reports_and_pictures(events in prop::collection::vec(any_event(), 0..40), width in 0..200_usize) {
        let _ = Report::from_events(&events);
        let timeline = engine::Timeline::from_events(&events);
        let text = timeline.to_text(width, engine::Style::Plain);
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        prop_assert!(!timeline.to_svg().contains("<a>"));
        timeline.to_text(width, engine::Style::Colour);
    }

    #[test]
    fn any_run_reads_back_from_its_journal_as_it_was_reported(order: u64, threads in 0..4_usize, fails in 0..8_usize) {
        let plan = plan(vec![step("s0", &[]), step("s1", &["s0"]), step("s2", &["s0"]), step("s3", &["s1", "s2"]), step("s4", &[])]);
        let executor = FakeExecutor::scripted(|step, _| {
            if step.id.0 == format!("s{fails}") { Err(StepError::permanent("no")) } else { Ok(()) }
        });
        let store = FakeStore::default();
        let workers = if threads == 0 { Workers::Sequential { order } } else { Workers::Threads(threads) };
        let (report, _) = run_on(store.clone(), &plan, &executor, &FakeClock::default(), workers);
        let (journal, _) = Journal::open(store).unwrap();
        prop_assert_eq!(Report::from_events(journal.events()), Some(report));
    }
}
