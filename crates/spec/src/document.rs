//! What the user wrote: the documents `Cluster` and `NodeGroup`, decoded and valid, nothing filled in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;

use crate::catalog::{self, CONTAINERD_V3, Component, Release};
use crate::complete::ConfigTree;
use crate::config::decode_config;
use crate::decode::{Drafts, Fields};
use crate::origin::{Position, Setting};
use crate::resolve::Files;
use crate::source::Sources;
use crate::syntax;
use crate::tree::{Entry, Kind, Node};
use crate::values::{
    ApiServerUrl, BootstrapToken, CertificatePem, ClusterName, DomainName, GroupName, Invalid, KubeVersion, PodNetwork,
    Role, RuntimeSource, Taint, TaintEffect, family,
};

pub(crate) const API_VERSION: &str = "nodestrap.io/v1alpha1";

/// A valid spec as the user wrote it. `complete` makes every decision that it leaves open.
#[derive(Clone)]
pub struct Spec {
    pub(crate) cluster: ClusterSpec,
    /// Sorted by name.
    pub(crate) groups: Vec<GroupSpec>,
    pub(crate) sources: Rc<Sources>,
}

#[derive(Clone)]
pub(crate) struct ClusterSpec {
    pub(crate) name: Setting<ClusterName>,
    pub(crate) kubernetes_version: Option<Setting<KubeVersion>>,
    pub(crate) api_server: Setting<ApiServerUrl>,
    pub(crate) bootstrap_token: Setting<BootstrapToken>,
    pub(crate) certificate_authority: Setting<CertificatePem>,
    pub(crate) networking: NetworkingSpec,
}

#[derive(Clone, Default)]
pub(crate) struct NetworkingSpec {
    pub(crate) pod_network: Option<Setting<PodNetwork>>,
    pub(crate) service_cidrs: Option<Setting<Vec<IpNet>>>,
    pub(crate) cluster_dns: Option<Setting<Vec<IpAddr>>>,
    pub(crate) cluster_domain: Option<Setting<DomainName>>,
}

#[derive(Clone)]
pub(crate) struct GroupSpec {
    pub(crate) name: Setting<GroupName>,
    pub(crate) role: Option<Setting<Role>>,
    pub(crate) labels: Option<Setting<BTreeMap<String, String>>>,
    pub(crate) taints: Option<Setting<Vec<Taint>>>,
    pub(crate) kubelet: KubeletSpec,
    pub(crate) container_runtime: ContainerRuntimeSpec,
}

#[derive(Clone, Default)]
pub(crate) struct KubeletSpec {
    pub(crate) binary: Option<Setting<String>>,
    pub(crate) config: ConfigTree,
    pub(crate) flags: BTreeMap<String, Setting<String>>,
}

#[derive(Clone, Default)]
pub(crate) struct ContainerRuntimeSpec {
    pub(crate) source: Option<Setting<RuntimeSource>>,
    pub(crate) binary: Option<Setting<String>>,
    pub(crate) sandbox_image: Option<Setting<String>>,
    pub(crate) cni_binaries: Option<Setting<String>>,
    pub(crate) config: ConfigTree,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DocumentKind {
    Cluster,
    NodeGroup,
}

/// Decodes all documents; `None` if anything is missing or wrong (which is then in `drafts`).
pub(crate) fn decode_documents(
    drafts: &Drafts<'_>,
    documents: &[Node],
    files: &Files<'_>,
) -> Option<(ClusterSpec, Vec<GroupSpec>)> {
    let mut clusters = Vec::new();
    let mut groups = Vec::new();
    for document in documents.iter().filter(|document| !document.is_missing()) {
        match decode_kind(drafts, document) {
            Some(DocumentKind::Cluster) => clusters.push(document),
            Some(DocumentKind::NodeGroup) => groups.push(document),
            None => {}
        }
    }
    for second in clusters.iter().skip(1) {
        drafts
            .report(second.span, "there can be only one Cluster")
            .advise("give the other cluster a file of its own and run nodestrap once for each");
    }
    let all_read = !drafts.is_malformed() && documents.iter().all(|document| document_kind(document).is_some());
    if let (Some(document), true) = (documents.first(), all_read) {
        for (missing, kind) in [(clusters.is_empty(), "Cluster"), (groups.is_empty(), "NodeGroup")] {
            if missing {
                drafts.report(document.span, format!("a document of kind {kind} is missing"));
            }
        }
    }
    let release = clusters.first().map_or_else(catalog::newest_release, |cluster| release_of(cluster));
    let cluster = clusters.first().and_then(|document| decode_cluster(drafts, document, files));
    for other in clusters.iter().skip(1) {
        decode_cluster(drafts, other, files);
    }
    let decoded: Vec<Option<GroupSpec>> =
        groups.iter().map(|document| decode_group(drafts, document, release)).collect();
    report_duplicate_groups(drafts, &groups);
    let mut groups = decoded.into_iter().collect::<Option<Vec<GroupSpec>>>()?;
    groups.sort_by(|a, b| a.name.value.cmp(&b.name.value));
    Some((cluster?, groups))
}

fn scalar_at<'n>(document: &'n Node, path: &[&str]) -> Option<(&'n Entry, &'n str)> {
    let Kind::Map(entries) = &document.kind else { return None };
    let (name, rest) = path.split_first()?;
    let entry = entries.iter().find(|entry| entry.key == *name)?;
    match (&entry.value.kind, rest) {
        (Kind::Scalar { text, .. }, []) => Some((entry, text)),
        (_, []) => None,
        (_, rest) => scalar_at(&entry.value, rest),
    }
}

fn document_kind(document: &Node) -> Option<DocumentKind> {
    match scalar_at(document, &["kind"]) {
        Some((_, "Cluster")) => Some(DocumentKind::Cluster),
        Some((_, "NodeGroup")) => Some(DocumentKind::NodeGroup),
        _ => None,
    }
}

fn decode_kind(drafts: &Drafts<'_>, document: &Node) -> Option<DocumentKind> {
    drafts.entries(document)?;
    match scalar_at(document, &["apiVersion"]) {
        Some((_, API_VERSION)) => {}
        Some((entry, other)) => drafts
            .report(entry.value.span, format!("\"{other}\" is not an apiVersion of nodestrap"))
            .advise(format!("write {API_VERSION}")),
        None => drafts
            .report(document.span, "a document needs the field \"apiVersion\"")
            .advise(format!("apiVersion: {API_VERSION}")),
    }
    let kind = document_kind(document);
    if kind.is_none() {
        match scalar_at(document, &["kind"]) {
            Some((entry, other)) => {
                drafts.report_invalid(entry.value.span, syntax::unknown_choice(other, &["Cluster", "NodeGroup"]));
            }
            None => drafts
                .report(document.span, "a document needs the field \"kind\"")
                .advise("kind: Cluster, or kind: NodeGroup"),
        }
    }
    kind
}

/// The tables to check node groups with, also when the cluster's version is wrong.
fn release_of(cluster: &Node) -> &'static Release {
    scalar_at(cluster, &["spec", "kubernetesVersion"])
        .and_then(|(_, text)| text.parse::<KubeVersion>().ok())
        .and_then(|version| catalog::find_release(version).ok())
        .unwrap_or_else(catalog::newest_release)
}

fn report_duplicate_groups(drafts: &Drafts<'_>, groups: &[&Node]) {
    let names: Vec<(&Entry, &str)> =
        groups.iter().filter_map(|document| scalar_at(document, &["metadata", "name"])).collect();
    for (index, (entry, name)) in names.iter().enumerate() {
        if let Some((first, _)) = names[..index].iter().find(|(_, earlier)| earlier == name) {
            let line = first.value.span.line;
            drafts.report(entry.value.span, format!("a second NodeGroup \"{name}\"; the first is on line {line}"));
        }
    }
}

fn open_document<'n>(drafts: &'n Drafts<'n>, document: &'n Node, what: &'static str) -> Option<Fields<'n>> {
    let mut fields = drafts.fields(document, what)?;
    // Checked by `decode_kind`.
    fields.entry("apiVersion");
    fields.entry("kind");
    Some(fields)
}

fn decode_name<T: std::str::FromStr<Err = Invalid>>(drafts: &Drafts<'_>, metadata: &Node) -> Option<Setting<T>> {
    let mut fields = drafts.fields(metadata, "metadata")?;
    let name = fields.required("name", |drafts, node| drafts.value(node));
    fields.finish();
    name
}

fn decode_cluster(drafts: &Drafts<'_>, document: &Node, files: &Files<'_>) -> Option<ClusterSpec> {
    let mut fields = open_document(drafts, document, "a Cluster")?;
    let name = fields.required("metadata", |drafts, node| decode_name(drafts, node));
    let spec = fields.required("spec", |drafts, node| decode_cluster_spec(drafts, node, files));
    fields.finish();
    let (name, spec) = (name?.value, spec?.value);
    let join = spec.join?.value;
    Some(ClusterSpec {
        name,
        kubernetes_version: spec.kubernetes_version,
        api_server: spec.api_server?,
        bootstrap_token: join.0?,
        certificate_authority: join.1?,
        networking: spec.networking,
    })
}

type Join = (Option<Setting<BootstrapToken>>, Option<Setting<CertificatePem>>);

struct ClusterFields {
    kubernetes_version: Option<Setting<KubeVersion>>,
    api_server: Option<Setting<ApiServerUrl>>,
    join: Option<Setting<Join>>,
    networking: NetworkingSpec,
}

fn decode_cluster_spec(drafts: &Drafts<'_>, node: &Node, files: &Files<'_>) -> Option<ClusterFields> {
    let mut fields = drafts.fields(node, "the spec of a Cluster")?;
    let decoded = ClusterFields {
        kubernetes_version: fields.optional("kubernetesVersion", |drafts, node| {
            let version: KubeVersion = drafts.value(node)?;
            drafts.checked(node, catalog::find_release(version))?;
            Some(version)
        }),
        api_server: fields.required("apiServer", |drafts, node| drafts.value(node)),
        join: fields.required("join", |drafts, node| decode_join(drafts, node, files)),
        networking: fields.optional("networking", decode_networking).map(|set| set.value).unwrap_or_default(),
    };
    fields.finish();
    Some(decoded)
}

fn decode_join(drafts: &Drafts<'_>, node: &Node, files: &Files<'_>) -> Option<Join> {
    let mut fields = drafts.fields(node, "join")?;
    let token = fields.required("bootstrapToken", |drafts, node| {
        // Before anything can be reported about it.
        if !matches!(node.kind, Kind::Map(_)) {
            drafts.hide(node.span);
        }
        files.value_or_file(drafts, node, "bootstrapToken")
    });
    let authority = fields.required("certificateAuthority", |drafts, node| {
        let authority = files.value_or_file(drafts, node, "certificateAuthority");
        // A certificate is public, but what is none may be a pasted private key.
        if authority.is_none() && !matches!(node.kind, Kind::Map(_)) {
            drafts.hide(node.span);
        }
        authority
    });
    fields.finish();
    Some((token, authority))
}

fn decode_networking(drafts: &Drafts<'_>, node: &Node) -> Option<NetworkingSpec> {
    let mut fields = drafts.fields(node, "networking")?;
    let networking = NetworkingSpec {
        pod_network: fields.optional("podNetwork", |drafts, node| drafts.value(node)),
        service_cidrs: fields.optional("serviceCIDRs", decode_service_cidrs),
        cluster_dns: fields.optional("clusterDNS", decode_cluster_dns),
        cluster_domain: fields.optional("clusterDomain", |drafts, node| drafts.value(node)),
    };
    fields.finish();
    Some(networking)
}

fn decode_service_cidrs(drafts: &Drafts<'_>, node: &Node) -> Option<Vec<IpNet>> {
    let networks = drafts.items(node, |item| {
        let text = drafts.text(item)?;
        drafts.checked(item, syntax::parse_service_network(text))
    })?;
    let items = drafts.list(node)?;
    if items.is_empty() {
        drafts.report(node.span, "at least one network is needed");
        return None;
    }
    for (index, (network, item)) in networks.iter().zip(items).enumerate() {
        if networks[..index].iter().any(|earlier| family(earlier.addr()) == family(network.addr())) {
            drafts
                .report(item.span, format!("a second {} network: at most one of each family", family(network.addr())));
            return None;
        }
    }
    Some(networks)
}

fn decode_cluster_dns(drafts: &Drafts<'_>, node: &Node) -> Option<Vec<IpAddr>> {
    let addresses = drafts.items(node, |item| {
        let text = drafts.text(item)?;
        let parsed = text.parse::<IpAddr>().map_err(|_| Invalid::new(format!("\"{text}\" is not an IP address")));
        drafts.checked(item, parsed)
    })?;
    if addresses.is_empty() {
        drafts.report(node.span, "at least one address is needed");
        return None;
    }
    Some(addresses)
}

fn decode_group(drafts: &Drafts<'_>, document: &Node, release: &Release) -> Option<GroupSpec> {
    let mut fields = open_document(drafts, document, "a NodeGroup")?;
    let name = fields.required("metadata", |drafts, node| decode_name(drafts, node));
    let spec = fields.optional("spec", |drafts, node| decode_group_spec(drafts, node, release));
    fields.finish();
    let spec = spec.map(|setting| setting.value).unwrap_or_default();
    Some(GroupSpec {
        name: name?.value,
        role: spec.role,
        labels: spec.labels,
        taints: spec.taints,
        kubelet: spec.kubelet.map(|setting| setting.value).unwrap_or_default(),
        container_runtime: spec.container_runtime.map(|setting| setting.value).unwrap_or_default(),
    })
}

#[derive(Default)]
struct GroupFields {
    role: Option<Setting<Role>>,
    labels: Option<Setting<BTreeMap<String, String>>>,
    taints: Option<Setting<Vec<Taint>>>,
    kubelet: Option<Setting<KubeletSpec>>,
    container_runtime: Option<Setting<ContainerRuntimeSpec>>,
}

fn decode_group_spec(drafts: &Drafts<'_>, node: &Node, release: &Release) -> Option<GroupFields> {
    let mut fields = drafts.fields(node, "the spec of a NodeGroup")?;
    let decoded = GroupFields {
        role: fields.optional("role", decode_role),
        labels: fields.optional("labels", decode_labels),
        taints: fields.optional("taints", decode_taints),
        kubelet: fields.optional("kubelet", |drafts, node| decode_kubelet(drafts, node, release)),
        container_runtime: fields.optional("containerRuntime", |drafts, node| decode_runtime(drafts, node, release)),
    };
    fields.finish();
    Some(decoded)
}

fn decode_role(drafts: &Drafts<'_>, node: &Node) -> Option<Role> {
    let text = drafts.text(node)?;
    if matches!(text, "control-plane" | "controlPlane" | "ControlPlane" | "master") {
        drafts
            .report(node.span, "the role \"control-plane\" is not supported by this version")
            .advise("nodestrap bootstraps workers for now; make the control plane with another tool");
        return None;
    }
    drafts.checked(node, text.parse())
}

fn decode_labels(drafts: &Drafts<'_>, node: &Node) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for entry in drafts.entries(node)? {
        if let Err(invalid) = syntax::validate_node_label_key(&entry.key) {
            drafts.report_invalid(entry.key_span, invalid);
        }
        if let Some(value) = drafts.valid_text(&entry.value, syntax::validate_label_value) {
            labels.insert(entry.key.clone(), value);
        }
    }
    Some(labels)
}

fn decode_taints(drafts: &Drafts<'_>, node: &Node) -> Option<Vec<Taint>> {
    let taints = drafts.items(node, |item| decode_taint(drafts, item))?;
    for (index, (taint, item)) in taints.iter().zip(drafts.list(node)?).enumerate() {
        if taints[..index].iter().any(|earlier| (&earlier.key, earlier.effect) == (&taint.key, taint.effect)) {
            drafts.report(item.span, format!("a second taint \"{}\" with the effect {}", taint.key, taint.effect));
        }
    }
    Some(taints)
}

fn decode_taint(drafts: &Drafts<'_>, node: &Node) -> Option<Taint> {
    if let Kind::Scalar { text, .. } = &node.kind
        && !node.is_missing()
    {
        let report = drafts.report(node.span, "a taint is a mapping, not a text");
        report.advise(match syntax::split_taint(text) {
            Some((key, value, effect)) => format!("write {{key: {key}, value: \"{value}\", effect: {effect}}}"),
            None => "write {key: …, value: …, effect: NoSchedule}".to_owned(),
        });
        return None;
    }
    let mut fields = drafts.fields(node, "a taint")?;
    let key = fields.required("key", |drafts, node| drafts.valid_text(node, syntax::validate_qualified_name));
    let value = fields.optional("value", |drafts, node| drafts.valid_text(node, syntax::validate_label_value));
    let effect = fields.required("effect", |drafts, node| drafts.value::<TaintEffect>(node));
    fields.finish();
    Some(Taint { key: key?.value, value: value.map(|set| set.value).unwrap_or_default(), effect: effect?.value })
}

fn decode_path(drafts: &Drafts<'_>, node: &Node) -> Option<String> {
    drafts.valid_text(node, syntax::validate_absolute_path)
}

fn decode_kubelet(drafts: &Drafts<'_>, node: &Node, release: &Release) -> Option<KubeletSpec> {
    let mut fields = drafts.fields(node, "kubelet")?;
    let kubelet = KubeletSpec {
        binary: fields.optional("binary", decode_path),
        config: fields
            .optional("config", |drafts, node| {
                let kubelet = Component::Kubelet;
                let target = release.target(kubelet);
                let mut config = decode_config(drafts, node, kubelet.config()?, "KubeletConfiguration", target)?;
                config.retain(|name, _| name != "apiVersion" && name != "kind");
                Some(config)
            })
            .map(|set| set.value)
            .unwrap_or_default(),
        flags: fields
            .optional("flags", |drafts, node| {
                crate::flags::decode_flags(drafts, node, release.target(Component::Kubelet))
            })
            .map(|set| set.value)
            .unwrap_or_default(),
    };
    fields.finish();
    Some(kubelet)
}

fn decode_runtime(drafts: &Drafts<'_>, node: &Node, release: &Release) -> Option<ContainerRuntimeSpec> {
    let mut fields = drafts.fields(node, "containerRuntime")?;
    let runtime = ContainerRuntimeSpec {
        source: fields.optional("source", |drafts, node| drafts.value(node)),
        binary: fields.optional("binary", decode_path),
        sandbox_image: fields.optional("sandboxImage", |drafts, node| drafts.valid_text(node, syntax::validate_image)),
        cni_binaries: fields.optional("cniBinaries", decode_path),
        config: fields
            .optional("config", |drafts, node| {
                let target = release.target(Component::Containerd);
                decode_config(drafts, node, CONTAINERD_V3, "containerd's configuration", target)
            })
            .map(|set| set.value)
            .unwrap_or_default(),
    };
    fields.finish();
    Some(runtime)
}

/// A reference to another file, found at this position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReference {
    /// As written: relative to the folder of the spec file in `position`.
    pub path: String,
    pub position: Position,
    /// The field that it stands for.
    pub field: &'static str,
}
