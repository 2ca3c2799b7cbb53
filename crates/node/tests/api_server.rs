//! A worker asks its API server, here one on loopback, before it goes above the release that it was complete with.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;
mod support;

use bundle::{Bundle, Role};
use data_encoding::BASE64;
use engine::RunOutcome;
use server::{Authority, Server, answer, good, hold};
use support::{FakeNode, clock, expect_converged, rich_bundle, surroundings};

fn of_release(role: Role, version: &str) -> Bundle {
    let mut bundle = rich_bundle();
    (bundle.node.role, bundle.kubernetes_version) = (role, version.to_owned());
    bundle
}

/// What the kubelet has written once it joined: where it went, and whom it trusted there.
fn join(node: &FakeNode, bundle: &Bundle, server: &str, authority: &Authority) {
    let authority = BASE64.encode(authority.pem().as_bytes());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: default\n\
         contexts: [{{name: default, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\", certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: u, user: {{token: s3cret}}}}]\n"
    );
    let (disk, path) = (node.disk.uncounted(), bundle.join.kubeconfig.as_path());
    host::files::write_durable(&disk, path, 0o600, kubeconfig.as_bytes(), None).unwrap();
}

/// Whether a node that is complete with one release goes on to another, with its API server there; what it says if not.
fn follows(role: Role, from: &str, to: &str, server: &str, authority: &Authority) -> Result<(), String> {
    let own = of_release(role, from);
    let node = FakeNode::new(&own);
    expect_converged(&node.apply(&own, 0).unwrap(), "first");
    join(&node, &own, server, authority);
    let tree = node.tree();
    let report = node::apply(&node.host(), &of_release(role, to).into(), &surroundings(&clock(), 0)).unwrap();
    match report.outcome {
        RunOutcome::Failed { message, .. } => {
            assert_eq!(node.tree(), tree, "refused, but something was changed");
            assert!(node.gate_is_open(), "the node goes on as it was");
            Err(message)
        }
        _ => Ok(()),
    }
}

fn rises(server: &str, authority: &Authority) -> Result<(), String> {
    follows(Role::Worker, "1.35.2", "1.36.1", server, authority)
}

fn version(text: &str) -> String {
    format!(r#"{{"major":"1","minor":"0","gitVersion":"{text}"}}"#)
}

#[test]
fn a_worker_asks_its_api_server_with_its_own_credentials_and_stays_below_it() {
    let authority = Authority::new();
    for (runs, may_rise) in [("v1.35.9", false), ("v1.34.0-eks-1", false), ("v1.36.0", true), ("v1.37.2+k3s1", true)] {
        let server = authority.serve(move |_, stream| good(stream, &version(runs)));
        let risen = rises(&server.url(""), &authority);
        assert_eq!(risen.is_ok(), may_rise, "{runs}: {risen:?}");
        if let Err(message) = risen {
            assert!(message.contains(&format!("the API server runs {runs}")), "{message}");
        }
        let questions = server.questions();
        let [question] = questions.as_slice() else { panic!("asked once: {questions:?}") };
        assert!(question.starts_with("GET /version ") && question.contains("Bearer s3cret"), "{question}");
    }
}

#[test]
fn an_api_server_that_says_nothing_about_its_version_is_no_reason_to_refuse() {
    let authority = Authority::new();
    for (status, body) in [
        ("401 Unauthorized", ""),
        ("403 Forbidden", ""),
        ("503 Service Unavailable", ""),
        ("200 OK", "no version at all"),
        ("200 OK", r#"{"gitVersion":"latest"}"#),
        ("200 OK", "{}"),
    ] {
        let server = authority.serve(move |_, stream| answer(stream, status, body));
        assert_eq!(rises(&server.url(""), &authority), Ok(()), "{status} {body}");
        assert_eq!(server.questions().len(), 1, "{status} {body}");
    }
    let silent = authority.serve(|_, stream| hold(stream));
    assert_eq!(rises(&silent.url(""), &authority), Ok(()), "silence");
    let gone = silent.url("");
    drop(silent);
    assert_eq!(rises(&gone, &authority), Ok(()), "nobody there");
}

#[test]
fn a_server_under_another_authority_is_not_believed() {
    let stranger = Authority::new().serve(|_, stream| good(stream, &version("v1.20.0")));
    assert_eq!(rises(&stranger.url(""), &Authority::new()), Ok(()));
    assert!(stranger.questions().is_empty(), "it must not get the token");
}

#[test]
fn where_its_release_decides_nothing_the_api_server_is_not_asked() {
    let authority = Authority::new();
    let server: Server = authority.serve(|_, stream| good(stream, &version("v1.20.0")));
    let url = server.url("");
    assert_eq!(follows(Role::Worker, "1.35.2", "1.35.2", &url, &authority), Ok(()), "the same bundle");
    assert_eq!(follows(Role::ControlPlane, "1.35.2", "1.36.1", &url, &authority), Ok(()), "a control plane");
    assert!(server.questions().is_empty(), "{:?}", server.questions());
}
