//! Links: those to the versions in use, and those by which programs are found.

use std::collections::BTreeSet;
use std::path::Path;

use bundle::resource::tree::Found;
use bundle::{Tree, UnitName};
use engine::{Condition, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::files;

use super::super::Node;
use super::super::record::{self, Before, RECORD_PATH, Record};
use super::whole;
use crate::failure::{disk_error, file_error};

/// Each place with where it shall lead.
fn places(trees: &[Tree]) -> impl Iterator<Item = (&str, String)> {
    trees.iter().flat_map(|tree| tree.links.iter().map(|(place, program)| (place.as_str(), tree.link_target(program))))
}

fn kind_of(disk: &dyn Disk, path: &str) -> Result<Option<Kind>, DiskError> {
    Ok(disk.stat(Path::new(path))?.map(|stat| stat.kind))
}

/// Where a link leads to; `None` if there is no link.
pub(crate) fn target_of(disk: &dyn Disk, path: &str) -> Result<Option<String>, DiskError> {
    Ok(match kind_of(disk, path)? {
        Some(Kind::Link { target }) => Some(target),
        _ => None,
    })
}

/// What is in the way of links, each in a few words.
pub(crate) fn obstacles(disk: &dyn Disk, trees: &[Tree]) -> Result<Vec<String>, DiskError> {
    let mut found = Vec::new();
    for (place, _) in places(trees) {
        match kind_of(disk, place)? {
            Some(Kind::Folder) => found.push(format!("{place} is a folder")),
            Some(Kind::Other) => found.push(format!("{place} is neither a file nor a link")),
            Some(Kind::File | Kind::Link { .. }) | None => {}
        }
    }
    Ok(found)
}

/// What was there before is put back by `reset`. A program may be large, so it is not copied but moved aside when its place is
/// taken; what is there by then tells whether that happened.
pub(super) fn keep(node: &Node<'_>, record: &mut Record) -> Result<(), StepError> {
    for (place, _) in places(&node.bundle.trees) {
        if !record.files.contains_key(place) {
            let before = record::look_for_link(node.tools.disk, place).map_err(|error| disk_error(&error))?;
            record.files.insert(place.to_owned(), record::FileRecord::of_link(before));
        }
    }
    Ok(())
}

pub(super) fn check(disk: &dyn Disk, trees: &[Tree]) -> Result<Condition, StepError> {
    let looked = || -> Result<Option<String>, files::FileError> {
        for tree in trees {
            if target_of(disk, &tree.current())?.as_ref() != Some(&tree.name()) {
                return Ok(Some(format!("{} is not in use yet", tree.title())));
            }
        }
        let current: Vec<String> = trees.iter().map(Tree::current).collect();
        for (place, target) in places(trees) {
            if target_of(disk, place)?.as_ref() != Some(&target) {
                return Ok(Some(format!("{place} does not lead to {target} yet")));
            }
        }
        for path in places(trees).map(|(place, _)| place).chain(current.iter().map(String::as_str)) {
            if files::has_leftover(disk, Path::new(path))? {
                return Ok(Some(format!("{path}: left over by an interrupted run")));
            }
        }
        Ok(None)
    };
    Ok(looked().map_err(|error| file_error(&error))?.map_or(Condition::AlreadySo, Condition::Needed))
}

/// What was there before, and that those who run these programs have to start anew, is durable before the first switch.
pub(super) fn switch(node: &Node<'_>, trees: &[Tree]) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let mut readers: BTreeSet<UnitName> = BTreeSet::new();
    for tree in trees {
        if target_of(disk, &tree.current()).map_err(|error| disk_error(&error))?.as_ref() != Some(&tree.name()) {
            readers.extend(tree.read_by.units.iter().cloned());
        }
    }
    node.forget_starts(&readers)?;
    let record = record::load_for_step(disk)?;
    let switched = || -> Result<(), files::FileError> {
        files::sync_all(disk, &[Path::new(RECORD_PATH)])?;
        for tree in trees {
            replace(disk, &tree.current(), &tree.name())?;
        }
        for (place, target) in places(trees) {
            move_aside(disk, place, &record)?;
            replace(disk, place, &target)?;
        }
        let current: Vec<String> = trees.iter().map(Tree::current).collect();
        let all = places(trees).map(|(place, _)| place).chain(current.iter().map(String::as_str));
        let folders: BTreeSet<&Path> = all.filter_map(|path| Path::new(path).parent()).collect();
        files::sync_all(disk, &folders.into_iter().collect::<Vec<_>>())
    };
    switched().map_err(|error| file_error(&error))
}

pub(crate) fn replace(disk: &dyn Disk, path: &str, target: &str) -> Result<(), files::FileError> {
    match target_of(disk, path)?.as_deref() == Some(target) {
        true => files::remove_leftover(disk, Path::new(path)).map(drop),
        false => files::replace_link(disk, Path::new(path), target),
    }
}

/// A program that was here before nodestrap came, and is still in its place.
pub(crate) fn move_aside(disk: &dyn Disk, place: &str, record: &Record) -> Result<(), files::FileError> {
    let Some(known) = record.files.get(place).filter(|known| known.before == Before::Aside) else { return Ok(()) };
    let aside = record::aside(place);
    let is_original = kind_of(disk, place)? == Some(Kind::File)
        && disk.stat(&aside)?.is_none()
        && record::sha256_at(disk, place)?.is_none_or(|found| !known.wrote.contains(&found));
    if is_original {
        disk.rename(Path::new(place), &aside)?;
        // Its name is durable before another thing has the one that it had.
        disk.sync_folder(aside.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(())
}

pub(super) fn find(disk: &dyn Disk, tree: &Tree) -> Result<Found, DiskError> {
    let mut wrong_links = Vec::new();
    for (place, target) in places(std::slice::from_ref(tree)) {
        let found = match kind_of(disk, place)? {
            Some(Kind::Link { target: found }) if found == target => continue,
            Some(Kind::Link { target }) => format!("a link to {target}"),
            Some(Kind::File) => "a file".to_owned(),
            Some(Kind::Folder) => "a folder".to_owned(),
            Some(Kind::Other) => "something that is no link".to_owned(),
            None => "nothing".to_owned(),
        };
        wrong_links.push((place.to_owned(), found));
    }
    Ok(Found { current: target_of(disk, &tree.current())?, state: whole::state(disk, tree)?, wrong_links })
}
