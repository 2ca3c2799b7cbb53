//! Container images without a registry: one static program, one layer, as a docker archive that `ctr images import` reads.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::part::{Part, key, recipe_files};
use super::{PAUSE_IMAGE, PROBE_IMAGE};
use crate::command::run_logged;
use crate::paths::recipe;

/// Two images of the same program: one sleeps (the sandbox of every pod), one answers on the network.
pub(super) fn part() -> Result<Part> {
    let source = recipe("probe");
    let mut inputs = recipe_files(&source)?;
    inputs.push(b"gcc -static -Os, images sleep and serve".to_vec());
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
    let work = folder.join("work");
    std::fs::create_dir(&work).context("creating the work folder of an image")?;
    run_logged(reproducible_tar(folder, &work.join("layer.tar")).arg("probe"), log)?;
    let layer = std::fs::read(work.join("layer.tar")).context("reading the layer")?;
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&layer));
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": ["/probe"], "Cmd": [argument]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    std::fs::write(work.join("config.json"), config.to_string()).context("writing the image config")?;
    std::fs::write(work.join("manifest.json"), manifest.to_string()).context("writing the image manifest")?;
    let mut tar = reproducible_tar(&work, &folder.join(archive));
    run_logged(tar.args(["config.json", "layer.tar", "manifest.json"]), log)?;
    std::fs::remove_dir_all(&work).context("removing the work folder of an image")
}

fn reproducible_tar(folder: &Path, archive: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).args(["--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "-cf"]).arg(archive);
    tar
}
