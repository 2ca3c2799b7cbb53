//! What a node has, by family: look at it, keep what was there before, apply, verify, undo.
//!
//! The pure half of each family is the module of the same name in [`bundle::resource`]. A new family is those two modules and
//! a line in each list of families; planning, applying, verifying, undoing and comparing are loops over them.

pub(crate) mod credential;
pub(crate) mod extension;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod gate;
pub(crate) mod hook;
pub(crate) mod keep;
pub(crate) mod os;
pub(crate) mod package;
pub(crate) mod record;
pub(crate) mod snap;
pub(crate) mod started;
pub(crate) mod torcx;
pub(crate) mod tree;
pub(crate) mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bundle::resource::Difference;
use bundle::{Bundle, Component, Digest, ExtensionName, File, Snap};
use engine::{Clock, Condition, History, StepContext, StepError, Timestamp};
use host::UpdateEngine;
use host::disk::Disk;
use host::machine::{BootId, MachineIdentity};
use host::snaps::Snaps;
use host::units::Units;

use crate::artefacts::Artefacts;
use crate::bundle_source::Named;
use crate::facts::Os;
use crate::followed::Followed;
use record::Record;

/// What a family works with.
#[derive(Clone, Copy)]
pub(crate) struct Tools<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) units: &'a dyn Units,
    pub(crate) snaps: &'a dyn Snaps,
    pub(crate) artefacts: &'a dyn Artefacts,
    pub(crate) update_engine: &'a dyn UpdateEngine,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) ownership: Ownership,
}

/// A node on its way to what its bundle wants.
pub(crate) struct Node<'a> {
    pub(crate) tools: Tools<'a>,
    pub(crate) bundle: &'a Bundle,
    pub(crate) identity: Identity,
    /// As far as it is known now.
    pub(crate) machine: MachineIdentity,
    pub(crate) named: Named,
    /// The system that runs, and on which processor.
    pub(crate) os: Os,
    pub(crate) architecture: String,
    pub(crate) boot_id: BootId,
    /// This machine was a complete node before, with whichever bundle.
    pub(crate) was_complete: bool,
    /// What the bundle leaves to the node, as it was found out for this run.
    pub(crate) followed: Option<Followed>,
    /// Nothing is done, so nothing is started either, not even to ask.
    pub(crate) is_preview: bool,
    /// Every file, sorted by path.
    pub(crate) files: Vec<File>,
    /// What the bundle and the machine say in the gate; [`Node::whole_gate`] is all that stands there.
    pub(crate) environment: BTreeMap<String, String>,
    /// With every variable of its settings filled in.
    pub(crate) snap: Option<Snap>,
    /// The journal tells of files that were switched in, by whichever plan, and were not taken back since.
    pub(crate) committed_before: bool,
    /// When the journal was last written by a clock that could be right; see [`crate::timekeeping::last_believed`].
    pub(crate) last_believed: Timestamp,
    /// `stage-files` found every file as planned, so nothing has changed one since and nobody needs to look again.
    pub(crate) files_are_as_planned: AtomicBool,
    /// This run has asked all repositories of the system what they have.
    pub(crate) lists_are_new: AtomicBool,
    /// What `stage-files` left for `commit-files` of the same run.
    pub(crate) staged: Mutex<Option<file::StagedFiles>>,
    /// Trees that this run has read from the disk itself, and found whole.
    pub(crate) proved: Mutex<BTreeSet<Component>>,
    /// The same of extensions.
    pub(crate) proved_extensions: Mutex<BTreeSet<ExtensionName>>,
    /// Held while what units were started with is written down.
    pub(crate) starts: Mutex<()>,
}

/// What a node that is to be as it was before is known by.
pub(crate) struct Undoing<'a> {
    pub(crate) tools: Tools<'a>,
    /// All that shall be undone, and nothing else.
    pub(crate) record: &'a Record,
}

/// What makes a plan the same plan, whatever the machine is called and whichever release of its system it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) bundle: Digest,
    /// [`crate::Facts::known_as`]; empty if nothing is known of it.
    pub(crate) machine: String,
}

impl Identity {
    pub(crate) fn digest(&self) -> engine::Digest {
        engine::Digest::of(format!("{}\n{}", self.bundle, self.machine).as_bytes())
    }
}

/// Who owns the files of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// A machine: everything belongs to root.
    Root,
    /// A sandbox folder of somebody who is not root: files stay theirs.
    Keep,
}

impl Ownership {
    pub(crate) fn owner(self) -> Option<(u32, u32)> {
        match self {
            Self::Root => Some((0, 0)),
            Self::Keep => None,
        }
    }
}

impl Tools<'_> {
    pub(crate) fn remaining(&self, context: &StepContext<'_>) -> Duration {
        context.deadline.remaining(self.clock)
    }
}

/// One thing that a step of a plan does; `N` is what it works on.
pub(crate) trait Deed<N: ?Sized> {
    /// In a few words, for those who read the plan.
    fn describe(&self) -> String;
    /// What people want to see one by one, before it happens.
    fn details(&self) -> Vec<String> {
        Vec::new()
    }
    /// Looks and changes nothing.
    fn check(&self, on: &N, history: &History) -> Result<Condition, StepError>;
    /// Makes it so; again after any interruption.
    fn apply(&self, on: &N, context: &StepContext<'_>) -> Result<(), StepError>;
}

/// One kind of thing that a node has.
pub(crate) trait Family: Sync {
    /// Adds to the record what is there now, was not made by us, and is about to be changed. `known` is the record as it was.
    fn keep(&self, node: &Node<'_>, known: &Record, record: &mut Record) -> Result<(), StepError>;

    /// How what is there differs from what is wanted.
    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError>;

    /// Moves into `obsolete` what the record knows of and the bundle does not want any more.
    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError>;

    /// What undoing all that this record knows takes.
    fn undo(&self, record: &Record) -> Vec<UndoStep>;
}

/// Folders after files and gates, because they follow from them; what people look at first comes first.
pub(crate) const FAMILIES: [&dyn Family; 11] = [
    &gate::Gates,
    &package::PackageFamily,
    &tree::Trees,
    &extension::Extensions,
    &torcx::Addons,
    &file::Files,
    &unit::UnitFamily,
    &snap::SnapFamily,
    &folder::Folders,
    &credential::Credentials,
    &hook::Hooks,
];

/// What a look at one family found.
#[derive(Default)]
pub(crate) struct Verified {
    pub(crate) drift: Vec<Difference>,
    /// What is no drift, but changes what the bundle means, or cannot be observed.
    pub(crate) remarks: Vec<String>,
}

/// The order in which a node is undone: the gate first, so that from there on a crash means "not started".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UndoPhase {
    Check,
    CloseGate,
    Stop,
    Disable,
    /// With them goes the configuration that they brought; ours are put back afterwards.
    RemovePackages,
    Restore,
    /// What is linked is laid over `/usr` before anything is read or started from there.
    Merge,
    RemoveFolders,
    Reload,
    Restart,
    Tell,
}

pub(crate) struct UndoStep {
    pub(crate) phase: UndoPhase,
    pub(crate) id: String,
    pub(crate) deadline: Duration,
    pub(crate) barrier: bool,
    pub(crate) action: crate::reset::ResetAction,
}

/// `kubelet` for `kubelet.service`; other kinds of unit keep their suffix.
pub(crate) fn short(unit: &str) -> &str {
    unit.strip_suffix(".service").unwrap_or(unit)
}

pub(crate) fn host_name(unit: &str) -> host::units::UnitName {
    host::units::UnitName(unit.to_owned())
}

/// Needed for the first of these of which it is so.
pub(crate) fn first_that<T>(
    items: impl IntoIterator<Item = T>,
    mut is_so: impl FnMut(&T) -> Result<bool, StepError>,
    why: impl Fn(&T) -> String,
) -> Result<Condition, StepError> {
    for item in items {
        if is_so(&item)? {
            return Ok(Condition::Needed(why(&item)));
        }
    }
    Ok(Condition::AlreadySo)
}
