//! Files on a node: staged beside their targets, switched in as one batch, read back, and put back as they were.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bundle::resource::file::{Found, compare};
use bundle::resource::{Aspect, Difference};
use bundle::{File, MASK, UnitName};
use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, Kind, Look, Stat};
use host::doubt;
use host::files::{self, FileWrite, Staged};
use serde::{Deserialize, Serialize};

use super::record::{self, Before, FileRecord, Now, RECORD_PATH, Record};
use super::{
    Deed, Family, Node, Ownership, UndoPhase, UndoStep, Undoing, Verified, extension, first_that, torcx, unit,
};
use crate::failure::{disk_error, file_error};
use crate::reset::{RESTORE_STEP, ResetAction};
use crate::spending;
use crate::store::STATE_FOLDER_MODE;

pub(crate) struct Files;

/// What somebody changed is kept there by a forced reset, under its own path.
pub const SAVED_FOLDER: &str = "/var/lib/nodestrap-saved";
/// Larger than any file that we write; beyond it somebody else made it what it is.
const SAVED_LIMIT: u64 = 64 * 1024 * 1024;
/// A file that grew beyond this is told by its size.
pub(crate) const COMPARED_BYTES: u64 = 1024 * 1024;
/// The kubelet's own credentials and its kubeconfig: without them it asks to join anew.
pub(crate) const KUBELET_STATE: [&str; 2] = ["/var/lib/kubelet/pki", "/var/lib/kubelet/kubeconfig"];
/// Work on local files: anything near this is a dying disk.
pub(crate) const FILES_DEADLINE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// New contents lie beside the old ones; nothing has changed yet.
    StageFiles { files: Vec<PlannedFile> },
    /// The units of hooks that run before the other files are switched in.
    CommitHooks { files: Vec<PlannedFile> },
    /// What the package manager reads, before anything is fetched.
    CommitSettings { files: Vec<PlannedFile> },
    /// One sync, then every staged file is switched in.
    CommitFiles { files: Vec<PlannedFile> },
    /// Every byte is read back.
    VerifyFiles { files: Vec<PlannedFile> },
}

/// By its digest, so that a plan can be printed, compared and kept without showing a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    pub path: String,
    /// Octal, as people write it.
    pub mode: String,
    pub sha256: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

impl From<&File> for PlannedFile {
    fn from(file: &File) -> Self {
        Self {
            path: file.path.to_string(),
            mode: file.octal_mode(),
            sha256: file.sha256().to_owned(),
            secret: file.is_secret(),
        }
    }
}

/// Files beside their places, and who reads them.
pub(crate) struct StagedFiles {
    staged: Staged,
    readers: BTreeSet<UnitName>,
    count: usize,
}

/// A temporary file beside the one that it was for, left by an interrupted run.
#[derive(Clone, Copy, PartialEq)]
enum Leftovers {
    Count,
    /// Whoever looks for strays lists the folders anyway and finds them all.
    AreStrays,
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::StageFiles { files } => format!("{} files, beside the old ones", files.len()),
            Self::CommitFiles { files } => format!("{} files: one sync, then switched in", files.len()),
            Self::CommitHooks { files } => format!("{} units of hooks, before the other files", files.len()),
            Self::CommitSettings { files } => format!("{} files for the package manager", files.len()),
            Self::VerifyFiles { files } => format!("{} files, read back", files.len()),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::StageFiles { files } => {
                let condition = match trusted(node, condition(node, files, Leftovers::AreStrays)?)? {
                    Condition::AlreadySo => check_strays(node, files)?,
                    needed => needed,
                };
                node.files_are_as_planned.store(condition == Condition::AlreadySo, Ordering::Relaxed);
                Ok(condition)
            }
            Self::CommitFiles { .. } | Self::VerifyFiles { .. }
                if node.files_are_as_planned.load(Ordering::Relaxed) =>
            {
                Ok(Condition::AlreadySo)
            }
            // Whoever staged them has just looked.
            Self::CommitFiles { files } if node.count_staged() > 0 => {
                Ok(Condition::Needed(format!("{} of {} files are staged", node.count_staged(), files.len())))
            }
            Self::CommitHooks { files } | Self::CommitSettings { files } => {
                trusted(node, condition(node, files, Leftovers::Count)?)
            }
            Self::CommitFiles { files } | Self::VerifyFiles { files } => condition(node, files, Leftovers::Count),
        }
    }

    fn apply(&self, node: &Node<'_>, _: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::StageFiles { files } => stage(node, files),
            Self::CommitFiles { files } => {
                let left_by_stage = node.staged.lock().unwrap_or_else(PoisonError::into_inner).take();
                match left_by_stage {
                    Some(staged) => switch_in(node, staged),
                    // A file changed between the two steps' checks, or a first attempt used the staged set up.
                    None => switch_in(node, stage_differing(node, files)?),
                }
            }
            // Few and small, so they are staged and switched in at once, and read back here.
            Self::CommitHooks { files } | Self::CommitSettings { files } => {
                switch_in(node, stage_differing(node, files)?)?;
                read_back(node, files)
            }
            Self::VerifyFiles { files } => read_back(node, files),
        }
    }
}

/// The plan names files by digest; their bytes come from the bundle it was made from.
fn wanted<'n>(node: &'n Node<'_>, planned: &PlannedFile) -> Result<&'n File, StepError> {
    let found = node.files.binary_search_by(|file| file.path.as_str().cmp(&planned.path));
    found
        .map(|index| &node.files[index])
        .map_err(|_| StepError::permanent(format!("the plan names {:?}, which its bundle does not have", planned.path)))
}

pub(crate) fn write<'f>(file: &'f File, ownership: Ownership) -> FileWrite<'f> {
    FileWrite { path: file.path.as_path(), mode: file.mode, owner: ownership.owner(), content: &file.content }
}

/// All differences of one file from what is wanted.
fn look_at(disk: &dyn Disk, file: &File, ownership: Ownership, limit: u64) -> Result<Vec<Difference>, StepError> {
    let look = disk.look(file.path.as_path(), limit).map_err(|error| disk_error(&error))?;
    Ok(match &look {
        None => compare(file, &Found::Absent),
        Some(Look { stat, content }) => compare(file, &found(stat, content.as_deref(), ownership)),
    })
}

pub(crate) fn found<'a>(stat: &Stat, content: Option<&'a [u8]>, ownership: Ownership) -> Found<'a> {
    match &stat.kind {
        Kind::File => Found::File {
            mode: stat.mode,
            owner: ownership.owner().map(|_| (stat.uid, stat.gid)),
            size: stat.size,
            content,
        },
        Kind::Folder => Found::Other("a folder".to_owned()),
        Kind::Link { target } => Found::Other(format!("a link to {target}")),
        Kind::Other => Found::Other("something that is not a file".to_owned()),
    }
}

/// The same, quickly: nobody reads the differences of contents here.
fn is_as_wanted(node: &Node<'_>, file: &File) -> Result<Option<String>, StepError> {
    if file.content.is_spent() {
        return spending::check_spent(node.tools.disk, &node.bundle.join).map(|()| None);
    }
    let difference = files::matches(node.tools.disk, &write(file, node.tools.ownership));
    Ok(match difference.map_err(|error| file_error(&error))? {
        files::Difference::Same => None,
        files::Difference::Absent => Some("not there".to_owned()),
        files::Difference::Kind { .. } => Some("not a file".to_owned()),
        files::Difference::Content => Some("other content".to_owned()),
        files::Difference::Mode { found } => Some(format!("mode {found:04o}")),
        files::Difference::Owner { uid, gid } => Some(format!("owned by {uid}:{gid}")),
    })
}

fn condition(node: &Node<'_>, planned: &[PlannedFile], leftovers: Leftovers) -> Result<Condition, StepError> {
    let mut differing = 0_usize;
    let mut first = None;
    for planned in planned {
        let file = wanted(node, planned)?;
        let mut what = is_as_wanted(node, file)?;
        if leftovers == Leftovers::Count {
            let leftover = files::has_leftover(node.tools.disk, file.path.as_path());
            if leftover.map_err(|error| file_error(&error))? {
                what = Some("left over by an interrupted run".to_owned());
            }
        }
        if let Some(what) = what {
            differing += 1;
            first.get_or_insert_with(|| format!("{}: {what}", file.path));
        }
    }
    Ok(match first {
        None => Condition::AlreadySo,
        Some(first) if differing == 1 => Condition::Needed(first),
        Some(first) => Condition::Needed(format!("{differing} files, the first is {first}")),
    })
}

/// A file that compares equal need not be on the disk, if a sync failed in this boot.
fn trusted(node: &Node<'_>, condition: Condition) -> Result<Condition, StepError> {
    Ok(match condition {
        Condition::AlreadySo if node.is_in_doubt()? => Condition::Needed(
            "a sync failed in this boot, so what can be read need not be on the disk: written anew".to_owned(),
        ),
        condition => condition,
    })
}

/// Where files lie, each once.
fn folders(planned: &[PlannedFile]) -> BTreeSet<&Path> {
    planned.iter().filter_map(|file| Path::new(&file.path).parent()).collect()
}

/// A run of another plan that was cut off may have left files that this plan has no name for.
fn check_strays(node: &Node<'_>, planned: &[PlannedFile]) -> Result<Condition, StepError> {
    for folder in folders(planned) {
        let strays = files::leftovers(node.tools.disk, folder).map_err(|error| file_error(&error))?;
        if let Some(stray) = strays.first() {
            return Ok(Condition::Needed(format!("{}: left over by an interrupted run", stray.display())));
        }
    }
    Ok(Condition::AlreadySo)
}

fn stage(node: &Node<'_>, planned: &[PlannedFile]) -> Result<(), StepError> {
    let (disk, mut removed_any) = (node.tools.disk, false);
    for folder in folders(planned) {
        let removed = files::remove_leftovers(disk, folder).map_err(|error| file_error(&error))?;
        if !removed.is_empty() {
            disk.sync_folder(folder).map_err(|error| disk_error(&error))?;
            removed_any = true;
        }
    }
    // Leftovers may have been all that was wrong.
    if removed_any && trusted(node, condition(node, planned, Leftovers::AreStrays)?)? == Condition::AlreadySo {
        return Ok(());
    }
    let staged = stage_differing(node, planned)?;
    *node.staged.lock().unwrap_or_else(PoisonError::into_inner) = Some(staged);
    Ok(())
}

/// What is there already stays as it is, unless that is in doubt; whoever reads it need not start anew.
fn stage_differing(node: &Node<'_>, planned: &[PlannedFile]) -> Result<StagedFiles, StepError> {
    let disk = node.tools.disk;
    let (mut writes, mut readers) = (Vec::new(), BTreeSet::new());
    let in_doubt = node.is_in_doubt()?;
    for planned in planned {
        let file = wanted(node, planned)?;
        // Whoever looked has removed what an interrupted write left of it.
        if file.content.is_spent() {
            continue;
        }
        let leftover = files::has_leftover(node.tools.disk, file.path.as_path()).map_err(|error| file_error(&error))?;
        let differs = leftover || is_as_wanted(node, file)?.is_some();
        if differs || in_doubt {
            writes.push(write(file, node.tools.ownership));
        }
        if differs {
            readers.extend(file.read_by.units.iter().cloned());
        }
    }
    // Where an earlier bundle had a link to a program, or the mask of a unit, this one may have a file.
    let is_ours = |path: &Path, target: &str| record::is_our_link(target) || record::is_our_mask(disk, path, target);
    let staged = files::stage_over(disk, &writes, &is_ours);
    let staged = staged.map_err(|error| file_error(&error))?;
    Ok(StagedFiles { staged, readers, count: writes.len() })
}

/// What was there before, and that readers have to start anew, is durable when the first name is switched.
fn switch_in(node: &Node<'_>, files: StagedFiles) -> Result<(), StepError> {
    let (disk, StagedFiles { mut staged, readers, .. }) = (node.tools.disk, files);
    let noted = node
        .forget_starts(&readers)
        .and_then(|()| staged.sync_before_switch(disk, Path::new(RECORD_PATH)).map_err(|error| disk_error(&error)));
    if let Err(error) = noted {
        files::discard(disk, staged);
        return Err(error);
    }
    files::commit(disk, staged).map_err(|error| file_error(&error))
}

fn read_back(node: &Node<'_>, planned: &[PlannedFile]) -> Result<(), StepError> {
    match condition(node, planned, Leftovers::Count)? {
        Condition::AlreadySo => Ok(()),
        Condition::Needed(what) | Condition::NeedsReboot(what) => {
            Err(StepError::needs_operator(format!("read back after writing, these differ: {what}"))
                .with_advice("another program changes them (stop it), or the disk loses writes (look at dmesg)"))
        }
    }
}

impl Node<'_> {
    /// A sync failed in this boot, and no run of this bundle on this machine has written everything anew since.
    pub(crate) fn is_in_doubt(&self) -> Result<bool, StepError> {
        doubt::is_cast(self.tools.disk, self.identity.digest().hex()).map_err(|error| disk_error(&error))
    }

    fn count_staged(&self) -> usize {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, |staged| staged.count)
    }

    /// What a run staged that failed before its commit: secrets and space that nobody needs.
    pub(crate) fn discard_staged(&self) {
        if let Some(StagedFiles { staged, .. }) = self.staged.lock().unwrap_or_else(PoisonError::into_inner).take() {
            files::discard(self.tools.disk, staged);
        }
    }
}

impl Family for Files {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        for file in &node.files {
            keep_one(node, record, &file.path, Some(file.sha256()))?;
        }
        // What `nodestrap network` will write.
        match &node.bundle.pod_network {
            Some(network) => keep_one(node, record, &network.cni_config, None),
            None => Ok(()),
        }
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let mut drift = Vec::new();
        for file in &node.files {
            let leftover = files::has_leftover(node.tools.disk, file.path.as_path());
            if leftover.map_err(|error| file_error(&error))? {
                let found = "a temporary file of an interrupted write";
                drift.push(Difference::new(file.path.as_str(), Aspect::Leftover, "none", found));
            }
            drift.extend(look_at(node.tools.disk, file, node.tools.ownership, COMPARED_BYTES)?);
            if file.content.is_spent()
                && let Err(error) = spending::check_spent(node.tools.disk, &node.bundle.join)
            {
                drift.push(Difference::new(
                    file.path.as_str(),
                    Aspect::Presence,
                    "credentials to join with",
                    error.message,
                ));
            }
        }
        Ok(Verified { drift, remarks: Vec::new() })
    }

    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        let cni = node.bundle.pod_network.as_ref().map(|network| network.cni_config.as_str());
        let of_extensions = extension::links::wanted(node, record)?;
        let of_torcx = torcx::paths(node, record)?;
        for (path, file) in &record.files {
            let is_link = node.bundle.trees.iter().any(|tree| tree.links.contains_key(path.as_str()))
                || of_extensions.contains_key(path)
                || of_torcx.contains(path)
                || unit::idle::masks(node.bundle).any(|mask| mask == **path);
            let is_wanted =
                is_link || node.files.iter().any(|wanted| wanted.path == **path) || cni == Some(path.as_str());
            // Whoever changed it wants it; `reset` tells of it.
            if !is_wanted
                && record::compare(node.tools.disk, path, file).map_err(|error| disk_error(&error))? != Now::Changed
            {
                obsolete.files.insert(path.clone(), file.clone());
            }
        }
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let with = |wanted: bool| -> Vec<String> {
            let is_wanted = |before: &Before| (*before == Before::Absent) != wanted;
            record::originals(record).filter(|(_, before)| is_wanted(before)).map(|(path, _)| path.clone()).collect()
        };
        let restore = Undo::RestoreFiles { restored: with(true), removed: with(false) };
        vec![UndoStep {
            phase: UndoPhase::Restore,
            id: RESTORE_STEP.to_owned(),
            deadline: FILES_DEADLINE,
            barrier: false,
            action: ResetAction::File(restore),
        }]
    }
}

fn keep_one(node: &Node<'_>, record: &mut Record, path: &str, sha256: Option<&str>) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let failed = |error: host::disk::DiskError| disk_error(&error);
    let known = match record.files.get_mut(path) {
        Some(known) => known,
        None => {
            let before = match record::look(disk, path).map_err(failed)? {
                // Where a record is missing although files were switched in (an older release, a failing disk), a file that
                // is as the bundle has it is ours and no original.
                Before::File { sha256: found, .. } if node.committed_before && Some(found.as_str()) == sha256 => {
                    Before::Absent
                }
                before => before,
            };
            let new = FileRecord { any_content: sha256.is_none(), ..FileRecord::of_link(before) };
            record.files.entry(path.to_owned()).or_insert(new)
        }
    };
    known.any_content |= sha256.is_none();
    if let Some(sha256) = sha256.filter(|sha256| !known.wrote.iter().any(|wrote| wrote == sha256)) {
        // Until the switch, the file is what an earlier plan of ours made it.
        let found = record::sha256_at(disk, path).map_err(failed)?;
        known.wrote.retain(|wrote| found.as_ref() == Some(wrote));
        known.wrote.push(sha256.to_owned());
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// Nothing that somebody else wrote would be lost.
    CheckChanges {
        paths: Vec<String>,
        force: bool,
    },
    /// What was there before is back; what was not there is gone.
    RestoreFiles {
        restored: Vec<String>,
        removed: Vec<String>,
    },
    RemoveKubeletState {
        paths: Vec<String>,
    },
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        match self {
            Self::CheckChanges { paths, .. } => format!("{} files: changed by nobody else", paths.len()),
            Self::RestoreFiles { restored, removed } => {
                format!("{} put back, {} removed", restored.len(), removed.len())
            }
            Self::RemoveKubeletState { paths } => paths.join(" "),
        }
    }

    fn details(&self) -> Vec<String> {
        let Self::RestoreFiles { restored, removed } = self else { return Vec::new() };
        let back = restored.iter().map(|path| format!("put back  {path}"));
        back.chain(removed.iter().map(|path| format!("removed   {path}"))).collect()
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::CheckChanges { force, .. } => on.check_changes(*force),
            Self::RestoreFiles { .. } => on.check_restored(),
            Self::RemoveKubeletState { paths } => {
                let there = |path: &&String| {
                    let found = on.tools.disk.stat(Path::new(path.as_str())).map_err(|error| disk_error(&error))?;
                    Ok(found.is_some())
                };
                first_that(paths, there, |path| format!("{path} is there"))
            }
        }
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::CheckChanges { force, .. } => on.check_changes(*force).map(drop),
            Self::RestoreFiles { .. } => on.restore(context),
            Self::RemoveKubeletState { paths } => paths
                .iter()
                .try_for_each(|path| remove_tree(on.tools.disk, Path::new(path)))
                .map_err(|error| file_error(&error)),
        }
    }
}

/// Links are removed, never followed.
pub(crate) fn remove_tree(disk: &dyn Disk, path: &Path) -> Result<(), files::FileError> {
    if disk.stat(path)?.is_some_and(|stat| stat.kind == Kind::Folder) {
        for name in disk.list(path)? {
            remove_tree(disk, &path.join(name))?;
        }
    }
    files::remove_durable(disk, path)?;
    Ok(())
}

impl Undoing<'_> {
    pub(crate) fn compare(&self, path: &str, file: &FileRecord) -> Result<Now, StepError> {
        record::compare(self.tools.disk, path, file).map_err(|error| disk_error(&error))
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
        Err(StepError::needs_operator(format!("somebody changed what nodestrap wrote: {}", changed.join(", ")))
            .with_advice(format!("put your changes elsewhere; or --force, which keeps them in {SAVED_FOLDER}")))
    }

    /// Files, and gates that were there before.
    fn all(&self) -> impl Iterator<Item = (&String, FileRecord)> {
        let files = self.record.files.iter().map(|(path, file)| (path, file.clone()));
        files.chain(self.record.gates.keys().filter_map(|path| Some((path, self.gate_record(path)?))))
    }

    fn check_restored(&self) -> Result<Condition, StepError> {
        for (path, file) in self.all() {
            let leftover = files::has_leftover(self.tools.disk, Path::new(path)).map_err(|error| file_error(&error))?;
            if leftover || self.compare(path, &file)? != Now::AsBefore {
                return Ok(Condition::Needed(format!("{path} is not as it was before")));
            }
        }
        Ok(Condition::AlreadySo)
    }

    /// One batch: two syncs per file system, however many files.
    fn restore(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        let disk = self.tools.disk;
        let (mut back, mut gone, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        for (path, file) in self.all() {
            if let Some(folder) = Path::new(path).parent() {
                files::remove_leftovers(disk, folder).map_err(|error| file_error(&error))?;
            }
            match self.compare(path, &file)? {
                // Seen is not durable; that is made up for below.
                Now::AsBefore => continue,
                Now::Ours => {}
                Now::Changed => self.save(path, context)?,
            }
            match &file.before {
                Before::Absent => gone.push(path),
                Before::Link { .. } | Before::Aside => elsewhere.push((path, file.before)),
                Before::File { sha256, mode, uid, gid } => {
                    let content = record::load_original(disk, sha256).map_err(|error| disk_error(&error))?;
                    back.push((path, content.ok_or_else(|| lost(path))?, *mode, (*uid, *gid)));
                }
            }
        }
        let owner = |owner| self.tools.ownership.owner().map(|_| owner);
        let writes: Vec<FileWrite<'_>> = back
            .iter()
            .map(|(path, content, mode, was)| FileWrite {
                path: Path::new(path.as_str()),
                mode: *mode,
                owner: owner(*was),
                content,
            })
            .collect();
        for (path, before) in &elsewhere {
            if !record::put_back(disk, path, before).map_err(|error| file_error(&error))? {
                return Err(lost(path));
            }
        }
        files::stage_over(disk, &writes, &|_, target| record::is_our_link(target) || target == MASK)
            .and_then(|staged| files::commit(disk, staged))
            .and_then(|()| gone.iter().try_for_each(|path| Ok(disk.remove(Path::new(path.as_str())).map(drop)?)))
            .and_then(|()| record::sync_folders(disk, self.record))
            .map_err(|error| file_error(&error))
    }

    /// Under its own path in a folder apart: beside the file, some program might read the copy.
    fn save(&self, path: &str, context: &StepContext<'_>) -> Result<(), StepError> {
        let disk = self.tools.disk;
        let Some(stat) = disk.stat(Path::new(path)).map_err(|error| disk_error(&error))? else { return Ok(()) };
        if stat.kind != Kind::File {
            return Err(StepError::needs_operator(format!("{path:?} is not a file any more"))
                .with_advice("nodestrap did not make it so, and leaves it to you: move it away, then run this again"));
        }
        let content = disk.read(Path::new(path), SAVED_LIMIT).map_err(|error| disk_error(&error))?;
        let owner = self.tools.ownership.owner().map(|_| (stat.uid, stat.gid));
        let saved = format!("{SAVED_FOLDER}{path}");
        files::make_folder_durable(disk, Path::new(SAVED_FOLDER), STATE_FOLDER_MODE)
            .and_then(|()| {
                let content = content.unwrap_or_default();
                files::write_durable(disk, Path::new(&saved), stat.mode, &content, owner)
            })
            .map_err(|error| file_error(&error))?;
        context.detail(format!("{path} was changed by somebody; kept as {saved}"));
        Ok(())
    }
}

fn lost(path: &str) -> StepError {
    StepError::needs_operator(format!("what was at {path:?} before nodestrap came is not kept whole any more"))
        .with_advice("put the file there that belongs there, or take ours away, then run this again")
}
