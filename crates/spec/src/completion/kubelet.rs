//! The kubelet's configuration and flags.
//!
//! A field is set here only where nodestrap decides differently from the kubelet's own default, or where being explicit
//! matters to a reader or an auditor. The user may override every one of them but `registerWithTaints`, which would
//! contradict the group's `taints`; that includes unsafe choices such as anonymous access, which are theirs to make.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Check, default, derived, overlay};
use crate::complete::{CompleteCluster, ConfigTree};
use crate::config;
use crate::document::GroupSpec;
use crate::flags::OWNED;
use crate::origin::Setting;
use crate::values::Taint;

const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap-kubelet.kubeconfig";
const CONFIG: &str = "/etc/kubernetes/kubelet.yaml";

pub(super) fn complete_config(
    spec: &GroupSpec,
    cluster: &CompleteCluster,
    taints: &Setting<Vec<Taint>>,
    check: &Check<'_>,
) -> ConfigTree {
    let mut ours = ConfigTree::new();
    for (path, value, reason) in defaults() {
        config::insert(&mut ours, path, default(value, reason));
    }
    let dns: Vec<String> = cluster.networking.cluster_dns.value.iter().map(ToString::to_string).collect();
    let from = |path: &str| vec![path.to_owned()];
    config::insert(
        &mut ours,
        &["clusterDNS"],
        derived(json!(dns), from("cluster.networking.clusterDNS"), "pods ask the cluster's DNS service"),
    );
    config::insert(
        &mut ours,
        &["clusterDomain"],
        derived(
            json!(cluster.networking.cluster_domain.value.as_str()),
            from("cluster.networking.clusterDomain"),
            "pods search the cluster's domain",
        ),
    );
    let registered = taints_to_json(&taints.value);
    if !taints.value.is_empty() {
        config::insert(
            &mut ours,
            &["registerWithTaints"],
            derived(
                registered.clone(),
                vec![format!("nodeGroups.{}.taints", spec.name.value)],
                "a node has its taints from the moment it registers, before a pod can land on it",
            ),
        );
    }
    let user = &spec.kubelet.config;
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
    overlay(ours, user, check)
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
            json!("unix:///run/containerd/containerd.sock"),
            "where containerd listens unless told otherwise",
        ),
        (&["maxPods"], json!(110), "the limit that Kubernetes is tested with"),
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

fn taints_to_json(taints: &[Taint]) -> Value {
    taints
        .iter()
        .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect.as_str()}))
        .collect()
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

pub(super) fn complete_flags(
    spec: &GroupSpec,
    group: &str,
    labels: &Setting<BTreeMap<String, String>>,
    check: &Check<'_>,
) -> BTreeMap<String, Setting<String>> {
    let mut flags = BTreeMap::from([
        (
            "bootstrap-kubeconfig".to_owned(),
            default(BOOTSTRAP_KUBECONFIG.to_owned(), "the token to join with; nodestrap writes this file"),
        ),
        ("config".to_owned(), default(CONFIG.to_owned(), "nodestrap writes kubelet.config to this file")),
        (
            "kubeconfig".to_owned(),
            default(
                KUBECONFIG.to_owned(),
                "the kubelet writes it once it has its certificate, so it lies with its state",
            ),
        ),
    ]);
    if !labels.value.is_empty() {
        let list: Vec<String> = labels.value.iter().map(|(key, value)| format!("{key}={value}")).collect();
        flags.insert(
            "node-labels".to_owned(),
            derived(
                list.join(","),
                vec![format!("nodeGroups.{group}.labels")],
                "labels have no field in the kubelet's configuration",
            ),
        );
    }
    for (name, setting) in &spec.kubelet.flags {
        let ours = flags.get(name).map(|ours| ours.value.as_str());
        if OWNED.contains(&name.as_str()) && ours != Some(setting.value.as_str()) {
            let advice = match name.as_str() {
                "node-labels" => "write them as labels of the NodeGroup".to_owned(),
                "config" => "write the configuration as kubelet.config of the NodeGroup".to_owned(),
                _ => "remove it: join of the Cluster says how nodes join".to_owned(),
            };
            check.report(Some(&setting.origin), format!("nodestrap sets the flag --{name} itself"), advice);
        }
        flags.insert(name.clone(), setting.clone());
    }
    flags
}
