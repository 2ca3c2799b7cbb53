//! What a tree holds.

use std::io;
use std::path::Path;

use host::Disk;
use host::disk::{DiskError, Kind, Stat};
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher};

/// Every entry, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// In bytes, of all files; one that has several names counts once.
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the folder, without dots.
    pub path: String,
    #[serde(flatten)]
    pub kind: EntryKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum EntryKind {
    Folder {
        #[serde(with = "octal")]
        mode: u32,
    },
    /// A name that a file has besides another is a file like that one.
    File {
        #[serde(with = "octal")]
        mode: u32,
        size: u64,
        sha256: Digest,
    },
    Link {
        target: String,
    },
}

/// How a tree on the disk differs from its listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Absent {
        path: String,
    },
    /// Nobody listed it.
    Additional {
        path: String,
    },
    /// Another kind of thing, another mode, other content or another target.
    Changed {
        path: String,
    },
}

impl Listing {
    /// All differences, in the order of their paths; every file is read, past what the kernel remembers of it.
    pub fn compare(&self, disk: &dyn Disk, folder: &Path) -> Result<Vec<Difference>, DiskError> {
        let mut differences = Vec::new();
        for entry in &self.entries {
            let at = folder.join(&entry.path);
            match disk.stat(&at)? {
                None => differences.push(Difference::Absent { path: entry.path.clone() }),
                Some(stat) if is_as_listed(disk, &at, &stat, &entry.kind)? => {}
                Some(_) => differences.push(Difference::Changed { path: entry.path.clone() }),
            }
        }
        self.find_additional(disk, folder, "", &mut differences)?;
        differences.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(differences)
    }

    fn find_additional(
        &self,
        disk: &dyn Disk,
        folder: &Path,
        below: &str,
        found: &mut Vec<Difference>,
    ) -> Result<(), DiskError> {
        for name in disk.list(&folder.join(below))? {
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            match self.find(&path) {
                None => found.push(Difference::Additional { path }),
                Some(EntryKind::Folder { .. }) if is_folder(disk, &folder.join(&path))? => {
                    self.find_additional(disk, folder, &path, found)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// What is listed at a path.
    pub fn find(&self, path: &str) -> Option<&EntryKind> {
        let index = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        Some(&self.entries[index].kind)
    }
}

impl Difference {
    pub fn path(&self) -> &str {
        match self {
            Self::Absent { path } | Self::Additional { path } | Self::Changed { path } => path,
        }
    }
}

fn is_folder(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    Ok(disk.stat(path)?.is_some_and(|stat| stat.kind == Kind::Folder))
}

fn is_as_listed(disk: &dyn Disk, path: &Path, found: &Stat, listed: &EntryKind) -> Result<bool, DiskError> {
    match (listed, &found.kind) {
        (EntryKind::Folder { mode }, Kind::Folder) => Ok(found.mode == *mode),
        (EntryKind::Link { target }, Kind::Link { target: found }) => Ok(found == target),
        (EntryKind::File { mode, size, sha256 }, Kind::File) if (found.mode, found.size) == (*mode, *size) => {
            let Some(mut reader) = disk.open_medium(path)? else { return Ok(false) };
            let mut hasher = Hashing(Hasher::like(sha256));
            // What cannot be read is not as it was.
            Ok(io::copy(&mut reader, &mut hasher).is_ok() && hasher.0.finish() == *sha256)
        }
        _ => Ok(false),
    }
}

struct Hashing(Hasher);

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As people write modes: `"0755"`.
mod octal {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    // The shape is serde's.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub(super) fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mode:04o}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        u32::from_str_radix(&text, 8).map_err(|_| de::Error::custom(format_args!("{text:?} is no mode: write 0755")))
    }
}
