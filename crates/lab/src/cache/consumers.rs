//! The programs that nodestrap's output is written for, so that the tests can ask them instead of us.
//!
//! They are a set of their own: a lab does not need them, and Kubernetes is built a second time for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::part::{Part, key, recipe_files};
use super::programs::{self, STRIPPED, go_build, go_build_as_the_catalogue, go_install};
use super::{DEPLOYED_ETCD_VERSION, ETCD_VERSION, KUBERNETES_VERSION, OLDEST_KUBERNETES_VERSION, check_build_tools};
use crate::command::run_logged;
use crate::paths::{cache_folder, recipe, repository};

const IGNITION_VERSION: &str = "2.24.0";
const IGNITION_SPEC_2_VERSION: &str = "0.35.0";
/// Debian's own, because a newer one on the PATH may lack a built wheel of something that moto needs.
const PYTHON: &str = "/usr/bin/python3";

/// The real consumers of what nodestrap renders. Each is made when it is first asked for, if `lab prepare` has not been run.
#[derive(Debug, Clone)]
pub struct Consumers {
    cache: PathBuf,
}

/// One release of Ignition.
#[derive(Debug, Clone)]
pub(crate) struct Ignition {
    pub(crate) engine: PathBuf,
    pub(crate) validator: PathBuf,
}

impl Consumers {
    /// Those of the cache folder.
    pub fn open() -> Result<Self> {
        Ok(Self { cache: cache_folder()? })
    }

    /// Makes all that is missing, as [`super::prepare`] does for a lab.
    pub fn prepare(&self) -> Result<()> {
        self.node_root()?;
        self.containerd()?;
        self.ignition()?;
        self.ignition_spec_2()?;
        self.python()?;
        self.decoders()?;
        for version in [ETCD_VERSION, DEPLOYED_ETCD_VERSION] {
            self.etcd(&minor_of(version))?;
        }
        for version in [KUBERNETES_VERSION, OLDEST_KUBERNETES_VERSION] {
            self.kubernetes(&minor_of(version))?;
        }
        Ok(())
    }

    fn made(&self, part: &Part) -> Result<PathBuf> {
        if !part.is_present(&self.cache) {
            check_build_tools()?;
        }
        part.ensure(&self.cache)
    }

    /// A Debian tree with systemd and cloud-init.
    pub(crate) fn node_root(&self) -> Result<PathBuf> {
        self.made(&super::root::debian())
    }

    /// The folder of the program containerd.
    pub(crate) fn containerd(&self) -> Result<PathBuf> {
        self.made(&programs::runtime())
    }

    /// The folder of the etcd of one minor, if it is one that we build.
    pub(crate) fn etcd(&self, minor: &str) -> Result<Option<PathBuf>> {
        let part = match minor {
            minor if minor == minor_of(ETCD_VERSION) => programs::etcd()?,
            minor if minor == minor_of(DEPLOYED_ETCD_VERSION) => programs::deployed_etcd()?,
            _ => return Ok(None),
        };
        self.made(&part).map(Some)
    }

    /// For spec 3.
    pub(crate) fn ignition(&self) -> Result<Ignition> {
        self.made(&ignition()).map(Ignition::in_folder)
    }

    pub(crate) fn ignition_spec_2(&self) -> Result<Ignition> {
        self.made(&ignition_spec_2()?).map(Ignition::in_folder)
    }

    /// An interpreter that finds moto, boto3, Jinja2 and google-cloud-compute.
    pub fn python(&self) -> Result<PathBuf> {
        Ok(self.made(&python()?)?.join("bin/python"))
    }

    /// For each minor of Kubernetes, as "1.36": the program that decodes component configs as that minor does.
    pub(crate) fn decoders(&self) -> Result<BTreeMap<String, PathBuf>> {
        programs_by_minor(&self.made(&decoders()?)?)
    }

    /// The folder of the programs of one minor, if it is one that we build.
    pub(crate) fn kubernetes(&self, minor: &str) -> Result<Option<PathBuf>> {
        let part = match minor {
            minor if minor == minor_of(KUBERNETES_VERSION) => programs::kubernetes()?,
            minor if minor == minor_of(OLDEST_KUBERNETES_VERSION) => programs::oldest_kubernetes()?,
            _ => return Ok(None),
        };
        self.made(&part).map(Some)
    }
}

impl Ignition {
    fn in_folder(folder: PathBuf) -> Self {
        Self { engine: folder.join("ignition"), validator: folder.join("ignition-validate") }
    }
}

/// "1.36" of "1.36.3".
pub(crate) fn minor_of(version: &str) -> String {
    version.trim_start_matches('v').split('.').take(2).collect::<Vec<_>>().join(".")
}

fn programs_by_minor(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    entries
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
        })
        .collect()
}

fn ignition() -> Part {
    let package = "github.com/coreos/ignition/v2/internal";
    // The folder that stands for a machine has no SELinux policy to label its files by.
    let flags =
        format!("{STRIPPED} -X {package}/version.Raw={IGNITION_VERSION} -X {package}/distro.selinuxRelabel=false");
    Part {
        name: "ignition",
        description: format!("building Ignition {IGNITION_VERSION} and its validator, 2 minutes"),
        key: key(&[&flags, "engine and validator"]),
        recipe: Box::new(move |folder, log| {
            // Both are named after the last word of their package, and libblkid is a C library.
            for (package, program) in [("internal", "ignition"), ("validate", "ignition-validate")] {
                let package_path = format!("github.com/coreos/ignition/v2/{package}@v{IGNITION_VERSION}");
                run_logged(go_install(folder, &flags).env("CGO_ENABLED", "1").arg(package_path), log)?;
                std::fs::rename(folder.join(package), folder.join(program)).context("naming the program")?;
            }
            Ok(())
        }),
    }
}

fn ignition_spec_2() -> Result<Part> {
    let source = recipe("ignition-spec-2");
    let flags = format!("{STRIPPED} -X github.com/coreos/ignition/internal/version.Raw={IGNITION_SPEC_2_VERSION}");
    let mut inputs = recipe_files(&source)?;
    inputs.push(flags.clone().into_bytes());
    Ok(Part {
        name: "ignition-spec-2",
        description: format!("building Ignition {IGNITION_SPEC_2_VERSION} and its validator, a minute"),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            for (package, program) in [("internal", "ignition"), ("validate", "ignition-validate")] {
                let mut go = go_build(&source, &flags);
                go.env("CGO_ENABLED", "1").arg("-o").arg(folder.join(program));
                run_logged(go.arg(format!("github.com/coreos/ignition/{package}")), log)?;
            }
            Ok(())
        }),
    })
}

/// A virtual environment may be renamed as long as nobody starts the scripts in its `bin`: use `python -m`.
fn python() -> Result<Part> {
    let source = recipe("python");
    let mut inputs = recipe_files(&source)?;
    inputs.push(PYTHON.into());
    Ok(Part {
        name: "python",
        description: "installing moto, Jinja2 and the types of GCE for Python, a minute".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            run_logged(Command::new(PYTHON).args(["-m", "venv"]).arg(folder), log)?;
            let mut pip = Command::new(folder.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--requirement"]);
            run_logged(pip.arg(source.join("requirements.txt")), log)
        }),
    })
}

/// One program for each `MINOR.mod` of the catalogue's decoder.
fn decoders() -> Result<Part> {
    let source = repository().join("tools/catalog/decode");
    let inputs = recipe_files(&source).context("the decoders of component configs are built from tools/catalog")?;
    Ok(Part {
        name: "strict-decode",
        description: "building the decoders of component configs for each minor of Kubernetes, 3 minutes".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            for minor in minors_of(&source)? {
                let mut go = go_build_as_the_catalogue(&source, STRIPPED);
                go.arg(format!("-modfile={minor}.mod")).arg("-o").arg(folder.join(&minor)).arg(".");
                run_logged(&mut go, log)?;
            }
            Ok(())
        }),
    })
}

fn minors_of(folder: &Path) -> Result<Vec<String>> {
    let mut minors = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(minor) = name.strip_suffix(".mod").filter(|minor| minor.starts_with(|c: char| c.is_ascii_digit())) {
            minors.push(minor.to_owned());
        }
    }
    minors.sort();
    Ok(minors)
}
