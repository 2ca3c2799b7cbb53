//! Packages as they were: what was absent is purged, what had another version has it again if a repository still has it. Versions and
//! holds that are not our doing stay.

use std::collections::BTreeSet;
use std::path::Path;

use bundle::PackageManager;
use engine::{Condition, History, StepContext, StepError};
use host::packages::{Package, State, Status};
use serde::{Deserialize, Serialize};

use super::super::record::{PackageRecord, Record};
use super::super::{Deed, Undoing};
use super::apt::ARCHIVES;
use super::manager::Manager;
use super::{forget_archives, leftovers_of};
use crate::failure::disk_error;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    RestorePackages {
        #[serde(default = "apt")]
        manager: PackageManager,
        packages: Vec<String>,
    },
}

/// Of plans before there was another one.
fn apt() -> PackageManager {
    PackageManager::Apt
}

/// What has to change so that things are as they were.
#[derive(Default)]
struct Back {
    purged: Vec<String>,
    /// Their configuration was there before them.
    removed: Vec<String>,
    /// With the version that was there.
    replaced: Vec<(String, String)>,
    held: Vec<(String, String)>,
    unheld: Vec<String>,
    /// Absent before, and needed by now by somebody else's packages.
    needed: Vec<String>,
    /// What became of them since is not our doing.
    changed: Vec<String>,
}

impl Back {
    fn of(record: &Record, status: &Status, locks: &[(String, String, String)]) -> Self {
        let absent = record.packages.iter().filter(|(_, was)| was.before.is_none()).map(|(name, _)| name.clone());
        let removable: BTreeSet<String> = absent.filter(|name| status.packages.contains_key(name)).collect();
        let needed = status.needed_by_others(&removable);
        let mut back = Self { needed: needed.iter().cloned().collect(), ..Self::default() };
        for (name, was) in &record.packages {
            let now = status.packages.get(name);
            let is_held = match was.manager {
                PackageManager::Apt => now.is_some_and(|now| now.is_held),
                // Lines of a list outlive the package, and its version.
                PackageManager::Dnf => locks.iter().any(|(locked, _, at)| locked == name && was.is_ours(at)),
            };
            let (is_leaving, is_replaced) = back.note(name, was, now, !needed.contains(name));
            let is_loosened = was.held_by_us && is_held && (!was.held || is_replaced);
            if is_loosened || (is_leaving && is_held) {
                back.unheld.push(name.clone());
            }
            if let Some(version) = &was.before
                && (was.held && was.held_by_us && (is_loosened || !is_held))
                && (is_replaced || now.is_some_and(|now| now.version == *version))
            {
                back.held.push((name.clone(), version.clone()));
            }
        }
        back
    }

    /// What becomes of the package itself; whether it goes, and whether another version takes its place.
    fn note(&mut self, name: &str, was: &PackageRecord, now: Option<&Package>, is_free: bool) -> (bool, bool) {
        let there = now.filter(|now| now.state != State::ConfigFiles);
        match (&was.before, there) {
            (None, None) if now.is_some() && !was.configuration_was_left => self.purged.push(name.to_owned()),
            (None, Some(_)) if is_free && was.configuration_was_left => self.removed.push(name.to_owned()),
            (None, Some(_)) if is_free => self.purged.push(name.to_owned()),
            (None, _) => return (false, false),
            (Some(version), Some(now)) if *version == now.version && now.state == State::Installed => {
                return (false, false);
            }
            (Some(version), Some(now)) if was.is_ours(&now.version) || (was.is_touched() && is_cut_off(now)) => {
                self.replaced.push((name.to_owned(), version.clone()));
                return (false, true);
            }
            (Some(_), _) => {
                self.changed.push(name.to_owned());
                return (false, false);
            }
        }
        (true, false)
    }

    fn first(&self) -> Option<&String> {
        let replaced = self.replaced.iter().map(|(name, _)| name);
        let held = self.held.iter().map(|(name, _)| name);
        self.purged.iter().chain(&self.removed).chain(replaced).chain(held).chain(&self.unheld).next()
    }
}

fn is_cut_off(package: &Package) -> bool {
    matches!(package.state, State::Interrupted(_))
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::RestorePackages { packages, .. } = self;
        format!("{} as they were before", packages.join(" "))
    }

    fn check(&self, on: &Undoing<'_>, history: &History) -> Result<Condition, StepError> {
        let Self::RestorePackages { manager, .. } = self;
        if *manager == PackageManager::Dnf {
            // Whoever only looks starts no program.
            return Ok(match history.done_before {
                true => Condition::AlreadySo,
                false => Condition::Needed("rpm is asked what is there when this is done".to_owned()),
            });
        }
        let manager = Manager::of_record(*manager, on.tools, on.record);
        let are_archives_left = on.tools.disk.stat(Path::new(ARCHIVES)).map_err(|error| disk_error(&error))?.is_some();
        Ok(match Back::of(on.record, &manager.status()?, &manager.locks()?).first() {
            None if are_archives_left => Condition::Needed(format!("{ARCHIVES} is there")),
            None => Condition::AlreadySo,
            Some(name) => Condition::Needed(format!("package {name} is not as it was before")),
        })
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::RestorePackages { manager, .. } = self;
        let manager = Manager::of_record(*manager, on.tools, on.record);
        if !on.tools.units.run_processes() {
            return Err(StepError::permanent("packages cannot be removed in a folder that stands for a machine"));
        }
        manager.settle(context)?;
        manager.mend(context)?;
        let back = Back::of(on.record, &manager.status()?, &manager.locks()?);
        if !back.unheld.is_empty() {
            manager.unhold(&back.unheld, context)?;
        }
        if !back.removed.is_empty() {
            // All at once: dpkg takes none away that another one needs.
            manager.remove(&[&back.removed[..], &back.purged[..]].concat(), context)?;
        }
        if !back.purged.is_empty() {
            manager.purge(&back.purged, context)?;
        }
        for name in &back.changed {
            context.detail(format!("package {name} stays as somebody else has made it since"));
        }
        for name in &back.needed {
            context.detail(format!("package {name} stays: others that are installed by now need it"));
        }
        if !back.replaced.is_empty() {
            replace(&manager, &back.replaced, context);
        }
        if !back.held.is_empty() {
            manager.hold(&back.held, context)?;
        }
        for path in on.record.files.keys().flat_map(|path| leftovers_of(path)) {
            on.tools.disk.remove(&path).map_err(|error| disk_error(&error))?;
        }
        on.tools.disk.sync_everything().map_err(|error| disk_error(&error))?;
        forget_archives(&on.tools)
    }
}

/// A repository may have dropped it, or not be reached: then it stays, and is told of.
fn replace(manager: &Manager<'_>, packages: &[(String, String)], context: &StepContext<'_>) {
    let targets: Vec<String> = packages.iter().map(|(name, version)| manager.exact(name, version)).collect();
    if let Err(error) = manager.install_former(&targets, context) {
        let names: Vec<String> = packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
        context.detail(format!("{} cannot be had again, what is there stays: {}", names.join(", "), error.message));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn was(before: Option<&str>, held: bool, brought: &str) -> PackageRecord {
        PackageRecord {
            manager: PackageManager::Dnf,
            before: before.map(str::to_owned),
            held,
            configuration_was_left: false,
            brought: BTreeSet::from([brought.to_owned()]),
            held_by_us: true,
        }
    }

    fn back(was: PackageRecord, version: Option<&str>, lock: &str) -> Back {
        let package = |version: &str| Package {
            version: version.to_owned(),
            architecture: "x86_64".to_owned(),
            is_held: version == lock,
            state: State::Installed,
            depends: Vec::new(),
            provides: Vec::new(),
        };
        let packages = version.map(|version| ("kubelet".to_owned(), package(version)));
        let status = Status { packages: packages.into_iter().collect(), is_interrupted: false };
        let record = Record { packages: BTreeMap::from([("kubelet".to_owned(), was)]), ..Record::default() };
        let lock = ("kubelet".to_owned(), format!("kubelet-0:{lock}.*"), lock.to_owned());
        Back::of(&record, &status, &[lock])
    }

    #[test]
    fn a_lock_of_ours_goes_also_if_its_package_is_gone_or_has_another_version() {
        assert_eq!(back(was(None, false, "1.2-1"), None, "1.2-1").unheld, ["kubelet"]);
        let raised = back(was(Some("1.1-1"), false, "1.2-1"), Some("1.3-1"), "1.2-1");
        assert_eq!((raised.unheld.len(), raised.replaced.len(), raised.changed.len()), (1, 0, 1));
        assert!(back(was(Some("1.1-1"), false, "1.2-1"), Some("1.3-1"), "1.3-1").unheld.is_empty(), "somebody else's");
    }

    #[test]
    fn a_lock_from_before_is_there_again_at_its_own_version() {
        let back = back(was(Some("1.1-1"), true, "1.2-1"), Some("1.2-1"), "1.2-1");
        let kubelet = ("kubelet".to_owned(), "1.1-1".to_owned());
        assert_eq!((back.unheld, back.replaced), (vec!["kubelet".to_owned()], vec![kubelet.clone()]));
        assert_eq!(back.held, [kubelet]);
    }
}
