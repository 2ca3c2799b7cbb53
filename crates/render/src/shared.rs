//! What the groups of a cluster mostly have in common, kept from one group to the next.
//!
//! It saves work and changes no byte: what was written for the previous group is taken again only if it was written from
//! the same values.

use std::cell::RefCell;

use spec::{ConfigNode, ConfigTree};

use crate::bundle::File;
use crate::content::{self, Content};
use crate::error::RenderError;
use crate::kubelet::KubeletUnit;
use crate::system::KernelUnit;

/// For the groups of one spec, and for one thread.
#[derive(Default)]
pub(crate) struct Shared<'s> {
    pub(crate) runtime_config: Last<Values<'s>>,
    /// By its user; all else in it belongs to the cluster.
    pub(crate) kubeconfig: Last<&'static str>,
    pub(crate) kernel_unit: Last<KernelUnit>,
    pub(crate) kubelet_unit: Last<KubeletUnit<'s>>,
    /// By the path of nodestrap.
    pub(crate) network_unit: Last<&'s str>,
    /// Of the last group, in their order.
    files: RefCell<Vec<(String, Content)>>,
}

/// What was written last, and from what.
pub(crate) struct Last<K>(RefCell<Option<(K, Content)>>);

impl<K> Default for Last<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K: PartialEq> Last<K> {
    /// `render` must need nothing that can differ between two groups but `from`.
    pub(crate) fn of(
        &self,
        from: K,
        render: impl FnOnce(&K) -> Result<Vec<u8>, RenderError>,
    ) -> Result<Content, RenderError> {
        if let Some((known, content)) = &*self.0.borrow()
            && *known == from
        {
            return Ok(content.clone());
        }
        let content = Content::from(render(&from)?);
        *self.0.borrow_mut() = Some((from, content.clone()));
        Ok(content)
    }
}

/// Equal if all values are, wherever they come from: the origins of two groups name their groups.
pub(crate) struct Values<'s>(pub(crate) &'s ConfigTree);

impl PartialEq for Values<'_> {
    fn eq(&self, other: &Self) -> bool {
        same_values(self.0, other.0)
    }
}

impl Shared<'_> {
    /// Content that the last group has in the same place is taken from there, with its digest. Groups that have not the
    /// same files have little in common, and nothing to gain.
    pub(crate) fn recognise(&self, files: &mut [File]) {
        let mut known = self.files.borrow_mut();
        known.truncate(files.len());
        for (index, file) in files.iter_mut().enumerate() {
            match known.get_mut(index) {
                Some((path, content)) if *path == file.path && *content == file.content => {
                    file.content = content.clone();
                }
                Some((path, content)) if *path == file.path => *content = file.content.clone(),
                Some(other) => *other = (file.path.clone(), file.content.clone()),
                None => known.push((file.path.clone(), file.content.clone())),
            }
        }
    }
}

fn same_values(one: &ConfigTree, other: &ConfigTree) -> bool {
    let same = |one: &ConfigNode, other: &ConfigNode| match (one, other) {
        (ConfigNode::Leaf(one), ConfigNode::Leaf(other)) => one.value == other.value,
        (ConfigNode::Branch(one), ConfigNode::Branch(other)) => same_values(one, other),
        _ => false,
    };
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| content::same(one.0.as_bytes(), other.0.as_bytes()) && same(one.1, other.1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spec::{Origin, Setting};

    use super::*;

    fn tree(value: i64, reason: &'static str) -> ConfigTree {
        let leaf = ConfigNode::Leaf(Setting { value: json!(value), origin: Origin::Default { reason } });
        ConfigTree::from([("a".to_owned(), ConfigNode::Branch(ConfigTree::from([("b".to_owned(), leaf)])))])
    }

    #[test]
    fn only_what_has_the_same_values_is_taken_again() {
        let (one, same, other) = (tree(1, "x"), tree(1, "y"), tree(2, "x"));
        let shared = Shared::default();
        let ask = |tree, text: &str| shared.runtime_config.of(Values(tree), |_| Ok(text.into())).unwrap();
        assert_eq!(*ask(&one, "first"), *b"first");
        assert_eq!(*ask(&same, "second"), *b"first");
        assert_eq!(*ask(&other, "third"), *b"third");
        assert_eq!(*ask(&one, "fourth"), *b"fourth");
        assert!(shared.kubeconfig.of("a", |_| Err(RenderError::NoPki)).is_err());
        assert_eq!(*shared.kubeconfig.of("a", |_| Ok(b"1".into())).unwrap(), *b"1");
    }

    #[test]
    fn only_the_same_content_in_the_same_place_is_recognised() {
        let shared = Shared::default();
        let recognised = |path: &str, content: &str| {
            let mut files = [File::public(path, content)];
            shared.recognise(&mut files);
            files[0].content.clone()
        };
        let first = recognised("/a", "same");
        assert!(std::ptr::eq(&raw const *recognised("/a", "same"), &raw const *first));
        assert_eq!(*recognised("/a", "other"), *b"other");
        assert_eq!(*recognised("/b", "same"), *b"same");
        assert_eq!(*recognised("/a", "same"), *b"same");
    }
}
