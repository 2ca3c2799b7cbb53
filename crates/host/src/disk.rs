//! One root folder and the few file-system verbs that nodestrap needs, each a thin wrapper of a system call.
//!
//! Paths are absolute *inside the root*: `/etc/x` with root `/srv/n1` is `/srv/n1/etc/x`, and a symbolic link found on
//! the way is resolved inside the root as a chroot would. Nothing here is durable until it is synced.
//!
//! In: a path and the bytes or bits wanted there. Out: what the kernel did. Fails with [`DiskError`], which names the
//! verb and the path; its source is the kernel's own word (`ENOSPC`, `EROFS`, …), reachable by `raw_os_error`.
//! [`RootedDisk`] is the Linux one; [`crate::fake::FakeDisk`] is the one that loses power.

mod below;
pub(crate) mod folder;
mod held;
mod label;
mod lock;
mod path;
mod rooted;
mod trusted;

use std::io::{Read, Seek};
use std::path::Path;

pub use folder::Folder;
pub use rooted::RootedDisk;

use serde::{Deserialize, Serialize};

use crate::doubt;

/// What is at a path (a link is not followed).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    pub kind: Kind,
    /// Permission bits only (07777).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Which file system holds it (`st_dev`): equal numbers share one `sync_file_system`.
    pub device: u64,
}

/// What is at a path, and what it says.
pub struct Look {
    pub stat: Stat,
    /// `None`: no file, or more than was asked for.
    pub content: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    File,
    Folder,
    Link { target: String },
    Other,
}

/// An open file: it stays the same one, wherever its name leads by now.
pub trait FileReader: Read + Seek + Send {}

impl<T: Read + Seek + Send> FileReader for T {}

/// The operation that failed, on what, and why.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path:?}")]
pub struct DiskError {
    pub operation: &'static str,
    pub path: String,
    pub source: std::io::Error,
}

impl DiskError {
    pub(crate) fn new(operation: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self { operation, path: path.display().to_string(), source: source.into() }
    }
}

/// How much a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent<'a> {
    /// The content of one file.
    File(&'a Path),
    /// The names in one folder.
    Folder(&'a Path),
    /// Everything on the file system that holds the path: one `syncfs`.
    FileSystem(&'a Path),
    /// Everything on every file system that can be written to; of a folder that stands for a machine, on its own ones.
    Everything,
}

pub trait Disk: Send + Sync {
    /// The whole file, or `None` if nothing is there; a link at the path is followed. More than `limit` bytes is an error, never a truncation.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError>;
    /// The last bytes of a file, no more than `limit`; `None` if nothing is there. A link at the path is not followed.
    fn read_end(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError>;
    fn stat(&self, path: &Path) -> Result<Option<Stat>, DiskError>;
    /// What is at a path, and the content if it is a file of no more than `limit` bytes; a link is not followed.
    fn look(&self, path: &Path, limit: u64) -> Result<Option<Look>, DiskError> {
        let Some(stat) = self.stat(path)? else { return Ok(None) };
        let content = if stat.kind == Kind::File && stat.size <= limit { self.read(path, limit)? } else { None };
        Ok(Some(Look { stat, content }))
    }
    /// A file to be read piece by piece, or `None` if nothing is there. A link at the path is not followed.
    fn open(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError>;
    /// The same, of what the disk itself holds: [`Disk::read_medium`] for files that do not fit into memory.
    fn open_medium(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError>;
    /// A folder to be filled without ever leaving it. A link at the path is not followed.
    fn enter(&self, folder: &Path) -> Result<Box<dyn Folder>, DiskError>;
    /// How many bytes may still be written to the file system that holds a path, or its nearest folder that is there; `None` if
    /// nobody knows.
    fn free_space(&self, _path: &Path) -> Result<Option<u64>, DiskError> {
        Ok(None)
    }
    /// Sorted names in a folder; empty if there is no such folder.
    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError>;
    /// Creates a new file with its final mode from the first instant (never wider, whatever the umask); fails if
    /// anything is at the path.
    fn create(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<(), DiskError>;
    /// Appends to a file, creating it 0600 if absent (journals).
    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError>;
    fn truncate(&self, path: &Path, length: u64) -> Result<(), DiskError>;
    /// Gives the space of a file back, but for its last `kept` bytes: what was before them reads as zeros. Nothing that
    /// others append meanwhile is lost, and every byte stays at its place.
    fn empty_start(&self, path: &Path, kept: u64) -> Result<(), DiskError>;
    /// Creates the folder; missing parents are made 0755; existing ones are left as they are.
    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError>;
    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError>;
    /// Replaces the destination in one step.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;
    /// Two things in one folder take each other's name, in one step: nobody ever finds a name without a thing.
    fn exchange(&self, one: &Path, other: &Path) -> Result<(), DiskError>;
    /// `false` if nothing was there. Folders only when empty.
    fn remove(&self, path: &Path) -> Result<bool, DiskError>;
    /// What is at the path and all that lies below, names first that lie deepest; `false` if nothing was there. Links are
    /// removed, not followed, and what is mounted there is an error. Whoever is killed meanwhile calls it again.
    fn remove_tree(&self, path: &Path) -> Result<bool, DiskError> {
        below::remove_tree(self, path)
    }
    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> Result<(), DiskError>;
    /// Where SELinux is at work, tells it that an empty folder is for programs: what is made in it inherits the label. By
    /// itself it would take programs under `/opt` for data, which no unit can be started from.
    fn label_for_programs(&self, _folder: &Path) -> Result<(), DiskError> {
        Ok(())
    }
    /// What the disk itself holds of a file, and not what the kernel remembers of it: for files that were synced. As
    /// [`Disk::read`], but a link at the path is not followed.
    fn read_medium(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError>;
    /// Makes things durable. Callers use the verbs below, which also remember that a sync failed.
    fn sync(&self, extent: Extent<'_>) -> Result<(), DiskError>;
    /// Content of one file is durable.
    fn sync_file(&self, path: &Path) -> Result<(), DiskError> {
        doubt::cast_by(self, self.sync(Extent::File(path)))
    }
    /// Names in one folder are durable.
    fn sync_folder(&self, path: &Path) -> Result<(), DiskError> {
        doubt::cast_by(self, self.sync(Extent::Folder(path)))
    }
    /// Everything on the file system that holds `path` is durable: one `syncfs`.
    fn sync_file_system(&self, path: &Path) -> Result<(), DiskError> {
        doubt::cast_by(self, self.sync(Extent::FileSystem(path)))
    }
    /// What anybody wrote anywhere is durable.
    fn sync_everything(&self) -> Result<(), DiskError> {
        doubt::cast_by(self, self.sync(Extent::Everything))
    }
    /// From now on a write that is lost below one of the system's own folders is told of by [`Disk::sync_everything`], whoever made
    /// it. What is mounted elsewhere somebody may want to unmount, and could not while it is held.
    fn hold_system_folders(&self) -> Result<(), DiskError> {
        Ok(())
    }
    /// An exclusive advisory lock that ends with the process; `None` if another process holds it. The lock file is
    /// 0600; its folder is made if missing.
    fn try_lock(&self, path: &Path) -> Result<Option<LockGuard>, DiskError>;
    /// Whether somebody holds that lock, told without touching it; `None` if that cannot be told.
    fn is_locked(&self, _path: &Path) -> Result<Option<bool>, DiskError> {
        Ok(None)
    }
    /// Who holds a record lock (`fcntl`) on a file, told without touching it; `None` if nobody does, or it cannot be told.
    fn lock_holder(&self, _path: &Path) -> Result<Option<LockHolder>, DiskError> {
        Ok(None)
    }
}

/// A process that holds a lock of the kind that package managers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: u32,
    /// Empty if it is gone by now.
    pub name: String,
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}", self.pid),
            name => write!(f, "{name} (process {})", self.pid),
        }
    }
}

/// As the kernel's own limit.
const MOST_LINKS: usize = 40;

/// What a path leads to in the end, links followed inside the root; `None` if that is nothing, or a circle.
pub fn follow(disk: &dyn Disk, path: &Path) -> Result<Option<Stat>, DiskError> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        match disk.stat(&path)? {
            Some(Stat { kind: Kind::Link { target }, .. }) => {
                path = path.parent().unwrap_or(Path::new("/")).join(target);
            }
            found => return Ok(found),
        }
    }
    Ok(None)
}

/// Held as long as it lives.
pub struct LockGuard(#[allow(dead_code, reason = "the value is held, not read")] Box<dyn Send + Sync>);

impl LockGuard {
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self(Box::new(held))
    }
}
