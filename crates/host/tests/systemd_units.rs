//! The D-Bus side of units, against a systemd of our own on a private bus (a real one is met on a booted node).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]
#![allow(clippy::disallowed_methods, reason = "the test starts a bus daemon and measures real time")]

mod bus;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::units::{ActiveState, Heard, JobResult, Transient, UnitError, UnitName, Units};
use zbus::object_server::SignalEmitter;
use zbus::{OwnedObjectPath, Variant, interface};

use bus::{PrivateBus, Serving, start_daemon};

const LONG: Duration = Duration::from_secs(20);
const UNIT_PATH: &str = "/org/freedesktop/systemd1/unit";

type Calls = Arc<Mutex<Vec<String>>>;

struct Manager {
    calls: Calls,
}

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum Refusal {
    #[zbus(error)]
    Bus(zbus::Error),
    NoSuchUnit(String),
    UnitMasked(String),
    OnlyByDependency(String),
}

fn unit_path(name: &str) -> OwnedObjectPath {
    let escaped: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    OwnedObjectPath::try_from(format!("{UNIT_PATH}/{escaped}")).unwrap()
}

impl Manager {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    /// The job of a unit ends as the name of the unit says, and before the caller even knows the job.
    async fn job(&self, name: &str, emitter: &SignalEmitter<'_>) -> Result<OwnedObjectPath, Refusal> {
        let (number, result) = match name {
            "refuses.service" => {
                return Err(Refusal::OnlyByDependency("may be requested by dependency only".to_owned()));
            }
            "fails.service" => (2, "failed"),
            "needs.service" => (3, "dependency"),
            "slow.service" => (4, ""),
            _ => (1, "done"),
        };
        let id = if name == "alias.service" { "good.service" } else { name };
        let job = |n: u32| OwnedObjectPath::try_from(format!("/org/freedesktop/systemd1/job/{n}")).unwrap();
        // Jobs of other units, and an older one of this unit, end in between.
        for _ in 0..200 {
            Self::job_removed(emitter, 99, job(99), "other.service".to_owned(), "failed".to_owned()).await?;
        }
        Self::job_removed(emitter, 98, job(98), id.to_owned(), "canceled".to_owned()).await?;
        if !result.is_empty() {
            Self::job_removed(emitter, number, job(number), id.to_owned(), result.to_owned()).await?;
        }
        Ok(job(number))
    }
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    async fn subscribe(&self) {
        self.note("subscribe".to_owned());
    }

    async fn load_unit(&self, name: String) -> OwnedObjectPath {
        unit_path(&name)
    }

    async fn restart_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.note(format!("restart {name} {mode}"));
        self.job(&name, &emitter).await
    }

    async fn reload_or_restart_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.note(format!("reload or restart {name} {mode}"));
        self.job(&name, &emitter).await
    }

    async fn start_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.note(format!("start {name} {mode}"));
        self.job(&name, &emitter).await
    }

    async fn start_transient_unit(
        &self,
        name: String,
        mode: String,
        properties: Vec<(String, zbus::OwnedVariant)>,
        auxiliary: Vec<(String, Vec<(String, zbus::OwnedVariant)>)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refusal> {
        assert!(auxiliary.is_empty());
        let types: Vec<String> =
            properties.iter().map(|(name, value)| format!("{name}:{}", value.value_signature())).collect();
        self.note(format!("run {name} {mode} {}", types.join(" ")));
        for (property, value) in &properties {
            if let Variant::Fd(output) = &**value {
                let mut output = File::from(output.as_fd().try_clone_to_owned().unwrap());
                writeln!(output, "said on {property}").unwrap();
            }
        }
        self.job(&name, &emitter).await
    }

    async fn unref_unit(&self, name: String) {
        self.note(format!("let go of {name}"));
    }

    async fn stop_unit(
        &self,
        name: String,
        mode: String,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Refusal> {
        self.note(format!("stop {name} {mode}"));
        self.job(&name, &emitter).await
    }

    async fn disable_unit_files(
        &self,
        files: Vec<String>,
        runtime: bool,
    ) -> Result<Vec<(String, String, String)>, Refusal> {
        self.note(format!("disable {files:?} {runtime}"));
        match files[0].as_str() {
            "missing.service" => Err(Refusal::NoSuchUnit("Unit missing.service does not exist".to_owned())),
            "refuses.service" => Err(Refusal::OnlyByDependency("no".to_owned())),
            _ => Ok(Vec::new()),
        }
    }

    async fn enable_unit_files(
        &self,
        files: Vec<String>,
        runtime: bool,
        force: bool,
    ) -> Result<(bool, Vec<(String, String, String)>), Refusal> {
        self.note(format!("enable {files:?} {runtime} {force}"));
        let change = ("symlink".to_owned(), "/etc/x".to_owned(), "/usr/x".to_owned());
        match files[0].as_str() {
            "missing.service" => Err(Refusal::NoSuchUnit("Unit missing.service does not exist".to_owned())),
            "masked.service" => Err(Refusal::UnitMasked("Unit masked.service is masked".to_owned())),
            "good.service" => Ok((true, Vec::new())),
            _ => Ok((true, vec![change])),
        }
    }

    async fn get_unit_file_state(&self, file: String) -> zbus::fdo::Result<String> {
        match file.as_str() {
            "good.service" => Ok("enabled".to_owned()),
            "missing.service" => Err(zbus::fdo::Error::FileNotFound("no such file".to_owned())),
            _ => Ok("disabled".to_owned()),
        }
    }

    async fn reload(&self) {
        self.note("reload".to_owned());
    }

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: String,
        result: String,
    ) -> zbus::Result<()>;
}

struct Unit {
    id: &'static str,
    load: &'static str,
    active: &'static str,
    needs_reload: bool,
}

#[interface(name = "org.freedesktop.systemd1.Unit")]
impl Unit {
    #[zbus(property)]
    fn id(&self) -> &str {
        self.id
    }
    #[zbus(property)]
    fn load_state(&self) -> &str {
        self.load
    }
    #[zbus(property)]
    fn active_state(&self) -> &str {
        self.active
    }
    #[zbus(property)]
    fn sub_state(&self) -> &str {
        match self.id {
            "waits.service" => "auto-restart",
            _ => "start-pre",
        }
    }
    #[zbus(property)]
    fn need_daemon_reload(&self) -> bool {
        self.needs_reload
    }
}

struct Service(&'static str);

#[interface(name = "org.freedesktop.systemd1.Service")]
impl Service {
    #[zbus(property)]
    fn result(&self) -> &str {
        self.0
    }
    #[zbus(property)]
    fn exec_main_status(&self) -> i32 {
        203
    }
    #[zbus(property)]
    fn exec_main_code(&self) -> i32 {
        if self.0 == "exit-code" { 1 } else { 2 }
    }
}

/// Name, own name, load state, active state, result.
const UNITS: [(&str, &str, &str, &str, &str); 10] = [
    ("idle.service", "idle.service", "not-found", "inactive", "success"),
    ("good.service", "good.service", "loaded", "active", "success"),
    ("alias.service", "good.service", "loaded", "active", "success"),
    ("fails.service", "fails.service", "loaded", "failed", "exit-code"),
    ("needs.service", "needs.service", "loaded", "inactive", "success"),
    ("slow.service", "slow.service", "loaded", "activating", "success"),
    ("waits.service", "waits.service", "loaded", "activating", "exit-code"),
    ("refuses.service", "refuses.service", "loaded", "inactive", "success"),
    ("missing.service", "missing.service", "not-found", "inactive", "success"),
    ("masked.service", "masked.service", "masked", "inactive", "success"),
];

/// Serves as systemd on the bus until dropped.
struct FakeSystemd {
    calls: Calls,
    _serving: Serving,
}

impl FakeSystemd {
    fn serve(bus: &PrivateBus) -> Self {
        let calls = Calls::default();
        let mut builder = zbus::connection::Builder::address(bus.address.as_str())
            .serve_at("/org/freedesktop/systemd1", Manager { calls: calls.clone() });
        for (name, id, load, active, result) in UNITS {
            let unit = Unit { id, load, active, needs_reload: name == "fails.service" };
            builder = builder.serve_at(unit_path(name), unit).serve_at(unit_path(name), Service(result));
        }
        Self { calls, _serving: Serving::start(builder.name("org.freedesktop.systemd1")) }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

/// The time as timedated tells of it.
struct TimeDate(Arc<AtomicBool>);

#[interface(name = "org.freedesktop.timedate1")]
impl TimeDate {
    #[zbus(property, name = "NTPSynchronized")]
    fn ntp_synchronized(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn name(unit: &str) -> UnitName {
    UnitName(unit.to_owned())
}

fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect()
}

#[test]
fn a_missing_bus_is_named_by_its_address() {
    let units = host::units::SystemdUnits::new(Some("unix:path=/nonexistent/bus"));
    let error = units.reload(LONG).unwrap_err();
    assert_eq!(
        chain(&error),
        [
            "cannot reach the service manager on the system bus (unix:path=/nonexistent/bus)",
            "No such file or directory (os error 2)"
        ]
    );
    let error = host::units::SystemdUnits::new(Some("nonsense")).state(&name("a.service")).unwrap_err();
    assert!(matches!(error, UnitError::Bus { .. }), "{error}");
}

#[test]
fn a_bus_without_systemd_is_no_service_manager() {
    let bus = PrivateBus::start();
    let error = bus.units().state(&name("good.service")).unwrap_err();
    assert!(matches!(error, UnitError::Bus { .. }), "{:?}", chain(&error));
}

#[test]
fn a_bus_that_never_answers_passes_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("bus");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let units = host::units::SystemdUnits::new(Some(&format!("unix:path={}", socket.display())));
    let start = Instant::now();
    let error = units.reload(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, UnitError::Deadline { .. }), "{error}");
    assert!(start.elapsed() < LONG);
}

#[test]
fn jobs_end_as_systemd_says() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    units.restart_and_wait(&name("good.service"), LONG).unwrap();
    units.restart_and_wait(&name("alias.service"), LONG).unwrap();

    // systemd knows which of the two a unit can do: a systemd-sysext of systemd 252 has nothing that reloads.
    units.reload_or_restart_and_wait(&name("good.service"), LONG).unwrap();
    assert_eq!(systemd.calls().last().unwrap(), "reload or restart good.service replace");

    let error = units.restart_and_wait(&name("fails.service"), LONG).unwrap_err();
    assert!(matches!(error, UnitError::Job { result: JobResult::Failed, .. }));
    let told = "restart of unit \"fails.service\" ended with \"failed\" \
                (unit result \"exit-code\", main process status 203)";
    assert_eq!(error.to_string(), told);
    let error = units.restart_and_wait(&name("needs.service"), LONG).unwrap_err();
    assert!(matches!(error, UnitError::Job { result: JobResult::Dependency, .. }));

    let error = units.restart_and_wait(&name("refuses.service"), LONG).unwrap_err();
    assert_eq!(error.to_string(), "restart of \"refuses.service\" was refused by the service manager");
    assert!(chain(&error)[1].contains("OnlyByDependency"), "{:?}", chain(&error));

    let deadline = Duration::from_millis(200);
    let error = units.restart_and_wait(&name("slow.service"), deadline).unwrap_err();
    assert_eq!(error.to_string(), "restart of \"slow.service\" did not end within 200ms");
    units.queue_restart(&name("slow.service")).unwrap();
    units.queue_start(&name("slow.service")).unwrap();
    let calls = systemd.calls();
    assert_eq!(calls.iter().filter(|call| *call == "subscribe").count(), 1, "{calls:?}");
    assert_eq!(calls.last().unwrap(), "start slow.service replace");
}

#[test]
fn a_program_runs_in_a_unit_of_its_own_which_is_let_go_of_afterwards() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    let program = |unit: &str| Transient {
        unit: name(unit),
        description: "packages of the node".to_owned(),
        command: ["/usr/bin/apt-get", "update"].map(str::to_owned).to_vec(),
        environment: [("LC_ALL".to_owned(), "C.UTF-8".to_owned())].into(),
        environment_file: Some("/etc/nodestrap/proxy.env".into()),
        output: "/run/nodestrap/packages/update.log".into(),
    };
    units.run_transient(&program("idle.service"), LONG, &mut || {}).unwrap();
    let calls = systemd.calls();
    // The types are those of org.freedesktop.systemd1(5).
    let told = "run idle.service fail Description:s Type:s CollectMode:s AddRef:b ExecStart:a(sasb) Environment:as \
                StandardOutputFile:s StandardErrorFile:s EnvironmentFiles:a(sb)";
    // Of a run that somebody gave up waiting for, the name would still be taken.
    assert_eq!(calls[calls.len() - 3..], ["let go of idle.service", told, "let go of idle.service"]);

    let error = units.run_transient(&program("fails.service"), LONG, &mut || {}).unwrap_err();
    let said =
        "run of unit \"fails.service\" ended with \"failed\" (unit result \"exit-code\", main process status 203)";
    assert_eq!(error.to_string(), said);
    assert_eq!(systemd.calls().last().unwrap(), "let go of fails.service", "its name can be used again");

    let before = systemd.calls().len();
    let soon = Duration::from_millis(200);
    let error = units.run_transient(&program("slow.service"), soon, &mut || {}).unwrap_err();
    assert!(matches!(error, UnitError::Deadline { .. }), "{error}");
    assert!(matches!(units.wait_until_ended(&name("slow.service"), soon), Err(UnitError::Deadline { .. })));
    assert_eq!(systemd.calls().len(), before, "the one that is at work is waited for, and no second one started");
    units.wait_until_ended(&name("idle.service"), LONG).unwrap();
}

#[test]
fn a_program_of_the_host_is_heard_and_its_exit_status_told_without_a_file() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    let run = |unit: &str, deadline| {
        let heard = Heard {
            unit: name(unit),
            description: "a question".to_owned(),
            command: ["/opt/bin/nodestrap", "hook"].map(str::to_owned).to_vec(),
        };
        let mut words = String::new();
        let ended = units.run_and_hear(&heard, deadline, &mut |piece| words.push_str(&String::from_utf8_lossy(piece)));
        (ended, words)
    };
    // Both speak into the same memory, one after the other.
    let said = "said on StandardOutputFileDescriptor\nsaid on StandardErrorFileDescriptor\n";
    let (ended, words) = run("idle.service", LONG);
    assert_eq!((ended.unwrap(), words.as_str()), (0, said));
    let calls = systemd.calls();
    let told = "run idle.service fail Description:s Type:s CollectMode:s AddRef:b ExecStart:a(sasb) \
                StandardOutputFileDescriptor:h StandardErrorFileDescriptor:h";
    assert_eq!(calls[calls.len() - 3..], ["let go of idle.service", told, "let go of idle.service"]);

    let (ended, words) = run("fails.service", LONG);
    assert_eq!((ended.unwrap(), words.as_str()), (203, said), "it ended by itself");
    assert_eq!(systemd.calls().last().unwrap(), "let go of fails.service");
    let (ended, _) = run("needs.service", LONG);
    assert!(matches!(ended, Err(UnitError::Job { result: JobResult::Dependency, .. })), "{ended:?}");
    let (ended, _) = run("slow.service", Duration::from_millis(200));
    assert!(matches!(ended, Err(UnitError::Deadline { .. })), "{ended:?}");
}

#[test]
fn units_that_cannot_run_are_told_apart() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    for verb in [Units::queue_restart, Units::queue_start] {
        let refused = |unit: &str| verb(&units as &dyn Units, &name(unit)).unwrap_err();
        assert_eq!(
            refused("missing.service").to_string(),
            "unit \"missing.service\" is not known to the service manager"
        );
        assert_eq!(refused("masked.service").to_string(), "unit \"masked.service\" is masked");
    }
    assert!(matches!(units.restart_and_wait(&name("missing.service"), LONG), Err(UnitError::NotFound { .. })));
    assert!(matches!(units.restart_and_wait(&name("masked.service"), LONG), Err(UnitError::Masked { .. })));
    assert!(matches!(units.enable(&[name("missing.service")]), Err(UnitError::NotFound { .. })));
    assert!(matches!(units.enable(&[name("masked.service")]), Err(UnitError::Masked { .. })));
    assert!(!systemd.calls().iter().any(|call| call.starts_with("restart") || call.starts_with("start")));
}

#[test]
fn states_are_read() {
    let bus = PrivateBus::start();
    let _systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    let state = |unit: &str| units.state(&name(unit)).unwrap();
    let good = state("good.service");
    assert_eq!(
        (good.active, good.enabled, good.result.as_str(), good.needs_reload),
        (ActiveState::Active, true, "success", false)
    );
    let fails = state("fails.service");
    assert_eq!(
        (fails.active, fails.enabled, fails.result.as_str(), fails.needs_reload),
        (ActiveState::Failed, false, "exit-code", true)
    );
    assert_eq!(state("slow.service").active, ActiveState::Activating);
    assert_eq!(state("missing.service").active, ActiveState::NotFound);
    assert_eq!(state("masked.service").active, ActiveState::Masked);
}

#[test]
fn enabling_leaves_the_reload_to_its_caller() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    units.enable(&[name("good.service")]).unwrap();
    assert_eq!(systemd.calls(), ["subscribe", "enable [\"good.service\"] false true"]);
    units.enable(&[name("fails.service"), name("good.service"), name("slow.service")]).unwrap();
    assert_eq!(systemd.calls().iter().filter(|call| *call == "reload").count(), 0);
    units.reload(LONG).unwrap();
}

#[test]
fn units_are_stopped_and_disabled_and_what_is_unknown_is_left_alone() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    for unit in ["good.service", "alias.service", "masked.service", "missing.service"] {
        units.stop_and_wait(&name(unit), LONG).unwrap();
    }
    let failed = units.stop_and_wait(&name("fails.service"), LONG).unwrap_err();
    assert!(matches!(failed, UnitError::Job { operation: "stop", result: JobResult::Failed, .. }), "{failed}");
    units.disable(&[name("good.service"), name("missing.service")]).unwrap();
    let refused = units.disable(&[name("refuses.service")]).unwrap_err();
    assert!(matches!(&refused, UnitError::Call { operation: "disable", what, .. } if what == "refuses.service"));
    let calls = systemd.calls();
    let of = |verb: &str| calls.iter().filter(|call| call.starts_with(verb)).cloned().collect::<Vec<_>>();
    let stops = ["good", "alias", "masked", "fails"].map(|unit| format!("stop {unit}.service replace"));
    assert_eq!(of("stop"), stops, "an unknown unit is not even asked to stop");
    assert_eq!(of("disable")[0], "disable [\"good.service\"] false");
}

#[test]
fn a_unit_that_waits_to_be_started_again_is_stopped_and_one_that_is_starting_is_not() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    for unit in ["slow.service", "good.service", "waits.service"] {
        units.stop_waiting(&name(unit), LONG).unwrap();
    }
    assert_eq!(systemd.calls(), ["subscribe", "stop waits.service replace"]);
}

#[test]
fn a_reboot_is_asked_for_so_that_nothing_can_replace_it() {
    let bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    bus.units().reboot().unwrap();
    assert_eq!(systemd.calls().last().unwrap(), "start reboot.target replace-irreversibly");
    drop(systemd);
    let error = bus.units().reboot().unwrap_err();
    assert!(matches!(error, UnitError::Bus { .. }), "{error}");
}

#[test]
fn a_caller_inside_a_runtime_and_two_at_once_are_served() {
    let bus = PrivateBus::start();
    let _systemd = FakeSystemd::serve(&bus);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let units = bus.units();
        units.restart_and_wait(&name("good.service"), LONG).unwrap();
    });
    let units = bus.units();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| units.restart_and_wait(&name("slow.service"), Duration::from_millis(700)));
        let start = Instant::now();
        units.restart_and_wait(&name("good.service"), LONG).unwrap();
        assert!(start.elapsed() < Duration::from_millis(600), "one wait must not hold the other");
        assert!(matches!(slow.join().unwrap(), Err(UnitError::Deadline { .. })));
    });
}

#[test]
fn a_connection_that_broke_is_an_error_once_and_then_made_anew() {
    let mut bus = PrivateBus::start();
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    units.reload(LONG).unwrap();
    drop(systemd);
    bus.daemon.kill().unwrap();
    bus.daemon.wait().unwrap();
    assert!(matches!(units.reload(LONG), Err(UnitError::Bus { .. })));
    std::fs::remove_file(Path::new(bus.address.trim_start_matches("unix:path="))).unwrap();
    bus.daemon = start_daemon(&bus.address);
    let _systemd = FakeSystemd::serve(&bus);
    units.reload(LONG).unwrap();
}

#[test]
fn whether_a_time_client_has_set_the_clock_is_asked_anew_each_time() {
    let bus = PrivateBus::start();
    assert_eq!(bus.units().is_clock_synchronised(), None, "nobody is there");
    let systemd = FakeSystemd::serve(&bus);
    let units = bus.units();
    assert_eq!(units.is_clock_synchronised(), None, "there is no timedated");
    let is_set = Arc::new(AtomicBool::new(false));
    let builder = zbus::connection::Builder::address(bus.address.as_str())
        .serve_at("/org/freedesktop/timedate1", TimeDate(Arc::clone(&is_set)))
        .name("org.freedesktop.timedate1");
    let time = Serving::start(builder);
    assert_eq!(units.is_clock_synchronised(), Some(false));
    is_set.store(true, Ordering::Relaxed);
    assert_eq!(units.is_clock_synchronised(), Some(true));
    drop(time);
    assert_eq!(units.is_clock_synchronised(), None);
    // The connection to systemd has come to no harm.
    let subscriptions = || systemd.calls().iter().filter(|call| *call == "subscribe").count();
    let before = subscriptions();
    units.reload(LONG).unwrap();
    assert_eq!(subscriptions(), before);
    assert_eq!(host::units::SystemdUnits::new(Some("unix:path=/nonexistent/bus")).is_clock_synchronised(), None);
}
