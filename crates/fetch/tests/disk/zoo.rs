//! Archives that must not be unpacked, each refused with its own words, and the good ones beside them.

use std::error::Error as _;

use fetch::unpack::{Difference, EntryKind, Form, Limits, Listing, UnpackError, unpack};
use flate2::Compression;
use host::Disk;
use host::disk::RootedDisk;
use host::fake::FakeDisk;
use proptest::prelude::*;

use super::path;
use super::tarball::{Header, Tarball, gzip, records_of};

fn tarball() -> Tarball {
    Tarball::default()
}

fn unpack_on(disk: &dyn Disk, form: Form<'_>, bytes: &[u8], limits: &Limits) -> Result<Listing, UnpackError> {
    disk.make_folder(path("/in"), 0o755).unwrap();
    let folder = disk.enter(path("/in")).unwrap();
    unpack(&mut &*bytes, form, &*folder, limits)
}

/// On both disks, which must agree; nothing may be outside of the folder.
fn unpacked(bytes: &[u8], limits: &Limits) -> Result<Listing, UnpackError> {
    let fake = FakeDisk::new();
    let outcome = unpack_on(&fake, Form::TarGz, bytes, limits);
    let outside = fake.paths().into_iter().find(|at| !at.starts_with("/in") && !at.starts_with("/run"));
    assert_eq!(outside, None);
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("root")).unwrap();
    let real = RootedDisk::open(&place.path().join("root")).unwrap();
    let again = unpack_on(&real, Form::TarGz, bytes, limits);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    match (&outcome, &again) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            for disk in [&fake as &dyn Disk, &real] {
                assert_eq!(one.compare(disk, path("/in")).unwrap(), []);
            }
        }
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        _ => panic!("{outcome:?} on the fake, {again:?} on the real disk"),
    }
    outcome
}

fn refusal(bytes: &[u8]) -> UnpackError {
    unpacked(bytes, &Limits::USUAL).unwrap_err()
}

/// The archive, the kind of refusal, and what its words must name.
macro_rules! refused {
    ($archive:expr, $kind:pat, $named:expr) => {
        let error = refusal(&$archive);
        assert!(matches!(error, $kind), "{error:?}");
        assert!(error.to_string().contains($named), "{error}");
    };
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    refused!(tarball().file("/etc/passwd", b"x").gz(), UnpackError::AbsolutePath { .. }, "/etc/passwd");
    refused!(tarball().file("../x", b"x").gz(), UnpackError::ParentInPath { .. }, "../x");
    refused!(tarball().file("a/../../x", b"x").gz(), UnpackError::ParentInPath { .. }, "a/../../x");
    refused!(tarball().folder("a/..").gz(), UnpackError::ParentInPath { .. }, "a/..");
    refused!(tarball().file("", b"x").gz(), UnpackError::EmptyName { .. }, "\"\"");
    refused!(tarball().file("./", b"x").gz(), UnpackError::EmptyName { .. }, "./");
    refused!(tarball().pax(&[("path", "a\0b")]).file("a", b"x").gz(), UnpackError::NulInName { .. }, "a\\0b");
    refused!(tarball().entry(b'L', "l", b"a\0b\0").file("a", b"x").gz(), UnpackError::NulInName { .. }, "a\\0b");
    refused!(tarball().header(Header::new(b'0', b"\xff\xfe", 0)).gz(), UnpackError::NotText { .. }, "\u{fffd}");
    let deep = "d/".repeat(40);
    refused!(tarball().file(&format!("{deep}x"), b"").gz(), UnpackError::TooDeep { .. }, "32");
    let long = "l".repeat(2000);
    refused!(tarball().pax(&[("path", &long)]).file("a", b"").gz(), UnpackError::PathTooLong { .. }, "1024");
    refused!(tarball().entry(b'L', "l", long.as_bytes()).file("a", b"").gz(), UnpackError::PathTooLong { .. }, "1024");
    refused!(tarball().pax(&[("path", "../x")]).file("good", b"").gz(), UnpackError::ParentInPath { .. }, "../x");
}

#[test]
fn links_that_lead_out_or_are_written_through_are_refused() {
    refused!(tarball().link("l", "/etc").gz(), UnpackError::AbsoluteLink { .. }, "/etc");
    refused!(tarball().link("a/l", "../../x").gz(), UnpackError::LinkOut { .. }, "a/l");
    refused!(tarball().link("l", "..").gz(), UnpackError::LinkOut { .. }, "..");
    let climbing = tarball().link("p/q/up", "../..").link("p/q/out", "up/../x");
    refused!(climbing.gz(), UnpackError::WindingLink { .. }, "p/q/out");
    refused!(tarball().link("l", "").gz(), UnpackError::EmptyName { .. }, "l");
    refused!(tarball().link("l", "a").file("l/x", b"").gz(), UnpackError::ThroughLink { .. }, "\"l/x\"");
    refused!(tarball().folder("a").link("l", "a").folder("l/x").gz(), UnpackError::ThroughLink { .. }, "\"l\"");
    refused!(tarball().hard_link("h", "/etc/passwd").gz(), UnpackError::AbsoluteLink { .. }, "/etc/passwd");
    refused!(tarball().hard_link("h", "../x").gz(), UnpackError::LinkOut { .. }, "../x");
    refused!(tarball().hard_link("h", "later").file("later", b"").gz(), UnpackError::HardLinkToNoFile { .. }, "later");
    refused!(tarball().folder("d").hard_link("h", "d").gz(), UnpackError::HardLinkToNoFile { .. }, "\"d\"");
    refused!(tarball().link("l", "x").hard_link("h", "l").gz(), UnpackError::HardLinkToNoFile { .. }, "\"l\"");
    refused!(tarball().link("l", "x").file("l", b"x").gz(), UnpackError::Duplicate { .. }, "\"l\"");
    // CVE-2026-33056: the folder comes after the link, to change the mode of what it leads to.
    refused!(tarball().link("l", "a").folder("l").gz(), UnpackError::Duplicate { .. }, "\"l\"");
}

#[test]
fn entries_that_are_there_twice_are_refused() {
    refused!(tarball().file("a", b"1").file("a", b"2").gz(), UnpackError::Duplicate { .. }, "\"a\"");
    refused!(tarball().file("a", b"1").file("./a", b"2").gz(), UnpackError::Duplicate { .. }, "\"a\"");
    refused!(tarball().folder("a").folder("a/").gz(), UnpackError::Duplicate { .. }, "\"a\"");
    refused!(tarball().file("a", b"").folder("a").gz(), UnpackError::Duplicate { .. }, "\"a\"");
    refused!(tarball().folder("a").file("a", b"").gz(), UnpackError::FolderReplaced { .. }, "\"a\"");
    refused!(tarball().file("a/b", b"").file("a", b"").gz(), UnpackError::FolderReplaced { .. }, "\"a\"");
    refused!(tarball().file("a/b", b"").link("a", "c").gz(), UnpackError::FolderReplaced { .. }, "\"a\"");
    refused!(tarball().file("a", b"").file("a/b", b"").gz(), UnpackError::BelowFile { .. }, "\"a/b\"");
}

#[test]
fn kinds_and_privileges_that_no_tree_of_programs_needs_are_refused() {
    refused!(tarball().entry(b'3', "dev", b"").gz(), UnpackError::Device { .. }, "dev");
    refused!(tarball().entry(b'4', "dev", b"").gz(), UnpackError::Device { .. }, "dev");
    refused!(tarball().entry(b'6', "pipe", b"").gz(), UnpackError::NamedPipe { .. }, "pipe");
    refused!(tarball().entry(b'S', "holes", b"").gz(), UnpackError::Sparse { .. }, "holes");
    let holes = tarball().pax(&[("GNU.sparse.major", "1"), ("GNU.sparse.name", "x")]);
    refused!(holes.file("holes", b"").gz(), UnpackError::Sparse { .. }, "holes");
    for kind in [b'7', b'V', b'M', b'D', b'X', b'A', 0xff] {
        refused!(tarball().entry(kind, "odd", b"").gz(), UnpackError::UnknownKind { .. }, "odd");
    }
    for mode in [0o4755, 0o2755, 0o1644] {
        let special = tarball().header(Header::new(b'0', b"su", 0).mode(mode));
        refused!(special.gz(), UnpackError::SpecialMode { .. }, &format!("{mode:o}"));
    }
    let keys =
        ["SCHILY.xattr.security.capability", "SCHILY.acl.access", "RHT.security.selinux", "LIBARCHIVE.xattr.trusted.x"];
    for key in keys {
        refused!(tarball().pax(&[(key, "x")]).file("p", b"").gz(), UnpackError::Attribute { .. }, key);
        let global = tarball().entry(b'g', "all", &records_of(&[(key, "x")])).file("p", b"");
        refused!(global.gz(), UnpackError::Attribute { .. }, key);
    }
}

#[test]
fn what_programs_read_in_different_ways_is_refused() {
    // CVE-2026-33055: one reader takes the size of the record and one that of the header, and sees other entries.
    let hidden = tarball().pax(&[("size", "0")]).file("cover", &tarball().file("hidden", b"x").0);
    refused!(hidden.gz(), UnpackError::AmbiguousSize { .. }, "cover");
    refused!(tarball().pax(&[("size", "1")]).file("a", b"").gz(), UnpackError::AmbiguousSize { .. }, "\"a\"");
    refused!(tarball().pax(&[("size", "x")]).file("a", b"").gz(), UnpackError::AmbiguousSize { .. }, "\"a\"");
    for kind in [b'1', b'2', b'5'] {
        let full = tarball().header(Header::new(kind, b"a", 512).link(b"b")).body(&[b'x'; 512]);
        refused!(full.gz(), UnpackError::AmbiguousSize { .. }, "\"a\"");
    }
    let twice = tarball().pax(&[("path", "a"), ("path", "b")]).file("c", b"");
    refused!(twice.gz(), UnpackError::AmbiguousRecord { .. }, "path");
    let both = tarball().entry(b'L', "l", b"a\0").pax(&[("path", "b")]).file("c", b"");
    refused!(both.gz(), UnpackError::AmbiguousRecord { .. }, "path");
    let both = tarball().entry(b'K', "l", b"a\0").pax(&[("linkpath", "b")]).link("c", "d");
    refused!(both.gz(), UnpackError::AmbiguousRecord { .. }, "linkpath");
    for repeated in [b'L', b'K'] {
        let twice = tarball().entry(repeated, "l", b"a\0").entry(repeated, "l", b"b\0").link("c", "d");
        refused!(twice.gz(), UnpackError::AmbiguousRecord { .. }, "twice");
    }
    refused!(tarball().pax(&[]).pax(&[]).file("c", b"").gz(), UnpackError::AmbiguousRecord { .. }, "records");
    let global = tarball().entry(b'g', "all", &records_of(&[("path", "x")])).file("a", b"");
    refused!(global.gz(), UnpackError::Header { .. }, "all");
    refused!(tarball().file("a/", b"").gz(), UnpackError::Header { .. }, "a/");
    refused!(tarball().entry(b'x', "x", b"nonsense").file("a", b"").gz(), UnpackError::Header { .. }, "PAX");
    refused!(tarball().pax(&[("path", "a")]).gz(), UnpackError::Header { .. }, "does not come");
    let binary = Header::new(b'0', b"a", 0).field(124, &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    refused!(tarball().header(binary).gz(), UnpackError::Header { .. }, "octal");
    let no_number = Header::new(b'0', b"a", 0).field(124, b"00000000001x");
    refused!(tarball().header(no_number).body(b"x").gz(), UnpackError::Header { .. }, "octal");
    let no_mode = Header::new(b'0', b"a", 0).field(100, b"rwxr-x-x");
    refused!(tarball().header(no_mode).gz(), UnpackError::Header { .. }, "mode");
}

#[test]
fn what_is_damaged_or_cut_is_refused() {
    let good = tarball().file("a", &super::noise(1, 5000)).file("b", b"x").end();
    let whole = gzip(&good.0, Compression::fast());
    for length in [0, 1, 9, 20, whole.len() / 2, whole.len() - 9, whole.len() - 8, whole.len() - 1] {
        let error = refusal(&whole[..length]);
        assert!(matches!(error, UnpackError::Truncated { .. }), "{length}: {error:?}");
    }
    let mut flipped = whole.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    refused!(flipped, UnpackError::Gzip(_), "gzip");
    assert!(refusal(&flipped).source().is_some());
    refused!(*b"PK\x03\x04 this is something else", UnpackError::Gzip(_), "gzip");

    let (first, second) = good.0.split_at(3000);
    let members = [gzip(first, Compression::fast()), gzip(second, Compression::fast())].concat();
    assert_eq!(unpacked(&members, &Limits::USUAL).unwrap().entries.len(), 2, "several members are one file");
    refused!(members[..members.len() - 3], UnpackError::Truncated { .. }, "\"b\"");
    refused!([whole.clone(), b"garbage behind it".to_vec()].concat(), UnpackError::Gzip(_), "gzip");
    // Fewer bytes than the header of another member has look like its beginning.
    refused!([whole.clone(), b"junk".to_vec()].concat(), UnpackError::Truncated { .. }, "\"b\"");

    let tar = |bytes: &[u8]| gzip(bytes, Compression::fast());
    refused!(tar(&good.0[..512 + 100]), UnpackError::Truncated { .. }, "\"a\"");
    refused!(tar(&good.0[..200]), UnpackError::Truncated { .. }, "");
    refused!(tar(&good.0[..good.0.len() - 1024]), UnpackError::NoEnd, "no end");
    assert!(unpacked(&tar(&good.0[..good.0.len() - 512]), &Limits::USUAL).is_ok(), "one block of zeros is an end");
    let mut wrong = good.0.clone();
    wrong[0] ^= 1;
    refused!(tar(&wrong), UnpackError::Checksum { .. }, "checksum");
    let tape = good.clone().raw(&[0; 10240]);
    assert!(unpacked(&tar(&tape.0), &Limits::USUAL).is_ok());
    refused!(tape.clone().raw(b"x").gz(), UnpackError::TrailingData, "after the end");
    refused!(good.file("smuggled", b"x").gz(), UnpackError::TrailingData, "after the end");
}

#[test]
fn no_more_comes_out_than_is_allowed() {
    let bomb = tarball().file("zeros", &vec![0; 4 << 20]).gz();
    refused!(bomb, UnpackError::Bomb { .. }, "zeros");
    let few = Limits { total: 3000, entries: 3, path: 10, depth: 2, ratio: 1 };
    let error = |tarball: Tarball| unpacked(&tarball.gz(), &few).unwrap_err();
    // The size that was said is enough to refuse it.
    assert!(matches!(error(tarball().file("large", &[b'x'; 3001])), UnpackError::TooLarge { limit: 3000, .. }));
    let many = tarball().file("1", b"").file("2", b"").file("3", b"").file("4", b"");
    assert!(matches!(error(many.clone()), UnpackError::TooManyEntries { limit: 3 } | UnpackError::TooLarge { .. }));
    let enough = Limits { total: 1 << 20, ..few };
    assert!(matches!(unpacked(&many.gz(), &enough), Err(UnpackError::TooManyEntries { limit: 3 })));
    assert!(matches!(error(tarball().file("a/b/c", b"")), UnpackError::TooDeep { limit: 2, .. }));
    assert!(matches!(error(tarball().file("longer than ten", b"")), UnpackError::PathTooLong { limit: 10, .. }));
    assert!(matches!(error(tarball().link("l", "longer than ten")), UnpackError::PathTooLong { .. }));
    // Headers count: an archive of nothing but those comes to an end as well.
    assert!(matches!(error(tarball().file("1", b"").folder("2").raw(&[0; 4096])), UnpackError::TooLarge { .. }));
}

#[test]
fn a_program_is_one_file_of_the_name_it_is_given() {
    let fake = FakeDisk::new();
    let content = super::noise(2, 300_000);
    let listing = unpack_on(&fake, Form::Program { name: "kubelet" }, &content, &Limits::USUAL).unwrap();
    let EntryKind::File { mode, size, sha256 } = &listing.entries[0].kind else { panic!("{listing:?}") };
    assert_eq!((*mode, *size, *sha256), (0o755, 300_000, super::by_sha256(&content).digest));
    assert_eq!((listing.entries.len(), listing.total), (1, 300_000));
    assert_eq!(fake.read(path("/in/kubelet"), 1 << 20).unwrap().unwrap(), content);
    for name in ["", ".", "..", "a/b", "/a", "../a", "./a", "a/"] {
        let error = unpack_on(&FakeDisk::new(), Form::Program { name }, b"x", &Limits::USUAL);
        assert!(error.is_err(), "{name:?}");
    }
    let few = Limits { total: 100, ..Limits::USUAL };
    let error = unpack_on(&FakeDisk::new(), Form::Program { name: "kubelet" }, &content, &few).unwrap_err();
    assert!(matches!(error, UnpackError::TooLarge { limit: 100, .. }), "{error}");
}

#[test]
fn an_archive_becomes_the_tree_it_describes() {
    let long = format!("{}/{}", "f".repeat(90), "g".repeat(90));
    let archive = tarball()
        .entry(b'g', "pax_global_header", &records_of(&[("comment", "a commit")]))
        .folder("./")
        .header(Header::new(b'5', b"bin/", 0).mode(0o2700))
        .header(Header::new(b'0', b"bin/tool", 4).mode(0o700))
        .body(b"tool")
        .header(Header::new(0, b"share/doc", 3).mode(0o666))
        .body(b"doc")
        .folder("share")
        .link("bin/alias", "../bin/tool")
        .hard_link("./bin/same", "./bin/tool")
        .pax(&[("path", &long), ("size", "1"), ("mtime", "1.5"), ("SCHILY.xattr.user.note", "x")])
        .file("short", b"l");
    let listing = unpacked(&archive.gz(), &Limits::USUAL).unwrap();
    let shown: Vec<String> = listing
        .entries
        .iter()
        .map(|entry| match &entry.kind {
            EntryKind::Folder { mode } => format!("{} {mode:o}", entry.path),
            EntryKind::File { mode, size, .. } => format!("{} {mode:o} {size}", entry.path),
            EntryKind::Link { target } => format!("{} -> {target}", entry.path),
        })
        .collect();
    let (above, below) = (long.split('/').next().unwrap(), format!("{long} 644 1"));
    let wanted = [
        "bin 755",
        "bin/alias -> ../bin/tool",
        "bin/same 755 4",
        "bin/tool 755 4",
        &format!("{above} 755"),
        &below,
        "share 755",
        "share/doc 644 3",
    ];
    assert_eq!(shown, wanted);
    assert_eq!(listing.total, 8);
    let text = serde_json::to_string(&listing).unwrap();
    assert!(text.contains(r#"{"path":"bin","kind":"folder","mode":"0755"}"#), "{text}");
    assert!(text.contains(r#""path":"bin/tool","kind":"file","mode":"0755","size":4,"sha256":"sha256:"#), "{text}");
    assert_eq!(serde_json::from_str::<Listing>(&text).unwrap(), listing);
}

#[test]
fn a_tree_that_was_changed_differs_from_its_listing() {
    let archive = tarball().file("bin/a", b"aa").file("bin/b", b"bb").link("l", "bin/a").folder("d").gz();
    let change = |change: &dyn Fn(&FakeDisk)| {
        let fake = FakeDisk::new();
        let listing = unpack_on(&fake, Form::TarGz, &archive, &Limits::USUAL).unwrap();
        change(&fake);
        listing.compare(&fake, path("/in")).unwrap()
    };
    let changed = |path: &str| Difference::Changed { path: path.to_owned() };
    let absent = |path: &str| Difference::Absent { path: path.to_owned() };
    assert_eq!(change(&|_| {}), []);
    let rewrite = |disk: &FakeDisk, at: &str, mode, bytes: &[u8]| {
        disk.remove(path(at)).unwrap();
        disk.create(path(at), mode, bytes).unwrap();
    };
    assert_eq!(change(&|disk| rewrite(disk, "/in/bin/a", 0o644, b"aA")), [changed("bin/a")]);
    assert_eq!(change(&|disk| rewrite(disk, "/in/bin/a", 0o755, b"aa")), [changed("bin/a")]);
    assert_eq!(change(&|disk| rewrite(disk, "/in/l", 0o755, b"aa")), [changed("l")]);
    assert_eq!(
        change(&|disk| drop(disk.remove_tree(path("/in/bin")))),
        [absent("bin"), absent("bin/a"), absent("bin/b")]
    );
    let more = |disk: &FakeDisk| disk.create(path("/in/d/new"), 0o644, b"").unwrap();
    assert_eq!(change(&more), [Difference::Additional { path: "d/new".to_owned() }]);
    // The kernel shows what is right, and the disk holds something else.
    assert_eq!(change(&|disk| disk.lose_writeback()), [changed("bin/a"), changed("bin/b")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_broken_in_an_archive_nothing_leaves_the_folder(
        changes in prop::collection::vec((0usize..6000, any::<u8>()), 1..6),
        cut in 0usize..8000,
    ) {
        let mut bytes = tarball()
            .folder("a")
            .file("a/f", &super::noise(3, 700))
            .link("a/l", "../b")
            .hard_link("a/h", "a/f")
            .pax(&[("path", "a/long"), ("size", "3")])
            .file("x", b"abc")
            .end()
            .0;
        let length = bytes.len();
        for (at, value) in changes {
            let block = at % length / 512 * 512;
            bytes[at % length] = value;
            // With a right checksum it gets further.
            let header: [u8; 512] = bytes[block..block + 512].try_into().unwrap();
            bytes[block..block + 512].copy_from_slice(&tarball().header(Header(header)).0);
        }
        bytes.truncate(cut.max(512));
        let _ = unpacked(&gzip(&bytes, Compression::none()), &Limits::USUAL);
    }

    #[test]
    fn any_tree_comes_out_as_it_went_in(files in prop::collection::btree_map("[a-c]{1,2}(/[a-c]{1,2}){0,3}", prop::collection::vec(any::<u8>(), 0..1200), 0..12)) {
        // A name cannot be a file and a folder.
        let is_above = |name: &str| files.keys().any(|other| other.starts_with(&format!("{name}/")));
        let files: Vec<(&String, &Vec<u8>)> = files.iter().filter(|(name, _)| !is_above(name)).collect();
        let archive = files.iter().fold(tarball(), |archive, (name, content)| archive.file(name, content));
        let listing = unpacked(&archive.gz(), &Limits::USUAL).unwrap();
        let found: Vec<(&String, u64)> = listing.entries.iter().filter_map(|entry| match &entry.kind {
            EntryKind::File { size, sha256, .. } => {
                let content = files.iter().find(|(name, _)| **name == entry.path).unwrap().1;
                assert_eq!(*sha256, super::by_sha256(content).digest);
                Some((&entry.path, *size))
            }
            _ => None,
        }).collect();
        let mut wanted: Vec<(&String, u64)> = files.iter().map(|(name, content)| (*name, content.len() as u64)).collect();
        wanted.sort();
        prop_assert_eq!(found, wanted);
    }
}
