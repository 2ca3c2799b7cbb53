//! What runs in this boot, and whether another boot has to bring what was chosen.

use std::path::Path;

use bundle::resource::{Aspect, Difference};
use bundle::torcx::{Profile, RUNNING_PROFILE_PATH, SEAL_PATH, has_torcx};
use engine::{Condition, StepError};
use host::units::ActiveState;

use super::super::started::Durable;
use super::super::{Node, host_name};
use super::{Chosen, data, image, load_chosen, os_release};
use crate::failure::{disk_error, unit_error};

/// A few images.
const LIMIT: u64 = 1024 * 1024;

/// What torcx has applied in this boot.
pub(super) enum Running {
    /// It says so itself.
    Version(String),
    /// It has applied none of this addon, or failed.
    None,
}

pub(super) fn running(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<Running, StepError> {
    let read = |path: &str| node.tools.disk.read(Path::new(path), LIMIT).map_err(|error| disk_error(&error));
    // Without its seal nothing that needs an addon is started.
    if read(SEAL_PATH)?.is_none() {
        return Ok(Running::None);
    }
    let profile = read(RUNNING_PROFILE_PATH)?.and_then(|bytes| Profile::parse(&bytes).ok());
    let version = profile.as_ref().and_then(|profile| profile.version_of(chosen.name));
    Ok(version.map_or(Running::None, |version| Running::Version(version.to_owned())))
}

/// Why the version that was chosen does not run; `None`: it does.
fn misses(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<Option<String>, StepError> {
    let title = chosen.title();
    Ok(match running(node, chosen)? {
        Running::Version(version) if version == chosen.version.as_str() => None,
        Running::Version(version) => Some(format!("{title} is to run, and {}:{version} does", chosen.name)),
        // A folder that stands for a machine has no torcx: a boot is all that is missing.
        Running::None if !node.tools.units.run_processes() => (chosen.switched_in.as_ref() == Some(&node.boot_id))
            .then(|| format!("{title} is to run from the next boot on")),
        Running::None => Some(format!("{title} is to run, and torcx has applied no {} in this boot", chosen.name)),
    })
}

/// A node that is complete is not rebooted by us: that is for those who drain it first.
pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    if node.is_complete()? {
        return Ok(Condition::AlreadySo);
    }
    if node.is_preview {
        return Ok(Condition::Needed("decided once update_engine was asked".to_owned()));
    }
    if let Some(next) = os_release(node)?.next {
        return Ok(Condition::NeedsReboot(format!("{next} of the operating system is staged")));
    }
    let Some(chosen) = load_chosen(node)? else { return Ok(Condition::AlreadySo) };
    Ok(match misses(node, &chosen)? {
        Some(why) => Condition::NeedsReboot(why),
        None => Condition::AlreadySo,
    })
}

pub(super) fn reboot(node: &Node<'_>) -> Result<(), StepError> {
    if let Some(chosen) = load_chosen(node)? {
        data::mark(node, &chosen)?;
        note_runtime(node)?;
    }
    node.tools.units.reboot().map_err(|error| unit_error(&error))
}

/// The next boot starts it with what is on the disk now, so it need not be started anew by then. One that runs has read something else.
fn note_runtime(node: &Node<'_>) -> Result<(), StepError> {
    let unit = &node.bundle.runtime.unit;
    let state = node.tools.units.state(&host_name(unit)).map_err(|error| unit_error(&error))?;
    match state.active {
        ActiveState::Inactive | ActiveState::NotFound => node.note_start(unit, Durable::Now),
        _ => Ok(()),
    }
}

fn needs_addon(node: &Node<'_>) -> Result<bool, StepError> {
    Ok(has_torcx(&super::choose::current(node)?))
}

pub(super) fn check_verified(node: &Node<'_>) -> Result<Condition, StepError> {
    if !needs_addon(node)? || node.is_complete()? {
        return Ok(Condition::AlreadySo);
    }
    Ok(Condition::Needed("not read from the disk yet".to_owned()))
}

pub(super) fn verify(node: &Node<'_>) -> Result<(), StepError> {
    let chosen = load_chosen(node)?;
    let chosen = chosen.ok_or_else(|| StepError::permanent("no version of the addon was chosen"))?;
    image::prove_current(node, &chosen)?;
    match misses(node, &chosen)? {
        None => Ok(()),
        Some(why) => Err(StepError::needs_operator(why)
            .with_advice("journalctl -b and the log of torcx's generator say why; the next run looks again")),
    }
}

pub(super) fn drift(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<Vec<Difference>, StepError> {
    if !node.tools.units.run_processes() {
        return Ok(Vec::new());
    }
    let found = match running(node, chosen)? {
        Running::Version(version) if version == chosen.version.as_str() => return Ok(Vec::new()),
        Running::Version(version) => format!("{}:{version}", chosen.name),
        Running::None => "nothing".to_owned(),
    };
    Ok(vec![Difference::new(RUNNING_PROFILE_PATH, Aspect::Content, chosen.title(), found)])
}
