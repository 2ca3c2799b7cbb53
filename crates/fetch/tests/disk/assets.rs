//! A folder that is pushed: cut, damaged, killed or without power at any point, it is at its place as a whole or not at all.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use fetch::assets::{Done, Existing, LIMITS, PackError, Parcel, ReceiveError, Received, Target, receive};
use fetch::unpack::UnpackError;
use host::Disk;
use host::disk::{Kind, RootedDisk};
use host::fake::{Crash, Entry, FakeDisk, Fault, Moment, Repeat};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::path;
use super::tarball::{Header, Tarball};

const SOURCE: &str = "/home/assets";
const TARGET: &str = "/opt/tectonic";
const MARK: &str = "/opt/tectonic/.nodestrap-pushed";
/// States that a power loss can leave, for each moment.
const SEEDS: u64 = 6;

type Tree = BTreeMap<PathBuf, Entry>;
type Take = fn(&FakeDisk, &[u8]) -> Result<Received, ReceiveError>;

fn assets() -> FakeDisk {
    let disk = FakeDisk::new();
    disk.make_folder(path(SOURCE), 0o750).unwrap();
    disk.make_folder(&path(SOURCE).join("tls"), 0o700).unwrap();
    disk.make_folder(&path(SOURCE).join("manifests"), 0o755).unwrap();
    for (name, mode, content) in [
        ("bootkube.sh", 0o755, "#!/usr/bin/bash\n"),
        ("tls/ca.key", 0o600, "secret"),
        ("manifests/kube-dns.yaml", 0o644, ""),
    ] {
        disk.create(&path(SOURCE).join(name), mode, content.as_bytes()).unwrap();
    }
    disk
}

fn other_assets() -> FakeDisk {
    let disk = FakeDisk::new();
    disk.make_folder(path(SOURCE), 0o755).unwrap();
    disk.create(&path(SOURCE).join("bootkube.sh"), 0o755, b"#!/usr/bin/bash\nexit 1\n").unwrap();
    disk
}

fn sent(disk: &FakeDisk) -> Vec<u8> {
    let mut bytes = Vec::new();
    Parcel::pack(disk, path(SOURCE)).unwrap().send(&mut bytes, &|_| ()).unwrap();
    bytes
}

fn take(disk: &FakeDisk, mut bytes: &[u8]) -> Result<Received, ReceiveError> {
    receive(&mut bytes, disk, &Target { path: TARGET.into(), existing: Existing::Stays })
}

fn replace(disk: &FakeDisk, mut bytes: &[u8]) -> Result<Received, ReceiveError> {
    receive(&mut bytes, disk, &Target { path: TARGET.into(), existing: Existing::Replaced })
}

/// With its own mode and without the mark, by relative paths.
fn below(disk: &FakeDisk, folder: &str) -> Tree {
    let all = disk.snapshot().into_iter().filter(|(at, _)| at != path(MARK));
    all.filter_map(|(at, entry)| Some((at.strip_prefix(folder).ok()?.to_owned(), entry))).collect()
}

/// Everything of the machine that lasts.
fn lasting(disk: &FakeDisk) -> Tree {
    disk.snapshot().into_iter().filter(|(at, _)| !at.starts_with("/run")).collect()
}

fn heading_of(tar: &[u8]) -> Vec<u8> {
    let digest = fetch::Digest::Sha256(Sha256::digest(tar).into());
    let mut bytes = format!("nodestrap-push-v1 {digest} {} 0755\n", tar.len()).into_bytes();
    bytes.extend_from_slice(tar);
    bytes
}

#[test]
fn what_is_pushed_is_there_with_its_modes_and_again_it_is_nothing_to_do() {
    let (source, node) = (assets(), FakeDisk::new());
    let bytes = sent(&source);
    assert_eq!(take(&node, &bytes).unwrap().done, Done::Published { files: 3 });
    assert_eq!(below(&node, TARGET), below(&source, SOURCE));
    assert_eq!(below(&node, TARGET)[path("tls/ca.key")].mode, 0o600);
    assert_eq!(below(&node, TARGET)[path("")].mode, 0o750);
    // What was started by it has left a mark of its own, and has cleaned up.
    node.create(&path(TARGET).join("init_bootkube.done"), 0o644, b"").unwrap();
    node.remove_tree(&path(TARGET).join("manifests")).unwrap();
    let before = lasting(&node);
    assert_eq!(take(&node, &bytes).unwrap().done, Done::ThereAlready);
    assert_eq!(lasting(&node), before);
}

#[test]
fn another_push_is_refused_unless_it_may_replace_the_first() {
    let node = FakeDisk::new();
    take(&node, &sent(&assets())).unwrap();
    let before = lasting(&node);
    let refused = take(&node, &sent(&other_assets())).unwrap_err();
    assert!(refused.to_string().contains("--replace"), "{refused}");
    assert_eq!(lasting(&node), before);
    assert_eq!(replace(&node, &sent(&other_assets())).unwrap().done, Done::Replaced { files: 1 });
    assert_eq!(below(&node, TARGET), below(&other_assets(), SOURCE));
    assert!(!node.snapshot().keys().any(|at| at.to_string_lossy().contains("nodestrap-new")));
}

#[test]
fn what_no_push_has_brought_is_never_replaced() {
    let in_the_way: [fn(&FakeDisk); 3] = [
        |node| {
            node.make_folder(path(TARGET), 0o755).unwrap();
            node.create(&path(TARGET).join("passwd"), 0o644, b"root").unwrap();
        },
        |node| node.create(path(TARGET), 0o644, b"a file").unwrap(),
        |node| node.symlink("/etc", path(TARGET)).unwrap(),
    ];
    for prepare in in_the_way {
        let node = FakeDisk::new();
        node.make_folder(path("/opt"), 0o755).unwrap();
        prepare(&node);
        let before = lasting(&node);
        for refused in [take(&node, &sent(&assets())), replace(&node, &sent(&assets()))] {
            assert!(matches!(refused, Err(ReceiveError::NotOurs { .. })), "{refused:?}");
        }
        assert_eq!(lasting(&node), before);
    }
}

#[test]
fn an_empty_folder_is_room() {
    let node = FakeDisk::new();
    node.make_folder(path(TARGET), 0o700).unwrap();
    assert_eq!(take(&node, &sent(&assets())).unwrap().done, Done::Published { files: 3 });
    assert_eq!(below(&node, TARGET), below(&assets(), SOURCE));
}

#[test]
fn on_a_real_disk_a_folder_arrives_and_one_takes_the_place_of_another() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = tempfile::tempdir().unwrap();
    let disk = RootedDisk::open(machine.path()).unwrap();
    let push = |source: &FakeDisk, existing| {
        receive(&mut sent(source).as_slice(), &disk, &Target { path: TARGET.into(), existing })
    };
    assert_eq!(push(&assets(), Existing::Stays).unwrap().done, Done::Published { files: 3 });
    assert_eq!(push(&assets(), Existing::Replaced).unwrap().done, Done::ThereAlready);
    let at = |name: &str| machine.path().join("opt/tectonic").join(name);
    let mode = |name: &str| at(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(""), mode("tls"), mode("tls/ca.key"), mode("bootkube.sh")), (0o750, 0o700, 0o600, 0o755));
    assert!(matches!(push(&other_assets(), Existing::Stays), Err(ReceiveError::OtherPush { .. })));
    assert_eq!(push(&other_assets(), Existing::Replaced).unwrap().done, Done::Replaced { files: 1 });
    assert_eq!(std::fs::read(at("bootkube.sh")).unwrap(), b"#!/usr/bin/bash\nexit 1\n");
    assert!(!at("tls").exists());
    assert_eq!(disk.list(path("/opt")).unwrap(), ["tectonic"]);
    // A real folder that is packed gives what it was unpacked from.
    let again = Parcel::pack(&disk, path(TARGET));
    assert!(matches!(again, Err(PackError::Reserved { .. })), "it has the mark of the push that brought it");
    std::fs::remove_file(at(".nodestrap-pushed")).unwrap();
    let mut bytes = Vec::new();
    Parcel::pack(&disk, path(TARGET)).unwrap().send(&mut bytes, &|_| ()).unwrap();
    assert_eq!(bytes, sent(&other_assets()));
    assert!(matches!(push(&assets(), Existing::Replaced), Err(ReceiveError::NotOurs { .. })), "its mark is gone");
}

/// Ends with an error after so many bytes, as a connection does that breaks; or just ends.
struct Cut<'a> {
    bytes: &'a [u8],
    breaks: bool,
}

impl Read for Cut<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.bytes.read(into)? {
            0 if self.breaks => Err(std::io::ErrorKind::TimedOut.into()),
            read => Ok(read),
        }
    }
}

#[test]
fn cut_at_any_byte_it_publishes_nothing_and_leaves_nothing() {
    let bytes = sent(&assets());
    let node = FakeDisk::new();
    node.make_folder(path("/opt"), 0o755).unwrap();
    let before = lasting(&node);
    let target = Target { path: TARGET.into(), existing: Existing::Stays };
    for length in 0..bytes.len() {
        let mut cut = Cut { bytes: &bytes[..length], breaks: length % 2 == 0 };
        let error = receive(&mut cut, &node, &target).expect_err("a part passed for the whole");
        assert!(!error.to_string().is_empty());
        assert_eq!(lasting(&node), before, "cut after {length} bytes");
    }
    take(&node, &bytes).unwrap();
}

#[test]
fn with_any_byte_changed_or_added_it_publishes_nothing() {
    let bytes = sent(&assets());
    let node = FakeDisk::new();
    node.make_folder(path("/opt"), 0o755).unwrap();
    let before = lasting(&node);
    let mode_ends = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for at in (0..bytes.len()).filter(|at| !(mode_ends - 4..=mode_ends).contains(at)) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(take(&node, &changed).is_err(), "byte {at} was changed");
        assert_eq!(lasting(&node), before, "byte {at} was changed");
    }
    let longer = [bytes.as_slice(), b"\0"].concat();
    assert!(matches!(take(&node, &longer), Err(ReceiveError::TooLong)));
    assert_eq!(lasting(&node), before);
}

#[test]
fn what_would_leave_the_folder_or_is_no_file_is_refused_by_the_node_too() {
    type Refused = fn(&UnpackError) -> bool;
    let zoo: [(Tarball, Refused); 8] = [
        (Tarball::default().file("../etc/passwd", b"x"), |e| matches!(e, UnpackError::ParentInPath { .. })),
        (Tarball::default().file("/etc/passwd", b"x"), |e| matches!(e, UnpackError::AbsolutePath { .. })),
        (Tarball::default().link("l", "a"), |e| matches!(e, UnpackError::Link { .. })),
        (Tarball::default().file("a", b"x").hard_link("b", "a"), |e| matches!(e, UnpackError::Link { .. })),
        (Tarball::default().file("late/a", b"x"), |e| matches!(e, UnpackError::FolderComesLate { .. })),
        (Tarball::default().header(Header::new(b'0', b"s", 0).mode(0o4755)), |e| {
            matches!(e, UnpackError::SpecialMode { .. })
        }),
        (Tarball::default().header(Header::new(b'5', b"d", 0).mode(0o2755)), |e| {
            matches!(e, UnpackError::SpecialMode { .. })
        }),
        (Tarball::default().entry(b'3', "dev", b""), |e| matches!(e, UnpackError::Device { .. })),
    ];
    for (tarball, is_expected) in zoo {
        let node = FakeDisk::new();
        node.make_folder(path("/opt"), 0o755).unwrap();
        let before = lasting(&node);
        let refused = take(&node, &heading_of(&tarball.end().0));
        assert!(matches!(&refused, Err(ReceiveError::Unpack(error)) if is_expected(error)), "{refused:?}");
        assert_eq!(lasting(&node), before);
    }
}

#[test]
fn a_mark_of_its_own_in_a_push_is_refused() {
    let refused = take(&FakeDisk::new(), &heading_of(&Tarball::default().file(".nodestrap-pushed", b"x").end().0));
    assert!(matches!(refused, Err(ReceiveError::Disk(_))), "{refused:?}");
}

#[test]
fn targets_are_plain_paths() {
    let bytes = sent(&assets());
    for wrong in ["/", "opt", "", "/opt/../etc", "/opt/.", "/opt/", "//opt", "/.."] {
        let target = Target { path: wrong.into(), existing: Existing::Stays };
        let refused = receive(&mut bytes.as_slice(), &FakeDisk::new(), &target);
        assert!(matches!(refused, Err(ReceiveError::Target { .. })), "{wrong:?}: {refused:?}");
    }
}

#[test]
fn what_cannot_be_pushed_is_named_where_it_lies() {
    let refused = |disk: &FakeDisk| match Parcel::pack(disk, path(SOURCE)) {
        Err(error) => error,
        Ok(_) => panic!("it was packed"),
    };
    let with = |add: fn(&FakeDisk)| {
        let disk = assets();
        add(&disk);
        refused(&disk)
    };
    let link = with(|disk| disk.symlink("/etc/shadow", path("/home/assets/tls/link")).unwrap());
    assert!(matches!(&link, PackError::Link { path, .. } if path == "/home/assets/tls/link"), "{link}");
    let special = with(|disk| disk.create(path("/home/assets/run"), 0o4755, b"").unwrap());
    assert!(matches!(special, PackError::SpecialMode { .. }), "{special}");
    let reserved = with(|disk| disk.create(path("/home/assets/.nodestrap-pushed"), 0o644, b"").unwrap());
    assert!(matches!(reserved, PackError::Reserved { .. }), "{reserved}");
    let deep = with(|disk| disk.make_folder(&path(SOURCE).join(vec!["d"; LIMITS.depth + 1].join("/")), 0o755).unwrap());
    assert!(matches!(deep, PackError::TooDeep { .. }), "{deep}");
    let empty = FakeDisk::new();
    assert!(matches!(refused(&empty), PackError::NoFolder { .. }));
    empty.make_folder(path(SOURCE), 0o755).unwrap();
    assert!(matches!(refused(&empty), PackError::Empty { .. }));
}

#[test]
fn a_file_that_changes_after_it_was_read_is_told_and_not_published() {
    let source = assets();
    let parcel = Parcel::pack(&source, path(SOURCE)).unwrap();
    let key = path(SOURCE).join("tls/ca.key");
    let change: [fn(&FakeDisk, &std::path::Path); 3] = [
        |disk, at| disk.append(at, b"!").unwrap(),
        |disk, at| {
            disk.remove(at).unwrap();
            disk.create(at, 0o600, b"SECRET").unwrap();
        },
        |disk, at| assert!(disk.remove(at).unwrap()),
    ];
    for change in change {
        change(&source, &key);
        let mut bytes = Vec::new();
        let told = parcel.send(&mut bytes, &|_| ());
        assert!(matches!(told, Err(PackError::Changed { .. })), "{told:?}");
        let node = FakeDisk::new();
        assert!(take(&node, &bytes).is_err());
        assert_eq!(node.stat(path(TARGET)).unwrap(), None);
        source.remove(&key).unwrap();
        source.create(&key, 0o600, b"secret").unwrap();
    }
}

/// A machine on which something is done to one push, and what it may be before and afterwards.
struct Story {
    bytes: Vec<u8>,
    before: FakeDisk,
    old: Option<Tree>,
    new: Tree,
    operations: u64,
    take: Take,
}

fn stories() -> [Story; 2] {
    let story = |before: FakeDisk, old, source: FakeDisk, take: Take| {
        before.sync_everything().unwrap();
        let (bytes, disk) = (sent(&source), before.after_crash(Crash::ProcessKill, 0));
        take(&disk, &bytes).unwrap();
        Story { bytes, before, old, new: below(&disk, TARGET), operations: disk.operations(), take }
    };
    let pushed = FakeDisk::new();
    take(&pushed, &sent(&other_assets())).unwrap();
    let old = below(&pushed, TARGET);
    [story(FakeDisk::new(), None, assets(), take), story(pushed, Some(old), assets(), replace)]
}

impl Story {
    fn begin(&self) -> FakeDisk {
        self.before.after_crash(Crash::ProcessKill, 0)
    }

    /// The old one, the new one or none at its place; and the next push ends well, and leaves nothing beside it.
    fn judge(&self, disk: &FakeDisk, what: &str) {
        let found = disk.stat(path(TARGET)).unwrap().map(|_| below(disk, TARGET));
        let is_whole = found.as_ref().is_none_or(|found| *found == self.new || Some(found) == self.old.as_ref());
        assert!(is_whole, "{what}: {found:#?}");
        (self.take)(disk, &self.bytes).unwrap_or_else(|error| panic!("{what}: the next push: {error}"));
        assert_eq!(below(disk, TARGET), self.new, "{what}: after the next push");
        assert_eq!(disk.list(path("/opt")).unwrap(), ["tectonic"], "{what}: something is left");
        for seed in 0..SEEDS {
            let after = disk.after_crash(Crash::PowerLoss, seed);
            assert_eq!(below(&after, TARGET), self.new, "{what}: done, and a power loss has undone it");
        }
    }
}

#[test]
fn killed_or_without_power_at_any_operation_it_is_there_as_a_whole_or_not_at_all() {
    for story in stories() {
        for n in 1..=story.operations {
            for moment in [Moment::Before, Moment::Midway, Moment::After] {
                let disk = story.begin();
                disk.crash_point().crash_at(n, moment);
                assert!((story.take)(&disk, &story.bytes).is_err(), "nothing was killed at {n}");
                let last = disk.log().pop().unwrap();
                story.judge(&disk.after_crash(Crash::ProcessKill, 0), &format!("killed: {last}"));
                for seed in 0..SEEDS {
                    let after = disk.after_crash(Crash::PowerLoss, seed * 1000 + n);
                    story.judge(&after, &format!("power lost ({seed}): {last}"));
                }
            }
        }
    }
}

#[test]
fn a_disk_that_fails_at_any_operation_is_told_and_the_next_push_succeeds() {
    for story in stories() {
        for n in 1..=story.operations {
            for fault in [Fault::DISK_FULL, Fault::INPUT_OUTPUT, Fault::READ_ONLY] {
                let disk = story.begin();
                disk.crash_point().fail_at(n, fault, Repeat::FromThenOn);
                let told = (story.take)(&disk, &story.bytes);
                assert!(told.is_err(), "{fault:?} at {n} was passed over");
                disk.crash_point().heal();
                story.judge(&disk, &format!("{fault:?} at {n}"));
            }
        }
    }
}

#[test]
fn what_the_disk_loses_without_a_word_is_not_published() {
    for story in stories() {
        for n in 1..=story.operations {
            let disk = story.begin();
            disk.crash_point().lose_writeback_at(n);
            let done = (story.take)(&disk, &story.bytes);
            disk.crash_point().heal();
            for seed in 0..SEEDS {
                let after = disk.after_crash(Crash::PowerLoss, seed);
                let found = after.stat(path(TARGET)).unwrap().map(|_| below(&after, TARGET));
                let is_whole =
                    found.as_ref().is_none_or(|found| *found == story.new || Some(found) == story.old.as_ref());
                assert!(is_whole, "lost at {n} ({done:?}): {found:#?}");
            }
        }
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,8}", "[ -.0-~]{1,12}", "[äöü☃]{1,4}", "[a-z]{120,160}"]
        .prop_filter("a name", |name| !matches!(name.as_str(), "." | ".." | ".nodestrap-pushed"))
}

/// A path of a file, its mode and its content.
fn file() -> impl Strategy<Value = (Vec<String>, u32, Vec<u8>)> {
    let content = prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 0..1500)];
    (proptest::collection::vec(name(), 1..4), 0_u32..0o1000, content)
}

fn filled(files: &[(Vec<String>, u32, Vec<u8>)]) -> FakeDisk {
    let disk = FakeDisk::new();
    disk.make_folder(path(SOURCE), 0o755).unwrap();
    for (names, mode, content) in files {
        let at = path(SOURCE).join(names.join("/"));
        // What is in the way of an earlier one is left out.
        if disk.make_folder(at.parent().unwrap(), 0o711).is_ok() && disk.stat(&at).is_ok_and(|stat| stat.is_none()) {
            let _ = disk.create(&at, *mode, content);
        }
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_folder_arrives_as_it_is(files in proptest::collection::vec(file(), 1..12)) {
        let (source, node) = (filled(&files), FakeDisk::new());
        let has_files = source.snapshot().values().any(|entry| entry.kind == Kind::File);
        prop_assume!(has_files);
        take(&node, &sent(&source)).unwrap();
        prop_assert_eq!(below(&node, TARGET), below(&source, SOURCE));
    }

    #[test]
    fn one_folder_gives_the_same_bytes_in_whatever_order_it_was_made(
        mut files in proptest::collection::btree_map("[a-z]{1,6}", any::<u8>(), 1..12)
            .prop_map(|map| map.into_iter().map(|(name, byte)| (vec![name], 0o644, vec![byte])).collect::<Vec<_>>())
    ) {
        let bytes = sent(&filled(&files));
        files.reverse();
        prop_assert_eq!(sent(&filled(&files)), bytes);
    }

    #[test]
    fn anything_at_all_is_refused_without_a_trace(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let node = FakeDisk::new();
        node.make_folder(path("/opt"), 0o755).unwrap();
        let before = lasting(&node);
        prop_assert!(take(&node, &bytes).is_err());
        prop_assert!(take(&node, &heading_of(&bytes)).is_err());
        prop_assert_eq!(lasting(&node), before);
    }
}
