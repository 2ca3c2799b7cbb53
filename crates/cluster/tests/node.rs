//! What is written on a Node and said about it, to API servers on loopback that answer well, badly or never.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{
    Access, Answer, Identity, MarkKey, NodeEvent, NodeMarks, Patience, Weight, annotate_node, block_on, node_marks,
    say_about_node,
};
use server::{Authority, Server, Stream, answer, good};

const PATIENT: Patience = Patience { deadline: Duration::from_secs(60), attempt: Duration::from_secs(30) };
const HASTY: Patience = Patience { deadline: Duration::from_millis(900), attempt: Duration::from_millis(600) };
const NODE: &str = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":"u-1",
    "labels":{"a.io/waits":"true"},"annotations":{"b.io/ready":"true"}}}"#;
/// 2026-11-19T21:30:00Z.
const NOW: i64 = 1_795_123_800;

fn access(server: &Server, authority: &Authority) -> Access {
    let identity = Identity::Token("s3cret".to_owned());
    Access::new(&server.url(""), Some(authority.pem().as_bytes()), &identity).unwrap()
}

fn key(text: &str) -> MarkKey {
    MarkKey::parse(text).unwrap()
}

fn event() -> NodeEvent {
    NodeEvent {
        node: "n1".to_owned(),
        uid: "u-1".to_owned(),
        weight: Weight::Warning,
        reason: "NextBootRefused".to_owned(),
        message: "kubernetes 1.36.3 does not fit".to_owned(),
        mark: "0123456789ab".to_owned(),
    }
}

/// What each of the questions makes of this reply, and how often the first was asked.
fn replied(
    patience: Patience,
    reply: impl Fn(&mut dyn Stream) + Send + Sync + 'static,
) -> ([Answer<NodeMarks>; 2], Answer<()>, usize) {
    let authority = Authority::new();
    let server = authority.serve(move |_, stream| reply(stream));
    let access = access(&server, &authority);
    let read = block_on(node_marks(&access, "n1", patience)).unwrap();
    let asked = server.questions().len();
    let changes = BTreeMap::from([(key("b.io/ready"), None)]);
    let written = block_on(annotate_node(&access, "n1", &changes, patience)).unwrap();
    let said = block_on(say_about_node(&access, &event(), NOW, patience)).unwrap();
    ([read, written], said, asked)
}

#[test]
fn labels_and_annotations_are_read_with_the_uid_of_the_node() {
    let authority = Authority::new();
    let server = authority.serve(|_, stream| good(stream, NODE));
    let found = block_on(node_marks(&access(&server, &authority), "n1", PATIENT)).unwrap();
    let Answer::Found(marks) = found else { panic!("{found:?}") };
    assert_eq!(marks.uid, "u-1");
    assert_eq!((marks.label(&key("a.io/waits")), marks.label(&key("b.io/ready"))), (Some("true"), None));
    assert_eq!((marks.annotation(&key("b.io/ready")), marks.annotation(&key("a.io/waits"))), (Some("true"), None));
    assert!(server.questions()[0].starts_with("GET /api/v1/nodes/n1 HTTP/1.1\r\n"), "{:?}", server.questions());
}

#[test]
fn annotations_are_changed_by_a_merge_patch_that_names_no_other_and_no_version() {
    let authority = Authority::new();
    let server = authority.serve(|_, stream| good(stream, NODE));
    let changes = BTreeMap::from([(key("b.io/ready"), Some("true".to_owned())), (key("b.io/stale"), None)]);
    let answer = block_on(annotate_node(&access(&server, &authority), "n1", &changes, PATIENT)).unwrap();
    assert!(matches!(answer, Answer::Found(_)), "{answer:?}");
    let question = &server.questions()[0];
    assert!(question.starts_with("PATCH /api/v1/nodes/n1? HTTP/1.1\r\n"), "{question}");
    assert!(question.to_lowercase().contains("\r\ncontent-type: application/merge-patch+json\r\n"), "{question}");
    let body = question.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(body, r#"{"metadata":{"annotations":{"b.io/ready":"true","b.io/stale":null}}}"#);
}

#[test]
fn an_event_is_about_the_node_and_the_same_again_is_the_same_event_seen_later() {
    let authority = Authority::new();
    let server = authority.serve(|number, stream| match number {
        1 => answer(stream, "201 Created", r#"{"metadata":{},"involvedObject":{}}"#),
        2 => answer(stream, "409 Conflict", r#"{"status":"Failure","code":409,"reason":"AlreadyExists","message":""}"#),
        _ => good(stream, r#"{"metadata":{},"involvedObject":{}}"#),
    });
    let access = access(&server, &authority);
    for now in [NOW, NOW + 60] {
        assert_eq!(block_on(say_about_node(&access, &event(), now, PATIENT)).unwrap(), Answer::Found(()));
    }
    let questions = server.questions();
    let [first, _, again] = questions.as_slice() else { panic!("{questions:?}") };
    assert!(first.starts_with("POST /api/v1/namespaces/default/events? HTTP/1.1\r\n"), "{first}");
    for part in [
        r#""name":"n1.nodestrap.0123456789ab""#,
        r#""involvedObject":{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u-1"}"#,
        r#""type":"Warning""#,
        r#""reason":"NextBootRefused""#,
        r#""message":"kubernetes 1.36.3 does not fit""#,
        r#""lastTimestamp":"2026-11-19T21:30:00Z""#,
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(again.starts_with("PATCH /api/v1/namespaces/default/events/n1.nodestrap.0123456789ab? "), "{again}");
    assert!(again.ends_with(r#"{"lastTimestamp":"2026-11-19T21:31:00Z"}"#), "{again}");
}

#[test]
fn a_refusal_counts_at_once_and_silence_after_the_deadline() {
    for (line, expected) in [
        ("401 Unauthorized", Answer::Refused { status: 401 }),
        ("403 Forbidden", Answer::Refused { status: 403 }),
        ("404 Not Found", Answer::NotThere),
    ] {
        let (heard, said, asked) = replied(PATIENT, move |stream| answer(stream, line, ""));
        assert_eq!((heard, asked), ([expected.clone(), expected.clone()], 1), "{line}");
        assert_eq!(said, expected.read(|_| Ok(())), "{line}");
    }
    let (heard, said, asked) = replied(HASTY, |stream| answer(stream, "503 Service Unavailable", ""));
    assert!(heard.iter().all(|one| matches!(one, Answer::Unreachable { .. })) && asked > 1, "{heard:?}");
    assert!(matches!(said, Answer::Unreachable { .. }), "{said:?}");
    let (heard, said, _) = replied(PATIENT, |stream| good(stream, "hello"));
    assert!(heard.iter().all(|one| matches!(one, Answer::Malformed { .. })), "{heard:?}");
    assert!(matches!(said, Answer::Malformed { .. }), "{said:?}");
}
