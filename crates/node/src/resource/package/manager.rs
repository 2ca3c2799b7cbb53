//! The package manager at work: one unit for all that it is asked, waited for, with its words in a file for root.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bundle::resource::package::{Found, State};
use bundle::{Package, PackageManager, Packages};
use engine::{ErrorClass, StepContext, StepError};
use host::disk::LockHolder;
use host::packages::{self, Status, dpkg, rpm};
use host::units::{Transient, UnitError, UnitName, quote_last_lines};

use super::super::Tools;
use super::super::record::{self, Record};
use super::said::{self, Reason};
use super::transaction::{self, Transaction};
use super::{apt, dnf};
use crate::failure::{chain, disk_error, file_error, unit_error};

/// Two of it never run at once, also not one of a run that was killed.
pub(crate) const UNIT: &str = "nodestrap-packages.service";
/// Whoever asks rpm waits for nobody, and has an answer of their own: by the number of the process.
const LIST_UNIT: &str = "nodestrap-package-list";
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

    /// As the bundle told it that brought these packages.
    pub(crate) fn of_record(kind: PackageManager, tools: Tools<'a>, record: &Record) -> Self {
        let mut manager = Self::new(kind, tools, None);
        if let Some(proxy) = &record.proxy {
            manager.environment.extend(proxy.environment.clone());
            let file = proxy.environment_file.as_ref().map(PathBuf::from);
            // systemd starts nothing without it.
            manager.environment_file = file.filter(|path| matches!(tools.disk.stat(path), Ok(Some(_))));
        }
        manager
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
        lists_are_new: &AtomicBool,
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
        if lists_are_new.load(Ordering::Relaxed) {
            return Err(first);
        }
        context.detail(format!("{}; the lists of all repositories are fetched", first.message));
        let updated = self.run("update-all", apt::update_all(), context);
        lists_are_new.store(updated.is_ok(), Ordering::Relaxed);
        let again = self.run("download", apt::download(targets), context);
        match updated {
            Ok(()) => again,
            // What is nowhere to be found may be where nobody answered.
            Err(error) => {
                context.detail(error.message);
                again.map_err(|again| StepError { class: ErrorClass::Transient, ..again })
            }
        }
    }

    /// Without asking anybody. What cannot be installed is forgotten, so that it is downloaded anew: an archive may be damaged, or
    /// no longer what the package manager would choose. Not by rpm in the middle of it: that is brought to its end.
    pub(crate) fn install_downloaded(
        &self,
        transaction: &Transaction,
        targets: &[String],
        context: &StepContext<'_>,
    ) -> Result<(), StepError> {
        let left = self.tools.remaining(context);
        if !self.is_dnf() {
            let installed = self.try_run("install", apt::install_downloaded(targets), left);
            return installed.map_err(|(error, reason)| match reason {
                Reason::Locked => error,
                _ => transaction::forget(self.tools.disk).map_or_else(|lost| file_error(&lost), |()| error),
            });
        }
        transaction::write(self.tools.disk, &Transaction { begun: true, ..transaction.clone() })?;
        match self.try_run("install", dnf::install_downloaded(&transaction.archives), left) {
            Ok(()) => self.end(transaction),
            Err((error, reason)) if reason.is_told_before_anything_changes() => {
                transaction::forget(self.tools.disk).map_err(|lost| file_error(&lost))?;
                Err(error)
            }
            Err((error, _)) => Err(error),
        }
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

    /// Lines of the list of locks, with the package and the version: they outlive the package. Of dpkg it is a state.
    pub(crate) fn locks(&self) -> Result<Vec<(String, String, String)>, StepError> {
        match self.kind {
            PackageManager::Apt => Ok(Vec::new()),
            PackageManager::Dnf => rpm::load_locks(self.tools.disk).map_err(|error| disk_error(&error)),
        }
    }

    /// But for their configuration.
    pub(crate) fn remove(&self, names: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
        match self.kind {
            PackageManager::Apt => self.run("remove", apt::remove(names), context),
            PackageManager::Dnf => self.purge(names, context),
        }
    }

    pub(crate) fn purge(&self, names: &[String], context: &StepContext<'_>) -> Result<(), StepError> {
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
        if let Err(error) = self.run("update-all", apt::update_all(), context) {
            context.detail(error.message);
        }
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
        self.try_run(what, command, self.tools.remaining(context)).map_err(|(error, _)| error)
    }

    /// With the reason that it gave.
    fn try_run(&self, what: &str, command: Vec<String>, left: Duration) -> Result<(), (StepError, Reason)> {
        self.run_as(UNIT, what, &output_path(what), command, left)
    }

    fn run_as(
        &self,
        unit: &str,
        what: &str,
        output: &Path,
        command: Vec<String>,
        left: Duration,
    ) -> Result<(), (StepError, Reason)> {
        let (disk, unknown) = (self.tools.disk, |error| (error, Reason::Unknown));
        let prepare = || {
            disk.make_folder(Path::new(OUTPUT_FOLDER), OUTPUT_FOLDER_MODE)?;
            disk.remove(output)
        };
        prepare().and_then(|_| disk.hold_system_folders()).map_err(|error| unknown(disk_error(&error)))?;
        let transient = Transient {
            unit: UnitName(unit.to_owned()),
            description: format!("nodestrap: {what} of packages"),
            command,
            environment: self.environment.clone(),
            environment_file: self.environment_file.clone(),
            output: output.to_owned(),
        };
        let ended = self.tools.units.run_transient(&transient, left, &mut || {});
        let Err(error) = ended else { return Ok(()) };
        let mut failed = unit_error(&error);
        if !matches!(error, UnitError::Job { .. }) {
            return Err(unknown(failed));
        }
        let said = disk.read_end(output, TOLD_LIMIT).ok().flatten().unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let reason = said::reason(&said);
        if reason == Reason::Locked
            && let Some((path, holder)) = self.holder().map_err(unknown)?
        {
            return Err((held(path, &holder), reason));
        }
        let program = transient.command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        failed.class = reason.class();
        failed.message = format!("{what} of packages failed: {program}: {}", chain(&error));
        let quoted = quote_last_lines("its last lines", said.lines().filter(|line| !line.trim().is_empty()));
        let advice = format!("{}; what it said is in {}, for root", reason.advice(), output.display());
        Err((failed.with_advice(advice).with_output(quoted), reason))
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
        let process = std::process::id();
        let (unit, output) = (format!("{LIST_UNIT}-{process}.service"), output_path(&format!("{LIST}-{process}")));
        self.run_as(&unit, LIST, &output, dnf::list(), LIST_DEADLINE).map_err(|(error, _)| error)?;
        let bytes = disk.read(&output, LIST_LIMIT).map_err(|error| disk_error(&error))?;
        disk.remove(&output).map_err(|error| disk_error(&error))?;
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

    /// An rpm that was ended while it put files into their places has left those that were to come, and no rpm ever removes them.
    fn sweep(&self, begun: &Transaction, context: &StepContext<'_>) -> Result<(), StepError> {
        let names = begun.archives.iter().filter_map(|archive| rpm::parse_archive_name(archive));
        let names: Vec<String> = names.map(|(name, _)| name).collect();
        // One that is not installed after all has no files, and is no reason to stop.
        if let Err(error) = self.run(FILES, dnf::files(&names), context) {
            context.detail(error.message);
        }
        let said = self.tools.disk.read(&output_path(FILES), LIST_LIMIT).map_err(|error| disk_error(&error))?;
        let said = String::from_utf8_lossy(said.as_deref().unwrap_or_default()).into_owned();
        rpm::remove_leftovers(self.tools.disk, &said).map_err(|error| disk_error(&error))
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
            self.sweep(&begun, context)?;
            self.end(&begun)?;
        }
        let (_, superseded) = self.list()?;
        if superseded.is_empty() { Ok(()) } else { self.run("mending", dnf::erase(&superseded), context) }
    }
}

const LIST: &str = "list";
const FILES: &str = "files";

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
