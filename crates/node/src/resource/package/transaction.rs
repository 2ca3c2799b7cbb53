//! What was downloaded, for which wish, and whether its installation has begun.

use std::path::Path;

use engine::StepError;
use host::disk::Disk;
use host::files::{self, FileError};
use serde::{Deserialize, Serialize};

use crate::failure::{disk_error, file_error};
use crate::sealed;

pub(super) const TRANSACTION_PATH: &str = "/var/lib/nodestrap/packages.json";
const TRANSACTION_LIMIT: u64 = 1024 * 1024;
const TRANSACTION_MODE: u32 = 0o600;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    /// All packages of the bundle: a transaction is for one wish only.
    #[serde(default)]
    pub(super) wish: Vec<String>,
    /// What the package manager was asked for: of prerequisites, those that were missing.
    pub(super) wanted: Vec<String>,
    /// Names of files.
    pub(super) archives: Vec<String>,
    /// rpm is at work on it, or was interrupted: it does not remember that by itself, as dpkg does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) begun: bool,
}

pub(super) fn load(disk: &dyn Disk) -> Result<Option<Transaction>, StepError> {
    let bytes = disk.read(Path::new(TRANSACTION_PATH), TRANSACTION_LIMIT);
    Ok(bytes.map_err(|error| disk_error(&error))?.and_then(|bytes| sealed::parse(&bytes)))
}

/// Durable when it returns.
pub(super) fn write(disk: &dyn Disk, transaction: &Transaction) -> Result<(), StepError> {
    let json = sealed::print(transaction);
    files::write_durable(disk, Path::new(TRANSACTION_PATH), TRANSACTION_MODE, &json, None)
        .map_err(|error| file_error(&error))
}

pub(super) fn forget(disk: &dyn Disk) -> Result<(), FileError> {
    files::remove_durable(disk, Path::new(TRANSACTION_PATH)).map(drop)
}
