//! What the groups of a cluster mostly have in common, kept from one group to the next.
//!
//! It saves work and changes no byte: what was written for the previous group is taken again only if it was written from
//! the same values.

use std::cell::RefCell;

use spec::{ConfigNode, ConfigTree};

use crate::bundle::{Bundle, File, Part};
use crate::check::Places;
use crate::content::Content;
use crate::error::{BundleError, RenderError};
use crate::kubelet::KubeletUnit;
use crate::system::Kernel;

/// For the groups of one spec, and for one thread.
#[derive(Default)]
pub(crate) struct Shared<'s> {
    pub(crate) runtime_config: Last<Values<'s>>,
    /// By its user; all else in it belongs to the cluster.
    pub(crate) kubeconfig: Last<&'static str>,
    pub(crate) kernel: Last<Kernel<'s>, Part>,
    pub(crate) kubelet_unit: Last<KubeletUnit<'s>>,
    /// By the path of nodestrap.
    pub(crate) network_unit: Last<&'s str>,
    last: RefCell<LastFiles>,
}

/// The files of the last bundle, which keep all rules.
#[derive(Default)]
struct LastFiles {
    files: Vec<File>,
    gate: String,
}

/// What was made last, and from what.
pub(crate) struct Last<K, V = Content>(RefCell<Option<(K, V)>>);

impl<K, V> Default for Last<K, V> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K: PartialEq, V: Clone> Last<K, V> {
    /// `make` must need nothing that can differ between two groups but `from`.
    pub(crate) fn of<M: Into<V>>(
        &self,
        from: K,
        make: impl FnOnce(&K) -> Result<M, RenderError>,
    ) -> Result<V, RenderError> {
        if let Some((known, value)) = &*self.0.borrow()
            && *known == from
        {
            return Ok(value.clone());
        }
        let value: V = make(&from)?.into();
        *self.0.borrow_mut() = Some((from, value.clone()));
        Ok(value)
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
    /// Checks the rules that every bundle keeps. Content that the last one has in the same place is taken from there, with
    /// its digest; bundles that have not the same files have little in common, and nothing to gain.
    pub(crate) fn finish(&self, bundle: &mut Bundle) -> Result<(), BundleError> {
        let mut last = self.last.borrow_mut();
        if !last.has_places_of(bundle) {
            bundle.validate(Places::New)?;
            *last = LastFiles { files: bundle.files.clone(), gate: bundle.gate.path.clone() };
            return Ok(());
        }
        bundle.validate(Places::Known)?;
        for (known, file) in last.files.iter_mut().zip(&mut bundle.files) {
            match known.content == file.content {
                true => file.content = known.content.clone(),
                false => known.content = file.content.clone(),
            }
        }
        Ok(())
    }
}

impl LastFiles {
    fn has_places_of(&self, bundle: &Bundle) -> bool {
        let same_place = |(one, other): (&File, &File)| {
            (&one.path, one.mode, one.secrecy) == (&other.path, other.mode, other.secrecy)
        };
        self.files.len() == bundle.files.len()
            && self.gate == bundle.gate.path
            && self.files.iter().zip(&bundle.files).all(same_place)
    }
}

fn same_values(one: &ConfigTree, other: &ConfigTree) -> bool {
    let same = |one: &ConfigNode, other: &ConfigNode| match (one, other) {
        (ConfigNode::Leaf(one), ConfigNode::Leaf(other)) => one.value == other.value,
        (ConfigNode::Branch(one), ConfigNode::Branch(other)) => same_values(one, other),
        _ => false,
    };
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.0 == other.0 && same(one.1, other.1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spec::{Origin, Setting};

    use super::*;
    use crate::bundle::Secrecy;
    use crate::manifest::tests::everything;

    fn tree(value: i64, reason: &'static str) -> ConfigTree {
        let leaf = ConfigNode::Leaf(Setting { value: json!(value), origin: Origin::Default { reason } });
        let branch = ConfigTree::from_iter([("b".to_owned(), leaf)]);
        ConfigTree::from_iter([("a".to_owned(), ConfigNode::Branch(branch))])
    }

    #[test]
    fn only_what_has_the_same_values_is_taken_again() {
        let (one, same, other) = (tree(1, "x"), tree(1, "y"), tree(2, "x"));
        let shared = Shared::default();
        let ask = |tree, text: &str| shared.runtime_config.of(Values(tree), |_| Ok(text)).unwrap();
        assert_eq!(*ask(&one, "first"), *b"first");
        assert_eq!(*ask(&same, "second"), *b"first");
        assert_eq!(*ask(&other, "third"), *b"third");
        assert_eq!(*ask(&one, "fourth"), *b"fourth");
        assert!(shared.kubeconfig.of::<Content>("a", |_| Err(RenderError::NoPki)).is_err());
        assert_eq!(*shared.kubeconfig.of("a", |_| Ok(b"1")).unwrap(), *b"1");
    }

    fn with_files(files: Vec<File>) -> Bundle {
        Bundle { files, hooks: Vec::new(), ..everything() }
    }

    #[test]
    fn only_the_same_content_in_the_same_place_is_recognised() {
        let shared = Shared::default();
        let recognised = |path: &str, content: &str| {
            let mut bundle = with_files(vec![File::public(path, content)]);
            shared.finish(&mut bundle).unwrap();
            bundle.files[0].content.clone()
        };
        let first = recognised("/a", "same");
        assert!(std::ptr::eq(&raw const *recognised("/a", "same"), &raw const *first));
        assert_eq!(*recognised("/a", "other"), *b"other");
        assert_eq!(*recognised("/b", "same"), *b"same");
        assert_eq!(*recognised("/a", "same"), *b"same");
    }

    #[test]
    fn what_is_somewhere_else_is_looked_at_again() {
        let good = || with_files(vec![File::public("/a", "1"), File::public("/b", "2")]);
        let mut wrong = [good(), good(), good(), good(), good()];
        wrong[0].files[1].path = "/b/..".to_owned();
        wrong[1].files[1].path = "/a/b".to_owned();
        wrong[2].files[1].secrecy = Secrecy::Secret;
        wrong[3].files[1].mode = 0o1777;
        wrong[4].gate.path = "/a".to_owned();
        let shared = Shared::default();
        for mut bundle in wrong {
            shared.finish(&mut good()).unwrap();
            let error = bundle.validate(Places::New).unwrap_err();
            assert_eq!(shared.finish(&mut bundle).unwrap_err(), error);
        }
    }
}
