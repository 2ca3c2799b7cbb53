//! The tree that comes into being: what is there already decides what may come.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use host::disk::{DiskError, Folder};
use sha2::{Digest as _, Sha256};

use super::listing::{Entry, EntryKind, Listing};
use super::names::entry_path;
use super::source::Source;
use super::{Limits, UnpackError};
use crate::digest::Digest;

const FOLDER_MODE: u32 = 0o755;
const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const OWNER_EXECUTES: u32 = 0o100;
const OWNER_USES: u32 = 0o700;
const PERMISSIONS: u32 = 0o777;
/// Written at once.
const PIECE: usize = 128 * 1024;

/// Which modes files and folders get.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Modes {
    /// Those of programs and what they read.
    Usual,
    /// Those of the archive; only folders that their owner could not use get the owner's bits.
    AsPacked,
}

pub(super) struct Tree<'a> {
    folder: &'a dyn Folder,
    limits: Limits,
    modes: Modes,
    entries: BTreeMap<String, Known>,
    total: u64,
    piece: Vec<u8>,
}

struct Known {
    kind: EntryKind,
    naming: Naming,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The archive has an entry for it.
    Explicit,
    /// A folder that was only named on the way to something.
    OnTheWay,
}

impl<'a> Tree<'a> {
    pub(super) fn new(folder: &'a dyn Folder, limits: &Limits, modes: Modes) -> Self {
        Self { folder, limits: *limits, modes, entries: BTreeMap::new(), total: 0, piece: vec![0; PIECE] }
    }

    pub(super) fn into_listing(self) -> Listing {
        let entries = self.entries.into_iter().map(|(path, known)| Entry { path, kind: known.kind }).collect();
        Listing { entries, total: self.total }
    }

    pub(super) fn add_folder(&mut self, path: &str, mode: Option<u32>) -> Result<(), UnpackError> {
        self.make_way(path)?;
        let mode = self.folder_mode(path, mode)?;
        match self.entries.get_mut(path) {
            None => self.make_folder(path, mode, Naming::Explicit),
            Some(Known { naming: naming @ Naming::OnTheWay, .. }) => {
                *naming = Naming::Explicit;
                Ok(())
            }
            Some(_) => Err(UnpackError::Duplicate { entry: path.to_owned() }),
        }
    }

    pub(super) fn add_program(&mut self, name: &str, source: &mut Source<'_>) -> Result<(), UnpackError> {
        source.enter(name);
        match entry_path(name.as_bytes(), &self.limits)? {
            Some(path) if path == name && !name.contains('/') => self.write(name, PROGRAM_MODE, None, source),
            _ => Err(UnpackError::ProgramName { entry: name.to_owned() }),
        }
    }

    pub(super) fn add_file(
        &mut self,
        path: &str,
        mode: u32,
        size: u64,
        source: &mut Source<'_>,
    ) -> Result<(), UnpackError> {
        self.make_way(path)?;
        self.refuse_existing(path)?;
        if size > self.limits.total.saturating_sub(self.total) {
            return Err(UnpackError::TooLarge { entry: path.to_owned(), limit: self.limits.total });
        }
        let mode = match self.modes {
            Modes::AsPacked => mode,
            Modes::Usual if mode & OWNER_EXECUTES == 0 => FILE_MODE,
            Modes::Usual => PROGRAM_MODE,
        };
        self.write(path, mode, Some(size), source)
    }

    fn folder_mode(&self, path: &str, packed: Option<u32>) -> Result<u32, UnpackError> {
        let entry = || path.to_owned();
        match (self.modes, packed) {
            (Modes::Usual, _) => Ok(FOLDER_MODE),
            (Modes::AsPacked, None) => Err(UnpackError::Header { entry: entry(), why: "its mode is no number" }),
            (Modes::AsPacked, Some(mode)) if mode & !PERMISSIONS != 0 => {
                Err(UnpackError::SpecialMode { entry: entry(), mode })
            }
            (Modes::AsPacked, Some(mode)) => Ok(mode | OWNER_USES),
        }
    }

    fn refuse_links(&self, path: &str) -> Result<(), UnpackError> {
        match self.modes {
            Modes::Usual => Ok(()),
            Modes::AsPacked => Err(UnpackError::Link { entry: path.to_owned() }),
        }
    }

    pub(super) fn add_link(&mut self, path: &str, target: &str) -> Result<(), UnpackError> {
        self.refuse_links(path)?;
        self.make_way(path)?;
        self.refuse_existing(path)?;
        self.folder.symlink(target, Path::new(path)).map_err(|source| place(path, source))?;
        self.know(path, EntryKind::Link { target: target.to_owned() }, Naming::Explicit)
    }

    pub(super) fn add_hard_link(&mut self, path: &str, existing: &str) -> Result<(), UnpackError> {
        self.refuse_links(path)?;
        self.make_way(path)?;
        self.refuse_existing(path)?;
        let kind = match self.entries.get(existing) {
            Some(Known { kind: kind @ EntryKind::File { .. }, .. }) => kind.clone(),
            _ => {
                return Err(UnpackError::HardLinkToNoFile { entry: path.to_owned(), target: existing.to_owned() });
            }
        };
        self.folder.hard_link(Path::new(existing), Path::new(path)).map_err(|source| place(path, source))?;
        self.know(path, kind, Naming::Explicit)
    }

    /// All content from the source, or as much as was said.
    fn write(&mut self, path: &str, mode: u32, size: Option<u64>, source: &mut Source<'_>) -> Result<(), UnpackError> {
        let mut file = self.folder.create(Path::new(path), mode).map_err(|source| place(path, source))?;
        let (mut hasher, mut written) = (Sha256::new(), 0);
        while size != Some(written) {
            let left = size.map_or(u64::MAX, |size| size - written);
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.piece.len());
            let piece = &mut self.piece[..most];
            let read = match (source.read(piece)?, size) {
                (0, None) => break,
                (0, Some(_)) => return Err(source.truncated()),
                (read, _) => read,
            };
            hasher.update(&piece[..read]);
            let wrote = file.write_all(&piece[..read]);
            wrote.map_err(|source| UnpackError::Write { entry: path.to_owned(), source })?;
            written += read as u64;
        }
        self.total += written;
        let sha256 = Digest::Sha256(hasher.finalize().into());
        self.know(path, EntryKind::File { mode, size: written, sha256 }, Naming::Explicit)
    }

    /// The folders above a path.
    fn make_way(&mut self, path: &str) -> Result<(), UnpackError> {
        for (end, _) in path.match_indices('/') {
            let above = &path[..end];
            match self.entries.get(above).map(|known| &known.kind) {
                Some(EntryKind::Folder { .. }) => {}
                Some(EntryKind::Link { .. }) => {
                    return Err(UnpackError::ThroughLink { entry: path.to_owned(), link: above.to_owned() });
                }
                Some(EntryKind::File { .. }) => {
                    return Err(UnpackError::BelowFile { entry: path.to_owned(), file: above.to_owned() });
                }
                None if self.modes == Modes::AsPacked => {
                    return Err(UnpackError::FolderComesLate { entry: path.to_owned() });
                }
                None => self.make_folder(above, FOLDER_MODE, Naming::OnTheWay)?,
            }
        }
        Ok(())
    }

    fn make_folder(&mut self, path: &str, mode: u32, naming: Naming) -> Result<(), UnpackError> {
        self.folder.make_folder(Path::new(path), mode).map_err(|source| place(path, source))?;
        self.know(path, EntryKind::Folder { mode }, naming)
    }

    fn refuse_existing(&self, path: &str) -> Result<(), UnpackError> {
        let entry = path.to_owned();
        match self.entries.get(path) {
            None => Ok(()),
            Some(Known { kind: EntryKind::Folder { .. }, .. }) => Err(UnpackError::FolderReplaced { entry }),
            Some(_) => Err(UnpackError::Duplicate { entry }),
        }
    }

    fn know(&mut self, path: &str, kind: EntryKind, naming: Naming) -> Result<(), UnpackError> {
        self.entries.insert(path.to_owned(), Known { kind, naming });
        match self.entries.len() > self.limits.entries {
            true => Err(UnpackError::TooManyEntries { limit: self.limits.entries }),
            false => Ok(()),
        }
    }
}

fn place(path: &str, source: DiskError) -> UnpackError {
    UnpackError::Place { entry: path.to_owned(), source }
}
