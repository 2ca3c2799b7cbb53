//! Which versions of an addon go with a minor release of Kubernetes, the preferred one first.
//!
//! ```yaml
//! kind: VersionManifestV1
//! versions:
//!   k8s:
//!     1.9:  {docker: ["17.03", "1.12"]}
//!     1.10: {docker: ["17.03"]}
//! ```
//!
//! Keys and versions are texts whether they are quoted or not: 1.10 is not 1.1.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::names::{AddonName, AddonVersion};
use super::version::Minor;
use crate::json::canonical;

pub const MAPPINGS_KIND: &str = "VersionManifestV1";
/// Where an installer puts them for a cluster that has no API server yet.
pub const MAPPINGS_SEED_PATH: &str = "/etc/kubernetes/installer/runtime-mappings.yaml";
/// Versions of other components may stand beside it.
pub const KUBERNETES_COMPONENT: &str = "k8s";

/// More than any table has; the next limit is that of a ConfigMap.
const MAX_BYTES: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeMappings(BTreeMap<Minor, BTreeMap<AddonName, Vec<AddonVersion>>>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingsError {
    #[error("the runtime mappings have more than 1048576 bytes")]
    TooLarge,
    #[error("the runtime mappings cannot be read: {reason}")]
    Syntax { reason: String },
    #[error("the runtime mappings have kind {found:?}, not {MAPPINGS_KIND:?}")]
    Kind { found: String },
    #[error("the runtime mappings say nothing of {KUBERNETES_COMPONENT:?}")]
    NoKubernetes,
    #[error(
        "the runtime mappings have the key {key:?} under {KUBERNETES_COMPONENT:?}, which is not MAJOR.MINOR, such as 1.10"
    )]
    Key { key: String },
    #[error(
        "the runtime mappings name {version:?} as a version of \"{addon}\" for Kubernetes {minor}, which {problem}"
    )]
    Version { minor: Minor, addon: AddonName, version: String, problem: &'static str },
    #[error("the runtime mappings do not know Kubernetes {minor}, only {}: add a line for it", list(known))]
    UnknownMinor { minor: Minor, known: Vec<Minor> },
    #[error("the runtime mappings have no version of \"{addon}\" for Kubernetes {minor}: add one")]
    NoVersion { minor: Minor, addon: AddonName },
}

fn list(minors: &[Minor]) -> String {
    if minors.is_empty() {
        return "none at all".to_owned();
    }
    minors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What else is there is for others.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    versions: Option<Versions>,
}

#[derive(Deserialize)]
struct Versions {
    #[serde(default)]
    k8s: Option<BTreeMap<String, Option<WrittenAddons>>>,
}

/// By addon; a key without a value is there, and says nothing.
type WrittenAddons = BTreeMap<String, Option<Vec<String>>>;

impl RuntimeMappings {
    pub fn parse(text: &str) -> Result<Self, MappingsError> {
        if text.len() > MAX_BYTES {
            return Err(MappingsError::TooLarge);
        }
        // As `crate::read_yaml`, with the reason.
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_merge_keys: 0 },
            strict_booleans: true,
            with_snippet: false,
        };
        let document: Document = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let reason = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            MappingsError::Syntax { reason: reason.split_whitespace().collect::<Vec<_>>().join(" ") }
        })?;
        let kind = document.kind.unwrap_or_default();
        if kind != MAPPINGS_KIND {
            return Err(MappingsError::Kind { found: kind });
        }
        let table = document.versions.and_then(|versions| versions.k8s).ok_or(MappingsError::NoKubernetes)?;
        let mut mappings = BTreeMap::new();
        for (key, addons) in table {
            let minor: Minor = key.parse().map_err(|_| MappingsError::Key { key: key.clone() })?;
            let mut known = BTreeMap::new();
            for (addon, versions) in addons.into_iter().flatten() {
                // Nobody can ask for one of another name.
                let Ok(addon) = AddonName::new(addon) else { continue };
                let versions = read_versions(minor, &addon, versions.unwrap_or_default())?;
                known.insert(addon, versions);
            }
            mappings.insert(minor, known);
        }
        Ok(Self(mappings))
    }

    /// The versions of docker that releases of that time were tested with.
    pub fn built_in() -> Self {
        let docker = |minor: u32, versions: &[&str]| {
            let versions = versions.iter().filter_map(|version| AddonVersion::new(*version).ok()).collect();
            let addons = AddonName::new("docker").ok().map(|addon| (addon, versions));
            (Minor { major: 1, minor }, addons.into_iter().collect())
        };
        Self(
            [docker(8, &["1.12"]), docker(9, &["17.03", "1.12"]), docker(10, &["17.03"]), docker(11, &["17.03"])]
                .into(),
        )
    }

    /// Never empty: that a minor is there without a version of the addon is said as such.
    pub fn preferred(&self, minor: Minor, addon: &AddonName) -> Result<&[AddonVersion], MappingsError> {
        let unknown = || MappingsError::UnknownMinor { minor, known: self.0.keys().copied().collect() };
        let addons = self.0.get(&minor).ok_or_else(unknown)?;
        match addons.get(addon).map(Vec::as_slice) {
            None | Some([]) => Err(MappingsError::NoVersion { minor, addon: addon.clone() }),
            Some(versions) => Ok(versions),
        }
    }

    /// Everything quoted, so that no reader takes a version for a number.
    pub fn to_yaml(&self) -> String {
        let mut text = format!("kind: {MAPPINGS_KIND}\nversions:\n  {KUBERNETES_COMPONENT}:");
        if self.0.is_empty() {
            return text + " {}\n";
        }
        text.push('\n');
        for (minor, addons) in &self.0 {
            // A text of JSON is one of YAML.
            let addons = addons.iter().map(|(addon, versions)| {
                let versions: Vec<String> = versions.iter().map(canonical).collect();
                format!("{}: [{}]", canonical(addon), versions.join(", "))
            });
            text.push_str(&format!("    \"{minor}\": {{{}}}\n", addons.collect::<Vec<_>>().join(", ")));
        }
        text
    }
}

fn read_versions(minor: Minor, addon: &AddonName, versions: Vec<String>) -> Result<Vec<AddonVersion>, MappingsError> {
    let read = |text: String| {
        AddonVersion::new(text).map_err(|error| MappingsError::Version {
            minor,
            addon: addon.clone(),
            version: error.text,
            problem: error.problem,
        })
    };
    versions.into_iter().map(read).collect()
}
