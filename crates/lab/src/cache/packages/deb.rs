//! A deb as debhelper would make it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Package;
use crate::cache::ARCHITECTURE;
use crate::command::run_logged;
use crate::node_root::write_file;
use crate::paths::recipe;

/// What a package of a service runs around its installation and its removal.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Makes the deb in a folder.
pub(super) fn build(package: &Package<'_>, folder: &Path, log: &Path) -> Result<()> {
    let Package { name, version, build, requires, unit, settings, files, .. } = package;
    let control = files.join("DEBIAN");
    let mut text = format!(
        "Package: {name}\nVersion: {version}-{build}\nArchitecture: {ARCHITECTURE}\nMaintainer: lab <lab@nodestrap.local>\n\
         Description: {name} of the lab\n"
    );
    if !requires.is_empty() {
        text.push_str(&format!("Depends: {}\n", requires.join(", ")));
    }
    write_file(&control.join("control"), text)?;
    if !settings.is_empty() {
        write_file(&control.join("conffiles"), settings.join("\n") + "\n")?;
    }
    if let Some(unit) = unit {
        for script in SCRIPTS {
            let source = recipe("packages").join(script);
            let text = std::fs::read_to_string(&source).with_context(|| format!("reading {}", source.display()))?;
            let place = control.join(script);
            write_file(&place, text.replace("@UNIT@", unit))?;
            std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).context("a script's mode")?;
        }
    }
    // What is large is compressed badly and fast: nobody but a node of the same machine fetches it.
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]).arg(files).arg(folder);
    run_logged(&mut dpkg, log)
}
