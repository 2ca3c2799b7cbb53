//! One run of `plan` or `apply` on a node.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use engine::{
    Clock, Condition, Event, Executor, History, Jitter, Journal, JournalError, Plan, PlanError, Recovery, Report,
    RetryPolicy, Run, RunOutcome, Step, StepError, StepId, Workers,
};
use host::disk::{Disk, DiskError};
use host::files::FileError;
use host::machine::{Machine, MachineError};
use host::units::Units;
use render::bundle::Bundle;

use crate::bundle_source::{Delivered, Way};
use crate::facts::{Facts, FactsError, gather_facts};
use crate::kept;
use crate::plan::{Action, plan_first_boot};
use crate::platform::PlatformSource;
use crate::steps::{NodeExecutor, Ownership};
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
    pub platform: Arc<PlatformSource>,
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
    #[error("what the platform said cannot be kept on this node")]
    KeepPlatform(#[source] FileError),
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error("no plan can be made from this bundle")]
    Plan(#[from] PlanError),
    #[error("the journal of this node cannot be used")]
    Journal(#[from] JournalError),
}

/// What will happen on this machine, and what it was decided from. Reads only.
pub fn prepare(host: &NodeHost, bundle: &Bundle) -> Result<(Facts, Plan<Action>), SessionError> {
    let facts = gather_facts(host)?;
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

/// Converges the node to the bundle and opens the gate. What was fetched for it is kept from before the first change.
pub fn apply(host: &NodeHost, delivered: &Delivered, surroundings: &Surroundings<'_>) -> Result<Report, SessionError> {
    let bundle = &delivered.bundle;
    let lock = host.disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    match delivered.way {
        Way::Direct => Ok(()),
        Way::Fetched => kept::keep(host.disk.as_ref(), bundle),
        Way::Kept => kept::make_durable(host.disk.as_ref(), bundle),
    }
    .map_err(SessionError::Keep)?;
    let (facts, plan) = prepare(host, bundle)?;
    host.platform.keep().map_err(SessionError::KeepPlatform)?;
    let executor = executor(host, bundle, &plan, surroundings.clock);
    let (mut journal, recovery) = Journal::open(JournalFile::new(host.disk.as_ref()))?;
    (surroundings.on_recovery)(&recovery);
    let run = Run {
        plan: &plan,
        executor: &executor,
        journal: &mut journal,
        clock: surroundings.clock,
        jitter: surroundings.jitter,
        retry: RetryPolicy::default(),
        sink: surroundings.sink,
        workers: surroundings.workers,
        boot_id: &facts.boot_id.value,
    };
    let report = run.run();
    if matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo) {
        // The node is complete: a copy that cannot be removed now is no failure, and the next run tries again.
        let _ = kept::forget_others(host.disk.as_ref(), bundle);
    }
    Ok(report)
}

/// All that the journal knows, oldest first; a damaged part is left out and told of.
pub fn load_events(disk: &dyn Disk) -> Result<(Vec<Event>, Recovery), JournalError> {
    let (journal, recovery) = Journal::open(JournalSnapshot::load(disk))?;
    Ok((journal.events().to_vec(), recovery))
}
