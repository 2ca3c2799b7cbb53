//! The complete spec as one tree of plain values: what `to_json`, `to_yaml` and `explain` share.
//!
//! What a component would do by itself, if nobody decided, is part of the view and of nothing else: it is shown and
//! explained, never written to a node.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::catalog::{self, Component, Field, Release};
use crate::complete::{CompleteNodeGroup, CompleteSpec, ConfigNode, ConfigTree};
use crate::origin::{Origin, Setting};
use crate::record::{Record, SpecValue};

/// Whether secrets are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretDisplay {
    Shown,
    /// A marker stands in their place, which is refused when it is read back.
    Redacted,
}

/// How the spec is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) secrets: SecretDisplay,
    /// The release whose own defaults are shown; `None`: one without tables.
    pub(crate) release: Option<&'static Release>,
}

pub(crate) enum View<'a> {
    Leaf(Value, &'a Origin),
    /// The component's own default.
    BuiltIn(Value, Component),
    Branch(Vec<(String, View<'a>)>),
}

impl View<'_> {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            View::Leaf(value, _) | View::BuiltIn(value, _) => value.clone(),
            View::Branch(fields) => {
                Value::Object(fields.iter().map(|(name, view)| (name.clone(), view.to_json())).collect::<Map<_, _>>())
            }
        }
    }

    /// A branch without leaves.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, View::Branch(fields) if fields.iter().all(|(_, view)| view.is_empty()))
    }

    /// Nothing in it was decided by anybody.
    pub(crate) fn is_built_in(&self) -> bool {
        match self {
            View::Leaf(..) => false,
            View::BuiltIn(..) => true,
            View::Branch(fields) => !fields.is_empty() && fields.iter().all(|(_, view)| view.is_built_in()),
        }
    }
}

/// A component's configuration: what was decided, and around it what the component does by itself.
pub(crate) fn config(tree: &ConfigTree, component: Component, look: Look) -> View<'_> {
    let version_2 = matches!(tree.get("version"), Some(ConfigNode::Leaf(setting)) if setting.value == 2);
    let component = if version_2 && component == Component::Containerd { Component::ContainerdOne } else { component };
    let fields = component.config().unwrap_or_default();
    View::Branch(config_fields(tree, fields, component, look))
}

fn config_fields<'a>(
    tree: &'a ConfigTree,
    known: &'static [Field],
    component: Component,
    look: Look,
) -> Vec<(String, View<'a>)> {
    let mut views: BTreeMap<&str, View<'a>> = BTreeMap::new();
    for (name, node) in tree {
        let below = known.iter().find(|field| field.name == name).map_or(&[][..], Field::below);
        let view = match node {
            ConfigNode::Leaf(setting) => View::Leaf(setting.value.clone(), &setting.origin),
            ConfigNode::Branch(tree) => View::Branch(config_fields(tree, below, component, look)),
        };
        views.insert(name, view);
    }
    let empty = const { &ConfigTree::new() };
    let Some(target) = look.release.map(|release| release.target(component)) else { return named_views(views) };
    for field in known.iter().filter(|field| target.has(field.available) && !tree.contains_key(field.name)) {
        let view = match field.builtin.and_then(|json| serde_json::from_str(json).ok()) {
            Some(value) => View::BuiltIn(value, component),
            None => View::Branch(config_fields(empty, field.below(), component, look)),
        };
        if !view.is_empty() {
            views.insert(field.name, view);
        }
    }
    named_views(views)
}

fn named_views<'a>(views: BTreeMap<&str, View<'a>>) -> Vec<(String, View<'a>)> {
    views.into_iter().map(|(name, view)| (name.to_owned(), view)).collect()
}

pub(crate) fn flags<'a>(flags: &'a BTreeMap<String, Setting<String>>, component: Component, look: Look) -> View<'a> {
    let mut views: BTreeMap<&str, View<'a>> = BTreeMap::new();
    if let Some(target) = look.release.map(|release| release.target(component)) {
        for flag in component.flags().iter().filter(|flag| target.has(flag.available) && !flag.deprecated) {
            if let Some(value) = flag.builtin {
                views.insert(flag.name, View::BuiltIn(Value::from(value), component));
            }
        }
    }
    for (name, setting) in flags {
        views.insert(name, View::Leaf(Value::from(setting.value.as_str()), &setting.origin));
    }
    View::Branch(named_views(views))
}

fn named<'a, T: SpecValue>(name: &'a Setting<T>, view: View<'a>, look: Look) -> View<'a> {
    let View::Branch(fields) = view else { return view };
    let name = ("name".to_owned(), View::Leaf(name.value.to_json(look), &name.origin));
    View::Branch(std::iter::once(name).chain(fields).collect())
}

pub(crate) fn cluster(spec: &CompleteSpec, secrets: SecretDisplay) -> View<'_> {
    let look = Look { secrets, release: catalog::find_release(spec.cluster.kubernetes_version.value).ok() };
    named(&spec.name, spec.cluster.view(look), look)
}

pub(crate) fn group(group: &CompleteNodeGroup, secrets: SecretDisplay) -> View<'_> {
    let look = Look { secrets, release: catalog::find_release(group.spec.kubernetes_version.value).ok() };
    named(&group.name, group.spec.view(look), look)
}

pub(crate) fn whole(spec: &CompleteSpec, secrets: SecretDisplay) -> View<'_> {
    let groups = spec.groups.iter().map(|member| (member.name.value.to_string(), group(member, secrets))).collect();
    View::Branch(vec![("cluster".to_owned(), cluster(spec, secrets)), ("nodeGroups".to_owned(), View::Branch(groups))])
}
