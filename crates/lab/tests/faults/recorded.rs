//! A run on a recorded disk, and then every disk that a power cut during that run could have left.
//!
//! A disk may forget any of the writes since its last flush, and only those. So for every flush boundary the disk of that
//! moment is made, and for each boundary a few more on which a random part of the writes up to the next boundary arrived
//! too, sector by sector. Each is mounted (the file system's own recovery runs), the gate is asked, and nodestrap is run
//! again, which must make the same tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::block::{RecordedDisk, Request};
use crate::machine::{Bundles, GATE, Machine, done, said};
use crate::trees::Store;

/// How many half-arrived disks are judged for each boundary, others for each commit; `NODESTRAP_SUBSETS` says otherwise.
const SUBSETS: u64 = 1;
const SECTOR: usize = 512;

/// A file system to put the node on.
pub(crate) struct FileSystem {
    kind: &'static str,
    pub(crate) bytes: usize,
    pub(crate) make: &'static [&'static str],
    /// For a disk that is put in again.
    options: &'static str,
}

pub(crate) const EXT4: FileSystem = FileSystem {
    kind: "ext4",
    bytes: 16 * 1024 * 1024,
    make: &["mkfs.ext4", "-q", "-b", "1024", "-J", "size=1"],
    options: "loop",
};

/// mkfs.xfs makes a small one only for those who say, with these three, that it is for a test.
const XFS: FileSystem = FileSystem {
    kind: "xfs",
    bytes: 32 * 1024 * 1024,
    make: &["env", "TEST_DIR=1", "TEST_DEV=1", "QA_CHECK_FS=1", "mkfs.xfs", "-q", "-f"],
    // They all have one name, and a namespace that another test has just made may still hold the one before.
    options: "loop,nouuid",
};

/// What a mounted place must not outlive.
pub(crate) struct Mounted {
    at: PathBuf,
}

impl Mounted {
    pub(crate) fn new(options: &[&str], device: &str, at: &Path) -> Self {
        let place = at.display().to_string();
        done(&[&["mount"], options, &[device, &place]].concat());
        Self { at: at.to_owned() }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Somebody who looks at all mounts may hold it for a moment; a panic on the way must not leave it either.
        for _ in 0..100 {
            if std::process::Command::new("umount").arg(&self.at).status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// A recorded run: the disk before it, what was asked of the disk, and the trees before and after.
struct Recording {
    before: Vec<u8>,
    requests: Vec<Request>,
    old: BTreeMap<String, String>,
    new: BTreeMap<String, String>,
}

/// The first boot and then the upgrade to another bundle, recorded one after the other on the same disk.
fn record(folder: &Path, system: &FileSystem, bundles: &Bundles) -> [Recording; 2] {
    let file = folder.join("disk");
    std::fs::write(&file, b"").unwrap();
    let disk = RecordedDisk::create(&file, system.bytes);
    done(&[system.make, &[disk.device.as_str()]].concat());
    let place = folder.join("recorded");
    std::fs::create_dir(&place).unwrap();
    let mounted = Mounted::new(&[], &disk.device, &place);
    let machine = Machine::create(&place, &bundles.first);
    let image = machine.tree();
    let settle = || {
        done(&["sync", "-f", &place.display().to_string()]);
        disk.take_requests();
        disk.image()
    };
    let before = settle();
    let output = machine.nodestrap("apply");
    assert!(output.status.success(), "{}", said(&output));
    let first_boot = Recording { before, requests: disk.take_requests(), old: image, new: machine.tree() };
    machine.deliver(&bundles.second);
    let before = settle();
    let output = machine.nodestrap("apply");
    assert!(output.status.success(), "{}", said(&output));
    let requests = disk.take_requests();
    let upgrade = Recording { before, requests, old: first_boot.new.clone(), new: machine.tree() };
    assert_ne!(upgrade.old, upgrade.new);
    drop(mounted);
    [first_boot, upgrade]
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// SplitMix64: the same subsets for everybody who tests the same commit.
struct Chance(u64);

impl Chance {
    fn is_heads(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 0
    }
}

fn write(image: &mut [u8], offset: usize, bytes: &[u8]) {
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Some sectors of some of the writes that no flush has covered.
fn write_some(image: &mut [u8], pending: &[Request], chance: &mut Chance) {
    for request in pending {
        let Request::Write { offset, bytes } = request else { continue };
        let whole = chance.is_heads();
        for (index, sector) in bytes.chunks(SECTOR).enumerate() {
            if whole || chance.is_heads() {
                write(image, offset + index * SECTOR, sector);
            }
        }
    }
}

/// All disks of a recording, each with its name.
fn each_disk(recording: &Recording, mut judge: impl FnMut(&str, &[u8])) {
    let mut durable = recording.before.clone();
    let mut pending: Vec<Request> = Vec::new();
    let mut boundary = 0;
    let first = number("NODESTRAP_SAMPLE").unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let subsets = number("NODESTRAP_SUBSETS").unwrap_or(SUBSETS);
    let mut judge_boundary = |boundary: u64, durable: &[u8], pending: &[Request]| {
        judge(&format!("flush {boundary}"), durable);
        for subset in 0..subsets {
            if !pending.is_empty() {
                let mut image = durable.to_vec();
                write_some(&mut image, pending, &mut Chance(first.wrapping_add(boundary * 1000 + subset)));
                judge(&format!("flush {boundary}, and subset {subset} of {} writes", pending.len()), &image);
            }
        }
    };
    for request in &recording.requests {
        match request {
            Request::Write { .. } => pending.push(request.clone()),
            // Two flushes with nothing between them leave the same disk.
            Request::Flush if pending.is_empty() => {}
            Request::Flush => {
                judge_boundary(boundary, &durable, &pending);
                for request in pending.drain(..) {
                    if let Request::Write { offset, bytes } = request {
                        write(&mut durable, offset, &bytes);
                    }
                }
                boundary += 1;
            }
        }
    }
    judge_boundary(boundary, &durable, &pending);
}

/// What happened over all disks, so that a test which judges nothing is seen.
#[derive(Debug, Default)]
struct Tally {
    disks: u32,
    gates_open: u32,
    gates_shut: u32,
}

fn judge(folder: &Path, system: &FileSystem, case: &str, image: &[u8], recording: &Recording, tally: &mut Tally) {
    let disk = Replayed::mount(folder, system, image);
    let machine = &disk.machine;
    machine.empty_run(2 + tally.disks);
    tally.disks += 1;
    if tally.disks == 1 {
        // Nothing of the run has arrived yet: if this does not hold, another disk is being judged.
        assert!(machine.has(&recording.old), "{case}: {:#?}", machine.tree());
    }
    if machine.gate_is_open() {
        tally.gates_open += 1;
        let is_whole = machine.has(&recording.old) || machine.has(&recording.new);
        assert!(is_whole, "{case}: the gate is open on a node that is neither old nor new: {:#?}", machine.tree());
    } else {
        tally.gates_shut += 1;
    }
    let again = machine.nodestrap("apply");
    assert!(again.status.success(), "{case}: {}", said(&again));
    assert_eq!(machine.tree(), recording.new, "{case}: another tree");
    assert!(machine.gate_is_open(), "{case}");
}

/// Writes files in their places and syncs the gate alone, as many bootstrap scripts do.
fn be_careless(machine: &Machine, wanted: &BTreeMap<String, String>) {
    let mut files = wanted.iter().filter_map(|(path, entry)| Some((path, entry.split_once('\n')?.1)));
    let (gate, gate_content) = files.clone().find(|(path, _)| *path == GATE).unwrap();
    for (path, content) in files.by_ref().filter(|(path, _)| *path != GATE) {
        machine.write(path, content);
    }
    machine.write(gate, gate_content);
    std::fs::File::open(machine.path(gate)).unwrap().sync_all().unwrap();
}

/// A test of the test: what is done wrongly must be seen.
#[test]
fn a_protocol_that_syncs_only_the_gate_is_found_out() {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let [first_boot, _] = record(folder.path(), &EXT4, &Bundles::render());
    let file = folder.path().join("careless-disk");
    std::fs::write(&file, b"").unwrap();
    let disk = RecordedDisk::create(&file, EXT4.bytes);
    done(&[EXT4.make, &[disk.device.as_str()]].concat());
    let place = folder.path().join("careless");
    std::fs::create_dir(&place).unwrap();
    let mounted = Mounted::new(&[], &disk.device, &place);
    let machine = Machine::create(&place, &Bundles::render().first);
    done(&["sync", "-f", &place.display().to_string()]);
    disk.take_requests();
    let before = disk.image();
    be_careless(&machine, &first_boot.new);
    let careless = Recording { before, requests: disk.take_requests(), old: BTreeMap::new(), new: BTreeMap::new() };
    drop(mounted);
    let mut untruths = 0;
    let files_of = |tree: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let content = |(path, entry): (&String, &String)| Some((path.clone(), entry.split_once('\n')?.1.to_owned()));
        tree.iter().filter_map(content).collect()
    };
    let wanted = files_of(&first_boot.new);
    each_disk(&careless, |_, image| {
        let disk = Replayed::mount(folder.path(), &EXT4, image);
        let found = files_of(&disk.machine.tree());
        let whole = wanted.iter().all(|(path, content)| found.get(path) == Some(content));
        untruths += u32::from(disk.machine.gate_is_open() && !whole);
    });
    assert!(untruths > 0, "a gate that is open over empty files was not found in {} requests", careless.requests.len());
}

/// A disk that is put in, with the file that holds it.
struct Replayed {
    machine: Machine,
    // Unmounted before the file goes.
    _mounted: Mounted,
    _file: tempfile::NamedTempFile,
}

impl Replayed {
    /// Each from a file of its own: a loop device that lingers for a moment would be used again for the same file, and
    /// show what it remembers instead of what is there.
    fn mount(folder: &Path, system: &FileSystem, image: &[u8]) -> Self {
        let file = tempfile::NamedTempFile::new_in(folder).unwrap();
        std::fs::write(file.path(), image).unwrap();
        let place = folder.join("replayed");
        std::fs::create_dir_all(&place).unwrap();
        // A file system that does not mount panics here, with what mount says.
        let mounted = Mounted::new(&["-o", system.options], &file.path().display().to_string(), &place);
        Self { machine: Machine::at(&place), _mounted: mounted, _file: file }
    }
}

/// With programs, so that fetching, unpacking, switching and retiring are in the recording.
fn replay(system: &FileSystem) {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = Store::create();
    let bundles = store.bundles();
    for (name, recording) in ["first boot", "upgrade"].into_iter().zip(record(folder.path(), system, &bundles)) {
        let flushes = recording.requests.iter().filter(|request| matches!(request, Request::Flush)).count();
        let mut tally = Tally::default();
        each_disk(&recording, |case, image| {
            let case = format!("{} {name}, {case}", system.kind);
            judge(folder.path(), system, &case, image, &recording, &mut tally);
        });
        println!("{} {name}: {} requests, {flushes} flushes, {tally:?}", system.kind, recording.requests.len());
        assert!(flushes >= 5, "the disk saw too few flushes: {flushes}");
        assert!(tally.disks > 20 && tally.gates_open > 0 && tally.gates_shut > 0, "{tally:?}");
    }
}

#[test]
fn every_disk_that_a_power_cut_could_leave_mounts_tells_the_truth_and_is_completed_on_ext4() {
    replay(&EXT4);
}

#[test]
fn every_disk_that_a_power_cut_could_leave_mounts_tells_the_truth_and_is_completed_on_xfs() {
    if !Path::new("/usr/sbin/mkfs.xfs").exists() && !Path::new("/sbin/mkfs.xfs").exists() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run every test, but there is no mkfs.xfs");
        eprintln!("SKIPPED: no mkfs.xfs; `cargo run -p lab -- prepare --install` installs it");
        return;
    }
    replay(&XFS);
}
