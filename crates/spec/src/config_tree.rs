//! A configuration document whose every leaf knows its origin.

use std::collections::{BTreeMap, btree_map};

use serde_json::Value;

use crate::origin::Setting;

/// Fields in the order of their names. Lists are leaves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigTree(BTreeMap<String, ConfigNode>);

#[derive(Clone, Debug, PartialEq)]
pub enum ConfigNode {
    Leaf(Setting<Value>),
    Branch(ConfigTree),
}

impl ConfigTree {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> btree_map::Iter<'_, String, ConfigNode> {
        self.0.iter()
    }

    pub fn get(&self, name: &str) -> Option<&ConfigNode> {
        self.0.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut ConfigNode> {
        self.0.get_mut(name)
    }

    /// What is there, or else a branch that is empty as yet.
    pub(crate) fn get_or_branch(&mut self, name: &str) -> &mut ConfigNode {
        self.0.entry(name.to_owned()).or_insert_with(|| ConfigNode::Branch(Self::new()))
    }

    /// In place of what was there.
    pub fn insert(&mut self, name: &str, node: ConfigNode) {
        self.0.insert(name.to_owned(), node);
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }
}

impl<'t> IntoIterator for &'t ConfigTree {
    type Item = (&'t String, &'t ConfigNode);
    type IntoIter = btree_map::Iter<'t, String, ConfigNode>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl IntoIterator for ConfigTree {
    type Item = (String, ConfigNode);
    type IntoIter = btree_map::IntoIter<String, ConfigNode>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Of fields with the same name the last one counts.
impl Extend<(String, ConfigNode)> for ConfigTree {
    fn extend<T: IntoIterator<Item = (String, ConfigNode)>>(&mut self, fields: T) {
        self.0.extend(fields);
    }
}

impl FromIterator<(String, ConfigNode)> for ConfigTree {
    fn from_iter<T: IntoIterator<Item = (String, ConfigNode)>>(fields: T) -> Self {
        Self(fields.into_iter().collect())
    }
}
