//! A step that needs a reboot: asked for, proved by another boot, counted, never for ever.

use engine::{
    Condition, EventKind, Executor, History, Journal, Patience, Plan, Report, RetryPolicy, Run, RunOutcome, Step,
    StepContext, StepError, StepOutcome, Style, Timeline, Workers,
};

use crate::support::{FakeClock, FakeStore, plan, step};

/// Asks for a reboot as long as it is told to.
struct Asks {
    wanted: bool,
    refused: bool,
}

impl Executor<String> for Asks {
    fn check(&self, step: &Step<String>, history: &History) -> Result<Condition, StepError> {
        Ok(match step.id.as_str() {
            "reboot" if self.wanted => Condition::NeedsReboot("the marker is there".into()),
            "reboot" => Condition::AlreadySo,
            _ if history.done_before => Condition::AlreadySo,
            _ => Condition::Needed("not done".into()),
        })
    }
    fn apply(&self, step: &Step<String>, _: &StepContext<'_>) -> Result<(), StepError> {
        match step.id.as_str() {
            "reboot" if self.refused => Err(StepError::permanent("refused")),
            _ => Ok(()),
        }
    }
}

fn three() -> Plan<String> {
    plan(vec![step("files", &[]), step("reboot", &["files"]), step("gate", &["reboot"])])
}

fn run_in(store: &FakeStore, boot_id: &str, executor: &Asks, workers: Workers) -> Report {
    let (mut journal, _) = Journal::open(store.clone()).unwrap();
    let plan = three();
    let run = Run {
        plan: &plan,
        identity: plan.digest(),
        executor,
        journal: &mut journal,
        clock: &FakeClock::default(),
        jitter: &|| 0,
        retry: RetryPolicy::default(),
        sink: &|_| {},
        workers,
        boot_id,
        patience: Patience::ENDLESS,
    };
    run.run()
}

fn asks(store: &FakeStore) -> usize {
    let (journal, _) = Journal::open(store.clone()).unwrap();
    journal.events().iter().filter(|event| matches!(event.kind, EventKind::RebootRequested { .. })).count()
}

const WANTED: Asks = Asks { wanted: true, refused: false };
const CONTENT: Asks = Asks { wanted: false, refused: false };

#[test]
fn a_reboot_ends_the_run_and_the_next_boot_goes_on() {
    for workers in [Workers::Threads(3), Workers::Sequential { order: 7 }] {
        let store = FakeStore::default();
        let report = run_in(&store, "one", &WANTED, workers);
        let expected = RunOutcome::Rebooting { step: "reboot".into(), why: "the marker is there".into() };
        assert_eq!(report.outcome, expected);
        assert_eq!(report.step("gate").unwrap().outcome, StepOutcome::Blocked);
        assert_eq!(report.step("gate").unwrap().blocked_by, Some("reboot".into()));
        let report = run_in(&store, "two", &CONTENT, workers);
        assert_eq!(report.outcome, RunOutcome::Done);
        assert_eq!(report.step("files").unwrap().outcome, StepOutcome::AlreadySo, "not done a second time");
    }
}

/// systemd may end the process that asked before it has written anything more.
#[test]
fn a_run_that_the_reboot_itself_cut_off_is_shown_as_one_that_reboots() {
    let store = FakeStore::default();
    run_in(&store, "one", &WANTED, Workers::Threads(1));
    let (journal, _) = Journal::open(store.clone()).unwrap();
    let asked = journal.events().iter().position(|event| matches!(event.kind, EventKind::RebootRequested { .. }));
    for shown in [&journal.events()[..=asked.unwrap()], journal.events()] {
        let text = Timeline::from_events(shown).to_text(100, Style::Plain);
        assert!(text.starts_with("rebooting after ") && text.contains(", for reboot\n"), "{text}");
    }
}

#[test]
fn a_reboot_that_did_not_happen_is_asked_for_again_and_never_counts() {
    let store = FakeStore::default();
    for _ in 0..5 {
        let report = run_in(&store, "one", &WANTED, Workers::Threads(1));
        assert!(matches!(report.outcome, RunOutcome::Rebooting { .. }), "{:?}", report.outcome);
    }
    // Even if what asked for it is gone: the plan has promised a reboot.
    let report = run_in(&store, "one", &CONTENT, Workers::Threads(1));
    let RunOutcome::Rebooting { why, .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(why.contains("has not happened"), "{why}");
    assert_eq!(asks(&store), 6);
    assert_eq!(run_in(&store, "two", &CONTENT, Workers::Threads(1)).outcome, RunOutcome::Done);
}

#[test]
fn the_third_reboot_is_refused_with_what_asks_for_it() {
    let store = FakeStore::default();
    for boot in ["one", "two"] {
        let report = run_in(&store, boot, &WANTED, Workers::Threads(1));
        assert!(matches!(report.outcome, RunOutcome::Rebooting { .. }), "{boot}: {:?}", report.outcome);
    }
    for _ in 0..2 {
        let report = run_in(&store, "three", &WANTED, Workers::Threads(1));
        let RunOutcome::Failed { step, class, message, advice } = report.outcome else { panic!("it reboots for ever") };
        assert_eq!((step.as_str(), class), ("reboot", engine::ErrorClass::NeedsOperator));
        assert!(message.contains("2 times") && message.contains("the marker is there"), "{message}");
        assert!(advice.unwrap().contains("at every boot"));
    }
    assert_eq!(asks(&store), 2, "nothing was asked for any more");
    // Once it is mended the same plan goes on, and a complete one may reboot again later.
    assert_eq!(run_in(&store, "three", &CONTENT, Workers::Threads(1)).outcome, RunOutcome::Done);
    let report = run_in(&store, "four", &WANTED, Workers::Threads(1));
    assert!(matches!(report.outcome, RunOutcome::Rebooting { .. }), "{:?}", report.outcome);
}

#[test]
fn a_refusal_fails_the_run_and_the_request_does_not_count() {
    let store = FakeStore::default();
    let refused = Asks { wanted: true, refused: true };
    for _ in 0..3 {
        let report = run_in(&store, "one", &refused, Workers::Threads(1));
        assert!(matches!(report.outcome, RunOutcome::Failed { .. }), "{:?}", report.outcome);
    }
    let report = run_in(&store, "one", &WANTED, Workers::Threads(1));
    assert!(matches!(report.outcome, RunOutcome::Rebooting { .. }), "{:?}", report.outcome);
}
