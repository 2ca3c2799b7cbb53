//! What a bundle makes of a node, without a content and without a secret: what a node keeps to tell later what it is, and
//! whether its files are still those that it was made with.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::bundle::{Bundle, File, Join, Readers, Secrecy, octal};
use crate::extension::Extension;
use crate::format::Format;
use crate::names::{AbsolutePath, ArtefactDigest, Digest, RelativePath};
use crate::resource::static_pods_folder;
use crate::tree::{Tree, current, home};
use crate::vocabulary::{Component, ExtensionName, Layout, Role};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    pub bundle: Digest,
    pub cluster: String,
    pub group: String,
    pub role: Role,
    pub layout: Layout,
    pub kubernetes_version: String,
    /// Where the gate lies.
    pub gate: AbsolutePath,
    pub join: Join,
    /// Of [`Bundle::all_files`], in the same order.
    pub files: Vec<FileDigest>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeDigest>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<ExtensionDigest>,
}

/// An extension by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtensionDigest {
    pub name: ExtensionName,
    pub digest: ArtefactDigest,
    pub size: u64,
    /// Where this version lies.
    pub image: String,
    pub programs: BTreeSet<AbsolutePath>,
}

impl From<&Extension> for ExtensionDigest {
    fn from(extension: &Extension) -> Self {
        Self {
            name: extension.name,
            digest: extension.artefact.digest.clone(),
            size: extension.artefact.size,
            image: extension.image(),
            programs: extension.programs.clone(),
        }
    }
}

/// A tree by its digest; where it came from is nobody's business any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TreeDigest {
    pub component: Component,
    /// Of its folder.
    pub name: String,
    pub digest: ArtefactDigest,
    pub links: BTreeMap<AbsolutePath, RelativePath>,
}

impl TreeDigest {
    /// Where this version lies.
    pub fn folder(&self) -> String {
        format!("{}/{}", home(self.component), self.name)
    }

    /// The link to the version in use.
    pub fn current(&self) -> String {
        current(self.component)
    }
}

impl From<&Tree> for TreeDigest {
    fn from(tree: &Tree) -> Self {
        Self {
            component: tree.component,
            name: tree.name(),
            digest: tree.artefact.digest.clone(),
            links: tree.links.clone(),
        }
    }
}

/// A file by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileDigest {
    pub path: AbsolutePath,
    #[serde(with = "octal")]
    pub mode: u32,
    /// Lower-case hexadecimal digits.
    pub sha256: String,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Secrecy::is_public")]
    pub secrecy: Secrecy,
    #[serde(default, skip_serializing_if = "Readers::is_empty")]
    pub read_by: Readers,
    #[serde(default, skip_serializing_if = "Format::is_text")]
    pub format: Format,
    /// The kubelet runs it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub static_pod: bool,
}

impl Bundle {
    pub fn manifest(&self) -> Manifest {
        let static_pods = static_pods_folder(self);
        let digest = |file: &File| match FileDigest::of(file, &static_pods) {
            // What it is does not hang on whether its content is still here.
            digest if file.path == self.join.bootstrap_kubeconfig => FileDigest { format: Format::Yaml, ..digest },
            digest => digest,
        };
        Manifest {
            bundle: self.digest(),
            cluster: self.cluster.clone(),
            group: self.group.clone(),
            role: self.node.role,
            layout: self.node.layout,
            kubernetes_version: self.kubernetes_version.clone(),
            gate: self.gate.path.clone(),
            join: self.join.clone(),
            files: self.all_files().iter().map(digest).collect(),
            trees: self.trees.iter().map(TreeDigest::from).collect(),
            extensions: self.extensions.iter().map(ExtensionDigest::from).collect(),
        }
    }
}

impl Manifest {
    /// What the kubelet reads when it starts; until it has credentials of its own, also what it joins with.
    pub fn read_by_kubelet(&self, has_joined: bool) -> impl Iterator<Item = &FileDigest> {
        self.files.iter().filter(move |file| {
            let is_for_joining = !has_joined && file.path == self.join.bootstrap_kubeconfig;
            file.read_by.units.contains(&self.join.kubelet_unit) || file.static_pod || is_for_joining
        })
    }
}

impl FileDigest {
    pub(crate) fn of(file: &File, static_pods: &str) -> Self {
        Self {
            path: file.path.clone(),
            mode: file.mode,
            sha256: file.sha256().to_owned(),
            size: file.content.sum().size,
            secrecy: file.secrecy,
            read_by: file.read_by.clone(),
            format: Format::of(&file.path, &file.content),
            static_pod: file.path.is_within(static_pods),
        }
    }
}
