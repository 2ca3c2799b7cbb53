//! Addons of torcx on a node: chosen for the release of the cluster, fetched for each system that may boot, and run after a boot.
//!
//! ```text
//! /var/lib/torcx/store/2605.6.0/docker:18.06.torcx.tgz   for one release of the system: written under another name, synced, then renamed
//! /etc/torcx/profiles/tectonic.json                      which version is applied; what others have put there stays
//! /etc/torcx/next-profile                                names that profile, for the next boot and all after it
//! /run/torcx/profile.json, /run/metadata/torcx           what torcx has applied in this boot
//! /var/lib/nodestrap/clean-runtime-data.json             the data of another version is in the way: see [`data`]
//! ```
//!
//! torcx itself is only read: it applies a profile when the machine boots, and never again in that boot.

mod boot;
mod choose;
pub(crate) mod data;
mod image;
mod profile;
pub(crate) mod stage;

use bundle::resource::{Aspect, Difference};
use bundle::torcx::{AddonImage, AddonName, AddonVersion, OsVersion, has_torcx};
use bundle::{AbsolutePath, FollowedAddon};
use engine::{Condition, History, StepContext, StepError};
use host::machine::BootId;
use serde::{Deserialize, Serialize};

use super::file::FILES_DEADLINE;
use super::record::Record;
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified};
use crate::failure::disk_error;
use crate::followed::{self, ChosenAddon};
use crate::reset::ResetAction;

pub(crate) use choose::{RESOLVE_DEADLINE, current, next_version, os_release};
pub(crate) use image::IMAGE_DEADLINE;
pub(crate) use profile::paths;

pub(crate) struct Addons;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// What this node goes by is written down: the release of the cluster, and the version of an addon that goes with it.
    ResolveVersions {
        release: String,
        source: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addon: Option<WantedAddon>,
    },
    /// Its images are in the store, proved, for each system that may boot.
    FetchAddon { addon: AddonName },
    /// torcx applies it when the machine boots next.
    UseAddon { addon: AddonName },
    /// The system that runs, and the addon that runs in it, are those that were chosen.
    RebootIntoSystem {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addon: Option<AddonName>,
    },
    /// What another version of the runtime left is not what this one begins with.
    CleanRuntimeData { folder: AbsolutePath },
    /// Every byte is read from the disk itself, and torcx says that it has applied it.
    VerifyAddon { addon: AddonName },
}

/// As far as it is decided before anybody was asked for package lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WantedAddon {
    pub name: AddonName,
    /// The best one first.
    pub versions: Vec<AddonVersion>,
    pub source: String,
    /// Where the package lists are.
    pub lists: String,
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            // Whose word that is stands with the facts.
            Self::ResolveVersions { release, addon: None, .. } => format!("Kubernetes {release}"),
            Self::ResolveVersions { release, addon: Some(addon), .. } => {
                let versions: Vec<&str> = addon.versions.iter().map(AddonVersion::as_str).collect();
                format!("Kubernetes {release}; {} {}, by their package lists", addon.name, versions.join(" or "))
            }
            Self::FetchAddon { addon } => format!("{addon}, for each system that may boot"),
            Self::UseAddon { addon } => format!("{addon}, from the next boot on"),
            Self::RebootIntoSystem { addon: None } => "if another system is staged".to_owned(),
            Self::RebootIntoSystem { addon: Some(addon) } => {
                format!("if another system is staged, or {addon} does not run in the version that was chosen")
            }
            Self::CleanRuntimeData { folder } => format!("{folder}, if another version of the runtime left it"),
            Self::VerifyAddon { addon } => format!("{addon}, read from the disk, and applied by torcx"),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::ResolveVersions { .. } => choose::check(node),
            Self::FetchAddon { .. } => image::check(node),
            Self::UseAddon { .. } => profile::check(node),
            Self::RebootIntoSystem { .. } => boot::check(node),
            Self::CleanRuntimeData { .. } => data::check(node),
            Self::VerifyAddon { .. } => boot::check_verified(node),
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::ResolveVersions { .. } => choose::resolve(node, context),
            Self::FetchAddon { .. } => image::place_all(node, context),
            Self::UseAddon { .. } => profile::switch(node),
            Self::RebootIntoSystem { .. } => boot::reboot(node),
            Self::CleanRuntimeData { .. } => data::clean_before_gate(node, context),
            Self::VerifyAddon { .. } => boot::verify(node),
        }
    }
}

impl<'a> Node<'a> {
    /// What the bundle says of the addon.
    pub(crate) fn wanted_addon(&self) -> Option<&'a FollowedAddon> {
        self.bundle.follow.as_ref()?.addon.as_ref()
    }
}

/// What was chosen for this bundle, if anything was.
fn chosen(node: &Node<'_>) -> Result<Option<ChosenAddon>, StepError> {
    let known = followed::load(node.tools.disk, &node.identity.bundle).map_err(|error| disk_error(&error))?;
    Ok(known.and_then(|known| known.addon))
}

/// An addon with the version that was chosen for it.
struct Chosen<'a> {
    name: &'a AddonName,
    version: AddonVersion,
    /// By release of the system.
    images: Vec<(OsVersion, AddonImage)>,
    /// The boot in which torcx was told of it.
    switched_in: Option<BootId>,
}

impl Chosen<'_> {
    fn title(&self) -> String {
        format!("{}:{}", self.name, self.version)
    }
}

/// `None`: the bundle wants none, none was chosen yet, or the system that boots next brings its runtime itself.
fn load_chosen<'a>(node: &Node<'a>) -> Result<Option<Chosen<'a>>, StepError> {
    let Some(addon) = node.wanted_addon() else { return Ok(None) };
    let Some(ChosenAddon { version, images, switched_in, .. }) = chosen(node)? else { return Ok(None) };
    Ok(Some(Chosen { name: &addon.name, version, images: images.into_iter().collect(), switched_in }))
}

impl Family for Addons {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        match node.wanted_addon() {
            Some(addon) => profile::keep(node, addon, record),
            None => Ok(()),
        }
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let Some(addon) = node.wanted_addon() else { return Ok(Verified::default()) };
        let current = OsVersion::parse(&node.os.version);
        if current.as_ref().is_ok_and(|current| !has_torcx(current)) {
            return Ok(Verified::default());
        }
        let Some(chosen) = load_chosen(node)? else {
            let what = format!("the version of {} that was chosen", addon.name);
            let drift = vec![Difference::new(followed::FOLLOWED_PATH, Aspect::Presence, what, "nothing")];
            return Ok(Verified { drift, remarks: Vec::new() });
        };
        let mut drift = profile::drift(node, &chosen)?;
        drift.extend(image::drift(node, &chosen)?);
        drift.extend(boot::drift(node, &chosen)?);
        Ok(Verified { drift, remarks: Vec::new() })
    }

    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        if node.wanted_addon().is_none() {
            obsolete.addons.clone_from(&record.addons);
        }
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        if record.addons.is_empty() {
            return Vec::new();
        }
        vec![UndoStep {
            phase: UndoPhase::RemoveFolders,
            id: "remove-addons".to_owned(),
            deadline: FILES_DEADLINE,
            barrier: false,
            action: ResetAction::Addon(Undo::RemoveAddons { images: record.addons.iter().cloned().collect() }),
        }]
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// What was fetched for each system. What runs goes on until the machine boots.
    RemoveAddons { images: Vec<String> },
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::RemoveAddons { images } = self;
        format!("{} images; what runs of them goes on until the machine boots", images.len())
    }

    fn details(&self) -> Vec<String> {
        let Self::RemoveAddons { images } = self;
        image::ours(images).map(|path| format!("removed   {}", path.display())).collect()
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        let Self::RemoveAddons { images } = self;
        image::check_removed(on.tools.disk, images)
    }

    fn apply(&self, on: &Undoing<'_>, _: &StepContext<'_>) -> Result<(), StepError> {
        let Self::RemoveAddons { images } = self;
        image::remove(on.tools.disk, images)
    }
}
