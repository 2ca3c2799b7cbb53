//! The folder, as it comes to its place.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use host::disk::{Disk, DiskError, Kind, LockGuard};
use host::files::{self, FileError};

use super::heading::{self, Heading, HeadingError};
use super::{LIMITS, MARK};
use crate::digest::Hasher;
use crate::unpack::{Difference, EntryKind, Form, Listing, UnpackError, unpack};

/// One push at a time.
pub const LOCK: &str = "/run/nodestrap/receive.lock";

const MARK_MODE: u32 = 0o644;
/// Of folders on the way to the target.
const PARENT_MODE: u32 = 0o755;

/// Where a push goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: PathBuf,
    pub existing: Existing,
}

/// What becomes of a folder that an earlier push has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays: what waits for files there was started by them, and shall not be started twice.
    Stays,
    /// The new one takes its place in one step, and it is removed.
    Replaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub heading: Heading,
    pub done: Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Published {
        files: usize,
    },
    Replaced {
        files: usize,
    },
    /// By an earlier push of the same; what has become of it since was not looked at.
    ThereAlready,
}

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error("{path:?} is no place for a push: write the absolute path of a folder, without dots")]
    Target { path: String },
    #[error("another push to this node is at work; wait until it has ended")]
    Busy,
    #[error("the push ended within its first line, or before")]
    NoHeading,
    #[error("read what is pushed")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Heading(#[from] HeadingError),
    #[error("a push may have {} bytes, this one has {size}", LIMITS.total)]
    TooLarge { size: u64 },
    #[error("{path:?} has {free} bytes of free space, the push needs {size}; make room there")]
    NoSpace { path: String, free: u64, size: u64 },
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error("what came has another digest than was said; push again")]
    Differs,
    #[error("more came than was said; push again")]
    TooLong,
    #[error(
        "{path:?} holds another push, which may have started units; to put this one in its place: --replace \
         (units that it starts run again, if not now then after the next boot)"
    )]
    OtherPush { path: String },
    #[error("{path:?} is there, and no push has brought it; move it away, or push to another folder (--to)")]
    NotOurs { path: String },
    #[error("the disk lost what was written to {path:?}: the kernel shows other bytes than are on it; check the disk")]
    Lost { path: String },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Files(#[from] FileError),
}

/// What is at the target before.
enum Found {
    /// Nothing, or a folder with nothing in it.
    Room,
    SamePush,
    OtherPush,
}

/// Takes one push from `reader`, to its end. Returns when it is durable at its place.
pub fn receive(reader: &mut dyn Read, disk: &dyn Disk, target: &Target) -> Result<Received, ReceiveError> {
    let places = Places::of(&target.path)?;
    let Some(_lock) = lock(disk)? else { return Err(ReceiveError::Busy) };
    let heading = read_heading(reader)?;
    let found = places.look(disk, &heading)?;
    places.clean(disk)?;
    match (&found, target.existing) {
        (Found::SamePush, _) => return Ok(Received { heading, done: Done::ThereAlready }),
        (Found::OtherPush, Existing::Stays) => return Err(ReceiveError::OtherPush { path: places.shown() }),
        (Found::Room, _) | (Found::OtherPush, Existing::Replaced) => {}
    }
    places.check_room(disk, &heading)?;
    let staged = places.stage(reader, disk, &heading).and_then(|files| {
        places.switch(disk, &found)?;
        Ok(files)
    });
    if staged.is_err() {
        // The first error is the one that counts; the next push looks here, too.
        let _ = disk.remove_tree(&places.staged);
    }
    let files = staged?;
    // Before the old folder goes: a power cut could bring it back to its place, and must find it whole.
    disk.sync_folder(&places.parent)?;
    disk.remove_tree(&places.staged)?;
    let done = if matches!(found, Found::OtherPush) { Done::Replaced { files } } else { Done::Published { files } };
    Ok(Received { heading, done })
}

fn lock(disk: &dyn Disk) -> Result<Option<LockGuard>, DiskError> {
    disk.try_lock(Path::new(LOCK))
}

fn read_heading(reader: &mut dyn Read) -> Result<Heading, ReceiveError> {
    let mut line = Vec::with_capacity(heading::LONGEST);
    loop {
        let mut byte = [0];
        match reader.read(&mut byte) {
            Ok(0) => return Err(ReceiveError::NoHeading),
            Ok(_) if byte == *b"\n" => break,
            // What is longer is refused for what it is, not for its length.
            Ok(_) if line.len() == heading::LONGEST => break,
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReceiveError::Read(error)),
        }
    }
    let heading: Heading = String::from_utf8_lossy(&line).parse()?;
    match heading.size > LIMITS.total {
        true => Err(ReceiveError::TooLarge { size: heading.size }),
        false => Ok(heading),
    }
}

struct Places {
    target: PathBuf,
    parent: PathBuf,
    /// Beside it: a rename stays on one file system. The name is fixed, so that what is left of one push is found by the next.
    staged: PathBuf,
}

impl Places {
    fn of(target: &Path) -> Result<Self, ReceiveError> {
        let refused = || ReceiveError::Target { path: target.display().to_string() };
        let names: PathBuf = target.components().collect();
        let mut components = target.components();
        let is_plain = components.next() == Some(Component::RootDir)
            && components.all(|component| matches!(component, Component::Normal(_)))
            && names.as_os_str() == target.as_os_str();
        match (is_plain, target.parent(), target.file_name()) {
            (true, Some(parent), Some(name)) => Ok(Self {
                target: target.to_owned(),
                parent: parent.to_owned(),
                staged: parent.join(format!(".{}.nodestrap-new", name.to_string_lossy())),
            }),
            _ => Err(refused()),
        }
    }

    fn shown(&self) -> String {
        self.target.display().to_string()
    }

    fn look(&self, disk: &dyn Disk, heading: &Heading) -> Result<Found, ReceiveError> {
        let Some(stat) = disk.stat(&self.target)? else { return Ok(Found::Room) };
        if stat.kind != Kind::Folder {
            return Err(ReceiveError::NotOurs { path: self.shown() });
        }
        let mark = self.target.join(MARK);
        let is_file = disk.stat(&mark)?.is_some_and(|stat| stat.kind == Kind::File);
        match if is_file { disk.read(&mark, heading::LONGEST as u64)? } else { None } {
            Some(mark) if mark == marked(heading) => Ok(Found::SamePush),
            Some(_) => Ok(Found::OtherPush),
            None if disk.list(&self.target)?.is_empty() => Ok(Found::Room),
            None => Err(ReceiveError::NotOurs { path: self.shown() }),
        }
    }

    /// What an earlier push has left. It may be what was replaced, so that the names come first.
    fn clean(&self, disk: &dyn Disk) -> Result<(), ReceiveError> {
        files::make_folder_durable(disk, &self.parent, PARENT_MODE)?;
        // Seen is not durable: the push that renamed it may have died before its sync.
        disk.sync_folder(&self.parent)?;
        disk.remove_tree(&self.staged)?;
        Ok(())
    }

    fn check_room(&self, disk: &dyn Disk, heading: &Heading) -> Result<(), ReceiveError> {
        match disk.free_space(&self.parent)? {
            Some(free) if free < heading.size => {
                let path = self.parent.display().to_string();
                Err(ReceiveError::NoSpace { path, free, size: heading.size })
            }
            _ => Ok(()),
        }
    }

    /// Whole, verified and durable under its other name; so many files.
    fn stage(&self, reader: &mut dyn Read, disk: &dyn Disk, heading: &Heading) -> Result<usize, ReceiveError> {
        disk.make_folder(&self.staged, heading.mode)?;
        let mut bytes = Hashed { inner: reader.take(heading.size), hasher: Hasher::like(&heading.digest) };
        let listing = unpack(&mut bytes, Form::Assets, &*disk.enter(&self.staged)?, &LIMITS)?;
        if bytes.inner.limit() != 0 || bytes.hasher.finish() != heading.digest {
            return Err(ReceiveError::Differs);
        }
        expect_end(reader)?;
        disk.create(&self.staged.join(MARK), MARK_MODE, &marked(heading))?;
        disk.sync_file_system(&self.staged)?;
        let is_mark = |difference: &Difference| difference.path() == MARK;
        match listing.compare(disk, &self.staged)?.into_iter().find(|difference| !is_mark(difference)) {
            None => Ok(count_files(&listing)),
            Some(difference) => {
                Err(ReceiveError::Lost { path: self.staged.join(difference.path()).display().to_string() })
            }
        }
    }

    /// A folder that somebody has filled meanwhile is in the way of the rename.
    fn switch(&self, disk: &dyn Disk, found: &Found) -> Result<(), ReceiveError> {
        let switched = match found {
            Found::OtherPush => disk.exchange(&self.staged, &self.target),
            _ => disk.rename(&self.staged, &self.target),
        };
        match switched {
            Err(error) if is_in_the_way(&error) => Err(ReceiveError::NotOurs { path: self.shown() }),
            switched => Ok(switched?),
        }
    }
}

fn count_files(listing: &Listing) -> usize {
    listing.entries.iter().filter(|entry| matches!(entry.kind, EntryKind::File { .. })).count()
}

fn is_in_the_way(error: &DiskError) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.source.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

fn marked(heading: &Heading) -> Vec<u8> {
    format!("{heading}\n").into_bytes()
}

fn expect_end(reader: &mut dyn Read) -> Result<(), ReceiveError> {
    loop {
        match reader.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(ReceiveError::TooLong),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReceiveError::Read(error)),
        }
    }
}

/// What goes by is part of the digest.
struct Hashed<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.hasher.update(&into[..read]);
        Ok(read)
    }
}
