//! Kubernetes and its runtime as packages, in two patches, and the signed repositories that have them.
//!
//! They behave as those that people install: they depend on each other, bring units and configuration files, and start services
//! without asking whether anybody has configured them.

mod apt;
mod deb;
mod dnf;
mod rpm;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(super) use apt::repositories as apt;
pub(super) use dnf::{base_rpm, repository as dnf};

use super::part::recipe_files;
use super::programs::{CNI_PLUGINS, CONTAINERD_PROGRAMS};
use super::release::Patch;
use super::root::link;
use super::{CNI_PLUGINS_VERSION, CONTAINERD_VERSION, RUNC_VERSION};
use crate::node_root::write_file;
use crate::paths::recipe;

/// Who installs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageManager {
    Apt,
    Dnf,
}

/// The first build of the Kubernetes community's packages, in their numbering.
fn kubernetes_build(manager: PackageManager) -> &'static str {
    match manager {
        PackageManager::Apt => "1.1",
        PackageManager::Dnf => "150500.1.1",
    }
}

/// Each patch of Kubernetes has another build of containerd beside it: the same programs, and another configuration file.
fn containerd_build(manager: PackageManager, patch: Patch) -> &'static str {
    match (manager, patch) {
        (PackageManager::Apt, Patch::Earlier) => "1",
        (PackageManager::Apt, Patch::Newest) => "2",
        (PackageManager::Dnf, Patch::Earlier) => "1.el9",
        (PackageManager::Dnf, Patch::Newest) => "2.el9",
    }
}

impl PackageManager {
    /// Of kubelet and kubectl.
    pub fn kubernetes_version(self, patch: Patch) -> String {
        format!("{}-{}", patch.kubernetes_version(), kubernetes_build(self))
    }

    pub fn containerd_version(self, patch: Patch) -> String {
        format!("{CONTAINERD_VERSION}-{}", containerd_build(self, patch))
    }
}

/// A folder of the part that [`super::package_repositories`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repository {
    /// Kubernetes and its runtime.
    Ours(PackageManager),
    /// What a minimal Debian lacks.
    Debians,
}

impl Repository {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Ours(PackageManager::Apt) => "deb",
            Self::Ours(PackageManager::Dnf) => "rpm",
            Self::Debians => "debian",
        }
    }
}

/// What programs are packed: those of both patches of Kubernetes, and the runtime.
pub(super) struct Programs {
    pub(super) newest: PathBuf,
    pub(super) earlier: PathBuf,
    pub(super) runtime: PathBuf,
}

impl Programs {
    fn kubernetes(&self, patch: Patch) -> &Path {
        match patch {
            Patch::Newest => &self.newest,
            Patch::Earlier => &self.earlier,
        }
    }

    /// What decides on the content of a package, for the key of a part.
    fn inputs(&self) -> Result<Vec<Vec<u8>>> {
        let mut inputs = recipe_files(&recipe("packages"))?;
        inputs.extend(recipe_files(&recipe("node"))?);
        let name = |part: &PathBuf| part.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
        inputs.extend([&self.newest, &self.earlier, &self.runtime].map(name));
        inputs.push(b"layout 1".to_vec());
        Ok(inputs)
    }
}

/// One package. Its files lie in a folder as they will on the machine.
struct Package<'a> {
    name: &'static str,
    version: String,
    build: String,
    /// As the package manager writes them.
    requires: &'a [&'a str],
    provides: &'a [&'a str],
    /// Which it starts.
    unit: Option<&'static str>,
    /// Its configuration files, from `/` on.
    settings: &'a [&'a str],
    files: PathBuf,
}

/// The folder with the files of a package, empty as yet.
fn fresh(work: &Path, name: &str) -> Result<PathBuf> {
    let folder = work.join(name);
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

fn put_kubelet(files: &Path, programs: &Path, setting: &str) -> Result<()> {
    link(programs, &files.join("usr/bin"), &["kubelet"])?;
    copy("packages/kubelet.service", &files.join("usr/lib/systemd/system/kubelet.service"))?;
    copy("packages/kubelet.default", &files.join(setting.trim_start_matches('/')))
}

/// The configuration file says which build it is of, so that another build has another one.
fn put_containerd(files: &Path, runtime: &Path, build: &str) -> Result<()> {
    link(runtime, &files.join("usr/bin"), &CONTAINERD_PROGRAMS)?;
    copy("node/containerd.service", &files.join("usr/lib/systemd/system/containerd.service"))?;
    let setting = std::fs::read_to_string(recipe("node").join("config.toml")).context("reading config.toml")?;
    write_file(&files.join(CONTAINERD_SETTING.trim_start_matches('/')), format!("# Build {build}.\n{setting}"))
}

fn put_cni_plugins(files: &Path, runtime: &Path) -> Result<()> {
    link(runtime, &files.join("opt/cni/bin"), &CNI_PLUGINS)
}

const CONTAINERD_SETTING: &str = "/etc/containerd/config.toml";
const KUBELET_UNIT: &str = "kubelet.service";
const CONTAINERD_UNIT: &str = "containerd.service";
const CNI_VERSION: &str = CNI_PLUGINS_VERSION;

fn copy(from: &str, to: &Path) -> Result<()> {
    let text = std::fs::read_to_string(recipe(from)).with_context(|| format!("reading {from}"))?;
    write_file(to, text)
}
