//! What nodestrap knows about the versions of what it configures: facts as tables.

mod containerd;
mod kubelet_1_36;
mod schema;

pub(crate) use containerd::CONTAINERD_V3;
pub(crate) use schema::{Field, Flag, Schema};

use crate::values::{Invalid, KubeVersion};

/// What nodestrap configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    Kubelet,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    KubeProxy,
    Etcd,
    Containerd,
}

impl Component {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::KubeProxy => "kube-proxy",
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
        }
    }

    pub(crate) fn flags(self) -> &'static [Flag] {
        &[]
    }

    pub(crate) fn config(self) -> Option<&'static [Field]> {
        match self {
            Self::Kubelet => Some(kubelet_1_36::CONFIGURATION),
            Self::Containerd => Some(CONTAINERD_V3),
            _ => None,
        }
    }
}

/// A minor release of Kubernetes.
pub(crate) struct Release {
    pub(crate) newest: KubeVersion,
    /// `KubeletConfiguration` v1beta1.
    pub(crate) kubelet_config: &'static [Field],
    /// Flags that say what the configuration file cannot.
    pub(crate) kubelet_flags: &'static [&'static str],
    /// Flags whose configuration field has another name, with that field.
    pub(crate) kubelet_flag_fields: &'static [(&'static str, &'static str)],
    pub(crate) sandbox_image: &'static str,
    /// The tag of the image of etcd.
    pub(crate) etcd_version: &'static str,
}

/// Ascending.
static RELEASES: &[Release] = &[Release {
    newest: KubeVersion { major: 1, minor: 36, patch: 3 },
    kubelet_config: kubelet_1_36::CONFIGURATION,
    kubelet_flags: kubelet_1_36::FLAGS,
    kubelet_flag_fields: kubelet_1_36::FLAG_FIELDS,
    sandbox_image: "registry.k8s.io/pause:3.10.2",
    etcd_version: "3.6.8-0",
}];

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

/// The releases that the layout tectonic is for: the kubelet in its wrapper, with docker.
pub(crate) fn check_tectonic(version: KubeVersion) -> Result<(), Invalid> {
    const OLDEST: u32 = 7;
    const NEWEST: u32 = 11;
    if version.major == 1 && (OLDEST..=NEWEST).contains(&version.minor) {
        return Ok(());
    }
    Err(Invalid::new(format!("the layout tectonic is for Kubernetes 1.{OLDEST} to 1.{NEWEST}, not {version}"))
        .advise("for newer releases leave out the layout"))
}
