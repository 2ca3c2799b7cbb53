//! The journal's bytes on the node's disk.

use std::io;
use std::path::Path;

use engine::LogStore;
use host::disk::{Disk, DiskError};
use host::files;

use crate::failure::chain;

/// Everything that nodestrap remembers about this node.
pub const STATE_FOLDER: &str = "/var/lib/nodestrap";
pub const JOURNAL_PATH: &str = "/var/lib/nodestrap/journal";

/// Hundreds of thousands of steps; a journal beyond this is not one.
const JOURNAL_LIMIT: u64 = 64 * 1024 * 1024;
/// Step details may say more about the machine than everybody on it needs to know.
pub(crate) const STATE_FOLDER_MODE: u32 = 0o700;
const JOURNAL_MODE: u32 = 0o600;

pub(crate) struct JournalFile<'a> {
    disk: &'a dyn Disk,
    /// The file's name must be made durable once, not only its content.
    named: bool,
}

impl<'a> JournalFile<'a> {
    pub(crate) fn new(disk: &'a dyn Disk) -> Self {
        Self { disk, named: false }
    }
}

impl LogStore for JournalFile<'_> {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.disk.read(Path::new(JOURNAL_PATH), JOURNAL_LIMIT).map_err(io_error)?.unwrap_or_default())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.named {
            self.disk.make_folder(Path::new(STATE_FOLDER), STATE_FOLDER_MODE).map_err(io_error)?;
        }
        self.disk.append(Path::new(JOURNAL_PATH), bytes).map_err(io_error)
    }

    fn sync(&mut self) -> io::Result<()> {
        if !self.named && self.disk.stat(Path::new(JOURNAL_PATH)).map_err(io_error)?.is_none() {
            return Ok(()); // nothing was ever written
        }
        self.disk.sync_file(Path::new(JOURNAL_PATH)).map_err(io_error)?;
        if !self.named {
            // All of them: on an image with an empty /var, even the folders above were made by us.
            for folder in Path::new(JOURNAL_PATH).ancestors().skip(1) {
                self.disk.sync_folder(folder).map_err(io_error)?;
            }
            self.named = true;
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.disk.truncate(Path::new(JOURNAL_PATH), length).map_err(io_error)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        files::write_durable(self.disk, Path::new(JOURNAL_PATH), JOURNAL_MODE, bytes, None).map_err(io::Error::other)
    }
}

/// The journal as it is now, for those who only look: nothing is mended on disk.
pub(crate) struct JournalSnapshot(io::Result<Vec<u8>>);

impl JournalSnapshot {
    pub(crate) fn load(disk: &dyn Disk) -> Self {
        Self(JournalFile::new(disk).load())
    }
}

impl LogStore for JournalSnapshot {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        std::mem::replace(&mut self.0, Ok(Vec::new()))
    }

    fn append(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// With the kernel's word in the text: whoever shows this shows one level of causes only.
fn io_error(error: DiskError) -> io::Error {
    io::Error::new(error.source.kind(), chain(&error))
}
