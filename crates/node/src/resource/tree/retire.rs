//! Versions that are not in use any more, and what the store has of them: they go when the new ones have proved themselves.

use std::path::{Path, PathBuf};

use bundle::resource::folder::with_parents;
use bundle::{Component, ExtensionDigest, ExtensionName, Join, TREES_FOLDER, TreeDigest, home};
use engine::{EventKind, RunOutcome, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::files;

use super::super::{extension, record};
use crate::artefacts::{STORE_FOLDER, store, store_error};
use crate::complete::{self, Complete};
use crate::failure::{disk_error, file_error};
use crate::session::{LOCK_PATH, SessionError, load_events};

/// What a node runs of all that it was brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Programs {
    pub(crate) trees: Vec<TreeDigest>,
    pub(crate) extensions: Vec<ExtensionDigest>,
}

impl Programs {
    fn has(&self, component: &str) -> bool {
        self.trees.iter().any(|tree| tree.component.as_str() == component)
    }

    fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|extension| extension.name.as_str() == name)
    }

    /// As the store knows them.
    pub(crate) fn digests(&self) -> Vec<fetch::Digest> {
        let trees = self.trees.iter().map(|tree| &tree.digest);
        let all = trees.chain(self.extensions.iter().map(|extension| &extension.digest));
        all.filter_map(|digest| digest.as_str().parse().ok()).collect()
    }
}

/// What may go, and how much that is.
#[derive(Default)]
pub(crate) struct Surplus {
    /// Folders, listings, and what interrupted runs left.
    pub(crate) paths: Vec<PathBuf>,
    /// Objects of the store, and what was fetched of some.
    pub(crate) objects: usize,
    /// Components and extensions that are gone, but not yet what was made for them.
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
pub(crate) fn find(disk: &dyn Disk, programs: &Programs) -> Result<Surplus, StepError> {
    let failed = |error: DiskError| disk_error(&error);
    let mut paths = Vec::new();
    for name in disk.list(Path::new(TREES_FOLDER)).map_err(failed)? {
        let Ok(component) = name.parse::<Component>() else { continue };
        let folder = PathBuf::from(home(component));
        match programs.trees.iter().find(|tree| tree.component == component) {
            None => paths.push(folder),
            Some(tree) => {
                let wanted = [tree.name.clone(), format!("{}.json", tree.name), "current".to_owned()];
                let names = disk.list(&folder).map_err(failed)?;
                paths.extend(names.iter().filter(|name| !wanted.contains(name)).map(|name| folder.join(name)));
            }
        }
    }
    paths.extend(extension::surplus(disk, &programs.extensions)?);
    let stored = store(disk).surplus(&programs.digests()).map_err(|error| store_error(&error))?;
    let record = record::load_for_step(disk)?;
    let trees = record.trees.into_iter().filter(|component| !programs.has(component));
    let extensions = record.extensions.into_iter().filter(|name| !programs.has_extension(name));
    let remembered = trees.chain(extensions).collect();
    Ok(Surplus { paths, objects: stored.objects.len() + stored.partial.len(), remembered })
}

/// Whether an earlier bundle may have brought programs that nobody has taken away yet.
pub(crate) fn has_any(disk: &dyn Disk) -> Result<bool, StepError> {
    Ok(!find(disk, &Programs::default())?.is_empty())
}

/// Takes it all away, and forgets that it was here. Durable when it returns.
pub(crate) fn retire(disk: &dyn Disk, programs: &Programs) -> Result<(), StepError> {
    let surplus = find(disk, programs)?;
    let remove = || -> Result<(), files::FileError> {
        for path in &surplus.paths {
            disk.remove_tree(path)?;
            disk.sync_folder(path.parent().unwrap_or(Path::new("/")))?;
        }
        Ok(())
    };
    remove().map_err(|error| file_error(&error))?;
    forget(disk, programs)?;
    store(disk).collect(&programs.digests()).map(drop).map_err(|error| store_error(&error))
}

/// What a complete node has beside the versions that it runs.
pub struct Outdated {
    pub join: Join,
    programs: Programs,
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
    let programs = Programs { trees: manifest.trees, extensions: manifest.extensions };
    let is_outdated = !find(disk, &programs).map_err(SessionError::Retire)?.is_empty();
    Ok(is_outdated.then_some(Outdated { join: manifest.join, programs }))
}

/// Takes it away, unless the node has become another one meanwhile. What went, for people; durable when it returns.
pub fn retire_outdated(disk: &dyn Disk, outdated: &Outdated) -> Result<Vec<String>, SessionError> {
    let lock = disk.try_lock(Path::new(LOCK_PATH)).map_err(SessionError::Lock)?;
    let _lock = lock.ok_or(SessionError::Busy)?;
    match find_outdated(disk)? {
        Some(now) if now.programs == outdated.programs => {}
        _ => return Ok(Vec::new()),
    }
    let surplus = find(disk, &outdated.programs).map_err(SessionError::Retire)?;
    retire(disk, &outdated.programs).map_err(SessionError::Retire)?;
    let objects = (surplus.objects > 0).then(|| format!("{} artefacts in {STORE_FOLDER}", surplus.objects));
    Ok(surplus.paths.iter().map(|path| path.display().to_string()).chain(objects).collect())
}

/// Folders that were made for trees that are gone go too, if nothing else is in them.
fn forget(disk: &dyn Disk, programs: &Programs) -> Result<(), StepError> {
    let known = record::load_for_step(disk)?;
    let mut record = known.clone();
    let trees = known.trees.iter().filter(|component| !programs.has(component));
    let extensions = known.extensions.iter().filter(|name| !programs.has_extension(name));
    let extensions = extensions.filter_map(|name| name.parse::<ExtensionName>().ok()).map(ExtensionName::home);
    let gone: Vec<String> = trees.map(|component| format!("{TREES_FOLDER}/{component}")).chain(extensions).collect();
    let mut folders: Vec<String> =
        gone.iter().flat_map(|home| with_parents(home)).filter(|folder| known.folders.contains(folder)).collect();
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
    record.trees.retain(|component| programs.has(component));
    record.extensions.retain(|name| programs.has_extension(name));
    match record == known {
        true => Ok(()),
        false => record::replace(disk, &record).map_err(|error| file_error(&error)),
    }
}
