//! What lies below an open folder: links are never followed on the way, and file systems never changed.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::rooted::{BASE, RESOLVE_ATTEMPTS, retry};
use super::{Disk, DiskError, Kind};

/// Deeper than any tree that we make; every level holds a descriptor.
const DEEPEST: usize = 256;
const STRICT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// How the kernel is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In one call: `openat2`.
    AtOnce,
    /// On kernels before 5.6, or behind a filter that hides `openat2`: name by name.
    StepByStep,
}

/// Opens what a relative path leads to.
pub(super) fn open(folder: &OwnedFd, path: &Path, flags: OFlags, way: Way) -> io::Result<OwnedFd> {
    match way {
        Way::AtOnce => open_at_once(folder, path, flags),
        Way::StepByStep => open_step_by_step(folder, path, flags),
    }
}

fn open_at_once(folder: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    for _ in 0..RESOLVE_ATTEMPTS {
        match rustix::fs::openat2(folder, path, flags | BASE, Mode::empty(), STRICT) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
    Err(Errno::AGAIN.into())
}

fn open_step_by_step(folder: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let device = rustix::fs::fstat(folder)?.st_dev;
    let step = |from: &OwnedFd, name: &OsStr, flags: OFlags| -> io::Result<OwnedFd> {
        let opened = retry(|| rustix::fs::openat(from, name, flags | OFlags::NOFOLLOW | BASE, Mode::empty()))?;
        if rustix::fs::fstat(&opened)?.st_dev == device { Ok(opened) } else { Err(Errno::XDEV.into()) }
    };
    let on_the_way = OFlags::PATH | OFlags::DIRECTORY;
    let mut names = path.components().peekable();
    let mut here = step(folder, OsStr::new("."), if names.peek().is_none() { flags } else { on_the_way })?;
    while let Some(component) = names.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => OsStr::new("."),
            _ => return Err(Errno::XDEV.into()),
        };
        here = step(&here, name, if names.peek().is_none() { flags } else { on_the_way })?;
    }
    Ok(here)
}

/// [`Disk::remove_tree`] by descriptors: no name is looked up twice.
pub(super) fn remove(folder: &OwnedFd, name: &OsStr, way: Way) -> io::Result<()> {
    let name = CString::new(name.as_bytes())?;
    remove_below(folder, &name, way, DEEPEST)
}

fn remove_below(folder: &OwnedFd, name: &CString, way: Way, levels: usize) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    let Some(levels) = levels.checked_sub(1) else { return Err(too_deep()) };
    let inside = open(folder, Path::new(OsStr::from_bytes(name.as_bytes())), OFlags::RDONLY | OFlags::DIRECTORY, way)?;
    for name in raw_names(&inside)? {
        match remove_below(&inside, &name, way, levels) {
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

fn raw_names(folder: impl AsFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// [`Disk::remove_tree`] by its other verbs, for disks that nobody else can change meanwhile.
pub(super) fn remove_tree(disk: &(impl Disk + ?Sized), path: &Path) -> Result<bool, DiskError> {
    remove_tree_of(disk, path, DEEPEST)
}

fn remove_tree_of(disk: &(impl Disk + ?Sized), path: &Path, levels: usize) -> Result<bool, DiskError> {
    let Some(stat) = disk.stat(path)? else { return Ok(false) };
    if stat.kind == Kind::Folder {
        let levels = levels.checked_sub(1).ok_or_else(|| DiskError::new("remove", path, too_deep()))?;
        for name in disk.list(path)? {
            remove_tree_of(disk, &path.join(name), levels)?;
        }
    }
    disk.remove(path)
}

fn too_deep() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("folders lie more than {DEEPEST} deep"))
}
