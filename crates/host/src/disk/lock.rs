//! Locks that end with the process, on files that may go when they are no longer needed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType};

use super::rooted::{BASE, bits, retry};
use super::{LockGuard, LockHolder};

/// Somebody who takes the file away each time between our opening and our locking it is not there to be waited for.
const ATTEMPTS: u32 = 64;

/// `None` if another process holds it.
pub(super) fn take(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<LockGuard>> {
    for _ in 0..ATTEMPTS {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | BASE;
        let fd = retry(|| rustix::fs::openat(folder, name, flags, bits(0o600)))?;
        match retry(|| rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)) {
            // Whoever held it before may have renamed or removed it: then the next one locks another file of that name.
            Ok(()) if is_still_there(&fd, folder, name)? => return Ok(Some(LockGuard::new(fd))),
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(other) => return Err(other.into()),
        }
    }
    Ok(None)
}

fn is_still_there(fd: &OwnedFd, folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let held = rustix::fs::fstat(fd)?;
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Trying to take it could make somebody else believe that the node is busy. `None` if it cannot be told.
pub(super) fn is_taken(file: &OwnedFd) -> io::Result<Option<bool>> {
    let inode = rustix::fs::fstat(file)?.st_ino;
    Ok(std::fs::read_to_string("/proc/locks").ok().map(|locks| has_lock(&locks, inode)))
}

/// Of a record lock, which apt and dpkg use.
pub(super) fn holder(file: &OwnedFd) -> io::Result<Option<LockHolder>> {
    let question = Flock::from(FlockType::WriteLock);
    let Some(held) = rustix::process::fcntl_getlk(file, &question)? else { return Ok(None) };
    let Some(pid) = held.pid else { return Ok(None) };
    let pid = pid.as_raw_nonzero().get().unsigned_abs();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Ok(Some(LockHolder { pid, name: name.trim().to_owned() }))
}

/// A line is `1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF`; some file systems show another device number than `stat`
/// does, so the inode alone counts. Those who wait for a lock stand behind an arrow.
fn has_lock(locks: &str, inode: u64) -> bool {
    locks.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("FLOCK")
            && words.nth(3).and_then(|place| place.rsplit(':').next()) == Some(inode.to_string().as_str())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk as _, RootedDisk};

    #[test]
    fn a_lock_is_seen_without_being_touched() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RootedDisk::open(folder.path()).unwrap();
        let path = Path::new("/run/lock");
        assert_eq!(disk.is_locked(path).unwrap(), Some(false), "there is no such file");
        let guard = disk.try_lock(path).unwrap().unwrap();
        assert_eq!(disk.is_locked(path).unwrap(), Some(true));
        drop(guard);
        assert_eq!(disk.is_locked(path).unwrap(), Some(false));
        let waiting = "7: FLOCK  ADVISORY  WRITE 9 08:01:42 0 EOF\n7: -> FLOCK  ADVISORY  WRITE 9 08:01:43 0 EOF\n";
        assert!(has_lock(waiting, 42) && !has_lock(waiting, 43) && !has_lock(waiting, 4));
    }

    #[test]
    fn a_lock_file_that_was_taken_away_is_not_the_lock_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let disk = RootedDisk::open(folder.path()).unwrap();
        let path = Path::new("/lock");
        let guard = disk.try_lock(path).unwrap().unwrap();
        let late = rustix::fs::open(folder.path().join("lock"), OFlags::RDWR, bits(0)).unwrap();
        disk.rename(path, Path::new("/object")).unwrap();
        drop(guard);
        retry(|| rustix::fs::flock(&late, FlockOperation::NonBlockingLockExclusive)).unwrap();
        let root = rustix::fs::open(folder.path(), OFlags::PATH, bits(0)).unwrap();
        assert!(!is_still_there(&late, &root, OsStr::new("lock")).unwrap(), "a file of another name");
        let _guard = disk.try_lock(path).unwrap().unwrap();
        assert!(!is_still_there(&late, &root, OsStr::new("lock")).unwrap(), "another file of that name");
    }
}
