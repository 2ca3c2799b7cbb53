//! A node that fetches and unpacks is killed, loses power, and has its disk fail, at every operation there is.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use fetch::Sink as _;
use fetch::store::{Reception, Store, StoreError, Wanted};
use fetch::unpack::{Form, Limits, unpack};
use host::Disk;
use host::fake::{Crash, Entry, FakeDisk, Fault, Moment, Promise, Repeat};

use super::store::FOLDER;
use super::tarball::Tarball;
use super::{by_sha256, noise, path};

const STAGED: &str = "/opt/.tree-new";
const TREE: &str = "/opt/tree";
/// States that a power loss can leave, for each moment.
const SEEDS: u64 = 6;

fn archive() -> Vec<u8> {
    let tarball = Tarball::default().folder("bin").file("bin/tool", &noise(5, 900)).link("bin/t", "tool");
    tarball.hard_link("bin/same", "bin/tool").gz()
}

/// As a node does it: the object, the tree beside its place, one sync, one rename.
fn bring(disk: &FakeDisk, bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::new(disk, path(FOLDER));
    let wanted = by_sha256(bytes);
    let mut object = match store.open(&wanted)? {
        Some(object) => object,
        None => fetch(&store, &wanted, bytes)?,
    };
    if disk.stat(path(TREE))?.is_none() {
        disk.remove_tree(path(STAGED))?;
        disk.make_folder(path(STAGED), 0o755)?;
        let listing = unpack(&mut object, Form::TarGz, &*disk.enter(path(STAGED))?, &Limits::USUAL)?;
        disk.sync_file_system(path(STAGED))?;
        match listing.compare(disk, path(STAGED))?.first() {
            None => disk.rename(path(STAGED), path(TREE))?,
            Some(difference) => return Err(format!("{difference:?}").into()),
        }
    }
    // Seen is not durable: the run that renamed it may have died before this.
    disk.sync_folder(path("/opt"))?;
    disk.sync_folder(path("/"))?;
    let mut rest = Vec::new();
    object.read_to_end(&mut rest)?;
    Ok(())
}

fn fetch<'a>(
    store: &Store<'a>,
    wanted: &Wanted,
    bytes: &[u8],
) -> Result<fetch::store::Object, Box<dyn std::error::Error>> {
    for _ in 0..2 {
        let mut incoming = match store.receive(wanted)? {
            Reception::Present(object) => return Ok(object),
            Reception::Busy => return Err("busy".into()),
            Reception::Incoming(incoming) => incoming,
        };
        let kept = usize::try_from(incoming.kept())?;
        bytes[kept..].chunks(400).try_for_each(|piece| incoming.append(piece))?;
        match incoming.finish() {
            // What was kept over a power loss was torn, or a sync failed in the run before: from the beginning.
            Err(StoreError::Differs { .. } | StoreError::Lost { .. }) => {}
            finished => return Ok(finished?),
        }
    }
    Err("wrong twice".into())
}

fn without_run(disk: &FakeDisk) -> BTreeMap<PathBuf, Entry> {
    disk.snapshot().into_iter().filter(|(path, _)| !path.starts_with("/run")).collect()
}

struct Clean {
    bytes: Vec<u8>,
    operations: u64,
    tree: BTreeMap<PathBuf, Entry>,
}

fn clean() -> Clean {
    let (bytes, disk) = (archive(), FakeDisk::new());
    bring(&disk, &bytes).unwrap();
    let operations = disk.operations();
    assert!(operations > 25, "{:?}", disk.log());
    Clean { bytes, operations, tree: without_run(&disk) }
}

/// An object is whole or absent, whatever happened; and the next run comes to the same end as one that nothing happened to.
fn comes_to_the_same_end(clean: &Clean, disk: &FakeDisk, what: &str) {
    let store = Store::new(disk, path(FOLDER));
    let found = super::store::content(store.open(&by_sha256(&clean.bytes)).unwrap());
    assert!(found.is_none_or(|found| found == clean.bytes), "{what}: an object with other bytes");
    bring(disk, &clean.bytes).unwrap_or_else(|error| panic!("{what}: {error}\n{:#?}", disk.log()));
    let mut tree = without_run(disk);
    // A name that a power loss brought back is nothing to anybody, until it is collected.
    store.collect(&[by_sha256(&clean.bytes).digest]).unwrap();
    tree.retain(|path, _| disk.stat(path).unwrap().is_some());
    assert!(tree == clean.tree, "{what}: {:?}", tree.keys().collect::<Vec<_>>());
    let promise = Promise::of(&clean.tree, &[&format!("{FOLDER}/staging")]);
    assert_eq!(disk.find_broken(&promise), None, "{what}: done, and a power loss could undo it");
}

#[test]
fn killed_or_without_power_at_any_operation_it_resumes_to_the_same_tree() {
    let clean = clean();
    for n in 1..=clean.operations {
        for moment in [Moment::Before, Moment::Midway, Moment::After] {
            let disk = FakeDisk::new();
            disk.crash_point().crash_at(n, moment);
            assert!(bring(&disk, &clean.bytes).is_err(), "nothing was killed at {n}");
            let last = disk.log().pop().unwrap();
            comes_to_the_same_end(&clean, &disk.after_crash(Crash::ProcessKill, 0), &format!("killed: {last}"));
            for seed in 0..SEEDS {
                let after = disk.after_crash(Crash::PowerLoss, seed * 1000 + n);
                comes_to_the_same_end(&clean, &after, &format!("power lost ({seed}): {last}"));
            }
        }
    }
}

#[test]
fn a_failing_disk_ends_the_run_with_its_reason_and_the_next_one_succeeds() {
    let clean = clean();
    for n in 1..=clean.operations {
        for fault in [Fault::DISK_FULL, Fault::INPUT_OUTPUT, Fault::READ_ONLY] {
            let disk = FakeDisk::new();
            disk.crash_point().fail_at(n, fault, Repeat::FromThenOn);
            let error = bring(&disk, &clean.bytes).expect_err("a disk that fails is not passed over");
            assert!(!error.to_string().is_empty());
            disk.crash_point().heal();
            comes_to_the_same_end(&clean, &disk, &format!("{fault:?} at {n}"));
        }
    }
}

#[test]
fn what_a_disk_loses_silently_at_any_operation_is_found_or_does_no_harm() {
    let clean = clean();
    for n in 1..=clean.operations {
        let disk = FakeDisk::new();
        disk.crash_point().lose_writeback_at(n);
        let _ = bring(&disk, &clean.bytes);
        disk.crash_point().heal();
        for seed in 0..SEEDS {
            let after = disk.after_crash(Crash::PowerLoss, seed);
            let store = Store::new(&after, path(FOLDER));
            let found = super::store::content(store.open(&by_sha256(&clean.bytes)).unwrap());
            assert!(found.is_none_or(|found| found == clean.bytes), "an object with other bytes, lost at {n}");
        }
        comes_to_the_same_end(&clean, &disk, &format!("lost at {n}"));
    }
}
