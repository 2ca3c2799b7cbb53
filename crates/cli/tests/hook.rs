//! `hook pre-reboot` on folders that stand for nodes: its exit codes, what it writes on the Node, and its old name.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;
mod support;

use bundle::Bundle;
use data_encoding::BASE64;
use rustix::fs::{FlockOperation, flock};
use server::{Authority, Server, answer};
use support::{BINARY, BUNDLE, Ran, Sandbox, example, finish, nodestrap, program, text};

const READY: &str = "nodestrap.io/next-boot-ready";
const OPERATOR: &str = "a.io/before-reboot";
const YES: &str = r#"{"metadata":{"annotations":{"nodestrap.io/next-boot-ready":"true","nodestrap.io/next-boot-ready-for":"the-running-system"}}}"#;
const NOTHING: &str =
    r#"{"metadata":{"annotations":{"nodestrap.io/next-boot-ready":null,"nodestrap.io/next-boot-ready-for":null}}}"#;

fn hook(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let mut arguments = sandbox.arguments("hook", more);
    arguments.insert(1, "pre-reboot".to_owned());
    nodestrap(arguments)
}

#[test]
fn without_an_operator_the_exit_code_is_the_answer() {
    let sandbox = Sandbox::applied();
    let ready = hook(&sandbox, &[]).expect(0);
    assert_eq!(ready.out, "✓ ready to boot into the operating system that runs\n");
    let view = hook(&sandbox, &["-o", "json"]).expect(0).json();
    assert_eq!((view["verdict"].as_str(), view["nextOs"].is_null()), (Some("ready"), true));
    assert_eq!(view["sameBecause"], "there is no update_engine on this machine");

    let lock = std::fs::File::open(sandbox.path("/run/nodestrap/lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    hook(&sandbox, &[]).expect(5).says(&["another nodestrap is at work"]);
    drop(lock);
    sandbox.remove(BUNDLE);
    hook(&sandbox, &[]).expect(2);

    for wrong in [
        &["--node-annotation", "a b"][..],
        &["--while-label", OPERATOR],
        &["--host-program", "/a"],
        &["--in-pod"],
        &["--sleep", "soon"],
    ] {
        hook(&sandbox, wrong).expect(2);
    }
}

/// A complete node, and the API server of its bundle, which says these things in turn.
struct Complete {
    sandbox: Sandbox,
    server: Server,
}

impl Complete {
    fn new(answers: Vec<(&'static str, String)>) -> Self {
        let authority = Authority::new();
        let server = authority.serve(move |number, stream| {
            let (status, body) = answers.get(number - 1).expect("one question for each answer");
            answer(stream, status, body);
        });
        let url = server.url("");
        let folder = tempfile::tempdir().unwrap();
        let spec = folder.path().join("cluster.yaml").display().to_string();
        std::fs::write(&spec, text(example("minimal.yaml")).replace("https://10.0.0.10:6443", &url)).unwrap();
        let rendered = nodestrap(["render", &spec, "--format=bundle"]).expect(0).out;
        let kubeconfig = Bundle::parse(rendered.as_bytes()).unwrap().join.kubeconfig;
        let sandbox = Sandbox::image();
        sandbox.deliver(&rendered);
        sandbox.run("apply", &["--progress=none"]).expect(0);
        let authority = BASE64.encode(authority.pem().as_bytes());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: default\n\
             contexts: [{{name: default, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"{url}\", certificate-authority-data: {authority}}}}}]\n\
             users: [{{name: u, user: {{token: s3cret}}}}]\n"
        );
        sandbox.write(&kubeconfig, text);
        Self { sandbox, server }
    }

    fn hook(&self, more: &[&str]) -> Ran {
        hook(&self.sandbox, &[&["--node-name", "n1", "--node-annotation", READY], more].concat())
    }

    /// What it was asked, and what it was to write.
    fn asked(&self) -> Vec<(String, String)> {
        let parts = |question: &String| {
            let (head, body) = question.split_once("\r\n\r\n").unwrap();
            let line = head.lines().next().unwrap_or_default();
            (line.trim_end_matches(" HTTP/1.1").trim_end_matches('?').to_owned(), body.to_owned())
        };
        self.server.questions().iter().map(parts).collect()
    }
}

fn node(labels: &str, annotations: &str) -> (&'static str, String) {
    let text = format!(
        r#"{{"kind":"Node","apiVersion":"v1","metadata":{{"name":"n1","uid":"u","labels":{{{labels}}},"annotations":{{{annotations}}}}}}}"#
    );
    ("200 OK", text)
}

fn read() -> (String, String) {
    ("GET /api/v1/nodes/n1".to_owned(), String::new())
}

fn written(body: &str) -> (String, String) {
    ("PATCH /api/v1/nodes/n1".to_owned(), body.to_owned())
}

#[test]
fn the_node_says_yes_once_and_no_longer_than_somebody_waits() {
    let (waits, yes) = (format!("\"{OPERATOR}\":\"true\""), format!("\"{READY}\":\"true\""));
    let about = |what: &str| format!("{yes},\"{READY}-for\":\"{what}\"");
    let complete = Complete::new(vec![
        node(&waits, ""),
        node(&waits, &about("the-running-system")),
        node(&waits, &about("the-running-system")),
        // Of an update that was taken back.
        node(&waits, &about("4459.0.0")),
        node(&waits, ""),
        node(&waits, &about("the-running-system")),
        // The operator waits no more.
        node("", &yes),
        node("", ""),
        node("", ""),
    ]);
    let label = ["--while-label", OPERATOR];
    complete.hook(&label).expect(0);
    assert_eq!(complete.asked(), [read(), written(YES)]);
    complete.hook(&label).expect(0);
    assert_eq!(complete.asked()[2..], [read()], "it is said already");
    complete.hook(&label).expect(0);
    assert_eq!(complete.asked()[3..], [read(), written(NOTHING), written(YES)], "it was about something else");
    let said = complete.hook(&label).expect(0).out;
    assert_eq!(said, format!("nobody waits for n1: it has no label {OPERATOR}=true\n"));
    assert_eq!(complete.asked()[6..], [read(), written(NOTHING)]);
    complete.hook(&label).expect(0);
    assert_eq!(complete.asked()[8..], [read()], "there is nothing to take away");
}

#[test]
fn what_was_said_is_taken_back_when_nothing_can_be_proved() {
    let yes = || node("", &format!("\"{READY}\":\"true\",\"{READY}-for\":\"the-running-system\""));
    let forbidden = ("403 Forbidden", String::new());
    let complete = Complete::new(vec![yes(), node("", ""), yes(), node("", ""), forbidden, yes()]);
    let lock = std::fs::File::open(complete.sandbox.path("/run/nodestrap/lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    complete.hook(&[]).expect(5);
    drop(lock);
    assert_eq!(complete.asked(), [read(), written(NOTHING)]);
    // Where the API server is the node still knows.
    complete.sandbox.remove(BUNDLE);
    complete.hook(&[]).expect(2);
    assert_eq!(complete.asked()[2..], [read(), written(NOTHING)]);
    complete.hook(&[]).expect(4).says(&["cannot read the Node \"n1\"", "(403)"]);
}

#[test]
fn the_old_name_takes_the_old_flags_and_names_those_that_it_does_not_follow() {
    let sandbox = Sandbox::applied();
    let link = sandbox.path("/tectonic-torcx-hook-pre");
    std::os::unix::fs::symlink(BINARY, &link).unwrap();
    let run = |more: &[&str]| {
        let mut command = program(&link);
        command.arg("--root").arg(sandbox.root()).args(more);
        finish(command)
    };
    run(&["--torcx-bin=/usr/bin/torcx", "--verbose=debug", "--sleep=0"]).expect(0).says(&[]);
    let ran = run(&["--torcx-profile=p", "--keyring=/k"]).expect(0);
    ran.says(&["not followed: --torcx-profile, --keyring; the bundle of this node says it"]);
    run(&["--upgrade-os=false"]).expect(2).says(&["--upgrade-os"]);
    run(&["--node-annotation=a b"]).expect(2);
    // Who names no kubeconfig means Tectonic's.
    run(&["--node-annotation", READY]).expect(3).says(&["/etc/kubernetes/kubeconfig"]);
}
