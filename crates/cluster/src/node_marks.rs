//! What is written on a Node: labels and annotations. A kubelet's credential may change those of its own Node only.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;

use crate::access::Access;
use crate::answer::{Answer, Patience, ask};

const LONGEST_PREFIX: usize = 253;
const LONGEST_NAME: usize = 63;

/// The key of a label or an annotation, such as `nodestrap.io/next-boot-ready`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct MarkKey(String);

impl MarkKey {
    /// A name, and before it, if anything, the domain of whoever gives it its meaning.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, name) = match text.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, text),
        };
        let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let is_word = |text: &str, longest: usize, is_inside: &dyn Fn(u8) -> bool| {
            let bytes = text.as_bytes();
            bytes.len() <= longest
                && bytes.iter().copied().all(is_inside)
                && is_end(bytes.first())
                && is_end(bytes.last())
        };
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let of_prefix = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_key = is_word(name, LONGEST_NAME, &of_name)
            && prefix.is_none_or(|prefix| is_word(prefix, LONGEST_PREFIX, &of_prefix) && !prefix.contains(".."));
        is_key.then(|| Self(text.to_owned()))
    }

    /// Another key of the same owner, whose name goes on like this. `None`: it would be too long.
    pub fn with_suffix(&self, suffix: &str) -> Option<Self> {
        Self::parse(&format!("{}{suffix}", self.0))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for MarkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is written on a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMarks {
    /// Of this Node: one of the same name that is registered anew has another.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl NodeMarks {
    pub fn label(&self, key: &MarkKey) -> Option<&str> {
        self.labels.get(key.as_str()).map(String::as_str)
    }

    pub fn annotation(&self, key: &MarkKey) -> Option<&str> {
        self.annotations.get(key.as_str()).map(String::as_str)
    }
}

impl From<Node> for NodeMarks {
    fn from(node: Node) -> Self {
        let metadata = node.metadata;
        Self {
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
        }
    }
}

/// What is written on the Node of that name.
pub async fn node_marks(access: &Access, node: &str, patience: Patience) -> Answer<NodeMarks> {
    let asked = ask(access, patience, |client| async move {
        let nodes: Api<Node> = Api::all(client);
        nodes.get(node).await
    });
    asked.await.read(|node| Ok(node.into()))
}

/// Writes these annotations on the Node of that name, and takes away those without a value; all others stay as they are. What is
/// written on it then.
pub async fn annotate_node(
    access: &Access,
    node: &str,
    changes: &BTreeMap<MarkKey, Option<String>>,
    patience: Patience,
) -> Answer<NodeMarks> {
    let patch = AnnotationPatch { metadata: Annotations { annotations: changes } };
    let asked = ask(access, patience, |client| async move {
        let nodes: Api<Node> = Api::all(client);
        // A merge patch without a version of the object: it never meets a conflict, and can be sent again.
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await
    });
    asked.await.read(|node| Ok(node.into()))
}

/// `null` takes an annotation away.
#[derive(Clone, Copy, Debug, Serialize)]
struct AnnotationPatch<'a> {
    metadata: Annotations<'a>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Annotations<'a> {
    annotations: &'a BTreeMap<MarkKey, Option<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_a_cluster_takes() {
        let long = "a".repeat(64);
        for good in ["nodestrap.io/next-boot-ready", "a", "A_b.C-1", "a-b.c/D"] {
            assert_eq!(MarkKey::parse(good).map(|key| key.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "/", "a/", "/a", "a/b/c", "A.b/c", "a..b/c", "-a", "a-", "a b", "a=b", "é", long.as_str()] {
            assert_eq!(MarkKey::parse(bad), None, "{bad:?}");
        }
        let key = MarkKey::parse("nodestrap.io/next-boot-ready").unwrap();
        assert_eq!(key.with_suffix("-for").unwrap().as_str(), "nodestrap.io/next-boot-ready-for");
        assert_eq!(MarkKey::parse(&long[..63]).unwrap().with_suffix("-for"), None);
    }
}
