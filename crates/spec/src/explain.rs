//! Where does this value come from, and whom does it reach?

use serde_json::Value;

use crate::complete::CompleteSpec;
use crate::nearest::nearest;
use crate::origin::Origin;
use crate::path;
use crate::values::Role;
use crate::view::{self, SecretDisplay, View};

/// One leaf of the complete spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub path: String,
    /// Secrets are redacted.
    pub value: Value,
    pub origin: Origin,
    /// Names of the node groups whose nodes it reaches.
    pub reaches: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    #[error("there is no setting \"{path}\"")]
    Unknown {
        path: String,
        /// Paths that may have been meant; may be empty.
        nearest: Vec<String>,
    },
    #[error("\"{path}\" could be any of {}", candidates.join(", "))]
    Ambiguous { path: String, candidates: Vec<String> },
}

/// `wanted` is a path or the end of one: of the shortest path, if that is only one. A leaf gives one explanation, a branch one for each leaf below.
pub fn explain(spec: &CompleteSpec, wanted: &str) -> Result<Vec<Explanation>, NotFound> {
    let whole = view::whole(spec, SecretDisplay::Redacted);
    let mut nodes = Vec::new();
    collect(&whole, &mut Vec::new(), &mut nodes);
    let segments = path::split(wanted).unwrap_or_default();
    let found = match nodes.iter().find(|node| node.segments == segments) {
        Some(exact) => exact,
        None => unique_suffix(&nodes, &segments, wanted)?,
    };
    let mut explanations = Vec::new();
    explain_below(spec, found.view, &mut found.segments.clone(), &mut explanations);
    Ok(explanations)
}

/// Every leaf, in the order of `to_json`.
pub fn paths(spec: &CompleteSpec) -> Vec<String> {
    let whole = view::whole(spec, SecretDisplay::Redacted);
    let mut nodes = Vec::new();
    collect(&whole, &mut Vec::new(), &mut nodes);
    nodes.iter().filter(|node| !matches!(node.view, View::Branch(_))).map(Place::path).collect()
}

struct Place<'v> {
    segments: Vec<String>,
    view: &'v View<'v>,
}

impl Place<'_> {
    fn path(&self) -> String {
        path::join(self.segments.iter().map(String::as_str))
    }
}

fn collect<'v>(view: &'v View<'v>, segments: &mut Vec<String>, nodes: &mut Vec<Place<'v>>) {
    if !segments.is_empty() {
        nodes.push(Place { segments: segments.clone(), view });
    }
    if let View::Branch(fields) = view {
        for (name, below) in fields {
            segments.push(name.clone());
            collect(below, segments, nodes);
            segments.pop();
        }
    }
}

fn unique_suffix<'n, 'v>(nodes: &'n [Place<'v>], segments: &[String], wanted: &str) -> Result<&'n Place<'v>, NotFound> {
    let matching: Vec<&Place<'v>> =
        nodes.iter().filter(|node| !segments.is_empty() && node.segments.ends_with(segments)).collect();
    // A setting of the group comes before a field of a component's configuration that has its name.
    let shortest = matching.iter().map(|node| node.segments.len()).min();
    let mut outermost = matching.iter().filter(|node| Some(node.segments.len()) == shortest);
    if let (Some(only), None) = (outermost.next(), outermost.next()) {
        return Ok(only);
    }
    match matching.as_slice() {
        [only] => Ok(only),
        [] => Err(NotFound::Unknown { path: wanted.to_owned(), nearest: suggest(nodes, segments, wanted) }),
        several => Err(NotFound::Ambiguous {
            path: wanted.to_owned(),
            candidates: several.iter().map(|node| node.path()).collect(),
        }),
    }
}

/// By the whole path first, then by its last segment alone.
fn suggest(nodes: &[Place<'_>], segments: &[String], wanted: &str) -> Vec<String> {
    const MOST: usize = 3;
    let paths: Vec<String> = nodes.iter().map(Place::path).collect();
    if let Some(path) = nearest(wanted, paths.iter().map(String::as_str)) {
        return vec![path.to_owned()];
    }
    let Some(last) = segments.last() else { return Vec::new() };
    let names = nodes.iter().filter_map(|node| node.segments.last()).map(String::as_str);
    let Some(name) = nearest(last, names) else { return Vec::new() };
    let named = nodes.iter().filter(|node| node.segments.last().is_some_and(|last| last == name));
    named.map(Place::path).take(MOST).collect()
}

fn explain_below(spec: &CompleteSpec, view: &View<'_>, segments: &mut Vec<String>, found: &mut Vec<Explanation>) {
    let mut leaf = |value: &Value, origin: Origin| {
        found.push(Explanation {
            path: path::join(segments.iter().map(String::as_str)),
            value: value.clone(),
            origin,
            reaches: reaches(spec, segments),
        });
    };
    match view {
        View::Leaf(value, origin) => leaf(value, (*origin).clone()),
        View::BuiltIn(value, component) => leaf(value, Origin::BuiltIn { component: component.name() }),
        View::Branch(fields) => {
            for (name, below) in fields {
                segments.push(name.clone());
                explain_below(spec, below, segments, found);
                segments.pop();
            }
        }
    }
}

/// Settings of the control plane's components reach its nodes only.
fn reaches(spec: &CompleteSpec, segments: &[String]) -> Vec<String> {
    const CONTROL_PLANE: [&str; 6] =
        ["pki", "kubeApiserver", "kubeControllerManager", "kubeScheduler", "etcd", "dnsController"];
    let of = |wanted: &dyn Fn(Role) -> bool| {
        let groups = spec.groups.iter().filter(|group| wanted(group.spec.role.value));
        groups.map(|group| group.name.value.to_string()).collect()
    };
    match segments {
        [first, group, ..] if first == "nodeGroups" => vec![group.clone()],
        [_, field, ..] if CONTROL_PLANE.contains(&field.as_str()) => of(&|role| role == Role::ControlPlane),
        _ => of(&|_| true),
    }
}
