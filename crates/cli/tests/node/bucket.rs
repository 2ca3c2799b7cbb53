//! A stub that leads into a bucket: the role of the machine opens it, as its metadata service says, or a key that came along.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab::metadata::{Instance, Manner, MetadataServer, Provider, Role};

use super::*;

const SETTING: &str = "/etc/nodestrap/platform";
const SECRET: &str = "c4n4ry-secret";
const TOKEN: &str = "c4n4ry-session";
/// Nothing is heard from a service that is not there.
const SOON: [&str; 2] = ["--fetch-deadline=2", "--metadata-deadline=2"];

/// A store on loopback with the bundle of the example. Whether a signature is right is for a real one to say (crates/lab/tests).
struct BucketStore {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    closed: Arc<AtomicBool>,
}

impl BucketStore {
    fn private() -> Self {
        Self::answering(|question| question.contains("\r\nauthorization: AWS4-HMAC-SHA256 "))
    }

    /// Gives to everybody.
    fn open() -> Self {
        Self::answering(|_| true)
    }

    fn answering(may_read: fn(&str) -> bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = Self { address: listener.local_addr().unwrap(), heard: Arc::default(), closed: Arc::default() };
        let (heard, closed) = (Arc::clone(&store.heard), Arc::clone(&store.closed));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                let question = read_question(&mut stream);
                let answer = match may_read(&question) {
                    true => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", bundle().len(), bundle()),
                    false => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(),
                };
                heard.lock().unwrap().push(question);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        store
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for BucketStore {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn read_question(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (mut question, mut part) = (Vec::new(), [0; 512]);
    while !question.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(count @ 1..) => question.extend_from_slice(&part[..count]),
            _ => break,
        }
    }
    String::from_utf8(question).unwrap()
}

fn role() -> Role {
    Role {
        name: "nodes".to_owned(),
        access_key: "ASIAEXAMPLE".to_owned(),
        secret_key: SECRET.to_owned(),
        token: TOKEN.to_owned(),
        expiration: "2099-01-01T00:00:00Z".to_owned(),
    }
}

fn object() -> String {
    let digest = serde_json::from_str::<Value>(bundle()).unwrap()["digest"].as_str().unwrap().to_owned();
    format!("bundles/{}.json", digest.trim_start_matches("sha256:"))
}

/// An image with a stub, for which the bundle is in a bucket of that store and at further places.
fn referred(store: &BucketStore, credentials: &Value, elsewhere: &[String]) -> Sandbox {
    let sandbox = Sandbox::image();
    let digest = serde_json::from_str::<Value>(bundle()).unwrap()["digest"].clone();
    let urls: Vec<String> =
        std::iter::once(format!("s3://nodes/{}", object())).chain(elsewhere.iter().cloned()).collect();
    let stub = serde_json::json!({
        "apiVersion": "nodestrap.io/v1alpha2", "kind": "BundleReference",
        "reference": { "cluster": "demo", "group": "workers", "digest": digest, "urls": urls, "s3": {
            "region": "lab-1", "endpoint": format!("http://{}", store.address), "pathStyle": true,
            "credentials": credentials,
        } },
    });
    sandbox.deliver(&stub.to_string());
    sandbox
}

fn on_aws(sandbox: &Sandbox, role: Option<Role>) -> MetadataServer {
    let service = MetadataServer::start(Instance { role, ..Instance::of(Provider::Aws) }).unwrap();
    sandbox.write(SETTING, format!("aws {}\n", service.url()));
    service
}

fn by_role() -> Value {
    serde_json::json!({ "kind": "instance-role" })
}

#[track_caller]
fn secretless(ran: &Ran) {
    for said in [&ran.out, &ran.err] {
        assert!(!said.contains("c4n4ry"), "{said}");
    }
}

#[test]
fn the_role_of_the_machine_opens_the_bucket_and_nothing_of_it_stays_on_the_node() {
    let store = BucketStore::private();
    let sandbox = referred(&store, &by_role(), &[]);
    let service = on_aws(&sandbox, Some(role()));
    let ran = sandbox.run("apply", &["--progress=plain"]).expect(0);
    ran.says(&[&format!("from s3://nodes/{}", object()), "node complete"]);
    secretless(&ran);
    let [question] = &store.heard()[..] else { panic!("one question is enough: {:?}", store.heard()) };
    assert!(question.starts_with(&format!("GET /nodes/{} HTTP/1.1\r\n", object())), "{question}");
    assert!(question.contains("Credential=ASIAEXAMPLE/") && question.contains("/lab-1/s3/aws4_request"), "{question}");
    assert!(question.contains(&format!("x-amz-security-token: {TOKEN}\r\n")) && !question.contains(SECRET));
    for path in sandbox.snapshot().keys() {
        let content = std::fs::read(sandbox.path(path)).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&content).contains("c4n4ry"), "{path}");
    }
    // What was fetched is kept, and nobody is asked again.
    let asked = service.requests();
    drop(store);
    assert_eq!(sandbox.run("apply", &[]).expect(0).out, "✓ nothing to do: this node is as planned\n");
    assert_eq!(service.requests(), asked);
}

#[test]
fn a_machine_without_a_role_is_told_what_it_lacks_and_the_bucket_is_not_asked() {
    let store = BucketStore::private();
    let sandbox = referred(&store, &by_role(), &[]);
    let before = sandbox.snapshot();
    let metal = sandbox.run("apply", &SOON).expect(4);
    let _service = on_aws(&sandbox, None);
    let aws = sandbox.run("apply", &SOON).expect(4);
    for ran in [metal, aws] {
        ran.says(&[
            "s3://nodes/bundles/",
            "this machine has none",
            "give the instance a role that may read the bucket",
        ]);
    }
    assert!(store.heard().is_empty(), "{:?}", store.heard());
    sandbox.remove(SETTING);
    let after = sandbox.snapshot();
    assert!(before.keys().all(|path| after.contains_key(path)));
    assert!(!sandbox.exists("/etc/kubernetes"), "nothing is touched");
}

#[test]
fn a_metadata_service_that_does_not_answer_may_do_so_later() {
    let store = BucketStore::private();
    let sandbox = referred(&store, &by_role(), &[]);
    let service = on_aws(&sandbox, Some(role()));
    service.always(Manner::Status(503));
    sandbox.run("apply", &SOON).expect(3).says(&["cannot get the credentials of the instance role", "503"]);
    service.always(Manner::Faithful);
    secretless(&sandbox.run("apply", &["--progress=plain"]).expect(0));
}

#[test]
fn a_mirror_on_the_web_helps_a_machine_without_a_role() {
    let (store, mirror) = (BucketStore::private(), BucketStore::open());
    let sandbox = referred(&store, &by_role(), &[format!("http://{}/{}", mirror.address, object())]);
    let _service = on_aws(&sandbox, None);
    let ran = sandbox.run("apply", &["--progress=plain"]).expect(0);
    ran.says(&["this machine has none", &format!("http://{}", mirror.address)]);
    assert!(store.heard().is_empty() && mirror.heard().len() == 1);
}

#[test]
fn a_key_that_came_along_opens_the_bucket_and_is_said_nowhere() {
    let store = BucketStore::private();
    let key = serde_json::json!({ "kind": "key", "accessKey": "AKEXAMPLE", "secretKey": SECRET });
    let sandbox = referred(&store, &key, &[]);
    for command in ["status", "plan", "apply", "status", "timeline"] {
        for format in ["text", "json", "yaml"] {
            secretless(&sandbox.run(command, &["-o", format]).expect(0));
        }
    }
    assert!(store.heard().iter().all(|question| question.contains("Credential=AKEXAMPLE/")), "{:?}", store.heard());
    assert_eq!(sandbox.mode(BUNDLE), 0o600);
}
