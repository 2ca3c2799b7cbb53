//! Programs on a node: fetched, unpacked beside each other by version, switched in by links, proved, and retired.
//!
//! ```text
//! /opt/nodestrap/bin/kubelet/1.36.3-0123456789ab/        one version: unpacked under another name, synced, then renamed
//! /opt/nodestrap/bin/kubelet/1.36.3-0123456789ab.json    what is in it
//! /opt/nodestrap/bin/kubelet/current                     → 1.36.3-0123456789ab, replaced in one step
//! /usr/local/bin/kubelet                                 → /opt/nodestrap/bin/kubelet/current/kubelet
//! ```

pub(crate) mod links;
pub(crate) mod retire;
pub(crate) mod steady;
pub(crate) mod whole;

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use bundle::resource::tree::{State, compare};
use bundle::{ArtefactForm, Component, ExtensionDigest, TREES_FOLDER, Tree, TreeDigest, home};
use engine::{Condition, History, StepContext, StepError};
use fetch::unpack::{EntryKind, Form, Limits, Listing, UnpackError, unpack};
use host::disk::DiskError;
use host::doubt;
use host::files::{self, FileError};
use serde::{Deserialize, Serialize};

use super::extension::PlannedExtension;
use super::file::FILES_DEADLINE;
use super::record::{RECORD_PATH, Record};
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified, first_that};
use crate::artefacts::{is_in_store, obtain};
use crate::failure::{chain, disk_error, file_error};
use crate::reset::ResetAction;
use retire::Programs;
use whole::Glance;

pub(crate) struct Trees;

/// A hundred megabytes over a line that hardly deserves the name; asked again and again until then.
pub(crate) const FETCH_DEADLINE: Duration = Duration::from_secs(1800);
/// A hundred megabytes to unpack, on a disk that is slow, and one sync.
pub(crate) const UNPACK_DEADLINE: Duration = Duration::from_secs(600);
/// What waits for a kubelet that starts, and removes.
pub(crate) const RETIRE_DEADLINE: Duration = Duration::from_secs(300);

const FOLDER_MODE: u32 = 0o755;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// The artefact is in the store, proved.
    FetchTree { tree: PlannedTree },
    /// Its folder is there, beside those of other versions; nothing leads to it yet.
    UnpackTree { tree: PlannedTree },
    /// `current`, and the places where programs are looked for.
    SwitchTrees { trees: Vec<PlannedTree> },
    /// Every byte is read from the disk itself.
    VerifyTrees { trees: Vec<PlannedTree> },
    /// Older versions go, once the kubelet runs with the new ones.
    RetireTrees {
        trees: Vec<PlannedTree>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        extensions: Vec<PlannedExtension>,
    },
}

/// By its size and digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTree {
    pub component: Component,
    pub version: String,
    pub digest: String,
    pub size: u64,
    pub folder: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

impl From<&Tree> for PlannedTree {
    fn from(tree: &Tree) -> Self {
        Self {
            component: tree.component,
            version: tree.version.clone(),
            digest: tree.artefact.digest.to_string(),
            size: tree.artefact.size,
            folder: tree.folder(),
            links: tree.links.keys().map(ToString::to_string).collect(),
        }
    }
}

impl Action {
    /// The plan names trees; what they are made of is in the bundle it was made from.
    fn trees<'n>(&self, node: &'n Node<'_>) -> Result<Vec<&'n Tree>, StepError> {
        let planned = match self {
            Self::FetchTree { tree } | Self::UnpackTree { tree } => std::slice::from_ref(tree),
            Self::SwitchTrees { trees } | Self::VerifyTrees { trees } | Self::RetireTrees { trees, .. } => trees,
        };
        let find = |planned: &PlannedTree| {
            let found = node.bundle.trees.iter().find(|tree| tree.component == planned.component);
            found.ok_or_else(|| {
                StepError::permanent(format!("the plan names {}, which its bundle does not have", planned.component))
            })
        };
        planned.iter().map(find).collect()
    }
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        let titles = |trees: &[PlannedTree]| {
            trees.iter().map(|tree| format!("{} {}", tree.component, tree.version)).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::FetchTree { tree } => {
                format!("{} {}, {} bytes, {}", tree.component, tree.version, tree.size, tree.digest)
            }
            Self::UnpackTree { tree } => tree.folder.clone(),
            Self::SwitchTrees { trees } => format!("to {}", titles(trees)),
            Self::VerifyTrees { trees } => format!("{}, read from the disk", titles(trees)),
            Self::RetireTrees { trees, extensions } if trees.is_empty() && extensions.is_empty() => {
                "programs that an earlier bundle brought, once the kubelet runs without them".to_owned()
            }
            Self::RetireTrees { .. } => "older versions, once the kubelet runs with these".to_owned(),
        }
    }

    fn check(&self, node: &Node<'_>, _: &History) -> Result<Condition, StepError> {
        let trees = self.trees(node)?;
        let disk = node.tools.disk;
        match self {
            Self::FetchTree { .. } => first_that(
                trees,
                |tree| {
                    let glance = whole::glance(disk, &tree.folder()).map_err(|error| disk_error(&error))?;
                    Ok(glance != Glance::Whole && !is_in_store(disk, *tree)?)
                },
                |tree| format!("{} is not on this node yet: {} bytes", tree.title(), tree.artefact.size),
            ),
            Self::UnpackTree { .. } => {
                match trees.into_iter().find_map(|tree| check_unpacked(node, tree).transpose()) {
                    Some(why) => why.map(Condition::Needed),
                    None => Ok(Condition::AlreadySo),
                }
            }
            Self::SwitchTrees { .. } => links::check(disk, &node.bundle.trees),
            Self::VerifyTrees { .. } => {
                let unproved = |tree: &&Tree| Ok(!node.is_proved(tree.component));
                first_that(trees, unproved, |tree| format!("{} was not read from the disk yet", tree.title()))
            }
            Self::RetireTrees { .. } => {
                let surplus = retire::find(disk, &node.programs())?;
                // While no kubelet runs nothing can be done, and once one does, a unit takes them away.
                let is_due =
                    !surplus.is_empty() && steady::is_active(node.tools.units, &node.bundle.join.kubelet_unit)?;
                Ok(if is_due { Condition::Needed(surplus.describe()) } else { Condition::AlreadySo })
            }
        }
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let trees = self.trees(node)?;
        match self {
            Self::FetchTree { .. } => trees.into_iter().try_for_each(|tree| obtain(node, tree, context).map(drop)),
            Self::UnpackTree { .. } => trees.into_iter().try_for_each(|tree| unpack_tree(node, tree, context)),
            Self::SwitchTrees { .. } => links::switch(node, &node.bundle.trees),
            Self::VerifyTrees { .. } => trees.into_iter().try_for_each(|tree| prove(node, tree)),
            Self::RetireTrees { .. } => retire_older(node, context),
        }
    }
}

/// Why it has to be unpacked; `None`: it is there as it should be.
fn check_unpacked(node: &Node<'_>, tree: &Tree) -> Result<Option<String>, StepError> {
    if node.is_in_doubt()? {
        return Ok(Some(
            "a sync failed in this boot, so what can be read need not be on the disk: unpacked anew".to_owned(),
        ));
    }
    Ok(match whole::state(node.tools.disk, tree).map_err(|error| disk_error(&error))? {
        State::Whole => {
            node.note_proved(tree.component);
            None
        }
        State::Absent => Some(format!("{} is not there", tree.folder())),
        State::Damaged(files) => {
            let (path, what) = files.first().cloned().unwrap_or_default();
            Some(format!("{} of {} is {what}", path, tree.title()))
        }
    })
}

/// Under another name, synced, listed, and only then the folder of that version.
fn unpack_tree(node: &Node<'_>, tree: &Tree, context: &StepContext<'_>) -> Result<(), StepError> {
    let mut object = obtain(node, tree, context)?;
    let disk = node.tools.disk;
    let (home, folder) = (PathBuf::from(tree.home()), PathBuf::from(tree.folder()));
    let [staging, old] = ["new", "old"].map(|word| home.join(format!(".{}.nodestrap-{word}", tree.name())));
    // Whoever runs what is mended here has to start anew.
    if links::target_of(disk, &tree.current()).map_err(|error| disk_error(&error))?.as_ref() == Some(&tree.name()) {
        node.forget_starts(&tree.read_by.units)?;
    }
    let prepare = || -> Result<_, FileError> {
        // What was here before is known before there is anything of ours.
        files::sync_all(disk, &[Path::new(RECORD_PATH)])?;
        files::make_folder_durable(disk, &home, FOLDER_MODE)?;
        disk.remove_tree(&staging)?;
        disk.make_folder(&staging, FOLDER_MODE)?;
        disk.label_for_programs(&staging)?;
        Ok(disk.enter(&staging)?)
    };
    let into = prepare().map_err(|error| file_error(&error))?;
    let form = match tree.artefact.form {
        ArtefactForm::Program => Form::Program { name: tree.program_name() },
        ArtefactForm::TarGz => Form::TarGz,
        // No bundle that can be read has such a tree.
        ArtefactForm::Sysext => {
            return Err(StepError::permanent(format!("{} is an image, which cannot be unpacked", tree.title())));
        }
    };
    let unpacked = unpack(&mut object, form, into.as_ref(), &Limits::USUAL).map_err(|error| unpack_error(&error, tree));
    let unpacked = unpacked.and_then(|listing| check_programs(tree, &listing).map(|()| listing));
    let listing = unpacked.inspect_err(|_| {
        // Space that nobody needs; the first error is the one that counts.
        let _ = disk.remove_tree(&staging);
    })?;
    let finish = || -> Result<(), FileError> {
        disk.sync_file_system(&staging)?;
        whole::write(disk, tree, &listing)?;
        disk.remove_tree(&old)?;
        // A damaged one makes room; without its name it counts as absent.
        if disk.stat(&folder)?.is_some() {
            // For a moment there is neither: a gate that vouches for it opens again at the end.
            files::remove_durable(disk, Path::new(node.bundle.gate.path.as_str()))?;
            disk.rename(&folder, &old)?;
        }
        disk.rename(&staging, &folder)?;
        disk.sync_folder(&home)?;
        disk.remove_tree(&old)?;
        Ok(())
    };
    finish().map_err(|error| file_error(&error))
}

/// A link that led nowhere would be found by whoever starts the program, long after the gate has opened.
fn check_programs(tree: &Tree, listing: &Listing) -> Result<(), StepError> {
    let is_there = |program: &str| match listing.find(program) {
        Some(EntryKind::File { mode, .. }) => mode & 0o111 != 0,
        Some(EntryKind::Link { .. }) => true,
        Some(EntryKind::Folder { .. }) | None => false,
    };
    let missing: Vec<&str> = tree.links.values().map(|program| program.as_str()).filter(|one| !is_there(one)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(StepError::permanent(format!("the artefact of {} has no such programs: {}", tree.title(), missing.join(", ")))
        .with_advice("publish the artefact that belongs to this component, and render the bundle again"))
}

fn unpack_error(error: &UnpackError, tree: &Tree) -> StepError {
    let message = format!("unpack {}: {}", tree.title(), chain(error));
    match error {
        UnpackError::Place { source, .. } => StepError { message, ..disk_error(source) },
        UnpackError::Read(source) | UnpackError::Write { source, .. } => {
            let io = std::io::Error::new(source.kind(), source.to_string());
            let disk = DiskError { operation: "unpack into", path: tree.folder(), source: io };
            StepError { message, ..disk_error(&disk) }
        }
        _ => StepError::permanent(message).with_advice(
            "its bytes are those that were pinned: publish a better artefact, and render the bundle again",
        ),
    }
}

/// What was unpacked is on the disk, and not in the memory of the kernel alone.
fn prove(node: &Node<'_>, tree: &Tree) -> Result<(), StepError> {
    if node.is_proved(tree.component) {
        return Ok(());
    }
    match whole::state(node.tools.disk, tree).map_err(|error| disk_error(&error))? {
        State::Whole => {
            node.note_proved(tree.component);
            Ok(())
        }
        found => {
            doubt::cast(node.tools.disk);
            let what = match found {
                State::Damaged(files) => {
                    files.first().map(|(path, what)| format!("{path} is {what}")).unwrap_or_default()
                }
                _ => "it is gone".to_owned(),
            };
            Err(StepError::needs_operator(format!("read back from the disk, {} differs: {what}", tree.folder())).with_advice(
                "another program changes it (stop it), or the disk loses writes (look at dmesg); the next run unpacks it anew",
            ))
        }
    }
}

fn retire_older(node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
    let (units, kubelet) = (node.tools.units, &node.bundle.join.kubelet_unit);
    match steady::wait_for_kubelet(units, node.tools.clock, kubelet) {
        Ok(()) => retire::retire(node.tools.disk, &node.programs()),
        Err(why) => {
            let until = "they go once it runs, at the latest by the next apply";
            context.detail(format!("older versions stay: {why}; {until}"));
            Ok(())
        }
    }
}

impl Node<'_> {
    fn is_proved(&self, component: Component) -> bool {
        self.proved.lock().unwrap_or_else(PoisonError::into_inner).contains(&component)
    }

    fn note_proved(&self, component: Component) {
        self.proved.lock().unwrap_or_else(PoisonError::into_inner).insert(component);
    }

    /// What its bundle brings.
    pub(crate) fn programs(&self) -> Programs {
        Programs {
            trees: self.bundle.trees.iter().map(TreeDigest::from).collect(),
            extensions: self.bundle.extensions.iter().map(ExtensionDigest::from).collect(),
        }
    }
}

impl Family for Trees {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        record.trees.extend(node.bundle.trees.iter().map(|tree| tree.component.to_string()));
        links::keep(node, record)
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let disk = node.tools.disk;
        let mut drift = Vec::new();
        for tree in &node.bundle.trees {
            drift.extend(compare(tree, &links::find(disk, tree).map_err(|error| disk_error(&error))?));
        }
        let surplus = retire::find(disk, &node.programs())?;
        let remarks = surplus.paths.iter().map(|path| {
            format!("{} is of an earlier version; nodestrap apply removes it once the kubelet runs", path.display())
        });
        Ok(Verified { drift, remarks: remarks.collect() })
    }

    /// Links go as files do; trees stay until what replaces them has proved itself ([`retire`]).
    fn find_obsolete(&self, _: &Node<'_>, _: &Record, _: &mut Record) -> Result<(), StepError> {
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        if record.trees.is_empty() {
            return Vec::new();
        }
        vec![UndoStep {
            phase: UndoPhase::RemoveFolders,
            id: "remove-trees".to_owned(),
            deadline: FILES_DEADLINE,
            barrier: false,
            action: ResetAction::Tree(Undo::RemoveTrees { components: record.trees.iter().cloned().collect() }),
        }]
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// All versions of them.
    RemoveTrees { components: Vec<String> },
}

impl Undo {
    /// Names of components only: a record that says something else is not ours.
    fn homes(&self) -> Vec<String> {
        let Self::RemoveTrees { components } = self;
        components.iter().filter_map(|name| name.parse::<Component>().ok()).map(home).collect()
    }
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::RemoveTrees { components } = self;
        components.join(" ")
    }

    fn details(&self) -> Vec<String> {
        self.homes().iter().map(|home| format!("removed   {home}")).collect()
    }

    fn check(&self, on: &Undoing<'_>, _: &History) -> Result<Condition, StepError> {
        let there = |home: &String| {
            let found = on.tools.disk.stat(Path::new(home)).map_err(|error| disk_error(&error))?;
            Ok(found.is_some())
        };
        first_that(self.homes(), there, |home| format!("{home} is there"))
    }

    fn apply(&self, on: &Undoing<'_>, _: &StepContext<'_>) -> Result<(), StepError> {
        let disk = on.tools.disk;
        let remove = || -> Result<(), DiskError> {
            for home in self.homes() {
                disk.remove_tree(Path::new(&home))?;
            }
            match disk.stat(Path::new(TREES_FOLDER))? {
                Some(_) => disk.sync_folder(Path::new(TREES_FOLDER)),
                None => Ok(()),
            }
        };
        remove().map_err(|error| disk_error(&error))
    }
}
