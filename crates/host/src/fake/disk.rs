//! [`FakeDisk`]: the trait above the tree, with the crash point in front of every change.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::crash::{Crash, CrashPoint, Moment, Verdict, crashed};
use super::open::{FakeFolder, FakeReader};
use super::tree::{Ino, Lasting, Node, Tree};
use crate::disk::{Disk, DiskError, Extent, FileReader, Folder, Kind, LockGuard, LockHolder, Stat};

const EIO: i32 = 5;

/// A clone is another handle of the same disk.
#[derive(Clone)]
pub struct FakeDisk {
    tree: Arc<Mutex<Tree>>,
    locks: Arc<Mutex<BTreeSet<PathBuf>>>,
    record_locks: Arc<Mutex<BTreeMap<PathBuf, LockHolder>>>,
    crash: Arc<CrashPoint>,
}

/// One thing in a [`FakeDisk::snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Empty for everything but files.
    pub content: Vec<u8>,
}

impl Default for FakeDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeDisk {
    /// An empty root, and `/run`, which is a file system of its own that a power loss empties.
    pub fn new() -> Self {
        let mut tree = Tree::new();
        // An empty tree takes any mount.
        let _ = tree.mount(Path::new("/run"), Lasting::UntilReboot);
        Self::of(tree)
    }

    fn of(tree: Tree) -> Self {
        Self {
            tree: Arc::new(Mutex::new(tree)),
            locks: Arc::default(),
            record_locks: Arc::default(),
            crash: CrashPoint::new(),
        }
    }

    /// Makes `path` a durable file system of its own (and makes the whole tree durable so far).
    pub fn mount(&self, path: &Path) -> Result<(), DiskError> {
        let mounted = self.tree().mount(path, Lasting::Durable);
        mounted.map_err(|source| DiskError::new("mount", path, source))
    }

    /// Where to say when this machine dies or fails, and how many operations it did.
    pub fn crash_point(&self) -> &Arc<CrashPoint> {
        &self.crash
    }

    /// The medium refuses writes for a moment, in which some other program syncs and is told: all that was not synced yet
    /// is lost, can still be read, and no sync of ours will ever say so.
    pub fn lose_writeback(&self) {
        // Everything is there to be lost.
        let _ = self.tree().lose_writeback(Extent::Everything);
    }

    /// Some other program, such as a package manager, holds this file from now on; `None`: nobody does any more.
    pub fn set_lock_holder(&self, path: &Path, holder: Option<LockHolder>) {
        let mut held = self.record_locks.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(path);
        held.extend(holder.map(|holder| (path.to_owned(), holder)));
    }

    pub fn operations(&self) -> u64 {
        self.crash.operations()
    }

    pub fn log(&self) -> Vec<String> {
        self.crash.log()
    }

    /// What a new process finds: a new disk with its own crash point, no locks held.
    pub fn after_crash(&self, crash: Crash, seed: u64) -> Self {
        Self::of(match crash {
            Crash::ProcessKill => self.tree().clone(),
            Crash::PowerLoss => self.tree().after_power_loss(seed),
        })
    }

    /// The same disk without a crash point: for what other processes of the machine do, and for tests to set it up.
    pub fn uncounted(&self) -> Self {
        Self { crash: CrashPoint::new(), ..self.clone() }
    }

    /// The first file that is found whose name ends so.
    pub fn find_name(&self, suffix: &str) -> Option<PathBuf> {
        let tree = self.tree();
        let mut todo = vec![(PathBuf::from("/"), 0)];
        while let Some((path, ino)) = todo.pop() {
            let Node::Folder(folder) = &tree.inode(ino).node else { continue };
            for (name, child) in &folder.now {
                match &tree.inode(*child).node {
                    Node::Folder(_) => todo.push((path.join(name), *child)),
                    _ if name.ends_with(suffix) => return Some(path.join(name)),
                    _ => {}
                }
            }
        }
        None
    }

    /// Everything on the disk by path, without `/`.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Entry> {
        let mut entries = BTreeMap::new();
        self.walk(|tree, path, ino| drop(entries.insert(path, entry(tree, ino))));
        entries
    }

    /// The paths of a snapshot, in no order: nothing is copied.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        self.walk(|_, path, _| paths.push(path));
        paths
    }

    fn walk(&self, mut visit: impl FnMut(&Tree, PathBuf, Ino)) {
        let tree = self.tree();
        let mut todo = vec![(PathBuf::from("/"), 0)];
        while let Some((path, ino)) = todo.pop() {
            if let Node::Folder(folder) = &tree.inode(ino).node {
                todo.extend(folder.now.iter().map(|(name, child)| (path.join(name), *child)));
            }
            if ino != 0 {
                visit(&tree, path, ino);
            }
        }
    }

    /// A digest of the snapshot, without what lies at or below the given paths.
    pub fn tree_digest(&self, excluding: &[&str]) -> String {
        let mut digest = Sha256::new();
        for (path, entry) in self.snapshot() {
            if excluding.iter().any(|prefix| path.starts_with(prefix)) {
                continue;
            }
            let head = format!("{path:?} {:?} {:o} {} {}", entry.kind, entry.mode, entry.uid, entry.gid);
            for part in [head.as_bytes(), &entry.content] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        HEXLOWER.encode(&digest.finalize())
    }

    pub(super) fn with_tree<T>(&self, look: impl FnOnce(&Tree) -> T) -> T {
        look(&self.tree())
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<T>(
        &self,
        operation: &'static str,
        path: &Path,
        look: impl FnOnce(&Tree) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let result = self.crash.read().and_then(|()| look(&self.tree()));
        result.map_err(|source| DiskError::new(operation, path, source))
    }

    fn forget_cached(&self, path: &Path) -> Result<(), DiskError> {
        let dropped = self.crash.read().and_then(|()| match self.tree().drop_cache(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            dropped => dropped,
        });
        dropped.map_err(|source| DiskError::new("read from the disk", path, source))
    }

    /// Of a file that is open already.
    pub(super) fn read_open<T>(&self, look: impl FnOnce(&Tree) -> io::Result<T>) -> io::Result<T> {
        self.crash.read().and_then(|()| look(&self.tree()))
    }

    pub(super) fn change<T>(
        &self,
        operation: &'static str,
        path: &Path,
        what: String,
        change: impl FnOnce(&mut Tree, Moment) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let run = || match self.crash.operation(what)? {
            Verdict::Do => change(&mut self.tree(), Moment::After),
            Verdict::DoThenDie(moment) => change(&mut self.tree(), moment).and(Err(crashed())),
        };
        let done = run();
        if self.crash.loses_writeback_now() {
            self.lose_writeback();
        }
        done.map_err(|source| DiskError::new(operation, path, source))
    }
}

fn entry(tree: &Tree, ino: Ino) -> Entry {
    let inode = tree.inode(ino);
    let (kind, content) = match &inode.node {
        Node::File(file) => (Kind::File, file.now.to_vec()),
        Node::Folder(_) => (Kind::Folder, Vec::new()),
        Node::Link(target) => (Kind::Link { target: target.clone() }, Vec::new()),
    };
    Entry { kind, mode: inode.mode, uid: inode.owner.0, gid: inode.owner.1, content }
}

fn stat(tree: &Tree, ino: Ino) -> Stat {
    let inode = tree.inode(ino);
    let (kind, size) = match &inode.node {
        Node::File(file) => (Kind::File, file.now.len() as u64),
        Node::Folder(_) => (Kind::Folder, 0),
        Node::Link(target) => (Kind::Link { target: target.clone() }, 0),
    };
    Stat { kind, mode: inode.mode, uid: inode.owner.0, gid: inode.owner.1, size, device: inode.device }
}

fn or_none<T>(result: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        other => other,
    }
}

impl Disk for FakeDisk {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.look("read", path, |tree| {
            let Some(ino) = or_none(tree.find(path, true))? else { return Ok(None) };
            match &tree.inode(ino).node {
                Node::File(file) if file.now.len() as u64 > limit => {
                    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")))
                }
                Node::File(file) => Ok(Some(file.now.to_vec())),
                _ => Err(io::ErrorKind::IsADirectory.into()),
            }
        })
    }

    fn read_end(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.look("read the end of", path, |tree| {
            let Some(ino) = or_none(tree.find(path, false))? else { return Ok(None) };
            let Node::File(file) = &tree.inode(ino).node else { return Err(io::ErrorKind::InvalidInput.into()) };
            let start = file.now.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(Some(file.now[start..].to_vec()))
        })
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, DiskError> {
        self.look("look at", path, |tree| {
            let found = or_none(tree.find(path, false))?;
            Ok(found.map(|ino| stat(tree, ino)))
        })
    }

    fn open(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError> {
        self.look("open", path, |tree| {
            let Some(ino) = or_none(tree.find(path, false))? else { return Ok(None) };
            tree.file(ino)?;
            Ok(Some(Box::new(FakeReader::new(self, ino)) as Box<dyn FileReader>))
        })
    }

    fn open_medium(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError> {
        self.forget_cached(path)?;
        self.open(path)
    }

    fn enter(&self, folder: &Path) -> Result<Box<dyn Folder>, DiskError> {
        self.look("enter", folder, |tree| {
            let ino = tree.find(folder, false)?.ok_or(io::ErrorKind::NotFound)?;
            tree.folder(ino)?;
            Ok(Box::new(FakeFolder::new(self, folder)) as Box<dyn Folder>)
        })
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError> {
        self.look("list", folder, |tree| match tree.existing(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            found => Ok(tree.folder(found?)?.now.keys().cloned().collect()),
        })
    }

    fn create(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<(), DiskError> {
        let what = format!("create {} {mode:o} {} bytes", text(path), bytes.len());
        self.change("create", path, what, |tree, moment| tree.create(path, mode, bytes, moment))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        let what = format!("append {} {} bytes", text(path), bytes.len());
        self.change("append to", path, what, |tree, moment| tree.append(path, bytes, moment))
    }

    fn truncate(&self, path: &Path, length: u64) -> Result<(), DiskError> {
        let what = format!("truncate {} {length}", text(path));
        self.change("truncate", path, what, |tree, _| tree.truncate(path, length))
    }

    fn empty_start(&self, path: &Path, kept: u64) -> Result<(), DiskError> {
        let what = format!("empty-start {} {kept}", text(path));
        self.change("empty the start of", path, what, |tree, _| tree.empty_start(path, kept))
    }

    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        let what = format!("make-folder {} {mode:o}", text(path));
        self.change("make folder", path, what, |tree, _| tree.make_folder(path, mode))
    }

    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError> {
        let what = format!("symlink {} {target}", text(path));
        self.change("make link", path, what, |tree, _| tree.symlink(target, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let what = format!("rename {} {}", text(from), text(to));
        self.change("rename to", to, what, |tree, _| tree.rename(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<(), DiskError> {
        let what = format!("exchange {} {}", text(one), text(other));
        self.change("exchange", other, what, |tree, _| tree.exchange(one, other))
    }

    fn remove(&self, path: &Path) -> Result<bool, DiskError> {
        let what = format!("remove {}", text(path));
        self.change("remove", path, what, |tree, _| tree.remove(path))
    }

    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> Result<(), DiskError> {
        let what = format!("set-owner {} {uid}:{gid}", text(path));
        self.change("set owner of", path, what, |tree, _| tree.set_owner(path, (uid, gid)))
    }

    fn read_medium(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.forget_cached(path)?;
        self.read(path, limit)
    }

    fn sync(&self, extent: Extent<'_>) -> Result<(), DiskError> {
        let (operation, path, what) = match extent {
            Extent::File(path) => ("sync", path, format!("sync-file {}", text(path))),
            Extent::Folder(path) => ("sync folder", path, format!("sync-folder {}", text(path))),
            Extent::FileSystem(path) => ("sync the file system of", path, format!("sync-file-system {}", text(path))),
            Extent::Everything => ("sync everything below", Path::new("/"), "sync-everything".to_owned()),
        };
        let synced = self.change(operation, path, what, |tree, _| tree.sync(extent));
        if synced.as_ref().is_err_and(|error| error.source.raw_os_error() == Some(EIO)) {
            // As in Linux: it is told once, and what was not written is never written.
            let _ = self.tree().lose_writeback(extent);
        }
        synced
    }

    fn try_lock(&self, path: &Path) -> Result<Option<LockGuard>, DiskError> {
        let what = format!("lock {}", text(path));
        self.change("lock", path, what, |tree, _| {
            tree.make_folder(path.parent().unwrap_or(Path::new("/")), 0o755)?;
            if tree.find(path, false)?.is_none() {
                tree.append(path, b"", Moment::After)?;
            }
            let taken = self.locks.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
            Ok(taken.then(|| LockGuard::new(HeldLock { locks: self.locks.clone(), path: path.to_owned() })))
        })
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<LockHolder>, DiskError> {
        self.look("look for the holder of", path, |_| {
            Ok(self.record_locks.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned())
        })
    }
}

/// Cheaper than `display`, and every operation is logged.
pub(super) fn text(path: &Path) -> Cow<'_, str> {
    path.to_string_lossy()
}

struct HeldLock {
    locks: Arc<Mutex<BTreeSet<PathBuf>>>,
    path: PathBuf,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}
