//! The same on every disk: on one call, name by name as on an old kernel, and on the fake.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use super::*;
use crate::disk::rooted::tests::without_openat2;
use crate::disk::{Disk, Kind, RootedDisk};
use crate::fake::FakeDisk;

struct Place {
    name: &'static str,
    disk: Arc<dyn Disk>,
    /// Everything of the test is below.
    top: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Place {
    fn all() -> Vec<Self> {
        let real = |name, open: &dyn Fn(&Path) -> RootedDisk, top: &dyn Fn(&Path) -> PathBuf| {
            let folder = tempfile::tempdir().unwrap();
            let (disk, top) = (Arc::new(open(folder.path())), top(folder.path()));
            Self { name, disk, top, _folder: Some(folder) }
        };
        let places = vec![
            real("at once", &|folder| RootedDisk::open(folder).unwrap(), &|_| PathBuf::from("/")),
            real("step by step", &|_| without_openat2(), &Path::to_path_buf),
            Self { name: "fake", disk: Arc::new(FakeDisk::new()), top: PathBuf::from("/top"), _folder: None },
        ];
        for place in &places {
            place.disk.make_folder(&place.top.join("in"), 0o700).unwrap();
            place.disk.make_folder(&place.top.join("out"), 0o755).unwrap();
            place.disk.create(&place.top.join("out/secret"), 0o600, b"outside").unwrap();
        }
        places
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.join(path)
    }

    fn enter(&self) -> Box<dyn Folder> {
        self.disk.enter(&self.at("in")).unwrap()
    }

    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.disk.read(&self.at(path), 100).unwrap()
    }
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

#[test]
fn an_entered_folder_cannot_be_left() {
    for place in Place::all() {
        let folder = place.enter();
        let out = place.at("out").display().to_string();
        for (name, target) in [("far", out.as_str()), ("near", "../out"), ("up", ".."), ("self", ".")] {
            folder.symlink(target, path(name)).unwrap();
        }
        let ways =
            ["far/x", "near/x", "up/x", "up/out/x", "self/x", "../out/x", "/out/x", "..", ".", "", "./x", "x/", "a//x"];
        for way in ways {
            let context = format!("{} {way:?}", place.name);
            assert!(folder.create(path(way), 0o644).is_err(), "{context}");
            assert!(folder.make_folder(path(way), 0o755).is_err(), "{context}");
            assert!(folder.make_folder(path(&format!("{way}/deeper")), 0o755).is_err(), "{context}");
            assert!(folder.symlink("x", path(way)).is_err(), "{context}");
        }
        for secret in ["far/secret", "near/secret", "../out/secret", "far", "self"] {
            assert!(folder.hard_link(path(secret), path("mine")).is_err(), "{} {secret}", place.name);
        }
        assert!(folder.make_folder(path("far"), 0o755).is_err(), "{}: a link is no folder", place.name);
        assert_eq!(place.disk.list(&place.at("out")).unwrap(), ["secret"], "{}", place.name);
        assert_eq!(place.disk.list(&place.at("in")).unwrap(), ["far", "near", "self", "up"], "{}", place.name);
    }
}

#[test]
fn an_entered_folder_is_filled_with_what_was_said() {
    for place in Place::all() {
        let folder = place.enter();
        folder.make_folder(path("a/b/c"), 0o700).unwrap();
        folder.make_folder(path("a/b"), 0o711).unwrap();
        let mode = |inside: &str| place.disk.stat(&place.at(inside)).unwrap().unwrap().mode;
        assert_eq!((mode("in/a"), mode("in/a/b"), mode("in/a/b/c")), (0o755, 0o755, 0o700), "{}", place.name);
        let mut file = folder.create(path("a/f"), 0o755).unwrap();
        for piece in ["one ", "two"] {
            file.write_all(piece.as_bytes()).unwrap();
        }
        drop(file);
        folder.hard_link(path("a/f"), path("a/b/g")).unwrap();
        folder.symlink("../b/g", path("a/b/l")).unwrap();
        assert_eq!((place.read("in/a/f"), mode("in/a/f")), (Some(b"one two".to_vec()), 0o755), "{}", place.name);
        place.disk.append(&place.at("in/a/f"), b"!").unwrap();
        assert_eq!(place.read("in/a/b/g").unwrap(), b"one two!", "{}: the same file", place.name);
        let link = place.disk.stat(&place.at("in/a/b/l")).unwrap().unwrap();
        assert_eq!(link.kind, Kind::Link { target: "../b/g".to_owned() });
        for taken in ["a/f", "a/b/l", "a/b"] {
            assert!(folder.create(path(taken), 0o644).is_err(), "{} {taken}", place.name);
            assert!(folder.symlink("x", path(taken)).is_err(), "{} {taken}", place.name);
            assert!(folder.hard_link(path("a/f"), path(taken)).is_err(), "{} {taken}", place.name);
        }
        for no_file in ["a/b", "a/b/l", "none"] {
            assert!(folder.hard_link(path(no_file), path("h")).is_err(), "{} {no_file}", place.name);
        }
        assert!(folder.create(path("none/f"), 0o644).is_err() && folder.make_folder(path("a/f"), 0o755).is_err());
    }
}

#[test]
fn only_folders_are_entered_and_no_links_to_them() {
    for place in Place::all() {
        place.disk.symlink("in", &place.at("link")).unwrap();
        for no_folder in ["link", "out/secret", "none"] {
            assert!(place.disk.enter(&place.at(no_folder)).is_err(), "{} {no_folder}", place.name);
        }
    }
}

#[test]
fn a_file_is_read_piece_by_piece_and_stays_the_same_when_its_name_goes() {
    for place in Place::all() {
        place.disk.symlink("out/secret", &place.at("link")).unwrap();
        assert!(place.disk.open(&place.at("none")).unwrap().is_none() && place.disk.open(&place.at("link")).is_err());
        assert!(place.disk.open(&place.at("out")).is_err(), "{}: a folder", place.name);
        assert!(
            place.disk.open_medium(&place.at("link")).is_err() && place.disk.open_medium(&place.at("out")).is_err()
        );
        let mut medium = place.disk.open_medium(&place.at("out/secret")).unwrap().unwrap();
        let mut file = place.disk.open(&place.at("out/secret")).unwrap().unwrap();
        assert!(place.disk.remove(&place.at("out/secret")).unwrap());
        place.disk.create(&place.at("out/secret"), 0o600, b"another").unwrap();
        let mut piece = [0; 3];
        file.read_exact(&mut piece).unwrap();
        assert_eq!(&piece, b"out");
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "side");
        assert_eq!((file.seek(SeekFrom::End(0)).unwrap(), file.seek(SeekFrom::Start(1)).unwrap()), (7, 1));
        rest.clear();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "utside", "{}", place.name);
        rest.clear();
        medium.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "outside", "{}", place.name);
    }
}

#[test]
fn a_tree_is_removed_and_what_its_links_lead_to_is_not() {
    for place in Place::all() {
        let folder = place.enter();
        let out = place.at("out").display().to_string();
        folder.make_folder(path("a/b/c"), 0o755).unwrap();
        folder.create(path("a/b/f"), 0o644).unwrap();
        for (link, target) in [("a/far", out.as_str()), ("a/b/near", "../../../out"), ("a/b/c/dead", "nowhere")] {
            folder.symlink(target, path(link)).unwrap();
        }
        place.disk.symlink("in", &place.at("link")).unwrap();
        assert!(place.disk.remove_tree(&place.at("link")).unwrap(), "{}", place.name);
        assert_eq!(place.disk.list(&place.at("in")).unwrap(), ["a"], "{}: only the link went", place.name);
        assert!(place.disk.remove_tree(&place.at("in")).unwrap());
        assert!(
            !place.disk.remove_tree(&place.at("in")).unwrap() && !place.disk.remove_tree(&place.at("in/a")).unwrap()
        );
        assert_eq!(place.disk.stat(&place.at("in")).unwrap(), None, "{}", place.name);
        assert_eq!(place.read("out/secret").unwrap(), b"outside", "{}", place.name);
    }
}

#[test]
fn a_tree_that_is_too_deep_is_not_removed_with_all_descriptors_there_are() {
    for place in Place::all() {
        let mut deep = place.at("in");
        for _ in 0..300 {
            deep.push("d");
        }
        place.disk.make_folder(&deep, 0o755).unwrap();
        let error = place.disk.remove_tree(&place.at("in")).unwrap_err();
        assert!(error.source.to_string().contains("deep"), "{}: {}", place.name, error.source);
    }
}

#[test]
fn names_that_are_no_text_are_removed_too() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RootedDisk::open(folder.path()).unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    std::fs::create_dir_all(folder.path().join("in").join(name)).unwrap();
    std::fs::write(folder.path().join("in").join(name).join(name), "x").unwrap();
    assert!(disk.remove_tree(path("/in")).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_mounted_below_is_not_entered() {
    for disk in [RootedDisk::open(path("/")).unwrap(), without_openat2()] {
        let folder = disk.enter(path("/")).unwrap();
        let error = folder.make_folder(path("proc/nodestrap-test/x"), 0o755).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(Errno::XDEV.raw_os_error()), "{}", error.source);
    }
}
