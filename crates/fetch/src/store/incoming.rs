//! An object on its way into the store.

use std::io::{Seek as _, SeekFrom};

use host::Disk;
use host::disk::{DiskError, LockGuard};

use super::{Object, Places, StoreError, Wanted, digest_of, hash};
use crate::digest::Hasher;
use crate::sink::{Sink, SinkError};

/// Takes the bytes of one object, and holds its lock. Dropped, it leaves what it has for the next run.
pub struct Incoming<'a> {
    disk: &'a dyn Disk,
    wanted: Wanted,
    places: Places,
    kept: u64,
    hasher: Hasher,
    /// Held, not read.
    _lock: LockGuard,
}

impl<'a> Incoming<'a> {
    /// The file is there: taking the lock made it.
    pub(super) fn resume(
        disk: &'a dyn Disk,
        wanted: &Wanted,
        places: Places,
        lock: LockGuard,
    ) -> Result<Self, StoreError> {
        let hasher = Hasher::like(&wanted.digest);
        let mut incoming = Self { disk, wanted: *wanted, places, kept: 0, hasher, _lock: lock };
        let found = disk.stat(&incoming.places.partial)?.map_or(0, |stat| stat.size);
        if found > wanted.size || incoming.rehash().is_err() {
            incoming.empty()?;
        }
        Ok(incoming)
    }

    fn rehash(&mut self) -> Result<(), StoreError> {
        if let Some(mut reader) = self.disk.open(&self.places.partial)? {
            let hashed = hash(&mut *reader, &mut self.hasher);
            self.kept = hashed.map_err(|source| StoreError::Read { digest: self.wanted.digest, source })?;
        }
        Ok(())
    }

    fn empty(&mut self) -> Result<(), DiskError> {
        // It is the lock as well, so it is emptied and not removed.
        self.disk.truncate(&self.places.partial, 0)?;
        self.kept = 0;
        self.hasher = Hasher::like(&self.wanted.digest);
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if bytes.len() as u64 > self.wanted.size - self.kept {
            return Err(StoreError::TooLong(self.wanted));
        }
        if let Err(error) = self.disk.append(&self.places.partial, bytes) {
            self.give_back(&error);
            return Err(error.into());
        }
        self.hasher.update(bytes);
        self.kept += bytes.len() as u64;
        Ok(())
    }

    /// A part of the bytes may have been written. A disk that is full gets back all of it: what runs on the node needs the
    /// space more than we do.
    fn give_back(&mut self, error: &DiskError) {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        // The first error is the one that counts; whoever resumes looks at what is there.
        let _ = match error.source.kind() {
            StorageFull | QuotaExceeded => self.empty(),
            _ => self.disk.truncate(&self.places.partial, self.kept),
        };
    }

    /// Whether all bytes came and are the right ones, without touching the disk: tells which mirror sent wrong ones.
    pub fn check(&self) -> Result<(), StoreError> {
        let wanted = self.wanted;
        if self.kept != wanted.size {
            return Err(StoreError::Incomplete { wanted, kept: self.kept });
        }
        let found = self.hasher.clone().finish();
        match found == wanted.digest {
            true => Ok(()),
            false => Err(StoreError::Differs { wanted: wanted.digest, found }),
        }
    }

    /// The object that all the bytes were of: verified, durable and in its place. What has the right size and is not
    /// the right thing is discarded; an incomplete one is kept.
    pub fn finish(mut self) -> Result<Object, StoreError> {
        let object = self.check().and_then(|()| self.settle());
        if let Err(StoreError::Differs { .. } | StoreError::Lost { .. }) = &object {
            self.empty()?;
        }
        object
    }

    fn settle(&self) -> Result<Object, StoreError> {
        let (wanted, Places { partial, object }) = (self.wanted, &self.places);
        self.disk.sync_file(partial)?;
        let failed = |source| StoreError::Read { digest: wanted.digest, source };
        let lost = StoreError::Lost { digest: wanted.digest };
        let Some(mut reader) = self.disk.open_medium(partial)? else { return Err(lost) };
        if digest_of(&mut *reader, &wanted).map_err(failed)? != wanted {
            return Err(lost);
        }
        reader.seek(SeekFrom::Start(0)).map_err(failed)?;
        self.disk.rename(partial, object)?;
        if let Some(folder) = object.parent() {
            self.disk.sync_folder(folder)?;
        }
        Ok(Object { wanted, reader })
    }
}

impl Sink for Incoming<'_> {
    fn kept(&self) -> u64 {
        self.kept
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.take(bytes).map_err(|error| SinkError(error.into()))
    }

    fn discard(&mut self) -> Result<(), SinkError> {
        self.empty().map_err(|error| SinkError(error.into()))
    }
}
