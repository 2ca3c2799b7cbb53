//! What nodestrap knows about the versions of what it configures: facts as tables.
//!
//! The tables of flags and fields are generated; see tools/catalog.

// Tables come before what uses them: the control plane is being built on them.
#![allow(dead_code, unused_imports)]

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
mod schema;
#[cfg(test)]
mod tests;

pub(crate) use component::{Component, Target};
pub(crate) use containerd::{CONTAINERD_V2, CONTAINERD_V3};
pub(crate) use schema::{Availability, Field, Flag, FlagKind, Schema};

use crate::values::{Invalid, KubeVersion};

/// A minor release of Kubernetes, and what kubeadm of that release takes with it.
pub(crate) struct Release {
    /// The newest patch that was published when this table was made.
    pub(crate) newest: KubeVersion,
    pub(crate) sandbox_image: &'static str,
    /// The tag of its image: version of etcd, dash, revision of the image.
    pub(crate) etcd_version: &'static str,
}

const fn release(minor: u32, patch: u32, sandbox_image: &'static str, etcd_version: &'static str) -> Release {
    Release { newest: KubeVersion { major: 1, minor, patch }, sandbox_image, etcd_version }
}

/// Ascending.
static RELEASES: &[Release] = &[
    release(30, 14, "registry.k8s.io/pause:3.9", "3.5.15-0"),
    release(31, 14, "registry.k8s.io/pause:3.10", "3.5.24-0"),
    release(32, 13, "registry.k8s.io/pause:3.10", "3.5.24-0"),
    release(33, 13, "registry.k8s.io/pause:3.10", "3.5.24-0"),
    release(34, 4, "registry.k8s.io/pause:3.10.1", "3.6.5-0"),
    release(35, 4, "registry.k8s.io/pause:3.10.1", "3.6.6-0"),
    release(36, 3, "registry.k8s.io/pause:3.10.2", "3.6.8-0"),
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
    RELEASES
        .iter()
        .find(|release| (release.newest.major, release.newest.minor) == (version.major, version.minor))
        .ok_or_else(|| {
            let known: Vec<String> =
                RELEASES.iter().map(|known| format!("{}.{}", known.newest.major, known.newest.minor)).collect();
            Invalid::new(format!("Kubernetes {}.{} is not known to this nodestrap", version.major, version.minor))
                .advise(format!("it knows {}; the newest is {}", known.join(", "), newest_kubernetes()))
        })
}

impl Release {
    pub(crate) fn target(&self, component: Component) -> Target {
        let minor = match component {
            Component::Etcd => self.etcd_minor(),
            // It comes with the image of the machine.
            Component::Containerd => None,
            _ => Some(self.newest.minor),
        };
        Target { component, minor }
    }

    /// Of etcd 3.
    fn etcd_minor(&self) -> Option<u32> {
        self.etcd_version.split('.').nth(1).and_then(|minor| minor.parse().ok())
    }
}
