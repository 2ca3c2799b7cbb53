//! What this node has found out for its bundle: the release of its cluster, and the addon that goes with it.
//!
//! `/var/lib/nodestrap/followed.json`, sealed, no secrets. Written by the step `resolve-versions` before anything is done that hangs on
//! it, and by the pre-reboot hook. It counts for the bundle that it names only. A node that was complete with that bundle asks nobody
//! again: nothing that somebody says later turns a restart into a change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bundle::Digest;
use bundle::torcx::{AddonImage, AddonVersion, KubernetesVersion, OsVersion};
use engine::FactNote;
use host::disk::{Disk, DiskError};
use host::files::{self, FileError};
use host::machine::BootId;
use serde::{Deserialize, Serialize};

use crate::sealed;
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub const FOLLOWED_PATH: &str = "/var/lib/nodestrap/followed.json";
/// What an installer left for the kubelet need not be for everybody.
const MODE: u32 = 0o600;
/// Some variables and a dozen addresses.
const LIMIT: u64 = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Followed {
    pub bundle: Digest,
    pub release: Told<KubernetesVersion>,
    /// What the installer left for the kubelet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Of an addon: the versions that go with the release, the best one first. `None`: there is no addon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<Told<Vec<AddonVersion>>>,
    /// `None` as long as none is chosen, or none is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addon: Option<ChosenAddon>,
}

/// A value and whose word it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Told<T> {
    pub value: T,
    /// For people.
    pub source: String,
    /// The cluster itself has said so, which a seed never overrules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_cluster: bool,
}

/// Which version of an addon runs, and its image for each release of the operating system that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChosenAddon {
    pub version: AddonVersion,
    pub images: BTreeMap<OsVersion, AddonImage>,
    /// Releases whose package lists were read; one that is without an image has none of this version.
    pub lists: BTreeSet<OsVersion>,
    /// The boot in which torcx was told of it, which applies it at the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switched_in: Option<BootId>,
}

impl Followed {
    /// As people read them.
    pub(crate) fn notes(&self) -> Vec<FactNote> {
        let note = |name: &str, value: String, source: &str| FactNote {
            name: name.to_owned(),
            value,
            source: source.to_owned(),
        };
        let release = note("clusterRelease", self.release.value.to_string(), &self.release.source);
        let versions = self.preferred.as_ref().map(|preferred| {
            let versions: Vec<&str> = preferred.value.iter().map(AddonVersion::as_str).collect();
            note("addonVersions", versions.join(" "), &preferred.source)
        });
        std::iter::once(release).chain(versions).collect()
    }

    /// The same answers, whatever was made of them since.
    pub(crate) fn has_same_answers(&self, other: &Self) -> bool {
        let Self { bundle, release, variables, preferred, addon: _ } = self;
        (bundle, release, variables, preferred) == (&other.bundle, &other.release, &other.variables, &other.preferred)
    }
}

/// The record, if it is there, whole, and of this bundle. Reads only.
pub fn load(disk: &dyn Disk, bundle: &Digest) -> Result<Option<Followed>, DiskError> {
    let bytes = disk.read(Path::new(FOLLOWED_PATH), LIMIT)?;
    Ok(bytes.and_then(|bytes| sealed::parse::<Followed>(&bytes)).filter(|known| known.bundle == *bundle))
}

/// Durable when it returns.
pub(crate) fn write(disk: &dyn Disk, followed: &Followed) -> Result<(), FileError> {
    files::make_folder_durable(disk, Path::new(STATE_FOLDER), STATE_FOLDER_MODE)?;
    files::write_durable(disk, Path::new(FOLLOWED_PATH), MODE, &sealed::print(followed), None)
}
