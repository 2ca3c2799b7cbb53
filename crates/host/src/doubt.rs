//! Doubt: a sync failed in this boot, so what the kernel shows need not be on the disk.
//!
//! After a failed write the kernel keeps the bytes in its page cache and calls them clean: every reader sees them, no later
//! sync writes them, and a power cut takes them away. So a file that compares equal says nothing any more. The doubt is
//! remembered in [`DOUBT_PATH`], which is lost with the boot as the page cache is. Meanwhile files are written anew and not
//! compared, until all of them were read from the disk itself; then the doubt is settled for those who did that.

use std::io::ErrorKind;
use std::path::Path;

use crate::disk::{Disk, DiskError};
use crate::files::{self, FileError};

/// Lost at a reboot, as it should be.
pub const DOUBT_PATH: &str = "/run/nodestrap/failed-sync";

/// No secrets inside.
const MODE: u32 = 0o644;
const LIMIT: u64 = 4096;
const UNSETTLED: &str = "a sync failed in this boot: what can be read need not be on the disk\n";

/// From now on nothing that can be read counts as written.
pub fn cast(disk: &(impl Disk + ?Sized)) {
    let path = Path::new(DOUBT_PATH);
    // A machine that cannot even write to memory has nowhere to remember it; the error that led here is told in any case.
    if let Some(folder) = path.parent() {
        let _ = disk.make_folder(folder, 0o755);
    }
    let _ = disk.remove(path);
    let _ = disk.create(path, MODE, UNSETTLED.as_bytes());
}

/// Casts doubt if a sync has failed; one that could not even begin says nothing about what was written.
pub(crate) fn cast_by(disk: &(impl Disk + ?Sized), synced: Result<(), DiskError>) -> Result<(), DiskError> {
    let could_not_begin = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];
    synced.inspect_err(|error| {
        if !could_not_begin.contains(&error.source.kind()) {
            cast(disk);
        }
    })
}

/// Whether `who` must not trust what can be read.
pub fn is_cast(disk: &dyn Disk, who: &str) -> Result<bool, DiskError> {
    let remembered = disk.read(Path::new(DOUBT_PATH), LIMIT)?;
    Ok(remembered.is_some_and(|remembered| remembered != settled_by(who)))
}

/// `who` has written everything anew since, and read it from the disk itself.
pub fn settle(disk: &dyn Disk, who: &str) -> Result<(), FileError> {
    match is_cast(disk, who)? {
        true => files::write_volatile(disk, Path::new(DOUBT_PATH), MODE, &settled_by(who)),
        false => Ok(()),
    }
}

fn settled_by(who: &str) -> Vec<u8> {
    format!("{UNSETTLED}since then written anew and read from the disk: {who}\n").into_bytes()
}
