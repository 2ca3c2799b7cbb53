//! The step before the first change: what is there now, and was not made by nodestrap, is written down.
//!
//! The record is written before anything else, without a sync of its own: the `syncfs` that a commit needs anyway makes it
//! durable before the first name is switched. So a record that a power cut tore tells of a node on which nothing was switched
//! yet, and counts as absent. A record that replaces another one is made durable at once.

use std::path::Path;

use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, DiskError};
use host::files;
use serde::{Deserialize, Serialize};

use super::record::{self, BEFORE_FOLDER, Before, KEPT_MODE, RECORD_PATH, Record};
use super::{Deed, FAMILIES, Node};
use crate::bundle_source::{BundleSourceError, Delivered, Named, load_bundle};
use crate::complete;
use crate::failure::{disk_error, file_error};
use crate::reset;
use crate::sealed;
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};
use crate::told::DURABLE_REPORT_PATH;

/// What interrupted writes left there is nobody else's, whichever file it was to become.
const OUR_FOLDERS: [&str; 2] = [STATE_FOLDER, BEFORE_FOLDER];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// What is there now, and was not made by nodestrap, is kept, so that `reset` can put it back.
    KeepBefore,
    /// A bundle that somebody named by hand becomes the one that this node resumes with, after a reboot and ever after.
    TakeBundle { path: String },
    /// What an earlier bundle brought and this one does not is undone.
    RemoveFiles,
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::KeepBefore => "what was here before nodestrap came".to_owned(),
            Self::TakeBundle { path } => format!("{path}, if another one was named by hand"),
            Self::RemoveFiles => "what an earlier bundle brought and this one does not".to_owned(),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::KeepBefore => Ok(match missing(node)? {
                None => Condition::AlreadySo,
                Some(why) => Condition::Needed(why),
            }),
            Self::TakeBundle { path } => check_own_bundle(node, path),
            Self::RemoveFiles => {
                let subjects = find_obsolete(node, &record::load_for_step(node.tools.disk)?)?.subjects();
                Ok(match subjects.first() {
                    None => Condition::AlreadySo,
                    Some(first) => Condition::Needed(format!(
                        "an earlier bundle brought what this one does not: {}, such as {first}",
                        subjects.len()
                    )),
                })
            }
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::KeepBefore => keep(node),
            Self::TakeBundle { path } => {
                let (json, owner) = (node.bundle.to_json(), node.tools.ownership.owner());
                files::write_durable(node.tools.disk, Path::new(path), KEPT_MODE, json.as_bytes(), owner)
                    .map_err(|error| file_error(&error))
            }
            Self::RemoveFiles => remove_obsolete(node, context),
        }
    }
}

/// By its digest: a copy without what the node joined with is as good.
fn check_own_bundle(node: &Node<'_>, path: &str) -> Result<Condition, StepError> {
    if node.named == Named::ByDelivery {
        return Ok(Condition::AlreadySo);
    }
    let disk = node.tools.disk;
    let is_own = match load_bundle(disk, Path::new(path), disk, None) {
        Ok(Delivered { bundle, .. }) => bundle.digest() == node.identity.bundle,
        // The platform's, which this node is complete with.
        Err(BundleSourceError::Absent { .. }) => {
            let complete = complete::load(disk).map_err(|error| disk_error(&error))?;
            complete.is_some_and(|complete| complete.manifest.bundle == node.identity.bundle)
        }
        Err(_) => false,
    };
    Ok(match is_own {
        true => Condition::AlreadySo,
        false => Condition::Needed("this bundle was named by hand, and becomes the node's own".to_owned()),
    })
}

fn extend(node: &Node<'_>, known: &Record) -> Result<Record, StepError> {
    let mut record = known.clone();
    for family in FAMILIES {
        family.keep(node, known, &mut record)?;
    }
    Ok(record)
}

/// Why something has to be written; `None`: all is known and kept.
fn missing(node: &Node<'_>) -> Result<Option<String>, StepError> {
    let disk = node.tools.disk;
    let Some(known) = record::load(disk).map_err(|error| disk_error(&error))? else {
        return Ok(Some("nothing is known yet of what was here before".to_owned()));
    };
    if node.is_in_doubt()? {
        return Ok(Some("a sync failed in this boot: what is known need not be on the disk".to_owned()));
    }
    let wanted = extend(node, &known)?;
    if known != wanted {
        return Ok(Some("the bundle touches more than is known of".to_owned()));
    }
    if let Some(path) = retakable(disk, &wanted).map_err(|error| disk_error(&error))?.first() {
        return Ok(Some(format!("the copy of {path} is not whole")));
    }
    // That one is made good when this run is told of, whatever it does.
    let of_report = files::leftover_of(Path::new(DURABLE_REPORT_PATH)).map_err(|error| file_error(&error))?;
    for folder in OUR_FOLDERS {
        let left = files::leftovers(disk, Path::new(folder)).map_err(|error| file_error(&error))?;
        if let Some(path) = left.iter().find(|path| **path != of_report) {
            return Ok(Some(format!("{}: left over by an interrupted run", path.display())));
        }
    }
    Ok(None)
}

/// Writes the record and the originals that it names.
fn keep(node: &Node<'_>) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let known = record::load(disk).map_err(|error| disk_error(&error))?;
    let wanted = extend(node, &known.clone().unwrap_or_default())?;
    let in_doubt = node.is_in_doubt()?;
    let write = || {
        for folder in OUR_FOLDERS {
            disk.make_folder(Path::new(folder), STATE_FOLDER_MODE)?;
            files::remove_leftovers(disk, Path::new(folder))?;
        }
        let mut copies = Vec::new();
        for path in retakable(disk, &wanted)? {
            copies.extend(record::take_original(disk, &path)?);
        }
        if known.is_none() {
            return files::write_volatile(disk, Path::new(RECORD_PATH), KEPT_MODE, &sealed::print(&wanted));
        }
        for copy in copies {
            disk.sync_file(&copy)?;
        }
        if in_doubt {
            record::mend(disk)?;
        }
        disk.sync_folder(Path::new(BEFORE_FOLDER))?;
        record::replace(disk, &wanted)
    };
    write().map_err(|error| file_error(&error))
}

/// Originals whose copies are missing or torn, and which are still in their places.
fn retakable(disk: &dyn Disk, record: &Record) -> Result<Vec<String>, DiskError> {
    let mut paths = Vec::new();
    for (path, before) in record::originals(record) {
        let Before::File { sha256, .. } = before else { continue };
        let is_kept = record::load_original(disk, sha256)?.is_some();
        if !is_kept && record::sha256_at(disk, path)?.as_ref() == Some(sha256) {
            paths.push(path.clone());
        }
    }
    Ok(paths)
}

pub(crate) fn find_obsolete(node: &Node<'_>, record: &Record) -> Result<Record, StepError> {
    let mut obsolete = Record::default();
    for family in FAMILIES {
        family.find_obsolete(node, record, &mut obsolete)?;
    }
    Ok(obsolete)
}

/// As `reset` would, for what is no longer wanted. What the record forgets is durably gone first.
fn remove_obsolete(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let known = record::load_for_step(node.tools.disk)?;
    let obsolete = find_obsolete(node, &known)?;
    reset::undo_now(node.tools, &obsolete, context)?;
    // A folder that somebody uses stays, and is remembered.
    let mut undone = obsolete;
    let mut gone = std::collections::BTreeSet::new();
    for folder in &undone.folders {
        if node.tools.disk.stat(Path::new(folder)).map_err(|error| disk_error(&error))?.is_none() {
            gone.insert(folder.clone());
        }
    }
    undone.folders = gone;
    record::replace(node.tools.disk, &known.without(&undone)).map_err(|error| file_error(&error))
}
