//! [`Disk`] on Linux: every verb opens the parent folder beneath the root's descriptor (`openat2`, `RESOLVE_IN_ROOT`)
//! and then acts on the bare name with a `*at` call, so that no link and no `..` can lead out of the root.
//!
//! Needs Linux 5.6. An older kernel (or a filter that hides `openat2`) is served with plain paths when the root is `/`,
//! where there is nothing to leave, and refused otherwise.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom, Uid,
};
use rustix::io::Errno;

use super::below::{self, Way};
use super::folder::{self, Folder, RootedFolder};
use super::held::HeldFileSystems;
use super::label;
use super::lock;
use super::path::{relative, split};
use super::{Disk, DiskError, Extent, FileReader, Kind, LockGuard, LockHolder, Look, Stat};
use crate::mounts::{self, MOUNTS, MOUNTS_LIMIT};

/// Opened folders and files never leak into a child process.
pub(super) const BASE: OFlags = OFlags::CLOEXEC;
/// The kernel answers `EAGAIN` when a rename elsewhere raced with `..`; it asks to try again.
pub(super) const RESOLVE_ATTEMPTS: u32 = 64;
/// Where packages and most hooks write; nobody unmounts one of these on a machine that runs.
const SYSTEM_FOLDERS: [&str; 8] = ["/", "/etc", "/opt", "/srv", "/usr", "/var", "/var/lib", "/var/log"];
/// For whoever must not wait for the other end of a named pipe, nor make a terminal theirs.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

pub struct RootedDisk {
    root: OwnedFd,
    resolver: Resolver,
    reach: Reach,
    held: HeldFileSystems,
}

/// What "everything" means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Machine,
    Folder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolver {
    InRoot,
    /// Only for the root `/`.
    PlainPaths,
}

impl RootedDisk {
    pub fn open(root: &Path) -> Result<Self, DiskError> {
        let failed = |source: io::Error| DiskError::new("open the root folder", root, source);
        let flags = OFlags::PATH | OFlags::DIRECTORY | BASE;
        let fd = retry(|| rustix::fs::open(root, flags, Mode::empty())).map_err(|e| failed(e.into()))?;
        Self::beneath(fd, root)
    }

    /// The root is a folder that is open already and may have no name, such as a mount that is attached nowhere.
    pub(crate) fn within(fd: OwnedFd) -> Result<Self, DiskError> {
        Self::beneath(fd, Path::new("."))
    }

    fn beneath(fd: OwnedFd, root: &Path) -> Result<Self, DiskError> {
        let failed = |source: io::Error| DiskError::new("open the root folder", root, source);
        let flags = OFlags::PATH | OFlags::DIRECTORY | BASE;
        let probe = retry(|| rustix::fs::openat2(&fd, ".", flags, Mode::empty(), ResolveFlags::IN_ROOT));
        let resolver = decide_resolver(probe.err(), root).map_err(failed)?;
        let reach = if root == Path::new("/") { Reach::Machine } else { Reach::Folder };
        Ok(Self { root: fd, resolver, reach, held: HeldFileSystems::default() })
    }

    /// Opens a path, links followed inside the root.
    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | BASE;
        if self.resolver == Resolver::PlainPaths {
            return Ok(retry(|| rustix::fs::open(path, flags, Mode::empty()))?);
        }
        for _ in 0..RESOLVE_ATTEMPTS {
            match rustix::fs::openat2(&self.root, relative(path), flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// What is at a path, links followed inside the root, held fast for a call that takes only paths: as
    /// `/proc/self/fd/N` it is this very thing, wherever its name leads by then.
    pub(crate) fn pin(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::PATH)
    }

    fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// The verb on the bare name in its opened folder, with the error named.
    fn at<T>(
        &self,
        operation: &'static str,
        path: &Path,
        act: impl FnOnce(&OwnedFd, &OsStr) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let run = || {
            let parts = split(path)?;
            act(&self.folder(parts.parent)?, parts.name)
        };
        run().map_err(|source| DiskError::new(operation, path, source))
    }

    /// The same, for a verb that changes something there.
    fn change_at<T>(
        &self,
        operation: &'static str,
        path: &Path,
        act: impl FnOnce(&OwnedFd, &OsStr) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        self.at(operation, path, |folder, name| {
            self.held.hold(folder)?;
            act(folder, name)
        })
    }

    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        let fd = self.resolve(folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
        match retry(|| rustix::fs::fsync(&fd)) {
            // A read-only file system (squashfs, erofs) has no fsync, and nothing that could be lost.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_file_system_of(&self, path: &Path) -> io::Result<()> {
        let opened = self.resolve(path, READ)?;
        if let Some(held) = self.held.find(&opened)? {
            return Ok(retry(|| rustix::fs::syncfs(&held))?);
        }
        retry(|| rustix::fs::syncfs(&opened))?;
        // A file of an overlay may have another number than its folder, by which the overlay is held.
        let Some(parent) = path.parent() else { return Ok(()) };
        match self.held.find(&self.folder(parent)?)? {
            Some(held) => Ok(retry(|| rustix::fs::syncfs(&held))?),
            None => Ok(()),
        }
    }

    fn hold_folder(&self, folder: &Path) -> io::Result<()> {
        match self.folder(folder) {
            Err(error) if is_absent(&error) => Ok(()),
            opened => self.held.hold(&opened?),
        }
    }

    /// Mount points that somebody took away or that lie under others cannot be opened, and nothing new is written there.
    fn sync_everything_here(&self) -> Result<(), DiskError> {
        let mounts = match self.reach {
            Reach::Machine => self.read(Path::new(MOUNTS), MOUNTS_LIMIT)?.map(|text| mounts::writable(&text)),
            Reach::Folder => None,
        };
        let Some(mounts) = mounts else { return self.sync_all_held() };
        // Each once, by a place that really leads there.
        let mut reached = BTreeSet::new();
        for (device, at) in mounts {
            if reached.contains(&device) {
                continue;
            }
            let mut sync = || match reached.insert(mounts::device(rustix::fs::fstat(self.pin(&at)?)?.st_dev)) {
                true => self.sync_file_system_of(&at),
                false => Ok(()),
            };
            match sync() {
                Err(error) if is_absent(&error) => {}
                synced => synced.map_err(|source| DiskError::new("sync the file system of", &at, source))?,
            }
        }
        Ok(())
    }

    fn sync_all_held(&self) -> Result<(), DiskError> {
        let root = Path::new("/");
        let failed = |source: io::Error| DiskError::new("sync the file systems below", root, source);
        self.sync_file_system_of(root).map_err(failed)?;
        let sync = |held: &Arc<OwnedFd>| retry(|| rustix::fs::syncfs(held));
        self.held.all().iter().try_for_each(sync).map_err(|error| failed(error.into()))
    }

    fn open_at(&self, folder: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(retry(|| rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW | BASE, Mode::empty()))?)
    }

    fn way_below(&self) -> Way {
        match self.resolver {
            Resolver::InRoot => Way::AtOnce,
            Resolver::PlainPaths => Way::StepByStep,
        }
    }

    fn make_one_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        self.change_at("make folder", path, |folder, name| {
            match rustix::fs::mkdirat(folder, name, bits(mode)) {
                Err(Errno::EXIST) => return Ok(()),
                other => other?,
            }
            let made = self.open_at(folder, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
            // The umask may have taken bits away; it can never have added any. A kill in between leaves the folder
            // tighter than wanted, never wider.
            set_exact_mode(&made, mode)
        })
    }
}

/// What to do with the kernel's answer to the first `openat2`.
fn decide_resolver(probe: Option<Errno>, root: &Path) -> io::Result<Resolver> {
    match probe {
        None => Ok(Resolver::InRoot),
        // A container's system call filter hides unknown calls with either of the two.
        Some(Errno::NOSYS | Errno::PERM) if root == Path::new("/") => Ok(Resolver::PlainPaths),
        Some(Errno::NOSYS | Errno::PERM) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no openat2 (Linux 5.6), without which links could lead out of the folder",
        )),
        Some(other) => Err(other.into()),
    }
}

pub(super) fn bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

pub(super) fn set_exact_mode(fd: &OwnedFd, mode: u32) -> io::Result<()> {
    if rustix::fs::fstat(fd)?.st_mode & 0o7777 != mode & 0o7777 {
        rustix::fs::fchmod(fd, bits(mode))?;
    }
    Ok(())
}

pub(super) fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    rustix::io::retry_on_intr(call)
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry(|| rustix::io::write(fd, bytes))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// One byte more than the limit is asked for, so that a file that grows while it is read cannot slip through.
/// `size` is what the file said of itself; it may lie or change, so it only sizes the buffer.
fn read_limited(fd: OwnedFd, size: u64, limit: u64) -> io::Result<Vec<u8>> {
    // One byte more, so that the end is seen without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0) + 1);
    std::fs::File::from(fd).take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
    }
    Ok(bytes)
}

fn file_size(fd: &OwnedFd) -> io::Result<u64> {
    let stat = rustix::fs::fstat(fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Only what was written back goes from the cache. Where there is none (tmpfs), nothing goes.
fn forget_cached(fd: &OwnedFd) -> io::Result<()> {
    Ok(retry(|| rustix::fs::fadvise(fd, 0, None, Advice::DontNeed))?)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn absent_as_none<T>(result: Result<T, DiskError>) -> Result<Option<T>, DiskError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_absent(&error.source) => Ok(None),
        Err(error) => Err(error),
    }
}

fn stat_at(folder: &OwnedFd, name: &OsStr) -> io::Result<Stat> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
            Kind::Link { target: target.to_string_lossy().into_owned() }
        }
        _ => Kind::Other,
    };
    Ok(described(kind, &stat))
}

fn described(kind: Kind, stat: &rustix::fs::Stat) -> Stat {
    Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        device: stat.st_dev,
    }
}

fn names_in(folder: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

impl Disk for RootedDisk {
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let read = || {
            split(path)?;
            let fd = self.resolve(path, READ)?;
            let stat = rustix::fs::fstat(&fd)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => read_limited(fd, u64::try_from(stat.st_size).unwrap_or(0), limit),
                FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
                _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
            }
        };
        absent_as_none(read().map_err(|source| DiskError::new("read", path, source)))
    }

    fn read_end(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let read = self.at("read the end of", path, |folder, name| {
            let fd = self.open_at(folder, name, READ)?;
            let size = file_size(&fd)?;
            let start = size.saturating_sub(limit);
            rustix::fs::seek(&fd, SeekFrom::Start(start))?;
            let mut bytes = Vec::with_capacity(usize::try_from(size - start).unwrap_or(0));
            std::fs::File::from(fd).take(size - start).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        absent_as_none(read)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, DiskError> {
        absent_as_none(self.at("look at", path, stat_at))
    }

    fn look(&self, path: &Path, limit: u64) -> Result<Option<Look>, DiskError> {
        let opened = split(path).and_then(|_| self.resolve(path, READ | OFlags::NOFOLLOW));
        let found = opened.and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (fd, stat)).map_err(io::Error::from));
        let (fd, stat) = match found {
            Ok((fd, stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => (fd, stat),
            // A link, a folder, a socket: rare, and none has content.
            _ => return Ok(self.stat(path)?.map(|stat| Look { stat, content: None })),
        };
        let stat = described(Kind::File, &stat);
        if stat.size > limit {
            return Ok(Some(Look { stat, content: None }));
        }
        let content = read_limited(fd, stat.size, limit).map_err(|source| DiskError::new("read", path, source))?;
        Ok(Some(Look { stat, content: Some(content) }))
    }

    fn open(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError> {
        let opened = self.at("open", path, |folder, name| {
            let fd = self.open_at(folder, name, READ)?;
            file_size(&fd).map(|_| Box::new(std::fs::File::from(fd)) as Box<dyn FileReader>)
        });
        absent_as_none(opened)
    }

    fn open_medium(&self, path: &Path) -> Result<Option<Box<dyn FileReader>>, DiskError> {
        let opened = self.at("open on the disk", path, |folder, name| {
            let fd = self.open_at(folder, name, READ)?;
            file_size(&fd)?;
            forget_cached(&fd)?;
            Ok(Box::new(std::fs::File::from(fd)) as Box<dyn FileReader>)
        });
        absent_as_none(opened)
    }

    fn enter(&self, path: &Path) -> Result<Box<dyn Folder>, DiskError> {
        self.at("enter", path, |parent, name| {
            let folder = folder::enter(parent, name)?;
            // Nothing below is on another file system.
            self.held.hold(&folder)?;
            Ok(Box::new(RootedFolder { folder, way: self.way_below(), path: path.to_owned() }) as Box<dyn Folder>)
        })
    }

    fn free_space(&self, path: &Path) -> Result<Option<u64>, DiskError> {
        for place in path.ancestors() {
            match self.resolve(place, OFlags::PATH) {
                Err(error) if is_absent(&error) => {}
                found => {
                    let asked = found.and_then(|place| Ok(rustix::fs::fstatvfs(&place)?));
                    let free = asked.map_err(|source| DiskError::new("ask for the space of", place, source))?;
                    return Ok(Some(free.f_bavail.saturating_mul(free.f_frsize)));
                }
            }
        }
        Ok(None)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>, DiskError> {
        let list = || names_in(&self.resolve(folder, OFlags::RDONLY | OFlags::DIRECTORY)?);
        match list() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.map_err(|source| DiskError::new("list", folder, source)),
        }
    }

    fn create(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<(), DiskError> {
        self.change_at("create", path, |folder, name| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | BASE;
            let fd = retry(|| rustix::fs::openat(folder, name, flags, bits(mode)))?;
            // The mode comes last: a write takes set-user-id bits away again.
            let written = write_all(&fd, bytes).and_then(|()| set_exact_mode(&fd, mode));
            if written.is_err() {
                // A full disk gets its space back; the first error is the one that counts.
                let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
            }
            written
        })
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
        self.change_at("append to", path, |folder, name| {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | BASE;
            let fd = retry(|| rustix::fs::openat(folder, name, flags, bits(0o600)))?;
            write_all(&fd, bytes)
        })
    }

    fn truncate(&self, path: &Path, length: u64) -> Result<(), DiskError> {
        self.change_at("truncate", path, |folder, name| {
            let fd = self.open_at(folder, name, OFlags::WRONLY)?;
            Ok(retry(|| rustix::fs::ftruncate(&fd, length))?)
        })
    }

    fn empty_start(&self, path: &Path, kept: u64) -> Result<(), DiskError> {
        self.change_at("empty the start of", path, |folder, name| {
            let fd = self.open_at(folder, name, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
            let emptied = file_size(&fd)?.saturating_sub(kept);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // No space at all is no valid question.
            if emptied == 0 { Ok(()) } else { Ok(retry(|| rustix::fs::fallocate(&fd, flags, 0, emptied))?) }
        })
    }

    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for ancestor in path.ancestors() {
            match self.folder(ancestor) {
                Ok(_) if missing.is_empty() => return Ok(()),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(ancestor.to_owned()),
                Err(source) => return Err(DiskError::new("make folder", path, source)),
            }
        }
        while let Some(folder) = missing.pop() {
            let is_last = missing.is_empty();
            self.make_one_folder(&folder, if is_last { mode } else { 0o755 })?;
        }
        // A dangling link or a file counts as "exists" for mkdir; it must not pass for a folder.
        self.folder(path).map(drop).map_err(|source| DiskError::new("make folder", path, source))
    }

    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError> {
        self.change_at("make link", path, |folder, name| Ok(rustix::fs::symlinkat(target, folder, name)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.change_at("rename to", to, |to_folder, to_name| {
            let parts = split(from)?;
            if Some(parts.parent) == to.parent() {
                return Ok(rustix::fs::renameat(to_folder, parts.name, to_folder, to_name)?);
            }
            let from_folder = self.folder(parts.parent)?;
            Ok(rustix::fs::renameat(&from_folder, parts.name, to_folder, to_name)?)
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<(), DiskError> {
        self.change_at("exchange", other, |folder, name| {
            let parts = split(one)?;
            if Some(parts.parent) != other.parent() {
                return Err(Errno::XDEV.into());
            }
            Ok(rustix::fs::renameat_with(folder, parts.name, folder, name, RenameFlags::EXCHANGE)?)
        })
    }

    fn remove(&self, path: &Path) -> Result<bool, DiskError> {
        let removed =
            self.change_at("remove", path, |folder, name| match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Err(Errno::ISDIR) => Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?),
                other => Ok(other?),
            });
        Ok(absent_as_none(removed)?.is_some())
    }

    fn remove_tree(&self, path: &Path) -> Result<bool, DiskError> {
        let way = self.way_below();
        let removed = self.change_at("remove", path, |folder, name| below::remove(folder, name, way));
        Ok(absent_as_none(removed)?.is_some())
    }

    fn set_owner(&self, path: &Path, uid: u32, gid: u32) -> Result<(), DiskError> {
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        self.change_at("set owner of", path, |folder, name| {
            let before = stat_at(folder, name)?;
            if (before.uid, before.gid) == (uid, gid) {
                return Ok(());
            }
            rustix::fs::chownat(folder, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)?;
            // The kernel clears these bits on a change of owner, for root too.
            if before.kind == Kind::File && before.mode & 0o6000 != 0 {
                set_exact_mode(&self.open_at(folder, name, OFlags::RDONLY)?, before.mode)?;
            }
            Ok(())
        })
    }

    fn label_for_programs(&self, folder: &Path) -> Result<(), DiskError> {
        if self.stat(Path::new(label::SELINUX))?.is_none() {
            return Ok(());
        }
        self.change_at("label", folder, |parent, name| {
            label::set_programs(&self.open_at(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?)
        })
    }

    fn read_medium(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let read = self.at("read from the disk", path, |folder, name| {
            let fd = self.open_at(folder, name, READ)?;
            let size = file_size(&fd)?;
            forget_cached(&fd)?;
            read_limited(fd, size, limit)
        });
        absent_as_none(read)
    }

    fn sync(&self, extent: Extent<'_>) -> Result<(), DiskError> {
        match extent {
            Extent::File(path) => self.at("sync", path, |folder, name| {
                let fd = self.open_at(folder, name, OFlags::RDONLY)?;
                // fdatasync may leave out the mode and the owner.
                Ok(retry(|| rustix::fs::fsync(&fd))?)
            }),
            Extent::Folder(path) => self.sync_names(path).map_err(|source| DiskError::new("sync folder", path, source)),
            Extent::FileSystem(path) => {
                self.sync_file_system_of(path).map_err(|source| DiskError::new("sync the file system of", path, source))
            }
            Extent::Everything => self.sync_everything_here(),
        }
    }

    fn hold_system_folders(&self) -> Result<(), DiskError> {
        let hold = |folder: &Path| {
            self.hold_folder(folder).map_err(|source| DiskError::new("open the file system of", folder, source))
        };
        SYSTEM_FOLDERS.map(Path::new).into_iter().try_for_each(hold)
    }

    fn try_lock(&self, path: &Path) -> Result<Option<LockGuard>, DiskError> {
        if let Some(parent) = path.parent() {
            self.make_folder(parent, 0o755)?;
        }
        self.at("lock", path, lock::take)
    }

    fn is_locked(&self, path: &Path) -> Result<Option<bool>, DiskError> {
        let looked = match self.resolve(path, OFlags::PATH) {
            Err(error) if is_absent(&error) => Ok(Some(false)),
            file => file.and_then(|file| lock::is_taken(&file)),
        };
        looked.map_err(|source| DiskError::new("look at the lock", path, source))
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<LockHolder>, DiskError> {
        let looked = match self.resolve(path, OFlags::RDONLY) {
            Err(error) if is_absent(&error) => Ok(None),
            file => file.and_then(|file| lock::holder(&file)),
        };
        looked.map_err(|source| DiskError::new("look at the lock", path, source))
    }
}

#[cfg(test)]
pub(super) mod tests;
