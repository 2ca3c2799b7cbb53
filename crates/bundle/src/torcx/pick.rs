//! Which version of an addon a node gets, and for which releases of its operating system.
//!
//! | the release that boots next | the release that runs | |
//! |---|---|---|
//! | older than 1520.3.0 | | nothing to do: such a release brings its container runtime itself |
//! | has one of the preferred versions | has the same one | the first of the preferred ones, for both |
//! | has one of the preferred versions | has it not, or is older than 1520.3.0 | for the release that boots next alone |
//! | has none of them | | an error, whatever the running release has |
//!
//! Where no other release waits, the running one is also the one that boots next.

use std::collections::BTreeMap;

use super::names::{AddonName, AddonVersion};
use super::package_list::{AddonImage, PackageList, PackageListError};
use super::version::OsVersion;

/// The first release with torcx.
const FIRST_WITH_TORCX: [u64; 2] = [1520, 3];

/// What runs, and what waits for a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsRelease {
    pub current: OsVersion,
    /// Another release than the running one.
    pub next: Option<OsVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// There is no torcx in the release that boots next.
    NoTorcx { release: OsVersion },
    Chosen {
        addon: AddonName,
        version: AddonVersion,
        /// By release; that which boots next is always there.
        images: BTreeMap<OsVersion, AddonImage>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVersion {
    #[error(
        "release {release} of the operating system has none of the versions of {addon} that Kubernetes goes with ({}); its package \
         list has {}",
        preferred.join(", "), if found.is_empty() { "none at all".to_owned() } else { found.join(", ") }
    )]
    NoneFits { addon: AddonName, release: OsVersion, preferred: Vec<String>, found: Vec<String> },
    #[error(
        "there is no package list of release {release} of the operating system, which is needed to choose a version of {addon}"
    )]
    NoList { addon: AddonName, release: OsVersion },
    #[error("the package list of release {release} of the operating system cannot be used")]
    List { release: OsVersion, source: Box<PackageListError> },
}

impl OsRelease {
    /// The same release twice is nothing that waits.
    pub fn new(current: OsVersion, next: Option<OsVersion>) -> Self {
        let next = next.filter(|next| *next != current);
        Self { current, next }
    }

    /// Which one boots next.
    pub fn primary(&self) -> &OsVersion {
        self.next.as_ref().unwrap_or(&self.current)
    }
}

pub fn has_torcx(release: &OsVersion) -> bool {
    !release.is_below(&FIRST_WITH_TORCX)
}

/// Releases whose package lists have to be fetched before a version can be picked; that which boots next comes first.
pub fn needed_lists(os: &OsRelease) -> Vec<&OsVersion> {
    if !has_torcx(os.primary()) {
        return Vec::new();
    }
    let current = os.next.as_ref().map(|_| &os.current).filter(|current| has_torcx(current));
    std::iter::once(os.primary()).chain(current).collect()
}

/// `preferred`: the best one first. `lists`: at least those of [`needed_lists`].
pub fn pick_version(
    addon: &AddonName,
    preferred: &[AddonVersion],
    os: &OsRelease,
    lists: &BTreeMap<OsVersion, PackageList>,
) -> Result<Pick, NoVersion> {
    let primary = os.primary();
    let [first, others @ ..] = &needed_lists(os)[..] else {
        return Ok(Pick::NoTorcx { release: primary.clone() });
    };
    let list_of = |release: &OsVersion| {
        lists.get(release).ok_or_else(|| NoVersion::NoList { addon: addon.clone(), release: release.clone() })
    };
    let list = list_of(first)?;
    let is_there = |wanted: &&AddonVersion| list.versions(addon).any(|one| one.version == wanted.as_str());
    let Some(version) = preferred.iter().find(is_there) else {
        let found = list.versions(addon).map(|one| one.version.clone()).collect();
        let preferred = preferred.iter().map(ToString::to_string).collect();
        return Err(NoVersion::NoneFits { addon: addon.clone(), release: primary.clone(), preferred, found });
    };
    let mut images = BTreeMap::new();
    for release in std::iter::once(first).chain(others) {
        let found = list_of(release)?.find(addon, version);
        let found =
            found.map_err(|source| NoVersion::List { release: (*release).clone(), source: Box::new(source) })?;
        images.extend(found.map(|image| ((*release).clone(), image)));
    }
    Ok(Pick::Chosen { addon: addon.clone(), version: version.clone(), images })
}
