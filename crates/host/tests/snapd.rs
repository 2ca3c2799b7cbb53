//! The HTTP side of snaps, against a snapd of our own that says what snapd 2.57 says (the real one is met on a booted node).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test listens at a socket")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::disk::RootedDisk;
use host::snaps::{SnapError, SnapService, SnapdSnaps, Snaps};

const LONG: Duration = Duration::from_secs(20);
const ACCEPTED: &str = r#"{"type":"async","status-code":202,"status":"Accepted","result":null,"change":"7"}"#;

/// A request line with its body, and the bodies to answer with, one after the other; the last one stays.
type Script = Vec<(&'static str, Vec<String>)>;

struct Server {
    folder: tempfile::TempDir,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Listens until the test ends.
    fn start(script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Self { folder, heard: Arc::default() };
        let listener = UnixListener::bind(server.socket()).unwrap();
        let (heard, script) = (Arc::clone(&server.heard), Mutex::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(&stream.unwrap(), &heard, &script);
            }
        });
        server
    }

    fn socket(&self) -> PathBuf {
        let run = self.folder.path().join("run");
        std::fs::create_dir_all(&run).unwrap();
        run.join("snapd.socket")
    }

    fn snaps(&self) -> SnapdSnaps {
        snaps_under(self.folder.path())
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

/// As on a machine whose root this is.
fn snaps_under(root: &Path) -> SnapdSnaps {
    SnapdSnaps::new(Arc::new(RootedDisk::open(root).unwrap()))
}

fn answer(mut stream: &UnixStream, heard: &Mutex<Vec<String>>, script: &Mutex<Script>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if let Some(number) = header.to_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        if header.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let request = format!("{} {}", line.trim().trim_end_matches(" HTTP/1.1"), String::from_utf8(body).unwrap());
    heard.lock().unwrap().push(request.trim().to_owned());
    let mut script = script.lock().unwrap();
    let known = script.iter_mut().find(|(wanted, _)| request.starts_with(wanted));
    let (_, bodies) = known.unwrap_or_else(|| panic!("nobody expects {request}"));
    let text = if bodies.len() > 1 { bodies.remove(0) } else { bodies[0].clone() };
    // Nothing at all: snapd restarts and the connection breaks.
    if !text.is_empty() {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len()).unwrap();
    }
}

fn sync(result: &str) -> String {
    format!(r#"{{"type":"sync","status-code":200,"status":"OK","result":{result},"warning-count":1}}"#)
}

fn change(status: &str, is_ready: bool, error: &str) -> String {
    sync(&format!(r#"{{"id":"7","kind":"x","status":"{status}","ready":{is_ready},"err":"{error}","tasks":[]}}"#))
}

fn complaint(status: u16, kind: &str, message: &str) -> String {
    format!(
        r#"{{"type":"error","status-code":{status},"status":"No","result":{{"message":"{message}","kind":"{kind}"}}}}"#
    )
}

#[test]
fn what_is_so_already_is_read() {
    let server = Server::start(vec![
        (
            "GET /v2/aliases",
            vec![sync(
                r#"{"kubelet-eks":{"kubelet":{"command":"kubelet-eks.kubelet","status":"manual","manual":"kubelet"}},
                    "other":{"off":{"command":"other.off","status":"disabled","auto":"off"}}}"#,
            )],
        ),
        ("GET /v2/snaps/kubelet-eks/conf", vec![sync(r#"{"max-pods":29,"register-node":true,"node-ip":"10.0.0.7"}"#)]),
        (
            "GET /v2/apps?names=kubelet-eks&select=service",
            vec![sync(
                r#"[{"snap":"kubelet-eks","name":"daemon","daemon":"simple","enabled":true,"active":true},
                    {"snap":"kubelet-eks","name":"stopped","daemon":"simple","enabled":true}]"#,
            )],
        ),
    ]);
    let snaps = server.snaps();
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(snaps.aliases().unwrap(), texts(&[("kubelet", "kubelet-eks.kubelet")]));
    let settings = texts(&[("max-pods", "29"), ("register-node", "true"), ("node-ip", "10.0.0.7")]);
    assert_eq!(snaps.settings("kubelet-eks").unwrap(), settings);
    let service = |app: &str, active| SnapService { app: app.to_owned(), active };
    assert_eq!(snaps.services("kubelet-eks").unwrap(), [service("daemon", true), service("stopped", false)]);
}

#[test]
fn a_verb_asks_and_waits_until_its_change_is_done() {
    let under_way = || vec![change("Do", false, ""), change("Doing", false, ""), change("Done", true, "")];
    let server = Server::start(vec![
        ("POST /v2/aliases", vec![ACCEPTED.to_owned()]),
        ("PUT /v2/snaps/kubelet-eks/conf", vec![ACCEPTED.to_owned()]),
        ("POST /v2/apps", vec![ACCEPTED.to_owned()]),
        ("GET /v2/changes/7", under_way()),
    ]);
    let snaps = server.snaps();
    snaps.add_alias("kubelet", "kubelet-eks.kubelet", LONG).unwrap();
    let settings =
        BTreeMap::from([("max-pods".to_owned(), Some("29".to_owned())), ("v".to_owned(), Some("x".to_owned()))]);
    snaps.set("kubelet-eks", &settings, LONG).unwrap();
    snaps.set("kubelet-eks", &[("v".to_owned(), None)].into(), LONG).unwrap();
    snaps.remove_alias("kubelet", LONG).unwrap();
    snaps.stop("kubelet-eks", LONG).unwrap();
    snaps.start("kubelet-eks", LONG).unwrap();
    let heard: Vec<String> = server.heard().into_iter().filter(|request| !request.starts_with("GET")).collect();
    assert_eq!(
        heard,
        [
            r#"POST /v2/aliases {"action":"alias","alias":"kubelet","app":"kubelet","snap":"kubelet-eks"}"#,
            r#"PUT /v2/snaps/kubelet-eks/conf {"max-pods":29,"v":"x"}"#,
            r#"PUT /v2/snaps/kubelet-eks/conf {"v":null}"#,
            r#"POST /v2/aliases {"action":"unalias","alias":"kubelet"}"#,
            r#"POST /v2/apps {"action":"stop","names":["kubelet-eks"]}"#,
            r#"POST /v2/apps {"action":"start","names":["kubelet-eks"]}"#,
        ]
    );
    assert_eq!(server.heard().iter().filter(|request| request.starts_with("GET /v2/changes")).count(), 8);
}

#[test]
fn a_change_that_ends_badly_says_why() {
    let why = r"cannot perform the following tasks:\n- Run configure hook (bad flag)";
    let server = Server::start(vec![
        ("PUT /v2/snaps/kubelet-eks/conf", vec![ACCEPTED.to_owned()]),
        ("GET /v2/changes/7", vec![change("Error", true, why)]),
    ]);
    let error = server.snaps().set("kubelet-eks", &BTreeMap::new(), LONG).unwrap_err();
    let SnapError::Change { change, status, message, .. } = &error else { panic!("{error:?}") };
    assert_eq!((change.as_str(), status.as_str()), ("7", "Error"));
    assert_eq!(message, "cannot perform the following tasks: - Run configure hook (bad flag)");
}

#[test]
fn a_restart_of_snapd_in_the_middle_of_a_change_is_waited_out() {
    let server = Server::start(vec![
        ("POST /v2/apps", vec![ACCEPTED.to_owned()]),
        ("GET /v2/changes/7", vec![change("Doing", false, ""), String::new(), change("Done", true, "")]),
    ]);
    server.snaps().start("kubelet-eks", LONG).unwrap();
}

#[test]
fn each_no_of_snapd_has_its_own_error() {
    let ask = |body: String| {
        let server = Server::start(vec![("POST /v2/apps", vec![body])]);
        server.snaps().stop("kubelet-eks", LONG).unwrap_err()
    };
    let busy = ask(complaint(409, "snap-change-conflict", "snap has changes in progress"));
    assert!(matches!(&busy, SnapError::Busy { message, .. } if message.contains("in progress")), "{busy:?}");
    let missing = ask(complaint(404, "snap-not-found", "snap not found"));
    assert!(matches!(missing, SnapError::NotFound { .. }), "{missing:?}");
    let login = ask(complaint(401, "login-required", "access denied"));
    assert!(matches!(&login, SnapError::Refused { status: 401, kind, .. } if kind == "login-required"), "{login:?}");
    let broken = ask(complaint(500, "", "system does not fully support snapd"));
    assert!(matches!(broken, SnapError::Refused { status: 500, .. }), "{broken:?}");
}

#[test]
fn what_is_not_snapd_is_recognised() {
    for body in ["<html>sorry</html>", "{}", "[]", r#"{"type":"tale"}"#, &sync("null"), &sync("3")] {
        let server = Server::start(vec![("GET /v2/aliases", vec![body.to_owned()])]);
        let error = server.snaps().aliases().unwrap_err();
        assert!(matches!(error, SnapError::Answer { .. }), "{body}: {error:?}");
    }
    // A change that was not begun is no success.
    let server = Server::start(vec![("POST /v2/apps", vec![sync("null")])]);
    let error = server.snaps().start("kubelet-eks", LONG).unwrap_err();
    assert!(matches!(error, SnapError::Answer { .. }), "{error:?}");
}

#[test]
fn nobody_there_and_nobody_answering_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("run/snapd.socket");
    std::fs::create_dir(folder.path().join("run")).unwrap();
    let error = snaps_under(folder.path()).aliases().unwrap_err();
    assert!(matches!(&error, SnapError::Unreachable { socket, .. } if socket.ends_with("snapd.socket")), "{error:?}");

    // It takes connections, and that is all.
    let _silent = UnixListener::bind(&socket).unwrap();
    let error = snaps_under(folder.path()).start("kubelet-eks", Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, SnapError::Deadline { operation: "start", .. }), "{error:?}");
}

#[test]
fn a_change_that_never_ends_passes_its_deadline() {
    let server = Server::start(vec![
        ("POST /v2/apps", vec![ACCEPTED.to_owned()]),
        ("GET /v2/changes/7", vec![change("Doing", false, "")]),
    ]);
    let error = server.snaps().stop("kubelet-eks", Duration::from_millis(400)).unwrap_err();
    assert!(matches!(error, SnapError::Deadline { operation: "stop", .. }), "{error:?}");
}

#[test]
fn a_folder_that_stands_for_a_machine_is_not_left_by_a_link() {
    use std::os::unix::fs::symlink;
    let aliases = r#"{"type":"sync","status-code":200,"status":"OK","result":{}}"#.to_owned();
    let host = Server::start(vec![("GET /v2/aliases", vec![aliases])]);
    assert!(host.snaps().aliases().is_ok());
    let outside = host.folder.path().join("run");
    let link = |name: &str, target: &Path| {
        let folder = tempfile::tempdir().unwrap();
        if let Some(parent) = Path::new(name).parent() {
            std::fs::create_dir_all(folder.path().join(parent)).unwrap();
        }
        symlink(target, folder.path().join(name)).unwrap();
        folder
    };
    let up = Path::new("../../../../../../../..").join(outside.strip_prefix("/").unwrap());
    for folder in [
        link("run", &outside),
        link("run", &up),
        link("run/snapd.socket", &outside.join("snapd.socket")),
        link("run/snapd.socket", &up.join("snapd.socket")),
    ] {
        let error = snaps_under(folder.path()).aliases().unwrap_err();
        assert!(matches!(&error, SnapError::Unreachable { .. }), "{error:?}");
    }
    assert_eq!(host.heard().len(), 1, "nobody outside was asked");
    // A link that stays inside is followed there.
    std::fs::rename(&outside, host.folder.path().join("elsewhere")).unwrap();
    symlink("/elsewhere", &outside).unwrap();
    assert!(host.snaps().aliases().is_ok());
}
