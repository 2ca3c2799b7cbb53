//! Versions that are not in use any more, and what the store has of them: they go when the new ones have proved themselves.

use std::path::{Path, PathBuf};

use bundle::resource::folder::with_parents;
use bundle::{Component, Join, TREES_FOLDER, TreeDigest, home};
use engine::{EventKind, RunOutcome, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::files;

use super::super::record;
use crate::artefacts::{STORE_FOLDER, store, store_error};
use crate::complete::{self, Complete};
use crate::failure::{disk_error, file_error};
use crate::session::{LOCK_PATH, SessionError, load_events};

/// What may go, and how much that is.
#[derive(Default)]
pub(crate) struct Surplus {
    /// Folders, listings, and what interrupted runs left.
    pub(crate) paths: Vec<PathBuf>,
    /// Objects of the store, and what was fetched of some.
    pub(crate) objects: usize,
    /// Components that are gone, but not yet what was made for them.
    remembered: Vec<String>,
}

impl Surplus {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.objects == 0 && self.remembered.is_empty()
    }

    pub(crate) fn describe(&self) -> String {
        match (self.paths.first(), self.remembered.first()) {
            (Some(first), _) => format!("{} is of an earlier version", first.display()),
            (None, Some(component)) if self.objects == 0 => format!("the folders of {component} may be left"),
            (None, _) => format!("{} artefacts in the store are of earlier versions", self.objects),
        }
    }
}

/// Everything below the folder of a component is ours.
pub(crate) fn find(disk: &dyn Disk, trees: &[TreeDigest]) -> Result<Surplus, StepError> {
    let failed = |error: DiskError| disk_error(&error);
    let mut paths = Vec::new();
    for name in disk.list(Path::new(TREES_FOLDER)).map_err(failed)? {
        let Ok(component) = name.parse::<Component>() else { continue };
        let folder = PathBuf::from(home(component));
        match trees.iter().find(|tree| tree.component == component) {
            None => paths.push(folder),
            Some(tree) => {
                let wanted = [tree.name.clone(), format!("{}.json", tree.name), "current".to_owned()];
                let names = disk.list(&folder).map_err(failed)?;
                paths.extend(names.iter().filter(|name| !wanted.contains(name)).map(|name| folder.join(name)));
            }
        }
    }
    let stored = store(disk).surplus(&digests(trees)).map_err(|error| store_error(&error))?;
    let mut remembered: Vec<String> = record::load_for_step(disk)?.trees.into_iter().collect();
    remembered.retain(|component| !trees.iter().any(|tree| tree.component.as_str() == component));
    Ok(Surplus { paths, objects: stored.objects.len() + stored.partial.len(), remembered })
}

/// As the store knows them.
fn digests(trees: &[TreeDigest]) -> Vec<fetch::Digest> {
    trees.iter().filter_map(|tree| tree.digest.as_str().parse().ok()).collect()
}

/// Whether an earlier bundle may have brought programs that nobody has taken away yet.
pub(crate) fn has_any(disk: &dyn Disk) -> Result<bool, StepError> {
    Ok(!find(disk, &[])?.is_empty())
}

/// Takes it all away, and forgets that it was here. Durable when it returns.
pub(crate) fn retire(disk: &dyn Disk, trees: &[TreeDigest]) -> Result<(), StepError> {
    let surplus = find(disk, trees)?;
    let remove = || -> Result<(), files::FileError> {
        for path in &surplus.paths {
            disk.remove_tree(path)?;
            disk.sync_folder(path.parent().unwrap_or(Path::new("/")))?;
        }
        Ok(())
    };
    remove().map_err(|error| file_error(&error))?;
    forget(disk, trees)?;
    store(disk).collect(&digests(trees)).map(drop).map_err(|error| store_error(&error))
}

/// What a complete node has beside the versions that it runs.
pub struct Outdated {
    pub join: Join,
    trees: Vec<TreeDigest>,
}

/// `None` also while the last run on this node was not brought to its end: the next one may want what that one fetched. Reads
/// only.
pub fn find_outdated(disk: &dyn Disk) -> Result<Option<Outdated>, SessionError> {
    let failed = |error: DiskError| SessionError::Retire(disk_error(&error));
    let Some(Complete { manifest, .. }) = complete::load(disk).map_err(failed)? else { return Ok(None) };
    let (events, _) = load_events(disk)?;
    let last_was_done = events.iter().rev().find_map(|event| match &event.kind {
        EventKind::RunFinished { outcome } => Some(matches!(outcome, RunOutcome::Done | RunOutcome::NothingToDo)),
        EventKind::RunOpened { .. } | EventKind::RunStarted { .. } => Some(false),
        _ => None,
    });
    if last_was_done != Some(true) {
        return Ok(None);
    }
    let is_outdated = !find(disk, &manifest.trees).map_err(SessionError::Retire)?.is_empty();
    Ok(is_outdated.then_some(Outdated { join: manifest.join, trees: manifest.trees }))
}

/// Takes it away, unless the node has become another one meanwhile. What went, for people; durable when it returns.
pub fn retire_outdated(disk: &dyn Disk, outdated: &Outdated) -> Result<Vec<String>, SessionError> {
    let lock = disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    match find_outdated(disk)? {
        Some(now) if now.trees == outdated.trees => {}
        _ => return Ok(Vec::new()),
    }
    let surplus = find(disk, &outdated.trees).map_err(SessionError::Retire)?;
    retire(disk, &outdated.trees).map_err(SessionError::Retire)?;
    let objects = (surplus.objects > 0).then(|| format!("{} artefacts in {STORE_FOLDER}", surplus.objects));
    Ok(surplus.paths.iter().map(|path| path.display().to_string()).chain(objects).collect())
}

/// Folders that were made for trees that are gone go too, if nothing else is in them.
fn forget(disk: &dyn Disk, trees: &[TreeDigest]) -> Result<(), StepError> {
    let known = record::load_for_step(disk)?;
    let mut record = known.clone();
    let has = |component: &str| trees.iter().any(|tree| tree.component.as_str() == component);
    let gone: Vec<String> = known.trees.iter().filter(|component| !has(component)).cloned().collect();
    let homes = gone.iter().flat_map(|component| with_parents(&format!("{TREES_FOLDER}/{component}")));
    let mut folders: Vec<String> = homes.filter(|folder| known.folders.contains(folder)).collect();
    folders.sort();
    folders.dedup();
    for folder in folders.iter().rev() {
        let path = Path::new(folder);
        let stat = disk.stat(path).map_err(|error| disk_error(&error))?;
        let is_empty = disk.list(path).map_err(|error| disk_error(&error))?.is_empty();
        if stat.is_some_and(|stat| stat.kind == Kind::Folder) && is_empty {
            files::remove_durable(disk, path).map_err(|error| file_error(&error))?;
        }
        if disk.stat(path).map_err(|error| disk_error(&error))?.is_none() {
            record.folders.remove(folder);
        }
    }
    record.trees.retain(|component| has(component));
    match record == known {
        true => Ok(()),
        false => record::replace(disk, &record).map_err(|error| file_error(&error)),
    }
}
