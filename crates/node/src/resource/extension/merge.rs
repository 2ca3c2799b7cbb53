//! `/usr`: whether what is linked is merged, and how it is.

use std::path::Path;
use std::time::Duration;

use bundle::{Extension, SYSEXT_UNIT, UnitName};
use engine::{Condition, StepContext, StepError};
use host::disk::{Disk, DiskError, Kind, follow};
use host::units::ActiveState;

use super::super::record::UnitRecord;
use super::super::{Node, host_name};
use crate::failure::{disk_error, unit_error};

/// An image is opened and mounted in a moment; systemd waits for udev meanwhile.
pub(crate) const MERGE_DEADLINE: Duration = Duration::from_secs(180);

/// Links were changed in this boot, or are about to be, and `/usr` was not merged since. Lost with the boot, as it should be: what
/// is merged then is what is linked.
const CHANGED_PATH: &str = "/run/nodestrap/extensions-changed";
const MODE: u32 = 0o644;

pub(super) fn note_changed(disk: &dyn Disk) -> Result<(), StepError> {
    let path = Path::new(CHANGED_PATH);
    let note = || -> Result<(), DiskError> {
        if disk.stat(path)?.is_some() {
            return Ok(());
        }
        disk.make_folder(path.parent().unwrap_or(Path::new("/")), 0o755)?;
        disk.create(path, MODE, b"")
    };
    note().map_err(|error| disk_error(&error))
}

/// What is linked is merged.
pub(super) fn settle(disk: &dyn Disk) -> Result<(), StepError> {
    disk.remove(Path::new(CHANGED_PATH)).map(drop).map_err(|error| disk_error(&error))
}

/// Programs of an extension that are not in `/usr`. A folder that stands for a machine merges nothing.
pub(super) fn missing(node: &Node<'_>, extension: &Extension) -> Result<Vec<String>, StepError> {
    if !node.tools.units.run_processes() {
        return Ok(Vec::new());
    }
    let release = extension.name.release_path();
    let mut missing = Vec::new();
    for path in extension.programs.iter().map(|program| program.as_str()).chain([release.as_str()]) {
        let found = follow(node.tools.disk, Path::new(path)).map_err(|error| disk_error(&error))?;
        if !found.is_some_and(|stat| stat.kind == Kind::File) {
            missing.push(path.to_owned());
        }
    }
    Ok(missing)
}

fn is_enabled(node: &Node<'_>) -> Result<bool, StepError> {
    let state = node.tools.units.state(&host_name(SYSEXT_UNIT)).map_err(|error| unit_error(&error))?;
    // One without an `[Install]` section is started by the system itself.
    let unit: Vec<UnitName> = UnitName::new(SYSEXT_UNIT).into_iter().collect();
    Ok(state.enabled || node.installable(&unit)?.is_empty())
}

pub(super) fn look_at_unit(node: &Node<'_>) -> Result<UnitRecord, StepError> {
    let state = node.tools.units.state(&host_name(SYSEXT_UNIT)).map_err(|error| unit_error(&error))?;
    let active = matches!(state.active, ActiveState::Active | ActiveState::Activating);
    Ok(UnitRecord { enabled: state.enabled, active })
}

pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    if node.tools.disk.stat(Path::new(CHANGED_PATH)).map_err(|error| disk_error(&error))?.is_some() {
        return Ok(Condition::Needed("what is linked is not merged yet".to_owned()));
    }
    for extension in &node.bundle.extensions {
        if let Some(program) = missing(node, extension)?.first() {
            return Ok(Condition::Needed(format!("{program} of {} is not there", extension.title())));
        }
    }
    Ok(match is_enabled(node)? {
        true => Condition::AlreadySo,
        false => Condition::Needed(format!("{SYSEXT_UNIT} does not start at boot yet")),
    })
}

/// systemd reports success also where it has passed over an image, so each program is looked for.
pub(super) fn merge(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let (units, name) = (node.tools.units, host_name(SYSEXT_UNIT));
    if !is_enabled(node)? {
        units.enable(std::slice::from_ref(&name)).map_err(|error| unit_error(&error))?;
    }
    // Programs that run from `/usr` go on: what they have open stays.
    let left = node.tools.remaining(context);
    units.reload_or_restart_and_wait(&name, left).map_err(|error| unit_error(&error))?;
    for extension in &node.bundle.extensions {
        let missing = missing(node, extension)?;
        if !missing.is_empty() {
            let message = format!(
                "{SYSEXT_UNIT} has run, and of {} these are not there: {}",
                extension.title(),
                missing.join(", ")
            );
            return Err(StepError::needs_operator(message).with_advice(format!(
                "see journalctl -u {SYSEXT_UNIT} and systemd-sysext status for why it passed over {}",
                extension.image()
            )));
        }
    }
    settle(node.tools.disk)
}
