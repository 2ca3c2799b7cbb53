//! A machine whose clock is years behind: waited for, then named; never a node that cannot trust its own cluster.

mod support;

use std::time::Duration;

use engine::{ErrorClass, Report, RunOutcome};
use host::fake::FakeClock;

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
