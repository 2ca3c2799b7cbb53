//! The gate: the file without which the kubelet does not start.
//!
//! Its last line is a checksum of all the others, so that an empty, torn or edited file is recognised and counts as absent; it
//! also names the bundle and the machine for which it was opened.

use std::collections::BTreeMap;
use std::path::Path;

use bundle::resource::{Aspect, Difference};
use bundle::{AbsolutePath, Bundle, EKSCTL_GATE_PATH, GATE_PATH, GateFact, Tree, UNIT_FOLDER, check_gate, render_gate};
use engine::{Condition, History, StepContext, StepError};
use host::disk::{Disk, DiskError};
use host::{doubt, files};
use serde::{Deserialize, Serialize};

use super::file::{FILES_DEADLINE, write};
use super::record::{self, Before, FileRecord, Now, RECORD_PATH, Record};
use super::{Deed, Family, Identity, Node, UndoPhase, UndoStep, Undoing, Verified};
use crate::complete::{self, Complete};
use crate::failure::{disk_error, file_error};
use crate::reset::ResetAction;

pub(crate) struct Gates;

/// No secrets inside; the kubelet's unit and people read it.
const MODE: u32 = 0o644;

/// Far more than any gate.
const GATE_LIMIT: u64 = 256 * 1024;

const BUNDLE_VARIABLE: &str = "NODESTRAP_BUNDLE";
const MACHINE_VARIABLE: &str = "NODESTRAP_MACHINE";
/// Of the bundle's part of a gate.
const CLUSTER_VARIABLE: &str = "NODESTRAP_CLUSTER";
const GROUP_VARIABLE: &str = "NODESTRAP_GROUP";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateState {
    Absent,
    /// Whole, and opened for this bundle; the rest of what stands in it.
    Open {
        bundle: String,
        environment: BTreeMap<String, String>,
    },
    Damaged {
        reason: String,
    },
}

/// Empty where there is no gate, or one that does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateOwner {
    pub cluster: Option<String>,
    pub group: Option<String>,
}

impl GateState {
    pub(crate) fn owner(&self) -> GateOwner {
        match self {
            Self::Open { environment, .. } => GateOwner {
                cluster: environment.get(CLUSTER_VARIABLE).cloned(),
                group: environment.get(GROUP_VARIABLE).cloned(),
            },
            Self::Absent | Self::Damaged { .. } => GateOwner::default(),
        }
    }

    /// The machine for which it was opened.
    pub(crate) fn machine(&self) -> Option<&str> {
        match self {
            Self::Open { environment, .. } => environment.get(MACHINE_VARIABLE).map(String::as_str),
            Self::Absent | Self::Damaged { .. } => None,
        }
    }
}

/// For those who have no bundle at hand, which alone could say what layout the node has.
pub(crate) fn observe_any(disk: &dyn Disk) -> Result<GateState, DiskError> {
    let ours = observe(disk, GATE_PATH)?;
    // Something else may lie where the other layout has its gate.
    match observe(disk, EKSCTL_GATE_PATH)? {
        open @ GateState::Open { .. } => Ok(open),
        found if ours == GateState::Absent => Ok(found),
        _ => Ok(ours),
    }
}

/// Whether the kubelet may start, whatever a run had to do with it: at the gate of this bundle, or at that of the node's own.
pub fn is_any_open(disk: &dyn Disk, bundle: Option<&Bundle>) -> bool {
    let own = complete::load(disk).ok().flatten().map(|complete| complete.manifest.gate);
    let paths = bundle.map(|bundle| bundle.gate.path.clone()).into_iter().chain(own);
    let is_open = |state: Result<GateState, DiskError>| matches!(state, Ok(GateState::Open { .. }));
    paths.into_iter().any(|path| is_open(observe(disk, &path))) || is_open(observe_any(disk))
}

pub fn observe(disk: &dyn Disk, path: &str) -> Result<GateState, DiskError> {
    let Some(bytes) = disk.read(Path::new(path), GATE_LIMIT)? else {
        return Ok(GateState::Absent);
    };
    Ok(match check_gate(&bytes) {
        Ok(environment) => match environment.get(BUNDLE_VARIABLE).cloned() {
            Some(bundle) => GateState::Open { bundle, environment },
            None => GateState::Damaged { reason: format!("{BUNDLE_VARIABLE} is missing") },
        },
        Err(damage) => GateState::Damaged { reason: damage.to_string() },
    })
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// A gate of another bundle or machine is taken away before the first change: from here on a crash means "not started".
    CloseGate {
        path: String,
    },
    OpenGate {
        path: String,
        environment: BTreeMap<String, String>,
    },
}

impl Node<'_> {
    /// All that stands in the gate: what the bundle and the machine say, and for whom it is open.
    fn whole_gate(&self) -> BTreeMap<String, String> {
        let Identity { bundle, machine } = &self.identity;
        let bound = [(BUNDLE_VARIABLE, bundle.to_string()), (MACHINE_VARIABLE, machine.clone())];
        let said = self.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        said.chain(bound.map(|(name, value)| (name.to_owned(), value))).collect()
    }

    fn gate_state(&self, path: &str) -> Result<GateState, StepError> {
        observe(self.tools.disk, path).map_err(|error| disk_error(&error))
    }

    /// The gate is open for this very bundle and this machine.
    pub(crate) fn is_complete(&self) -> Result<bool, StepError> {
        Ok(self.is_open(&self.gate_state(&self.bundle.gate.path)?))
    }

    fn is_open(&self, gate: &GateState) -> bool {
        matches!(gate, GateState::Open { environment, .. } if *environment == self.whole_gate())
    }

    /// What is remembered of this node once its gate is open, and what is remembered now.
    fn complete(&self) -> Result<(Complete, Option<Complete>), DiskError> {
        let found = complete::load(self.tools.disk)?;
        let known_as = self.identity.machine.clone();
        let before = found.as_ref().filter(|before| before.known_as == known_as);
        let machine = before.map_or_else(|| self.machine.clone(), |before| self.machine.or(&before.machine));
        Ok((Complete { machine, known_as, manifest: self.bundle.manifest() }, found))
    }

    /// For a gate that is open already: what became known of its machine since, and all of it where an earlier release opened
    /// it. No step of the plan, since the hooks behind the gate would count as not run.
    pub(crate) fn remember_complete(&self) -> Result<(), files::FileError> {
        let (wanted, found) = self.complete()?;
        match self.is_open(&observe(self.tools.disk, &self.bundle.gate.path)?) && found.as_ref() != Some(&wanted) {
            true => complete::write(self.tools.disk, &wanted),
            false => Ok(()),
        }
    }

    /// Gates that earlier bundles had elsewhere, and that are still ours.
    fn other_gates(&self) -> Result<Vec<String>, StepError> {
        let record = record::load_for_step(self.tools.disk)?;
        let undoing = Undoing { tools: self.tools, record: &record };
        let mut others = Vec::new();
        for path in record.gates.keys().filter(|path| self.bundle.gate.path != ***path) {
            if undoing.gate_is_ours(path)? {
                others.push(path.clone());
            }
        }
        Ok(others)
    }

    /// What an earlier run wrote can be seen, but need not be durable if that run was cut off before its sync; nor are the
    /// links by which systemd enables units. So everything the gate vouches for is synced first. And what a sync says need
    /// not be so, if it was told to somebody else: then every file is read from the disk itself.
    fn open_gate(&self, path: &str) -> Result<(), files::FileError> {
        let disk = self.tools.disk;
        // One file of each folder stands for all: they lie on the same file system.
        let there = self.files.iter().filter(|file| !file.content.is_spent());
        let by_folder: BTreeMap<_, _> =
            there.map(|file| file.path.as_path()).map(|path| (path.parent(), path)).collect();
        let more = [Path::new(UNIT_FOLDER), Path::new(RECORD_PATH)];
        let trees = &self.bundle.trees;
        let currents: Vec<String> = trees.iter().map(Tree::current).collect();
        let links = trees.iter().flat_map(|tree| tree.links.keys().map(AbsolutePath::as_path));
        let extensions: Vec<String> =
            self.bundle.extensions.iter().flat_map(|one| [one.image(), one.name.link()]).collect();
        let programs = currents.iter().chain(&extensions).map(Path::new).chain(links);
        let vouched: Vec<&Path> = by_folder.into_values().chain(more).chain(programs).collect();
        files::sync_all(disk, &vouched)?;
        record::mend(disk)?;
        let here = self.files.iter().filter(|file| !file.content.is_spent());
        let writes: Vec<_> = here.map(|file| write(file, self.tools.ownership)).collect();
        if let Err(error) = files::prove(disk, &writes) {
            // It may be there already, of a run that was killed or for the same bundle, and must not vouch for this.
            files::remove_durable(disk, Path::new(path))?;
            return Err(error);
        }
        complete::write(disk, &self.complete()?.0)?;
        let bytes = render_gate(&self.whole_gate());
        files::write_durable(disk, Path::new(path), MODE, &bytes, self.tools.ownership.owner())?;
        // If this cannot be noted, the next run writes all files once more.
        let _ = doubt::settle(disk, self.identity.digest().hex());
        Ok(())
    }
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        match self {
            Self::CloseGate { path } => path.clone(),
            // With what the node alone knows, if the gate says that.
            Self::OpenGate { path, environment } => {
                let known = GateFact::ALL.iter().filter_map(|fact| Some((fact, environment.get(fact.as_str())?)));
                known.fold(path.clone(), |text, (fact, value)| format!("{text} {fact}={value}"))
            }
        }
    }

    fn check(&self, node: &Node<'_>, history: &History) -> Result<Condition, StepError> {
        match self {
            Self::CloseGate { path } => Ok(match node.gate_state(path)? {
                // Every file is about to be written anew, by a disk that may lose it and say nothing.
                open if node.is_open(&open) && node.is_in_doubt()? => Condition::Needed(
                    "a sync failed in this boot: what it vouches for need not be on the disk".to_owned(),
                ),
                open if node.is_open(&open) => Condition::AlreadySo,
                GateState::Absent => match node.other_gates()?.first() {
                    None => Condition::AlreadySo,
                    Some(other) => Condition::Needed(format!("{other} was opened for another bundle")),
                },
                GateState::Open { bundle, .. } if bundle != node.identity.bundle.as_str() => {
                    Condition::Needed(format!("it was opened for bundle {bundle}"))
                }
                GateState::Open { .. } => Condition::Needed("it was opened with other facts of the machine".to_owned()),
                GateState::Damaged { reason } => Condition::Needed(format!("it is damaged: {reason}")),
            }),
            Self::OpenGate { path, .. } => {
                let leftover = files::has_leftover(node.tools.disk, Path::new(path));
                let leftover = leftover.map_err(|error| file_error(&error))?;
                // The journal knows of a gate only once it is durable. One that is seen without it may be the work of a run
                // that was killed before its last sync: a power cut could still take it away.
                Ok(match node.is_open(&node.gate_state(path)?) {
                    true if !leftover && history.done_before => Condition::AlreadySo,
                    true => {
                        Condition::Needed("it is there, but nothing says that it would survive a power cut".to_owned())
                    }
                    false => Condition::Needed("last, when everything else is in place".to_owned()),
                })
            }
        }
    }

    fn apply(&self, node: &Node<'_>, _: &StepContext<'_>) -> Result<(), StepError> {
        let done = match self {
            Self::CloseGate { path } => {
                let others = node.other_gates()?;
                // A gate that was there before nodestrap came is among what is kept.
                files::sync_all(node.tools.disk, &[Path::new(RECORD_PATH)]).and_then(|()| {
                    let paths = others.iter().chain([path]);
                    paths
                        .into_iter()
                        .try_for_each(|path| files::remove_durable(node.tools.disk, Path::new(path)).map(drop))
                })
            }
            Self::OpenGate { path, .. } => node.open_gate(path),
        };
        done.map_err(|error| file_error(&error))
    }
}

impl Family for Gates {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        let gate = &node.bundle.gate.path;
        if record.gates.contains_key(gate.as_str()) {
            return Ok(());
        }
        let ours = match node.gate_state(gate)? {
            GateState::Absent | GateState::Open { .. } => true,
            GateState::Damaged { .. } => node.committed_before,
        };
        let before = match ours {
            true => Before::Absent,
            false => record::look(node.tools.disk, gate).map_err(|error| disk_error(&error))?,
        };
        record.gates.insert(gate.to_string(), before);
        Ok(())
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let path = node.bundle.gate.path.as_str();
        let found = match node.gate_state(path)? {
            open if node.is_open(&open) => return Ok(Verified::default()),
            GateState::Open { bundle, .. } if bundle != node.identity.bundle.as_str() => {
                format!("open for another bundle, {bundle}")
            }
            GateState::Open { .. } => "open for other facts of this machine".to_owned(),
            GateState::Absent => "absent: shut".to_owned(),
            GateState::Damaged { reason } => format!("damaged: {reason}"),
        };
        let expected = format!("open for bundle {}", node.identity.bundle);
        Ok(Verified { drift: vec![Difference::new(path, Aspect::Gate, expected, found)], remarks: Vec::new() })
    }

    fn find_obsolete(&self, node: &Node<'_>, record: &Record, obsolete: &mut Record) -> Result<(), StepError> {
        let others = record.gates.iter().filter(|(path, _)| node.bundle.gate.path != ***path);
        obsolete.gates.extend(others.map(|(path, before)| (path.clone(), before.clone())));
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let close = |path: &String| UndoStep {
            phase: UndoPhase::CloseGate,
            id: if path == GATE_PATH { "close-gate".to_owned() } else { format!("close-gate-{path}") },
            deadline: FILES_DEADLINE,
            barrier: true,
            action: ResetAction::Gate(Undo::CloseGate { path: path.clone() }),
        };
        record.gates.keys().map(close).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    CloseGate { path: String },
}

impl Undoing<'_> {
    /// As a file, for comparison: a gate is ours whatever is in it, unless it is the one that was there before.
    pub(crate) fn gate_record(&self, path: &str) -> Option<FileRecord> {
        let before = self.record.gates.get(path)?.clone();
        Some(FileRecord { any_content: true, ..FileRecord::of_link(before) })
    }

    fn gate_is_ours(&self, path: &str) -> Result<bool, StepError> {
        if self.tools.disk.stat(Path::new(path)).map_err(|error| disk_error(&error))?.is_none() {
            return Ok(false);
        }
        match self.gate_record(path) {
            Some(gate) => Ok(self.compare(path, &gate)? != Now::AsBefore),
            None => Ok(true),
        }
    }
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::CloseGate { path } = self;
        path.clone()
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        let Self::CloseGate { path } = self;
        Ok(match on.gate_is_ours(path)? {
            true => Condition::Needed("from here on the kubelet does not start".to_owned()),
            false => Condition::AlreadySo,
        })
    }

    fn apply(&self, on: &Undoing<'_>, _: &StepContext<'_>) -> Result<(), StepError> {
        let Self::CloseGate { path } = self;
        files::remove_durable(on.tools.disk, Path::new(path)).map(drop).map_err(|error| file_error(&error))
    }
}
