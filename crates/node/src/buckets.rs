//! How buckets are reached, and what opens them: a key that came with the bundle or the stub, or the role of the machine.

use std::time::{Duration, SystemTime};

use bundle::{S3 as Place, S3Credentials};
use engine::ErrorClass;
use fetch::{Credentials, S3, S3Settings, Secret, Style};
use host::machine::LinuxClock;

use crate::platform::{PlatformError, PlatformSource};

#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    #[error("cannot get the credentials of the instance role, by which the bucket is opened")]
    Role(#[source] PlatformError),
    #[error(
        "the bucket is opened by the instance role, and this machine has none; give the instance a role that may read the \
         bucket (s3:GetObject), or put a key into the spec: s3.credentials"
    )]
    NoRole,
}

impl BucketError {
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Role(error) if error.may_pass() => ErrorClass::Transient,
            Self::Role(_) | Self::NoRole => ErrorClass::NeedsOperator,
        }
    }
}

/// Where buckets are, and who asks. No `Debug`: it holds secrets.
pub(crate) struct Buckets {
    settings: S3Settings,
    credentials: Credentials,
}

impl Buckets {
    /// Asks the platform if the role is what opens them; `tell` hears of every attempt that failed.
    pub(crate) fn open(place: &Place, platform: &PlatformSource, tell: &dyn Fn(&str)) -> Result<Self, BucketError> {
        let credentials = match &place.credentials {
            S3Credentials::Key { access_key, secret_key, session_token } => Credentials {
                access_key: access_key.clone(),
                secret_key: Secret::new(secret_key.expose()),
                session_token: session_token.as_ref().map(|token| Secret::new(token.expose())),
            },
            S3Credentials::InstanceRole {} => {
                let found = platform.role_credentials(tell).map_err(BucketError::Role)?;
                found.ok_or(BucketError::NoRole)?
            }
        };
        let settings = S3Settings {
            region: place.region.clone(),
            endpoint: place.endpoint.clone(),
            style: if place.path_style { Style::Path } else { Style::Host },
        };
        Ok(Self { settings, credentials })
    }

    pub(crate) fn s3(&self) -> S3<'_> {
        S3 { settings: &self.settings, credentials: Some(&self.credentials), now: &now }
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(LinuxClock::new().now_ms())
}
