//! Where a machine runs, and what that place says about it.
//!
//! In: the machine's files and volumes, and for how long the platform may be asked. Out: which platform this is
//! ([`identify`]), then what it says ([`ask`]): a few values, each with its source, and the user data. Fails with
//! [`CloudError`], which names the source, how long it was waited for and what to do.
//!
//! A platform is believed only when it is positively identified, by a setting, the firmware's words or a volume; a machine
//! that carries no sign of one is [`Platform::Metal`], and nothing is asked of the network. Every value is checked for
//! its form before it counts: a login page with status 200 never becomes an instance id.

mod aws;
mod azure;
mod dmi;
mod error;
mod gce;
mod identify;
mod identity;
mod nocloud;
mod openstack;
mod role;
mod service;
mod words;

use std::time::Duration;

use host::disk::Disk;
use serde::{Deserialize, Serialize};

pub use error::CloudError;
pub use identify::{Identified, PLATFORM_SETTING, identify};
pub use identity::{has_ipv4, machine_key};
pub use nocloud::{MetaData, MetaDataError, parse_meta_data};
pub use role::{RoleCredentials, role_credentials};

/// Largest user data of any platform (GCE's 256 KiB) in base64, with room for what surrounds it.
pub(crate) const USER_DATA_LIMIT: usize = 512 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    Aws,
    Gce,
    Azure,
    OpenStack,
    /// cloud-init's own: local files instead of a metadata service.
    NoCloud,
    /// No platform left its mark.
    Metal,
}

impl Platform {
    pub fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gce => "gce",
            Self::Azure => "azure",
            Self::OpenStack => "openstack",
            Self::NoCloud => "nocloud",
            Self::Metal => "metal",
        }
    }
}

/// A value and where the platform says it. Empty where it does not, with the place that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    pub value: String,
    pub source: String,
}

impl Said {
    pub(crate) fn new(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self { value: value.into(), source: source.into() }
    }

    pub(crate) fn nothing(source: &str) -> Self {
        Self::new("", source)
    }
}

/// What the platform says about this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// With what it was recognised by.
    pub platform: Said,
    pub instance_id: Said,
    pub instance_type: Said,
    pub local_ipv4: Said,
    pub region: Said,
    pub zone: Said,
}

/// It may hold a secret, and is shown to nobody.
#[derive(Clone)]
pub struct UserData {
    pub bytes: Vec<u8>,
    pub source: String,
}

/// All that was asked for.
pub struct Answered {
    pub metadata: Metadata,
    /// `None` if there is none, or if nobody wanted it.
    pub user_data: Option<UserData>,
    pub extent: Extent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that the platform has to say.
    Whole,
    /// What the machine itself knows, since the platform refuses to say more: not worth keeping.
    Firmware,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Facts,
    FactsAndUserData,
}

/// How the platform is asked.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// For all questions together.
    pub deadline: Duration,
    /// Uniform over all of `u64`: for the jitter between attempts.
    pub random: &'a dyn Fn() -> u64,
    /// Told of every attempt that failed.
    pub tell: &'a dyn Fn(&str),
}

/// Reads what the identified platform says: from its seed or its volume, or else over the network.
pub fn ask(
    identified: &Identified,
    disk: &dyn Disk,
    wanted: Wanted,
    asking: &Asking<'_>,
) -> Result<Answered, CloudError> {
    match identified.platform {
        Platform::Aws => aws::ask(identified, disk, wanted, asking),
        Platform::Gce => gce::ask(identified, wanted, asking),
        Platform::Azure => azure::ask(identified, wanted, asking),
        Platform::OpenStack => openstack::ask(identified, wanted, asking),
        Platform::NoCloud => nocloud::read(identified, disk, wanted),
        Platform::Metal => {
            Ok(Answered { metadata: identified.nothing_said(&identified.by), user_data: None, extent: Extent::Whole })
        }
    }
}
