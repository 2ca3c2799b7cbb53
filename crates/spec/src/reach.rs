//! Which groups a value reaches: those for whose nodes something else would be rendered if it were another.
//!
//! A value is written to nodes as it is ([`of_cluster`], [`of_group`]), or values that are derived from it are: that is read
//! off their origins. What `render` does with each setting is known here by name; its test of `reaches` changes the settings
//! one by one and compares.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use bundle::Component;
use serde_json::Value;

use crate::complete::{CompleteArtefacts, CompleteCluster, CompleteNodeGroup, CompleteSpec};
use crate::items::MaxPods;
use crate::origin::Origin;
use crate::path::{Step, join};
use crate::record::Record as _;
use crate::texts::StoreUrl;
use crate::values::{DeliveryFormat, KubeVersion, Layout, Os, PodNetwork, Provider, Role, Runtime, SourceKind};
use crate::view::{Look, SecretDisplay, View};
use crate::written::Written;

/// What groups take over from the cluster, item by item, unless they have one of that name themselves.
const MERGED: [&str; 6] = ["sysctls", "kernelModules", "fileAssets", "hooks", "units", "additionalUserData"];
/// From here on no kubelet is told of the pause image.
const FIRST_WITHOUT_PAUSE_IMAGE: KubeVersion = KubeVersion { major: 1, minor: 35, patch: 0 };

pub(crate) struct Reach<'a> {
    spec: &'a CompleteSpec,
    written: &'a Written<'a>,
    ways: OnceCell<Ways>,
}

/// All that decides which values of the cluster come to a group; many groups have it in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    is_control_plane: bool,
    has_mirrors: bool,
    has_trees: bool,
    has_addon: bool,
    /// Paths of what those settings are derived from that are written to its nodes. `group.` stands for the group's own.
    sources: BTreeSet<String>,
}

struct Ways {
    ways: Vec<Way>,
    /// The index of the way of each group.
    of_groups: Vec<usize>,
    /// Settings of the cluster that are derived, and from what.
    derived: Vec<(String, Vec<String>)>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(spec: &'a CompleteSpec, written: &'a Written<'a>) -> Self {
        Self { spec, written, ways: OnceCell::new() }
    }

    /// The names of the groups that a part of a setting reaches; `value` is that of the setting, or of its entry.
    pub(crate) fn groups(&self, setting: &[String], value: &Value, part: &[Step]) -> Vec<String> {
        match setting {
            [root, group, field @ ..] if root == "nodeGroups" => {
                let groups = &self.spec.groups;
                let index = groups.binary_search_by(|member| member.name.value.as_str().cmp(group)).ok();
                let used = index.filter(|index| self.is_used(*index, &groups[*index], field));
                used.map(|index| &groups[index]).names()
            }
            [_, field] if MERGED.contains(&field.as_str()) => self.of_merged(field, value, part),
            _ => self.of_cluster(&join(setting.iter().map(String::as_str))),
        }
    }

    fn ways(&self) -> &Ways {
        self.ways.get_or_init(|| Ways::new(self.spec))
    }

    fn is_used(&self, index: usize, group: &CompleteNodeGroup, field: &[String]) -> bool {
        let field: Vec<&str> = field.iter().map(String::as_str).collect();
        let path = format!("group.{}", join(field.iter().copied()));
        of_group(self.spec, group, &field) || self.ways().of_group(index).has_source(&path)
    }

    /// Of an empty list or mapping: where its items would go.
    fn of_merged(&self, field: &str, value: &Value, part: &[Step]) -> Vec<String> {
        let path = format!("cluster.{field}");
        let items: Vec<Vec<Step>> = match value {
            Value::Array(items) if part.is_empty() => (0..items.len()).map(|index| vec![Step::Index(index)]).collect(),
            _ if part.is_empty() => Vec::new(),
            _ => vec![part[..1].to_vec()],
        };
        let takes_over = |(index, group): &(usize, &CompleteNodeGroup)| {
            let own = format!("nodeGroups.{}.{field}", group.name.value);
            items.is_empty()
                || self.ways().of_group(*index).has_source(&path)
                    && items.iter().any(|item| !self.written.has(&own, value, item))
        };
        self.spec.groups.iter().enumerate().filter(takes_over).map(|(_, group)| group).names()
    }

    fn of_cluster(&self, path: &str) -> Vec<String> {
        let ways = self.ways();
        let affected = ways.affected(path, &self.spec.cluster);
        let is_reached =
            |way: &Way| affected.iter().any(|path| way.has_source(path) || of_cluster(&self.spec.cluster, way, path));
        let reached: Vec<bool> = ways.ways.iter().map(is_reached).collect();
        let groups = self.spec.groups.iter().zip(&ways.of_groups);
        groups.filter(|(_, way)| reached[**way]).map(|(group, _)| group).names()
    }
}

trait Names {
    fn names(self) -> Vec<String>;
}

impl<'a, I: IntoIterator<Item = &'a CompleteNodeGroup>> Names for I {
    fn names(self) -> Vec<String> {
        self.into_iter().map(|group| group.name.value.to_string()).collect()
    }
}

/// Only what was decided: what components do by themselves is derived from nothing.
const DECIDED: Look = Look { secrets: SecretDisplay::Redacted, release: None };

impl Ways {
    fn new(spec: &CompleteSpec) -> Self {
        let mut known: BTreeMap<Way, usize> = BTreeMap::new();
        let mut of_groups = Vec::with_capacity(spec.groups.len());
        for group in &spec.groups {
            let next = known.len();
            of_groups.push(*known.entry(Way::of(spec, group)).or_insert(next));
        }
        let mut ways: Vec<(Way, usize)> = known.into_iter().collect();
        ways.sort_by_key(|(_, index)| *index);
        let mut derived = Vec::new();
        derivations(&spec.cluster.view(DECIDED), &mut vec!["cluster"], &mut derived);
        Self { ways: ways.into_iter().map(|(way, _)| way).collect(), of_groups, derived }
    }

    fn of_group(&self, index: usize) -> &Way {
        &self.ways[self.of_groups[index]]
    }

    /// A setting of the cluster, and all settings of the cluster that follow from it.
    fn affected(&self, path: &str, cluster: &CompleteCluster) -> Vec<String> {
        let mut affected = vec![path.to_owned()];
        let mut next = 0;
        while let Some(source) = affected.get(next).cloned() {
            next += 1;
            // Only the names of members are put together with the domain.
            if source == "cluster.etcd.domain" && cluster.etcd.members.value.is_empty() {
                continue;
            }
            for (path, from) in &self.derived {
                if from.iter().any(|from| overlap(from, &source)) && !affected.contains(path) {
                    affected.push(path.clone());
                }
            }
        }
        affected
    }
}

impl Way {
    fn of(spec: &CompleteSpec, group: &CompleteNodeGroup) -> Self {
        let runtime = &group.spec.container_runtime;
        Self {
            is_control_plane: group.spec.role.value == Role::ControlPlane,
            has_mirrors: runtime.name.value != Runtime::Docker,
            has_trees: group.spec.components.have_artefacts(),
            has_addon: group.spec.source.value == SourceKind::Torcx,
            sources: sources(spec, group),
        }
    }

    fn has_source(&self, path: &str) -> bool {
        self.sources.iter().any(|source| overlap(source, path))
    }
}

/// One of them is the other, or a part of it.
fn overlap(one: &str, other: &str) -> bool {
    let is_below = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
    one == other || is_below(one, other) || is_below(other, one)
}

/// Settings that are derived, and from what. The entries of a mapping have one origin.
fn derivations<'v>(view: &'v View<'_>, segments: &mut Vec<&'v str>, found: &mut Vec<(String, Vec<String>)>) {
    match view {
        View::Leaf(_, Origin::Derived { from, .. }) => found.push((join(segments.iter().copied()), from.clone())),
        View::Entry(_, Origin::Derived { from, .. }) => {
            let path = join(segments[..segments.len().saturating_sub(1)].iter().copied());
            if found.last().is_none_or(|(last, _)| *last != path) {
                found.push((path, from.clone()));
            }
        }
        View::Leaf(..) | View::Entry(..) | View::BuiltIn(..) => {}
        View::Branch(fields) => {
            for (name, below) in fields {
                segments.push(name);
                derivations(below, segments, found);
                segments.pop();
            }
        }
    }
}

fn sources(spec: &CompleteSpec, group: &CompleteNodeGroup) -> BTreeSet<String> {
    let mut rest = Vec::new();
    derivations(&group.spec.view(DECIDED), &mut vec!["group"], &mut rest);
    let mut sources: BTreeSet<String> = BTreeSet::new();
    // What is not written itself may be what something is derived from that is, and so on.
    loop {
        let is_used = |(path, _): &(String, Vec<String>)| {
            let field: Vec<&str> = path.split('.').skip(1).collect();
            of_group(spec, group, &field) || sources.iter().any(|source| overlap(source, path))
        };
        let (used, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_used);
        if used.is_empty() {
            return sources;
        }
        let own = format!("nodeGroups.{}.", group.name.value);
        for (path, from) in used {
            let from = from.into_iter().filter(|from| counts(from, &path, &spec.cluster));
            sources.extend(from.map(|from| match from.strip_prefix(&own) {
                Some(field) => format!("group.{field}"),
                None => from,
            }));
        }
        rest = others;
    }
}

/// Only nodestrap's own layout, and what is like it, forwards the packets of pods by a kernel parameter of its own.
fn counts(from: &str, path: &str, cluster: &CompleteCluster) -> bool {
    from != "cluster.networking.podCIDRs" || path != "group.sysctls" || cluster.is_like_nodestraps()
}

/// Whether a setting of the cluster is written to nodes as it is.
fn of_cluster(cluster: &CompleteCluster, way: &Way, path: &str) -> bool {
    let path: Vec<&str> = path.split('.').skip(1).collect();
    let own_layout = cluster.is_like_nodestraps();
    let has_static_pods = cluster.layout.value == Layout::Nodestrap && way.is_control_plane;
    match path.as_slice() {
        ["name" | "provider" | "layout" | "apiServer" | "ntpServers"] => true,
        ["tectonic", "bootkube"] => way.is_control_plane,
        ["tectonic", "manifestURL" | "verifySignatures" | "torcxProfile" | "mappingsConfigMap", ..] => way.has_addon,
        ["trust" | "tectonic" | "eksctl", ..] => true,
        ["region"] => cluster.layout.value == Layout::Eksctl,
        // A control plane joins with what it has in its folder of keys.
        ["join", ..] => !has_static_pods,
        ["networking", "podNetwork"] => own_layout,
        ["proxy", "noProxy" | "credentials"] => cluster.proxy.http.is_some() || cluster.proxy.https.is_some(),
        ["proxy", ..] => true,
        ["report", ..] => cluster.report.webhook.is_some(),
        // Whoever vouches already goes on to do so.
        ["artefacts", "keyrings"] => way.has_trees && cluster.artefacts.as_ref().is_some_and(is_of_nobody),
        ["artefacts", "unsigned" | "minimumSerial"] => false,
        ["artefacts", ..] => way.has_trees,
        ["registryMirrors", ..] => way.has_mirrors,
        // By their flags, if at all.
        ["etcd", "members" | "domain" | "dataFolder"] => false,
        ["pki" | "kubeApiserver" | "kubeControllerManager" | "kubeScheduler" | "etcd", ..] => has_static_pods,
        ["dnsController", ..] => has_static_pods && cluster.dns_controller.image.is_some(),
        ["kubeProxy", ..] => own_layout && cluster.kube_proxy.kubeconfig.is_some(),
        // What groups take over, or follow.
        _ => false,
    }
}

fn installs_packages(group: &crate::complete::CompleteGroup) -> bool {
    group.components.packages().next().is_some() || !group.packages.prerequisites.value.is_empty()
}

fn is_of_nobody(artefacts: &CompleteArtefacts) -> bool {
    artefacts.unsigned.value && artefacts.keyrings.value.is_empty()
}

/// Whether a setting of a group is written to its nodes, or to the request for its machines, as it is.
fn of_group(spec: &CompleteSpec, group: &CompleteNodeGroup, field: &[&str]) -> bool {
    let (cluster, group) = (&spec.cluster, &group.spec);
    let (layout, delivery) = (cluster.layout.value, &group.delivery);
    let runtime = &group.container_runtime;
    let (provider, format) = (cluster.provider.value, delivery.format.value);
    // Only what is too large for the provider's user data goes there, which nobody knows before it is rendered.
    let may_need_store = format != DeliveryFormat::Folder && provider != Provider::Metal;
    let size_is_known = provider == Provider::Aws && group.machines.instance_type.is_some();
    match field {
        ["architecture"] => group.components.have_artefacts(),
        // What is not installed comes from nowhere.
        ["packages", "repositories"] => installs_packages(group),
        ["machines", "prefixDelegation"] => size_is_known && group.max_pods.value == MaxPods::Map,
        ["reservation"] => size_is_known,
        ["kubelet", "binary"] => layout != Layout::Eksctl || group.os.value != Os::Ubuntu,
        ["kubelet", "config", ..] => !cluster.is_of_tectonics_time(),
        ["containerRuntime", "config", ..] => runtime.name.value == Runtime::Containerd,
        ["containerRuntime", "sandboxImage"] => {
            let chosen = matches!(runtime.sandbox_image.origin, Origin::User(_));
            layout == Layout::Eksctl
                && group.kubernetes_version.value < FIRST_WITHOUT_PAUSE_IMAGE
                && (chosen || runtime.name.value != Runtime::Docker)
        }
        ["containerRuntime", "cniBinaries"] => {
            cluster.networking.pod_network.value == PodNetwork::Bridge
                || group.components.is_brought(Component::CniPlugins)
        }
        ["containerRuntime", "binary"] => {
            let runs_hooks = group.hooks.value.iter().any(|hook| hook.container.is_some());
            group.source.value != SourceKind::Torcx || runs_hooks
        }
        ["delivery", "compression"] => {
            matches!(provider, Provider::Aws | Provider::Openstack)
                && matches!(format, DeliveryFormat::CloudConfig | DeliveryFormat::Mime)
        }
        ["delivery", "store", "urls"] => may_need_store,
        ["delivery", "store", "s3", ..] => may_need_store && delivery.store.urls.value.iter().any(StoreUrl::is_bucket),
        ["delivery", "store", ..] => may_need_store && !delivery.store.urls.value.is_empty(),
        _ => true,
    }
}
