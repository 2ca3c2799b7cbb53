//! The ways on which a machine becomes a node, each from nothing to Ready: what `lab node add --flow` takes, and the tests.
//!
//! In: a lab, a name, the nodestrap program. Out: a node that is not booted yet with what has to stand around it, then a Ready
//! one. Fails with the name of what was waited for and the end of the node's journals.

mod bucket;
mod download;
mod eksctl;
mod package;
mod store;
mod sysext;
mod torcx;
mod tree;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use bucket::PrivateBucket;
pub use download::{bare_node, download_site, downloaded_from, ignition_node};
pub use eksctl::{EksImage, eks_instance, eks_spec};
pub use package::PackageSite;
pub use store::{incompressible_text, published_paths};
pub use sysext::ExtensionStore;
pub use torcx::{AddonSite, Published, container_linux_node};
pub use tree::ArtefactStore;

use crate::cache::PackageManager;
use crate::command::output_text;
use crate::consumers::IgnitionSpec;
use crate::lab::Lab;
use crate::metadata::MetadataServer;
use crate::node::{Node, NodeOptions};
use crate::node_root::write_file;
pub use crate::signing::SigningKey;
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

/// Where the bundle lies on a node, whoever brings it.
const BUNDLE: &str = "etc/nodestrap/bundle.json";

/// From what a node is made, and how its bundle reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Flow {
    /// nodestrap is in the image; cloud-init writes the bundle.
    UserData,
    /// nodestrap and the bundle are in the image; nobody brings anything.
    Image,
    /// Nothing of ours is in the image: a part handler of cloud-init downloads nodestrap.
    Mime,
    /// Likewise by Ignition, before the first boot of an image that passes for Flatcar's.
    Ignition,
    /// User data has a stub only; the bundle comes from a store over https.
    Store,
    /// An image that passes for Amazon Linux 2 of EKS, with a metadata service.
    EksctlAl2,
    /// An image that passes for Ubuntu of EKS, with a metadata service and a real snapd.
    EksctlUbuntu,
    /// Nothing but an operating system and nodestrap: kubelet, runtime and CNI plug-ins come from a store of signed artefacts.
    Tree,
    /// The same, and no iptables or conntrack either: all of it comes as packages, by apt.
    Package,
    /// The same by dnf, on an image that passes for Red Hat's.
    PackageDnf,
    /// A runtime, a read-only `/usr`, and no Kubernetes, which comes as a system extension; the image passes for Flatcar's.
    Sysext,
    /// Container Linux in Tectonic's layout: an update of the system and a runtime as torcx's addon, one reboot, then the kubelet of the
    /// cluster's release.
    Torcx,
}

/// A node that is made and off, and what stands around it: gone with this value, unless its lab is up until `lab down`.
pub struct Prepared {
    pub node: Node,
    pub sites: Vec<WebServer>,
    /// None also where a process of its own answers.
    pub metadata: Option<MetadataServer>,
    nodestrap: &'static str,
}

impl Flow {
    /// Makes a node of this flow and says each thing that it does.
    pub fn prepare(self, lab: &Lab, name: &str, nodestrap: &Path, say: &dyn Fn(&str)) -> Result<Prepared> {
        let spec = WorkerSpec::of(lab);
        let (options, sites) = match self {
            Self::UserData => {
                let user_data = spec.user_data(nodestrap)?;
                say(&format!("{} bytes of user data for an image with nodestrap", user_data.len()));
                (NodeOptions::named(name).user_data(user_data).nodestrap(nodestrap), vec![])
            }
            Self::Image => {
                let bundle = spec.render(nodestrap, &["--format", "bundle"])?.bytes;
                say(&format!("an image with nodestrap and a bundle of {} bytes, and without cloud-init", bundle.len()));
                let bake = move |root: &Path| bake_bundle(root, &bundle);
                (NodeOptions::named(name).nodestrap(nodestrap).before_boot(bake), vec![])
            }
            Self::Mime => {
                let (site, spec) = download::offer(lab, "", nodestrap, say)?;
                let user_data = spec.render(nodestrap, &["--format", "mime"])?.bytes;
                say(&format!("{} bytes of user data in parts, one of them a part handler", user_data.len()));
                (bare_node(name).user_data(user_data), vec![site])
            }
            Self::Ignition => {
                let (site, spec) = download::offer(lab, "os: flatcar\n", nodestrap, say)?;
                say("Ignition writes nodestrap, bundle and unit into an image that passes for Flatcar's");
                (ignition_node(name, &spec, IgnitionSpec::Three, nodestrap)?, vec![site])
            }
            Self::Store => {
                let (store, stub) = store::offer(lab, nodestrap, say)?;
                (NodeOptions::named(name).user_data(stub).nodestrap(nodestrap), vec![store])
            }
            Self::EksctlAl2 => (EksImage::AmazonLinux2.options(lab, name, nodestrap, say)?, vec![]),
            Self::EksctlUbuntu => (EksImage::Ubuntu.options(lab, name, nodestrap, say)?, vec![]),
            Self::Tree => {
                let (options, store) = tree::offer(lab, name, nodestrap, say)?;
                (options, vec![store])
            }
            Self::Package => package::offer(lab, name, PackageManager::Apt, nodestrap, say)?,
            Self::PackageDnf => package::offer(lab, name, PackageManager::Dnf, nodestrap, say)?,
            Self::Sysext => sysext::offer(lab, name, nodestrap, say)?,
            Self::Torcx => torcx::offer(lab, name, nodestrap, say)?,
        };
        let node = lab.add_node(options.not_started())?;
        let metadata = match self.eks_image() {
            Some(image) => {
                say("a metadata service of AWS at 169.254.169.254");
                lab.keep_metadata_service(name, eks_instance(&node, image.instance_type()))?
            }
            None => None,
        };
        Ok(Prepared { node, sites, metadata, nodestrap: self.program() })
    }

    fn eks_image(self) -> Option<EksImage> {
        match self {
            Self::EksctlAl2 => Some(EksImage::AmazonLinux2),
            Self::EksctlUbuntu => Some(EksImage::Ubuntu),
            _ => None,
        }
    }

    /// Where nodestrap lies on such a node.
    fn program(self) -> &'static str {
        match self {
            Self::Mime => download::DOWNLOADED,
            Self::Ignition | Self::Sysext | Self::Torcx => download::DOWNLOADED_ON_FLATCAR,
            _ => "/usr/bin/nodestrap",
        }
    }
}

impl Prepared {
    /// Boots the node and returns when its kubelet has said in this boot that it is Ready, and nodestrap says so, too.
    pub fn boot_until_ready(&self, lab: &Lab, deadline: Duration) -> Result<()> {
        self.node.start()?;
        lab.wait_ready_in_this_boot(&self.node, deadline)?;
        // A status that was asked for while the bootstrap spends its credentials says that it is busy.
        self.node.wait_until("nodestrap status to be 0", deadline, |node| {
            let status = node.exec(&[self.nodestrap, "status"])?;
            ensure!(status.status.success(), "{}", output_text(&status));
            Ok(true)
        })
    }
}

/// As whoever bakes images for one group leaves them.
fn bake_bundle(root: &Path, bundle: &[u8]) -> Result<()> {
    write_file(&root.join(BUNDLE), bundle)?;
    std::fs::set_permissions(root.join(BUNDLE), std::fs::Permissions::from_mode(0o600)).context("the bundle's mode")?;
    write_file(&root.join("etc/cloud/cloud-init.disabled"), "")
}
