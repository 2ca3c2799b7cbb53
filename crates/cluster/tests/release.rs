//! The release of a cluster and a text of its own, from API servers on loopback that answer well, badly or never.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;

use std::net::TcpListener;
use std::time::Duration;

use cluster::{
    Access, Answer, ConfigMapKey, GitVersion, Identity, Patience, block_on, cluster_version, config_map_text,
};
use server::{Authority, Stream, Validity, answer, good, hold, redirect};

const PATIENT: Patience = Patience { deadline: Duration::from_secs(60), attempt: Duration::from_secs(30) };
const HASTY: Patience = Patience { deadline: Duration::from_millis(900), attempt: Duration::from_millis(600) };
const VERSION: &str = r#"{"major":"1","minor":"9","gitVersion":"v1.9.6+coreos.0"}"#;

fn access(url: &str, authority: &Authority) -> Access {
    let identity = Identity::Token("s3cret".to_owned());
    Access::new(url, Some(authority.pem().as_bytes()), &identity).unwrap()
}

fn version_of(access: &Access, patience: Patience) -> Answer<GitVersion> {
    block_on(cluster_version(access, patience)).unwrap()
}

fn mappings_of(access: &Access, patience: Patience) -> Answer<String> {
    let place = ConfigMapKey::new("tectonic-system", "tectonic-torcx-runtime-mappings", "runtime-mappings.yaml");
    block_on(config_map_text(access, &place.unwrap(), patience)).unwrap()
}

/// What is made of this reply to both questions, and how often each was asked.
fn replied(
    patience: Patience,
    reply: impl Fn(&mut dyn Stream) + Send + Sync + 'static,
) -> ([Answer<String>; 2], usize) {
    let authority = Authority::new();
    let server = authority.serve(move |_, stream| reply(stream));
    let access = access(&server.url(""), &authority);
    let version = version_of(&access, patience).read(|version| Ok(version.to_string()));
    let asked = server.questions().len();
    ([version, mappings_of(&access, patience)], asked)
}

fn is_unreachable(answer: &Answer<String>) -> bool {
    matches!(answer, Answer::Unreachable { .. })
}

fn is_malformed(answer: &Answer<String>) -> bool {
    matches!(answer, Answer::Malformed { .. })
}

#[test]
fn the_version_is_what_the_server_says_to_whom_it_knows() {
    let authority = Authority::new();
    let server = authority.serve(|_, stream| good(stream, VERSION));
    let access = access(&server.url(""), &authority);
    assert_eq!(version_of(&access, PATIENT), Answer::Found(GitVersion::parse("v1.9.6+coreos.0").unwrap()));
    let anonymous = access.without_identity().unwrap();
    assert!(anonymous.without_identity().is_none());
    assert!(matches!(version_of(&anonymous, PATIENT), Answer::Found(_)));
    let questions = server.questions().iter().map(|question| question.to_lowercase()).collect::<Vec<_>>();
    let [known, unknown] = questions.as_slice() else { panic!("asked once each: {questions:?}") };
    assert!(
        known.starts_with("get /version http/1.1\r\n") && known.contains("authorization: bearer s3cret"),
        "{known}"
    );
    assert!(unknown.starts_with("get /version ") && !unknown.contains("authorization"), "{unknown}");
}

#[test]
fn the_mappings_are_one_text_of_one_config_map() {
    let authority = Authority::new();
    let text = "kind: VersionManifestV1\nversions: {k8s: {1.10: {docker: [\\\"17.03\\\"]}}}\n".replace('\n', "\\n");
    let body = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","data":{{"runtime-mappings.yaml":"{text}"}}}}"#);
    let server = authority.serve(move |_, stream| good(stream, &body));
    let Answer::Found(found) = mappings_of(&access(&server.url(""), &authority), PATIENT) else { panic!() };
    assert_eq!(found, "kind: VersionManifestV1\nversions: {k8s: {1.10: {docker: [\"17.03\"]}}}\n");
    let asked = "GET /api/v1/namespaces/tectonic-system/configmaps/tectonic-torcx-runtime-mappings HTTP/1.1\r\n";
    assert!(server.questions()[0].starts_with(asked), "{:?}", server.questions());
}

#[test]
fn a_refusal_and_an_absence_count_at_once() {
    for (line, expected) in [
        ("401 Unauthorized", Answer::Refused { status: 401 }),
        ("403 Forbidden", Answer::Refused { status: 403 }),
        ("404 Not Found", Answer::NotThere),
    ] {
        let (heard, asked) = replied(PATIENT, move |stream| answer(stream, line, ""));
        assert_eq!((heard, asked), ([expected.clone(), expected], 1), "{line}");
    }
}

#[test]
fn what_is_there_and_is_not_what_it_should_be_is_malformed() {
    for body in ["", "hello", "[1]", "{}", r#"{"gitVersion":"latest","data":{}}"#, r#"{"gitVersion":7,"data":7}"#] {
        let (heard, asked) = replied(PATIENT, move |stream| good(stream, body));
        assert!(heard.iter().all(is_malformed) && asked == 1, "{body:?}: {heard:?}");
    }
    let (heard, asked) = replied(PATIENT, |stream| redirect(stream, "https://127.0.0.1/version"));
    assert!(heard.iter().all(is_malformed) && asked == 1, "a redirect is not followed: {heard:?}");
    let (heard, _) = replied(PATIENT, |stream| answer(stream, "418 I'm a teapot", ""));
    assert!(heard.iter().all(is_malformed), "{heard:?}");
}

#[test]
fn who_cannot_answer_is_asked_again_until_the_deadline() {
    for line in ["500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests", "408 Request Timeout"]
    {
        let (heard, asked) = replied(HASTY, move |stream| answer(stream, line, ""));
        assert!(heard.iter().all(is_unreachable) && asked > 1, "{line}: {heard:?}, asked {asked} times");
        let Answer::Unreachable { reason } = &heard[0] else { panic!() };
        assert!(reason.contains(&line[..3]), "{reason}");
    }
    let (heard, _) = replied(HASTY, |stream| hold(stream));
    assert!(heard.iter().all(is_unreachable), "silence: {heard:?}");
    let authority = Authority::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let heard = version_of(&access(&format!("https://{nobody}"), &authority), HASTY);
    assert!(matches!(heard, Answer::Unreachable { .. }), "{heard:?}");
}

#[test]
fn a_server_that_is_late_is_heard() {
    let authority = Authority::new();
    let server = authority.serve(|number, stream| match number {
        1 => answer(stream, "503 Service Unavailable", ""),
        2 => {}
        _ => good(stream, VERSION),
    });
    let heard = version_of(&access(&server.url(""), &authority), PATIENT);
    assert!(matches!(heard, Answer::Found(_)), "{heard:?}");
    assert!(server.questions().len() >= 3);
}

#[test]
fn a_server_that_cannot_prove_who_it_is_is_not_asked_again_and_hears_no_token() {
    let own = Authority::new();
    let ended = own.serve_as("127.0.0.1", Validity::Past, |_, stream| good(stream, VERSION));
    let named = own.serve_as("api.example.com", Validity::Now, |_, stream| good(stream, VERSION));
    let stranger = Authority::new().serve(|_, stream| good(stream, VERSION));
    for (server, words) in [
        (&ended, "has expired"),
        (&named, "for other names than the address in the kubeconfig"),
        (&stranger, "not issued by the certificate authority of the kubeconfig"),
    ] {
        let heard = version_of(&access(&server.url(""), &own), PATIENT);
        let Answer::Untrusted { reason } = heard else { panic!("{words}: {heard:?}") };
        assert!(reason.contains(words), "{reason}");
        assert!(server.questions().is_empty());
    }
}
