//! One run of `plan` or `apply` on a node.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use engine::{
    Clock, Condition, ErrorClass, Event, Executor, History, Jitter, Journal, JournalError, Opening, Plan, PlanError,
    PlannedRun, Recovery, Report, RetryPolicy, RunOutcome, Step, StepError, StepId, Workers,
};
use host::disk::{Disk, DiskError};
use host::files::FileError;
use host::machine::{Machine, MachineError};
use host::units::Units;
use render::bundle::Bundle;

use crate::bundle_source::{BundleSourceError, Delivered, Way};
use crate::expected::ExpectedPlan;
use crate::facts::{Facts, FactsError, gather_facts};
use crate::kept;
use crate::plan::{Action, plan_first_boot};
use crate::steps::{NodeExecutor, Ownership, chain};
use crate::store::{JournalFile, JournalSnapshot};

/// Lost at a reboot, as it should be.
pub const LOCK_PATH: &str = "/run/nodestrap/lock";

/// A machine, or a folder that stands for one.
#[derive(Clone)]
pub struct NodeHost {
    pub disk: Arc<dyn Disk>,
    pub units: Arc<dyn Units>,
    pub machine: Arc<dyn Machine>,
    pub ownership: Ownership,
}

impl NodeHost {
    /// The name under which the kubelet registers: the one it was given, or else the lower-case host name.
    pub fn node_name(&self, given: Option<&str>) -> Result<String, MachineError> {
        match given {
            Some(name) => Ok(name.to_owned()),
            None => Ok(self.machine.hostname()?.to_lowercase()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("another nodestrap is at work on this node; it holds {LOCK_PATH:?}")]
    Busy,
    #[error("cannot lock this node")]
    Lock(#[source] DiskError),
    #[error("the fetched bundle cannot be kept on this node")]
    Keep(#[source] FileError),
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error("no plan can be made from this bundle")]
    Plan(#[from] PlanError),
    #[error("the journal of this node cannot be used")]
    Journal(#[from] JournalError),
    #[error(transparent)]
    NotDelivered(BundleSourceError),
    #[error("nothing was changed: the plan is not the one that was expected: {0}")]
    OtherPlan(String),
}

impl SessionError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Busy => ErrorClass::Transient,
            Self::Plan(_) | Self::OtherPlan(_) | Self::NotDelivered(_) => ErrorClass::WrongInput,
            Self::Facts(_) | Self::Lock(_) | Self::Journal(_) | Self::Keep(_) => ErrorClass::NeedsOperator,
        }
    }
}

/// What comes before there is a plan, as it is called in reports.
const LOAD_BUNDLE: &str = "load-bundle";
const KEEP_BUNDLE: &str = "keep-bundle";
const GATHER_FACTS: &str = "gather-facts";

/// What will happen on this machine, and what it was decided from. Reads only.
pub fn prepare(host: &NodeHost, bundle: &Bundle) -> Result<(Facts, Plan<Action>), SessionError> {
    let facts = gather_facts(&host.disk, &host.machine)?;
    let plan = plan_first_boot(bundle, &facts)?;
    Ok((facts, plan))
}

/// Each step of the plan with what a look at the machine says now. Reads only.
pub fn preview(
    host: &NodeHost,
    bundle: &Bundle,
    plan: &Plan<Action>,
    clock: &dyn Clock,
) -> Result<Vec<Preview>, SessionError> {
    let executor = executor(host, bundle, plan, clock);
    let (journal, _) = Journal::open(JournalSnapshot::load(host.disk.as_ref()))?;
    let done = journal.history(&plan.digest());
    let look = |step: &Step<Action>| {
        let history = History { done_before: done.contains(&step.id) };
        Preview { step: step.id.clone(), condition: executor.check(step, &history) }
    };
    Ok(plan.steps.iter().map(look).collect())
}

/// What would happen to one step if it came up now.
pub struct Preview {
    pub step: StepId,
    pub condition: Result<Condition, StepError>,
}

fn executor<'a>(host: &'a NodeHost, bundle: &'a Bundle, plan: &Plan<Action>, clock: &'a dyn Clock) -> NodeExecutor<'a> {
    NodeExecutor {
        disk: host.disk.as_ref(),
        units: host.units.as_ref(),
        bundle,
        plan: plan.digest(),
        ownership: host.ownership,
        clock,
        files_are_as_planned: AtomicBool::new(false),
        staged: Mutex::new(None),
    }
}

/// The engine's surroundings, injected.
pub struct Surroundings<'a> {
    pub clock: &'a dyn Clock,
    pub jitter: &'a dyn Jitter,
    pub workers: Workers,
    /// Told of every event as it happens.
    pub sink: &'a dyn Fn(&Event),
    /// Told when the journal had to be mended.
    pub on_recovery: &'a dyn Fn(&Recovery),
}

/// Finds the bundle; what it is told with is for those who watch.
pub type DeliverBundle<'a> = &'a dyn Fn(&dyn Fn(&str)) -> Result<Delivered, BundleSourceError>;

/// How a run went, and for which bundle, if one came.
pub struct Applied {
    pub report: Report,
    pub bundle: Option<Bundle>,
}

/// Converges the node to the bundle and opens the gate. What was fetched for it is kept from before the first change.
pub fn apply(host: &NodeHost, delivered: &Delivered, surroundings: &Surroundings<'_>) -> Result<Report, SessionError> {
    apply_delivery(host, &|_| Ok(delivered.clone()), None, surroundings).map(|applied| applied.report)
}

/// The same from the very beginning: a bundle that does not come is a run that failed, and is told of like any other.
/// With `expected`, any other plan is refused before the first change.
pub fn apply_delivery(
    host: &NodeHost,
    deliver: DeliverBundle<'_>,
    expected: Option<&ExpectedPlan>,
    surroundings: &Surroundings<'_>,
) -> Result<Applied, SessionError> {
    let lock = host.disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    let (mut journal, recovery) = Journal::open(JournalFile::new(host.disk.as_ref()))?;
    (surroundings.on_recovery)(&recovery);
    let boot_id = host.machine.boot_id().map(|id| id.0).unwrap_or_default();
    let opening = Opening::new(&mut journal, surroundings.sink, surroundings.clock, &boot_id);
    let tell = |line: &str| opening.detail(LOAD_BUNDLE, line);
    let delivered = match opening.phase(LOAD_BUNDLE, || deliver(&tell)) {
        Ok(delivered) => delivered,
        // Where nothing was delivered there is nothing to run, and nobody who wants to be told.
        Err(error @ BundleSourceError::Absent { .. }) => return Err(SessionError::NotDelivered(error)),
        Err(error) => {
            let error = StepError::new(error.class(), chain(&error));
            return Ok(Applied { report: opening.give_up(LOAD_BUNDLE, error), bundle: None });
        }
    };
    let kept = match delivered.way {
        Way::Direct => Ok(()),
        Way::Fetched | Way::Kept => opening.phase(KEEP_BUNDLE, || keep(host, &delivered)),
    };
    let Delivered { bundle, .. } = delivered;
    let give_up = |opening: Opening<'_, _>, phase, error: SessionError, bundle| {
        let report = opening.give_up(phase, StepError::new(error.class(), chain(&error)));
        Ok(Applied { report, bundle: Some(bundle) })
    };
    if let Err(error) = kept {
        return give_up(opening, KEEP_BUNDLE, error, bundle);
    }
    let (facts, plan) = match opening.phase(GATHER_FACTS, || prepare(host, &bundle)) {
        Ok(prepared) => prepared,
        Err(error) => return give_up(opening, GATHER_FACTS, error, bundle),
    };
    if let Some(difference) = expected.and_then(|expected| expected.difference(&plan)) {
        return Err(SessionError::OtherPlan(difference));
    }
    opening.facts(facts.notes());
    let executor = executor(host, &bundle, &plan, surroundings.clock);
    let report = opening.run(PlannedRun {
        plan: &plan,
        executor: &executor,
        jitter: surroundings.jitter,
        retry: RetryPolicy::default(),
        workers: surroundings.workers,
    });
    if matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo) {
        // The node is complete: a copy that cannot be removed now is no failure, and the next run tries again.
        let _ = kept::forget_others(host.disk.as_ref(), &bundle);
    }
    Ok(Applied { report, bundle: Some(bundle) })
}

fn keep(host: &NodeHost, delivered: &Delivered) -> Result<(), SessionError> {
    match delivered.way {
        Way::Direct => Ok(()),
        Way::Fetched => kept::keep(host.disk.as_ref(), &delivered.bundle),
        Way::Kept => kept::make_durable(host.disk.as_ref(), &delivered.bundle),
    }
    .map_err(SessionError::Keep)
}

/// All that the journal knows, oldest first; a damaged part is left out and told of.
pub fn load_events(disk: &dyn Disk) -> Result<(Vec<Event>, Recovery), JournalError> {
    let (journal, recovery) = Journal::open(JournalSnapshot::load(disk))?;
    Ok((journal.events().to_vec(), recovery))
}
