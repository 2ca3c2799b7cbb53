//! Waiting for a file to appear, told by the kernel (inotify) and not by asking again and again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::disk::DiskError;

/// Waits until something is at `path` (a link counts, wherever it leads); `false` when the deadline passed before.
///
/// `path` is a path of the running machine. Folders on the way may be missing: the nearest one that exists is watched.
pub fn wait_for_file(path: &Path, deadline: Duration) -> Result<bool, DiskError> {
    watch(path, deadline).map_err(|source| DiskError::new("wait for", path, source))
}

fn watch(path: &Path, deadline: Duration) -> io::Result<bool> {
    let start = Instant::now();
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    loop {
        if exists(path)? {
            return Ok(true);
        }
        let (folder, awaited) = nearest_folder(path)?;
        // The last three: the folder itself goes away, and a nearer or farther one is the right one to watch.
        let events = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ATTRIB;
        let watched = match inotify::add_watch(&inotify, folder, events) {
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            other => other?,
        };
        // What appeared before the watch was set sends no event: look once more.
        if !exists(awaited)? {
            let left = deadline.saturating_sub(start.elapsed());
            if left.is_zero() || !wait_readable(&inotify, left)? {
                return exists(path);
            }
            drain(&inotify)?;
        }
        // The kernel has removed it already if the folder is gone.
        let _ = inotify::remove_watch(&inotify, watched);
    }
}

fn exists(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The nearest folder above `path` that exists, and what must appear in it next.
pub(super) fn nearest_folder(path: &Path) -> io::Result<(&Path, &Path)> {
    let mut awaited = path;
    while let Some(folder) = awaited.parent() {
        if folder.is_dir() {
            return Ok((folder, awaited));
        }
        awaited = folder;
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not absolute"))
}

fn wait_readable(inotify: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&timeout)) {
        // The loop looks again and waits for what is left.
        Err(Errno::INTR) => Ok(true),
        other => Ok(other? > 0),
    }
}

pub(super) fn drain(inotify: &OwnedFd) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    loop {
        match reader.next() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(()),
            Err(other) => return Err(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn sees_what_is_there_and_gives_up_on_what_is_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(wait_for_file(folder.path(), Duration::ZERO).unwrap());
        let start = Instant::now();
        assert!(!wait_for_file(&folder.path().join("a/b"), Duration::from_millis(30)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert!(wait_for_file(Path::new("relative/x"), Duration::ZERO).is_err());
    }

    #[test]
    fn wakes_when_the_file_appears_below_missing_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| send.send(wait_for_file(&path, LONG).unwrap()));
            std::thread::sleep(Duration::from_millis(20));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            std::fs::write(folder.path().join("a/b/other"), "").unwrap();
            assert!(receive.try_recv().is_err(), "another file is not the file");
            std::fs::rename(folder.path().join("a/b/other"), &path).unwrap();
            assert!(receive.recv_timeout(LONG).unwrap());
        });
    }

    #[test]
    fn never_misses_a_file_however_the_threads_meet() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..200 {
            let path = folder.path().join(format!("{round}/x"));
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| wait_for_file(&path, LONG).unwrap());
                std::fs::create_dir(path.parent().unwrap()).unwrap();
                std::fs::write(&path, "").unwrap();
                assert!(waiter.join().unwrap());
            });
        }
    }

    #[test]
    fn survives_that_the_watched_folder_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/x");
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_for_file(&path, LONG).unwrap());
            std::thread::sleep(Duration::from_millis(20));
            std::fs::remove_dir(folder.path().join("a")).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            std::fs::create_dir(folder.path().join("a")).unwrap();
            std::fs::write(&path, "").unwrap();
            assert!(waiter.join().unwrap());
        });
    }
}
