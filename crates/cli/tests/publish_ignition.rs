//! `publish --ignition`: a document in a bucket, and the one that leads machines to it. Whether a signature is right is for a real
//! store to say (crates/lab/tests/store.rs).
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use support::{BINARY, Ran, finish, program, text};

const DOCUMENT: &str = r#"{"ignition":{"version":"2.3.0"},"storage":{"files":[]}}"#;
const SECRET: &str = "c4n4ry-secret";

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A bucket on loopback, over https, that gives to whoever has an address with a signature.
struct Store {
    address: SocketAddr,
    objects: Objects,
    authority: String,
}

impl Store {
    fn start() -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, objects) = (listener.local_addr().unwrap(), Objects::default());
        let (config, kept) = (Arc::new(config), Arc::clone(&objects));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                // Who hangs up has seen enough.
                let _ = serve(stream, &kept);
            }
        });
        Self { address, objects, authority: cert.pem() }
    }
}

fn serve(stream: impl std::io::Read + std::io::Write, objects: &Objects) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    reader.read_line(&mut request)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut objects = objects.lock().unwrap();
    let (status, answer) = match (method, objects.get(path)) {
        ("PUT", _) => {
            objects.insert(path.to_owned(), body);
            ("200 OK", Vec::new())
        }
        ("GET", Some(object)) if query.contains("X-Amz-Signature=") => ("200 OK", object.clone()),
        ("GET", _) => ("403 Forbidden", Vec::new()),
        (_, Some(_)) => ("200 OK", Vec::new()),
        (_, None) => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", answer.len());
    reader.get_mut().write_all(&[head.as_bytes(), &answer].concat())?;
    reader.get_mut().flush()
}

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new(document: &str) -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(desk.folder.path().join("workers.ign"), document).unwrap();
        desk
    }

    fn publish(&self, store: &str, options: &[&str]) -> Ran {
        let mut command = program(BINARY);
        command.env("AWS_ACCESS_KEY_ID", "AK").env("AWS_SECRET_ACCESS_KEY", SECRET).current_dir(self.folder.path());
        command.args(["publish", store, "--ignition", "workers.ign"]).args(options);
        finish(command)
    }
}

#[test]
fn a_document_is_stored_once_and_the_one_that_leads_there_opens_it_without_a_key() {
    let (store, desk) = (Store::start(), Desk::new(DOCUMENT));
    std::fs::write(desk.folder.path().join("ca.pem"), &store.authority).unwrap();
    let endpoint = format!("https://{}", store.address);
    let options =
        ["--s3-endpoint", &endpoint, "--s3-path-style", "--s3-certificate-authority", "ca.pem", "--expires", "2h"];
    let ran = desk.publish("s3://nodes/user-data", &options).expect(0);
    ran.says(&["until 2"]);
    assert!(!ran.out.contains(SECRET) && !ran.err.contains("X-Amz"), "{ran:?}");
    let leading = ran.json();
    assert_eq!(leading["ignition"]["version"], "2.3.0");
    let replace = &leading["ignition"]["config"]["replace"];
    let digest: fetch::Digest =
        replace["verification"]["hash"].as_str().unwrap().replacen('-', ":", 1).parse().unwrap();
    assert!(digest.is_of(DOCUMENT.as_bytes()) && digest.algorithm() == "sha512", "{digest}");
    let address = replace["source"].as_str().unwrap().to_owned();
    assert!(address.starts_with(&endpoint) && address.contains("X-Amz-Expires=7200"), "{address}");

    let request = fetch::Request {
        what: "user data",
        urls: &[address],
        network: fetch::Network { authorities: Some(&store.authority), ..fetch::Network::default() },
        limit: 4096,
        patience: fetch::Patience::new(Duration::from_secs(20)),
        random: &|| 0,
        tell: &|_| (),
    };
    let fetched = fetch::fetch(&request, |body| Ok::<_, std::convert::Infallible>(body.to_vec())).unwrap();
    assert_eq!(fetched, DOCUMENT.as_bytes());
    let names: Vec<String> = store.objects.lock().unwrap().keys().cloned().collect();
    assert_eq!(names, [format!("/nodes/user-data/sha512-{}.ign", digest.hex())]);
    let view: Value = desk.publish("s3://nodes/user-data", &[&options[..], &["-o", "json"]].concat()).expect(0).json();
    assert_eq!(view["digest"], digest.to_string());
}

#[test]
fn what_nobody_could_fetch_or_everybody_could_read_is_refused_before_anything_is_sent() {
    let desk = Desk::new(DOCUMENT);
    desk.publish("./store", &[]).expect(2).says(&["s3://"]);
    desk.publish("s3://nodes", &["--s3-endpoint", "http://127.0.0.1:9"]).expect(2).says(&["not https"]);
    for wrong in ["8d", "0s"] {
        desk.publish("s3://nodes", &["--expires", wrong]).expect(2);
    }
    Desk::new("#cloud-config\n").publish("s3://nodes", &[]).expect(2).says(&["workers.ign", "--format ignition"]);
    desk.publish("s3://nodes", &["--bundle", "workers.ign"]).expect(2);
    assert_eq!(text(desk.folder.path().join("workers.ign")), DOCUMENT);
}
