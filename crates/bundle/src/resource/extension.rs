//! System extensions: one version of each, how what is there differs from it, and what another version takes.

use std::collections::BTreeSet;

use super::tree::subject;
use super::{Aspect, Change, ChangeKind, Difference, Family, Subject, ValueChange, judge};
use crate::bundle::{Bundle, Readers};
use crate::extension::Extension;
use crate::vocabulary::ExtensionName;

pub struct Extensions;

/// An extension as it was found.
pub struct Found {
    pub image: State,
    /// Links that do not lead where they should, with what is there.
    pub wrong_links: Vec<(String, String)>,
    /// Programs that are not in `/usr`.
    pub missing: Vec<String>,
}

/// What is left of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Whole,
    Absent,
    /// Other bytes.
    Damaged,
}

/// All differences, the weightiest first.
pub fn compare(wanted: &Extension, found: &Found) -> Vec<Difference> {
    let mut differences = Vec::new();
    let image = wanted.image();
    match found.image {
        State::Whole => {}
        State::Absent => differences.push(Difference::new(image, Aspect::Presence, wanted.title(), "nothing")),
        State::Damaged => {
            let digest = wanted.artefact.digest.to_string();
            differences.push(Difference::new(image, Aspect::Content, digest, "something else"));
        }
    }
    differences.extend(wanted.links().filter_map(|(place, target)| {
        let (_, found) = found.wrong_links.iter().find(|(wrong, _)| *wrong == place)?;
        Some(Difference::new(place, Aspect::Content, format!("leads to {target}"), found))
    }));
    let merged = |program: &String| Difference::new(program, Aspect::Presence, "merged into /usr", "nothing");
    differences.extend(found.missing.iter().map(merged));
    differences
}

impl Family for Extensions {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let of = |bundle: &Bundle, name| bundle.extensions.iter().find(|one| one.name == name).cloned();
        let all = old.extensions.iter().chain(&new.extensions);
        let names: BTreeSet<ExtensionName> = all.map(|extension| extension.name).collect();
        let change = |name| change(name, of(old, name).as_ref(), of(new, name).as_ref(), new);
        names.into_iter().filter_map(change).collect()
    }
}

fn change(name: ExtensionName, old: Option<&Extension>, new: Option<&Extension>, bundle: &Bundle) -> Option<Change> {
    if old == new {
        return None;
    }
    let value = |path: &str, of: &dyn Fn(&Extension) -> String| {
        let (old, new) = (old.map(of), new.map(of));
        (old != new).then(|| ValueChange { path: path.to_owned(), old, new })
    };
    let values: Vec<ValueChange> = [
        value("version", &|extension| extension.version.clone()),
        value("digest", &|extension| extension.artefact.digest.to_string()),
        value("programs", &|extension| extension.programs.iter().map(|path| &**path).collect::<Vec<_>>().join(", ")),
        value("places", &|extension| extension.artefact.places.join(", ")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let is_other = |extension: &Extension| (extension.version.clone(), extension.artefact.digest.clone());
    let none = Readers::default();
    let readers = new.or(old).map_or(&none, |extension| &extension.read_by);
    let subject = match old.map(is_other) == new.map(is_other) {
        true => Subject::TreeFromElsewhere,
        false => subject(&readers.units, bundle),
    };
    let subject_name = format!("extension {name}");
    Some(Change {
        family: "extension",
        reasons: vec![judge(subject, "", &subject_name)],
        note: new.map(|extension| format!(", {}", extension.version)).unwrap_or_default(),
        subject: subject_name,
        change: ChangeKind::of(old, new)?,
        values,
        secret: false,
    })
}
