//! What was on this node before nodestrap changed it, kept so that it can be put back.
//!
//! ```text
//! /var/lib/nodestrap/before/record.json   what we touched, by family, and what it was before
//! /var/lib/nodestrap/before/<sha256>      the content of a file that was there before, 0600
//! /usr/local/bin/.kubelet.nodestrap-before   a program that was where a link of ours is: moved aside, since it may be large
//! ```
//!
//! The oldest original stays: what an earlier plan of ours wrote is not "before".

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bundle::{ExtensionName, MASK, PackageManager, SYSEXT_UNIT, TREES_FOLDER, UNIT_FOLDER};
use engine::{Digest, StepError};
use host::disk::{Disk, DiskError, Kind, Stat};
use host::files::{self, FileError};
use serde::{Deserialize, Serialize};

use crate::failure::disk_error;
use crate::sealed;

pub(crate) const BEFORE_FOLDER: &str = "/var/lib/nodestrap/before";
pub(crate) const RECORD_PATH: &str = "/var/lib/nodestrap/before/record.json";
/// What was there before may be a secret.
pub(crate) const KEPT_MODE: u32 = 0o600;
/// Thousands of files.
const RECORD_LIMIT: u64 = 8 * 1024 * 1024;
/// No configuration file is near this.
const ORIGINAL_LIMIT: u64 = 16 * 1024 * 1024;

/// Records of all releases are read: fields are only ever added, with a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// Links to programs of ours are among them: a place may change hands between a link and a file.
    pub(crate) files: BTreeMap<String, FileRecord>,
    /// Gates by path; they are told by their seal, not by what we wrote.
    pub(crate) gates: BTreeMap<String, Before>,
    /// Folders that were not there.
    pub(crate) folders: BTreeSet<String>,
    pub(crate) units: BTreeMap<String, UnitRecord>,
    /// Units that shall not run, with the links by which they started at boot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) idle: BTreeMap<String, Links>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) snaps: BTreeMap<String, SnapRecord>,
    /// Units of hooks that may have run; nothing is known of what they did.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) hooks: BTreeSet<String>,
    /// Folders with credentials of a former life that were set aside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) credentials: BTreeSet<String>,
    /// Components whose programs were unpacked here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) trees: BTreeSet<String>,
    /// System extensions whose images were placed here.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) extensions: BTreeSet<String>,
    /// The unit that merges them, if we had it do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sysext: Option<UnitRecord>,
    /// Images of torcx's addons that were placed here, by their paths.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) addons: BTreeSet<String>,
    /// Packages that were installed, upgraded or held, with their dependencies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) packages: BTreeMap<String, PackageRecord>,
    /// How the package manager gets at repositories, while there are packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<Proxy>,
}

/// What a package manager learns its proxy from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Proxy {
    pub(crate) environment: BTreeMap<String, String>,
    /// The same where it is secret.
    pub(crate) environment_file: Option<String>,
}

/// Links by their paths, with where they lead to.
pub(crate) type Links = BTreeMap<String, String>;

/// What the package manager had of a package before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PackageRecord {
    pub(crate) manager: PackageManager,
    /// Its version; `None`: it was not there.
    pub(crate) before: Option<String>,
    pub(crate) held: bool,
    /// It had been removed, and its configuration left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) configuration_was_left: bool,
    /// Versions that we installed, or may have if a crash came in between. Any other is somebody else's doing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) brought: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) held_by_us: bool,
}

impl PackageRecord {
    /// Until then the record may still learn what is there.
    pub(crate) fn is_touched(&self) -> bool {
        !self.brought.is_empty() || self.held_by_us
    }

    /// Names of RPMs do not tell their epoch.
    pub(crate) fn is_ours(&self, version: &str) -> bool {
        fn bare(version: &str) -> &str {
            version.split_once(':').map_or(version, |(_, rest)| rest)
        }
        let is_alike = |known: &String| self.manager == PackageManager::Dnf && bare(known) == bare(version);
        self.brought.contains(version) || self.brought.iter().any(is_alike)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FileRecord {
    pub(crate) before: Before,
    /// SHA-256 of what we wrote, or may have written if a crash came in between: two at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) wrote: Vec<String>,
    /// Only the node knows the content, such as that of the CNI configuration: it is ours by its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) any_content: bool,
    /// Where links lead that we made here, or may have made: two at most. Those to programs are told by their targets alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Before {
    Absent,
    File {
        sha256: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A link of somebody else's.
    Link {
        target: String,
    },
    /// A file that is moved aside, in its own folder, when a link takes its place.
    Aside,
}

impl FileRecord {
    pub(crate) fn of_link(before: Before) -> Self {
        Self { before, wrote: Vec::new(), any_content: false, links: Vec::new() }
    }

    /// A link of ours is about to be there. Until the switch it is what an earlier plan of ours made it, or nothing.
    pub(crate) fn will_lead(&mut self, target: &str, found: Option<&str>) {
        if !self.links.iter().any(|link| link == target) {
            self.links.retain(|link| found == Some(link));
            self.links.push(target.to_owned());
        }
    }
}

/// Where a program waits whose place a link of ours has taken.
pub(crate) fn aside(path: &str) -> PathBuf {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    PathBuf::from(format!("{folder}/.{name}.nodestrap-before"))
}

/// Whether a link leads to programs that we brought.
pub(crate) fn is_our_link(target: &str) -> bool {
    let is_image = |name: &ExtensionName| {
        let file = target.strip_prefix(name.home().as_str()).and_then(|rest| rest.strip_prefix('/'));
        file.is_some_and(|file| name.owns(file))
    };
    target.strip_prefix(TREES_FOLDER).is_some_and(|rest| rest.starts_with('/'))
        || ExtensionName::ALL.iter().any(is_image)
}

/// Whether a unit is masked there because a bundle said so. What cannot be read says that it is not.
pub(crate) fn is_our_mask(disk: &dyn Disk, path: &Path, target: &str) -> bool {
    let is_known = |record: Record| {
        let known = path.to_str().and_then(|path| record.files.get(path));
        known.is_some_and(|known| known.links.iter().any(|link| link == target))
    };
    target == MASK && path.starts_with(UNIT_FOLDER) && load(disk).ok().flatten().is_some_and(is_known)
}

/// What is at a path where a link of ours shall be, as something that can be put back.
pub(crate) fn look_for_link(disk: &dyn Disk, path: &str) -> Result<Before, DiskError> {
    if disk.stat(&aside(path))?.is_some() {
        return Ok(Before::Aside);
    }
    Ok(match disk.stat(Path::new(path))?.map(|stat| stat.kind) {
        Some(Kind::File) => Before::Aside,
        Some(Kind::Link { target }) if !is_our_link(&target) => Before::Link { target },
        // What is in the way is refused before anything changes.
        Some(Kind::Link { .. } | Kind::Folder | Kind::Other) | None => Before::Absent,
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnitRecord {
    pub(crate) enabled: bool,
    pub(crate) active: bool,
}

/// What snapd had in the places that we changed; `None`: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapRecord {
    pub(crate) aliases: BTreeMap<String, Option<String>>,
    pub(crate) settings: BTreeMap<String, Option<String>>,
}

/// How far the disk and the record agree about one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    AsBefore,
    Ours,
    /// Somebody changed it since.
    Changed,
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Without what has been undone.
    pub(crate) fn without(mut self, undone: &Self) -> Self {
        // The proxy serves the packages that are left.
        let Self {
            files,
            gates,
            folders,
            units,
            idle,
            snaps,
            hooks,
            credentials,
            trees,
            extensions,
            sysext,
            addons,
            packages,
            proxy: _,
        } = undone;
        self.addons.retain(|image| !addons.contains(image));
        self.idle.retain(|unit, _| !idle.contains_key(unit));
        self.packages.retain(|name, _| !packages.contains_key(name));
        self.proxy = self.proxy.filter(|_| !self.packages.is_empty());
        self.extensions.retain(|extension| !extensions.contains(extension));
        self.sysext = self.sysext.filter(|_| sysext.is_none());
        self.trees.retain(|tree| !trees.contains(tree));
        self.files.retain(|path, _| !files.contains_key(path));
        self.gates.retain(|path, _| !gates.contains_key(path));
        self.folders.retain(|path| !folders.contains(path));
        self.units.retain(|unit, _| !units.contains_key(unit));
        self.hooks.retain(|hook| !hooks.contains(hook));
        self.credentials.retain(|folder| !credentials.contains(folder));
        for (name, undone) in snaps {
            if let Some(snap) = self.snaps.get_mut(name) {
                snap.aliases.retain(|alias, _| !undone.aliases.contains_key(alias));
                snap.settings.retain(|key, _| !undone.settings.contains_key(key));
            }
        }
        self.snaps.retain(|_, snap| !snap.aliases.is_empty() || !snap.settings.is_empty());
        self
    }

    /// What people read of it: the subjects, in order.
    pub(crate) fn subjects(&self) -> Vec<String> {
        let Self {
            files,
            gates,
            folders,
            units,
            idle,
            snaps,
            hooks,
            credentials,
            trees,
            extensions,
            sysext,
            addons,
            packages,
            proxy: _,
        } = self;
        let links = idle.keys().map(|unit| format!("links of {unit}"));
        let snaps = snaps.iter().flat_map(|(name, snap)| {
            let aliases = snap.aliases.keys().map(|alias| format!("alias {alias}"));
            snap.settings.keys().map(move |key| format!("{name} {key}")).chain(aliases)
        });
        let names = files.keys().chain(gates.keys()).chain(units.keys()).chain(folders).chain(hooks);
        let names = names.chain(credentials).chain(addons).cloned();
        let packages = packages.keys().map(|name| format!("package {name}"));
        let merged = sysext.iter().map(|_| SYSEXT_UNIT.to_owned());
        let extensions = extensions.iter().map(|name| format!("extension {name}")).chain(merged);
        let trees = trees.iter().map(|tree| format!("tree {tree}"));
        names.chain(links).chain(snaps).chain(trees).chain(extensions).chain(packages).collect()
    }
}

/// The record, if it is there and whole.
pub(crate) fn load(disk: &dyn Disk) -> Result<Option<Record>, DiskError> {
    let bytes = disk.read(Path::new(RECORD_PATH), RECORD_LIMIT)?;
    Ok(bytes.and_then(|bytes| sealed::parse(&bytes)))
}

/// The same, for a step.
pub(crate) fn load_for_step(disk: &dyn Disk) -> Result<Record, StepError> {
    Ok(load(disk).map_err(|error| disk_error(&error))?.unwrap_or_default())
}

/// Durable when it returns.
pub(crate) fn replace(disk: &dyn Disk, record: &Record) -> Result<(), FileError> {
    files::write_durable(disk, Path::new(RECORD_PATH), KEPT_MODE, &sealed::print(record), None)
}

/// The record and the originals are on the disk as they can be read. Nobody else could tell what they said.
pub(crate) fn mend(disk: &dyn Disk) -> Result<(), FileError> {
    for name in disk.list(Path::new(BEFORE_FOLDER))? {
        files::mend(disk, &Path::new(BEFORE_FOLDER).join(name), KEPT_MODE, ORIGINAL_LIMIT)?;
    }
    Ok(())
}

pub(crate) fn originals(record: &Record) -> impl Iterator<Item = (&String, &Before)> {
    record.files.iter().map(|(path, file)| (path, &file.before)).chain(&record.gates)
}

/// What is at a path, as something that can be put back.
pub(crate) fn look(disk: &dyn Disk, path: &str) -> Result<Before, DiskError> {
    let stat = disk.stat(Path::new(path))?;
    // What is not a file is refused when the new file is staged, so it stays as it is.
    let Some(stat) = stat.filter(|stat| stat.kind == Kind::File) else { return Ok(Before::Absent) };
    let Some(sha256) = sha256_at(disk, path)? else { return Ok(Before::Absent) };
    Ok(Before::File { sha256, mode: stat.mode, uid: stat.uid, gid: stat.gid })
}

pub(crate) fn sha256_at(disk: &dyn Disk, path: &str) -> Result<Option<String>, DiskError> {
    match disk.stat(Path::new(path))? {
        // What is larger is no file that we wrote.
        Some(stat) if stat.kind == Kind::File && stat.size <= ORIGINAL_LIMIT => {
            let content = disk.read(Path::new(path), ORIGINAL_LIMIT)?;
            Ok(content.map(|content| Digest::of(&content).hex().to_owned()))
        }
        _ => Ok(None),
    }
}

fn place(sha256: &str) -> PathBuf {
    Path::new(BEFORE_FOLDER).join(sha256)
}

/// Copies what is at a path to where originals are kept; gives the copy.
pub(crate) fn take_original(disk: &dyn Disk, path: &str) -> Result<Option<PathBuf>, DiskError> {
    let Some(content) = disk.read(Path::new(path), ORIGINAL_LIMIT)? else { return Ok(None) };
    let copy = place(Digest::of(&content).hex());
    disk.remove(&copy)?;
    disk.create(&copy, KEPT_MODE, &content)?;
    Ok(Some(copy))
}

/// The content that was there before; `None` if the copy is gone or not whole.
pub(crate) fn load_original(disk: &dyn Disk, sha256: &str) -> Result<Option<Vec<u8>>, DiskError> {
    let content = disk.read(&place(sha256), ORIGINAL_LIMIT)?;
    Ok(content.filter(|content| Digest::of(content).hex() == sha256))
}

/// Compares with the disk. Mode and owner count only for what shall be as it was before.
pub(crate) fn compare(disk: &dyn Disk, path: &str, file: &FileRecord) -> Result<Now, DiskError> {
    let stat = disk.stat(Path::new(path))?;
    if matches!(&stat, Some(Stat { kind: Kind::Link { target }, .. }) if is_our_link(target)) {
        return Ok(Now::Ours);
    }
    let found = sha256_at(disk, path)?;
    let is_ours = found.as_ref().is_some_and(|found| file.any_content || file.wrote.contains(found));
    Ok(match (&file.before, &stat, &found) {
        (Before::Absent, None, _) => Now::AsBefore,
        (Before::Link { .. } | Before::Aside, None, _) => Now::Ours,
        (Before::Link { .. } | Before::Aside, Some(_), _) if is_ours => Now::Ours,
        (Before::Link { target }, Some(Stat { kind: Kind::Link { target: found }, .. }), _) if found == target => {
            Now::AsBefore
        }
        (_, Some(Stat { kind: Kind::Link { target }, .. }), _) if file.links.contains(target) => Now::Ours,
        // It was never moved, or is back.
        (Before::Aside, Some(Stat { kind: Kind::File, .. }), _) if disk.stat(&aside(path))?.is_none() => Now::AsBefore,
        // A power cut may keep both names of what was being moved back.
        (Before::Aside, Some(Stat { kind: Kind::File, .. }), _) if are_alike(disk, Path::new(path), &aside(path))? => {
            Now::Ours
        }
        // Somebody took ours away: what was there before can only be missed.
        (Before::File { .. }, None, _) => Now::Ours,
        (Before::File { sha256, mode, uid, gid }, Some(stat), Some(found))
            if found == sha256 && (*mode, *uid, *gid) == (stat.mode, stat.uid, stat.gid) =>
        {
            Now::AsBefore
        }
        (Before::File { sha256, .. }, _, Some(found)) if found == sha256 => Now::Ours,
        _ if is_ours => Now::Ours,
        (..) => Now::Changed,
    })
}

/// Two files with the same bytes, however many.
fn are_alike(disk: &dyn Disk, one: &Path, other: &Path) -> Result<bool, DiskError> {
    let size = |path: &Path| Ok(disk.stat(path)?.filter(|stat| stat.kind == Kind::File).map(|stat| stat.size));
    match (size(one)?, size(other)?) {
        (Some(one), Some(other)) if one == other => {}
        _ => return Ok(false),
    }
    let (Some(one), Some(other)) = (disk.open(one)?, disk.open(other)?) else { return Ok(false) };
    let (one, other) = (std::io::BufReader::new(one).bytes(), std::io::BufReader::new(other).bytes());
    // What cannot be read is like nothing.
    Ok(one.zip(other).all(|pair| matches!(pair, (Ok(one), Ok(other)) if one == other)))
}

/// What no copy was made of is in its place again, in one step; `false`: it is lost. Not durable.
pub(crate) fn put_back(disk: &dyn Disk, path: &str, before: &Before) -> Result<bool, FileError> {
    let aside = aside(path);
    match before {
        Before::Link { target } => files::replace_link(disk, Path::new(path), target)?,
        _ if disk.stat(&aside)?.is_none() => return Ok(false),
        // Two names of one file: renaming one to the other would do nothing.
        _ if are_alike(disk, Path::new(path), &aside)? => {
            disk.remove(&aside)?;
        }
        _ => disk.rename(&aside, Path::new(path))?,
    }
    Ok(true)
}

/// Makes durable what was done to the files and units that a record tells of, whoever did it and whether or not they are
/// still there.
pub(crate) fn sync_folders(disk: &dyn Disk, record: &Record) -> Result<(), FileError> {
    let all = record.files.keys().chain(record.gates.keys()).filter_map(|path| Path::new(path).parent());
    let folders: BTreeSet<&Path> = all.chain([Path::new(UNIT_FOLDER)]).collect();
    files::sync_all(disk, &folders.into_iter().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_first_release_is_read() {
        let json = r#"{"files":{"/etc/x":{"before":{"file":{"sha256":"ab","mode":416,"uid":1,"gid":2}},"wrote":["cd"]},
            "/etc/y":{"before":"absent","anyContent":true}},"gates":{"/g":"absent"},"folders":["/etc/z"],
            "units":{"a.service":{"enabled":true,"active":false}}}"#;
        let record: Record = serde_json::from_str(json).unwrap();
        assert_eq!(record.subjects(), ["/etc/x", "/etc/y", "/g", "a.service", "/etc/z"]);
        assert!(record.clone().without(&record).is_empty());
    }
}
