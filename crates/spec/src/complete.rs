//! Every decision made: the complete specification, each value with its origin.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::origin::Setting;
use crate::values::{
    ApiServerUrl, BootstrapToken, CertificatePem, ClusterName, DomainName, GroupName, KubeVersion, PodNetwork, Role,
    RuntimeSource, Taint,
};

/// No `Option` is left to be defaulted; `groups` are sorted by name.
#[derive(Clone, PartialEq)]
pub struct CompleteSpec {
    pub cluster: CompleteCluster,
    pub groups: Vec<CompleteGroup>,
}

#[derive(Clone, PartialEq)]
pub struct CompleteCluster {
    pub name: Setting<ClusterName>,
    pub kubernetes_version: Setting<KubeVersion>,
    pub api_server: Setting<ApiServerUrl>,
    pub join: CompleteJoin,
    pub networking: CompleteNetworking,
}

#[derive(Clone, PartialEq)]
pub struct CompleteJoin {
    pub bootstrap_token: Setting<BootstrapToken>,
    pub certificate_authority: Setting<CertificatePem>,
}

#[derive(Clone, PartialEq)]
pub struct CompleteNetworking {
    pub pod_network: Setting<PodNetwork>,
    pub service_cidrs: Setting<Vec<IpNet>>,
    pub cluster_dns: Setting<Vec<IpAddr>>,
    pub cluster_domain: Setting<DomainName>,
}

#[derive(Clone, PartialEq)]
pub struct CompleteGroup {
    pub name: Setting<GroupName>,
    pub role: Setting<Role>,
    pub labels: Setting<BTreeMap<String, String>>,
    pub taints: Setting<Vec<Taint>>,
    pub kubelet: CompleteKubelet,
    pub container_runtime: CompleteContainerRuntime,
}

#[derive(Clone, PartialEq)]
pub struct CompleteKubelet {
    /// Absolute path of the kubelet in the image.
    pub binary: Setting<String>,
    /// The whole `KubeletConfiguration`, less `apiVersion` and `kind`.
    pub config: ConfigTree,
    /// Command-line flags (without dashes) for what the configuration file cannot say.
    pub flags: BTreeMap<String, Setting<String>>,
}

#[derive(Clone, PartialEq)]
pub struct CompleteContainerRuntime {
    pub source: Setting<RuntimeSource>,
    /// Absolute path of containerd in the image; its presence is checked before anything is changed.
    pub binary: Setting<String>,
    pub sandbox_image: Setting<String>,
    /// Folder of the CNI plug-ins in the image.
    pub cni_binaries: Setting<String>,
    /// The whole containerd configuration (version 3).
    pub config: ConfigTree,
}

/// A configuration document whose every leaf knows its origin. Lists are leaves.
pub type ConfigTree = BTreeMap<String, ConfigNode>;

#[derive(Clone, Debug, PartialEq)]
pub enum ConfigNode {
    Leaf(Setting<serde_json::Value>),
    Branch(ConfigTree),
}
