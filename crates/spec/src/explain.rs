//! Where does this value come from, and whom does it reach?

use serde_json::Value;

use crate::complete::CompleteSpec;
use crate::nearest::nearest;
use crate::origin::Origin;
use crate::path::{self, Step};
use crate::reach::Reach;
use crate::source::Source;
use crate::view::{self, SecretDisplay, View};
use crate::written::{Text, Written, identity};

/// One leaf of the complete spec, or a part of one: an item of a list, a field of such an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub path: String,
    /// Secrets are redacted.
    pub value: Value,
    pub origin: Origin,
    /// Names of the node groups whose nodes it reaches: what is rendered for them depends on it.
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

/// `wanted` is a path or the end of one: of the shortest path, if that is only one. A leaf gives one explanation, a branch one
/// for each leaf below. `[0]` is the first item of a list; an item that has a name or a path goes by that, too. `sources` are
/// those that `spec` was made of.
pub fn explain(spec: &CompleteSpec, sources: &[Source], wanted: &str) -> Result<Vec<Explanation>, NotFound> {
    let steps = path::split(wanted).unwrap_or_default();
    Ok(explain_below(spec, sources, &find(spec, &steps, wanted)?))
}

/// Every leaf.
pub fn explain_all(spec: &CompleteSpec, sources: &[Source]) -> Vec<Explanation> {
    explain_below(spec, sources, &Found { segments: Vec::new(), part: Vec::new() })
}

fn explain_below(spec: &CompleteSpec, sources: &[Source], found: &Found) -> Vec<Explanation> {
    let text = Text::read(sources);
    let written = Written::new(&text);
    let explainer = Explainer { written: &written, reach: Reach::new(spec, &written) };
    let mut explanations = Vec::new();
    let of_same_document = |document: &[String]| document.iter().zip(&found.segments).all(|(one, other)| one == other);
    walk(spec, &of_same_document, &mut |segments, view| {
        if segments.starts_with(&found.segments) {
            explanations.extend(explainer.explain(segments, view, &found.part));
        }
    });
    explanations
}

/// Every leaf, in the order of `to_json`.
pub fn paths(spec: &CompleteSpec) -> Vec<String> {
    let mut paths = Vec::new();
    walk(spec, &|_| true, &mut |segments, view| {
        if !matches!(view, View::Branch(_)) {
            paths.push(path::join_steps(segments, &[]));
        }
    });
    paths
}

/// Every branch and every leaf of the documents that are wanted, one document after the other: a view of all groups at once
/// would take more memory than the spec.
fn walk(spec: &CompleteSpec, wanted: &dyn Fn(&[String]) -> bool, visit: &mut dyn FnMut(&[String], &View<'_>)) {
    const SHOWN: SecretDisplay = SecretDisplay::Redacted;
    let mut segments = vec!["cluster".to_owned()];
    if wanted(&segments) {
        walk_below(&view::cluster(spec, SHOWN), &mut segments, visit);
    }
    segments = vec!["nodeGroups".to_owned()];
    visit(&segments, &View::Branch(Vec::new()));
    for group in &spec.groups {
        segments.push(group.name.value.to_string());
        if wanted(&segments) {
            walk_below(&view::group(group, SHOWN), &mut segments, visit);
        }
        segments.pop();
    }
}

fn walk_below(view: &View<'_>, segments: &mut Vec<String>, visit: &mut dyn FnMut(&[String], &View<'_>)) {
    visit(segments, view);
    if let View::Branch(fields) = view {
        for (name, below) in fields {
            segments.push(name.clone());
            walk_below(below, segments, visit);
            segments.pop();
        }
    }
}

/// A branch or leaf, and what part of the leaf is meant.
struct Found {
    segments: Vec<String>,
    part: Vec<Step>,
}

impl Found {
    fn path(&self) -> String {
        path::join_steps(&self.segments, &self.part)
    }

    fn depth(&self) -> usize {
        self.segments.len() + self.part.len()
    }
}

fn find(spec: &CompleteSpec, steps: &[Step], wanted: &str) -> Result<Found, NotFound> {
    let of_document = |document: &[String]| steps.iter().zip(document).all(|(step, segment)| step.is(segment));
    let mut exact = None;
    walk(spec, &of_document, &mut |segments, view| {
        if exact.is_none() && segments.len() <= steps.len() {
            exact = match_end(segments, view, steps, segments.len());
        }
    });
    if let Some(exact) = exact {
        return Ok(exact);
    }
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    walk(spec, &|_| true, &mut |segments, view| {
        let most = steps.len().min(segments.len());
        if let Some(found) = (1..=most).rev().find_map(|taken| match_end(segments, view, steps, taken)) {
            if found.part.is_empty() { whole.push(found) } else { parts.push(found) }
        }
    });
    let mut matching = if whole.is_empty() { parts } else { whole };
    // A setting of the group comes before a field of a component's configuration that has its name.
    let shortest = matching.iter().map(Found::depth).min();
    let mut outermost = matching.iter().enumerate().filter(|(_, found)| Some(found.depth()) == shortest);
    match (outermost.next(), outermost.next()) {
        (Some((only, _)), None) => Ok(matching.swap_remove(only)),
        (None, _) => Err(NotFound::Unknown { path: wanted.to_owned(), nearest: suggest(spec, steps, wanted) }),
        _ => {
            Err(NotFound::Ambiguous { path: wanted.to_owned(), candidates: matching.iter().map(Found::path).collect() })
        }
    }
}

/// Whether so many steps are the end of the path of a setting, and the others lead to a part of it.
fn match_end(segments: &[String], view: &View<'_>, steps: &[Step], taken: usize) -> Option<Found> {
    let (names, rest) = steps.split_at(taken);
    let end = &segments[segments.len() - taken..];
    if !names.iter().zip(end).all(|(step, segment)| step.is(segment)) {
        return None;
    }
    let part = match view.value() {
        Some(value) => part(value, rest)?,
        None => rest.is_empty().then(Vec::new)?,
    };
    Some(Found { segments: segments.to_vec(), part })
}

/// The steps to a part of `value`, each item by its index.
fn part(mut value: &Value, steps: &[Step]) -> Option<Vec<Step>> {
    let mut part = Vec::new();
    for step in steps {
        let step = match (step, value) {
            (Step::Name(name), Value::Array(items)) => {
                let is_named = |item: &Value| identity(item).is_some_and(|(_, own)| own == name);
                let mut named = items.iter().enumerate().filter(|(_, item)| is_named(item));
                let (Some((index, _)), None) = (named.next(), named.next()) else { return None };
                Step::Index(index)
            }
            _ => step.clone(),
        };
        value = below(value, &step)?;
        part.push(step);
    }
    Some(part)
}

fn below<'v>(value: &'v Value, step: &Step) -> Option<&'v Value> {
    match step {
        Step::Name(name) => value.get(name),
        Step::Index(index) => value.get(index),
    }
}

/// By the whole path first, then by its last segment alone; of an item that is not there, the list.
fn suggest(spec: &CompleteSpec, steps: &[Step], wanted: &str) -> Vec<String> {
    const MOST: usize = 3;
    if let Some(index) = steps.iter().position(|step| matches!(step, Step::Index(_))) {
        return find(spec, &steps[..index], wanted).map(|list| vec![list.path()]).unwrap_or_default();
    }
    let mut places = Vec::new();
    let groups = likely_groups(spec, steps, MOST);
    let is_likely = |document: &[String]| document.get(1).is_none_or(|group| groups.contains(&group.as_str()));
    walk(spec, &is_likely, &mut |segments, _| {
        places.push((path::join_steps(segments, &[]), segments.last().cloned().unwrap_or_default()));
    });
    if let Some(path) = nearest(wanted, places.iter().map(|(path, _)| path.as_str())) {
        return vec![path.to_owned()];
    }
    let Some(Step::Name(last)) = steps.last() else { return Vec::new() };
    let Some(name) = nearest(last, places.iter().map(|(_, name)| name.as_str())) else { return Vec::new() };
    places.iter().filter(|(_, last)| last == name).map(|(path, _)| path.clone()).take(MOST).collect()
}

/// All groups have the same settings. Of a fleet, the one that is meant is enough, or a few if none is named.
fn likely_groups<'s>(spec: &'s CompleteSpec, steps: &[Step], most: usize) -> Vec<&'s str> {
    let names = || spec.groups.iter().map(|group| group.name.value.as_str());
    match steps {
        [Step::Name(root), Step::Name(group), ..] if root == "nodeGroups" => {
            nearest(group, names()).into_iter().collect()
        }
        _ => names().take(most).collect(),
    }
}

struct Explainer<'a> {
    written: &'a Written<'a>,
    reach: Reach<'a>,
}

impl Explainer<'_> {
    /// `None` for a branch, which is explained leaf by leaf.
    fn explain(&self, segments: &[String], view: &View<'_>, part: &[Step]) -> Option<Explanation> {
        let whole = view.value()?;
        let value = part.iter().try_fold(whole, below)?;
        // The key of an entry is the first step into the mapping, which is the setting.
        let (setting, entry) = match (view, segments.split_last()) {
            (View::Entry(..), Some((key, setting))) => (setting, vec![Step::Name(key.clone())]),
            _ => (segments, Vec::new()),
        };
        let inside = [entry, part.to_vec()].concat();
        Some(Explanation {
            path: path::join_steps(segments, part),
            value: value.clone(),
            origin: match view {
                View::Leaf(_, origin) | View::Entry(_, origin) => self.written.origin(setting, origin, whole, &inside),
                View::BuiltIn(_, component) => Origin::BuiltIn { component: component.name() },
                View::Branch(_) => return None,
            },
            reaches: self.reach.groups(setting, whole, &inside),
        })
    }
}
