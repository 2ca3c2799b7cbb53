//! One folder that is filled with what others wrote, without ever leaving it.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::DiskError;
use super::below::{self, Way};
use super::rooted::{BASE, bits, retry, set_exact_mode};

/// Of folders that nobody asked for by name.
const PARENT_MODE: u32 = 0o755;

/// Paths are relative to the folder and consist of names only: `.` and `..` are refused, no link on the way is followed, and
/// what is mounted below is an error. Nothing is durable until the file system of the folder is synced.
pub trait Folder: Send + Sync {
    /// Creates the folder; missing parents are made 0755; existing ones are left as they are.
    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError>;
    /// Creates a new file with its final mode from the first instant; fails if anything is at the path.
    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn Write + Send>, DiskError>;
    /// The target is not looked at, now or later.
    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError>;
    /// Another name for a file in the same folder.
    fn hard_link(&self, existing: &Path, path: &Path) -> Result<(), DiskError>;
}

/// Names, and nothing that goes anywhere else.
pub(crate) fn refuse_detour(path: &Path) -> io::Result<()> {
    let is_name = |component| matches!(component, Component::Normal(_));
    // `components` leaves out dots in the middle and slashes at the end.
    let written: PathBuf = path.components().collect();
    match path.components().all(is_name) && written.as_os_str() == path.as_os_str() && !written.as_os_str().is_empty() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "the path does not consist of names only")),
    }
}

pub(super) struct RootedFolder {
    pub(super) folder: OwnedFd,
    pub(super) way: Way,
    /// For messages.
    pub(super) path: PathBuf,
}

impl RootedFolder {
    fn named<T>(&self, operation: &'static str, path: &Path, result: io::Result<T>) -> Result<T, DiskError> {
        result.map_err(|source| DiskError::new(operation, &self.path.join(path), source))
    }

    /// The folder that holds the name, and the name.
    fn split<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a Path)> {
        refuse_detour(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL.into()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        Ok((below::open(&self.folder, parent, OFlags::PATH | OFlags::DIRECTORY, self.way)?, Path::new(name)))
    }

    fn make(&self, path: &Path, mode: u32) -> io::Result<()> {
        let (folder, name) = match self.split(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // What is missing is a parent, which is shorter: this ends.
                path.parent().map_or(Ok(()), |parent| self.make(parent, PARENT_MODE))?;
                self.split(path)?
            }
            split => split?,
        };
        let made = rustix::fs::mkdirat(&folder, name, bits(mode));
        let opened = below::open(&folder, name, OFlags::RDONLY | OFlags::DIRECTORY, self.way);
        match made {
            Ok(()) => set_exact_mode(&opened?, mode),
            // Anything but a folder did not open.
            Err(Errno::EXIST) => opened.map(drop),
            Err(error) => Err(error.into()),
        }
    }
}

impl Folder for RootedFolder {
    fn make_folder(&self, path: &Path, mode: u32) -> Result<(), DiskError> {
        self.named("make folder", path, self.make(path, mode))
    }

    fn create(&self, path: &Path, mode: u32) -> Result<Box<dyn Write + Send>, DiskError> {
        let create = || -> io::Result<Box<dyn Write + Send>> {
            let (folder, name) = self.split(path)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | BASE;
            let fd = retry(|| rustix::fs::openat(&folder, name, flags, bits(mode)))?;
            set_exact_mode(&fd, mode)?;
            Ok(Box::new(std::fs::File::from(fd)))
        };
        self.named("create", path, create())
    }

    fn symlink(&self, target: &str, path: &Path) -> Result<(), DiskError> {
        let link = || {
            let (folder, name) = self.split(path)?;
            Ok(rustix::fs::symlinkat(target, folder, name)?)
        };
        self.named("make link", path, link())
    }

    fn hard_link(&self, existing: &Path, path: &Path) -> Result<(), DiskError> {
        let link = || {
            let ((from, old), (to, new)) = (self.split(existing)?, self.split(path)?);
            let stat = rustix::fs::statat(&from, old, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Ok(rustix::fs::linkat(from, old, to, new, AtFlags::empty())?),
                _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "another name is given to files only")),
            }
        };
        self.named("link to", path, link())
    }
}

/// Opened so that it can be held and gone on from, whoever may read it.
pub(super) fn enter(parent: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | BASE;
    Ok(retry(|| rustix::fs::openat(parent, name, flags, Mode::empty()))?)
}
