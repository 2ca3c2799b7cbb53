//! What nodestrap configures, and the tables of each.

use super::schema::{Availability, Field, Flag};
use super::{
    containerd, etcd, kube_apiserver, kube_controller_manager, kube_proxy, kube_scheduler, kubelet, kubelet_of_tectonic,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    Kubelet,
    /// In its wrapper, with flags only.
    KubeletOfTectonic,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    KubeProxy,
    Etcd,
    /// Version 2, with version 3 of its configuration.
    Containerd,
    /// Version 1, with version 2 of its configuration.
    ContainerdOne,
}

impl Component {
    #[cfg(test)]
    pub(crate) const ALL: &[Self] = &[
        Self::Kubelet,
        Self::KubeletOfTectonic,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::KubeProxy,
        Self::Etcd,
        Self::Containerd,
        Self::ContainerdOne,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kubelet | Self::KubeletOfTectonic => "kubelet",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::KubeProxy => "kube-proxy",
            Self::Etcd => "etcd",
            Self::Containerd | Self::ContainerdOne => "containerd",
        }
    }

    /// The name as the subject of a sentence.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Kubelet | Self::KubeletOfTectonic => "the kubelet",
            _ => self.name(),
        }
    }

    /// Where a spec has its settings.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Kubelet | Self::KubeletOfTectonic => "kubelet",
            Self::KubeApiserver => "kubeApiserver",
            Self::KubeControllerManager => "kubeControllerManager",
            Self::KubeScheduler => "kubeScheduler",
            Self::KubeProxy => "kubeProxy",
            Self::Etcd => "etcd",
            Self::Containerd | Self::ContainerdOne => "containerRuntime",
        }
    }

    /// What its minor versions are counted in.
    fn product(self) -> &'static str {
        match self {
            Self::Etcd => "etcd 3.",
            Self::Containerd => "containerd 2.",
            _ => "Kubernetes 1.",
        }
    }

    /// Sorted by name; of programs with a configuration file those that it cannot say.
    pub(crate) fn flags(self) -> &'static [Flag] {
        match self {
            Self::Kubelet => kubelet::FLAGS,
            Self::KubeletOfTectonic => kubelet_of_tectonic::FLAGS,
            Self::KubeApiserver => kube_apiserver::FLAGS,
            Self::KubeControllerManager => kube_controller_manager::FLAGS,
            Self::KubeScheduler => kube_scheduler::FLAGS,
            Self::KubeProxy => kube_proxy::FLAGS,
            Self::Etcd => etcd::FLAGS,
            Self::Containerd | Self::ContainerdOne => &[],
        }
    }

    /// The fields of its configuration file, sorted by name; `None` if flags are all that it has.
    pub(crate) fn config(self) -> Option<&'static [Field]> {
        match self {
            Self::Kubelet => Some(kubelet::CONFIGURATION),
            Self::KubeScheduler => Some(kube_scheduler::CONFIGURATION),
            Self::KubeProxy => Some(kube_proxy::CONFIGURATION),
            Self::Containerd => Some(containerd::CONTAINERD_V3),
            Self::ContainerdOne => Some(containerd::CONTAINERD_V2),
            Self::KubeletOfTectonic | Self::KubeApiserver | Self::KubeControllerManager | Self::Etcd => None,
        }
    }

    /// Flags that belong into the configuration, with the path of their field, sorted. Of the kubelet those whose field
    /// is named alike are not among them.
    pub(crate) fn flag_fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Kubelet => kubelet::FLAG_FIELDS,
            Self::KubeProxy => kube_proxy::FLAG_FIELDS,
            Self::KubeScheduler => kube_scheduler::FLAG_FIELDS,
            _ => &[],
        }
    }
}

/// A component in the version that a cluster runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) component: Component,
    /// Of Kubernetes 1, etcd 3 or containerd 2. `None` if nobody knows: then all of the table is taken as there.
    pub(crate) minor: Option<u32>,
}

impl Target {
    pub(crate) fn has(self, available: Availability) -> bool {
        self.minor.is_none_or(|minor| available.contains(minor))
    }

    /// Whether the configuration has this field at its top.
    pub(crate) fn has_field(self, name: &str) -> bool {
        let fields = self.component.config().unwrap_or_default();
        fields.iter().any(|field| field.name == name && self.has(field.available))
    }

    /// Why this version lacks something, as the end of "it has no such field …", and what to do about it.
    pub(crate) fn unavailable(self, available: Availability) -> Option<(String, String)> {
        let (product, minor) = (self.component.product(), self.minor?);
        let runs = format!("this cluster runs {product}{minor}");
        if minor < available.since {
            let raise = match self.component {
                Component::Etcd => "use a newer etcd",
                Component::Containerd => "use a newer containerd",
                _ => "raise kubernetesVersion",
            };
            Some((format!("before {product}{}; {runs}", available.since), format!("{raise}, or remove it")))
        } else if minor >= available.until {
            Some((format!("since {product}{}; {runs}", available.until), "remove it".to_owned()))
        } else {
            None
        }
    }
}
