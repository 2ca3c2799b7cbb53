//! What somebody else wrote, on a file system that nodestrap never touched, is on its medium after a sync of everything.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test looks at the real file system from outside")]

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::disk::{Disk, RootedDisk};

/// An ext4 in a file, mounted for as long as it lives; `None` where that cannot be had (no root, no loop devices).
struct OtherDisk {
    folder: tempfile::TempDir,
}

impl OtherDisk {
    fn mount() -> Option<Self> {
        // The file shall be as durable as what was written to it, and not a moment later.
        let disk = Self { folder: tempfile::tempdir_in("/dev/shm").ok()? };
        std::fs::create_dir(disk.at()).unwrap();
        std::fs::File::create(disk.image()).unwrap().set_len(16 << 20).unwrap();
        let image = disk.image().display().to_string();
        let place = disk.at().display().to_string();
        for command in [&["mkfs.ext4", "-q", &image][..], &["mount", "-o", "loop", &image, &place]] {
            let output = Command::new(command[0]).args(&command[1..]).output();
            if !output.as_ref().is_ok_and(|output| output.status.success()) {
                eprintln!("SKIPPED: {command:?}: {output:?}");
                return None;
            }
        }
        Some(disk)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn at(&self) -> PathBuf {
        self.folder.path().join("at")
    }

    fn holds(&self, words: &[u8]) -> bool {
        std::fs::read(self.image()).unwrap().windows(words.len()).any(|window| window == words)
    }
}

impl Drop for OtherDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at()).stderr(std::process::Stdio::null()).status();
    }
}

#[test]
fn what_somebody_wrote_on_another_file_system_is_on_its_medium() {
    let Some(other) = OtherDisk::mount() else { return };
    let machine = RootedDisk::open(Path::new("/")).unwrap();
    const WORDS: &[u8] = b"what a hook wrote, somewhere else";
    std::fs::write(other.at().join("written"), WORDS).unwrap();
    machine.sync_everything().unwrap();
    assert!(other.holds(WORDS), "it is still in memory only");
}

#[test]
fn a_file_system_whose_first_mount_point_lies_under_another_is_synced_all_the_same() {
    let Some(other) = OtherDisk::mount() else { return };
    let second = other.folder.path().join("second");
    std::fs::create_dir(&second).unwrap();
    let run = |command: &[&std::ffi::OsStr]| {
        assert!(Command::new(command[0]).args(&command[1..]).status().unwrap().success(), "{command:?}");
    };
    run(&["mount".as_ref(), "--bind".as_ref(), other.at().as_ref(), second.as_ref()]);
    run(&["mount".as_ref(), "-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), other.at().as_ref()]);
    const WORDS: &[u8] = b"what a hook wrote, below the other mount point";
    std::fs::write(second.join("written"), WORDS).unwrap();
    let synced = RootedDisk::open(Path::new("/")).unwrap().sync_everything();
    run(&["umount".as_ref(), other.at().as_ref()]);
    let is_there = other.holds(WORDS);
    run(&["umount".as_ref(), second.as_ref()]);
    synced.unwrap();
    assert!(is_there, "it is still in memory only");
}

#[test]
fn what_the_medium_holds_is_read_past_what_the_kernel_remembers_of_it() {
    let Some(other) = OtherDisk::mount() else { return };
    let machine = RootedDisk::open(Path::new("/")).unwrap();
    let (path, wrote, lost) = (other.at().join("written"), b"what was written here", [0; 21]);
    std::fs::write(&path, wrote).unwrap();
    machine.sync_everything().unwrap();
    // The medium changes behind the kernel's back, as if it had lost the write.
    let image = std::fs::read(other.image()).unwrap();
    let at = image.windows(wrote.len()).position(|window| window == wrote).unwrap();
    let medium = std::fs::OpenOptions::new().write(true).open(other.image()).unwrap();
    medium.write_all_at(&lost, at as u64).unwrap();
    assert_eq!(machine.read(&path, 100).unwrap().unwrap(), wrote, "the kernel still shows it");
    assert_eq!(machine.read_medium(&path, 100).unwrap().unwrap(), lost);
}
