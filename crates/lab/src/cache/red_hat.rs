//! What passes for Red Hat Enterprise Linux, of which there is no image to be had here: Debian with dnf and rpm, and without apt.
//!
//! The database of rpm knows one package, which says that there is all that packages of ours ask for.

use std::path::Path;
use std::process::Command;

use super::layer;
use super::packages::base_rpm;
use super::part::{Part, key};
use super::root::{install_with_apt, leave_no_trace_of_this_machine};
use crate::command::run_logged;
use crate::node_root::write_file;

/// From Debian.
const DNF: [&str; 3] = ["dnf", "rpm", "dnf-plugins-core"];
/// Nobody shall find them on a system that has not got them.
const DEBIANS_OWN: &str = "rm -f /usr/bin/apt /usr/bin/apt-get /usr/bin/apt-cache /usr/bin/apt-mark /usr/bin/dpkg";
const RHEL: &str = "NAME=\"Red Hat Enterprise Linux\"\nVERSION=\"9.6 (Plow)\"\nID=\"rhel\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"9.6\"\n\
     PLATFORM_ID=\"platform:el9\"\nPRETTY_NAME=\"Red Hat Enterprise Linux 9.6 (stand-in of the lab)\"\n";
/// As there: nothing is enabled but what somebody enables.
const PRESET: &str = "enable nodestrap-lab-*\nenable k8s-node-bootstrap.service\nenable cloud-*\ndisable *\n";
/// Debian has the database in the home of whoever asks.
const MACROS: &str = "%_dbpath /var/lib/rpm\n";
/// Keeps copies of packages and offers them as a repository that nobody signed.
const LOCAL_PLUGIN: &str = "[main]\nenabled = 0\n";
/// Debian's own would have it configure apt besides.
const CLOUD_INIT: &str = "cloud_config_modules: [runcmd]\n";

/// A layer over the minimal one that passes for Red Hat's. `base` is the RPM that says what there is already.
pub(super) fn part(root: &Path, minimal: &Path, base: &Path) -> Part {
    let paths = [root, minimal, base].map(Path::to_owned);
    let names = paths.each_ref().map(|path| path.file_name().unwrap_or_default().as_encoded_bytes());
    let installed = DNF.join(" ");
    let texts =
        [&installed, DEBIANS_OWN, RHEL, PRESET, MACROS, LOCAL_PLUGIN, CLOUD_INIT, "layout 1"].map(str::as_bytes);
    let key = key(&[names.as_slice(), texts.as_slice()].concat());
    let [root, minimal, base] = paths;
    Part {
        name: "node-red-hat",
        description: "installing dnf and rpm, a minute".into(),
        key,
        recipe: Box::new(move |folder, log| {
            layer::record(folder, &[&layer::of(&minimal), &root], |merged| {
                install_with_apt(merged, &DNF, log)?;
                leave_no_trace_of_this_machine(merged)?;
                write_file(&merged.join("usr/lib/os-release"), RHEL)?;
                write_file(&merged.join("usr/lib/systemd/system-preset/00-nodestrap-lab.preset"), PRESET)?;
                write_file(&merged.join("etc/rpm/macros"), MACROS)?;
                write_file(&merged.join("etc/dnf/plugins/local.conf"), LOCAL_PLUGIN)?;
                write_file(&merged.join("etc/cloud/cloud.cfg.d/91-nodestrap-lab-red-hat.cfg"), CLOUD_INIT)?;
                std::fs::create_dir_all(merged.join("etc/yum.repos.d"))?;
                let inside = "base.rpm";
                std::fs::copy(base_rpm(&base)?, merged.join(inside))?;
                let mut rpm = Command::new("chroot");
                rpm.arg(merged).args(["sh", "-ec", &format!("rpm --install /{inside}; rm /{inside}; {DEBIANS_OWN}")]);
                run_logged(&mut rpm, log)
            })
        }),
    }
}
