//! An RPM as Red Hat's macros would make it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Package;
use crate::command::run_logged;
use crate::node_root::write_file;

/// For the machine that this is.
const ARCHITECTURE: &str = std::env::consts::ARCH;
/// The programs are taken as they are: nothing is stripped, looked into or put elsewhere, and they are compressed badly and fast.
const SETTINGS: &str = "%global debug_package %{nil}\n%global __os_install_post %{nil}\n%global _build_id_links none\n\
     %global _binary_payload w1.gzdio\n%global __brp_check_rpaths %{nil}\n";

/// Makes the RPM in a folder. A folder that `root` has belongs to somebody else, any other to the package.
pub(super) fn build(package: &Package<'_>, root: &Path, folder: &Path, log: &Path) -> Result<()> {
    let Package { name, version, build, requires, provides, unit, settings, files } = package;
    let lines = |key: &str, values: &[&str]| -> String { values.iter().map(|v| format!("{key}: {v}\n")).collect() };
    let scripts = unit.map(scripts).unwrap_or_default();
    let listed = listed(files, files, root, settings)?;
    let text = format!(
        "{SETTINGS}Name: {name}\nVersion: {version}\nRelease: {build}\nSummary: {name} of the lab\nLicense: none\n\
         AutoReqProv: no\n{}{}%description\n{name} of the lab\n\n%install\ncp -al {}/. %{{buildroot}}/\n\n{scripts}%files\n{}\n",
        lines("Requires", requires),
        lines("Provides", provides),
        files.display(),
        listed.join("\n"),
    );
    let work = tempfile::tempdir_in(files.parent().unwrap_or(files)).context("making a work folder for rpmbuild")?;
    let spec = work.path().join("package.spec");
    write_file(&spec, text)?;
    let mut rpmbuild = Command::new("rpmbuild");
    rpmbuild.args(["-bb", "--target", ARCHITECTURE, "--define", &format!("_topdir {}", work.path().display())]);
    rpmbuild.args([
        "--define",
        &format!("_rpmdir {}", folder.display()),
        "--define",
        "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
    ]);
    run_logged(rpmbuild.arg(&spec), log)
}

/// What the macros of systemd's packages do: nothing starts by itself, but a package that goes takes its service along.
fn scripts(unit: &str) -> String {
    format!(
        "%post\nif [ $1 -eq 1 ]; then systemctl --no-reload preset {unit} || :; fi\n\n\
         %preun\nif [ $1 -eq 0 ]; then systemctl --no-reload disable --now {unit} || :; fi\n\n\
         %postun\nif [ $1 -ge 1 ]; then systemctl try-restart {unit} || :; fi\n\n"
    )
}

fn listed(folder: &Path, files: &Path, root: &Path, settings: &[&str]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        let relative = path.strip_prefix(files).context("a path outside of its folder")?;
        let place = format!("/{}", relative.display());
        if path.is_symlink() || !path.is_dir() {
            let kind = if settings.contains(&place.as_str()) { "%config(noreplace) " } else { "" };
            lines.push(format!("{kind}{place}"));
            continue;
        }
        if !root.join(relative).is_dir() {
            lines.push(format!("%dir {place}"));
        }
        lines.extend(self::listed(&path, files, root, settings)?);
    }
    lines.sort();
    Ok(lines)
}
