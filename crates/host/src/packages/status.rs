//! Packages of a machine, whoever manages them.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub packages: BTreeMap<String, Package>,
    /// The package manager was interrupted, or is at work now.
    pub is_interrupted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    pub version: String,
    pub architecture: String,
    pub is_held: bool,
    pub state: State,
    /// Each is satisfied by any of its names.
    pub depends: Vec<Vec<String>>,
    pub provides: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Installed,
    /// In the words of dpkg: `half-installed`, `unpacked`, `half-configured`, `triggers-awaited`, `triggers-pending`; or in ours.
    Interrupted(String),
    /// Removed, not purged.
    ConfigFiles,
}

impl Status {
    /// Those of `removed` without which some package that stays would miss what it depends on.
    pub fn needed_by_others(&self, removed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut kept: BTreeSet<String> = BTreeSet::new();
        loop {
            let stays = |name: &String| !removed.contains(name) || kept.contains(name);
            let is_there = |package: &Package| package.state != State::ConfigFiles;
            let staying = self.packages.iter().filter(|(name, package)| stays(name) && is_there(package));
            let mut more = BTreeSet::new();
            for group in staying.flat_map(|(_, package)| &package.depends) {
                let providers: Vec<&String> = group.iter().flat_map(|name| self.providers(name)).collect();
                if !providers.iter().any(|name| stays(name)) {
                    more.extend(providers.into_iter().take(1).cloned());
                }
            }
            if more.is_empty() {
                return kept;
            }
            kept.extend(more);
        }
    }

    fn providers<'s>(&'s self, wanted: &str) -> Vec<&'s String> {
        let gives = |(name, package): &(&String, &Package)| {
            package.state != State::ConfigFiles
                && (name.as_str() == wanted || package.provides.iter().any(|provided| provided == wanted))
        };
        self.packages.iter().filter(gives).map(|(name, _)| name).collect()
    }
}
