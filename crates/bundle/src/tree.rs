//! Programs that a node gets as versioned folders: what they are made of, where they lie, and where they are linked from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bundle::Readers;
use crate::names::{AbsolutePath, ArtefactDigest, RelativePath, Secret};
use crate::vocabulary::{ArtefactForm, Component};

/// Each component has a folder here, with one folder for each version and a link to the one that is in use. It is called
/// `bin` because SELinux's policies take what lies in a folder of that name under `/opt` for programs: units can start nothing else,
/// and a relabelled file system has only the policy's word for it.
pub const TREES_FOLDER: &str = "/opt/nodestrap/bin";

/// The link to the version in use: replaced in one step.
const CURRENT: &str = "current";
/// Enough to tell two builds of one version apart.
const DIGEST_DIGITS: usize = 12;

/// One version of one component, unpacked into a folder of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tree {
    pub component: Component,
    pub version: String,
    pub artefact: Artefact,
    /// Where programs are looked for, and what each is called within the tree.
    pub links: BTreeMap<AbsolutePath, RelativePath>,
    /// Who runs programs of it, and so has to start anew when the version changes.
    #[serde(default, skip_serializing_if = "Readers::is_empty")]
    pub read_by: Readers,
}

/// Something to download: proved by its size and digest, wherever it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artefact {
    pub digest: ArtefactDigest,
    pub size: u64,
    pub form: ArtefactForm,
    /// Whole addresses (`https`, `http`, `s3`, `file`), in the order in which they are tried.
    pub places: Vec<String>,
}

/// How a node downloads, and whose word it is that artefacts are the right ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Downloads {
    pub provenance: Provenance,
    /// PEM; trusted beside what the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authorities: Option<String>,
    /// With its credentials, if it wants any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Secret>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_proxy: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,
}

/// What `render` verified before it pinned sizes and digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Provenance {
    Signed {
        /// Fingerprint of the key, upper-case hexadecimal digits.
        by: String,
        serial: u64,
    },
    /// The spec says so in so many words, and `status` repeats it for ever.
    Unsigned {},
    /// The node verifies what it is told of the bytes itself: see [`crate::Signatures`].
    OnNode {},
}

/// Where `s3://` leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct S3 {
    pub region: String,
    /// `None`: AWS's own for the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The bucket stands in the path, not in the name of the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_style: bool,
    pub credentials: S3Credentials,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum S3Credentials {
    /// What the metadata service gives to this machine.
    InstanceRole {},
    Key {
        access_key: String,
        secret_key: Secret,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_token: Option<Secret>,
    },
}

impl Tree {
    /// `1.36.3-0123456789ab`: the same version built twice is two trees.
    pub fn name(&self) -> String {
        format!("{}-{}", self.version, &self.artefact.digest.hex()[..DIGEST_DIGITS])
    }

    /// All versions of this component.
    pub fn home(&self) -> String {
        home(self.component)
    }

    /// Where this version lies.
    pub fn folder(&self) -> String {
        format!("{}/{}", self.home(), self.name())
    }

    /// The link to the version in use.
    pub fn current(&self) -> String {
        current(self.component)
    }

    /// What is listed of it, beside it: by this it is told whether it is whole.
    pub fn listing(&self) -> String {
        format!("{}.json", self.folder())
    }

    /// What a download that is one program is called within the tree.
    pub fn program_name(&self) -> &str {
        self.links.values().next().map_or(self.component.as_str(), RelativePath::as_str)
    }

    /// What the link at one of [`Tree::links`] says: through `current`, so that it never has to change.
    pub fn link_target(&self, program: &RelativePath) -> String {
        format!("{}/{program}", self.current())
    }
}

/// All versions of a component.
pub fn home(component: Component) -> String {
    format!("{TREES_FOLDER}/{component}")
}

/// The link to the version of a component that is in use.
pub fn current(component: Component) -> String {
    format!("{}/{CURRENT}", home(component))
}
