//! Everything slow that all labs share, made once into the cache folder.
//!
//! Inputs: the recipes in `crates/lab/recipes`, the versions below, the registries of Go and Debian by their defaults.
//! Outputs: one folder per part, named by the hash of what it is made from. Failures: the part, and the end of its log.

mod consumers;
mod container_linux;
mod debian_files;
mod images;
mod layer;
mod minimal;
pub(crate) mod packages;
mod part;
mod programs;
mod red_hat;
mod release;
mod root;

use std::path::PathBuf;

use anyhow::{Result, bail};

pub use consumers::Consumers;
pub(crate) use consumers::{Ignition, minor_of};
pub(crate) use container_linux::{ADDON, addon_archive, board};
pub use images::image_of_program;
pub use packages::PackageManager;
pub(crate) use packages::Repository;
pub(crate) use release::files as release_files;
pub use release::{Patch, ReleaseFile};

use crate::paths::cache_folder;
use crate::state::NodeImage;
use crate::support::missing_packages;

pub(crate) const KUBERNETES_VERSION: &str = "1.36.3";
/// An earlier patch of the same minor, for updates and back; the Go registry has not got those between.
pub(crate) const EARLIER_KUBERNETES_VERSION: &str = "1.36.1";
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

/// As Go, image registries and release archives call that of this machine.
pub(crate) const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// The name of the image that pods of the lab use as their sandbox.
pub const PAUSE_IMAGE: &str = "nodestrap.local/pause:1";
/// The name of the image that answers its host name on TCP 8080.
pub const PROBE_IMAGE: &str = "nodestrap.local/probe:1";

/// The name of the image of the service proxy.
pub const KUBE_PROXY_IMAGE: &str = "nodestrap.local/kube-proxy:1";

/// Where the parts are.
#[derive(Debug, Clone)]
pub struct Cache {
    /// kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubectl, kubeadm, kubelet.
    pub kubernetes: PathBuf,
    /// etcd, etcdctl.
    pub etcd: PathBuf,
    /// The Debian tree of a node.
    pub node_root: PathBuf,
    /// What the lab puts over it: units and images.
    pub node_base: PathBuf,
    /// What the image of a vendor brings besides: kubelet, containerd, runc, CNI plug-ins.
    pub node_image: PathBuf,
    /// The program of the probe image, for this machine.
    pub(crate) probe: PathBuf,
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
    let node_base = root::base(&runtime, &images)?.ensure(&folder)?;
    let node_image = root::image(&kubernetes, &runtime)?.ensure(&folder)?;
    Ok(Cache { kubernetes, etcd, node_root, node_base, node_image, probe: images.join("probe") })
}

/// What takes a bare machine to a node, in both patches. A lab does without until it is first asked.
pub fn prepare_releases(cache: &Cache) -> Result<()> {
    for patch in [Patch::Newest, Patch::Earlier] {
        release_files(cache, patch)?;
        extension_folder(cache, patch)?;
    }
    for manager in [PackageManager::Apt, PackageManager::Dnf] {
        package_repositories(cache, manager)?;
    }
    for image in [NodeImage::Minimal, NodeImage::RedHat, NodeImage::Flatcar, NodeImage::ContainerLinux] {
        layers(cache, image)?;
    }
    kube_proxy_image(cache).map(drop)
}

/// An archive of the image of kube-proxy; made when it is first asked for.
pub(crate) fn kube_proxy_image(cache: &Cache) -> Result<PathBuf> {
    let part = images::kube_proxy(&cache.kubernetes, &cache.node_root);
    Ok(part.ensure(&cache_folder()?)?.join(images::KUBE_PROXY_ARCHIVE))
}

/// The layers that make the root of a node of that image, the first on top; made when they are first asked for.
pub(crate) fn layers(cache: &Cache, image: NodeImage) -> Result<Vec<PathBuf>> {
    let folder = cache_folder()?;
    let minimal = || minimal::part(&cache.node_root).ensure(&folder);
    let over_debian = match image {
        NodeImage::Complete => vec![cache.node_image.clone(), cache.node_base.clone()],
        NodeImage::Bare => vec![cache.node_base.clone()],
        NodeImage::Minimal => vec![cache.node_base.clone(), layer::of(&minimal()?)],
        NodeImage::RedHat => {
            let minimal = minimal()?;
            let packages = package_repositories(cache, PackageManager::Dnf)?;
            let red_hat = red_hat::part(&cache.node_root, &minimal, &packages).ensure(&folder)?;
            vec![cache.node_base.clone(), layer::of(&red_hat), layer::of(&minimal)]
        }
        NodeImage::Flatcar => {
            let flatcar = root::flatcar(&programs::runtime().ensure(&folder)?)?.ensure(&folder)?;
            vec![flatcar, cache.node_base.clone()]
        }
        NodeImage::ContainerLinux => vec![container_linux_image(cache)?, cache.node_base.clone()],
    };
    Ok([over_debian, vec![cache.node_root.clone()]].concat())
}

fn container_linux_image(cache: &Cache) -> Result<PathBuf> {
    let folder = cache_folder()?;
    let programs = container_linux::Programs {
        newest: cache.kubernetes.clone(),
        earlier: programs::earlier_kubernetes()?.ensure(&folder)?,
        runtime: programs::runtime().ensure(&folder)?,
        generator: programs::torcx_generator()?.ensure(&folder)?,
    };
    container_linux::image(programs)?.ensure(&folder)
}

/// The folders `usr` that make the `/usr` of a Container Linux of that version, the first on top; made when they are first asked for.
pub(crate) fn usr_layers(cache: &Cache, os_version: &str) -> Result<Vec<PathBuf>> {
    let release = container_linux::release(os_version).ensure(&cache_folder()?)?;
    let layers = [vec![release], layers(cache, NodeImage::ContainerLinux)?].concat();
    Ok(layers.into_iter().map(|layer| layer.join("usr")).collect())
}

/// The archive of an addon for that version of Container Linux; made when it is first asked for.
pub(crate) fn torcx_addon(os_version: &str, reference: &str) -> Result<PathBuf> {
    let folder = cache_folder()?;
    let part = container_linux::addon(&programs::runtime().ensure(&folder)?, os_version, reference)?;
    Ok(part.ensure(&folder)?.join(addon_archive(reference)))
}

/// What an extension with Kubernetes has in it, in the folder `usr`; made when it is first asked for.
pub(crate) fn extension_folder(cache: &Cache, patch: Patch) -> Result<PathBuf> {
    let folder = cache_folder()?;
    let kubernetes = match patch {
        Patch::Newest => cache.kubernetes.clone(),
        Patch::Earlier => programs::earlier_kubernetes()?.ensure(&folder)?,
    };
    release::extension(&kubernetes, &programs::runtime().ensure(&folder)?).ensure(&folder)
}

/// Signed, with the key that speaks for them; made when they are first asked for.
pub(crate) fn package_repositories(cache: &Cache, manager: PackageManager) -> Result<PathBuf> {
    let folder = cache_folder()?;
    let programs = packages::Programs {
        newest: cache.kubernetes.clone(),
        earlier: programs::earlier_kubernetes()?.ensure(&folder)?,
        runtime: programs::runtime().ensure(&folder)?,
    };
    let minimal = minimal::part(&cache.node_root).ensure(&folder)?;
    let part = match manager {
        PackageManager::Apt => packages::apt(programs, &minimal)?,
        PackageManager::Dnf => packages::dnf(programs, &cache.node_root, &minimal)?,
    };
    if !part.is_present(&folder) {
        check_build_tools()?;
    }
    part.ensure(&folder)
}

/// snapd from Debian, in the folder `root`; made when it is first asked for.
pub(crate) fn snapd() -> Result<PathBuf> {
    debian_files::snapd().ensure(&cache_folder()?)
}

/// sshd, ssh and scp from Debian, in the folder `root`; made when it is first asked for.
pub fn sshd() -> Result<PathBuf> {
    debian_files::sshd().ensure(&cache_folder()?)
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
