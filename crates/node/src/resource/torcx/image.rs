//! Images in torcx's store, one for each release of the system: placed whole, and proved.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::resource::extension::State;
use bundle::resource::folder::with_parents;
use bundle::resource::{Aspect, Difference};
use bundle::torcx::{AddonImage, OsVersion, Place, USER_STORE, archive_name};
use bundle::{Artefact, ArtefactForm};
use engine::{Condition, StepContext, StepError};
use host::disk::Disk;
use host::doubt;
use host::files;

use super::super::record;
use super::super::{Node, first_that};
use super::{Chosen, load_chosen};
use crate::artefacts::{Fetched, look_at_copy, obtain, place_copy, store, store_error};
use crate::failure::{disk_error, file_error};

/// Resumed by the next run: what came stays.
pub(crate) const IMAGE_DEADLINE: Duration = Duration::from_secs(600);
const STAGING: &str = ".nodestrap-new";

/// An image for one release of the system, and where torcx looks for it there.
pub(super) struct Placed {
    title: String,
    artefact: Artefact,
    path: PathBuf,
    /// The system brings it: it is read and never written.
    is_systems: bool,
}

impl Placed {
    pub(super) fn new(release: &OsVersion, image: &AddonImage) -> Self {
        let title = format!("{}:{} for {release}", image.name, image.version);
        let (path, places, is_systems) = match &image.place {
            Place::System(path) => (path.as_path().to_owned(), Vec::new(), true),
            Place::Addresses(places) => {
                let name = archive_name(&image.name, &image.version);
                (Path::new(USER_STORE).join(release.as_str()).join(name), places.clone(), false)
            }
        };
        let (digest, size) = (image.digest.clone(), image.size.unwrap_or_default());
        Self { title, artefact: Artefact { digest, size, form: ArtefactForm::TarGz, places }, path, is_systems }
    }
}

impl Fetched for Placed {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn artefact(&self) -> &Artefact {
        &self.artefact
    }
}

/// Of the version that was chosen. What the system that boots next brings itself cannot be looked at before it runs.
fn wanted(node: &Node<'_>, chosen: &Chosen<'_>) -> Vec<Placed> {
    let all = chosen.images.iter().map(|(release, image)| (release, Placed::new(release, image)));
    all.filter(|(release, placed)| !placed.is_systems || release.as_str() == node.os.version)
        .map(|(_, one)| one)
        .collect()
}

/// Every byte is read, from the disk itself.
fn state_for_step(node: &Node<'_>, placed: &Placed) -> Result<State, StepError> {
    look_at_copy(node.tools.disk, &placed.path, &placed.artefact).map_err(|error| disk_error(&error))
}

pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    let Some(chosen) = load_chosen(node)? else {
        // Nothing is chosen before its step has run, which a preview does not wait for.
        return Ok(match node.is_preview && node.followed.as_ref().is_some_and(|followed| followed.addon.is_none()) {
            true => Condition::Needed("nothing is chosen yet".to_owned()),
            false => Condition::AlreadySo,
        });
    };
    if node.is_in_doubt()? {
        let why = "a sync failed in this boot, so what can be read need not be on the disk: placed anew";
        return Ok(Condition::Needed(why.to_owned()));
    }
    let record = record::load_for_step(node.tools.disk)?;
    let wanted = wanted(node, &chosen);
    if let Some(unknown) = unrecorded(&record, &wanted).next() {
        return Ok(Condition::Needed(format!("{} is not known to be ours", unknown.display())));
    }
    let missing = first_that(
        &wanted,
        |placed| Ok(state_for_step(node, placed)? != State::Whole),
        |placed| format!("{} is not on this node yet: {} bytes", placed.title, placed.artefact.size),
    )?;
    // Of a run that was cut off before it could tidy up.
    let left = store(node.tools.disk).surplus(&node.programs().digests()).map_err(|error| store_error(&error))?;
    Ok(match missing {
        Condition::AlreadySo if !left.objects.is_empty() || !left.partial.is_empty() => {
            Condition::Needed("what was fetched for it is still in the store".to_owned())
        }
        found => found,
    })
}

fn unrecorded<'w>(record: &'w record::Record, wanted: &'w [Placed]) -> impl Iterator<Item = &'w Path> {
    let ours = wanted.iter().filter(|placed| !placed.is_systems).map(|placed| placed.path.as_path());
    ours.filter(|path| path.to_str().is_some_and(|path| !record.addons.contains(path)))
}

pub(super) fn place_all(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let Some(chosen) = load_chosen(node)? else { return Ok(()) };
    place_chosen(node, &chosen, context)
}

pub(super) fn place_chosen(node: &Node<'_>, chosen: &Chosen<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let wanted = wanted(node, chosen);
    remember(node, &wanted)?;
    let in_doubt = node.is_in_doubt()?;
    for placed in wanted {
        match state_for_step(node, &placed)? {
            State::Whole if !in_doubt => continue,
            _ if placed.is_systems => return Err(broken_system(&placed)),
            _ => place(node, &placed, context)?,
        }
        if state_for_step(node, &placed)? != State::Whole {
            doubt::cast(node.tools.disk);
            return Err(not_kept(&placed));
        }
    }
    // Where torcx looks is the one place that needs them.
    store(node.tools.disk).collect(&node.programs().digests()).map(drop).map_err(|error| store_error(&error))
}

fn broken_system(placed: &Placed) -> StepError {
    StepError::needs_operator(format!(
        "{} should be in the image of the system as {}, by its package list, and is not, or has other bytes",
        placed.title,
        placed.path.display()
    ))
    .with_advice("publish a package list that is true of this release, or update the system")
}

fn not_kept(placed: &Placed) -> StepError {
    StepError::needs_operator(format!("read back from the disk, {} differs", placed.path.display())).with_advice(
        "another program changes it (stop it), or the disk loses writes (look at dmesg); the next run places it anew",
    )
}

/// That they will be ours is known before they are there, and so are the folders that they need.
fn remember(node: &Node<'_>, wanted: &[Placed]) -> Result<(), StepError> {
    let disk = node.tools.disk;
    let known = record::load_for_step(disk)?;
    let mut record = known.clone();
    for path in unrecorded(&known, wanted).filter_map(Path::to_str) {
        record.addons.insert(path.to_owned());
        for folder in with_parents(path.rsplit_once('/').map_or("/", |(folder, _)| folder)) {
            if disk.stat(Path::new(&folder)).map_err(|error| disk_error(&error))?.is_none() {
                record.folders.insert(folder);
            }
        }
    }
    match record == known {
        true => Ok(()),
        false => record::replace(disk, &record).map_err(|error| file_error(&error)),
    }
}

fn place(node: &Node<'_>, placed: &Placed, context: &StepContext<'_>) -> Result<(), StepError> {
    let mut object = obtain(node, placed, context)?;
    place_copy(node.tools.disk, &mut object, &staging_of(&placed.path), &placed.path)
}

/// Those for the system that runs are whole.
pub(super) fn prove_current(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<(), StepError> {
    let current = |placed: &&Placed| placed.title.ends_with(&format!(" for {}", node.os.version));
    match wanted(node, chosen).iter().find(current) {
        Some(placed) if state_for_step(node, placed)? == State::Whole => Ok(()),
        Some(placed) => {
            doubt::cast(node.tools.disk);
            Err(not_kept(placed))
        }
        None => Err(StepError::needs_operator(format!(
            "there is no {} for the system that runs, {}",
            chosen.title(),
            node.os.version
        ))),
    }
}

pub(super) fn drift(node: &Node<'_>, chosen: &Chosen<'_>) -> Result<Vec<Difference>, StepError> {
    let mut drift = Vec::new();
    for placed in wanted(node, chosen) {
        let path = placed.path.display().to_string();
        let digest = || placed.artefact.digest.to_string();
        match state_for_step(node, &placed)? {
            State::Whole => {}
            State::Absent => drift.push(Difference::new(path, Aspect::Presence, placed.title.clone(), "nothing")),
            State::Damaged => drift.push(Difference::new(path, Aspect::Content, digest(), "something else")),
        }
    }
    Ok(drift)
}

/// Below torcx's own store only: a record that says something else is not ours.
pub(super) fn ours(images: &[String]) -> impl Iterator<Item = &Path> {
    images.iter().map(Path::new).filter(|path| path.starts_with(USER_STORE))
}

fn staging_of(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}{STAGING}"))
}

pub(super) fn check_removed(disk: &dyn Disk, images: &[String]) -> Result<Condition, StepError> {
    let is_there = |path: &PathBuf| Ok(disk.stat(path).map_err(|error| disk_error(&error))?.is_some());
    let all: Vec<PathBuf> = ours(images).flat_map(|path| [path.to_owned(), staging_of(path)]).collect();
    first_that(all, is_there, |path| format!("{} is there", path.display()))
}

/// Durable when it returns.
pub(super) fn remove(disk: &dyn Disk, images: &[String]) -> Result<(), StepError> {
    for path in ours(images) {
        for path in [path.to_owned(), staging_of(path)] {
            files::remove_durable(disk, &path).map_err(|error| file_error(&error))?;
        }
    }
    Ok(())
}
