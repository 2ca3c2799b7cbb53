//! Packages on a node: downloaded whole before anything changes, installed without the network, held, and taken back.
//!
//! ```text
//! /var/cache/nodestrap-packages/          the archives of one transaction, dependencies included
//! /var/lib/nodestrap/packages.json        which they are: written when all of them are there
//! /run/nodestrap/packages/WHAT.log        what the package manager said, for root
//! ```
//!
//! Before the first package is installed the record knows of each archive what was there instead. So whoever is killed in
//! between, or asked to undo it all, knows which dependencies we brought.

pub(crate) mod apt;
mod dnf;
pub(crate) mod manager;
mod said;
pub(crate) mod transaction;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bundle::resource::package::{compare, missing_program};
use bundle::resource::{Aspect, Difference};
use bundle::{Package, PackageManager, Packages};
use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, DiskError};
use host::files;
use host::packages::{State, Status, rpm};
use serde::{Deserialize, Serialize};

use super::record::{self, Before, PackageRecord, Proxy, RECORD_PATH, Record};
use super::{Deed, Family, Node, UndoPhase, UndoStep, Verified};
use crate::checks::program_problem;
use crate::failure::{disk_error, file_error};
use crate::prerequisites::is_in_path;
use crate::reset::{self, ResetAction};
use apt::ARCHIVES;
use manager::{Manager, found};
use transaction::{TRANSACTION_PATH, Transaction};
pub(crate) use undo::Undo;

pub(crate) struct PackageFamily;

/// A slow mirror, somebody else's update that is waited for, and questions again and again.
pub(crate) const PACKAGES_DEADLINE: Duration = Duration::from_secs(1800);

/// The plug-in's package on Red Hat's systems.
const VERSIONLOCK: &str = "python3-dnf-plugin-versionlock";
/// For apt's user without rights, too.
const ARCHIVES_MODE: u32 = 0o755;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// There is a machine here on which a package manager can run.
    CheckPackageManager { manager: PackageManager },
    /// The whole transaction is on this machine, its signatures checked; nothing is installed.
    FetchPackages { packages: Vec<String> },
    /// Without the network, exactly these versions, held; no unit is started, stopped or restarted by it.
    InstallPackages { packages: Vec<String> },
    /// What an earlier bundle wanted and this one does not, and nobody needs.
    RemovePackages,
    /// Versions and holds are as wanted, and the programs are there.
    VerifyPackages { packages: Vec<String> },
    /// What was downloaded goes once it is installed.
    RetireArchives,
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::CheckPackageManager { manager } => format!("{manager} can run here"),
            Self::FetchPackages { packages } => format!("{}, with what they need", packages.join(", ")),
            Self::InstallPackages { packages } => format!("{}, without the network", packages.join(", ")),
            Self::RemovePackages => "what an earlier bundle wanted and nobody needs any more".to_owned(),
            Self::VerifyPackages { packages } => format!("{} packages and their programs", packages.len()),
            Self::RetireArchives => "downloaded archives".to_owned(),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        match self {
            Self::CheckPackageManager { manager } => check_manager(node, *manager),
            Self::FetchPackages { .. } | Self::InstallPackages { .. } | Self::VerifyPackages { .. }
                if node.is_preview && manager(node).is_dnf() =>
            {
                Ok(Condition::Needed("rpm is asked when this is applied: a plan starts no program".to_owned()))
            }
            Self::RemovePackages if node.is_preview && manager(node).is_dnf() => {
                let record = record::load_for_step(node.tools.disk)?;
                Ok(match record.packages.is_empty() {
                    true => Condition::AlreadySo,
                    false => Condition::Needed("rpm is asked when this is applied what nobody needs".to_owned()),
                })
            }
            Self::FetchPackages { .. } => check_fetched(node),
            Self::InstallPackages { .. } | Self::VerifyPackages { .. } => Ok(match drift(node)?.first() {
                None if matches!(self, Self::InstallPackages { .. }) && node.is_in_doubt()? => Condition::Needed(
                    "a sync failed in this boot, so what looks installed need not be on the disk: installed again"
                        .to_owned(),
                ),
                Some(first) => Condition::Needed(format!("{}: {}, not {}", first.subject, first.found, first.expected)),
                None => match awaited(node)? {
                    Some(path) if matches!(self, Self::InstallPackages { .. }) => {
                        Condition::Needed(format!("a run was cut off before it noted what packages brought to {path}"))
                    }
                    _ => Condition::AlreadySo,
                },
            }),
            Self::RemovePackages => Ok(match obsolete(node)?.packages.keys().next() {
                None => Condition::AlreadySo,
                Some(name) => Condition::Needed(format!("an earlier bundle brought {name}")),
            }),
            Self::RetireArchives => {
                let there = |path: &str| node.tools.disk.stat(Path::new(path)).map_err(|error| disk_error(&error));
                Ok(match there(ARCHIVES)?.is_some() || there(TRANSACTION_PATH)?.is_some() {
                    true => Condition::Needed(format!("{ARCHIVES} is there")),
                    false => Condition::AlreadySo,
                })
            }
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        match self {
            Self::CheckPackageManager { manager } => check_manager(node, *manager).map(drop),
            Self::FetchPackages { .. } => fetch(node, context),
            Self::InstallPackages { .. } => install(node, context),
            Self::RemovePackages => remove_obsolete(node, context),
            Self::VerifyPackages { .. } => verify(node),
            Self::RetireArchives => forget_archives(&node.tools),
        }
    }
}

/// A folder that stands for a machine runs nothing: better that it is said before anything is changed.
fn check_manager(node: &Node<'_>, manager: PackageManager) -> Result<Condition, StepError> {
    if !node.tools.units.run_processes() {
        let message = format!("the bundle wants packages, and a folder that stands for a machine cannot run {manager}");
        return Err(StepError::permanent(message)
            .with_advice("apply it on a machine, or use source: tree or preinstalled for a folder"));
    }
    let packages = node.bundle.packages.as_ref();
    if let Some(problem) = missing_plugin(node.tools.disk, packages).map_err(|error| disk_error(&error))? {
        let advice = format!("put {VERSIONLOCK} into the image, or among packages.prerequisites");
        return Err(StepError::needs_operator(problem).with_advice(advice));
    }
    Ok(Condition::AlreadySo)
}

/// Where packages are held by a plug-in that is not there, and that the bundle does not install either.
pub(crate) fn missing_plugin(disk: &dyn Disk, packages: Option<&Packages>) -> Result<Option<&'static str>, DiskError> {
    let by_dnf = packages.filter(|packages| packages.manager == PackageManager::Dnf);
    let is_coming = by_dnf.is_none_or(|packages| packages.find(VERSIONLOCK).is_some());
    let is_there = is_coming || disk.stat(Path::new(rpm::LOCKS_SETTINGS_PATH))?.is_some();
    Ok((!is_there)
        .then_some("dnf has no plug-in versionlock here, so nothing would keep an update from replacing the kubelet"))
}

fn wanted<'n>(node: &'n Node<'_>) -> Result<&'n Packages, StepError> {
    let packages = node.bundle.packages.as_ref();
    packages.ok_or_else(|| StepError::permanent("the plan names packages, which its bundle does not have"))
}

/// What a transaction is for.
fn wish(manager: &Manager<'_>, packages: &Packages) -> Vec<String> {
    packages.packages.iter().map(|package| manager.target(package)).collect()
}

/// What is in the bundle without a version is asked for where it is absent: named, it would be upgraded.
fn targets<'p>(packages: &'p Packages, status: &Status) -> impl Iterator<Item = &'p Package> {
    packages.packages.iter().filter(|package| package.version.is_some() || is_missing(package, status))
}

/// Of the bundle, or of the packages that an earlier one brought.
fn manager<'n>(node: &'n Node<'_>) -> Manager<'n> {
    let packages = node.bundle.packages.as_ref();
    let of_system = PackageManager::of(node.bundle.node.os).unwrap_or(PackageManager::Apt);
    Manager::new(packages.map_or(of_system, |packages| packages.manager), node.tools, packages)
}

/// What package managers put beside a file that they found changed.
fn leftovers_of(path: &str) -> impl Iterator<Item = PathBuf> {
    ["rpmnew", "rpmsave"].into_iter().map(move |ending| PathBuf::from(format!("{path}.{ending}")))
}

/// All that is not as wanted, packages first.
fn drift(node: &Node<'_>) -> Result<Vec<Difference>, StepError> {
    let Some(packages) = &node.bundle.packages else { return Ok(Vec::new()) };
    let manager = manager(node);
    let status = manager.status()?;
    let mut drift: Vec<Difference> = Vec::new();
    if manager.is_dnf() && status.is_interrupted {
        drift.push(Difference::new("package manager", Aspect::Presence, "at rest", "interrupted"));
    }
    for package in &packages.packages {
        drift.extend(compare(package, found(&status, &package.name).as_ref()));
    }
    let disk = node.tools.disk;
    for path in &packages.programs {
        let problem = program_problem(disk, Path::new(path.as_str())).map_err(|error| disk_error(&error))?;
        drift.extend(problem.map(|problem| missing_program(path, &problem)));
    }
    for command in &packages.commands {
        if !is_in_path(disk, command).map_err(|error| disk_error(&error))? {
            drift.push(missing_program(command, "is in no folder of the PATH"));
        }
    }
    Ok(drift)
}

/// Whether a package has to be installed, whatever becomes of its hold.
fn is_missing(package: &Package, status: &Status) -> bool {
    let found = found(status, &package.name);
    let held = found.map(|found| bundle::resource::package::Found { held: true, ..found });
    !compare(package, held.as_ref()).is_empty()
}

/// The transaction for this wish, if all of it is here.
fn fetched(node: &Node<'_>, packages: &Packages) -> Result<Option<Transaction>, StepError> {
    let wish = wish(&manager(node), packages);
    let Some(transaction) = transaction::load(node.tools.disk)?.filter(|known| known.wish == wish) else {
        return Ok(None);
    };
    for archive in &transaction.archives {
        let path = Path::new(ARCHIVES).join(archive);
        if node.tools.disk.stat(&path).map_err(|error| disk_error(&error))?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(transaction))
}

fn check_fetched(node: &Node<'_>) -> Result<Condition, StepError> {
    let packages = wanted(node)?;
    let manager = manager(node);
    let status = manager.status()?;
    let missing = packages.packages.iter().find(|package| is_missing(package, &status));
    Ok(match missing {
        None if manager.is_dnf() && status.is_interrupted => {
            Condition::Needed("rpm was interrupted: what it had begun is brought to its end".to_owned())
        }
        None => Condition::AlreadySo,
        Some(_) if fetched(node, packages)?.is_some() => Condition::AlreadySo,
        Some(package) => Condition::Needed(format!("{} is not on this machine yet", package.title())),
    })
}

/// The names of the archives are the transaction.
fn fetch(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let (packages, manager, disk) = (wanted(node)?, manager(node), node.tools.disk);
    manager.settle(context)?;
    // With the download dnf takes keys in.
    keep(node, &manager.status()?, None)?;
    manager.mend(context)?;
    let make_room = || -> Result<(), files::FileError> {
        transaction::forget(disk)?;
        disk.remove_tree(Path::new(ARCHIVES))?;
        disk.make_folder(Path::new(ARCHIVES), ARCHIVES_MODE)?;
        Ok(())
    };
    make_room().map_err(|error| file_error(&error))?;
    let status = manager.status()?;
    let wanted: Vec<String> = targets(packages, &status).map(|package| manager.target(package)).collect();
    manager.download(&packages.repositories, &wanted, &node.lists_are_new, context)?;
    let names = disk.list(Path::new(ARCHIVES)).map_err(|error| disk_error(&error))?;
    let archives: Vec<String> = names.into_iter().filter(|name| manager.parse_archive_name(name).is_some()).collect();
    disk.sync_file_system(Path::new(ARCHIVES)).map_err(|error| disk_error(&error))?;
    transaction::write(disk, &Transaction { wish: wish(&manager, packages), wanted, archives, begun: false })
}

fn install(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let (packages, manager, disk) = (wanted(node)?, manager(node), node.tools.disk);
    manager.settle(context)?;
    let status = manager.status()?;
    // Of a transaction that rpm was interrupted in nothing is known.
    let is_open = manager.is_dnf() && status.is_interrupted;
    let missing = |status: &Status| packages.packages.iter().any(|package| is_missing(package, status));
    let changing = packages.packages.iter().filter(|package| is_open || is_missing(package, &status));
    let transaction = fetched(node, packages)?;
    // What looks installed need not be on the disk, if a sync failed in this boot.
    let lost = !is_open && !missing(&status) && (node.is_in_doubt()? || programs_are_lost(node)?);
    let readers: BTreeSet<_> = changing.flat_map(|package| &package.read_by.units).collect();
    node.files_are_as_planned.store(false, Ordering::Relaxed);
    node.forget_starts(readers)?;
    let mut changed = keep(node, &status, transaction.as_ref())?;
    manager.mend(context)?;
    let status = manager.status()?;
    if missing(&status) {
        changed.extend(install_missing(node, transaction, &status, context)?);
    }
    if lost {
        let again = packages.packages.iter().filter(|package| package.component.is_some());
        manager.reinstall(&again.map(|package| manager.target(package)).collect::<Vec<_>>(), context)?;
    }
    for path in node.files.iter().flat_map(|file| leftovers_of(&file.path)) {
        disk.remove(&path).map_err(|error| disk_error(&error))?;
    }
    let status = manager.status()?;
    let is_loose = |package: &&Package| {
        package.is_held() && !status.packages.get(&package.name).is_some_and(|found| found.is_held)
    };
    let loose = packages.packages.iter().filter(is_loose);
    let loose: Vec<(String, String)> =
        loose.filter_map(|package| Some((package.name.clone(), package.version.clone()?))).collect();
    if !loose.is_empty() {
        note_held(node, &loose)?;
        manager.hold(&loose, context)?;
    }
    // What maintainers' scripts wrote, wherever, is there for ever before this counts as done.
    disk.sync_everything().map_err(|error| disk_error(&error))?;
    note_brought(node, &changed, &status)
}

/// Somebody may have emptied the folder, or an earlier attempt has found what is in it of no use: then it is downloaded here. Gives
/// the names of what the transaction changes.
fn install_missing(
    node: &Node<'_>,
    transaction: Option<Transaction>,
    status: &Status,
    context: &StepContext<'_>,
) -> Result<BTreeSet<String>, StepError> {
    let (packages, manager) = (wanted(node)?, manager(node));
    let lost = || StepError::transient("what was downloaded is not here any more");
    let transaction = match transaction {
        Some(transaction) => transaction,
        None => {
            fetch(node, context)?;
            fetched(node, packages)?.ok_or_else(lost)?
        }
    };
    let changed = keep(node, status, Some(&transaction))?;
    let targets: Vec<String> = targets(packages, status).map(|package| manager.target(package)).collect();
    manager.install_downloaded(&transaction, &targets, context)?;
    Ok(changed)
}

fn programs_are_lost(node: &Node<'_>) -> Result<bool, StepError> {
    Ok(drift(node)?.iter().any(|one| !one.subject.starts_with("package ")))
}

/// Durable before the first package: what was there before each of the transaction, to which version it goes, and which files one
/// may bring that are to be ours. Gives the names of these packages.
fn keep(node: &Node<'_>, status: &Status, transaction: Option<&Transaction>) -> Result<BTreeSet<String>, StepError> {
    let disk = node.tools.disk;
    let mut record = record::load_for_step(disk)?;
    let (packages, manager) = (wanted(node)?, manager(node));
    for name in packages.keys.iter().map(|key| rpm::key_name(key)) {
        let before = before(packages, status, &name);
        record.packages.entry(name).or_insert(before);
    }
    let archives = transaction.iter().flat_map(|known| &known.archives);
    let archives: BTreeMap<String, String> = archives.filter_map(|file| manager.parse_archive_name(file)).collect();
    let wanted = targets(packages, status).map(|package| package.name.clone());
    let names: BTreeSet<String> = wanted.chain(archives.keys().cloned()).collect();
    for name in &names {
        let before = before(packages, status, name);
        let known = record.packages.entry(name.clone()).or_insert_with(|| before.clone());
        if !known.is_touched() {
            *known = before;
        }
        known.brought.extend(archives.get(name).cloned());
    }
    let environment_file = packages.environment_file.as_ref().map(ToString::to_string);
    let proxy = Proxy { environment: packages.environment.clone(), environment_file };
    record.proxy = Some(proxy).filter(|proxy| *proxy != Proxy::default());
    for file in &node.files {
        let is_there = disk.stat(file.path.as_path()).map_err(|error| disk_error(&error))?.is_some();
        if let Some(known) = record.files.get_mut(file.path.as_str())
            && known.before == Before::Absent
            && !is_there
        {
            known.any_content = true;
        }
    }
    record::replace(disk, &record)
        .and_then(|()| files::sync_all(disk, &[Path::new(RECORD_PATH)]))
        .map_err(|error| file_error(&error))?;
    Ok(names)
}

fn before(packages: &Packages, status: &Status, name: &str) -> PackageRecord {
    let found = found(status, name);
    PackageRecord {
        manager: packages.manager,
        held: found.as_ref().is_some_and(|found| found.held),
        before: found.map(|found| found.version),
        configuration_was_left: status.packages.get(name).is_some_and(|known| known.state == State::ConfigFiles),
        brought: BTreeSet::new(),
        held_by_us: false,
    }
}

/// Durable before it is done: a hold of somebody else's looks the same.
fn note_held(node: &Node<'_>, names: &[(String, String)]) -> Result<(), StepError> {
    let mut record = record::load_for_step(node.tools.disk)?;
    for (name, _) in names {
        if let Some(known) = record.packages.get_mut(name) {
            known.held_by_us = true;
        }
    }
    record::replace(node.tools.disk, &record).map_err(|error| file_error(&error))
}

/// A file of the bundle's that a package may have brought meanwhile: until that is noted, whatever is in it would count as ours.
fn awaited(node: &Node<'_>) -> Result<Option<String>, StepError> {
    let record = record::load_for_step(node.tools.disk)?;
    let of_bundle = |path: &String| node.files.iter().any(|file| file.path == path.as_str());
    let mut awaited = record.files.iter().filter(|(_, known)| known.any_content && known.before == Before::Absent);
    Ok(awaited.find(|(path, _)| of_bundle(path)).map(|(path, _)| path.clone()))
}

/// What packages became by us, and the configuration that they brought: that is nobody's change, and known by its content from now on.
fn note_brought(node: &Node<'_>, changed: &BTreeSet<String>, status: &Status) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let mut record = record::load_for_step(disk)?;
    for name in changed {
        if let (Some(known), Some(found)) = (record.packages.get_mut(name), found(status, name)) {
            known.brought = BTreeSet::from([found.version]);
        }
    }
    for file in &node.files {
        let Some(known) = record.files.get_mut(file.path.as_str()).filter(|known| known.any_content) else { continue };
        let brought = record::sha256_at(disk, &file.path).map_err(|error| disk_error(&error))?;
        known.any_content = false;
        if let Some(sha256) = brought.filter(|sha256| !known.wrote.contains(sha256)) {
            known.wrote.insert(0, sha256);
        }
    }
    record::replace(disk, &record).map_err(|error| file_error(&error))
}

fn obsolete(node: &Node<'_>) -> Result<Record, StepError> {
    let record = record::load_for_step(node.tools.disk)?;
    let mut obsolete = Record::default();
    PackageFamily.find_obsolete(node, &record, &mut obsolete)?;
    Ok(obsolete)
}

/// Before files are switched in: a package that is purged takes its configuration along, also where ours has its place.
fn remove_obsolete(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let obsolete = obsolete(node)?;
    node.files_are_as_planned.store(false, Ordering::Relaxed);
    reset::undo_now(node.tools, &obsolete, context)?;
    let known = record::load_for_step(node.tools.disk)?;
    record::replace(node.tools.disk, &known.without(&obsolete)).map_err(|error| file_error(&error))
}

fn verify(node: &Node<'_>) -> Result<(), StepError> {
    match drift(node)?.first() {
        None => Ok(()),
        Some(first) => {
            let Difference { subject, expected, found, .. } = first;
            let message =
                format!("after the packages were installed, {subject} is not as wanted: {found}, not {expected}");
            Err(StepError::needs_operator(message).with_advice(
                "look whether the repository has the right packages, and at the words of the package manager",
            ))
        }
    }
}

fn forget_archives(tools: &super::Tools<'_>) -> Result<(), StepError> {
    let forget = || -> Result<(), files::FileError> {
        transaction::forget(tools.disk)?;
        tools.disk.remove_tree(Path::new(ARCHIVES))?;
        match Path::new(ARCHIVES).parent() {
            Some(above) if tools.disk.stat(above)?.is_some() => tools.disk.sync_folder(above)?,
            _ => {}
        }
        Ok(())
    };
    forget().map_err(|error| file_error(&error))
}

impl Family for PackageFamily {
    /// What was there before is written down once the transaction is known: see [`keep`].
    fn keep(&self, _: &Node<'_>, _: &Record, _: &mut Record) -> Result<(), StepError> {
        Ok(())
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        Ok(Verified { drift: drift(node)?, remarks: Vec::new() })
    }

    /// Dependencies go with the last package that needs them.
    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        let manager = manager(node);
        // A plan starts no program, so what rpm knows is not known to it.
        if record.packages.is_empty() || (node.is_preview && manager.is_dnf()) {
            return Ok(());
        }
        let is_key = |packages: &Packages, name: &str| packages.keys.iter().any(|key| name == rpm::key_name(key));
        let wants = |packages: &Packages, name: &str| packages.find(name).is_some() || is_key(packages, name);
        let is_wanted = |name: &str| node.bundle.packages.as_ref().is_some_and(|packages| wants(packages, name));
        let removable: BTreeSet<String> = record.packages.keys().filter(|name| !is_wanted(name)).cloned().collect();
        let needed = manager.status()?.needed_by_others(&removable);
        let gone = record.packages.iter().filter(|(name, _)| removable.contains(*name) && !needed.contains(*name));
        obsolete.packages.extend(gone.map(|(name, was)| (name.clone(), was.clone())));
        if !obsolete.packages.is_empty() {
            obsolete.proxy.clone_from(&record.proxy);
        }
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        if record.packages.is_empty() {
            return Vec::new();
        }
        let manager = record.packages.values().next().map_or(PackageManager::Apt, |package| package.manager);
        let packages = record.packages.keys().cloned().collect();
        vec![UndoStep {
            phase: UndoPhase::RemovePackages,
            id: "remove-packages".to_owned(),
            deadline: PACKAGES_DEADLINE,
            barrier: false,
            action: ResetAction::Package(Undo::RestorePackages { manager, packages }),
        }]
    }
}
