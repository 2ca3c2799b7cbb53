//! Two repositories of apt: ours, flat as the Kubernetes community's is, and one that passes for Debian's, with the packages of
//! Debian that a minimal node lacks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{
    CNI_VERSION, CONTAINERD_SETTING, CONTAINERD_UNIT, CONTAINERD_VERSION, KUBELET_UNIT, Package, PackageManager, Patch,
    Programs, RUNC_VERSION, Repository, containerd_build, deb, fresh, kubernetes_build, link, put_cni_plugins,
    put_containerd, put_kubelet,
};
use crate::cache::ARCHITECTURE;
use crate::cache::minimal::DEBS;
use crate::cache::part::{Part, key};
use crate::cache::root::RELEASE;
use crate::command::stdout_of;
use crate::node_root::write_file;
use crate::signing::{GnuPg, SigningKey, Validity};

pub(crate) fn repositories(programs: Programs, minimal: &Path) -> Result<Part> {
    let debs = minimal.join(DEBS);
    let mut inputs = programs.inputs()?;
    inputs.push(minimal.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
    Ok(Part {
        name: "packages-apt",
        description: "packing debs and signing for their repositories, half a minute".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            let key = SigningKey::create_for(folder, Validity::ForEver)?.unlocked()?;
            let ours = folder.join(Repository::Ours(PackageManager::Apt).folder());
            std::fs::create_dir(&ours).context("creating the folder of debs")?;
            let work = tempfile::tempdir_in(folder).context("making a work folder")?;
            for package in packages(&programs, work.path())? {
                deb::build(&package, &ours, log)?;
            }
            list(&ours, ".", &ours)?;
            release(&ours, &["Origin=lab"], &key)?;
            debian(&debs, &folder.join(Repository::Debians.folder()), &key)
        }),
    })
}

fn packages(programs: &Programs, work: &Path) -> Result<Vec<Package<'static>>> {
    let manager = PackageManager::Apt;
    let runtime = &programs.runtime;
    let plain = |name, version: &str, files: PathBuf| Package {
        name,
        version: version.to_owned(),
        build: kubernetes_build(manager).to_owned(),
        requires: &[],
        provides: &[],
        unit: None,
        settings: &[],
        files,
    };
    let [cni, runc] = [fresh(work, "cni")?, fresh(work, "runc")?];
    put_cni_plugins(&cni, runtime)?;
    link(runtime, &runc.join("usr/sbin"), &["runc"])?;
    let mut all = vec![plain("kubernetes-cni", CNI_VERSION, cni), plain("runc", RUNC_VERSION, runc)];
    for patch in [Patch::Earlier, Patch::Newest] {
        let version = patch.kubernetes_version();
        let [kubelet, kubectl, containerd] = [
            fresh(work, &format!("kubelet-{version}"))?,
            fresh(work, &format!("kubectl-{version}"))?,
            fresh(work, &format!("containerd-beside-{version}"))?,
        ];
        put_kubelet(&kubelet, programs.kubernetes(patch), "/etc/default/kubelet")?;
        all.push(Package {
            requires: &["iptables (>= 1.4.21)", "kubernetes-cni (>= 1.2.0)", "iproute2", "mount", "util-linux"],
            unit: Some(KUBELET_UNIT),
            settings: &["/etc/default/kubelet"],
            ..plain("kubelet", version, kubelet)
        });
        link(programs.kubernetes(patch), &kubectl.join("usr/bin"), &["kubectl"])?;
        all.push(plain("kubectl", version, kubectl));
        let build = containerd_build(manager, patch);
        put_containerd(&containerd, runtime, build)?;
        all.push(Package {
            build: build.to_owned(),
            requires: &["runc (>= 1.0.0~rc95)"],
            unit: Some(CONTAINERD_UNIT),
            settings: &[CONTAINERD_SETTING],
            ..plain("containerd", CONTAINERD_VERSION, containerd)
        });
    }
    Ok(all)
}

/// With the folders of an archive, and a suite and a component.
fn debian(debs: &Path, archive: &Path, key: &GnuPg) -> Result<()> {
    let pool = archive.join("pool");
    std::fs::create_dir_all(&pool).context("creating the pool")?;
    for entry in std::fs::read_dir(debs).with_context(|| format!("listing {}", debs.display()))? {
        let from = entry?.path();
        std::fs::hard_link(&from, pool.join(from.file_name().unwrap_or_default())).context("linking a deb")?;
    }
    let suite = archive.join("dists").join(RELEASE);
    let lists = suite.join(format!("main/binary-{ARCHITECTURE}"));
    std::fs::create_dir_all(&lists).context("creating the folder of lists")?;
    let fields = [
        "Origin=Debian",
        "Suite=stable",
        &format!("Codename={RELEASE}"),
        "Components=main",
        &format!("Architectures={ARCHITECTURE}"),
    ];
    list(archive, "pool", &lists)?;
    release(&suite, &fields, key)
}

/// What is in a folder below the archive, in a file of another.
fn list(archive: &Path, packages: &str, lists: &Path) -> Result<()> {
    let listed = stdout_of(Command::new("apt-ftparchive").current_dir(archive).args(["packages", packages]))?;
    write_file(&lists.join("Packages"), listed)
}

/// The list of lists, with its signature in it and beside it.
fn release(folder: &Path, fields: &[&str], key: &GnuPg) -> Result<()> {
    let mut command = Command::new("apt-ftparchive");
    command.current_dir(folder);
    for field in fields {
        command.args(["-o", &format!("APT::FTPArchive::Release::{field}")]);
    }
    let text = stdout_of(command.args(["release", "."]))?;
    let place = folder.join("Release");
    write_file(&place, text)?;
    key.clear_sign(&place, &folder.join("InRelease"))?;
    key.detach_sign(&place, &folder.join("Release.gpg"))
}
