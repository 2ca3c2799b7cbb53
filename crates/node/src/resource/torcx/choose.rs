//! Which version: by the package lists of the system that runs and of the one that boots next, each signed by a key of the bundle's.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bundle::torcx::{
    AddonImage, Board, NoVersion, OsRelease, OsVersion, PackageList, Pick, Place, needed_lists, pick_version,
};
use bundle::{AbsolutePath, Downloads, FollowedAddon, Signatures};
use engine::{Condition, StepContext, StepError};
use host::disk::Disk;
use trust::Timestamp;
use trust::openpgp::{Keyring, verify_detached};

use super::super::Node;
use crate::artefacts::Errand;
use crate::failure::{chain, disk_error, file_error};
use crate::followed::{self, ChosenAddon, Followed};
use crate::os_update::NextBoot;

/// For lists and signatures together: whoever is down longer is asked again by the next run.
pub(crate) const RESOLVE_DEADLINE: Duration = Duration::from_secs(120);
/// Hundreds of addons in a dozen versions.
const LIST_LIMIT: usize = 4 * 1024 * 1024;
const SIGNATURE_LIMIT: usize = 64 * 1024;
const KEYRING_LIMIT: u64 = 1024 * 1024;
/// What unpacks into memory is not larger.
const IMAGE_LIMIT: usize = 2 * 1024 * 1024 * 1024 - 1;

pub(super) fn check(node: &Node<'_>) -> Result<Condition, StepError> {
    let disk = node.tools.disk;
    let Some(wanted) = &node.followed else { return Err(not_asked()) };
    let known = followed::load(disk, &node.identity.bundle).map_err(|error| disk_error(&error))?;
    let Some(known) = known else { return Ok(Condition::Needed("nothing is written down yet".to_owned())) };
    if !known.has_same_answers(wanted) {
        return Ok(Condition::Needed("the cluster, or the installer, says something else than before".to_owned()));
    }
    let Some(addon) = node.wanted_addon() else { return Ok(Condition::AlreadySo) };
    if node.is_preview && !node.is_complete()? {
        return Ok(Condition::Needed(format!("{} may be another one once update_engine was asked", addon.name)));
    }
    let os = os_release(node)?;
    let lists = known.addon.map(|chosen| chosen.lists).unwrap_or_default();
    Ok(match needed_lists(&os).into_iter().find(|release| !lists.contains(release)) {
        Some(release) => Condition::Needed(format!("the package list of {release} was not read yet")),
        None => Condition::AlreadySo,
    })
}

fn not_asked() -> StepError {
    StepError::permanent("nobody was asked for the release of the cluster, which the bundle wants to be followed")
}

/// What runs, and what boots next. On a complete node that is the pre-reboot hook's business.
pub(crate) fn os_release(node: &Node<'_>) -> Result<OsRelease, StepError> {
    let current = current(node)?;
    let next = match node.is_complete()? {
        true => None,
        false => next_version(node.next_boot()?)?,
    };
    Ok(OsRelease::new(current, next))
}

pub(crate) fn current(node: &Node<'_>) -> Result<OsVersion, StepError> {
    OsVersion::parse(&node.os.version).map_err(|error| StepError::needs_operator(chain(&error)))
}

pub(crate) fn next_version(next: NextBoot) -> Result<Option<OsVersion>, StepError> {
    match next {
        NextBoot::Same(_) => Ok(None),
        NextBoot::Other { version, .. } => OsVersion::parse(version.as_str())
            .map(Some)
            .map_err(|error| StepError::needs_operator(format!("what update_engine has staged: {}", chain(&error)))),
    }
}

pub(super) fn resolve(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let Some(wanted) = &node.followed else { return Err(not_asked()) };
    let mut followed = wanted.clone();
    if node.wanted_addon().is_some() {
        node.note_next_boot()?;
        let patience = node.tools.remaining(context);
        followed.addon = choose(node, &followed, &os_release(node)?, patience, &|line| context.detail(line))?;
        // Chosen once more in the same boot, it does not run any sooner.
        let before = super::chosen(node)?;
        if let (Some(now), Some(before)) = (&mut followed.addon, before)
            && now.version == before.version
        {
            now.switched_in = before.switched_in;
        }
    }
    followed::write(node.tools.disk, &followed).map_err(|error| file_error(&error))
}

/// `None`: the system that boots next brings its runtime itself.
pub(crate) fn choose(
    node: &Node<'_>,
    followed: &Followed,
    os: &OsRelease,
    patience: Duration,
    tell: &dyn Fn(String),
) -> Result<Option<ChosenAddon>, StepError> {
    let (Some(addon), Some(preferred)) = (node.wanted_addon(), &followed.preferred) else { return Ok(None) };
    let needed: Vec<OsVersion> = needed_lists(os).into_iter().cloned().collect();
    let lists = fetch_lists(node, addon, &needed, patience, tell)?;
    let picked = pick_version(&addon.name, &preferred.value, os, &lists);
    let picked = picked.map_err(|error| no_version(&error, followed, &preferred.source))?;
    let Pick::Chosen { version, mut images, .. } = picked else {
        tell(format!("{} brings its own container runtime", os.primary()));
        return Ok(None);
    };
    for image in images.values_mut() {
        image.size = Some(size(node, image, patience, tell)?);
    }
    let of: Vec<&str> = images.keys().map(OsVersion::as_str).collect();
    tell(format!("{}:{version}, for {}", addon.name, of.join(" and ")));
    Ok(Some(ChosenAddon { version, images, lists: needed.into_iter().collect(), switched_in: None }))
}

fn no_version(error: &NoVersion, followed: &Followed, source: &str) -> StepError {
    let message = format!("for Kubernetes {}, of {source}: {}", followed.release.value, chain(error));
    StepError::needs_operator(message).with_advice(
        "publish one of these versions for that release of the system, or let the runtime mappings name one that is there",
    )
}

/// Each with its signature, one after the other.
fn fetch_lists(
    node: &Node<'_>,
    addon: &FollowedAddon,
    releases: &[OsVersion],
    patience: Duration,
    tell: &dyn Fn(String),
) -> Result<BTreeMap<OsVersion, PackageList>, StepError> {
    if releases.is_empty() {
        return Ok(BTreeMap::new());
    }
    let board = board(node)?;
    let keyrings = keyrings(node, &addon.signatures)?;
    let now = Timestamp::from_seconds(node.tools.clock.now().0 / 1000);
    let mut lists = BTreeMap::new();
    for release in releases {
        let url = addon.manifest_url.list_url(&board, release);
        let what = format!("the package list of {release}");
        let list = read(node, &what, &url, LIST_LIMIT, patience, tell)?;
        if let Some(keyrings) = &keyrings {
            let url = addon.manifest_url.signature_url(&board, release);
            let signature = read(node, &format!("the signature of {what}"), &url, SIGNATURE_LIMIT, patience, tell)?;
            verify_detached(&list, &signature, keyrings, Some(now)).map_err(|error| {
                StepError::needs_operator(format!("{what} cannot be believed: {}", chain(&error)))
                    .with_advice(format!("look at who published {url}, and at the keyrings of the bundle"))
            })?;
        }
        let list = PackageList::parse(&list).map_err(|error| {
            StepError::needs_operator(format!("{what} cannot be used: {}", chain(&error)))
                .with_advice("publish it again")
        })?;
        lists.insert(release.clone(), list);
    }
    Ok(lists)
}

fn downloads<'n>(node: &Node<'n>) -> Result<&'n Downloads, StepError> {
    let missing = || StepError::permanent("the bundle does not say how package lists and addons are downloaded");
    node.bundle.downloads.as_ref().ok_or_else(missing)
}

fn read(
    node: &Node<'_>,
    what: &str,
    url: &str,
    limit: usize,
    patience: Duration,
    tell: &dyn Fn(String),
) -> Result<Vec<u8>, StepError> {
    let places = [url.to_owned()];
    let errand = Errand { what, places: &places, downloads: downloads(node)?, limit, patience, tell };
    node.tools.artefacts.read(&errand).map_err(|error| name_dead_bucket(node, error))
}

/// Whoever still asks it has kept the default of that time.
fn name_dead_bucket(node: &Node<'_>, error: StepError) -> StepError {
    match node.wanted_addon() {
        Some(addon) if addon.manifest_url.is_dead() => error.with_advice(
            "the bucket of Tectonic's addons is gone since 2020: publish your own, and name them by --torcx-manifest-url",
        ),
        _ => error,
    }
}

/// Lists of torcx do not say.
fn size(node: &Node<'_>, image: &AddonImage, patience: Duration, tell: &dyn Fn(String)) -> Result<u64, StepError> {
    match (&image.place, image.size) {
        (_, Some(size)) => Ok(size),
        (Place::System(path), None) => Ok(stat_size(node.tools.disk, path)?),
        (Place::Addresses(places), None) => {
            let what = format!("{}:{}", image.name, image.version);
            let errand =
                Errand { what: &what, places, downloads: downloads(node)?, limit: IMAGE_LIMIT, patience, tell };
            node.tools.artefacts.size(&errand)
        }
    }
}

/// Of the system's own store; that of a system that does not run cannot be seen.
fn stat_size(disk: &dyn Disk, path: &AbsolutePath) -> Result<u64, StepError> {
    let found = disk.stat(path.as_path()).map_err(|error| disk_error(&error))?;
    Ok(found.map_or(0, |stat| stat.size))
}

/// What the operating system says, or what follows from the processor.
fn board(node: &Node<'_>) -> Result<Board, StepError> {
    let said = (!node.os.board.is_empty()).then(|| Board::new(&*node.os.board));
    match said {
        Some(Ok(board)) => Ok(board),
        Some(Err(error)) => Err(StepError::needs_operator(format!("os-release: {}", chain(&error)))),
        None => Board::of_architecture(&node.architecture).ok_or_else(|| {
            StepError::needs_operator(
                "nothing says which board this machine is: os-release has neither COREOS_BOARD nor FLATCAR_BOARD",
            )
        }),
    }
}

/// `None`: nobody has to have signed.
fn keyrings(node: &Node<'_>, signatures: &Signatures) -> Result<Option<Vec<Keyring>>, StepError> {
    let Signatures::By { keyrings } = signatures else { return Ok(None) };
    keyrings.iter().map(|path| keyring(node, path)).collect::<Result<Vec<_>, _>>().map(Some)
}

/// Of the bundle, or of the image. Those of the bundle are not on the disk yet when a node boots first.
fn keyring(node: &Node<'_>, path: &AbsolutePath) -> Result<Keyring, StepError> {
    let brought = node.bundle.file(path).map(|file| file.content.to_vec());
    let bytes = match brought {
        Some(bytes) => Some(bytes),
        None => node.tools.disk.read(Path::new(path.as_str()), KEYRING_LIMIT).map_err(|error| disk_error(&error))?,
    };
    let advice = "put the public keys there of those who sign for addons, in ASCII armour";
    let bytes =
        bytes.ok_or_else(|| StepError::needs_operator(format!("there is no keyring {path}")).with_advice(advice))?;
    Keyring::parse(&bytes).map_err(|error| {
        StepError::needs_operator(format!("the keyring {path} cannot be used: {}", chain(&error))).with_advice(advice)
    })
}
