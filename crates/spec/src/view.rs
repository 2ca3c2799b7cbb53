//! The complete spec as one tree of plain values: what `to_json`, `to_yaml` and `explain` share.
//!
//! What a component would do by itself, if nobody decided, is part of the view and of nothing else: it is shown and
//! explained, never written to a node.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::catalog::{self, Component, Field, Release};
use crate::complete::{CompleteNodeGroup, CompleteSpec};
use crate::config_tree::{ConfigNode, ConfigTree};
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
    /// The value of one key of a mapping that is one setting; the origin is that of the whole.
    Entry(Value, &'a Origin),
    /// The component's own default.
    BuiltIn(Value, Component),
    Branch(Vec<(String, View<'a>)>),
}

impl View<'_> {
    /// Of a leaf.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            View::Leaf(value, _) | View::Entry(value, _) | View::BuiltIn(value, _) => Some(value),
            View::Branch(_) => None,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        self.select(&|_| true).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// What somebody decided.
    pub(crate) fn decided(&self) -> Value {
        self.select(&|view| matches!(view, View::Leaf(..) | View::Entry(..)))
            .unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// What components do by themselves.
    pub(crate) fn built_in(&self) -> Value {
        self.select(&|view| matches!(view, View::BuiltIn(..))).unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The leaves that are wanted, in their branches; `None` if there are none.
    fn select(&self, wanted: &dyn Fn(&View<'_>) -> bool) -> Option<Value> {
        match self {
            View::Leaf(value, _) | View::Entry(value, _) | View::BuiltIn(value, _) => {
                wanted(self).then(|| value.clone())
            }
            View::Branch(fields) => {
                let selected: Map<String, Value> =
                    fields.iter().filter_map(|(name, view)| Some((name.clone(), view.select(wanted)?))).collect();
                (!selected.is_empty()).then_some(Value::Object(selected))
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
            View::Leaf(..) | View::Entry(..) => false,
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
    for field in known.iter().filter(|field| target.has(field.available) && tree.get(field.name).is_none()) {
        let builtin = field.builtin.or_else(|| catalog::changed_builtin(target, field.name));
        let builtin = builtin.and_then(|json| serde_json::from_str(json).ok());
        let view = match builtin.or_else(|| follows(tree, component, field.name)) {
            Some(value) => View::BuiltIn(value, component),
            None => View::Branch(config_fields(empty, field.below(), component, look)),
        };
        if !view.is_empty() {
            views.insert(field.name, view);
        }
    }
    named_views(views)
}

/// What a component does by itself because of another field of its configuration.
fn follows(tree: &ConfigTree, component: Component, name: &str) -> Option<Value> {
    let leaf = |name: &str| match tree.get(name) {
        Some(ConfigNode::Leaf(setting)) => Some(&setting.value),
        _ => None,
    };
    let of_family = |v4: &str, v6: &str| {
        let of_v6 = leaf("bindAddress").and_then(Value::as_str).is_some_and(|address| address.contains(':'));
        Value::from(if of_v6 { v6 } else { v4 })
    };
    Some(match (component, name) {
        (Component::Kubelet, "serializeImagePulls") => {
            Value::Bool(leaf("maxParallelImagePulls").and_then(Value::as_i64).is_none_or(|pulls| pulls < 2))
        }
        (Component::Kubelet, "nodeStatusReportFrequency") => {
            leaf("nodeStatusUpdateFrequency").cloned().unwrap_or_else(|| Value::from("5m0s"))
        }
        (Component::KubeProxy, "healthzBindAddress") => of_family("0.0.0.0:10256", "[::]:10256"),
        (Component::KubeProxy, "metricsBindAddress") => of_family("127.0.0.1:10249", "[::1]:10249"),
        _ => return None,
    })
}

fn named_views<'a>(views: BTreeMap<&str, View<'a>>) -> Vec<(String, View<'a>)> {
    views.into_iter().map(|(name, view)| (name.to_owned(), view)).collect()
}

pub(crate) fn flags<'a>(flags: &'a BTreeMap<String, Setting<String>>, component: Component, look: Look) -> View<'a> {
    let mut views: BTreeMap<&str, View<'a>> = BTreeMap::new();
    if let Some(target) = look.release.map(|release| release.target(component)) {
        for flag in component.flags().iter().filter(|flag| target.has(flag.available) && !flag.deprecated) {
            if let Some(value) = flag.builtin.or_else(|| catalog::changed_builtin(target, flag.name)) {
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
