//! Stores that speak S3 and refuse in every way that AWS documents, on loopback. The real one is in `crates/lab/tests/store.rs`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod server;
#[allow(dead_code, reason = "shared with other tests, which use the rest")]
mod shelf;

use std::io::Read;
use std::time::{Duration, SystemTime};

use fetch::{Bucket, Credentials, Network, Patience, S3, S3Settings, Secret, Stored, Style, Upload};
use server::{Server, answer, good};
use shelf::{Ask, Memory, Shelf, Trick, object};

const TOKEN: &str = "canary-session-token";

fn credentials() -> Credentials {
    Credentials {
        access_key: "AKIDEXAMPLE".to_owned(),
        secret_key: Secret::new("canary-secret-key"),
        session_token: Some(Secret::new(TOKEN)),
    }
}

fn settings(server: &Server) -> S3Settings {
    S3Settings { region: "eu-central-1".to_owned(), endpoint: Some(server.url("")), style: Style::Path }
}

fn may_2013() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600)
}

fn with<T>(server: &Server, then: impl FnOnce(&Bucket<'_>) -> T) -> T {
    let (settings, credentials) = (settings(server), credentials());
    let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &may_2013 };
    let network = Network { s3: Some(s3), ..Network::default() };
    let patience = Patience { overall: Duration::from_secs(4), ..shelf::patience() };
    then(&Bucket { network, patience, random: &|| 0 })
}

fn refuse(status: &'static str, code: &'static str) -> Server {
    let page = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>canary</Message></Error>");
    Server::start(move |_, stream| answer(stream, status, &page))
}

#[test]
fn an_object_is_fetched_with_a_signature_and_continued_with_another() {
    let shelf = Shelf::start(vec![Trick::CutAt(50)]);
    let (settings, credentials) = (settings(&shelf.server), credentials());
    let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &may_2013 };
    let ask = Ask::new(vec!["s3://artefacts/a dir/thing".to_owned()]);
    let asked = ask.run_with(Memory::default(), |network| Network { s3: Some(s3), ..network });
    assert_eq!(asked.outcome.unwrap(), Some("s3://artefacts/a dir/thing".to_owned()));
    assert!(asked.sink.bytes == object());
    assert!(!asked.told.concat().contains("canary"), "{:?}", asked.told);
    let questions = shelf.server.questions();
    assert_eq!(questions.len(), 2);
    for question in questions {
        let lower = question.to_lowercase();
        assert!(question.starts_with("GET /artefacts/a%20dir/thing HTTP/1.1\r\n"), "{question}");
        assert!(lower.contains("x-amz-date: 20130524t000000z\r\n") && lower.contains(TOKEN), "{question}");
        assert!(lower.contains("credential=akidexample/20130524/eu-central-1/s3/aws4_request"), "{question}");
        assert!(!lower.contains("canary-secret-key"), "{question}");
    }
}

#[test]
fn what_was_signed_is_sent_to_nobody_else() {
    let elsewhere = Shelf::start(vec![]);
    let target = elsewhere.server.url("/thing?presigned");
    let leading = Server::start(move |_, stream| server::redirect(stream, &target));
    let (settings, credentials) = (settings(&leading), credentials());
    let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &may_2013 };
    let ask = Ask::new(vec!["s3://artefacts/thing".to_owned()]);
    let asked = ask.run_with(Memory::default(), |network| Network { s3: Some(s3), ..network });
    assert!(asked.sink.bytes == object());
    let question = elsewhere.server.questions()[0].to_lowercase();
    assert!(!question.contains("authorization") && !question.contains("x-amz-"), "{question}");
}

#[test]
fn each_refusal_has_its_own_words_and_says_what_to_do() {
    for (status, code, words, passes) in [
        ("403 Forbidden", "RequestTimeTooSkewed", "set this machine's clock right", true),
        ("403 Forbidden", "SignatureDoesNotMatch", "correct the access key and the secret key", false),
        ("403 Forbidden", "InvalidAccessKeyId", "does not know the access key", false),
        ("400 Bad Request", "ExpiredToken", "the session token has expired", false),
        ("403 Forbidden", "AccessDenied", "s3:GetObject", false),
        ("503 Slow Down", "SlowDown", "asked too much at once", true),
        ("404 Not Found", "NoSuchBucket", "make the bucket", false),
        ("301 Moved Permanently", "PermanentRedirect", "correct the region", false),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "correct the region", false),
    ] {
        let store = refuse(status, code);
        let (settings, credentials) = (settings(&store), credentials());
        let s3 = S3 { settings: &settings, credentials: Some(&credentials), now: &may_2013 };
        let ask = Ask { patience: shelf::hasty(), ..Ask::new(vec!["s3://artefacts/thing".to_owned()]) };
        let asked = ask.run_with(Memory::default(), |network| Network { s3: Some(s3), ..network });
        let error = asked.outcome.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(words) && text.contains(code) && text.contains("s3://artefacts/thing"), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!((error.may_pass(), store.questions().len() > 1), (passes, passes), "{code}");
        let error = with(&store, |bucket| bucket.list("s3://artefacts")).unwrap_err();
        assert!(error.to_string().contains(words) && error.may_pass() == passes, "{error}");
    }
}

#[test]
fn a_busy_store_is_asked_again() {
    let page = "<Error><Code>SlowDown</Code></Error>";
    let store = Server::start(move |number, stream| match number {
        1 | 2 => answer(stream, "503 Slow Down", page),
        3 => {}
        _ => good(stream, ""),
    });
    let open = || Ok(Box::new(&b"hello"[..]) as Box<dyn Read + Send>);
    let upload = Upload { size: 5, sha256: [7; 32], open: &open };
    with(&store, |bucket| bucket.put("s3://artefacts/a/b", &upload)).unwrap();
    let questions = store.questions();
    assert_eq!(questions.len(), 4);
    let (head, body) = questions[3].split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "hello", "it is read anew each time");
    let head = head.to_lowercase();
    assert!(head.starts_with("put /artefacts/a/b http/1.1"), "{head}");
    for wanted in
        ["content-length: 5", &format!("x-amz-content-sha256: {}", "07".repeat(32)), "x-amz-meta-sha256;x-amz-sec"]
    {
        assert!(head.contains(wanted), "no {wanted}: {head}");
    }
}

#[test]
fn objects_are_looked_at_listed_page_by_page_and_deleted() {
    let store = Server::start_reading(|_, question, stream| {
        let item = |key: &str| format!("<Contents><Key>{key}</Key><Size>3</Size></Contents>");
        let page = |more: &str, items: &str| format!("<ListBucketResult><IsTruncated>{more}{items}</ListBucketResult>");
        let first = question.lines().next().unwrap();
        match first {
            "HEAD /artefacts/there HTTP/1.1" => {
                let sum = "07".repeat(32);
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nx-amz-meta-sha256: {sum}\r\n\r\n");
            }
            "GET /artefacts/?list-type=2&prefix=a%2F HTTP/1.1" => {
                let token = "<NextContinuationToken>1/=</NextContinuationToken>";
                good(stream, &page("true</IsTruncated>", &format!("{}{token}", item("a/1"))));
            }
            "GET /artefacts/?continuation-token=1%2F%3D&list-type=2&prefix=a%2F HTTP/1.1" => {
                good(stream, &page("false</IsTruncated>", &item("a/2")));
            }
            "DELETE /artefacts/there HTTP/1.1" => answer(stream, "204 No Content", ""),
            _ => answer(stream, "404 Not Found", ""),
        }
    });
    with(&store, |bucket| {
        let there = bucket.head("s3://artefacts/there").unwrap();
        assert_eq!(there, Some(Stored { size: 3, sha256: Some([7; 32]) }));
        assert_eq!(bucket.head("s3://artefacts/gone").unwrap(), None);
        let keys: Vec<String> = bucket.list("s3://artefacts/a/").unwrap().into_iter().map(|found| found.key).collect();
        assert_eq!(keys, ["a/1", "a/2"]);
        bucket.delete("s3://artefacts/there").unwrap();
        bucket.delete("s3://artefacts/gone").unwrap();
    });
}

#[test]
fn what_cannot_be_asked_is_said_at_once() {
    let store = refuse("500 Internal Server Error", "InternalError");
    with(&store, |bucket| {
        for (place, why) in
            [("http://h/x", "s3://BUCKET/KEY"), ("s3://artefacts", "s3://BUCKET/KEY"), ("s3://A/b", "lower-case")]
        {
            let error = bucket.head(place).unwrap_err();
            assert!(error.to_string().contains(why) && !error.may_pass(), "{error}");
        }
        let bare = Bucket { network: Network::default(), patience: shelf::patience(), random: &|| 0 };
        assert!(bare.head("s3://artefacts/x").unwrap_err().to_string().contains("region"));
    });
    assert!(store.questions().is_empty());
}
