//! Which addons there are for a release of the operating system: `torcx_manifest.json`, kind `torcx-package-list-v0`.
//!
//! A location has a `path` or a `url`. A path below the operating system's own store beats every address, because what is there
//! need not be fetched. Of several addresses Tectonic's bootstrapper took the last one, by accident; nodestrap tries all of
//! them, in the order in which they stand there. Neither signature nor digest hangs on where bytes came from.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::VENDOR_STORE;
use super::json::{At, FormatError, open, parse};
use super::names::{AddonName, AddonVersion};
use crate::names::{AbsolutePath, ArtefactDigest};
use crate::stub::validate_url;

pub const PACKAGE_LIST_KIND: &str = "torcx-package-list-v0";

const WHAT: &str = "package list";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageList {
    pub packages: Vec<Package>,
}

/// As it was written: what nobody asks for is not judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    pub name: String,
    pub default_version: String,
    pub versions: Vec<PackageVersion>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageVersion {
    pub version: String,
    /// `sha512-` and hexadecimal digits.
    pub hash: String,
    /// Not part of v0: readers of others pass over it.
    pub size: Option<u64>,
    pub locations: Vec<Location>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    pub path: String,
    pub url: String,
}

/// An image that can be had, and proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddonImage {
    pub name: AddonName,
    pub version: AddonVersion,
    pub digest: ArtefactDigest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The operating system brings it.
    System(AbsolutePath),
    /// In the order in which they are tried; never empty.
    Addresses(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackageListError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error(
        "the hash of {title:?} in the package list is {hash:?}, not 'sha512-' or 'sha256-' and lower-case hexadecimal digits"
    )]
    Hash { title: String, hash: String },
    #[error("what the package list says of {title:?} {problem}: {location:?}")]
    Location { title: String, location: String, problem: &'static str },
    #[error("the package list does not say where {title:?} can be had")]
    NoLocation { title: String },
}

impl PackageList {
    pub fn parse(bytes: &[u8]) -> Result<Self, PackageListError> {
        let json = parse(WHAT, bytes)?;
        let (_, value) = open(WHAT, &json, &[PACKAGE_LIST_KIND], "'torcx-package-list-v0'")?;
        let packages = value.field("packages")?.items()?;
        Ok(Self { packages: packages.iter().map(read_package).collect::<Result<_, _>>()? })
    }

    /// Versions of an addon, in the order in which they stand there.
    pub fn versions<'a>(&'a self, addon: &'a AddonName) -> impl Iterator<Item = &'a PackageVersion> {
        let packages = self.packages.iter().filter(|package| package.name == addon.as_str());
        packages.flat_map(|package| &package.versions)
    }

    /// `None` if it is not there. What is there must be provable, and be somewhere.
    pub fn find(&self, name: &AddonName, version: &AddonVersion) -> Result<Option<AddonImage>, PackageListError> {
        let Some(found) = self.versions(name).find(|one| one.version == version.as_str()) else { return Ok(None) };
        let title = format!("{name}:{version}");
        let hash = || PackageListError::Hash { title: title.clone(), hash: found.hash.clone() };
        let digest = ArtefactDigest::new(found.hash.replacen('-', ":", 1)).map_err(|_| hash())?;
        let (name, version) = (name.clone(), version.clone());
        Ok(Some(AddonImage { name, version, digest, size: found.size, place: place(&title, &found.locations)? }))
    }

    /// As the tools of Container Linux write it.
    pub fn to_json(&self) -> String {
        let location = |location: &Location| match location.path.is_empty() {
            true => json!({ "url": location.url }),
            false => json!({ "path": location.path }),
        };
        let version = |version: &PackageVersion| {
            let locations: Vec<_> = version.locations.iter().map(location).collect();
            let mut entry = json!({ "version": version.version, "hash": version.hash, "locations": locations });
            if let Some(size) = version.size {
                entry["size"] = size.into();
            }
            entry
        };
        let package = |package: &Package| {
            let versions: Vec<_> = package.versions.iter().map(version).collect();
            json!({ "name": package.name, "defaultVersion": package.default_version, "versions": versions })
        };
        let packages: Vec<_> = self.packages.iter().map(package).collect();
        crate::json::pretty(&json!({ "kind": PACKAGE_LIST_KIND, "value": { "packages": packages } }))
    }
}

fn read_package(package: &At<'_>) -> Result<Package, FormatError> {
    Ok(Package {
        name: package.field("name")?.text()?,
        default_version: package.field("defaultVersion")?.text()?,
        versions: package.field("versions")?.items()?.iter().map(read_version).collect::<Result<_, _>>()?,
    })
}

fn read_version(version: &At<'_>) -> Result<PackageVersion, FormatError> {
    let locations = version.field("locations")?.items()?;
    let location = |at: &At<'_>| Ok(Location { path: at.field("path")?.text()?, url: at.field("url")?.text()? });
    Ok(PackageVersion {
        version: version.field("version")?.text()?,
        hash: version.field("hash")?.text()?,
        size: version.field("size")?.number(),
        locations: locations.iter().map(location).collect::<Result<_, FormatError>>()?,
    })
}

/// A password is nobody's business, whoever wrote it there.
pub(super) fn without_user(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    match rest.rsplit_once('@') {
        Some((_, after)) => format!("{scheme}://…@{after}"),
        None => address.to_owned(),
    }
}

fn place(title: &str, locations: &[Location]) -> Result<Place, PackageListError> {
    let wrong = |location: &str, problem| PackageListError::Location {
        title: title.to_owned(),
        location: without_user(location),
        problem,
    };
    for location in locations.iter().filter(|location| !location.path.is_empty()) {
        let path = AbsolutePath::new(&*location.path);
        let path = path.map_err(|_| wrong(&location.path, "has a path that has more than one spelling"))?;
        if path.is_within(VENDOR_STORE) {
            return Ok(Place::System(path));
        }
    }
    let mut addresses: Vec<String> = Vec::new();
    // torcx would not look at other paths, so they are worth nothing.
    for location in locations.iter().filter(|location| location.path.is_empty() && !location.url.is_empty()) {
        validate_url(&location.url).map_err(|problem| wrong(&location.url, problem))?;
        if !addresses.contains(&location.url) {
            addresses.push(location.url.clone());
        }
    }
    match addresses.is_empty() {
        true => Err(PackageListError::NoLocation { title: title.to_owned() }),
        false => Ok(Place::Addresses(addresses)),
    }
}
