//! A service manager that knows the unit files of a [`FakeDisk`] and does as it is told.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::crash::{Crash, Verdict, crashed};
use super::disk::{Entry, FakeDisk};
use super::packages::FakeRepository;
use super::sysext::{self, Merged};
use crate::disk::{Disk as _, DiskError};
use crate::units::unit_file::Found;
use crate::units::{
    ActiveState, JobResult, Transient, UnitError, UnitName, UnitState, Units, disable_on_disk, enable_on_disk, find,
    is_enabled,
};

const ADDRESS: &str = "fake bus";
/// `EXIT_STDOUT` of systemd.
const CANNOT_OPEN_OUTPUT: u8 = 209;

/// A clone is another handle of the same service manager. Its changes count on the crash point of the disk.
#[derive(Clone)]
pub struct FakeUnits {
    disk: FakeDisk,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
struct State {
    bus_missing: bool,
    /// What the jobs of a unit shall end with; `None`: never end.
    orders: BTreeMap<UnitName, Option<JobResult>>,
    units: BTreeMap<UnitName, Loaded>,
    jobs: Vec<UnitName>,
    /// How often a reboot was asked for since boot.
    reboots: u64,
    reboot_refused: bool,
    /// What every file said when a unit was last started, if somebody wants to know.
    read_at_start: BTreeMap<UnitName, BTreeMap<PathBuf, Entry>>,
    remembers_files: bool,
    /// How often jobs of a unit ended well, over all boots: what a unit did to the world stays done.
    runs: BTreeMap<UnitName, u64>,
    /// What a unit says each time it is started.
    words: BTreeMap<UnitName, Vec<u8>>,
    /// What a unit writes each time it is started, and leaves for others to sync.
    writes: BTreeMap<UnitName, (PathBuf, Vec<u8>)>,
    /// What others said in its name.
    logged: BTreeMap<UnitName, Vec<String>>,
    output: Output,
    /// What a package manager of this machine can install.
    repository: FakeRepository,
    /// Every program that was run as a unit of its own, over all boots.
    transients: Vec<Transient>,
    /// What systemd-sysext has laid over `/usr`.
    merged: Merged,
    /// What the time client of this boot says.
    clock_is_synchronised: Option<bool>,
}

/// Where the output of a unit goes that asks for a file.
#[derive(Clone, Copy, Default, PartialEq)]
enum Output {
    #[default]
    Files,
    /// systemd before 240 does not know how to append, and lets it be.
    Journal,
}

#[derive(Clone)]
struct Loaded {
    active: ActiveState,
    result: String,
    /// The unit file as the manager last read it.
    content: Option<String>,
}

impl FakeUnits {
    pub fn new(disk: &FakeDisk) -> Self {
        Self { disk: disk.clone(), state: Arc::default() }
    }

    /// The service manager after the crash of the process (nothing changed) or the machine (nothing runs; what is
    /// enabled stays so, as far as its links survived on the disk). Orders stay.
    pub fn after_crash(&self, crash: Crash, disk: &FakeDisk) -> Self {
        let mut state = self.with(|state| state.clone());
        if crash == Crash::PowerLoss {
            state.units.clear();
            state.jobs.clear();
            state.reboots = 0;
            state.clock_is_synchronised = None;
            // The next boot begins with the image's own `/usr`, and merges if its unit is enabled.
            let (image, unit) = (disk.uncounted(), UnitName(sysext::UNIT.to_owned()));
            let _ = state.merged.unmerge(&image);
            let found = find(&image, "boot", &unit).unwrap_or(Found::Absent);
            if is_enabled(&image, &unit, &found).unwrap_or(false) && start(&mut state, &unit, &found).is_ok() {
                let _ = state.merged.refresh(&image);
                state.jobs.clear();
            }
        }
        Self { disk: disk.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// From now on jobs of this unit end so.
    pub fn end_jobs_with(&self, unit: &UnitName, result: JobResult) {
        self.with(|state| state.orders.insert(unit.clone(), Some(result)));
    }

    /// From now on jobs of this unit pass every deadline.
    pub fn never_end_jobs(&self, unit: &UnitName) {
        self.with(|state| state.orders.insert(unit.clone(), None));
    }

    /// From now on the unit says this each time it is started.
    pub fn say(&self, unit: &UnitName, words: impl Into<Vec<u8>>) {
        self.with(|state| state.words.insert(unit.clone(), words.into()));
    }

    /// From now on the unit writes this file each time it is started, and syncs nothing.
    pub fn write(&self, unit: &UnitName, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.with(|state| state.writes.insert(unit.clone(), (path.into(), content.into())));
    }

    /// From now on this is a systemd that cannot append the output of a unit to a file.
    pub fn forget_how_to_append(&self) {
        self.with(|state| state.output = Output::Journal);
    }

    /// Changes what a package manager can install.
    pub fn repository<T>(&self, change: impl FnOnce(&mut FakeRepository) -> T) -> T {
        self.with(|state| change(&mut state.repository))
    }

    /// Every command that was run as a unit of its own, over all boots.
    pub fn commands(&self) -> Vec<Vec<String>> {
        self.transients().into_iter().map(|transient| transient.command).collect()
    }

    /// The same with all that else it was given.
    pub fn transients(&self) -> Vec<Transient> {
        self.with(|state| state.transients.clone())
    }

    /// What was written into the log of the machine in the name of a unit.
    pub fn logged(&self, unit: &UnitName) -> Vec<String> {
        self.with(|state| state.logged.get(unit).cloned().unwrap_or_default())
    }

    /// From now on nobody answers on the bus, or somebody does again.
    pub fn set_bus_missing(&self, is_missing: bool) {
        self.with(|state| state.bus_missing = is_missing);
    }

    /// What a time client says about the clock; `None`: there is none.
    pub fn set_clock_synchronised(&self, is_synchronised: Option<bool>) {
        self.with(|state| state.clock_is_synchronised = is_synchronised);
    }

    /// From now on it is remembered what every file said when a unit was started.
    pub fn remember_files(&self) {
        self.with(|state| state.remembers_files = true);
    }

    /// What every file said when the unit was last started.
    pub fn read_at_start(&self, unit: &UnitName) -> Option<BTreeMap<PathBuf, Entry>> {
        self.with(|state| state.read_at_start.get(unit).cloned())
    }

    fn note_files(&self, unit: &UnitName) {
        if self.with(|state| state.remembers_files) {
            let files = self.disk.snapshot();
            self.with(|state| state.read_at_start.insert(unit.clone(), files));
        }
    }

    /// A service dies or starts by itself.
    pub fn set_active(&self, unit: &UnitName, active: ActiveState) {
        self.with(|state| state.units.entry(unit.clone()).or_insert_with(Loaded::new).active = active);
    }

    /// From now on the manager refuses to reboot, or does so again.
    pub fn set_reboot_refused(&self, is_refused: bool) {
        self.with(|state| state.reboot_refused = is_refused);
    }

    /// How often a reboot was asked for since boot. It happens when the test says so: by `after_crash`.
    pub fn reboots(&self) -> u64 {
        self.with(|state| state.reboots)
    }

    /// Every start or restart since boot, in order.
    pub fn jobs(&self) -> Vec<UnitName> {
        self.with(|state| state.jobs.clone())
    }

    /// How often the unit was started and did what it is for, over all boots.
    pub fn runs(&self, unit: &UnitName) -> u64 {
        self.with(|state| state.runs.get(unit).copied().unwrap_or(0))
    }

    /// A start by another program than the one under test: no operation of its own.
    pub(super) fn start_by_others(&self, unit: &UnitName) {
        let found = find(&self.disk.uncounted(), "start", unit);
        self.note_files(unit);
        // What cannot be started stays as it is.
        let _ = found.and_then(|found| self.with(|state| start(state, unit, &found)));
    }

    /// The crash point first; then the change, unseen by it; then death, if that was the order.
    fn change<T>(
        &self,
        operation: &'static str,
        what: &str,
        change: impl FnOnce(&FakeDisk, &mut State) -> Result<T, UnitError>,
    ) -> Result<T, UnitError> {
        let failed = |source: io::Error| UnitError::Call { operation, what: what.to_owned(), source: source.into() };
        self.require_bus()?;
        let verdict = self.disk.crash_point().operation(format!("unit {operation} {what}")).map_err(failed)?;
        let changed = self.with(|state| change(&self.disk.uncounted(), state));
        match verdict {
            Verdict::Do => changed,
            Verdict::DoThenDie(_) => changed.and(Err(failed(crashed()))),
        }
    }

    fn require_bus(&self) -> Result<(), UnitError> {
        let bus = |source: io::Error| UnitError::Bus { address: ADDRESS.to_owned(), source: source.into() };
        self.disk.crash_point().read().map_err(bus)?;
        if self.with(|state| state.bus_missing) { Err(bus(io::ErrorKind::NotFound.into())) } else { Ok(()) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Loaded {
    fn new() -> Self {
        Self { active: ActiveState::Inactive, result: "success".to_owned(), content: None }
    }
}

/// Reads the unit file if the manager has not done so yet.
fn load<'a>(state: &'a mut State, unit: &UnitName, found: &Found) -> &'a mut Loaded {
    let loaded = state.units.entry(unit.clone()).or_insert_with(Loaded::new);
    if let (None, Found::File { content, .. }) = (&loaded.content, found) {
        loaded.content = Some(content.clone());
    }
    loaded
}

fn start(state: &mut State, unit: &UnitName, found: &Found) -> Result<Option<JobResult>, UnitError> {
    let content = match found {
        Found::Absent => return Err(UnitError::NotFound { unit: unit.0.clone() }),
        Found::Masked => return Err(UnitError::Masked { unit: unit.0.clone() }),
        Found::File { content, .. } => content,
    };
    // As with systemd: what has done its work is over.
    let is_over = content.contains("Type=oneshot") && !content.contains("RemainAfterExit=yes");
    let order = state.orders.get(unit).copied().unwrap_or(Some(JobResult::Done));
    state.jobs.push(unit.clone());
    if order == Some(JobResult::Done) {
        *state.runs.entry(unit.clone()).or_default() += 1;
    }
    let loaded = load(state, unit, found);
    (loaded.active, loaded.result) = match order {
        Some(JobResult::Done) if is_over => (ActiveState::Inactive, "success".to_owned()),
        Some(JobResult::Done) => (ActiveState::Active, "success".to_owned()),
        Some(JobResult::Failed) => (ActiveState::Failed, "exit-code".to_owned()),
        Some(_) => (ActiveState::Inactive, "success".to_owned()),
        None => (ActiveState::Activating, "success".to_owned()),
    };
    Ok(order)
}

fn merge(disk: &FakeDisk, state: &mut State, unit: &UnitName) -> Result<(), UnitError> {
    match unit.0.as_str() {
        sysext::UNIT => state.merged.refresh(disk).map_err(|source| merge_error(source.into())),
        _ => Ok(()),
    }
}

fn merge_error(source: Box<dyn std::error::Error + Send + Sync>) -> UnitError {
    UnitError::Call { operation: "merge", what: sysext::UNIT.to_owned(), source }
}

/// As systemd does it before a command is run: the file is made if need be, its folder is not.
fn speak(disk: &FakeDisk, state: &State, unit: &UnitName, found: &Found) -> Result<(), DiskError> {
    let Found::File { content, .. } = found else { return Ok(()) };
    let last = content.lines().filter_map(|line| line.trim().strip_prefix("StandardOutput=")).next_back();
    match last.and_then(|output| output.strip_prefix("append:")) {
        Some(path) if state.output == Output::Files => {
            disk.append(Path::new(path), state.words.get(unit).map(Vec::as_slice).unwrap_or_default())
        }
        _ => Ok(()),
    }
}

impl Units for FakeUnits {
    fn state(&self, unit: &UnitName) -> Result<UnitState, UnitError> {
        self.require_bus()?;
        let disk = self.disk.uncounted();
        let found = find(&disk, "state query", unit)?;
        let enabled = is_enabled(&disk, unit, &found).map_err(|source| UnitError::Call {
            operation: "state query",
            what: unit.0.clone(),
            source: source.into(),
        })?;
        self.with(|state| {
            let loaded = load(state, unit, &found);
            let needs_reload = match &found {
                Found::File { content, .. } => loaded.content.as_ref() != Some(content),
                _ => loaded.content.is_some(),
            };
            let active = match found {
                Found::Absent if !needs_reload => ActiveState::NotFound,
                Found::Masked if !needs_reload => match loaded.active {
                    ActiveState::Active | ActiveState::Activating => ActiveState::MaskedRunning,
                    _ => ActiveState::Masked,
                },
                _ => loaded.active,
            };
            Ok(UnitState { active, enabled, result: loaded.result.clone(), needs_reload })
        })
    }

    fn reload(&self, _deadline: Duration) -> Result<(), UnitError> {
        self.change("reload", "all units", |_, state| {
            state.units.values_mut().for_each(|loaded| loaded.content = None);
            Ok(())
        })
    }

    fn enable(&self, units: &[UnitName]) -> Result<(), UnitError> {
        let names: Vec<&str> = units.iter().map(|unit| unit.0.as_str()).collect();
        self.change("enable", &names.join(" "), |disk, state| {
            enable_on_disk(disk, units)?;
            state.units.values_mut().for_each(|loaded| loaded.content = None);
            Ok(())
        })
    }

    fn restart_and_watch(
        &self,
        unit: &UnitName,
        deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        let (operation, name) = ("restart", unit.0.clone());
        self.note_files(unit);
        let failed = |status: u8, result| {
            let detail = format!(" (unit result \"exit-code\", main process status {status})");
            Err(UnitError::Job { operation, unit: name.clone(), result, detail, output: None })
        };
        let ended = self.change(operation, &unit.0, |disk, state| {
            let found = find(disk, operation, unit)?;
            if speak(disk, state, unit, &found).is_err() {
                return failed(CANNOT_OPEN_OUTPUT, JobResult::Failed);
            }
            if let Some((path, content)) = state.writes.get(unit) {
                // Whether that works is the unit's own affair.
                let _ = disk.remove(path).and_then(|_| disk.create(path, 0o644, content));
            }
            match start(state, unit, &found)? {
                Some(JobResult::Done) => merge(disk, state, unit),
                None => Err(UnitError::Deadline { operation, what: name.clone(), waited: deadline }),
                Some(result) => failed(1, result),
            }
        });
        look();
        ended
    }

    /// Each thing that the program does is an operation of its own: a crash in between leaves the rest undone.
    fn run_transient(
        &self,
        transient: &Transient,
        _deadline: Duration,
        look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        let (operation, name) = ("run", transient.unit.0.clone());
        let failed = |detail: String| {
            let unit = name.clone();
            UnitError::Job { operation, unit, result: JobResult::Failed, detail, output: None }
        };
        let broken = |source: DiskError| UnitError::Call { operation, what: name.clone(), source: source.into() };
        self.change(operation, &name, |_, state| {
            state.transients.push(transient.clone());
            Ok(())
        })?;
        let disk = self.disk.uncounted();
        let planned = self.with(|state| state.repository.plan(&transient.command, &transient.output, &disk));
        let operations = match planned {
            Ok(operations) => operations,
            Err(words) => {
                disk.append(&transient.output, words.as_bytes()).map_err(broken)?;
                return Err(failed(" (unit result \"exit-code\", main process status 100)".to_owned()));
            }
        };
        for one in operations {
            self.change(operation, &name, |disk, _| one(disk).map_err(broken))?;
        }
        look();
        Ok(())
    }

    fn wait_until_ended(&self, _unit: &UnitName, _deadline: Duration) -> Result<(), UnitError> {
        self.require_bus()
    }

    fn reload_or_restart_and_wait(&self, unit: &UnitName, deadline: Duration) -> Result<(), UnitError> {
        // Whether a unit can be reloaded makes no difference here: either way it has done its work anew.
        self.restart_and_watch(unit, deadline, &mut || {})
    }

    fn queue_start(&self, unit: &UnitName) -> Result<(), UnitError> {
        let operation = "queued start";
        if !matches!(self.state(unit)?.active, ActiveState::Active | ActiveState::Activating) {
            self.note_files(unit);
        }
        self.change(operation, &unit.0, |disk, state| {
            let found = find(disk, operation, unit)?;
            match load(state, unit, &found).active {
                ActiveState::Active | ActiveState::Activating => Ok(()),
                _ => start(state, unit, &found).map(drop),
            }
        })
    }

    fn queue_restart(&self, unit: &UnitName) -> Result<(), UnitError> {
        let operation = "queued restart";
        self.note_files(unit);
        self.change(operation, &unit.0, |disk, state| start(state, unit, &find(disk, operation, unit)?).map(drop))
    }

    fn reset_failed(&self, unit: &UnitName) -> Result<(), UnitError> {
        self.change("reset", &unit.0, |disk, state| {
            let found = find(disk, "reset", unit)?;
            let loaded = load(state, unit, &found);
            if loaded.active == ActiveState::Failed {
                (loaded.active, loaded.result) = (ActiveState::Inactive, "success".to_owned());
            }
            Ok(())
        })
    }

    fn stop_and_wait(&self, unit: &UnitName, _deadline: Duration) -> Result<(), UnitError> {
        self.change("stop", &unit.0, |disk, state| {
            if unit.0 == sysext::UNIT {
                state.merged.unmerge(disk).map_err(|source| merge_error(source.into()))?;
            }
            if let Some(loaded) = state.units.get_mut(unit) {
                (loaded.active, loaded.result) = (ActiveState::Inactive, "success".to_owned());
            }
            Ok(())
        })
    }

    fn disable(&self, units: &[UnitName]) -> Result<(), UnitError> {
        let names: Vec<&str> = units.iter().map(|unit| unit.0.as_str()).collect();
        self.change("disable", &names.join(" "), |disk, state| {
            disable_on_disk(disk, units)?;
            state.units.values_mut().for_each(|loaded| loaded.content = None);
            Ok(())
        })
    }

    fn log(&self, unit: &UnitName, lines: &[&str]) {
        let lines = lines.iter().map(|line| (*line).to_owned());
        self.with(|state| state.logged.entry(unit.clone()).or_default().extend(lines));
    }

    fn reboot(&self) -> Result<(), UnitError> {
        self.change("reboot", "the machine", |_, state| {
            if state.reboot_refused {
                let source = io::Error::from(io::ErrorKind::PermissionDenied).into();
                return Err(UnitError::Call { operation: "reboot", what: "the machine".to_owned(), source });
            }
            state.reboots += 1;
            Ok(())
        })
    }

    fn is_clock_synchronised(&self) -> Option<bool> {
        self.with(|state| state.clock_is_synchronised.filter(|_| !state.bus_missing))
    }

    fn describe(&self) -> &'static str {
        "a fake service manager in memory"
    }
}
