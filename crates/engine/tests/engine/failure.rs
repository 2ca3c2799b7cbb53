use std::{
    io,
    sync::{Barrier, Mutex},
    time::Duration,
};

use engine::{
    Clock, ErrorClass, EventKind, Journal, LogStore, Patience, Report, RetryPolicy, Run, RunOutcome, StepError,
    StepOutcome, Timestamp, Workers,
};

use crate::support::{FakeClock, FakeExecutor, FakeStore, SEQUENTIAL, lock, plan, run_heard_by, run_on, step};

#[test]
fn only_transient_errors_are_tried_again() {
    for class in [ErrorClass::WrongInput, ErrorClass::Permanent, ErrorClass::NeedsOperator] {
        let executor = FakeExecutor::scripted(|_, _| Err(StepError::new(class, "it is broken").with_advice("mend it")));
        let plan = plan(vec![step("a", &[])]);
        let (report, _) = run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), SEQUENTIAL);
        let failed = RunOutcome::Failed {
            step: "a".into(),
            class,
            message: "it is broken".into(),
            advice: Some("mend it".into()),
        };
        assert_eq!((report.outcome, executor.applied().len()), (failed, 1));
    }
}

#[test]
fn a_transient_error_is_tried_again_after_a_rest_until_it_works() {
    let clock = FakeClock::default();
    let executor =
        FakeExecutor::scripted(|_, attempt| if attempt < 4 { Err(StepError::transient("no route")) } else { Ok(()) });
    let (report, events) = run_on(FakeStore::default(), &plan(vec![step("a", &[])]), &executor, &clock, SEQUENTIAL);
    assert_eq!((report.outcome, report.steps[0].attempts), (RunOutcome::Done, 4));
    assert_eq!(report.steps[0].error, None);
    // The jitter of these tests is one half.
    let rests = events.iter().filter_map(|event| match event.kind {
        EventKind::StepFailed { retry_in_ms, .. } => retry_in_ms,
        _ => None,
    });
    assert_eq!(rests.collect::<Vec<_>>(), [100, 200, 400]);
    assert_eq!(lock(&clock.slept).iter().sum::<Duration>(), Duration::from_millis(700));
}

#[test]
fn a_check_that_fails_for_a_moment_is_tried_again_too() {
    let tries = Mutex::new(0);
    let mut executor = FakeExecutor::new();
    executor.on_check = Box::new(|_, _| {
        *lock(&tries) += 1;
        if *lock(&tries) < 3 { Err(StepError::transient("the bus is busy")) } else { Ok(()) }
    });
    let plan = plan(vec![step("a", &[])]);
    let (report, _) = run_on(FakeStore::default(), &plan, &executor, &FakeClock::default(), SEQUENTIAL);
    assert_eq!((report.outcome, report.steps[0].attempts), (RunOutcome::Done, 3));
    assert_eq!(executor.applied(), ["a"]);
}

#[test]
fn a_step_that_never_works_fails_by_name_before_its_deadline_has_passed() {
    let clock = FakeClock::default();
    let executor = FakeExecutor::scripted(|_, _| {
        clock.advance(Duration::from_millis(300));
        Err(StepError::transient("connection refused by 10.0.0.1:443"))
    });
    let (report, _) = run_on(FakeStore::default(), &plan(vec![step("a", &[])]), &executor, &clock, SEQUENTIAL);
    let RunOutcome::Failed { class, message, .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(class, ErrorClass::Transient);
    let attempts = executor.applied().len();
    let expected = format!(
        "step `a` used up its deadline of 30 s in {attempts} attempts, the last of which failed: \
         connection refused by 10.0.0.1:443"
    );
    assert_eq!(message, expected);
    assert!(attempts > 5 && clock.monotonic() < Duration::from_secs(77 + 30));
}

#[test]
fn rests_stay_within_the_jitter_and_the_deadline_for_any_random_numbers() {
    for seed in 0..60_u64 {
        let clock = FakeClock::default();
        let executor = FakeExecutor::scripted(|_, _| Err(StepError::transient("no")));
        let state = std::cell::Cell::new(seed);
        let jitter = || {
            state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
            state.get()
        };
        let heard = std::cell::RefCell::new(Vec::new());
        let (mut journal, _) = Journal::open(FakeStore::default()).unwrap();
        let retry = RetryPolicy { base: Duration::from_millis(50), cap: Duration::from_secs(2) };
        let plan = plan(vec![step("a", &[])]);
        Run {
            plan: &plan,
            identity: plan.digest(),
            executor: &executor,
            journal: &mut journal,
            clock: &clock,
            jitter: &jitter,
            retry,
            sink: &|event| heard.borrow_mut().push(event.clone()),
            workers: SEQUENTIAL,
            boot_id: "b",
            patience: Patience::ENDLESS,
        }
        .run();
        assert!(clock.monotonic() < Duration::from_secs(77 + 30));
        for event in heard.into_inner() {
            if let EventKind::StepFailed { attempt, retry_in_ms: Some(rest), .. } = event.kind {
                assert!(Duration::from_millis(rest) <= retry.ceiling(attempt));
            }
        }
    }
}

#[test]
fn after_a_failure_nothing_new_starts_and_what_runs_may_finish() {
    let meeting = Barrier::new(2);
    let (failed, has_failed) = std::sync::mpsc::channel();
    let has_failed = Mutex::new(has_failed);
    let executor = FakeExecutor::scripted(|step, _| match step.id.as_str() {
        "bad" => {
            meeting.wait();
            Err(StepError::permanent("no such volume"))
        }
        "long" => {
            meeting.wait();
            // Under way until the failure is known.
            lock(&has_failed).recv().map_err(|error| StepError::permanent(error.to_string()))
        }
        other => panic!("{other} must not start"),
    });
    let sink = |event: &engine::Event| {
        if matches!(event.kind, EventKind::StepFailed { .. }) {
            failed.send(()).unwrap();
        }
    };
    let plan = plan(vec![step("bad", &[]), step("long", &[]), step("c", &["bad"]), step("d", &["c"]), step("e", &[])]);
    let clock = FakeClock::default();
    let report =
        run_heard_by(Patience::ENDLESS, &sink, FakeStore::default(), &plan, &executor, &clock, Workers::Threads(2));
    let outcomes: Vec<_> = report.steps.iter().map(|step| step.outcome).collect();
    use StepOutcome::{Blocked, Done, Failed};
    assert_eq!(outcomes, [Failed, Done, Blocked, Blocked, Blocked]);
    for blocked in &report.steps[2..] {
        assert_eq!(blocked.blocked_by, Some("bad".into()));
    }
}

#[test]
fn after_a_failure_the_machine_is_not_even_looked_at() {
    for order in 0..50 {
        let over = std::sync::atomic::AtomicBool::new(false);
        let mut executor = FakeExecutor::scripted(|_, _| {
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            Err(StepError::permanent("no"))
        });
        executor.on_check = Box::new(|step, _| {
            assert!(!over.load(std::sync::atomic::Ordering::Relaxed), "{} was checked", step.id);
            Ok(())
        });
        let steps = (0..6).map(|n| step(&format!("s{n}"), &[])).collect();
        let workers = Workers::Sequential { order };
        run_on(FakeStore::default(), &plan(steps), &executor, &FakeClock::default(), workers);
        assert_eq!(executor.applied().len(), 1);
    }
}

#[test]
fn a_journal_that_failed_once_refuses_all_that_follows() {
    let inner = FakeStore::default();
    let (mut journal, _) = Journal::open(FullStore { inner: inner.clone(), writes_left: 0 }).unwrap();
    let event = engine::Event { at: engine::Timestamp(1), kind: EventKind::Unknown };
    assert!(matches!(journal.append(&event), Err(engine::JournalError::Append { .. })));
    let torn = inner.contents();
    assert!(matches!(journal.append(&event), Err(engine::JournalError::Broken)));
    assert!(matches!(journal.sync(), Err(engine::JournalError::Broken)));
    assert_eq!((inner.contents(), journal.events().len()), (torn, 0));
}

#[test]
fn a_failure_ends_the_rest_of_another_step() {
    let executor = FakeExecutor::scripted(|step, _| match step.id.as_str() {
        "flaky" => Err(StepError::transient("not yet")),
        _ => Err(StepError::permanent("never")),
    });
    for order in 0..50 {
        let clock = FakeClock::default();
        let plan = plan(vec![step("flaky", &[]), step("bad", &[])]);
        let (report, _) = run_on(FakeStore::default(), &plan, &executor, &clock, Workers::Sequential { order });
        assert!(matches!(&report.outcome, RunOutcome::Failed { step, .. } if step.as_str() == "bad"));
        assert!(report.steps.iter().all(|step| step.outcome != StepOutcome::Unfinished), "{report:?}");
    }
}

#[test]
fn a_step_that_ends_well_after_its_deadline_is_done_all_the_same() {
    let clock = FakeClock::default();
    let executor = FakeExecutor::scripted(|_, _| {
        clock.advance(Duration::from_secs(60));
        Ok(())
    });
    let (report, _) = run_on(FakeStore::default(), &plan(vec![step("a", &[])]), &executor, &clock, SEQUENTIAL);
    assert_eq!(report.outcome, RunOutcome::Done);
}

#[test]
fn a_step_that_hangs_past_its_deadline_is_named_while_it_hangs() {
    let (clock, named) = (FakeClock::default(), Mutex::new(false));
    let (release, released) = std::sync::mpsc::channel();
    let released = Mutex::new(released);
    let executor = FakeExecutor::scripted(|_, _| {
        clock.advance(Duration::from_secs(60));
        // Ends only when the sink has heard that it hangs.
        lock(&released).recv().map_err(|error| StepError::permanent(error.to_string()))
    });
    let mut plan = plan(vec![step("a", &[])]);
    plan.steps[0].deadline = Duration::from_millis(5);
    let sink = |event: &engine::Event| {
        if let EventKind::StepDetail { text, .. } = &event.kind
            && text == "still running after its deadline of 5 ms"
        {
            *lock(&named) = true;
            release.send(()).unwrap();
        }
    };
    let report =
        run_heard_by(Patience::ENDLESS, &sink, FakeStore::default(), &plan, &executor, &clock, Workers::Threads(1));
    assert_eq!((report.outcome, *lock(&named)), (RunOutcome::Done, true));
}

/// Time passes by itself.
struct RealClock(std::time::Instant);

impl RealClock {
    #[allow(clippy::disallowed_methods, reason = "what really hangs takes real time")]
    fn new() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_735_787_045_000).after(self.0.elapsed())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, _: Duration) {}
}

/// Something that holds whoever asks it until it is let go.
struct Hold {
    release: std::sync::mpsc::Sender<()>,
    released: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Hold {
    fn new() -> Self {
        let (release, released) = std::sync::mpsc::channel();
        Self { release, released: Mutex::new(released) }
    }
    /// Not for ever, so that a run which tells nobody fails its test and does not hang it.
    fn wait(&self) {
        let _ = lock(&self.released).recv_timeout(Duration::from_secs(20));
    }
    fn let_go(&self) {
        self.release.send(()).unwrap();
    }
}

const GRACE: Duration = Duration::from_millis(20);

/// What is told of a run in which something hangs, which it then lets go; and what the run itself says in the end.
fn give_up(holds: &[&Hold], store: impl LogStore, executor: &FakeExecutor<'_>) -> (Vec<Report>, Report) {
    let given_up = Mutex::new(Vec::new());
    let give_up = |report: &Report| {
        lock(&given_up).push(report.clone());
        holds.iter().for_each(|hold| hold.let_go());
    };
    let mut plan = plan(vec![step("good", &[]), step("hangs", &["good"]), step("after", &["hangs"])]);
    plan.steps[1].deadline = Duration::from_millis(5);
    let clock = RealClock::new();
    let patience = Patience { grace: GRACE, give_up: &give_up };
    let report = run_heard_by(patience, &|_| {}, store, &plan, executor, &clock, Workers::Threads(2));
    (given_up.into_inner().unwrap(), report)
}

fn failed_step(report: &Report) -> (String, String) {
    match &report.outcome {
        RunOutcome::Failed { step, message, class: ErrorClass::Transient, .. } => (step.0.clone(), message.clone()),
        other => panic!("{other:?}"),
    }
}

const GIVEN_UP: &str = "`hangs` has not come back, long after its deadline of 5 ms: given up on";

#[test]
fn a_step_that_never_comes_back_ends_the_run_with_its_name_and_its_deadline() {
    let (hold, store) = (Hold::new(), FakeStore::default());
    let executor = FakeExecutor::scripted(|step, _| {
        if step.id.as_str() == "hangs" {
            hold.wait();
        }
        Ok(())
    });
    let (told, ended) = give_up(&[&hold], store.clone(), &executor);
    let [told] = told.as_slice() else { panic!("told once: {told:?}") };
    assert_eq!(failed_step(told), ("hangs".to_owned(), GIVEN_UP.to_owned()));
    assert_eq!(told.outcome, ended.outcome);
    assert_eq!(executor.applied(), ["good", "hangs"], "nothing new starts");
    let text = store.text();
    assert!(text.ends_with("\n") && text.matches("runFinished").count() == 1, "{text}");
    assert!(!text.contains(r#""stepFinished","id":"hangs""#), "what comes back later is not recorded: {text}");
    let plan = plan(vec![step("good", &[]), step("hangs", &["good"]), step("after", &["hangs"])]);
    let (again, _) = run_on(store, &plan, &FakeExecutor::new(), &FakeClock::default(), SEQUENTIAL);
    assert_eq!(again.outcome, RunOutcome::Done, "the next run does what is left");
}

#[test]
fn a_look_at_the_machine_that_never_comes_back_is_named_too() {
    let hold = Hold::new();
    let mut executor = FakeExecutor::new();
    // On the thread that keeps the course, because nothing else is under way.
    executor.on_check = Box::new(|step, _| {
        if step.id.as_str() == "hangs" {
            hold.wait();
        }
        Ok(())
    });
    let (told, _) = give_up(&[&hold], FakeStore::default(), &executor);
    // Whoever is told ends the process. Here it goes on, and the step that comes back may be late a second time.
    assert_eq!(failed_step(&told[0]), ("hangs".to_owned(), GIVEN_UP.to_owned()));
}

/// A disk under the journal that hangs once the step has.
struct HangingStore<'a> {
    inner: FakeStore,
    hold: &'a Hold,
}

impl LogStore for HangingStore<'_> {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        self.inner.load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if String::from_utf8_lossy(bytes).contains("stepFailed") {
            self.hold.wait();
        }
        self.inner.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.inner.truncate(len)
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.replace(bytes)
    }
}

#[test]
fn a_step_that_hangs_on_the_disk_of_the_journal_is_named_all_the_same() {
    let (hold, journal) = (Hold::new(), Hold::new());
    let store = HangingStore { inner: FakeStore::default(), hold: &journal };
    let executor = FakeExecutor::scripted(|step, _| {
        if step.id.as_str() == "hangs" {
            hold.wait();
        }
        Ok(())
    });
    let (told, _) = give_up(&[&hold, &journal], store, &executor);
    assert_eq!(failed_step(&told[0]), ("hangs".to_owned(), GIVEN_UP.to_owned()));
    assert_eq!(told.len(), 2, "once by whoever looks after the journal, and once when the journal came back");
}

#[test]
fn a_plan_that_was_broken_after_it_was_made_is_refused_and_does_not_hang() {
    let mut plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    plan.steps[0].needs.push("b".into());
    let store = FakeStore::default();
    let (report, _) = run_on(store.clone(), &plan, &FakeExecutor::new(), &FakeClock::default(), SEQUENTIAL);
    assert!(matches!(report.outcome, RunOutcome::Failed { class: ErrorClass::WrongInput, .. }), "{report:?}");
    assert!(store.contents().is_empty());
}

/// Fails the n-th write of any kind, half of an append having reached the disk.
struct FullStore {
    inner: FakeStore,
    writes_left: usize,
}

impl FullStore {
    fn spend(&mut self) -> io::Result<()> {
        match self.writes_left.checked_sub(1) {
            Some(left) => {
                self.writes_left = left;
                Ok(())
            }
            None => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }
}

impl LogStore for FullStore {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        self.inner.load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.spend();
        let part = if room.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        self.inner.append(part)?;
        room
    }
    fn sync(&mut self) -> io::Result<()> {
        self.spend()?;
        self.inner.sync()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.inner.truncate(len)
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.spend()?;
        self.inner.replace(bytes)
    }
}

#[test]
fn a_journal_that_cannot_be_written_fails_the_run_closed_at_every_write() {
    let mut steps = vec![step("a", &[]), step("gate", &["a"]), step("z", &["gate"])];
    steps[1].barrier = true;
    let plan = plan(steps);
    for writes_left in 0.. {
        let inner = FakeStore::default();
        let started_durably = || *lock(&inner.syncs) > 0 && inner.text().contains(r#""stepStarted","id":"gate""#);
        let executor = FakeExecutor::scripted(|step, _| {
            assert!(step.id.as_str() != "gate" || started_durably(), "the gate opened unrecorded");
            Ok(())
        });
        let store = FullStore { inner: inner.clone(), writes_left };
        let (report, _) = run_on(store, &plan, &executor, &FakeClock::default(), SEQUENTIAL);
        if report.outcome == RunOutcome::Done {
            assert!(writes_left > 8);
            break;
        }
        let RunOutcome::Failed { class, message, advice, .. } = report.outcome else { panic!("{writes_left}") };
        assert_eq!(class, ErrorClass::NeedsOperator);
        assert!(message.starts_with("cannot record "), "{message}");
        assert_eq!(advice.as_deref(), Some("free space on the file system of the journal, then run again"));
        let applied = executor.applied().len();
        let (report, _) = run_on(inner.clone(), &plan, &executor, &FakeClock::default(), SEQUENTIAL);
        let expected = if applied == 3 { RunOutcome::NothingToDo } else { RunOutcome::Done };
        assert_eq!(report.outcome, expected, "after {writes_left} writes");
    }
}
