//! A bare Debian that gets kubelet, runtime and CNI plug-ins as trees, from a store of signed artefacts.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use data_encoding::BASE64;

use crate::cache::{ARCHITECTURE, Patch, ReleaseFile};
use crate::command::stdout_of;
use crate::lab::Lab;
use crate::node::NodeOptions;
use crate::signing::SigningKey;
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

/// Where `publish` puts the manifest, which names all artefacts; its signature lies beside it.
const MANIFEST: &str = "manifest.json";

/// A folder that a server of the hub shows to nodes, and the key that speaks for it.
pub struct ArtefactStore {
    pub server: WebServer,
    pub key: SigningKey,
}

impl ArtefactStore {
    /// Empty as yet.
    pub fn start(lab: &Lab) -> Result<Self> {
        let server = lab.start_store()?;
        // Beside what is served.
        let key = SigningKey::create(server.folder().parent().unwrap_or(lab.folder()))?;
        Ok(Self { server, key })
    }

    /// Puts a release into the store and signs for it.
    pub fn publish(&self, nodestrap: &Path, release: &[ReleaseFile]) -> Result<()> {
        let mut publish = self.publish_command(nodestrap);
        for ReleaseFile { component, version, path, .. } in release {
            publish.arg("--add").arg(format!("{component}@{version}={}", path.display()));
        }
        stdout_of(&mut publish).context("publishing a release").map(drop)
    }

    /// Without what is to be published.
    pub(super) fn publish_command(&self, nodestrap: &Path) -> Command {
        let mut publish = Command::new(nodestrap);
        publish.arg("publish").arg(self.server.folder()).args(["--architecture", ARCHITECTURE]);
        publish.arg("--key").arg(&self.key.secret).arg("--keyring").arg(&self.key.keyring);
        publish
    }

    /// Of a worker that gets all its programs from here. What was published is looked up when this is rendered.
    pub fn spec(&self, lab: &Lab, patch: Patch) -> Result<WorkerSpec> {
        self.spec_from(lab, patch, "tree")
    }

    /// The same in another form.
    pub(super) fn spec_from(&self, lab: &Lab, patch: Patch, source: &str) -> Result<WorkerSpec> {
        let mut spec = WorkerSpec::of(lab).with_kube_proxy(lab)?;
        spec.cluster.push_str(&format!(
            "kubernetesVersion: {}\nartefacts:\n  store: {}\n  manifest: {{file: {}}}\n  keyrings: [{{file: {}}}]\n  \
             certificateAuthority: {}\n",
            patch.kubernetes_version(),
            self.server.url(),
            self.server.folder().join(MANIFEST).display(),
            self.key.keyring.display(),
            BASE64.encode(lab.ca_pem().as_bytes()),
        ));
        spec.group.push_str(&format!("source: {source}\narchitecture: {ARCHITECTURE}\n"));
        Ok(spec)
    }

    /// A bare Debian with nodestrap whose bundle leads here.
    pub fn node(&self, lab: &Lab, name: &str, patch: Patch, nodestrap: &Path) -> Result<NodeOptions<'static>> {
        let user_data = self.spec(lab, patch)?.user_data(nodestrap)?;
        let options = NodeOptions::named(name).bare().user_data(user_data).nodestrap(nodestrap);
        Ok(options.container_image(lab.kube_proxy_image()?))
    }
}

/// The store with a release, and a bare node whose bundle names it.
pub(super) fn offer(
    lab: &Lab,
    name: &str,
    nodestrap: &Path,
    say: &dyn Fn(&str),
) -> Result<(NodeOptions<'static>, WebServer)> {
    let patch = Patch::Newest;
    let store = ArtefactStore::start(lab)?;
    let release = lab.release(patch)?;
    store.publish(nodestrap, &release)?;
    for ReleaseFile { component, version, name, .. } in &release {
        say(&format!("{component} {version} is published at {} as {name}", store.server.url()));
    }
    say("a bare Debian with nodestrap, and a bundle that names them");
    Ok((store.node(lab, name, patch, nodestrap)?, store.server))
}
