//! What stays open on a [`FakeDisk`]: a file that is read, one that is written, a folder that is filled.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::disk::{FakeDisk, text};
use super::tree::{Ino, Tree};
use crate::disk::folder::refuse_detour;
use crate::disk::{DiskError, Folder};

pub(super) struct FakeReader {
    disk: FakeDisk,
    ino: Ino,
    at: u64,
}

impl FakeReader {
    pub(super) fn new(disk: &FakeDisk, ino: Ino) -> Self {
        Self { disk: disk.clone(), ino, at: 0 }
    }
}

impl Read for FakeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.disk.read_open(|tree| {
            let content = &tree.file(self.ino)?.now;
            let start = usize::try_from(self.at).unwrap_or(usize::MAX).min(content.len());
            let taken = into.len().min(content.len() - start);
            into[..taken].copy_from_slice(&content[start..start + taken]);
            Ok(taken)
        })?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for FakeReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let size = self.disk.read_open(|tree| Ok(tree.file(self.ino)?.now.len() as u64))?;
        let wanted = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => size.checked_add_signed(by),
        };
        self.at = wanted.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Every write is an operation, of which a kill may leave half.
struct FakeWriter {
    disk: FakeDisk,
    ino: Ino,
    path: PathBuf,
}

impl Write for FakeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let what = format!("write {} {} bytes", text(&self.path), bytes.len());
        let written =
            self.disk.change("write to", &self.path, what, |tree, moment| tree.write(self.ino, bytes, moment));
        written.map(|()| bytes.len()).map_err(|error| error.source)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct FakeFolder {
    disk: FakeDisk,
    /// Without links, as it was when the folder was entered: nobody renames it meanwhile.
    path: PathBuf,
}

impl FakeFolder {
    pub(super) fn new(disk: &FakeDisk, path: &Path) -> Self {
        Self { disk: disk.clone(), path: path.to_owned() }
    }

    fn change<T>(
        &self,
        operation: &'static str,
        path: &Path,
        what: &str,
        change: impl FnOnce(&mut Tree, &Path) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let whole = self.path.join(path);
        let what = format!("{what} {}", text(&whole));
        self.disk.change(operation, &whole, what, |tree, _| {
            refuse_detour(path)?;
            tree.refuse_links(&self.path, path)?;
            change(tree, &whole)
        })
    }
}

impl Folder for FakeFolder {
    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        self.change("make folder", path, "make-folder", |tree, whole| match tree.find(whole, false) {
            Ok(Some(found)) => tree.folder(found).map(drop),
            _ => tree.make_folder(whole, mode),
        })
    }

    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn Write + Send>, DiskError> {
        let ino =
            self.change("create", path, &format!("create-open {mode:o}"), |tree, whole| tree.create_open(whole, mode))?;
        Ok(Box::new(FakeWriter { disk: self.disk.clone(), ino, path: self.path.join(path) }))
    }

    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError> {
        self.change("make link", path, &format!("symlink {target}"), |tree, whole| tree.symlink(target, whole))
    }

    fn hard_link(&self, existing: &Path, path: &Path) -> Result<(), DiskError> {
        self.change("link to", path, &format!("hard-link {}", text(existing)), |tree, whole| {
            refuse_detour(existing)?;
            tree.refuse_links(&self.path, existing)?;
            tree.hard_link(&self.path.join(existing), whole)
        })
    }
}
