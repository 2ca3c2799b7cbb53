//! Too little space, too few inodes, a file system that turns read-only, too little memory, and somebody else at work.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::machine::{Bundles, Machine, done, said};
use crate::trees::Store;

/// Much longer than a run takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tmpfs for one test.
pub(crate) struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    pub(crate) fn mount(at: &Path, options: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        done(&["mount", "-t", "tmpfs", "-o", options, "nodestrap-small", &at.display().to_string()]);
        Self { at: at.to_owned() }
    }

    fn remount(&self, options: &str) {
        done(&["mount", "-o", &format!("remount,{options}"), &self.at.display().to_string()]);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--recursive"]).arg(&self.at).status();
    }
}

/// What an undisturbed run makes.
pub(crate) fn reference(folder: &Path, bundles: &Bundles) -> BTreeMap<String, String> {
    let root = folder.join("reference");
    std::fs::create_dir(&root).unwrap();
    let machine = Machine::create(&root, &bundles.first);
    let output = machine.nodestrap("apply");
    assert!(output.status.success(), "{}", said(&output));
    machine.tree()
}

fn temporary_files(machine: &Machine) -> Vec<String> {
    machine.tree().into_keys().filter(|path| path.ends_with(".nodestrap-new")).collect()
}

/// What is left of a disk when a test has taken the rest.
#[derive(Clone, Copy, Debug)]
enum Room {
    Bytes(u64),
    Inodes(u64),
}

impl Room {
    /// Fills the disk until only this is left, and says by which files.
    fn leave(self, disk: &SmallDisk) -> Vec<PathBuf> {
        let free = rustix::fs::statvfs(&disk.at).unwrap();
        match self {
            Self::Bytes(bytes) => {
                let filler = disk.at.join("filler");
                let size = (free.f_bavail * free.f_frsize).checked_sub(bytes).expect("the disk is larger");
                std::fs::write(&filler, vec![0; usize::try_from(size).unwrap()]).unwrap();
                vec![filler]
            }
            Self::Inodes(inodes) => {
                let fillers = (inodes..free.f_ffree).map(|number| disk.at.join(format!("filler-{number}")));
                fillers.inspect(|path| std::fs::write(path, b"").unwrap()).collect()
            }
        }
    }
}

/// A run on a disk with so much room, then one with enough. Whether the first was enough, too.
fn squeeze(folder: &Path, room: Room, bundles: &Bundles, wanted: &BTreeMap<String, String>) -> bool {
    let disk = SmallDisk::mount(&folder.join("small"), "size=1m,nr_inodes=200");
    let machine = Machine::create(&disk.at, &bundles.first);
    let fillers = room.leave(&disk);
    let output = machine.nodestrap("apply");
    if output.status.success() {
        assert!(machine.gate_is_open(), "{room:?}: {}", said(&output));
    } else {
        let text = said(&output);
        assert_eq!(output.status.code(), Some(4), "{room:?}: {text}");
        assert!(text.contains("No space left on device"), "{room:?}: {text}");
        // It may have run full after the gate; then everything is there.
        assert!(!machine.gate_is_open() || machine.has(wanted), "{room:?}: {text}");
        assert_eq!(temporary_files(&machine), Vec::<String>::new(), "{room:?}: space was not given back");
    }
    fillers.iter().for_each(|filler| std::fs::remove_file(filler).unwrap());
    let again = machine.nodestrap("apply");
    assert!(again.status.success(), "{room:?}: {}", said(&again));
    assert_eq!(&machine.tree(), wanted, "{room:?}");
    output.status.success()
}

fn squeeze_all(rooms: impl Iterator<Item = Room>) {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundles = Bundles::render();
    let wanted = reference(folder.path(), &bundles);
    let enough: Vec<bool> = rooms.map(|room| squeeze(folder.path(), room, &bundles, &wanted)).collect();
    println!("{enough:?}");
    assert!(!enough[0] && enough[enough.len() - 1], "the sizes do not span the run: {enough:?}");
}

#[test]
fn a_disk_that_is_full_at_any_size_leaves_the_gate_shut_and_gives_its_space_back() {
    // A page at a time, which is what tmpfs gives out.
    squeeze_all((0..40).map(|pages| Room::Bytes(pages * 4096)));
}

#[test]
fn a_disk_without_inodes_leaves_the_gate_shut_and_gives_them_back() {
    squeeze_all((0..50).map(Room::Inodes));
}

#[test]
fn too_little_room_for_programs_is_said_with_numbers_before_anything_is_fetched() {
    if !lab::require() {
        return;
    }
    let (folder, store) = (tempfile::tempdir().unwrap(), Store::create());
    let bundles = store.bundles_with(3_000_000);
    let disk = SmallDisk::mount(&folder.path().join("small"), "size=10m");
    let machine = Machine::create(&disk.at, &bundles.first);
    // Three megabytes to be fetched, and three to be unpacked.
    let fillers = Room::Bytes(5_500_000).leave(&disk);
    let before = machine.tree();
    let output = machine.nodestrap("apply");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("/var/lib/nodestrap/store needs at least 7 MB, and its file system has 6 MB"), "{text}");
    let is_new = |path: &String| !before.contains_key(path);
    // The way to the journal of this run.
    assert_eq!(machine.tree().into_keys().filter(is_new).collect::<Vec<_>>(), ["/var", "/var/lib"], "{text}");
    assert!(!machine.path("/var/lib/nodestrap/store").exists(), "something was fetched: {text}");

    fillers.iter().for_each(|filler| std::fs::remove_file(filler).unwrap());
    let output = machine.nodestrap("apply");
    assert!(output.status.success() && machine.gate_is_open(), "{}", said(&output));
    // What is there needs no room.
    Room::Bytes(100_000).leave(&disk);
    let output = machine.nodestrap("apply");
    assert!(output.status.success() && said(&output).contains("nothing to do"), "{}", said(&output));
}

/// An apply that strace holds at its n-th call.
pub(crate) struct Held {
    strace: Child,
    process: u32,
}

impl Held {
    fn at(machine: &Machine, call: &str, number: u32, log: &Path) -> Self {
        Self::with(machine, call, &format!("signal=SIGSTOP:when={number}"), log)
    }

    /// The same, and the call itself is not made; the caller hears that it was.
    pub(crate) fn instead_of(machine: &Machine, call: &str, number: u32, log: &Path) -> Self {
        Self::with(machine, call, &format!("retval=0:signal=SIGSTOP:when={number}"), log)
    }

    fn with(machine: &Machine, call: &str, injection: &str, log: &Path) -> Self {
        let _ = std::fs::remove_file(log);
        let apply = machine.command("apply");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o"]).arg(log).args(["-e", &format!("trace={call}")]);
        strace.args(["-e", &format!("inject={call}:{injection}")]);
        strace.arg(apply.get_program()).args(apply.get_args());
        strace.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let strace = strace.spawn().unwrap();
        lab::wait_until("the run is held", PATIENCE, || {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            Ok(text.contains("stopped by SIGSTOP").then_some(()))
        })
        .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", strace.id());
        let children = std::fs::read_to_string(children).unwrap();
        let process = children.split_whitespace().next().expect("strace has a child").parse().unwrap();
        Self { strace, process }
    }

    /// Again and again: strace counts for each thread, so another one may be held at a call of its own later.
    pub(crate) fn go_on(mut self) -> Output {
        while self.strace.try_wait().unwrap().is_none() {
            let mut kill = Command::new("kill");
            let _ = kill.args(["-CONT", &self.process.to_string()]).stderr(Stdio::null()).status();
            std::thread::sleep(Duration::from_millis(50));
        }
        self.strace.wait_with_output().unwrap()
    }
}

#[test]
fn a_file_system_that_turns_read_only_in_the_middle_stops_the_run_with_the_reason() {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundles = Bundles::render();
    let wanted = reference(folder.path(), &bundles);
    for (call, number) in [("mkdirat", 6), ("syncfs", 1), ("renameat", 1), ("renameat", 4), ("syncfs", 2)] {
        let case = format!("read-only at {call} {number}");
        let disk = SmallDisk::mount(&folder.path().join("disk"), "size=16m");
        let machine = Machine::create(&disk.at, &bundles.first);
        // As on a node: the lock lies on another file system, which stays writable.
        let run = SmallDisk::mount(&machine.path("/run"), "size=1m");
        machine.write("/run/nodestrap/boot_id", "00000000-0000-4000-8000-000000000001\n");
        let held = Held::at(&machine, call, number, &folder.path().join("log"));
        disk.remount("ro");
        let output = held.go_on();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(4), "{case}: {text}");
        assert!(text.contains("Read-only file system"), "{case}: {text}");
        assert!(!machine.gate_is_open(), "{case}: {text}");
        disk.remount("rw");
        let again = machine.nodestrap("apply");
        assert!(again.status.success(), "{case}: {}", said(&again));
        assert_eq!(machine.tree(), wanted, "{case}");
        drop((run, disk));
    }
}

#[test]
fn the_second_of_two_runs_at_once_says_that_the_node_is_busy() {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundles = Bundles::render();
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let machine = Machine::create(&root, &bundles.first);
    let held = Held::at(&machine, "syncfs", 1, &folder.path().join("log"));
    let second = machine.nodestrap("apply");
    assert_eq!(second.status.code(), Some(5), "{}", said(&second));
    assert!(said(&second).contains("another nodestrap is at work"), "{}", said(&second));
    let first = held.go_on();
    assert!(first.status.success(), "{}", said(&first));
    assert!(machine.gate_is_open());
}

/// A memory cgroup of either kind.
struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    fn create(bytes: u64) -> Self {
        let name = format!("nodestrap-faults-{}-{bytes}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (folder, limit) = match first.is_dir() {
            true => (first.join(name), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(limit), bytes.to_string()).unwrap();
        Self { folder }
    }

    fn run(&self, machine: &Machine) -> Output {
        let apply = machine.command("apply");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.folder);
        shell.arg(apply.get_program()).args(apply.get_args()).stdin(Stdio::null()).output().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn thirty_two_megabytes_are_enough_and_a_run_that_is_killed_for_memory_is_completed_later() {
    if !lab::require() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundles = Bundles::render();
    let wanted = reference(folder.path(), &bundles);
    let root = folder.path().join("enough");
    std::fs::create_dir(&root).unwrap();
    let machine = Machine::create(&root, &bundles.first);
    let output = MemoryGroup::create(32 << 20).run(&machine);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(machine.tree(), wanted);

    let mut killed = 0;
    for quarters in 1..=12 {
        let root = folder.path().join(format!("little-{quarters}"));
        std::fs::create_dir(&root).unwrap();
        let machine = Machine::create(&root, &bundles.first);
        let output = MemoryGroup::create(quarters << 18).run(&machine);
        killed += u32::from(output.status.signal().is_some());
        assert!(!machine.gate_is_open() || machine.has(&wanted), "{}", said(&output));
        let again = machine.nodestrap("apply");
        assert!(again.status.success(), "{}", said(&again));
        assert_eq!(machine.tree(), wanted);
    }
    println!("killed {killed} times");
    assert!(killed > 0, "no limit was small enough");
}
