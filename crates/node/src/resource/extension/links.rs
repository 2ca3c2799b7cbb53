//! Links: those by which systemd finds extensions, and those that hide what would take their place.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bundle::{EXTENSION_LINKS_FOLDER, Extension, MASK, UNIT_FOLDER, UnitName};
use engine::{Condition, StepContext, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::files;

use super::super::file;
use super::super::record::{self, FileRecord, Now, RECORD_PATH, Record};
use super::super::tree::links::{move_aside, replace, target_of};
use super::super::{Deed as _, Node, Undoing};
use super::{merge, sysupdate};
use crate::failure::{disk_error, file_error};

/// Each place with where it shall lead.
pub(crate) fn wanted(node: &Node<'_>, record: &Record) -> Result<BTreeMap<String, String>, StepError> {
    let extensions = &node.bundle.extensions;
    let mut links: BTreeMap<String, String> = extensions.iter().flat_map(Extension::links).collect();
    let transfers = sysupdate::find(node.tools.disk, extensions, record).map_err(|error| disk_error(&error))?;
    links.extend(transfers.into_iter().map(|place| (place, MASK.to_owned())));
    Ok(links)
}

/// What is in the way of links, or would be taken in their place; each in a few words.
pub(crate) fn obstacles(disk: &dyn Disk, extensions: &[Extension]) -> Result<Vec<String>, DiskError> {
    let mut found = Vec::new();
    for extension in extensions {
        for (place, _) in extension.links() {
            match disk.stat(Path::new(&place))?.map(|stat| stat.kind) {
                Some(Kind::Folder | Kind::Other) => found.push(format!("{place} is neither a file nor a link")),
                Some(Kind::File | Kind::Link { .. }) | None => {}
            }
        }
        // systemd takes either for the extension of this name.
        for other in ["", ".raw.v"] {
            let path = format!("{EXTENSION_LINKS_FOLDER}/{}{other}", extension.name);
            if disk.stat(Path::new(&path))?.is_some() {
                found.push(format!("{path} is an extension of the same name"));
            }
        }
    }
    Ok(found)
}

/// What was there before is put back by `reset`; that a link will be ours is known before it is made.
pub(super) fn keep(node: &Node<'_>, record: &mut Record) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let failed = |error: DiskError| disk_error(&error);
    for (place, target) in wanted(node, record)? {
        if !record.files.contains_key(&place) {
            // What describes a transfer is small: a copy of it survives what a name that is moved may not.
            let before = match disk.stat(Path::new(&place)).map_err(failed)?.map(|stat| stat.kind) {
                Some(Kind::File) if sysupdate::is_transfer(&place) => record::look(disk, &place).map_err(failed)?,
                _ => record::look_for_link(disk, &place).map_err(failed)?,
            };
            record.files.insert(place.clone(), FileRecord::of_link(before));
        }
        let found = target_of(disk, &place).map_err(failed)?;
        if let Some(known) = record.files.get_mut(&place) {
            known.will_lead(&target, found.as_deref());
        }
    }
    Ok(())
}

/// Links that an earlier bundle wanted, as a record of their own.
fn obsolete(node: &Node<'_>, record: &Record, wanted: &BTreeMap<String, String>) -> Result<Record, StepError> {
    let mut obsolete = Record::default();
    // Masks of units are links, too, and not of this family.
    let is_ours = |path: &str, file: &FileRecord| !file.links.is_empty() && !path.starts_with(UNIT_FOLDER);
    let unwanted = |path: &String, file: &FileRecord| is_ours(path, file) && !wanted.contains_key(path);
    for (path, file) in record.files.iter().filter(|(path, file)| unwanted(path, file)) {
        let now = record::compare(node.tools.disk, path, file).map_err(|error| disk_error(&error))?;
        if now == Now::Ours && node.bundle.file(path).is_none() {
            obsolete.files.insert(path.clone(), file.clone());
        }
    }
    Ok(obsolete)
}

pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    let disk = node.tools.disk;
    let record = record::load_for_step(disk)?;
    let links = wanted(node, &record)?;
    for (place, target) in &links {
        if target_of(disk, place).map_err(|error| disk_error(&error))?.as_ref() != Some(target) {
            return Ok(Condition::Needed(format!("{place} does not lead to {target} yet")));
        }
        if files::has_leftover(disk, Path::new(place)).map_err(|error| file_error(&error))? {
            return Ok(Condition::Needed(format!("{place}: left over by an interrupted run")));
        }
    }
    Ok(match obsolete(node, &record, &links)?.files.keys().next() {
        Some(path) => Condition::Needed(format!("{path} is of an earlier bundle")),
        None => Condition::AlreadySo,
    })
}

/// What was there before, that those who run these programs have to start anew, and that `/usr` is to be merged anew, is known before
/// the first switch.
pub(super) fn switch(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let mut readers: BTreeSet<UnitName> = BTreeSet::new();
    for extension in &node.bundle.extensions {
        if !find_wrong(disk, extension).map_err(|error| disk_error(&error))?.is_empty() {
            readers.extend(extension.read_by.units.iter().cloned());
        }
    }
    node.forget_starts(&readers)?;
    let record = record::load_for_step(disk)?;
    let links = wanted(node, &record)?;
    let obsolete = obsolete(node, &record, &links)?;
    files::sync_all(disk, &[Path::new(RECORD_PATH)]).map_err(|error| file_error(&error))?;
    merge::note_changed(disk)?;
    if !obsolete.is_empty() {
        let undoing = Undoing { tools: node.tools, record: &obsolete };
        file::Undo::RestoreFiles { restored: Vec::new(), removed: Vec::new() }.apply(&undoing, context)?;
    }
    let switched = || -> Result<(), files::FileError> {
        for (place, target) in &links {
            if let Some(folder) = Path::new(place).parent() {
                files::make_folder_durable(disk, folder, 0o755)?;
            }
            move_aside(disk, place, &record)?;
            replace(disk, place, target)?;
        }
        let folders: BTreeSet<&Path> = links.keys().filter_map(|place| Path::new(place).parent()).collect();
        files::sync_all(disk, &folders.into_iter().collect::<Vec<_>>())
    };
    switched().map_err(|error| file_error(&error))
}

/// Links that do not lead where they should, with what is there.
pub(crate) fn find_wrong(disk: &dyn Disk, extension: &Extension) -> Result<Vec<(String, String)>, DiskError> {
    let mut wrong = Vec::new();
    for (place, target) in extension.links() {
        let found = match disk.stat(Path::new(&place))?.map(|stat| stat.kind) {
            Some(Kind::Link { target: found }) if found == target => continue,
            Some(Kind::Link { target }) => format!("a link to {target}"),
            Some(_) => "something that is no link".to_owned(),
            None => "nothing".to_owned(),
        };
        wrong.push((place, found));
    }
    Ok(wrong)
}
