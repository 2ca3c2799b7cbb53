//! Packages: one version of each, how what is there differs from it, and what another version takes.

use std::collections::BTreeSet;

use super::{Aspect, Change, ChangeKind, Difference, Family, Subject, ValueChange, judge};
use crate::bundle::{Bundle, Readers};
use crate::package::{Package, Packages};

pub struct PackageFamily;

/// A package as the package manager knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub version: String,
    pub held: bool,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Installed,
    /// The package manager was interrupted, in its own words: `half-configured`.
    Interrupted(String),
}

/// All differences, the weightiest first. `None`: the package is not there.
pub fn compare(wanted: &Package, found: Option<&Found>) -> Vec<Difference> {
    let subject = format!("package {}", wanted.name);
    let Some(found) = found else {
        return vec![Difference::new(subject, Aspect::Presence, wanted.title(), "nothing")];
    };
    let mut differences = Vec::new();
    if let State::Interrupted(state) = &found.state {
        differences.push(Difference::new(&subject, Aspect::Presence, "installed", state));
    }
    match &wanted.version {
        Some(version) if *version != found.version => {
            differences.push(Difference::new(&subject, Aspect::Content, version, &found.version));
        }
        _ => {}
    }
    if wanted.is_held() && !found.held {
        differences.push(Difference::new(&subject, Aspect::Setting, "held at its version", "not held"));
    }
    differences
}

/// A program that its package should have brought.
pub fn missing_program(path: &str, problem: &str) -> Difference {
    Difference::new(path, Aspect::Presence, "a program of a package", problem)
}

impl Family for PackageFamily {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let names = |bundle: &Bundle| -> Vec<String> {
            let packages = bundle.packages.iter().flat_map(|packages| &packages.packages);
            packages.map(|package| package.name.clone()).collect()
        };
        let of =
            |bundle: &Bundle, name: &str| bundle.packages.as_ref().and_then(|packages| packages.find(name)).cloned();
        let all: BTreeSet<String> = names(old).into_iter().chain(names(new)).collect();
        let packages = all.iter().filter_map(|name| {
            let (before, after) = (of(old, name), of(new, name));
            change(name, before.as_ref(), after.as_ref(), new)
        });
        packages.chain(way_change(old.packages.as_ref(), new.packages.as_ref())).collect()
    }
}

fn change(name: &str, old: Option<&Package>, new: Option<&Package>, bundle: &Bundle) -> Option<Change> {
    if old == new {
        return None;
    }
    let version = |package: Option<&Package>| {
        package.map(|package| package.version.clone().unwrap_or_else(|| "any version".to_owned()))
    };
    let none = Readers::default();
    let units = &new.or(old).map_or(&none, |package| &package.read_by).units;
    let subject = match () {
        () if units.contains(&bundle.runtime.unit) => Subject::TreeOfRuntime,
        () if units.contains(&bundle.join.kubelet_unit) => Subject::TreeOfKubelet,
        () if !units.is_empty() => Subject::FileOfUnits,
        () => Subject::TreeOfNobody,
    };
    let subject_name = format!("package {name}");
    Some(Change {
        family: "package",
        reasons: vec![judge(subject, "", &subject_name)],
        note: version(new).map(|version| format!(", {version}")).unwrap_or_default(),
        subject: subject_name,
        change: ChangeKind::of(old, new)?,
        values: vec![ValueChange { path: "version".to_owned(), old: version(old), new: version(new) }],
        secret: false,
    })
}

/// Where packages come from, and what is looked for afterwards; the files themselves are compared as files.
fn way_change(old: Option<&Packages>, new: Option<&Packages>) -> Option<Change> {
    let way = |packages: &Packages| Packages { packages: Vec::new(), ..packages.clone() };
    let (old, new) = (old.map(way), new.map(way));
    if old.is_none() || new.is_none() || old == new {
        return None;
    }
    let path = "packages".to_owned();
    Some(Change {
        family: "field",
        reasons: vec![judge(Subject::PackagesFromElsewhere, "", &path)],
        note: String::new(),
        subject: path,
        change: ChangeKind::Changed,
        values: Vec::new(),
        secret: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(version: Option<&str>) -> Package {
        let version = version.map(str::to_owned);
        Package { name: "kubelet".to_owned(), version, component: None, read_by: Readers::default() }
    }

    fn found(version: &str, held: bool, state: State) -> Found {
        Found { version: version.to_owned(), held, state }
    }

    #[test]
    fn another_version_a_lost_hold_and_an_interruption_are_named() {
        let exact = wanted(Some("1.36.3-1.1"));
        assert!(compare(&exact, Some(&found("1.36.3-1.1", true, State::Installed))).is_empty());
        let drift = compare(&exact, Some(&found("1.36.4-1.1", false, State::Interrupted("half-configured".into()))));
        let texts: Vec<_> = drift.iter().map(|one| (one.expected.as_str(), one.found.as_str())).collect();
        let expected =
            [("installed", "half-configured"), ("1.36.3-1.1", "1.36.4-1.1"), ("held at its version", "not held")];
        assert_eq!(texts, expected);
        assert_eq!(compare(&exact, None)[0].found, "nothing");
    }

    #[test]
    fn what_the_host_needs_is_there_in_any_version() {
        assert!(compare(&wanted(None), Some(&found("9", false, State::Installed))).is_empty());
        assert_eq!(compare(&wanted(None), None).len(), 1);
    }
}
