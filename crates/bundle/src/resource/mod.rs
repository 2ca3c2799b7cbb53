//! What a node has, by family: what is wanted, and the comparison that gives changes and what they take. Pure.
//!
//! The other half of a family is the module of the same name in `node::resource`, which looks, keeps what was there before,
//! applies and undoes. A new family is those two modules and a line in each of the two lists of families.

mod consequence;
pub mod damage;
pub mod extension;
pub mod field;
pub mod file;
pub mod folder;
pub mod gate;
pub mod hook;
pub mod package;
mod reason;
pub mod snap;
pub mod tree;
pub mod unit;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::bundle::Bundle;
use crate::names::UnitName;

pub use consequence::{Consequence, Reason};
pub(crate) use consequence::{Subject, judge};
pub(crate) use reason::static_pods_folder;

/// One kind of thing that a node has.
pub trait Family: Sync {
    /// What changes on a node that has `old` and gets `new`.
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change>;
}

/// In the order in which people read of them. Folders follow from files, so nothing of theirs changes by itself.
pub const FAMILIES: [&dyn Family; 9] = [
    &field::Fields,
    &package::PackageFamily,
    &tree::Trees,
    &extension::Extensions,
    &file::Files,
    &gate::Gates,
    &unit::Units,
    &snap::Snaps,
    &hook::Hooks,
];

/// A change of one resource, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub family: &'static str,
    /// A path, a component, an extension, a unit, a snap, a hook or a field.
    pub subject: String,
    pub change: ChangeKind,
    /// Empty for a secret, and where only the spelling changed.
    pub values: Vec<ValueChange>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// What people read behind the subject.
    #[serde(skip)]
    pub note: String,
    pub reasons: Vec<Reason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
}

/// A value at a path such as `authentication.webhook.enabled`; `None` where it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    pub path: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

/// One way in which what is there is not what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// A path, or the name of a unit or a snap.
    pub subject: String,
    pub what: Aspect,
    pub expected: String,
    pub found: String,
    /// Value by value or line by line, expected as `old`; empty for a secret.
    #[serde(rename = "changes", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    Gate,
    /// Absent, or not what it should be at all.
    Presence,
    Content,
    Mode,
    Owner,
    /// A temporary file of a write that was cut off.
    Leftover,
    Enabled,
    Active,
    /// systemd has not read the file that is there now.
    Reload,
    Setting,
    Alias,
}

impl Aspect {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Presence => "presence",
            Self::Content => "content",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Leftover => "leftover",
            Self::Enabled => "enabled",
            Self::Active => "active",
            Self::Reload => "reload",
            Self::Setting => "setting",
            Self::Alias => "alias",
        }
    }
}

impl Difference {
    pub fn new(
        subject: impl Into<String>,
        what: Aspect,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let (subject, expected, found) = (subject.into(), expected.into(), found.into());
        Self { subject, what, expected, found, values: Vec::new() }
    }
}

impl ChangeKind {
    /// `None` if neither side has it.
    pub(crate) fn of<T>(old: Option<T>, new: Option<T>) -> Option<Self> {
        match (old, new) {
            (None, None) => None,
            (None, Some(_)) => Some(Self::Added),
            (Some(_), None) => Some(Self::Removed),
            (Some(_), Some(_)) => Some(Self::Changed),
        }
    }
}

/// Units that `apply` starts anew on a node that has `old` and gets `new`.
pub fn restarts(old: &Bundle, new: &Bundle) -> BTreeSet<UnitName> {
    unit::restarts(old, new)
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "+",
            Self::Removed => "-",
            Self::Changed => "~",
        })
    }
}

impl fmt::Display for ValueChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => {
                let (old, new) = (one_line(old), one_line(new));
                let from = first_shown(&old, &new);
                write!(f, "{}: {} → {}", self.path, cut(&old, from), cut(&new, from))
            }
            (None, Some(new)) => write!(f, "{}: added {}", self.path, cut(&one_line(new), 0)),
            (Some(old), None) => write!(f, "{}: removed {}", self.path, cut(&one_line(old), 0)),
            (None, None) => f.write_str(&self.path),
        }
    }
}

/// Most characters of a value that are shown to people.
const LONGEST: usize = 100;
/// Of these, as many as stand before the first that differs.
const CONTEXT: usize = 40;

/// Two values that differ in a line break only must not look the same.
fn one_line(value: &str) -> Vec<char> {
    let visible = |character: char| match character.is_control() {
        true => character.escape_default().collect(),
        false => vec![character],
    };
    value.chars().flat_map(visible).collect()
}

/// The character from which both are shown, so that the difference can be seen.
fn first_shown(old: &[char], new: &[char]) -> usize {
    if old.len().max(new.len()) <= LONGEST {
        return 0;
    }
    old.iter().zip(new).take_while(|(one, other)| one == other).count().saturating_sub(CONTEXT)
}

fn cut(line: &[char], from: usize) -> String {
    let end = line.len().min(from + LONGEST);
    let shown: String = line.get(from..end).unwrap_or_default().iter().collect();
    let dots = |hidden: bool| if hidden { "…" } else { "" };
    [dots(from > 0), &shown, dots(end < line.len())].concat()
}
