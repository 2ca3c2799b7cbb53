//! Trees: one version of each component, how what is there differs from it, and what another version takes.

use std::collections::BTreeSet;

use super::{Aspect, Change, ChangeKind, Difference, Family, Subject, ValueChange, judge};
use crate::bundle::{Bundle, Readers};
use crate::names::UnitName;
use crate::tree::{Downloads, Tree};
use crate::vocabulary::Component;

pub struct Trees;

/// A tree as it was found.
pub struct Found {
    /// What the link to the version in use says; `None`: there is no such link.
    pub current: Option<String>,
    pub state: State,
    /// Places that should lead to a program of it and do not, with what is there.
    pub wrong_links: Vec<(String, String)>,
}

/// What is left of a tree since it was unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Whole,
    Absent,
    /// What differs, file by file: the path, and what is wrong with it.
    Damaged(Vec<(String, String)>),
}

/// All differences, the weightiest first.
pub fn compare(wanted: &Tree, found: &Found) -> Vec<Difference> {
    let mut differences = Vec::new();
    match &found.state {
        State::Whole => {}
        State::Absent => {
            differences.push(Difference::new(wanted.folder(), Aspect::Presence, wanted.title(), "nothing"));
        }
        State::Damaged(files) => differences.extend(files.iter().map(|(path, problem)| {
            Difference::new(format!("{}/{path}", wanted.folder()), Aspect::Content, "as unpacked", problem)
        })),
    }
    let name = wanted.name();
    if found.current.as_ref() != Some(&name) {
        let current = found.current.clone().unwrap_or_else(|| "nothing".to_owned());
        differences.push(Difference::new(wanted.current(), Aspect::Content, format!("leads to {name}"), current));
    }
    differences.extend(wanted.links.iter().filter_map(|(place, program)| {
        let (_, found) = found.wrong_links.iter().find(|(wrong, _)| **place == **wrong)?;
        let expected = format!("leads to {}", wanted.link_target(program));
        Some(Difference::new(place.as_str(), Aspect::Presence, expected, found))
    }));
    differences
}

impl Tree {
    /// As people call it: `kubelet 1.36.3`.
    pub fn title(&self) -> String {
        format!("{} {}", self.component, self.version)
    }
}

impl Family for Trees {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let of = |bundle: &Bundle, component| bundle.trees.iter().find(|tree| tree.component == component).cloned();
        let components: BTreeSet<Component> = old.trees.iter().chain(&new.trees).map(|tree| tree.component).collect();
        let trees = components.into_iter().filter_map(|component| {
            let (before, after) = (of(old, component), of(new, component));
            change(component, before.as_ref(), after.as_ref(), new)
        });
        trees.chain(downloads_change(old.downloads.as_ref(), new.downloads.as_ref())).collect()
    }
}

fn change(component: Component, old: Option<&Tree>, new: Option<&Tree>, bundle: &Bundle) -> Option<Change> {
    if old == new {
        return None;
    }
    let value = |path: &str, of: &dyn Fn(&Tree) -> String| {
        let (old, new) = (old.map(of), new.map(of));
        (old != new).then(|| ValueChange { path: path.to_owned(), old, new })
    };
    let values: Vec<ValueChange> = [
        value("version", &|tree| tree.version.clone()),
        value("digest", &|tree| tree.artefact.digest.to_string()),
        value("links", &|tree| tree.links.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        value("places", &|tree| tree.artefact.places.join(", ")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let is_other = |tree: &Tree| (tree.version.clone(), tree.artefact.digest.clone(), tree.links.clone());
    let none = Readers::default();
    let readers = new.or(old).map_or(&none, |tree| &tree.read_by);
    let subject = match old.map(is_other) == new.map(is_other) {
        true => Subject::TreeFromElsewhere,
        false => subject(&readers.units, bundle),
    };
    let subject_name = format!("tree {component}");
    Some(Change {
        family: "tree",
        reasons: vec![judge(subject, "", &subject_name)],
        note: new.map(|tree| format!(", {}", tree.version)).unwrap_or_default(),
        subject: subject_name,
        change: ChangeKind::of(old, new)?,
        values,
        secret: false,
    })
}

pub(super) fn subject(readers: &BTreeSet<UnitName>, bundle: &Bundle) -> Subject {
    match () {
        () if readers.contains(&bundle.runtime.unit) => Subject::TreeOfRuntime,
        () if readers.contains(&bundle.join.kubelet_unit) => Subject::TreeOfKubelet,
        () if !readers.is_empty() => Subject::FileOfUnits,
        () => Subject::TreeOfNobody,
    }
}

/// It may name credentials, so only that it changed is said.
fn downloads_change(old: Option<&Downloads>, new: Option<&Downloads>) -> Option<Change> {
    if old == new {
        return None;
    }
    let shown = |downloads: Option<&Downloads>| downloads.map(|_| "may be secret, not shown".to_owned());
    let path = "downloads".to_owned();
    Some(Change {
        family: "field",
        reasons: vec![judge(Subject::TreeFromElsewhere, "", &path)],
        note: String::new(),
        subject: path.clone(),
        change: ChangeKind::of(old, new)?,
        values: vec![ValueChange { path, old: shown(old), new: shown(new) }],
        secret: true,
    })
}
