//! The block devices that a platform can have attached: which ones there are, and which of them carry a label.
//!
//! Disks, CD-ROMs and their partitions. What software of this machine makes (loop devices, network block devices, device
//! mapper, RAID, RAM disks) is somebody's data: a volume of a pod, an image under test. It is never asked.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{FileSystem, Search, Sought, Volume, VolumeError, Volumes, open_device, read_label};

/// The block devices of this machine.
pub struct LinuxVolumes {
    /// A link for each device, to its place in the tree of what is attached to what.
    links: PathBuf,
    /// Where the devices can be opened.
    nodes: PathBuf,
}

impl LinuxVolumes {
    pub fn new() -> Self {
        Self { links: PathBuf::from("/sys/class/block"), nodes: PathBuf::from("/dev") }
    }
}

impl Default for LinuxVolumes {
    fn default() -> Self {
        Self::new()
    }
}

impl Volumes for LinuxVolumes {
    fn open_labelled(&self, sought: &Sought) -> Result<Search, VolumeError> {
        let devices = self.attached().map_err(VolumeError::List)?;
        let open = |device: &Device, file_system, label| open_device(device, file_system, label)?.proven(sought);
        search(&devices, sought, open)
    }
}

/// A device by where it can be opened, and by its place in the tree of devices.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Device {
    pub(super) node: PathBuf,
    place: PathBuf,
}

impl Device {
    /// A partition lies below its disk.
    fn is_part_of(&self, other: &Self) -> bool {
        self.place != other.place && self.place.starts_with(&other.place)
    }
}

impl LinuxVolumes {
    /// Sorted, so that a machine is searched in the same order every time.
    fn attached(&self) -> io::Result<Vec<Device>> {
        let mut devices = Vec::new();
        let entries = match std::fs::read_dir(&self.links) {
            // A container may show none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(devices),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // One that is gone by now is not there.
            let Ok(place) = std::fs::read_link(entry.path()) else { continue };
            let name = entry.file_name();
            if !is_made_here(&name.to_string_lossy(), &place) {
                devices.push(Device { node: self.nodes.join(name), place });
            }
        }
        devices.sort();
        Ok(devices)
    }
}

/// Names that the kernel's drivers give; partitions follow with a number.
const MADE_HERE: [&str; 7] = ["loop", "nbd", "rbd", "zram", "ram", "dm-", "md"];

/// By name for those whose place says nothing (rbd), by place for those whose name may be anything (md, ublk, zvol). Multipath
/// NVMe disks are under `virtual`, too, but not under `virtual/block`.
fn is_made_here(name: &str, place: &Path) -> bool {
    let is_virtual = place.display().to_string().contains("/devices/virtual/block/");
    is_virtual || MADE_HERE.iter().any(|prefix| name.starts_with(prefix))
}

/// A disk whose image has partitions (as those that start from a CD-ROM and from a stick) shows its label twice: the whole
/// disk counts.
pub(super) fn search(
    devices: &[Device],
    sought: &Sought,
    open: impl Fn(&Device, FileSystem, String) -> Result<Volume, VolumeError>,
) -> Result<Search, VolumeError> {
    let (mut fitting, mut unreadable) = (Vec::new(), Vec::new());
    for device in devices {
        match label_of(&device.node) {
            Ok(Some((file_system, label))) if sought.fits(&label) => fitting.push((device, file_system, label)),
            Ok(_) => {}
            Err(error) if is_absence(&error) => {}
            Err(error) => unreadable.push(format!("{:?} cannot be read: {error}", device.node.display().to_string())),
        }
    }
    let whole: Vec<&Device> = fitting.iter().map(|(device, ..)| *device).collect();
    fitting.retain(|(device, ..)| !whole.iter().any(|other| device.is_part_of(other)));
    Search::decide(fitting.into_iter().map(|(device, system, label)| open(device, system, label)).collect(), unreadable)
}

/// No medium, no such device, none that we may open: nothing that could be said about a platform.
fn is_absence(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
    let errors = [Errno::NOMEDIUM, Errno::NXIO, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    kinds.contains(&error.kind()) || errors.contains(&error.raw_os_error())
}

fn label_of(node: &Path) -> io::Result<Option<(FileSystem, String)>> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(nonblocking).open(node)?;
    let trouble = RefCell::new(None);
    let label = read_label(|offset, buffer| match file.read_exact_at(buffer, offset) {
        Ok(()) => true,
        // It is smaller than that.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(error) => {
            trouble.replace(Some(error));
            false
        }
    });
    match (label, trouble.into_inner()) {
        (None, Some(error)) => Err(error),
        (label, _) => Ok(label),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;
    use crate::fake::FakeDisk;
    use crate::volumes::Files;

    const DRIVE: Sought = Sought { labels: &["config-2"], file: "/meta_data.json" };

    /// A FAT boot sector with this label, and nothing behind it.
    pub(in crate::volumes) fn boot_sector(label: &str) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        bytes[43..54].copy_from_slice(format!("{label:11}").as_bytes());
        bytes[54..62].copy_from_slice(b"FAT12   ");
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        bytes
    }

    /// A machine by its devices: the place of each in the tree, and the file that is its content.
    struct Attached {
        folder: tempfile::TempDir,
        volumes: LinuxVolumes,
    }

    impl Attached {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let [links, nodes] = ["class", "dev"].map(|name| folder.path().join(name));
            for folder in [&links, &nodes] {
                std::fs::create_dir(folder).unwrap();
            }
            Self { folder, volumes: LinuxVolumes { links, nodes } }
        }

        fn attach(&self, place: &str, content: &Path) {
            let name = Path::new(place).file_name().unwrap();
            symlink(format!("../../devices/{place}"), self.volumes.links.join(name)).unwrap();
            symlink(content, self.volumes.nodes.join(name)).unwrap();
        }

        fn labelled(&self, place: &str, label: &str) {
            let image = self.folder.path().join(place.replace('/', "-"));
            std::fs::write(&image, boot_sector(label)).unwrap();
            self.attach(place, &image);
        }

        /// As a machine whose kernel can mount everything but what is named here.
        fn search(&self, broken: &str) -> Result<Search, VolumeError> {
            search(&self.volumes.attached().unwrap(), &DRIVE, |device, _, label| {
                let name = device.node.file_name().unwrap().to_string_lossy().into_owned();
                if name == broken {
                    let source = io::Error::from(Errno::IO);
                    return Err(VolumeError::Mount { device: name, file_system: "vfat", source });
                }
                Ok(Volume { files: Files::Folder(Arc::new(FakeDisk::new()), PathBuf::from("/")), name, label })
            })
        }

        fn found(&self) -> String {
            match self.search("") {
                Ok(found) => found.volume.map(|volume| volume.name).unwrap_or_default(),
                Err(error) => error.to_string(),
            }
        }
    }

    #[test]
    fn what_software_of_this_machine_makes_is_never_a_config_drive() {
        let machine = Attached::new();
        for place in [
            "virtual/block/loop0",
            "virtual/block/loop0/loop0p1",
            "virtual/block/nbd1",
            "virtual/block/ram0",
            "virtual/block/zram0",
            "virtual/block/dm-3",
            "virtual/block/md127/md127p1",
            "virtual/block/ublkb0",
            "rbd/0/block/rbd0",
            "rbd/0/block/rbd0/rbd0p1",
        ] {
            machine.labelled(place, "CONFIG-2");
            assert_eq!(machine.found(), "", "{place}");
        }
        machine.labelled("virtual/nvme-subsystem/nvme-subsys0/nvme0n1", "config-2");
        assert_eq!(machine.found(), "nvme0n1", "a disk behind two paths is a disk");
    }

    #[test]
    fn two_drives_are_ambiguous_and_a_disk_with_its_own_partition_is_one() {
        let machine = Attached::new();
        machine.labelled("pci0000:00/virtio1/block/vdb/vdb1", "config-2");
        assert_eq!(machine.found(), "vdb1");
        machine.labelled("pci0000:00/virtio1/block/vdb", "config-2");
        assert_eq!(machine.found(), "vdb");
        machine.labelled("pci0000:00/virtio2/block/vda", "other");
        assert_eq!(machine.found(), "vdb");
        // `vdb1` is no part of `vd`, whatever their names begin with.
        machine.labelled("pci0000:00/virtio1/block/vd", "config-2");
        let said = machine.found();
        assert!(said.contains("vd (config-2) and vdb (config-2)") && said.contains("detach"), "{said}");
        // One of the two cannot be read: the other is it, and the first is told of.
        let found = machine.search("vd").unwrap();
        assert_eq!(found.volume.unwrap().name, "vdb");
        let told = &found.unreadable[0];
        assert!(told.contains("\"vd\"") && told.contains("os error 5"), "{told}");
    }

    #[test]
    fn a_device_that_cannot_be_read_does_not_stop_the_search_and_is_told_of() {
        let machine = Attached::new();
        // Reading the first page of a process gives EIO, as a broken disk does.
        machine.attach("pci0000:00/ata1/block/sda", Path::new("/proc/self/mem"));
        machine.attach("pci0000:00/ata2/block/sr0", Path::new("/nonexistent"));
        let found = machine.search("").unwrap();
        assert!(found.volume.is_none());
        assert!(matches!(found.unreadable.as_slice(), [one] if one.contains("sda") && one.contains("os error 5")));
        machine.labelled("pci0000:00/ata3/block/sdb", "config-2");
        assert_eq!(machine.found(), "sdb");
        let error = machine.search("sdb").unwrap_err();
        assert!(matches!(&error, VolumeError::Mount { device, .. } if device == "sdb"), "{error}");
    }

    #[test]
    fn a_labelled_device_that_cannot_be_mounted_is_named() {
        let machine = Attached::new();
        machine.labelled("pci0000:00/ata3/block/sdb", "config-2");
        let said = machine.volumes.open_labelled(&DRIVE).unwrap_err().to_string();
        assert!(said.contains("/dev/sdb") && said.contains("vfat"), "{said}");
    }
}
