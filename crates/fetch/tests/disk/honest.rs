//! What GNU tar packs, we unpack as GNU tar does.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use fetch::unpack::{Entry, EntryKind, Form, Limits, Listing, unpack};
use host::Disk as _;
use host::disk::RootedDisk;

use super::{by_sha256, noise, path};

fn tar(arguments: &[&str], folder: &Path) {
    let output = Command::new("tar").args(arguments).current_dir(folder).output().expect("tar runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What a release of some program may look like.
fn make_tree(at: &Path, longest_path: usize, longest_target: usize) {
    let folders = ["bin", "lib/modules/deep", "share/empty", "share/ümläut"];
    folders.iter().for_each(|folder| std::fs::create_dir_all(at.join(folder)).unwrap());
    let write = |name: &str, mode: u32, content: &[u8]| {
        std::fs::write(at.join(name), content).unwrap();
        std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("bin/tool", 0o755, &noise(1, 300_000));
    write("bin/own", 0o711, &noise(2, 512));
    write("bin/not-executable", 0o664, &noise(3, 513));
    write("share/nothing", 0o600, b"");
    write("share/ümläut/zeros", 0o644, &[0; 100_000]);
    let long = "long".repeat(longest_path / 12);
    std::fs::create_dir_all(at.join(&long)).unwrap();
    write(&format!("{long}/{long}"), 0o755, b"long");
    symlink("tool", at.join("bin/alias")).unwrap();
    symlink("../../bin/nowhere", at.join("lib/modules/dangling")).unwrap();
    symlink(format!("../{}", "x".repeat(longest_target - 3)), at.join("share/far")).unwrap();
    std::fs::hard_link(at.join("bin/tool"), at.join("lib/modules/deep/tool")).unwrap();
    std::fs::set_permissions(at.join("share"), std::fs::Permissions::from_mode(0o2775)).unwrap();
}

/// What is really there, with the two modes that we know.
fn listing_of(at: &Path) -> Listing {
    let (mut listing, mut inodes) = (Listing::default(), BTreeMap::new());
    let mut todo = vec![at.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let found = entry.unwrap().path();
            let stat = found.symlink_metadata().unwrap();
            let kind = if stat.is_symlink() {
                EntryKind::Link { target: found.read_link().unwrap().to_str().unwrap().to_owned() }
            } else if stat.is_dir() {
                todo.push(found.clone());
                EntryKind::Folder { mode: 0o755 }
            } else {
                inodes.insert(stat.ino(), stat.len());
                let mode = if stat.mode() & 0o100 == 0 { 0o644 } else { 0o755 };
                let sha256 = by_sha256(&std::fs::read(&found).unwrap()).digest;
                EntryKind::File { mode, size: stat.len(), sha256 }
            };
            listing.entries.push(Entry { path: found.strip_prefix(at).unwrap().to_str().unwrap().to_owned(), kind });
        }
    }
    listing.entries.sort_by(|a, b| a.path.cmp(&b.path));
    listing.total = inodes.values().sum();
    listing
}

#[test]
fn what_gnu_tar_packs_becomes_the_tree_that_gnu_tar_unpacks() {
    // How long a path and a target each format can say.
    let formats = [("oldgnu", 600, 200), ("gnu", 600, 200), ("ustar", 240, 99), ("pax", 600, 200)];
    for (format, longest_path, longest_target) in formats {
        let place = tempfile::tempdir().unwrap();
        for folder in ["tree", "theirs", "ours"] {
            std::fs::create_dir(place.path().join(folder)).unwrap();
        }
        make_tree(&place.path().join("tree"), longest_path, longest_target);
        let format = format!("--format={format}");
        for names in [&["."][..], &["bin", "lib", "share"]] {
            let archive = [&[&format, "-C", "tree", "-czf", "tree.tgz"][..], names].concat();
            tar(&archive, place.path());
            for folder in ["theirs", "ours"] {
                std::fs::remove_dir_all(place.path().join(folder)).unwrap();
                std::fs::create_dir(place.path().join(folder)).unwrap();
            }
            tar(&["-C", "theirs", "--no-same-owner", "-xzf", "tree.tgz"], place.path());
            let disk = RootedDisk::open(place.path()).unwrap();
            let mut file = disk.open(path("/tree.tgz")).unwrap().unwrap();
            let folder = disk.enter(path("/ours")).unwrap();
            let listing = unpack(&mut file, Form::TarGz, &*folder, &Limits::USUAL)
                .unwrap_or_else(|error| panic!("{format} {names:?}: {error}"));
            assert_eq!(listing, listing_of(&place.path().join("theirs")), "{format} {names:?}");
            assert_eq!(listing, listing_of(&place.path().join("ours")), "{format} {names:?}");
            assert_eq!(listing.compare(&disk, path("/ours")).unwrap(), [], "{format} {names:?}");
        }
    }
}

#[test]
fn sparse_files_as_gnu_tar_packs_them_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let holes = std::fs::File::create(place.path().join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    for format in ["gnu", "pax"] {
        tar(&[&format!("--format={format}"), "--sparse", "-czf", "holes.tgz", "holes"], place.path());
        let disk = RootedDisk::open(place.path()).unwrap();
        disk.make_folder(path("/ours"), 0o755).unwrap();
        let mut file = disk.open(path("/holes.tgz")).unwrap().unwrap();
        let folder = disk.enter(path("/ours")).unwrap();
        let error = unpack(&mut file, Form::TarGz, &*folder, &Limits::USUAL).unwrap_err();
        assert!(matches!(error, fetch::unpack::UnpackError::Sparse { .. }), "{format}: {error}");
    }
}
