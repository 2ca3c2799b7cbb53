//! Every decision the user left open, made: pure, and the same for the same spec.

mod containerd;
mod kubelet;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value;

use crate::catalog::{self, Release};
use crate::complete::{
    CompleteCluster, CompleteContainerRuntime, CompleteGroup, CompleteJoin, CompleteKubelet, CompleteNetworking,
    CompleteSpec, ConfigNode, ConfigTree,
};
use crate::config::{self, ShapeConflict};
use crate::decode::Drafts;
use crate::document::{GroupSpec, NetworkingSpec, Spec};
use crate::mistake::Mistake;
use crate::origin::{Origin, Setting};
use crate::path;
use crate::source::{Sources, Span};
use crate::syntax;
use crate::values::{DomainName, PodNetwork, Role, RuntimeSource};

/// Fails only where the user contradicts what nodestrap must decide, or one decision of theirs another.
pub fn complete(spec: &Spec) -> Result<CompleteSpec, Vec<Mistake>> {
    let check = Check { sources: &spec.sources, drafts: Drafts::new(&spec.sources) };
    let kubernetes_version = spec.cluster.kubernetes_version.clone().unwrap_or_else(|| {
        default(catalog::newest_kubernetes(), "the newest release that this version of nodestrap knows")
    });
    let release = catalog::find_release(kubernetes_version.value).unwrap_or_else(|_| catalog::newest_release());
    let cluster = CompleteCluster {
        name: spec.cluster.name.clone(),
        kubernetes_version,
        api_server: spec.cluster.api_server.clone(),
        join: CompleteJoin {
            bootstrap_token: spec.cluster.bootstrap_token.clone(),
            certificate_authority: spec.cluster.certificate_authority.clone(),
        },
        networking: complete_networking(&spec.cluster.networking),
    };
    let groups = spec.groups.iter().map(|group| complete_group(group, &cluster, release, &check)).collect();
    let mistakes = check.drafts.finish();
    if mistakes.is_empty() { Ok(CompleteSpec { cluster, groups }) } else { Err(mistakes) }
}

fn default<T>(value: T, reason: &'static str) -> Setting<T> {
    Setting { value, origin: Origin::Default { reason } }
}

fn derived<T>(value: T, from: Vec<String>, rule: &'static str) -> Setting<T> {
    Setting { value, origin: Origin::Derived { from, rule } }
}

fn or_default<T: Clone>(setting: &Option<Setting<T>>, value: impl FnOnce() -> T, reason: &'static str) -> Setting<T> {
    setting.clone().unwrap_or_else(|| default(value(), reason))
}

fn complete_networking(spec: &NetworkingSpec) -> CompleteNetworking {
    let service_cidrs =
        or_default(&spec.service_cidrs, || vec![SERVICE_NETWORK], "what kubeadm and most installers give to services");
    let cluster_dns = spec.cluster_dns.clone().unwrap_or_else(|| {
        derived(
            service_cidrs.value.iter().filter_map(syntax::tenth_address).collect(),
            vec!["cluster.networking.serviceCIDRs".to_owned()],
            "the tenth address of each service network, where the DNS service is by convention",
        )
    });
    CompleteNetworking {
        pod_network: or_default(
            &spec.pod_network,
            || PodNetwork::Bridge,
            "a node gets Ready without anything else installed in the cluster",
        ),
        service_cidrs,
        cluster_dns,
        cluster_domain: or_default(
            &spec.cluster_domain,
            DomainName::cluster_local,
            "the domain that Kubernetes' own manifests assume",
        ),
    }
}

/// 10.96.0.0/12.
const SERVICE_NETWORK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12));

fn complete_group(spec: &GroupSpec, cluster: &CompleteCluster, release: &Release, check: &Check<'_>) -> CompleteGroup {
    let labels = or_default(&spec.labels, BTreeMap::new, "no labels but those the kubelet sets itself");
    let taints = or_default(&spec.taints, Vec::new, "every pod may run on these nodes");
    let name = spec.name.value.as_str();
    let kubelet = CompleteKubelet {
        binary: or_default(
            &spec.kubelet.binary,
            || "/usr/bin/kubelet".to_owned(),
            "where the packages of Kubernetes put it",
        ),
        config: kubelet::complete_config(spec, cluster, &taints, check),
        flags: kubelet::complete_flags(spec, name, &labels, check),
    };
    let container_runtime = complete_runtime(spec, cluster, &kubelet, release, check);
    CompleteGroup {
        name: spec.name.clone(),
        role: or_default(&spec.role, || Role::Worker, "the only role this version can bootstrap"),
        labels,
        taints,
        kubelet,
        container_runtime,
    }
}

fn complete_runtime(
    spec: &GroupSpec,
    cluster: &CompleteCluster,
    kubelet: &CompleteKubelet,
    release: &Release,
    check: &Check<'_>,
) -> CompleteContainerRuntime {
    let runtime = &spec.container_runtime;
    let sandbox_image = or_default(
        &runtime.sandbox_image,
        || release.sandbox_image.to_owned(),
        "the pause image, pinned so that garbage collection never removes it",
    );
    let cni_binaries = or_default(
        &runtime.cni_binaries,
        || "/opt/cni/bin".to_owned(),
        "where the packages of the CNI plug-ins put them",
    );
    let config = containerd::complete_config(
        &containerd::Inputs { spec, cluster, kubelet, sandbox_image: &sandbox_image, cni_binaries: &cni_binaries },
        check,
    );
    CompleteContainerRuntime {
        source: or_default(
            &runtime.source,
            || RuntimeSource::Preinstalled,
            "nodestrap installs nothing that the image has already",
        ),
        binary: or_default(
            &runtime.binary,
            || "/usr/bin/containerd".to_owned(),
            "where the packages of containerd put it",
        ),
        sandbox_image,
        cni_binaries,
        config,
    }
}

/// Mistakes found while decisions are put together.
pub(crate) struct Check<'a> {
    sources: &'a Sources,
    drafts: Drafts<'a>,
}

impl Check<'_> {
    fn span(&self, origin: Option<&Origin>) -> Span {
        match origin {
            Some(Origin::User(position)) => self.sources.span(position),
            // Only values of the user are ever reported; the start of the input is a safe place for the impossible.
            _ => Span { file: 0, line: 1, column: 1, end_line: 1, end_column: 2 },
        }
    }

    fn report(&self, origin: Option<&Origin>, message: String, advice: String) {
        self.drafts.report(self.span(origin), message).advise(advice);
    }

    /// Reports the user's leaf at `path` unless `accepts` says that it agrees with what nodestrap decides.
    fn agree(
        &self,
        user: &ConfigTree,
        path: &[&str],
        accepts: impl FnOnce(&Value) -> bool,
        message: impl FnOnce() -> (String, String),
    ) {
        if let Some(node) = config::find(user, path)
            && !accepts(&config::node_to_json(node))
        {
            let (message, advice) = message();
            self.report(config::origin_of(node), message, advice);
        }
    }

    fn report_conflicts(&self, conflicts: Vec<ShapeConflict>) {
        for conflict in conflicts {
            let path = path::join(conflict.path.iter().map(String::as_str));
            self.report(
                conflict.origin.as_ref(),
                format!("{path} must be {}", conflict.needed),
                "nodestrap's own configuration is laid out so; write only the fields that you want to change"
                    .to_owned(),
            );
        }
    }
}

/// Defaults of ours, then the user's tree over them.
fn overlay(mut ours: ConfigTree, user: &ConfigTree, check: &Check<'_>) -> ConfigTree {
    let mut conflicts = Vec::new();
    config::merge(&mut ours, user, &mut conflicts);
    check.report_conflicts(conflicts);
    ours
}

fn leaf_text<'t>(tree: &'t ConfigTree, path: &[&str]) -> Option<&'t str> {
    match config::find(tree, path) {
        Some(ConfigNode::Leaf(setting)) => setting.value.as_str(),
        _ => None,
    }
}
