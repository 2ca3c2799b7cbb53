//! Whether the kubelet may start: what `nodestrap gate` finds before each start, and what it does about it.
//!
//! ```text
//! gate absent                                   → shut
//! this disk was complete on another machine      → refused; the gate stays, since that machine may get its disk back
//! gate damaged, or a file that the kubelet reads → taken away: the bootstrap runs again and mends it, in the same boot
//! a program that nodestrap brought is missing, empty or cannot be run → the same
//! such a file changed by somebody                → open, with a word: an edit survives a restart
//! no record of what was written                  → open, with a word
//! ```
//!
//! Reads the gate, the record of the last complete state and the files that the kubelet reads; writes nothing but takes the
//! gate away, and that durably.

use std::path::Path;

use bundle::resource::damage::{Judgement, judge};
use bundle::resource::file::Found;
use bundle::{ExtensionDigest, FileDigest, GATE_PATHS, Manifest, TreeDigest};
use host::disk::{Disk, DiskError, Kind, Look, follow};
use host::files::{self, FileError};
use host::machine::{Machine, MachineIdentity};

use crate::complete;
use crate::ownership::{MachineVerdict, compare_machine};
use crate::refusals::Refusal;
use crate::resource::Ownership;
use crate::resource::credential::needs_no_bootstrap;
use crate::resource::file::{COMPARED_BYTES, found};
use crate::resource::gate::{self, GateState};
use crate::resource::tree::whole::{Glance, glance};

/// What stands at the kubelet's gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kubelet may start; what people should know all the same.
    Open { remarks: Vec<String> },
    /// The node is not complete yet.
    Shut,
    /// It was open, and is not any more.
    TakenAway { reason: String },
    /// It is open, but for another machine.
    AnotherMachine(Refusal),
}

#[derive(Debug, thiserror::Error)]
pub enum VouchError {
    #[error("{path:?} is not the gate of any layout; they are {}", GATE_PATHS.join(" and "))]
    NotAGate { path: String },
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<DiskError> for VouchError {
    fn from(error: DiskError) -> Self {
        Self::File(error.into())
    }
}

pub fn vouch(disk: &dyn Disk, machine: &dyn Machine, path: &str) -> Result<Verdict, VouchError> {
    if !GATE_PATHS.contains(&path) {
        return Err(VouchError::NotAGate { path: path.to_owned() });
    }
    let gate = gate::observe(disk, path)?;
    let opened_for = gate.machine().unwrap_or_default().to_owned();
    let bundle = match gate {
        GateState::Absent => return Ok(Verdict::Shut),
        GateState::Damaged { reason } => {
            return take_away(disk, path, format!("the gate {path} was damaged ({reason})"));
        }
        GateState::Open { bundle, .. } => bundle,
    };
    let complete = complete::load(disk)?;
    let mut remarks = Vec::new();
    // Ids that cannot be read say nothing about the machine, and do not keep the kubelet back.
    let now = machine.identity().unwrap_or_default();
    match complete.as_ref().map(|complete| compare_machine(complete, &now)) {
        None if !opened_for.is_empty() && now != MachineIdentity::default() && !now.has(&opened_for) => {
            remarks.push(format!(
                "the gate was opened on the machine {opened_for}, which is no id of this one, and nothing else tells whose node \
                 this is: if its disk was copied, two machines are one node now"
            ));
        }
        None | Some(MachineVerdict::Own) => {}
        Some(MachineVerdict::Changed { remark }) => remarks.push(remark),
        Some(MachineVerdict::Another(refusal)) => return Ok(Verdict::AnotherMachine(refusal)),
    }
    let Some(complete) = complete.filter(|complete| complete.manifest.bundle == *bundle) else {
        let remark = "nothing tells what was written here for this gate, so the files that the kubelet reads are not \
                      compared; the next `nodestrap apply` notes it down";
        remarks.push(remark.to_owned());
        return Ok(Verdict::Open { remarks });
    };
    let manifest = &complete.manifest;
    for compared in [
        compare_files(disk, manifest)?,
        compare_trees(disk, &manifest.trees)?,
        compare_extensions(disk, &manifest.extensions)?,
    ] {
        match compared {
            Compared::Damaged { file, what } => {
                return take_away(disk, path, format!("{file}, which the kubelet needs, is damaged: {what}"));
            }
            Compared::Usable { remarks: drift } => remarks.extend(drift),
        }
    }
    Ok(Verdict::Open { remarks })
}

fn take_away(disk: &dyn Disk, path: &str, reason: String) -> Result<Verdict, VouchError> {
    files::remove_durable(disk, Path::new(path))?;
    Ok(Verdict::TakenAway { reason })
}

enum Compared {
    Usable { remarks: Vec<String> },
    Damaged { file: String, what: String },
}

/// The first damage ends it: whoever mends that looks at all the others, too.
fn compare_files(disk: &dyn Disk, manifest: &Manifest) -> Result<Compared, DiskError> {
    let has_joined = needs_no_bootstrap(disk, &manifest.join)?;
    let mut remarks = Vec::new();
    for file in manifest.read_by_kubelet(has_joined) {
        let there = disk.look(file.path.as_path(), COMPARED_BYTES)?;
        match judge_found(file, there.as_ref()) {
            Judgement::AsWritten => {}
            Judgement::Drift(what) => {
                let is_link = there.is_some_and(|there| matches!(there.stat.kind, Kind::Link { .. }));
                let next = if is_link { "is refused until somebody has moved the link away" } else { "puts it back" };
                remarks.push(format!(
                    "{} is not as nodestrap wrote it: {what}; the kubelet starts with it, and the next `nodestrap apply` {next}",
                    file.path
                ));
            }
            Judgement::Damage(what) => return Ok(Compared::Damaged { file: file.path.to_string(), what }),
        }
    }
    Ok(Compared::Usable { remarks })
}

/// Programs by their names, sizes and modes, which takes no time. What is in them is for `nodestrap verify`.
fn compare_trees(disk: &dyn Disk, trees: &[TreeDigest]) -> Result<Compared, DiskError> {
    let mut remarks = Vec::new();
    for tree in trees {
        let damaged = |file: String, what: &str| Ok(Compared::Damaged { file, what: what.to_owned() });
        let current = tree.current();
        match disk.stat(Path::new(&current))?.map(|stat| stat.kind) {
            Some(Kind::Link { target }) if target == tree.name => {}
            Some(Kind::Link { .. }) if follow(disk, Path::new(&current))?.is_none() => {
                return damaged(current, "it leads nowhere");
            }
            Some(Kind::Link { target }) => remarks.push(format!(
                "{current} leads to {target}, not to {}; the kubelet starts with it, and the next `nodestrap apply` puts it back",
                tree.name
            )),
            Some(_) => return damaged(current, "it is no link"),
            None => return damaged(current, "it is missing"),
        }
        match glance(disk, &tree.folder())? {
            Glance::Whole => {}
            Glance::Absent => return damaged(tree.folder(), "it is missing"),
            Glance::Damaged(what) => return damaged(tree.folder(), &what),
            Glance::Changed(what) => remarks.push(format!(
                "{}: {what}; the kubelet starts with it, and the next `nodestrap apply` puts it back",
                tree.folder()
            )),
        }
        for place in tree.links.keys() {
            if follow(disk, place.as_path())?.is_none() {
                return damaged(place.to_string(), "it is missing or leads nowhere");
            }
        }
    }
    Ok(Compared::Usable { remarks })
}

/// Images by their sizes, and their programs by whether they are there: an update of the system may have made systemd pass over an
/// image.
fn compare_extensions(disk: &dyn Disk, extensions: &[ExtensionDigest]) -> Result<Compared, DiskError> {
    let mut remarks = Vec::new();
    for extension in extensions {
        let damaged = |file: String, what: &str| Ok(Compared::Damaged { file, what: what.to_owned() });
        match disk.stat(Path::new(&extension.image))? {
            None => return damaged(extension.image.clone(), "it is missing"),
            Some(stat) if stat.kind != Kind::File || stat.size != extension.size => {
                return damaged(extension.image.clone(), "it has another size");
            }
            Some(_) => {}
        }
        let link = extension.name.link();
        match disk.stat(Path::new(&link))?.map(|stat| stat.kind) {
            Some(Kind::Link { target }) if target == extension.image => {}
            Some(_) => remarks.push(format!(
                "{link} does not lead to {}; the kubelet starts with it, and the next `nodestrap apply` puts it back",
                extension.image
            )),
            None => return damaged(link, "it is missing"),
        }
        for program in &extension.programs {
            if follow(disk, program.as_path())?.is_none() {
                return damaged(program.to_string(), "it is not there: its extension is not merged");
            }
        }
    }
    Ok(Compared::Usable { remarks })
}

fn judge_found(file: &FileDigest, there: Option<&Look>) -> Judgement {
    match there {
        None => judge(file, &Found::Absent),
        Some(Look { stat, content }) => judge(file, &found(stat, content.as_deref(), Ownership::Keep)),
    }
}
