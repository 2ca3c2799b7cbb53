//! Everything slow that all labs share, made once into the cache folder.
//!
//! Inputs: the recipes in `crates/lab/recipes`, the versions below, the registries of Go and Debian by their defaults.
//! Outputs: one folder per part, named by the hash of what it is made from. Failures: the part, and the end of its log.

mod consumers;
mod images;
mod part;
mod programs;
mod root;
mod snapd;

use std::path::PathBuf;

use anyhow::{Result, bail};

pub use consumers::Consumers;
pub(crate) use consumers::{Ignition, minor_of};

use crate::paths::cache_folder;
use crate::support::missing_packages;

pub(crate) const KUBERNETES_VERSION: &str = "1.36.3";
/// The oldest minor that nodestrap renders for; the programs of both ends are asked for their flags.
pub(crate) const OLDEST_KUBERNETES_VERSION: &str = "1.30.14";
/// What control planes are rendered with, and therefore asked for its flags.
pub(crate) const DEPLOYED_ETCD_VERSION: &str = "3.6.8";
pub(crate) const ETCD_VERSION: &str = "3.7.3";
pub(crate) const CONTAINERD_VERSION: &str = "2.4.2";
pub(crate) const CNI_PLUGINS_VERSION: &str = "1.9.1";
pub(crate) const RUNC_VERSION: &str = "1.5.2";
/// A store that speaks S3, with its objects in a folder.
pub(crate) const VERSITYGW_VERSION: &str = "1.8.0";

/// The name of the image that pods of the lab use as their sandbox.
pub const PAUSE_IMAGE: &str = "nodestrap.local/pause:1";
/// The name of the image that answers its host name on TCP 8080.
pub const PROBE_IMAGE: &str = "nodestrap.local/probe:1";

/// Where the parts are.
#[derive(Debug, Clone)]
pub struct Cache {
    /// kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubectl, kubeadm, kubelet.
    pub kubernetes: PathBuf,
    /// etcd, etcdctl.
    pub etcd: PathBuf,
    /// The Debian tree of a node.
    pub node_root: PathBuf,
    /// What the lab puts over it: kubelet, containerd, CNI plugins, units, images.
    pub node_image: PathBuf,
}

/// Makes what is missing, says so on the standard error, and returns where everything is. Two runs at once wait for each other.
pub fn prepare() -> Result<Cache> {
    let folder = cache_folder()?;
    let kubernetes = programs::kubernetes()?;
    let etcd = programs::etcd()?;
    let runtime = programs::runtime();
    let images = images::part()?;
    let node_root = root::debian();
    if [&kubernetes, &etcd, &runtime, &images, &node_root].iter().any(|part| !part.is_present(&folder)) {
        check_build_tools()?;
    }
    let kubernetes = kubernetes.ensure(&folder)?;
    let etcd = etcd.ensure(&folder)?;
    let runtime = runtime.ensure(&folder)?;
    let images = images.ensure(&folder)?;
    let node_root = node_root.ensure(&folder)?;
    let node_image = root::image(&kubernetes, &runtime, &images)?.ensure(&folder)?;
    Ok(Cache { kubernetes, etcd, node_root, node_image })
}

/// snapd from Debian, in the folder `root`; made when it is first asked for.
pub(crate) fn snapd() -> Result<PathBuf> {
    snapd::part().ensure(&cache_folder()?)
}

/// The program versitygw, a server that speaks S3; made when it is first asked for.
pub fn object_store() -> Result<PathBuf> {
    let (folder, part) = (cache_folder()?, programs::object_store());
    if !part.is_present(&folder) {
        check_build_tools()?;
    }
    Ok(part.ensure(&folder)?.join("versitygw"))
}

fn check_build_tools() -> Result<()> {
    let missing = missing_packages();
    if !missing.is_empty() {
        bail!("Debian packages are missing; run: apt-get install -y {}", missing.join(" "));
    }
    if !crate::support::has_program("go") {
        bail!("the Go toolchain is missing (1.26 or later; the one of Debian 12 is too old): see go.dev/doc/install");
    }
    Ok(())
}
