//! System extensions on a node: fetched, placed beside each other by version, switched by links, merged, proved, and retired.
//!
//! ```text
//! /opt/extensions/kubernetes/kubernetes-1.36.3-0123456789ab.raw   one version: written under another name, synced, then renamed
//! /etc/extensions/kubernetes.raw                                  → that file, replaced in one step
//! /etc/extensions/containerd-flatcar.raw                          → /dev/null, where our containerd takes its place
//! /etc/sysupdate.d/…                                              → /dev/null, what would replace our link
//! /run/nodestrap/extensions-changed                               what is linked is not what is merged yet
//! ```
//!
//! An image that does not fit is refused with the plan: systemd would pass over it, unmerge `/usr`, and report success.

pub(crate) mod image;
pub(crate) mod links;
mod merge;
mod sysupdate;

use std::path::Path;

use bundle::resource::extension::{Found, compare};
use bundle::{Extension, ExtensionName, SYSEXT_UNIT};
use engine::{Condition, History, StepContext, StepError};
use host::disk::DiskError;
use serde::{Deserialize, Serialize};

use super::file::FILES_DEADLINE;
use super::record::Record;
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified, first_that, host_name};
use crate::artefacts::{is_in_store, obtain};
use crate::failure::{disk_error, unit_error};
use crate::reset::ResetAction;

pub(crate) use merge::MERGE_DEADLINE;

pub(crate) struct Extensions;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// The artefact is in the store, proved.
    FetchExtension { extension: PlannedExtension },
    /// Its image is where it will be merged from; nothing leads to it yet.
    PlaceExtension { extension: PlannedExtension },
    /// The links by which systemd finds it, and no others of ours; nobody else replaces them.
    SwitchExtensions { extensions: Vec<PlannedExtension> },
    /// Its programs are in `/usr`, now and after a boot.
    MergeExtensions { extensions: Vec<PlannedExtension> },
    /// Every byte is read from the disk itself.
    VerifyExtensions { extensions: Vec<PlannedExtension> },
}

/// By its size and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedExtension {
    pub name: ExtensionName,
    pub version: String,
    pub digest: String,
    pub size: u64,
    pub image: String,
    pub links: Vec<String>,
}

impl From<&Extension> for PlannedExtension {
    fn from(extension: &Extension) -> Self {
        Self {
            name: extension.name,
            version: extension.version.clone(),
            digest: extension.artefact.digest.to_string(),
            size: extension.artefact.size,
            image: extension.image(),
            links: extension.links().map(|(place, _)| place).collect(),
        }
    }
}

impl Action {
    /// The plan names extensions; what they are made of is in the bundle it was made from.
    fn extensions<'n>(&self, node: &'n Node<'_>) -> Result<Vec<&'n Extension>, StepError> {
        let planned = match self {
            Self::FetchExtension { extension } | Self::PlaceExtension { extension } => std::slice::from_ref(extension),
            Self::SwitchExtensions { extensions }
            | Self::MergeExtensions { extensions }
            | Self::VerifyExtensions { extensions } => extensions,
        };
        let find = |planned: &PlannedExtension| {
            let found = node.bundle.extensions.iter().find(|extension| extension.name == planned.name);
            found.ok_or_else(|| {
                StepError::permanent(format!("the plan names {}, which its bundle does not have", planned.name))
            })
        };
        planned.iter().map(find).collect()
    }
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        let titles = |all: &[PlannedExtension]| {
            all.iter().map(|one| format!("{} {}", one.name, one.version)).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::FetchExtension { extension: PlannedExtension { name, version, size, digest, .. } } => {
                format!("{name} {version}, {size} bytes, {digest}")
            }
            Self::PlaceExtension { extension } => extension.image.clone(),
            Self::SwitchExtensions { extensions } => format!("to {}", titles(extensions)),
            Self::MergeExtensions { extensions } => format!("{}, by {SYSEXT_UNIT}", titles(extensions)),
            Self::VerifyExtensions { extensions } => format!("{}, read from the disk", titles(extensions)),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        let (extensions, disk) = (self.extensions(node)?, node.tools.disk);
        match self {
            Self::FetchExtension { .. } => first_that(
                extensions,
                |extension| Ok(!image::is_there(disk, extension)? && !is_in_store(disk, *extension)?),
                |extension| format!("{} is not on this node yet: {} bytes", extension.title(), extension.artefact.size),
            ),
            Self::PlaceExtension { .. } => image::check(node, &extensions),
            Self::SwitchExtensions { .. } => links::check(node),
            Self::MergeExtensions { .. } => merge::check(node),
            Self::VerifyExtensions { .. } => {
                let unproved = |extension: &&Extension| Ok(!image::is_proved(node, extension.name));
                first_that(extensions, unproved, |one| format!("{} was not read from the disk yet", one.title()))
            }
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let extensions = self.extensions(node)?;
        match self {
            Self::FetchExtension { .. } => {
                extensions.into_iter().try_for_each(|extension| obtain(node, extension, context).map(drop))
            }
            Self::PlaceExtension { .. } => {
                extensions.into_iter().try_for_each(|extension| image::place(node, extension, context))
            }
            Self::SwitchExtensions { .. } => links::switch(node, context),
            Self::MergeExtensions { .. } => merge::merge(node, context),
            Self::VerifyExtensions { .. } => {
                extensions.into_iter().try_for_each(|extension| image::prove(node, extension))
            }
        }
    }
}

impl Family for Extensions {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        if node.bundle.extensions.is_empty() {
            return Ok(());
        }
        record.extensions.extend(node.bundle.extensions.iter().map(|extension| extension.name.to_string()));
        if record.sysext.is_none() {
            record.sysext = Some(merge::look_at_unit(node)?);
        }
        links::keep(node, record)
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let disk = node.tools.disk;
        let failed = |error: DiskError| disk_error(&error);
        let mut drift = Vec::new();
        for extension in &node.bundle.extensions {
            let found = Found {
                image: image::state(disk, extension).map_err(failed)?,
                wrong_links: links::find_wrong(disk, extension).map_err(failed)?,
                missing: merge::missing(node, extension)?,
            };
            drift.extend(compare(extension, &found));
        }
        Ok(Verified { drift, remarks: Vec::new() })
    }

    /// Links go as files do, and images stay until what replaces them has proved itself ([`super::tree::retire`]).
    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        if node.bundle.extensions.is_empty() {
            obsolete.sysext = record.sysext;
        }
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let step = |phase, id: &str, deadline, barrier, action| UndoStep {
            phase,
            id: id.to_owned(),
            deadline,
            barrier,
            action: ResetAction::Extension(action),
        };
        let merge = record.sysext.map(|was| {
            let merge = Undo::MergeAsBefore { active: was.active, enabled: was.enabled };
            step(UndoPhase::Merge, "merge-extensions", MERGE_DEADLINE, true, merge)
        });
        let names: Vec<String> = record.extensions.iter().cloned().collect();
        let remove = (!names.is_empty()).then(|| {
            let remove = Undo::RemoveExtensions { names };
            step(UndoPhase::RemoveFolders, "remove-extensions", FILES_DEADLINE, false, remove)
        });
        merge.into_iter().chain(remove).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// `/usr` is what the links that were there before make of it, and so it is after a boot.
    MergeAsBefore { active: bool, enabled: bool },
    /// All versions of them that are ours.
    RemoveExtensions { names: Vec<String> },
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        match self {
            Self::MergeAsBefore { .. } => "those that were there before".to_owned(),
            Self::RemoveExtensions { names } => names.join(" "),
        }
    }

    fn details(&self) -> Vec<String> {
        match self {
            Self::MergeAsBefore { .. } => Vec::new(),
            Self::RemoveExtensions { names } => {
                known(names).map(|name| format!("removed   {}/{name}-*.raw", name.home())).collect()
            }
        }
    }

    fn check(&self, on: &Undoing<'_>, history: &History) -> Result<Condition, StepError> {
        match self {
            Self::MergeAsBefore { .. } if history.done_before => Ok(Condition::AlreadySo),
            Self::MergeAsBefore { .. } => Ok(Condition::Needed("what is merged may be ours".to_owned())),
            Self::RemoveExtensions { names } => {
                let there = |name: &ExtensionName| Ok(!image::ours(on.tools.disk, *name)?.is_empty());
                first_that(known(names), there, |name| format!("images of {name} are there"))
            }
        }
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let (disk, units, left) = (on.tools.disk, on.tools.units, || on.tools.remaining(context));
        match self {
            Self::MergeAsBefore { active, enabled } => {
                let unit = host_name(SYSEXT_UNIT);
                let undo = || {
                    match active {
                        true => units.reload_or_restart_and_wait(&unit, left())?,
                        false => units.stop_and_wait(&unit, left())?,
                    }
                    if *enabled { Ok(()) } else { units.disable(std::slice::from_ref(&unit)) }
                };
                undo().map_err(|error| unit_error(&error))?;
                merge::settle(disk)
            }
            Self::RemoveExtensions { names } => {
                for name in known(names) {
                    image::remove(disk, &image::ours(disk, name)?)?;
                }
                Ok(())
            }
        }
    }
}

/// Names of extensions only: a record that says something else is not ours.
fn known(names: &[String]) -> impl Iterator<Item = ExtensionName> {
    names.iter().filter_map(|name| name.parse().ok())
}

/// Versions of extensions that no bundle of this node wants any more, and what interrupted runs left of others.
pub(crate) fn surplus(
    disk: &dyn host::disk::Disk,
    wanted: &[bundle::ExtensionDigest],
) -> Result<Vec<std::path::PathBuf>, StepError> {
    let mut paths = Vec::new();
    for name in ExtensionName::ALL {
        let is_wanted = |path: &Path| wanted.iter().any(|one| Path::new(&one.image) == path);
        paths.extend(image::ours(disk, *name)?.into_iter().filter(|path| !is_wanted(path)));
    }
    Ok(paths)
}
