//! A proxy between us and the stores: who goes through it, with what, and what is said when it refuses. Only the proxy knows
//! where the names lie.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod server;
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod shelf;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetch::{FetchError, Network, Patience, Proxy, Reason, Request, fetch};
use server::{Authority, Server, Validity, good, redirect};
use shelf::{Ask, Memory, Shelf, Trick, object};

/// `Basic` of `me:p@ss`.
const AUTHORIZATION: &str = "basic bwu6cebzcw==";

/// Leads everybody who knows the password to one server, whatever name they ask for.
struct TestProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || relay(stream.unwrap(), to, &seen));
            }
        });
        Self { address, heads }
    }

    fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}{}", self.address)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn relay(client: TcpStream, to: SocketAddr, seen: &Mutex<Vec<String>>) {
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !matches!(reader.read_line(&mut head), Ok(1..)) {
            return;
        }
    }
    seen.lock().unwrap().push(head.clone());
    let mut answer = &client;
    if !head.to_lowercase().contains(&format!("proxy-authorization: {AUTHORIZATION}")) {
        let _ = answer.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
        return;
    }
    let mut server = TcpStream::connect(to).unwrap();
    if head.starts_with("CONNECT ") {
        answer.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n").unwrap();
    } else {
        // What is for the proxy alone stays here.
        let (first, rest) = head.split_once("\r\n").unwrap();
        let path = first.split(' ').nth(1).unwrap().splitn(4, '/').nth(3).unwrap();
        let rest: String =
            rest.split_inclusive("\r\n").filter(|line| !line.to_lowercase().starts_with("proxy-")).collect();
        write!(server, "GET /{path} HTTP/1.1\r\n{rest}").unwrap();
    }
    let (mut up, mut down) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut reader, &mut up));
    let _ = std::io::copy(&mut server, &mut down);
    let _ = client.shutdown(std::net::Shutdown::Both);
}

fn proxy(url: &str, excluded: &[&str]) -> Proxy {
    let excluded: Vec<String> = excluded.iter().map(|entry| (*entry).to_owned()).collect();
    Proxy::new(url, &excluded).unwrap_or_else(|error| panic!("{error}"))
}

fn ask(url: &str, proxy: &Proxy, authorities: Option<&str>) -> Result<String, FetchError> {
    let request = Request {
        what: "the thing",
        urls: &[url.to_owned()],
        network: Network { authorities, proxy: Some(proxy), ..Network::default() },
        limit: 1000,
        patience: Patience { overall: Duration::from_secs(3), ..shelf::patience() },
        random: &|| 0,
        tell: &|_| {},
    };
    fetch(&request, |bytes| String::from_utf8(bytes.to_vec()))
}

#[track_caller]
fn refused(outcome: Result<String, FetchError>) -> (Reason, FetchError) {
    match outcome {
        Err(FetchError::Mirrors { what, gave_up_after, mirrors }) => {
            (mirrors[0].reason.clone(), FetchError::Mirrors { what, gave_up_after, mirrors })
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_question_names_its_host_to_the_proxy_and_the_password_stays_there() {
    let server = Server::start(|_, stream| good(stream, "right"));
    let between = TestProxy::start(server.address());
    let found = ask("http://store.example/a?b=c", &proxy(&between.url("me:p%40ss@"), &[]), None);
    assert_eq!(found.unwrap(), "right");
    assert!(between.heads()[0].starts_with("GET http://store.example/a?b=c HTTP/1.1\r\n"), "{:?}", between.heads());
    let question = server.questions()[0].to_lowercase();
    assert!(question.starts_with("get /a?b=c http/1.1\r\n") && question.contains("\r\nhost: store.example\r\n"));
    assert!(!question.contains("authorization"), "{question}");
}

#[test]
fn tls_goes_through_a_tunnel_and_is_verified_at_its_end() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.serve_as("store.example", Validity::Now, |_, stream| good(stream, "right"));
    let between = TestProxy::start(server.address());
    let through = proxy(&between.url("me:p%40ss@"), &[]);
    assert_eq!(ask("https://store.example/a?secret", &through, Some(&authority.pem())).unwrap(), "right");
    let head = &between.heads()[0];
    assert!(head.starts_with("CONNECT store.example:443 HTTP/1.1\r\nHost: store.example:443\r\n"), "{head}");
    assert!(!between.heads().concat().contains("secret") && !server.questions()[0].to_lowercase().contains("proxy-"));
    let (reason, _) = refused(ask("https://store.example/a", &through, Some(&other.pem())));
    assert!(matches!(reason, Reason::Certificate { .. }), "a proxy is not believed about certificates: {reason:?}");
}

#[test]
fn a_proxy_that_refuses_is_named_without_its_password() {
    let server = Server::start(|_, stream| good(stream, "right"));
    let between = TestProxy::start(server.address());
    for (credentials, place) in [
        ("", "http://store.example/"),
        ("me:canary@", "http://store.example/"),
        ("me:canary@", "https://store.example/"),
    ] {
        let (reason, error) = refused(ask(place, &proxy(&between.url(credentials), &[]), None));
        assert!(matches!(reason, Reason::Proxy { .. }) && !error.may_pass(), "{reason:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(&between.address.to_string()) && text.contains("407"), "{text}");
        assert!(text.contains("correct the user and the password of the proxy") && !text.contains("canary"), "{text}");
    }
    assert!(server.questions().is_empty());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_, error) = refused(ask("http://store.example/", &proxy(&format!("http://{gone}"), &[]), None));
    assert!(error.may_pass() && error.to_string().contains("see whether the proxy is up"), "{error}");
}

#[test]
fn this_machine_and_what_is_excluded_are_reached_straight() {
    let server = Server::start(|_, stream| good(stream, "right"));
    let between = TestProxy::start(server.address());
    let through = proxy(&between.url("me:p%40ss@"), &["localhost.example"]);
    assert_eq!(ask(&server.url("/x"), &through, None).unwrap(), "right");
    let excluded = refused(ask("http://a.localhost.example./x", &through, None)).0;
    assert!(matches!(excluded, Reason::Lookup(_) | Reason::TimedOut { .. }), "{excluded:?}");
    assert!(between.heads().is_empty());
}

#[test]
fn a_redirect_through_a_proxy_leads_neither_to_this_machine_nor_to_metadata() {
    for to in ["http://127.0.0.1:1/", "http://169.254.169.254/", "http://[fd00:ec2::254]/"] {
        let server = Server::start(move |_, stream| redirect(stream, to));
        let between = TestProxy::start(server.address());
        let (reason, _) = refused(ask("http://store.example/", &proxy(&between.url("me:p%40ss@"), &[]), None));
        assert!(matches!(reason, Reason::Redirect(_)), "{to}: {reason:?}");
    }
}

#[test]
fn a_download_is_continued_through_a_proxy() {
    let shelf = Shelf::start(vec![Trick::CutAt(50)]);
    let between = TestProxy::start(shelf.server.address());
    let through = proxy(&between.url("me:p%40ss@"), &[]);
    let ask = Ask::new(vec!["http://store.example/thing".to_owned()]);
    let asked = ask.run_with(Memory::default(), |network| Network { proxy: Some(&through), ..network });
    assert!(asked.outcome.is_ok(), "{:?}", asked.outcome);
    assert_eq!((asked.sink.bytes == object(), shelf.sent()), (true, shelf::OBJECT_SIZE));
}
