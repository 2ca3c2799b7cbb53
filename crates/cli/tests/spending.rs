//! `spend-credentials` takes the bootstrap credentials away by the word of the node's own API server, here one on loopback, and by
//! nobody else's.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;
mod support;

use bundle::Bundle;
use data_encoding::BASE64;
use rcgen::{CertificateParams, KeyPair};
use server::{Authority, Server, answer};
use support::{BUNDLE, Sandbox, example, nodestrap, text};

const TOKEN: &str = "abcdef.0123456789abcdef";

/// A complete node whose kubelet has a certificate, and the API server of its bundle, which says these things in turn.
struct Joined {
    sandbox: Sandbox,
    bundle: Bundle,
    authority: Authority,
    server: Server,
}

impl Joined {
    fn new(answers: Vec<(&'static str, String)>) -> Self {
        let authority = Authority::new();
        let server = authority.serve(move |number, stream| {
            let (status, body) = answers.get(number - 1).expect("one question for each answer");
            answer(stream, status, body);
        });
        let folder = tempfile::tempdir().unwrap();
        let spec = folder.path().join("cluster.yaml").display().to_string();
        let written = text(example("minimal.yaml")).replace("https://10.0.0.10:6443", &server.url(""));
        let (before, rest) = written.split_once("certificateAuthority: ").unwrap();
        let (_, after) = rest.split_once('}').unwrap();
        let own = BASE64.encode(authority.pem().as_bytes());
        std::fs::write(&spec, format!("{before}certificateAuthority: {own}}}{after}")).unwrap();
        let rendered = nodestrap(["render", &spec, "--format=bundle"]).expect(0).out;
        let sandbox = Sandbox::image();
        sandbox.deliver(&rendered);
        sandbox.run("apply", &["--progress=none"]).expect(0);
        let joined = Self { sandbox, bundle: Bundle::parse(rendered.as_bytes()).unwrap(), authority, server };
        joined.write_kubeconfig(&joined.server.url(""), &joined.authority);
        joined
    }

    /// As the kubelet does once it has joined.
    fn write_kubeconfig(&self, server: &str, authority: &Authority) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        let (join, authority) = (&self.bundle.join, BASE64.encode(authority.pem().as_bytes()));
        let own = &join.client_certificate;
        self.sandbox.write(own, certificate.pem() + &key.serialize_pem());
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: default\n\
             contexts: [{{name: default, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{server}\", certificate-authority-data: {authority}}}}}]\n\
             users: [{{name: u, user: {{client-certificate: {own}, client-key: {own}}}}}]\n"
        );
        self.sandbox.write(&join.kubeconfig, kubeconfig);
    }

    /// Whatever is said, the node keeps all that it had.
    #[track_caller]
    fn keeps(&self, code: i32, words: &[&str]) {
        let before = self.sandbox.snapshot();
        self.sandbox.run("spend-credentials", &[]).expect(code).says(words);
        assert_eq!(self.sandbox.snapshot(), before, "{words:?}");
    }

    fn holds_token(&self, path: &str) -> bool {
        self.sandbox.exists(path) && text(self.sandbox.path(path)).contains(TOKEN)
    }
}

fn known_as(user: &str) -> (&'static str, String) {
    let review = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": {},
        "status": {"userInfo": {"username": user}},
    });
    ("201 Created", review.to_string())
}

#[test]
fn nothing_is_spent_until_the_api_server_knows_the_kubelet_by_its_certificate() {
    let joined = Joined::new(vec![
        ("401 Unauthorized", String::new()),
        known_as("system:anonymous"),
        known_as("system:bootstrap:abcdef"),
        known_as(""),
        ("503 Service Unavailable", String::new()),
        ("404 Not Found", String::new()),
        known_as("system:node:n1"),
    ]);
    joined.keeps(3, &["refuses the kubelet's certificate (401)", "nothing is spent"]);
    joined.keeps(3, &["system:anonymous", "nothing is spent"]);
    joined.keeps(3, &["system:bootstrap:abcdef", "nothing is spent"]);
    joined.keeps(3, &["nothing is spent"]);
    joined.keeps(3, &["503"]);
    joined.keeps(0, &["the bootstrap credentials stay"]);
    let (own, given) = (&joined.bundle.join.kubeconfig, &joined.bundle.join.bootstrap_kubeconfig);
    assert!(joined.holds_token(BUNDLE) && joined.holds_token(given), "there is something to take away");

    let said = joined.sandbox.run("spend-credentials", &[]).expect(0).out;
    assert!(said.contains(BUNDLE) && said.contains(given.as_str()), "{said}");
    assert!(!joined.holds_token(BUNDLE) && !joined.sandbox.exists(given) && joined.sandbox.exists(own));
    let left = Bundle::parse(text(joined.sandbox.path(BUNDLE)).as_bytes()).unwrap();
    assert_eq!(left.digest(), joined.bundle.digest(), "the digest stays that of the whole");
    for question in joined.server.questions() {
        assert!(question.starts_with("POST /apis/authentication.k8s.io/v1/selfsubjectreviews"), "{question}");
        assert!(!question.contains(TOKEN), "a node that is known by its token has not joined: {question}");
    }

    joined.sandbox.run("verify", &[]).expect(0);
    joined.sandbox.run("gate", &[]).expect(0);
    let again = joined.sandbox.run("apply", &[]).expect(0);
    assert!(again.out.contains("nothing to do"), "{}", again.out);
    joined.keeps(0, &[]);
    assert_eq!(joined.server.questions().len(), 7, "there is nothing left to ask about");
}

#[test]
fn another_api_server_or_one_under_another_authority_has_no_say() {
    // For two connections, of which the first gets no further than its certificate.
    let joined = Joined::new(vec![known_as("system:node:n1"), known_as("system:node:n1")]);
    let (own, stranger) = (joined.server.url(""), Authority::new());
    let other = joined.authority.serve(|_, stream| {
        let (status, body) = known_as("system:node:n1");
        answer(stream, status, &body);
    });
    joined.write_kubeconfig(&other.url(""), &joined.authority);
    joined.keeps(3, &["is not for", &own, "nothing is spent"]);
    assert!(other.questions().is_empty(), "{:?}", other.questions());
    joined.write_kubeconfig(&own, &stranger);
    joined.keeps(3, &[&own, "certificate"]);
    assert!(joined.server.questions().is_empty(), "whoever is not believed is not asked");
    joined.write_kubeconfig(&own, &joined.authority);
    joined.sandbox.run("spend-credentials", &[]).expect(0);
    assert!(!joined.holds_token(BUNDLE), "its own one has");
}
