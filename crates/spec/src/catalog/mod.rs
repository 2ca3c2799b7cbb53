//! What nodestrap knows about the versions of what it configures: facts as tables.
//!
//! The tables of flags and fields are generated; see tools/catalog.

mod component;
mod containerd;
#[cfg(test)]
mod drift;
mod etcd;
mod kube_apiserver;
mod kube_controller_manager;
mod kube_proxy;
mod kube_scheduler;
mod kubelet;
mod kubelet_of_tectonic;
mod schema;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use component::{Component, Target};
pub(crate) use schema::{Field, Flag, FlagKind, Schema};
pub(crate) use values::{Form, changed_builtin, flag_schema};

use crate::values::{Invalid, KubeVersion};

/// A minor release of Kubernetes, and what kubeadm of that release takes with it.
pub(crate) struct Release {
    /// The newest patch that was published when this table was made.
    pub(crate) newest: KubeVersion,
    pub(crate) sandbox_image: &'static str,
    /// The tag of its image: version of etcd, dash, revision of the image.
    pub(crate) etcd_version: &'static str,
    pub(crate) programs: Programs,
    /// The kubelet's tables.
    kubelet: Component,
}

/// Versions of what a node runs besides Kubernetes itself, if nodestrap brings it.
#[derive(Clone, Copy)]
pub(crate) struct Programs {
    /// One that its makers support with this release of Kubernetes, and that reads version 3 of its configuration.
    pub(crate) containerd: &'static str,
    /// Of the line that this containerd is tested with.
    pub(crate) runc: &'static str,
    pub(crate) cni_plugins: &'static str,
    /// It has the minor releases of Kubernetes.
    pub(crate) crictl: &'static str,
}

const fn programs(
    containerd: &'static str,
    runc: &'static str,
    cni_plugins: &'static str,
    crictl: &'static str,
) -> Programs {
    Programs { containerd, runc, cni_plugins, crictl }
}

const fn release(
    minor: u32,
    patch: u32,
    sandbox_image: &'static str,
    etcd_version: &'static str,
    programs: Programs,
) -> Release {
    let newest = KubeVersion { major: 1, minor, patch };
    Release { newest, sandbox_image, etcd_version, programs, kubelet: Component::Kubelet }
}

const fn release_of_tectonic(minor: u32, patch: u32) -> Release {
    // Its nodes have docker, and get no programs from nodestrap.
    let none = programs("", "", "", "");
    let release = release(minor, patch, "gcr.io/google_containers/pause-amd64:3.1", "3.1.12", none);
    Release { kubelet: Component::KubeletOfTectonic, ..release }
}

/// The releases of Tectonic's own time: the kubelet in its wrapper, with docker. Ascending.
static RELEASES_OF_TECTONIC: &[Release] =
    &[release_of_tectonic(8, 15), release_of_tectonic(9, 6), release_of_tectonic(10, 13), release_of_tectonic(11, 10)];

/// Ascending.
static RELEASES: &[Release] = &[
    release(30, 14, "registry.k8s.io/pause:3.9", "3.5.15-0", programs("2.1.9", "1.3.6", "1.7.1", "1.30.0")),
    release(31, 14, "registry.k8s.io/pause:3.10", "3.5.24-0", programs("2.1.9", "1.3.6", "1.7.1", "1.31.0")),
    release(32, 13, "registry.k8s.io/pause:3.10", "3.5.24-0", programs("2.1.9", "1.3.6", "1.7.1", "1.32.0")),
    release(33, 13, "registry.k8s.io/pause:3.10", "3.5.24-0", programs("2.1.9", "1.3.6", "1.7.1", "1.33.0")),
    release(34, 4, "registry.k8s.io/pause:3.10.1", "3.6.5-0", programs("2.1.9", "1.3.6", "1.7.1", "1.34.0")),
    release(35, 4, "registry.k8s.io/pause:3.10.1", "3.6.6-0", programs("2.2.9", "1.3.6", "1.9.1", "1.35.0")),
    release(36, 3, "registry.k8s.io/pause:3.10.2", "3.6.8-0", programs("2.4.2", "1.5.2", "1.9.1", "1.36.0")),
];

/// What is used if the spec names no version, or none that is known.
pub(crate) fn newest_release() -> &'static Release {
    const { assert!(!RELEASES.is_empty()) };
    &RELEASES[RELEASES.len() - 1]
}

/// The newest release of Kubernetes that this nodestrap knows.
pub fn newest_kubernetes() -> KubeVersion {
    newest_release().newest
}

pub(crate) fn find_release(version: KubeVersion) -> Result<&'static Release, Invalid> {
    find_among(RELEASES, version).ok_or_else(|| {
        let known: Vec<String> =
            RELEASES.iter().map(|known| format!("{}.{}", known.newest.major, known.newest.minor)).collect();
        Invalid::new(format!("Kubernetes {}.{} is not known to this nodestrap", version.major, version.minor))
            .advise(format!("it knows {}; the newest is {}", known.join(", "), newest_kubernetes()))
    })
}

fn find_among(releases: &'static [Release], version: KubeVersion) -> Option<&'static Release> {
    releases.iter().find(|release| (release.newest.major, release.newest.minor) == (version.major, version.minor))
}

pub(crate) fn find_release_of_tectonic(version: KubeVersion) -> Result<&'static Release, Invalid> {
    find_among(RELEASES_OF_TECTONIC, version).or_else(|| find_among(RELEASES, version)).ok_or_else(|| {
        let minor = |release: &Release| release.newest.minor;
        let [first, last] = [RELEASES.first(), RELEASES.last()].map(|release| release.map(minor).unwrap_or_default());
        Invalid::new(format!(
            "the layout tectonic is for Kubernetes 1.8 to 1.11 and 1.{first} to 1.{last}, not {version}"
        ))
        .advise(format!("the newest that it knows is {}", newest_kubernetes()))
    })
}

/// What the layout tectonic uses if the spec names no version.
pub(crate) fn release_of_tectonic_seeds() -> &'static Release {
    &RELEASES_OF_TECTONIC[1]
}

impl Release {
    pub(crate) fn target(&self, component: Component) -> Target {
        let minor = match component {
            Component::Etcd => self.etcd_minor(),
            // It comes with the image of the machine.
            Component::Containerd | Component::ContainerdOne => None,
            _ => Some(self.newest.minor),
        };
        let component = if component == Component::Kubelet { self.kubelet } else { component };
        Target { component, minor }
    }

    /// Of etcd 3.
    fn etcd_minor(&self) -> Option<u32> {
        self.etcd_version.split('.').nth(1).and_then(|minor| minor.parse().ok())
    }
}
