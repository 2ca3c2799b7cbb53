//! A release as its projects publish it: plain programs, and archives laid out as theirs are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::images::reproducible_tar;
use super::part::{Part, key};
use super::programs::{CNI_PLUGINS, CONTAINERD_PROGRAMS, earlier_kubernetes, runtime};
use super::root::link;
use super::{
    ARCHITECTURE, CNI_PLUGINS_VERSION, CONTAINERD_VERSION, Cache, EARLIER_KUBERNETES_VERSION, KUBERNETES_VERSION,
    RUNC_VERSION,
};
use crate::command::run_logged;
use crate::paths::cache_folder;

/// Two patches of the same minor, so that a node can be taken from one to the other and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    Newest,
    Earlier,
}

impl Patch {
    pub fn kubernetes_version(self) -> &'static str {
        match self {
            Self::Newest => KUBERNETES_VERSION,
            Self::Earlier => EARLIER_KUBERNETES_VERSION,
        }
    }
}

/// One file of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseFile {
    /// As our specs call it.
    pub component: &'static str,
    pub version: &'static str,
    /// As its project calls it.
    pub name: String,
    pub path: PathBuf,
}

/// All that a bare machine lacks, of one patch of Kubernetes; the runtime is the same for both.
pub(crate) fn files(cache: &Cache, patch: Patch) -> Result<Vec<ReleaseFile>> {
    let folder = cache_folder()?;
    let kubernetes = match patch {
        Patch::Newest => cache.kubernetes.clone(),
        Patch::Earlier => earlier_kubernetes()?.ensure(&folder)?,
    };
    let archives = archives(&runtime().ensure(&folder)?).ensure(&folder)?;
    let file = |component, version, folder: &Path, name: &str| ReleaseFile {
        component,
        version,
        path: folder.join(name),
        name: name.to_owned(),
    };
    Ok(vec![
        file("kubelet", patch.kubernetes_version(), &kubernetes, "kubelet"),
        file("kubectl", patch.kubernetes_version(), &kubernetes, "kubectl"),
        file("containerd", CONTAINERD_VERSION, &archives, &containerd_archive()),
        file("runc", RUNC_VERSION, &archives, &runc_program()),
        file("cni-plugins", CNI_PLUGINS_VERSION, &archives, &cni_archive()),
    ])
}

/// The files of an extension: nothing lies outside `usr`, where the plug-ins have a folder, too.
pub(super) fn extension(kubernetes: &Path, runtime: &Path) -> Part {
    let [kubernetes, runtime] = [kubernetes, runtime].map(Path::to_owned);
    let names = [&kubernetes, &runtime].map(|part| part.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
    Part {
        name: "extension",
        description: "putting together an extension with Kubernetes, a second".into(),
        key: key(&[&names[0], &names[1], b"layout 1".as_slice()]),
        recipe: Box::new(move |folder, _log| {
            link(&kubernetes, &folder.join("usr/bin"), &["kubectl", "kubelet"])?;
            link(&runtime, &folder.join("usr/libexec/cni"), &CNI_PLUGINS)
        }),
    }
}

fn containerd_archive() -> String {
    format!("containerd-{CONTAINERD_VERSION}-linux-{ARCHITECTURE}.tar.gz")
}

fn runc_program() -> String {
    format!("runc.{ARCHITECTURE}")
}

fn cni_archive() -> String {
    format!("cni-plugins-linux-{ARCHITECTURE}-v{CNI_PLUGINS_VERSION}.tgz")
}

fn archives(runtime: &Path) -> Part {
    let runtime = runtime.to_owned();
    Part {
        name: "release",
        description: "packing containerd and the CNI plug-ins as they are published, some seconds".into(),
        key: key(&[runtime.file_name().unwrap_or_default().as_encoded_bytes(), b"layout 1"]),
        recipe: Box::new(move |folder, log| {
            let work = folder.join("work");
            link(&runtime, &work.join("containerd/bin"), &CONTAINERD_PROGRAMS)?;
            pack(&work.join("containerd"), "bin", &folder.join(containerd_archive()), log)?;
            link(&runtime, &work.join("plugins"), &CNI_PLUGINS)?;
            pack(&work.join("plugins"), ".", &folder.join(cni_archive()), log)?;
            std::fs::remove_dir_all(&work).context("removing the work folder")?;
            std::fs::hard_link(runtime.join("runc"), folder.join(runc_program())).context("linking runc")
        }),
    }
}

/// The same files give the same bytes: gzip gets neither name nor time.
fn pack(folder: &Path, entry: &str, archive: &Path, log: &Path) -> Result<()> {
    run_logged(reproducible_tar(folder, archive).args(["--use-compress-program=gzip -n", entry]), log)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::command::stdout_of;

    fn listed(archive: &Path) -> Vec<String> {
        let text = stdout_of(Command::new("tar").arg("-tzf").arg(archive)).expect("tar");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_release_is_laid_out_as_its_projects_do_and_comes_in_two_patches() {
        if !crate::support::require() {
            return;
        }
        let cache = crate::cache::prepare().expect("the cache");
        let [newest, earlier] = [Patch::Newest, Patch::Earlier].map(|patch| files(&cache, patch).expect("a release"));
        let path = |files: &[ReleaseFile], component: &str| {
            files.iter().find(|file| file.component == component).expect("it is there").path.clone()
        };
        for (files, version) in [(&newest, KUBERNETES_VERSION), (&earlier, EARLIER_KUBERNETES_VERSION)] {
            let said = stdout_of(Command::new(path(files, "kubelet")).arg("--version")).expect("it runs");
            assert_eq!(said.trim(), format!("Kubernetes v{version}"));
        }
        let said = stdout_of(Command::new(path(&newest, "runc")).arg("--version")).expect("it runs");
        assert!(said.contains(RUNC_VERSION), "{said}");
        let inside = ["bin/", "bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"];
        assert_eq!(listed(&path(&newest, "containerd")), inside);
        let inside = ["./", "./bridge", "./host-local", "./loopback", "./portmap"];
        assert_eq!(listed(&path(&newest, "cni-plugins")), inside);
        assert_eq!(newest[2..], earlier[2..], "the runtime is the same");
    }

    #[test]
    fn an_archive_is_the_same_whenever_it_is_packed() {
        let scratch = tempfile::tempdir().expect("temporary folder");
        let pack_at = |name: &str, files: [&str; 2], time: SystemTime| {
            let folder = scratch.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            for file in files {
                std::fs::write(folder.join(file), file).expect("written");
                let opened = std::fs::File::open(folder.join(file)).expect("opened");
                opened.set_modified(time).expect("dated");
            }
            let archive = scratch.path().join(format!("{name}.tgz"));
            pack(&folder, ".", &archive, &scratch.path().join("log")).expect("packed");
            archive
        };
        let one = pack_at("one", ["a", "b"], SystemTime::UNIX_EPOCH);
        let two = pack_at("two", ["b", "a"], SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        assert_eq!(std::fs::read(&one).expect("read"), std::fs::read(two).expect("read"));
        assert_eq!(listed(&one), ["./", "./a", "./b"]);
    }
}
