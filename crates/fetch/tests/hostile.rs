//! Mirrors that do everything wrong, on loopback. Time-outs are tiny; no test asserts a time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod server;

use std::cell::RefCell;
use std::net::TcpListener;
use std::time::Duration;

use fetch::{FetchError, MirrorFailure, Network, Patience, Reason, Request, fetch};
use server::{Authority, Server, answer, good, hold, redirect, trickle};

const GOOD: &str = "the right bytes";
const LIMIT: usize = 64 * 1024;

/// Quick where a mirror is silent; generous where a busy test machine might be slow.
fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(20),
        stall: Duration::from_millis(400),
        attempt: Duration::from_secs(20),
        overall: Duration::from_secs(60),
        first_rest: Duration::from_millis(1),
        longest_rest: Duration::from_millis(5),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0} bytes that are wrong")]
struct Wrong(usize);

struct Asked {
    outcome: Result<String, FetchError>,
    told: Vec<String>,
}

fn ask_with(urls: &[String], authorities: Option<&str>, patience: Patience) -> Asked {
    let told = RefCell::default();
    let request = Request {
        what: "the thing",
        urls,
        network: Network { authorities, ..Network::default() },
        limit: LIMIT,
        patience,
        random: &|| u64::MAX / 2,
        tell: &|notice| Vec::push(&mut told.borrow_mut(), notice.to_string()),
    };
    let verify = |body: &[u8]| if body == GOOD.as_bytes() { Ok(GOOD.to_owned()) } else { Err(Wrong(body.len())) };
    let outcome = fetch(&request, verify);
    Asked { outcome, told: told.into_inner() }
}

fn ask(urls: &[String]) -> Asked {
    ask_with(urls, None, patience())
}

/// For mirrors that never get better: the time ends soon.
fn ask_in_vain(urls: &[String]) -> Asked {
    ask_with(urls, None, Patience { overall: Duration::from_millis(1500), ..patience() })
}

impl Asked {
    #[track_caller]
    fn got_it(self) -> Vec<String> {
        assert_eq!(self.outcome.unwrap_or_else(|error| panic!("{error}")), GOOD);
        self.told
    }

    #[track_caller]
    fn failures(self) -> (Vec<MirrorFailure>, FetchError) {
        match self.outcome {
            Err(FetchError::Mirrors { what, gave_up_after, mirrors }) => {
                (mirrors.clone(), FetchError::Mirrors { what, gave_up_after, mirrors })
            }
            other => panic!("{other:?}"),
        }
    }

    /// The only mirror's reason, with the whole error.
    #[track_caller]
    fn reason(self) -> (Reason, FetchError) {
        let (mut failures, error) = self.failures();
        assert_eq!(failures.len(), 1);
        (failures.remove(0).reason, error)
    }
}

/// An address where nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/x", listener.local_addr().unwrap())
}

#[test]
fn a_good_mirror_is_asked_once() {
    let server = Server::start(|_, stream| good(stream, GOOD));
    let told = ask(&[server.url("/a/thing.json")]).got_it();
    assert_eq!(told, [format!("fetching the thing from {}", server.url("/a/thing.json"))]);
    let question = &server.questions()[0];
    assert!(question.starts_with("GET /a/thing.json HTTP/1.1\r\n"), "{question}");
    assert!(question.to_lowercase().contains(&format!("host: {}\r\n", server.address())), "{question}");
    assert_eq!(server.questions().len(), 1);
}

#[test]
fn a_body_without_a_length_and_one_in_chunks_are_taken() {
    let closing =
        Server::start(|_, stream| stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{GOOD}").as_bytes()).unwrap());
    ask(&[closing.url("/x")]).got_it();
    let chunked = Server::start(|_, stream| {
        let (first, second) = GOOD.split_at(5);
        let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
        let body = format!("{}{}0\r\n\r\n", chunk(first), chunk(second));
        stream.write_all(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").as_bytes()).unwrap();
    });
    ask(&[chunked.url("/x")]).got_it();
}

#[test]
fn the_next_mirror_is_asked_after_a_404() {
    let (empty, full) =
        (Server::start(|_, stream| answer(stream, "404 Not Found", "")), Server::start(|_, stream| good(stream, GOOD)));
    let told = ask(&[empty.url("/x"), full.url("/x")]).got_it();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[1].contains("404 Not Found"), "{told:?}");
    assert_eq!(empty.questions().len(), 1, "a 404 is final");
}

#[test]
fn an_overloaded_mirror_is_asked_again() {
    for status in
        ["503 Service Unavailable", "500 Internal Server Error", "429 Too Many Requests", "408 Request Timeout"]
    {
        let server = Server::start(
            move |number, stream| if number <= 2 { answer(stream, status, "") } else { good(stream, GOOD) },
        );
        let told = ask(&[server.url("/x")]).got_it();
        assert_eq!(server.questions().len(), 3, "{status}");
        assert_eq!(told.iter().filter(|line| line.contains("again in")).count(), 2, "{told:?}");
    }
}

#[test]
fn one_overloaded_mirror_does_not_hold_up_a_good_one() {
    let (busy, full) = (
        Server::start(|_, stream| answer(stream, "503 Service Unavailable", "")),
        Server::start(|_, stream| good(stream, GOOD)),
    );
    ask(&[busy.url("/x"), full.url("/x")]).got_it();
    assert_eq!(busy.questions().len(), 1, "the others come first");
}

#[test]
fn a_status_that_will_not_change_is_final_and_says_what_to_do() {
    for (status, code, advice) in [
        ("404 Not Found", 404, "put the object into the store"),
        ("403 Forbidden", 403, "let this machine read the store"),
        ("400 Bad Request", 400, "log"),
        ("206 Partial Content", 206, "log"),
        ("204 No Content", 204, "log"),
        ("304 Not Modified", 304, "log"),
    ] {
        let server = Server::start(move |_, stream| answer(stream, status, ""));
        let (reason, error) = ask(&[server.url("/x")]).reason();
        assert!(matches!(reason, Reason::Status { code: found, .. } if found == code), "{reason:?}");
        let text = error.to_string();
        assert!(text.contains(advice) && text.contains("(asked once)") && text.contains(status), "{text}");
        assert!(!error.may_pass());
        assert_eq!(server.questions().len(), 1);
    }
}

#[test]
fn a_refused_connection_is_tried_until_the_time_is_over() {
    let (failures, error) = ask_in_vain(&[nobody(), nobody()]).failures();
    assert!(
        failures.iter().all(|mirror| mirror.attempts > 1 && matches!(mirror.reason, Reason::Connect(_))),
        "{failures:?}"
    );
    assert!(error.may_pass());
    let text = error.to_string();
    for word in ["cannot fetch the thing within 1.5s", "refused", "see whether the store is up", " times)"] {
        assert!(text.contains(word), "no {word:?}: {text}");
    }
}

#[test]
fn a_name_that_nobody_knows_may_be_known_later() {
    let (reason, error) = ask_in_vain(&["http://nowhere.invalid/x".to_owned()]).reason();
    assert!(matches!(reason, Reason::Lookup(_) | Reason::TimedOut { .. }), "{reason:?}");
    assert!(error.may_pass());
}

#[test]
fn a_silent_mirror_is_left_for_the_next() {
    let silent = Server::start(|_, stream| hold(stream));
    let stalled = Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nthe ri").unwrap();
        hold(stream);
    });
    let full = Server::start(|_, stream| good(stream, GOOD));
    let told = ask(&[silent.url("/x"), stalled.url("/x"), full.url("/x")]).got_it();
    assert!(told[1].ends_with("waited 400ms for an answer"), "{told:?}");
    assert!(told[3].ends_with("waited 400ms for more of its answer"), "{told:?}");
}

#[test]
fn a_trickle_does_not_use_up_the_time_of_the_other_mirrors() {
    let slow = Server::start(|_, stream| trickle(stream, GOOD));
    let full = Server::start(|_, stream| good(stream, GOOD));
    let quick = Patience { attempt: Duration::from_millis(600), ..patience() };
    // The good mirror may be slow too on a busy machine: it is asked again.
    let told = ask_with(&[slow.url("/x"), full.url("/x")], None, quick).got_it();
    assert!(told[1].contains("for its whole answer"), "{told:?}");
}

#[test]
fn a_truncated_body_is_asked_for_again() {
    let server = Server::start(|number, stream| match number {
        1 => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nthe ri").unwrap(),
        _ => good(stream, GOOD),
    });
    let told = ask(&[server.url("/x")]).got_it();
    assert!(told[1].contains("the exchange broke off"), "{told:?}");
}

#[test]
fn a_mirror_that_hangs_up_or_talks_nonsense_is_asked_again() {
    let server = Server::start(|number, stream| match number {
        1 => {}
        2 => stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").unwrap(),
        3 => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").unwrap(),
        _ => good(stream, GOOD),
    });
    let told = ask(&[server.url("/x")]).got_it();
    assert_eq!(told.iter().filter(|line| line.contains("broke off")).count(), 3, "{told:?}");
}

#[test]
fn a_huge_body_is_refused_whether_it_is_announced_or_not() {
    let announced = Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n").unwrap();
        hold(stream);
    });
    let endless = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let just_more = Server::start(|_, stream| good(stream, &"x".repeat(LIMIT + 1)));
    let fits = Server::start(|_, stream| good(stream, &"x".repeat(LIMIT)));
    let (failures, error) = ask_in_vain(&[endless.url("/x"), just_more.url("/x"), fits.url("/x")]).failures();
    assert_eq!(failures[0].reason, Reason::TooLarge { limit: LIMIT });
    assert_eq!(failures[1].reason, Reason::TooLarge { limit: LIMIT });
    assert_eq!(failures[2].reason, Reason::Verification(format!("{LIMIT} bytes that are wrong")));
    assert!(!error.may_pass());
    // A length that no number holds is a protocol error or too large, never a body.
    let (failures, _) = ask_in_vain(&[announced.url("/x")]).failures();
    assert!(matches!(failures[0].reason, Reason::TooLarge { .. } | Reason::Exchange(_)), "{failures:?}");
}

#[test]
fn huge_headers_are_refused() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Filler: ");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let (reason, _) = ask_in_vain(&[server.url("/x")]).reason();
    let Reason::Exchange(problem) = reason else { panic!("{reason:?}") };
    assert!(problem.contains("too large"), "{problem}");
}

#[test]
fn what_is_not_verified_is_a_broken_mirror() {
    let portal = Server::start(|_, stream| good(stream, "<html><body>Please log in</body></html>"));
    let empty = Server::start(|_, stream| good(stream, ""));
    let full = Server::start(|_, stream| good(stream, GOOD));
    let told = ask(&[portal.url("/x"), empty.url("/x"), full.url("/x")]).got_it();
    assert!(told[1].contains("39 bytes that are wrong") && told[3].contains("0 bytes"), "{told:?}");
    let (failures, error) = ask(&[portal.url("/x"), empty.url("/x")]).failures();
    assert!(failures.iter().all(|mirror| mirror.attempts == 1), "{failures:?}");
    assert!(!error.may_pass() && error.to_string().contains("put the right object into the store again"));
    let text = error.to_string();
    assert!(text.contains(&portal.url("/x")) && text.contains(&empty.url("/x")), "every mirror is named: {text}");
}

#[test]
fn a_redirect_is_followed_a_few_times_only() {
    let full = Server::start(|_, stream| good(stream, GOOD));
    let target = full.url("/elsewhere?signature=canary");
    let first = Server::start(move |_, stream| redirect(stream, &target));
    let told = ask(&[first.url("/x")]).got_it();
    assert!(full.questions()[0].starts_with("GET /elsewhere?signature=canary "));
    assert!(!told.concat().contains("canary"));
    let looping = Server::start(|_, stream| redirect(stream, "/again"));
    let (reason, error) = ask(&[looping.url("/x")]).reason();
    assert_eq!(reason, Reason::Redirect("more than 3 in a row".to_owned()));
    assert!(!error.may_pass());
    assert_eq!(looping.questions().len(), 4);
}

#[test]
fn a_redirect_to_nowhere_or_to_a_metadata_service_is_refused() {
    for (to, why) in [
        (
            "http://169.254.169.254/latest/user-data?canary",
            "http://169.254.169.254/latest/user-data?[redacted] is a link-local",
        ),
        ("http://[fe80::1]/x", "link-local"),
        ("http://[::ffff:169.254.169.254]/x", "link-local"),
        ("http://[fd00:ec2::254]/latest/user-data", "metadata service"),
        ("ftp://127.0.0.1/x", "only http and https"),
        ("http://u:canary@127.0.0.1/x", "password"),
    ] {
        let server = Server::start(move |_, stream| redirect(stream, to));
        let (reason, error) = ask(&[server.url("/x")]).reason();
        assert!(matches!(&reason, Reason::Redirect(problem) if problem.contains(why)), "{to}: {reason:?}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
    let lost = Server::start(|_, stream| answer(stream, "302 Found", ""));
    let (reason, _) = ask(&[lost.url("/x")]).reason();
    assert!(matches!(&reason, Reason::Redirect(problem) if problem.contains("without saying where")), "{reason:?}");
}

#[test]
fn no_message_shows_what_opens_the_store() {
    let server = Server::start(|_, stream| answer(stream, "403 Forbidden", "canary"));
    let urls =
        [server.url("/x?X-Amz-Signature=canary"), "https://me:canary@127.0.0.1:1/x".to_owned(), "?canary".to_owned()];
    let asked = ask(&urls);
    assert!(!asked.told.concat().contains("canary"), "{:?}", asked.told);
    let (failures, error) = asked.failures();
    assert!(!format!("{error} {error:?} {failures:?}").contains("canary"), "{error:?}");
    assert!(error.to_string().contains(&server.url("/x?[redacted]")), "{error}");
    assert_eq!(failures[1].attempts, 0, "a password is never sent");
}

#[test]
fn without_mirrors_there_is_nothing_to_ask() {
    assert!(matches!(ask(&[]).outcome, Err(FetchError::NoMirror { .. })));
}

#[test]
fn a_given_authority_is_trusted() {
    let authority = Authority::new();
    let server = authority.serve(|_, stream| good(stream, GOOD));
    ask_with(&[server.url("/x")], Some(&authority.pem()), patience()).got_it();
    // By name too, where the certificate has it.
    let by_name = server.url("/x").replace("127.0.0.1", "localhost");
    ask_with(&[by_name], Some(&authority.pem()), patience()).got_it();
}

#[test]
fn a_certificate_of_another_authority_is_refused_and_nothing_is_asked() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.serve(|_, stream| good(stream, GOOD));
    for given in [None, Some(other.pem())] {
        let (reason, error) = ask_with(&[server.url("/x")], given.as_deref(), patience()).reason();
        let Reason::Certificate { problem, by_clock: false } = &reason else { panic!("{reason:?}") };
        assert!(problem.contains("not trusted here"), "{problem}");
        assert!(error.to_string().contains("compare the certificate authorities"), "{error}");
        assert!(!error.may_pass());
    }
    assert_eq!(server.questions(), Vec::<String>::new());
}

#[test]
fn a_certificate_for_another_name_or_another_time_is_refused() {
    let authority = Authority::new();
    let stranger = authority.serve_as("elsewhere.example", server::Validity::Now, |_, stream| good(stream, GOOD));
    let (reason, _) = ask_with(&[stranger.url("/x")], Some(&authority.pem()), patience()).reason();
    assert!(matches!(reason, Reason::Certificate { by_clock: false, .. }), "{reason:?}");
    let expired = authority.serve_as("127.0.0.1", server::Validity::Past, |_, stream| good(stream, GOOD));
    let soon = Patience { overall: Duration::from_millis(1500), ..patience() };
    let (reason, error) = ask_with(&[expired.url("/x")], Some(&authority.pem()), soon).reason();
    assert!(matches!(reason, Reason::Certificate { by_clock: true, .. }), "{reason:?}");
    assert!(error.may_pass() && error.to_string().contains("clock"), "{error}");
}

#[test]
fn https_never_leads_to_http() {
    let plain = Server::start(|_, stream| good(stream, GOOD));
    let target = plain.url("/x");
    let authority = Authority::new();
    let server = authority.serve(move |_, stream| redirect(stream, &target));
    let (reason, _) = ask_with(&[server.url("/x")], Some(&authority.pem()), patience()).reason();
    assert_eq!(reason, Reason::Redirect("it leads from https to http".to_owned()));
    assert_eq!(plain.questions(), Vec::<String>::new());
}

#[test]
fn a_mirror_that_does_not_speak_tls_is_no_https_mirror() {
    let plain = Server::start(|_, stream| {
        let mut hello = [0; 5];
        let _ = stream.read(&mut hello);
        good(stream, GOOD);
    });
    let url = plain.url("/x").replace("http://", "https://");
    let (reason, _) = ask_in_vain(&[url]).reason();
    assert!(matches!(reason, Reason::Exchange(_) | Reason::TimedOut { .. }), "{reason:?}");
}
