//! A config drive, read by the bootstrap unit as it is shipped, with all that confines it.
//!
//! Not every kernel knows iso9660 and FAT, and nobody can attach a disk to a container. So the drive is a loop device under the
//! name of a disk, with an ext4 behind a boot sector that says FAT and `config-2`: what the unit may do to find it, open it and
//! read it is the same. That it may also mount one is shown by a stand-in under the same confinement, which makes the calls
//! that nodestrap makes, on the ext4.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab::{LabOptions, Node, NodeOptions, WorkerSpec};

use crate::support::{PATIENCE, lab, nodestrap, status, user_data};

const BOOTSTRAP: &str = "k8s-node-bootstrap.service";
const DRIVE: &str = "/dev/sdz";
const INSTANCE: &str = "83679162-1378-4288-a2d4-70e13ec132aa";

/// A loop device of this machine.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn of_drive(folder: &Path, user_data: &[u8]) -> Result<Self> {
        let (content, image) = (folder.join("content"), folder.join("image"));
        let latest = content.join("openstack/latest");
        std::fs::create_dir_all(&latest).context("the content of the drive")?;
        std::fs::write(latest.join("meta_data.json"), format!(r#"{{"uuid":"{INSTANCE}"}}"#)).context("its metadata")?;
        std::fs::write(latest.join("user_data"), user_data).context("its user data")?;
        File::create(&image).and_then(|file| file.set_len(64 << 20)).context("the image")?;
        let made =
            Command::new("mkfs.ext4").args(["-q", "-O", "^has_journal", "-d"]).arg(&content).arg(&image).status()?;
        ensure!(made.success(), "mkfs.ext4 fails");
        // The first 1024 bytes are none of ext4's.
        let file = File::options().write(true).open(&image).context("the image")?;
        for (at, bytes) in [(43, &b"config-2   "[..]), (54, b"FAT12   "), (510, &[0x55, 0xaa])] {
            file.write_all_at(bytes, at).context("the boot sector")?;
        }
        let output = Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(&image).output()?;
        ensure!(output.status.success(), "no loop device: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self(PathBuf::from(String::from_utf8(output.stdout).context("its name")?.trim())))
    }

    /// `MAJOR MINOR`, in hexadecimal digits.
    fn number(&self) -> Result<String> {
        let output = Command::new("stat").args(["-c", "0x%t 0x%T"]).arg(&self.0).output()?;
        Ok(String::from_utf8(output.stdout).context("its number")?.trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// An image for this platform, without cloud-init; a container sees no firmware that would say where it runs.
fn make_image(root: &Path) -> Result<()> {
    std::fs::remove_dir_all(root.join("var/lib/cloud/seed")).context("the seed of the lab")?;
    for (path, text) in [("etc/cloud/cloud-init.disabled", ""), ("etc/nodestrap/platform", "openstack\n")] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The node gets the device under the name, and at the place, of a disk.
fn attach(machine: &Node, device: &LoopDevice) -> Result<()> {
    let disk = Path::new(DRIVE).file_name().context("a name")?.display().to_string();
    let script = format!(
        "mount -t tmpfs tmpfs /sys/class/block && mknod {DRIVE} b {} && \
         ln -s ../../devices/pci0000:00/0000:00:05.0/block/{disk} /sys/class/block/{disk}",
        device.number()?
    );
    machine.run(&["sh", "-c", &script]).map(drop)
}

/// The calls of `host::volumes`: `fsopen`, `fsconfig`, `fsmount`, then a file is read through the mount that nobody sees.
const STAND_IN: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    found = libc.syscall(number, *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(number))
    return found
context = call(430, b"ext4", 1)
call(431, context, 1, b"source", b"/dev/sdz", 0)
call(431, context, 0, b"ro", None, 0)
call(431, context, 6, None, None, 0)
mounted = call(432, context, 1, 1 | 2 | 4 | 8)
file = os.open("openstack/latest/meta_data.json", os.O_RDONLY, dir_fd=mounted)
print("read:", os.read(file, 4096).decode())
"#;

/// Runs the stand-in with what confines the shipped unit, and with more; what it said.
fn mount_as_the_unit_may(machine: &Node, name: &str, more: &str) -> Result<String> {
    let shipped = std::fs::read_to_string(lab::repository().join("dist/systemd").join(BOOTSTRAP))?;
    let (_, confinement) = shipped.split_once("LimitCORE=0\n").context("where it begins")?;
    let (confinement, _) = confinement.split_once("\n\n").context("where it ends")?;
    let unit = format!("[Service]\nType=oneshot\nExecStart=/usr/bin/python3 /opt/mount.py\n{confinement}\n{more}\n");
    for (path, text) in
        [(format!("/etc/systemd/system/{name}.service"), unit.as_str()), ("/opt/mount.py".to_owned(), STAND_IN)]
    {
        std::fs::write(machine.path_from_outside(&path)?, text).with_context(|| path.clone())?;
    }
    machine.run(&["systemctl", "daemon-reload"])?;
    machine.exec(&["systemctl", "start", name])?;
    Ok(machine.journal(&format!("{name}.service")))
}

#[test]
fn the_confined_unit_makes_a_ready_node_from_a_config_drive() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let drive = LoopDevice::of_drive(folder.path(), &user_data(&WorkerSpec::of(&lab))).expect("a drive");
    let options = NodeOptions::named("n1").nodestrap(nodestrap()).before_boot(make_image);
    let machine = lab.add_node(options).expect("boots");
    attach(&machine, &drive).expect("attached");

    // It is found and opened by its label. To mount it as FAT is no longer a question of what the unit may do.
    let tried = format!("cannot mount {DRIVE:?} (vfat)");
    machine
        .wait_until("the drive is found", PATIENCE, |node| Ok(node.journal(BOOTSTRAP).contains(&tried)))
        .expect("it is found");
    let journal = machine.journal(BOOTSTRAP);
    for refusal in ["Operation not permitted", "Permission denied", "os error 1)", "os error 13)"] {
        assert!(!journal.contains(refusal), "the unit may not do its work: {journal}");
    }
    let said = mount_as_the_unit_may(&machine, "mounts", "").expect("it runs");
    assert!(said.contains("read:") && said.contains(INSTANCE), "{said}");
    let said = mount_as_the_unit_may(&machine, "mounts-not", "SystemCallFilter=~@mount").expect("it runs");
    assert!(!said.contains("read:") && said.contains("Operation not permitted"), "nothing confines it: {said}");

    // One that is mounted already is read where it is, by a kernel that knows its file system.
    machine.run(&["mount", "-o", "ro", "-t", "ext4", DRIVE, "/mnt"]).expect("mounted");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    let output = status(&machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains(INSTANCE) && text.contains(DRIVE), "{text}");
}
