//! snapd and what it mounts snaps with, from Debian, to be laid over the root of a node.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::layer;
use super::part::{Part, key};
use super::root::{debian, let_apt_reach_the_registry};
use crate::command::run_logged;
use crate::paths::cache_folder;

/// Not udev, on which snapd depends: it would act on the devices of the machine below.
const PACKAGES: &str = "snapd squashfs-tools liblzo2-2 squashfuse libsquashfuse0 libfuse3-3 fuse3 apparmor";
/// `apt-get install` would run their scripts; only their files are wanted.
const SCRIPT: &str = "set -e; mkdir -p /debs /out; cd /debs; apt-get -q update; apt-get -q download \"$@\"; for deb in *.deb; do \
                      dpkg-deb --fsys-tarfile \"$deb\" | tar -x --keep-directory-symlink -C /out; done";

pub(super) fn part() -> Part {
    Part {
        name: "snapd",
        description: "fetching snapd from Debian, a minute".into(),
        key: key(&[PACKAGES, SCRIPT]),
        recipe: Box::new(|folder, log| {
            let root = debian().ensure(&cache_folder()?)?;
            let fetch = |merged: &Path| fetch(merged, log);
            layer::with_changes(folder, &[&root], fetch, |changes| {
                std::fs::rename(changes.join("out"), folder.join("root")).context("keeping the files")
            })
        }),
    }
}

fn fetch(root: &Path, log: &Path) -> Result<()> {
    let_apt_reach_the_registry(root)?;
    let mut command = Command::new("chroot");
    command.arg(root).args(["sh", "-c", SCRIPT, "sh"]).args(PACKAGES.split(' '));
    run_logged(&mut command, log)
}
