//! A real store that speaks S3 (versitygw): objects are put, found, listed, fetched and deleted; and what it says to a wrong
//! key, a wrong clock, a token that it does not know, and to everybody for a while.

// Tests are all effects.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use fetch::{
    Bucket, Credentials, Digest, Download, FetchError, Mixing, Network, Patience, S3, S3Settings, Secret, Sink,
    SinkError, Slowest, Stored, Style, Upload, download,
};
use lab::ObjectStore;
use lab::object_store::{ACCESS_KEY, REGION, SECRET_KEY};
use sha2::{Digest as _, Sha256};

const BUCKET: &str = "artefacts";
/// Several times what fits into the buffers between two processes.
const SIZE: usize = 20_000_000;

fn object() -> Vec<u8> {
    (0..SIZE as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn sum(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[derive(Default)]
struct Memory(Vec<u8>);

impl Sink for Memory {
    fn kept(&self) -> u64 {
        self.0.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn discard(&mut self) -> Result<(), SinkError> {
        self.0.clear();
        Ok(())
    }
}

/// Who asks, when, and where.
struct Visitor {
    endpoint: String,
    access_key: &'static str,
    secret_key: &'static str,
    token: Option<&'static str>,
    /// By how much its clock is behind.
    behind: Duration,
    overall: Duration,
}

impl Visitor {
    fn of(endpoint: String) -> Self {
        Self {
            endpoint,
            access_key: ACCESS_KEY,
            secret_key: SECRET_KEY,
            token: None,
            behind: Duration::ZERO,
            overall: Duration::from_secs(90),
        }
    }

    fn with<T>(&self, then: impl FnOnce(Network<'_>, Patience) -> T) -> T {
        let settings =
            S3Settings { region: REGION.to_owned(), endpoint: Some(self.endpoint.clone()), style: Style::Path };
        let credentials = Credentials {
            access_key: self.access_key.to_owned(),
            secret_key: Secret::new(self.secret_key),
            session_token: self.token.map(Secret::new),
        };
        let now = || SystemTime::now() - self.behind;
        let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &now };
        let patience = Patience { longest_rest: Duration::from_millis(500), ..Patience::of_download(self.overall) };
        then(Network { s3: Some(s3), ..Network::default() }, patience)
    }

    fn bucket<T>(&self, then: impl FnOnce(&Bucket<'_>) -> T) -> T {
        self.with(|network, patience| then(&Bucket { network, patience, random: &|| u64::MAX / 2 }))
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        let open = || Ok(Box::new(io::Cursor::new(bytes.to_vec())) as Box<dyn Read + Send>);
        let upload = Upload { size: bytes.len() as u64, sha256: sum(bytes), open: &open };
        self.bucket(|bucket| bucket.put(&place(key), &upload)).unwrap_or_else(|error| panic!("{key}: {error}"));
    }

    fn fetch(&self, key: &str, sink: &mut Memory) -> Result<(), FetchError> {
        self.with(|network, patience| {
            let request = Download {
                what: "the thing",
                places: &[place(key)],
                without: &[],
                size: SIZE as u64,
                digest: Digest::Sha256([0; 32]),
                mixing: Mixing::Allowed,
                network,
                patience,
                slowest: Slowest::default(),
                random: &|| u64::MAX / 2,
                tell: &|_| {},
            };
            download(&request, sink).map(|_| ())
        })
    }

    fn refusal(&self) -> FetchError {
        let overall = Duration::from_secs(2);
        let hasty = Visitor { endpoint: self.endpoint.clone(), overall, ..*self };
        hasty.fetch("a/thing", &mut Memory::default()).expect_err("it is refused")
    }
}

fn place(key: &str) -> String {
    format!("s3://{BUCKET}/{key}")
}

#[test]
fn objects_are_put_found_listed_fetched_and_deleted() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    let visitor = Visitor::of(store.endpoint());
    let bytes = object();
    for key in ["a/thing", "a/name with blank & + $.tgz", "b"] {
        visitor.put(key, &bytes);
    }
    visitor.put("a/empty", b"");
    // The same again is the same.
    visitor.put("a/thing", &bytes);
    visitor.bucket(|bucket| {
        let found = bucket.head(&place("a/thing")).expect("looked at");
        assert_eq!(found, Some(Stored { size: SIZE as u64, sha256: Some(sum(&bytes)) }));
        assert_eq!(bucket.head(&place("a/none")).expect("looked at"), None);
        let listed = bucket.list(&place("a/")).expect("listed");
        let listed: Vec<(&str, u64)> = listed.iter().map(|found| (found.key.as_str(), found.size)).collect();
        let size = SIZE as u64;
        assert_eq!(listed, [("a/empty", 0), ("a/name with blank & + $.tgz", size), ("a/thing", size)]);
        assert_eq!(bucket.list(&format!("s3://{BUCKET}")).expect("listed").len(), 4);
        bucket.delete(&place("b")).expect("deleted");
        bucket.delete(&place("b")).expect("deleted, and gone before");
        assert_eq!(bucket.head(&place("b")).expect("looked at"), None);
    });
    // From the beginning, and from the middle.
    for kept in [0, SIZE / 2] {
        let mut sink = Memory(bytes[..kept].to_vec());
        visitor.fetch("a/name with blank & + $.tgz", &mut sink).unwrap_or_else(|error| panic!("{error}"));
        assert!(sink.0 == bytes, "{kept}");
    }
}

#[test]
fn bytes_that_are_not_those_of_the_sum_are_not_stored() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    let open = || Ok(Box::new(&b"wrong"[..]) as Box<dyn Read + Send>);
    let upload = Upload { size: 5, sha256: sum(b"right"), open: &open };
    Visitor::of(store.endpoint()).bucket(|bucket| {
        bucket.put(&place("x"), &upload).expect_err("the store verifies the sum");
        assert_eq!(bucket.head(&place("x")).expect("looked at"), None);
    });
}

#[test]
fn each_refusal_of_a_real_store_is_understood() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    let visitor = || Visitor::of(store.endpoint());
    visitor().put("a/thing", &object());
    for (visitor, words, passes) in [
        (Visitor { secret_key: "canary", ..visitor() }, "correct the access key and the secret key", false),
        (Visitor { access_key: "nobody", ..visitor() }, "does not know the access key", false),
        (Visitor { behind: Duration::from_secs(3600), ..visitor() }, "set this machine's clock right", true),
        (Visitor { token: Some("canary"), ..visitor() }, "give fresh credentials", false),
    ] {
        let error = visitor.refusal();
        let text = format!("{error} {error:?}");
        assert!(text.contains(words) && !text.contains("canary"), "{text}");
        assert_eq!(error.may_pass(), passes, "{text}");
        assert!(!store.log().contains("canary"), "a key is nowhere sent in clear");
    }
    let absent = visitor().fetch("a/none", &mut Memory::default()).expect_err("it is not there").to_string();
    assert!(absent.contains("put the object into the store"), "{absent}");
}

/// In front of a store: refuses the first questions as AWS does when it is asked too much, and cuts the first answer that
/// it lets through.
struct Front {
    address: SocketAddr,
    passed: Arc<AtomicUsize>,
}

impl Front {
    fn start(store: SocketAddr, refusals: usize, cut_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let passed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&passed);
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || match number {
                    number if number < refusals => slow_down(client),
                    number if number == refusals => relay(client, store, cut_after, &counted),
                    _ => relay(client, store, usize::MAX, &counted),
                });
            }
        });
        Self { address, passed }
    }
}

fn slow_down(mut client: TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let page = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request \
                rate.</Message></Error>";
    write!(
        client,
        "HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    )
}

fn relay(client: TcpStream, store: SocketAddr, limit: usize, passed: &AtomicUsize) -> io::Result<()> {
    let server = TcpStream::connect(store)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || io::copy(&mut from_client, &mut to_server));
    let (mut left, mut chunk, mut to_client) = (limit, vec![0; 64 * 1024], &client);
    let mut from_server = &server;
    while left > 0 {
        let most = chunk.len().min(left);
        let read = from_server.read(&mut chunk[..most])?;
        if read == 0 {
            break;
        }
        to_client.write_all(&chunk[..read])?;
        passed.fetch_add(read, Ordering::SeqCst);
        left -= read;
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
    client.shutdown(std::net::Shutdown::Write)
}

#[test]
fn a_store_that_is_asked_too_much_and_cuts_is_asked_again_where_it_was_left_off() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    let bytes = object();
    Visitor::of(store.endpoint()).put("a/thing", &bytes);
    let front = Front::start(store.address(), 5, SIZE / 10 * 9);
    let mut sink = Memory::default();
    Visitor::of(format!("http://{}", front.address))
        .fetch("a/thing", &mut sink)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(sink.0 == bytes);
    let passed = front.passed.load(Ordering::SeqCst);
    assert!(passed - SIZE <= SIZE / 100, "{} bytes were fetched twice", passed - SIZE);
    assert!(store.log().contains("206"), "{}", store.log());
}
