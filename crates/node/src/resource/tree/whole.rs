//! Whether a tree is there, by what was listed of it when it was unpacked.
//!
//! `/opt/nodestrap/bin/COMPONENT/VERSION-DIGEST.json`, sealed: every file with its size, mode and SHA-256. It is durable before
//! the tree gets its name, so a tree without one is not there.

use std::path::Path;

use bundle::Tree;
use bundle::resource::tree::State;
use fetch::unpack::{Difference, EntryKind, Listing};
use host::disk::{Disk, DiskError, Kind, Stat};
use host::files::{self, FileError};

use crate::sealed;

const MODE: u32 = 0o644;
/// Twenty thousand entries.
const LIMIT: u64 = 16 * 1024 * 1024;
/// Whoever runs it needs one of them.
const ANYBODY_MAY_RUN: u32 = 0o111;

/// What a look at names, sizes and modes tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Glance {
    Whole,
    Absent,
    /// Nothing that could be run, in a few words.
    Damaged(String),
    /// Somebody changed it, in a few words.
    Changed(String),
}

pub(crate) fn load(disk: &dyn Disk, folder: &str) -> Result<Option<Listing>, DiskError> {
    let bytes = disk.read(Path::new(&format!("{folder}.json")), LIMIT)?;
    Ok(bytes.and_then(|bytes| sealed::parse(&bytes)))
}

/// Durable when it returns.
pub(crate) fn write(disk: &dyn Disk, tree: &Tree, listing: &Listing) -> Result<(), FileError> {
    files::write_durable(disk, Path::new(&tree.listing()), MODE, &sealed::print(listing), None)
}

fn is_folder(disk: &dyn Disk, path: &str) -> Result<bool, DiskError> {
    Ok(disk.stat(Path::new(path))?.is_some_and(|stat| stat.kind == Kind::Folder))
}

/// Every byte is read, from the disk itself.
pub(crate) fn state(disk: &dyn Disk, tree: &Tree) -> Result<State, DiskError> {
    let folder = tree.folder();
    let Some(listing) = load(disk, &folder)? else { return Ok(State::Absent) };
    if !is_folder(disk, &folder)? {
        return Ok(State::Absent);
    }
    let differences: Vec<_> = listing.compare(disk, Path::new(&folder))?.into_iter().map(in_words).collect();
    Ok(if differences.is_empty() { State::Whole } else { State::Damaged(differences) })
}

fn in_words(difference: Difference) -> (String, String) {
    match difference {
        Difference::Absent { path } => (path, "nothing".to_owned()),
        Difference::Additional { path } => (path, "not in the artefact".to_owned()),
        Difference::Changed { path } => (path, "something else".to_owned()),
    }
}

/// Reads no content: what a damaged disk or a careless hand does to programs shows without.
pub(crate) fn glance(disk: &dyn Disk, folder: &str) -> Result<Glance, DiskError> {
    let Some(listing) = load(disk, folder)? else { return Ok(Glance::Absent) };
    if !is_folder(disk, folder)? {
        return Ok(Glance::Absent);
    }
    let mut changed = None;
    for entry in &listing.entries {
        let found = disk.stat(&Path::new(folder).join(&entry.path))?;
        match judge(&entry.kind, found.as_ref()) {
            Glance::Whole | Glance::Absent => {}
            Glance::Damaged(what) => return Ok(Glance::Damaged(format!("{} {what}", entry.path))),
            Glance::Changed(what) => {
                changed.get_or_insert_with(|| format!("{} {what}", entry.path));
            }
        }
    }
    Ok(changed.map_or(Glance::Whole, Glance::Changed))
}

fn judge(listed: &EntryKind, found: Option<&Stat>) -> Glance {
    let Some(stat) = found else { return Glance::Damaged("is missing".to_owned()) };
    match (listed, &stat.kind) {
        (EntryKind::File { mode, size, .. }, Kind::File) => match () {
            () if stat.size == 0 && *size > 0 => Glance::Damaged("is empty".to_owned()),
            () if mode & ANYBODY_MAY_RUN != 0 && stat.mode & ANYBODY_MAY_RUN == 0 => {
                Glance::Damaged(format!("cannot be run (mode {:04o})", stat.mode))
            }
            () if stat.size != *size => Glance::Changed(format!("has {} bytes, not {size}", stat.size)),
            () if stat.mode != *mode => Glance::Changed(format!("has the mode {:04o}, not {mode:04o}", stat.mode)),
            () => Glance::Whole,
        },
        (EntryKind::Folder { .. }, Kind::Folder) => Glance::Whole,
        (EntryKind::Link { target }, Kind::Link { target: found }) if found == target => Glance::Whole,
        (EntryKind::Link { .. }, Kind::Link { target }) => Glance::Changed(format!("leads to {target}")),
        _ => Glance::Damaged("is something else".to_owned()),
    }
}
