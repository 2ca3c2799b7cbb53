//! The Linux disk on a real file system: nothing leads out of the root, and every verb does what it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test looks at the real file system from outside")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use host::disk::{Disk, Kind, RootedDisk};
use host::files::{self, FileWrite};

/// A root, and beside it a folder that must never be touched.
struct Place {
    folder: tempfile::TempDir,
    disk: RootedDisk,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        std::fs::write(folder.path().join("outside/secret"), "outside").unwrap();
        let disk = RootedDisk::open(&folder.path().join("root")).unwrap();
        Self { folder, disk }
    }

    fn real(&self, inside: &str) -> PathBuf {
        self.folder.path().join("root").join(inside.trim_start_matches('/'))
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

#[test]
fn an_absolute_link_resolves_inside_the_root() {
    let place = Place::new();
    symlink(place.outside(), place.real("/etc")).unwrap();
    assert_eq!(place.disk.read(path("/etc/secret"), 100).unwrap(), None);
    let refused = place.disk.create(path("/etc/x"), 0o600, b"x").unwrap_err();
    assert_eq!(refused.source.kind(), std::io::ErrorKind::NotFound);
    assert!(place.disk.make_folder(path("/etc"), 0o755).is_err(), "a dangling link is no folder");

    // The same link leads to the place of that name inside the root once that exists.
    let inside = place.real(place.outside().to_str().unwrap());
    std::fs::create_dir_all(&inside).unwrap();
    place.disk.create(path("/etc/x"), 0o600, b"inside").unwrap();
    assert_eq!(std::fs::read(inside.join("x")).unwrap(), b"inside");
    assert_eq!(std::fs::read_dir(place.outside()).unwrap().count(), 1);
}

#[test]
fn dots_and_relative_links_cannot_leave_the_root() {
    let place = Place::new();
    symlink("../../../../outside", place.real("/up")).unwrap();
    for way in ["/../outside/secret", "/up/secret", "/../../../../../../etc/hostname/x"] {
        assert_eq!(place.disk.read(path(way), 100).unwrap(), None, "{way}");
        assert!(place.disk.create(path(way), 0o600, b"x").is_err(), "{way}");
        assert!(!place.disk.remove(path(way)).unwrap(), "{way}");
        assert!(place.disk.set_owner(path(way), 0, 0).is_err(), "{way}");
    }
    place.disk.create(path("/../../a"), 0o600, b"x").unwrap();
    assert!(place.real("/a").exists());
    for bad in ["/..", "relative", "/a/../.."] {
        assert!(place.disk.create(path(bad), 0o600, b"x").is_err(), "{bad}");
    }
    assert_eq!(std::fs::read(place.outside().join("secret")).unwrap(), b"outside");
}

#[test]
fn a_link_at_the_name_itself_is_never_written_through() {
    let place = Place::new();
    std::fs::write(place.real("/target"), "old").unwrap();
    symlink("target", place.real("/link")).unwrap();
    assert!(place.disk.create(path("/link"), 0o600, b"x").is_err());
    assert!(place.disk.append(path("/link"), b"x").is_err());
    assert!(place.disk.truncate(path("/link"), 0).is_err());
    assert!(place.disk.try_lock(path("/link")).is_err());
    assert!(place.disk.sync_file(path("/link")).is_err());
    assert_eq!(place.disk.read(path("/link"), 100).unwrap().unwrap(), b"old");
    assert_eq!(place.disk.stat(path("/link")).unwrap().unwrap().kind, Kind::Link { target: "target".to_owned() });
    assert!(place.disk.remove(path("/link")).unwrap());
    assert_eq!(std::fs::read(place.real("/target")).unwrap(), b"old");
}

#[test]
fn the_verbs_do_what_they_say() {
    let Place { disk, folder } = &Place::new();
    disk.make_folder(path("/a/b"), 0o700).unwrap();
    disk.make_folder(path("/a/b"), 0o755).unwrap();
    let mode = |inside: &str| disk.stat(path(inside)).unwrap().unwrap().mode;
    assert_eq!((mode("/a"), mode("/a/b")), (0o755, 0o700));
    disk.append(path("/a/j"), b"one").unwrap();
    disk.append(path("/a/j"), b"two").unwrap();
    disk.truncate(path("/a/j"), 4).unwrap();
    assert_eq!(disk.read(path("/a/j"), 4).unwrap().unwrap(), b"onet");
    assert_eq!(mode("/a/j"), 0o600);
    disk.rename(path("/a/j"), path("/a/b/k")).unwrap();
    disk.symlink("b/k", path("/a/l")).unwrap();
    for synced in [disk.sync_file(path("/a/b/k")), disk.sync_folder(path("/a/b")), disk.sync_file_system(path("/a/l"))]
    {
        synced.unwrap();
    }
    assert_eq!(disk.list(path("/a")).unwrap(), ["b", "l"]);
    assert_eq!(disk.list(path("/")).unwrap(), ["a"]);
    assert!(disk.list(path("/none")).unwrap().is_empty());
    assert!(disk.list(path("/a/b/k")).is_err());
    assert!(disk.remove(path("/a/b")).is_err(), "not empty");
    assert!(disk.remove(path("/a/b/k")).unwrap() && disk.remove(path("/a/b")).unwrap());
    assert!(!disk.remove(path("/a/b")).unwrap());
    let root = disk.stat(path("/")).unwrap().unwrap();
    assert_eq!((root.kind, root.device), (Kind::Folder, std::fs::metadata(folder.path()).unwrap().dev()));
}

#[test]
fn reading_is_bounded_and_only_for_files() {
    let place = Place::new();
    std::fs::write(place.real("/x"), [7; 10]).unwrap();
    assert_eq!(place.disk.read(path("/x"), 10).unwrap().unwrap().len(), 10);
    let error = place.disk.read(path("/x"), 9).unwrap_err();
    assert_eq!(error.to_string(), "read \"/x\"");
    assert_eq!(error.source.to_string(), "more than 9 bytes");
    assert_eq!(place.disk.read(path("/x"), u64::MAX).unwrap().unwrap().len(), 10);
    assert_eq!(place.disk.read(path("/x/below"), 9).unwrap(), None);
    assert!(place.disk.read(path("/"), 9).is_err());
    // A pipe without a writer would hold an ordinary open for ever.
    rustix::fs::mknodat(rustix::fs::CWD, place.real("/p"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(place.disk.read(path("/p"), 9).is_err());
    assert_eq!(place.disk.stat(path("/p")).unwrap().unwrap().kind, Kind::Other);
}

#[test]
fn a_file_is_never_wider_than_wanted_while_it_is_written() {
    let place = Place::new();
    let bytes = vec![1; 8 << 20];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..8 {
                place.disk.create(&PathBuf::from(format!("/{round}")), 0o600, &bytes).unwrap();
            }
        });
        let mut seen = 0;
        while !writer.is_finished() {
            for round in 0..8 {
                if let Ok(metadata) = std::fs::metadata(place.real(&round.to_string())) {
                    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
                    seen += 1;
                }
            }
        }
        assert!(seen > 0);
    });
}

#[test]
fn set_user_id_bits_survive_a_change_of_owner() {
    let place = Place::new();
    place.disk.create(path("/tool"), 0o4755, b"x").unwrap();
    let me = place.disk.stat(path("/tool")).unwrap().unwrap();
    place.disk.set_owner(path("/tool"), me.uid, me.gid).unwrap();
    assert_eq!(place.disk.stat(path("/tool")).unwrap().unwrap().mode, 0o4755);
}

#[test]
fn the_start_of_a_growing_file_is_emptied_and_its_end_is_read() {
    let place = Place::new();
    let log = path("/log");
    assert_eq!(place.disk.read_end(log, 10).unwrap(), None);
    assert!(place.disk.empty_start(log, 10).is_err());
    place.disk.append(log, &b"words\n".repeat(1_000_000)).unwrap();
    place.disk.append(log, b"the end\n").unwrap();
    let before = std::fs::metadata(place.real("/log")).unwrap();
    place.disk.empty_start(log, 100_000).unwrap();
    place.disk.append(log, b"or not\n").unwrap();
    let after = std::fs::metadata(place.real("/log")).unwrap();
    assert!(after.blocks() * 512 < 200_000 && before.blocks() * 512 > 5_000_000, "{} blocks", after.blocks());
    assert_eq!(after.len(), before.len() + 7, "what others append finds its place");
    assert_eq!(place.disk.read_end(log, 15).unwrap().unwrap(), b"the end\nor not\n");
    assert_eq!(place.disk.read_end(log, u64::MAX).unwrap().unwrap().len() as u64, after.len());
    place.disk.empty_start(log, u64::MAX).unwrap();

    symlink(place.outside().join("secret"), place.real("/link")).unwrap();
    assert!(place.disk.read_end(path("/link"), 10).is_err() && place.disk.empty_start(path("/link"), 0).is_err());
    place.disk.make_folder(path("/folder"), 0o700).unwrap();
    assert!(place.disk.read_end(path("/folder"), 10).is_err());
}

#[test]
fn a_lock_has_one_holder() {
    let place = Place::new();
    let other = RootedDisk::open(&place.folder.path().join("root")).unwrap();
    let held = place.disk.try_lock(path("/run/nodestrap/lock")).unwrap();
    assert!(held.is_some());
    assert!(other.try_lock(path("/run/nodestrap/lock")).unwrap().is_none());
    assert_eq!(locks_from_another_process(&place), "busy");
    assert_eq!(std::fs::metadata(place.real("/run/nodestrap/lock")).unwrap().permissions().mode() & 0o777, 0o600);
    drop(held);
    assert_eq!(locks_from_another_process(&place), "free");
    assert!(other.try_lock(path("/run/nodestrap/lock")).unwrap().is_some());
}

const CHILD_ROOT: &str = "NODESTRAP_TEST_LOCK_ROOT";

fn locks_from_another_process(place: &Place) -> &'static str {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process_of_the_lock_test", "--nocapture"])
        .env(CHILD_ROOT, place.folder.path().join("root"))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned();
    if output.contains("lock: busy") {
        "busy"
    } else if output.contains("lock: free") {
        "free"
    } else {
        "unknown"
    }
}

#[test]
fn the_other_process_of_the_lock_test() {
    // Does nothing in an ordinary run.
    if let Some(root) = std::env::var_os(CHILD_ROOT) {
        let held =
            RootedDisk::open(path(root.to_str().unwrap())).unwrap().try_lock(path("/run/nodestrap/lock")).unwrap();
        println!("lock: {}", if held.is_some() { "free" } else { "busy" });
    }
}

#[test]
fn staged_files_arrive_on_a_real_disk() {
    let place = Place::new();
    let file = |path, content| FileWrite { path: Path::new(path), mode: 0o640, owner: None, content };
    let wanted = [file("/etc/a/x", &b"1"[..]), file("/y", b"2")];
    for _ in 0..2 {
        let staged = files::stage(&place.disk, &wanted).unwrap();
        assert!(place.real("/.y.nodestrap-new").exists());
        files::commit(&place.disk, staged).unwrap();
        for file in &wanted {
            assert_eq!(files::matches(&place.disk, file).unwrap(), files::Difference::Same);
        }
    }
    files::write_durable(&place.disk, path("/etc/a/x"), 0o600, b"3", None).unwrap();
    assert_eq!(std::fs::read(place.real("/etc/a/x")).unwrap(), b"3");
    assert_eq!(place.disk.list(path("/")).unwrap(), ["etc", "y"]);
}

#[test]
fn a_root_that_is_not_there_is_named() {
    let Err(error) = RootedDisk::open(path("/nonexistent/root")) else { panic!("opened") };
    assert_eq!(error.to_string(), "open the root folder \"/nonexistent/root\"");
}
