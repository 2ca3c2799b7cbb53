//! Packages as they were: what was absent is purged, what had another version has it again if a repository still has it.

use std::collections::BTreeSet;

use engine::{Condition, History, StepContext, StepError};
use host::packages::dpkg::{State, Status};
use serde::{Deserialize, Serialize};

use super::super::{Deed, Undoing};
use super::manager::Manager;
use super::{apt, forget_archives};
use crate::failure::disk_error;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    RestorePackages { packages: Vec<String> },
}

/// What has to change so that things are as they were.
#[derive(Default)]
struct Back {
    purged: Vec<String>,
    /// With the version that was there.
    replaced: Vec<(String, String)>,
    held: Vec<String>,
    unheld: Vec<String>,
    /// Absent before, and needed by now by somebody else's packages.
    needed: Vec<String>,
}

impl Back {
    fn of(on: &Undoing<'_>, status: &Status) -> Self {
        let absent = on.record.packages.iter().filter(|(_, was)| was.before.is_none()).map(|(name, _)| name.clone());
        let removable: BTreeSet<String> = absent.filter(|name| status.packages.contains_key(name)).collect();
        let needed = status.needed_by_others(&removable);
        let mut back = Self { needed: needed.iter().cloned().collect(), ..Self::default() };
        for (name, was) in &on.record.packages {
            let Some(now) = status.packages.get(name) else {
                if let Some(version) = &was.before {
                    back.replaced.push((name.clone(), version.clone()));
                }
                continue;
            };
            match &was.before {
                None if !needed.contains(name) => back.purged.push(name.clone()),
                Some(version) if *version != now.version || now.state != State::Installed => {
                    back.replaced.push((name.clone(), version.clone()));
                }
                _ => {}
            }
            match (was.held, now.is_held) {
                (false, true) => back.unheld.push(name.clone()),
                (true, false) => back.held.push(name.clone()),
                _ => {}
            }
        }
        back
    }

    fn first(&self) -> Option<&String> {
        let replaced = self.replaced.iter().map(|(name, _)| name);
        self.purged.iter().chain(replaced).chain(&self.held).chain(&self.unheld).next()
    }
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::RestorePackages { packages } = self;
        format!("{} as they were before", packages.join(" "))
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        let status = Manager::new(on.tools, None).status()?;
        Ok(match Back::of(on, &status).first() {
            None => Condition::AlreadySo,
            Some(name) => Condition::Needed(format!("package {name} is not as it was before")),
        })
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let manager = Manager::new(on.tools, None);
        if !on.tools.units.run_processes() {
            return Err(StepError::permanent("packages cannot be removed in a folder that stands for a machine"));
        }
        manager.settle(context)?;
        manager.mend(context)?;
        let back = Back::of(on, &manager.status()?);
        if !back.unheld.is_empty() {
            manager.run("unhold", apt::unhold(&back.unheld), context)?;
        }
        if !back.purged.is_empty() {
            manager.run("purge", apt::purge(&back.purged), context)?;
        }
        for name in &back.needed {
            context.detail(format!("package {name} stays: others that are installed by now need it"));
        }
        if !back.replaced.is_empty() {
            replace(&manager, &back.replaced, context);
        }
        if !back.held.is_empty() {
            manager.run("hold", apt::hold(&back.held), context)?;
        }
        on.tools.disk.sync_everything().map_err(|error| disk_error(&error))?;
        forget_archives(&on.tools)
    }
}

/// A repository may have dropped it, or not be reached: then it stays, and is told of.
fn replace(manager: &Manager<'_>, packages: &[(String, String)], context: &StepContext<'_>) {
    let targets: Vec<String> = packages.iter().map(|(name, version)| apt::exact(name, version)).collect();
    let again = || {
        manager.run("update-all", apt::update_all(), context)?;
        manager.run("install-former", apt::install_from_repositories(&targets), context)
    };
    if let Err(error) = again() {
        let names: Vec<String> = packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
        context.detail(format!("{} cannot be had again, what is there stays: {}", names.join(", "), error.message));
    }
}
