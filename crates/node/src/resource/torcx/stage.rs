//! Addons before a reboot that is not nodestrap's own: what the system that boots next needs is here, and what no system needs any
//! more goes.
//!
//! An update that was taken back is no reason to leave the profile at a version that only the update has: what boots next is chosen for
//! anew, whatever it is.

use std::path::{Path, PathBuf};

use bundle::torcx::{NEXT_PROFILE_PATH, OsRelease, OsVersion, Profile, ProfileName, USER_STORE, has_torcx};
use engine::{StepContext, StepError};
use host::disk::Disk;

use super::super::Node;
use super::super::record;
use super::{Chosen, choose, image, profile};
use crate::failure::{chain, disk_error, file_error};
use crate::followed;

/// Of the system's makers, for all releases and for one.
const OEM_STORE: &str = "/usr/share/oem/torcx/store";
/// What the system itself brings in each of its releases.
const SYSTEMS_OWN: &str = "com.coreos.cl";
const LIMIT: u64 = 1024 * 1024;

/// Gives what is ready, for people; nothing where the system brings its runtime itself.
pub(crate) fn stage(node: &Node<'_>, os: &OsRelease, context: &StepContext<'_>) -> Result<Vec<String>, StepError> {
    let (Some(addon), Some(followed)) = (node.wanted_addon(), &node.followed) else { return Ok(Vec::new()) };
    let disk = node.tools.disk;
    let patience = node.tools.remaining(context);
    let picked = choose::choose(node, followed, os, patience, &|line| context.detail(line))?;
    let Some(mut picked) = picked else { return Ok(Vec::new()) };
    let chosen = Chosen {
        name: &addon.name,
        version: picked.version.clone(),
        images: picked.images.clone().into_iter().collect(),
        switched_in: None,
    };
    // Whole and proved, before torcx is told of it.
    image::place_chosen(node, &chosen, context)?;
    let before = super::chosen(node)?;
    if let Some(before) = before.filter(|before| before.version == picked.version) {
        picked.switched_in = before.switched_in;
        // Those of a release to which somebody may go back.
        for (release, image) in before.images {
            picked.images.entry(release).or_insert(image);
        }
    }
    let now = followed::Followed { addon: Some(picked), ..followed.clone() };
    followed::write(disk, &now).map_err(|error| file_error(&error))?;
    // One that says so already keeps the boot in which it was switched.
    if !profile::drift(node, &chosen)?.is_empty() {
        profile::switch_to(node, &chosen)?;
    }
    let others = prove_others(node, os.primary(), &chosen)?;
    Ok(std::iter::once(chosen.title()).chain(others).collect())
}

/// Addons of others in the same profile have to be there, too: torcx applies all of them or none.
fn prove_others(node: &Node<'_>, release: &OsVersion, chosen: &Chosen<'_>) -> Result<Vec<String>, StepError> {
    let read = |path: &str| node.tools.disk.read(Path::new(path), LIMIT).map_err(|error| disk_error(&error));
    let next = read(NEXT_PROFILE_PATH)?.unwrap_or_default();
    let next = ProfileName::parse_next(&String::from_utf8_lossy(&next)).ok().flatten();
    let Some(path) = next.map(|name| name.path()) else { return Ok(Vec::new()) };
    let profile = match read(&path)?.map(|bytes| Profile::parse(&bytes)) {
        None => return Ok(Vec::new()),
        Some(Ok(profile)) => profile,
        Some(Err(error)) => return Err(StepError::needs_operator(format!("{path}: {}", chain(&error)))),
    };
    let mut proved = Vec::new();
    for image in profile.images.iter().filter(|image| image.name != chosen.name.as_str()) {
        if image.reference.is_empty() || image.reference == SYSTEMS_OWN {
            continue;
        }
        let file = format!("{}:{}.torcx", image.name, image.reference);
        let stores = [OEM_STORE, USER_STORE].map(|store| [PathBuf::from(store).join(release.as_str()), store.into()]);
        let mut places = stores
            .iter()
            .flatten()
            .flat_map(|store| ["tgz", "squashfs"].map(|suffix| store.join(format!("{file}.{suffix}"))));
        let is_there = |path: PathBuf| node.tools.disk.stat(&path).map(|found| found.is_some());
        if !places.any(|path| is_there(path).unwrap_or(false)) {
            return Err(StepError::needs_operator(format!(
                "the addon {}:{} of {path} is not in a store that {release} of the system reads",
                image.name, image.reference
            ))
            .with_advice(format!("put {file}.tgz into {USER_STORE}/{release}, or take it out of the profile")));
        }
        proved.push(format!("{}:{}", image.name, image.reference));
    }
    Ok(proved)
}

/// Stores of releases before the one that runs: once another one is staged, no partition has them any more. Until then the other
/// partition can still be booted, and keeps its store. Gives what went.
pub(crate) fn collect(node: &Node<'_>, os: &OsRelease) -> Result<Vec<String>, StepError> {
    if os.next.is_none() || !has_torcx(os.primary()) {
        return Ok(Vec::new());
    }
    let disk = node.tools.disk;
    let names = disk.list(Path::new(USER_STORE)).map_err(|error| disk_error(&error))?;
    let is_past = |name: &String| OsVersion::parse(name).is_ok_and(|release| release.is_older_than(&os.current));
    let past: Vec<String> = names.into_iter().filter(is_past).map(|name| format!("{USER_STORE}/{name}")).collect();
    for folder in &past {
        let remove = || {
            disk.remove_tree(Path::new(folder))?;
            disk.sync_folder(Path::new(USER_STORE))
        };
        remove().map_err(|error| disk_error(&error))?;
    }
    forget(disk, &past)?;
    Ok(past)
}

fn forget(disk: &dyn Disk, folders: &[String]) -> Result<(), StepError> {
    let known = record::load_for_step(disk)?;
    let mut record = known.clone();
    let is_gone = |path: &String| folders.iter().any(|folder| Path::new(path).starts_with(folder));
    record.addons.retain(|path| !is_gone(path));
    record.folders.retain(|path| !is_gone(path));
    match record == known {
        true => Ok(()),
        false => record::replace(disk, &record).map_err(|error| file_error(&error)),
    }
}
