//! The node's own part of the pod network `bridge`: a CNI configuration for the pod ranges that the cluster gave it.
//!
//! Inputs: `network.json` from the bundle, and the pod ranges. Output: one file, written durably and only if it differs.

use std::path::Path;

use bundle::{NETWORK_SETTINGS_PATH, NetworkSettings, cni_config};
use host::disk::{Disk, DiskError};
use host::files::{self, Difference, FileError, FileWrite};

const NETWORK_SETTINGS_LIMIT: u64 = 64 * 1024;
const CNI_CONFIG_MODE: u32 = 0o644;

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("cannot read {NETWORK_SETTINGS_PATH:?}")]
    Read(#[source] DiskError),
    #[error("{NETWORK_SETTINGS_PATH:?} is not there; run nodestrap apply first")]
    Absent,
    #[error("{NETWORK_SETTINGS_PATH:?} cannot be used")]
    Config(#[from] serde_json::Error),
    #[error("cannot write the CNI configuration")]
    Write(#[from] FileError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Written,
    AlreadySo,
}

pub fn load_network_settings(disk: &dyn Disk) -> Result<NetworkSettings, NetworkError> {
    let bytes = disk.read(Path::new(NETWORK_SETTINGS_PATH), NETWORK_SETTINGS_LIMIT).map_err(NetworkError::Read)?;
    Ok(NetworkSettings::parse(&bytes.ok_or(NetworkError::Absent)?)?)
}

/// The container runtime watches the folder and takes the file up at once, so it must appear whole.
pub fn ensure_cni_config(
    disk: &dyn Disk,
    settings: &NetworkSettings,
    pod_cidrs: &[String],
) -> Result<Change, NetworkError> {
    let content = cni_config(pod_cidrs, &settings.bridge);
    let path = settings.cni_config.as_path();
    let write = FileWrite { path, mode: CNI_CONFIG_MODE, owner: None, content: content.as_bytes() };
    if files::matches(disk, &write)? == Difference::Same {
        return Ok(Change::AlreadySo);
    }
    files::write_durable(disk, path, CNI_CONFIG_MODE, content.as_bytes(), None)?;
    Ok(Change::Written)
}
