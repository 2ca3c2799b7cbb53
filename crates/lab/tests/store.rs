//! A real store that speaks S3 (versitygw): objects are put, found, listed, fetched and deleted; and what it says to a wrong
//! key, a wrong clock, a token that it does not know, a session that is over, and to everybody for a minute.

// Tests are all effects.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fetch::{
    Bucket, Credentials, Digest, Download, FetchError, Mixing, Network, Notice, Patience, Request, S3, S3Settings,
    Secret, Sink, SinkError, Slowest, Stored, Style, Upload, download, fetch,
};
use lab::ObjectStore;
use lab::metadata::Role;
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
    patience: Patience,
}

impl Visitor {
    fn of(endpoint: String) -> Self {
        Self {
            endpoint,
            access_key: ACCESS_KEY,
            secret_key: SECRET_KEY,
            token: None,
            behind: Duration::ZERO,
            patience: Patience {
                longest_rest: Duration::from_millis(500),
                ..Patience::of_download(Duration::from_secs(90))
            },
        }
    }

    /// With the credentials of a session.
    fn in_session(self, role: &'static Role) -> Self {
        Self { access_key: &role.access_key, secret_key: &role.secret_key, token: Some(&role.token), ..self }
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
        then(Network { s3: Some(s3), ..Network::default() }, self.patience)
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
        self.fetch_telling(key, sink, &|_| {})
    }

    /// The thing, and for how long it was decided to rest between two questions.
    fn fetch_resting(&self) -> (Vec<u8>, Vec<Duration>) {
        let (mut sink, rests) = (Memory::default(), Mutex::new(Vec::new()));
        let listen = |notice: &Notice<'_>| {
            if let Notice::Resting { rest, .. } = notice {
                rests.lock().expect("no panic").push(*rest);
            }
        };
        self.fetch_telling("a/thing", &mut sink, &listen).unwrap_or_else(|error| panic!("{error}"));
        (sink.0, rests.into_inner().expect("no panic"))
    }

    fn fetch_telling(&self, key: &str, sink: &mut Memory, tell: &dyn Fn(&Notice<'_>)) -> Result<(), FetchError> {
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
                tell,
            };
            download(&request, sink).map(|_| ())
        })
    }

    fn refusal(&self) -> FetchError {
        let patience = Patience { overall: Duration::from_secs(2), ..self.patience };
        let hasty = Visitor { endpoint: self.endpoint.clone(), patience, ..*self };
        hasty.fetch("a/thing", &mut Memory::default()).expect_err("it is refused")
    }
}

fn place(key: &str) -> String {
    format!("s3://{BUCKET}/{key}")
}

/// As Ignition does it, which has no key: the address is all it knows.
fn fetch_plainly(address: &str) -> Result<Vec<u8>, FetchError> {
    let request = Request {
        what: "the thing",
        urls: &[address.to_owned()],
        network: Network::default(),
        limit: SIZE,
        patience: Patience::new(Duration::from_secs(2)),
        random: &|| u64::MAX / 2,
        tell: &|_| {},
    };
    fetch(&request, |body| Ok::<_, std::convert::Infallible>(body.to_vec()))
}

#[test]
fn a_presigned_address_opens_one_object_to_everybody_until_it_expires() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    let visitor = Visitor::of(store.endpoint());
    visitor.put("user data/sha512-ab+c.ign", b"{}");
    let presign = |visitor: &Visitor, seconds| {
        let sign = |bucket: &Bucket<'_>| {
            let s3 = bucket.network.s3.expect("a bucket");
            s3.presign(&place("user data/sha512-ab+c.ign"), Duration::from_secs(seconds))
        };
        visitor.bucket(sign).expect("it can be signed")
    };
    let address = presign(&visitor, 600);
    assert_eq!(fetch_plainly(&address).expect("it opens"), b"{}");
    let other = address.replace("sha512-ab", "sha512-cd");
    let bare = address.split('?').next().expect("an address");
    let stretched = address.replace("X-Amz-Expires=600", "X-Amz-Expires=6000");
    for closed in [other.as_str(), bare, &stretched] {
        fetch_plainly(closed).expect_err("it opens something else");
    }
    let hour_ago = Visitor { behind: Duration::from_secs(3600), ..Visitor::of(store.endpoint()) };
    assert_eq!(fetch_plainly(&presign(&hour_ago, 7200)).expect("it still holds"), b"{}");
    fetch_plainly(&presign(&hour_ago, 60)).expect_err("it has expired");
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

fn session(number: u8, expiration: &str) -> &'static Role {
    Box::leak(Box::new(Role {
        name: "nodes".to_owned(),
        access_key: format!("ASIA000000000000000{number}"),
        secret_key: format!("canary-secret-{number}"),
        token: format!("canary-token-{number}"),
        expiration: expiration.to_owned(),
    }))
}

#[test]
fn a_session_reads_what_its_role_may_read_and_nothing_once_it_is_over() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET, "others"]).expect("a store");
    let visitor = || Visitor::of(store.endpoint());
    visitor().put("a/thing", &object());
    let (fresh, over) = (session(1, "2099-01-01T00:00:00Z"), session(2, "2026-01-02T00:00:00Z"));
    store.admit(BUCKET, &[fresh, over]).expect("admitted");
    let mut sink = Memory::default();
    visitor().in_session(fresh).fetch("a/thing", &mut sink).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sum(&sink.0), sum(&object()));

    for (visitor, words) in [
        (visitor().in_session(over), "fresh ones come by themselves when it is tried again"),
        (Visitor { token: Some(&over.token), ..visitor().in_session(fresh) }, "it does not accept the session token"),
        (Visitor { token: None, ..visitor().in_session(fresh) }, "it does not know the access key"),
        (Visitor { secret_key: "canary", ..visitor().in_session(fresh) }, "the secret key does not belong"),
    ] {
        let error = visitor.refusal();
        let text = format!("{error} {error:?}");
        assert!(text.contains(words) && !text.contains("canary"), "{text}");
        assert!(!error.may_pass(), "{text}");
    }
    let forbidden =
        visitor().in_session(fresh).bucket(|bucket| bucket.list(&place("a/"))).expect_err("it may only read");
    assert!(forbidden.to_string().contains("s3:GetObject"), "{forbidden}");

    // Its end comes while it is in use.
    store.admit(BUCKET, &[&Role { expiration: over.expiration.clone(), ..fresh.clone() }]).expect("admitted");
    let error = visitor().in_session(fresh).refusal().to_string();
    assert!(error.contains("it does not know the access key, or no longer"), "{error}");
    assert!(!store.log().contains("canary"), "a key is nowhere sent in clear");
}

/// In front of a store: refuses the first questions as AWS does when it is asked too much, and cuts the first answer that
/// it lets through.
struct Front {
    address: SocketAddr,
    passed: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Front {
    /// `headers` go with each refusal.
    fn start(store: SocketAddr, refusals: usize, headers: &'static str, cut_after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (passed, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, questions) = (Arc::clone(&passed), Arc::clone(&asked));
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                questions.fetch_add(1, Ordering::SeqCst);
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || match number {
                    number if number < refusals => slow_down(client, headers),
                    number if number == refusals => relay(client, store, cut_after, &counted),
                    _ => relay(client, store, usize::MAX, &counted),
                });
            }
        });
        Self { address, passed, asked }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn slow_down(mut client: TcpStream, headers: &str) -> io::Result<()> {
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
        "HTTP/1.1 503 Slow Down\r\n{headers}Content-Type: application/xml\r\nContent-Length: {}\r\n\r\n{page}",
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
    let front = Front::start(store.address(), 5, "", SIZE / 10 * 9);
    let mut sink = Memory::default();
    Visitor::of(front.endpoint()).fetch("a/thing", &mut sink).unwrap_or_else(|error| panic!("{error}"));
    assert!(sink.0 == bytes);
    let passed = front.passed.load(Ordering::SeqCst);
    assert!(passed - SIZE <= SIZE / 100, "{} bytes were fetched twice", passed - SIZE);
    assert!(store.log().contains("206"), "{}", store.log());
}

/// By how much the minute is shortened: all rests of the client are.
const SHORTENED: u32 = 60;

#[test]
fn a_store_that_refuses_everybody_for_a_minute_is_asked_ever_more_rarely_and_then_gives_all() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    Visitor::of(store.endpoint()).put("a/thing", &object());
    let usual = Patience::of_download(Duration::from_secs(3600));
    // As many questions as fit into a minute with the rests that every node has, half of the longest each.
    let (mut minute, mut refusals) = (Duration::from_secs(60), 0);
    while !minute.is_zero() {
        minute = minute.saturating_sub(usual.first_rest.saturating_mul(1 << refusals).min(usual.longest_rest) / 2);
        refusals += 1;
    }
    let front = Front::start(store.address(), refusals, "", usize::MAX);
    let patience =
        Patience { first_rest: usual.first_rest / SHORTENED, longest_rest: usual.longest_rest / SHORTENED, ..usual };
    let (bytes, rests) = Visitor { patience, ..Visitor::of(front.endpoint()) }.fetch_resting();
    assert_eq!(sum(&bytes), sum(&object()));
    assert_eq!(front.asked.load(Ordering::SeqCst), refusals + 1, "and each refusal was waited out");
    assert!(rests.len() == refusals && rests.is_sorted(), "{rests:?}");
    assert!(refusals < 20, "{refusals} questions in a minute");
}

#[test]
fn a_store_that_says_when_to_ask_again_is_not_asked_before() {
    if !lab::require() {
        return;
    }
    let store = ObjectStore::start(&[BUCKET]).expect("a store");
    Visitor::of(store.endpoint()).put("a/thing", &object());
    let front = Front::start(store.address(), 2, "Retry-After: 1\r\n", usize::MAX);
    // Left to itself, the client would hardly rest at all.
    let own = Duration::from_millis(1);
    let visitor = Visitor::of(front.endpoint());
    let patience = Patience { first_rest: own, longest_rest: own, ..visitor.patience };
    let (bytes, rests) = Visitor { patience, ..visitor }.fetch_resting();
    assert_eq!(sum(&bytes), sum(&object()));
    assert!(rests.len() == 2 && rests.iter().all(|rest| *rest > own), "{rests:?}");
}
