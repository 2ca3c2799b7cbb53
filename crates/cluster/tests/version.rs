//! One question about its version, to API servers on loopback that answer well, badly or never. No test asserts a time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;

use std::net::TcpListener;
use std::time::Duration;

use cluster::{Access, Identity, JoinAnswer, ask_whether_node_may_join, block_on};
use server::{Authority, Server, Stream, Validity, answer, good, hold, redirect};

const PATIENT: Duration = Duration::from_secs(60);
const HASTY: Duration = Duration::from_millis(600);
const VERSION: &str = r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","platform":"linux/amd64"}"#;

fn ask(url: &str, authority: &Authority, deadline: Duration) -> JoinAnswer {
    let identity = Identity::Token("s3cret".to_owned());
    let access = Access::new(url, Some(authority.pem().as_bytes()), &identity).unwrap();
    block_on(ask_whether_node_may_join(&access, deadline)).unwrap().unwrap()
}

/// What is made of this answer, and the question that led to it.
fn asked(reply: impl Fn(&mut dyn Stream) + Send + Sync + 'static) -> (JoinAnswer, Vec<String>) {
    let authority = Authority::new();
    let server = authority.serve(move |_, stream| reply(stream));
    let heard = ask(&server.url(""), &authority, PATIENT);
    (heard, server.questions())
}

fn status_object(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"{reason}","reason":"{reason}","code":{code}}}"#
    )
}

#[test]
fn a_server_is_asked_once_with_the_credentials_and_its_version_is_what_it_says() {
    let (heard, questions) = asked(|stream| good(stream, VERSION));
    assert_eq!(heard, JoinAnswer::Welcome { version: "v1.36.3".to_owned() });
    let [question] = questions.as_slice() else { panic!("asked once: {questions:?}") };
    assert!(question.starts_with("GET /version HTTP/1.1\r\n"), "{question}");
    assert!(question.to_lowercase().contains("authorization: bearer s3cret"), "{question}");
}

#[test]
fn who_is_unknown_is_told_apart_from_who_is_known_but_may_not_ask() {
    // As an API server says it, and as something in front of one may.
    for body in [status_object(401, "Unauthorized"), String::new(), "<html>no</html>".to_owned()] {
        let (heard, questions) = asked(move |stream| answer(stream, "401 Unauthorized", &body));
        assert_eq!((heard, questions.len()), (JoinAnswer::TokenRefused, 1));
    }
    for body in [status_object(403, "Forbidden"), String::new()] {
        let (heard, questions) = asked(move |stream| answer(stream, "403 Forbidden", &body));
        assert_eq!((heard, questions.len()), (JoinAnswer::Welcome { version: "unknown".to_owned() }, 1));
    }
}

#[test]
fn an_answer_that_says_nothing_is_unclear_and_no_version() {
    for status in ["500 Internal Server Error", "503 Service Unavailable", "404 Not Found"] {
        let (heard, _) = asked(move |stream| answer(stream, status, ""));
        let JoinAnswer::Unclear { reason } = heard else { panic!("{status}: {heard:?}") };
        assert!(reason.contains(&status[..3]), "{status}: {reason}");
    }
    let (heard, questions) = asked(|stream| redirect(stream, "https://127.0.0.1/version"));
    assert!(
        matches!(heard, JoinAnswer::Unclear { .. }) && questions.len() == 1,
        "{heard:?}: a redirect is not followed"
    );
    for body in ["", "hello", "[1]", r#"{"gitVersion":"v1.3"#, r#"{"gitVersion":7}"#] {
        let (heard, _) = asked(move |stream| good(stream, body));
        assert!(matches!(heard, JoinAnswer::Unclear { .. }), "{body:?}: {heard:?}");
    }
}

#[test]
fn what_is_no_http_and_what_breaks_off_is_no_version_either() {
    let cut: [&'static str; 3] =
        ["\0\u{1}garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"gitVersion\":\"v1.36.3\"}", ""];
    for bytes in cut {
        let (heard, _) = asked(move |stream| {
            let _ = stream.write_all(bytes.as_bytes());
        });
        assert!(matches!(heard, JoinAnswer::Unreachable { .. } | JoinAnswer::Unclear { .. }), "{bytes:?}: {heard:?}");
    }
}

#[test]
fn silence_ends_with_the_deadline_wherever_it_begins() {
    let authority = Authority::new();
    let unreachable = |url: &str| {
        let heard = ask(url, &authority, HASTY);
        assert!(matches!(heard, JoinAnswer::Unreachable { .. }), "{url}: {heard:?}");
    };
    let after_the_question = authority.serve(|_, stream| hold(stream));
    unreachable(&after_the_question.url(""));
    assert_eq!(after_the_question.questions().len(), 1);
    let within_the_answer = authority.serve(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{");
        let _ = stream.flush();
        hold(stream);
    });
    unreachable(&within_the_answer.url(""));
    // The kernel shakes hands for it; nobody speaks TLS.
    let before_tls = TcpListener::bind("127.0.0.1:0").unwrap();
    unreachable(&format!("https://{}", before_tls.local_addr().unwrap()));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    unreachable(&format!("https://{nobody}"));
}

#[test]
fn a_server_that_cannot_prove_who_it_is_hears_no_question() {
    let own = Authority::new();
    let refused = |server: &Server, words: &str| {
        let heard = ask(&server.url(""), &own, PATIENT);
        let JoinAnswer::CertificateRefused { reason } = heard else { panic!("{heard:?}") };
        assert!(reason.contains(words), "{reason}");
        assert!(server.questions().is_empty(), "the token was shown to a stranger");
    };
    refused(&Authority::new().serve(|_, stream| good(stream, VERSION)), "not issued by the certificate authority");
    let ended = own.serve_as("127.0.0.1", Validity::Past, |_, stream| good(stream, VERSION));
    refused(&ended, "has expired, or this machine's clock is wrong");
    let named = own.serve_as("api.example.com", Validity::Now, |_, stream| good(stream, VERSION));
    refused(&named, "for other names");
    // Not even TLS.
    let plain = Server::start(|_, stream| good(stream, VERSION));
    let heard = ask(&plain.url("").replace("http://", "https://"), &own, PATIENT);
    assert!(!matches!(heard, JoinAnswer::Welcome { .. }), "{heard:?}");
    assert!(plain.questions().is_empty());
}
