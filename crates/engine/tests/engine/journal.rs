use std::collections::BTreeSet;

use engine::{Damaged, Digest, Event, EventKind, Journal, Recovery, RunOutcome, StepId, Timestamp, Workers};

use crate::support::{FakeClock, FakeExecutor, FakeStore, SEQUENTIAL, lock, plan, run_on, step};

/// A store after a full run, the plan's digest and its steps.
fn recorded() -> (FakeStore, Digest) {
    let mut steps = vec![step("a", &[]), step("b", &["a"]), step("c", &["a"])];
    steps[1].barrier = true;
    let (store, plan) = (FakeStore::default(), plan(steps));
    run_on(store.clone(), &plan, &FakeExecutor::new(), &FakeClock::default(), SEQUENTIAL);
    (store, plan.digest())
}

fn names(steps: &BTreeSet<StepId>) -> Vec<&str> {
    steps.iter().map(StepId::as_str).collect()
}

#[test]
fn what_was_recorded_is_read_back() {
    let (store, digest) = recorded();
    let (journal, recovery) = Journal::open(store.clone()).unwrap();
    assert_eq!(recovery, Recovery::default());
    assert_eq!(names(&journal.history(&digest)), ["a", "b", "c"]);
    assert!(journal.history(&Digest::of(b"another plan")).is_empty());
    assert_eq!(journal.events().len(), store.text().lines().count());
}

#[test]
fn the_format_is_one_checksum_and_one_json_a_line() {
    let event = Event { at: Timestamp(1), kind: EventKind::RunFinished { outcome: RunOutcome::Done } };
    let store = FakeStore::default();
    let (mut journal, _) = Journal::open(store.clone()).unwrap();
    journal.append(&event).unwrap();
    journal.append(&event).unwrap();
    let json = r#"{"at":1,"kind":"runFinished","outcome":"done"}"#;
    let sum = |previous: &str| Digest::of(format!("{previous}{json}").as_bytes()).hex()[..16].to_owned();
    let first = sum("0000000000000000");
    assert_eq!(store.text(), format!("{first} {json}\n{} {json}\n", sum(&first)));
}

#[test]
fn a_torn_tail_is_dropped_at_every_byte_and_the_journal_goes_on() {
    let (store, digest) = recorded();
    let whole = store.contents();
    for length in 0..whole.len() {
        let torn = FakeStore::with(&whole[..length]);
        let (mut journal, recovery) = Journal::open(torn.clone()).unwrap();
        let kept = whole[..length].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        assert_eq!(recovery, Recovery { torn_bytes: (length - kept) as u64, damaged: None });
        assert_eq!(torn.contents(), &whole[..kept]);
        journal.history(&digest);
        let event = Event { at: Timestamp(1), kind: EventKind::StepDetail { id: "a".into(), text: "t".into() } };
        journal.append(&event).unwrap();
        journal.sync().unwrap();
        let (journal, recovery) = Journal::open(torn).unwrap();
        assert_eq!((journal.events().last(), recovery), (Some(&event), Recovery::default()));
    }
}

#[test]
fn a_flipped_bit_anywhere_never_panics_and_never_invents_a_done_step() {
    let (store, digest) = recorded();
    let whole = store.contents();
    let (truth, _) = Journal::open(store).unwrap();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let line = whole[..at].iter().filter(|&&byte| byte == b'\n').count();
            let (journal, recovery) = Journal::open(FakeStore::with(&bytes)).unwrap();
            assert_eq!(journal.events(), &truth.events()[..line], "byte {at}, bit {bit}");
            assert!(journal.history(&digest).is_subset(&truth.history(&digest)));
            assert!(recovery.torn_bytes > 0);
            if line + 2 < truth.events().len() {
                assert_eq!(recovery.damaged, Some(Damaged { line: line as u64 + 1 }));
            }
        }
    }
}

#[test]
fn a_line_that_is_taken_out_or_moved_is_recognised() {
    let (store, _) = recorded();
    let lines: Vec<_> = store.text().lines().map(|line| format!("{line}\n")).collect();
    let mut without = lines.clone();
    without.remove(2);
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    for bytes in [without.concat(), swapped.concat()] {
        let (journal, recovery) = Journal::open(FakeStore::with(bytes.as_bytes())).unwrap();
        assert_eq!((journal.events().len(), recovery.damaged), (2, Some(Damaged { line: 3 })));
    }
}

#[test]
fn any_bytes_at_all_open_without_a_panic() {
    for bytes in [&b"\n"[..], b"\n\n\n", b"0123456789abcdef \n", b"\xff\xfe\n\xff", &[0; 4096], b" ", "é".as_bytes()] {
        let store = FakeStore::with(bytes);
        let (journal, _) = Journal::open(store.clone()).unwrap();
        assert_eq!((journal.events().len(), store.contents().len()), (0, 0));
    }
}

#[test]
fn a_record_of_a_future_release_is_kept_and_passed_over() {
    let (store, digest) = recorded();
    let last = store.text().lines().last().unwrap()[..16].to_owned();
    let jsons = [
        r#"{"at":9,"kind":"stepPaused","id":"a"}"#,
        r#"{"at":9,"kind":"runFinished","outcome":{"postponed":{"until":1}}}"#,
        r#""not even an object""#,
    ];
    let mut previous = last;
    for json in jsons {
        previous = Digest::of(format!("{previous}{json}").as_bytes()).hex()[..16].to_owned();
        lock(&store.bytes).extend_from_slice(format!("{previous} {json}\n").as_bytes());
    }
    let (journal, recovery) = Journal::open(store).unwrap();
    assert_eq!(recovery, Recovery::default());
    let tail = &journal.events()[journal.events().len() - 3..];
    assert!(tail.iter().all(|event| event.kind == EventKind::Unknown));
    assert_eq!((tail[1].at, tail[2].at), (Timestamp(9), Timestamp(0)));
    assert_eq!(names(&journal.history(&digest)), ["a", "b", "c"]);
}

#[test]
fn history_forgets_a_step_that_was_started_again_and_all_before_another_plan() {
    let (ours, other) = (Digest::of(b"ours"), Digest::of(b"other"));
    let start = |plan: &Digest| EventKind::RunStarted {
        plan: plan.clone(),
        identity: None,
        boot_id: "b".into(),
        steps: vec![],
    };
    let done = |id: &str| EventKind::StepFinished { id: id.into(), outcome: engine::Finish::Done };
    let (mut journal, _) = Journal::open(FakeStore::default()).unwrap();
    let mut say = |kind| {
        journal.append(&Event { at: Timestamp(0), kind }).unwrap();
        journal.history(&ours).into_iter().map(|id| id.0).collect::<Vec<_>>().join(" ")
    };
    say(start(&ours));
    say(done("a"));
    assert_eq!(say(done("b")), "a b");
    assert_eq!(say(start(&ours)), "a b");
    assert_eq!(say(EventKind::StepStarted { id: "a".into(), attempt: 1, why: String::new() }), "b");
    assert_eq!(say(start(&other)), "");
    assert_eq!(say(done("c")), "");
    assert_eq!(say(start(&ours)), "");
}

#[test]
fn a_chatty_step_cannot_fill_the_disk() {
    struct Chatty;
    impl engine::Executor<String> for Chatty {
        fn check(&self, _: &engine::Step<String>, _: &engine::History) -> Result<engine::Condition, engine::StepError> {
            Ok(engine::Condition::Needed("always".into()))
        }
        fn apply(&self, _: &engine::Step<String>, context: &engine::StepContext<'_>) -> Result<(), engine::StepError> {
            (0..1000).for_each(|percent| context.detail(format!("{percent} of 1000")));
            Ok(())
        }
    }
    let store = FakeStore::default();
    let plan = plan(vec![step("a", &[])]);
    let (_, events) = run_on(store.clone(), &plan, &Chatty, &FakeClock::default(), Workers::Threads(1));
    assert_eq!(events.len(), 1004);
    assert!(store.text().lines().count() < 80);
}

#[test]
fn a_journal_of_many_failed_runs_is_cut_and_remembers_what_is_done() {
    let (store, digest) = recorded();
    let (mut journal, _) = Journal::open(store.clone()).unwrap();
    let done = journal.history(&digest);
    let start = journal.events()[0].clone();
    let failed = RunOutcome::Failed {
        step: "d".into(),
        class: engine::ErrorClass::Transient,
        message: "no".into(),
        advice: None,
    };
    for at in 10..400 {
        journal.append(&Event { at: Timestamp(at), ..start.clone() }).unwrap();
        let kind = EventKind::RunFinished { outcome: failed.clone() };
        journal.append(&Event { at: Timestamp(at), kind }).unwrap();
    }
    let limits = engine::RotationLimits { above: 20_000, keep: 8_000 };
    assert!(journal.rotate(limits).unwrap());
    assert!(!journal.rotate(limits).unwrap(), "once is enough");
    let size = store.contents().len();
    assert!(size < 12_000, "{size}");
    let event = Event { at: Timestamp(500), kind: EventKind::StepDetail { id: "a".into(), text: "t".into() } };
    journal.append(&event).unwrap();
    let (again, recovery) = Journal::open(store).unwrap();
    assert_eq!(recovery, Recovery::default());
    assert_eq!((again.history(&digest), again.events().last()), (done, Some(&event)));
    assert_eq!(again.events(), journal.events());
}
