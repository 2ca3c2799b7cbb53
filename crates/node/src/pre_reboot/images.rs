//! System extensions that others have brought: whoever enabled one counts on it after a reboot, too.
//!
//! Where systemd looks, of two of one name the first counts, and a link to `/dev/null` hides those that come later. What does not fit
//! the running system is not in use, and cannot be lost. Their images need not be of a kind that can be read here: then what is merged
//! speaks for them.

use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::path::{Component, Path, PathBuf};

use bundle::{Bundle, EXTENSION_LINKS_FOLDER, ExtensionRelease, MASK};
use engine::ErrorClass;
use fetch::squashfs::{Image, Limits};
use host::disk::{Disk, DiskError, Kind, Stat};
use host::machine::parse_os_release;

use super::{Problem, Proof, Systems};
use crate::failure::chain;

/// In this order. What is in `/run` is gone with the boot.
const FOLDERS: [&str; 2] = [EXTENSION_LINKS_FOLDER, "/var/lib/extensions"];
const RELEASES: &str = "usr/lib/extension-release.d/extension-release.";
const SUFFIX: &str = ".raw";
/// A folder with several versions, of which systemd takes one.
const VERSIONED: &str = ".v";
/// Those of Flatcar itself: which version its links lead to it decides at each boot, and fetches what it lacks.
const OF_FLATCAR: [&str; 2] = ["oem-", "flatcar-"];
/// No release file is near this.
const RELEASE_LIMIT: usize = 64 * 1024;
/// As the kernel's own.
const MOST_LINKS: usize = 40;

/// An image or a folder that systemd would merge.
struct Found {
    name: String,
    /// Where systemd finds it.
    place: String,
    /// Where that leads to in the end.
    target: PathBuf,
    kind: Kind,
}

pub(super) fn prove_others(disk: &dyn Disk, bundle: &Bundle, systems: &Systems, proof: &mut Proof) {
    let mut seen: BTreeSet<String> = bundle.extensions.iter().map(|extension| extension.name.to_string()).collect();
    for folder in FOLDERS {
        match find(disk, folder, &mut seen, &mut proof.remarks) {
            Ok(found) => found.iter().for_each(|one| prove(disk, one, systems, proof)),
            Err(error) => proof.problems.push(Problem {
                artefact: format!("the extensions in {folder}"),
                reason: chain(&error),
                advice: "look in dmesg for what the disk says".to_owned(),
                class: ErrorClass::NeedsOperator,
            }),
        }
    }
}

fn find(
    disk: &dyn Disk,
    folder: &str,
    seen: &mut BTreeSet<String>,
    remarks: &mut Vec<String>,
) -> Result<Vec<Found>, DiskError> {
    let mut all = Vec::new();
    for file in disk.list(Path::new(folder))? {
        let place = format!("{folder}/{file}");
        let image = file.strip_suffix(SUFFIX);
        if file.starts_with('.') || seen.contains(image.unwrap_or(&file)) {
            continue;
        }
        let (target, stat) = resolve(disk, Path::new(&place))?;
        let name = match (stat.as_ref().map(|stat| &stat.kind), image) {
            _ if target == Path::new(MASK) => {
                seen.insert(image.unwrap_or(&file).to_owned());
                continue;
            }
            (Some(Kind::Folder), _) if file.ends_with(VERSIONED) => {
                remarks.push(format!("{place} has versions of which systemd takes one: not looked at"));
                continue;
            }
            (Some(Kind::Folder), _) => file.clone(),
            (Some(Kind::File), Some(name)) => name.to_owned(),
            (None, _) => {
                remarks.push(format!("{place} leads nowhere: systemd passes over it"));
                continue;
            }
            _ => continue,
        };
        if let Some(Stat { kind, .. }) = stat
            && seen.insert(name.clone())
        {
            all.push(Found { name, place, target, kind });
        }
    }
    Ok(all)
}

/// Where a path leads in the end, and what is there.
fn resolve(disk: &dyn Disk, path: &Path) -> Result<(PathBuf, Option<Stat>), DiskError> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        match disk.stat(&path)? {
            Some(Stat { kind: Kind::Link { target }, .. }) => {
                path = without_dots(&path.parent().unwrap_or(Path::new("/")).join(target));
            }
            found => return Ok((path, found)),
        }
    }
    Ok((path, None))
}

fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    plain
}

fn prove(disk: &dyn Disk, found: &Found, systems: &Systems, proof: &mut Proof) {
    let Found { name, place, target, .. } = found;
    if target.starts_with("/usr") {
        proof.remarks.push(format!("{place} is a part of the operating system, which brings its own version of it"));
        return;
    }
    if systems.now.id == "flatcar" && OF_FLATCAR.iter().any(|prefix| name.starts_with(prefix)) {
        proof.remarks.push(format!("{place} is Flatcar's own, which chooses its version at each boot"));
        return;
    }
    let release = match release_of(disk, found) {
        Ok(release) => release,
        Err(why) => {
            proof.remarks.push(format!("{place} is not proved: {why}"));
            return;
        }
    };
    let artefact = format!("the system extension {name}");
    match (release.misfit(systems.now()), release.misfit(systems.next())) {
        (Some(misfit), _) => proof.remarks.push(format!("{place} is not in use: {misfit}")),
        (None, None) => proof.proved.push(artefact),
        (None, Some(misfit)) => proof.problems.push(Problem {
            artefact,
            reason: format!("it does not fit what boots next, so systemd would leave it out: {misfit}"),
            advice: format!("bring an image to {place} that fits both systems, or take it away"),
            class: ErrorClass::NeedsOperator,
        }),
    }
}

/// What it says of itself; if that cannot be read, what is merged under its name.
fn release_of(disk: &dyn Disk, found: &Found) -> Result<ExtensionRelease, String> {
    let inside = format!("{RELEASES}{}", found.name);
    let read = || -> Result<Option<Vec<u8>>, String> {
        if found.kind == Kind::Folder {
            return disk.read(&found.target.join(&inside), RELEASE_LIMIT as u64).map_err(|error| chain(&error));
        }
        let reader = disk.open(&found.target).map_err(|error| chain(&error))?;
        reader.map_or(Ok(None), |reader| content(reader, &inside))
    };
    let merged = || disk.read(&Path::new("/").join(&inside), RELEASE_LIMIT as u64).ok().flatten();
    let bytes = match read() {
        Ok(Some(bytes)) => bytes,
        Ok(None) => merged().ok_or_else(|| format!("it has no {inside}"))?,
        Err(why) => merged().ok_or(why)?,
    };
    let keys = parse_os_release(&String::from_utf8_lossy(&bytes)).keys;
    let word = |key: &str| keys.get(key).filter(|text| !text.is_empty()).cloned();
    if word("SYSEXT_SCOPE").is_some_and(|scope| !scope.split_whitespace().any(|word| word == "system")) {
        return Err("its SYSEXT_SCOPE leaves running systems out".to_owned());
    }
    Ok(ExtensionRelease {
        id: word("ID").ok_or_else(|| format!("its {inside} says no ID"))?,
        sysext_level: word("SYSEXT_LEVEL"),
        version_id: word("VERSION_ID"),
        architecture: word("ARCHITECTURE"),
    })
}

fn content(reader: impl Read + Seek, path: &str) -> Result<Option<Vec<u8>>, String> {
    let mut image = Image::read(reader, &Limits::USUAL).map_err(|error| error.to_string())?;
    image.content(path, RELEASE_LIMIT).map_err(|error| error.to_string())
}
