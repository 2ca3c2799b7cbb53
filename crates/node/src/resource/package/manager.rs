//! The package manager at work: one unit for all that it is asked, waited for, with its words in a file for root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::Packages;
use bundle::resource::package::{Found, State};
use engine::{StepContext, StepError};
use host::disk::LockHolder;
use host::packages::dpkg;
use host::units::{Transient, UnitError, UnitName, quote_last_lines};

use super::super::Tools;
use super::apt;
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

pub(crate) struct Manager<'a> {
    tools: Tools<'a>,
    environment: BTreeMap<String, String>,
    environment_file: Option<PathBuf>,
}

impl<'a> Manager<'a> {
    pub(crate) fn new(tools: Tools<'a>, packages: Option<&Packages>) -> Self {
        let mut environment = apt::environment();
        environment.extend(packages.iter().flat_map(|packages| packages.environment.clone()));
        let file = packages.and_then(|packages| packages.environment_file.as_ref());
        Self { tools, environment, environment_file: file.map(|path| PathBuf::from(path.as_str())) }
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
        for path in dpkg::LOCKS {
            if let Some(holder) = self.tools.disk.lock_holder(Path::new(path)).map_err(|error| disk_error(&error))? {
                return Ok(Some((path, holder)));
            }
        }
        Ok(None)
    }

    /// `what` is what people call it, also in the name of the file with its words.
    pub(crate) fn run(&self, what: &str, command: Vec<String>, context: &StepContext<'_>) -> Result<(), StepError> {
        let disk = self.tools.disk;
        let output = PathBuf::from(format!("{OUTPUT_FOLDER}/{what}.log"));
        let prepare = || {
            disk.make_folder(Path::new(OUTPUT_FOLDER), OUTPUT_FOLDER_MODE)?;
            disk.remove(&output)
        };
        prepare().map_err(|error| disk_error(&error))?;
        let transient = Transient {
            unit: UnitName(UNIT.to_owned()),
            description: format!("nodestrap: {what} of packages"),
            command,
            environment: self.environment.clone(),
            environment_file: self.environment_file.clone(),
            output: output.clone(),
        };
        let left = self.tools.remaining(context);
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

    pub(crate) fn status(&self) -> Result<dpkg::Status, StepError> {
        dpkg::load(self.tools.disk).map_err(|error| disk_error(&error))
    }

    /// What an interrupted dpkg left half-way is brought to its end.
    pub(crate) fn mend(&self, context: &StepContext<'_>) -> Result<(), StepError> {
        if !self.status()?.is_interrupted {
            return Ok(());
        }
        context.detail("dpkg was interrupted: what it had begun is brought to its end".to_owned());
        self.run("mending", apt::configure_all(), context)
    }
}

fn held(path: &str, holder: &LockHolder) -> StepError {
    StepError::transient(format!("{holder} holds {path}: no package can be installed meanwhile"))
        .with_advice("wait for it, or stop it; it is tried again until the step's deadline")
}

/// As the comparison wants it; what was removed and has left its configuration is not there.
pub(crate) fn found(status: &dpkg::Status, name: &str) -> Option<Found> {
    let package = status.packages.get(name)?;
    let state = match &package.state {
        dpkg::State::Installed => State::Installed,
        dpkg::State::Interrupted(state) => State::Interrupted(state.clone()),
        dpkg::State::ConfigFiles => return None,
    };
    Some(Found { version: package.version.clone(), held: package.is_held, state })
}
