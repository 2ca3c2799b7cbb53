//! [`Units`] for a root that is only a folder: no service runs, but the books are kept as systemd would keep them.
//!
//! In: unit files under the root. Out: the links of `enable` under `/etc/systemd/system`, and in
//! [`STATE_FILE`] which units were "started" how often. A unit without a file is `NotFound`, a masked one is `Masked`,
//! as in the real thing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::unit_file::{self, Found, Install, parse_install};
use super::{ActiveState, Transient, UnitError, UnitName, UnitState, Units};
use crate::disk::{Disk, DiskError, Kind};
use crate::files::{self, FileError};

const STATE_FILE: &str = "/run/nodestrap/stand-in-units.json";
/// A few hundred units would fit; more is not ours.
const STATE_FILE_LIMIT: u64 = 1024 * 1024;
const LINK_FOLDER: &str = "/etc/systemd/system";

pub struct StandInUnits {
    disk: Arc<dyn Disk>,
    /// Two threads must not write the state file at once.
    writing: Mutex<()>,
}

#[derive(Default, Serialize, Deserialize)]
struct Books {
    units: BTreeMap<String, Page>,
    /// How often a reboot was asked for; nobody does it.
    #[serde(default, skip_serializing_if = "is_zero")]
    reboots: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Default, Serialize, Deserialize)]
struct Page {
    restarts: u64,
}

impl StandInUnits {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, writing: Mutex::new(()) }
    }

    fn books(&self) -> Result<Books, UnitError> {
        let failed = |source| call("read the state", STATE_FILE, source);
        match self.disk.read(Path::new(STATE_FILE), STATE_FILE_LIMIT).map_err(|e| failed(e.into()))? {
            None => Ok(Books::default()),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|e| failed(e.into())),
        }
    }

    fn record_restart(&self, operation: &'static str, unit: &UnitName) -> Result<(), UnitError> {
        require_file(&*self.disk, operation, unit)?;
        self.record(operation, &unit.0, |books| books.units.entry(unit.0.clone()).or_default().restarts += 1)
    }

    fn record(&self, operation: &'static str, what: &str, write: impl FnOnce(&mut Books)) -> Result<(), UnitError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut books = self.books()?;
        write(&mut books);
        let failed = |source| call(operation, what, source);
        let text = serde_json::to_vec_pretty(&books).map_err(|e| failed(e.into()))?;
        files::write_volatile(&*self.disk, Path::new(STATE_FILE), 0o644, &text).map_err(|e| failed(e.into()))
    }
}

impl Units for StandInUnits {
    fn state(&self, unit: &UnitName) -> Result<UnitState, UnitError> {
        let file = find(&*self.disk, "look at", unit)?;
        let active = match &file {
            Found::Absent => ActiveState::NotFound,
            Found::Masked if self.books()?.units.contains_key(&unit.0) => ActiveState::MaskedRunning,
            Found::Masked => ActiveState::Masked,
            Found::File { .. } if self.books()?.units.contains_key(&unit.0) => ActiveState::Active,
            Found::File { .. } => ActiveState::Inactive,
        };
        let enabled = is_enabled(&*self.disk, unit, &file).map_err(|e| call("look at", &unit.0, e.into()))?;
        Ok(UnitState { active, enabled, result: "success".to_owned(), needs_reload: false })
    }

    fn reload(&self, _deadline: Duration) -> Result<(), UnitError> {
        Ok(())
    }

    fn enable(&self, units: &[UnitName]) -> Result<(), UnitError> {
        enable_on_disk(&*self.disk, units)
    }

    fn restart_and_watch(
        &self,
        unit: &UnitName,
        _deadline: Duration,
        _look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        self.record_restart("restart", unit)
    }

    fn run_transient(
        &self,
        transient: &Transient,
        _deadline: Duration,
        _look: &mut (dyn FnMut() + Send),
    ) -> Result<(), UnitError> {
        Err(call("run", &transient.unit.0, "a folder that stands for a machine runs no programs".into()))
    }

    fn wait_until_ended(&self, _unit: &UnitName, _deadline: Duration) -> Result<(), UnitError> {
        Ok(())
    }

    fn reload_or_restart_and_wait(&self, unit: &UnitName, _deadline: Duration) -> Result<(), UnitError> {
        self.record_restart("reload", unit)
    }

    fn queue_start(&self, unit: &UnitName) -> Result<(), UnitError> {
        require_file(&*self.disk, "queued start", unit)?;
        if self.books()?.units.contains_key(&unit.0) { Ok(()) } else { self.record_restart("queued start", unit) }
    }

    fn queue_restart(&self, unit: &UnitName) -> Result<(), UnitError> {
        self.record_restart("queued restart", unit)
    }

    fn reset_failed(&self, unit: &UnitName) -> Result<(), UnitError> {
        // Nothing runs here, so nothing fails.
        require_file(&*self.disk, "reset", unit).map(drop)
    }

    fn stop_and_wait(&self, unit: &UnitName, _deadline: Duration) -> Result<(), UnitError> {
        match self.books()?.units.contains_key(&unit.0) {
            true => self.record("stop", &unit.0, |books| books.units.retain(|name, _| *name != unit.0)),
            false => Ok(()),
        }
    }

    fn disable(&self, units: &[UnitName]) -> Result<(), UnitError> {
        disable_on_disk(&*self.disk, units)
    }

    fn reboot(&self) -> Result<(), UnitError> {
        self.record("reboot", "this folder", |books| books.reboots += 1)
    }

    fn log(&self, _unit: &UnitName, _lines: &[&str]) {
        // Nothing runs here, so nothing speaks.
    }

    /// A folder has no clock of its own.
    fn is_clock_synchronised(&self) -> Option<bool> {
        None
    }

    fn run_processes(&self) -> bool {
        false
    }

    fn describe(&self) -> &'static str {
        "a stand-in that keeps books under the root folder (no service is really started)"
    }
}

/// Makes the links that `systemctl enable` would make, for the units and those in their `Also=`. As with systemd, when
/// they become durable is left to the kernel.
pub(crate) fn enable_on_disk(disk: &dyn Disk, units: &[UnitName]) -> Result<(), UnitError> {
    let mut todo: Vec<UnitName> = units.iter().rev().cloned().collect();
    let mut seen = BTreeSet::new();
    while let Some(unit) = todo.pop() {
        if !seen.insert(unit.clone()) {
            continue;
        }
        let (path, install) = require_file(disk, "enable", &unit)?;
        for link in links(&unit, &install) {
            ensure_link(disk, &link, &path).map_err(|source| call("enable", &unit.0, source.into()))?;
        }
        todo.extend(install.also.into_iter().rev().map(UnitName));
    }
    Ok(())
}

/// Takes every link to these units away, as systemd does, whatever their files say now; and the folders that are empty then.
pub(crate) fn disable_on_disk(disk: &dyn Disk, units: &[UnitName]) -> Result<(), UnitError> {
    for unit in units {
        let failed = |source: DiskError| call("disable", &unit.0, source.into());
        for link in links_to(disk, unit).map_err(failed)? {
            remove_link(disk, &link).map_err(failed)?;
        }
    }
    Ok(())
}

fn links_to(disk: &dyn Disk, unit: &UnitName) -> Result<Vec<PathBuf>, DiskError> {
    let folder = Path::new(LINK_FOLDER);
    let mut places = Vec::new();
    for name in disk.list(folder)? {
        let path = folder.join(&name);
        match name.ends_with(".wants") || name.ends_with(".requires") {
            true => places.extend(disk.list(&path)?.into_iter().map(|link| path.join(link))),
            false => places.push(path),
        }
    }
    let mut found = Vec::new();
    for place in places {
        if let Some(Kind::Link { target }) = disk.stat(&place)?.map(|stat| stat.kind)
            && target.rsplit('/').next() == Some(&unit.0)
        {
            found.push(place);
        }
    }
    Ok(found)
}

fn remove_link(disk: &dyn Disk, link: &Path) -> Result<(), DiskError> {
    if matches!(disk.stat(link)?.map(|stat| stat.kind), Some(Kind::Link { .. })) {
        disk.remove(link)?;
    }
    match link.parent() {
        Some(folder) if folder != Path::new(LINK_FOLDER) && disk.stat(folder)?.is_some() => {
            if disk.list(folder)?.is_empty() {
                disk.remove(folder)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether at least one link of `[Install]` is there: what systemd calls enabled.
pub(crate) fn is_enabled(disk: &dyn Disk, unit: &UnitName, found: &Found) -> Result<bool, DiskError> {
    let Found::File { content, .. } = found else { return Ok(false) };
    for link in links(unit, &parse_install(content)) {
        if matches!(disk.stat(&link)?.map(|stat| stat.kind), Some(Kind::Link { .. })) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn find(disk: &dyn Disk, operation: &'static str, unit: &UnitName) -> Result<Found, UnitError> {
    unit_file::find(disk, unit).map_err(|source| call(operation, &unit.0, source.into()))
}

pub(crate) fn require_file(
    disk: &dyn Disk,
    operation: &'static str,
    unit: &UnitName,
) -> Result<(PathBuf, Install), UnitError> {
    match find(disk, operation, unit)? {
        Found::Absent => Err(UnitError::NotFound { unit: unit.0.clone() }),
        Found::Masked => Err(UnitError::Masked { unit: unit.0.clone() }),
        Found::File { path, content } => Ok((path, parse_install(&content))),
    }
}

fn links(unit: &UnitName, install: &Install) -> Vec<PathBuf> {
    let folder = Path::new(LINK_FOLDER);
    let wants = install.wanted_by.iter().map(|target| folder.join(format!("{target}.wants")).join(&unit.0));
    let requires = install.required_by.iter().map(|target| folder.join(format!("{target}.requires")).join(&unit.0));
    let aliases = install.alias.iter().filter(|alias| **alias != unit.0).map(|alias| folder.join(alias));
    wants.chain(requires).chain(aliases).collect()
}

fn ensure_link(disk: &dyn Disk, link: &Path, target: &Path) -> Result<(), FileError> {
    let folder = link.parent().unwrap_or(Path::new("/"));
    let target = target.display().to_string();
    disk.make_folder(folder, 0o755)?;
    let found = disk.stat(link)?.map(|stat| stat.kind);
    if found != Some(Kind::Link { target: target.clone() }) {
        // As with systemd's `force`: a link to another unit gives way, anything else does not.
        match found {
            None => {}
            Some(Kind::Link { .. }) => drop(disk.remove(link)?),
            Some(Kind::Folder) => return Err(FileError::FolderInTheWay { path: link.display().to_string() }),
            Some(_) => return Err(FileError::OtherInTheWay { path: link.display().to_string() }),
        }
        disk.symlink(&target, link)?;
    }
    Ok(())
}

fn call(operation: &'static str, what: &str, source: Box<dyn std::error::Error + Send + Sync>) -> UnitError {
    UnitError::Call { operation, what: what.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDisk;

    fn units_with(files: &[(&str, &str)]) -> (FakeDisk, StandInUnits) {
        let disk = FakeDisk::new();
        disk.make_folder(Path::new(LINK_FOLDER), 0o755).unwrap();
        for (name, text) in files {
            disk.create(&Path::new(LINK_FOLDER).join(name), 0o644, text.as_bytes()).unwrap();
        }
        (disk.clone(), StandInUnits::new(Arc::new(disk)))
    }

    fn name(unit: &str) -> UnitName {
        UnitName(unit.to_owned())
    }

    #[test]
    fn enables_as_the_install_section_says() {
        let (disk, units) = units_with(&[
            ("a.service", "[Install]\nWantedBy=multi-user.target\nAlias=c.service\nAlso=b.service"),
            ("b.service", "[Install]\nRequiredBy=a.target\nAlso=a.service"),
        ]);
        assert!(!units.state(&name("a.service")).unwrap().enabled);
        for _ in 0..2 {
            units.enable(&[name("a.service")]).unwrap();
        }
        let target = |path: &str| disk.stat(&Path::new(LINK_FOLDER).join(path)).unwrap().unwrap().kind;
        let link = |unit: &str| Kind::Link { target: format!("{LINK_FOLDER}/{unit}") };
        assert_eq!(target("multi-user.target.wants/a.service"), link("a.service"));
        assert_eq!(target("c.service"), link("a.service"));
        assert_eq!(target("a.target.requires/b.service"), link("b.service"));
        assert!(units.state(&name("a.service")).unwrap().enabled);
    }

    #[test]
    fn remembers_starts_across_processes() {
        let (disk, units) = units_with(&[("a.service", "[Service]\n")]);
        assert_eq!(units.state(&name("a.service")).unwrap().active, ActiveState::Inactive);
        units.restart_and_wait(&name("a.service"), Duration::ZERO).unwrap();
        units.queue_restart(&name("a.service")).unwrap();
        let later = StandInUnits::new(Arc::new(disk));
        assert_eq!(later.state(&name("a.service")).unwrap().active, ActiveState::Active);
        assert_eq!(later.books().unwrap().units["a.service"].restarts, 2);
    }

    #[test]
    fn refuses_unknown_and_masked_units() {
        let (disk, units) = units_with(&[("dir.service", "[Install]\nWantedBy=a.target")]);
        disk.symlink("/dev/null", &Path::new(LINK_FOLDER).join("m.service")).unwrap();
        assert!(
            matches!(units.queue_restart(&name("x.service")), Err(UnitError::NotFound { unit }) if unit == "x.service")
        );
        assert!(matches!(units.enable(&[name("m.service")]), Err(UnitError::Masked { .. })));
        assert_eq!(units.state(&name("x.service")).unwrap().active, ActiveState::NotFound);
        assert_eq!(units.state(&name("m.service")).unwrap().active, ActiveState::Masked);
        disk.make_folder(&Path::new(LINK_FOLDER).join("a.target.wants/dir.service"), 0o755).unwrap();
        assert!(matches!(units.enable(&[name("dir.service")]), Err(UnitError::Call { .. })));
        assert!(units.describe().contains("stand-in"));
    }
}
