//! Several processes with one store on the real disk, and how much memory one of them takes.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fetch::Sink as _;
use fetch::store::{Reception, Store};
use fetch::unpack::{Form, Limits, unpack};
use flate2::Compression;
use host::Disk as _;
use host::disk::RootedDisk;

use super::tarball::{Header, Tarball, gzip};
use super::{by_sha256, noise, path};

/// Names the folder that another process of this test works in.
const ROLE: &str = "NODESTRAP_TEST_STORE";
/// Far more than what is needed at once, and far less than what is unpacked.
const MOST_MEMORY_KIB: u64 = 24 * 1024;
const LARGE: usize = 48 << 20;

fn again(test: &str, folder: &Path) -> Child {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]).env(ROLE, folder).env("RUST_TEST_THREADS", "1");
    program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn succeeds(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Fetches ten objects, whoever else does; collects garbage in between.
fn fetch_all(folder: &Path) {
    let disk = RootedDisk::open(folder).unwrap();
    let store = Store::new(&disk, path("/store"));
    let all: Vec<Vec<u8>> = (0..10).map(|seed| noise(seed, 200_000)).collect();
    let keep: Vec<_> = all.iter().map(|bytes| by_sha256(bytes).digest).collect();
    for bytes in &all {
        let mut object = loop {
            match store.receive(&by_sha256(bytes)).unwrap() {
                Reception::Present(object) => break object,
                Reception::Busy => std::thread::sleep(Duration::from_millis(1)),
                Reception::Incoming(mut incoming) => {
                    let kept = usize::try_from(incoming.kept()).unwrap();
                    bytes[kept..].chunks(10_000).for_each(|piece| incoming.append(piece).unwrap());
                    println!("fetched");
                    break incoming.finish().unwrap();
                }
            }
        };
        let mut found = Vec::new();
        object.read_to_end(&mut found).unwrap();
        assert!(found == *bytes);
        store.collect(&keep).unwrap();
    }
}

#[test]
fn runs_that_fetch_the_same_at_once_fetch_it_once() {
    let test = "processes::runs_that_fetch_the_same_at_once_fetch_it_once";
    if let Some(folder) = std::env::var_os(ROLE) {
        return fetch_all(Path::new(&folder));
    }
    let place = tempfile::tempdir().unwrap();
    let runs: Vec<Child> = (0..4).map(|_| again(test, place.path())).collect();
    let fetched: usize = runs.into_iter().map(|run| succeeds(run).matches("fetched").count()).sum();
    assert_eq!(fetched, 10, "each object once, by whoever was first");
    let disk = RootedDisk::open(place.path()).unwrap();
    assert_eq!(Store::new(&disk, path("/store")).list().unwrap().len(), 10);
    assert!(disk.list(path("/store/staging")).unwrap().is_empty());
}

/// An archive that hardly compresses, made without holding it.
fn large_archive(at: &Path) {
    let piece = noise(9, 1 << 20);
    let header = Tarball::default().header(Header::new(b'0', b"large", LARGE as u64)).0;
    let mut file = std::fs::File::create(at).unwrap();
    // Every member of its own: together they are one file of gzip.
    let mut add = |bytes: &[u8]| std::io::Write::write_all(&mut file, &gzip(bytes, Compression::none())).unwrap();
    add(&header);
    (0..LARGE / piece.len()).for_each(|_| add(&piece));
    add(&[0; 1024]);
}

fn take_large(folder: &Path) {
    use std::io::{Seek as _, SeekFrom};
    let disk = RootedDisk::open(folder).unwrap();
    let mut archive = disk.open(path("/large.tgz")).unwrap().unwrap();
    let mut hasher = <sha2::Sha256 as sha2::Digest>::new();
    let size = std::io::copy(&mut archive, &mut HashWriter(&mut hasher)).unwrap();
    archive.seek(SeekFrom::Start(0)).unwrap();
    let digest = fetch::Digest::Sha256(sha2::Digest::finalize(hasher).into());
    let store = Store::new(&disk, path("/store"));
    let mut incoming = super::store::incoming(&store, &fetch::store::Wanted { digest, size });
    let mut piece = vec![0; 1 << 16];
    while let read @ 1.. = archive.read(&mut piece).unwrap() {
        incoming.append(&piece[..read]).unwrap();
    }
    let mut object = incoming.finish().unwrap();
    disk.make_folder(path("/tree"), 0o755).unwrap();
    let folder = disk.enter(path("/tree")).unwrap();
    let listing = unpack(&mut object, Form::TarGz, &*folder, &Limits::USUAL).unwrap();
    assert_eq!(listing.total, LARGE as u64);
    assert_eq!(listing.compare(&disk, path("/tree")).unwrap(), []);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MOST_MEMORY_KIB, "{peak} KiB were needed");
    println!("peak memory: {peak} KiB");
}

struct HashWriter<'a>(&'a mut sha2::Sha256);

impl std::io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        sha2::Digest::update(self.0, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_large_artefact_takes_no_more_memory_than_a_small_one() {
    let test = "processes::a_large_artefact_takes_no_more_memory_than_a_small_one";
    if let Some(folder) = std::env::var_os(ROLE) {
        return take_large(Path::new(&folder));
    }
    let place = tempfile::tempdir().unwrap();
    large_archive(&place.path().join("large.tgz"));
    assert!(succeeds(again(test, place.path())).contains("peak memory"));
}
