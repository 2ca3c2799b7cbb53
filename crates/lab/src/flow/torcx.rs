//! Where addons of torcx come from: a site of signed manifests, one for each board and version of Container Linux, and archives by
//! their digest.
//!
//! In: versions and references. Out: what a bucket of releases had, or, on purpose, something that is wrong about it.

use std::path::Path;

use anyhow::{Context, Result};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use super::download::{download_site, downloaded_from, ignition_config};
use crate::cache::{ADDON, Patch, addon_archive, board, minor_of, torcx_addon};
use crate::consumers::IgnitionSpec;
use crate::lab::Lab;
use crate::node::NodeOptions;
use crate::signing::SigningKey;
use crate::state::NodeImage;
use crate::update_engine::{self, Script};
use crate::usr_partitions::{FIRST_OS_VERSION, NEXT_OS_VERSION};
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

const MANIFEST: &str = "torcx_manifest.json";
/// Any version that the site has for both systems.
const REFERENCE: &str = "18.06";

/// What is true of a manifest and the archives that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Rightly,
    /// The archives are not those that the manifest was signed for.
    WithOtherArchives,
    /// The manifest says the truth, but nobody who is trusted has signed it.
    ByAStranger,
}

/// A server of the hub, and the key that speaks for what it has.
pub struct AddonSite {
    pub server: WebServer,
    pub key: SigningKey,
    stranger: SigningKey,
}

impl AddonSite {
    /// Empty as yet.
    pub fn start(lab: &Lab) -> Result<Self> {
        let server = lab.start_web_server()?;
        let files = server.folder();
        // Beside what is served.
        let beside = files.parent().unwrap_or(lab.folder());
        let stranger = beside.join("stranger");
        std::fs::create_dir(&stranger).with_context(|| format!("creating {}", stranger.display()))?;
        Ok(Self { key: SigningKey::create(beside)?, stranger: SigningKey::create(&stranger)?, server })
    }

    /// As `--torcx-manifest-url` takes it.
    pub fn manifest_url(&self) -> String {
        self.server.url() + &manifest_path("{{.Board}}", "{{.OSVersion}}")
    }

    /// Offers an addon in these versions, the first of which is the default, to one version of Container Linux. What was offered to
    /// it before is forgotten.
    pub fn publish(&self, os_version: &str, references: &[&str], published: Published) -> Result<()> {
        let offers = references.iter().map(|reference| self.publish_archive(os_version, reference, published));
        let versions = offers.collect::<Result<Vec<_>>>()?;
        let package = json!({"name": ADDON, "defaultVersion": references.first(), "versions": versions});
        let manifest = json!({"kind": "torcx-package-list-v0", "value": {"packages": [package]}}).to_string();
        let path = manifest_path(&board(), os_version);
        let signature = self.sign(&manifest, published)?;
        // Whoever asks in between gets a signature that does not fit, as from any bucket.
        self.server.put(&path, manifest)?;
        self.server.put(&format!("{path}.asc"), signature)
    }

    /// From now on there is nothing for that version.
    pub fn withdraw(&self, os_version: &str) -> Result<()> {
        let path = manifest_path(&board(), os_version);
        for file in [path.clone(), format!("{path}.asc")] {
            let place = self.server.folder().join(file.trim_start_matches('/'));
            std::fs::remove_file(&place).with_context(|| format!("removing {}", place.display()))?;
        }
        Ok(())
    }

    /// Of a worker of the layout tectonic: the kubelet of that patch, and the first of these versions of the addon that its system
    /// can have. Where nodestrap comes from is for the caller to add.
    /// Its kube-proxy needs an image, which [`Lab::kube_proxy_image`] has.
    pub fn spec(&self, lab: &Lab, patch: Patch, references: &[&str]) -> Result<WorkerSpec> {
        let version = patch.kubernetes_version();
        let mut spec = WorkerSpec::of(lab).with_kube_proxy(lab)?;
        spec.cluster.push_str(&format!(
            "kubernetesVersion: {version}\nlayout: tectonic\ntectonic:\n  kubeletImage: nodestrap.local/hyperkube\n  \
             kubeletImageTag: v{version}\n  runtimeMappings: {{'{}': ['{}']}}\n  manifestURL: '{}'\n\
             trust: {{keyrings: [{{name: addons, keys: {{file: {}}}}}]}}\n",
            minor_of(version),
            references.join("', '"),
            self.manifest_url(),
            self.key.keyring.display(),
        ));
        spec.group.push_str("os: container-linux\nsource: torcx\n");
        Ok(spec)
    }

    /// Returns what the manifest says about it.
    fn publish_archive(&self, os_version: &str, reference: &str, published: Published) -> Result<Value> {
        let mut bytes = read(&torcx_addon(os_version, reference)?)?;
        let digest = HEXLOWER.encode(&Sha512::digest(&bytes));
        let path = format!("/pkgs/{}/{ADDON}/{digest}/{}", board(), addon_archive(reference));
        if published == Published::WithOtherArchives {
            // In the time stamp of gzip: it still unpacks well.
            bytes[4] ^= 1;
        }
        self.server.put(&path, bytes)?;
        Ok(json!({
            "version": reference,
            "hash": format!("sha512-{digest}"),
            "casDigest": digest,
            "sourcePackage": format!("app-torcx/{ADDON}-{reference}"),
            "locations": [{"url": self.server.url() + &path}],
        }))
    }

    /// Armoured and detached.
    fn sign(&self, manifest: &str, published: Published) -> Result<Vec<u8>> {
        let key = match published {
            Published::Rightly | Published::WithOtherArchives => &self.key,
            Published::ByAStranger => &self.stranger,
        };
        let work = tempfile::tempdir().context("making a folder for a signature")?;
        let (file, signature) = (work.path().join(MANIFEST), work.path().join("signature"));
        std::fs::write(&file, manifest).context("writing the manifest")?;
        key.unlocked()?.detach_sign(&file, &signature)?;
        read(&signature)
    }
}

/// A site with the same addon for the system that runs and for its update, and a machine whose update_engine finds that update.
pub(super) fn offer(
    lab: &Lab,
    name: &str,
    nodestrap: &Path,
    say: &dyn Fn(&str),
) -> Result<(NodeOptions<'static>, Vec<WebServer>)> {
    let site = AddonSite::start(lab)?;
    for version in [FIRST_OS_VERSION, NEXT_OS_VERSION] {
        site.publish(version, &[REFERENCE], Published::Rightly)?;
        say(&format!("the addon {ADDON}:{REFERENCE} for Container Linux {version} is at {}", site.server.url()));
    }
    let program = std::fs::read(nodestrap).with_context(|| format!("reading {}", nodestrap.display()))?;
    let (download, url) = download_site(lab, &program)?;
    let mut spec = site.spec(lab, Patch::Newest, &[REFERENCE])?;
    spec.group.push_str(&downloaded_from(&[&url], &program));
    let engine = lab.program()?.to_owned();
    say(&format!(
        "Ignition writes nodestrap, bundle and units; update_engine will find Container Linux {NEXT_OS_VERSION}"
    ));
    let options = container_linux_node(name, &spec, IgnitionSpec::Two, nodestrap)?;
    let options = options.container_image(lab.kube_proxy_image()?);
    let options = options.before_boot(move |root| {
        update_engine::install(root, &engine)?;
        update_engine::write_script(root, &Script::that_finds(NEXT_OS_VERSION))
    });
    Ok((options, vec![site.server, download]))
}

/// A Container Linux that Ignition configures as the spec says.
pub fn container_linux_node(
    name: &str,
    spec: &WorkerSpec,
    version: IgnitionSpec,
    nodestrap: &Path,
) -> Result<NodeOptions<'static>> {
    let config = ignition_config(spec, version, nodestrap)?;
    Ok(NodeOptions::named(name).image(NodeImage::ContainerLinux).ignition(version, config))
}

fn manifest_path(board: &str, os_version: &str) -> String {
    format!("/manifests/{board}/{os_version}/{MANIFEST}")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}
