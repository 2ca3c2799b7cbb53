//! Programs that a node gets from its package manager: which packages, in which version, and what has to be there afterwards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bundle::Readers;
use crate::names::AbsolutePath;
use crate::vocabulary::{Component, Os, PackageManager};

/// What a package manager is asked for. Repositories and their keys are files of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Packages {
    pub manager: PackageManager,
    /// Sorted by name.
    pub packages: Vec<Package>,
    /// Programs that must be there afterwards, whichever package brings them.
    pub programs: Vec<AbsolutePath>,
    /// The same, by name: packages do not agree on the folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Files of the bundle that the package manager reads, so they come before all others. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<AbsolutePath>,
    /// Where the package manager is told of our repositories, one file each; among the settings. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repositories: Vec<AbsolutePath>,
    /// What it learns the proxy from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The same where it is secret; among the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_file: Option<AbsolutePath>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Package {
    pub name: String,
    /// Exactly this one, and held there. `None`: whichever there is, installed only if the package is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `None`: something that the host needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<Component>,
    /// Who runs programs of it, and so has to start anew when the version changes.
    #[serde(default, skip_serializing_if = "Readers::is_empty")]
    pub read_by: Readers,
}

impl Package {
    /// An update of the system leaves it alone.
    pub fn is_held(&self) -> bool {
        self.version.is_some()
    }

    /// As people call it: `kubelet 1.36.3-1.1`.
    pub fn title(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.name),
            None => self.name.clone(),
        }
    }
}

impl Packages {
    pub fn find(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    pub fn brings(&self, component: Component) -> bool {
        self.packages.iter().any(|package| package.component == Some(component))
    }
}

impl PackageManager {
    /// `None`: a system whose programs belong to its image, or whose package manager is not known here.
    pub fn of(os: Os) -> Option<Self> {
        match os {
            Os::Debian | Os::Ubuntu => Some(Self::Apt),
            Os::Al2023 | Os::Rhel => Some(Self::Dnf),
            Os::Al2 | Os::Flatcar | Os::ContainerLinux | Os::Rhcos => None,
        }
    }

    /// The programs that it is made of, as far as we start them.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Apt => &["/usr/bin/apt-get", "/usr/bin/apt-mark", "/usr/bin/dpkg"],
            Self::Dnf => &["/usr/bin/dnf", "/usr/bin/rpm"],
        }
    }

    /// Whether a text can be the name of a package: it becomes a word of a command line.
    pub fn is_name(text: &str) -> bool {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        first && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+_-".contains(&byte))
    }

    /// Whether a text can be a version, with its epoch and its revision, in the alphabet of either package manager.
    pub fn is_version(text: &str) -> bool {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b".+_-~^:".contains(&byte);
        first && text.len() <= 128 && text.bytes().all(harmless)
    }
}
