//! Units on a node: enabled, started with the files that they read, and left as they were before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bundle::resource::unit::{Activity, Found, compare};
use bundle::resource::{Aspect, Difference};
use bundle::{BOOTSTRAP_UNIT, Bundle, IdleUnit, Start, UNIT_FOLDER, Unit, UnitName, UnitNature};
use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, Kind};
use host::files;
use host::units::unit_file::{self, Found as FoundFile};
use host::units::{ActiveState, UnitState};
use serde::{Deserialize, Serialize};

use super::record::{Links, Record, UnitRecord};
use super::started::Durable;
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified, first_that, host_name, short};
use crate::failure::{chain, disk_error, file_error, unit_error};
use crate::reset::ResetAction;

pub(crate) mod idle;

pub(crate) struct UnitFamily;

/// A unit that does not stop is ended by systemd after 90 seconds.
const UNDO_DEADLINE: Duration = Duration::from_secs(300);

/// Where systemd looks for drop-ins of a unit.
const DROP_IN_ROOTS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    ReloadUnits {
        units: Vec<UnitName>,
    },
    EnableUnits {
        units: Vec<UnitName>,
    },
    /// What shall not start at boot can be kept from it.
    CheckIdleUnits {
        units: Vec<IdleUnit>,
    },
    /// Units of the image are stopped, and disabled or masked.
    IdleUnits {
        units: Vec<IdleUnit>,
    },
    /// Started, or started anew with the new files, and waited for.
    StartUnit {
        unit: UnitName,
    },
    /// The start job is queued while the gate is still shut: if this process dies after opening it, the unit starts all the
    /// same.
    ArmUnit {
        unit: UnitName,
    },
    ResetUnit {
        unit: UnitName,
    },
    /// The unit is ordered after the bootstrap unit, so its job is queued and not waited for.
    ReleaseUnit {
        unit: UnitName,
    },
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::ReloadUnits { units } => format!("{} unit files", units.len()),
            Self::EnableUnits { units } => units.iter().map(UnitName::as_str).collect::<Vec<_>>().join(" "),
            Self::CheckIdleUnits { units } | Self::IdleUnits { units } => {
                units.iter().map(|unit| format!("{} {}", unit.name, unit.idleness)).collect::<Vec<_>>().join(", ")
            }
            Self::StartUnit { unit } => format!("{unit}, and wait for it"),
            Self::ArmUnit { unit } => format!("{unit}: queued behind the gate"),
            Self::ResetUnit { unit } => format!("{unit}: earlier failures forgotten"),
            Self::ReleaseUnit { unit } => format!("{unit}: free to start"),
        }
    }

    fn check(&self, node: &Node<'_>, history: &History) -> Result<Condition, StepError> {
        match self {
            Self::ReloadUnits { units } => check_reloaded(node, units, history),
            Self::EnableUnits { units } => check_enabled(node, units),
            Self::CheckIdleUnits { units } => idle::check_possible(node, units),
            Self::IdleUnits { units } => idle::check(node, units, history),
            Self::StartUnit { unit } | Self::ReleaseUnit { unit } => check_running(node, unit),
            Self::ArmUnit { unit } => Ok(match state(node, unit)?.active {
                ActiveState::Active | ActiveState::Activating => Condition::AlreadySo,
                ActiveState::Inactive if node.ran_to_its_end(unit)? => Condition::AlreadySo,
                _ => Condition::Needed(format!("{unit} must start even if this run dies after opening the gate")),
            }),
            Self::ResetUnit { unit } => Ok(match state(node, unit)?.active {
                ActiveState::Failed => Condition::Needed(format!("{unit} has failed before")),
                _ => Condition::AlreadySo,
            }),
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let (units, left) = (node.tools.units, node.tools.remaining(context));
        let failed = |error| unit_error(&error);
        match self {
            Self::ReloadUnits { .. } => units.reload(left).map_err(failed),
            Self::EnableUnits { units: wanted } => {
                let (surplus, _) = node.surplus_links(wanted)?;
                units.disable(&names(&surplus)).map_err(failed)?;
                units.enable(&names(&node.installable(wanted)?)).map_err(failed)
            }
            Self::CheckIdleUnits { units } => idle::check_possible(node, units).map(drop),
            Self::IdleUnits { units } => idle::apply(node, units, context),
            Self::StartUnit { unit } => {
                units.restart_and_wait(&host_name(unit), left).map_err(failed)?;
                node.note_start(unit, Durable::Later)
            }
            Self::ArmUnit { unit } => units.queue_start(&host_name(unit)).map_err(failed),
            Self::ResetUnit { unit } => units.reset_failed(&host_name(unit)).map_err(failed),
            Self::ReleaseUnit { unit } => {
                // Armed by a run by hand, the unit waits for the bootstrap unit, which found this run at work and waits to be
                // started again. Where this run is that unit, it does not wait.
                if let Err(error) = units.stop_waiting(&host_name(BOOTSTRAP_UNIT), left) {
                    context.detail(format!("{unit} may start some seconds later: {}", chain(&error)));
                }
                units.queue_restart(&host_name(unit)).map_err(failed)?;
                // Whenever it starts from now on, it reads what is there now; and no sync comes any more.
                node.note_start(unit, Durable::Now)
            }
        }
    }
}

fn names<'u>(units: impl IntoIterator<Item = &'u UnitName>) -> Vec<host::units::UnitName> {
    units.into_iter().map(|unit| host_name(unit)).collect()
}

/// Asked anew each time: while a machine boots, others start units too.
fn state(node: &Node<'_>, unit: &UnitName) -> Result<UnitState, StepError> {
    node.tools.units.state(&host_name(unit)).map_err(|error| unit_error(&error))
}

fn check_reloaded(node: &Node<'_>, units: &[UnitName], history: &History) -> Result<Condition, StepError> {
    if !history.done_before {
        return Ok(Condition::Needed("unit files may have changed".to_owned()));
    }
    let stale = |unit: &&UnitName| {
        let state = state(node, unit)?;
        Ok(state.needs_reload || state.active == ActiveState::NotFound)
    };
    first_that(units, stale, |unit| format!("{unit} changed on disk"))
}

fn check_enabled(node: &Node<'_>, units: &[UnitName]) -> Result<Condition, StepError> {
    let (surplus, missing) = node.surplus_links(units)?;
    if let Some(unit) = surplus.first() {
        return Ok(Condition::Needed(format!("{unit} starts at boot as an earlier bundle wanted it")));
    }
    if let Some(unit) = missing.first() {
        return Ok(Condition::Needed(format!("{unit} does not start at boot as its file says")));
    }
    let disabled = |unit: &&UnitName| Ok(!state(node, unit)?.enabled);
    first_that(&node.installable(units)?, disabled, |unit| format!("{unit} does not start at boot yet"))
}

/// A service that runs may have read older files: only a start that was written down counts.
fn check_running(node: &Node<'_>, unit: &UnitName) -> Result<Condition, StepError> {
    let active = state(node, unit)?.active;
    let with_this = node.is_started_with_this(unit)?;
    Ok(match active {
        ActiveState::Active | ActiveState::Activating if with_this => Condition::AlreadySo,
        ActiveState::Active | ActiveState::Activating => {
            Condition::Needed(format!("{unit} has not been started with these files yet"))
        }
        ActiveState::Inactive if node.ran_to_its_end(unit)? => Condition::AlreadySo,
        _ => Condition::Needed(format!("{unit} does not run")),
    })
}

impl Node<'_> {
    /// A unit that does something and is over, and did it with what it should read.
    fn ran_to_its_end(&self, unit: &UnitName) -> Result<bool, StepError> {
        Ok(self.nature(unit)?.oneshot && self.is_started_with_this(unit)?)
    }

    /// What the file of a unit says: the bundle's, or that of the image.
    pub(crate) fn nature(&self, unit: &UnitName) -> Result<UnitNature, StepError> {
        let brought = self.bundle.units.iter().find(|known| known.name == *unit).and_then(|known| known.brought);
        match brought {
            Some(nature) => Ok(nature),
            None => Ok(UnitNature::of(&unit_text(self.tools.disk, unit)?)),
        }
    }

    /// Those that can be enabled. A unit of the image may be started by others alone: it has no `[Install]`, and systemd would
    /// never call it enabled. One that is not there at all is for systemd to name.
    pub(crate) fn installable(&self, units: &[UnitName]) -> Result<Vec<UnitName>, StepError> {
        let mut installable = Vec::new();
        for unit in units {
            let found = unit_file::find(self.tools.disk, &host_name(unit)).map_err(|error| disk_error(&error))?;
            if !matches!(found, FoundFile::File { content, .. } if !UnitNature::of(&content).installable) {
                installable.push(unit.clone());
            }
        }
        Ok(installable)
    }

    /// Where the links of enabled units will lie.
    pub(crate) fn link_folders(&self) -> Result<Vec<String>, StepError> {
        let enabled = self.bundle.units.iter().filter(|unit| unit.start != Start::ByOthers);
        let mut folders = Vec::new();
        for unit in enabled {
            let text = match self.bundle.unit_file(&unit.name) {
                Some(file) => String::from_utf8_lossy(&file.content).into_owned(),
                None => unit_text(self.tools.disk, &unit.name)?,
            };
            let install = unit_file::parse_install(&text);
            folders.extend(install.wanted_by.iter().map(|target| format!("{UNIT_FOLDER}/{target}.wants")));
            folders.extend(install.required_by.iter().map(|target| format!("{UNIT_FOLDER}/{target}.requires")));
        }
        Ok(folders)
    }

    /// Units that are enabled otherwise than their files say now: first those with wrong links, such as an earlier bundle
    /// wanted, then those with too few. `enabled` are those that shall start at boot. What an administrator adds for a unit of
    /// the image is theirs.
    fn surplus_links(&self, enabled: &[UnitName]) -> Result<(Vec<UnitName>, Vec<UnitName>), StepError> {
        let links = links(self.tools.disk)?;
        let (mut surplus, mut missing) = (Vec::new(), Vec::new());
        for unit in &self.bundle.units {
            let file = unit_file::find(self.tools.disk, &host_name(&unit.name)).map_err(|error| disk_error(&error))?;
            let wanted = match file {
                FoundFile::File { path, content } if enabled.contains(&unit.name) => {
                    wanted_links(&unit.name, &unit_file::parse_install(&content), &path.display().to_string())
                }
                _ => BTreeMap::new(),
            };
            let found = links.get(unit.name.as_str()).cloned().unwrap_or_default();
            // A file of the image has several spellings (`/lib`, `/usr/lib`); whether it is ours has one.
            let is_ours = |target: &str| target.starts_with(UNIT_FOLDER);
            let is_wrong = |(link, target): (&String, &String)| match wanted.get(link) {
                Some(wanted) => target.starts_with('/') && is_ours(wanted) != is_ours(target),
                None => unit.brought.is_some(),
            };
            if found.iter().any(is_wrong) {
                surplus.push(unit.name.clone());
            } else if unit.brought.is_some() && wanted.keys().any(|link| !found.contains_key(link)) {
                missing.push(unit.name.clone());
            }
        }
        Ok((surplus, missing))
    }
}

/// The text of a unit that is on the disk; empty if there is none.
fn unit_text(disk: &dyn Disk, unit: &str) -> Result<String, StepError> {
    Ok(match unit_file::find(disk, &host_name(unit)).map_err(|error| disk_error(&error))? {
        FoundFile::File { content, .. } => content,
        FoundFile::Absent | FoundFile::Masked => String::new(),
    })
}

fn wanted_links(unit: &str, install: &unit_file::Install, target: &str) -> Links {
    let wants = install.wanted_by.iter().map(|target| format!("{UNIT_FOLDER}/{target}.wants/{unit}"));
    let requires = install.required_by.iter().map(|target| format!("{UNIT_FOLDER}/{target}.requires/{unit}"));
    let aliases = install.alias.iter().filter(|alias| *alias != unit).map(|alias| format!("{UNIT_FOLDER}/{alias}"));
    wants.chain(requires).chain(aliases).map(|link| (link, target.to_owned())).collect()
}

/// Every link by which the administrator of a machine enables units, by the unit that it leads to.
fn links(disk: &dyn Disk) -> Result<BTreeMap<String, Links>, StepError> {
    let mut links: BTreeMap<String, Links> = BTreeMap::new();
    let failed = |error: host::disk::DiskError| disk_error(&error);
    let mut note = |path: String| -> Result<(), StepError> {
        if let Some(Kind::Link { target }) = disk.stat(Path::new(&path)).map_err(failed)?.map(|stat| stat.kind) {
            let unit = target.rsplit('/').next().unwrap_or_default().to_owned();
            links.entry(unit).or_default().insert(path, target);
        }
        Ok(())
    };
    for name in disk.list(Path::new(UNIT_FOLDER)).map_err(failed)? {
        let path = format!("{UNIT_FOLDER}/{name}");
        if name.ends_with(".wants") || name.ends_with(".requires") {
            for link in disk.list(Path::new(&path)).map_err(failed)? {
                note(format!("{path}/{link}"))?;
            }
        } else {
            note(path)?;
        }
    }
    Ok(links)
}

/// Units that an apply touches: hooks too, because one may have left something running.
fn touched<'n>(node: &'n Node<'_>) -> impl Iterator<Item = &'n UnitName> {
    let Bundle { units, hooks, idle_units, .. } = node.bundle;
    let started = units.iter().map(|unit| &unit.name).chain(hooks.iter().map(|hook| &hook.unit));
    started.chain(idle_units.iter().map(|unit| &unit.name))
}

impl Family for UnitFamily {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        for unit in touched(node) {
            if !record.units.contains_key(unit.as_str()) {
                record.units.insert(unit.to_string(), look_at(node, unit)?);
            }
        }
        idle::keep(node, record)
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let mut verified = Verified::default();
        for unit in &node.bundle.units {
            verified.drift.extend(verify(node, unit)?);
            verified.remarks.extend(foreign_drop_ins(node, &unit.name)?);
        }
        for unit in &node.bundle.idle_units {
            verified.drift.extend(idle::verify(node, unit)?);
        }
        Ok(verified)
    }

    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        let is_wanted = |name: &str| touched(node).any(|unit| unit == name);
        let units = record.units.iter().filter(|(name, _)| !is_wanted(name));
        obsolete.units.extend(units.map(|(name, was)| (name.clone(), *was)));
        let is_idle = |name: &str| node.bundle.idle_units.iter().any(|unit| unit.name == *name);
        let links = record.idle.iter().filter(|(name, _)| !is_idle(name));
        obsolete.idle.extend(links.map(|(name, links)| (name.clone(), links.clone())));
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let step = |phase, id: String, barrier, action| UndoStep {
            phase,
            id,
            deadline: UNDO_DEADLINE,
            barrier,
            action: ResetAction::Unit(action),
        };
        let ours = record.units.iter().filter(|(_, was)| !was.active).map(|(unit, _)| unit);
        let mut steps: Vec<UndoStep> = ours
            .map(|unit| {
                step(UndoPhase::Stop, format!("stop-{}", short(unit)), false, Undo::StopUnit { unit: unit.clone() })
            })
            .collect();
        let units = record.units.iter().filter(|(_, was)| !was.enabled).map(|(unit, _)| unit.clone()).collect();
        steps.push(step(UndoPhase::Disable, "disable-units".to_owned(), false, Undo::DisableUnits { units }));
        if record.idle.values().any(|links| !links.is_empty()) {
            let units = record.idle.keys().cloned().collect();
            steps.push(step(UndoPhase::Restore, "restore-links".to_owned(), false, Undo::RestoreLinks { units }));
        }
        steps.push(step(UndoPhase::Reload, "reload-units".to_owned(), false, Undo::ReloadUnits));
        let before = record.units.iter().filter(|(_, was)| was.active).map(|(unit, _)| unit);
        steps.extend(before.map(|unit| {
            let restart = Undo::RestartUnit { unit: unit.clone() };
            step(UndoPhase::Restart, format!("restart-{}", short(unit)), true, restart)
        }));
        steps
    }
}

/// The service manager is asked only about units that it can know.
fn look_at(node: &Node<'_>, unit: &UnitName) -> Result<UnitRecord, StepError> {
    let found = unit_file::find(node.tools.disk, &host_name(unit)).map_err(|error| disk_error(&error))?;
    if found == FoundFile::Absent {
        return Ok(UnitRecord::default());
    }
    let state = state(node, unit)?;
    let active = matches!(state.active, ActiveState::Active | ActiveState::Activating);
    Ok(UnitRecord { enabled: state.enabled, active })
}

/// A service manager that does not answer is a finding: a unit that nobody can tell the state of is not verified.
fn verify(node: &Node<'_>, unit: &Unit) -> Result<Vec<Difference>, StepError> {
    let state = match node.tools.units.state(&host_name(&unit.name)) {
        Ok(state) => state,
        Err(error) => return Ok(vec![Difference::new(unit.name.as_str(), Aspect::Active, "known", chain(&error))]),
    };
    let found = Found {
        activity: activity(state.active),
        enabled: state.enabled,
        needs_reload: state.needs_reload,
        result: &state.result,
        nature: nature(node, unit)?,
    };
    Ok(compare(unit, &found))
}

/// What comes with an addon is never enabled.
fn nature(node: &Node<'_>, unit: &Unit) -> Result<UnitNature, StepError> {
    let nature = node.nature(&unit.name)?;
    let installable = nature.installable && !node.bundle.is_brought_by_addon(&unit.name);
    Ok(UnitNature { installable, ..nature })
}

fn activity(active: ActiveState) -> Activity {
    match active {
        ActiveState::Active => Activity::Active,
        ActiveState::Activating => Activity::Activating,
        ActiveState::Deactivating => Activity::Deactivating,
        ActiveState::Inactive => Activity::Inactive,
        ActiveState::Failed => Activity::Failed,
        ActiveState::NotFound => Activity::NotFound,
        ActiveState::Masked | ActiveState::MaskedRunning => Activity::Masked,
    }
}

/// Drop-ins change what a unit does without touching its file. Whoever wrote one may have had a reason: a remark.
fn foreign_drop_ins(node: &Node<'_>, unit: &UnitName) -> Result<Vec<String>, StepError> {
    let mut remarks = Vec::new();
    // `/lib` may be a link to `/usr/lib`: the same drop-in is told of once.
    let mut seen = BTreeSet::new();
    for root in DROP_IN_ROOTS {
        let folder = format!("{root}/{unit}.d");
        let names = node.tools.disk.list(Path::new(&folder)).map_err(|error| disk_error(&error))?;
        for name in names.into_iter().filter(|name| name.ends_with(".conf")) {
            let path = format!("{folder}/{name}");
            if node.bundle.file(&path).is_none() && seen.insert(name) {
                remarks.push(format!("{unit} is changed by {path}, which is not of this bundle"));
            }
        }
    }
    Ok(remarks)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    StopUnit {
        unit: String,
    },
    DisableUnits {
        units: Vec<String>,
    },
    /// Units that did not start at boot because a bundle said so start as they did before.
    RestoreLinks {
        units: Vec<String>,
    },
    ReloadUnits,
    /// It ran before, so it runs on, with its own files.
    RestartUnit {
        unit: String,
    },
}

impl Undo {
    /// It waits in a loop to run `apply` again.
    pub(crate) fn stop_bootstrap() -> Self {
        Self::StopUnit { unit: BOOTSTRAP_UNIT.to_owned() }
    }
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        match self {
            Self::StopUnit { unit } => format!("{unit}, and wait for it"),
            Self::DisableUnits { units } | Self::RestoreLinks { units } => units.join(" "),
            Self::ReloadUnits => "all unit files".to_owned(),
            Self::RestartUnit { unit } => format!("{unit}, with its own files"),
        }
    }

    fn check(&self, on: &Undoing<'_>, history: &History) -> Result<Condition, StepError> {
        let state = |unit: &str| on.tools.units.state(&host_name(unit)).map_err(|error| unit_error(&error));
        match self {
            Self::StopUnit { unit } => Ok(match state(unit)?.active {
                ActiveState::Active
                | ActiveState::Activating
                | ActiveState::Deactivating
                | ActiveState::MaskedRunning => Condition::Needed(format!("{unit} runs")),
                _ => Condition::AlreadySo,
            }),
            Self::DisableUnits { units } => {
                let links = links(on.tools.disk)?;
                let enabled = |unit: &&String| Ok(links.contains_key(unit.as_str()) || state(unit)?.enabled);
                first_that(units, enabled, |unit| format!("{unit} starts at boot"))
            }
            Self::RestoreLinks { .. } => idle::check_restored(on),
            Self::ReloadUnits | Self::RestartUnit { .. } if history.done_before => Ok(Condition::AlreadySo),
            Self::ReloadUnits => Ok(Condition::Needed("unit files may have changed".to_owned())),
            Self::RestartUnit { unit } => Ok(Condition::Needed(format!("{unit} runs with our files"))),
        }
    }

    fn apply(&self, on: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let (manager, left) = (on.tools.units, on.tools.remaining(context));
        let failed = |error| unit_error(&error);
        match self {
            Self::StopUnit { unit } => manager.stop_and_wait(&host_name(unit), left).map_err(failed),
            Self::DisableUnits { units } => {
                let units: Vec<_> = units.iter().map(|unit| host_name(unit)).collect();
                manager.disable(&units).map_err(failed)?;
                // Links that a power cut brings back could not be told from others once their unit files are gone.
                files::sync_all(on.tools.disk, &[Path::new(UNIT_FOLDER)]).map_err(|error| file_error(&error))
            }
            Self::RestoreLinks { .. } => idle::restore(on),
            Self::ReloadUnits => manager.reload(left).map_err(failed),
            Self::RestartUnit { unit } => manager.restart_and_wait(&host_name(unit), left).map_err(failed),
        }
    }
}
