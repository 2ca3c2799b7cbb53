//! What never comes back ends a run by its deadline, with its name: whoever runs it is told, and can end the process.

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use engine::{RunOutcome, Workers};
use host::fake::FakeSnaps;
use host::snaps::{SnapError, SnapService, Snaps};
use node::{Applied, NodeHost, ResetOptions, Surroundings};
use support::{FakeNode, TestClock, clock, expect_converged, surroundings, ubuntu_bundle};

/// Longer than any step may take.
const AGES: Duration = Duration::from_secs(24 * 3600);
/// For a run that tells nobody.
const ENOUGH: Duration = Duration::from_secs(20);

/// A snapd that does not answer the first look of the thread that keeps the course of a run, until it is let go. Steps that are
/// done on other threads are waited for in real time: see the tests of the engine.
struct HangingSnaps {
    course: ThreadId,
    inner: FakeSnaps,
    clock: Arc<TestClock>,
    released: Mutex<Option<mpsc::Receiver<()>>>,
}

impl HangingSnaps {
    fn hang(&self) {
        if std::thread::current().id() != self.course {
            return;
        }
        let first = self.released.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(released) = first {
            self.clock.0.advance(AGES);
            let _ = released.recv_timeout(ENOUGH);
        }
    }
}

impl Snaps for HangingSnaps {
    fn aliases(&self) -> Result<BTreeMap<String, String>, SnapError> {
        self.hang();
        self.inner.aliases()
    }
    fn settings(&self, snap: &str) -> Result<BTreeMap<String, String>, SnapError> {
        self.hang();
        self.inner.settings(snap)
    }
    fn services(&self, snap: &str) -> Result<Vec<SnapService>, SnapError> {
        self.inner.services(snap)
    }
    fn add_alias(&self, alias: &str, app: &str, deadline: Duration) -> Result<(), SnapError> {
        self.inner.add_alias(alias, app, deadline)
    }
    fn remove_alias(&self, alias: &str, deadline: Duration) -> Result<(), SnapError> {
        self.inner.remove_alias(alias, deadline)
    }
    fn set(
        &self,
        snap: &str,
        settings: &BTreeMap<String, Option<String>>,
        deadline: Duration,
    ) -> Result<(), SnapError> {
        self.inner.set(snap, settings, deadline)
    }
    fn stop(&self, snap: &str, deadline: Duration) -> Result<(), SnapError> {
        self.inner.stop(snap, deadline)
    }
    fn start(&self, snap: &str, deadline: Duration) -> Result<(), SnapError> {
        self.inner.start(snap, deadline)
    }
}

/// The outcomes that are told while something hangs.
fn told(node: &FakeNode, run: impl Fn(&NodeHost, &Surroundings<'_>)) -> Vec<(RunOutcome, bool)> {
    let (release, released) = mpsc::channel();
    let clock = Arc::new(clock());
    let snaps = HangingSnaps {
        course: std::thread::current().id(),
        inner: node.snaps.clone(),
        clock: Arc::clone(&clock),
        released: Mutex::new(Some(released)),
    };
    let host = NodeHost { snaps: Arc::new(snaps), ..node.host() };
    let told = Mutex::new(Vec::new());
    let on_hang = |applied: &Applied| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.push((applied.report.outcome.clone(), applied.bundle.is_some()));
        let _ = release.send(());
    };
    // Here it goes on, where a process would have ended.
    run(&host, &Surroundings { workers: Workers::Threads(1), on_hang: &on_hang, ..surroundings(&clock, 0) });
    told.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[track_caller]
fn assert_named(told: &[(RunOutcome, bool)], of_a_bundle: bool) {
    let Some((RunOutcome::Failed { step, message, .. }, has_bundle)) = told.first() else {
        panic!("nobody was told: {told:?}")
    };
    assert!(message.contains(step.as_str()) && message.contains("long after its deadline of"), "{message}");
    assert_eq!(*has_bundle, of_a_bundle);
}

#[test]
fn an_apply_that_hangs_is_told_of_with_the_step_and_its_bundle() {
    let bundle = ubuntu_bundle();
    let node = FakeNode::new(&bundle);
    let delivered = bundle.clone().into();
    let said = told(&node, |host, surroundings| {
        let prepare = |bundle: &bundle::Bundle| {
            let facts = node.facts()?;
            let plan = node::plan_first_boot(bundle, &facts)?;
            Ok(Arc::new((facts, plan)))
        };
        let _ = node::apply_prepared(host, &delivered, surroundings, &prepare);
    });
    assert_named(&said, true);
}

#[test]
fn a_reset_that_hangs_is_told_of_with_the_step() {
    let bundle = ubuntu_bundle();
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    let said = told(&node, |host, surroundings| {
        let _ = node::reset(host, Some(&bundle), ResetOptions::default(), surroundings);
    });
    assert_named(&said, false);
}
