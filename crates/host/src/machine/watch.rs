//! Waiting until something changes at one of several paths, told by the kernel (inotify).
//!
//! In: paths of the running machine, which need not exist. Out: a wake-up for each change near them, sometimes for none.
//! Fails with [`DiskError`] when the kernel has no watch to spare.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use super::wait::{drain, nearest_folder};
use crate::disk::DiskError;

/// What happens in a folder that may matter to who looks at a file in it, and that the folder itself goes away.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

pub struct Watch {
    inotify: OwnedFd,
    paths: Vec<PathBuf>,
}

impl Watch {
    pub fn new(paths: Vec<PathBuf>) -> Result<Self, DiskError> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|source| DiskError::new("watch", Path::new("/"), source))?;
        Ok(Self { inotify, paths })
    }

    /// To be called before looking: what changes from here on ends the next [`Watch::wait`].
    pub fn arm(&self) -> Result<(), DiskError> {
        for path in &self.paths {
            self.arm_one(path).map_err(|source| DiskError::new("watch", path, source))?;
        }
        Ok(())
    }

    fn arm_one(&self, path: &Path) -> io::Result<()> {
        loop {
            // A folder that is watched already stays so.
            match inotify::add_watch(&self.inotify, nearest_folder(path)?.0, CHANGES) {
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                other => return Ok(other.map(drop)?),
            }
        }
    }

    pub fn wait(&self) -> Result<(), DiskError> {
        let wait = || -> io::Result<()> {
            match poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], None) {
                Err(Errno::INTR) => Ok(()),
                other => {
                    other?;
                    drain(&self.inotify)
                }
            }
        };
        wait().map_err(|source| DiskError::new("watch", Path::new("/"), source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_for_every_kind_of_change_also_below_folders_that_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/journal");
        let changes: [&dyn Fn(); 5] = [
            &|| std::fs::create_dir_all(path.parent().unwrap()).unwrap(),
            &|| std::fs::write(&path, "one").unwrap(),
            &|| {
                std::fs::OpenOptions::new()
                    .append(true)
                    .open(&path)
                    .map(|mut file| io::Write::write(&mut file, b"x"))
                    .map(drop)
                    .unwrap()
            },
            &|| std::fs::rename(&path, path.with_extension("old")).unwrap(),
            &|| std::fs::remove_dir_all(folder.path().join("a")).unwrap(),
        ];
        let watch = Watch::new(vec![path.clone()]).unwrap();
        for change in changes {
            watch.arm().unwrap();
            change();
            // Hangs if the change is not seen.
            watch.wait().unwrap();
        }
    }
}
