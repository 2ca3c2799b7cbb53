//! What was on this node before nodestrap changed it, kept so that it can be put back.
//!
//! ```text
//! /var/lib/nodestrap/before/record.json   which files, folders and units we touched, and what they were before
//! /var/lib/nodestrap/before/<sha256>      the content of a file that was there before, 0600
//! ```
//!
//! The oldest original stays: what an earlier plan of ours wrote is not "before". The record is written before anything
//! else, without a sync of its own: the `syncfs` that a commit needs anyway makes it durable before the first name is
//! switched. So a record that a power cut tore tells of a node on which nothing was switched yet, and counts as absent. A
//! record that replaces another one is made durable at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use engine::Digest;
use host::disk::{Disk, DiskError, Kind};
use host::files::{self, FileError};
use host::units::unit_file::{self, Found};
use host::units::{ActiveState, UnitError, UnitName, Units};
use render::bundle::Bundle;
use render::network::{NETWORK_SETTINGS_PATH, NetworkSettings};
use serde::{Deserialize, Serialize};

use crate::gate::{self, GateState};
use crate::plan::{UNIT_FOLDER, unit_text};
use crate::store::{STATE_FOLDER, STATE_FOLDER_MODE};

pub(crate) const BEFORE_FOLDER: &str = "/var/lib/nodestrap/before";
pub(crate) const RECORD_PATH: &str = "/var/lib/nodestrap/before/record.json";
/// What was there before may be a secret.
const KEPT_MODE: u32 = 0o600;
/// Thousands of files.
const RECORD_LIMIT: u64 = 8 * 1024 * 1024;
/// No configuration file is near this.
const ORIGINAL_LIMIT: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) files: BTreeMap<String, FileRecord>,
    /// Gates by path; they are told by their seal, not by what we wrote.
    pub(crate) gates: BTreeMap<String, Before>,
    /// Folders that were not there.
    pub(crate) folders: BTreeSet<String>,
    pub(crate) units: BTreeMap<String, UnitRecord>,
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
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Before {
    Absent,
    File { sha256: String, mode: u32, uid: u32, gid: u32 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnitRecord {
    pub(crate) enabled: bool,
    pub(crate) active: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BeforeError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("what was at {path:?} before nodestrap came is not kept whole any more")]
    Lost { path: String },
}

impl From<DiskError> for BeforeError {
    fn from(error: DiskError) -> Self {
        Self::File(error.into())
    }
}

/// How far the disk and the record agree about one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    AsBefore,
    Ours,
    /// Somebody changed it since.
    Changed,
}

/// The record, if it is there and whole.
pub(crate) fn load(disk: &dyn Disk) -> Result<Option<Record>, DiskError> {
    let Some(bytes) = disk.read(Path::new(RECORD_PATH), RECORD_LIMIT)? else { return Ok(None) };
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Option<Record> {
    let seal_end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (seal, json) = (&bytes[..seal_end], &bytes[seal_end + 1..]);
    (seal == Digest::of(json).as_str().as_bytes()).then(|| serde_json::from_slice(json).ok())?
}

/// A line that seals the JSON after it.
fn print(record: &Record) -> Vec<u8> {
    // Nothing in a record can fail to be written; an empty one would be seen as torn.
    let mut json = serde_json::to_vec_pretty(record).unwrap_or_default();
    json.push(b'\n');
    let mut bytes = format!("{}\n", Digest::of(&json)).into_bytes();
    bytes.append(&mut json);
    bytes
}

/// What shall be known before the bundle's files are switched in.
pub(crate) struct Wanted<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) units: &'a dyn Units,
    pub(crate) bundle: &'a Bundle,
    /// Folders that the plan makes besides those of files.
    pub(crate) folders: &'a [&'a str],
    /// The journal tells of a commit. Where a record is missing all the same (an older release, a failing disk), a file
    /// that is as the bundle has it is then ours and no original.
    pub(crate) committed_before: bool,
}

impl Wanted<'_> {
    /// Why something has to be written; `None`: all is known and kept.
    pub(crate) fn missing(&self) -> Result<Option<String>, BeforeError> {
        let known = load(self.disk)?;
        let wanted = self.extend(known.clone().unwrap_or_default())?;
        Ok(match known {
            None => Some("nothing is known yet of what was here before".to_owned()),
            Some(known) if known != wanted => Some("the bundle touches more than is known of".to_owned()),
            Some(_) => {
                let lost = self.retakable(&wanted)?;
                match lost.first() {
                    Some(path) => Some(format!("the copy of {path} is not whole")),
                    None if files::has_leftover(self.disk, Path::new(RECORD_PATH))? => {
                        Some(format!("{RECORD_PATH}: left over by an interrupted run"))
                    }
                    None => None,
                }
            }
        })
    }

    /// Writes the record and the originals that it names.
    pub(crate) fn keep(&self) -> Result<(), BeforeError> {
        let known = load(self.disk)?;
        let wanted = self.extend(known.clone().unwrap_or_default())?;
        for folder in [STATE_FOLDER, BEFORE_FOLDER] {
            self.disk.make_folder(Path::new(folder), STATE_FOLDER_MODE)?;
        }
        let mut copies = Vec::new();
        for path in self.retakable(&wanted)? {
            copies.extend(self.take_original(&path)?);
        }
        let record = print(&wanted);
        if known.is_none() {
            return Ok(files::write_volatile(self.disk, Path::new(RECORD_PATH), KEPT_MODE, &record)?);
        }
        for copy in copies {
            self.disk.sync_file(&copy)?;
        }
        self.disk.sync_folder(Path::new(BEFORE_FOLDER))?;
        Ok(files::write_durable(self.disk, Path::new(RECORD_PATH), KEPT_MODE, &record, None)?)
    }

    fn extend(&self, mut record: Record) -> Result<Record, BeforeError> {
        let known = (record.files.len(), record.gates.len());
        for file in &self.bundle.files {
            self.extend_file(&mut record, &file.path, Some(file.sha256()))?;
        }
        if let Some(path) = cni_config(self.bundle) {
            self.extend_file(&mut record, &path, None)?;
        }
        let gate = &self.bundle.gate.path;
        if !record.gates.contains_key(gate) {
            let ours = match gate::observe(self.disk, gate)? {
                GateState::Absent | GateState::Open { .. } => true,
                GateState::Damaged { .. } => self.committed_before,
            };
            let before = if ours { Before::Absent } else { self.look(gate)? };
            record.gates.insert(gate.clone(), before);
        }
        // Folders of files that are known were looked at when those were new.
        if known != (record.files.len(), record.gates.len()) {
            record.folders.extend(self.missing_folders()?);
        }
        for unit in unit_names(self.bundle) {
            if !record.units.contains_key(unit) {
                record.units.insert(unit.to_owned(), self.look_at_unit(unit)?);
            }
        }
        Ok(record)
    }

    fn missing_folders(&self) -> Result<BTreeSet<String>, DiskError> {
        let files = self.bundle.files.iter().map(|file| &file.path).chain([&self.bundle.gate.path]);
        let of_files = files.flat_map(|path| Path::new(path).ancestors().skip(1));
        let of_links = self.link_folders()?;
        let of_plan = self.folders.iter().copied().chain(of_links.iter().map(String::as_str));
        let of_plan = of_plan.flat_map(|path| Path::new(path).ancestors());
        let mut missing = BTreeSet::new();
        for folder in of_files.chain(of_plan).collect::<BTreeSet<_>>() {
            if self.disk.stat(folder)?.is_none() {
                missing.insert(folder.display().to_string());
            }
        }
        Ok(missing)
    }

    /// Where the links of enabled units will lie.
    fn link_folders(&self) -> Result<Vec<String>, DiskError> {
        let mut folders = Vec::new();
        for unit in &self.bundle.units {
            let text = match unit_text(self.bundle, &unit.name) {
                Some(text) => text.into_owned(),
                None => match unit_file::find(self.disk, &UnitName(unit.name.clone()))? {
                    Found::File { content, .. } => content,
                    Found::Absent | Found::Masked => continue,
                },
            };
            let install = unit_file::parse_install(&text);
            folders.extend(install.wanted_by.iter().map(|target| format!("{UNIT_FOLDER}/{target}.wants")));
            folders.extend(install.required_by.iter().map(|target| format!("{UNIT_FOLDER}/{target}.requires")));
        }
        Ok(folders)
    }

    fn extend_file(&self, record: &mut Record, path: &str, sha256: Option<&str>) -> Result<(), BeforeError> {
        let known = match record.files.get_mut(path) {
            Some(known) => known,
            None => {
                let before = match self.look(path)? {
                    Before::File { sha256: found, .. } if self.committed_before && Some(found.as_str()) == sha256 => {
                        Before::Absent
                    }
                    before => before,
                };
                let new = FileRecord { before, wrote: Vec::new(), any_content: sha256.is_none() };
                record.files.entry(path.to_owned()).or_insert(new)
            }
        };
        if let Some(sha256) = sha256.filter(|sha256| !known.wrote.iter().any(|wrote| wrote == sha256)) {
            // Until the switch, the file is what an earlier plan of ours made it.
            let found = sha256_at(self.disk, path)?;
            known.wrote.retain(|wrote| found.as_ref() == Some(wrote));
            known.wrote.push(sha256.to_owned());
        }
        Ok(())
    }

    fn look(&self, path: &str) -> Result<Before, DiskError> {
        let stat = self.disk.stat(Path::new(path))?;
        // What is not a file is refused when the new file is staged, so it stays as it is.
        let Some(stat) = stat.filter(|stat| stat.kind == Kind::File) else { return Ok(Before::Absent) };
        let Some(sha256) = sha256_at(self.disk, path)? else { return Ok(Before::Absent) };
        Ok(Before::File { sha256, mode: stat.mode, uid: stat.uid, gid: stat.gid })
    }

    /// The service manager is asked only about units that it can know.
    fn look_at_unit(&self, name: &str) -> Result<UnitRecord, BeforeError> {
        let unit = UnitName(name.to_owned());
        if unit_file::find(self.disk, &unit)? == Found::Absent {
            return Ok(UnitRecord::default());
        }
        let state = self.units.state(&unit)?;
        let active = matches!(state.active, ActiveState::Active | ActiveState::Activating);
        Ok(UnitRecord { enabled: state.enabled, active })
    }

    /// Originals whose copies are missing or torn, and which are still in their places.
    fn retakable(&self, record: &Record) -> Result<Vec<String>, BeforeError> {
        let mut paths = Vec::new();
        for (path, before) in originals(record) {
            let Before::File { sha256, .. } = before else { continue };
            if load_original(self.disk, sha256)?.is_none() && sha256_at(self.disk, path)?.as_ref() == Some(sha256) {
                paths.push(path.clone());
            }
        }
        Ok(paths)
    }

    fn take_original(&self, path: &str) -> Result<Option<PathBuf>, BeforeError> {
        let Some(content) = self.disk.read(Path::new(path), ORIGINAL_LIMIT)? else { return Ok(None) };
        let copy = place(Digest::of(&content).hex());
        self.disk.remove(&copy)?;
        self.disk.create(&copy, KEPT_MODE, &content)?;
        Ok(Some(copy))
    }
}

pub(crate) fn originals(record: &Record) -> impl Iterator<Item = (&String, &Before)> {
    record.files.iter().map(|(path, file)| (path, &file.before)).chain(&record.gates)
}

/// Those of hooks too: one may have left something running.
fn unit_names(bundle: &Bundle) -> impl Iterator<Item = &str> {
    let hooks = bundle.hooks.iter().map(|hook| hook.unit.as_str());
    bundle.units.iter().map(|unit| unit.name.as_str()).chain(hooks)
}

/// What `nodestrap network` will write, if the bundle has it do so.
fn cni_config(bundle: &Bundle) -> Option<String> {
    let settings = bundle.files.iter().find(|file| file.path == NETWORK_SETTINGS_PATH)?;
    NetworkSettings::parse(&settings.content).ok().map(|settings| settings.cni_config)
}

fn place(sha256: &str) -> PathBuf {
    Path::new(BEFORE_FOLDER).join(sha256)
}

fn sha256_at(disk: &dyn Disk, path: &str) -> Result<Option<String>, DiskError> {
    match disk.stat(Path::new(path))? {
        Some(stat) if stat.kind == Kind::File => {
            let content = disk.read(Path::new(path), ORIGINAL_LIMIT)?;
            Ok(content.map(|content| Digest::of(&content).hex().to_owned()))
        }
        _ => Ok(None),
    }
}

/// The content that was there before; `None` if the copy is gone or not whole.
fn load_original(disk: &dyn Disk, sha256: &str) -> Result<Option<Vec<u8>>, DiskError> {
    let content = disk.read(&place(sha256), ORIGINAL_LIMIT)?;
    Ok(content.filter(|content| Digest::of(content).hex() == sha256))
}

/// Compares with the disk. Mode and owner count only for what shall be as it was before.
pub(crate) fn compare(disk: &dyn Disk, path: &str, file: &FileRecord) -> Result<Now, DiskError> {
    let stat = disk.stat(Path::new(path))?;
    let found = sha256_at(disk, path)?;
    Ok(match (&file.before, &stat, &found) {
        (Before::Absent, None, _) => Now::AsBefore,
        // Somebody took ours away: what was there before can only be missed.
        (Before::File { .. }, None, _) => Now::Ours,
        (Before::File { sha256, mode, uid, gid }, Some(stat), Some(found))
            if found == sha256 && (*mode, *uid, *gid) == (stat.mode, stat.uid, stat.gid) =>
        {
            Now::AsBefore
        }
        (Before::File { sha256, .. }, _, Some(found)) if found == sha256 => Now::Ours,
        (_, _, Some(found)) if file.any_content || file.wrote.contains(found) => Now::Ours,
        (..) => Now::Changed,
    })
}

/// Puts back what was there before, durably. `owner`: whether owners are ours to set.
pub(crate) fn put_back(disk: &dyn Disk, path: &str, before: &Before, owner: bool) -> Result<(), BeforeError> {
    match before {
        Before::Absent => {
            files::remove_durable(disk, Path::new(path))?;
            Ok(())
        }
        Before::File { sha256, mode, uid, gid } => {
            let content = load_original(disk, sha256)?;
            let content = content.ok_or_else(|| BeforeError::Lost { path: path.to_owned() })?;
            let owner = owner.then_some((*uid, *gid));
            Ok(files::write_durable(disk, Path::new(path), *mode, &content, owner)?)
        }
    }
}

/// What earlier bundles brought and this one does not.
pub(crate) struct Obsolete {
    /// Those that are still as we wrote them.
    pub(crate) files: Vec<String>,
    /// Those that are as they were before, of which nothing remains to be known.
    pub(crate) undone: Vec<String>,
    pub(crate) units: Vec<String>,
}

pub(crate) fn obsolete(disk: &dyn Disk, record: &Record, bundle: &Bundle) -> Result<Obsolete, DiskError> {
    let cni = cni_config(bundle);
    let mut found = Obsolete { files: Vec::new(), undone: Vec::new(), units: Vec::new() };
    for (path, file) in &record.files {
        if bundle.files.iter().any(|other| other.path == *path) || cni.as_ref() == Some(path) {
            continue;
        }
        match compare(disk, path, file)? {
            Now::Ours => found.files.push(path.clone()),
            Now::AsBefore => found.undone.push(path.clone()),
            // Whoever changed it wants it; `reset` tells of it.
            Now::Changed => {}
        }
    }
    let is_of_bundle = |name: &&String| unit_names(bundle).any(|unit| unit == name.as_str());
    found.units = record.units.keys().filter(|name| !is_of_bundle(name)).cloned().collect();
    Ok(found)
}

/// Writes a record that knows less than the one before.
pub(crate) fn replace(disk: &dyn Disk, record: &Record) -> Result<(), FileError> {
    files::write_durable(disk, Path::new(RECORD_PATH), KEPT_MODE, &print(record), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_every_truncation_of_it_counts_as_absent() {
        let mut record = Record::default();
        let before = Before::File { sha256: "ab".to_owned(), mode: 0o640, uid: 1, gid: 2 };
        let file = FileRecord { before, wrote: vec!["cd".to_owned()], any_content: false };
        record.files.insert("/etc/x".to_owned(), file);
        record.units.insert("a.service".to_owned(), UnitRecord { enabled: true, active: false });
        let bytes = print(&record);
        assert_eq!(parse(&bytes), Some(record));
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length]), None, "{length} bytes");
        }
    }
}
