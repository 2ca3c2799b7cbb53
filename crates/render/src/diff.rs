//! What would change on a node: file by file, value by value, and what that takes.
//!
//! Inputs: two bundles. Output: a [`BundleDiff`], which prints as text and serialises as data. Contents of secret files are
//! never in it, only that they changed. What each change takes is one table, in [`consequence`].

mod besides;
mod consequence;
mod fields;
mod places;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::bundle::{Bundle, File, Secrecy, Start};
use crate::check::octal;
use crate::kubelet::ARGUMENTS_VARIABLE;
use consequence::{Subject, judge};
use fields::{AUTHORITY, REQUIRED_PROGRAMS};
use places::{Places, judge_file};

pub use besides::Besides;
pub use consequence::{Consequence, Reason};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleDiff {
    /// Fields of the bundle itself, such as the cluster's name.
    pub fields: Vec<ValueChange>,
    pub files: Vec<FileChange>,
    pub units: Vec<UnitChange>,
    /// Variables of the gate, and the kubelet's flags as `--name`.
    pub gate: Vec<ValueChange>,
    /// Of what machines get besides the bundle, by path of the spec.
    pub machine: Vec<ValueChange>,
    /// The weightiest of all reasons.
    pub consequence: Consequence,
    /// Weightiest first.
    pub reasons: Vec<Reason>,
}

/// A value at a path such as `authentication.webhook.enabled`; `None` where it is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ValueChange {
    pub path: String,
    pub old: Option<String>,
    pub new: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    pub path: String,
    pub change: Change,
    pub secret: bool,
    /// Empty for a secret, and where only the spelling changed.
    pub values: Vec<ValueChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    Added,
    Removed,
    Changed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitChange {
    pub name: String,
    pub change: Change,
    pub old: Option<String>,
    pub new: Option<String>,
}

impl BundleDiff {
    pub fn is_empty(&self) -> bool {
        self.is_same_bundle() && self.machine.is_empty()
    }

    fn is_same_bundle(&self) -> bool {
        self.fields.is_empty() && self.files.is_empty() && self.units.is_empty() && self.gate.is_empty()
    }
}

/// What would change on a node that has `old` and gets `new`.
pub fn diff_bundles(old: &Bundle, new: &Bundle) -> BundleDiff {
    diff_rendered((old, &Besides::default()), (new, &Besides::default()))
}

/// The same, and what changes besides the bundle as far as that is known of both.
pub fn diff_rendered((old, old_besides): (&Bundle, &Besides), (new, new_besides): (&Bundle, &Besides)) -> BundleDiff {
    let machine = besides::changes(old_besides, new_besides);
    let fields = values::leaf_changes(&fields::fields(old), &fields::fields(new));
    let gate = values::changes(&gate_values(old), &gate_values(new));
    let (files, units) = (diff_files(old, new), diff_units(old, new));
    let mut reasons: Vec<Reason> =
        machine.iter().map(|change| judge(Subject::Machine, &change.path, &change.path)).collect();
    for change in &fields {
        reasons.push(judge(field_subject(change, old, new), &change.path, &change.path));
    }
    for change in &gate {
        let subject = if change.path.starts_with("--") { Subject::Flag } else { Subject::Gate };
        reasons.push(judge(subject, &change.path, &change.path));
    }
    let (old_places, new_places) = (Places::of(old), Places::of(new));
    reasons.extend(files.iter().flat_map(|file| judge_file(file, &old_places, &new_places)));
    for unit in &units {
        reasons.push(judge(Subject::Unit, &unit.name, &unit.name));
    }
    reasons.sort_by(|one, other| other.consequence.cmp(&one.consequence).then_with(|| one.subject.cmp(&other.subject)));
    reasons.dedup();
    let consequence = reasons.first().map_or(Consequence::None, |reason| reason.consequence);
    BundleDiff { fields, files, units, gate, machine, consequence, reasons }
}

fn field_subject(change: &ValueChange, old: &Bundle, new: &Bundle) -> Subject {
    // Without a certificate of its own the kubelet keeps nothing: what it reads is what the bundle brings.
    let keeps_nothing = [old, new].iter().all(|bundle| bundle.join.bootstrap_kubeconfig == bundle.join.kubeconfig);
    match change.path.as_str() {
        REQUIRED_PROGRAMS if change.new.is_none() => Subject::NotRequired,
        "join.apiServer" | AUTHORITY if keeps_nothing => Subject::OwnKubeconfig,
        _ => Subject::Bundle,
    }
}

/// The kubelet's flags one by one, everything else as it stands.
fn gate_values(bundle: &Bundle) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (name, value) in &bundle.gate.environment {
        if name != ARGUMENTS_VARIABLE {
            values.insert(name.clone(), value.clone());
            continue;
        }
        for argument in value.split_whitespace() {
            let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
            values.insert(flag.to_owned(), value.to_owned());
        }
    }
    values
}

fn diff_files(old: &Bundle, new: &Bundle) -> Vec<FileChange> {
    let by_path = |bundle: &'_ Bundle| -> BTreeMap<String, File> {
        bundle.files.iter().map(|file| (file.path.clone(), file.clone())).collect()
    };
    let (old, new) = (by_path(old), by_path(new));
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    paths.into_iter().filter_map(|path| diff_file(path, old.get(path), new.get(path))).collect()
}

fn diff_file(path: &str, old: Option<&File>, new: Option<&File>) -> Option<FileChange> {
    if old == new {
        return None;
    }
    let change = match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        _ => Change::Changed,
    };
    let secret = [old, new].into_iter().flatten().any(|file| file.secrecy == Secrecy::Secret);
    let mut values = Vec::new();
    if let (Some(old), Some(new)) = (old, new) {
        if !secret {
            values = values::file_changes(path, &old.content, &new.content);
        }
        if old.mode != new.mode {
            values.push(ValueChange {
                path: "(mode)".to_owned(),
                old: Some(octal(old.mode).into_owned()),
                new: Some(octal(new.mode).into_owned()),
            });
        }
    }
    Some(FileChange { path: path.to_owned(), change, secret, values })
}

/// What differs between two contents of one file, by value where its format is known and by line elsewhere; empty if only
/// the spelling does. Never for secrets.
pub fn diff_contents(path: &str, old: &[u8], new: &[u8]) -> Vec<ValueChange> {
    values::file_changes(path, old, new)
}

fn diff_units(old: &Bundle, new: &Bundle) -> Vec<UnitChange> {
    let starts = |bundle: &Bundle| -> BTreeMap<String, String> {
        bundle.units.iter().map(|unit| (unit.name.clone(), start(unit.start).to_owned())).collect()
    };
    let changes = values::changes(&starts(old), &starts(new));
    changes
        .into_iter()
        .map(|ValueChange { path: name, old, new }| {
            let change = match (&old, &new) {
                (None, _) => Change::Added,
                (_, None) => Change::Removed,
                _ => Change::Changed,
            };
            UnitChange { name, change, old, new }
        })
        .collect()
}

fn start(start: Start) -> &'static str {
    match start {
        Start::BeforeGate => "started before the gate opens",
        Start::AfterGate => "started after the gate opened",
        Start::ByOthers => "started by other units",
    }
}

impl fmt::Display for Change {
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

impl fmt::Display for BundleDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "nothing changes on the node");
        }
        for change in self.machine.iter().chain(&self.fields) {
            writeln!(f, "~ {change}")?;
        }
        for file in &self.files {
            let note = match (file.secret, file.change, file.values.is_empty()) {
                (true, ..) => " (secret, not shown)",
                (false, Change::Changed, true) => " (the same values, spelt differently)",
                _ => "",
            };
            writeln!(f, "{} {}{note}", file.change, file.path)?;
            for change in &file.values {
                writeln!(f, "    {change}")?;
            }
        }
        if !self.gate.is_empty() {
            writeln!(f, "~ gate of the kubelet")?;
            for change in &self.gate {
                writeln!(f, "    {change}")?;
            }
        }
        for unit in &self.units {
            let start = unit.new.as_deref().or(unit.old.as_deref()).unwrap_or_default();
            writeln!(f, "{} {}, {start}", unit.change, unit.name)?;
        }
        writeln!(f, "\nneeds {}", self.consequence)?;
        for reason in self.reasons.iter().filter(|reason| reason.consequence > Consequence::None) {
            writeln!(f, "    {reason}")?;
        }
        if self.is_same_bundle() {
            return Ok(());
        }
        let rest = match self.consequence {
            Consequence::None => " all the same",
            after if after <= Consequence::RestartRuntime => ", which is all that it takes",
            _ => "; the rest is left to you",
        };
        writeln!(f, "\nnodestrap apply restarts the units of a new bundle and the kubelet{rest}")
    }
}
