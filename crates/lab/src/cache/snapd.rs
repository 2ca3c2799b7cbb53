//! snapd and what it mounts snaps with, from Debian, to be laid over the root of a node.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::part::{Part, key};
use super::root::{apt_settings_of_this_machine, debian};
use crate::command::run_logged;
use crate::mounts;
use crate::node_root::write_file;
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
            let scratch = tempfile::tempdir_in(folder).context("making a scratch folder")?;
            let [upper, work, merged] = ["upper", "work", "merged"].map(|name| scratch.path().join(name));
            for made in [&upper, &work, &merged] {
                std::fs::create_dir(made).with_context(|| format!("creating {}", made.display()))?;
            }
            mounts::overlay(&[&root], &upper, &work, &merged)?;
            let fetched = fetch(&merged, log);
            let unmounted = mounts::unmount_below(&merged);
            fetched?;
            unmounted?;
            std::fs::rename(upper.join("out"), folder.join("root")).context("keeping the files")
        }),
    }
}

fn fetch(root: &Path, log: &Path) -> Result<()> {
    write_file(&root.join("etc/apt/apt.conf.d/99nodestrap-lab-proxy"), &apt_settings_of_this_machine()?)?;
    std::fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf")).context("copying resolv.conf")?;
    let mut command = Command::new("chroot");
    command.arg(root).args(["sh", "-c", SCRIPT, "sh"]).args(PACKAGES.split(' '));
    run_logged(&mut command, log)
}
