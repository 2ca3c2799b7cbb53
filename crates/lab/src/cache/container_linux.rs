//! What passes for Container Linux, of which there is no image to be had: Debian with torcx, and without any runtime.
//!
//! One layer has what all versions share, another what tells one version from the next; addons are made for a version, too.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::images::reproducible_tar;
use super::part::{Part, key, recipe_files};
use super::programs::{CNI_PLUGINS, CONTAINERD_PROGRAMS, TORCX_GENERATOR};
use super::release::Patch;
use super::root::link;
use crate::cache::ARCHITECTURE;
use crate::command::run_logged;
use crate::flatcar::leave_to_ignition;
use crate::node_root::{Enable, install_unit, write_file};
use crate::paths::recipe;
use crate::update_engine::BUS_POLICY;

/// Units that such a system starts by itself: a link in `/usr`, so that only a mask keeps them from running.
const OWN_UNITS: [&str; 2] = ["locksmithd.service", "update-engine.service"];
const UNITS_FOLDER: &str = "usr/lib/systemd/system";
/// The addon that brings a runtime.
pub(crate) const ADDON: &str = "docker";

/// What is put into the image.
pub(super) struct Programs {
    pub(super) newest: PathBuf,
    pub(super) earlier: PathBuf,
    pub(super) runtime: PathBuf,
    pub(super) generator: PathBuf,
}

/// As update_engine and torcx call the kind of machine.
pub(crate) fn board() -> String {
    format!("{ARCHITECTURE}-usr")
}

/// `docker:18.06.torcx.tgz`.
pub(crate) fn addon_archive(reference: &str) -> String {
    format!("{ADDON}:{reference}.torcx.tgz")
}

/// What all versions share. The kubelets are those of the images that a registry would have.
pub(super) fn image(programs: Programs) -> Result<Part> {
    let source = recipe("container-linux");
    let mut inputs = recipe_files(&source)?;
    let parts = [&programs.newest, &programs.earlier, &programs.runtime, &programs.generator];
    inputs.extend(parts.map(|part| part.file_name().unwrap_or_default().as_encoded_bytes().to_vec()));
    inputs.extend([BUS_POLICY, "layout 1"].map(|text| text.as_bytes().to_vec()));
    Ok(Part {
        name: "node-container-linux",
        description: "putting together what Container Linux brings, a second".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, _log| {
            link(&programs.generator, &folder.join("usr/lib/systemd/system-generators"), &[TORCX_GENERATOR])?;
            link(&programs.runtime, &folder.join("opt/cni/bin"), &CNI_PLUGINS)?;
            for (patch, part) in [(Patch::Newest, &programs.newest), (Patch::Earlier, &programs.earlier)] {
                let tag = format!("v{}", patch.kubernetes_version());
                link(part, &folder.join("usr/lib/kubelets").join(tag), &["kubelet"])?;
            }
            let wrapper = folder.join("usr/lib/coreos/kubelet-wrapper");
            copy(&source.join("kubelet-wrapper"), &wrapper)?;
            std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).context("kubelet-wrapper")?;
            // It names the runtime of the image, which this image has not got: without an addon nothing is sealed.
            copy(&source.join("vendor.json"), &folder.join("usr/share/torcx/profiles/vendor.json"))?;
            for empty in ["usr/share/torcx/store", "usr/share/oem", "usr/lib/modules"] {
                std::fs::create_dir_all(folder.join(empty)).with_context(|| format!("creating /{empty}"))?;
            }
            put_units(folder, &source)?;
            write_file(&folder.join("usr/share/dbus-1/system.d/com.coreos.update1.conf"), BUS_POLICY)?;
            leave_to_ignition(folder)
        }),
    })
}

fn put_units(folder: &Path, source: &Path) -> Result<()> {
    for unit in ["nodestrap-lab-images.service", "torcx.target"].iter().chain(&OWN_UNITS) {
        install_unit(folder, &source.join(unit), Enable::No)?;
    }
    let wants = folder.join(UNITS_FOLDER).join("multi-user.target.wants");
    std::fs::create_dir_all(&wants).with_context(|| format!("creating {}", wants.display()))?;
    for unit in OWN_UNITS {
        symlink(Path::new("..").join(unit), wants.join(unit)).with_context(|| format!("starting {unit}"))?;
    }
    Ok(())
}

/// What tells one version from another, laid over the rest of `/usr`.
pub(super) fn release(version: &str) -> Part {
    let files = release_files(version);
    let inputs = files.iter().flat_map(|(path, text)| [path.to_string(), text.clone()]);
    Part {
        name: "node-container-linux-release",
        description: format!("naming Container Linux {version}, a second"),
        key: key(&inputs.collect::<Vec<_>>()),
        recipe: Box::new(move |folder, _log| {
            files.iter().try_for_each(|(path, text)| write_file(&folder.join(path), text))
        }),
    }
}

/// Quoted where the original was, and nowhere else: torcx reads the version as it is written.
fn release_files(version: &str) -> Vec<(&'static str, String)> {
    let board = board();
    let os_release = format!(
        "NAME=\"Container Linux by CoreOS\"\nID=coreos\nVERSION={version}\nVERSION_ID={version}\nBUILD_ID=2020-05-22-2229\n\
         PRETTY_NAME=\"Container Linux by CoreOS {version} (stand-in of the lab)\"\nCOREOS_BOARD=\"{board}\"\n"
    );
    let release = format!("COREOS_RELEASE_VERSION={version}\nCOREOS_RELEASE_BOARD={board}\nCOREOS_RELEASE_APPID=lab\n");
    vec![
        ("usr/lib/os-release", os_release),
        ("usr/share/coreos/release", release),
        ("usr/share/coreos/update.conf", "GROUP=stable\n".to_owned()),
    ]
}

/// A runtime as an archive of torcx: real containerd and runc, and a unit. Each version has other bytes, as each was built anew.
pub(super) fn addon(runtime: &Path, os_version: &str, reference: &str) -> Result<Part> {
    let source = recipe("torcx-addon");
    let mut inputs = recipe_files(&source)?;
    inputs.push(runtime.file_name().unwrap_or_default().as_encoded_bytes().to_vec());
    inputs.extend([os_version, reference, "layout 1"].map(|text| text.as_bytes().to_vec()));
    let (runtime, os_version, reference) = (runtime.to_owned(), os_version.to_owned(), reference.to_owned());
    Ok(Part {
        name: "torcx-addon",
        description: format!("packing {ADDON}:{reference} for Container Linux {os_version}, some seconds"),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            let work = folder.join("work");
            let programs = [&CONTAINERD_PROGRAMS[..], &["runc"]].concat();
            link(&runtime, &work.join("bin"), &programs)?;
            let unit =
                std::fs::read_to_string(source.join("containerd.service")).context("reading containerd.service")?;
            let unit = unit.replace("@REFERENCE@", &reference).replace("@OS_VERSION@", &os_version);
            write_file(&work.join("lib/systemd/system/containerd.service"), unit)?;
            write_file(&work.join(".torcx/manifest.json"), addon_manifest(&programs))?;
            let mut tar = reproducible_tar(&work, &folder.join(addon_archive(&reference)));
            // Quickly rather than well: nobody keeps it.
            run_logged(tar.args(["--use-compress-program=gzip -n -1", ".torcx", "bin", "lib"]), log)?;
            std::fs::remove_dir_all(&work).context("removing the work folder")
        }),
    })
}

fn addon_manifest(programs: &[&str]) -> String {
    let programs: Vec<String> = programs.iter().map(|program| format!("/bin/{program}")).collect();
    let assets = json!({
        "bin": programs, "network": [], "units": ["/lib/systemd/system/containerd.service"],
        "sysusers": [], "tmpfiles": [], "udev_rules": [],
    });
    json!({"kind": "image-manifest-v0", "value": assets}).to_string()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let text = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    write_file(to, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_not_quoted_but_the_board_is() {
        let files = release_files("2512.1.0");
        let lines: Vec<&str> = files[0].1.lines().collect();
        assert!(lines.contains(&"VERSION_ID=2512.1.0") && lines.contains(&"ID=coreos"), "{lines:#?}");
        assert!(lines.contains(&format!("COREOS_BOARD=\"{ARCHITECTURE}-usr\"").as_str()), "{lines:#?}");
    }
}
