//! What would change on a node: resource by resource, value by value, and what that takes.
//!
//! Inputs: two bundles. Output: a [`BundleDiff`], which prints as text and serialises as data. Contents of secrets are never
//! in it, only that they changed. What each change takes is one table, in [`crate::resource`].

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::bundle::Bundle;
use crate::names::UnitName;
use crate::resource::{self, Change, ChangeKind, Consequence, FAMILIES, Reason, Subject, ValueChange, judge};
use crate::values::{self, Leaf, Values};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleDiff {
    /// By family.
    pub changes: Vec<Change>,
    /// Of what machines get besides the bundle, by path of the spec.
    pub machine: Vec<ValueChange>,
    /// The weightiest of all reasons.
    pub consequence: Consequence,
    /// Weightiest first.
    pub reasons: Vec<Reason>,
    /// Units that `apply` starts anew.
    pub restarts: BTreeSet<UnitName>,
}

/// What machines get besides the bundle, as far as it is known: a bundle says nothing of it, user data something, a spec all.
#[derive(Default)]
pub struct Besides {
    user_data: Option<Values>,
    machines: Option<Values>,
}

impl Besides {
    /// Names of parts with what stands for their contents, and settings of machines; each a text or a list.
    pub fn new(user_data: Option<Vec<(String, String)>>, machines: Option<Vec<(String, Setting)>>) -> Self {
        let texts =
            |parts: Vec<(String, String)>| parts.into_iter().map(|(name, text)| (name, Leaf::text(text))).collect();
        let leaf = |setting| match setting {
            Setting::Text(text) => Leaf::text(text),
            Setting::List(items) => Leaf::list(&items),
        };
        let settings = |all: Vec<(String, Setting)>| all.into_iter().map(|(path, set)| (path, leaf(set))).collect();
        Self { user_data: user_data.map(texts), machines: machines.map(settings) }
    }
}

pub enum Setting {
    Text(String),
    List(Vec<String>),
}

/// What would change on a node that has `old` and gets `new`.
pub fn diff_bundles(old: &Bundle, new: &Bundle) -> BundleDiff {
    diff_rendered((old, &Besides::default()), (new, &Besides::default()))
}

/// The same, and what changes besides the bundle as far as that is known of both.
pub fn diff_rendered((old, old_besides): (&Bundle, &Besides), (new, new_besides): (&Bundle, &Besides)) -> BundleDiff {
    let changes: Vec<Change> = FAMILIES.iter().flat_map(|family| family.changes(old, new)).collect();
    let pairs = [(&old_besides.user_data, &new_besides.user_data), (&old_besides.machines, &new_besides.machines)];
    let known = pairs.into_iter().filter_map(|(old, new)| Some((old.as_ref()?, new.as_ref()?)));
    let machine: Vec<ValueChange> = known.flat_map(|(old, new)| values::leaf_changes(old, new)).collect();
    let of_machine = machine.iter().map(|change| judge(Subject::Machine, &change.path, &change.path));
    let mut reasons: Vec<Reason> = of_machine.chain(changes.iter().flat_map(|change| change.reasons.clone())).collect();
    reasons.sort_by(|one, other| other.consequence.cmp(&one.consequence).then_with(|| one.subject.cmp(&other.subject)));
    reasons.dedup();
    let consequence = reasons.first().map_or(Consequence::None, |reason| reason.consequence);
    BundleDiff { changes, machine, consequence, reasons, restarts: resource::restarts(old, new) }
}

impl BundleDiff {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.machine.is_empty()
    }

    fn restarted(&self) -> String {
        let names: Vec<&str> = self.restarts.iter().map(UnitName::as_str).collect();
        match names.as_slice() {
            [] => "restarts nothing".to_owned(),
            [one] => format!("restarts {one}"),
            [first @ .., last] => format!("restarts {} and {last}", first.join(", ")),
        }
    }
}

impl fmt::Display for BundleDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "nothing changes on the node");
        }
        for change in &self.machine {
            writeln!(f, "~ {change}")?;
        }
        for change in &self.changes {
            write_change(f, change)?;
        }
        writeln!(f, "\nneeds {}", self.consequence)?;
        for reason in self.reasons.iter().filter(|reason| reason.consequence > Consequence::None) {
            writeln!(f, "    {reason}")?;
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let rest = match self.consequence {
            after if after <= Consequence::RestartRuntime => ", which is all that it takes",
            _ => "; the rest is left to you",
        };
        writeln!(f, "\nnodestrap apply {}{rest}", self.restarted())
    }
}

fn write_change(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    let Change { family, subject, change: kind, note, values, .. } = change;
    match *family {
        // The value says it all.
        "field" | "hook" => values.iter().try_for_each(|value| writeln!(f, "{} {value}", ChangeKind::Changed)),
        "unit" => writeln!(f, "{kind} {subject}{note}"),
        _ => {
            writeln!(f, "{kind} {subject}{note}")?;
            values.iter().try_for_each(|value| writeln!(f, "    {value}"))
        }
    }
}
