//! A descriptor on each file system that we write to, from before the first write there.
//!
//! The kernel tells of a write that was lost only those who had the file system open when that happened, and everybody else
//! only until one of them has asked. A `syncfs` of a descriptor from after the write would say that all is well, if some
//! other program had synced before. (A lost write of one file is told by `fsync` to the first who asks about that very file,
//! whenever they opened it; nobody but us asks about ours. Before Linux 5.8 `syncfs` tells nothing: that is what
//! [`super::Disk::read_medium`] is for.)

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};

/// By `st_dev` of folders. A file system that has several numbers (btrfs, for each of its subvolumes) is held several times.
#[derive(Default)]
pub(super) struct HeldFileSystems {
    by_device: Mutex<BTreeMap<u64, Arc<OwnedFd>>>,
}

impl HeldFileSystems {
    /// From now on, if not before.
    pub(super) fn hold(&self, folder: &OwnedFd) -> io::Result<()> {
        let device = rustix::fs::fstat(folder)?.st_dev;
        let mut held = self.by_device.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Vacant(place) = held.entry(device) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(folder, ".", flags, Mode::empty()));
            // A folder that may be written to but not read is synced by whatever can be opened there later.
            if let Ok(opened) = opened {
                place.insert(Arc::new(opened));
            }
        }
        Ok(())
    }

    /// The one on the file system of `fd`, if we wrote there.
    pub(super) fn find(&self, fd: &OwnedFd) -> io::Result<Option<Arc<OwnedFd>>> {
        let device = rustix::fs::fstat(fd)?.st_dev;
        Ok(self.by_device.lock().unwrap_or_else(PoisonError::into_inner).get(&device).cloned())
    }

    pub(super) fn all(&self) -> Vec<Arc<OwnedFd>> {
        self.by_device.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
