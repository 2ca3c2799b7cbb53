//! [`Snaps`] over snapd's socket: HTTP/1.1 with JSON, no child process.
//!
//! In: the root that the socket lies under. Out: requests of snapd's REST API. What changes something is answered with the number of a
//! change, which is asked for until it is ready. A call blocks the calling thread only, and may be made inside an async
//! runtime.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::sleep;

use super::{SnapError, SnapService, Snaps};
use crate::disk::RootedDisk;

/// Where every distribution puts it.
const SNAPD_SOCKET: &str = "/run/snapd.socket";
/// For questions that change nothing; snapd may have to be started by its socket first.
const QUESTION_DEADLINE: Duration = Duration::from_secs(60);
/// As often as snapd's own command looks whether a change is ready.
const POLL_REST: Duration = Duration::from_millis(100);
/// A machine has a few kilobytes of aliases and settings.
const ANSWER_LIMIT: usize = 4 * 1024 * 1024;

pub struct SnapdSnaps {
    root: Arc<RootedDisk>,
}

/// What every answer of snapd has around it.
#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "status-code", default)]
    status: u16,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    change: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Complaint {
    message: String,
    kind: String,
}

#[derive(Deserialize)]
struct Change {
    status: String,
    ready: bool,
    #[serde(default)]
    err: String,
}

#[derive(Deserialize)]
struct Alias {
    command: String,
    /// `auto`, `manual` or `disabled`.
    status: String,
}

#[derive(Deserialize)]
struct App {
    snap: String,
    name: String,
    /// Only services have one, such as `simple`.
    #[serde(default)]
    daemon: String,
    #[serde(default)]
    active: bool,
}

/// A request, and how it is called in an error.
struct Ask<'a> {
    operation: &'static str,
    what: &'a str,
    method: Method,
    path: String,
    body: Option<Value>,
}

impl SnapdSnaps {
    /// A folder that stands for a machine has no snapd, unless somebody lets one answer in it.
    pub fn new(root: Arc<RootedDisk>) -> Self {
        Self { root }
    }

    /// By what was found inside the root, not by a path that a link could lead out of it.
    async fn connect(&self) -> std::io::Result<UnixStream> {
        let socket = self.root.pin(Path::new(SNAPD_SOCKET))?;
        UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
    }

    fn question<T: DeserializeOwned + Send>(
        &self,
        operation: &'static str,
        what: &str,
        path: String,
    ) -> Result<T, SnapError> {
        let ask = Ask { operation, what, method: Method::GET, path, body: None };
        self.within(&ask, QUESTION_DEADLINE, async {
            let answer = self.exchange(&ask).await?;
            serde_json::from_value(answer.result).map_err(|error| ask.nonsense(error.to_string()))
        })
    }

    fn change(&self, ask: &Ask<'_>, deadline: Duration) -> Result<(), SnapError> {
        self.within(ask, deadline, async {
            let accepted = self.exchange(ask).await?;
            if accepted.kind != "async" || accepted.change.is_empty() {
                return Err(ask.nonsense(format!("it answers {:?} and begins no change", accepted.kind)));
            }
            let id = accepted.change;
            let path = format!("/v2/changes/{id}");
            let look = Ask { operation: ask.operation, what: ask.what, method: Method::GET, path, body: None };
            loop {
                match self.exchange(&look).await {
                    Ok(answer) => {
                        let change: Change =
                            serde_json::from_value(answer.result).map_err(|error| ask.nonsense(error.to_string()))?;
                        if change.ready {
                            return ask.judge(id, change);
                        }
                    }
                    // snapd restarts itself, and goes on with its changes then.
                    Err(SnapError::Unreachable { .. }) => {}
                    Err(error) => return Err(error),
                }
                sleep(POLL_REST).await;
            }
        })
    }

    /// On a thread of its own, since the caller's may belong to a runtime, where blocking panics.
    fn within<T: Send>(
        &self,
        ask: &Ask<'_>,
        deadline: Duration,
        talk: impl Future<Output = Result<T, SnapError>> + Send,
    ) -> Result<T, SnapError> {
        let late = || SnapError::Deadline { operation: ask.operation, what: ask.what.to_owned(), waited: deadline };
        std::thread::scope(|scope| {
            let run = || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unreachable)?;
                runtime.block_on(async { tokio::time::timeout(deadline, talk).await }).unwrap_or_else(|_| Err(late()))
            };
            let thread = std::thread::Builder::new().name("snapd".to_owned()).spawn_scoped(scope, run);
            let thread = thread.map_err(unreachable)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    async fn exchange(&self, ask: &Ask<'_>) -> Result<Envelope, SnapError> {
        let stream = self.connect().await.map_err(unreachable)?;
        let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
        let driver = tokio::spawn(driver);
        let request = ask.request()?;
        let answer = sender.send_request(request).await.map_err(unreachable)?;
        let body = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
        driver.abort();
        let bytes = body.map_err(unreachable)?.to_bytes();
        let envelope: Envelope =
            serde_json::from_slice(&bytes).map_err(|error| ask.nonsense(format!("no JSON of snapd's: {error}")))?;
        match envelope.kind.as_str() {
            "sync" | "async" => Ok(envelope),
            "error" => Err(ask.refused(envelope)),
            other => Err(ask.nonsense(format!("an answer of type {other:?}"))),
        }
    }
}

fn unreachable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SnapError {
    SnapError::Unreachable { socket: SNAPD_SOCKET, source: source.into() }
}

impl Ask<'_> {
    fn request(&self) -> Result<Request<Full<Bytes>>, SnapError> {
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(HOST, "localhost")
            .header(USER_AGENT, concat!("nodestrap/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.nonsense(format!("{:?} cannot be asked for: {error}", self.path)))
    }

    fn refused(&self, envelope: Envelope) -> SnapError {
        let Complaint { message, kind } = serde_json::from_value(envelope.result).unwrap_or_default();
        let (operation, what, status) = (self.operation, self.what.to_owned(), envelope.status);
        match (kind.as_str(), status) {
            ("snap-change-conflict", _) | (_, 409) => SnapError::Busy { operation, what, message },
            ("snap-not-found" | "snap-not-installed" | "app-not-found", _) | (_, 404) => {
                SnapError::NotFound { operation, what, message }
            }
            _ => SnapError::Refused { operation, what, status, kind, message },
        }
    }

    fn judge(&self, id: String, change: Change) -> Result<(), SnapError> {
        match change.status.as_str() {
            "Done" => Ok(()),
            _ => Err(SnapError::Change {
                operation: self.operation,
                what: self.what.to_owned(),
                change: id,
                status: change.status,
                message: change.err.split_whitespace().collect::<Vec<_>>().join(" "),
            }),
        }
    }

    fn nonsense(&self, problem: String) -> SnapError {
        SnapError::Answer { operation: self.operation, what: self.what.to_owned(), problem }
    }
}

impl Snaps for SnapdSnaps {
    fn aliases(&self) -> Result<BTreeMap<String, String>, SnapError> {
        let path = "/v2/aliases".to_owned();
        let found: BTreeMap<String, BTreeMap<String, Alias>> = self.question("list of aliases", "all snaps", path)?;
        let of_all = found.into_values().flatten().filter(|(_, alias)| alias.status != "disabled");
        Ok(of_all.map(|(name, alias)| (name, alias.command)).collect())
    }

    fn settings(&self, snap: &str) -> Result<BTreeMap<String, String>, SnapError> {
        let path = format!("/v2/snaps/{}/conf", name(snap)?);
        let found: BTreeMap<String, Value> = self.question("look at settings", snap, path)?;
        Ok(found.into_iter().map(|(key, value)| (key, as_text(value))).collect())
    }

    fn services(&self, snap: &str) -> Result<Vec<SnapService>, SnapError> {
        let path = format!("/v2/apps?names={}&select=service", name(snap)?);
        let found: Vec<App> = self.question("look at services", snap, path)?;
        let own = found.into_iter().filter(|app| app.snap == snap && !app.daemon.is_empty());
        Ok(own.map(|app| SnapService { app: app.name, active: app.active }).collect())
    }

    fn add_alias(&self, alias: &str, app: &str, deadline: Duration) -> Result<(), SnapError> {
        // An application with the name of its snap has no dot.
        let (snap, app) = app.split_once('.').unwrap_or((app, app));
        let body = json!({ "action": "alias", "snap": snap, "app": app, "alias": alias });
        let path = "/v2/aliases".to_owned();
        let ask = Ask { operation: "alias", what: alias, method: Method::POST, path, body: Some(body) };
        self.change(&ask, deadline)
    }

    fn remove_alias(&self, alias: &str, deadline: Duration) -> Result<(), SnapError> {
        // Without a snap, which would mean all of its aliases.
        let body = json!({ "action": "unalias", "alias": alias });
        let path = "/v2/aliases".to_owned();
        let ask = Ask { operation: "unalias", what: alias, method: Method::POST, path, body: Some(body) };
        self.change(&ask, deadline)
    }

    fn set(
        &self,
        snap: &str,
        settings: &BTreeMap<String, Option<String>>,
        deadline: Duration,
    ) -> Result<(), SnapError> {
        let value = |text: &Option<String>| text.as_deref().map_or(Value::Null, as_value);
        let body: serde_json::Map<String, Value> =
            settings.iter().map(|(key, text)| (key.clone(), value(text))).collect();
        let path = format!("/v2/snaps/{}/conf", name(snap)?);
        let body = Some(Value::Object(body));
        self.change(&Ask { operation: "setting", what: snap, method: Method::PUT, path, body }, deadline)
    }

    fn stop(&self, snap: &str, deadline: Duration) -> Result<(), SnapError> {
        self.service_change("stop", snap, deadline)
    }

    fn start(&self, snap: &str, deadline: Duration) -> Result<(), SnapError> {
        self.service_change("start", snap, deadline)
    }
}

impl SnapdSnaps {
    fn service_change(&self, action: &'static str, snap: &str, deadline: Duration) -> Result<(), SnapError> {
        let body = Some(json!({ "action": action, "names": [name(snap)?] }));
        let path = "/v2/apps".to_owned();
        self.change(&Ask { operation: action, what: snap, method: Method::POST, path, body }, deadline)
    }
}

/// Only what the name of a snap may have, so that it means the same in a path.
fn name(snap: &str) -> Result<&str, SnapError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if !snap.is_empty() && snap.bytes().all(plain) {
        return Ok(snap);
    }
    let (what, message) = (snap.to_owned(), "this is no name of a snap".to_owned());
    Err(SnapError::NotFound { operation: "look at", what, message })
}

/// As `snap set` reads the words of a command line: numbers and truth values are such, the rest is text.
fn as_value(text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ if text == "true" => true.into(),
        _ if text == "false" => false.into(),
        _ => text.into(),
    }
}

/// As `snapctl get` prints it to the hooks of a snap.
fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_what_the_command_line_of_snapd_would_make_of_them() {
        for (text, value) in [
            ("29", json!(29)),
            ("true", json!(true)),
            ("", json!("")),
            ("10.0.0.7", json!("10.0.0.7")),
            ("007", json!("007")),
            ("1e3", json!("1e3")),
            ("null", json!("null")),
        ] {
            assert_eq!(as_value(text), value);
            assert_eq!(as_text(value), text);
        }
    }

    #[test]
    fn only_a_name_of_a_snap_becomes_part_of_a_path() {
        assert!(name("kubelet-eks").is_ok());
        for bad in ["", "../x", "a/b", "a?b", "A", "a b"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
