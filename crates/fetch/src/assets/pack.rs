//! The folder, as it is sent.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use host::disk::{Disk, DiskError, Kind, Stat};
use sha2::{Digest as _, Sha256};

use super::heading::Heading;
use super::{LIMITS, MARK};
use crate::digest::Digest;

const PERMISSIONS: u32 = 0o777;
/// Whoever cannot use a folder of their own can neither pack nor unpack it.
const OWNER_USES: u32 = 0o700;
/// Read at once.
const PIECE: usize = 128 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error(transparent)]
    Look(#[from] DiskError),
    #[error("read {path:?}")]
    Read { path: String, source: io::Error },
    #[error("send the folder")]
    Send(#[source] io::Error),
    #[error("there is no folder {path:?}")]
    NoFolder { path: String },
    #[error("the folder {path:?} is empty: there is nothing to push")]
    Empty { path: String },
    #[error("{path:?} is a link to {target:?}: a push has files and folders only; put there what it leads to")]
    Link { path: String, target: String },
    #[error("{path:?} is neither a file nor a folder")]
    Special { path: String },
    #[error(
        "{path:?} has the mode {mode:04o}: set-uid, set-gid and sticky bits are not pushed; take them away (chmod)"
    )]
    SpecialMode { path: String, mode: u32 },
    #[error("the name {path:?} is not text (UTF-8), or it has just gone")]
    Name { path: String },
    #[error("{path:?} is the name by which a node knows what was pushed; give it another one")]
    Reserved { path: String },
    #[error("{path:?} lies too deep, or its path is too long ({} names, {} bytes)", LIMITS.depth, LIMITS.path)]
    TooDeep { path: String },
    #[error("more than {} files and folders", LIMITS.entries)]
    TooMany,
    #[error("more than {} bytes; what is large belongs into a store (nodestrap publish)", LIMITS.total)]
    TooLarge,
    #[error("{path:?} changed while it was read; push again when nobody writes there")]
    Changed { path: String },
}

/// A folder that was read once: what it has, and by what it is known.
pub struct Parcel<'a> {
    disk: &'a dyn Disk,
    folder: PathBuf,
    items: Vec<Item>,
    pub heading: Heading,
    pub files: usize,
}

/// One entry, relative to the folder.
struct Item {
    path: String,
    stat: Stat,
}

impl<'a> Parcel<'a> {
    /// Reads all of it.
    pub fn pack(disk: &'a dyn Disk, folder: &Path) -> Result<Self, PackError> {
        let shown = || folder.display().to_string();
        let stat = disk.stat(folder)?.filter(|stat| stat.kind == Kind::Folder);
        let Some(stat) = stat else { return Err(PackError::NoFolder { path: shown() }) };
        let mode = checked_mode(&shown(), &stat)? | OWNER_USES;
        let mut items = Vec::new();
        survey(disk, folder, "", 1, &mut items)?;
        if items.is_empty() {
            return Err(PackError::Empty { path: shown() });
        }
        let files = items.iter().filter(|item| item.stat.kind == Kind::File).count();
        let heading = Heading { digest: Digest::Sha256([0; 32]), size: 0, mode };
        let mut parcel = Self { disk, folder: folder.to_owned(), items, heading, files };
        let mut sum = Sum::of(io::sink());
        parcel.write_tar(&mut sum)?;
        parcel.heading.size = sum.size;
        parcel.heading.digest = sum.digest();
        match parcel.heading.size > LIMITS.total {
            true => Err(PackError::TooLarge),
            false => Ok(parcel),
        }
    }

    /// Heading and tar; `tell` hears how many bytes of it were taken so far.
    pub fn send(&self, out: &mut dyn Write, tell: &dyn Fn(u64)) -> Result<(), PackError> {
        out.write_all(format!("{}\n", self.heading).as_bytes()).map_err(PackError::Send)?;
        let mut sum = Sum::of(Told { out, taken: 0, tell });
        self.write_tar(&mut sum)?;
        // Whoever receives it would see it as well, but could not say why.
        match (sum.size, sum.digest()) == (self.heading.size, self.heading.digest) {
            true => sum.inner.flush().map_err(PackError::Send),
            false => Err(PackError::Changed { path: self.folder.display().to_string() }),
        }
    }

    fn write_tar(&self, out: &mut dyn Write) -> Result<(), PackError> {
        let mut builder = tar::Builder::new(Gate { out, is_open: true });
        let written = self.items.iter().try_for_each(|item| self.append(&mut builder, item));
        // The builder ends the archive when it is dropped, also one that is not whole.
        builder.get_mut().is_open = written.is_ok();
        written?;
        builder.finish().map_err(PackError::Send)
    }

    fn append(&self, builder: &mut tar::Builder<Gate<'_>>, item: &Item) -> Result<(), PackError> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(item.stat.mode & PERMISSIONS);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        if item.stat.kind == Kind::File {
            return self.append_file(builder, &mut header, item);
        }
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        builder.append_data(&mut header, &item.path, io::empty()).map_err(PackError::Send)
    }

    fn append_file(
        &self,
        builder: &mut tar::Builder<Gate<'_>>,
        header: &mut tar::Header,
        item: &Item,
    ) -> Result<(), PackError> {
        let at = self.folder.join(&item.path);
        let changed = || PackError::Changed { path: at.display().to_string() };
        let Some(file) = self.disk.open(&at)? else { return Err(changed()) };
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(item.stat.size);
        let mut reader = Watched { inner: file.take(item.stat.size.saturating_add(1)), read: 0, failed: None };
        let appended = builder.append_data(header, &item.path, (&mut reader).take(item.stat.size));
        if let Some(source) = reader.failed {
            return Err(PackError::Read { path: at.display().to_string(), source });
        }
        appended.map_err(PackError::Send)?;
        // One byte more than there was is a change, too.
        let rest = reader.inner.read(&mut [0]);
        let more = rest.map_err(|source| PackError::Read { path: at.display().to_string(), source })?;
        if reader.read == item.stat.size && more == 0 { Ok(()) } else { Err(changed()) }
    }
}

fn survey(disk: &dyn Disk, folder: &Path, below: &str, depth: usize, items: &mut Vec<Item>) -> Result<(), PackError> {
    for name in disk.list(&folder.join(below))? {
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let at = folder.join(&path);
        let shown = at.display().to_string();
        let Some(stat) = disk.stat(&at)? else { return Err(PackError::Name { path: shown }) };
        match &stat.kind {
            Kind::File | Kind::Folder => {}
            Kind::Link { target } => return Err(PackError::Link { path: shown, target: target.clone() }),
            Kind::Other => return Err(PackError::Special { path: shown }),
        }
        checked_mode(&shown, &stat)?;
        let is_folder = stat.kind == Kind::Folder;
        match () {
            () if path == MARK => return Err(PackError::Reserved { path: shown }),
            () if depth > LIMITS.depth || path.len() > LIMITS.path => return Err(PackError::TooDeep { path: shown }),
            () if items.len() >= LIMITS.entries => return Err(PackError::TooMany),
            () => items.push(Item { path: path.clone(), stat }),
        }
        if is_folder {
            survey(disk, folder, &path, depth + 1, items)?;
        }
    }
    Ok(())
}

fn checked_mode(path: &str, stat: &Stat) -> Result<u32, PackError> {
    match stat.mode & !PERMISSIONS {
        0 => Ok(stat.mode),
        _ => Err(PackError::SpecialMode { path: path.to_owned(), mode: stat.mode }),
    }
}

/// Nothing passes once it is shut.
struct Gate<'a> {
    out: &'a mut dyn Write,
    is_open: bool,
}

impl Write for Gate<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_open { self.out.write(bytes) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Tells the error of a reader from that of the writer that it is copied to.
struct Watched<R> {
    inner: R,
    read: u64,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(into) {
            Ok(read) => {
                self.read += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let copy = io::Error::new(error.kind(), "read a file");
                self.failed = Some(error);
                Err(copy)
            }
        }
    }
}

/// Counts and hashes on the way.
struct Sum<W> {
    inner: W,
    hasher: Sha256,
    size: u64,
}

impl<W> Sum<W> {
    fn of(inner: W) -> Self {
        Self { inner, hasher: Sha256::new(), size: 0 }
    }

    fn digest(&self) -> Digest {
        Digest::Sha256(self.hasher.clone().finalize().into())
    }
}

impl<W: Write> Write for Sum<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(&bytes[..bytes.len().min(PIECE)])?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct Told<'a> {
    out: &'a mut dyn Write,
    taken: u64,
    tell: &'a dyn Fn(u64),
}

impl Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.taken += written as u64;
        (self.tell)(self.taken);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
