//! Units of the image that shall not run: stopped, without the links by which they start at boot, and masked if the bundle says
//! so. What was there before comes back with the same links.

use std::path::Path;

use bundle::resource::Difference;
use bundle::resource::unit::{FoundIdle, compare_idle};
use bundle::{Bundle, IdleUnit, Idleness, MASK, UNIT_FOLDER};
use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::files::{self, FileError};
use host::units::ActiveState;

use super::super::record::{self, FileRecord, Links, RECORD_PATH, Record};
use super::super::tree::links::{replace, target_of};
use super::super::{Node, Undoing, host_name};
use super::{links, state};
use crate::failure::{disk_error, file_error, unit_error};

/// Links in these folders are a part of the image, or of this boot: nobody takes them away.
const FIXED_ROOTS: [&str; 3] = ["/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// Places of masks.
pub(crate) fn masks(bundle: &Bundle) -> impl Iterator<Item = String> {
    bundle.idle_units.iter().filter_map(IdleUnit::mask)
}

/// A link that only a mask is a match for. It would start the unit at the next boot, so "disabled" would not be true.
pub(super) fn check_possible(node: &Node<'_>, units: &[IdleUnit]) -> Result<Condition, StepError> {
    for unit in units.iter().filter(|unit| unit.idleness == Idleness::Disabled) {
        if let Some(link) = fixed_link(node.tools.disk, &unit.name).map_err(|error| disk_error(&error))? {
            let message =
                format!("{} cannot be disabled: {link} starts it at boot, and is a part of the image", unit.name);
            return Err(
                StepError::permanent(message).with_advice("say state: masked in the spec, render and deliver again")
            );
        }
    }
    Ok(Condition::AlreadySo)
}

fn fixed_link(disk: &dyn Disk, unit: &str) -> Result<Option<String>, DiskError> {
    for root in FIXED_ROOTS {
        for folder in disk.list(Path::new(root))? {
            let link = format!("{root}/{folder}/{unit}");
            let is_for_boot = folder.ends_with(".wants") || folder.ends_with(".requires");
            if is_for_boot && disk.stat(Path::new(&link))?.is_some() {
                return Ok(Some(link));
            }
        }
    }
    Ok(None)
}

pub(super) fn keep(node: &Node<'_>, record: &mut Record) -> Result<(), StepError> {
    let failed = |error: DiskError| disk_error(&error);
    let disk = node.tools.disk;
    for unit in &node.bundle.idle_units {
        if !record.idle.contains_key(&*unit.name) {
            // What an earlier bundle enabled has links of ours only.
            let was_enabled = record.units.get(&*unit.name).is_none_or(|was| was.enabled);
            let found = if was_enabled { links(disk)?.remove(&*unit.name).unwrap_or_default() } else { Links::new() };
            record.idle.insert(unit.name.to_string(), found);
        }
        if let Some(place) = unit.mask() {
            keep_mask(disk, record, &place).map_err(failed)?;
        }
    }
    Ok(())
}

fn keep_mask(disk: &dyn Disk, record: &mut Record, place: &str) -> Result<(), DiskError> {
    if !record.files.contains_key(place) {
        // A unit file is small enough for a copy.
        let before = match disk.stat(Path::new(place))?.map(|stat| stat.kind) {
            Some(Kind::File) => record::look(disk, place)?,
            _ => record::look_for_link(disk, place)?,
        };
        record.files.insert(place.to_owned(), FileRecord::of_link(before));
    }
    let found = target_of(disk, place)?;
    if let Some(known) = record.files.get_mut(place) {
        known.will_lead(MASK, found.as_deref());
    }
    Ok(())
}

/// Why something has to be done about one of them.
pub(super) fn check(node: &Node<'_>, units: &[IdleUnit], history: &History) -> Result<Condition, StepError> {
    let disk = node.tools.disk;
    let links = links(disk)?;
    for unit in units {
        if links.contains_key(&*unit.name) {
            return Ok(Condition::Needed(format!("{} starts at boot", unit.name)));
        }
        if let Some(place) = unit.mask() {
            if target_of(disk, &place).map_err(|error| disk_error(&error))?.as_deref() != Some(MASK) {
                return Ok(Condition::Needed(format!("{} is not masked yet", unit.name)));
            }
            if files::has_leftover(disk, Path::new(&place)).map_err(|error| file_error(&error))? {
                return Ok(Condition::Needed(format!("{place}: left over by an interrupted run")));
            }
        }
        // One that is only disabled may have been started by another unit since.
        let shall_rest = unit.idleness == Idleness::Masked || !history.done_before;
        if shall_rest && runs(state(node, &unit.name)?.active) {
            return Ok(Condition::Needed(format!("{} runs", unit.name)));
        }
    }
    Ok(Condition::AlreadySo)
}

fn runs(active: ActiveState) -> bool {
    matches!(active, ActiveState::Active | ActiveState::Activating | ActiveState::MaskedRunning)
}

/// Stopped first: what is masked already would only be harder to find.
pub(super) fn apply(node: &Node<'_>, units: &[IdleUnit], context: &StepContext<'_>) -> Result<(), StepError> {
    let disk = node.tools.disk;
    node.forget_starts(units.iter().map(|unit| &unit.name))?;
    // What was there before is known before it is taken away.
    files::sync_all(disk, &[Path::new(RECORD_PATH)]).map_err(|error| file_error(&error))?;
    for unit in units {
        let left = node.tools.remaining(context);
        node.tools.units.stop_and_wait(&host_name(&unit.name), left).map_err(|error| unit_error(&error))?;
    }
    let all = links(disk)?;
    let made = || -> Result<(), FileError> {
        for unit in units {
            for link in all.get(&*unit.name).into_iter().flat_map(Links::keys) {
                remove(disk, link)?;
            }
            if let Some(place) = unit.mask() {
                replace(disk, &place, MASK)?;
            }
        }
        files::sync_all(disk, &[Path::new(UNIT_FOLDER)])
    };
    made().map_err(|error| file_error(&error))
}

/// As `systemctl disable` does it: with the folder, if it is empty then.
fn remove(disk: &dyn Disk, link: &str) -> Result<(), DiskError> {
    disk.remove(Path::new(link))?;
    match Path::new(link).parent().filter(|folder| *folder != Path::new(UNIT_FOLDER)) {
        Some(folder) if disk.list(folder)?.is_empty() => disk.remove(folder).map(drop),
        _ => Ok(()),
    }
}

pub(super) fn verify(node: &Node<'_>, unit: &IdleUnit) -> Result<Vec<Difference>, StepError> {
    let disk = node.tools.disk;
    let is_masked = match unit.mask() {
        Some(place) => target_of(disk, &place).map_err(|error| disk_error(&error))?.as_deref() == Some(MASK),
        None => false,
    };
    let is_enabled = links(disk)?.contains_key(&*unit.name);
    let runs = runs(state(node, &unit.name)?.active);
    Ok(compare_idle(unit, &FoundIdle { is_masked, is_enabled, runs }))
}

/// Links that are not there any more. What somebody put in their place is theirs.
fn missing<'r>(on: &Undoing<'r>) -> Result<Vec<(&'r String, &'r String)>, StepError> {
    let (disk, mut missing) = (on.tools.disk, Vec::new());
    for (link, target) in on.record.idle.values().flatten() {
        let is_there = disk.stat(Path::new(link)).map_err(|error| disk_error(&error))?.is_some();
        if !is_there || files::has_leftover(disk, Path::new(link)).map_err(|error| file_error(&error))? {
            missing.push((link, target));
        }
    }
    Ok(missing)
}

pub(super) fn check_restored(on: &Undoing<'_>) -> Result<Condition, StepError> {
    Ok(match missing(on)?.first() {
        Some((link, _)) => Condition::Needed(format!("{link} is not as it was before")),
        None => Condition::AlreadySo,
    })
}

pub(super) fn restore(on: &Undoing<'_>) -> Result<(), StepError> {
    let disk = on.tools.disk;
    let missing = missing(on)?;
    let restored = || -> Result<(), FileError> {
        for (link, target) in missing {
            files::remove_leftover(disk, Path::new(link))?;
            if disk.stat(Path::new(link))?.is_none() {
                files::replace_link(disk, Path::new(link), target)?;
            }
        }
        files::sync_all(disk, &[Path::new(UNIT_FOLDER)])
    };
    restored().map_err(|error| file_error(&error))
}
