//! Artefacts from where a bundle says that they are: mirrors, buckets, folders of the machine.

use std::convert::Infallible;
use std::sync::Arc;

use bundle::Downloads;
use engine::{ErrorClass, StepError};
use fetch::{Digest, DigestError, Download, FetchError, Network, Notice, Patience, Proxy, Request, Sink, Slowest};
use host::disk::Disk;
use host::machine::random_u64;

use super::{Artefacts, Errand, Order, sink_error};
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
    fn disk_with(&self, places: &[String]) -> &dyn Disk {
        let mut paths = places.iter().filter_map(|place| place.strip_prefix(FILE));
        let is_in_node = |path: &str| self.node.stat(std::path::Path::new(path)).is_ok_and(|found| found.is_some());
        if paths.any(is_in_node) { self.node.as_ref() } else { self.here.as_ref() }
    }

    /// Does something over the network as the bundle says that it is reached.
    fn over_network<T>(
        &self,
        downloads: &Downloads,
        places: &[String],
        tell: &dyn Fn(String),
        act: impl FnOnce(Network<'_>) -> Result<T, FetchError>,
    ) -> Result<T, StepError> {
        let Downloads { certificate_authorities, proxy, no_proxy, s3, .. } = downloads;
        let proxy = proxy.as_ref().map(|url| Proxy::new(url.expose(), no_proxy)).transpose();
        let proxy = proxy.map_err(|error| fetch_error(&error))?;
        let needs_store = places.iter().any(|place| place.starts_with(S3_SCHEME));
        let open = |place| Buckets::open(place, &self.platform, &|line| tell(line.to_owned()));
        let buckets = s3.as_ref().filter(|_| needs_store).map(open).transpose();
        let buckets = buckets.map_err(|error| bucket_error(&error))?;
        act(Network {
            authorities: certificate_authorities.as_deref(),
            proxy: proxy.as_ref(),
            s3: buckets.as_ref().map(Buckets::s3),
            disk: Some(self.disk_with(places)),
        })
        .map_err(|error| fetch_error(&error))
    }

    fn run_errand<T>(
        &self,
        errand: &Errand<'_>,
        act: impl FnOnce(&Request<'_>) -> Result<T, FetchError>,
    ) -> Result<T, StepError> {
        let Errand { what, places, downloads, limit, patience, tell } = errand;
        self.over_network(downloads, places, tell, |network| {
            act(&Request {
                what,
                urls: places,
                network,
                limit: *limit,
                patience: Patience::new(*patience),
                random: &random_u64,
                tell: &|notice| tell(notice.to_string()),
            })
        })
    }
}

impl Artefacts for NetworkArtefacts {
    fn read(&self, errand: &Errand<'_>) -> Result<Vec<u8>, StepError> {
        self.run_errand(errand, |request| fetch::fetch(request, |bytes| Ok::<_, Infallible>(bytes.to_vec())))
    }

    fn size(&self, errand: &Errand<'_>) -> Result<u64, StepError> {
        self.run_errand(errand, fetch::announced_size)
    }

    fn download(&self, order: &Order<'_>, sink: &mut dyn Sink) -> Result<Option<String>, StepError> {
        let Order { what, artefact, downloads, without, mixing, patience, tell } = order;
        let digest: Digest = artefact
            .digest
            .as_str()
            .parse()
            .map_err(|error: DigestError| StepError::permanent(format!("{what}: {error}")))?;
        let told = std::cell::Cell::new(0);
        let tell_some = |notice: &Notice<'_>| {
            if let Notice::Progress { bytes, of, .. } = notice {
                let part = bytes.saturating_mul(TOLD) / (*of).max(1);
                if told.replace(part) == part {
                    return;
                }
            }
            tell(notice.to_string());
        };
        self.over_network(downloads, &artefact.places, tell, |network| {
            let request = Download {
                what,
                places: &artefact.places,
                without,
                size: artefact.size,
                digest,
                mixing: *mixing,
                network,
                patience: Patience::of_download(*patience),
                slowest: Slowest::default(),
                random: &random_u64,
                tell: &tell_some,
            };
            fetch::download(&request, sink).map(|completed| completed.all_from.map(str::to_owned))
        })
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
