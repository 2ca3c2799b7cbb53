//! [`Units`] over the system bus: systemd itself, asked by name, waited for by signal.
//!
//! In: the address of the bus. Out: D-Bus calls; no child process, no polling (but for the answer of an old journald).
//! The connection is made at the first call and again after it broke. A call blocks the calling thread only, and may be
//! made inside an async runtime.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_core::Stream;
use tokio::runtime::Runtime;
use zbus::proxy::CacheProperties;
use zbus::{Connection, OwnedObjectPath, Proxy, fdo};

use super::log::{JOURNAL_FOLDERS, Run, boot_id, last_lines, quote_last_lines};
use super::proxies::{JobRemovedStream, ManagerProxy, TimeDateProxy, UnitProxy};
use super::synchronize::synchronize;
use super::transient::{END_INTERVAL, Transient};
use super::{ActiveState, JobResult, UnitError, UnitName, UnitState, Units};
use crate::bus::{SYSTEM_BUS_ADDRESS, is_trouble, plain_source, wait};
use crate::machine::{JOURNAL_SOCKET, LinuxClock, say_for_unit};

/// For calls that start nothing: systemd answers in milliseconds, and in seconds while it reloads.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// timedated is started by its first question.
const TIME_DEADLINE: Duration = Duration::from_secs(5);
const REBOOT_TARGET: &str = "reboot.target";
/// `auto-restart`, and what newer ones have besides.
const WAITING: &str = "auto-restart";
/// A new job replaces queued ones that contradict it, as with `systemctl`.
const JOB_MODE: &str = "replace";
/// For all lines together: journald takes thousands in a second, unless it is moving its files.
const LOG_DEADLINE: Duration = Duration::from_secs(5);
/// How long somebody who looks after a unit that is being started rests in between.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What becomes of a unit that is asked to do its work anew.
const RELOAD: &str = "reload";
const SERVICE: &str = "org.freedesktop.systemd1";
const THREAD: &str = "systemd-bus";

pub struct SystemdUnits {
    address: String,
    /// Where the units that answer on this bus leave their logs.
    journals: &'static [&'static str],
    bus: Mutex<Option<Arc<Bus>>>,
}

/// A connection and the runtime that moves its bytes; it does so only while somebody waits for an answer.
struct Bus {
    connection: Connection,
    manager: ManagerProxy<'static>,
    /// `None` only while dropped.
    runtime: Option<Runtime>,
}

/// What went wrong in a conversation, before the verb and the unit are put to it.
pub(super) enum Failure {
    Unit(UnitError),
    Bus(zbus::Error),
}

impl From<zbus::Error> for Failure {
    fn from(error: zbus::Error) -> Self {
        Self::Bus(error)
    }
}

impl SystemdUnits {
    /// `None` is the system bus of this machine; another one is given as `unix:path=/tmp/bus`.
    pub fn new(address: Option<&str>) -> Self {
        let journals: &[&str] = if address.is_none() { &JOURNAL_FOLDERS } else { &[] };
        Self { address: address.unwrap_or(SYSTEM_BUS_ADDRESS).to_owned(), journals, bus: Mutex::new(None) }
    }

    fn bus(&self, deadline: Duration) -> Result<Arc<Bus>, UnitError> {
        let mut slot = self.bus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bus) = slot.as_ref().filter(|bus| !bus.connection.is_closed()) {
            return Ok(bus.clone());
        }
        let bus = Arc::new(Bus::connect(&self.address, deadline)?);
        *slot = Some(bus.clone());
        Ok(bus)
    }

    /// One conversation with systemd, connection included, within the deadline.
    pub(super) fn ask<T, F>(
        &self,
        operation: &'static str,
        what: &str,
        deadline: Duration,
        talk: impl FnOnce(Connection, ManagerProxy<'static>) -> F,
    ) -> Result<T, UnitError>
    where
        T: Send,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let start = Instant::now();
        let bus = self.bus(deadline)?;
        let left = deadline.saturating_sub(start.elapsed());
        let talk = talk(bus.connection.clone(), bus.manager.clone());
        let Some(runtime) = bus.runtime.as_ref() else {
            return Err(bus_error(&self.address, std::io::Error::other("closed")));
        };
        match wait(runtime, THREAD, left, talk).map_err(|source| bus_error(&self.address, source))? {
            None => Err(UnitError::Deadline { operation, what: what.to_owned(), waited: deadline }),
            Some(Ok(value)) => Ok(value),
            Some(Err(Failure::Unit(error))) => Err(error),
            Some(Err(Failure::Bus(error))) => {
                if is_trouble(&error) {
                    self.forget(&bus);
                }
                Err(name_error(operation, what, &self.address, error))
            }
        }
    }

    /// One job, waited for.
    fn run_job(
        &self,
        operation: &'static str,
        unit: &UnitName,
        deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        let (name, journals) = (unit.0.clone(), self.journals);
        self.ask(operation, &unit.0, deadline, |bus, manager| async move {
            let (path, id) = require_loaded(&bus, &manager, &name).await?;
            // Listening starts before the job does. Only signals about this unit are let through: a queue full of
            // other units' would hold up the very answer that we wait for.
            let mut removed = manager.receive_job_removed_with_args(&[(2, id.as_str())]).await?;
            // systemd's own times are taken when the process runs already, and may have spoken.
            let since = LinuxClock.monotonic();
            let job = match operation {
                RELOAD => manager.reload_or_restart_unit(&name, JOB_MODE).await?,
                _ => manager.restart_unit(&name, JOB_MODE).await?,
            };
            let mut ended = pin!(wait_for_job(&mut removed, &job));
            let result = loop {
                match tokio::time::timeout(LOOK_INTERVAL, &mut ended).await {
                    Ok(result) => break result?,
                    Err(_) => look(),
                }
            };
            match result {
                JobResult::Done => Ok(()),
                result => {
                    let output = unit_log(&bus, &manager, &path, &id, journals, since).await;
                    let detail = unit_detail(&bus, &path, &id).await;
                    Err(Failure::Unit(UnitError::Job { operation, unit: name, result, detail, output }))
                }
            }
        })
    }

    /// The next call connects anew. A connection notices that it is broken only while it is used.
    fn forget(&self, broken: &Arc<Bus>) {
        let mut slot = self.bus.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.as_ref().is_some_and(|bus| Arc::ptr_eq(bus, broken)) {
            *slot = None;
        }
    }
}

impl Bus {
    fn connect(address: &str, deadline: Duration) -> Result<Self, UnitError> {
        let failed = |source| bus_error(address, source);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let connect = async {
            let connection = zbus::connection::Builder::address(address).build().await?;
            let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?;
            manager.subscribe().await?;
            Ok::<_, zbus::Error>((connection, manager))
        };
        match wait(&runtime, THREAD, deadline, connect).map_err(failed)? {
            Some(Ok((connection, manager))) => Ok(Self { connection, manager, runtime: Some(runtime) }),
            Some(Err(error)) => Err(UnitError::Bus { address: address.to_owned(), source: plain_source(error) }),
            None => {
                let what = address.to_owned();
                Err(UnitError::Deadline { operation: "connection to the service manager", what, waited: deadline })
            }
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // An ordinary drop waits, which panics when our caller is itself inside a runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Units for SystemdUnits {
    fn state(&self, unit: &UnitName) -> Result<UnitState, UnitError> {
        let name = unit.0.clone();
        self.ask("state query", &unit.0, CALL_DEADLINE, |bus, manager| async move {
            let path = manager.load_unit(&name).await?;
            let unit = unit_proxy(&bus, &path).await?;
            // All questions at once: answers come in order, and one wait is enough for them.
            let (load, active, job, enabled, result, needs_reload) = tokio::join!(
                unit.load_state(),
                unit.active_state(),
                unit.job(),
                is_enabled(&manager, &name),
                unit_result(&bus, &path, &name),
                unit.need_daemon_reload(),
            );
            Ok(UnitState {
                active: match load?.as_str() {
                    "not-found" => ActiveState::NotFound,
                    "masked" => match active_state(&active?) {
                        ActiveState::Active | ActiveState::Activating => ActiveState::MaskedRunning,
                        _ => ActiveState::Masked,
                    },
                    _ => match active_state(&active?) {
                        // Its turn is still to come, in a boot that is under way.
                        ActiveState::Inactive if job?.0 != 0 => ActiveState::Activating,
                        state => state,
                    },
                },
                enabled: enabled?,
                result: result.unwrap_or_default(),
                needs_reload: needs_reload?,
            })
        })
    }

    fn reload(&self, deadline: Duration) -> Result<(), UnitError> {
        self.ask("reload", "all units", deadline, |_, manager| async move { Ok(manager.reload().await?) })
    }

    fn enable(&self, units: &[UnitName]) -> Result<(), UnitError> {
        // One call each, so that a refusal names its unit.
        for unit in units {
            let name = unit.0.clone();
            self.ask("enable", &unit.0, CALL_DEADLINE, |_, manager| async move {
                manager.enable_unit_files(&[&name], false, true).await?;
                Ok(())
            })?;
        }
        Ok(())
    }

    fn restart_and_watch(
        &self,
        unit: &UnitName,
        deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        self.run_job("restart", unit, deadline, look)
    }

    fn reload_or_restart_and_wait(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError> {
        self.run_job(RELOAD, unit, deadline, &mut || {})
    }

    fn run_transient(
        &self,
        transient: &Transient,
        deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        transient.is_runnable()?;
        let (name, properties) = (transient.unit.0.clone(), transient.properties());
        self.ask("run", &transient.unit.0, deadline, |bus, manager| async move {
            wait_for_end(&bus, &manager, &name).await?;
            // Of a run that we gave up waiting for we may still hold it, and its name would be taken.
            let _ = manager.unref_unit(&name).await;
            let mut removed = manager.receive_job_removed_with_args(&[(2, name.as_str())]).await?;
            let job = manager.start_transient_unit(&name, "fail", &properties, &[]).await?;
            let result = watch_job(&mut removed, &job, look).await?;
            let detail = match result {
                JobResult::Done => String::new(),
                // It is there as long as we hold it.
                _ => unit_detail(&bus, &manager.load_unit(&name).await?, &name).await,
            };
            // A reference that cannot be given back ends with the connection.
            let _ = manager.unref_unit(&name).await;
            match result {
                JobResult::Done => Ok(()),
                result => {
                    let output = None;
                    Err(Failure::Unit(UnitError::Job { operation: "run", unit: name, result, detail, output }))
                }
            }
        })
    }

    fn wait_until_ended(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError> {
        let name = unit.0.clone();
        self.ask("end", &unit.0, deadline, |bus, manager| async move { wait_for_end(&bus, &manager, &name).await })
    }

    fn queue_start(&self, unit: &UnitName) -> Result<(), UnitError> {
        let name = unit.0.clone();
        self.ask("queued start", &unit.0, CALL_DEADLINE, |bus, manager| async move {
            require_loaded(&bus, &manager, &name).await?;
            manager.start_unit(&name, JOB_MODE).await?;
            Ok(())
        })
    }

    fn queue_restart(&self, unit: &UnitName) -> Result<(), UnitError> {
        let name = unit.0.clone();
        self.ask("queued restart", &unit.0, CALL_DEADLINE, |bus, manager| async move {
            require_loaded(&bus, &manager, &name).await?;
            manager.restart_unit(&name, JOB_MODE).await?;
            Ok(())
        })
    }

    fn reset_failed(&self, unit: &UnitName) -> Result<(), UnitError> {
        let name = unit.0.clone();
        self.ask("reset", &unit.0, CALL_DEADLINE, |bus, manager| async move {
            require_loaded(&bus, &manager, &name).await?;
            manager.reset_failed_unit(&name).await?;
            Ok(())
        })
    }

    fn stop_and_wait(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError> {
        let name = unit.0.clone();
        self.ask("stop", &unit.0, deadline, |bus, manager| async move {
            let id = match require_loaded(&bus, &manager, &name).await {
                Ok((_, id)) => id,
                // Nothing that could run.
                Err(Failure::Unit(UnitError::NotFound { .. })) => return Ok(()),
                // It may still run from before it was masked, under its own name.
                Err(Failure::Unit(UnitError::Masked { .. })) => name.clone(),
                Err(failure) => return Err(failure),
            };
            let mut removed = manager.receive_job_removed_with_args(&[(2, id.as_str())]).await?;
            let job = match manager.stop_unit(&name, JOB_MODE).await {
                Err(error) if is_no_such_unit(&error) => return Ok(()),
                other => other?,
            };
            match wait_for_job(&mut removed, &job).await? {
                JobResult::Done => Ok(()),
                result => {
                    let (detail, output) = (String::new(), None);
                    Err(Failure::Unit(UnitError::Job { operation: "stop", unit: name, result, detail, output }))
                }
            }
        })
    }

    fn stop_waiting(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError> {
        let name = unit.0.clone();
        let waits = self.ask("state query", &unit.0, deadline, |bus, manager| async move {
            let path = manager.load_unit(&name).await?;
            Ok(unit_proxy(&bus, &path).await?.sub_state().await?.starts_with(WAITING))
        })?;
        if waits { self.stop_and_wait(unit, deadline) } else { Ok(()) }
    }

    fn disable(&self, units: &[UnitName]) -> Result<(), UnitError> {
        for unit in units {
            let name = unit.0.clone();
            self.ask("disable", &unit.0, CALL_DEADLINE, |_, manager| async move {
                match manager.disable_unit_files(&[&name], false).await {
                    Err(error) if is_no_such_unit(&error) => Ok(()),
                    other => Ok(other.map(drop)?),
                }
            })?;
        }
        Ok(())
    }

    fn reboot(&self) -> Result<(), UnitError> {
        // What `systemctl reboot` does without logind: units are stopped in order. The manager's own `Reboot` would kill
        // everything at once.
        self.ask("reboot", REBOOT_TARGET, CALL_DEADLINE, |_, manager| async move {
            manager.start_unit(REBOOT_TARGET, "replace-irreversibly").await?;
            Ok(())
        })
    }

    fn is_clock_synchronised(&self) -> Option<bool> {
        let asked = self.ask("question for the time", "NTPSynchronized", TIME_DEADLINE, |bus, _| async move {
            let time = TimeDateProxy::builder(&bus).cache_properties(CacheProperties::No).build().await?;
            // A machine without timedated is no trouble of the bus.
            Ok(time.ntp_synchronized().await.ok())
        });
        asked.ok().flatten()
    }

    fn log(&self, unit: &UnitName, lines: &[&str]) {
        if !self.journals.is_empty() {
            // Whoever wants more finds it where the lines came from.
            let _ = say_for_unit(Path::new(JOURNAL_SOCKET), &unit.0, lines, LOG_DEADLINE);
        }
    }

    fn describe(&self) -> &'static str {
        "systemd on the system bus"
    }
}

async fn unit_proxy(bus: &Connection, path: &OwnedObjectPath) -> zbus::Result<UnitProxy<'static>> {
    UnitProxy::builder(bus).path(path.clone()).cache_properties(CacheProperties::No).build().await
}

/// The object of a unit that can be started, and its own name (the given one may be an alias).
async fn require_loaded(
    bus: &Connection,
    manager: &ManagerProxy<'_>,
    name: &str,
) -> Result<(OwnedObjectPath, String), Failure> {
    let path = manager.load_unit(name).await?;
    let unit = unit_proxy(bus, &path).await?;
    match unit.load_state().await?.as_str() {
        "not-found" => Err(Failure::Unit(UnitError::NotFound { unit: name.to_owned() })),
        "masked" => Err(Failure::Unit(UnitError::Masked { unit: name.to_owned() })),
        _ => Ok((path, unit.id().await?)),
    }
}

pub(super) async fn watch_job(
    removed: &mut JobRemovedStream,
    job: &OwnedObjectPath,
    look: &mut (dyn FnMut() + Send),
) -> Result<JobResult, Failure> {
    let mut ended = pin!(wait_for_job(removed, job));
    loop {
        match tokio::time::timeout(LOOK_INTERVAL, &mut ended).await {
            Ok(result) => return result,
            Err(_) => look(),
        }
    }
}

/// Of a unit that somebody else started: its job has no listener of ours, so it is looked at again and again.
pub(super) async fn wait_for_end(bus: &Connection, manager: &ManagerProxy<'_>, name: &str) -> Result<(), Failure> {
    loop {
        let path = manager.load_unit(name).await?;
        let active = unit_proxy(bus, &path).await?.active_state().await?;
        if matches!(active_state(&active), ActiveState::Inactive | ActiveState::Failed) {
            return Ok(());
        }
        tokio::time::sleep(END_INTERVAL).await;
    }
}

async fn wait_for_job(removed: &mut JobRemovedStream, job: &OwnedObjectPath) -> Result<JobResult, Failure> {
    loop {
        let next = poll_fn(|context| Pin::new(&mut *removed).poll_next(context)).await;
        let closed = || zbus::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionAborted));
        let signal = next.ok_or_else(closed)?;
        let args = signal.args()?;
        if args.job == *job {
            return Ok(JobResult::parse(&args.result));
        }
    }
}

/// Asked anew each time: the property of the same name is cached by systemd until it reloads.
async fn is_enabled(manager: &ManagerProxy<'_>, name: &str) -> Result<bool, Failure> {
    match manager.get_unit_file_state(name).await {
        // `enabled-runtime` ends with this boot; `alias` is the other name of an enabled unit.
        Ok(word) => Ok(matches!(word.as_str(), "enabled" | "alias")),
        Err(error) if is_no_such_unit(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn active_state(word: &str) -> ActiveState {
    match word {
        "active" | "reloading" | "refreshing" => ActiveState::Active,
        "activating" => ActiveState::Activating,
        "deactivating" => ActiveState::Deactivating,
        "failed" => ActiveState::Failed,
        // `inactive` and `maintenance`, and whatever comes: a unit is active only if systemd says so.
        _ => ActiveState::Inactive,
    }
}

/// The interface that holds `Result` for this type of unit; targets, slices and devices have none.
fn typed_interface(name: &str) -> Option<&'static str> {
    Some(match name.rsplit_once('.')?.1 {
        "service" => "org.freedesktop.systemd1.Service",
        "socket" => "org.freedesktop.systemd1.Socket",
        "mount" => "org.freedesktop.systemd1.Mount",
        "automount" => "org.freedesktop.systemd1.Automount",
        "swap" => "org.freedesktop.systemd1.Swap",
        "timer" => "org.freedesktop.systemd1.Timer",
        "path" => "org.freedesktop.systemd1.Path",
        "scope" => "org.freedesktop.systemd1.Scope",
        _ => return None,
    })
}

pub(super) async fn typed_proxy(bus: &Connection, path: &OwnedObjectPath, name: &str) -> Option<Proxy<'static>> {
    let interface = typed_interface(name)?;
    Proxy::new_owned(bus.clone(), SERVICE, path.clone(), interface).await.ok()
}

async fn unit_result(bus: &Connection, path: &OwnedObjectPath, name: &str) -> Option<String> {
    typed_proxy(bus, path, name).await?.get_property("Result").await.ok()
}

/// Best effort: the failed job is the error, this is its colour.
pub(super) async fn unit_detail(bus: &Connection, path: &OwnedObjectPath, name: &str) -> String {
    let Some(proxy) = typed_proxy(bus, path, name).await else { return String::new() };
    let Ok(result) = proxy.get_property::<String>("Result").await else { return String::new() };
    match proxy.get_property::<i32>("ExecMainStatus").await {
        Ok(status) => format!(" (unit result {result:?}, main process status {status})"),
        Err(_) => format!(" (unit result {result:?})"),
    }
}

/// What the unit said last since this moment of the monotonic clock. Best effort, as above.
async fn unit_log(
    bus: &Connection,
    manager: &ManagerProxy<'_>,
    path: &OwnedObjectPath,
    name: &str,
    journals: &[&str],
    since: Duration,
) -> Option<String> {
    if journals.is_empty() {
        return None;
    }
    let unit = unit_proxy(bus, path).await.ok()?;
    let (Ok(invocation), Some(boot)) = (unit.invocation_id().await, boot_id()) else { return None };
    let invocation = invocation.iter().map(|byte| format!("{byte:02x}")).collect();
    let since = u64::try_from(since.as_micros()).unwrap_or(0);
    synchronize(manager).await;
    let lines = last_lines(journals, &Run { unit: name.to_owned(), invocation, boot, since });
    quote_last_lines("its last lines", lines.iter().map(String::as_str))
}

fn is_no_such_unit(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::MethodError(name, _, _) => name.as_str() == "org.freedesktop.systemd1.NoSuchUnit",
        zbus::Error::FDO(error) => matches!(**error, fdo::Error::FileNotFound(_)),
        _ => false,
    }
}

fn is_masked(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::MethodError(name, _, _) if name.as_str() == "org.freedesktop.systemd1.UnitMasked")
}

fn name_error(operation: &'static str, what: &str, address: &str, error: zbus::Error) -> UnitError {
    if is_no_such_unit(&error) {
        UnitError::NotFound { unit: what.to_owned() }
    } else if is_masked(&error) {
        UnitError::Masked { unit: what.to_owned() }
    } else if is_trouble(&error) {
        UnitError::Bus { address: address.to_owned(), source: plain_source(error) }
    } else {
        UnitError::Call { operation, what: what.to_owned(), source: plain_source(error) }
    }
}

fn bus_error(address: &str, source: std::io::Error) -> UnitError {
    UnitError::Bus { address: address.to_owned(), source: Box::new(source) }
}
