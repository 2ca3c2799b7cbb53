//! Objects come, stay, are found damaged, and go.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use fetch::store::{Incoming, Object, Reception, Store, StoreError, Wanted};
use fetch::{Digest, Sink};
use host::Disk;
use host::disk::RootedDisk;
use host::fake::{FakeDisk, Fault, Repeat};

use super::{by_sha256, by_sha512, noise, path};

pub(crate) const FOLDER: &str = "/var/lib/nodestrap/store";

pub(crate) fn content(object: Option<Object>) -> Option<Vec<u8>> {
    object.map(|mut object| {
        let mut bytes = Vec::new();
        object.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

pub(crate) fn incoming<'a>(store: &Store<'a>, wanted: &Wanted) -> Incoming<'a> {
    match store.receive(wanted).unwrap() {
        Reception::Incoming(incoming) => incoming,
        Reception::Present(_) => panic!("it is there already"),
        Reception::Busy => panic!("somebody else fetches it"),
    }
}

fn put(store: &Store<'_>, wanted: &Wanted, bytes: &[u8]) -> Object {
    let mut incoming = incoming(store, wanted);
    bytes.chunks(1000).for_each(|piece| incoming.append(piece).unwrap());
    incoming.finish().unwrap()
}

fn partial(wanted: &Wanted) -> String {
    format!("{FOLDER}/staging/{}", wanted.digest.to_string().replace(':', "-"))
}

fn object(digest: &Digest) -> String {
    format!("{FOLDER}/{}/{}", digest.algorithm(), digest.hex())
}

#[test]
fn an_object_is_found_by_its_digest_once_all_of_it_is_there() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    for (wanted, bytes) in [(by_sha256(b"one"), &b"one"[..]), (by_sha512(b"two"), b"two"), (by_sha256(b""), b"")] {
        assert!(store.open(&wanted).unwrap().is_none());
        assert_eq!(content(Some(put(&store, &wanted, bytes))).unwrap(), bytes, "what is finished can be read at once");
        assert_eq!(content(store.open(&wanted).unwrap()).unwrap(), bytes);
        assert!(matches!(store.receive(&wanted).unwrap(), Reception::Present(_)));
    }
    let mut listed = [by_sha256(b""), by_sha256(b"one"), by_sha512(b"two")];
    listed.sort();
    assert_eq!(store.list().unwrap(), listed);
    assert!(disk.list(path(FOLDER).join("staging").as_path()).unwrap().is_empty());
}

#[test]
fn nobody_else_reads_what_is_on_its_way_and_nobody_writes_what_is_there() {
    let place = tempfile::tempdir().unwrap();
    let disk = RootedDisk::open(place.path()).unwrap();
    let store = Store::new(&disk, path("/store"));
    let wanted = by_sha256(b"content");
    let mut incoming = incoming(&store, &wanted);
    incoming.append(b"con").unwrap();
    let mode = |inside: &str| std::fs::metadata(place.path().join(inside)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("store/staging"), mode("store/sha256")), (0o700, 0o700));
    assert_eq!(mode(&format!("store/staging/sha256-{}", wanted.digest.hex())), 0o600);
    incoming.append(b"tent").unwrap();
    incoming.finish().unwrap();
    assert_eq!(mode(&format!("store/sha256/{}", wanted.digest.hex())), 0o600);
}

#[test]
fn a_download_goes_on_where_it_was_left_off() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    let bytes = noise(1, 100_000);
    let wanted = by_sha512(&bytes);
    let mut first = incoming(&store, &wanted);
    first.append(&bytes[..90_000]).unwrap();
    assert!(matches!(first.check(), Err(StoreError::Incomplete { kept: 90_000, .. })));
    let error = first.finish().err().unwrap();
    assert!(matches!(error, StoreError::Incomplete { kept: 90_000, .. }), "{error}");
    let mut second = incoming(&store, &wanted);
    assert_eq!(second.kept(), 90_000);
    second.append(&bytes[90_000..]).unwrap();
    second.check().unwrap();
    assert_eq!(content(Some(second.finish().unwrap())).unwrap(), bytes);
}

#[test]
fn wrong_bytes_never_become_an_object() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    let wanted = by_sha256(b"right");
    let mut sink = incoming(&store, &wanted);
    sink.append(b"wrong").unwrap();
    assert!(matches!(sink.check(), Err(StoreError::Differs { .. })));
    let error = sink.finish().err().unwrap();
    assert!(error.to_string().contains(&wanted.digest.to_string()), "{error}");
    assert!(store.open(&wanted).unwrap().is_none());
    let mut sink = incoming(&store, &wanted);
    assert_eq!(sink.kept(), 0, "nothing of it is kept");
    // E4: the first byte too many ends it.
    let error = sink.append(b"right!").unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("more than the 5 bytes"));
    sink.append(b"wr").unwrap();
    sink.discard().unwrap();
    sink.append(b"right").unwrap();
    sink.finish().unwrap();
    // A beginning that is wrong is told at the end, and then not kept.
    let other = by_sha256(b"other");
    disk.append(path(&partial(&other)), b"oth!r").unwrap();
    assert!(matches!(incoming(&store, &other).finish(), Err(StoreError::Differs { .. })));
    assert_eq!(incoming(&store, &other).kept(), 0);
    disk.append(path(&partial(&other)), b"longer than it is").unwrap();
    assert_eq!(incoming(&store, &other).kept(), 0, "more than there is cannot be its beginning");
}

#[test]
fn a_damaged_object_is_removed_and_counts_as_absent() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    let bytes = noise(2, 10_000);
    let wanted = by_sha256(&bytes);
    let mut flipped = bytes.clone();
    flipped[7000] ^= 1;
    let longer = [&bytes[..], b"x"].concat();
    for damaged in [&flipped[..], &bytes[..9_999], &longer, b""] {
        put(&store, &wanted, &bytes);
        let at = object(&wanted.digest);
        disk.truncate(path(&at), 0).unwrap();
        disk.append(path(&at), damaged).unwrap();
        assert!(store.open(&wanted).unwrap().is_none(), "{} bytes", damaged.len());
        assert_eq!(disk.stat(path(&at)).unwrap(), None, "it is gone");
        assert!(disk.list(&path(FOLDER).join("staging")).unwrap().is_empty(), "and so is the lock");
    }
    // While another run fetches it, it is left to them.
    put(&store, &wanted, &bytes);
    disk.truncate(path(&object(&wanted.digest)), 5).unwrap();
    let lock = disk.try_lock(path(&partial(&wanted))).unwrap();
    assert!(store.open(&wanted).unwrap().is_none());
    assert!(disk.stat(path(&object(&wanted.digest))).unwrap().is_some());
    drop(lock);
    put(&store, &wanted, &bytes);
    assert_eq!(content(store.open(&wanted).unwrap()).unwrap(), bytes);
}

#[test]
fn a_flipped_bit_on_the_real_disk_is_found() {
    let place = tempfile::tempdir().unwrap();
    let disk = RootedDisk::open(place.path()).unwrap();
    let store = Store::new(&disk, path("/store"));
    let bytes = noise(3, 300_000);
    let wanted = by_sha512(&bytes);
    put(&store, &wanted, &bytes);
    assert_eq!(content(store.open(&wanted).unwrap()).unwrap(), bytes);
    let at = place.path().join("store/sha512").join(wanted.digest.hex());
    let mut flipped = bytes.clone();
    flipped[299_999] ^= 0x80;
    std::fs::write(&at, flipped).unwrap();
    assert!(store.open(&wanted).unwrap().is_none() && !at.exists());
    // Something else of that name is damage, too, and a link is not followed.
    std::os::unix::fs::symlink("/etc/hostname", &at).unwrap();
    assert!(store.open(&wanted).unwrap().is_none() && at.symlink_metadata().is_err());
    put(&store, &wanted, &bytes);
}

#[test]
fn an_object_that_is_open_can_be_collected_and_is_read_to_its_end() {
    let place = tempfile::tempdir().unwrap();
    let real = RootedDisk::open(place.path()).unwrap();
    let fake = FakeDisk::new();
    for disk in [&real as &dyn Disk, &fake] {
        let store = Store::new(disk, path(FOLDER));
        let wanted = by_sha256(b"content");
        put(&store, &wanted, b"content");
        let open = store.open(&wanted).unwrap();
        assert_eq!(store.collect(&[]).unwrap().objects, [wanted.digest]);
        assert_eq!(content(open).unwrap(), b"content");
        assert!(store.open(&wanted).unwrap().is_none());
    }
}

#[test]
fn garbage_is_collected_but_never_what_is_kept_or_being_fetched() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    assert_eq!(store.collect(&[]).unwrap(), Default::default(), "there is no store yet");
    let [kept, old, coming, stale, resumed] = [b"k", b"o", b"c", b"s", b"r"].map(|bytes| by_sha256(bytes));
    put(&store, &kept, b"k");
    put(&store, &old, b"o");
    for left in [&stale, &resumed] {
        disk.append(path(&partial(left)), b"").unwrap();
    }
    // A power cut may bring back the name under which an object came.
    disk.append(path(&partial(&kept)), b"k").unwrap();
    disk.create(path(FOLDER).join("sha256/notes").as_path(), 0o600, b"not ours").unwrap();
    let held = incoming(&store, &coming);
    let collected = store.collect(&[kept.digest, resumed.digest]).unwrap();
    let mut partial_ones = [stale.digest, kept.digest];
    partial_ones.sort();
    assert_eq!((collected.objects, collected.partial, collected.space), (vec![old.digest], partial_ones.to_vec(), 2));
    assert_eq!(store.list().unwrap(), [kept]);
    let mut left = [&coming, &resumed].map(|wanted| wanted.digest.to_string().replace(':', "-"));
    left.sort();
    assert_eq!(disk.list(&path(FOLDER).join("staging")).unwrap(), left);
    drop(held);
    assert_eq!(store.collect(&[kept.digest]).unwrap().partial.len(), 2);
}

#[test]
fn only_one_run_fetches_an_object_and_the_other_finds_it() {
    let disk = FakeDisk::new();
    let (one, other) = (Store::new(&disk, path(FOLDER)), Store::new(&disk, path(FOLDER)));
    let wanted = by_sha256(b"content");
    let mut first = incoming(&one, &wanted);
    assert!(matches!(other.receive(&wanted).unwrap(), Reception::Busy));
    assert!(matches!(other.receive(&by_sha256(b"else")).unwrap(), Reception::Incoming(_)), "a lock for each object");
    first.append(b"content").unwrap();
    first.finish().unwrap();
    assert!(matches!(other.receive(&wanted).unwrap(), Reception::Present(_)));
}

#[test]
fn a_full_disk_gets_its_space_back_and_the_next_run_begins_anew() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    let wanted = by_sha256(b"content");
    let mut sink = incoming(&store, &wanted);
    sink.append(b"cont").unwrap();
    disk.crash_point().fail_at(disk.operations() + 1, Fault::DISK_FULL, Repeat::Once);
    assert!(sink.append(b"ent").is_err());
    assert_eq!((sink.kept(), disk.stat(path(&partial(&wanted))).unwrap().unwrap().size), (0, 0));
    drop(sink);
    put(&store, &wanted, b"content");
}

#[test]
fn a_disk_that_loses_what_is_written_is_found_out_before_the_object_counts() {
    let disk = FakeDisk::new();
    let store = Store::new(&disk, path(FOLDER));
    let wanted = by_sha256(b"content");
    let mut sink = incoming(&store, &wanted);
    sink.append(b"content").unwrap();
    disk.lose_writeback();
    let error = sink.finish().err().unwrap();
    assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    assert!(store.open(&wanted).unwrap().is_none());
    put(&store, &wanted, b"content");
}
