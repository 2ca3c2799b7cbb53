//! Makes the root of a node look like the images that eksctl boots, none of which can be had here.
//!
//! Only what nodestrap can tell: the name of the system, who starts the kubelet, that the machine is one of AWS, and that
//! the tools which eksctl's own scripts need are not there. Below it stays the lab's Debian. snapd is the real one, with
//! snaps that are made here: no store is asked.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::snapd;
use crate::command::stdout_of;
use crate::node_root::{Enable, install_unit, write_file};
use crate::paths::recipe;

const AMAZON_LINUX_2: &str = "NAME=\"Amazon Linux\"\nVERSION=\"2\"\nID=\"amzn\"\nID_LIKE=\"centos rhel fedora\"\nVERSION_ID=\"2\"\n\
     PRETTY_NAME=\"Amazon Linux 2 (stand-in of the lab)\"\n";
const UBUNTU: &str = "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n\
     PRETTY_NAME=\"Ubuntu 24.04 LTS (stand-in of the lab)\"\n";
/// A container shows no firmware, so somebody has to say what the machine is.
const PLATFORM_SETTING: &str = "etc/nodestrap/platform";
/// The kubelet of the image has a command of its own, which eksctl's drop-in replaces.
const KUBELET_UNIT: &str = "[Unit]\nDescription=Kubernetes Kubelet\n\n[Service]\n\
     ExecStart=/usr/bin/kubelet --config /etc/kubernetes/kubelet/kubelet-config.json\n\
     Restart=always\nRestartSec=5\nKillMode=process\n\n[Install]\nWantedBy=multi-user.target\n";
/// What eksctl's scripts were written in, and the commands that they call.
const TOOLS: [&str; 5] = ["bash", "curl", "jq", "aws", "wget"];
const SNAPS: &str = "usr/share/nodestrap-lab/snaps";

/// For [`crate::NodeOptions::before_boot`].
pub(crate) fn stand_in_for_amazon_linux_2(root: &Path) -> Result<()> {
    write_file(&root.join("usr/lib/os-release"), AMAZON_LINUX_2)?;
    write_file(&root.join(PLATFORM_SETTING), "aws\n")?;
    write_file(&root.join("etc/systemd/system/kubelet.service"), KUBELET_UNIT)?;
    remove_tools(root)
}

/// With a real snapd, and the kubelet and kubectl as snaps; they are installed before the bootstrap of the first boot.
pub(crate) fn stand_in_for_ubuntu_of_eks(root: &Path) -> Result<()> {
    write_file(&root.join("usr/lib/os-release"), UBUNTU)?;
    write_file(&root.join(PLATFORM_SETTING), "aws\n")?;
    let files = snapd()?.join("root");
    let script = "tar -C \"$1\" -c . | tar -C \"$2\" -x --keep-directory-symlink";
    stdout_of(Command::new("sh").args(["-c", script, "sh"]).args([&files, root]))
        .context("laying snapd over the root")?;
    // It would act on the devices of the machine below; snapd only wants its rules read again.
    let _ = std::fs::remove_file(root.join("usr/bin/udevadm"));
    symlink("/bin/true", root.join("usr/bin/udevadm")).context("linking udevadm")?;
    let units = root.join("usr/lib/systemd/system");
    for unit in ["snapd.socket", "snapd.service"] {
        install_unit(root, &units.join(unit), Enable::AsInstallSectionSays)?;
    }
    for snap in ["core", "kubelet-eks", "kubectl-eks"] {
        make_snap(root, snap).with_context(|| format!("making the snap {snap}"))?;
    }
    let source = recipe("snaps");
    std::fs::copy(source.join("install.sh"), root.join(SNAPS).join("install.sh")).context("install.sh")?;
    for unit in ["fuse", "snaps"] {
        install_unit(root, &source.join(format!("nodestrap-lab-{unit}.service")), Enable::AsInstallSectionSays)?;
    }
    remove_tools(root)
}

fn remove_tools(root: &Path) -> Result<()> {
    for tool in TOOLS {
        for folder in ["usr/bin", "usr/local/bin"] {
            match std::fs::remove_file(root.join(folder).join(tool)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {tool}"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn make_snap(root: &Path, snap: &str) -> Result<()> {
    let source = recipe("snaps");
    let folder = root.join(SNAPS).join(snap);
    let put = |from: &str, to: &str| {
        let text = std::fs::read(source.join(from)).with_context(|| format!("reading {from}"))?;
        write_file(&folder.join(to), text)?;
        std::fs::set_permissions(folder.join(to), std::fs::Permissions::from_mode(0o755)).context("mode")
    };
    put(&format!("{snap}.yaml"), "meta/snap.yaml")?;
    match snap {
        "kubelet-eks" => {
            put("configure", "meta/hooks/configure")?;
            put("daemon", "bin/daemon")?;
            put("program", "bin/kubelet")?;
        }
        "kubectl-eks" => put("program", "bin/kubectl")?,
        _ => {}
    }
    let [from, to] = [format!("/{SNAPS}/{snap}"), format!("/{SNAPS}/{snap}.snap")];
    let mut command = Command::new("chroot");
    command.arg(root).args(["mksquashfs", &from, &to, "-noappend", "-all-root", "-no-progress", "-quiet"]);
    stdout_of(&mut command).map(drop)
}
