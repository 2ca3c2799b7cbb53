//! A repository of dnf with packages of ours, and with iptables and conntrack made from Debian's: those of Red Hat cannot be had.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{
    CNI_VERSION, CONTAINERD_SETTING, CONTAINERD_UNIT, CONTAINERD_VERSION, KUBELET_UNIT, Package, PackageManager, Patch,
    Programs, Repository, containerd_build, fresh, kubernetes_build, link, put_cni_plugins, put_containerd,
    put_kubelet, rpm,
};
use crate::cache::minimal::DEBS;
use crate::cache::part::{Part, key};
use crate::command::run_logged;
use crate::signing::{GnuPg, SigningKey, Validity};

/// What an installed system has already, as far as our packages ask. It is not in the repository.
const BASE: &str = "base";
const BASE_PROVIDES: [&str; 9] = [
    "/bin/sh",
    "glibc",
    "iproute",
    "mount",
    "redhat-release = 9.6",
    "system-release = 9.6",
    "system-release(releasever) = 9.6",
    "systemd",
    "util-linux",
];
/// A package of Red Hat, and the packages of Debian that it is made from.
#[derive(Debug)]
struct FromDebian {
    name: &'static str,
    version: &'static str,
    debs: &'static [&'static str],
    requires: &'static [&'static str],
    provides: &'static [&'static str],
}

const FROM_DEBIAN: [FromDebian; 3] = [
    FromDebian {
        name: "libnetfilter_conntrack",
        version: "1.0.9",
        debs: &["libnetfilter-conntrack3", "libnfnetlink0"],
        requires: &[],
        provides: &[],
    },
    FromDebian {
        name: "iptables-nft",
        version: "1.8.9",
        debs: &["iptables", "libip6tc2", "libnftnl11"],
        requires: &["libnetfilter_conntrack"],
        provides: &["iptables = 1.8.9"],
    },
    FromDebian {
        name: "conntrack-tools",
        version: "1.4.7",
        debs: &["conntrack"],
        requires: &["libnetfilter_conntrack"],
        provides: &[],
    },
];
/// Debian's package links them by a script.
const IPTABLES: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];

/// Of that part.
pub(crate) fn base_rpm(part: &Path) -> Result<PathBuf> {
    let mut entries = std::fs::read_dir(part.join(BASE)).context("listing the base package")?;
    Ok(entries.next().context("there is no base package")??.path())
}

pub(crate) fn repository(programs: Programs, root: &Path, minimal: &Path) -> Result<Part> {
    let (root, debs) = (root.to_owned(), minimal.join(DEBS));
    let mut inputs = programs.inputs()?;
    inputs.push(minimal.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
    inputs.push(format!("{BASE_PROVIDES:?} {FROM_DEBIAN:?}").into_bytes());
    Ok(Part {
        name: "packages-dnf",
        description: "packing RPMs and signing for their repository, a minute".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            let key = SigningKey::create_for(folder, Validity::ForEver)?.unlocked()?;
            let [ours, base] = [Repository::Ours(PackageManager::Dnf).folder(), BASE].map(|name| folder.join(name));
            for made in [&ours, &base] {
                std::fs::create_dir(made).with_context(|| format!("creating {}", made.display()))?;
            }
            let work = tempfile::tempdir_in(folder).context("making a work folder")?;
            rpm::build(&base_package(work.path())?, &root, &base, log)?;
            for package in packages(&programs, work.path())? {
                rpm::build(&package, &root, &ours, log)?;
            }
            for package in packages_from_debian(&debs, work.path(), log)? {
                rpm::build(&package, &root, &ours, log)?;
            }
            sign(&ours, &key, log)?;
            run_logged(Command::new("createrepo_c").arg(&ours), log)?;
            let list = ours.join("repodata/repomd.xml");
            key.detach_sign(&list, &list.with_extension("xml.asc"))
        }),
    })
}

fn plain(name: &'static str, version: &str, files: PathBuf) -> Package<'static> {
    Package {
        name,
        version: version.to_owned(),
        build: kubernetes_build(PackageManager::Dnf).to_owned(),
        requires: &[],
        provides: &[],
        unit: None,
        settings: &[],
        files,
    }
}

fn base_package(work: &Path) -> Result<Package<'static>> {
    let package = plain("redhat-base", "9.6", fresh(work, "base")?);
    Ok(Package { build: "1.el9".into(), provides: &BASE_PROVIDES, ..package })
}

fn packages(programs: &Programs, work: &Path) -> Result<Vec<Package<'static>>> {
    let manager = PackageManager::Dnf;
    let cni = fresh(work, "cni")?;
    put_cni_plugins(&cni, &programs.runtime)?;
    let mut all = vec![plain("kubernetes-cni", CNI_VERSION, cni)];
    for patch in [Patch::Earlier, Patch::Newest] {
        let version = patch.kubernetes_version();
        let [kubelet, kubectl, containerd] = [
            fresh(work, &format!("kubelet-{version}"))?,
            fresh(work, &format!("kubectl-{version}"))?,
            fresh(work, &format!("containerd-beside-{version}"))?,
        ];
        put_kubelet(&kubelet, programs.kubernetes(patch), "/etc/sysconfig/kubelet")?;
        all.push(Package {
            requires: &["iptables >= 1.4.21", "kubernetes-cni >= 1.2.0", "iproute", "mount", "util-linux"],
            unit: Some(KUBELET_UNIT),
            settings: &["/etc/sysconfig/kubelet"],
            ..plain("kubelet", version, kubelet)
        });
        link(programs.kubernetes(patch), &kubectl.join("usr/bin"), &["kubectl"])?;
        all.push(plain("kubectl", version, kubectl));
        let build = containerd_build(manager, patch);
        put_containerd(&containerd, &programs.runtime, build)?;
        // As Docker's, which is the one that people install there.
        link(&programs.runtime, &containerd.join("usr/bin"), &["runc"])?;
        all.push(Package {
            build: build.to_owned(),
            requires: &["systemd"],
            provides: &["containerd", "runc"],
            unit: Some(CONTAINERD_UNIT),
            settings: &[CONTAINERD_SETTING],
            ..plain("containerd.io", CONTAINERD_VERSION, containerd)
        });
    }
    Ok(all)
}

fn packages_from_debian(debs: &Path, work: &Path, log: &Path) -> Result<Vec<Package<'static>>> {
    let mut all = Vec::new();
    for FromDebian { name, version, debs: sources, requires, provides } in FROM_DEBIAN {
        let files = fresh(work, name)?;
        for source in sources {
            run_logged(Command::new("dpkg-deb").arg("--extract").arg(deb_of(debs, source)?).arg(&files), log)?;
        }
        // What is there to be read is not needed, and would only be listed.
        let _ = std::fs::remove_dir_all(files.join("usr/share"));
        if name == "iptables-nft" {
            for program in IPTABLES {
                symlink("xtables-nft-multi", files.join("usr/sbin").join(program))
                    .with_context(|| format!("linking {program}"))?;
            }
        }
        all.push(Package { build: "1.el9".into(), requires, provides, ..plain(name, version, files) });
    }
    Ok(all)
}

fn deb_of(debs: &Path, name: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(debs).with_context(|| format!("listing {}", debs.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{name}_")) {
            return Ok(entry.path());
        }
    }
    anyhow::bail!("{} has no package {name}", debs.display())
}

fn sign(folder: &Path, key: &GnuPg, log: &Path) -> Result<()> {
    let mut command = Command::new("rpmsign");
    command.env("GNUPGHOME", key.home()).args([
        "--define",
        "_gpg_name lab@nodestrap.local",
        "--define",
        "__gpg /usr/bin/gpg",
        "--addsign",
    ]);
    for entry in std::fs::read_dir(folder).context("listing the packages")? {
        command.arg(entry?.path());
    }
    run_logged(&mut command, log)
}
