//! Machines that have to download nodestrap, because their image brings everything but that.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256, Sha512};

use crate::consumers::IgnitionSpec;
use crate::flatcar::stand_in_for_flatcar;
use crate::lab::Lab;
use crate::node::NodeOptions;
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

pub(super) const DOWNLOADED: &str = "/usr/local/bin/nodestrap";
pub(super) const DOWNLOADED_ON_FLATCAR: &str = "/opt/bin/nodestrap";

/// A server that has the program, and the address of the program there.
pub fn download_site(lab: &Lab, program: &[u8]) -> Result<(WebServer, String)> {
    let site = lab.start_web_server()?;
    site.put("/nodestrap", program)?;
    let url = site.url() + "/nodestrap";
    Ok((site, url))
}

/// The spec's words for a node that has to download nodestrap.
pub fn downloaded_from(urls: &[&str], program: &[u8]) -> String {
    let [sha256, sha512] = [HEXLOWER.encode(&Sha256::digest(program)), HEXLOWER.encode(&Sha512::digest(program))];
    format!(
        "delivery:\n  nodestrap:\n    installation: download\n    urls: [{}]\n    sha256: {sha256}\n    sha512: {sha512}\n",
        urls.join(", ")
    )
}

/// The image brings everything but nodestrap.
pub fn bare_node(name: &str) -> NodeOptions<'static> {
    NodeOptions::named(name).before_boot(|root| {
        for path in ["usr/bin/nodestrap", "usr/lib/systemd/system/k8s-node-bootstrap.service"] {
            ensure!(!root.join(path).exists(), "{path} is in the image already");
        }
        Ok(())
    })
}

/// Ignition carries out what is rendered for it, in an image that passes for Flatcar's.
pub fn ignition_node(
    name: &str,
    spec: &WorkerSpec,
    version: IgnitionSpec,
    nodestrap: &Path,
) -> Result<NodeOptions<'static>> {
    let config = ignition_config(spec, version, nodestrap)?;
    Ok(NodeOptions::named(name).before_boot(stand_in_for_flatcar).ignition(version, config))
}

/// What is rendered of a spec for Ignition.
pub(super) fn ignition_config(spec: &WorkerSpec, version: IgnitionSpec, nodestrap: &Path) -> Result<Vec<u8>> {
    let format = match version {
        IgnitionSpec::Two => "ignition-2.3",
        IgnitionSpec::Three => "ignition",
    };
    Ok(spec.render(nodestrap, &["--format", format])?.bytes)
}

/// A download site, and the spec of a node that is sent there.
pub(super) fn offer(lab: &Lab, group: &str, nodestrap: &Path, say: &dyn Fn(&str)) -> Result<(WebServer, WorkerSpec)> {
    let program = std::fs::read(nodestrap).with_context(|| format!("reading {}", nodestrap.display()))?;
    let (site, url) = download_site(lab, &program)?;
    say(&format!("nodestrap can be downloaded from {url}"));
    let group = format!("{group}{}", downloaded_from(&[&url], &program));
    Ok((site, WorkerSpec { group, ..WorkerSpec::of(lab) }))
}
