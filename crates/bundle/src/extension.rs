//! System extensions: images that systemd lays over `/usr`, with all programs of one kind in each.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::bundle::Readers;
use crate::names::AbsolutePath;
use crate::tree::Artefact;
use crate::vocabulary::{Component, ExtensionName};

/// Each extension has a folder here, with a file for each version.
pub const EXTENSIONS_FOLDER: &str = "/opt/extensions";
/// Where systemd looks first: links to the versions in use.
pub const EXTENSION_LINKS_FOLDER: &str = "/etc/extensions";
/// Lays extensions over `/usr`, at boot and whenever it is asked to.
pub const SYSEXT_UNIT: &str = "systemd-sysext.service";
/// What hides an extension of the image.
pub const MASK: &str = "/dev/null";

/// Enough to tell two builds of one version apart.
const DIGEST_DIGITS: usize = 12;
const IMAGE_SUFFIX: &str = ".raw";

/// One version of one extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Extension {
    pub name: ExtensionName,
    pub version: String,
    pub artefact: Artefact,
    pub release: ExtensionRelease,
    /// What must be there once it is merged. Sorted.
    pub programs: BTreeSet<AbsolutePath>,
    /// Who runs programs of it, and so has to start anew when the version changes.
    #[serde(default, skip_serializing_if = "Readers::is_empty")]
    pub read_by: Readers,
}

/// Which systems take it; see [`ExtensionRelease::misfit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtensionRelease {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysext_level: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// A system, by what extensions are compared with. Empty: the system does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System<'a> {
    pub id: &'a str,
    pub sysext_level: &'a str,
    pub version_id: &'a str,
    /// As systemd calls it: `x86-64`.
    pub architecture: &'a str,
}

impl ExtensionName {
    /// The link by which systemd finds the version in use; systemd knows the extension by this file's name.
    pub fn link(self) -> String {
        format!("{EXTENSION_LINKS_FOLDER}/{self}{IMAGE_SUFFIX}")
    }

    /// All versions.
    pub fn home(self) -> String {
        format!("{EXTENSIONS_FOLDER}/{self}")
    }

    /// The file that is in `/usr` while it is merged.
    pub fn release_path(self) -> String {
        format!("/usr/lib/extension-release.d/extension-release.{self}")
    }

    /// The extension of Flatcar's own whose place it takes, as a link that hides it.
    pub fn mask(self) -> Option<String> {
        match self {
            Self::Containerd => Some(format!("{EXTENSION_LINKS_FOLDER}/containerd-flatcar{IMAGE_SUFFIX}")),
            Self::Kubernetes => None,
        }
    }

    pub fn brings(self, component: Component) -> bool {
        match self {
            Self::Containerd => matches!(component, Component::Containerd | Component::Runc),
            Self::Kubernetes => component == Component::Kubelet,
        }
    }

    /// Whether a file in [`ExtensionName::home`] is a version that nodestrap put there; others may keep theirs beside it.
    pub fn owns(self, file: &str) -> bool {
        let rest = file.strip_prefix(self.as_str()).and_then(|rest| rest.strip_prefix('-'));
        let digest = rest.and_then(|rest| rest.strip_suffix(IMAGE_SUFFIX)).and_then(|rest| rest.rsplit_once('-'));
        digest.is_some_and(|(version, digest)| !version.is_empty() && crate::names::is_lower_hex(digest, DIGEST_DIGITS))
    }
}

impl Extension {
    /// `kubernetes-1.36.3-0123456789ab.raw`: the same version built twice is two files.
    pub fn file_name(&self) -> String {
        let digest = &self.artefact.digest.hex()[..DIGEST_DIGITS];
        format!("{}-{}-{digest}{IMAGE_SUFFIX}", self.name, self.version)
    }

    /// Where this version lies.
    pub fn image(&self) -> String {
        format!("{}/{}", self.name.home(), self.file_name())
    }

    /// Links that must be there, and where each leads.
    pub fn links(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let mask = self.name.mask().map(|mask| (mask, MASK.to_owned()));
        std::iter::once((self.name.link(), self.image())).chain(mask)
    }

    /// As people call it: `kubernetes 1.36.3`.
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }
}

impl ExtensionRelease {
    /// Why systemd would pass over such an image here: by its own rules, and in its order. It reports success then, and the programs
    /// that were there are gone.
    pub fn misfit(&self, system: System<'_>) -> Option<String> {
        let same = |own: &Option<String>, of_system: &str| own.as_deref() == Some(of_system);
        let own = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        if let Some(own) = self.architecture.as_deref().filter(|own| *own != "_any")
            && !system.architecture.is_empty()
            && own != system.architecture
        {
            return Some(format!("it is for {own}, and this machine is {}", system.architecture));
        }
        match () {
            () if self.id == "_any" => None,
            () if self.id != system.id => Some(format!("it is for {}, and this machine runs {}", self.id, system.id)),
            () if system.sysext_level.is_empty() && system.version_id.is_empty() => None,
            () if self.sysext_level.is_some() && !system.sysext_level.is_empty() => {
                (!same(&self.sysext_level, system.sysext_level)).then(|| {
                    let own = own(&self.sysext_level);
                    format!("it is for SYSEXT_LEVEL={own}, and this system has {}", system.sysext_level)
                })
            }
            () => (!same(&self.version_id, system.version_id)).then(|| {
                let own = own(&self.version_id);
                format!("it is for VERSION_ID={own}, and this system has {:?}", system.version_id)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_fits_where_systemd_takes_it() {
        let flatcar = System { id: "flatcar", sysext_level: "1.0", version_id: "4230.2.1", architecture: "x86-64" };
        let release = |id: &str, level: &str, version: &str, architecture: &str| {
            let word = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            ExtensionRelease {
                id: id.to_owned(),
                sysext_level: word(level),
                version_id: word(version),
                architecture: word(architecture),
            }
        };
        for (release, fits) in [
            (release("flatcar", "1.0", "", "x86-64"), true),
            (release("flatcar", "1.0", "1", ""), true),
            (release("_any", "", "", ""), true),
            (release("_any", "", "", "_any"), true),
            (release("flatcar", "", "4230.2.1", ""), true),
            (release("_any", "", "", "arm64"), false),
            (release("flatcar", "2.0", "4230.2.1", ""), false),
            (release("flatcar", "", "4081.2.0", ""), false),
            (release("flatcar", "", "", ""), false),
            (release("debian", "1.0", "", ""), false),
        ] {
            assert_eq!(release.misfit(flatcar).is_none(), fits, "{release:?}: {:?}", release.misfit(flatcar));
        }
        let silent = System { sysext_level: "", ..flatcar };
        assert!(
            release("flatcar", "1.0", "", "").misfit(silent).is_some(),
            "a level alone needs a system that has one"
        );
        assert!(release("flatcar", "1.0", "4230.2.1", "").misfit(silent).is_none());
        let rolling = System { sysext_level: "", version_id: "", architecture: "", ..flatcar };
        assert!(release("flatcar", "1.0", "", "arm64").misfit(rolling).is_none());
    }

    #[test]
    fn a_version_of_ours_is_told_from_those_of_others() {
        let ours = |file: &str| ExtensionName::Kubernetes.owns(file);
        assert!(ours("kubernetes-1.36.3-0123456789ab.raw") && ours("kubernetes-1.36.3-rc.1-0123456789ab.raw"));
        for other in ["kubernetes-v1.33.0-x86-64.raw", "kubernetes-0123456789ab.raw", "a.raw", "kubernetes-1-01234.raw"]
        {
            assert!(!ours(other), "{other}");
        }
    }
}
