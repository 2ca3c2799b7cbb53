//! Webhooks that do everything wrong, on loopback. No test asserts a time.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod server;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use fetch::{Post, PostError, post};
use server::{Authority, Server, answer, good, hold, redirect};

const BODY: &str = r#"{"result":"success"}"#;
const SECRET: &str = "Bearer s3cret";
const PATIENT: Duration = Duration::from_secs(60);
const HASTY: Duration = Duration::from_millis(600);

fn tell(url: &str, authorities: Option<&str>, deadline: Duration) -> Result<(), PostError> {
    let headers = BTreeMap::from([("Authorization".to_owned(), SECRET.to_owned())]);
    post(&Post { url, authorities, headers: &headers, body: BODY.as_bytes(), deadline, random: &|| 0 })
}

fn refused(url: &str, deadline: Duration) -> String {
    let error = tell(url, None, deadline).unwrap_err().to_string();
    assert!(!error.contains("s3cret") && !error.contains("hidden"), "{error}");
    error
}

#[test]
fn the_report_arrives_with_its_headers() {
    let server = Server::start(|_, stream| answer(stream, "202 Accepted", ""));
    tell(&server.url("/hook?a=b"), None, PATIENT).unwrap();
    let questions = server.questions();
    assert_eq!(questions.len(), 1);
    let (head, body) = questions[0].split_once("\r\n\r\n").unwrap();
    assert_eq!(body, BODY);
    let question = head.to_lowercase();
    for wanted in ["post /hook?a=b http/1.1", "content-type: application/json", "authorization: bearer s3cret"] {
        assert!(question.contains(wanted), "{question}");
    }
}

#[test]
fn one_that_is_busy_is_asked_again() {
    let server = Server::start(|number, stream| match number {
        1 => answer(stream, "503 Service Unavailable", ""),
        2 => {}
        _ => good(stream, ""),
    });
    tell(&server.url("/"), None, PATIENT).unwrap();
    assert_eq!(server.questions().len(), 3);
}

#[test]
fn what_cannot_pass_is_not_tried_again_and_no_redirect_gets_the_secret() {
    let other = Server::start(|_, stream| good(stream, ""));
    let elsewhere = other.url("/");
    let server = Server::start(move |_, stream| redirect(stream, &elsewhere));
    assert!(refused(&server.url("/hidden"), PATIENT).contains("redirect"));
    assert_eq!((server.questions().len(), other.questions().len()), (1, 0));
    let forbidding = Server::start(|_, stream| answer(stream, "403 Forbidden", ""));
    assert!(refused(&forbidding.url("/hidden?hidden"), PATIENT).contains("403"));
    assert_eq!(forbidding.questions().len(), 1);
    assert!(refused("ftp://hidden", PATIENT).contains("http"));
}

#[test]
fn silence_ends_with_the_deadline() {
    let silent = Server::start(|_, stream| hold(stream));
    assert!(refused(&silent.url("/hidden"), HASTY).contains("waited"));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = refused(&format!("http://{free}/hidden"), HASTY);
    assert!(error.contains("no connection") && error.contains("times"), "{error}");
}

#[test]
fn only_a_trusted_webhook_is_told() {
    let authority = Authority::new();
    let server = authority.serve(|_, stream| good(stream, ""));
    assert!(refused(&server.url("/hidden"), PATIENT).contains("certificate"));
    assert!(server.questions().is_empty());
    tell(&server.url("/"), Some(&authority.pem()), PATIENT).unwrap();
    assert_eq!(server.questions().len(), 1);
}
