//! The file system of a node: a Debian tree, over it the units of the lab, and over those, unless it is bare, Kubernetes and its runtime.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::part::{Part, key, recipe_files};
use super::programs::CNI_PLUGINS;
use crate::command::{run_logged, stdout_of};
use crate::node_root::{Enable, install_unit, write_file};
use crate::paths::recipe;

pub(super) const RELEASE: &str = "bookworm";
const PACKAGES: &str =
    "systemd,systemd-sysv,dbus,iproute2,iptables,conntrack,kmod,e2fsprogs,procps,strace,ca-certificates,locales";
/// debootstrap cannot resolve the virtual packages that this one depends on; apt can.
const PACKAGES_BY_APT: [&str; 1] = ["cloud-init"];
/// These would act on the machine below (its devices, its packages) or only delay the boot.
const MASKED_UNITS: [&str; 8] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "systemd-pstore.service",
];

pub(super) fn debian() -> Part {
    let masked = MASKED_UNITS.join(" ");
    Part {
        name: "node-root",
        description: format!("installing Debian {RELEASE} with systemd and cloud-init, 2 minutes"),
        key: key(&[RELEASE, PACKAGES, &PACKAGES_BY_APT.join(" "), &masked]),
        recipe: Box::new(|folder, log| {
            let mut debootstrap = Command::new("debootstrap");
            debootstrap.args(["--variant=minbase", &format!("--include={PACKAGES}"), RELEASE]).arg(folder);
            run_logged(&mut debootstrap, log)?;
            install_with_apt(folder, &PACKAGES_BY_APT, log)?;
            for unit in MASKED_UNITS {
                let link = folder.join("etc/systemd/system").join(unit);
                symlink("/dev/null", &link).with_context(|| format!("masking {unit}"))?;
            }
            leave_no_trace_of_this_machine(folder)
        }),
    }
}

/// With this machine's way to the package registry but without starting any service.
pub(super) fn install_with_apt(root: &Path, packages: &[&str], log: &Path) -> Result<()> {
    let policy = root.join("usr/sbin/policy-rc.d");
    write_file(&policy, "#!/bin/sh\nexit 101\n")?;
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o755)).context("policy-rc.d")?;
    let proxy = let_apt_reach_the_registry(root)?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(root).env("DEBIAN_FRONTEND", "noninteractive").arg("apt-get").arg("-q").args(arguments);
        run_logged(&mut command, log)
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())?;
    apt(&["clean"])?;
    std::fs::remove_file(policy).context("removing policy-rc.d")?;
    std::fs::remove_file(proxy).context("removing the apt settings")
}

/// Returns the file of settings, which must not stay.
pub(super) fn let_apt_reach_the_registry(root: &Path) -> Result<PathBuf> {
    let settings = root.join("etc/apt/apt.conf.d/99nodestrap-lab-proxy");
    write_file(&settings, &apt_settings_of_this_machine()?)?;
    std::fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).context("copying resolv.conf")?;
    Ok(settings)
}

/// The proxies, if this machine reaches the registry through one.
fn apt_settings_of_this_machine() -> Result<String> {
    let settings = stdout_of(Command::new("apt-config").arg("dump"))?;
    let wanted = |line: &&str| line.contains("::Proxy") || line.contains("Check-Valid-Until");
    Ok(settings.lines().filter(wanted).map(|line| format!("{line}\n")).collect())
}

pub(super) fn leave_no_trace_of_this_machine(root: &Path) -> Result<()> {
    for file in ["etc/machine-id", "etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id"] {
        let _ = std::fs::remove_file(root.join(file));
    }
    std::fs::remove_dir_all(root.join("var/lib/apt/lists")).context("removing the package lists")?;
    std::fs::create_dir_all(root.join("var/lib/apt/lists/partial")).context("creating the folder of package lists")
}

/// The layer that every node of every lab has over the Debian tree: what makes a container of this machine pass for a machine, and
/// images that no registry has. Nothing of it is a part of Kubernetes. Programs are hard links into their own parts.
pub(super) fn base(runtime: &Path, images: &Path) -> Result<Part> {
    let (key, [runtime, images]) = key_and_parts([runtime, images])?;
    Ok(Part {
        name: "node-base",
        description: "putting together what every node has, a second".into(),
        key,
        recipe: Box::new(move |folder, _log| {
            link(&images, &folder.join("usr/share/nodestrap-lab/images"), &["pause.tar", "probe.tar"])?;
            // Of the lab: a node that brings its own runtime has its own elsewhere.
            link(&runtime, &folder.join("usr/share/nodestrap-lab/bin"), &["ctr"])?;
            copy_setting("90-nodestrap-lab.cfg", &folder.join("etc/cloud/cloud.cfg.d"))?;
            for unit in ["nodestrap-lab-images.service", "nodestrap-lab-cgroups.service"] {
                install_unit(folder, &recipe("node").join(unit), Enable::AsInstallSectionSays)?;
            }
            // With this folder the journal outlives a reboot, so that a test can read what happened before it.
            std::fs::create_dir_all(folder.join("var/log/journal")).context("creating the journal folder")
        }),
    })
}

/// What the image of a vendor brings besides: kubelet, runtime and CNI plug-ins. A bare node has not got this layer.
pub(super) fn image(kubernetes: &Path, runtime: &Path) -> Result<Part> {
    let (key, [kubernetes, runtime]) = key_and_parts([kubernetes, runtime])?;
    Ok(Part {
        name: "node-image",
        description: "putting together what the image of a node brings, a second".into(),
        key,
        recipe: Box::new(move |folder, _log| {
            link(&kubernetes, &folder.join("usr/bin"), &["kubelet"])?;
            link(&runtime, &folder.join("usr/bin"), &["containerd", "containerd-shim-runc-v2", "ctr", "runc"])?;
            link(&runtime, &folder.join("opt/cni/bin"), &CNI_PLUGINS)?;
            copy_setting("10-nodestrap-lab.toml", &folder.join("etc/containerd/conf.d"))?;
            copy_setting("config.toml", &folder.join("etc/containerd"))?;
            install_unit(folder, &recipe("node").join("containerd.service"), Enable::No)
        }),
    })
}

/// What Flatcar brings besides: a runtime, and nothing of Kubernetes.
pub(super) fn flatcar(runtime: &Path) -> Result<Part> {
    let source = recipe("flatcar");
    let mut inputs = recipe_files(&source)?;
    inputs.push(runtime.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
    inputs.push(b"layout 1".to_vec());
    let runtime = runtime.to_owned();
    Ok(Part {
        name: "node-flatcar",
        description: "putting together what Flatcar brings, a second".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, _log| {
            link(&runtime, &folder.join("usr/bin"), &["containerd", "containerd-shim-runc-v2", "ctr", "runc"])?;
            let setting = std::fs::read(source.join("config.toml")).context("reading config.toml")?;
            write_file(&folder.join("usr/share/containerd/config.toml"), setting)?;
            // Every system has it, and pods mount it: where it is missing nobody could make it.
            std::fs::create_dir_all(folder.join("usr/lib/modules")).context("creating /usr/lib/modules")?;
            install_unit(folder, &source.join("containerd.service"), Enable::No)?;
            let loops = source.join("nodestrap-lab-loop-devices.service");
            install_unit(folder, &loops, Enable::AsInstallSectionSays)
        }),
    })
}

fn key_and_parts(parts: [&Path; 2]) -> Result<(String, [PathBuf; 2])> {
    let mut inputs = recipe_files(&recipe("node"))?;
    inputs.extend(parts.iter().map(|part| part.file_name().unwrap_or_default().as_encoded_bytes().to_vec()));
    inputs.push(b"layout 2".to_vec());
    Ok((key(&inputs), parts.map(Path::to_owned)))
}

fn copy_setting(file: &str, place: &Path) -> Result<()> {
    let text = std::fs::read_to_string(recipe("node").join(file)).with_context(|| format!("reading {file}"))?;
    write_file(&place.join(file), &text)
}

pub(super) fn link(from: &Path, to: &Path, files: &[&str]) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for file in files {
        std::fs::hard_link(from.join(file), to.join(file)).with_context(|| format!("linking {file}"))?;
    }
    Ok(())
}
