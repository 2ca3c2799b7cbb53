//! What the user wrote: the documents `Cluster` and `NodeGroup`, decoded and valid, nothing filled in.

use std::rc::Rc;

use bundle::torcx::Minor;

use crate::catalog::{self, Release};
use crate::complete::{ClusterSpec, CompleteCluster, CompleteGroup, CompleteKubelet, GroupSpec};
use crate::decode::{Drafts, Fields};
use crate::origin::{Position, Setting};
use crate::record::{Context, Record};
use crate::resolve::Files;
use crate::source::Sources;
use crate::syntax;
use crate::tree::{Entry, Kind, Node};
use crate::values::{ClusterName, GroupName, Invalid, KubeVersion};

pub(crate) const API_VERSION: &str = "nodestrap.io/v1alpha1";

/// A valid spec as the user wrote it. `complete` makes every decision that it leaves open.
#[derive(Clone)]
pub struct Spec {
    pub(crate) documents: Documents,
    pub(crate) sources: Rc<Sources>,
    /// `None`: nothing is refused for its dates.
    pub(crate) now: Option<trust::Timestamp>,
}

impl Spec {
    /// When it is, for what has an end; nothing but refusals hangs on it.
    pub fn at(self, now: trust::Timestamp) -> Self {
        Self { now: Some(now), ..self }
    }
}

#[derive(Clone)]
pub(crate) struct Documents {
    pub(crate) name: Setting<ClusterName>,
    pub(crate) cluster: ClusterSpec,
    /// Sorted by name.
    pub(crate) groups: Vec<(Setting<GroupName>, GroupSpec)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DocumentKind {
    Cluster,
    NodeGroup,
}

/// Decodes all documents; `None` if anything is missing or wrong (which is then in `drafts`).
pub(crate) fn decode_documents<'n>(
    drafts: &'n Drafts<'n>,
    documents: &'n [Node],
    files: &'n Files<'n>,
) -> Option<Documents> {
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
    let is_known = |document: &Node| document.is_missing() || document_kind(document).is_some();
    let all_read = !drafts.is_malformed() && documents.iter().all(is_known);
    if let (Some(document), true) = (documents.first(), all_read) {
        for (missing, kind) in [(clusters.is_empty(), "Cluster"), (groups.is_empty(), "NodeGroup")] {
            if missing {
                drafts.report(document.span, format!("a document of kind {kind} is missing"));
            }
        }
    }
    let tectonic = clusters
        .first()
        .is_some_and(|cluster| scalar_at(cluster, &["spec", "layout"]).is_some_and(|(_, layout)| layout == "tectonic"));
    for document in &clusters {
        check_join(drafts, document);
    }
    for document in clusters.iter().chain(&groups) {
        check_version(drafts, document, tectonic);
    }
    let fallback = if tectonic { catalog::release_of_tectonic_seeds() } else { catalog::newest_release() };
    let release = clusters.first().and_then(|cluster| release_of(cluster, tectonic)).unwrap_or(fallback);
    let context = Context { drafts, files, release };
    let decoded: Vec<_> = clusters
        .iter()
        .map(|document| decode_document::<ClusterName, CompleteCluster>(context, document, true))
        .collect();
    let groups_decoded: Vec<Option<(Setting<GroupName>, GroupSpec)>> = groups
        .iter()
        .map(|document| {
            let release = release_of(document, tectonic).unwrap_or(release);
            let group = decode_document::<GroupName, CompleteGroup>(Context { release, ..context }, document, false);
            check_for_other_minors(Context { release, ..context }, clusters.first().copied(), document);
            group
        })
        .collect();
    report_duplicate_groups(drafts, &groups);
    let mut groups = groups_decoded.into_iter().collect::<Option<Vec<_>>>()?;
    groups.sort_by(|a, b| a.0.value.cmp(&b.0.value));
    let (name, cluster) = decoded.into_iter().next()??;
    Some(Documents { name, cluster, groups })
}

pub(crate) fn entry_at<'n>(document: &'n Node, path: &[&str]) -> Option<&'n Entry> {
    let Kind::Map(entries) = &document.kind else { return None };
    let (name, rest) = path.split_first()?;
    let entry = entries.iter().find(|entry| entry.key == *name)?;
    if rest.is_empty() { Some(entry) } else { entry_at(&entry.value, rest) }
}

pub(crate) fn scalar_at<'n>(document: &'n Node, path: &[&str]) -> Option<(&'n Entry, &'n str)> {
    let entry = entry_at(document, path)?;
    match &entry.value.kind {
        Kind::Scalar { text, .. } => Some((entry, text)),
        _ => None,
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

fn release_of(document: &Node, tectonic: bool) -> Option<&'static Release> {
    let (_, text) = scalar_at(document, &["spec", "kubernetesVersion"])?;
    find_release(text.parse().ok()?, tectonic).ok()
}

fn find_release(version: KubeVersion, tectonic: bool) -> Result<&'static Release, Invalid> {
    if tectonic { catalog::find_release_of_tectonic(version) } else { catalog::find_release(version) }
}

/// A node that follows its cluster starts the kubelet of any of these minors with the same flags and configuration.
fn check_for_other_minors<'n>(context: Context<'n>, cluster: Option<&'n Node>, group: &'n Node) {
    let minors = cluster.and_then(|cluster| entry_at(cluster, &["spec", "tectonic", "minors"]));
    let (Some(minors), Some(kubelet)) = (minors, entry_at(group, &["spec", "kubelet"])) else { return };
    let Kind::List(items) = &minors.value.kind else { return };
    let texts = items.iter().filter_map(|item| match &item.kind {
        Kind::Scalar { text, .. } => text.parse::<Minor>().ok(),
        _ => None,
    });
    for minor in texts {
        let version = KubeVersion { major: minor.major, minor: minor.minor, patch: 0 };
        let Ok(release) = find_release(version, true) else { continue };
        if std::ptr::eq(release, context.release) {
            continue;
        }
        let drafts = context.drafts.apart();
        let apart = Context { drafts: &drafts, files: context.files, release };
        CompleteKubelet::decode(apart, &kubelet.value);
        context.drafts.take_over(drafts, minor);
    }
}

/// Either of two fields is needed, which no single field can say; EKS needs neither.
fn check_join(drafts: &Drafts<'_>, document: &Node) {
    let eksctl = scalar_at(document, &["spec", "layout"]).is_some_and(|(_, layout)| layout == "eksctl");
    let pulled = scalar_at(document, &["spec", "tectonic", "kubeconfig"]).is_some_and(|(_, source)| source == "pulled");
    let Some(join) = entry_at(document, &["spec", "join"]) else { return };
    let Kind::Map(fields) = &join.value.kind else { return };
    let has = |name: &str| fields.iter().any(|field| field.key == name);
    let misspelt =
        fields.iter().any(|field| crate::nearest::nearest(&field.key, ["bootstrapToken"].into_iter()).is_some());
    if !eksctl && !pulled && !misspelt && !has("exec") {
        drafts
            .report(join.key_span, "join needs the field \"bootstrapToken\" (or \"exec\")")
            .advise("`kubeadm token create` makes a token; {file: token.txt} keeps it out of the spec");
    }
}

/// A version that parses but has no tables; the layout tectonic brings those of its own time.
fn check_version(drafts: &Drafts<'_>, document: &Node, tectonic: bool) {
    let Some((entry, text)) = scalar_at(document, &["spec", "kubernetesVersion"]) else { return };
    let Ok(version) = text.parse::<KubeVersion>() else { return };
    if let Err(invalid) = find_release(version, tectonic) {
        drafts.report_invalid(entry.value.span, invalid);
    }
}

fn decode_document<'n, N: std::str::FromStr<Err = Invalid>, R: Record>(
    context: Context<'n>,
    document: &'n Node,
    needs_spec: bool,
) -> Option<(Setting<N>, R::Spec)> {
    let what = if needs_spec { "a Cluster" } else { "a NodeGroup" };
    let mut fields = open_document(context.drafts, document, what)?;
    let name = fields.required("metadata", |drafts, node| decode_name(drafts, node));
    let spec = match needs_spec || fields.has("spec") {
        true => fields.required("spec", |_, node| R::decode(context, node)).map(|setting| setting.value),
        false => {
            fields.entry("spec");
            R::decode_fields(context, fields.absent(R::WHAT))
        }
    };
    fields.finish();
    Some((name?.value, spec?))
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
