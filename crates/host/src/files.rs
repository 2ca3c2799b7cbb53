//! Durable writes: the protocol that makes a file either old or new, whatever happens and whenever.
//!
//! In: a [`Disk`] and files as values (path, mode, owner, bytes). Out: those files, durable when the call returns.
//! Every file is first written whole under a temporary name in its own folder (`.NAME.nodestrap-new`), made durable,
//! and then renamed over the old one. The temporary name is fixed, so an interrupted run leaves at most one per file
//! and the next run replaces it.
//!
//! | call | for | syncs |
//! |---|---|---|
//! | [`write_durable`] | one important file: the gate, a report | its file, which is then read from the disk; its folder |
//! | [`stage`], [`commit`] | many files at once | each file system twice, however many files |
//! | [`prove`] | files that were synced, before somebody vouches for them | nothing: they are read from the disk |
//!
//! Fails with [`FileError`]. A failed call leaves the old files as they were and gives the space of its temporary files
//! back where the disk still allows it. A folder or a link at the place of a file is never replaced: somebody put it
//! there. [`matches()`] tells beforehand, and [`remove_durable`] is the way to say that it may go.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskError, Kind, Look, Stat};
use crate::doubt;

const LEFTOVER_SUFFIX: &str = ".nodestrap-new";
/// Folders that nobody asked for by name are ordinary ones; a caller who wants a tight one makes it before.
const PARENT_FOLDER_MODE: u32 = 0o755;

/// A file as it shall be.
#[derive(Clone, Copy)]
pub struct FileWrite<'a> {
    pub path: &'a Path,
    /// Permission bits (07777).
    pub mode: u32,
    /// User and group; `None`: whoever writes.
    pub owner: Option<(u32, u32)>,
    pub content: &'a [u8],
}

/// How the file on disk differs from the wanted one: the first difference found, in the order of this list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Same,
    Absent,
    /// Not a file at all: a write would be refused.
    Kind {
        found: Kind,
    },
    Content,
    Mode {
        found: u32,
    },
    Owner {
        uid: u32,
        gid: u32,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path:?} is not the absolute path of a file")]
    NotAFilePath { path: String },
    #[error("two files are to be written to {path:?}")]
    WrittenTwice { path: String },
    #[error("a folder is in the way at {path:?}")]
    FolderInTheWay { path: String },
    #[error("a link to {target:?} is in the way at {path:?}")]
    LinkInTheWay { path: String, target: String },
    #[error("something that is not a file is in the way at {path:?}")]
    OtherInTheWay { path: String },
    /// With the number of all such files.
    #[error("the disk lost what was written to {path:?}{}: the kernel shows other bytes than are on it", and_others(*.count))]
    Lost { path: String, count: usize },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

fn and_others(count: usize) -> String {
    if count > 1 { format!(" and {} more", count - 1) } else { String::new() }
}

/// Files that lie ready under their temporary names. Nothing is durable and nothing is visible yet.
#[must_use = "staged files take effect by `commit` only"]
pub struct Staged {
    files: Vec<StagedFile>,
    /// One path on each file system touched.
    file_systems: BTreeMap<u64, PathBuf>,
    /// The same of those that must be durable before the first switch, and are not touched by it.
    before_switch: BTreeMap<u64, PathBuf>,
}

impl Staged {
    /// Has `commit` make the file system of `path` durable too, before the first name is switched: for notes about what
    /// the switch will replace. Costs nothing if a staged file lies there. An absent path is skipped.
    pub fn sync_before_switch(&mut self, disk: &dyn Disk, path: &Path) -> Result<(), DiskError> {
        if let Some(stat) = disk.stat(path)? {
            self.before_switch.entry(stat.device).or_insert_with(|| path.to_owned());
        }
        Ok(())
    }
}

struct StagedFile {
    temporary: PathBuf,
    path: PathBuf,
}

/// Writes one file so that it is old or new at any instant, and new for ever once this returns.
pub fn write_durable(
    disk: &dyn Disk,
    path: &Path,
    mode: u32,
    bytes: &[u8],
    owner: Option<(u32, u32)>,
) -> Result<(), FileError> {
    let (folder, temporary) = places(path)?;
    refuse_obstacle(disk, path)?;
    make_folder_durable(disk, folder, PARENT_FOLDER_MODE)?;
    let file = FileWrite { path, mode, owner, content: bytes };
    switch_in(disk, &temporary, &file, |written| {
        disk.sync_file(written)?;
        // Nothing else has looked at this file yet, so nothing but these bytes can be there.
        match disk.read_medium(written, bytes.len() as u64)?.as_deref() == Some(bytes) {
            true => Ok(()),
            false => Err(lost(disk, &[path])),
        }
    })?;
    Ok(disk.sync_folder(folder)?)
}

/// Writes one file so that it is old or new at any instant for everybody who looks, but not after a power cut: for what a
/// reboot forgets anyway.
pub fn write_volatile(disk: &dyn Disk, path: &Path, mode: u32, bytes: &[u8]) -> Result<(), FileError> {
    let (folder, temporary) = places(path)?;
    refuse_obstacle(disk, path)?;
    disk.make_folder(folder, PARENT_FOLDER_MODE)?;
    let file = FileWrite { path, mode, owner: None, content: bytes };
    switch_in(disk, &temporary, &file, |_| Ok(()))
}

/// Written, settled, and only then the file of that name.
fn switch_in(
    disk: &dyn Disk,
    temporary: &Path,
    file: &FileWrite<'_>,
    settle: impl FnOnce(&Path) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let switched = write_temporary(disk, temporary, file)
        .map_err(FileError::from)
        .and_then(|()| settle(temporary))
        .and_then(|()| Ok(disk.rename(temporary, file.path)?));
    if switched.is_err() {
        // Space back on a full disk; the first error is the one that counts.
        let _ = disk.remove(temporary);
    }
    switched
}

/// Makes a folder and its missing parents (0755), durable by name.
///
/// All folders above are synced, not only those made here: one that exists already may be the work of a run that died
/// before its sync.
pub fn make_folder_durable(disk: &dyn Disk, folder: &Path, mode: u32) -> Result<(), FileError> {
    disk.make_folder(folder, mode)?;
    for above in folder.ancestors().skip(1) {
        disk.sync_folder(above)?;
    }
    Ok(())
}

/// Whether an interrupted write left its temporary file beside this path. A power cut can bring one back even after the
/// switch, on a file system that keeps the new name and forgets that the old one is gone. Writing again removes it.
pub fn has_leftover(disk: &dyn Disk, path: &Path) -> Result<bool, FileError> {
    Ok(disk.stat(&leftover_of(path)?)?.is_some())
}

/// What an interrupted write of this file would leave.
pub fn leftover_of(path: &Path) -> Result<PathBuf, FileError> {
    places(path).map(|(_, temporary)| temporary)
}

/// Removes what [`has_leftover`] tells of; `false` if nothing was there.
pub fn remove_leftover(disk: &dyn Disk, path: &Path) -> Result<bool, FileError> {
    let (_, temporary) = places(path)?;
    Ok(has_leftover(disk, path)? && disk.remove(&temporary)?)
}

/// Makes everything durable on the file systems of these paths: one `syncfs` each.
///
/// For files that were found [`Difference::Same`]: seen is not durable, since the run that wrote them may have died
/// before its sync. Call it before a gate is written that vouches for them. A path that is absent may have been removed a
/// moment ago: the folder counts that it was in.
pub fn sync_all(disk: &dyn Disk, paths: &[&Path]) -> Result<(), FileError> {
    let mut synced = BTreeSet::new();
    for path in paths {
        for place in path.ancestors() {
            let Some(stat) = disk.stat(place)? else { continue };
            if synced.insert(stat.device) {
                // A folder may be where a file system is mounted. Of anything else the folder, because the path itself may
                // be a link that leads nowhere.
                let is_folder = stat.kind == Kind::Folder;
                disk.sync_file_system(if is_folder { place } else { place.parent().unwrap_or(place) })?;
            }
            break;
        }
    }
    Ok(())
}

/// Reads files from the disk itself, past the kernel's memory of them, and fails if one is not as it should be. Call it
/// after [`sync_all`], before a gate is written that vouches for them.
///
/// A file that some program changed since it was written is as it should be, if the disk holds what that program wrote; it
/// is not if there is nothing in it, or zeros, which is what a lost write looks like once the kernel has forgotten it.
pub fn prove(disk: &dyn Disk, files: &[FileWrite<'_>]) -> Result<(), FileError> {
    let mut missing = Vec::new();
    for file in files {
        let limit = file.content.len() as u64;
        // What is gone, no file, or larger than it should be is somebody's doing, and not what a lost write leaves.
        let Some(Look { content: Some(seen), .. }) = disk.look(file.path, limit)? else { continue };
        let held = disk.read_medium(file.path, limit)?.unwrap_or_default();
        let is_whole = held == file.content || (held == seen && !is_hole(&held, file.content));
        if !is_whole {
            missing.push(file.path);
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(lost(disk, &missing)) }
}

/// Writes a file again, of which the disk holds something else than the kernel shows; only the kernel knows what is right.
pub fn mend(disk: &dyn Disk, path: &Path, mode: u32, limit: u64) -> Result<(), FileError> {
    match disk.read(path, limit)? {
        Some(seen) if disk.read_medium(path, limit)?.as_ref() != Some(&seen) => {
            doubt::cast(disk);
            write_durable(disk, path, mode, &seen, None)
        }
        _ => Ok(()),
    }
}

fn is_hole(found: &[u8], wanted: &[u8]) -> bool {
    (found.is_empty() && !wanted.is_empty()) || (found.contains(&0) && !wanted.contains(&0))
}

/// From here on, what can be read counts for nothing.
fn lost(disk: &dyn Disk, paths: &[&Path]) -> FileError {
    doubt::cast(disk);
    let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    FileError::Lost { path: first, count: paths.len() }
}

/// Writes every file under its temporary name. On failure none of them stays behind.
pub fn stage(disk: &dyn Disk, files: &[FileWrite<'_>]) -> Result<Staged, FileError> {
    stage_over(disk, files, &|_, _| false)
}

/// The same where links may be replaced by files, by their place and where they lead: whoever knows made them.
pub fn stage_over(
    disk: &dyn Disk,
    files: &[FileWrite<'_>],
    is_replaceable: &dyn Fn(&Path, &str) -> bool,
) -> Result<Staged, FileError> {
    let mut seen = BTreeSet::new();
    for file in files {
        places(file.path)?;
        if !seen.insert(file.path) {
            return Err(FileError::WrittenTwice { path: file.path.display().to_string() });
        }
        match refuse_obstacle(disk, file.path) {
            Err(FileError::LinkInTheWay { target, .. }) if is_replaceable(file.path, &target) => {}
            other => other?,
        }
    }
    let mut staged = Staged {
        files: Vec::with_capacity(files.len()),
        file_systems: BTreeMap::new(),
        before_switch: BTreeMap::new(),
    };
    for file in files {
        if let Err(error) = stage_one(disk, file, &mut staged) {
            discard(disk, staged);
            return Err(error);
        }
    }
    Ok(staged)
}

fn stage_one(disk: &dyn Disk, file: &FileWrite<'_>, staged: &mut Staged) -> Result<(), FileError> {
    let (folder, temporary) = places(file.path)?;
    disk.make_folder(folder, PARENT_FOLDER_MODE)?;
    staged.files.push(StagedFile { temporary: temporary.clone(), path: file.path.to_owned() });
    write_temporary(disk, &temporary, file)?;
    // The file itself is asked, not its folder: the folder may be reached by a link from another file system.
    let device = disk.stat(&temporary)?.map_or(0, |stat| stat.device);
    staged.file_systems.entry(device).or_insert(temporary);
    Ok(())
}

/// Makes the staged files durable, switches all names, and makes the names durable: two `syncfs` per file system.
///
/// When this returns `Ok`, every file is new for ever. When it fails or dies in between, each single file is old or
/// new; staging and committing again completes the set.
pub fn commit(disk: &dyn Disk, staged: Staged) -> Result<(), FileError> {
    let also = staged.before_switch.iter().filter(|(device, _)| !staged.file_systems.contains_key(device));
    for path in staged.file_systems.values().chain(also.map(|(_, path)| path)) {
        if let Err(error) = disk.sync_file_system(path) {
            discard(disk, staged);
            return Err(error.into());
        }
    }
    for (done, file) in staged.files.iter().enumerate() {
        if let Err(error) = disk.rename(&file.temporary, &file.path) {
            for rest in &staged.files[done..] {
                let _ = disk.remove(&rest.temporary);
            }
            return Err(error.into());
        }
    }
    // The temporary names are gone; their folders are still on the file systems in question.
    for path in staged.file_systems.values() {
        disk.sync_file_system(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(())
}

/// Takes staged files back, as far as the disk still allows.
pub fn discard(disk: &dyn Disk, staged: Staged) {
    for file in staged.files {
        // What cannot be removed now is replaced by the next run.
        let _ = disk.remove(&file.temporary);
    }
}

/// Compares what is on disk with what shall be there. Reads only.
pub fn matches(disk: &dyn Disk, file: &FileWrite<'_>) -> Result<Difference, FileError> {
    let Some(Look { stat, content }) = disk.look(file.path, file.content.len() as u64)? else {
        return Ok(Difference::Absent);
    };
    if stat.kind != Kind::File {
        return Ok(Difference::Kind { found: stat.kind });
    }
    if content.as_deref() != Some(file.content) {
        return Ok(Difference::Content);
    }
    if stat.mode != file.mode & 0o7777 {
        return Ok(Difference::Mode { found: stat.mode });
    }
    if file.owner.is_some_and(|owner| owner != (stat.uid, stat.gid)) {
        return Ok(Difference::Owner { uid: stat.uid, gid: stat.gid });
    }
    Ok(Difference::Same)
}

/// Removes a file, a link or an empty folder for ever. `false` if nothing was there.
pub fn remove_durable(disk: &dyn Disk, path: &Path) -> Result<bool, FileError> {
    let (folder, _) = places(path)?;
    let removed = disk.remove(path)?;
    // Also when nothing was there: an earlier run may have died between the removal and its sync.
    if removed || disk.stat(folder)?.is_some() {
        disk.sync_folder(folder)?;
    }
    Ok(removed)
}

/// Makes a link, or has it lead elsewhere, in one step. Not durable before the folder is synced.
pub fn replace_link(disk: &dyn Disk, path: &Path, target: &str) -> Result<(), FileError> {
    let (folder, temporary) = places(path)?;
    disk.make_folder(folder, PARENT_FOLDER_MODE)?;
    disk.remove(&temporary)?;
    let switched = disk.symlink(target, &temporary).and_then(|()| disk.rename(&temporary, path));
    if switched.is_err() {
        // The first error is the one that counts.
        let _ = disk.remove(&temporary);
    }
    Ok(switched?)
}

/// Temporary files and links that interrupted runs left in a folder.
pub fn leftovers(disk: &dyn Disk, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut found = Vec::new();
    for name in disk.list(folder)? {
        let path = folder.join(&name);
        let is_ours = name.starts_with('.') && name.ends_with(LEFTOVER_SUFFIX);
        let is_one = |stat: Stat| matches!(stat.kind, Kind::File | Kind::Link { .. });
        if is_ours && disk.stat(&path)?.is_some_and(is_one) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes what [`leftovers`] finds, and says what that was.
pub fn remove_leftovers(disk: &dyn Disk, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let removed = leftovers(disk, folder)?;
    for path in &removed {
        disk.remove(path)?;
    }
    Ok(removed)
}

/// The folder of a file and its temporary name there.
fn places(path: &Path) -> Result<(&Path, PathBuf), FileError> {
    match (path.is_absolute(), path.parent(), path.file_name()) {
        (true, Some(folder), Some(name)) => {
            let mut temporary = OsString::from(".");
            temporary.push(name);
            temporary.push(LEFTOVER_SUFFIX);
            Ok((folder, folder.join(temporary)))
        }
        _ => Err(FileError::NotAFilePath { path: path.display().to_string() }),
    }
}

fn refuse_obstacle(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    let path_text = || path.display().to_string();
    match disk.stat(path)?.map(|stat| stat.kind) {
        None | Some(Kind::File) => Ok(()),
        Some(Kind::Folder) => Err(FileError::FolderInTheWay { path: path_text() }),
        Some(Kind::Link { target }) => Err(FileError::LinkInTheWay { path: path_text(), target }),
        Some(Kind::Other) => Err(FileError::OtherInTheWay { path: path_text() }),
    }
}

fn write_temporary(disk: &dyn Disk, temporary: &Path, file: &FileWrite<'_>) -> Result<(), DiskError> {
    match disk.create(temporary, file.mode, file.content) {
        // Left over by an interrupted run.
        Err(error) if error.source.kind() == std::io::ErrorKind::AlreadyExists => {
            disk.remove(temporary)?;
            disk.create(temporary, file.mode, file.content)?;
        }
        other => other?,
    }
    match file.owner {
        Some((uid, gid)) => disk.set_owner(temporary, uid, gid),
        None => Ok(()),
    }
}
