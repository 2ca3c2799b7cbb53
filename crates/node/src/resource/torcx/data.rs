//! The data folder of the container runtime: what another version left there is taken away before this one starts.
//!
//! ```text
//! before the reboot    /var/lib/nodestrap/clean-runtime-data.json: in which boot it was asked for, which folder, for which version
//! early in the boot    nodestrap-clean-runtime-data.service: another boot, and that version runs → renamed, then deleted
//! before the gate      the same, if that unit did not run; the runtime is stopped first
//! ```
//!
//! A reboot that was cancelled, and a boot that another version came of, leave everything as it was. The folder is renamed first, so that
//! a kill leaves either all of it or a name that nothing reads; what is deleted lies on one file system: a link, and a folder where
//! something is mounted, are refused.

use std::path::{Path, PathBuf};

use bundle::AbsolutePath;
use bundle::torcx::{AddonName, AddonVersion, Profile, RUNNING_PROFILE_PATH};
use engine::{Condition, ErrorClass, StepContext, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::files::{self, FileError};
use host::machine::BootId;
use serde::{Deserialize, Serialize};

use super::super::{Node, host_name};
use super::Chosen;
use super::boot::{Running, running};
use crate::failure::{chain, disk_error, file_error, unit_error};
use crate::sealed;
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub use bundle::CLEAN_UP_MARKER_PATH as CLEAN_DATA_PATH;

const MODE: u32 = 0o600;
const LIMIT: u64 = 64 * 1024;
const PROFILE_LIMIT: u64 = 1024 * 1024;

/// What is to be done after the next boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Marker {
    /// It is to be another one by then.
    boot_id: BootId,
    addon: AddonName,
    version: AddonVersion,
    folder: AbsolutePath,
}

/// What became of the data of another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// Nobody has asked for it.
    NothingToDo,
    /// The machine has not been rebooted since.
    SameBoot,
    /// Another version runs than the one that it was asked for.
    OtherVersion {
        wanted: String,
        runs: String,
    },
    Done {
        folder: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    #[error("{path:?} is {what}, and only a folder of its own is emptied")]
    Place { path: String, what: &'static str },
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<DiskError> for CleanError {
    fn from(error: DiskError) -> Self {
        Self::File(error.into())
    }
}

impl CleanError {
    pub fn class(&self) -> ErrorClass {
        ErrorClass::NeedsOperator
    }
}

fn load(disk: &dyn Disk) -> Result<Option<Marker>, DiskError> {
    let bytes = disk.read(Path::new(CLEAN_DATA_PATH), LIMIT)?;
    Ok(bytes.and_then(|bytes| sealed::parse(&bytes)))
}

/// Durable before the reboot is asked for. A version that runs already can use what it has written itself.
pub(super) fn mark(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let runs_already =
        matches!(running(node, chosen)?, Running::Version(version) if version == chosen.version.as_str());
    let folder = node.wanted_addon().and_then(|addon| addon.data_folder.clone()).filter(|_| !runs_already);
    let Some(folder) = folder else {
        return files::remove_durable(disk, Path::new(CLEAN_DATA_PATH)).map(drop).map_err(|error| file_error(&error));
    };
    let (boot_id, addon, version) = (node.boot_id.clone(), chosen.name.clone(), chosen.version.clone());
    let marker = Marker { boot_id, addon, version, folder };
    let write = || -> Result<(), FileError> {
        files::make_folder_durable(disk, Path::new(STATE_FOLDER), STATE_FOLDER_MODE)?;
        files::write_durable(disk, Path::new(CLEAN_DATA_PATH), MODE, &sealed::print(&marker), None)
    };
    write().map_err(|error| file_error(&error))
}

/// Early in a boot, before anything has the folder open.
pub fn clean_runtime_data(disk: &dyn Disk, now: &BootId) -> Result<Cleaned, CleanError> {
    let Some(marker) = load(disk)? else { return Ok(Cleaned::NothingToDo) };
    if marker.boot_id == *now {
        return Ok(Cleaned::SameBoot);
    }
    let applied = disk.read(Path::new(RUNNING_PROFILE_PATH), PROFILE_LIMIT)?;
    let applied = applied.and_then(|bytes| Profile::parse(&bytes).ok());
    // Where nothing says what runs, such as in a folder that stands for a machine, nothing has the folder open either.
    if let Some(runs) = applied.as_ref().map(|profile| profile.version_of(&marker.addon).unwrap_or("nothing"))
        && runs != marker.version.as_str()
    {
        return Ok(Cleaned::OtherVersion { wanted: marker.version.to_string(), runs: runs.to_owned() });
    }
    let done = empty(disk, marker.folder.as_path())?;
    files::remove_durable(disk, Path::new(CLEAN_DATA_PATH))?;
    Ok(if done { Cleaned::Done { folder: marker.folder.to_string() } } else { Cleaned::NothingToDo })
}

/// `false`: nothing was there.
fn empty(disk: &dyn Disk, folder: &Path) -> Result<bool, CleanError> {
    let refuse = |what| Err(CleanError::Place { path: folder.display().to_string(), what });
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return refuse("the root of all folders");
    };
    let old: PathBuf = parent.join(format!(".{}.nodestrap-old", name.to_string_lossy()));
    let was_cut_off = disk.stat(&old)?.is_some();
    let found = disk.stat(folder)?;
    match found.as_ref().map(|stat| &stat.kind) {
        None => {}
        Some(Kind::Folder) => {
            let beside = disk.stat(parent)?;
            if beside.is_some_and(|beside| found.as_ref().is_some_and(|found| found.device != beside.device)) {
                return refuse("a file system of its own");
            }
            disk.remove_tree(&old)?;
            // Of the same file system, but mounted there: the kernel refuses to rename that.
            disk.rename(folder, &old)?;
            disk.sync_folder(parent)?;
        }
        Some(Kind::Link { .. }) => return refuse("a link"),
        Some(_) => return refuse("no folder"),
    }
    disk.remove_tree(&old)?;
    disk.sync_folder(parent)?;
    Ok(found.is_some() || was_cut_off)
}

/// The marker stands until the folder is clean.
pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    let marker = load(node.tools.disk).map_err(|error| disk_error(&error))?;
    Ok(match marker {
        None => Condition::AlreadySo,
        Some(marker) if marker.boot_id == node.boot_id => Condition::AlreadySo,
        Some(marker) => Condition::Needed(format!("{} was not cleaned early in this boot", marker.folder)),
    })
}

/// The runtime may have begun to use what is there, so it is stopped; it is started with its new data afterwards.
pub(super) fn clean_before_gate(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let (unit, left) = (host_name(&node.bundle.runtime.unit), node.tools.remaining(context));
    node.tools.units.stop_and_wait(&unit, left).map_err(|error| unit_error(&error))?;
    node.forget_starts(std::iter::once(&node.bundle.runtime.unit))?;
    let cleaned = clean_runtime_data(node.tools.disk, &node.boot_id);
    let cleaned = cleaned.map_err(|error| {
        StepError::new(error.class(), chain(&error))
            .with_advice("move what is there away yourself, or leave it to the runtime: remove /var/lib/nodestrap/clean-runtime-data.json")
    })?;
    match cleaned {
        Cleaned::Done { folder } => context.detail(format!("{folder} was of another version, and is gone")),
        Cleaned::OtherVersion { wanted, runs } => {
            return Err(StepError::needs_operator(format!("{wanted} is to run, and {runs} does: its data stays"))
                .with_advice("journalctl -b and the log of torcx's generator say why"));
        }
        Cleaned::NothingToDo | Cleaned::SameBoot => {}
    }
    Ok(())
}
