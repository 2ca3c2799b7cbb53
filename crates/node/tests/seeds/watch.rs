//! A disk between the product and the fake one: it looks at what could be lost after every effect, and, for tests of
//! the tests, does one thing of the protocol wrongly.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use host::disk::{Disk, DiskError, Extent, FileReader, Folder, LockGuard, Stat};
use host::fake::{FakeDisk, Promise};

use crate::support::GATE;

/// What a gate with these bytes vouches for.
pub(crate) struct Vouched {
    pub(crate) gate: Vec<u8>,
    pub(crate) promise: Promise,
}

/// One thing that a careless protocol does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// Staged files are switched in before they are durable.
    NoFileSystemSync,
    /// The content of the gate and the journal is never synced.
    NoFileSync,
    /// One sync of a whole file system in three is forgotten.
    SyncForgotten,
    /// Names of switched and removed files are never synced.
    NoFolderSync,
    /// Files are overwritten instead of replaced.
    WriteInPlace,
    /// The gate is there as soon as the first file is staged.
    GateFirst,
    /// A gate of an earlier plan stays.
    GateStays,
    /// Temporary files are never taken back.
    NoCleaning,
    /// Files belong to whoever wrote them first.
    NoOwner,
    /// What a file says is taken from the kernel's memory, never from the disk.
    MediumNotRead,
}

impl Defect {
    pub(crate) const ALL: [Self; 10] = [
        Self::NoFileSystemSync,
        Self::SyncForgotten,
        Self::NoFileSync,
        Self::NoFolderSync,
        Self::WriteInPlace,
        Self::GateFirst,
        Self::GateStays,
        Self::NoCleaning,
        Self::NoOwner,
        Self::MediumNotRead,
    ];
}

pub(crate) struct Watched {
    pub(crate) disk: FakeDisk,
    pub(crate) vouched: Arc<Vec<Vouched>>,
    /// Which of these the run is about.
    pub(crate) wanted: usize,
    pub(crate) defect: Defect,
    /// The first untruth that was seen, with the effect after which.
    pub(crate) untruth: Arc<Mutex<Option<String>>>,
}

impl Watched {
    fn after<T>(&self, done: T) -> T {
        if let Some(untruth) = find_untruth(&self.disk, &self.vouched) {
            let effect = self.disk.log().last().cloned().unwrap_or_default();
            let mut first = self.untruth.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(format!("after effect {effect}: {untruth}"));
        }
        done
    }

    fn is_temporary(path: &Path) -> bool {
        path.as_os_str().to_string_lossy().ends_with(".nodestrap-new")
    }

    fn open_gate_too_early(&self) {
        let disk = self.disk.uncounted();
        let gate = Path::new(GATE);
        let _ = disk.remove(gate);
        let _ = disk.make_folder(Path::new("/etc/kubernetes"), 0o755);
        let _ = disk.create(gate, 0o644, &self.vouched[self.wanted].gate);
        let _ = disk.sync_file_system(Path::new("/etc/kubernetes"));
    }

    fn overwrite(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let bytes = self.disk.read(from, 1 << 20)?.unwrap_or_default();
        self.disk.truncate(to, 0)?;
        self.disk.append(to, &bytes)?;
        self.disk.remove(from).map(drop)
    }
}

/// Every gate that could be found after a power loss at this moment must be a true one.
pub(crate) fn find_untruth(disk: &FakeDisk, vouched: &[Vouched]) -> Option<String> {
    for gate in disk.possible_contents(Path::new(GATE)) {
        let broken = match vouched.iter().find(|one| one.gate == gate) {
            Some(one) => disk.find_broken(&one.promise),
            None if bundle::check_gate(&gate).is_ok() => Some("a gate that no plan opens".to_owned()),
            None => None,
        };
        if let Some(broken) = broken {
            return Some(format!("the gate could be found open, but {broken}"));
        }
    }
    None
}

impl Disk for Watched {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.disk.read(path, limit)
    }
    fn read_end(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.disk.read_end(path, limit)
    }
    fn stat(&self, path: &Path) -> Result<Option<Stat>, DiskError> {
        self.disk.stat(path)
    }
    fn open(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError> {
        self.disk.open(path)
    }
    fn open_medium(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError> {
        match self.defect {
            Defect::MediumNotRead => self.disk.open(path),
            _ => self.disk.open_medium(path),
        }
    }
    fn enter(&self, folder: &Path) -> Result<Box<dyn Folder>, DiskError> {
        self.disk.enter(folder)
    }
    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError> {
        self.disk.list(folder)
    }
    fn create(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<(), DiskError> {
        if self.defect == Defect::GateFirst {
            self.open_gate_too_early();
        }
        self.after(self.disk.create(path, mode, bytes))
    }
    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        self.after(self.disk.append(path, bytes))
    }
    fn truncate(&self, path: &Path, length: u64) -> Result<(), DiskError> {
        self.after(self.disk.truncate(path, length))
    }
    fn empty_start(&self, path: &Path, kept: u64) -> Result<(), DiskError> {
        self.after(self.disk.empty_start(path, kept))
    }
    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        self.after(self.disk.make_folder(path, mode))
    }
    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError> {
        self.after(self.disk.symlink(target, path))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        if self.defect == Defect::WriteInPlace && self.disk.stat(to)?.is_some() {
            return self.after(self.overwrite(from, to));
        }
        self.after(self.disk.rename(from, to))
    }
    fn exchange(&self, one: &Path, other: &Path) -> Result<(), DiskError> {
        self.after(self.disk.exchange(one, other))
    }
    fn remove(&self, path: &Path) -> Result<bool, DiskError> {
        match self.defect {
            Defect::GateStays if path == Path::new(GATE) => Ok(true),
            Defect::NoCleaning if Self::is_temporary(path) && self.disk.stat(path)?.is_some() => {
                // What is in the way of a new one goes; it comes back under another name.
                let kept = path.with_extension("old.nodestrap-new");
                let _ = self.disk.uncounted().remove(&kept);
                self.after(self.disk.rename(path, &kept).map(|()| true))
            }
            _ => self.after(self.disk.remove(path)),
        }
    }
    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> Result<(), DiskError> {
        let (uid, gid) = if self.defect == Defect::NoOwner { (1000, 1000) } else { (uid, gid) };
        self.after(self.disk.set_owner(path, uid, gid))
    }
    fn read_medium(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        match self.defect {
            Defect::MediumNotRead => self.disk.read(path, limit),
            _ => self.disk.read_medium(path, limit),
        }
    }
    fn sync(&self, extent: Extent<'_>) -> Result<(), DiskError> {
        let forgotten = match (self.defect, extent) {
            (Defect::NoFileSync, Extent::File(_))
            | (Defect::NoFolderSync, Extent::Folder(_))
            | (Defect::NoFileSystemSync, Extent::FileSystem(_)) => true,
            (Defect::SyncForgotten, Extent::FileSystem(_)) => self.disk.operations().is_multiple_of(3),
            _ => false,
        };
        if forgotten { Ok(()) } else { self.after(self.disk.sync(extent)) }
    }
    fn try_lock(&self, path: &Path) -> Result<Option<LockGuard>, DiskError> {
        self.after(self.disk.try_lock(path))
    }
}
