//! The fake must be cruel enough: protocols that are wrong must be caught by it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use host::disk::{Disk, Kind};
use host::fake::{Crash, FakeDisk, FakeUnits, Fault, Moment, Repeat};
use host::units::{ActiveState, JobResult, UnitError, UnitName, Units};

fn path(text: &str) -> &Path {
    Path::new(text)
}

/// Everything that power losses with many seeds make of one file; `None` is its absence.
fn outcomes(disk: &FakeDisk, file: &str) -> BTreeSet<Option<Vec<u8>>> {
    (0..500).map(|seed| disk.after_crash(Crash::PowerLoss, seed).read(path(file), 1000).unwrap()).collect()
}

#[test]
fn a_rename_without_a_sync_of_the_file_may_leave_it_torn() {
    let disk = FakeDisk::new();
    disk.create(path("/x"), 0o600, b"old").unwrap();
    disk.sync_file_system(path("/")).unwrap();
    disk.create(path("/t"), 0o600, b"new").unwrap();
    disk.rename(path("/t"), path("/x")).unwrap();
    disk.sync_folder(path("/")).unwrap();
    let seen = outcomes(&disk, "/x");
    for content in [&b""[..], b"n", b"ne", b"new", b"n\0\0", b"\0\0\0"] {
        assert!(seen.contains(&Some(content.to_vec())), "{content:?} not in {seen:?}");
    }
    assert!(!seen.contains(&Some(b"old".to_vec())) && !seen.contains(&None), "the name was synced");
}

#[test]
fn a_file_without_a_sync_of_its_folder_may_be_gone() {
    let disk = FakeDisk::new();
    disk.create(path("/x"), 0o600, b"new").unwrap();
    disk.sync_file(path("/x")).unwrap();
    assert_eq!(outcomes(&disk, "/x"), BTreeSet::from([None, Some(b"new".to_vec())]));
    disk.sync_folder(path("/")).unwrap();
    assert_eq!(outcomes(&disk, "/x"), BTreeSet::from([Some(b"new".to_vec())]));
}

#[test]
fn names_survive_independently_and_intermediate_states_are_possible() {
    let disk = FakeDisk::new();
    for content in ["1", "2", "3"] {
        disk.create(path("/t"), 0o600, content.as_bytes()).unwrap();
        disk.sync_file(path("/t")).unwrap();
        disk.rename(path("/t"), path("/x")).unwrap();
    }
    let all = [None, Some(b"1".to_vec()), Some(b"2".to_vec()), Some(b"3".to_vec())];
    assert_eq!(outcomes(&disk, "/x"), BTreeSet::from(all));
}

#[test]
fn an_append_never_loses_what_was_durable_before() {
    let disk = FakeDisk::new();
    disk.append(path("/j"), b"durable").unwrap();
    disk.sync_file_system(path("/")).unwrap();
    disk.append(path("/j"), b" torn").unwrap();
    let seen = outcomes(&disk, "/j");
    assert!(seen.iter().all(|content| content.as_ref().is_some_and(|bytes| bytes.starts_with(b"durable"))), "{seen:?}");
    assert!(seen.contains(&Some(b"durable t".to_vec())) && seen.contains(&Some(b"durable".to_vec())), "{seen:?}");
}

#[test]
fn what_happens_in_a_folder_that_is_not_durable_is_lost_with_it() {
    let disk = FakeDisk::new();
    disk.make_folder(path("/a/b"), 0o700).unwrap();
    disk.create(path("/a/b/x"), 0o600, b"new").unwrap();
    disk.sync_file(path("/a/b/x")).unwrap();
    disk.sync_folder(path("/a/b")).unwrap();
    assert_eq!(outcomes(&disk, "/a/b/x"), BTreeSet::from([None, Some(b"new".to_vec())]));
}

#[test]
fn a_kill_keeps_everything_and_half_of_a_write() {
    let disk = FakeDisk::new();
    disk.crash_point().crash_at(2, Moment::Midway);
    disk.create(path("/a"), 0o600, b"whole").unwrap();
    assert_eq!(disk.append(path("/b"), b"1234").unwrap_err().source.to_string(), "crashed");
    assert!(disk.read(path("/a"), 10).is_err(), "the dead do not read");
    let after = disk.after_crash(Crash::ProcessKill, 0);
    assert_eq!(after.read(path("/a"), 10).unwrap().unwrap(), b"whole");
    assert_eq!(after.read(path("/b"), 10).unwrap().unwrap(), b"12");
    assert_eq!((disk.operations(), after.operations()), (2, 0));
}

#[test]
fn run_is_empty_after_a_reboot_and_locks_end_with_the_process() {
    let disk = FakeDisk::new();
    let held = disk.try_lock(path("/run/n/lock")).unwrap();
    assert!(held.is_some() && disk.try_lock(path("/run/n/lock")).unwrap().is_none());
    let killed = disk.after_crash(Crash::ProcessKill, 0);
    assert!(killed.try_lock(path("/run/n/lock")).unwrap().is_some());
    drop(held);
    assert!(disk.try_lock(path("/run/n/lock")).unwrap().is_some());
    disk.sync_file_system(path("/run")).unwrap();
    assert!(disk.after_crash(Crash::PowerLoss, 0).list(path("/run")).unwrap().is_empty());
}

#[test]
fn links_are_followed_inside_the_root() {
    let disk = FakeDisk::new();
    disk.make_folder(path("/usr/lib"), 0o755).unwrap();
    disk.symlink("usr/lib", path("/lib")).unwrap();
    disk.symlink("../../../usr/lib/x", path("/usr/lib/y")).unwrap();
    disk.symlink("/loop", path("/loop")).unwrap();
    disk.create(path("/lib/x"), 0o644, b"1").unwrap();
    assert_eq!(disk.read(path("/lib/y"), 9).unwrap().unwrap(), b"1");
    assert!(matches!(disk.stat(path("/lib/y")).unwrap().unwrap().kind, Kind::Link { .. }));
    assert_eq!(disk.read(path("/loop"), 9).unwrap_err().source.raw_os_error(), Some(40));
    assert_eq!(disk.list(path("/lib")).unwrap(), ["x", "y"]);
    assert!(disk.create(path("/lib/y"), 0o600, b"").is_err(), "a link is in the way");
}

#[test]
fn a_full_disk_still_allows_removals() {
    let disk = FakeDisk::new();
    disk.create(path("/a"), 0o600, b"x").unwrap();
    disk.crash_point().fail_at(2, Fault::DISK_FULL, Repeat::FromThenOn);
    assert_eq!(disk.create(path("/b"), 0o600, b"x").unwrap_err().source.raw_os_error(), Some(28));
    assert!(disk.remove(path("/a")).unwrap());
    assert!(disk.append(path("/b"), b"x").is_err());
    disk.crash_point().heal();
    disk.append(path("/b"), b"x").unwrap();
}

#[test]
fn digests_see_every_difference_but_the_excluded_ones() {
    let make = |mode, owner: (u32, u32), content: &[u8]| {
        let disk = FakeDisk::new();
        disk.create(path("/x"), mode, content).unwrap();
        disk.set_owner(path("/x"), owner.0, owner.1).unwrap();
        disk.create(path("/xy"), mode, b"").unwrap();
        disk
    };
    let base = make(0o600, (0, 0), b"1").tree_digest(&[]);
    let others = [make(0o644, (0, 0), b"1"), make(0o600, (0, 1), b"1"), make(0o600, (0, 0), b"2")];
    assert_eq!(make(0o600, (0, 0), b"1").tree_digest(&[]), base);
    for other in &others {
        assert_ne!(other.tree_digest(&[]), base);
    }
    assert_eq!(others[2].tree_digest(&["/x"]), make(0o600, (0, 0), b"1").tree_digest(&["/x"]));
    assert_ne!(others[2].tree_digest(&["/x"]), others[2].tree_digest(&["/x", "/xy"]));
}

#[test]
fn units_share_the_crash_point_and_start_nothing_by_themselves_after_a_boot() {
    let disk = FakeDisk::new();
    disk.make_folder(path("/etc/systemd/system"), 0o755).unwrap();
    let unit_file = path("/etc/systemd/system/a.service");
    disk.create(unit_file, 0o644, b"[Install]\nWantedBy=multi-user.target\n").unwrap();
    disk.sync_file_system(path("/")).unwrap();
    let units = FakeUnits::new(&disk);
    let unit = UnitName("a.service".to_owned());
    units.enable(std::slice::from_ref(&unit)).unwrap();
    units.restart_and_wait(&unit, Duration::ZERO).unwrap();
    assert_eq!(disk.operations(), 5);
    disk.crash_point().crash_at(6, Moment::After);
    assert!(units.queue_restart(&unit).is_err() && units.state(&unit).is_err());

    let killed = disk.after_crash(Crash::ProcessKill, 0);
    let state = units.after_crash(Crash::ProcessKill, &killed).state(&unit).unwrap();
    assert_eq!((state.active, state.enabled), (ActiveState::Active, true));
    assert_eq!(units.after_crash(Crash::ProcessKill, &killed).jobs().len(), 2);
    let enabled_after_power_loss: BTreeSet<bool> = (0..100)
        .map(|seed| {
            let disk = disk.after_crash(Crash::PowerLoss, seed);
            let state = units.after_crash(Crash::PowerLoss, &disk).state(&unit).unwrap();
            assert_eq!(state.active, ActiveState::Inactive);
            state.enabled
        })
        .collect();
    assert_eq!(enabled_after_power_loss, BTreeSet::from([false, true]), "systemd does not sync its links");
}

#[test]
fn units_fail_as_ordered() {
    let disk = FakeDisk::new();
    disk.make_folder(path("/etc/systemd/system"), 0o755).unwrap();
    disk.create(path("/etc/systemd/system/a.service"), 0o644, b"[Service]").unwrap();
    let (units, unit) = (FakeUnits::new(&disk), UnitName("a.service".to_owned()));
    units.end_jobs_with(&unit, JobResult::Failed);
    let error = units.restart_and_wait(&unit, Duration::ZERO).unwrap_err();
    assert!(matches!(error, UnitError::Job { result: JobResult::Failed, .. }), "{error}");
    assert_eq!(units.state(&unit).unwrap().active, ActiveState::Failed);
    units.never_end_jobs(&unit);
    assert!(matches!(units.restart_and_wait(&unit, Duration::from_secs(1)), Err(UnitError::Deadline { .. })));
    assert_eq!(units.state(&unit).unwrap().active, ActiveState::Activating);
    units.set_bus_missing(true);
    assert!(matches!(units.reload(Duration::ZERO), Err(UnitError::Bus { .. })));
    units.set_bus_missing(false);

    disk.remove(path("/etc/systemd/system/a.service")).unwrap();
    disk.create(path("/etc/systemd/system/a.service"), 0o644, b"[Service]\n# changed").unwrap();
    assert!(units.state(&unit).unwrap().needs_reload);
    units.reload(Duration::ZERO).unwrap();
    assert!(!units.state(&unit).unwrap().needs_reload);
    assert!(matches!(units.queue_start(&UnitName("b.service".to_owned())), Err(UnitError::NotFound { .. })));
}

#[test]
fn what_was_written_back_wrongly_can_be_read_until_the_cache_is_dropped_and_no_sync_says_so() {
    let disk = FakeDisk::new();
    disk.create(path("/old"), 0o600, b"old").unwrap();
    disk.sync_file_system(path("/")).unwrap();
    disk.crash_point().lose_writeback_at(disk.operations() + 2);
    disk.create(path("/x"), 0o600, b"new").unwrap();
    disk.append(path("/old"), b"er").unwrap();
    disk.sync_file_system(path("/")).unwrap();
    assert_eq!(disk.read(path("/x"), 100).unwrap().unwrap(), b"new");
    assert_eq!(outcomes(&disk, "/x"), BTreeSet::from([Some(b"\0\0\0".to_vec())]));
    assert_eq!(outcomes(&disk, "/old"), BTreeSet::from([Some(b"old\0\0".to_vec())]), "what was durable stays");
    assert_eq!(disk.read_medium(path("/x"), 100).unwrap().unwrap(), b"\0\0\0");
    assert_eq!(disk.read(path("/x"), 100).unwrap().unwrap(), b"\0\0\0", "the kernel has forgotten it too");
    disk.remove(path("/x")).unwrap();
    disk.create(path("/x"), 0o600, b"new").unwrap();
    disk.sync_file_system(path("/")).unwrap();
    assert_eq!(disk.read_medium(path("/x"), 100).unwrap().unwrap(), b"new");
    assert_eq!(disk.read_medium(path("/nowhere"), 100).unwrap(), None);
}

#[test]
fn what_a_failed_sync_did_not_write_is_never_written() {
    let disk = FakeDisk::new();
    disk.create(path("/x"), 0o600, b"new").unwrap();
    disk.crash_point().fail_at(disk.operations() + 1, Fault::INPUT_OUTPUT, Repeat::Once);
    disk.sync_file(path("/x")).unwrap_err();
    disk.sync_file_system(path("/")).unwrap();
    assert_eq!(outcomes(&disk, "/x"), BTreeSet::from([Some(b"\0\0\0".to_vec())]));
    assert!(host::doubt::is_cast(&disk, "me").unwrap(), "it is remembered");
    assert!(!host::doubt::is_cast(&disk.after_crash(Crash::PowerLoss, 0), "me").unwrap(), "until the boot ends");
}

#[test]
fn what_is_written_piece_by_piece_is_lost_or_torn_like_everything_else() {
    let disk = FakeDisk::new();
    disk.make_folder(path("/a"), 0o755).unwrap();
    disk.sync_file_system(path("/")).unwrap();
    let folder = disk.enter(path("/a")).unwrap();
    let mut file = folder.create(path("x"), 0o644).unwrap();
    file.write_all(b"12").unwrap();
    file.write_all(b"34").unwrap();
    let seen = outcomes(&disk, "/a/x");
    for content in [None, Some(&b""[..]), Some(b"1"), Some(b"12"), Some(b"123"), Some(b"12\0\0"), Some(b"1234")] {
        assert!(seen.contains(&content.map(<[u8]>::to_vec)), "{content:?} not in {seen:?}");
    }
    disk.sync_file_system(path("/a")).unwrap();
    assert_eq!(outcomes(&disk, "/a/x"), BTreeSet::from([Some(b"1234".to_vec())]));
    disk.crash_point().crash_at(disk.operations() + 1, Moment::Midway);
    assert!(file.write_all(b"5678").is_err() && file.write_all(b"9").is_err());
    let after = disk.after_crash(Crash::ProcessKill, 0);
    assert_eq!(after.read(path("/a/x"), 10).unwrap().unwrap(), b"123456");
}

#[test]
fn a_stream_from_the_medium_sees_what_the_disk_lost() {
    let disk = FakeDisk::new();
    disk.create(path("/x"), 0o600, b"new").unwrap();
    disk.lose_writeback();
    let content = |reader: Option<Box<dyn host::disk::FileReader>>| {
        let mut bytes = Vec::new();
        reader.unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(content(disk.open(path("/x")).unwrap()), b"new");
    assert_eq!(content(disk.open_medium(path("/x")).unwrap()), b"\0\0\0");
}

#[test]
fn a_tree_whose_removal_is_killed_is_removed_the_next_time() {
    let build = || {
        let disk = FakeDisk::new();
        disk.make_folder(path("/a/b"), 0o755).unwrap();
        disk.create(path("/a/b/x"), 0o600, b"x").unwrap();
        disk.symlink("b", path("/a/l")).unwrap();
        disk.sync_everything().unwrap();
        disk
    };
    let disk = build();
    let before = disk.operations();
    assert!(disk.remove_tree(path("/a")).unwrap());
    assert_eq!(disk.operations() - before, 4, "every name is an operation of its own");
    for n in before + 1..=disk.operations() {
        let disk = build();
        disk.crash_point().crash_at(n, Moment::After);
        assert!(disk.remove_tree(path("/a")).is_err());
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            let disk = disk.after_crash(crash, n);
            disk.remove_tree(path("/a")).unwrap();
            assert_eq!(disk.list(path("/")).unwrap(), ["run"]);
        }
    }
}

#[test]
fn a_renamed_folder_is_found_at_one_place_at_most() {
    let disk = FakeDisk::new();
    disk.make_folder(path("/old"), 0o755).unwrap();
    disk.create(path("/old/x"), 0o600, b"x").unwrap();
    disk.sync_everything().unwrap();
    disk.rename(path("/old"), path("/new")).unwrap();
    let found = (0..100).map(|seed| disk.after_crash(Crash::PowerLoss, seed).list(path("/")).unwrap());
    let found: BTreeSet<Vec<String>> = found.collect();
    for names in [&["new", "run"][..], &["old", "run"]] {
        assert!(found.contains(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()), "{found:?}");
    }
    assert!(found.iter().all(|names| names.len() < 3), "{found:?}");
}
