//! Drift: what on this node is no more as its bundle and its plan made it. Reads only.
//!
//! In: a bundle and a host. Out: a [`Verification`], every difference with what is expected and what was found. Contents of
//! secret files are never in it. Fails only where the disk cannot be read; a service manager that does not answer is a
//! finding, because a unit that nobody can tell the state of is not verified.

use std::path::Path;

use host::disk::{Disk, DiskError, Kind, Look, Stat};
use host::files::{self, FileError};
use host::units::{ActiveState, UnitName, Units};
use render::ValueChange;
use render::bundle::{Bundle, File, Secrecy, Start, Unit};
use serde::Serialize;

use crate::before;
use crate::gate::{self, GateState};
use crate::plan::{has_line, unit_text};
use crate::session::{NodeHost, SessionError, prepare};
use crate::steps::{Ownership, chain};

/// A file that grew beyond this is told by its size.
const COMPARED_BYTES: u64 = 1024 * 1024;

/// Where systemd looks for drop-ins of a unit.
const DROP_IN_ROOTS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    pub bundle: String,
    pub plan: String,
    /// How many files and units were looked at.
    pub files: usize,
    pub units: usize,
    pub drift: Vec<Finding>,
    /// What is no drift, but changes what the bundle's files mean.
    pub remarks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A path or the name of a unit.
    pub subject: String,
    pub what: Aspect,
    pub expected: String,
    pub found: String,
    /// Value by value or line by line, expected as `old`; empty for a secret.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ValueChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    Gate,
    /// Absent, or not a file at all.
    Presence,
    Content,
    Mode,
    Owner,
    /// A temporary file of a write that was cut off.
    Leftover,
    Enabled,
    Active,
    /// systemd has not read the file that is there now.
    Reload,
}

impl Aspect {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Presence => "presence",
            Self::Content => "content",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Leftover => "leftover",
            Self::Enabled => "enabled",
            Self::Active => "active",
            Self::Reload => "reload",
        }
    }
}

/// Compares the node with the bundle, and the gate with the plan that this bundle and this machine give.
pub fn verify(host: &NodeHost, bundle: &Bundle) -> Result<Verification, SessionError> {
    let (_, plan) = prepare(host, bundle)?;
    let plan = plan.digest().to_string();
    let disk = host.disk.as_ref();
    let mut drift = Vec::new();
    let failed = |error: FileError| SessionError::Look(error);
    drift.extend(verify_gate(disk, bundle, &plan).map_err(|error| failed(error.into()))?);
    for file in &bundle.files {
        drift.extend(verify_file(disk, file, host.ownership).map_err(failed)?);
    }
    let mut remarks = Vec::new();
    for unit in &bundle.units {
        drift.extend(verify_unit(host.units.as_ref(), bundle, unit));
        remarks.extend(foreign_drop_ins(disk, bundle, &unit.name).map_err(|error| failed(error.into()))?);
    }
    if let Some(record) = before::load(disk).map_err(|error| failed(error.into()))? {
        let obsolete = before::obsolete(disk, &record, bundle).map_err(|error| failed(error.into()))?;
        let left = obsolete.files.iter().chain(&obsolete.units);
        remarks.extend(left.map(|one| format!("{one} is of an earlier bundle; nodestrap apply undoes it")));
    }
    let (files, units) = (bundle.files.len(), bundle.units.len());
    Ok(Verification { bundle: bundle.digest(), plan, files, units, drift, remarks })
}

fn finding(subject: impl Into<String>, what: Aspect, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding { subject: subject.into(), what, expected: expected.into(), found: found.into(), changes: Vec::new() }
}

fn verify_gate(disk: &dyn Disk, bundle: &Bundle, plan: &str) -> Result<Option<Finding>, DiskError> {
    let path = &bundle.gate.path;
    let found = match gate::observe(disk, path)? {
        GateState::Open { plan: opened_by, .. } if opened_by == plan => return Ok(None),
        GateState::Open { plan, bundle: other } if other != bundle.digest() => {
            format!("opened by plan {plan} of another bundle, {other}")
        }
        // Such as a host name that changed since.
        GateState::Open { plan, .. } => format!("opened by plan {plan}: other facts of this machine"),
        GateState::Absent => "absent: shut".to_owned(),
        GateState::Damaged { reason } => format!("damaged: {reason}"),
    };
    Ok(Some(finding(path, Aspect::Gate, format!("opened by plan {plan}"), found)))
}

fn verify_file(disk: &dyn Disk, file: &File, ownership: Ownership) -> Result<Vec<Finding>, FileError> {
    let path = Path::new(&file.path);
    let mut findings = Vec::new();
    if files::has_leftover(disk, path)? {
        findings.push(finding(&file.path, Aspect::Leftover, "none", "a temporary file of an interrupted write"));
    }
    let limit = COMPARED_BYTES.max(file.content.len() as u64);
    let Some(Look { stat, content }) = disk.look(path, limit)? else {
        findings.push(finding(&file.path, Aspect::Presence, "a file", "nothing"));
        return Ok(findings);
    };
    if let Some(other) = other_kind(&stat) {
        findings.push(finding(&file.path, Aspect::Presence, "a file", other));
        return Ok(findings);
    }
    findings.extend(verify_content(file, stat.size, content.as_deref()));
    if stat.mode != file.mode {
        let octal = |mode: u32| format!("{mode:04o}");
        findings.push(finding(&file.path, Aspect::Mode, octal(file.mode), octal(stat.mode)));
    }
    if let Some((uid, gid)) = ownership.owner()
        && (uid, gid) != (stat.uid, stat.gid)
    {
        let (expected, found) = (format!("{uid}:{gid}"), format!("{}:{}", stat.uid, stat.gid));
        findings.push(finding(&file.path, Aspect::Owner, expected, found));
    }
    Ok(findings)
}

fn other_kind(stat: &Stat) -> Option<String> {
    match &stat.kind {
        Kind::File => None,
        Kind::Folder => Some("a folder".to_owned()),
        Kind::Link { target } => Some(format!("a link to {target}")),
        Kind::Other => Some("something that is not a file".to_owned()),
    }
}

/// `found` is `None` if there is more of it than is compared.
fn verify_content(file: &File, size: u64, found: Option<&[u8]>) -> Option<Finding> {
    if found == Some(&*file.content) {
        return None;
    }
    let bytes = |count: u64| format!("{count} bytes");
    // The digest of a short secret could be guessed backwards, so a secret shows its size only.
    let changes = match (found, file.secrecy) {
        (Some(found), Secrecy::Public) => render::diff_contents(&file.path, &file.content, found),
        _ => Vec::new(),
    };
    let (expected, found) = match (file.secrecy, changes.len()) {
        (Secrecy::Secret, _) => ("secret, not shown".to_owned(), "other content".to_owned()),
        (Secrecy::Public, 0) => (bytes(file.content.len() as u64), bytes(size)),
        (Secrecy::Public, 1) => ("as rendered".to_owned(), "1 value differs".to_owned()),
        (Secrecy::Public, count) => ("as rendered".to_owned(), format!("{count} values differ")),
    };
    Some(Finding { changes, ..finding(&file.path, Aspect::Content, expected, found) })
}

fn verify_unit(units: &dyn Units, bundle: &Bundle, unit: &Unit) -> Vec<Finding> {
    let state = match units.state(&UnitName(unit.name.clone())) {
        Ok(state) => state,
        Err(error) => return vec![finding(&unit.name, Aspect::Active, "known", chain(&error))],
    };
    let text = unit_text(bundle, &unit.name);
    let has = |line: &str| text.as_ref().is_some_and(|text| has_line(text, line));
    let mut findings = Vec::new();
    if let Some(expected) = wrong_activity(state.active, unit.start, has("Type=oneshot")) {
        let result = match state.result.as_str() {
            "" | "success" => String::new(),
            result => format!(" ({result})"),
        };
        findings.push(finding(&unit.name, Aspect::Active, expected, format!("{}{result}", word(state.active))));
    }
    // Without an `[Install]` section there is nothing to enable.
    let can_be_enabled = text.is_none() || has("[Install]");
    let unusable = matches!(state.active, ActiveState::NotFound | ActiveState::Masked);
    if unit.start != Start::ByOthers && can_be_enabled && !state.enabled && !unusable {
        findings.push(finding(&unit.name, Aspect::Enabled, "starts at boot", "does not"));
    }
    if state.needs_reload {
        findings.push(finding(&unit.name, Aspect::Reload, "read by systemd", "changed on disk since"));
    }
    findings
}

/// What is expected instead of this state, if it is wrong.
fn wrong_activity(active: ActiveState, start: Start, ends_by_itself: bool) -> Option<&'static str> {
    let runs = matches!(active, ActiveState::Active | ActiveState::Activating);
    let rests = matches!(active, ActiveState::Inactive | ActiveState::Deactivating);
    match start {
        _ if runs => None,
        Start::ByOthers if rests => None,
        Start::ByOthers => Some("not failed"),
        _ if ends_by_itself && rests => None,
        _ if ends_by_itself => Some("ran to its end"),
        Start::BeforeGate | Start::AfterGate => Some("active"),
    }
}

fn word(active: ActiveState) -> &'static str {
    match active {
        ActiveState::Active => "active",
        ActiveState::Activating => "activating",
        ActiveState::Deactivating => "deactivating",
        ActiveState::Inactive => "inactive",
        ActiveState::Failed => "failed",
        ActiveState::NotFound => "not found",
        ActiveState::Masked => "masked",
    }
}

/// Drop-ins change what a unit does without touching its file. Whoever wrote one may have had a reason: a remark.
fn foreign_drop_ins(disk: &dyn Disk, bundle: &Bundle, unit: &str) -> Result<Vec<String>, DiskError> {
    let mut remarks = Vec::new();
    // `/lib` may be a link to `/usr/lib`: the same drop-in is told of once.
    let mut seen = std::collections::BTreeSet::new();
    for root in DROP_IN_ROOTS {
        let folder = format!("{root}/{unit}.d");
        for name in disk.list(Path::new(&folder))?.into_iter().filter(|name| name.ends_with(".conf")) {
            let path = format!("{folder}/{name}");
            let ours = bundle.files.iter().any(|file| file.path == path);
            if !ours && seen.insert(name) {
                remarks.push(format!("{unit} is changed by {path}, which is not of this bundle"));
            }
        }
    }
    Ok(remarks)
}
