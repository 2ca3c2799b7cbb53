//! What a node finds out by itself before its gate opens, since only then it is true: which release its cluster runs, which version of
//! an addon goes with that, and which operating system boots next. The bundle says whom to ask, and what counts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::names::AbsolutePath;
use crate::torcx::{AddonName, KubernetesVersion, Minor, ProfileName, UrlTemplate};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Follow {
    pub release: FollowedRelease,
    /// `None`: the container runtime is none of torcx's business.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addon: Option<FollowedAddon>,
    pub os_update: OsUpdate,
}

/// The release of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowedRelease {
    /// Counts before all others, and then nobody is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<KubernetesVersion>,
    /// Says where the API server is, and with which credentials it is asked.
    pub kubeconfig: AbsolutePath,
    /// What the installer left: the release for a cluster that does not answer, and variables for the gate.
    pub seed: AbsolutePath,
    pub seed_fallback: SeedFallback,
    /// What the rest of the bundle was checked for. Empty: any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub minors: BTreeSet<Minor>,
}

/// Whether what an installer left on the node stands in for a cluster that does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SeedFallback {
    #[default]
    Allowed,
    /// For nodes that must not come up as the cluster was long ago.
    Never,
}

/// An addon of torcx whose version follows from the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FollowedAddon {
    pub name: AddonName,
    /// Where none is chosen yet.
    pub profile: ProfileName,
    /// Of the package lists, one for each release of the operating system. How they are downloaded: [`crate::Bundle::downloads`].
    pub manifest_url: UrlTemplate,
    pub signatures: Signatures,
    pub mappings: MappingsPlace,
    /// What the installer left of them.
    pub mappings_seed: AbsolutePath,
    /// Emptied before another version of the addon runs for the first time. `None`: any version can use what another left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_folder: Option<AbsolutePath>,
}

/// The ConfigMap that says which versions go with a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MappingsPlace {
    pub namespace: String,
    pub name: String,
    pub key: String,
}

/// Who must have signed a package list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Signatures {
    /// One of the keys in these files, armoured.
    By { keyrings: BTreeSet<AbsolutePath> },
    /// Somebody says so in so many words, and `status` repeats it for ever.
    Unverified {},
}

/// What a node that is not complete yet does about its operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OsUpdate {
    /// Has update_engine look for an update, and waits until it is staged.
    Attempt,
    /// Asks only which one is staged.
    Ask,
}

impl Default for MappingsPlace {
    /// Tectonic's own.
    fn default() -> Self {
        Self {
            namespace: "tectonic-system".to_owned(),
            name: "tectonic-torcx-runtime-mappings".to_owned(),
            key: "runtime-mappings.yaml".to_owned(),
        }
    }
}

impl Follow {
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let addon = self.addon.as_ref()?;
        let MappingsPlace { namespace, name, key } = &addon.mappings;
        let is_word = |text: &String| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        match &addon.signatures {
            _ if ![namespace, name, key].into_iter().all(is_word) => {
                Some("names a ConfigMap of runtime mappings that cannot be one")
            }
            Signatures::By { keyrings } if keyrings.is_empty() => {
                Some("names nobody who must have signed package lists")
            }
            _ => None,
        }
    }
}
