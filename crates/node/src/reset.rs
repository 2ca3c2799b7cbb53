//! Undoes what nodestrap did to this node: what it made is gone, what was there before is back.
//!
//! In: the record of what was there before ([`crate::resource::record`]), which alone decides the plan. Out: a [`Report`], and
//! a node without a trace of nodestrap but for the program and the delivery. Fails as a run does; a run that was cut off is
//! resumed by the next one, because each resource tells by itself whether it is undone.
//!
//! The gate goes first, so that from there on a crash means "not started"; what nodestrap remembers goes last. Data is never
//! touched: not etcd's, not that of volumes, containers or pods, and of the kubelet's only its credentials, when asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bundle::{Bundle, HOOK_OUTPUT_FOLDER};
use engine::{
    Clock, Condition, Executor, History, Journal, Patience, Plan, PlanError, Report, RetryPolicy, Run, RunOutcome,
    Step, StepContext, StepError, StepId,
};
use host::disk::{Disk, DiskError};
use host::files::{self, FileError};
use serde::{Deserialize, Serialize};

use crate::complete::COMPLETE_PATH;
use crate::followed::FOLLOWED_PATH;
use crate::kept::KEPT_BUNDLES_FOLDER;
use crate::resource::file::{FILES_DEADLINE, KUBELET_STATE, remove_tree};
use crate::resource::gate::{GateState, observe_any};
use crate::resource::package::manager::OUTPUT_FOLDER as PACKAGE_OUTPUT_FOLDER;
use crate::resource::record::{self, BEFORE_FOLDER, RECORD_PATH, Record};
use crate::resource::started::STARTED_PATH;
use crate::resource::torcx::data::CLEAN_DATA_PATH;
use crate::resource::{
    Deed, FAMILIES, Tools, UndoPhase, UndoStep, Undoing, credential, extension, file, folder, gate, hook, package,
    snap, torcx, tree, unit,
};
use crate::session::{Applied, HANG_GRACE, LOCK_PATH, NodeHost, Preview, SessionError, Surroundings};
use crate::store::{JOURNAL_PATH, JournalFile, JournalSnapshot, STATE_FOLDER};
use crate::told;

/// The step after which nothing on the disk is ours.
pub(crate) const RESTORE_STEP: &str = "restore-files";

/// A unit that does not stop is ended by systemd after 90 seconds.
const UNIT_DEADLINE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetOptions {
    /// Files that somebody changed since are kept under [`crate::SAVED_FOLDER`] and undone; without it they are a reason to stop.
    pub force: bool,
    /// The kubelet's credentials go too.
    pub kubelet_state: bool,
}

/// The vocabulary of undoing, by family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ResetAction {
    File(file::Undo),
    Tree(tree::Undo),
    Package(package::Undo),
    Extension(extension::Undo),
    Addon(torcx::Undo),
    Gate(gate::Undo),
    Unit(unit::Undo),
    Snap(snap::Undo),
    Folder(folder::Undo),
    Credential(credential::Undo),
    Hook(hook::Undo),
}

impl ResetAction {
    /// In a few words, for those who read the plan.
    pub fn describe(&self) -> String {
        self.deed().describe()
    }

    /// What people want to see one by one, before it happens.
    pub fn details(&self) -> Vec<String> {
        self.deed().details()
    }

    fn deed<'u>(&self) -> &dyn Deed<Undoing<'u>> {
        match self {
            Self::File(undo) => undo,
            Self::Tree(undo) => undo,
            Self::Package(undo) => undo,
            Self::Extension(undo) => undo,
            Self::Addon(undo) => undo,
            Self::Gate(undo) => undo,
            Self::Unit(undo) => undo,
            Self::Snap(undo) => undo,
            Self::Folder(undo) => undo,
            Self::Credential(undo) => undo,
            Self::Hook(undo) => undo,
        }
    }
}

/// What is left once the plan of a reset is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing of nodestrap was there.
    NothingThere,
    Everything,
}

/// What a reset of this node would do; `None` if nothing is known that could be undone. Reads only.
pub fn plan_reset(host: &NodeHost, options: ResetOptions) -> Result<Option<Plan<ResetAction>>, SessionError> {
    let record = load_record(host)?;
    record.map(|record| plan(&record, options)).transpose().map_err(SessionError::Plan)
}

fn load_record(host: &NodeHost) -> Result<Option<Record>, SessionError> {
    let look = |error: DiskError| SessionError::Look(error.into());
    let disk = host.disk.as_ref();
    if let Some(record) = record::load(disk).map_err(look)? {
        return Ok(Some(record));
    }
    match observe_any(disk).map_err(look)? {
        GateState::Open { .. } => Err(SessionError::NoRecord),
        // Nothing was switched in, or a reset was cut off in its last moments.
        GateState::Absent | GateState::Damaged { .. } => Ok(None),
    }
}

/// What the families have to undo, phase by phase. Pure.
fn undo_steps(record: &Record) -> Vec<UndoStep> {
    let mut steps: Vec<UndoStep> = FAMILIES.iter().flat_map(|family| family.undo(record)).collect();
    // Stable: within a phase the families keep their order.
    steps.sort_by_key(|step| step.phase);
    steps
}

/// The steps of all families, and what only a whole reset does. Pure.
fn plan(record: &Record, options: ResetOptions) -> Result<Plan<ResetAction>, PlanError> {
    let step =
        |phase, id: &str, deadline, action| UndoStep { phase, id: id.to_owned(), deadline, barrier: false, action };
    let paths: Vec<String> = record.files.keys().cloned().collect();
    let check = ResetAction::File(file::Undo::CheckChanges { paths, force: options.force });
    let mut all = vec![step(UndoPhase::Check, "check-changes", FILES_DEADLINE, check)];
    let stop = ResetAction::Unit(unit::Undo::stop_bootstrap());
    all.push(step(UndoPhase::Stop, "stop-k8s-node-bootstrap", UNIT_DEADLINE, stop));
    all.extend(undo_steps(record));
    if options.kubelet_state {
        let paths = KUBELET_STATE.map(str::to_owned).to_vec();
        let remove = ResetAction::File(file::Undo::RemoveKubeletState { paths });
        all.push(step(UndoPhase::RemoveFolders, "remove-kubelet-state", FILES_DEADLINE, remove));
    }
    all.sort_by_key(|step| step.phase);
    let mut steps: Vec<Step<ResetAction>> = Vec::new();
    let (mut current, mut done): (Option<UndoPhase>, Vec<StepId>) = (None, Vec::new());
    let mut this_phase: Vec<StepId> = Vec::new();
    for UndoStep { phase, id, deadline, barrier, action } in all {
        if current != Some(phase) {
            if !this_phase.is_empty() {
                done = std::mem::take(&mut this_phase);
            }
            current = Some(phase);
        }
        let id = StepId(id);
        // Folders come after the kubelet's state, which may lie in one of them; the same goes for gates, one by one.
        let in_row = matches!(phase, UndoPhase::CloseGate | UndoPhase::Restore | UndoPhase::RemoveFolders);
        let needs = match this_phase.last() {
            Some(before) if in_row => vec![before.clone()],
            _ => done.clone(),
        };
        steps.push(Step { id: id.clone(), needs, action, deadline, barrier });
        this_phase.push(id);
    }
    Plan::new(BTreeMap::from([("reset".to_owned(), "nodestrap".to_owned())]), steps)
}

/// Undoes a part of what the record knows within a step of `apply`, which then forgets it.
pub(crate) fn undo_now(tools: Tools<'_>, obsolete: &Record, context: &StepContext<'_>) -> Result<(), StepError> {
    if obsolete.is_empty() {
        return Ok(());
    }
    let undoing = Undoing { tools, record: obsolete };
    for step in undo_steps(obsolete) {
        let deed = step.action.deed();
        if deed.check(&undoing, &History::default())? != Condition::AlreadySo {
            deed.apply(&undoing, context)?;
        }
    }
    Ok(())
}

/// Each step with what a look at the machine says now. Reads only.
pub fn preview_reset(
    host: &NodeHost,
    plan: &Plan<ResetAction>,
    clock: &dyn Clock,
) -> Result<Vec<Preview>, SessionError> {
    let record = load_record(host)?.unwrap_or_default();
    let executor = ResetExecutor(Undoing { tools: host.tools(clock), record: &record });
    let (journal, _) = Journal::open(JournalSnapshot::load(host.disk.as_ref()))?;
    let done = journal.history(&plan.digest());
    let look = |step: &Step<ResetAction>| {
        let history = History { done_before: done.contains(&step.id) };
        Preview { step: step.id.clone(), condition: executor.check(step, &history) }
    };
    Ok(plan.steps.iter().map(look).collect())
}

/// Undoes, and then forgets. `None` in place of a report: there was nothing to undo. With the bundle, if there is one, what
/// an interrupted `apply` left beside its files goes even where no record of it survived.
pub fn reset(
    host: &NodeHost,
    bundle: Option<&Bundle>,
    options: ResetOptions,
    surroundings: &Surroundings<'_>,
) -> Result<(Option<Report>, Forgotten), SessionError> {
    let disk = host.disk.as_ref();
    let lock = disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    let record = load_record(host)?;
    // Nobody shall be told any more that this is a node.
    told::withdraw(disk).map_err(SessionError::Forget)?;
    let report = match &record {
        None => None,
        Some(record) => {
            let report = run(host, record, options, surroundings)?;
            if !matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo) {
                return Ok((Some(report), Forgotten::NothingThere));
            }
            Some(report)
        }
    };
    let from_bundle = bundle.map(Bundle::all_files).unwrap_or_default();
    for folder in from_bundle.iter().filter_map(|file| file.path.as_path().parent()) {
        if !files::remove_leftovers(disk, folder).map_err(SessionError::Forget)?.is_empty() {
            disk.sync_folder(folder).map_err(|error| SessionError::Forget(error.into()))?;
        }
    }
    // A run that was killed may have undone a file without a sync, and this one found it undone.
    if let Some(record) = &record {
        record::sync_folders(disk, record).map_err(SessionError::Forget)?;
    }
    let forgotten = forget(disk).map_err(SessionError::Forget)?;
    Ok((report, forgotten))
}

fn run(
    host: &NodeHost,
    record: &Record,
    options: ResetOptions,
    surroundings: &Surroundings<'_>,
) -> Result<Report, SessionError> {
    let plan = plan(record, options)?;
    let executor = ResetExecutor(Undoing { tools: host.tools(surroundings.clock), record });
    let (mut journal, recovery) = Journal::open(JournalFile::new(host.disk.as_ref()))?;
    (surroundings.on_recovery)(&recovery);
    let boot_id = host.machine.boot_id().map(|id| id.0).unwrap_or_default();
    let on_hang = surroundings.on_hang;
    let give_up = |report: &Report| on_hang(&Applied { report: report.clone(), bundle: None });
    let run = Run {
        plan: &plan,
        identity: plan.digest(),
        executor: &executor,
        journal: &mut journal,
        clock: surroundings.clock,
        jitter: surroundings.jitter,
        retry: RetryPolicy::default(),
        sink: surroundings.sink,
        workers: surroundings.workers,
        boot_id: &boot_id,
        patience: Patience { grace: HANG_GRACE, give_up: &give_up },
    };
    Ok(run.run())
}

/// The record first: without it, nothing is undone a second time. Each removal is durable before the next.
fn forget(disk: &dyn Disk) -> Result<Forgotten, FileError> {
    if disk.stat(Path::new(STATE_FOLDER))?.is_none() {
        return Ok(Forgotten::NothingThere);
    }
    files::remove_durable(disk, Path::new(RECORD_PATH))?;
    for path in [COMPLETE_PATH, STARTED_PATH, FOLLOWED_PATH, CLEAN_DATA_PATH] {
        files::remove_durable(disk, Path::new(path))?;
    }
    for folder in [BEFORE_FOLDER, KEPT_BUNDLES_FOLDER, HOOK_OUTPUT_FOLDER, PACKAGE_OUTPUT_FOLDER] {
        remove_tree(disk, Path::new(folder))?;
    }
    files::remove_durable(disk, Path::new(JOURNAL_PATH))?;
    remove_tree(disk, Path::new(STATE_FOLDER))?;
    Ok(Forgotten::Everything)
}

struct ResetExecutor<'a>(Undoing<'a>);

impl Executor<ResetAction> for ResetExecutor<'_> {
    fn check(&self, step: &Step<ResetAction>, history: &History) -> Result<Condition, StepError> {
        step.action.deed().check(&self.0, history)
    }

    fn apply(&self, step: &Step<ResetAction>, context: &StepContext<'_>) -> Result<(), StepError> {
        step.action.deed().apply(&self.0, context)
    }
}
