//! Volumes that a platform attaches to a machine to tell it something: found by their label, read, and let go.
//!
//! In: the labels wanted. Out: a [`Volume`], whose files are read as those of any disk. Fails with [`VolumeError`], which
//! names the device. Nothing is ever written to a device.
//!
//! Labels are read from the devices themselves, not from the links that udev makes: at an early boot those may be late, and
//! an image may have no udev at all. A device is mounted without a mount point (`fsopen`, `fsmount`): nobody else sees the
//! mount, and it ends with this process, however that ends.

mod label;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen};

use crate::disk::{Disk, DiskError, Kind, RootedDisk};

pub use label::{FileSystem, read_label};

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("cannot list the block devices of this machine")]
    List(#[source] io::Error),
    #[error(
        "cannot mount {device:?} ({file_system}) to read it; the kernel must know the file system, and this process must \
         run as root"
    )]
    Mount { device: String, file_system: &'static str, source: io::Error },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// An opened volume; its files can be read as long as it lives.
pub struct Volume {
    files: Files,
    /// The device, or the folder that stands for it.
    pub name: String,
    pub label: String,
}

enum Files {
    Device(RootedDisk),
    Folder(Arc<dyn Disk>, PathBuf),
}

impl Volume {
    /// As [`Disk::read`]; the path is absolute inside the volume.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        match &self.files {
            Files::Device(disk) => disk.read(path, limit),
            Files::Folder(disk, folder) => disk.read(&folder.join(path.strip_prefix("/").unwrap_or(path)), limit),
        }
    }
}

pub trait Volumes: Send + Sync {
    /// The first volume that carries one of these labels; upper and lower case are the same, as on FAT.
    fn open_labelled(&self, labels: &[&str]) -> Result<Option<Volume>, VolumeError>;
}

/// The block devices of this machine.
pub struct LinuxVolumes;

const BLOCK_DEVICES: &str = "/sys/class/block";
const MOUNTS: &str = "/proc/self/mountinfo";

impl Volumes for LinuxVolumes {
    fn open_labelled(&self, labels: &[&str]) -> Result<Option<Volume>, VolumeError> {
        for device in block_devices().map_err(VolumeError::List)? {
            // A device without a medium, or one that is going away, carries no label.
            let Some((file_system, label)) = label_of(&device).ok().flatten() else { continue };
            if labels.iter().any(|wanted| wanted.eq_ignore_ascii_case(&label)) {
                return open_device(&device, file_system, label).map(Some);
            }
        }
        Ok(None)
    }
}

/// Sorted, so that two volumes with one label are always taken in the same order.
fn block_devices() -> io::Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    match std::fs::read_dir(BLOCK_DEVICES) {
        // A container may show none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(devices),
        Err(error) => return Err(error),
        Ok(entries) => {
            for entry in entries {
                devices.push(Path::new("/dev").join(entry?.file_name()));
            }
        }
    }
    devices.sort();
    Ok(devices)
}

fn label_of(device: &Path) -> io::Result<Option<(FileSystem, String)>> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(nonblocking).open(device)?;
    Ok(read_label(|offset, buffer| file.read_exact_at(buffer, offset).is_ok()))
}

fn open_device(device: &Path, file_system: FileSystem, label: String) -> Result<Volume, VolumeError> {
    let name = device.display().to_string();
    let failed = |source: io::Error| VolumeError::Mount {
        device: device.display().to_string(),
        file_system: file_system.name(),
        source,
    };
    // Two mounts of one device must agree about writing, so one that is there already is used.
    let disk = match mounted_at(device).map_err(failed)? {
        Some(folder) => RootedDisk::open(&folder)?,
        None => RootedDisk::within(mount(device, file_system.name()).map_err(failed)?)?,
    };
    Ok(Volume { files: Files::Device(disk), name, label })
}

/// Read-only, without devices, set-user-id programs or any program at all.
fn mount(device: &Path, file_system: &str) -> io::Result<OwnedFd> {
    let context = fsopen(file_system, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_set_flag(context.as_fd(), "ro")?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn mounted_at(device: &Path) -> io::Result<Option<PathBuf>> {
    let number = std::fs::metadata(device)?.rdev();
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    Ok(parse_mount_point(&std::fs::read_to_string(MOUNTS)?, &number))
}

/// Where the whole of a device is mounted, by its `major:minor`.
fn parse_mount_point(mountinfo: &str, number: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
        (device == number && root == "/").then(|| PathBuf::from(unescape(point)))
    })
}

/// Blanks and their like are written as a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                text.push(char::from(byte));
                text.push_str(part.get(3..).unwrap_or_default());
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

/// For a folder that stands for a machine: `dev/disk/by-label/LABEL` in it is a folder that stands for the volume.
pub struct FolderVolumes {
    disk: Arc<dyn Disk>,
}

const BY_LABEL: &str = "/dev/disk/by-label";

impl FolderVolumes {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }
}

impl Volumes for FolderVolumes {
    fn open_labelled(&self, labels: &[&str]) -> Result<Option<Volume>, VolumeError> {
        for label in self.disk.list(Path::new(BY_LABEL))? {
            let folder = Path::new(BY_LABEL).join(&label);
            let is_wanted = labels.iter().any(|wanted| wanted.eq_ignore_ascii_case(&label));
            if is_wanted && self.disk.stat(&folder)?.is_some_and(|stat| stat.kind == Kind::Folder) {
                let name = folder.display().to_string();
                return Ok(Some(Volume { files: Files::Folder(Arc::clone(&self.disk), folder), name, label }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::fake::FakeDisk;

    #[test]
    fn a_mount_of_the_whole_device_is_found_by_its_number() {
        let mounts = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      30 21 11:0 /openstack /bound ro - iso9660 /dev/sr0 ro\n\
                      31 21 11:0 / /mnt/config\\040drive ro,nosuid - iso9660 /dev/sr0 ro\n";
        assert_eq!(parse_mount_point(mounts, "11:0").unwrap(), Path::new("/mnt/config drive"));
        assert_eq!(parse_mount_point(mounts, "8:1").unwrap(), Path::new("/"));
        assert_eq!(parse_mount_point(mounts, "8:2"), None);
        assert_eq!(parse_mount_point("", "8:2"), None);
    }

    #[test]
    fn a_folder_stands_for_a_volume_whatever_the_case_of_its_label() {
        let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new());
        disk.make_folder(Path::new("/dev/disk/by-label/CIDATA"), 0o755).unwrap();
        disk.create(Path::new("/dev/disk/by-label/CIDATA/meta-data"), 0o644, b"x").unwrap();
        let volumes = FolderVolumes::new(disk);
        let volume = volumes.open_labelled(&["config-2", "cidata"]).unwrap().unwrap();
        assert_eq!(volume.read(Path::new("/meta-data"), 10).unwrap().unwrap(), b"x");
        assert_eq!(volume.read(Path::new("/user-data"), 10).unwrap(), None);
        assert!(volumes.open_labelled(&["config-2"]).unwrap().is_none());
    }

    /// A file as a block device; `None` where that cannot be had (no root, no loop devices).
    struct LoopDevice(PathBuf);

    impl LoopDevice {
        fn new(image: &Path) -> Option<Self> {
            let output = Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(image).output().ok()?;
            let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
            if !output.status.success() || device.is_empty() {
                eprintln!("SKIPPED: no loop device: {}", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Some(Self(PathBuf::from(device)))
        }
    }

    impl Drop for LoopDevice {
        fn drop(&mut self) {
            let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
        }
    }

    #[test]
    fn a_device_is_read_without_a_mount_point() {
        let folder = tempfile::tempdir().unwrap();
        let (content, image) = (folder.path().join("content"), folder.path().join("image"));
        std::fs::create_dir_all(content.join("openstack/latest")).unwrap();
        std::fs::write(content.join("openstack/latest/meta_data.json"), "{}").unwrap();
        File::create(&image).unwrap().set_len(4 << 20).unwrap();
        // Which file system it is makes no difference to the way it is mounted, and every kernel has this one.
        let made =
            Command::new("mkfs.ext4").args(["-q", "-O", "^has_journal", "-d"]).arg(&content).arg(&image).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no mkfs.ext4");
            return;
        }
        let Some(device) = LoopDevice::new(&image) else { return };
        let before = std::fs::read_to_string(MOUNTS).unwrap();
        let disk = RootedDisk::within(mount(&device.0, "ext4").unwrap()).unwrap();
        let path = Path::new("/openstack/latest/meta_data.json");
        assert_eq!(disk.read(path, 10).unwrap().unwrap(), b"{}");
        let refused = disk.create(Path::new("/new"), 0o644, b"").unwrap_err();
        assert_eq!(refused.source.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()), "{refused}");
        assert_eq!(std::fs::read_to_string(MOUNTS).unwrap(), before, "nobody sees the mount");
        assert_eq!(mounted_at(&device.0).unwrap(), None);
    }

    #[test]
    fn a_labelled_device_is_found_and_one_that_cannot_be_mounted_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        // A label of its own, so that no other device is found; a boot sector alone is no file system.
        let label = format!("NT{:09}", std::process::id());
        let mut bytes = vec![0; 1 << 20];
        bytes[43..54].copy_from_slice(label.as_bytes());
        bytes[54..62].copy_from_slice(b"FAT12   ");
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(&image, &bytes).unwrap();
        let Some(device) = LoopDevice::new(&image) else { return };
        let error = LinuxVolumes.open_labelled(&[&label.to_lowercase()]).err().expect("no file system");
        let said = error.to_string();
        assert!(said.contains(&device.0.display().to_string()) && said.contains("vfat"), "{said}");
        assert!(LinuxVolumes.open_labelled(&["nodestrap-none"]).unwrap().is_none());
    }
}
