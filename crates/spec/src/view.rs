//! The complete spec as one tree of plain values: what `to_json`, `to_yaml` and `explain` share.

use serde_json::{Map, Value, json};

use crate::complete::{CompleteGroup, CompleteSpec, ConfigNode, ConfigTree};
use crate::origin::{Origin, Setting};
use crate::values::REDACTED;

/// Whether secrets are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretDisplay {
    Shown,
    /// A marker stands in their place, which is refused when it is read back.
    Redacted,
}

pub(crate) enum View<'a> {
    Leaf(Value, &'a Origin),
    Branch(Vec<(String, View<'a>)>),
}

impl View<'_> {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            View::Leaf(value, _) => value.clone(),
            View::Branch(fields) => {
                Value::Object(fields.iter().map(|(name, view)| (name.clone(), view.to_json())).collect::<Map<_, _>>())
            }
        }
    }
}

fn branch<'a, const N: usize>(fields: [(&str, View<'a>); N]) -> View<'a> {
    View::Branch(fields.into_iter().map(|(name, view)| (name.to_owned(), view)).collect())
}

fn text<T: ToString>(setting: &Setting<T>) -> View<'_> {
    View::Leaf(Value::from(setting.value.to_string()), &setting.origin)
}

fn texts<T: ToString>(setting: &Setting<Vec<T>>) -> View<'_> {
    View::Leaf(setting.value.iter().map(ToString::to_string).collect(), &setting.origin)
}

/// An empty mapping is a leaf: it has an origin, too.
fn mapping<'a>(fields: Vec<(String, View<'a>)>, origin: &'a Origin) -> View<'a> {
    if fields.is_empty() { View::Leaf(json!({}), origin) } else { View::Branch(fields) }
}

fn config(tree: &ConfigTree) -> View<'_> {
    View::Branch(
        tree.iter()
            .map(|(name, node)| {
                let view = match node {
                    ConfigNode::Leaf(setting) => View::Leaf(setting.value.clone(), &setting.origin),
                    ConfigNode::Branch(tree) => config(tree),
                };
                (name.clone(), view)
            })
            .collect(),
    )
}

pub(crate) fn cluster(spec: &CompleteSpec, secrets: SecretDisplay) -> View<'_> {
    let cluster = &spec.cluster;
    let token = match secrets {
        SecretDisplay::Shown => cluster.join.bootstrap_token.value.expose(),
        SecretDisplay::Redacted => REDACTED,
    };
    let authority = &cluster.join.certificate_authority;
    branch([
        ("name", text(&cluster.name)),
        ("kubernetesVersion", text(&cluster.kubernetes_version)),
        ("apiServer", View::Leaf(Value::from(cluster.api_server.value.as_str()), &cluster.api_server.origin)),
        (
            "join",
            branch([
                ("bootstrapToken", View::Leaf(Value::from(token), &cluster.join.bootstrap_token.origin)),
                ("certificateAuthority", View::Leaf(Value::from(authority.value.as_str()), &authority.origin)),
            ]),
        ),
        (
            "networking",
            branch([
                ("podNetwork", text(&cluster.networking.pod_network)),
                ("serviceCIDRs", texts(&cluster.networking.service_cidrs)),
                ("clusterDNS", texts(&cluster.networking.cluster_dns)),
                ("clusterDomain", text(&cluster.networking.cluster_domain)),
            ]),
        ),
    ])
}

pub(crate) fn group(group: &CompleteGroup) -> View<'_> {
    let labels = group
        .labels
        .value
        .iter()
        .map(|(key, value)| (key.clone(), View::Leaf(Value::from(value.as_str()), &group.labels.origin)))
        .collect();
    let taints = group
        .taints
        .value
        .iter()
        .map(|taint| json!({"key": taint.key, "value": taint.value, "effect": taint.effect.as_str()}))
        .collect();
    let flags = group.kubelet.flags.iter().map(|(name, setting)| (name.clone(), text(setting))).collect();
    let runtime = &group.container_runtime;
    branch([
        ("name", text(&group.name)),
        ("role", text(&group.role)),
        ("labels", mapping(labels, &group.labels.origin)),
        ("taints", View::Leaf(taints, &group.taints.origin)),
        (
            "kubelet",
            branch([
                ("binary", text(&group.kubelet.binary)),
                ("config", config(&group.kubelet.config)),
                ("flags", View::Branch(flags)),
            ]),
        ),
        (
            "containerRuntime",
            branch([
                ("source", text(&runtime.source)),
                ("binary", text(&runtime.binary)),
                ("sandboxImage", text(&runtime.sandbox_image)),
                ("cniBinaries", text(&runtime.cni_binaries)),
                ("config", config(&runtime.config)),
            ]),
        ),
    ])
}

pub(crate) fn whole(spec: &CompleteSpec, secrets: SecretDisplay) -> View<'_> {
    let groups = spec.groups.iter().map(|member| (member.name.value.to_string(), group(member))).collect();
    branch([("cluster", cluster(spec, secrets)), ("nodeGroups", View::Branch(groups))])
}
