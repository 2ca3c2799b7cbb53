//! Images: placed whole, proved, and told from those of others.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use bundle::resource::extension::State;
use bundle::{Extension, ExtensionName};
use engine::{Condition, StepContext, StepError};
use host::disk::{Disk, DiskError, Kind};
use host::doubt;
use host::files;

use super::super::Node;
use super::super::record::RECORD_PATH;
use super::super::tree::links::target_of;
use super::merge;
use crate::artefacts::{look_at_copy, obtain, place_copy};
use crate::failure::{disk_error, file_error};

const STAGING: &str = ".nodestrap-new";

/// By its name and size alone.
pub(super) fn is_there(disk: &dyn Disk, extension: &Extension) -> Result<bool, StepError> {
    let found = disk.stat(Path::new(&extension.image())).map_err(|error| disk_error(&error))?;
    Ok(found.is_some_and(|stat| stat.kind == Kind::File && stat.size == extension.artefact.size))
}

/// Every byte is read, from the disk itself.
pub(crate) fn state(disk: &dyn Disk, extension: &Extension) -> Result<State, DiskError> {
    look_at_copy(disk, Path::new(&extension.image()), &extension.artefact)
}

pub(super) fn is_proved(node: &Node<'_>, name: ExtensionName) -> bool {
    node.proved_extensions.lock().unwrap_or_else(PoisonError::into_inner).contains(&name)
}

fn note_proved(node: &Node<'_>, name: ExtensionName) {
    node.proved_extensions.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
}

pub(super) fn check(node: &Node<'_>, extensions: &[&Extension]) -> Result<Condition, StepError> {
    if node.is_in_doubt()? {
        let why = "a sync failed in this boot, so what can be read need not be on the disk: placed anew";
        return Ok(Condition::Needed(why.to_owned()));
    }
    for extension in extensions {
        match state(node.tools.disk, extension).map_err(|error| disk_error(&error))? {
            State::Whole => note_proved(node, extension.name),
            State::Absent => return Ok(Condition::Needed(format!("{} is not there", extension.image()))),
            State::Damaged => return Ok(Condition::Needed(format!("{} has other bytes", extension.image()))),
        }
    }
    Ok(Condition::AlreadySo)
}

/// Under another name, synced, and only then what a link may lead to.
pub(super) fn place(node: &Node<'_>, extension: &Extension, context: &StepContext<'_>) -> Result<(), StepError> {
    let mut object = obtain(node, extension, context)?;
    let disk = node.tools.disk;
    let (home, image) = (PathBuf::from(extension.name.home()), PathBuf::from(extension.image()));
    let staging = format!(".{}{STAGING}", extension.file_name());
    let in_use = target_of(disk, &extension.name.link()).map_err(|error| disk_error(&error))?;
    if in_use.as_deref() == Some(&extension.image()) {
        // It is mended: who runs its programs has to start anew, from what is merged then.
        node.forget_starts(&extension.read_by.units)?;
        merge::note_changed(disk)?;
    }
    // What was here before is known before there is anything of ours.
    files::sync_all(disk, &[Path::new(RECORD_PATH)]).map_err(|error| file_error(&error))?;
    place_copy(disk, &mut object, &home.join(staging), &image)
}

/// What was placed is on the disk, and not in the memory of the kernel alone.
pub(super) fn prove(node: &Node<'_>, extension: &Extension) -> Result<(), StepError> {
    if is_proved(node, extension.name) {
        return Ok(());
    }
    match state(node.tools.disk, extension).map_err(|error| disk_error(&error))? {
        State::Whole => {
            note_proved(node, extension.name);
            Ok(())
        }
        found => {
            doubt::cast(node.tools.disk);
            let what = if found == State::Absent { "it is gone" } else { "it has other bytes" };
            let message = format!("read back from the disk, {} differs: {what}", extension.image());
            Err(StepError::needs_operator(message).with_advice(
                "another program changes it (stop it), or the disk loses writes (look at dmesg); the next run places it anew",
            ))
        }
    }
}

/// Versions that nodestrap placed, and what is left of those that it began to. Others may keep theirs in the same folder.
pub(super) fn ours(disk: &dyn Disk, name: ExtensionName) -> Result<Vec<PathBuf>, StepError> {
    let home = PathBuf::from(name.home());
    let names = disk.list(&home).map_err(|error| disk_error(&error))?;
    let is_ours = |file: &&String| {
        let begun = file.strip_prefix('.').and_then(|rest| rest.strip_suffix(STAGING));
        name.owns(begun.unwrap_or(file.as_str()))
    };
    Ok(names.iter().filter(is_ours).map(|file| home.join(file)).collect())
}

/// Durable when it returns.
pub(super) fn remove(disk: &dyn Disk, paths: &[PathBuf]) -> Result<(), StepError> {
    paths.iter().try_for_each(|path| files::remove_durable(disk, path).map(drop)).map_err(|error| file_error(&error))
}
