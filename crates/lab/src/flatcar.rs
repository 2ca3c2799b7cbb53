//! Makes the root of a node look like Flatcar Container Linux, of which there is no image to be had here.
//!
//! Only what nodestrap and Ignition can tell: the name, where programs lie, who holds the name servers, that no cloud-init
//! runs, and that nothing is enabled but what Ignition says. Below it stays the lab's Debian.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::node_root::write_file;

const OS_RELEASE: &str = "\
NAME=\"Flatcar Container Linux by Kinvolk\"
ID=flatcar
ID_LIKE=coreos
VERSION=4230.2.1
VERSION_ID=4230.2.1
SYSEXT_LEVEL=\"1.0\"
PRETTY_NAME=\"Flatcar Container Linux by Kinvolk 4230.2.1 (stand-in of the lab)\"
";
/// The lab's units and the network, which the lab itself sets up.
const FIRST_PRESET: &str = "enable nodestrap-lab-*\ndisable systemd-networkd.*\n";
/// As Flatcar's own; Debian's would enable every unit that there is.
const LAST_PRESET: &str = "disable *\n";
/// What systemd-resolved would keep there.
const NAME_SERVERS: &str = "L /run/systemd/resolve/resolv.conf - - - - /etc/resolv.conf\n";

/// For [`crate::NodeOptions::before_boot`].
pub fn stand_in_for_flatcar(root: &Path) -> Result<()> {
    // On Debian it is a link to this file.
    write_file(&root.join("usr/lib/os-release"), OS_RELEASE)?;
    leave_to_ignition(root)?;
    if root.join("usr/bin/kubelet").exists() {
        symlink("/usr/bin/kubelet", root.join("opt/bin/kubelet")).context("linking the kubelet")?;
    }
    forget_machine_id(root)
}

/// What the systems of this family have in common: nobody but Ignition configures them, and nothing is enabled but what it says.
pub(crate) fn leave_to_ignition(root: &Path) -> Result<()> {
    let presets = root.join("usr/lib/systemd/system-preset");
    write_file(&presets.join("00-nodestrap-lab.preset"), FIRST_PRESET)?;
    write_file(&presets.join("99-default.preset"), LAST_PRESET)?;
    write_file(&root.join("usr/lib/tmpfiles.d/nodestrap-lab-flatcar.conf"), NAME_SERVERS)?;
    write_file(&root.join("etc/cloud/cloud-init.disabled"), "")?;
    std::fs::create_dir_all(root.join("opt/bin")).context("creating /opt/bin")?;
    // It asks at the console, where nobody sits.
    let firstboot = root.join("etc/systemd/system/systemd-firstboot.service");
    std::fs::create_dir_all(root.join("etc/systemd/system")).context("creating the folder of units")?;
    symlink("/dev/null", firstboot).context("masking firstboot")
}

/// Without one this is a first boot, on which systemd enables what the presets say.
pub(crate) fn forget_machine_id(root: &Path) -> Result<()> {
    std::fs::remove_file(root.join("etc/machine-id")).context("removing the machine id")
}
