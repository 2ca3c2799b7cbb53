//! Finds and reads the bundle that was delivered to this node: itself, or by a stub that says where it lies.

use std::path::Path;
use std::time::Duration;

use engine::ErrorClass;
use fetch::{FetchError, Notice, Patience, Request};
use host::disk::{Disk, DiskError, Kind};
use render::bundle::{Bundle, MAX_BUNDLE_BYTES};
use render::{Payload, PayloadError, Stub};

use crate::kept;
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
    #[error(transparent)]
    Clock(#[from] WrongClock),
}

impl BundleSourceError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Absent { .. } | Self::Read(_) | Self::Broken { .. } => ErrorClass::WrongInput,
            Self::Fetch(FetchError::NoMirror { .. } | FetchError::Authorities { .. }) => ErrorClass::WrongInput,
            Self::Fetch(error) if error.may_pass() => ErrorClass::Transient,
            Self::Fetch(_) => ErrorClass::NeedsOperator,
            Self::NotFetched { .. } | Self::Clock(_) => ErrorClass::Transient,
        }
    }
}

/// A bundle, and how it came.
#[derive(Clone)]
pub struct Delivered {
    pub bundle: Bundle,
    pub(crate) way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It lies where it was delivered.
    Direct,
    /// From a store, just now: only in memory.
    Fetched,
    /// From a store, by an earlier run.
    Kept,
}

impl From<Bundle> for Delivered {
    fn from(bundle: Bundle) -> Self {
        Self { bundle, way: Way::Direct }
    }
}

/// Gets the bundle that a stub names, verified.
pub type FetchBundle<'a> = &'a dyn Fn(&Stub) -> Result<Bundle, FetchError>;

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
    let found = delivery.stat(path)?.ok_or_else(absent)?;
    if found.kind == Kind::Folder {
        return load_folder(delivery, path).map(Delivered::from);
    }
    let bytes = delivery.read(path, BUNDLE_LIMIT)?.ok_or_else(absent)?;
    let stub = match Payload::parse(&bytes).map_err(broken)? {
        Payload::Bundle(bundle) => return Ok(Delivered::from(*bundle)),
        Payload::Stub(stub) => stub,
    };
    if let Some(bundle) = kept::load(node, &stub)? {
        return Ok(Delivered { bundle, way: Way::Kept });
    }
    let Some(fetch) = fetch else { return Err(BundleSourceError::NotFetched { stub: Box::new(stub) }) };
    Ok(Delivered { bundle: fetch(&stub)?, way: Way::Fetched })
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
    let broken = |source: render::BundleError| BundleSourceError::Broken {
        path: path.display().to_string(),
        source: source.into(),
    };
    match trouble {
        Some(error) => Err(error.into()),
        None => bundle.map_err(broken),
    }
}

/// Asks the stores of a stub, in their order, for as long as `deadline`.
pub fn fetch_bundle(
    stub: &Stub,
    deadline: Duration,
    random: &dyn Fn() -> u64,
    tell: &dyn Fn(&Notice<'_>),
) -> Result<Bundle, FetchError> {
    let request = Request {
        what: &format!("bundle {}", stub.digest),
        urls: &stub.urls,
        authorities: stub.certificate_authorities.as_deref(),
        limit: MAX_BUNDLE_BYTES,
        patience: Patience::new(deadline),
        random,
        tell,
    };
    fetch::fetch(&request, |bytes| stub.accept(bytes))
}

fn shown(urls: &[String]) -> String {
    urls.iter().map(|url| fetch::redacted(url)).collect::<Vec<_>>().join(", ")
}
