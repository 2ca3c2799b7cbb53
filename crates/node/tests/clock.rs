//! A machine whose clock is years behind: waited for, then named; never a node that cannot trust its own cluster.

mod support;

use std::time::Duration;

use engine::{ErrorClass, Report, RunOutcome, Timestamp};
use host::fake::FakeClock;
use node::{WrongClock, wait_for_clock};
use support::{FakeNode, NOW, TestClock, bundle, expect_converged, surroundings};

/// With a clock that says this.
fn apply_at(node: &FakeNode, wall_ms: u64) -> Report {
    apply(node, &TestClock(FakeClock::new(wall_ms)))
}

fn apply(node: &FakeNode, clock: &TestClock) -> Report {
    node::apply(&node.host(), &bundle().into(), &surroundings(clock, 1)).expect("runs")
}

#[test]
fn a_clock_that_nobody_sets_is_named_and_the_gate_stays_shut() {
    let node = FakeNode::new(&bundle());
    let report = apply_at(&node, 5_000);
    let RunOutcome::Failed { step, class, message, advice } = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!((step.0.as_str(), class), ("check-clock", ErrorClass::Transient));
    assert!(message.contains("deadline of 30 s") && message.contains("it says 1970-01-01T00:00:"), "{message}");
    assert!(message.contains("but it is at least 20") && advice.expect("advice").contains("date -s"), "{message}");
    assert!(!node.gate_is_open());
    // Once it is right the next run goes on where this one stopped.
    let report = apply_at(&node, NOW);
    expect_converged(&report, "with the right time");
    assert!(node.gate_is_open());
}

#[test]
fn a_clock_that_is_set_while_we_wait_costs_a_wait_and_nothing_else() {
    let node = FakeNode::new(&bundle());
    let clock = TestClock(FakeClock::new(5_000));
    clock.0.set_wall_after(Duration::from_secs(9), NOW);
    expect_converged(&apply(&node, &clock), "set in time");
    assert!(node.gate_is_open());
}

#[test]
fn a_clock_that_fell_behind_the_journal_is_noticed_on_a_node_that_is_not_complete() {
    let node = FakeNode::new(&bundle());
    expect_converged(&apply_at(&node, NOW), "first");
    let behind = NOW - 2 * 86_400_000;
    assert_eq!(apply_at(&node, behind).outcome, RunOutcome::NothingToDo);
    host::disk::Disk::remove(&node.disk, support::GATE.as_ref()).expect("the gate is gone");
    // Two days back, and later than everything else that is known.
    let report = apply_at(&node, behind);
    let RunOutcome::Failed { message, .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(message.contains("journal"), "{message}");
}

/// 2099-01-01: what a failing battery makes of the year.
const FAR: u64 = 4_070_908_800_000;

fn shut(node: &FakeNode) {
    assert!(host::disk::Disk::remove(&node.disk, support::GATE.as_ref()).expect("a disk"), "the gate was open");
}

#[track_caller]
fn refusal(report: Report) -> String {
    let RunOutcome::Failed { step, message, .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(step.0, "check-clock");
    message
}

/// 2199-01-01: the authority of the examples lasts a hundred years. Those of clusters last ten, and are gone by 2099.
const BEYOND: u64 = 7_226_582_400_000;

#[test]
fn a_first_boot_after_the_end_of_the_authority_is_refused_and_does_not_outlive_its_clock() {
    let node = FakeNode::new(&bundle());
    let message = refusal(apply_at(&node, BEYOND));
    assert!(message.contains("wrong clock or expired") && message.contains("says 2199-01-01T"), "{message}");
    assert!(message.contains("ca.crt"), "{message}");
    assert!(!node.gate_is_open());
    // Set by hand: no time client is there to vouch for it, and none is needed.
    expect_converged(&apply_at(&node, NOW), "with the right time");
    assert!(node.gate_is_open());
}

#[test]
fn a_journal_of_2099_counts_until_any_time_client_has_set_the_clock_and_never_again() {
    let mut bundle = bundle();
    // Nothing that could have expired, so 2099 is believed.
    bundle.files.retain(|file| !String::from_utf8_lossy(&file.content).contains("BEGIN CERTIFICATE"));
    let node = FakeNode::new(&bundle);
    let apply_at = |wall_ms| {
        let clock = TestClock(FakeClock::new(wall_ms));
        node::apply(&node.host(), &bundle.clone().into(), &surroundings(&clock, 1)).expect("runs")
    };
    expect_converged(&apply_at(FAR), "in 2099");
    shut(&node);
    for unknown in [None, Some(false)] {
        node.units.set_clock_synchronised(unknown);
        assert!(refusal(apply_at(NOW)).contains("journal"));
    }
    // As chrony, ntpd or any other one does.
    node.units.set_clock_synchronised(Some(true));
    expect_converged(&apply_at(NOW), "synchronised");
    // The next boot has no network.
    node.units.set_clock_synchronised(None);
    shut(&node);
    expect_converged(&apply_at(NOW + 60_000), "a boot later");
    // And what that boot knows counts again.
    shut(&node);
    assert!(refusal(apply_at(NOW - 2 * 86_400_000)).contains("journal"));
}

#[test]
fn before_a_bundle_is_fetched_a_clock_is_waited_for_and_named_if_nobody_sets_it() {
    const AUTHORITY: &str = include_str!("authority.crt");
    /// Its `notBefore`.
    const MADE: u64 = 1_794_790_380_000;
    let host = FakeNode::new(&bundle()).host();
    let wait = |clock: &TestClock, authority| wait_for_clock(&host, authority, clock);
    let late = TestClock(FakeClock::new(0));
    late.0.set_wall_after(Duration::from_secs(12), NOW);
    assert_eq!(wait(&late, None), Ok(()));
    let never = TestClock(FakeClock::new(0));
    let wrong = wait(&never, None).unwrap_err();
    assert!(matches!(wrong, WrongClock::Behind { says: Timestamp(30_000), .. }), "{wrong}");
    assert_eq!(never.0.monotonic(), Duration::from_secs(30));
    let good = TestClock(FakeClock::new(MADE));
    assert_eq!(wait(&good, Some(AUTHORITY)), Ok(()));
    assert_eq!(good.0.monotonic(), Duration::ZERO, "nobody waits for a clock that is right");
    let early = TestClock(FakeClock::new(MADE - 60_000));
    assert!(wait(&early, Some(AUTHORITY)).unwrap_err().to_string().contains("certificate"));
}

#[test]
fn before_a_bundle_is_fetched_a_clock_beyond_all_authorities_of_the_store_is_named() {
    const AUTHORITY: &str = include_str!("authority.crt");
    let node = FakeNode::new(&bundle());
    let wait = |clock: &TestClock| wait_for_clock(&node.host(), Some(AUTHORITY), clock);
    let late = TestClock(FakeClock::new(BEYOND));
    late.0.set_wall_after(Duration::from_secs(12), NOW);
    assert_eq!(wait(&late), Ok(()), "a time client may be about to set it");
    let never = TestClock(FakeClock::new(BEYOND));
    let wrong = wait(&never).unwrap_err().to_string();
    assert!(wrong.contains("wrong clock or expired") && wrong.contains("the store's authorities"), "{wrong}");
    assert_eq!(never.0.monotonic(), Duration::from_secs(30));
    // Nobody waits for what time does not mend.
    node.units.set_clock_synchronised(Some(true));
    let right = TestClock(FakeClock::new(BEYOND));
    let wrong = wait(&right).unwrap_err();
    assert!(matches!(wrong, WrongClock::Expired { .. }), "{wrong}");
    assert_eq!(right.0.monotonic(), Duration::ZERO);
}
