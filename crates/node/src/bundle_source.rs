//! Finds and reads the bundle that was delivered to this node: itself, or by a stub that says where it lies.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use bundle::{BUNDLE_PATH, Bundle, BundleError, MAX_BUNDLE_BYTES, Payload, PayloadError, Stub};
use engine::{ErrorClass, StepError};
use fetch::{FetchError, Network, Notice, Patience, Request};
use host::disk::{Disk, DiskError, Kind};

use crate::buckets::{BucketError, Buckets};
use crate::failure::chain;
use crate::kept;
use crate::platform::{PlatformError, PlatformSource};
use crate::session::NodeHost;
use crate::timekeeping::WrongClock;

/// Larger than any user data: a bundle beyond it is a mistake.
const BUNDLE_LIMIT: u64 = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum BundleSourceError {
    #[error(
        "there is no bundle at {path:?}; deliver one (nodestrap render FILE --group NAME), or name it with --bundle"
    )]
    Absent { path: String },
    #[error("cannot read the bundle")]
    Read(#[from] DiskError),
    #[error("the bundle at {path:?} cannot be used")]
    Broken { path: String, source: PayloadError },
    #[error("the bundle {} has not been fetched yet from {}", .stub.digest, shown(&.stub.urls))]
    NotFetched { stub: Box<Stub> },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("cannot fetch the bundle from {}", shown(.urls))]
    Bucket { urls: Vec<String>, source: BucketError },
    #[error(transparent)]
    Clock(#[from] WrongClock),
    #[error(transparent)]
    Platform(#[from] PlatformError),
}

impl BundleSourceError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Absent { .. } | Self::Broken { .. } => ErrorClass::WrongInput,
            Self::Read(error) => match error.source.kind() {
                // Something is there that no bundle can be.
                ErrorKind::FileTooLarge
                | ErrorKind::InvalidInput
                | ErrorKind::IsADirectory
                | ErrorKind::NotADirectory => ErrorClass::WrongInput,
                _ => ErrorClass::NeedsOperator,
            },
            Self::Fetch(FetchError::NoMirror { .. } | FetchError::Authorities { .. } | FetchError::Proxy { .. }) => {
                ErrorClass::WrongInput
            }
            Self::Fetch(error) if error.may_pass() => ErrorClass::Transient,
            Self::Fetch(_) => ErrorClass::NeedsOperator,
            Self::Bucket { source, .. } => source.class(),
            Self::Clock(wrong) => wrong.class(),
            Self::NotFetched { .. } => ErrorClass::Transient,
            Self::Platform(error) if error.may_pass() => ErrorClass::Transient,
            Self::Platform(PlatformError::NoUserData { .. } | PlatformError::NotOurs { .. }) => ErrorClass::WrongInput,
            Self::Platform(_) => ErrorClass::NeedsOperator,
        }
    }
}

impl From<BundleSourceError> for StepError {
    fn from(error: BundleSourceError) -> Self {
        match error {
            BundleSourceError::Clock(wrong) => wrong.into_step_error(),
            error => Self::new(error.class(), chain(&error)),
        }
    }
}

/// A bundle, and how it came.
#[derive(Clone)]
pub struct Delivered {
    pub bundle: Bundle,
    /// The file or the address that the bundle, or the stub that names it, was read from.
    pub source: String,
    pub(crate) way: Way,
    pub(crate) named: Named,
}

/// Who named a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The node's own delivery: its file, or the platform's user data.
    ByDelivery,
    /// Whoever runs the command: once accepted, it becomes the node's own.
    ByHand,
}

impl Delivered {
    /// As whoever runs the command named it.
    pub fn by_hand(self) -> Self {
        Self { named: Named::ByHand, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It lies where it was delivered, or is kept with what the platform said.
    Direct,
    /// From a store, just now: only in memory.
    Fetched,
    /// From a store, by an earlier run.
    Kept,
}

impl From<Bundle> for Delivered {
    fn from(bundle: Bundle) -> Self {
        Self { bundle, source: "given".to_owned(), way: Way::Direct, named: Named::ByDelivery }
    }
}

/// Gets the bundle that a stub names, verified.
pub type FetchBundle<'a> = &'a dyn Fn(&Stub) -> Result<Bundle, BundleSourceError>;

/// A `bundle.json`, a folder as `render --format folder` writes it, or a stub. What a stub names is taken from the copy that
/// an earlier run kept on the node, or else fetched; without `fetch` nobody is asked. Writes nothing: [`crate::apply`] keeps
/// what was fetched.
pub fn load_bundle(
    delivery: &dyn Disk,
    path: &Path,
    node: &dyn Disk,
    fetch: Option<FetchBundle<'_>>,
) -> Result<Delivered, BundleSourceError> {
    let absent = || BundleSourceError::Absent { path: path.display().to_string() };
    let broken = |source| BundleSourceError::Broken { path: path.display().to_string(), source };
    let source = path.display().to_string();
    let found = delivery.stat(path)?.ok_or_else(absent)?;
    if found.kind == Kind::Folder {
        return load_folder(delivery, path).map(|bundle| Delivered {
            bundle,
            source,
            way: Way::Direct,
            named: Named::ByDelivery,
        });
    }
    let bytes = delivery.read(path, BUNDLE_LIMIT)?.ok_or_else(absent)?;
    open_payload(Payload::parse(&bytes).map_err(broken)?, source, node, fetch)
}

/// The same from the user data of the platform, for a node that got no file. Without `fetch` nobody is asked: only what an
/// earlier run kept counts. A machine on no platform has no bundle.
pub fn load_platform_bundle(
    host: &NodeHost,
    fetch: Option<FetchBundle<'_>>,
    tell: &dyn Fn(&str),
) -> Result<Delivered, BundleSourceError> {
    let absent = || BundleSourceError::Absent { path: BUNDLE_PATH.to_owned() };
    let found = match fetch {
        None => host.platform.kept_payload().ok_or_else(absent)?,
        Some(_) => host.platform.payload(tell).map_err(|error| match error {
            PlatformError::NoUserData { platform, .. } if platform == cloud::Platform::Metal.name() => absent(),
            other => other.into(),
        })?,
    };
    open_payload(found.payload, found.source, host.disk.as_ref(), fetch)
}

fn open_payload(
    payload: Payload,
    source: String,
    node: &dyn Disk,
    fetch: Option<FetchBundle<'_>>,
) -> Result<Delivered, BundleSourceError> {
    let named = Named::ByDelivery;
    let stub = match payload {
        Payload::Bundle(bundle) => return Ok(Delivered { bundle: *bundle, source, way: Way::Direct, named }),
        Payload::Stub(stub) => stub,
    };
    if let Some(bundle) = kept::load(node, &stub)? {
        return Ok(Delivered { bundle, source, way: Way::Kept, named });
    }
    let Some(fetch) = fetch else { return Err(BundleSourceError::NotFetched { stub: Box::new(stub) }) };
    Ok(Delivered { bundle: fetch(&stub)?, source, way: Way::Fetched, named })
}

fn load_folder(disk: &dyn Disk, path: &Path) -> Result<Bundle, BundleSourceError> {
    let manifest_path = path.join("manifest.json");
    let manifest = disk
        .read(&manifest_path, BUNDLE_LIMIT)?
        .ok_or_else(|| BundleSourceError::Absent { path: manifest_path.display().to_string() })?;
    let mut trouble = None;
    let bundle = Bundle::from_folder(&manifest, |relative| {
        disk.read(&path.join(relative), BUNDLE_LIMIT).unwrap_or_else(|error| {
            trouble.get_or_insert(error);
            None
        })
    });
    let broken =
        |source: BundleError| BundleSourceError::Broken { path: path.display().to_string(), source: source.into() };
    match trouble {
        Some(error) => Err(error.into()),
        None => bundle.map_err(broken),
    }
}

/// Asks the stores of a stub, in their order, for as long as `deadline`; the platform for what opens those in buckets.
pub fn fetch_bundle(
    stub: &Stub,
    platform: &PlatformSource,
    deadline: Duration,
    random: &dyn Fn() -> u64,
    tell: &dyn Fn(&str),
) -> Result<Bundle, BundleSourceError> {
    let (in_buckets, on_the_web): (Vec<_>, Vec<_>) = stub.urls.iter().cloned().partition(|url| is_in_bucket(url));
    let place = stub.s3.as_deref().filter(|_| !in_buckets.is_empty());
    let (buckets, urls) = match place.map(|place| Buckets::open(place, platform, tell)).transpose() {
        Ok(buckets) => (buckets, &stub.urls),
        Err(source) if on_the_web.is_empty() => return Err(BundleSourceError::Bucket { urls: in_buckets, source }),
        // A mirror may be there for this very case.
        Err(error) => {
            tell(&chain(&error));
            (None, &on_the_web)
        }
    };
    let request = Request {
        what: &format!("bundle {}", stub.digest),
        urls,
        network: Network {
            authorities: stub.certificate_authorities.as_deref(),
            s3: buckets.as_ref().map(Buckets::s3),
            ..Network::default()
        },
        limit: MAX_BUNDLE_BYTES,
        patience: Patience::new(deadline),
        random,
        tell: &|notice: &Notice<'_>| tell(&notice.to_string()),
    };
    Ok(fetch::fetch(&request, |bytes| stub.accept(bytes))?)
}

fn is_in_bucket(url: &str) -> bool {
    url.starts_with("s3://")
}

fn shown(urls: &[String]) -> String {
    urls.iter().map(|url| fetch::redacted(url)).collect::<Vec<_>>().join(", ")
}
