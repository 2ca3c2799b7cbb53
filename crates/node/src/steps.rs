//! How each action of a plan is checked and done on a host.
//!
//! Inputs: a bundle (for contents) and a host. Every action first looks whether it is already so; that, and not the
//! journal, is what makes a rerun correct. Failures are sorted into what a retry may mend and what a person must.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use engine::{Clock, Condition, Digest, ErrorClass, Executor, History, Step, StepContext, StepError, Timestamp};
use host::disk::{Disk, DiskError, Kind};
use host::files::{self, Difference, FileWrite, Staged};
use host::snaps::Snaps;
use host::units::{ActiveState, JobResult, UnitError, UnitName, UnitState, Units};
use render::bundle::Bundle;

use crate::before::{self, BeforeError, Wanted};
use crate::gate::{self, GateState};
use crate::hook_output::HookOutput;
use crate::plan::{AFTER_KUBELET, Action, FOLDERS, PlannedFile, UNIT_FOLDER, has_line, unit_text};
use crate::refusals::Refusal;
use crate::timekeeping;

/// A marker says a line, if anything.
const MARKER_LIMIT: u64 = 64 * 1024;
/// Folders that programs of the node read.
const FOLDER_MODE: u32 = 0o755;

pub(crate) struct NodeExecutor<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) units: &'a dyn Units,
    pub(crate) snaps: &'a dyn Snaps,
    pub(crate) bundle: &'a Bundle,
    pub(crate) plan: Digest,
    pub(crate) ownership: Ownership,
    pub(crate) clock: &'a dyn Clock,
    /// `stage-files` found every file as planned, so nothing has changed one since and nobody needs to look again.
    pub(crate) files_are_as_planned: AtomicBool,
    /// The journal tells of files that were switched in, by whichever plan, and were not taken back since.
    pub(crate) committed_before: bool,
    /// When the journal was last written, by the clock of then.
    pub(crate) newest_record: Timestamp,
    /// What `stage-files` left for `commit-files` of the same run.
    pub(crate) staged: Mutex<Option<Staged>>,
}

/// A temporary file beside the one that it was for, left by an interrupted run.
#[derive(Clone, Copy, PartialEq)]
enum Leftovers {
    Count,
    /// Whoever looks for strays lists the folders anyway and finds them all.
    AreStrays,
}

/// Who owns the files of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// A machine: everything belongs to root.
    Root,
    /// A sandbox folder of somebody who is not root: files stay theirs.
    Keep,
}

impl Ownership {
    pub(crate) fn owner(self) -> Option<(u32, u32)> {
        match self {
            Self::Root => Some((0, 0)),
            Self::Keep => None,
        }
    }
}

impl Executor<Action> for NodeExecutor<'_> {
    fn check(&self, step: &Step<Action>, history: &History) -> Result<Condition, StepError> {
        match &step.action {
            Action::CheckBundle { refusals, remarks } => check_bundle(refusals, remarks, history),
            Action::CheckPrograms { paths } => self.check_programs(paths),
            Action::KeepBefore => Ok(match self.wanted().missing().map_err(|error| before_error(&error))? {
                None => Condition::AlreadySo,
                Some(why) => Condition::Needed(why),
            }),
            Action::RemoveFiles => self.check_obsolete(),
            Action::CheckClock => self.check_clock(),
            Action::RebootIfRequired { markers } => self.check_reboot(markers),
            Action::MakeFolders { paths } => self.check_folders(paths),
            Action::StageFiles { files } => {
                let condition = match self.check_files(files, Leftovers::AreStrays)? {
                    Condition::AlreadySo => self.check_strays(files)?,
                    needed => needed,
                };
                self.files_are_as_planned.store(condition == Condition::AlreadySo, Ordering::Relaxed);
                Ok(condition)
            }
            Action::CommitFiles { .. } | Action::VerifyFiles { .. }
                if self.files_are_as_planned.load(Ordering::Relaxed) =>
            {
                Ok(Condition::AlreadySo)
            }
            // Whoever staged them has just looked.
            Action::CommitFiles { files } if self.has_staged() => {
                Ok(Condition::Needed(format!("{} files are staged", files.len())))
            }
            Action::CommitFiles { files } | Action::VerifyFiles { files } => self.check_files(files, Leftovers::Count),
            Action::CommitHooks { files } => self.check_files(files, Leftovers::Count),
            Action::RunHook { .. } if history.done_before => Ok(Condition::AlreadySo),
            Action::RunHook { unit, .. } => Ok(Condition::Needed(format!("{unit} has not run for this plan"))),
            Action::CloseGate { path } => self.check_gate_closed(path),
            Action::ReloadUnits { units } => self.check_reloaded(units, history),
            Action::EnableUnits { units } => self.check_enabled(units),
            Action::StartUnit { unit } | Action::ReleaseUnit { unit } => self.check_running(unit, history),
            Action::ArmUnit { unit } => self.check_armed(unit),
            Action::AliasSnapApps { aliases } => self.check_aliases(aliases),
            Action::StopSnap { snap, settings } => self.check_snap_stopped(snap, settings, history),
            Action::ResetUnit { unit } => self.check_reset(unit),
            Action::SetSnap { snap, settings } => self.check_snap_settings(snap, settings),
            Action::StartSnap { snap } => self.check_snap_started(snap, history),
            Action::OpenGate { path, .. } => self.check_gate_open(path, history),
        }
    }

    fn apply(&self, step: &Step<Action>, context: &StepContext<'_>) -> Result<(), StepError> {
        self.perform(&step.action, context)
    }
}

impl NodeExecutor<'_> {
    fn perform(&self, action: &Action, context: &StepContext<'_>) -> Result<(), StepError> {
        match action {
            Action::CheckBundle { remarks, .. } => {
                remarks.iter().for_each(|remark| context.detail(remark.as_str()));
                Ok(())
            }
            Action::CheckPrograms { paths } => match self.missing_programs(paths)?.as_slice() {
                [] => Ok(()),
                missing => Err(programs_missing(missing)),
            },
            Action::KeepBefore => self.wanted().keep().map_err(|error| before_error(&error)),
            Action::RemoveFiles => self.remove_obsolete(context),
            Action::CheckClock => self.check_clock().map(drop),
            Action::RebootIfRequired { .. } => self.units.reboot().map_err(|error| unit_error(&error)),
            Action::MakeFolders { paths } => self.make_folders(paths),
            Action::StageFiles { files } => self.stage(files),
            Action::CloseGate { path } => {
                // A gate that was there before nodestrap came is among what is kept.
                files::sync_all(self.disk, &[Path::new(before::RECORD_PATH)])
                    .and_then(|()| files::remove_durable(self.disk, Path::new(path)).map(drop))
                    .map_err(|error| file_error(&error))
            }
            Action::CommitFiles { files } => self.commit(files),
            Action::CommitHooks { files } => self.commit_hooks(files),
            Action::RunHook { hook, slot, unit, required } => {
                // A hook may change what it likes.
                self.files_are_as_planned.store(false, Ordering::Relaxed);
                let output = HookOutput::prepare(self.disk, unit).map_err(|error| disk_error(&error))?;
                let ended = output.run(self.units, context.deadline.remaining(self.clock));
                judge_hook(hook, slot, *required, ended, context)
            }
            Action::VerifyFiles { files } => self.verify(files),
            Action::ReloadUnits { .. } => {
                self.units.reload(context.deadline.remaining(self.clock)).map_err(|error| unit_error(&error))
            }
            Action::EnableUnits { units } => self.units.enable(&names(units)).map_err(|error| unit_error(&error)),
            Action::StartUnit { unit } => self
                .units
                .restart_and_wait(&UnitName(unit.clone()), context.deadline.remaining(self.clock))
                .map_err(|error| unit_error(&error)),
            Action::ArmUnit { unit } => {
                self.units.queue_start(&UnitName(unit.clone())).map_err(|error| unit_error(&error))
            }
            Action::ReleaseUnit { unit } => {
                self.units.queue_restart(&UnitName(unit.clone())).map_err(|error| unit_error(&error))
            }
            Action::AliasSnapApps { aliases } => self.add_aliases(aliases, context),
            Action::StopSnap { snap, .. } => self.stop_snap(snap, context),
            Action::ResetUnit { unit } => {
                self.units.reset_failed(&UnitName(unit.clone())).map_err(|error| unit_error(&error))
            }
            Action::SetSnap { snap, settings } => self.set_snap(snap, settings, context),
            Action::StartSnap { snap } => self.start_snap(snap, context),
            Action::OpenGate { path, environment } => {
                self.open_gate(path, environment).map_err(|error| file_error(&error))
            }
        }
    }

    fn check_programs(&self, paths: &[String]) -> Result<Condition, StepError> {
        match self.missing_programs(paths)?.as_slice() {
            [] => Ok(Condition::AlreadySo),
            missing => Err(programs_missing(missing)),
        }
    }

    fn missing_programs(&self, paths: &[String]) -> Result<Vec<String>, StepError> {
        let mut missing = Vec::new();
        for path in paths {
            // Images link programs to where they really are, so a link counts.
            match self.disk.stat(Path::new(path)).map_err(|error| disk_error(&error))? {
                Some(found) if matches!(found.kind, Kind::File | Kind::Link { .. }) => {}
                _ => missing.push(path.clone()),
            }
        }
        Ok(missing)
    }

    fn check_folders(&self, paths: &[String]) -> Result<Condition, StepError> {
        for path in paths {
            match self.disk.stat(Path::new(path)).map_err(|error| disk_error(&error))? {
                Some(found) if matches!(found.kind, Kind::Folder | Kind::Link { .. }) => {}
                Some(_) => {
                    return Err(StepError {
                        class: ErrorClass::NeedsOperator,
                        message: format!("{path:?} must be a folder, but something else is there"),
                        advice: Some("move it away; nodestrap replaces nothing that it did not make".to_owned()),
                    });
                }
                None => return Ok(Condition::Needed(format!("{path} is not there"))),
            }
        }
        Ok(Condition::AlreadySo)
    }

    fn make_folders(&self, paths: &[String]) -> Result<(), StepError> {
        for path in paths {
            self.disk.make_folder(Path::new(path), FOLDER_MODE).map_err(|error| disk_error(&error))?;
        }
        Ok(())
    }

    fn check_files(&self, planned: &[PlannedFile], leftovers: Leftovers) -> Result<Condition, StepError> {
        let mut differing = 0_usize;
        let mut first = None;
        for write in self.writes(planned)? {
            let difference = files::matches(self.disk, &write).map_err(|error| file_error(&error))?;
            let leftover = leftovers == Leftovers::Count
                && files::has_leftover(self.disk, write.path).map_err(|error| file_error(&error))?;
            if difference != Difference::Same || leftover {
                let what = if leftover { "left over by an interrupted run".to_owned() } else { describe(&difference) };
                differing += 1;
                first.get_or_insert_with(|| format!("{}: {what}", write.path.display()));
            }
        }
        Ok(match first {
            None => Condition::AlreadySo,
            Some(first) if differing == 1 => Condition::Needed(first),
            Some(first) => Condition::Needed(format!("{differing} files, the first is {first}")),
        })
    }

    /// A run of another plan that was cut off may have left files that this plan has no name for.
    fn check_strays(&self, planned: &[PlannedFile]) -> Result<Condition, StepError> {
        for folder in folders(planned) {
            if let Some(stray) = files::leftovers(self.disk, folder).map_err(|error| file_error(&error))?.first() {
                return Ok(Condition::Needed(format!("{}: left over by an interrupted run", stray.display())));
            }
        }
        Ok(Condition::AlreadySo)
    }

    fn stage(&self, planned: &[PlannedFile]) -> Result<(), StepError> {
        let mut removed_any = false;
        for folder in folders(planned) {
            let removed = files::remove_leftovers(self.disk, folder).map_err(|error| file_error(&error))?;
            if !removed.is_empty() {
                self.disk.sync_folder(folder).map_err(|error| disk_error(&error))?;
                removed_any = true;
            }
        }
        // Leftovers may have been all that was wrong.
        if removed_any && self.check_files(planned, Leftovers::AreStrays)? == Condition::AlreadySo {
            return Ok(());
        }
        let staged = files::stage(self.disk, &self.writes(planned)?).map_err(|error| file_error(&error))?;
        *self.staged.lock().unwrap_or_else(PoisonError::into_inner) = Some(staged);
        Ok(())
    }

    fn has_staged(&self) -> bool {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn commit(&self, planned: &[PlannedFile]) -> Result<(), StepError> {
        let left_by_stage = self.staged.lock().unwrap_or_else(PoisonError::into_inner).take();
        let staged = match left_by_stage {
            Some(staged) => staged,
            // A file changed between the two steps' checks, or a first attempt used the staged set up.
            None => files::stage(self.disk, &self.writes(planned)?).map_err(|error| file_error(&error))?,
        };
        self.switch_in(staged)
    }

    /// What was there before is durable when the first name is switched.
    fn switch_in(&self, mut staged: Staged) -> Result<(), StepError> {
        staged.sync_before_switch(self.disk, Path::new(before::RECORD_PATH)).map_err(|error| disk_error(&error))?;
        files::commit(self.disk, staged).map_err(|error| file_error(&error))
    }

    /// What a run staged that failed before its commit: secrets and space that nobody needs.
    pub(crate) fn discard_staged(&self) {
        if let Some(staged) = self.staged.lock().unwrap_or_else(PoisonError::into_inner).take() {
            files::discard(self.disk, staged);
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            disk: self.disk,
            units: self.units,
            bundle: self.bundle,
            folders: &FOLDERS,
            committed_before: self.committed_before,
        }
    }

    /// Waited for by trying again until the deadline, since a time client may be about to set it.
    fn check_clock(&self) -> Result<Condition, StepError> {
        let earliest = timekeeping::earliest_of_bundle(self.bundle);
        let earliest =
            timekeeping::earliest(self.disk, earliest, self.newest_record).map_err(|error| disk_error(&error))?;
        match timekeeping::decide_clock(self.clock.now(), &earliest) {
            Ok(()) => Ok(Condition::AlreadySo),
            // Its certificates are the kubelet's business by now.
            Err(_) if self.is_complete()? => Ok(Condition::AlreadySo),
            Err(wrong) => Err(StepError::transient(wrong.to_string()).with_advice(timekeeping::ADVICE)),
        }
    }

    /// The gate is open for this very plan.
    fn is_complete(&self) -> Result<bool, StepError> {
        let complete = GateState::Open { plan: self.plan.to_string(), bundle: self.bundle.digest() };
        Ok(self.gate(&self.bundle.gate.path)? == complete)
    }

    /// A node that is complete is not rebooted by us: that is for those who drain it first.
    fn check_reboot(&self, markers: &[String]) -> Result<Condition, StepError> {
        if self.is_complete()? {
            return Ok(Condition::AlreadySo);
        }
        for marker in markers {
            if self.disk.stat(Path::new(marker)).map_err(|error| disk_error(&error))?.is_some() {
                return Ok(Condition::NeedsReboot(format!("{marker} is there{}", self.said_by(marker))));
            }
        }
        Ok(Condition::AlreadySo)
    }

    /// What a marker says about itself: its first line.
    fn said_by(&self, marker: &str) -> String {
        let text = self.disk.read(Path::new(marker), MARKER_LIMIT).ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line: String =
            text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(120).collect();
        if line.trim().is_empty() { String::new() } else { format!(" ({})", line.trim()) }
    }

    fn check_obsolete(&self) -> Result<Condition, StepError> {
        let Some(record) = before::load(self.disk).map_err(|error| disk_error(&error))? else {
            return Ok(Condition::AlreadySo);
        };
        let found = before::obsolete(self.disk, &record, self.bundle).map_err(|error| disk_error(&error))?;
        let all = [&found.units, &found.files, &found.undone];
        Ok(match all.into_iter().flatten().next() {
            None => Condition::AlreadySo,
            Some(first) => {
                let count: usize = all.into_iter().map(Vec::len).sum();
                Condition::Needed(format!("an earlier bundle brought what this one does not: {count}, such as {first}"))
            }
        })
    }

    /// As `reset` would, for what is no more wanted. What the record forgets is durably gone first.
    fn remove_obsolete(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        let Some(mut record) = before::load(self.disk).map_err(|error| disk_error(&error))? else { return Ok(()) };
        let found = before::obsolete(self.disk, &record, self.bundle).map_err(|error| disk_error(&error))?;
        let failed = |error: &UnitError| unit_error(error);
        for name in &found.units {
            let (unit, was) = (UnitName(name.clone()), record.units.remove(name).unwrap_or_default());
            if !was.active {
                let left = context.deadline.remaining(self.clock);
                self.units.stop_and_wait(&unit, left).map_err(|error| failed(&error))?;
            }
            if !was.enabled {
                self.units.disable(&[unit]).map_err(|error| failed(&error))?;
            }
        }
        // Links that a power cut brings back could not be told from others once their unit files are gone.
        files::sync_all(self.disk, &[Path::new(UNIT_FOLDER)]).map_err(|error| file_error(&error))?;
        let owner = self.ownership.owner().is_some();
        for path in found.files.iter().chain(&found.undone) {
            if let Some(file) = record.files.remove(path) {
                before::put_back(self.disk, path, &file.before, owner).map_err(|error| before_error(&error))?;
            }
        }
        before::replace(self.disk, &record).map_err(|error| file_error(&error))
    }

    /// Few and small, so they are staged and switched in at once, and read back here.
    fn commit_hooks(&self, planned: &[PlannedFile]) -> Result<(), StepError> {
        let staged = files::stage(self.disk, &self.writes(planned)?).map_err(|error| file_error(&error))?;
        self.switch_in(staged)?;
        self.verify(planned)
    }

    fn verify(&self, planned: &[PlannedFile]) -> Result<(), StepError> {
        match self.check_files(planned, Leftovers::Count)? {
            Condition::AlreadySo => Ok(()),
            Condition::Needed(what) | Condition::NeedsReboot(what) => Err(StepError {
                class: ErrorClass::NeedsOperator,
                message: format!("read back after writing, these differ: {what}"),
                advice: Some(
                    "another program changes them (stop it), or the disk loses writes (look at dmesg)".to_owned(),
                ),
            }),
        }
    }

    /// The plan names files by digest; their bytes come from the bundle it was made from.
    fn writes(&self, planned: &[PlannedFile]) -> Result<Vec<FileWrite<'_>>, StepError> {
        planned
            .iter()
            .map(|planned| {
                let found = self.bundle.files.binary_search_by(|file| file.path.cmp(&planned.path));
                let file = found.map(|index| &self.bundle.files[index]).map_err(|_| StepError {
                    class: ErrorClass::Permanent,
                    message: format!("the plan names {:?}, which its bundle does not have", planned.path),
                    advice: None,
                })?;
                Ok(FileWrite {
                    path: Path::new(&file.path),
                    mode: file.mode,
                    owner: self.ownership.owner(),
                    content: &file.content,
                })
            })
            .collect()
    }

    fn check_gate_closed(&self, path: &str) -> Result<Condition, StepError> {
        Ok(match self.gate(path)? {
            GateState::Absent => Condition::AlreadySo,
            GateState::Open { plan, .. } if plan == self.plan.to_string() => Condition::AlreadySo,
            GateState::Open { plan, .. } => Condition::Needed(format!("it was opened by plan {plan}")),
            GateState::Damaged { reason } => Condition::Needed(format!("it is damaged: {reason}")),
        })
    }

    /// The journal knows of a gate only once it is durable. One that is seen without it may be the work of a run that
    /// was killed before its last sync: a power cut could still take it away.
    fn check_gate_open(&self, path: &str, history: &History) -> Result<Condition, StepError> {
        let leftover = files::has_leftover(self.disk, Path::new(path)).map_err(|error| file_error(&error))?;
        Ok(match self.gate(path)? {
            GateState::Open { plan, .. } if plan == self.plan.to_string() && !leftover && history.done_before => {
                Condition::AlreadySo
            }
            GateState::Open { plan, .. } if plan == self.plan.to_string() => {
                Condition::Needed("it is there, but nothing says that it would survive a power cut".to_owned())
            }
            _ => Condition::Needed("last, when everything else is in place".to_owned()),
        })
    }

    /// What an earlier run wrote can be seen, but need not be durable if that run was cut off before its sync; nor are
    /// the links by which systemd enables units. So everything the gate vouches for is synced first.
    fn open_gate(&self, path: &str, environment: &BTreeMap<String, String>) -> Result<(), files::FileError> {
        // One file of each folder stands for all: they lie on the same file system.
        let by_folder: BTreeMap<_, _> =
            self.bundle.files.iter().map(|file| Path::new(&file.path)).map(|path| (path.parent(), path)).collect();
        let more = [Path::new(UNIT_FOLDER), Path::new(before::RECORD_PATH)];
        let vouched: Vec<&Path> = by_folder.into_values().chain(more).collect();
        files::sync_all(self.disk, &vouched)?;
        let bytes = gate::render(&self.bundle.gate, environment, &self.bundle.digest(), &self.plan);
        files::write_durable(self.disk, Path::new(path), gate::MODE, &bytes, self.ownership.owner())
    }

    fn gate(&self, path: &str) -> Result<GateState, StepError> {
        gate::observe(self.disk, path).map_err(|error| disk_error(&error))
    }

    fn check_reloaded(&self, units: &[String], history: &History) -> Result<Condition, StepError> {
        if !history.done_before {
            return Ok(Condition::Needed("unit files may have changed".to_owned()));
        }
        for unit in units {
            let state = self.unit_state(unit)?;
            if state.needs_reload || state.active == ActiveState::NotFound {
                return Ok(Condition::Needed(format!("{unit} changed on disk")));
            }
        }
        Ok(Condition::AlreadySo)
    }

    fn check_enabled(&self, units: &[String]) -> Result<Condition, StepError> {
        for unit in units {
            if !self.unit_state(unit)?.enabled {
                return Ok(Condition::Needed(format!("{unit} does not start at boot yet")));
            }
        }
        Ok(Condition::AlreadySo)
    }

    /// A service that already ran before this plan may have read older files, so only a start that this plan's journal
    /// knows of counts.
    fn check_running(&self, unit: &str, history: &History) -> Result<Condition, StepError> {
        let ran_to_its_end = history.done_before && self.ends_by_itself(unit);
        Ok(match self.unit_state(unit)?.active {
            ActiveState::Inactive if ran_to_its_end => Condition::AlreadySo,
            ActiveState::Active | ActiveState::Activating if history.done_before => Condition::AlreadySo,
            ActiveState::Active | ActiveState::Activating => Condition::Needed(format!("{unit} runs with older files")),
            _ => Condition::Needed(format!("{unit} does not run")),
        })
    }

    /// A unit of the bundle that does something and is over: that it does not run any more says nothing.
    fn ends_by_itself(&self, unit: &str) -> bool {
        unit_text(self.bundle, unit).is_some_and(|text| has_line(&text, "Type=oneshot"))
    }

    fn check_armed(&self, unit: &str) -> Result<Condition, StepError> {
        Ok(match self.unit_state(unit)?.active {
            ActiveState::Active | ActiveState::Activating => Condition::AlreadySo,
            _ => Condition::Needed(format!("{unit} must start even if this run dies after opening the gate")),
        })
    }

    /// Asked anew each time: while a machine boots, others start units too.
    fn unit_state(&self, unit: &str) -> Result<UnitState, StepError> {
        self.units.state(&UnitName(unit.to_owned())).map_err(|error| unit_error(&error))
    }
}

/// Where files lie, each once.
fn folders(planned: &[PlannedFile]) -> BTreeSet<&Path> {
    planned.iter().filter_map(|file| Path::new(&file.path).parent()).collect()
}

fn check_bundle(refusals: &[Refusal], remarks: &[String], history: &History) -> Result<Condition, StepError> {
    let joined = |part: fn(&Refusal) -> &str| refusals.iter().map(part).collect::<Vec<_>>().join("; ");
    match (refusals, remarks) {
        ([], []) => Ok(Condition::AlreadySo),
        // A remark is made once, in the journal of the first run.
        ([], _) if history.done_before => Ok(Condition::AlreadySo),
        ([], [remark, ..]) => Ok(Condition::Needed(remark.clone())),
        (_, _) => Err(StepError {
            class: ErrorClass::Permanent,
            message: joined(|refusal| &refusal.reason),
            advice: Some(joined(|refusal| &refusal.advice)),
        }),
    }
}

/// An optional hook that fails leaves a word in the report, and the node goes on.
fn judge_hook(
    hook: &str,
    slot: &str,
    required: bool,
    ended: Result<(), UnitError>,
    context: &StepContext<'_>,
) -> Result<(), StepError> {
    let Err(error) = ended else { return Ok(()) };
    let failed = match &error {
        // Nobody answered, or somebody else took the job away: that says nothing about the hook.
        UnitError::Bus { .. } | UnitError::Call { .. } | UnitError::Job { result: JobResult::Canceled, .. } => false,
        UnitError::Job { .. } | UnitError::Deadline { .. } | UnitError::NotFound { .. } | UnitError::Masked { .. } => {
            true
        }
    };
    match (failed, required) {
        (false, _) => Err(unit_error(&error)),
        (true, false) => {
            context.detail(format!("optional hook {hook:?} ({slot}) failed, the node goes on: {}", chain(&error)));
            Ok(())
        }
        (true, true) => {
            let consequence = match slot {
                AFTER_KUBELET => "the gate is open and the kubelet runs all the same",
                _ => "the gate stays shut",
            };
            Err(StepError {
                class: ErrorClass::Permanent,
                message: format!("required hook {hook:?} ({slot}) failed, {consequence}: {}", chain(&error)),
                advice: Some(
                    "mend the hook in the spec, or let its necessity be optional; it runs again with every apply"
                        .to_owned(),
                ),
            })
        }
    }
}

fn describe(difference: &Difference) -> String {
    match difference {
        Difference::Same => "as it should be".to_owned(),
        Difference::Absent => "not there".to_owned(),
        Difference::Kind { .. } => "not a file".to_owned(),
        Difference::Content => "other content".to_owned(),
        Difference::Mode { found } => format!("mode {found:04o}"),
        Difference::Owner { uid, gid } => format!("owned by {uid}:{gid}"),
    }
}

fn names(units: &[String]) -> Vec<UnitName> {
    units.iter().cloned().map(UnitName).collect()
}

fn programs_missing(missing: &[String]) -> StepError {
    StepError {
        class: ErrorClass::NeedsOperator,
        message: format!("the image does not have {}", missing.join(", ")),
        advice: Some(
            "the runtime source is \"preinstalled\": put them into the image, or name their place in the spec \
             (kubelet.binary, containerRuntime.binary, containerRuntime.cniBinaries)"
                .to_owned(),
        ),
    }
}

pub(crate) fn before_error(error: &BeforeError) -> StepError {
    match error {
        BeforeError::File(error) => file_error(error),
        BeforeError::Unit(error) => unit_error(error),
        BeforeError::Lost { .. } => StepError::needs_operator(chain(error))
            .with_advice("put the file there that belongs there, or take ours away, then run this again"),
    }
}

pub(crate) fn disk_error(error: &DiskError) -> StepError {
    use std::io::ErrorKind;
    let advice = match error.source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space on that file system",
        ErrorKind::ReadOnlyFilesystem => {
            "the file system is read-only: look in dmesg for why, then remount it writable"
        }
        ErrorKind::PermissionDenied => "run as root",
        _ => "look in dmesg for what the disk says",
    };
    StepError { class: ErrorClass::NeedsOperator, message: chain(error), advice: Some(advice.to_owned()) }
}

pub(crate) fn file_error(error: &files::FileError) -> StepError {
    match error {
        files::FileError::Disk(disk) => disk_error(disk),
        other => StepError { class: ErrorClass::NeedsOperator, message: chain(other), advice: None },
    }
}

pub(crate) fn unit_error(error: &UnitError) -> StepError {
    // Where the service manager is a stand-in, its disk is ours: a full one is not waited for.
    if let UnitError::Call { source, .. } = error {
        let disk = source.downcast_ref::<DiskError>().map(disk_error);
        if let Some(found) = disk.or_else(|| source.downcast_ref::<files::FileError>().map(file_error)) {
            return StepError { message: chain(error), ..found };
        }
    }
    let (class, advice) = match error {
        UnitError::Bus { .. } => {
            (ErrorClass::Transient, "is this a machine with systemd and dbus? (--root for a folder)")
        }
        UnitError::NotFound { .. } => (ErrorClass::NeedsOperator, "the image must bring this unit"),
        UnitError::Masked { .. } => (ErrorClass::NeedsOperator, "unmask it, or take it out of the image"),
        UnitError::Job { .. } => (ErrorClass::Transient, "journalctl -u with its name says why"),
        UnitError::Deadline { .. } | UnitError::Call { .. } => (ErrorClass::Transient, "systemctl status says more"),
    };
    StepError { class, message: chain(error), advice: Some(advice.to_owned()) }
}

/// An error with its causes, once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
