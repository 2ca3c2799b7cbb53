//! The service manager, in the verbs of a bootstrap: never "run this command".
//!
//! In: unit names and deadlines. Out: jobs that ended, or a typed reason why not. [`SystemdUnits`] speaks D-Bus with the
//! systemd of this machine; [`StandInUnits`] keeps books for a root that is only a folder; [`crate::fake::FakeUnits`] is
//! for tests. Fails with [`UnitError`]: [`UnitError::Bus`] when nobody answers, the other variants when the answer is no.

mod heard;
mod log;
mod proxies;
mod stand_in;
mod synchronize;
mod systemd;
mod transient;
pub mod unit_file;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use heard::{Heard, NOT_STARTED};
pub use log::quote_last_lines;
pub use stand_in::StandInUnits;
pub(crate) use stand_in::{disable_on_disk, enable_on_disk, find, is_enabled};
pub use systemd::SystemdUnits;
pub use transient::Transient;

/// The full name of a unit, for example `kubelet.service`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitName(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActiveState {
    Active,
    Activating,
    Deactivating,
    Inactive,
    Failed,
    /// systemd knows no such unit.
    NotFound,
    Masked,
    /// It was started before it was masked, and runs on.
    MaskedRunning,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitState {
    pub active: ActiveState,
    /// Enabled so that it starts at boot.
    pub enabled: bool,
    /// systemd's own words, for example `exit-code`, when the last run failed.
    pub result: String,
    /// The unit file or a drop-in changed on disk after systemd read it.
    pub needs_reload: bool,
}

/// How a job of systemd ended, in systemd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobResult {
    Done,
    Failed,
    /// A unit that this one requires failed.
    Dependency,
    /// systemd gave up waiting, not we.
    Timeout,
    Skipped,
    /// Another job took its place.
    Canceled,
    /// A word that this version does not know (`invalid`, `assert`, `unsupported`, `collected`, `once`, …).
    Other,
}

impl JobResult {
    pub fn parse(word: &str) -> Self {
        match word {
            "done" => Self::Done,
            "failed" => Self::Failed,
            "dependency" => Self::Dependency,
            "timeout" => Self::Timeout,
            "skipped" => Self::Skipped,
            "canceled" => Self::Canceled,
            _ => Self::Other,
        }
    }
}

impl std::fmt::Display for JobResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dependency => "dependency",
            Self::Timeout => "timeout",
            Self::Skipped => "skipped",
            Self::Canceled => "canceled",
            Self::Other => "other",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    #[error("cannot reach the service manager on the system bus ({address})")]
    Bus { address: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("unit {unit:?} is not known to the service manager")]
    NotFound { unit: String },
    #[error("unit {unit:?} is masked")]
    Masked { unit: String },
    /// `detail` is what systemd says about the unit itself, or empty; `output` the last lines that the unit wrote, which are
    /// for root and therefore no part of the message.
    #[error("{operation} of unit {unit:?} ended with \"{result}\"{detail}")]
    Job { operation: &'static str, unit: String, result: JobResult, detail: String, output: Option<String> },
    #[error("{operation} of {what:?} did not end within {waited:?}")]
    Deadline { operation: &'static str, what: String, waited: Duration },
    #[error("{operation} of {what:?} was refused by the service manager")]
    Call { operation: &'static str, what: String, source: Box<dyn std::error::Error + Send + Sync> },
}

pub trait Units: Send + Sync {
    fn state(&self, unit: &UnitName) -> Result<UnitState, UnitError>;
    /// Has systemd read all unit files again.
    fn reload(&self, deadline: Duration) -> Result<(), UnitError>;
    /// Makes the units start at boot (as their `[Install]` sections say). Works on files: reload afterwards if the
    /// running manager shall know. Done is not durable: systemd does not sync its links, so sync the file system of
    /// `/etc` before a gate vouches for them.
    fn enable(&self, units: &[UnitName]) -> Result<(), UnitError>;
    /// Starts the unit, or restarts it if it runs, and waits for the job to end.
    fn restart_and_wait(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError> {
        self.restart_and_watch(unit, deadline, &mut || {})
    }
    /// As `restart_and_wait`; until the job has ended, `look` is called every second or so.
    fn restart_and_watch(
        &self,
        unit: &UnitName,
        deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError>;
    /// Runs one program as a unit of its own and waits for its end; whoever of that name runs already is waited for first.
    /// It goes on when the deadline passes or this process dies: see [`Units::wait_until_ended`].
    fn run_transient(
        &self,
        transient: &Transient,
        deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError>;
    /// Whoever runs under this name has ended, well or not.
    fn wait_until_ended(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError>;
    /// Has the unit do its work anew, and waits for that: reloads it if it can be reloaded and runs, else starts or restarts it.
    fn reload_or_restart_and_wait(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError>;
    /// Queues a start job and does not wait for it; a unit that runs is left alone.
    fn queue_start(&self, unit: &UnitName) -> Result<(), UnitError>;
    /// As `restart_and_wait`, but only queues the job: for units that are ordered after the caller's own unit, where
    /// waiting would never end.
    fn queue_restart(&self, unit: &UnitName) -> Result<(), UnitError>;
    /// Makes a unit that failed one that does not run, and forgets how often it was started of late.
    fn reset_failed(&self, unit: &UnitName) -> Result<(), UnitError>;
    /// Stops the unit and waits for the job to end. One that does not run, or is not known, is left alone.
    fn stop_and_wait(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError>;
    /// A unit that failed, and that systemd would start again in a while, is not started until somebody asks for it. One that runs
    /// is left alone.
    fn stop_waiting(&self, _unit: &UnitName, _deadline: Duration) -> Result<(), UnitError> {
        Ok(())
    }
    /// Takes the links of `enable` away; as there, on files, and not durable before a sync. Unknown units are left alone.
    fn disable(&self, units: &[UnitName]) -> Result<(), UnitError>;
    /// Writes lines into the log of the machine, where people look for what this unit says. Best effort.
    fn log(&self, unit: &UnitName, lines: &[&str]);
    /// Asks for an orderly restart of the machine and returns once that is under way: whoever calls must end soon.
    fn reboot(&self) -> Result<(), UnitError>;
    /// Whether a time client, whichever it is, has set the clock of this machine; `None` where nobody can tell.
    fn is_clock_synchronised(&self) -> Option<bool>;
    /// Whether an active unit is processes, which may end by themselves.
    fn run_processes(&self) -> bool {
        true
    }
    /// What stands behind this: shown to people when it is not a real service manager.
    fn describe(&self) -> &'static str;
}
