//! Artefacts from where a bundle says that they are: mirrors, buckets, folders of the machine.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bundle::{Artefact, Downloads, S3 as StoreOfBundle, S3Credentials};
use engine::{ErrorClass, StepError};
use fetch::{
    Credentials, Digest, DigestError, Download, FetchError, Network, Notice, Patience, Proxy, S3, S3Settings, Secret,
    Sink, Slowest, Style,
};
use host::disk::Disk;
use host::machine::{LinuxClock, random_u64};

use super::{Artefacts, Order, sink_error};
use crate::failure::chain;
use crate::platform::PlatformSource;

const FILE: &str = "file://";
const S3_SCHEME: &str = "s3://";
/// Of a hundred notices about the progress of a download, people want to see ten.
const TOLD: u64 = 10;

/// The network, and the machine that a command runs on.
pub struct NetworkArtefacts {
    node: Arc<dyn Disk>,
    here: Arc<dyn Disk>,
    platform: Arc<PlatformSource>,
}

impl NetworkArtefacts {
    /// `here` is where the command runs: if a folder stands for a machine, files that are not below it are looked for there.
    pub fn new(node: Arc<dyn Disk>, here: Arc<dyn Disk>, platform: Arc<PlatformSource>) -> Self {
        Self { node, here, platform }
    }

    /// Local files are those of the node; what nobody put into a folder that stands for one may lie outside.
    fn disk_with(&self, artefact: &Artefact) -> &dyn Disk {
        let mut paths = artefact.places.iter().filter_map(|place| place.strip_prefix(FILE));
        let is_in_node = |path: &str| self.node.stat(std::path::Path::new(path)).is_ok_and(|found| found.is_some());
        if paths.any(is_in_node) { self.node.as_ref() } else { self.here.as_ref() }
    }

    fn credentials(&self, store: &StoreOfBundle, tell: &dyn Fn(String)) -> Result<Option<Credentials>, StepError> {
        match &store.credentials {
            S3Credentials::Key { access_key, secret_key, session_token } => Ok(Some(Credentials {
                access_key: access_key.clone(),
                secret_key: Secret::new(secret_key.expose()),
                session_token: session_token.as_ref().map(|token| Secret::new(token.expose())),
            })),
            S3Credentials::InstanceRole {} => {
                let found = self.platform.role_credentials(&|line| tell(line.to_owned())).map_err(|error| {
                    let class = if error.may_pass() { ErrorClass::Transient } else { ErrorClass::NeedsOperator };
                    StepError::new(class, format!("the credentials of the instance role: {}", chain(&error)))
                })?;
                found.map(Some).ok_or_else(|| {
                    StepError::needs_operator("the store is opened by the instance role, and this machine has none")
                        .with_advice("give the instance a role that may read the bucket, or put a key into the spec")
                })
            }
        }
    }
}

impl Artefacts for NetworkArtefacts {
    fn download(&self, order: &Order<'_>, sink: &mut dyn Sink) -> Result<Option<String>, StepError> {
        let Order { what, artefact, downloads, without, mixing, patience, tell } = order;
        let Downloads { certificate_authorities, proxy, no_proxy, s3, .. } = downloads;
        let digest: Digest = artefact
            .digest
            .as_str()
            .parse()
            .map_err(|error: DigestError| StepError::permanent(format!("{what}: {error}")))?;
        let proxy = proxy.as_ref().map(|url| Proxy::new(url.expose(), no_proxy)).transpose();
        let proxy = proxy.map_err(|error| fetch_error(&error))?;
        let needs_store = artefact.places.iter().any(|place| place.starts_with(S3_SCHEME));
        let store = s3.as_ref().filter(|_| needs_store);
        let settings = store.map(settings);
        let credentials = store.map(|store| self.credentials(store, tell)).transpose()?.flatten();
        let now = || SystemTime::UNIX_EPOCH + Duration::from_millis(LinuxClock::new().now_ms());
        let told = std::cell::Cell::new(0);
        let request = Download {
            what,
            places: &artefact.places,
            without,
            size: artefact.size,
            digest,
            mixing: *mixing,
            network: Network {
                authorities: certificate_authorities.as_deref(),
                proxy: proxy.as_ref(),
                s3: settings.as_ref().map(|settings| S3 { settings, credentials: credentials.as_ref(), now: &now }),
                disk: Some(self.disk_with(artefact)),
            },
            patience: Patience::of_download(*patience),
            slowest: Slowest::default(),
            random: &random_u64,
            tell: &|notice| {
                if let Notice::Progress { bytes, of, .. } = notice {
                    let part = bytes.saturating_mul(TOLD) / (*of).max(1);
                    if told.replace(part) == part {
                        return;
                    }
                }
                tell(notice.to_string());
            },
        };
        let completed = fetch::download(&request, sink).map_err(|error| fetch_error(&error))?;
        Ok(completed.all_from.map(str::to_owned))
    }
}

fn settings(store: &StoreOfBundle) -> S3Settings {
    S3Settings {
        region: store.region.clone(),
        endpoint: store.endpoint.clone(),
        style: if store.path_style { Style::Path } else { Style::Host },
    }
}

/// The error says itself what to do.
fn fetch_error(error: &FetchError) -> StepError {
    let class = match error {
        FetchError::Sink { source, .. } => {
            return StepError { message: chain(error), ..sink_error(source) };
        }
        error if error.may_pass() => ErrorClass::Transient,
        _ => ErrorClass::NeedsOperator,
    };
    StepError::new(class, chain(error))
}
