//! A snapd that knows a few snaps and does as it is told.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::crash::{Verdict, crashed};
use super::disk::FakeDisk;
use super::units::FakeUnits;
use crate::snaps::{SnapError, SnapService, Snaps};
use crate::units::{ActiveState, UnitName, Units as _};

const SOCKET: &str = "fake socket";

/// A clone is another handle of the same snapd. Its changes count on the crash point of the disk. What it changed stays
/// so over every crash: snapd syncs its state before it says that a change is done.
#[derive(Clone)]
pub struct FakeSnaps {
    disk: FakeDisk,
    units: FakeUnits,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Default)]
struct State {
    /// Snaps, and the applications of each that are services.
    snaps: BTreeMap<String, Vec<String>>,
    aliases: BTreeMap<String, String>,
    settings: BTreeMap<String, BTreeMap<String, String>>,
    refusals: BTreeMap<&'static str, Refuse>,
}

/// How a verb fails from now on.
type Refuse = fn(&'static str, &str) -> SnapError;

impl FakeSnaps {
    pub fn new(disk: &FakeDisk, units: &FakeUnits) -> Self {
        Self { disk: disk.clone(), units: units.clone(), state: Arc::default() }
    }

    /// The services have unit files on the disk, as snapd would have made them.
    pub fn install(&self, snap: &str, services: &[&str]) {
        let services = services.iter().map(|&app| app.to_owned()).collect();
        self.with(|state| state.snaps.insert(snap.to_owned(), services));
    }

    /// The same snapd on what a crash left of the machine.
    pub fn after_crash(&self, disk: &FakeDisk, units: &FakeUnits) -> Self {
        let state = self.with(|state| state.clone());
        Self { disk: disk.clone(), units: units.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// From now on this verb (`alias`, `setting`, `stop`, `start`) fails so.
    pub fn refuse(&self, verb: &'static str, how: Refuse) {
        self.with(|state| state.refusals.insert(verb, how));
    }

    /// All verbs work again.
    pub fn heal(&self) {
        self.with(|state| state.refusals.clear());
    }

    fn change(
        &self,
        operation: &'static str,
        what: &str,
        snap: &str,
        change: impl FnOnce(&mut State),
    ) -> Result<(), SnapError> {
        let failed = |source: io::Error| unreachable(source);
        let verdict = self.disk.crash_point().operation(format!("snap {operation} {what}")).map_err(failed)?;
        self.require(operation, snap)?;
        if let Some(refuse) = self.with(|state| state.refusals.get(operation).copied()) {
            return Err(refuse(operation, what));
        }
        self.with(change);
        match verdict {
            Verdict::Do => Ok(()),
            Verdict::DoThenDie(_) => Err(failed(crashed())),
        }
    }

    fn require(&self, operation: &'static str, snap: &str) -> Result<Vec<String>, SnapError> {
        self.disk.crash_point().read().map_err(unreachable)?;
        let missing =
            || SnapError::NotFound { operation, what: snap.to_owned(), message: format!("snap \"{snap}\" not found") };
        self.with(|state| state.snaps.get(snap).cloned()).ok_or_else(missing)
    }

    fn service_units(&self, snap: &str) -> Vec<UnitName> {
        let services = self.with(|state| state.snaps.get(snap).cloned().unwrap_or_default());
        services.iter().map(|app| unit_of(snap, app)).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn unreachable(source: io::Error) -> SnapError {
    SnapError::Unreachable { socket: SOCKET, source: source.into() }
}

fn unit_of(snap: &str, app: &str) -> UnitName {
    UnitName(format!("snap.{snap}.{app}.service"))
}

impl Snaps for FakeSnaps {
    fn aliases(&self) -> Result<BTreeMap<String, String>, SnapError> {
        self.disk.crash_point().read().map_err(unreachable)?;
        Ok(self.with(|state| state.aliases.clone()))
    }

    fn settings(&self, snap: &str) -> Result<BTreeMap<String, String>, SnapError> {
        self.require("look at settings", snap)?;
        Ok(self.with(|state| state.settings.get(snap).cloned().unwrap_or_default()))
    }

    fn services(&self, snap: &str) -> Result<Vec<SnapService>, SnapError> {
        let services = self.require("look at services", snap)?;
        let state = |app: String| {
            let active =
                self.units.state(&unit_of(snap, &app)).map_err(|error| unreachable(io::Error::other(error)))?;
            Ok(SnapService { app, active: active.active == ActiveState::Active })
        };
        services.into_iter().map(state).collect()
    }

    fn add_alias(&self, alias: &str, app: &str, _deadline: Duration) -> Result<(), SnapError> {
        let snap = app.split('.').next().unwrap_or(app);
        self.change("alias", alias, snap, |state| {
            state.aliases.insert(alias.to_owned(), app.to_owned());
        })
    }

    fn remove_alias(&self, alias: &str, _deadline: Duration) -> Result<(), SnapError> {
        let app = self.with(|state| state.aliases.get(alias).cloned()).unwrap_or_default();
        self.change("unalias", alias, app.split('.').next().unwrap_or_default(), |state| {
            state.aliases.remove(alias);
        })
    }

    fn set(
        &self,
        snap: &str,
        settings: &BTreeMap<String, Option<String>>,
        _deadline: Duration,
    ) -> Result<(), SnapError> {
        self.change("setting", snap, snap, |state| {
            let known = state.settings.entry(snap.to_owned()).or_default();
            for (key, value) in settings {
                match value {
                    Some(value) => drop(known.insert(key.clone(), value.clone())),
                    None => drop(known.remove(key)),
                }
            }
        })
    }

    fn stop(&self, snap: &str, _deadline: Duration) -> Result<(), SnapError> {
        let units = self.service_units(snap);
        self.change("stop", snap, snap, |_| {
            units.iter().for_each(|unit| self.units.set_active(unit, ActiveState::Inactive));
        })
    }

    fn start(&self, snap: &str, _deadline: Duration) -> Result<(), SnapError> {
        let units = self.service_units(snap);
        self.change("start", snap, snap, |_| units.iter().for_each(|unit| self.units.start_by_others(unit)))
    }
}
