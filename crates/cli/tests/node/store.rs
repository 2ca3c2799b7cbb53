//! A stub in place of the bundle: the bundle comes from a store on loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::*;

const KEPT: &str = "/var/lib/nodestrap/bundles";
/// Long enough for a few attempts, short enough to wait for.
const SOON: &str = "--fetch-deadline=2";

/// Answers every request with the same bytes, until it is dropped.
struct Store {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
}

impl Store {
    fn with(body: &str) -> Self {
        Self::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()), None)
    }

    /// `hold`: told of each request, and kept from answering until the other side is gone.
    fn answering(answer: String, hold: Option<mpsc::Sender<()>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = Self { address: listener.local_addr().unwrap(), asked: Arc::default(), closed: Arc::default() };
        let (asked, closed) = (Arc::clone(&store.asked), Arc::clone(&store.closed));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                asked.fetch_add(1, Ordering::SeqCst);
                serve(stream.unwrap(), &answer, hold.as_ref());
            }
        });
        store
    }

    fn url(&self, digest: &str) -> String {
        format!("http://{}/bundles/{}.json", self.address, digest.trim_start_matches("sha256:"))
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, answer: &str, hold: Option<&mpsc::Sender<()>>) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut question = Vec::new();
    let mut part = [0; 512];
    while !question.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(count @ 1..) => question.extend_from_slice(&part[..count]),
            _ => return,
        }
    }
    match hold {
        None => {
            let _ = stream.write_all(answer.as_bytes());
        }
        Some(sender) => {
            let _ = stream.write_all(&answer.as_bytes()[..answer.len() / 2]);
            let _ = sender.send(());
            let _ = stream.read(&mut part);
        }
    }
}

fn digest(bundle: &str) -> String {
    serde_json::from_str::<Value>(bundle).unwrap()["digest"].as_str().unwrap().to_owned()
}

fn stub(digest: &str, urls: &[String]) -> String {
    serde_json::json!({
        "apiVersion": "nodestrap.io/v1alpha2", "kind": "BundleReference",
        "reference": { "cluster": "demo", "group": "workers", "digest": digest, "urls": urls },
    })
    .to_string()
}

/// An image with a stub for the example's bundle, and the store that has it.
fn referred() -> (Sandbox, Store) {
    let store = Store::with(bundle());
    (referring_to(&[&store]), store)
}

fn referring_to(stores: &[&Store]) -> Sandbox {
    let sandbox = Sandbox::image();
    let digest = digest(bundle());
    let urls: Vec<String> = stores.iter().map(|store| store.url(&digest)).collect();
    sandbox.deliver(&stub(&digest, &urls));
    sandbox
}

fn kept(sandbox: &Sandbox) -> Vec<String> {
    let folder = std::fs::read_dir(sandbox.path(KEPT)).unwrap();
    folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// What a node is made of, but for the file that was delivered.
fn brought(sandbox: &Sandbox) -> std::collections::BTreeMap<String, String> {
    let mut tree = sandbox.tree();
    tree.remove(BUNDLE);
    tree
}

/// A secret that stands nowhere else.
const CANARY: &str = "c4n4ryc4n4ryc4n4";

/// The example's bundle with the canary as its token.
fn canary_bundle() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, text(example("minimal.yaml")).replace(support::TOKEN_OF_EXAMPLE, CANARY)).unwrap();
    let bundle = nodestrap(["render", &file.display().to_string(), "--format=bundle"]).expect(0).out;
    assert!(bundle.contains(CANARY));
    bundle
}

fn secretless(ran: &Ran) {
    for said in [&ran.out, &ran.err] {
        assert!(!said.contains(CANARY), "{said}");
    }
}

#[test]
fn a_reference_makes_the_same_node_as_the_bundle_itself() {
    let (sandbox, store) = referred();
    let ran = sandbox.run("apply", &["--progress=plain"]).expect(0);
    let digest = digest(bundle());
    ran.says(&[&format!("fetching bundle {digest} from {}", store.url(&digest)), "node complete"]);
    assert_eq!(brought(&sandbox), brought(&Sandbox::applied()));
    assert_eq!(store.asked(), 1);
    let name = format!("{}.json", digest.trim_start_matches("sha256:"));
    assert_eq!(kept(&sandbox), std::slice::from_ref(&name));
    let path = format!("{KEPT}/{name}");
    assert_eq!((sandbox.mode(&path), sandbox.mode(KEPT), sandbox.mode("/var/lib/nodestrap")), (0o600, 0o700, 0o700));
    assert_eq!(text(sandbox.path(&path)), bundle());
}

#[test]
fn once_fetched_nobody_is_asked_again() {
    let (sandbox, store) = referred();
    sandbox.run("apply", &[]).expect(0);
    drop(store);
    let before = sandbox.snapshot();
    let again = sandbox.run("apply", &["--progress=plain"]).expect(0);
    assert_eq!(again.out, "✓ nothing to do: this node is as planned\n");
    assert!(!again.err.contains("fetching"), "{}", again.err);
    assert!(!sandbox.run("plan", &[]).expect(0).out.contains("to do"));
    assert_eq!(sandbox.run("status", &["-o", "json"]).expect(0).json()["phase"], "joining");
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn a_plan_fetches_but_keeps_nothing_and_status_does_not_even_ask() {
    let (sandbox, store) = referred();
    let before = sandbox.snapshot();
    let status = sandbox.run("status", &["-o", "json"]).expect(0).json();
    let digest = digest(bundle());
    assert_eq!(status["phase"], "not-fetched");
    assert_eq!((&status["bundle"], &status["cluster"]), (&Value::from(digest.clone()), &Value::from("demo")));
    let words = format!("the bundle {digest} has not been fetched yet from {}", store.url(&digest));
    assert!(status["summary"].as_str().unwrap().contains(&words), "{status}");
    assert_eq!(store.asked(), 0);
    let planned = sandbox.run("plan", &["-o", "json"]).expect(0);
    assert_eq!(planned.out, Sandbox::delivered().run("plan", &["-o", "json"]).expect(0).out);
    assert_eq!(store.asked(), 1);
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn the_next_store_is_asked_when_one_has_it_not() {
    let empty = Store::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), None);
    let wrong = Store::with(&other_bundle());
    let full = Store::with(bundle());
    let sandbox = referring_to(&[&empty, &wrong, &full]);
    let ran = sandbox.run("apply", &["--progress=plain"]).expect(0);
    ran.says(&["404 Not Found", "not what was asked for"]);
    assert_eq!((empty.asked(), wrong.asked(), full.asked()), (1, 1, 1));
}

#[test]
fn another_bundle_than_the_one_named_needs_a_person_and_is_not_used() {
    let canary = canary_bundle();
    for body in [
        other_bundle(),
        canary.clone(),
        canary.replace("10.0.0.10", "10.66.6.6"),
        canary[..canary.len() / 2].to_owned(),
        "<html>log in</html>".to_owned(),
        bundle().replace("10.0.0.10", "10.66.6.6"),
        bundle()[..200].to_owned(),
    ] {
        let (first, second) = (Store::with(&body), Store::with(&body));
        let sandbox = referring_to(&[&first, &second]);
        let before = sandbox.without_story();
        for command in ["plan", "apply"] {
            let ran = sandbox.run(command, &[SOON]).expect(4);
            let digest = digest(bundle());
            ran.says(&[
                "cannot fetch bundle",
                &digest,
                &first.url(&digest),
                &second.url(&digest),
                "asked once",
                "again",
            ]);
            assert_eq!(ran.out, said_of_refusal(command));
            secretless(&ran);
        }
        assert_eq!(sandbox.without_story(), before, "nothing but the story was written");
    }
}

#[test]
fn a_store_out_of_reach_may_be_retried() {
    let store = Store::with(bundle());
    let sandbox = referring_to(&[&store]);
    let url = store.url(&digest(bundle()));
    drop(store);
    let before = sandbox.without_story();
    for command in ["plan", "apply"] {
        let ran = sandbox.run(command, &[SOON]).expect(3);
        ran.says(&["cannot fetch bundle", &url, "within 2s", "see whether the store is up"]);
    }
    assert_eq!(sandbox.without_story(), before);
    let overloaded = Store::answering("HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n".to_owned(), None);
    referring_to(&[&overloaded]).run("apply", &[SOON]).expect(3).says(&["503"]);
    assert!(overloaded.asked() > 1);
}

#[test]
fn a_reference_that_cannot_be_used_is_wrong_input() {
    let url = ["https://store.example/b.json".to_owned()];
    for content in [
        stub("sha256:short", &url),
        stub(&digest(bundle()), &[]),
        stub(&digest(bundle()), &["ftp://store.example/b.json".to_owned()]),
        stub(&digest(bundle()), &url).replace("v1alpha2", "v9"),
        stub(&digest(bundle()), &url).replace("\"group\"", "\"grupo\""),
        stub(&digest(bundle()), &url).replacen(
            '}',
            ",\"certificateAuthorities\":\"-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n\"}",
            1,
        ),
    ] {
        let sandbox = Sandbox::image();
        sandbox.deliver(&content);
        let before = sandbox.without_story();
        for command in ["plan", "apply"] {
            assert_eq!(sandbox.run(command, &[SOON]).expect(2).out, said_of_refusal(command));
        }
        assert_eq!(sandbox.without_story(), before);
    }
}

#[test]
fn a_damaged_copy_is_fetched_again() {
    let (sandbox, store) = referred();
    sandbox.run("apply", &[]).expect(0);
    let path = format!("{KEPT}/{}", kept(&sandbox)[0]);
    let half = &bundle()[..bundle().len() / 2];
    for damage in ["", half, &"x".repeat(3 * 1024 * 1024)] {
        sandbox.write(&path, damage);
        let asked = store.asked();
        sandbox.run("apply", &[]).expect(0);
        assert_eq!(store.asked(), asked + 1);
        assert_eq!(text(sandbox.path(&path)), bundle());
    }
}

#[test]
fn copies_of_earlier_bundles_go_when_the_node_is_complete() {
    let (sandbox, _store) = referred();
    sandbox.run("apply", &[]).expect(0);
    let first = kept(&sandbox);
    let other = other_bundle();
    let next = Store::with(&other);
    sandbox.deliver(&stub(&digest(&other), &[next.url(&digest(&other))]));
    let status = sandbox.run("status", &["--brief"]).expect(0).out;
    assert!(
        status.contains("complete as an earlier bundle wanted it") && status.contains("not been fetched"),
        "{status}"
    );
    sandbox.remove("/usr/bin/kubelet");
    sandbox.run("apply", &[]).expect(4);
    assert_eq!(kept(&sandbox).len(), 2, "the new one is kept from the start, the old one until it is replaced");
    sandbox.write("/usr/bin/kubelet", "");
    sandbox.chmod("/usr/bin/kubelet", 0o755);
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(kept(&sandbox).len(), 1);
    assert_ne!(kept(&sandbox), first);
    assert_eq!(next.asked(), 1);
    sandbox.deliver(bundle());
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(kept(&sandbox), Vec::<String>::new(), "a bundle that lies where it was delivered needs no copy");
}

#[test]
fn killed_while_fetching_the_next_run_begins_anew() {
    let (sender, reached) = mpsc::channel();
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", bundle().len(), bundle());
    let slow = Store::answering(whole, Some(sender));
    let sandbox = referring_to(&[&slow]);
    let before = sandbox.without_story();
    let mut command = program(support::BINARY);
    command.args(sandbox.arguments("apply", &["--progress=none"]));
    let mut running = command.spawn().unwrap();
    reached.recv_timeout(Duration::from_secs(60)).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(sandbox.without_story(), before);
    let full = Store::with(bundle());
    sandbox.deliver(&stub(&digest(bundle()), &[full.url(&digest(bundle()))]));
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(brought(&sandbox), brought(&Sandbox::applied()));
}

#[test]
fn a_reference_may_be_named_on_the_command_line() {
    let (sandbox, _store) = referred();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("stub.json");
    std::fs::rename(sandbox.path(BUNDLE), &file).unwrap();
    sandbox.run("apply", &["--bundle", &file.display().to_string()]).expect(0);
    assert_eq!(kept(&sandbox).len(), 1, "the copy lies on the node");
}

#[test]
fn no_output_says_the_token() {
    let bundle = canary_bundle();
    let store = Store::with(&bundle);
    let sandbox = Sandbox::image();
    sandbox.deliver(&stub(&digest(&bundle), &[store.url(&digest(&bundle))]));
    for format in ["text", "json", "yaml"] {
        for (command, more) in [
            ("status", None),
            ("plan", None),
            ("apply", Some("--progress=plain")),
            ("apply", Some("--progress=json")),
            ("timeline", None),
        ] {
            let mut arguments = vec!["-o", format];
            arguments.extend(more);
            secretless(&sandbox.run(command, &arguments).expect(0));
        }
    }
}
