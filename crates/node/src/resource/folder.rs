//! Folders on a node: made where they are missing, and removed again if they are empty and were not there before.

use std::collections::BTreeSet;
use std::path::Path;

use bundle::resource::folder::{compare, wanted, with_parents};
use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, Kind};
use host::files;
use serde::{Deserialize, Serialize};

use super::file::FILES_DEADLINE;
use super::record::Record;
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified, first_that};
use crate::failure::{disk_error, file_error};
use crate::reset::ResetAction;

pub(crate) struct Folders;

/// Programs of the node read them.
const MODE: u32 = 0o755;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    MakeFolders { paths: Vec<String> },
}

/// What is there instead of a folder, if anything is. Links to folders are as good.
fn obstacle(disk: &dyn Disk, path: &str) -> Result<Option<Option<&'static str>>, StepError> {
    let found = disk.stat(Path::new(path)).map_err(|error| disk_error(&error))?;
    Ok(match found.map(|stat| stat.kind) {
        Some(Kind::Folder | Kind::Link { .. }) => None,
        Some(_) => Some(Some("something else")),
        None => Some(None),
    })
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        let Self::MakeFolders { paths } = self;
        paths.join(" ")
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        let Self::MakeFolders { paths } = self;
        for path in paths {
            match obstacle(node.tools.disk, path)? {
                None => {}
                Some(None) => return Ok(Condition::Needed(format!("{path} is not there"))),
                Some(Some(what)) => {
                    return Err(StepError::needs_operator(format!("{path:?} must be a folder, but {what} is there"))
                        .with_advice("move it away; nodestrap replaces nothing that it did not make"));
                }
            }
        }
        Ok(Condition::AlreadySo)
    }

    fn apply(&self, node: &Node<'_>, _: &StepContext<'_>) -> Result<(), StepError> {
        let Self::MakeFolders { paths } = self;
        let make = |path: &String| node.tools.disk.make_folder(Path::new(path), MODE);
        paths.iter().try_for_each(make).map_err(|error| disk_error(&error))
    }
}

/// All that the bundle needs, with those of the links by which its units are enabled.
fn needed(node: &Node<'_>) -> Result<BTreeSet<String>, StepError> {
    let mut folders = wanted(node.bundle);
    for folder in node.link_folders()? {
        folders.extend(with_parents(&folder));
    }
    Ok(folders)
}

impl Family for Folders {
    fn keep(&self, node: &Node<'_>, known: &Record, record: &mut Record) -> Result<(), StepError> {
        // Folders of what is known were looked at when that was new.
        let sizes = |record: &Record| {
            (record.files.len(), record.gates.len(), record.units.len(), record.trees.len() + record.extensions.len())
        };
        if sizes(known) == sizes(record) {
            return Ok(());
        }
        for folder in needed(node)? {
            if node.tools.disk.stat(Path::new(&folder)).map_err(|error| disk_error(&error))?.is_none() {
                record.folders.insert(folder);
            }
        }
        Ok(())
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let mut drift = Vec::new();
        for folder in bundle::FOLDERS {
            if let Some(found) = obstacle(node.tools.disk, folder)? {
                drift.push(compare(folder, found));
            }
        }
        Ok(Verified { drift, remarks: Vec::new() })
    }

    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        let (needed, disk) = (needed(node)?, node.tools.disk);
        let files = obsolete.files.keys().chain(obsolete.gates.keys());
        let going: BTreeSet<String> = files.chain(&obsolete.addons).cloned().collect();
        // Deepest first: a folder goes if all that is in it goes. What somebody else uses stays.
        for folder in record.folders.iter().rev().filter(|folder| !needed.contains(*folder)) {
            let names = disk.list(Path::new(folder)).map_err(|error| disk_error(&error))?;
            let goes = |name: &String| {
                let path = format!("{folder}/{name}");
                // A link by which a unit was enabled has its name.
                going.contains(&path) || obsolete.folders.contains(&path) || obsolete.units.contains_key(name)
            };
            if names.iter().all(goes) {
                obsolete.folders.insert(folder.clone());
            }
        }
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        // Deepest first.
        let remove = Undo::RemoveFolders { paths: record.folders.iter().rev().cloned().collect() };
        vec![UndoStep {
            phase: UndoPhase::RemoveFolders,
            id: "remove-folders".to_owned(),
            deadline: FILES_DEADLINE,
            barrier: false,
            action: ResetAction::Folder(remove),
        }]
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// Only if they are empty.
    RemoveFolders { paths: Vec<String> },
}

fn is_empty_folder(disk: &dyn Disk, path: &str) -> Result<bool, StepError> {
    let stat = disk.stat(Path::new(path)).map_err(|error| disk_error(&error))?;
    let is_folder = stat.is_some_and(|stat| stat.kind == Kind::Folder);
    Ok(is_folder && disk.list(Path::new(path)).map_err(|error| disk_error(&error))?.is_empty())
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::RemoveFolders { paths } = self;
        format!("{} folders, if they are empty", paths.len())
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        let Self::RemoveFolders { paths } = self;
        let empty = |path: &&String| is_empty_folder(on.tools.disk, path);
        first_that(paths, empty, |path| format!("{path} is empty and was not here before"))
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::RemoveFolders { paths } = self;
        let disk = on.tools.disk;
        for path in paths {
            if is_empty_folder(disk, path)? {
                files::remove_durable(disk, Path::new(path)).map_err(|error| file_error(&error))?;
            } else if disk.stat(Path::new(path)).map_err(|error| disk_error(&error))?.is_some() {
                context.detail(format!("{path} is not empty and stays"));
            }
        }
        Ok(())
    }
}
