//! An image that passes for Flatcar's, with a runtime and a read-only `/usr`: Kubernetes comes as a system extension, from a store
//! of signed artefacts.

use std::path::Path;

use anyhow::{Context, Result};

use super::download;
use super::tree::ArtefactStore;
use crate::cache::{Patch, extension_folder};
use crate::command::stdout_of;
use crate::consumers::IgnitionSpec;
use crate::flatcar::stand_in_for_flatcar;
use crate::lab::Lab;
use crate::node::NodeOptions;
use crate::state::NodeImage;
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

/// Where images of extensions come from, and where nodestrap itself does.
pub struct ExtensionStore {
    pub store: ArtefactStore,
    download: WebServer,
    /// The spec's words for a machine that is sent there.
    group: String,
}

impl ExtensionStore {
    /// Empty as yet.
    pub fn start(lab: &Lab, nodestrap: &Path) -> Result<Self> {
        let store = ArtefactStore::start(lab)?;
        let program = std::fs::read(nodestrap).with_context(|| format!("reading {}", nodestrap.display()))?;
        let (download, url) = download::download_site(lab, &program)?;
        Ok(Self { store, download, group: download::downloaded_from(&[&url], &program) })
    }

    /// Has nodestrap make the image of a patch of Kubernetes, and sign for it.
    pub fn publish(&self, lab: &Lab, nodestrap: &Path, patch: Patch) -> Result<()> {
        let folder = extension_folder(lab.cache(), patch)?;
        self.publish_folder(nodestrap, patch, &folder)
    }

    /// The same of a folder that somebody else has filled.
    pub fn publish_folder(&self, nodestrap: &Path, patch: Patch, folder: &Path) -> Result<()> {
        let mut publish = self.store.publish_command(nodestrap);
        publish.arg("--make-sysext").arg(format!("kubernetes@{}={}", patch.kubernetes_version(), folder.display()));
        stdout_of(&mut publish).context("publishing an extension").map(drop)
    }

    /// Of a worker that gets Kubernetes from here. What was published is looked up when this is rendered.
    pub fn spec(&self, lab: &Lab, patch: Patch) -> Result<WorkerSpec> {
        let mut spec = self.store.spec_from(lab, patch, "sysext")?;
        spec.group.push_str(&format!("os: flatcar\n{}", self.group));
        Ok(spec)
    }

    /// A machine that Ignition sends here.
    pub fn node(&self, lab: &Lab, name: &str, patch: Patch, nodestrap: &Path) -> Result<NodeOptions<'static>> {
        let config = self.spec(lab, patch)?.render(nodestrap, &["--format", "ignition"])?.bytes;
        let options = NodeOptions::named(name).image(NodeImage::Flatcar).before_boot(stand_in_for_flatcar);
        Ok(options.ignition(IgnitionSpec::Three, config).container_image(lab.kube_proxy_image()?))
    }

    fn servers(self) -> Vec<WebServer> {
        vec![self.store.server, self.download]
    }
}

/// The store with an extension, and a node whose bundle names it.
pub(super) fn offer(
    lab: &Lab,
    name: &str,
    nodestrap: &Path,
    say: &dyn Fn(&str),
) -> Result<(NodeOptions<'static>, Vec<WebServer>)> {
    let patch = Patch::Newest;
    let site = ExtensionStore::start(lab, nodestrap)?;
    site.publish(lab, nodestrap, patch)?;
    say(&format!("the extension kubernetes {} is at {}", patch.kubernetes_version(), site.store.server.url()));
    say("Ignition writes nodestrap, bundle and unit into an image that passes for Flatcar's, with a read-only /usr");
    let options = site.node(lab, name, patch, nodestrap)?;
    Ok((options, site.servers()))
}
