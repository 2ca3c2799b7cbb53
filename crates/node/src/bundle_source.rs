//! Finds and reads the bundle that was delivered to this node.

use std::path::Path;

use host::disk::{Disk, DiskError, Kind};
use render::bundle::{Bundle, BundleError};

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
    Broken { path: String, source: BundleError },
}

/// A `bundle.json`, or a folder as `render --format folder` writes it.
pub fn load_bundle(disk: &dyn Disk, path: &Path) -> Result<Bundle, BundleSourceError> {
    let name = || path.display().to_string();
    let broken = |source| BundleSourceError::Broken { path: path.display().to_string(), source };
    let found = disk.stat(path)?.ok_or_else(|| BundleSourceError::Absent { path: name() })?;
    if found.kind != Kind::Folder {
        let bytes = disk.read(path, BUNDLE_LIMIT)?.ok_or_else(|| BundleSourceError::Absent { path: name() })?;
        return Bundle::parse(&bytes).map_err(broken);
    }
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
    match trouble {
        Some(error) => Err(error.into()),
        None => bundle.map_err(broken),
    }
}
