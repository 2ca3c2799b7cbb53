//! Debian as its installer leaves it: what Kubernetes expects of a host is not installed, but can be had as packages.

use std::path::Path;
use std::process::Command;

use super::layer;
use super::part::{Part, key};
use super::root::let_apt_reach_the_registry;
use crate::command::run_logged;

/// With what they alone depend on.
const PREREQUISITES: &str = "iptables conntrack libip6tc2 libnetfilter-conntrack3 libnfnetlink0 libnftnl11 netbase";
/// Of the same source as some of those, with which they share their exact version.
const OF_THE_SAME_SOURCE: &str = "libip4tc2 libxtables12 libmnl0";
/// Named as in Debian's own archive, where no name has the epoch of its version.
const DOWNLOAD: &str = "set -e; mkdir /debs; cd /debs; apt-get -q update; apt-get -q download \"$@\"; \
                        for deb in *%3a*; do mv \"$deb\" \"$(echo \"$deb\" | sed 's/_[0-9]*%3a/_/')\"; done";
/// In the folder of the part.
pub(super) const DEBS: &str = "debs";

/// A layer without them, and the packages.
pub(super) fn part(root: &Path) -> Part {
    let root = root.to_owned();
    let name = root.file_name().unwrap_or_default().as_encoded_bytes();
    Part {
        name: "node-minimal",
        description: "taking iptables and conntrack out of Debian and fetching their packages, half a minute".into(),
        key: key(&[name, PREREQUISITES.as_bytes(), OF_THE_SAME_SOURCE.as_bytes(), DOWNLOAD.as_bytes()]),
        recipe: Box::new(move |folder, log| {
            let names = || PREREQUISITES.split(' ');
            let download = |merged: &Path| {
                let_apt_reach_the_registry(merged)?;
                let mut command = Command::new("chroot");
                command.arg(merged).args(["sh", "-c", DOWNLOAD, "sh"]).args(names());
                run_logged(command.args(OF_THE_SAME_SOURCE.split(' ')), log)
            };
            let keep = |changes: &Path| Ok(std::fs::rename(changes.join("debs"), folder.join(DEBS))?);
            layer::with_changes(folder, &[&root], download, keep)?;
            layer::record(folder, &[&root], |merged| {
                run_logged(Command::new("chroot").arg(merged).args(["dpkg", "--purge"]).args(names()), log)
            })
        }),
    }
}
