//! The components that run as static pods: their images, flags and configuration.
//!
//! `$(HOST_IP)` and `$(NODE_NAME)` are variables of the pods: what only the node knows is filled in by its kubelet.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Check, agreement, default, derived, from, or_default, ours, overlay, release};
use crate::catalog::Component;
use crate::complete::{
    ClusterSpec, CompleteEtcd, CompleteKubeApiserver, CompleteKubeControllerManager, CompleteKubeProxy,
    CompleteKubeScheduler, CompleteNetworking,
};
use crate::config;
use crate::config_tree::ConfigTree;
use crate::origin::Setting;
use crate::texts::{Image, Name, Registry};
use crate::values::{ApiServerUrl, ClusterName, DomainName, KubeVersion, PodNetwork};

pub(super) struct Inputs<'a> {
    pub(super) spec: &'a ClusterSpec,
    pub(super) cluster_name: &'a Setting<ClusterName>,
    pub(super) version: &'a Setting<KubeVersion>,
    pub(super) networking: &'a CompleteNetworking,
    pub(super) registry: &'a Setting<Registry>,
    pub(super) api_server: &'a Setting<ApiServerUrl>,
}

type FlagMap = BTreeMap<String, Setting<String>>;

fn image(given: &Option<Setting<Image>>, inputs: &Inputs<'_>, name: &str, tag: &str) -> Setting<Image> {
    given.clone().unwrap_or_else(|| {
        derived(
            ours(&format!("{}/{name}:{tag}", inputs.registry.value)),
            vec!["cluster.kubernetesVersion".to_owned(), "cluster.assets.containerRegistry".to_owned()],
            "the image of this release",
        )
    })
}

fn component_image(given: &Option<Setting<Image>>, inputs: &Inputs<'_>, name: &str) -> Setting<Image> {
    image(given, inputs, name, &format!("v{}", inputs.version.value))
}

fn joined<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn defaults(list: &[(&str, &str, &'static str)]) -> FlagMap {
    list.iter().map(|(name, value, reason)| ((*name).to_owned(), default((*value).to_owned(), reason))).collect()
}

fn set(flags: &mut FlagMap, name: &str, setting: Setting<String>) {
    flags.insert(name.to_owned(), setting);
}

/// The user's flags win; of ours only those that the release knows are there.
fn laid_over(mut flags: FlagMap, user: &FlagMap, inputs: &Inputs<'_>, component: Component) -> FlagMap {
    let target = release(inputs.version.value).target(component);
    flags.retain(|name, _| component.flags().iter().any(|flag| flag.name == name && target.has(flag.available)));
    flags.extend(user.iter().map(|(name, setting)| (name.clone(), setting.clone())));
    flags
}

/// A file of the user's at another place would take that of nodestrap's, and all that the spec says in it, away.
fn check_config_flag(ours: &FlagMap, user: &FlagMap, component: Component, check: &Check<'_>) {
    if let (Some(ours), Some(user)) = (ours.get("config"), user.get("config"))
        && ours.value != user.value
    {
        check.report(
            Some(&user.origin),
            "nodestrap sets the flag --config itself",
            format!("write the configuration as {}.config", component.place()),
        );
    }
}

/// How addresses are written in URLs: a node's own is of the family that services have first.
struct Family {
    loopback: &'static str,
    any: &'static str,
    host: &'static str,
}

impl Family {
    fn of(inputs: &Inputs<'_>) -> Self {
        match inputs.networking.service_cidrs.value.0.first() {
            Some(network) if network.addr().is_ipv6() => Self { loopback: "[::1]", any: "[::]", host: "[$(HOST_IP)]" },
            _ => Self { loopback: "127.0.0.1", any: "0.0.0.0", host: "$(HOST_IP)" },
        }
    }

    fn setting(&self, value: String, rule: &'static str) -> Setting<String> {
        derived(value, from("cluster.networking.serviceCIDRs"), rule)
    }
}

fn service_networks(inputs: &Inputs<'_>) -> Setting<String> {
    derived(
        joined(&inputs.networking.service_cidrs.value.0),
        from("cluster.networking.serviceCIDRs"),
        "services get their addresses from these networks",
    )
}

fn pod_networks(inputs: &Inputs<'_>) -> Setting<String> {
    derived(
        joined(&inputs.networking.pod_cidrs.value.0),
        from("cluster.networking.podCIDRs"),
        "each node gets a range of these networks for its pods",
    )
}

fn check_service_networks(inputs: &Inputs<'_>, user: &FlagMap, check: &Check<'_>) {
    let services = &inputs.networking.service_cidrs.value.0;
    agreement::check_networks(user, "service-cluster-ip-range", "serviceCIDRs", services, check);
}

/// Flags of the API server that depend on nothing, each with its reason.
const APISERVER: &[(&str, &str, &str)] = &[
    ("advertise-address", "$(HOST_IP)", "the address of the node, as its kubelet knows it"),
    ("allow-privileged", "true", "networks and storage run as privileged pods"),
    ("authorization-mode", "Node,RBAC", "kubelets may touch their own objects only; everybody else by role"),
    ("client-ca-file", "/etc/kubernetes/pki/ca.crt", "clients show certificates of the cluster's own authority"),
    ("enable-admission-plugins", "NodeRestriction", "kubelets may change their own node and pods only"),
    ("enable-bootstrap-token-auth", "true", "nodes join with tokens"),
    ("etcd-cafile", "/etc/kubernetes/pki/etcd/ca.crt", "etcd has an authority of its own"),
    ("etcd-certfile", "/etc/kubernetes/pki/apiserver-etcd-client.crt", "etcd believes this client only"),
    ("etcd-keyfile", "/etc/kubernetes/pki/apiserver-etcd-client.key", "etcd believes this client only"),
    ("kubelet-client-certificate", "/etc/kubernetes/pki/apiserver-kubelet-client.crt", "kubelets believe this client"),
    ("kubelet-client-key", "/etc/kubernetes/pki/apiserver-kubelet-client.key", "kubelets believe this client"),
    (
        "kubelet-preferred-address-types",
        "InternalIP,ExternalIP,Hostname",
        "addresses work where names of nodes are not in DNS",
    ),
    ("proxy-client-cert-file", "/etc/kubernetes/pki/front-proxy-client.crt", "extension servers believe this client"),
    ("proxy-client-key-file", "/etc/kubernetes/pki/front-proxy-client.key", "extension servers believe this client"),
    ("requestheader-allowed-names", "front-proxy-client", "nobody else may say who a request is from"),
    (
        "requestheader-client-ca-file",
        "/etc/kubernetes/pki/front-proxy-ca.crt",
        "an authority of its own, so that no other certificate passes",
    ),
    ("requestheader-extra-headers-prefix", "X-Remote-Extra-", "the names that Kubernetes' own servers use"),
    ("requestheader-group-headers", "X-Remote-Group", "the names that Kubernetes' own servers use"),
    ("requestheader-username-headers", "X-Remote-User", "the names that Kubernetes' own servers use"),
    ("service-account-key-file", "/etc/kubernetes/pki/sa.pub", "checks the tokens of service accounts"),
    ("service-account-signing-key-file", "/etc/kubernetes/pki/sa.key", "signs the tokens of service accounts"),
    ("tls-cert-file", "/etc/kubernetes/pki/apiserver.crt", "its own certificate"),
    ("tls-private-key-file", "/etc/kubernetes/pki/apiserver.key", "its own key"),
];

pub(super) fn complete_apiserver(inputs: &Inputs<'_>, check: &Check<'_>) -> CompleteKubeApiserver {
    let spec = &inputs.spec.kube_apiserver;
    let mut flags = defaults(APISERVER);
    let family = Family::of(inputs);
    set(
        &mut flags,
        "etcd-servers",
        family.setting(
            format!("https://{}:2379", family.loopback),
            "each API server talks to the member on its own node",
        ),
    );
    let port = inputs.api_server.value.port();
    set(
        &mut flags,
        "secure-port",
        derived(port.to_string(), from("cluster.apiServer"), "nodes reach the API server at this port"),
    );
    set(
        &mut flags,
        "service-account-issuer",
        derived(
            format!("https://kubernetes.default.svc.{}", inputs.networking.cluster_domain.value),
            from("cluster.networking.clusterDomain"),
            "the name under which pods reach the API server",
        ),
    );
    set(&mut flags, "service-cluster-ip-range", service_networks(inputs));
    check_service_networks(inputs, &spec.flags, check);
    CompleteKubeApiserver {
        image: component_image(&spec.image, inputs, "kube-apiserver"),
        internal_name: spec.internal_name.clone(),
        external_name: spec.external_name.clone(),
        flags: laid_over(flags, &spec.flags, inputs, Component::KubeApiserver),
    }
}

const CONTROLLER_MANAGER_KUBECONFIG: &str = "/etc/kubernetes/controller-manager.conf";

/// Flags of the controller manager that depend on nothing.
const CONTROLLER_MANAGER: &[(&str, &str, &str)] = &[
    ("allocate-node-cidrs", "true", "each node gets a range for its pods"),
    ("authentication-kubeconfig", CONTROLLER_MANAGER_KUBECONFIG, "who asks for metrics is checked by the API server"),
    ("authorization-kubeconfig", CONTROLLER_MANAGER_KUBECONFIG, "who asks for metrics is checked by the API server"),
    ("bind-address", "127.0.0.1", "nobody outside needs it"),
    ("client-ca-file", "/etc/kubernetes/pki/ca.crt", "clients show certificates of the cluster's own authority"),
    ("cluster-signing-cert-file", "/etc/kubernetes/pki/ca.crt", "signs the certificates of kubelets"),
    ("cluster-signing-key-file", "/etc/kubernetes/pki/ca.key", "signs the certificates of kubelets"),
    ("controllers", "*,bootstrapsigner,tokencleaner", "nodes join with tokens, which need these two besides"),
    ("kubeconfig", CONTROLLER_MANAGER_KUBECONFIG, "its own identity"),
    ("leader-elect", "true", "of several one is at work"),
    (
        "requestheader-client-ca-file",
        "/etc/kubernetes/pki/front-proxy-ca.crt",
        "an authority of its own, so that no other certificate passes",
    ),
    ("root-ca-file", "/etc/kubernetes/pki/ca.crt", "pods get it, to know the API server"),
    ("service-account-private-key-file", "/etc/kubernetes/pki/sa.key", "signs the tokens of service accounts"),
    ("use-service-account-credentials", "true", "each controller has only the rights that it needs"),
];

pub(super) fn complete_controller_manager(inputs: &Inputs<'_>, check: &Check<'_>) -> CompleteKubeControllerManager {
    let spec = &inputs.spec.kube_controller_manager;
    let mut flags = defaults(CONTROLLER_MANAGER);
    set(&mut flags, "cluster-cidr", pod_networks(inputs));
    set(
        &mut flags,
        "cluster-name",
        derived(inputs.cluster_name.value.to_string(), from("cluster.name"), "names what it makes at the provider"),
    );
    set(&mut flags, "service-cluster-ip-range", service_networks(inputs));
    check_service_networks(inputs, &spec.flags, check);
    let pods = &inputs.networking.pod_cidrs.value.0;
    agreement::check_networks(&spec.flags, "cluster-cidr", "podCIDRs", pods, check);
    if let Some(allocate) = spec.flags.get("allocate-node-cidrs")
        && allocate.value == "false"
        && inputs.networking.pod_network.value == PodNetwork::Bridge
    {
        check.report(
            Some(&allocate.origin),
            "nodes get no range for their pods, and networking.podNetwork is bridge, which needs one",
            "remove this flag, or write networking.podNetwork: none",
        );
    }
    CompleteKubeControllerManager {
        image: component_image(&spec.image, inputs, "kube-controller-manager"),
        flags: laid_over(flags, &spec.flags, inputs, Component::KubeControllerManager),
    }
}

pub(super) fn complete_scheduler(inputs: &Inputs<'_>, check: &Check<'_>) -> CompleteKubeScheduler {
    const KUBECONFIG: &str = "/etc/kubernetes/scheduler.conf";
    let spec = &inputs.spec.kube_scheduler;
    let flags = defaults(&[
        ("authentication-kubeconfig", KUBECONFIG, "who asks for metrics is checked by the API server"),
        ("authorization-kubeconfig", KUBECONFIG, "who asks for metrics is checked by the API server"),
        ("bind-address", "127.0.0.1", "nobody outside needs it"),
        ("config", "/etc/kubernetes/scheduler.yaml", "nodestrap writes kubeScheduler.config to this file"),
    ]);
    check_config_flag(&flags, &spec.flags, Component::KubeScheduler, check);
    let mut tree = ConfigTree::new();
    config::insert(&mut tree, &["clientConnection", "kubeconfig"], default(json!(KUBECONFIG), "its own identity"));
    config::insert(&mut tree, &["leaderElection", "leaderElect"], default(json!(true), "of several one is at work"));
    CompleteKubeScheduler {
        image: component_image(&spec.image, inputs, "kube-scheduler"),
        config: overlay(tree, &spec.config, check),
        flags: laid_over(flags, &spec.flags, inputs, Component::KubeScheduler),
    }
}

/// Flags of etcd that depend on nothing.
const ETCD: &[(&str, &str, &str)] = &[
    ("cert-file", "/etc/kubernetes/pki/etcd/server.crt", "its own certificate"),
    ("client-cert-auth", "true", "only clients with a certificate of etcd's authority"),
    ("key-file", "/etc/kubernetes/pki/etcd/server.key", "its own key"),
    ("name", "$(NODE_NAME)", "members are called as their nodes are"),
    ("peer-cert-file", "/etc/kubernetes/pki/etcd/peer.crt", "its own certificate towards other members"),
    ("peer-client-cert-auth", "true", "only members with a certificate of etcd's authority"),
    ("peer-key-file", "/etc/kubernetes/pki/etcd/peer.key", "its own key towards other members"),
    ("peer-trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt", "etcd has an authority of its own"),
    ("snapshot-count", "10000", "what kubeadm sets: bounded memory, quick restarts"),
    ("trusted-ca-file", "/etc/kubernetes/pki/etcd/ca.crt", "etcd has an authority of its own"),
];

pub(super) fn complete_etcd(inputs: &Inputs<'_>, check: &Check<'_>) -> CompleteEtcd {
    let spec = &inputs.spec.etcd;
    let data_folder =
        or_default(&spec.data_folder, || ours("/var/lib/etcd"), "where other tools look for the data of etcd");
    let members: Setting<Vec<Name>> =
        or_default(&spec.members, Vec::new, "each node of the control plane is a cluster of its own");
    let domain: Setting<DomainName> = spec.domain.clone().unwrap_or_else(|| {
        derived(
            ours(&format!("internal.{}", inputs.cluster_name.value)),
            from("cluster.name"),
            "names that are used inside the cluster's network only",
        )
    });
    let mut flags = defaults(ETCD);
    let family = Family::of(inputs);
    for (name, value, rule) in [
        (
            "advertise-client-urls",
            format!("https://{}:2379", family.host),
            "the address of the node, as its kubelet knows it",
        ),
        ("listen-client-urls", format!("https://{}:2379", family.any), "on every address of the node"),
        (
            "listen-metrics-urls",
            format!("http://{}:2381", family.loopback),
            "probes need no certificate; nobody outside can ask",
        ),
        ("listen-peer-urls", format!("https://{}:2380", family.any), "on every address of the node"),
    ] {
        set(&mut flags, name, family.setting(value, rule));
    }
    set(
        &mut flags,
        "data-dir",
        derived(data_folder.value.to_string(), from("cluster.etcd.dataFolder"), "where the data lies"),
    );
    set(
        &mut flags,
        "initial-cluster-token",
        derived(inputs.cluster_name.value.to_string(), from("cluster.name"), "members of two clusters never mix"),
    );
    add_membership(&mut flags, &members.value, &domain.value, &family);
    agreement::check_etcd(&members, &spec.flags, check);
    CompleteEtcd {
        image: image(&spec.image, inputs, "etcd", release(inputs.version.value).etcd_version),
        members,
        domain,
        data_folder,
        flags: laid_over(flags, &spec.flags, inputs, Component::Etcd),
    }
}

/// A fixed set of names, or a cluster of one.
fn add_membership(flags: &mut FlagMap, members: &[Name], domain: &DomainName, family: &Family) {
    let (peer, cluster) = match members {
        [] => (format!("https://{}:2380", family.host), format!("$(NODE_NAME)=https://{}:2380", family.host)),
        members => {
            let member = |name: &str| format!("https://{name}.{}:2380", domain);
            let all: Vec<String> = members.iter().map(|name| format!("{name}={}", member(name.as_str()))).collect();
            (member("$(NODE_NAME)"), all.join(","))
        }
    };
    let membership = vec!["cluster.etcd.members".to_owned(), "cluster.etcd.domain".to_owned()];
    set(
        flags,
        "initial-advertise-peer-urls",
        derived(peer, membership.clone(), "a name that stays when the address of a node changes"),
    );
    set(
        flags,
        "initial-cluster",
        derived(cluster, membership, "a fixed set of names, so that nobody has to manage membership"),
    );
}

pub(super) fn complete_proxy(inputs: &Inputs<'_>, check: &Check<'_>) -> CompleteKubeProxy {
    let spec = &inputs.spec.kube_proxy;
    let mut tree = ConfigTree::new();
    let mut put = |path: &[&str], setting: Setting<Value>| config::insert(&mut tree, path, setting);
    put(
        &["clientConnection", "kubeconfig"],
        default(json!("/etc/kubernetes/kube-proxy.kubeconfig"), "nodestrap writes kubeProxy.kubeconfig to this file"),
    );
    let pods = pod_networks(inputs);
    put(&["clusterCIDR"], Setting { value: json!(pods.value), origin: pods.origin });
    put(&["mode"], default(json!("iptables"), "works with every kernel that Kubernetes supports"));
    let mut flags =
        defaults(&[("config", "/etc/kubernetes/kube-proxy.yaml", "nodestrap writes kubeProxy.config to this file")]);
    set(
        &mut flags,
        "hostname-override",
        default("$(NODE_NAME)".to_owned(), "it must know its own node as the kubelet does"),
    );
    check_config_flag(&flags, &spec.flags, Component::KubeProxy, check);
    let config = overlay(tree, &spec.config, check);
    agreement::check_proxy(&config, release(inputs.version.value).target(Component::KubeProxy), check);
    CompleteKubeProxy {
        image: component_image(&spec.image, inputs, "kube-proxy"),
        kubeconfig: spec.kubeconfig.clone(),
        config,
        flags: laid_over(flags, &spec.flags, inputs, Component::KubeProxy),
    }
}
