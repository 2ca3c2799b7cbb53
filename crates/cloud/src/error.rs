//! Why a platform said nothing that could be used, and what to do about it.

use fetch::{Ending, FetchError, NoAnswer};
use host::disk::DiskError;
use host::volumes::VolumeError;

use crate::nocloud::MetaDataError;

#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    #[error("cannot read what this machine says about its platform")]
    Read(#[from] DiskError),
    #[error("cannot read a volume of the platform")]
    Volume(#[from] VolumeError),
    #[error(
        "{path:?} names the platform {found:?}; it must be one of auto, aws, gce, azure, openstack, nocloud and metal, \
         and may be followed by the http address of a metadata service"
    )]
    Setting { path: &'static str, found: String },
    #[error("this machine is said to run on {platform}, but has none of its files; looked at {looked_at}")]
    NoSeed { platform: &'static str, looked_at: String },
    #[error("the NoCloud meta-data in {path:?} cannot be understood; it must be YAML with an instance-id")]
    MetaData { path: String, source: MetaDataError },
    #[error("{path:?} of the config drive cannot be understood: {problem}; attach the drive as the platform made it")]
    Drive { path: String, problem: String },
    #[error("the metadata service of {platform} did not tell {answer}; {advice}")]
    Service { platform: &'static str, answer: Box<NoAnswer>, advice: &'static str },
    #[error("the metadata service of {platform} cannot be asked")]
    Transport { platform: &'static str, source: FetchError },
}

impl CloudError {
    /// Whether the same attempt may succeed later without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Service { answer, .. } => answer.ending == Ending::TimeOver,
            Self::Transport { source, .. } => source.may_pass(),
            Self::Volume(error) => error.may_pass(),
            Self::Read(_) | Self::Setting { .. } | Self::NoSeed { .. } | Self::MetaData { .. } | Self::Drive { .. } => {
                false
            }
        }
    }
}
