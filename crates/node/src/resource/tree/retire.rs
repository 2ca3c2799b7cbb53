//! Versions that are not in use any more, and what the store has of them: they go when the new ones have proved themselves.

use std::path::{Path, PathBuf};

use bundle::resource::folder::with_parents;
use bundle::{Component, TREES_FOLDER, TreeDigest, home};
use engine::StepError;
use host::disk::{Disk, DiskError, Kind};
use host::files;

use super::super::record;
use crate::artefacts::{store, store_error};
use crate::failure::{disk_error, file_error};

/// What may go, and how much that is.
#[derive(Default)]
pub(crate) struct Surplus {
    /// Folders, listings, and what interrupted runs left.
    pub(crate) paths: Vec<PathBuf>,
    /// Objects of the store.
    pub(crate) objects: usize,
}

impl Surplus {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.objects == 0
    }

    pub(crate) fn describe(&self) -> String {
        match self.paths.first() {
            Some(first) => format!("{} is of an earlier version", first.display()),
            None => format!("{} artefacts in the store are of earlier versions", self.objects),
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
    let is_wanted = |digest: &str| trees.iter().any(|tree| tree.digest == *digest);
    let objects = store(disk).list().map_err(|error| store_error(&error))?;
    let objects = objects.iter().filter(|object| !is_wanted(&object.digest.to_string())).count();
    Ok(Surplus { paths, objects })
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
    let keep: Vec<_> = trees.iter().filter_map(|tree| tree.digest.as_str().parse().ok()).collect();
    store(disk).collect(&keep).map(drop).map_err(|error| store_error(&error))
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
