//! Artefacts from where a bundle says that they are: mirrors, buckets, folders of the machine.

use std::sync::Arc;

use bundle::{Artefact, Downloads};
use engine::{ErrorClass, StepError};
use fetch::{Digest, DigestError, Download, FetchError, Network, Notice, Patience, Proxy, Sink, Slowest};
use host::disk::Disk;
use host::machine::random_u64;

use super::{Artefacts, Order, sink_error};
use crate::buckets::{BucketError, Buckets};
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
        let open = |place| Buckets::open(place, &self.platform, &|line| tell(line.to_owned()));
        let buckets = s3.as_ref().filter(|_| needs_store).map(open).transpose();
        let buckets = buckets.map_err(|error| bucket_error(&error))?;
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
                s3: buckets.as_ref().map(Buckets::s3),
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

fn bucket_error(error: &BucketError) -> StepError {
    StepError::new(error.class(), chain(error))
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
