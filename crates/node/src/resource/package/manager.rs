//! The package manager at work: one unit for all that it is asked, waited for, with its words in a file for root.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::resource::package::{Found, State};
use bundle::{Package, PackageManager, Packages};
use engine::{StepContext, StepError};
use host::disk::LockHolder;
use host::packages::{self, Status, dpkg, rpm};
use host::units::{Transient, UnitError, UnitName, quote_last_lines};

use super::super::{Tools, record};
use super::transaction::{self, Transaction};
use super::{apt, dnf};
use crate::failure::{chain, disk_error, unit_error};

/// Two of it never run at once, also not one of a run that was killed.
pub(crate) const UNIT: &str = "nodestrap-packages.service";
pub(crate) const OUTPUT_FOLDER: &str = "/run/nodestrap/packages";
const OUTPUT_FOLDER_MODE: u32 = 0o700;
/// Of what it said last.
const TOLD_LIMIT: u64 = 64 * 1024;
/// One look at a lock, then the step is tried again, until its deadline.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);
const LOCK_INTERVAL: Duration = Duration::from_millis(500);

/// rpm lists a thousand packages in a second.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
const LIST_LIMIT: u64 = 64 * 1024 * 1024;

pub(crate) struct Manager<'a> {
    kind: PackageManager,
    tools: Tools<'a>,
    /// What the bundle wants.
    names: BTreeSet<String>,
    environment: BTreeMap<String, String>,
    environment_file: Option<PathBuf>,
}

impl<'a> Manager<'a> {
    pub(crate) fn new(kind: PackageManager, tools: Tools<'a>, packages: Option<&Packages>) -> Self {
        let mut environment = match kind {
            PackageManager::Apt => apt::environment(),
            PackageManager::Dnf => dnf::environment(),
        };
        environment.extend(packages.iter().flat_map(|packages| packages.environment.clone()));
        let file = packages.and_then(|packages| packages.environment_file.as_ref());
        let names = packages.iter().flat_map(|packages| &packages.packages).map(|package| package.name.clone());
        let environment_file = file.map(|path| PathBuf::from(path.as_str()));
        Self { kind, tools, names: names.collect(), environment, environment_file }
    }

    pub(crate) fn is_dnf(&self) -> bool {
        self.kind == PackageManager::Dnf
    }

    /// As the package manager is asked for it.
    pub(crate) fn target(&self, package: &Package) -> String {
        match &package.version {
            Some(version) => self.exact(&package.name, version),
            None => package.name.clone(),
        }
    }

    pub(crate) fn exact(&self, name: &str, version: &str) -> String {
        match self.kind {
            PackageManager::Apt => apt::exact(name, version),
            PackageManager::Dnf => dnf::exact(name, version),
        }
    }

    pub(crate) fn parse_archive_name(&self, file: &str) -> Option<(String, String)> {
        match self.kind {
            PackageManager::Apt => dpkg::parse_archive_name(file),
            PackageManager::Dnf => rpm::parse_archive_name(file),
        }
    }

    /// The whole transaction, with everything that these depend on, signatures checked.
    pub(crate) fn download(
        &self,
        repositories: &[bundle::AbsolutePath],
        targets: &[String],
        context: &StepContext<'_>,
    ) -> Result<(), StepError> {
        if self.is_dnf() {
            return self.run("download", dnf::download(targets), context);
        }
        for repository in repositories {
            self.run("update", apt::update_one(repository), context)?;
        }
        // Lists of the image that are missing, or too old to be of use, are asked for only then.
        let Err(first) = self.run("download", apt::download(targets), context) else { return Ok(()) };
        context.detail(format!("{}; the lists of all repositories are fetched", first.message));
        if let Err(error) = self.run("update-all", apt::update_all(), context) {
            context.detail(error.message);
        }
        self.run("download", apt::download(targets), context)
    }

    /// Without asking anybody.
    pub(crate) fn install_downloaded(
        &self,
        transaction: &Transaction,
        context: &StepContext<'_>,
    ) -> Result<(), StepError> {
        if !self.is_dnf() {
            return self.run("install", apt::install_downloaded(&transaction.wanted), context);
        }
        transaction::write(self.tools.disk, &Transaction { begun: true, ..transaction.clone() })?;
        self.run("install", dnf::install_downloaded(&transaction.archives), context)?;
        self.end(transaction)
    }

    /// What was installed is there for ever before it is forgotten that it was begun.
    fn end(&self, transaction: &Transaction) -> Result<(), StepError> {
        self.tools.disk.sync_everything().map_err(|error| disk_error(&error))?;
        transaction::write(self.tools.disk, &Transaction { begun: false, ..transaction.clone() })
    }

    /// A program that is gone although its package is there comes back with it.
    pub(crate) fn reinstall(&self, targets: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
        let command = match self.kind {
            PackageManager::Apt => apt::reinstall(targets),
            PackageManager::Dnf => dnf::reinstall(targets),
        };
        self.run("install-again", command, context)
    }

    /// Each at its version: an update of the system leaves them alone.
    pub(crate) fn hold(&self, packages: &[(String, String)], context: &StepContext<'_>) -> Result<(), StepError> {
        let names: Vec<String> = packages.iter().map(|(name, _)| name.clone()).collect();
        if !self.is_dnf() {
            return self.run("hold", apt::hold(&names), context);
        }
        // A lock at another version would be one too many.
        self.unhold(&names, context)?;
        let lines: Vec<String> = packages.iter().map(|(name, version)| rpm::lock_line(name, version)).collect();
        self.run("hold", dnf::lock(&lines), context)
    }

    pub(crate) fn unhold(&self, names: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
        if !self.is_dnf() {
            return self.run("unhold", apt::unhold(names), context);
        }
        let locks = rpm::load_locks(self.tools.disk).map_err(|error| disk_error(&error))?;
        let lines: Vec<String> =
            locks.into_iter().filter(|(name, ..)| names.contains(name)).map(|lock| lock.1).collect();
        if lines.is_empty() { Ok(()) } else { self.run("unhold", dnf::unlock(&lines), context) }
    }

    pub(crate) fn remove(&self, names: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
        let command = match self.kind {
            PackageManager::Apt => apt::purge(names),
            PackageManager::Dnf => dnf::erase(names),
        };
        self.run("purge", command, context)
    }

    /// Versions that were there before, from whichever repository still has them.
    pub(crate) fn install_former(&self, targets: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
        if self.is_dnf() {
            return self.run("install-former", dnf::install_from_repositories(targets), context);
        }
        self.run("update-all", apt::update_all(), context)?;
        self.run("install-former", apt::install_from_repositories(targets), context)
    }

    /// Nobody else is at work: an earlier run of ours has ended, and no lock is held.
    pub(crate) fn settle(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        let left = self.tools.remaining(context);
        let unit = UnitName(UNIT.to_owned());
        self.tools.units.wait_until_ended(&unit, left).map_err(|error| unit_error(&error))?;
        let started = self.tools.clock.monotonic();
        let mut is_told = false;
        while let Some((path, holder)) = self.holder()? {
            let waited = self.tools.clock.monotonic().saturating_sub(started);
            if waited >= LOCK_PATIENCE.min(left) {
                return Err(held(path, &holder));
            }
            if !std::mem::replace(&mut is_told, true) {
                context.detail(format!("waiting for {holder}, which holds {path}"));
            }
            self.tools.clock.sleep(LOCK_INTERVAL);
        }
        Ok(())
    }

    fn holder(&self) -> Result<Option<(&'static str, LockHolder)>, StepError> {
        if self.is_dnf() {
            return rpm::lock_holder(self.tools.disk).map_err(|error| disk_error(&error));
        }
        for path in dpkg::LOCKS {
            if let Some(holder) = self.tools.disk.lock_holder(Path::new(path)).map_err(|error| disk_error(&error))? {
                return Ok(Some((path, holder)));
            }
        }
        Ok(None)
    }

    /// `what` is what people call it, also in the name of the file with its words.
    pub(crate) fn run(&self, what: &str, command: Vec<String>, context: &StepContext<'_>) -> Result<(), StepError> {
        self.run_within(what, command, self.tools.remaining(context))
    }

    fn run_within(&self, what: &str, command: Vec<String>, left: Duration) -> Result<(), StepError> {
        let disk = self.tools.disk;
        let output = output_path(what);
        let prepare = || {
            disk.make_folder(Path::new(OUTPUT_FOLDER), OUTPUT_FOLDER_MODE)?;
            disk.remove(&output)
        };
        prepare().and_then(|_| disk.hold_system_folders()).map_err(|error| disk_error(&error))?;
        let transient = Transient {
            unit: UnitName(UNIT.to_owned()),
            description: format!("nodestrap: {what} of packages"),
            command,
            environment: self.environment.clone(),
            environment_file: self.environment_file.clone(),
            output: output.clone(),
        };
        let ended = self.tools.units.run_transient(&transient, left, &mut || {});
        let Err(error) = ended else { return Ok(()) };
        if let Some((path, holder)) = self.holder()?
            && matches!(error, UnitError::Job { .. })
        {
            return Err(held(path, &holder));
        }
        let mut failed = unit_error(&error);
        if matches!(error, UnitError::Job { .. }) {
            let program = transient.command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            failed.message = format!("{what} of packages failed: {program}: {}", chain(&error));
            let said = disk.read_end(&output, TOLD_LIMIT).ok().flatten().unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            let quoted = quote_last_lines("its last lines", said.lines().filter(|line| !line.trim().is_empty()));
            failed = failed
                .with_advice(format!("what it said is in {}, for root; it is tried again", output.display()))
                .with_output(quoted);
        }
        Err(failed)
    }

    /// dpkg's files are read; rpm has to be asked, by a program.
    pub(crate) fn status(&self) -> Result<Status, StepError> {
        match self.kind {
            PackageManager::Apt => dpkg::load(self.tools.disk).map_err(|error| disk_error(&error)),
            PackageManager::Dnf => Ok(self.list()?.0),
        }
    }

    /// And the versions of our packages that an interrupted rpm has left in its list.
    fn list(&self) -> Result<(Status, Vec<String>), StepError> {
        let disk = self.tools.disk;
        self.run_within(LIST, dnf::list(), LIST_DEADLINE)?;
        let bytes = disk.read(&output_path(LIST), LIST_LIMIT).map_err(|error| disk_error(&error))?;
        let rpm::Listing { mut status, superseded } =
            rpm::parse_listing(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
        for (name, _, version) in rpm::load_locks(disk).map_err(|error| disk_error(&error))? {
            if let Some(package) = status.packages.get_mut(&name) {
                package.is_held |= package.version == version;
            }
        }
        let record = record::load_for_step(disk)?;
        let is_ours = |name: &String| self.names.contains(name) || record.packages.contains_key(name);
        let left: Vec<String> =
            superseded.into_iter().filter(|(name, _)| is_ours(name)).flat_map(|(_, left)| left).collect();
        status.is_interrupted = !left.is_empty() || transaction::load(disk)?.is_some_and(|known| known.begun);
        Ok((status, left))
    }

    /// What an interrupted package manager left half-way is brought to its end.
    pub(crate) fn mend(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        if self.is_dnf() {
            return self.mend_rpm(context);
        }
        if !self.status()?.is_interrupted {
            return Ok(());
        }
        context.detail("dpkg was interrupted: what it had begun is brought to its end".to_owned());
        self.run("mending", apt::configure_all(), context)
    }

    /// rpm changes files first and its list last, so what it says of a transaction that was begun is worth nothing.
    fn mend_rpm(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        let disk = self.tools.disk;
        if let Some(begun) = transaction::load(disk)?.filter(|known| known.begun) {
            context.detail("rpm was interrupted: what it had begun is brought to its end".to_owned());
            let mut is_whole = true;
            for archive in &begun.archives {
                let found = disk.stat(&Path::new(apt::ARCHIVES).join(archive)).map_err(|error| disk_error(&error))?;
                is_whole &= found.is_some();
            }
            match is_whole {
                true => self.run("mending", dnf::install_again(&begun.archives), context)?,
                // Somebody emptied the folder.
                false => self.run("mending", dnf::install_from_repositories(&begun.wanted), context)?,
            }
            self.end(&begun)?;
        }
        let (_, superseded) = self.list()?;
        if superseded.is_empty() { Ok(()) } else { self.run("mending", dnf::erase(&superseded), context) }
    }
}

const LIST: &str = "list";

fn output_path(what: &str) -> PathBuf {
    PathBuf::from(format!("{OUTPUT_FOLDER}/{what}.log"))
}

fn held(path: &str, holder: &LockHolder) -> StepError {
    StepError::transient(format!("{holder} holds {path}: no package can be installed meanwhile"))
        .with_advice("wait for it, or stop it; it is tried again until the step's deadline")
}

/// As the comparison wants it; what was removed and has left its configuration is not there.
pub(crate) fn found(status: &Status, name: &str) -> Option<Found> {
    let package = status.packages.get(name)?;
    let state = match &package.state {
        packages::State::Installed => State::Installed,
        packages::State::Interrupted(state) => State::Interrupted(state.clone()),
        packages::State::ConfigFiles => return None,
    };
    Some(Found { version: package.version.clone(), held: package.is_held, state })
}
