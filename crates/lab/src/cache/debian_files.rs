//! Programs from Debian whose packages would do more than bring them: only their files are wanted, in the folder `root`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::layer;
use super::part::{Part, key};
use super::root::{debian, let_apt_reach_the_registry};
use crate::command::run_logged;
use crate::paths::cache_folder;

/// Without udev, on which snapd depends: it would act on the devices of the machine below.
const SNAPD: &str = "snapd squashfs-tools liblzo2-2 squashfuse libsquashfuse0 libfuse3-3 fuse3 apparmor";
/// Installed, it would be a service of the machine that runs the tests, open to the network.
const SSHD: &str = "openssh-server openssh-client libwrap0";
/// `apt-get install` would run their scripts.
const SCRIPT: &str = "set -e; mkdir -p /debs /out; cd /debs; apt-get -q update; apt-get -q download \"$@\"; for deb in *.deb; do \
                      dpkg-deb --fsys-tarfile \"$deb\" | tar -x --keep-directory-symlink -C /out; done";

/// snapd and what it mounts snaps with, to be laid over the root of a node.
pub(super) fn snapd() -> Part {
    part("snapd", "fetching snapd from Debian, a minute", SNAPD)
}

pub(super) fn sshd() -> Part {
    part("sshd", "fetching sshd from Debian, a few seconds", SSHD)
}

fn part(name: &'static str, description: &str, packages: &'static str) -> Part {
    Part {
        name,
        description: description.into(),
        key: key(&[packages, SCRIPT]),
        recipe: Box::new(move |folder, log| {
            let root = debian().ensure(&cache_folder()?)?;
            let fetch = |merged: &Path| fetch(merged, packages, log);
            layer::with_changes(folder, &[&root], fetch, |changes| {
                std::fs::rename(changes.join("out"), folder.join("root")).context("keeping the files")
            })
        }),
    }
}

fn fetch(root: &Path, packages: &str, log: &Path) -> Result<()> {
    let_apt_reach_the_registry(root)?;
    let mut command = Command::new("chroot");
    command.arg(root).args(["sh", "-c", SCRIPT, "sh"]).args(packages.split(' '));
    run_logged(&mut command, log)
}
