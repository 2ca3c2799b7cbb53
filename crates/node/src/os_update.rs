//! Which operating system the next boot brings, and what update_engine has said of it in this one.
//!
//! In: what update_engine says, the record of what it said before, the boot id. Out: [`NextBoot`], or [`RebootRefused`]. After a
//! restart update_engine knows that an update is staged, but no more which: what it said in the same boot is in
//! `/var/lib/nodestrap/os-update.json`, sealed, and counts then. Nothing counts of another boot: that one may have been into the
//! update, or not.

use std::path::Path;

use host::disk::{Disk, DiskError};
use host::files::{self, FileError};
use host::machine::BootId;
use host::update_engine::{NextOs, OsVersion, Why};
use serde::{Deserialize, Serialize};

use crate::sealed;
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub const OS_UPDATE_PATH: &str = "/var/lib/nodestrap/os-update.json";
const MODE: u32 = 0o600;
/// Two short words.
const LIMIT: u64 = 4096;

/// What update_engine has staged in this boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    pub boot_id: BootId,
    pub staged: OsVersion,
}

/// What the next boot brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextBoot {
    /// The operating system that runs.
    Same(Because),
    /// This one.
    Other { version: OsVersion, source: VersionSource },
}

/// Why the next boot brings no other operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// Nothing updates this machine, as far as nodestrap knows.
    NoUpdateEngine,
    NothingStaged(Why),
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoUpdateEngine => f.write_str("there is no update_engine on this machine"),
            Self::NothingStaged(Why::UpToDate) => f.write_str("update_engine has found nothing newer"),
            Self::NothingStaged(Why::NotAsked) => f.write_str("update_engine was not asked to look for an update"),
            Self::NothingStaged(Why::Failed { at }) => {
                write!(f, "update_engine failed at {at}; whether there is an update is not known")
            }
            Self::NothingStaged(Why::UnderWay { at, version: Some(version) }) => {
                write!(f, "update_engine is still at {at} of {version}")
            }
            Self::NothingStaged(Why::UnderWay { at, version: None }) => write!(f, "update_engine is still at {at}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSource {
    UpdateEngine,
    /// It was restarted, and had said so before.
    Record,
}

/// No reboot into an operating system of which nobody knows what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.parts().0, self.parts().1)]
pub struct RebootRefused;

impl RebootRefused {
    /// What is the matter, and what to do about it.
    pub fn parts(self) -> (&'static str, &'static str) {
        (
            "an update of the operating system is staged, but not which: update_engine was restarted, and has not said it to \
             nodestrap in this boot",
            "take the update back and have it look again: update_engine_client -reset_status, then update_engine_client \
             -check_for_update",
        )
    }
}

/// Pure.
pub fn next_os(said: &NextOs, record: Option<&Record>, boot: &BootId) -> Result<NextBoot, RebootRefused> {
    let of_this_boot = record.filter(|record| record.boot_id == *boot);
    match said {
        NextOs::NoneHere => Ok(NextBoot::Same(Because::NoUpdateEngine)),
        NextOs::NothingStaged(why) => Ok(NextBoot::Same(Because::NothingStaged(why.clone()))),
        NextOs::Staged(version) => {
            Ok(NextBoot::Other { version: version.clone(), source: VersionSource::UpdateEngine })
        }
        NextOs::StagedVersionUnknown => match of_this_boot {
            Some(Record { staged, .. }) => {
                Ok(NextBoot::Other { version: staged.clone(), source: VersionSource::Record })
            }
            None => Err(RebootRefused),
        },
    }
}

/// The record, if it is there and whole. Reads only.
pub fn load(disk: &dyn Disk) -> Result<Option<Record>, DiskError> {
    let bytes = disk.read(Path::new(OS_UPDATE_PATH), LIMIT)?;
    Ok(bytes.and_then(|bytes| sealed::parse(&bytes)))
}

/// Keeps what update_engine says for when it has forgotten it; durable when it returns. What was taken back is forgotten here as
/// well: it would be taken for the next thing that is staged. Writes nothing where there is nothing new.
pub fn note(disk: &dyn Disk, said: &NextOs, boot: &BootId) -> Result<(), FileError> {
    let path = Path::new(OS_UPDATE_PATH);
    let known = load(disk)?;
    match said {
        NextOs::Staged(version) => {
            let record = Record { boot_id: boot.clone(), staged: version.clone() };
            if known.as_ref() == Some(&record) {
                // Seen is not durable: whoever wrote it may have been killed before its sync.
                return Ok(disk.sync_folder(Path::new(STATE_FOLDER))?);
            }
            files::make_folder_durable(disk, Path::new(STATE_FOLDER), STATE_FOLDER_MODE)?;
            files::write_durable(disk, path, MODE, &sealed::print(&record), None)
        }
        NextOs::NothingStaged(_) => files::remove_durable(disk, path).map(drop),
        // A record that cannot be told to be wrong: it may be all that is known.
        NextOs::StagedVersionUnknown | NextOs::NoneHere => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use host::UpdateEngine as _;
    use host::fake::{Crash, FakeDisk, FakeUpdateEngine, Finds, Moment};
    use host::update_engine::Operation;

    use super::*;

    fn version(text: &str) -> OsVersion {
        OsVersion::try_from(text.to_owned()).unwrap()
    }

    fn boot(number: u32) -> BootId {
        BootId(format!("00000000-0000-4000-8000-{number:012}"))
    }

    fn record(staged: &str, of: u32) -> Record {
        Record { boot_id: boot(of), staged: version(staged) }
    }

    #[test]
    fn the_next_boot_is_known_or_refused() {
        let other = |text, source| Ok(NextBoot::Other { version: version(text), source });
        let same = |why| Ok(NextBoot::Same(Because::NothingStaged(why)));
        let failed = || Why::Failed { at: Operation::Downloading };
        for (said, record, expected) in [
            (NextOs::NoneHere, None, Ok(NextBoot::Same(Because::NoUpdateEngine))),
            (NextOs::NothingStaged(Why::UpToDate), Some(record("2.0.0", 1)), same(Why::UpToDate)),
            (NextOs::NothingStaged(failed()), None, same(failed())),
            (NextOs::Staged(version("2.0.0")), None, other("2.0.0", VersionSource::UpdateEngine)),
            // What it says now counts before what it said.
            (NextOs::Staged(version("3.0.0")), Some(record("2.0.0", 1)), other("3.0.0", VersionSource::UpdateEngine)),
            (NextOs::StagedVersionUnknown, Some(record("2.0.0", 1)), other("2.0.0", VersionSource::Record)),
            (NextOs::StagedVersionUnknown, None, Err(RebootRefused)),
            // Of the boot before: it is this very one perhaps, or was never booted.
            (NextOs::StagedVersionUnknown, Some(record("2.0.0", 0)), Err(RebootRefused)),
        ] {
            assert_eq!(next_os(&said, record.as_ref(), &boot(1)), expected, "{said:?} {record:?}");
        }
    }

    #[test]
    fn what_it_said_is_kept_until_it_is_taken_back() {
        let disk = FakeDisk::new();
        assert_eq!(load(&disk).unwrap(), None);
        note(&disk, &NextOs::NothingStaged(Why::UpToDate), &boot(1)).unwrap();
        note(&disk, &NextOs::Staged(version("2.0.0")), &boot(1)).unwrap();
        assert_eq!(load(&disk).unwrap(), Some(record("2.0.0", 1)));
        let before = disk.tree_digest(&[]);
        for said in [NextOs::Staged(version("2.0.0")), NextOs::StagedVersionUnknown, NextOs::NoneHere] {
            note(&disk, &said, &boot(1)).unwrap();
            assert_eq!(disk.tree_digest(&[]), before, "{said:?} is nothing new");
        }
        note(&disk, &NextOs::Staged(version("3.0.0")), &boot(2)).unwrap();
        assert_eq!(load(&disk).unwrap(), Some(record("3.0.0", 2)));
        note(&disk, &NextOs::NothingStaged(Why::NotAsked), &boot(2)).unwrap();
        assert_eq!(load(&disk).unwrap(), None);
        files::write_durable(&disk, Path::new(OS_UPDATE_PATH), MODE, b"torn", None).unwrap();
        assert_eq!(load(&disk).unwrap(), None, "a damaged record counts as absent");
    }

    /// What a run does: asks, notes, decides.
    fn run(disk: &FakeDisk, engine: &FakeUpdateEngine) -> Result<Result<NextBoot, RebootRefused>, ()> {
        let said = engine.attempt_and_wait(std::time::Duration::from_secs(60), &mut |_| {}).map_err(drop)?;
        note(disk, &said, &boot(1)).map_err(drop)?;
        Ok(next_os(&said, load(disk).map_err(drop)?.as_ref(), &boot(1)))
    }

    #[test]
    fn killed_or_cut_off_anywhere_the_next_run_knows_the_version_or_refuses() {
        let clean = FakeDisk::new();
        let found = Finds::Version(version("2.0.0"));
        run(&clean, &FakeUpdateEngine::new(&clean, found.clone())).unwrap().unwrap();
        let operations = clean.crash_point().operations();
        for (n, moment) in
            (1..=operations).flat_map(|n| [Moment::Before, Moment::Midway, Moment::After].map(|m| (n, m)))
        {
            for restarts in [false, true] {
                let disk = FakeDisk::new();
                disk.crash_point().crash_at(n, moment);
                let engine = FakeUpdateEngine::new(&disk, found.clone());
                assert_eq!(run(&disk, &engine), Err(()), "operation {n} {moment:?}");
                let disk = disk.after_crash(Crash::ProcessKill, n);
                let engine = engine.after_kill(&disk);
                if restarts {
                    engine.restart();
                }
                let decided = run(&disk, &engine).unwrap();
                let is_known =
                    matches!(&decided, Ok(NextBoot::Other { version: staged, .. }) if *staged == version("2.0.0"));
                // Between staging and its record nobody but the restarted one knew it.
                assert!(
                    is_known || (restarts && decided == Err(RebootRefused)),
                    "operation {n} {moment:?}: {decided:?}"
                );
                let is_recorded = load(&disk).unwrap().is_some();
                assert_eq!(is_recorded, is_known, "operation {n} {moment:?}");
            }
        }
    }
}
