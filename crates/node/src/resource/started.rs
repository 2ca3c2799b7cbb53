//! With which files each unit was last started: what a service has read cannot be read back from it.
//!
//! `/var/lib/nodestrap/started.json`, sealed. An entry is forgotten, durably, before a file that its unit reads is changed, and
//! written when the unit was started with the new ones. A lost entry costs a restart, never correctness.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::PoisonError;

use bundle::UnitName;
use bundle::resource::unit::started_with;
use engine::StepError;
use host::disk::Disk;
use host::files;

use super::Node;
use crate::failure::{disk_error, file_error};
use crate::sealed;
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub(crate) const STARTED_PATH: &str = "/var/lib/nodestrap/started.json";
const MODE: u32 = 0o600;
/// Thousands of units.
const LIMIT: u64 = 1024 * 1024;

type Started = BTreeMap<String, String>;

/// When an entry must survive a loss of power.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Durable {
    /// With the sync that comes anyway.
    Later,
    Now,
}

fn load(disk: &dyn Disk) -> Result<Started, StepError> {
    let bytes = disk.read(Path::new(STARTED_PATH), LIMIT).map_err(|error| disk_error(&error))?;
    Ok(bytes.and_then(|bytes| sealed::parse(&bytes)).unwrap_or_default())
}

impl Node<'_> {
    /// Whether the unit, if it runs, runs with what the bundle wants it to read.
    pub(crate) fn is_started_with_this(&self, unit: &UnitName) -> Result<bool, StepError> {
        let wanted = started_with(self.bundle, &self.environment, unit);
        Ok(load(self.tools.disk)?.get(unit.as_str()).map(String::as_str) == Some(wanted.as_str()))
    }

    /// The unit was started, or will be, with what the bundle wants it to read.
    pub(crate) fn note_start(&self, unit: &UnitName, durable: Durable) -> Result<(), StepError> {
        let wanted = started_with(self.bundle, &self.environment, unit).to_string();
        self.change_starts(durable, |started| {
            started.insert(unit.to_string(), wanted.clone()).as_ref() != Some(&wanted)
        })
    }

    /// Files that these units read are about to change. Durable with the next sync of that file system.
    pub(crate) fn forget_starts<'u>(&self, units: impl IntoIterator<Item = &'u UnitName>) -> Result<(), StepError> {
        let units: BTreeSet<&str> = units.into_iter().map(UnitName::as_str).collect();
        self.change_starts(Durable::Later, |started| {
            let before = started.len();
            started.retain(|unit, _| !units.contains(unit.as_str()));
            started.len() != before
        })
    }

    fn change_starts(&self, durable: Durable, change: impl FnOnce(&mut Started) -> bool) -> Result<(), StepError> {
        let _held = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = self.tools.disk;
        let mut started = load(disk)?;
        if !change(&mut started) {
            return Ok(());
        }
        let (path, bytes) = (Path::new(STARTED_PATH), sealed::print(&started));
        disk.make_folder(Path::new(STATE_FOLDER), STATE_FOLDER_MODE).map_err(|error| disk_error(&error))?;
        files::write_volatile(disk, path, MODE, &bytes).map_err(|error| file_error(&error))?;
        match durable {
            Durable::Later => Ok(()),
            // The folders above are durable since the journal was made.
            Durable::Now => disk.sync_file(path).and_then(|()| disk.sync_folder(Path::new(STATE_FOLDER))),
        }
        .map_err(|error| disk_error(&error))
    }
}
