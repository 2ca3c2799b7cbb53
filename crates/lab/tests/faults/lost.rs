//! A medium that refuses writes for a moment, while some other program syncs and is told.
//!
//! The kernel then shows what was written, calls it clean and never writes it: of the files of that moment, zeros are on the
//! disk. Who opens the file system later and syncs is told that all is well.

use std::process::Command;

use crate::block::RecordedDisk;
use crate::limits::{Held, SmallDisk, reference};
use crate::machine::{Bundles, Machine, done, said};
use crate::recorded::{EXT4, Mounted};

#[test]
fn files_that_the_disk_lost_while_somebody_else_was_told_are_never_behind_an_open_gate() {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let bundles = Bundles::render();
    let wanted = reference(folder.path(), &bundles);
    let (file, place) = (folder.path().join("disk"), folder.path().join("node"));
    std::fs::write(&file, b"").unwrap();
    std::fs::create_dir(&place).unwrap();
    let disk = RecordedDisk::create(&file, EXT4.bytes);
    done(&[EXT4.make, &[disk.device.as_str()]].concat());
    let mounted = Mounted::new(&[], &disk.device, &place);
    let machine = Machine::create(&place, &bundles.first);
    // As on a node: this lies in memory.
    let run = SmallDisk::mount(&machine.path("/run"), "size=1m");
    machine.write("/run/nodestrap/boot_id", "00000000-0000-4000-8000-000000000001\n");
    let sync = || Command::new("sync").arg("-f").arg(&place).output().unwrap();
    assert!(sync().status.success());
    // Before the run comes to its first sync, somebody else's has done its work: it would find nothing to do.
    let held = Held::instead_of(&machine, "syncfs", 1, &folder.path().join("log"));
    disk.refuse_text(true);
    let told = sync();
    disk.refuse_text(false);
    assert!(!told.status.success() && disk.refused() > 0, "{} writes refused: {}", disk.refused(), said(&told));
    let output = held.go_on();
    let (text, is_open) = (said(&output), machine.gate_is_open());
    println!("{} writes refused, the gate is {}: {text}", disk.refused(), if is_open { "open" } else { "shut" });
    // In the same boot, in which the kernel still shows everything.
    let again = machine.nodestrap("apply");
    assert!(again.status.success(), "{}", said(&again));
    drop((run, mounted));
    // In the next one.
    let mounted = Mounted::new(&[], &disk.device, &place);
    let is_whole = machine.has(&wanted);
    assert!(
        machine.gate_is_open() && is_whole,
        "the gate is open over files that are not there: {:#?}",
        machine.tree()
    );
    assert_eq!(output.status.code(), Some(4), "{text}");
    // In the words of whichever C library.
    assert!(text.contains("(os error 5)") && !is_open, "{text}");
    drop(mounted);
}
