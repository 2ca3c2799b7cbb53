//! A configuration document whose every leaf knows its origin.

use std::iter::Map;
use std::slice::Iter;

use serde_json::Value;

use crate::origin::Setting;

/// Fields in the order of their names. Lists are leaves.
///
/// A sorted list, not a `BTreeMap`, whose smallest one has room for eleven fields: most tables of a configuration have one or
/// two, and a fleet has thousands of configurations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigTree(Vec<(String, ConfigNode)>);

#[derive(Clone, Debug, PartialEq)]
pub enum ConfigNode {
    Leaf(Setting<Value>),
    Branch(ConfigTree),
}

impl ConfigTree {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.into_iter()
    }

    pub fn get(&self, name: &str) -> Option<&ConfigNode> {
        self.place(name).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut ConfigNode> {
        self.place(name).ok().map(|at| &mut self.0[at].1)
    }

    /// What is there, or else a branch that is empty as yet.
    pub(crate) fn get_or_branch(&mut self, name: &str) -> &mut ConfigNode {
        let at = self.place(name).unwrap_or_else(|at| self.insert_at(at, name, ConfigNode::Branch(Self::new())));
        &mut self.0[at].1
    }

    /// In place of what was there. For many at once, `extend` is quicker.
    pub fn insert(&mut self, name: &str, node: ConfigNode) {
        match self.place(name) {
            Ok(at) => self.0[at].1 = node,
            Err(at) => {
                self.insert_at(at, name, node);
            }
        }
    }

    fn insert_at(&mut self, at: usize, name: &str, node: ConfigNode) -> usize {
        // Most have one only.
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.insert(at, (name.to_owned(), node));
        at
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| keep(name));
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }
}

impl<'t> IntoIterator for &'t ConfigTree {
    type Item = (&'t str, &'t ConfigNode);
    type IntoIter = Map<Iter<'t, (String, ConfigNode)>, fn(&'t (String, ConfigNode)) -> Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(name, node)| (name, node))
    }
}

impl IntoIterator for ConfigTree {
    type Item = (String, ConfigNode);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Of fields with the same name the last one counts.
impl Extend<(String, ConfigNode)> for ConfigTree {
    fn extend<T: IntoIterator<Item = (String, ConfigNode)>>(&mut self, fields: T) {
        self.0.extend(fields);
        self.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        // Of two that are removed as one, the first stays: it gets what the last had.
        self.0.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            same
        });
        self.0.shrink_to_fit();
    }
}

impl FromIterator<(String, ConfigNode)> for ConfigTree {
    fn from_iter<T: IntoIterator<Item = (String, ConfigNode)>>(fields: T) -> Self {
        let mut tree = Self::new();
        tree.extend(fields);
        tree
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::origin::Origin;

    fn leaf(value: u8) -> ConfigNode {
        ConfigNode::Leaf(Setting { value: json!(value), origin: Origin::Default { reason: "a test" } })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_holds_what_a_map_holds(
            first in proptest::collection::vec(("[a-e]{0,2}", any::<u8>()), 0..30),
            second in proptest::collection::vec(("[a-e]{0,2}", any::<u8>()), 0..30),
            single in proptest::collection::vec(("[a-e]{0,2}", any::<u8>()), 0..30),
        ) {
            let nodes = |fields: &[(String, u8)]| fields.iter().map(|(name, value)| (name.clone(), leaf(*value))).collect();
            let (first, second, single): (Vec<_>, Vec<_>, Vec<_>) = (nodes(&first), nodes(&second), nodes(&single));
            let mut map: BTreeMap<String, ConfigNode> = first.iter().cloned().collect();
            let mut tree: ConfigTree = first.into_iter().collect();
            map.extend(second.clone());
            tree.extend(second);
            for (name, node) in single {
                tree.insert(&name, node.clone());
                map.insert(name, node);
            }
            prop_assert_eq!(tree.len(), map.len());
            prop_assert!(tree.iter().eq(map.iter().map(|(name, node)| (name.as_str(), node))));
            for name in ["", "a", "ab", "c", "ee", "f"] {
                prop_assert_eq!(tree.get(name), map.get(name));
            }
        }
    }
}
