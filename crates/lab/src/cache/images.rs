//! Container images without a registry: one static program, one layer, as a docker archive that `ctr images import` reads.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::part::{Part, key, recipe_files};
use super::root::link;
use super::{ARCHITECTURE, KUBE_PROXY_IMAGE, PAUSE_IMAGE, PROBE_IMAGE};
use crate::command::{run_logged, stdout_of};
use crate::paths::recipe;

/// Two images of the same program: one sleeps (the sandbox of every pod), one answers on the network.
pub(super) fn part() -> Result<Part> {
    let source = recipe("probe");
    let mut inputs = recipe_files(&source)?;
    inputs.push(b"gcc -static -Os, images sleep and serve, archives by name".to_vec());
    Ok(Part {
        name: "images",
        description: "building the pause and probe images, a second".into(),
        key: key(&inputs),
        recipe: Box::new(move |folder, log| {
            let probe = folder.join("probe");
            let mut gcc = Command::new("gcc");
            gcc.args(["-static", "-Os", "-Wall", "-Werror", "-s", "-o"]).arg(&probe).arg(source.join("probe.c"));
            run_logged(&mut gcc, log)?;
            make_image(folder, "pause.tar", PAUSE_IMAGE, "sleep", log)?;
            make_image(folder, "probe.tar", PROBE_IMAGE, "serve", log)
        }),
    })
}

fn make_image(folder: &Path, archive: &str, name: &str, argument: &str, log: &Path) -> Result<()> {
    let config = json!({"Entrypoint": ["/probe"], "Cmd": [argument]});
    archive_image(folder, &["probe"], (name, &config), &folder.join(archive), log)
}

/// An image of one static program, which is all that is in it and what it runs, as an archive.
pub fn image_of_program(program: &Path, file: &str, name: &str, archive: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("making a folder for the layer")?;
    std::fs::copy(program, folder.path().join(file)).with_context(|| format!("copying {}", program.display()))?;
    let config = json!({"Entrypoint": [format!("/{file}")]});
    let log = folder.path().join("log");
    archive_image(folder.path(), &[file], (name, &config), archive, &log)
        .with_context(|| std::fs::read_to_string(&log).unwrap_or_default())
}

pub(super) const KUBE_PROXY_ARCHIVE: &str = "kube-proxy.tar";
/// The programs of iptables that kube-proxy starts; all are one.
const IPTABLES: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
const IPTABLES_PROGRAM: &str = "usr/sbin/xtables-nft-multi";

/// kube-proxy where its own image has it, and Debian's iptables with the libraries that it needs.
pub(super) fn kube_proxy(kubernetes: &Path, node_root: &Path) -> Part {
    let parts = [kubernetes.to_owned(), node_root.to_owned()];
    let names = parts.each_ref().map(|part| part.file_name().unwrap_or_default().as_encoded_bytes());
    let [kubernetes, node_root] = parts.clone();
    Part {
        name: "kube-proxy-image",
        description: "building the image of kube-proxy, a few seconds".into(),
        key: key(&[names[0], names[1], KUBE_PROXY_IMAGE.as_bytes(), b"layout 1"]),
        recipe: Box::new(move |folder, log| {
            let layer = folder.join("layer");
            link(&kubernetes, &layer.join("usr/local/bin"), &["kube-proxy"])?;
            copy_iptables(&node_root, &layer)?;
            let config = json!({
                "Entrypoint": ["/usr/local/bin/kube-proxy"],
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            });
            let archive = folder.join(KUBE_PROXY_ARCHIVE);
            archive_image(&layer, &["."], (KUBE_PROXY_IMAGE, &config), &archive, log)?;
            std::fs::remove_dir_all(&layer).context("removing the folder of the layer")
        }),
    }
}

fn copy_iptables(debian: &Path, layer: &Path) -> Result<()> {
    let copy = |path: &str| -> Result<()> {
        let [from, to] = [debian.join(path), layer.join(path)];
        std::fs::create_dir_all(to.parent().unwrap_or(layer)).with_context(|| format!("the folder of {path}"))?;
        std::fs::copy(&from, &to).with_context(|| format!("copying {}", from.display())).map(drop)
    };
    copy(IPTABLES_PROGRAM)?;
    for name in IPTABLES {
        symlink("xtables-nft-multi", layer.join("usr/sbin").join(name)).with_context(|| format!("linking {name}"))?;
    }
    let mut ldd = Command::new("chroot");
    let libraries = stdout_of(ldd.arg(debian).args(["ldd", &format!("/{IPTABLES_PROGRAM}")]))?;
    for path in library_paths(&libraries) {
        copy(path.trim_start_matches('/'))?;
    }
    let folder = extensions_folder(&libraries).context("iptables says no folder of libraries")?;
    for entry in std::fs::read_dir(debian.join(&folder)).with_context(|| format!("listing {folder}"))? {
        let name = entry?.file_name();
        copy(&format!("{folder}/{}", name.to_string_lossy()))?;
    }
    Ok(())
}

/// What `ldd` found, as absolute paths.
fn library_paths(ldd: &str) -> impl Iterator<Item = &str> {
    ldd.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

/// The matches and targets of iptables are libraries themselves, beside those that it is linked with.
fn extensions_folder(ldd: &str) -> Option<String> {
    let (folder, _) = library_paths(ldd).find(|path| path.contains("/libxtables"))?.rsplit_once('/')?;
    Some(format!("usr{folder}/xtables"))
}

/// One layer with these entries of a folder, as a docker archive.
fn archive_image(
    folder: &Path,
    entries: &[&str],
    (name, config): (&str, &Value),
    archive: &Path,
    log: &Path,
) -> Result<()> {
    let work = tempfile::tempdir_in(archive.parent().unwrap_or(folder)).context("making a work folder for an image")?;
    run_logged(reproducible_tar(folder, &work.path().join("layer.tar")).args(entries), log)?;
    let layer = std::fs::read(work.path().join("layer.tar")).context("reading the layer")?;
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&layer));
    let config = json!({
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    std::fs::write(work.path().join("config.json"), config.to_string()).context("writing the image config")?;
    std::fs::write(work.path().join("manifest.json"), manifest.to_string()).context("writing the image manifest")?;
    let mut tar = reproducible_tar(work.path(), archive);
    run_logged(tar.args(["config.json", "layer.tar", "manifest.json"]), log)
}

/// The same files give the same bytes.
pub(super) fn reproducible_tar(folder: &Path, archive: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).args(["--sort=name", "--format=ustar", "--mode=u+rw,go=rX", "--mtime=@0"]);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "-cf"]).arg(archive);
    tar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_taken_from_what_ldd_found_and_extensions_from_beside_them() {
        let said =
            "\tlinux-vdso.so.1 (0x7f)\n\tlibxtables.so.12 => /lib/x/libxtables.so.12 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n";
        assert_eq!(library_paths(said).collect::<Vec<_>>(), ["/lib/x/libxtables.so.12", "/lib64/ld.so.2"]);
        assert_eq!(extensions_folder(said).as_deref(), Some("usr/lib/x/xtables"));
    }
}
