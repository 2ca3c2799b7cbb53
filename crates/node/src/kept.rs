//! Bundles that were fetched from a store, kept on the node, so that a reboot or a rerun asks nobody.
//!
//! Each lies under the digits of its digest. It is verified whenever it is read, and one that is damaged counts as absent.

use std::path::{Path, PathBuf};

use bundle::{Bundle, Digest, MAX_BUNDLE_BYTES, Stub};
use host::disk::{Disk, DiskError};
use host::files::{self, FileError};

use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub const KEPT_BUNDLES_FOLDER: &str = "/var/lib/nodestrap/bundles";
/// A bundle holds a secret.
const KEPT_BUNDLE_MODE: u32 = 0o600;

fn place(digest: &Digest) -> PathBuf {
    Path::new(KEPT_BUNDLES_FOLDER).join(Stub::object_name(digest))
}

/// The very bundle that the stub names, if it is here and whole. Reads only.
pub(crate) fn load(disk: &dyn Disk, stub: &Stub) -> Result<Option<Bundle>, DiskError> {
    let path = place(&stub.digest);
    // What is larger than a bundle may be is not one, and is no reason to stop.
    let fits = disk.stat(&path)?.is_some_and(|stat| stat.size <= MAX_BUNDLE_BYTES as u64);
    let bytes = if fits { disk.read(&path, MAX_BUNDLE_BYTES as u64)? } else { None };
    Ok(bytes.and_then(|bytes| stub.accept(&bytes).ok()))
}

/// Durable when it returns.
pub(crate) fn keep(disk: &dyn Disk, bundle: &Bundle) -> Result<(), FileError> {
    for folder in [STATE_FOLDER, KEPT_BUNDLES_FOLDER] {
        files::make_folder_durable(disk, Path::new(folder), STATE_FOLDER_MODE)?;
    }
    files::write_durable(disk, &place(&bundle.digest()), KEPT_BUNDLE_MODE, bundle.to_json().as_bytes(), None)
}

/// Seen is not durable: the run that wrote the copy may have been killed before its last sync.
pub(crate) fn make_durable(disk: &dyn Disk, bundle: &Bundle) -> Result<(), FileError> {
    let path = place(&bundle.digest());
    disk.sync_file(&path)?;
    for folder in path.ancestors().skip(1) {
        disk.sync_folder(folder)?;
    }
    Ok(())
}

/// Removes every copy but that of one bundle, and what interrupted writes left.
pub(crate) fn forget_others(disk: &dyn Disk, bundle: &Bundle) -> Result<(), FileError> {
    let own = Stub::object_name(&bundle.digest());
    for name in disk.list(Path::new(KEPT_BUNDLES_FOLDER))? {
        if name != own {
            files::remove_durable(disk, &Path::new(KEPT_BUNDLES_FOLDER).join(name))?;
        }
    }
    Ok(())
}
