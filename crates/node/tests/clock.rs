//! A machine whose clock is years behind: waited for, then named; never a node that cannot trust its own cluster.

mod support;

use std::time::Duration;

use engine::{Clock, ErrorClass, Report, RunOutcome, Timestamp, Workers};
use host::fake::FakeClock;
use node::Surroundings;

use support::{FakeNode, bundle, expect_converged};

/// 2027-01-15.
const RIGHT: u64 = 1_800_000_000_000;

struct SetLater {
    clock: FakeClock,
    after: Duration,
}

impl Clock for SetLater {
    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_ms())
    }
    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
        if self.clock.monotonic() >= self.after {
            self.clock.set_wall(RIGHT);
        }
    }
}

fn apply(node: &FakeNode, clock: &SetLater) -> Report {
    let surroundings = Surroundings {
        clock,
        jitter: &|| u64::MAX / 2,
        workers: Workers::Sequential { order: 1 },
        sink: &|_| {},
        on_recovery: &|_| {},
    };
    node::apply(&node.host(), &bundle().into(), &surroundings).expect("runs")
}

#[test]
fn a_clock_that_nobody_sets_is_named_and_the_gate_stays_shut() {
    let node = FakeNode::new(&bundle());
    let report = apply(&node, &SetLater { clock: FakeClock::new(5_000), after: Duration::MAX });
    let RunOutcome::Failed { step, class, message, advice } = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!((step.0.as_str(), class), ("check-clock", ErrorClass::Transient));
    assert!(message.contains("deadline of 30 s") && message.contains("it says 1970-01-01T00:00:"), "{message}");
    assert!(message.contains("but it is at least 20") && advice.expect("advice").contains("date -s"), "{message}");
    assert!(!node.gate_is_open());
    // Once it is right the next run goes on where this one stopped.
    let report = apply(&node, &SetLater { clock: FakeClock::new(RIGHT), after: Duration::MAX });
    expect_converged(&report, "with the right time");
    assert!(node.gate_is_open());
}

#[test]
fn a_clock_that_is_set_while_we_wait_costs_a_wait_and_nothing_else() {
    let node = FakeNode::new(&bundle());
    let clock = SetLater { clock: FakeClock::new(5_000), after: Duration::from_secs(9) };
    expect_converged(&apply(&node, &clock), "set in time");
    assert!(node.gate_is_open());
}

#[test]
fn a_clock_that_fell_behind_the_journal_is_noticed_on_a_node_that_is_not_complete() {
    let node = FakeNode::new(&bundle());
    expect_converged(&apply(&node, &SetLater { clock: FakeClock::new(RIGHT), after: Duration::MAX }), "first");
    let behind = || SetLater { clock: FakeClock::new(RIGHT - 2 * 86_400_000), after: Duration::MAX };
    assert_eq!(apply(&node, &behind()).outcome, RunOutcome::NothingToDo);
    host::disk::Disk::remove(&node.disk, support::GATE.as_ref()).expect("the gate is gone");
    // Two days back, and later than everything else that is known.
    let report = apply(&node, &behind());
    let RunOutcome::Failed { message, .. } = report.outcome else { panic!("{:?}", report.outcome) };
    assert!(message.contains("journal"), "{message}");
}
