//! Volumes that a platform attaches to a machine to tell it something: found by their label, read, and let go.
//!
//! In: what is [`Sought`]. Out: a [`Search`], with the [`Volume`] if there is one, whose files are read as those of any disk.
//! Fails with [`VolumeError`], which names the devices. Nothing is ever written to a device.
//!
//! Whoever writes a label writes what a machine believes, so two volumes that fit are refused, and devices that software of
//! the machine itself can make are not looked at (see `devices`).
//!
//! Labels are read from the devices themselves, not from the links that udev makes: at an early boot those may be late, and
//! an image may have no udev at all. A device is mounted without a mount point (`fsopen`, `fsmount`): nobody else sees the
//! mount, and it ends with this process, however that ends.

mod devices;
mod label;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsmount, fsopen};

use crate::disk::{Disk, DiskError, Kind, RootedDisk};
use crate::mounts::{self, MOUNTS, Mount};
use devices::Device;

pub use devices::LinuxVolumes;
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
    #[error("cannot read {device:?}, a volume of the platform by its label")]
    Read { device: String, source: DiskError },
    #[error(
        "{} are all volumes of a platform by their label, and which one to believe cannot be told; detach those that the \
         platform did not attach, or give them another label", .volumes.join(" and ")
    )]
    Ambiguous { volumes: Vec<String> },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl VolumeError {
    /// Whether the same search may succeed later without anybody doing anything: a device may still be coming up.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Ambiguous { .. })
    }
}

/// What a platform's volume is known by.
#[derive(Clone, Copy)]
pub struct Sought {
    /// Upper and lower case are the same, as on FAT.
    pub labels: &'static [&'static str],
    /// What is read from it first, absolute inside the volume: a volume that fails to give it, other than by not having
    /// it, is damaged.
    pub file: &'static str,
}

impl Sought {
    fn fits(&self, label: &str) -> bool {
        self.labels.iter().any(|wanted| wanted.eq_ignore_ascii_case(label))
    }
}

/// What became of a search.
#[derive(Debug)]
pub struct Search {
    pub volume: Option<Volume>,
    /// What could not be read, and why, for people: it may be the volume that was sought.
    pub unreadable: Vec<String>,
}

impl Search {
    /// The only one that fits and can be read. One that fits and cannot be read is passed over for it, and is the failure if
    /// there is no other.
    fn decide(fitting: Vec<Result<Volume, VolumeError>>, mut unreadable: Vec<String>) -> Result<Self, VolumeError> {
        let (mut volumes, mut failures) = (Vec::new(), Vec::new());
        for opened in fitting {
            match opened {
                Ok(volume) => volumes.push(volume),
                Err(error) => failures.push(error),
            }
        }
        if volumes.len() > 1 {
            return Err(VolumeError::Ambiguous { volumes: volumes.iter().map(ToString::to_string).collect() });
        }
        match (volumes.pop(), failures.is_empty()) {
            (None, false) => Err(failures.remove(0)),
            (volume, _) => {
                unreadable.extend(failures.iter().map(|error| chain(error)));
                Ok(Self { volume, unreadable })
            }
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// An opened volume; its files can be read as long as it lives.
pub struct Volume {
    files: Files,
    /// The device, or the folder that stands for it.
    pub name: String,
    pub label: String,
}

impl std::fmt::Display for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.label)
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

enum Files {
    Device(RootedDisk),
    Folder(Arc<dyn Disk>, PathBuf),
}

/// Far more than any file that a search begins with.
const FIRST_FILE_LIMIT: u64 = 1024 * 1024;

impl Volume {
    /// As [`Disk::read`]; the path is absolute inside the volume.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
        match &self.files {
            Files::Device(disk) => disk.read(path, limit),
            Files::Folder(disk, folder) => disk.read(&folder.join(path.strip_prefix("/").unwrap_or(path)), limit),
        }
    }

    fn proven(self, sought: &Sought) -> Result<Self, VolumeError> {
        match self.read(Path::new(sought.file), FIRST_FILE_LIMIT) {
            Ok(_) => Ok(self),
            Err(source) => Err(VolumeError::Read { device: self.name, source }),
        }
    }
}

pub trait Volumes: Send + Sync {
    /// The one volume that carries one of these labels. Two are refused.
    fn open_labelled(&self, sought: &Sought) -> Result<Search, VolumeError>;
}

fn open_device(device: &Device, file_system: FileSystem, label: String) -> Result<Volume, VolumeError> {
    let (node, name) = (device.node.as_path(), device.node.display().to_string());
    let failed =
        |source: io::Error| VolumeError::Mount { device: name.clone(), file_system: file_system.name(), source };
    // Two mounts of one device must agree about writing, so one that is there already is used.
    let disk = match mounted_at(node).map_err(failed)? {
        Some(folder) => RootedDisk::open(&folder)?,
        None => RootedDisk::within(mount(node, file_system.name()).map_err(failed)?)?,
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
    Ok(find_mount_point(&std::fs::read(MOUNTS)?, &number))
}

/// Where the whole of a device is mounted, by its `major:minor`.
fn find_mount_point(mountinfo: &[u8], number: &str) -> Option<PathBuf> {
    let whole = |mount: &Mount<'_>| mount.device == number.as_bytes() && mount.root == b"/";
    mounts::parse(mountinfo).find(whole).map(|mount| mount.at)
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
    fn open_labelled(&self, sought: &Sought) -> Result<Search, VolumeError> {
        let mut fitting = Vec::new();
        for label in self.disk.list(Path::new(BY_LABEL))? {
            let folder = Path::new(BY_LABEL).join(&label);
            if sought.fits(&label) && self.disk.stat(&folder)?.is_some_and(|stat| stat.kind == Kind::Folder) {
                let name = folder.display().to_string();
                let volume = Volume { files: Files::Folder(Arc::clone(&self.disk), folder), name, label };
                fitting.push(volume.proven(sought));
            }
        }
        Search::decide(fitting, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use super::*;
    use crate::fake::FakeDisk;

    const SEED: Sought = Sought { labels: &["config-2", "cidata"], file: "/meta-data" };

    #[test]
    fn a_mount_of_the_whole_device_is_found_by_its_number() {
        let mounts = b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      30 21 11:0 /openstack /bound ro - iso9660 /dev/sr0 ro\n\
                      31 21 11:0 / /mnt/config\\040drive ro,nosuid - iso9660 /dev/sr0 ro\n";
        assert_eq!(find_mount_point(mounts, "11:0").unwrap(), Path::new("/mnt/config drive"));
        assert_eq!(find_mount_point(mounts, "8:1").unwrap(), Path::new("/"));
        assert_eq!(find_mount_point(mounts, "8:2"), None);
        assert_eq!(find_mount_point(b"", "8:2"), None);
    }

    #[test]
    fn a_folder_stands_for_a_volume_whatever_the_case_of_its_label() {
        let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new());
        disk.make_folder(Path::new("/dev/disk/by-label/CIDATA"), 0o755).unwrap();
        disk.create(Path::new("/dev/disk/by-label/CIDATA/meta-data"), 0o644, b"x").unwrap();
        let volumes = FolderVolumes::new(disk);
        let volume = volumes.open_labelled(&SEED).unwrap().volume.unwrap();
        assert_eq!(volume.read(Path::new("/meta-data"), 10).unwrap().unwrap(), b"x");
        assert_eq!(volume.read(Path::new("/user-data"), 10).unwrap(), None);
        assert!(volumes.open_labelled(&Sought { labels: &["config-2"], ..SEED }).unwrap().volume.is_none());
    }

    #[test]
    fn two_volumes_that_fit_are_ambiguous_and_named_and_one_that_cannot_be_read_is_passed_over() {
        let disk: Arc<dyn Disk> = Arc::new(FakeDisk::new());
        let volume = |label: &str, file: Option<&str>| {
            let folder = Path::new(BY_LABEL).join(label);
            disk.make_folder(&folder, 0o755).unwrap();
            match file {
                Some(text) => disk.create(&folder.join("meta-data"), 0o644, text.as_bytes()).unwrap(),
                // Reading a folder fails, and not because nothing is there.
                None => disk.make_folder(&folder.join("meta-data"), 0o755).unwrap(),
            }
        };
        let search = || FolderVolumes::new(Arc::clone(&disk)).open_labelled(&SEED);
        volume("cidata", None);
        let error = search().unwrap_err();
        assert!(matches!(&error, VolumeError::Read { device, .. } if device.ends_with("cidata")), "{error}");
        assert!(error.may_pass());
        volume("CIDATA", Some("x"));
        let found = search().unwrap();
        assert_eq!(found.volume.unwrap().label, "CIDATA");
        assert!(found.unreadable[0].contains("by-label/cidata"), "{:?}", found.unreadable);
        volume("config-2", Some("y"));
        let error = search().unwrap_err();
        let said = error.to_string();
        assert!(said.contains("by-label/CIDATA (CIDATA) and /dev/disk/by-label/config-2 (config-2)"), "{said}");
        assert!(!error.may_pass());
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

    /// Whoever may use a loop device could otherwise tell this machine what it is.
    #[test]
    fn a_loop_device_is_no_volume_of_a_platform_whatever_its_label() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, devices::tests::boot_sector("NODESTRAP-1")).unwrap();
        let Some(device) = LoopDevice::new(&image) else { return };
        let found = LinuxVolumes::new().open_labelled(&Sought { labels: &["nodestrap-1"], file: "/x" }).unwrap();
        assert!(found.volume.is_none(), "{} is a loop device", device.0.display());
    }
}
