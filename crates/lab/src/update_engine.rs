//! A stand-in of update_engine on a D-Bus: its interface, and what it says in which order. It updates nothing.
//!
//! In: the address of a bus, a script (a file, read anew at each attempt) and a folder for its state. Out: the name
//! `com.coreos.update1` on that bus until it ends. The folder has, as far as they are there:
//! | file | what for |
//! |---|---|
//! | `calls` | one line for each method that was called |
//! | `need-reboot` | an update is staged. One that starts with it says `UPDATED_NEED_REBOOT` and the version "0.0.0", as the real one does after a restart; in `/run` a reboot takes it away |
//!
//! As the real one, it sets `CHECKING_FOR_UPDATE` before it answers `AttemptUpdate`, ignores that call unless it is idle, and
//! forgets a staged update at `ResetStatus`.
//!
//! ```json
//! {"nextVersion": "2905.2.0", "steps": [
//!   {"afterMs": 100, "operation": "UPDATE_AVAILABLE"},
//!   {"afterMs": 100, "operation": "DOWNLOADING", "progress": 0.5},
//!   {"afterMs": 100, "operation": "UPDATED_NEED_REBOOT"}]}
//! ```
//! Steps follow one another after the first word, which is not among them; after the last one it stays silent. `KILLED` ends it
//! there and then. With `"begins": "at-start"` it does not wait to be asked, like a check in the background.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, interface};

const NAME: &str = "com.coreos.update1";
const PATH: &str = "/com/coreos/update1";
/// Of an update that nobody knows the version of.
const NO_VERSION: &str = "0.0.0";
/// In its folder.
const CALLS: &str = "calls";
const NEED_REBOOT: &str = "need-reboot";

/// Lets root have and call it on a system bus: for `/etc/dbus-1/system.d/com.coreos.update1.conf`.
pub const BUS_POLICY: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <policy user="root">
    <allow own="com.coreos.update1"/>
    <allow send_destination="com.coreos.update1"/>
  </policy>
  <policy context="default">
    <deny send_destination="com.coreos.update1"/>
  </policy>
</busconfig>
"#;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// What a check finds; without one it is up to date.
    #[serde(default = "no_version")]
    pub next_version: String,
    #[serde(default)]
    pub next_size: i64,
    #[serde(default)]
    pub begins: Begins,
    pub steps: Vec<Step>,
}

fn no_version() -> String {
    NO_VERSION.to_owned()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Begins {
    #[default]
    WhenAsked,
    AtStart,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    pub after_ms: u64,
    pub operation: Operation,
    #[serde(default)]
    pub progress: f64,
}

impl Step {
    pub fn new(after_ms: u64, operation: Operation) -> Self {
        Self { after_ms, operation, progress: 0.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    Idle,
    CheckingForUpdate,
    UpdateAvailable,
    Downloading,
    Verifying,
    Finalizing,
    UpdatedNeedReboot,
    ReportingErrorEvent,
    /// No word of its own: it is gone from the bus.
    Killed,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Idle => "UPDATE_STATUS_IDLE",
            Self::CheckingForUpdate => "UPDATE_STATUS_CHECKING_FOR_UPDATE",
            Self::UpdateAvailable => "UPDATE_STATUS_UPDATE_AVAILABLE",
            Self::Downloading => "UPDATE_STATUS_DOWNLOADING",
            Self::Verifying => "UPDATE_STATUS_VERIFYING",
            Self::Finalizing => "UPDATE_STATUS_FINALIZING",
            Self::UpdatedNeedReboot => "UPDATE_STATUS_UPDATED_NEED_REBOOT",
            Self::ReportingErrorEvent => "UPDATE_STATUS_REPORTING_ERROR_EVENT",
            Self::Killed => "",
        }
    }

    fn knows_next_version(self) -> bool {
        !matches!(self, Self::Idle | Self::CheckingForUpdate | Self::ReportingErrorEvent | Self::Killed)
    }
}

/// When it checked last, how far it is, at what, with which version, and how large that is.
type Status = (i64, f64, String, String, i64);

fn status(operation: Operation, progress: f64, version: &str, size: i64) -> Status {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    (i64::try_from(now).unwrap_or(i64::MAX), progress, operation.word().to_owned(), version.to_owned(), size)
}

struct Shared {
    script: PathBuf,
    folder: PathBuf,
    says: Mutex<Status>,
    /// Counts attempts and resets: the steps of an earlier one end with it.
    attempt: Mutex<u64>,
    killed: Notify,
}

impl Shared {
    fn begin(script: &Path, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let operation = match folder.join(NEED_REBOOT).exists() {
            true => Operation::UpdatedNeedReboot,
            false => Operation::Idle,
        };
        Ok(Self {
            script: script.to_owned(),
            folder: folder.to_owned(),
            says: Mutex::new(status(operation, 0.0, NO_VERSION, 0)),
            attempt: Mutex::default(),
            killed: Notify::new(),
        })
    }

    fn script(&self) -> Result<Script> {
        let text = std::fs::read(&self.script).with_context(|| format!("reading {}", self.script.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("reading the script {}", self.script.display()))
    }

    fn note(&self, call: &str) -> zbus::fdo::Result<()> {
        let mut open = std::fs::OpenOptions::new();
        let calls = open.create(true).append(true).open(self.folder.join(CALLS));
        calls.and_then(|mut calls| writeln!(calls, "{call}")).map_err(|error| failed(&error.into()))
    }

    fn says(&self) -> Status {
        self.says.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An attempt of its own from here on.
    fn next_attempt(&self) -> u64 {
        let mut attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        *attempt += 1;
        *attempt
    }

    fn is_current(&self, attempt: u64) -> bool {
        *self.attempt.lock().unwrap_or_else(PoisonError::into_inner) == attempt
    }

    async fn say(&self, emitter: &SignalEmitter<'_>, status: Status) -> zbus::Result<()> {
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = status.clone();
        let (last_checked, progress, operation, version, size) = status;
        Manager::status_update(emitter, last_checked, progress, operation, version, size).await
    }

    /// The first word now, the others one by one on the way.
    async fn check(self: Arc<Self>, connection: &Connection) -> Result<()> {
        let script = self.script()?;
        let attempt = self.next_attempt();
        let emitter = SignalEmitter::new(connection, PATH)?.into_owned();
        self.say(&emitter, status(Operation::CheckingForUpdate, 0.0, NO_VERSION, 0)).await?;
        tokio::spawn(async move {
            if let Err(error) = self.play(&emitter, &script, attempt).await {
                eprintln!("lab update-engine: {error:#}");
            }
        });
        Ok(())
    }

    async fn play(&self, emitter: &SignalEmitter<'_>, script: &Script, attempt: u64) -> Result<()> {
        for step in &script.steps {
            tokio::time::sleep(Duration::from_millis(step.after_ms)).await;
            if !self.is_current(attempt) {
                return Ok(());
            }
            match step.operation {
                Operation::Killed => return Ok(self.killed.notify_one()),
                Operation::UpdatedNeedReboot => std::fs::write(self.folder.join(NEED_REBOOT), "").context("staging")?,
                _ => {}
            }
            let known = step.operation.knows_next_version();
            let (version, size) =
                if known { (script.next_version.as_str(), script.next_size) } else { (NO_VERSION, 0) };
            self.say(emitter, status(step.operation, step.progress, version, size)).await?;
        }
        Ok(())
    }
}

struct Manager(Arc<Shared>);

#[interface(name = "com.coreos.update1.Manager")]
impl Manager {
    async fn attempt_update(&self, #[zbus(connection)] connection: &Connection) -> zbus::fdo::Result<()> {
        self.0.note("AttemptUpdate")?;
        if self.0.says().2 != Operation::Idle.word() {
            return Ok(());
        }
        Arc::clone(&self.0).check(connection).await.map_err(|error| failed(&error))
    }

    async fn get_status(&self) -> zbus::fdo::Result<Status> {
        self.0.note("GetStatus")?;
        Ok(self.0.says())
    }

    async fn reset_status(&self, #[zbus(signal_emitter)] emitter: SignalEmitter<'_>) -> zbus::fdo::Result<()> {
        self.0.note("ResetStatus")?;
        self.0.next_attempt();
        let marker = self.0.folder.join(NEED_REBOOT);
        if marker.exists() {
            std::fs::remove_file(marker).map_err(|error| failed(&error.into()))?;
        }
        Ok(self.0.say(&emitter, status(Operation::Idle, 0.0, NO_VERSION, 0)).await?)
    }

    #[zbus(signal)]
    async fn status_update(
        emitter: &SignalEmitter<'_>,
        last_checked: i64,
        progress: f64,
        operation: String,
        new_version: String,
        new_size: i64,
    ) -> zbus::Result<()>;
}

fn failed(error: &anyhow::Error) -> zbus::fdo::Error {
    zbus::fdo::Error::Failed(format!("{error:#}"))
}

/// Serves until a script says `KILLED`. `address`: such as `unix:path=/run/dbus/system_bus_socket`.
pub fn keep_update_engine(address: &str, script: &Path, folder: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (shared, _connection) = serve(address, script, folder).await?;
        shared.killed.notified().await;
        Ok(())
    })
}

async fn serve(address: &str, script: &Path, folder: &Path) -> Result<(Arc<Shared>, Connection)> {
    let shared = Arc::new(Shared::begin(script, folder)?);
    let serving = zbus::connection::Builder::address(address)
        .serve_at(PATH, Manager(Arc::clone(&shared)))
        .name(NAME)
        .build()
        .await;
    let connection = serving.with_context(|| format!("serving {NAME} at {address}"))?;
    if shared.says().2 == Operation::Idle.word() && shared.script()?.begins == Begins::AtStart {
        Arc::clone(&shared).check(&connection).await?;
    }
    Ok((shared, connection))
}

/// The same on a thread of this process, until it is dropped or killed by its script.
pub struct UpdateEngine {
    folder: PathBuf,
    stop: Arc<Notify>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl UpdateEngine {
    /// Returns when it has its name.
    pub fn start(address: &str, script: &Path, folder: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (shared, connection) = runtime.block_on(serve(address, script, folder))?;
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = shared.killed.notified() => {}
                    () = stopped.notified() => {}
                }
            });
            drop(connection);
        });
        Ok(Self { folder: folder.to_owned(), stop, thread: Some(thread) })
    }

    /// Every method that was called, by whomever, since the folder was made.
    pub fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.folder.join(CALLS)).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

impl Drop for UpdateEngine {
    fn drop(&mut self) {
        self.stop.notify_one();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}
