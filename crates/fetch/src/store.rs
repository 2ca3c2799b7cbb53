//! Objects that are known by their digest, shared by all who need artefacts.
//!
//! ```text
//! FOLDER/staging/sha256-HEX   0700, read by nobody: what was fetched so far; also the lock of that object
//! FOLDER/sha256/HEX           whole, verified and durable; FOLDER/sha512/HEX likewise
//! ```
//!
//! In: a [`Disk`] and a folder on it. Out: an [`Object`] whose bytes were verified a moment ago, or an [`Incoming`] that takes
//! them from the network ([`Sink`]). Fails with [`StoreError`].
//!
//! An object gets its name only when its bytes have the right size and digest, were synced, and were read back from the disk
//! itself; so a kill or a power cut leaves it absent or whole. Whenever it is opened it is verified first, all of it, and
//! then read by the same descriptor: what unpacks it never sees a byte that nobody vouched for, and has nothing to take
//! back. A damaged object is removed and counts as absent. An interrupted download is resumed by the digest that was wanted,
//! whichever mirror it came from; its bytes are hashed again, and whether they were right is told at the end.
//!
//! Several runs may use one store. Who fetches an object holds the lock on its file in `staging`, which ends with the
//! process; an object may be removed at any time, and whoever has it open goes on reading.

mod incoming;

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use host::Disk;
use host::disk::{DiskError, FileReader, Kind, LockGuard, Stat};
use host::files::{self, FileError};

use crate::digest::{Digest, Hasher};

pub use incoming::Incoming;

const FOLDER_MODE: u32 = 0o700;
const STAGING: &str = "staging";
const ALGORITHMS: [&str; 2] = ["sha256", "sha512"];
/// Read at once: large enough that system calls do not count, small beside everything else.
const PIECE: usize = 128 * 1024;

/// One object, as somebody who was trusted described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    pub digest: Digest,
    pub size: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} of the {} bytes of {} are there: fetch the rest", .kept, .wanted.size, .wanted.digest)]
    Incomplete { wanted: Wanted, kept: u64 },
    #[error("{} has more than the {} bytes it should have; the place it came from has something else", .0.digest, .0.size)]
    TooLong(Wanted),
    #[error("what was fetched is {found}, not {wanted}; the place it came from has something else")]
    Differs { wanted: Digest, found: Box<Digest> },
    #[error("the disk lost what was written of {digest}: it gives back other bytes; check the disk")]
    Lost { digest: Digest },
    #[error("read {digest} from the store")]
    Read { digest: Digest, source: io::Error },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    Files(#[from] FileError),
}

/// Verified bytes, from their start. The file is open: it stays whole even if its name is removed meanwhile.
pub struct Object {
    pub wanted: Wanted,
    reader: Box<dyn FileReader>,
}

impl Read for Object {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

/// What becomes of the wish to fetch an object.
pub enum Reception<'a> {
    /// Another run was faster.
    Present(Object),
    Incoming(Incoming<'a>),
    /// Another run is fetching it: ask again later.
    Busy,
}

/// What nobody needs any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surplus {
    pub objects: Vec<Wanted>,
    /// Interrupted downloads.
    pub partial: Vec<Digest>,
}

/// What garbage collection took away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Whole objects, sorted.
    pub objects: Vec<Digest>,
    /// Interrupted downloads, sorted.
    pub partial: Vec<Digest>,
    /// In bytes, of both.
    pub space: u64,
}

pub struct Store<'a> {
    disk: &'a dyn Disk,
    folder: PathBuf,
}

impl<'a> Store<'a> {
    /// Nothing is made before something is received.
    pub fn new(disk: &'a dyn Disk, folder: &Path) -> Self {
        Self { disk, folder: folder.to_owned() }
    }

    /// The object, verified; `None` if it is not there, or was damaged and therefore removed.
    pub fn open(&self, wanted: &Wanted) -> Result<Option<Object>, StoreError> {
        match self.look(wanted)? {
            Look::Whole(object) => Ok(Some(object)),
            Look::Absent => Ok(None),
            Look::Damaged => {
                // Without the lock, what is removed could be what another run has just put there.
                let Some(lock) = self.lock(&wanted.digest)? else { return Ok(None) };
                let found = self.open_locked(wanted)?;
                self.release_empty(&wanted.digest, lock)?;
                Ok(found)
            }
        }
    }

    /// Begins or resumes the download of an object.
    pub fn receive(&self, wanted: &Wanted) -> Result<Reception<'a>, StoreError> {
        for name in [STAGING, wanted.digest.algorithm()] {
            files::make_folder_durable(self.disk, &self.folder.join(name), FOLDER_MODE)?;
        }
        let Some(lock) = self.lock(&wanted.digest)? else { return Ok(Reception::Busy) };
        if let Some(object) = self.open_locked(wanted)? {
            // A power cut may bring the name back under which the object was written.
            self.disk.remove(&self.partial(&wanted.digest))?;
            return Ok(Reception::Present(object));
        }
        Ok(Reception::Incoming(Incoming::resume(self.disk, wanted, self.places(&wanted.digest), lock)?))
    }

    /// All objects by name and size, sorted; none is verified.
    pub fn list(&self) -> Result<Vec<Wanted>, StoreError> {
        let mut found = Vec::new();
        for algorithm in ALGORITHMS {
            for name in self.disk.list(&self.folder.join(algorithm))? {
                let Ok(digest) = format!("{algorithm}:{name}").parse() else { continue };
                if let Some(Stat { kind: Kind::File, size, .. }) = self.disk.stat(&self.object(&digest))? {
                    found.push(Wanted { digest, size });
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// What [`Store::collect`] would remove. Reads only.
    pub fn surplus(&self, keep: &[Digest]) -> Result<Surplus, StoreError> {
        let objects = self.list()?;
        let names = self.disk.list(&self.folder.join(STAGING))?;
        let interrupted = names.iter().filter_map(|name| name.replacen('-', ":", 1).parse().ok());
        let is_surplus =
            |digest: &Digest| !keep.contains(digest) || objects.iter().any(|object| object.digest == *digest);
        let mut partial: Vec<Digest> = interrupted.filter(is_surplus).collect();
        partial.sort();
        let objects = objects.into_iter().filter(|object| !keep.contains(&object.digest)).collect();
        Ok(Surplus { objects, partial })
    }

    /// Removes all objects but those, and interrupted downloads that nobody will resume. What is being fetched is left alone.
    pub fn collect(&self, keep: &[Digest]) -> Result<Collected, StoreError> {
        let mut collected = Collected::default();
        let Surplus { objects, partial } = self.surplus(keep)?;
        for object in &objects {
            let Some(lock) = self.lock(&object.digest)? else { continue };
            if self.disk.remove(&self.object(&object.digest))? {
                collected.objects.push(object.digest);
                collected.space += object.size;
            }
            self.release_empty(&object.digest, lock)?;
        }
        for digest in partial {
            let Some(_lock) = self.lock(&digest)? else { continue };
            let partial = self.partial(&digest);
            let size = self.disk.stat(&partial)?.map_or(0, |stat| stat.size);
            if self.disk.remove(&partial)? {
                collected.partial.push(digest);
                collected.space += size;
            }
        }
        Ok(collected)
    }

    fn object(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.algorithm()).join(digest.hex())
    }

    fn partial(&self, digest: &Digest) -> PathBuf {
        self.folder.join(STAGING).join(format!("{}-{}", digest.algorithm(), digest.hex()))
    }

    fn places(&self, digest: &Digest) -> Places {
        Places { partial: self.partial(digest), object: self.object(digest) }
    }

    fn lock(&self, digest: &Digest) -> Result<Option<LockGuard>, StoreError> {
        self.disk.make_folder(&self.folder.join(STAGING), FOLDER_MODE)?;
        Ok(self.disk.try_lock(&self.partial(digest))?)
    }

    /// Taking the lock made a file; one that holds bytes of a download stays for whoever resumes it.
    fn release_empty(&self, digest: &Digest, _lock: LockGuard) -> Result<(), StoreError> {
        let partial = self.partial(digest);
        if self.disk.stat(&partial)?.is_some_and(|stat| stat.size == 0) {
            self.disk.remove(&partial)?;
        }
        Ok(())
    }

    /// For who holds the lock: a damaged object is gone afterwards.
    fn open_locked(&self, wanted: &Wanted) -> Result<Option<Object>, StoreError> {
        match self.look(wanted)? {
            Look::Whole(object) => Ok(Some(object)),
            Look::Absent => Ok(None),
            Look::Damaged => {
                self.disk.remove(&self.object(&wanted.digest))?;
                Ok(None)
            }
        }
    }

    fn look(&self, wanted: &Wanted) -> Result<Look, StoreError> {
        let path = self.object(&wanted.digest);
        match self.disk.stat(&path)? {
            None => return Ok(Look::Absent),
            Some(stat) if stat.kind != Kind::File => return Ok(Look::Damaged),
            Some(_) => {}
        }
        let Some(mut reader) = self.disk.open(&path)? else { return Ok(Look::Absent) };
        // A sector that cannot be read is damage, too: the object can be fetched again.
        match digest_of(&mut *reader, wanted) {
            Ok(found) if found == *wanted => {}
            Ok(_) | Err(_) => return Ok(Look::Damaged),
        }
        reader.seek(SeekFrom::Start(0)).map_err(|source| StoreError::Read { digest: wanted.digest, source })?;
        // Seen is not durable: the run that put it there may have died before its sync.
        self.disk.sync_folder(&self.folder.join(wanted.digest.algorithm()))?;
        Ok(Look::Whole(Object { wanted: *wanted, reader }))
    }
}

enum Look {
    Whole(Object),
    Absent,
    Damaged,
}

/// Where one object is while it comes, and then.
struct Places {
    partial: PathBuf,
    object: PathBuf,
}

/// What a reader holds from here on, by the algorithm that was wanted; no more is read than shows that it is too much.
fn digest_of(reader: &mut dyn Read, wanted: &Wanted) -> io::Result<Wanted> {
    let mut hasher = Hasher::like(&wanted.digest);
    let size = hash(&mut reader.take(wanted.size.saturating_add(1)), &mut hasher)?;
    Ok(Wanted { digest: hasher.finish(), size })
}

/// How many bytes there were.
fn hash(reader: &mut dyn Read, hasher: &mut Hasher) -> io::Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut size = 0;
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(size),
            Ok(read) => {
                hasher.update(&piece[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
