//! update_engine, in the verbs of a bootstrap: is there another version of the operating system, and is it staged?
//!
//! In: deadlines. Out: what it says, or a typed reason why it says nothing. [`SystemUpdateEngine`] speaks D-Bus with the one of
//! this machine; [`NoUpdateEngine`] is for a root that is only a folder; [`crate::fake::FakeUpdateEngine`] is for tests. A
//! machine without one is an answer, never an error. Fails with [`UpdateEngineError`].
//!
//! ```text
//!        ┌────── nothing newer ──────┐
//!      IDLE → CHECKING_FOR_UPDATE → UPDATE_AVAILABLE → DOWNLOADING → VERIFYING → FINALIZING → UPDATED_NEED_REBOOT
//!        └── REPORTING_ERROR_EVENT ←─────────┴───────────────┴────────────┴───────────┘
//! ```
//! `IDLE` alone says nothing: whether somebody has looked is told by the way there ([`Attempt`]).

mod attempt;
mod proxy;
mod system;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use attempt::Attempt;
pub use system::SystemUpdateEngine;

/// What it says of a staged update after it was restarted, and of none at all.
const NO_VERSION: &str = "0.0.0";
/// No release was ever called anything near this.
const LONGEST_VERSION: usize = 64;
const WORD_PREFIX: &str = "UPDATE_STATUS_";

/// The version of an operating system, fit to be part of a path and of a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OsVersion(String);

impl OsVersion {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for OsVersion {
    type Error = String;

    /// Numbers and dots, and what a nightly build puts after them.
    fn try_from(text: String) -> Result<Self, String> {
        let is_part = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_version = text.len() <= LONGEST_VERSION
            && text.starts_with(|first: char| first.is_ascii_digit())
            && text.split(['.', '+', '-', '_']).all(is_part);
        if is_version { Ok(Self(text)) } else { Err(format!("{text:?} is no version of an operating system")) }
    }
}

impl From<OsVersion> for String {
    fn from(version: OsVersion) -> Self {
        version.0
    }
}

impl std::fmt::Display for OsVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Idle,
    CheckingForUpdate,
    UpdateAvailable,
    Downloading,
    Verifying,
    Finalizing,
    UpdatedNeedReboot,
    ReportingErrorEvent,
    /// A word that this version does not know: it is waited for what follows.
    Other(String),
}

impl Operation {
    /// In its own words, as `UPDATE_STATUS_IDLE`.
    pub fn parse(word: &str) -> Self {
        match word.strip_prefix(WORD_PREFIX).unwrap_or(word) {
            "IDLE" => Self::Idle,
            "CHECKING_FOR_UPDATE" => Self::CheckingForUpdate,
            "UPDATE_AVAILABLE" => Self::UpdateAvailable,
            "DOWNLOADING" => Self::Downloading,
            "VERIFYING" => Self::Verifying,
            "FINALIZING" => Self::Finalizing,
            "UPDATED_NEED_REBOOT" => Self::UpdatedNeedReboot,
            "REPORTING_ERROR_EVENT" => Self::ReportingErrorEvent,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "IDLE",
            Self::CheckingForUpdate => "CHECKING_FOR_UPDATE",
            Self::UpdateAvailable => "UPDATE_AVAILABLE",
            Self::Downloading => "DOWNLOADING",
            Self::Verifying => "VERIFYING",
            Self::Finalizing => "FINALIZING",
            Self::UpdatedNeedReboot => "UPDATED_NEED_REBOOT",
            Self::ReportingErrorEvent => "REPORTING_ERROR_EVENT",
            Self::Other(word) => word,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct UpdateStatus {
    pub operation: Operation,
    /// Of the download: 0 to 1.
    pub progress: f64,
    /// `None`: it does not say, or does not know any more.
    pub new_version: Option<OsVersion>,
    /// In seconds since 1970, by the clock of that time; 0 for never.
    pub last_checked: i64,
}

impl UpdateStatus {
    /// A version that could be no part of a path is an error, and not the absence of one.
    pub fn parse(last_checked: i64, progress: f64, word: &str, version: &str) -> Result<Self, UpdateEngineError> {
        let new_version = match version {
            "" | NO_VERSION => None,
            version => Some(OsVersion::try_from(version.to_owned()).map_err(UpdateEngineError::Answer)?),
        };
        Ok(Self { operation: Operation::parse(word), progress, new_version, last_checked })
    }

    /// What somebody who only looks learns from it.
    pub fn next_os(&self) -> NextOs {
        match &self.operation {
            Operation::Idle => NextOs::NothingStaged(Why::NotAsked),
            Operation::UpdatedNeedReboot => match &self.new_version {
                Some(version) => NextOs::Staged(version.clone()),
                None => NextOs::StagedVersionUnknown,
            },
            at => NextOs::NothingStaged(Why::UnderWay { at: at.clone(), version: self.new_version.clone() }),
        }
    }
}

impl std::fmt::Display for UpdateStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.operation)?;
        if self.operation == Operation::Downloading {
            write!(f, " ({:.0} %)", self.progress.clamp(0.0, 1.0) * 100.0)?;
        }
        match &self.new_version {
            Some(version) => write!(f, " of {version}"),
            None => Ok(()),
        }
    }
}

/// What it said when it was only asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// There is no update_engine on this machine.
    NoneHere,
    Says(UpdateStatus),
}

impl Observed {
    pub fn next_os(&self) -> NextOs {
        match self {
            Self::NoneHere => NextOs::NoneHere,
            Self::Says(status) => status.next_os(),
        }
    }
}

/// What the next boot brings, as far as update_engine says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextOs {
    /// There is no update_engine on this machine.
    NoneHere,
    /// The next boot is into the operating system that runs.
    NothingStaged(Why),
    Staged(OsVersion),
    /// It was restarted since, and only remembers that there is one.
    StagedVersionUnknown,
}

/// Why nothing is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has looked, and there is nothing newer.
    UpToDate,
    /// Nobody had it look.
    NotAsked,
    /// It could not look, or not bring what it found. Whether there is anything newer is not known.
    Failed { at: Operation },
    /// It will be, if all goes well and nobody reboots before.
    UnderWay { at: Operation, version: Option<OsVersion> },
}

#[derive(Debug, thiserror::Error)]
pub enum UpdateEngineError {
    #[error("cannot reach update_engine on the system bus ({address})")]
    Bus { address: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{operation} was refused")]
    Call { operation: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{operation} did not end within {waited:?}; the last that it said was {last}")]
    Deadline { operation: &'static str, waited: Duration, last: String },
    #[error("update_engine went away, and was not back within {waited:?}; the last that it said was {last}")]
    Gone { waited: Duration, last: String },
    /// It ended again and again.
    #[error("update_engine was restarted {restarts} times while it was waited for; the last that it said was {last}")]
    Restless { restarts: u32, last: String },
    #[error("what update_engine says cannot be used: {0}")]
    Answer(String),
}

pub trait UpdateEngine: Send + Sync {
    /// What it says now; nothing is begun.
    fn observe(&self) -> Result<Observed, UpdateEngineError>;
    /// Has it look for an update and bring it, and waits until that has ended, well or not. An update that is under way or
    /// staged already is not asked for again. `look` is told whatever it says on the way.
    fn attempt_and_wait(
        &self,
        deadline: Duration,
        look: &mut (dyn FnMut(&UpdateStatus) + Send),
    ) -> Result<NextOs, UpdateEngineError>;
}

/// For a root that is only a folder: nothing updates it.
pub struct NoUpdateEngine;

impl UpdateEngine for NoUpdateEngine {
    fn observe(&self) -> Result<Observed, UpdateEngineError> {
        Ok(Observed::NoneHere)
    }

    fn attempt_and_wait(
        &self,
        _deadline: Duration,
        _look: &mut (dyn FnMut(&UpdateStatus) + Send),
    ) -> Result<NextOs, UpdateEngineError> {
        Ok(NextOs::NoneHere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_fit_for_paths_and_nothing_else_is_one() {
        for good in ["1520.3.0", "2905.2.0", "38.20230709.3.0", "4012.0.0+nightly-20240610-2100", "12"] {
            assert_eq!(OsVersion::try_from(good.to_owned()).unwrap().as_str(), good);
        }
        let long = "1.".repeat(40) + "1";
        for bad in ["", ".", "..", "1..2", "../1", "1/2", "v1", "1.2.", "1 2", "1\n", "1é", long.as_str()] {
            assert!(OsVersion::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<OsVersion>("\"../../etc\"").is_err());
    }

    #[test]
    fn somebody_who_only_looks_learns_what_is_staged_and_takes_nothing_for_a_check() {
        let seen = |word: &str, version: &str| {
            UpdateStatus::parse(0, 0.5, &format!("UPDATE_STATUS_{word}"), version).unwrap().next_os()
        };
        let version = |text: &str| OsVersion::try_from(text.to_owned()).unwrap();
        assert_eq!(seen("IDLE", "0.0.0"), NextOs::NothingStaged(Why::NotAsked));
        assert_eq!(seen("IDLE", "1.2.3"), NextOs::NothingStaged(Why::NotAsked));
        assert_eq!(seen("UPDATED_NEED_REBOOT", "1.2.3"), NextOs::Staged(version("1.2.3")));
        assert_eq!(seen("UPDATED_NEED_REBOOT", "0.0.0"), NextOs::StagedVersionUnknown);
        assert_eq!(seen("UPDATED_NEED_REBOOT", ""), NextOs::StagedVersionUnknown);
        let under_way = Why::UnderWay { at: Operation::Downloading, version: Some(version("1.2.3")) };
        assert_eq!(seen("DOWNLOADING", "1.2.3"), NextOs::NothingStaged(under_way));
        let strange = Why::UnderWay { at: Operation::Other("ROLLING_BACK".to_owned()), version: None };
        assert_eq!(seen("ROLLING_BACK", ""), NextOs::NothingStaged(strange));
        let error = UpdateStatus::parse(0, 0.0, "UPDATE_STATUS_UPDATED_NEED_REBOOT", "../../etc").unwrap_err();
        assert!(error.to_string().contains("\"../../etc\" is no version"), "{error}");
    }

    #[test]
    fn what_it_says_is_shown_in_its_own_words() {
        let shown = |word, version| UpdateStatus::parse(0, 0.415, word, version).unwrap().to_string();
        assert_eq!(shown("UPDATE_STATUS_IDLE", "0.0.0"), "IDLE");
        assert_eq!(shown("UPDATE_STATUS_DOWNLOADING", "1.2.3"), "DOWNLOADING (42 %) of 1.2.3");
        assert_eq!(shown("UPDATE_STATUS_UPDATED_NEED_REBOOT", ""), "UPDATED_NEED_REBOOT");
    }

    #[test]
    fn a_folder_has_no_update_engine() {
        assert_eq!(NoUpdateEngine.observe().unwrap().next_os(), NextOs::NoneHere);
        assert_eq!(NoUpdateEngine.attempt_and_wait(Duration::ZERO, &mut |_| {}).unwrap(), NextOs::NoneHere);
    }
}
