//! Mounts of a lab, all below its folder, so that what a crash left can be found in `/proc/self/mountinfo`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, unmount};

use crate::wait::wait_until;

/// The first lower folder is the top one.
pub(crate) fn overlay(lower: &[&Path], upper: &Path, work: &Path, target: &Path) -> Result<()> {
    let joined: Vec<&[u8]> = lower.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let options = [
        b"lowerdir=".as_slice(),
        &joined.join(b":".as_slice()),
        b",upperdir=",
        upper.as_os_str().as_bytes(),
        b",workdir=",
        work.as_os_str().as_bytes(),
    ];
    let options = CString::new(options.concat()).context("a path of the overlay contains a zero byte")?;
    mount("overlay", target, "overlay", MountFlags::empty(), options.as_c_str())
        .with_context(|| format!("mounting the overlay {}", target.display()))
}

/// Nobody can write to it. The first folder is the top one.
pub(crate) fn read_only_overlay(layers: &[PathBuf], target: &Path) -> Result<()> {
    let joined: Vec<&[u8]> = layers.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let options = [b"lowerdir=".as_slice(), &joined.join(b":".as_slice())].concat();
    let options = CString::new(options).context("a path of the overlay contains a zero byte")?;
    mount("overlay", target, "overlay", MountFlags::RDONLY, options.as_c_str())
        .with_context(|| format!("mounting the overlay {}", target.display()))
}

pub(crate) fn bind(source: &Path, target: &Path) -> Result<()> {
    mount_bind_recursive(source, target).with_context(|| format!("binding {}", target.display()))
}

/// Unmounts everything at or below a folder, innermost first.
pub(crate) fn unmount_below(folder: &Path) -> Result<()> {
    for point in mount_points_below(folder)?.iter().rev() {
        // Processes that were just killed may hold it for a moment.
        wait_until(&format!("unmounting {}", point.display()), Duration::from_secs(10), || {
            unmount(point, UnmountFlags::empty()).context("umount").map(Some)
        })
        .or_else(|_| unmount(point, UnmountFlags::DETACH).with_context(|| format!("detaching {}", point.display())))?;
    }
    Ok(())
}

/// In the order in which they were mounted.
pub(crate) fn mount_points_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let table = std::fs::read_to_string("/proc/self/mountinfo").context("reading mountinfo")?;
    Ok(parse_mount_points(&table).into_iter().filter(|point| point.starts_with(&folder)).collect())
}

/// Field 5; blanks in paths are written as octal.
fn parse_mount_points(table: &str) -> Vec<PathBuf> {
    let point = |line: &str| line.split(' ').nth(4).map(|field| field.replace("\\040", " ").into());
    table.lines().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_the_fifth_field_with_blanks_restored() {
        let table = "30 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n31 30 0:40 / /a\\040b rw - overlay overlay rw\n";
        assert_eq!(parse_mount_points(table), [PathBuf::from("/"), PathBuf::from("/a b")]);
    }
}
