//! One run of `plan` or `apply` on a node.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bundle::Bundle;
use engine::{
    Clock, Condition, ErrorClass, Event, EventKind, Executor, History, Jitter, Journal, JournalError, Opening,
    Patience, Plan, PlanError, PlannedRun, Recovery, Report, RetryPolicy, RotationLimits, RunOutcome, Step,
    StepContext, StepError, StepId, Timestamp, Workers,
};
use host::disk::{Disk, DiskError};
use host::files::FileError;
use host::machine::{Machine, MachineError};
use host::snaps::Snaps;
use host::units::Units;
use host::update_engine::UpdateEngine;

use crate::artefacts::Artefacts;
use crate::bundle_source::{BundleSourceError, Delivered, Named, Way};
use crate::checks;
use crate::expected::ExpectedPlan;
use crate::facts::{Facts, FactsError, gather_facts};
use crate::failure::chain;
use crate::gate_facts;
use crate::kept;
use crate::ownership;
use crate::plan::{Action, CHECK_STEP, COMMIT_STEP, plan_first_boot};
use crate::platform::PlatformSource;
use crate::reset::RESTORE_STEP;
use crate::resource::snap::planned_snap;
use crate::resource::{Identity, Node, Ownership, Tools};
use crate::spending;
use crate::store::{JournalFile, JournalSnapshot};
use crate::timekeeping;

/// Lost at a reboot, as it should be.
pub const LOCK_PATH: &str = "/run/nodestrap/lock";

/// A machine, or a folder that stands for one.
#[derive(Clone)]
pub struct NodeHost {
    pub disk: Arc<dyn Disk>,
    pub units: Arc<dyn Units>,
    pub snaps: Arc<dyn Snaps>,
    pub update_engine: Arc<dyn UpdateEngine>,
    pub artefacts: Arc<dyn Artefacts>,
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

    pub(crate) fn tools<'a>(&'a self, clock: &'a dyn Clock) -> Tools<'a> {
        Tools {
            disk: self.disk.as_ref(),
            units: self.units.as_ref(),
            snaps: self.snaps.as_ref(),
            artefacts: self.artefacts.as_ref(),
            clock,
            ownership: self.ownership,
        }
    }

    /// This machine on its way to what the bundle wants.
    pub(crate) fn node<'a>(&'a self, bundle: &'a Bundle, facts: &Facts, clock: &'a dyn Clock, past: &Past) -> Node<'a> {
        let identity = Identity { bundle: bundle.digest(), machine: facts.known_as.clone() };
        let environment = gate_facts::resolve(bundle, facts).environment;
        Node {
            tools: self.tools(clock),
            bundle,
            files: spending::files_wanted(self.disk.as_ref(), bundle),
            // What cannot be planned is refused by the first step.
            snap: planned_snap(bundle, &environment).ok().flatten(),
            environment,
            identity,
            machine: facts.machine(),
            named: Named::ByDelivery,
            is_preview: false,
            committed_before: past.committed,
            last_believed: past.last_believed,
            files_are_as_planned: AtomicBool::new(false),
            lists_are_new: AtomicBool::new(false),
            staged: Mutex::new(None),
            proved: Mutex::default(),
            proved_extensions: Mutex::default(),
            starts: Mutex::new(()),
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
    #[error(
        "this node is complete, but there is no record of what was on it before (/var/lib/nodestrap/before): nothing can \
         be put back"
    )]
    NoRecord,
    #[error("what nodestrap remembers of this node cannot be removed")]
    Forget(#[source] FileError),
    #[error("the bootstrap credentials cannot be taken away")]
    Spend(#[source] FileError),
    #[error("older versions of programs cannot be taken away")]
    Retire(#[source] StepError),
    #[error("cannot look at the files of this node")]
    Look(#[source] FileError),
    #[error("cannot look at this node")]
    Verify(#[source] StepError),
    #[error("what the platform said cannot be kept on this node")]
    KeepPlatform(#[source] FileError),
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
            Self::Facts(error) if error.may_pass() => ErrorClass::Transient,
            Self::Verify(error) | Self::Retire(error) => error.class,
            Self::Facts(_)
            | Self::KeepPlatform(_)
            | Self::Lock(_)
            | Self::Journal(_)
            | Self::Keep(_)
            | Self::NoRecord
            | Self::Forget(_)
            | Self::Spend(_)
            | Self::Look(_) => ErrorClass::NeedsOperator,
        }
    }
}

/// What comes before there is a plan, as it is called in reports.
const LOAD_BUNDLE: &str = "load-bundle";
const KEEP_BUNDLE: &str = "keep-bundle";
const GATHER_FACTS: &str = "gather-facts";

/// What will happen on this machine, and what it was decided from. Reads only.
pub fn prepare(host: &NodeHost, bundle: &Bundle) -> Result<(Facts, Plan<Action>), SessionError> {
    prepare_as(host, bundle, Adopt::No)
}

/// Whether this machine takes over the node that its disk was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adopt {
    #[default]
    No,
    Yes,
}

fn prepare_as(host: &NodeHost, bundle: &Bundle, adopt: Adopt) -> Result<(Facts, Plan<Action>), SessionError> {
    let mut facts = gather_facts(host)?;
    if adopt == Adopt::Yes {
        facts.adopt();
    }
    facts.ask_api_server(host.disk.as_ref(), bundle);
    let plan = plan_first_boot(bundle, &facts)?;
    Ok((facts, plan))
}

/// Each step of the plan with what a look at the machine says now. Reads only.
pub fn preview(
    host: &NodeHost,
    bundle: &Bundle,
    facts: &Facts,
    plan: &Plan<Action>,
    clock: &dyn Clock,
) -> Result<Vec<Preview>, SessionError> {
    let (journal, _) = Journal::open(JournalSnapshot::load(host.disk.as_ref()))?;
    let executor = Node { is_preview: true, ..host.node(bundle, facts, clock, &Past::of(journal.events())) };
    let done = journal.history(&executor.identity.digest());
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

/// What the journal says about this machine, whatever the plan.
#[derive(Default)]
pub(crate) struct Past {
    /// Files of a bundle were switched in, and not undone since.
    committed: bool,
    last_believed: Timestamp,
}

impl Past {
    fn of(events: &[Event]) -> Self {
        let is_committed = |before: bool, event: &Event| match &event.kind {
            EventKind::StepFinished { id, .. } if id.0 == COMMIT_STEP => true,
            EventKind::StepFinished { id, .. } if id.0 == RESTORE_STEP => false,
            _ => before,
        };
        Self { committed: events.iter().fold(false, is_committed), last_believed: timekeeping::last_believed(events) }
    }
}

impl Executor<Action> for Node<'_> {
    fn check(&self, step: &Step<Action>, history: &History) -> Result<Condition, StepError> {
        step.action.deed().check(self, history)
    }

    fn apply(&self, step: &Step<Action>, context: &StepContext<'_>) -> Result<(), StepError> {
        step.action.deed().apply(self, context)
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
    /// Told, on any thread, of a run that failed because something never came back. The run cannot end by itself, so this
    /// ends the process; the lock and everything else is then as after a kill.
    pub on_hang: &'a (dyn Fn(&Applied) + Sync),
}

/// Steps keep their deadlines where they can, and then say what they waited for.
pub(crate) const HANG_GRACE: Duration = Duration::from_secs(10);

/// Finds the bundle; what it is told with is for those who watch.
pub type DeliverBundle<'a> = &'a dyn Fn(&dyn Fn(&str)) -> Result<Delivered, BundleSourceError>;

/// Facts and plan for a bundle, asked for once the node is locked.
pub type Prepare<'a> = &'a dyn Fn(&Bundle) -> Result<Arc<(Facts, Plan<Action>)>, SessionError>;

/// How a run went, and for which bundle, if one came.
pub struct Applied {
    pub report: Report,
    pub bundle: Option<Bundle>,
}

/// Converges the node to the bundle and opens the gate. What was fetched for it is kept from before the first change.
pub fn apply(host: &NodeHost, delivered: &Delivered, surroundings: &Surroundings<'_>) -> Result<Report, SessionError> {
    apply_prepared(host, delivered, surroundings, &|bundle| prepare(host, bundle).map(Arc::new))
}

/// The same, with another way to the facts and the plan: for tests that have a metadata service of their own, or run the
/// same plan a hundred thousand times.
pub fn apply_prepared(
    host: &NodeHost,
    delivered: &Delivered,
    surroundings: &Surroundings<'_>,
    prepare: Prepare<'_>,
) -> Result<Report, SessionError> {
    converge(host, &|_| Ok(delivered.clone()), None, surroundings, prepare).map(|applied| applied.report)
}

/// As [`apply`], from the very beginning: a bundle that does not come is a run that failed, and is told of like any other.
/// With `expected`, any other plan is refused before the first change.
pub fn apply_delivery(
    host: &NodeHost,
    deliver: DeliverBundle<'_>,
    expected: Option<&ExpectedPlan>,
    adopt: Adopt,
    surroundings: &Surroundings<'_>,
) -> Result<Applied, SessionError> {
    converge(host, deliver, expected, surroundings, &|bundle| prepare_as(host, bundle, adopt).map(Arc::new))
}

fn converge(
    host: &NodeHost,
    deliver: DeliverBundle<'_>,
    expected: Option<&ExpectedPlan>,
    surroundings: &Surroundings<'_>,
    prepare: Prepare<'_>,
) -> Result<Applied, SessionError> {
    let lock = host.disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    let (mut journal, recovery) = Journal::open(JournalFile::new(host.disk.as_ref()))?;
    journal.rotate(RotationLimits::default())?;
    let past = Past::of(journal.events());
    (surroundings.on_recovery)(&recovery);
    let boot_id = host.machine.boot_id().map(|id| id.0).unwrap_or_default();
    let opening = Opening::new(&mut journal, surroundings.sink, surroundings.clock, &boot_id);
    let tell = |line: &str| opening.detail(LOAD_BUNDLE, line);
    let delivered = match opening.phase(LOAD_BUNDLE, || deliver(&tell)) {
        Ok(delivered) => delivered,
        // Where nothing was delivered there is nothing to run, and nobody who wants to be told.
        Err(error @ BundleSourceError::Absent { .. }) => return Err(SessionError::NotDelivered(error)),
        Err(error) => return Ok(Applied { report: opening.give_up(LOAD_BUNDLE, error.into()), bundle: None }),
    };
    let kept = match delivered.way {
        Way::Direct => Ok(()),
        Way::Fetched | Way::Kept => opening.phase(KEEP_BUNDLE, || keep(host, &delivered)),
    };
    let Delivered { bundle, named, .. } = delivered;
    let give_up = |opening: Opening<'_, _>, phase, error: SessionError, bundle| {
        let report = opening.give_up(phase, StepError::new(error.class(), chain(&error)));
        Ok(Applied { report, bundle: Some(bundle) })
    };
    if let Err(error) = kept {
        return give_up(opening, KEEP_BUNDLE, error, bundle);
    }
    let prepared = match opening.phase(GATHER_FACTS, || prepare(&bundle)) {
        Ok(prepared) => prepared,
        Err(error) => return give_up(opening, GATHER_FACTS, error, bundle),
    };
    let (facts, plan) = prepared.as_ref();
    if let Some(remark) = ownership::remark(facts.complete.as_ref(), &facts.machine()) {
        opening.detail(GATHER_FACTS, &remark);
    }
    if let Some(difference) = expected.and_then(|expected| expected.difference(plan)) {
        return Err(SessionError::OtherPlan(difference));
    }
    // Not as a step of the plan: a run of another bundle would end what the journal remembers of the node's own.
    if let Some(error) = checks::refusal(plan) {
        return Ok(Applied { report: opening.give_up(CHECK_STEP, error), bundle: Some(bundle) });
    }
    if let Err(error) = host.platform.keep().map_err(SessionError::KeepPlatform) {
        return give_up(opening, GATHER_FACTS, error, bundle);
    }
    opening.facts(facts.notes());
    let executor = Node { named, ..host.node(&bundle, facts, surroundings.clock, &past) };
    let on_hang = surroundings.on_hang;
    let give_up = |report: &Report| on_hang(&Applied { report: report.clone(), bundle: Some(bundle.clone()) });
    let report = opening.run(PlannedRun {
        plan,
        digest: plan.digest(),
        identity: executor.identity.digest(),
        executor: &executor,
        jitter: surroundings.jitter,
        retry: RetryPolicy::default(),
        workers: surroundings.workers,
        patience: Patience { grace: HANG_GRACE, give_up: &give_up },
    });
    executor.discard_staged();
    if matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo) {
        // The node is complete: what cannot be removed or written now is no failure, and the next run tries again.
        let _ = kept::forget_others(host.disk.as_ref(), &bundle);
        let _ = executor.remember_complete();
        // Nor is a copy that came again with what was spent here.
        let _ = spending::spend_again(host.disk.as_ref(), &bundle);
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
