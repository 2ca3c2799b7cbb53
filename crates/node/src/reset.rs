//! Undoes what nodestrap did to this node: what it made is gone, what was there before is back.
//!
//! In: the record of what was there before ([`crate::before`]), which alone decides the plan. Out: a [`Report`], and a node
//! without a trace of nodestrap but for the program and the delivery. Fails as a run does; a run that was cut off is
//! resumed by the next one, because each file tells by itself whether it is undone.
//!
//! The gate goes first, so that from there on a crash means "not started"; what nodestrap remembers goes last. Data is never
//! touched: not etcd's, not that of volumes, containers or pods, and of the kubelet's only its credentials, when asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use engine::{
    Clock, Condition, ErrorClass, Executor, History, Journal, Plan, PlanError, Report, RetryPolicy, Run, RunOutcome,
    Step, StepContext, StepError, StepId,
};
use host::disk::{Disk, DiskError, Kind};
use host::files::{self, FileError};
use host::units::{ActiveState, UnitName, Units};
use render::bundle::{Bundle, HOOK_OUTPUT_FOLDER};
use render::gate::GATE_PATH;
use serde::{Deserialize, Serialize};

use crate::before::{self, BEFORE_FOLDER, Before, FileRecord, Now, RECORD_PATH, Record};
use crate::gate::GateState;
use crate::kept::KEPT_BUNDLES_FOLDER;
use crate::session::{LOCK_PATH, NodeHost, Preview, SessionError, Surroundings};
use crate::status::observe_any_gate;
use crate::steps::{Ownership, before_error, disk_error, file_error, unit_error};
use crate::store::{JOURNAL_PATH, JournalFile, JournalSnapshot, STATE_FOLDER, STATE_FOLDER_MODE};
use crate::told;

/// What somebody changed is kept there by a forced reset, under its own path.
pub const SAVED_FOLDER: &str = "/var/lib/nodestrap-saved";
/// Larger than any file that we write; beyond it somebody else made it what it is.
const SAVED_LIMIT: u64 = 64 * 1024 * 1024;
/// Waits in a loop to run `apply` again.
const BOOTSTRAP_UNIT: &str = render::delivery::BOOTSTRAP_UNIT;
/// The kubelet's own credentials and its kubeconfig: without them it asks to join anew.
const KUBELET_STATE: [&str; 2] = ["/var/lib/kubelet/pki", "/var/lib/kubelet/kubeconfig"];

/// The step after which nothing on the disk is ours.
pub(crate) const RESTORE_STEP: &str = "restore-files";

const FILES_DEADLINE: Duration = Duration::from_secs(120);
/// A unit that does not stop is ended by systemd after 90 seconds.
const UNIT_DEADLINE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetOptions {
    /// Files that somebody changed since are kept under [`SAVED_FOLDER`] and undone; without it they are a reason to stop.
    pub force: bool,
    /// The kubelet's credentials go too.
    pub kubelet_state: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum ResetAction {
    /// Nothing that somebody else wrote would be lost.
    CheckChanges {
        paths: Vec<String>,
        force: bool,
    },
    CloseGate {
        path: String,
    },
    StopUnit {
        unit: String,
    },
    DisableUnits {
        units: Vec<String>,
    },
    /// What was there before is back; what was not there is gone.
    RestoreFiles {
        restored: Vec<String>,
        removed: Vec<String>,
    },
    /// Only if they are empty.
    RemoveFolders {
        paths: Vec<String>,
    },
    RemoveKubeletState {
        paths: Vec<String>,
    },
    ReloadUnits,
    /// It ran before, so it runs on, with its own files.
    RestartUnit {
        unit: String,
    },
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
    if let Some(record) = before::load(disk).map_err(look)? {
        return Ok(Some(record));
    }
    match observe_any_gate(disk).map_err(look)? {
        GateState::Open { .. } => Err(SessionError::NoRecord),
        // Nothing was switched in, or a reset was cut off in its last moments.
        GateState::Absent | GateState::Damaged { .. } => Ok(None),
    }
}

/// Reads top to bottom. Pure.
fn plan(record: &Record, options: ResetOptions) -> Result<Plan<ResetAction>, PlanError> {
    let mut steps: Vec<Step<ResetAction>> = Vec::new();
    let mut add = |id: String, needs: &[String], deadline: Duration, barrier: bool, action: ResetAction| {
        let needs = needs.iter().cloned().map(StepId).collect();
        steps.push(Step { id: StepId(id.clone()), needs, action, deadline, barrier });
        vec![id]
    };
    let named = |verb: &str, unit: &str| format!("{verb}-{}", unit.strip_suffix(".service").unwrap_or(unit));
    let paths: Vec<String> = record.files.keys().cloned().collect();
    let check = ResetAction::CheckChanges { paths, force: options.force };
    let mut last = add("check-changes".to_owned(), &[], FILES_DEADLINE, false, check);
    for path in record.gates.keys() {
        let id = if path == GATE_PATH { "close-gate".to_owned() } else { format!("close-gate-{path}") };
        last = add(id, &last, FILES_DEADLINE, true, ResetAction::CloseGate { path: path.clone() });
    }
    let ours = record.units.iter().filter(|(_, was)| !was.active).map(|(unit, _)| unit.as_str());
    let stops: Vec<String> = [BOOTSTRAP_UNIT]
        .into_iter()
        .chain(ours)
        .flat_map(|unit| {
            let stop = ResetAction::StopUnit { unit: unit.to_owned() };
            add(named("stop", unit), &last, UNIT_DEADLINE, false, stop)
        })
        .collect();
    let units = record.units.iter().filter(|(_, was)| !was.enabled).map(|(unit, _)| unit.clone()).collect();
    let disable = ResetAction::DisableUnits { units };
    last = add("disable-units".to_owned(), &stops, UNIT_DEADLINE, false, disable);
    let with = |wanted: bool| -> Vec<String> {
        let is_wanted = |before: &Before| (*before == Before::Absent) != wanted;
        before::originals(record).filter(|(_, before)| is_wanted(before)).map(|(path, _)| path.clone()).collect()
    };
    let restore = ResetAction::RestoreFiles { restored: with(true), removed: with(false) };
    last = add(RESTORE_STEP.to_owned(), &last, FILES_DEADLINE, false, restore);
    if options.kubelet_state {
        let paths = KUBELET_STATE.map(str::to_owned).to_vec();
        let remove = ResetAction::RemoveKubeletState { paths };
        last = add("remove-kubelet-state".to_owned(), &last, FILES_DEADLINE, false, remove);
    }
    // Deepest first.
    let folders = ResetAction::RemoveFolders { paths: record.folders.iter().rev().cloned().collect() };
    last = add("remove-folders".to_owned(), &last, FILES_DEADLINE, false, folders);
    last = add("reload-units".to_owned(), &last, UNIT_DEADLINE, false, ResetAction::ReloadUnits);
    for (unit, _) in record.units.iter().filter(|(_, was)| was.active) {
        let restart = ResetAction::RestartUnit { unit: unit.clone() };
        add(named("restart", unit), &last, UNIT_DEADLINE, true, restart);
    }
    Plan::new(BTreeMap::from([("reset".to_owned(), "nodestrap".to_owned())]), steps)
}

/// Each step with what a look at the machine says now. Reads only.
pub fn preview_reset(
    host: &NodeHost,
    plan: &Plan<ResetAction>,
    clock: &dyn Clock,
) -> Result<Vec<Preview>, SessionError> {
    let record = load_record(host)?.unwrap_or_default();
    let executor = executor(host, &record, clock);
    let (journal, _) = Journal::open(JournalSnapshot::load(host.disk.as_ref()))?;
    let done = journal.history(&plan.digest());
    let look = |step: &Step<ResetAction>| {
        let history = History { done_before: done.contains(&step.id) };
        Preview { step: step.id.clone(), condition: executor.check(step, &history) }
    };
    Ok(plan.steps.iter().map(look).collect())
}

fn executor<'a>(host: &'a NodeHost, record: &'a Record, clock: &'a dyn Clock) -> ResetExecutor<'a> {
    let (disk, units) = (host.disk.as_ref(), host.units.as_ref());
    ResetExecutor { disk, units, record, ownership: host.ownership, clock }
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
    told::withdraw(disk).map_err(|error| SessionError::Forget(error.into()))?;
    let report = match &record {
        None => None,
        Some(record) => {
            let plan = plan(record, options)?;
            let executor = executor(host, record, surroundings.clock);
            let (mut journal, recovery) = Journal::open(JournalFile::new(disk))?;
            (surroundings.on_recovery)(&recovery);
            let boot_id = host.machine.boot_id().map(|id| id.0).unwrap_or_default();
            let run = Run {
                plan: &plan,
                executor: &executor,
                journal: &mut journal,
                clock: surroundings.clock,
                jitter: surroundings.jitter,
                retry: RetryPolicy::default(),
                sink: surroundings.sink,
                workers: surroundings.workers,
                boot_id: &boot_id,
            };
            let report = run.run();
            if !matches!(report.outcome, RunOutcome::Done | RunOutcome::NothingToDo) {
                return Ok((Some(report), Forgotten::NothingThere));
            }
            Some(report)
        }
    };
    let from_bundle = bundle.map(|bundle| bundle.files.as_slice()).unwrap_or_default();
    for folder in from_bundle.iter().filter_map(|file| Path::new(&file.path).parent()) {
        files::remove_leftovers(disk, folder).map_err(SessionError::Forget)?;
    }
    let forgotten = forget(disk).map_err(SessionError::Forget)?;
    Ok((report, forgotten))
}

/// The record first: without it, nothing is undone a second time. Each removal is durable before the next.
fn forget(disk: &dyn Disk) -> Result<Forgotten, FileError> {
    if disk.stat(Path::new(STATE_FOLDER))?.is_none() {
        return Ok(Forgotten::NothingThere);
    }
    files::remove_durable(disk, Path::new(RECORD_PATH))?;
    for folder in [BEFORE_FOLDER, KEPT_BUNDLES_FOLDER, HOOK_OUTPUT_FOLDER] {
        remove_tree(disk, Path::new(folder))?;
    }
    files::remove_durable(disk, Path::new(JOURNAL_PATH))?;
    remove_tree(disk, Path::new(STATE_FOLDER))?;
    Ok(Forgotten::Everything)
}

/// Links are removed, never followed.
fn remove_tree(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    if disk.stat(path)?.is_some_and(|stat| stat.kind == Kind::Folder) {
        for name in disk.list(path)? {
            remove_tree(disk, &path.join(name))?;
        }
    }
    files::remove_durable(disk, path)?;
    Ok(())
}

struct ResetExecutor<'a> {
    disk: &'a dyn Disk,
    units: &'a dyn Units,
    record: &'a Record,
    ownership: Ownership,
    clock: &'a dyn Clock,
}

impl Executor<ResetAction> for ResetExecutor<'_> {
    fn check(&self, step: &Step<ResetAction>, history: &History) -> Result<Condition, StepError> {
        match &step.action {
            ResetAction::CheckChanges { force, .. } => self.check_changes(*force),
            ResetAction::CloseGate { path } => match self.gate_is_ours(path)? {
                true => Ok(Condition::Needed("from here on the kubelet does not start".to_owned())),
                false => Ok(Condition::AlreadySo),
            },
            ResetAction::StopUnit { unit } => self.check_stopped(unit),
            ResetAction::DisableUnits { units } => self.check_disabled(units),
            ResetAction::RestoreFiles { .. } => self.check_restored(),
            ResetAction::RemoveFolders { paths } => {
                let empty = |path: &&String| self.is_empty_folder(path);
                first_that(paths, empty, |path| format!("{path} is empty and was not here before"))
            }
            ResetAction::RemoveKubeletState { paths } => {
                let there = |path: &&String| Ok(self.look(path)?.is_some());
                first_that(paths, there, |path| format!("{path} is there"))
            }
            ResetAction::ReloadUnits | ResetAction::RestartUnit { .. } if history.done_before => {
                Ok(Condition::AlreadySo)
            }
            ResetAction::ReloadUnits => Ok(Condition::Needed("unit files may have changed".to_owned())),
            ResetAction::RestartUnit { unit } => Ok(Condition::Needed(format!("{unit} runs with our files"))),
        }
    }

    fn apply(&self, step: &Step<ResetAction>, context: &StepContext<'_>) -> Result<(), StepError> {
        let left = context.deadline.remaining(self.clock);
        match &step.action {
            ResetAction::CheckChanges { force, .. } => self.check_changes(*force).map(drop),
            ResetAction::CloseGate { path } => {
                files::remove_durable(self.disk, Path::new(path)).map(drop).map_err(|error| file_error(&error))
            }
            ResetAction::StopUnit { unit } => {
                self.units.stop_and_wait(&UnitName(unit.clone()), left).map_err(|error| unit_error(&error))
            }
            ResetAction::DisableUnits { units } => {
                let units: Vec<UnitName> = units.iter().cloned().map(UnitName).collect();
                self.units.disable(&units).map_err(|error| unit_error(&error))?;
                files::sync_all(self.disk, &[Path::new(crate::plan::UNIT_FOLDER)]).map_err(|error| file_error(&error))
            }
            ResetAction::RestoreFiles { .. } => self.restore(context),
            ResetAction::RemoveFolders { paths } => self.remove_folders(paths, context),
            ResetAction::RemoveKubeletState { paths } => paths
                .iter()
                .try_for_each(|path| remove_tree(self.disk, Path::new(path)))
                .map_err(|error| file_error(&error)),
            ResetAction::ReloadUnits => self.units.reload(left).map_err(|error| unit_error(&error)),
            ResetAction::RestartUnit { unit } => {
                self.units.restart_and_wait(&UnitName(unit.clone()), left).map_err(|error| unit_error(&error))
            }
        }
    }
}

/// Needed for the first of these of which it is so.
fn first_that(
    paths: &[String],
    mut is_so: impl FnMut(&&String) -> Result<bool, StepError>,
    why: impl Fn(&str) -> String,
) -> Result<Condition, StepError> {
    for path in paths {
        if is_so(&path)? {
            return Ok(Condition::Needed(why(path)));
        }
    }
    Ok(Condition::AlreadySo)
}

impl ResetExecutor<'_> {
    fn look(&self, path: &str) -> Result<Option<host::disk::Stat>, StepError> {
        self.disk.stat(Path::new(path)).map_err(|error| disk_error(&error))
    }

    fn compare(&self, path: &str, file: &FileRecord) -> Result<Now, StepError> {
        before::compare(self.disk, path, file).map_err(|error| disk_error(&error))
    }

    fn check_changes(&self, force: bool) -> Result<Condition, StepError> {
        let mut changed = Vec::new();
        for (path, file) in &self.record.files {
            if self.compare(path, file)? == Now::Changed {
                changed.push(path.as_str());
            }
        }
        if changed.is_empty() || force {
            return Ok(Condition::AlreadySo);
        }
        Err(StepError {
            class: ErrorClass::NeedsOperator,
            message: format!("somebody changed what nodestrap wrote: {}", changed.join(", ")),
            advice: Some(format!("put your changes elsewhere; or --force, which keeps them in {SAVED_FOLDER}")),
        })
    }

    /// As a file, for comparison: a gate is ours whatever is in it, unless it is the one that was there before.
    fn gate_record(&self, path: &str) -> Option<FileRecord> {
        let before = self.record.gates.get(path)?.clone();
        Some(FileRecord { before, wrote: Vec::new(), any_content: true })
    }

    fn gate_is_ours(&self, path: &str) -> Result<bool, StepError> {
        if self.look(path)?.is_none() {
            return Ok(false);
        }
        match self.gate_record(path) {
            Some(gate) => Ok(self.compare(path, &gate)? != Now::AsBefore),
            None => Ok(true),
        }
    }

    fn check_stopped(&self, unit: &str) -> Result<Condition, StepError> {
        let state = self.units.state(&UnitName(unit.to_owned())).map_err(|error| unit_error(&error))?;
        Ok(match state.active {
            ActiveState::Active | ActiveState::Activating | ActiveState::Deactivating => {
                Condition::Needed(format!("{unit} runs"))
            }
            _ => Condition::AlreadySo,
        })
    }

    fn check_disabled(&self, units: &[String]) -> Result<Condition, StepError> {
        let enabled = |unit: &&String| {
            let state = self.units.state(&UnitName((*unit).clone()));
            state.map(|state| state.enabled).map_err(|error| unit_error(&error))
        };
        first_that(units, enabled, |unit| format!("{unit} starts at boot"))
    }

    /// Files, and gates that were there before.
    fn all(&self) -> impl Iterator<Item = (&String, FileRecord)> {
        let files = self.record.files.iter().map(|(path, file)| (path, file.clone()));
        files.chain(self.record.gates.keys().filter_map(|path| Some((path, self.gate_record(path)?))))
    }

    fn check_restored(&self) -> Result<Condition, StepError> {
        for (path, file) in self.all() {
            let leftover = files::has_leftover(self.disk, Path::new(path)).map_err(|error| file_error(&error))?;
            if leftover || self.compare(path, &file)? != Now::AsBefore {
                return Ok(Condition::Needed(format!("{path} is not as it was before")));
            }
        }
        Ok(Condition::AlreadySo)
    }

    fn restore(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        for (path, file) in self.all() {
            if let Some(folder) = Path::new(path).parent() {
                files::remove_leftovers(self.disk, folder).map_err(|error| file_error(&error))?;
            }
            match self.compare(path, &file)? {
                // Seen is not durable; that is made up for below.
                Now::AsBefore => continue,
                Now::Ours => {}
                Now::Changed => self.save(path, context)?,
            }
            before::put_back(self.disk, path, &file.before, self.ownership.owner().is_some())
                .map_err(|error| before_error(&error))?;
        }
        let paths: Vec<&Path> = self.record.files.keys().filter_map(|path| Path::new(path).parent()).collect();
        files::sync_all(self.disk, &paths).map_err(|error| file_error(&error))
    }

    /// Under its own path in a folder apart: beside the file, some program might read the copy.
    fn save(&self, path: &str, context: &StepContext<'_>) -> Result<(), StepError> {
        let Some(stat) = self.look(path)? else { return Ok(()) };
        if stat.kind != Kind::File {
            return Err(StepError::needs_operator(format!("{path:?} is not a file any more"))
                .with_advice("nodestrap did not make it so, and leaves it to you: move it away, then run this again"));
        }
        let content = self.disk.read(Path::new(path), SAVED_LIMIT).map_err(|error| disk_error(&error))?;
        let owner = self.ownership.owner().map(|_| (stat.uid, stat.gid));
        let saved = format!("{SAVED_FOLDER}{path}");
        files::make_folder_durable(self.disk, Path::new(SAVED_FOLDER), STATE_FOLDER_MODE)
            .and_then(|()| {
                let content = content.unwrap_or_default();
                files::write_durable(self.disk, Path::new(&saved), stat.mode, &content, owner)
            })
            .map_err(|error| file_error(&error))?;
        context.detail(format!("{path} was changed by somebody; kept as {saved}"));
        Ok(())
    }

    fn is_empty_folder(&self, path: &str) -> Result<bool, StepError> {
        let is_folder = self.look(path)?.is_some_and(|stat| stat.kind == Kind::Folder);
        Ok(is_folder && self.disk.list(Path::new(path)).map_err(|error| disk_error(&error))?.is_empty())
    }

    fn remove_folders(&self, paths: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
        for path in paths {
            if self.is_empty_folder(path)? {
                files::remove_durable(self.disk, Path::new(path)).map_err(|error| file_error(&error))?;
            } else if self.look(path)?.is_some() {
                context.detail(format!("{path} is not empty and stays"));
            }
        }
        Ok(())
    }
}
