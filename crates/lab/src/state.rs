//! What a lab has started, in `state.json`: enough to end all of it from another process after a crash.
//!
//! Each entry is written before the thing is started and again with its process id after; a process that falls between
//! the two is found by its marker or its network namespace (see `teardown`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::paths::state_root;
use crate::process::ProcessId;

/// What should be true of a node; its keeper follows it after a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Desired {
    Running,
    Stopped,
}

/// What the file system of a node brings before anybody has done anything to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeImage {
    /// Debian with kubelet, containerd, runc and CNI plug-ins, as images for nodes are made.
    #[default]
    Complete,
    /// Debian with what a host must have, such as iptables and conntrack, and nothing of Kubernetes or its runtime.
    Bare,
    /// Bare, and iptables and conntrack have to be installed, too: Debian as its installer leaves it.
    Minimal,
    /// The same with dnf and rpm, and without apt and dpkg.
    RedHat,
    /// With containerd and runc, a read-only `/usr`, and nothing of Kubernetes.
    Flatcar,
    /// With torcx, no runtime, and two partitions of which one is `/usr`, read-only; an update writes the other one. Ignition
    /// configures it on the first boot, and its kubelets are those that a wrapper starts.
    ContainerLinux,
}

/// Whether a system may change its own programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usr {
    Writable,
    ReadOnly,
    /// Likewise, and each boot may have another one: see [`crate::UsrPartitions`].
    Partitions,
}

impl NodeImage {
    pub(crate) fn usr(self) -> Usr {
        match self {
            Self::Flatcar => Usr::ReadOnly,
            Self::ContainerLinux => Usr::Partitions,
            Self::Complete | Self::Bare | Self::Minimal | Self::RedHat => Usr::Writable,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeState {
    /// Gives the node its addresses.
    pub index: u8,
    #[serde(default)]
    pub image: NodeImage,
    pub desired: Desired,
    /// The systemd of the node, seen from outside.
    pub leader: Option<ProcessId>,
    /// How often the lab has booted it.
    pub boots: u32,
    /// Counts the calls of `start`, each of which has a keeper: an older keeper that notices late that its machine is
    /// gone must not take the newer one's for its own.
    #[serde(default)]
    pub starts: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct State {
    pub name: String,
    /// The process whose end makes this lab garbage; none for a lab that stays until `lab down`.
    pub owner: Option<ProcessId>,
    pub dual_stack: bool,
    /// Set once teardown has begun: keepers start nothing any more.
    pub closing: bool,
    pub bootstrap_token: String,
    /// `None`: about to be started, or stopped on purpose.
    pub processes: BTreeMap<String, Option<ProcessId>>,
    pub nodes: BTreeMap<String, NodeState>,
}

impl State {
    /// What is known about the lab of that name.
    pub fn load(name: &str) -> Result<Self> {
        StateFile::of(name).load()
    }
}

/// The folder of one lab and its state file.
#[derive(Debug, Clone)]
pub(crate) struct StateFile {
    folder: PathBuf,
}

impl StateFile {
    pub(crate) fn of(name: &str) -> Self {
        Self { folder: state_root().join(name) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Claims the name: the folder appears with its state in it, or not at all.
    pub(crate) fn create(state: &State) -> Result<Self> {
        let root = state_root();
        std::fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
        let this = Self::of(&state.name);
        let fresh = Self { folder: root.join(format!(".new-{}-{}", state.name, std::process::id())) };
        let _ = std::fs::remove_dir_all(&fresh.folder);
        // 0700: the folder holds the keys of the lab and its bootstrap token.
        std::fs::DirBuilder::new().mode(0o700).create(&fresh.folder).context("creating the folder of the lab")?;
        fresh.write(state)?;
        if let Err(error) = std::fs::rename(&fresh.folder, &this.folder) {
            let _ = std::fs::remove_dir_all(&fresh.folder);
            bail!("a lab named '{}' exists already ({error})", state.name);
        }
        Ok(this)
    }

    pub(crate) fn load(&self) -> Result<State> {
        let path = self.folder.join("state.json");
        let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("parsing {}", path.display()))
    }

    /// Reads, changes and writes under a lock that is shared with every other process of the lab.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T> {
        let _lock = lock_file(&self.folder.join("state.lock"))?;
        let mut state = self.load()?;
        let value = change(&mut state);
        self.write(&state)?;
        Ok(value)
    }

    pub(crate) fn record_process(&self, name: &str, process: Option<ProcessId>) -> Result<()> {
        self.update(|state| {
            state.processes.insert(name.to_owned(), process);
        })
    }

    fn write(&self, state: &State) -> Result<()> {
        let fresh = self.folder.join(format!("state.json.{}", std::process::id()));
        std::fs::write(&fresh, serde_json::to_vec_pretty(state)?)
            .with_context(|| format!("writing {}", fresh.display()))?;
        std::fs::rename(&fresh, self.folder.join("state.json")).context("renaming the state file")
    }
}

/// Holds an exclusive lock until dropped; the kernel lets go of it when the process dies.
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// All labs that have a state file, whoever owns them.
pub fn names_of_labs() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(state_root()) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("state.json").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// Names become parts of namespace, machine and host names: short, lower case, no dot (a dot separates lab and node).
pub(crate) fn check_name(kind: &str, name: &str, longest: usize) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty()
        || name.len() > longest
        || !name.chars().all(fits)
        || name.starts_with('-')
        || name.ends_with('-')
    {
        bail!("the {kind} name '{name}' must be 1 to {longest} of a-z, 0-9 and '-', not at its ends");
    }
    Ok(())
}
