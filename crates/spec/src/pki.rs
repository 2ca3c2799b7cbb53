//! The certificates and keys of a control plane, read from the folder that `nodestrap pki create` fills.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::document::FileReference;
use crate::origin::Origin;
use crate::record::{Context, SpecValue};
use crate::tree::Node;
use crate::values::Invalid;
use crate::values::Secret;
use crate::view::Look;

/// What a control plane needs, by the names that kubeadm made common.
pub const PKI_FILES: [&str; 26] = [
    "admin.conf",
    "apiserver-etcd-client.crt",
    "apiserver-etcd-client.key",
    "apiserver-kubelet-client.crt",
    "apiserver-kubelet-client.key",
    "apiserver.crt",
    "apiserver.key",
    "ca.crt",
    "ca.key",
    "controller-manager.conf",
    "etcd/ca.crt",
    "etcd/ca.key",
    "etcd/healthcheck-client.crt",
    "etcd/healthcheck-client.key",
    "etcd/peer.crt",
    "etcd/peer.key",
    "etcd/server.crt",
    "etcd/server.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "front-proxy-client.crt",
    "front-proxy-client.key",
    "sa.key",
    "sa.pub",
    "scheduler.conf",
    "super-admin.conf",
];

const MOST_NAMED: usize = 3;

/// A folder and what is in it.
#[derive(Clone, PartialEq)]
pub struct PkiFolder {
    path: String,
    files: BTreeMap<&'static str, Secret>,
}

impl PkiFolder {
    /// As written: relative to the spec.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Every file of [`PKI_FILES`]; keys and kubeconfigs among them are secrets, so all are kept as such.
    pub fn files(&self) -> &BTreeMap<&'static str, Secret> {
        &self.files
    }

    /// As under /etc/kubernetes: kubeconfigs beside the folder of certificates and keys.
    pub(crate) fn path_of(name: &str) -> String {
        if name.ends_with(".conf") { name.to_owned() } else { format!("pki/{name}") }
    }
}

/// The first few, and how many there are besides.
pub(crate) fn name_some(all: &[String], between: &str) -> String {
    let shown = all.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(between);
    match all.len().saturating_sub(MOST_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl SpecValue for PkiFolder {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        let path = drafts.text(node)?;
        if path.is_empty() || path.chars().any(char::is_control) {
            drafts.report_invalid(node.span, Invalid::new("not the path of a folder"));
            return None;
        }
        let Origin::User(position) = drafts.user(node.span) else { return None };
        let folder = path.trim_end_matches('/');
        let read = |name: &'static str| {
            let path = format!("{folder}/{}", Self::path_of(name));
            let reference = FileReference { path, position: position.clone(), field: "pki.folder" };
            (name, context.files.content(&reference))
        };
        let mut files = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, content) in PKI_FILES.map(read) {
            match content {
                Some(Ok(text)) => drop(files.insert(name, Secret::new(text))),
                Some(Err(reason)) => problems.push(format!("{name} ({reason})")),
                None => {}
            }
        }
        if !problems.is_empty() {
            let shown = name_some(&problems, ", ");
            drafts
                .report(node.span, format!("the folder \"{path}\" lacks {shown}"))
                .advise("`nodestrap pki create FILE… --out DIR` makes them, and keeps what is there");
        }
        (files.len() == PKI_FILES.len()).then(|| Self { path: path.to_owned(), files })
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.path.as_str())
    }

    fn schema() -> Value {
        json!({ "type": "string", "examples": ["pki"] })
    }
}
