//! The durable-write protocol on a disk that dies at every operation, in every way, with many seeds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host::disk::{Disk, Kind};
use host::doubt;
use host::fake::{Crash, Entry, FakeDisk, Fault, Moment, Repeat};
use host::files::{self, Difference, FileError, FileWrite};

const SEEDS: u64 = 40;
const OLD: &[u8] = b"the old content, somewhat longer than the new one";
const NEW: &[u8] = b"the new content";
const MOMENTS: [Moment; 3] = [Moment::Before, Moment::Midway, Moment::After];

/// A machine with two durable file systems, two old files, and one folder that is still missing.
fn machine() -> FakeDisk {
    let disk = FakeDisk::new();
    let set_up = disk.uncounted();
    set_up.mount(Path::new("/var")).unwrap();
    set_up.make_folder(Path::new("/etc"), 0o755).unwrap();
    set_up.create(Path::new("/etc/a"), 0o644, OLD).unwrap();
    set_up.create(Path::new("/var/b"), 0o644, OLD).unwrap();
    for path in ["/", "/var"] {
        set_up.sync_file_system(Path::new(path)).unwrap();
    }
    disk
}

fn wanted() -> Vec<FileWrite<'static>> {
    let file = |path, owner| FileWrite { path: Path::new(path), mode: 0o600, owner, content: NEW };
    vec![file("/etc/a", None), file("/etc/new/deep/c", Some((7, 8))), file("/var/b", None)]
}

fn commit_all(disk: &dyn Disk) -> Result<(), FileError> {
    files::commit(disk, files::stage(disk, &wanted())?)
}

fn write_each(disk: &dyn Disk) -> Result<(), FileError> {
    wanted().iter().try_for_each(|file| files::write_durable(disk, file.path, file.mode, file.content, file.owner))
}

type Run = fn(&dyn Disk) -> Result<(), FileError>;
const PROTOCOLS: [(&str, Run); 2] = [("commit", commit_all), ("write_durable", write_each)];

type Tree = BTreeMap<PathBuf, Entry>;

fn tree(disk: &FakeDisk) -> Tree {
    let mut tree = disk.snapshot();
    tree.retain(|path, _| !path.starts_with("/run"));
    tree
}

fn clean(run: Run) -> (u64, Tree) {
    let disk = machine();
    run(&disk).unwrap();
    (disk.operations(), tree(&disk))
}

/// Every target is whole: old, new, or absent if it was absent.
fn assert_no_torn_file(disk: &FakeDisk, context: impl Fn() -> String) {
    let tree = tree(disk);
    for file in wanted() {
        let is_old = file.path != Path::new("/etc/new/deep/c");
        let whole = match tree.get(file.path) {
            None => !is_old,
            Some(entry) if entry.content == NEW => (entry.mode, entry.kind.clone()) == (0o600, Kind::File),
            Some(entry) => is_old && entry.content == OLD && entry.mode == 0o644,
        };
        assert!(whole, "{}: {:?} is {:?}", context(), file.path, tree.get(file.path));
    }
}

fn seeds(crash: Crash) -> std::ops::Range<u64> {
    // A kill leaves nothing to chance.
    0..if crash == Crash::PowerLoss { SEEDS } else { 1 }
}

fn crashed_machine(run: Run, disk: FakeDisk, n: u64, moment: Moment) -> FakeDisk {
    disk.crash_point().crash_at(n, moment);
    let died = run(&disk);
    assert!(died.is_err() && disk.crash_point().crashed(), "operation {n} was never reached");
    disk
}

#[test]
fn files_are_old_or_new_after_a_crash_anywhere_and_a_rerun_completes_them() {
    for (name, run) in PROTOCOLS {
        let (operations, completed) = clean(run);
        for n in 1..=operations {
            for moment in MOMENTS {
                let dead = crashed_machine(run, machine(), n, moment);
                for crash in [Crash::ProcessKill, Crash::PowerLoss] {
                    for seed in seeds(crash) {
                        let context = || format!("{name} {n} {moment:?} {crash:?} seed {seed}\n{:#?}", dead.log());
                        let disk = dead.after_crash(crash, seed);
                        assert_no_torn_file(&disk, context);
                        run(&disk).unwrap();
                        assert_eq!(tree(&disk), completed, "{}", context());
                        // And what the rerun called done is done, also what it found half done.
                        let later = disk.after_crash(Crash::PowerLoss, seed + 1);
                        assert_eq!(tree(&later), completed, "after power loss: {}", context());
                    }
                }
            }
        }
    }
}

#[test]
fn a_second_crash_during_the_rerun_changes_nothing() {
    for (name, run) in PROTOCOLS {
        let (operations, completed) = clean(run);
        for first in 1..=operations {
            for crash in [Crash::ProcessKill, Crash::PowerLoss] {
                let dead = crashed_machine(run, machine(), first, Moment::Midway);
                for second in 1..=operations {
                    for seed in 0..2 {
                        let again = dead.after_crash(crash, seed);
                        let again = crashed_machine(run, again, second, Moment::After);
                        let disk = again.after_crash(Crash::PowerLoss, seed + 100);
                        let context = || format!("{name} {first} {crash:?} {second} {seed}");
                        assert_no_torn_file(&disk, context);
                        run(&disk).unwrap();
                        assert_eq!(tree(&disk), completed, "{}", context());
                    }
                }
            }
        }
    }
}

#[test]
fn what_returned_ok_survives_power_loss() {
    for (name, run) in PROTOCOLS {
        let disk = machine();
        run(&disk).unwrap();
        let completed = tree(&disk);
        for seed in 0..2_000 {
            let after = disk.after_crash(Crash::PowerLoss, seed);
            assert_eq!(tree(&after), completed, "{name} seed {seed}");
        }
    }
}

#[test]
fn a_failing_disk_leaves_whole_files_and_its_own_error_number() {
    for (name, run) in PROTOCOLS {
        let (operations, completed) = clean(run);
        for n in 1..=operations {
            for fault in [Fault::DISK_FULL, Fault::INPUT_OUTPUT, Fault::READ_ONLY] {
                for repeat in [Repeat::Once, Repeat::FromThenOn] {
                    let context = format!("{name} {n} {fault:?} {repeat:?}");
                    let disk = machine();
                    disk.crash_point().fail_at(n, fault, repeat);
                    let Err(FileError::Disk(error)) = run(&disk) else { panic!("{context}: no error") };
                    assert_eq!(error.source.raw_os_error().map(Fault::Errno), Some(fault), "{context}");
                    assert_no_torn_file(&disk, || context.clone());
                    let is_leftover = |path: &PathBuf| path.to_string_lossy().ends_with(".nodestrap-new");
                    let room_was_given_back = !disk.snapshot().keys().any(is_leftover);
                    assert!(room_was_given_back || fault != Fault::DISK_FULL, "{context}");
                    disk.crash_point().heal();
                    run(&disk).unwrap();
                    assert_eq!(tree(&disk), completed, "{context}");
                }
            }
        }
    }
}

#[test]
fn many_files_cost_two_syncs_per_file_system() {
    let disk = machine();
    commit_all(&disk).unwrap();
    let syncs: Vec<String> = disk.log().into_iter().filter(|line| line.contains("sync")).collect();
    assert_eq!(syncs.len(), 4, "{syncs:#?}");
    assert!(syncs.iter().all(|line| line.contains("sync-file-system")), "{syncs:#?}");
}

#[test]
fn removal_is_for_ever_even_when_an_earlier_run_did_half_of_it() {
    let path = Path::new("/etc/a");
    let disk = machine();
    assert!(files::remove_durable(&disk, path).unwrap());
    assert!(!files::remove_durable(&disk, path).unwrap());
    assert!(!files::remove_durable(&disk, Path::new("/nowhere/x")).unwrap());
    let half_done = machine();
    half_done.remove(path).unwrap();
    assert!(!files::remove_durable(&half_done, path).unwrap());
    for seed in 0..SEEDS {
        for disk in [&disk, &half_done] {
            assert_eq!(disk.after_crash(Crash::PowerLoss, seed).stat(path).unwrap(), None);
        }
    }
}

#[test]
fn sync_all_pins_what_was_found_the_same() {
    let disk = machine();
    let path = Path::new("/var/d");
    disk.create(path, 0o600, NEW).unwrap();
    files::sync_all(&disk, &[path, Path::new("/var/b"), Path::new("/nowhere")]).unwrap();
    assert_eq!(disk.log().iter().filter(|line| line.contains("sync")).count(), 2, "one for each file system");
    for seed in 0..SEEDS {
        assert_eq!(disk.after_crash(Crash::PowerLoss, seed).read(path, 100).unwrap().unwrap(), NEW);
    }
}

#[test]
fn differences_are_named_in_order() {
    let disk = machine();
    disk.make_folder(Path::new("/etc/folder"), 0o755).unwrap();
    disk.symlink("/etc/a", Path::new("/etc/link")).unwrap();
    let same = FileWrite { path: Path::new("/etc/a"), mode: 0o644, owner: Some((0, 0)), content: OLD };
    let at = |path: &'static str| FileWrite { path: Path::new(path), ..same };
    let link = Kind::Link { target: "/etc/a".to_owned() };
    let other_content: Vec<u8> = OLD.iter().map(|byte| byte ^ 1).collect();
    let cases = [
        (same, Difference::Same),
        (FileWrite { owner: None, ..same }, Difference::Same),
        (at("/etc/x"), Difference::Absent),
        (at("/etc/a/below"), Difference::Absent),
        (at("/etc/folder"), Difference::Kind { found: Kind::Folder }),
        (at("/etc/link"), Difference::Kind { found: link }),
        (FileWrite { content: NEW, mode: 0, ..same }, Difference::Content),
        (FileWrite { content: &other_content, ..same }, Difference::Content),
        (FileWrite { mode: 0o600, owner: Some((1, 1)), ..same }, Difference::Mode { found: 0o644 }),
        (FileWrite { owner: Some((0, 1)), ..same }, Difference::Owner { uid: 0, gid: 0 }),
    ];
    for (file, wanted) in cases {
        assert_eq!(files::matches(&disk, &file).unwrap(), wanted, "{:?}", file.path);
    }
}

#[test]
fn obstacles_are_refused_by_name_before_anything_is_written() {
    let disk = machine();
    disk.make_folder(Path::new("/etc/folder"), 0o755).unwrap();
    disk.symlink("/etc/a", Path::new("/etc/link")).unwrap();
    let before = disk.tree_digest(&[]);
    let cases = [
        ("/etc/folder", "a folder is in the way at \"/etc/folder\""),
        ("/etc/link", "a link to \"/etc/a\" is in the way at \"/etc/link\""),
        ("/etc/a", "two files are to be written to \"/etc/a\""),
        ("etc/a", "\"etc/a\" is not the absolute path of a file"),
        ("/", "\"/\" is not the absolute path of a file"),
        ("/etc/..", "\"/etc/..\" is not the absolute path of a file"),
    ];
    for (path, message) in cases {
        let file = FileWrite { path: Path::new(path), mode: 0o600, owner: None, content: NEW };
        let first = FileWrite { path: Path::new("/etc/a"), ..file };
        let Err(error) = files::stage(&disk, &[first, file]) else { panic!("{path} was staged") };
        assert_eq!(error.to_string(), message);
        assert!(path == "/etc/a" || files::write_durable(&disk, file.path, 0o600, NEW, None).is_err());
    }
    assert_eq!(disk.tree_digest(&[]), before);
}

#[test]
fn leftovers_of_dead_runs_can_be_swept() {
    let disk = machine();
    for name in [".a.nodestrap-new", "b.nodestrap-new", ".c"] {
        disk.create(&Path::new("/etc").join(name), 0o600, b"x").unwrap();
    }
    let removed = files::remove_leftovers(&disk, Path::new("/etc")).unwrap();
    assert_eq!(removed, [PathBuf::from("/etc/.a.nodestrap-new")]);
    assert_eq!(disk.list(Path::new("/etc")).unwrap(), [".c", "a", "b.nodestrap-new"]);
    assert!(files::remove_leftovers(&disk, Path::new("/nowhere")).unwrap().is_empty());
}

#[test]
fn a_write_that_the_disk_loses_while_somebody_else_is_told_is_no_durable_write() {
    let disk = machine();
    let path = Path::new("/etc/a");
    disk.crash_point().lose_writeback_at(disk.operations() + 3);
    let lost = files::write_durable(&disk, path, 0o644, NEW, None).unwrap_err();
    assert_eq!(
        lost.to_string(),
        "the disk lost what was written to \"/etc/a\": the kernel shows other bytes than are on it"
    );
    assert_eq!(disk.read(path, 100).unwrap().unwrap(), OLD);
    assert!(!files::has_leftover(&disk, path).unwrap() && doubt::is_cast(&disk, "me").unwrap());
    files::write_durable(&disk, path, 0o644, NEW, None).unwrap();
}

#[test]
fn files_are_proved_by_what_the_disk_holds_and_not_by_what_the_kernel_shows() {
    let disk = machine();
    let file = |path: &'static str| FileWrite { path: Path::new(path), mode: 0o600, owner: None, content: NEW };
    let files = [file("/etc/x"), file("/var/y"), file("/var/edited"), file("/var/gone")];
    files::commit(&disk, files::stage(&disk, &files[..3]).unwrap()).unwrap();
    // Somebody wants it so: a change is no loss.
    disk.truncate(files[2].path, 1).unwrap();
    disk.sync_file(files[2].path).unwrap();
    files::prove(&disk, &files).unwrap();
    assert!(!doubt::is_cast(&disk, "me").unwrap());
    for file in &files[..2] {
        disk.remove(file.path).unwrap();
        disk.create(file.path, 0o600, NEW).unwrap();
    }
    disk.lose_writeback();
    files::sync_all(&disk, &[files[0].path, files[1].path]).unwrap();
    assert_eq!(files::matches(&disk, &files[0]).unwrap(), Difference::Same, "the kernel shows what was written");
    let again = FakeDisk::after_crash(&disk, Crash::ProcessKill, 0);
    let lost = files::prove(&disk, &files).unwrap_err().to_string();
    assert!(lost.starts_with("the disk lost what was written to \"/etc/x\" and 1 more:"), "{lost}");
    assert!(doubt::is_cast(&disk, "me").unwrap());
    files::prove(&disk, &files).unwrap_err();
    doubt::settle(&disk, "me").unwrap();
    assert!(!doubt::is_cast(&disk, "me").unwrap() && doubt::is_cast(&disk, "another").unwrap());
    // Of what nobody else knows, the kernel's memory is the only copy.
    files::mend(&again, files[0].path, 0o600, 100).unwrap();
    assert_eq!(again.read_medium(files[0].path, 100).unwrap().unwrap(), NEW);
}
