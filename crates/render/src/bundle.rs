//! What a node receives: files, units and the gate, with one digest over all of it.
//!
//! On disk a bundle is either one JSON file with the contents inside (`bundle.json`, what user data carries) or a folder
//! (`manifest.json` beside `root/…`, for people). Both have the same manifest, and the digest is the SHA-256 of that
//! manifest's canonical JSON, in which every file stands with its own SHA-256.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::content::Content;
pub use crate::error::BundleError;

/// Where a delivery puts the bundle on the node.
pub const BUNDLE_PATH: &str = "/etc/nodestrap/bundle.json";

/// The one version of the format that this nodestrap writes and reads.
pub const API_VERSION: &str = "nodestrap.io/v1alpha1";

/// Largest bundle that is written or read. A worker's is about 10 KiB and no user data service takes more than 1 MiB;
/// the limit keeps a damaged or hostile file from filling the memory of a booting node.
pub const MAX_BUNDLE_BYTES: usize = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub cluster: String,
    pub group: String,
    pub kubernetes_version: String,
    /// As the spec names them: what kind of node this is for.
    pub kind: NodeKind,
    /// Programs that the image must bring, checked before anything is changed.
    pub required_programs: Vec<String>,
    /// Sorted by path, no duplicates.
    pub files: Vec<File>,
    /// In the order in which they are started.
    pub units: Vec<Unit>,
    /// Sorted by name.
    pub hooks: Vec<Hook>,
    pub runtime: Runtime,
    pub gate: Gate,
    pub join: Join,
}

/// What a bundle was made for; a node compares it with what it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeKind {
    pub role: String,
    pub os: String,
    pub provider: String,
    pub layout: String,
}

/// A unit of the user's that runs at a named point; its file is among the bundle's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    pub name: String,
    /// As the spec names it, such as `before-kubelet`.
    pub slot: String,
    pub unit: String,
    pub timeout_seconds: u64,
    pub required: bool,
}

/// What hooks say may be secret: the folder is for root alone, whatever the modes of the files.
pub const HOOK_OUTPUT_FOLDER: &str = "/run/nodestrap/hooks";
pub const HOOK_OUTPUT_FOLDER_MODE: u32 = 0o700;

/// Where systemd puts what the unit of a hook says, if it is of version 240 or later and the unit does not say otherwise.
pub fn hook_output_path(unit: &str) -> String {
    format!("{HOOK_OUTPUT_FOLDER}/{unit}.log")
}

/// Where the container runtime comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runtime {
    pub name: String,
    /// As the spec names it, such as `preinstalled`.
    pub source: String,
    #[serde(default)]
    pub archive: Option<Archive>,
    #[serde(default)]
    pub package: Option<Package>,
}

/// Something to download, from mirrors in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Archive {
    pub urls: Vec<String>,
    pub sha256: String,
}

/// A package of the distribution.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub version: String,
}

/// A file of the node, owned by root.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub mode: u32,
    pub secrecy: Secrecy,
    pub content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrecy {
    Public,
    /// Mode 0600, never shown, never logged.
    Secret,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    pub name: String,
    pub start: Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    /// Enabled, started, and waited for, before the gate opens.
    BeforeGate,
    /// Enabled, and ordered after the bootstrap unit: its job is only queued, once the gate is open.
    AfterGate,
    /// Neither enabled nor started: it has no `[Install]` section, another unit of the bundle pulls it in.
    ByOthers,
}

/// The file without which the kubelet does not start; written last.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub path: String,
    pub environment: BTreeMap<String, String>,
    /// Variables that only the node can fill in, such as `NODE_IP`.
    #[serde(default)]
    pub facts: Vec<String>,
}

/// What `status` needs to tell why a node has not joined; paths on the node, no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    pub api_server: String,
    pub bootstrap_kubeconfig: String,
    pub kubeconfig: String,
    /// The client certificate that the kubelet gets when it joins. Its kubeconfig names this file before it is there.
    pub client_certificate: String,
    pub kubelet_unit: String,
    /// `None`: the host name, as the kubelet registers it.
    #[serde(default)]
    pub node_name: Option<String>,
}

impl File {
    /// Mode 0644.
    pub(crate) fn public(path: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { path: path.into(), mode: 0o644, secrecy: Secrecy::Public, content: content.into() }
    }

    pub(crate) fn secret(path: impl Into<String>, content: impl Into<Content>) -> Self {
        Self { path: path.into(), mode: 0o600, secrecy: Secrecy::Secret, content: content.into() }
    }

    /// Under systemd's folder for what the administrator of a machine adds.
    pub(crate) fn unit(name: &str, content: impl Into<Content>) -> Self {
        Self::public(["/etc/systemd/system/", name].concat(), content)
    }

    /// Lower-case hexadecimal SHA-256 of the content.
    pub fn sha256(&self) -> &str {
        self.content.sha256()
    }
}

impl Unit {
    pub(crate) fn new(name: impl Into<String>, start: Start) -> Self {
        Self { name: name.into(), start }
    }
}

/// Files, and the units that they are for, in the order in which they are started.
#[derive(Clone, Default)]
pub(crate) struct Part {
    pub(crate) files: Vec<File>,
    pub(crate) units: Vec<Unit>,
}

impl Part {
    pub(crate) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.units.extend(other.units);
    }
}

/// With the mode as people write it.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("mode", &format_args!("{:04o}", self.mode))
            .field("secrecy", &self.secrecy)
            .field("content", &self.content)
            .finish()
    }
}
