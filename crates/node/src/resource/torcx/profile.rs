//! The profile that torcx applies at the next boot: whose it is, and which version of the addon it names.

use std::path::Path;

use bundle::FollowedAddon;
use bundle::resource::{Aspect, Difference};
use bundle::torcx::{NEXT_PROFILE_PATH, Profile, ProfileName, choose_profile};
use engine::{Condition, StepError};
use host::disk::Disk;
use host::files;

use super::super::Node;
use super::super::record::{self, Before, FileRecord, RECORD_PATH, Record};
use super::{Chosen, load_chosen};
use crate::failure::{chain, disk_error, file_error};
use crate::followed;

/// torcx and people read them.
const MODE: u32 = 0o644;
/// A few images.
const LIMIT: u64 = 1024 * 1024;

/// What of torcx's configuration is changed for a bundle, while `record` knows what was there before.
pub(crate) fn paths(node: &Node<'_>, record: &Record) -> Result<Vec<String>, StepError> {
    let Some(addon) = node.wanted_addon() else { return Ok(Vec::new()) };
    Ok(vec![name(node.tools.disk, addon, record)?.path(), NEXT_PROFILE_PATH.to_owned()])
}

/// That which somebody else had chosen before nodestrap came, unless it is the system's own.
fn name(disk: &dyn Disk, addon: &FollowedAddon, record: &Record) -> Result<ProfileName, StepError> {
    let before = match record.files.get(NEXT_PROFILE_PATH).map(|file| &file.before) {
        None => read(disk, NEXT_PROFILE_PATH)?,
        Some(Before::File { sha256, .. }) => record::load_original(disk, sha256).map_err(|error| disk_error(&error))?,
        Some(_) => None,
    };
    let before = before.map(|bytes| ProfileName::parse_next(&String::from_utf8_lossy(&bytes)));
    // torcx passes over a name that cannot be one.
    let before = before.and_then(Result::ok).flatten();
    Ok(choose_profile(before.as_ref(), &addon.profile))
}

fn read(disk: &dyn Disk, path: &str) -> Result<Option<Vec<u8>>, StepError> {
    disk.read(Path::new(path), LIMIT).map_err(|error| disk_error(&error))
}

/// Ours by their names: what stands in them changes with the release of the cluster.
pub(super) fn keep(node: &Node<'_>, addon: &FollowedAddon, record: &mut Record) -> Result<(), StepError> {
    let disk = node.tools.disk;
    for path in [name(disk, addon, record)?.path(), NEXT_PROFILE_PATH.to_owned()] {
        let before = record::look(disk, &path).map_err(|error| disk_error(&error))?;
        let new = FileRecord { any_content: true, ..FileRecord::of_link(before) };
        record.files.entry(path).or_insert(new);
    }
    Ok(())
}

/// Each file with what shall stand in it, the profile before its name.
fn wanted(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<Vec<(String, String)>, StepError> {
    let disk = node.tools.disk;
    let Some(addon) = node.wanted_addon() else { return Ok(Vec::new()) };
    let name = name(disk, addon, &record::load_for_step(disk)?)?;
    let path = name.path();
    let profile = match read(disk, &path)? {
        None => Profile::empty(),
        Some(bytes) => match Profile::parse(&bytes) {
            Ok(profile) => profile,
            // Zero bytes after a power cut, or somebody's slip: torcx could not use it either, and what was there before is kept.
            Err(error) if !bytes.iter().all(|byte| *byte == 0) => return Err(unusable(&path, &chain(&error))),
            Err(_) => Profile::empty(),
        },
    };
    Ok(vec![
        (path, profile.with(chosen.name, &chosen.version).to_json()),
        (NEXT_PROFILE_PATH.to_owned(), name.to_next()),
    ])
}

fn unusable(path: &str, why: &str) -> StepError {
    StepError::needs_operator(format!("the profile {path} of torcx cannot be used: {why}"))
        .with_advice("mend it, or move it away: addons that it names would be lost if nodestrap wrote it anew")
}

pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    let Some(chosen) = load_chosen(node)? else { return Ok(Condition::AlreadySo) };
    for (path, text) in wanted(node, &chosen)? {
        if read(node.tools.disk, &path)?.as_deref() != Some(text.as_bytes()) {
            return Ok(Condition::Needed(format!("{path} does not say {} yet", chosen.title())));
        }
        if files::has_leftover(node.tools.disk, Path::new(&path)).map_err(|error| file_error(&error))? {
            return Ok(Condition::Needed(format!("{path}: left over by an interrupted run")));
        }
    }
    Ok(match node.is_in_doubt()? {
        true => Condition::Needed("a sync failed in this boot: what can be read need not be on the disk".to_owned()),
        false => Condition::AlreadySo,
    })
}

/// Durable when it returns. A boot in between applies the old profile, or the new one; both are whole.
pub(super) fn switch(node: &Node<'_>) -> Result<(), StepError> {
    match load_chosen(node)? {
        Some(chosen) => switch_to(node, &chosen),
        None => Ok(()),
    }
}

pub(super) fn switch_to(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<(), StepError> {
    let (disk, owner) = (node.tools.disk, node.tools.ownership.owner());
    let files = wanted(node, chosen)?;
    let write = || {
        files::sync_all(disk, &[Path::new(RECORD_PATH)])?;
        for (path, text) in &files {
            files::write_durable(disk, Path::new(path), MODE, text.as_bytes(), owner)?;
        }
        Ok(())
    };
    note_switch(node)?;
    write().map_err(|error: files::FileError| file_error(&error))
}

/// Until another boot nothing can run of it.
fn note_switch(node: &Node<'_>) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let known = followed::load(disk, &node.identity.bundle).map_err(|error| disk_error(&error))?;
    let Some(mut known) = known else { return Ok(()) };
    if let Some(addon) = &mut known.addon {
        addon.switched_in = Some(node.boot_id.clone());
    }
    followed::write(disk, &known).map_err(|error| file_error(&error))
}

pub(super) fn drift(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<Vec<Difference>, StepError> {
    let mut drift = Vec::new();
    for (path, text) in wanted(node, chosen)? {
        match read(node.tools.disk, &path)? {
            Some(found) if found == text.as_bytes() => {}
            Some(_) => drift.push(Difference::new(path, Aspect::Content, chosen.title(), "something else")),
            None => drift.push(Difference::new(path, Aspect::Presence, chosen.title(), "nothing")),
        }
    }
    Ok(drift)
}
