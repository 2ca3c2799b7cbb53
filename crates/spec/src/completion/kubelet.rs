//! The kubelet's configuration and flags.
//!
//! A field is set here only where nodestrap decides differently from the kubelet's own default, or where being explicit
//! matters to a reader or an auditor. The user may override every one of them but `registerWithTaints`, which would
//! contradict the group's `taints`; that includes unsafe choices such as anonymous access, which are theirs to make.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::os::Traits;
use super::{Check, agreement, containerd, default, derived, from, overlay};
use crate::catalog::Target;
use crate::complete::{CompleteCluster, GroupSpec};
use crate::config;
use crate::config_tree::ConfigTree;
use crate::expression::Variables;
use crate::flags::OWNED;
use crate::instances::{self, AddressMode, InstanceType};
use crate::items::{Labels, MaxPods, Taints};
use crate::origin::{Origin, Setting};
use crate::record::SpecValue;
use crate::values::{Layout, Os, Reservation, Role, Runtime};
use crate::view::{Look, SecretDisplay};

const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap-kubelet.kubeconfig";
const EXEC_KUBECONFIG: &str = "/etc/kubernetes/kubelet.kubeconfig";
const TECTONICS_KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
const CONFIG: &str = "/etc/kubernetes/kubelet.yaml";

pub(super) struct Inputs<'a> {
    pub(super) group: &'a str,
    pub(super) spec: &'a GroupSpec,
    pub(super) cluster: &'a CompleteCluster,
    pub(super) os: Os,
    pub(super) target: Target,
    pub(super) traits: &'a Traits,
    pub(super) role: Role,
    pub(super) labels: &'a Setting<Labels>,
    pub(super) taints: &'a Setting<Taints>,
    pub(super) max_pods: &'a Setting<MaxPods>,
    pub(super) reservation: &'a Setting<Reservation>,
    pub(super) instance: Option<&'a InstanceType>,
    pub(super) prefix_delegation: bool,
}

impl Inputs<'_> {
    fn here(&self, field: &str) -> Vec<String> {
        vec![format!("nodeGroups.{}.{field}", self.group)]
    }

    /// A control plane joins with what is in its folder of keys, where nodestrap brings it up.
    fn joins_by_program(&self) -> bool {
        let own_credentials = self.role == Role::ControlPlane && self.cluster.layout.value != Layout::Tectonic;
        self.cluster.join.exec.is_some() && !own_credentials
    }
}

pub(super) fn complete_config(inputs: &Inputs<'_>, check: &Check<'_>) -> ConfigTree {
    let cluster = inputs.cluster;
    let user = &inputs.spec.kubelet.config;
    if cluster.is_of_tectonics_time() {
        return ConfigTree::new();
    }
    let mut ours = ConfigTree::new();
    for (path, value, reason) in defaults() {
        config::insert(&mut ours, path, default(value, reason));
    }
    let mut set = |path: &[&str], setting: Setting<Value>| config::insert(&mut ours, path, setting);
    if cluster.layout.value == Layout::Eksctl {
        for (path, value) in eksctl_values() {
            set(path, derived(value, from("cluster.layout"), "what eksctl writes"));
        }
    }
    if cluster.layout.value == Layout::Tectonic {
        let rule = "where Tectonic has the cluster's own authority";
        set(
            &["authentication", "x509", "clientCAFile"],
            derived(json!("/etc/kubernetes/ca.crt"), from("cluster.layout"), rule),
        );
    }
    let dns: Vec<String> = cluster.networking.cluster_dns.value.0.iter().map(ToString::to_string).collect();
    set(
        &["clusterDNS"],
        derived(json!(dns), from("cluster.networking.clusterDNS"), "pods ask the cluster's DNS service"),
    );
    set(
        &["clusterDomain"],
        derived(
            json!(cluster.networking.cluster_domain.value.as_str()),
            from("cluster.networking.clusterDomain"),
            "pods search the cluster's domain",
        ),
    );
    add_what_the_system_needs(inputs, &mut ours);
    add_max_pods(inputs, &mut ours, check);
    let registered = inputs.taints.value.to_json(PLAIN);
    if !inputs.taints.value.0.is_empty() {
        config::insert(
            &mut ours,
            &["registerWithTaints"],
            derived(
                registered.clone(),
                inputs.here("taints"),
                "a node has its taints from the moment it registers, before a pod can land on it",
            ),
        );
    }
    check.agree(
        user,
        &["registerWithTaints"],
        |value| same_taints(value, &registered),
        || {
            (
                "registerWithTaints differs from the group's taints".to_owned(),
                "write the taints in spec.taints only; this field follows from them".to_owned(),
            )
        },
    );
    let config = overlay(ours, user, check);
    // nodestrap's own choices agree with each other.
    if !user.is_empty() {
        agreement::check_kubelet(&config, inputs.target, check);
        for minor in cluster.other_minors() {
            let target = Target { minor: Some(minor.minor), ..inputs.target };
            check.apart(minor, |check| agreement::check_kubelet(&config, target, check));
        }
    }
    config
}

/// What follows from the operating system, and from how its nodes join.
fn add_what_the_system_needs(inputs: &Inputs<'_>, tree: &mut ConfigTree) {
    let cluster = inputs.cluster;
    let mut set = |path: &[&str], setting: Setting<Value>| config::insert(tree, path, setting);
    if inputs.traits.runtime == Runtime::CriO {
        set(
            &["containerRuntimeEndpoint"],
            derived(json!("unix:///var/run/crio/crio.sock"), inputs.here("os"), "where CRI-O listens"),
        );
    }
    if let Some(socket) = containerd::written_socket(inputs.spec) {
        set(
            &["containerRuntimeEndpoint"],
            derived(
                json!(format!("unix://{socket}")),
                inputs.here("containerRuntime.config.grpc.address"),
                "where containerd is told to listen",
            ),
        );
    }
    if let Some(path) = inputs.traits.resolv_conf {
        let rule = "the name servers themselves: the local resolver would ask itself in a circle";
        set(&["resolvConf"], derived(json!(path), inputs.here("os"), rule));
    }
    if let Some(path) = inputs.traits.volume_plugins {
        set(&["volumePluginDir"], derived(json!(path), inputs.here("os"), "the usual folder is read-only here"));
    }
    if inputs.joins_by_program() {
        let rule =
            "renewal would replace the credentials that the program gives by a certificate that nobody asked for";
        set(&["rotateCertificates"], derived(json!(false), from("cluster.join.exec"), rule));
    }
    if inputs.os == Os::Al2 {
        let rule = "this system has version 1 of cgroups, which newer kubelets refuse unless told";
        if inputs.target.has_field("failCgroupV1") {
            set(&["failCgroupV1"], derived(json!(false), inputs.here("os"), rule));
        }
        if cluster.layout.value == Layout::Eksctl {
            set(&["cgroupDriver"], derived(json!("cgroupfs"), from("cluster.layout"), "what eksctl writes"));
        }
    }
}

/// Taints have no secrets and no defaults of any release.
const PLAIN: Look = Look { secrets: SecretDisplay::Redacted, release: None };

/// Where the seed of the layout differs from nodestrap's own choices.
fn eksctl_values() -> Vec<(&'static [&'static str], Value)> {
    vec![
        (&["address"], json!("0.0.0.0")),
        (&["authentication", "webhook", "cacheTTL"], json!("2m0s")),
        (&["authentication", "x509", "clientCAFile"], json!("/etc/eksctl/ca.crt")),
        (&["authorization", "webhook", "cacheAuthorizedTTL"], json!("5m0s")),
        (&["authorization", "webhook", "cacheUnauthorizedTTL"], json!("30s")),
        (&["featureGates", "RotateKubeletServerCertificate"], json!(true)),
        (&["serverTLSBootstrap"], json!(true)),
    ]
}

/// The number of pods, and what is kept back for so many.
fn add_max_pods(inputs: &Inputs<'_>, tree: &mut ConfigTree, check: &Check<'_>) {
    let number = pods(inputs, check);
    if let Some(number) = number {
        let sources = match inputs.max_pods.value {
            MaxPods::Number(_) => inputs.here("maxPods"),
            _ => [inputs.here("maxPods"), inputs.here("machines.instanceType")].concat(),
        };
        config::insert(tree, &["maxPods"], derived(json!(number), sources, "as many pods as the group says"));
    }
    let written = written_pods(inputs.spec);
    let effective = written.or(number);
    if let (Some(written), Some(number), Origin::User(_)) = (written, number, &inputs.max_pods.origin) {
        check.agree(
            &inputs.spec.kubelet.config,
            &["maxPods"],
            |_| written == number,
            || {
                let message = format!("kubelet.config.maxPods is {written}, and maxPods of the group is {number}");
                (message, "write maxPods of the group only: this field follows from it".to_owned())
            },
        );
    }
    if let (Reservation::Auto, Some(instance), Some(pods)) = (inputs.reservation.value, inputs.instance, effective) {
        let reserved = match crate::quantity::reserved(instance.cpus, instance.memory_mib, pods) {
            Ok(reserved) => reserved,
            Err(invalid) => {
                check.report(Some(&inputs.max_pods.origin), invalid.message, invalid.advice.unwrap_or_default());
                return;
            }
        };
        let sources = [inputs.here("reservation"), inputs.here("machines.instanceType"), inputs.here("maxPods")];
        for (resource, quantity) in reserved.entries() {
            let rule = "what Kubernetes itself needs on a machine of this size with so many pods";
            config::insert(
                tree,
                &["kubeReserved", resource],
                derived(json!(quantity.to_string()), sources.concat(), rule),
            );
        }
    } else if inputs.reservation.value == Reservation::Auto && inputs.instance.is_none() {
        check.report(
            Some(&inputs.reservation.origin),
            "how much to keep back follows from the instance type, which is not known",
            "write machines.instanceType (aws), or kubelet.config.kubeReserved",
        );
    }
}

fn written_pods(spec: &GroupSpec) -> Option<u32> {
    let written = config::find(&spec.kubelet.config, &["maxPods"]).map(config::node_to_json)?;
    written.as_u64().and_then(|pods| u32::try_from(pods).ok())
}

/// Of a group that says it as a field of the kubelet only.
pub(super) fn max_pods_of_config(spec: &GroupSpec, here: impl Fn(&str) -> String) -> Option<Setting<MaxPods>> {
    let written = if spec.max_pods.is_none() { written_pods(spec)? } else { return None };
    Some(derived(MaxPods::Number(written), vec![here("kubelet.config.maxPods")], "what the kubelet is told"))
}

/// `None`: the node finds out, from the map and its own instance type.
fn pods(inputs: &Inputs<'_>, check: &Check<'_>) -> Option<u32> {
    let mode = if inputs.prefix_delegation { AddressMode::Prefixes } else { AddressMode::Secondary };
    let node_looks = inputs.cluster.layout.value == Layout::Eksctl;
    match (&inputs.max_pods.value, inputs.instance) {
        (MaxPods::Number(number), _) => Some(*number),
        (MaxPods::Map, Some(instance)) => Some(instances::max_pods(instance, mode)),
        (MaxPods::Map, None) if node_looks => None,
        (MaxPods::Expression(expression), instance) => {
            let variables = instance.map(Variables::of).unwrap_or_default();
            match expression.evaluate_pods(&variables) {
                Ok(pods) => Some(pods),
                Err(invalid) => {
                    check.report(Some(&inputs.max_pods.origin), invalid.message, invalid.advice.unwrap_or_default());
                    None
                }
            }
        }
        (MaxPods::Map, None) => {
            check.report(
                Some(&inputs.max_pods.origin),
                "maxPods follows from the instance type here, which is not known",
                "write machines.instanceType (aws), or a number",
            );
            None
        }
    }
}

type Default = (&'static [&'static str], Value, &'static str);

fn defaults() -> Vec<Default> {
    vec![
        (
            &["authentication", "anonymous", "enabled"],
            json!(false),
            "nobody without a name may ask the kubelet anything",
        ),
        (&["authentication", "webhook", "enabled"], json!(true), "service accounts are checked by the API server"),
        (
            &["authentication", "x509", "clientCAFile"],
            json!("/etc/kubernetes/pki/ca.crt"),
            "the API server shows a certificate of the cluster's own authority",
        ),
        (&["authorization", "mode"], json!("Webhook"), "the API server decides who may do what, by RBAC"),
        (&["cgroupDriver"], json!("systemd"), "systemd owns the cgroup tree: a second owner makes nodes unstable"),
        (
            &["containerRuntimeEndpoint"],
            json!(format!("unix://{}", containerd::SOCKET)),
            "where containerd listens unless told otherwise",
        ),
        (
            &["rotateCertificates"],
            json!(true),
            "the client certificate lasts a year at most; without renewal the node would drop out then",
        ),
        (
            &["serverTLSBootstrap"],
            json!(false),
            "nothing in a plain cluster approves requests for serving certificates: metrics and logs would fail until \
             a person did",
        ),
        (
            &["staticPodPath"],
            json!("/etc/kubernetes/manifests"),
            "the folder for static pods that other tools expect; it may be empty",
        ),
    ]
}

/// A missing value is an empty one.
fn same_taints(written: &Value, ours: &Value) -> bool {
    let normal = |value: &Value| -> Option<Vec<[String; 3]>> {
        let text = |item: &Value, field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let items = value.as_array()?.iter();
        Some(items.map(|item| [text(item, "key"), text(item, "value"), text(item, "effect")]).collect())
    };
    normal(written) == normal(ours)
}

pub(super) fn complete_flags(inputs: &Inputs<'_>, check: &Check<'_>) -> BTreeMap<String, Setting<String>> {
    let mut flags = match inputs.cluster.layout.value {
        Layout::Nodestrap => nodestrap_flags(inputs, BOOTSTRAP_KUBECONFIG, EXEC_KUBECONFIG),
        Layout::Eksctl => eksctl_flags(inputs),
        Layout::Tectonic if inputs.cluster.is_of_tectonics_time() => tectonic_flags(inputs),
        Layout::Tectonic => nodestrap_flags(inputs, TECTONICS_KUBECONFIG, TECTONICS_KUBECONFIG),
    };
    let own = inputs.labels.value.0.iter().map(|(key, value)| format!("{key}={value}"));
    let labels: Vec<String> = match (inputs.cluster.layout.value, inputs.role) {
        (Layout::Eksctl, _) => Vec::new(),
        // By this label the control plane that bootkube starts finds its nodes; kubelets of that time may set it.
        (Layout::Tectonic, Role::ControlPlane) if inputs.cluster.is_of_tectonics_time() => {
            own.chain(["node-role.kubernetes.io/master=".to_owned()]).collect()
        }
        _ => own.collect(),
    };
    if !labels.is_empty() {
        flags.insert(
            "node-labels".to_owned(),
            derived(labels.join(","), inputs.here("labels"), "labels have no field in the kubelet's configuration"),
        );
    }
    for (name, setting) in &inputs.spec.kubelet.flags {
        let ours = flags.get(name).map(|ours| ours.value.as_str());
        if OWNED.contains(&name.as_str()) && ours != Some(setting.value.as_str()) {
            let advice = match name.as_str() {
                "node-labels" => "write them as labels of the NodeGroup",
                "config" => "write the configuration as kubelet.config of the NodeGroup",
                _ => "remove it: join of the Cluster says how nodes join",
            };
            check.report(Some(&setting.origin), format!("nodestrap sets the flag --{name} itself"), advice);
        }
        flags.insert(name.clone(), setting.clone());
    }
    flags
}

type FlagMap = BTreeMap<String, Setting<String>>;

fn nodestrap_flags(inputs: &Inputs<'_>, bootstrap_kubeconfig: &str, exec_kubeconfig: &str) -> FlagMap {
    let flag = |name: &str, value: &str, reason| (name.to_owned(), default(value.to_owned(), reason));
    let mut flags = BTreeMap::from([flag("config", CONFIG, "nodestrap writes kubelet.config to this file")]);
    if inputs.joins_by_program() {
        let rule = "credentials come from a program, so there is nothing to ask for; nodestrap writes this file";
        let setting = derived(exec_kubeconfig.to_owned(), from("cluster.join.exec"), rule);
        flags.insert("kubeconfig".to_owned(), setting);
        return flags;
    }
    flags.extend([
        flag("bootstrap-kubeconfig", bootstrap_kubeconfig, "what to join with; nodestrap writes this file"),
        flag("kubeconfig", KUBECONFIG, "the kubelet writes it once it has its certificate, so it lies with its state"),
    ]);
    flags
}

/// What the drop-in of eksctl says besides its variables, as far as this release of the kubelet knows it.
fn eksctl_flags(inputs: &Inputs<'_>) -> FlagMap {
    let flag = |name: &str, value: &str| {
        (name.to_owned(), derived(value.to_owned(), from("cluster.layout"), "what eksctl writes"))
    };
    let mut flags = BTreeMap::from([
        flag("config", "/etc/eksctl/kubelet.yaml"),
        flag("kubeconfig", "/etc/eksctl/kubeconfig.yaml"),
        flag("cloud-provider", "external"),
    ]);
    if inputs.cluster.join.bootstrap_token.is_some() {
        flags.extend([flag("bootstrap-kubeconfig", "/etc/eksctl/kubeconfig.yaml"), flag("kubeconfig", KUBECONFIG)]);
    }
    flags
}

/// The kubelet in its wrapper: everything is a flag.
fn tectonic_flags(inputs: &Inputs<'_>) -> FlagMap {
    let cluster = inputs.cluster;
    let flag = |name: &str, value: &str| {
        (name.to_owned(), derived(value.to_owned(), from("cluster.layout"), "what the units of Tectonic say"))
    };
    let mut flags = BTreeMap::from([
        flag("allow-privileged", "true"),
        flag("anonymous-auth", "false"),
        flag("cert-dir", "/var/lib/kubelet/pki"),
        flag("client-ca-file", "/etc/kubernetes/ca.crt"),
        flag("cni-bin-dir", "/var/lib/cni/bin"),
        flag("cni-conf-dir", "/etc/kubernetes/cni/net.d"),
        flag("exit-on-lock-contention", "true"),
        flag("kubeconfig", "/etc/kubernetes/kubeconfig"),
        flag("lock-file", "/var/run/lock/kubelet.lock"),
        flag("minimum-container-ttl-duration", "6m0s"),
        flag("network-plugin", "cni"),
        flag("pod-manifest-path", "/etc/kubernetes/manifests"),
    ]);
    if cluster.join.bootstrap_token.is_some() {
        // A token is for asking once; the kubelet's own certificate lasts.
        flags.extend([
            flag("bootstrap-kubeconfig", "/etc/kubernetes/kubeconfig"),
            flag("kubeconfig", KUBECONFIG),
            flag("rotate-certificates", "true"),
        ]);
    }
    let mut set = |name: &str, setting: Setting<String>| flags.insert(name.to_owned(), setting);
    let dns: Vec<String> = cluster.networking.cluster_dns.value.0.iter().map(ToString::to_string).collect();
    set("cluster-dns", derived(dns.join(","), from("cluster.networking.clusterDNS"), "pods ask the cluster's DNS"));
    set(
        "cluster-domain",
        derived(
            cluster.networking.cluster_domain.value.to_string(),
            from("cluster.networking.clusterDomain"),
            "pods search the cluster's domain",
        ),
    );
    if let MaxPods::Number(number) = inputs.max_pods.value {
        set("max-pods", derived(number.to_string(), inputs.here("maxPods"), "as many pods as the group says"));
    }
    let role = match inputs.role {
        Role::ControlPlane => Some("node-role.kubernetes.io/master=:NoSchedule"),
        Role::Worker => None,
    };
    let taints: Vec<String> = match (&inputs.taints.origin, role) {
        (Origin::Derived { .. }, Some(master)) => vec![master.to_owned()],
        _ => inputs.taints.value.0.iter().map(|t| format!("{}={}:{}", t.key, t.value, t.effect)).collect(),
    };
    if !taints.is_empty() {
        set(
            "register-with-taints",
            derived(taints.join(","), inputs.here("taints"), "a node has its taints from the moment it registers"),
        );
    }
    flags
}
