//! Where a machine runs, and what that place says about it.
//!
//! Inputs: the machine's files. Outputs: a [`Platform`]. A platform is believed only when it is positively identified;
//! a machine that carries no sign of one is [`Platform::Metal`], and nothing is asked of the network.

mod nocloud;

use host::disk::{Disk, DiskError};

pub use nocloud::parse_meta_data;

/// What the platform says about this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Platform {
    /// cloud-init's NoCloud seed: local files instead of a metadata service.
    NoCloud { instance_id: String, seed: String },
    /// No platform left its mark.
    Metal,
}

#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    #[error("cannot read the NoCloud seed")]
    Read(#[from] DiskError),
    #[error("the NoCloud meta-data in {path:?} cannot be understood; it must be YAML with an instance-id")]
    MetaData { path: String, source: nocloud::MetaDataError },
}

/// Looks for the marks of each known platform.
pub fn identify_platform(disk: &dyn Disk) -> Result<Platform, PlatformError> {
    Ok(nocloud::observe(disk)?.unwrap_or(Platform::Metal))
}
