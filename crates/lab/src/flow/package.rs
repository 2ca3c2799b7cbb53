//! An operating system as its installer leaves it, which gets Kubernetes, its runtime and what they expect of a host as packages.
//!
//! The repositories are the lab's, and signed: ours over https, and for apt one that passes for Debian's over plain http, as
//! Debian's are. No mirror can be reached from a node.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use data_encoding::BASE64;

use crate::cache::{PackageManager, Patch, Repository};
use crate::lab::Lab;
use crate::node::NodeOptions;
use crate::node_root::write_file;
use crate::signing::SigningKey;
use crate::state::NodeImage;
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

/// The repositories of a package manager, and the key that speaks for them.
pub struct PackageSite {
    pub manager: PackageManager,
    /// With Kubernetes and its runtime.
    pub ours: WebServer,
    /// With Debian's own packages.
    pub distribution: Option<WebServer>,
    /// Armoured.
    pub key: PathBuf,
}

impl PackageSite {
    pub fn start(lab: &Lab, manager: PackageManager) -> Result<Self> {
        let repositories = lab.package_repositories(manager)?;
        let show = |site: WebServer, repository: Repository| -> Result<WebServer> {
            let folder = repository.folder();
            symlink(repositories.join(folder), site.folder().join(folder)).context("showing a repository")?;
            Ok(site)
        };
        let distribution = match manager {
            PackageManager::Apt => Some(show(lab.start_web_server()?, Repository::Debians)?),
            PackageManager::Dnf => None,
        };
        let ours = show(lab.start_store()?, Repository::Ours(manager))?;
        Ok(Self { manager, ours, distribution, key: SigningKey::in_folder(&repositories).keyring })
    }

    /// Of our repository.
    pub fn url(&self) -> String {
        format!("{}{}/", self.ours.url(), self.path())
    }

    /// Of our repository on its server, as in `/deb`.
    pub fn path(&self) -> String {
        format!("/{}", Repository::Ours(self.manager).folder())
    }

    /// Of a worker that gets all its programs from here.
    pub fn spec(&self, lab: &Lab, patch: Patch) -> Result<WorkerSpec> {
        self.spec_with_key(lab, patch, &self.key)
    }

    /// The same, with a key that is good for something else.
    pub fn spec_with_key_of_a_stranger(&self, lab: &Lab, patch: Patch) -> Result<WorkerSpec> {
        let folder = lab.folder().join("stranger");
        std::fs::create_dir_all(&folder).context("making a folder for the key of a stranger")?;
        self.spec_with_key(lab, patch, &SigningKey::create(&folder)?.keyring)
    }

    fn spec_with_key(&self, lab: &Lab, patch: Patch, key: &Path) -> Result<WorkerSpec> {
        let mut spec = WorkerSpec::of(lab).with_kube_proxy(lab)?;
        spec.cluster.push_str(&format!(
            "kubernetesVersion: {}\npackages:\n  repositories:\n    - name: kubernetes\n      url: {}\n      key: {{file: {}}}\n      \
             certificateAuthority: {}\n",
            patch.kubernetes_version(),
            self.url(),
            key.display(),
            BASE64.encode(lab.ca_pem().as_bytes()),
        ));
        let containerd = self.manager.containerd_version(patch);
        spec.group.push_str(&format!("source: package\ncomponents: {{containerd: {{version: {containerd}}}}}\n"));
        if self.manager == PackageManager::Dnf {
            spec.group.push_str("os: rhel\n");
        }
        Ok(spec)
    }

    /// Without any program of Kubernetes, a runtime, iptables and conntrack; it knows where its distribution is.
    pub fn machine(&self, name: &str) -> NodeOptions<'static> {
        let options = NodeOptions::named(name);
        let Some(distribution) = &self.distribution else { return options.image(NodeImage::RedHat) };
        let (url, key) = (distribution.url(), self.key.clone());
        options.image(NodeImage::Minimal).before_boot(move |root| name_distribution(root, &url, &key))
    }

    /// The same with nodestrap and a bundle that leads here.
    pub fn node(&self, lab: &Lab, name: &str, patch: Patch, nodestrap: &Path) -> Result<NodeOptions<'static>> {
        let user_data = self.spec(lab, patch)?.user_data(nodestrap)?;
        let options = self.machine(name).user_data(user_data).nodestrap(nodestrap);
        Ok(options.container_image(lab.kube_proxy_image()?))
    }

    fn servers(self) -> Vec<WebServer> {
        [Some(self.ours), self.distribution].into_iter().flatten().collect()
    }
}

/// In place of Debian's mirrors. Its key came with the image, as Debian's do.
fn name_distribution(root: &Path, url: &str, key: &Path) -> Result<()> {
    const KEY: &str = "usr/share/keyrings/nodestrap-lab-debian.asc";
    std::fs::copy(key, root.join(KEY)).context("copying the key of the distribution")?;
    write_file(&root.join("etc/apt/sources.list"), "")?;
    let folder = Repository::Debians.folder();
    let source = format!("Types: deb\nURIs: {url}/{folder}\nSuites: bookworm\nComponents: main\nSigned-By: /{KEY}\n");
    write_file(&root.join("etc/apt/sources.list.d/debian.sources"), source)
}

/// The repositories, and a node whose bundle names them.
pub(super) fn offer(
    lab: &Lab,
    name: &str,
    manager: PackageManager,
    nodestrap: &Path,
    say: &dyn Fn(&str),
) -> Result<(NodeOptions<'static>, Vec<WebServer>)> {
    let patch = Patch::Newest;
    let site = PackageSite::start(lab, manager)?;
    say(&format!("packages of Kubernetes {} and its runtime are at {}", patch.kubernetes_version(), site.url()));
    match manager {
        PackageManager::Apt => say("a Debian without iptables and conntrack, and a bundle that names the repository"),
        PackageManager::Dnf => say("a machine that passes for Red Hat's, and a bundle that names the repository"),
    }
    let options = site.node(lab, name, patch, nodestrap)?;
    Ok((options, site.servers()))
}
