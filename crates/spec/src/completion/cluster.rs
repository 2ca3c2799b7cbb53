//! What all nodes of a cluster have in common.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::lists::{self, items};
use super::tectonic::{check_join, complete_tectonic, is_of_tectonics_time};
use super::{Check, artefacts, control_plane, default, derived, from, networks, or_default, ours, pki_folder};
use crate::catalog;
use crate::complete::{
    ClusterSpec, CompleteAssets, CompleteCluster, CompleteDnsController, CompleteEksctl, CompleteJoin,
    CompleteNetworking, CompletePki, CompleteProxy, CompleteTrust, DeliveryDefaults, DeliveryDefaultsSpec, JoinSpec,
    NetworkingSpec, NodestrapDefaults, ProxySpec, StoreDefaults, TrustSpec,
};
use crate::items::{Addresses, ExecCredential, Networks};
use crate::no_proxy::{NoProxyInputs, no_proxy};
use crate::origin::Setting;
use crate::record::{Place, Written};
use crate::syntax;
use crate::texts::Line;
use crate::values::{ClusterName, DomainName, Layout, PodNetwork, Provider};

/// 10.96.0.0/12.
const SERVICE_NETWORK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 96, 0, 0), 12));
/// 10.244.0.0/16.
const POD_NETWORK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16));
/// fd00:10:244::/56: 256 nodes with a /64 each.
const POD_NETWORK_V6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0), 56));

pub(super) fn complete_cluster(spec: &ClusterSpec, name: &Setting<ClusterName>, check: &Check<'_>) -> CompleteCluster {
    let layout = or_default(&spec.layout, || Layout::Nodestrap, "nodestrap's own paths");
    let kubernetes_version = spec.kubernetes_version.clone().unwrap_or_else(|| match layout.value {
        Layout::Tectonic => {
            default(catalog::release_of_tectonic_seeds().newest, "the release that the layout tectonic was made for")
        }
        _ => default(catalog::newest_kubernetes(), "the newest release that this version of nodestrap knows"),
    });
    let provider = or_default(&spec.provider, || Provider::Metal, "no provider's metadata is relied on");
    let of_tectonics_time = is_of_tectonics_time(layout.value, kubernetes_version.value);
    check_layout(&layout, of_tectonics_time, &provider, spec, check);
    check_join(spec, check);
    let networking = complete_networking(&spec.networking, layout.value, of_tectonics_time, check);
    networks::check_api_server(&spec.api_server, &networking, check);
    networks::check_sizes(spec, &networking, kubernetes_version.value, check);
    let assets = CompleteAssets {
        container_registry: or_default(
            &spec.assets.container_registry,
            || ours("registry.k8s.io"),
            "where Kubernetes publishes its images",
        ),
    };
    pki_folder::check_pki_folder(spec, check);
    check_lists(spec, check);
    let parts = control_plane::Inputs {
        spec,
        cluster_name: name,
        version: &kubernetes_version,
        networking: &networking,
        registry: &assets.container_registry,
        api_server: &spec.api_server,
    };
    CompleteCluster {
        region: spec.region.clone(),
        api_server: spec.api_server.clone(),
        join: complete_join(&spec.join, name, layout.value, check),
        proxy: complete_proxy(&spec.proxy, spec, &networking, provider.value, check),
        trust: complete_trust(&spec.trust),
        artefacts: spec.artefacts.as_ref().map(|written| artefacts::complete_artefacts(written, check)),
        packages: super::packages::packages_defaults(&spec.packages, check),
        registry_mirrors: or_default(&spec.registry_mirrors, BTreeMap::new, "images come from their own registries"),
        ntp_servers: or_default(&spec.ntp_servers, Vec::new, "the time servers of the image"),
        sysctls: or_default(&spec.sysctls, BTreeMap::new, "what nodestrap needs is set by group"),
        kernel_modules: or_default(&spec.kernel_modules, Vec::new, "what nodestrap needs is loaded by group"),
        file_assets: or_default(&spec.file_assets, Vec::new, NONE),
        hooks: or_default(&spec.hooks, Vec::new, NONE),
        units: or_default(&spec.units, Vec::new, NONE),
        additional_user_data: or_default(&spec.additional_user_data, Vec::new, NONE),
        delivery: delivery_defaults(&spec.delivery, check),
        report: super::report::complete_report(&spec.report, check),
        pki: CompletePki { folder: spec.pki.folder.clone() },
        kube_apiserver: control_plane::complete_apiserver(&parts, check),
        kube_controller_manager: control_plane::complete_controller_manager(&parts, check),
        kube_scheduler: control_plane::complete_scheduler(&parts, check),
        etcd: control_plane::complete_etcd(&parts, check),
        kube_proxy: control_plane::complete_proxy(&parts, check),
        dns_controller: CompleteDnsController {
            image: spec.dns_controller.image.clone(),
            command: or_default(&spec.dns_controller.command, Vec::new, "the entry point of the image"),
        },
        tectonic: of_layout(&spec.tectonic, Layout::Tectonic, &layout, check)
            .map(|tectonic| complete_tectonic(tectonic, &layout, &kubernetes_version, check)),
        eksctl: of_layout(&spec.eksctl, Layout::Eksctl, &layout, check).map(|eksctl| CompleteEksctl {
            ecr_account: or_default(
                &eksctl.ecr_account,
                || ours("602401143452"),
                "the account that has the images of EKS in most regions",
            ),
        }),
        networking,
        assets,
        kubernetes_version,
        provider,
        layout,
    }
}

pub(super) fn check_lists(spec: &ClusterSpec, check: &Check<'_>) {
    lists::check_files(&spec.file_assets, check);
    lists::check_hooks(&spec.hooks, check);
    lists::check_units(&spec.units, check);
    let (files, units, hooks) = (items(&spec.file_assets), items(&spec.units), items(&spec.hooks));
    lists::check_clashes(files, units, hooks, check);
    lists::report_twice(items(&spec.trust.certificate_authorities), "the certificate authority", check);
    lists::report_twice(items(&spec.trust.keyrings), "the keyring", check);
}

/// As the user wrote it: what is left out is decided by group.
fn delivery_defaults(spec: &DeliveryDefaultsSpec, check: &Check<'_>) -> DeliveryDefaults {
    DeliveryDefaults {
        format: spec.format.clone(),
        compression: spec.compression.clone(),
        nodestrap: NodestrapDefaults {
            installation: spec.nodestrap.installation.clone(),
            path: spec.nodestrap.path.clone(),
            urls: spec.nodestrap.urls.clone(),
            sha256: spec.nodestrap.sha256.clone(),
            sha512: spec.nodestrap.sha512.clone(),
        },
        store: StoreDefaults {
            urls: spec.store.urls.clone(),
            certificate_authority: spec.store.certificate_authority.clone(),
            s3: spec.store.s3.as_ref().map(|s3| artefacts::complete_s3(&s3.value, check)),
        },
    }
}

fn complete_trust(spec: &TrustSpec) -> CompleteTrust {
    CompleteTrust {
        certificate_authorities: or_default(&spec.certificate_authorities, Vec::new, "only what the image trusts"),
        keyrings: or_default(&spec.keyrings, Vec::new, "no signatures are relied on"),
    }
}

pub(super) const NONE: &str = "none are needed";

fn check_layout(
    layout: &Setting<Layout>,
    of_tectonics_time: bool,
    provider: &Setting<Provider>,
    spec: &ClusterSpec,
    check: &Check<'_>,
) {
    let is_other = layout.value == Layout::Eksctl || of_tectonics_time;
    if layout.value == Layout::Eksctl && spec.region.is_none() {
        check.report(Some(&layout.origin), "the layout eksctl tells nodes their region", "write region: … too");
    }
    if let Some(network) = &spec.networking.pod_network
        && network.value == PodNetwork::Bridge
        && is_other
    {
        check.report(
            Some(&network.origin),
            format!("the layout {} has no bridge of nodestrap's", layout.value),
            "a DaemonSet brings the network: write podNetwork: none, or leave it out",
        );
    }
    if let Some(kubeconfig) = &spec.kube_proxy.kubeconfig
        && is_other
    {
        check.report(
            Some(&kubeconfig.origin),
            format!("the layout {} has no static pod of kube-proxy", layout.value),
            "a DaemonSet brings it: remove kubeProxy.kubeconfig",
        );
    }
    if let Some(mirrors) = spec.registry_mirrors.as_ref().filter(|mirrors| !mirrors.value.is_empty())
        && of_tectonics_time
    {
        check.report(
            Some(&mirrors.origin),
            "docker, the runtime of the layout tectonic before 1.24, is told of mirrors by its own daemon.json",
            "write it with fileAssets: /etc/docker/daemon.json",
        );
    }
    if layout.value == Layout::Eksctl && provider.value != Provider::Aws {
        check.report(
            Some(&layout.origin),
            "the layout eksctl asks the metadata service of AWS",
            "write provider: aws, or leave out the layout",
        );
    }
}

fn complete_networking(
    spec: &NetworkingSpec,
    layout: Layout,
    of_tectonics_time: bool,
    check: &Check<'_>,
) -> CompleteNetworking {
    let service_cidrs = or_default(
        &spec.service_cidrs,
        || Networks(vec![SERVICE_NETWORK]),
        "what kubeadm and most installers give to services",
    );
    let cluster_dns = spec.cluster_dns.clone().unwrap_or_else(|| {
        derived(
            Addresses(service_cidrs.value.0.iter().filter_map(syntax::tenth_address).collect()),
            from("cluster.networking.serviceCIDRs"),
            "the tenth address of each service network, where the DNS service is by convention",
        )
    });
    let pod_cidrs = spec.pod_cidrs.clone().unwrap_or_else(|| {
        let of_family = |network: &IpNet| if network.addr().is_ipv4() { POD_NETWORK } else { POD_NETWORK_V6 };
        derived(
            Networks(service_cidrs.value.0.iter().map(of_family).collect()),
            from("cluster.networking.serviceCIDRs"),
            "one network for pods of each family that services have",
        )
    });
    networks::check(&pod_cidrs, &service_cidrs, &cluster_dns, check);
    CompleteNetworking {
        pod_network: spec.pod_network.clone().unwrap_or_else(|| match layout {
            Layout::Nodestrap | Layout::Tectonic if !of_tectonics_time => {
                default(PodNetwork::Bridge, "a node gets Ready without anything else installed in the cluster")
            }
            _ => derived(PodNetwork::None, from("cluster.layout"), "a DaemonSet brings the network in this layout"),
        }),
        pod_cidrs,
        service_cidrs,
        cluster_dns,
        cluster_domain: or_default(
            &spec.cluster_domain,
            DomainName::cluster_local,
            "the domain that Kubernetes' own manifests assume",
        ),
    }
}

fn complete_join(spec: &JoinSpec, name: &Setting<ClusterName>, layout: Layout, check: &Check<'_>) -> CompleteJoin {
    if let (Some(_), Some(exec)) = (&spec.bootstrap_token, &spec.exec) {
        check.report(
            Some(&exec.origin),
            "a node joins either with a token or with a program that gives credentials",
            "remove bootstrapToken or exec",
        );
    }
    let exec = spec.exec.clone().or_else(|| {
        (layout == Layout::Eksctl && spec.bootstrap_token.is_none()).then(|| {
            let arguments = vec![ours("token"), ours("-i"), ours::<Line>(name.value.as_str())];
            derived(
                ExecCredential {
                    command: ours("aws-iam-authenticator"),
                    arguments,
                    environment: BTreeMap::new(),
                    place: Place::default(),
                },
                from("cluster.name"),
                "nodes of EKS prove who they are by their role, which the image's authenticator shows",
            )
        })
    });
    CompleteJoin {
        bootstrap_token: spec.bootstrap_token.clone(),
        exec,
        certificate_authority: spec.certificate_authority.clone(),
    }
}

fn complete_proxy(
    spec: &ProxySpec,
    cluster: &ClusterSpec,
    networking: &CompleteNetworking,
    provider: Provider,
    check: &Check<'_>,
) -> CompleteProxy {
    let https = spec.https.clone().or_else(|| {
        let http = spec.http.as_ref()?;
        Some(derived(http.value.clone(), from("cluster.proxy.http"), "one proxy does for both"))
    });
    if spec.http.is_none() && https.is_none() {
        if let Some(credentials) = &spec.credentials {
            check.report(
                Some(&credentials.origin),
                "there are credentials for a proxy, and no proxy",
                "write its address as http or https beside them, or leave them out",
            );
        }
        let no_proxy = or_default(&spec.no_proxy, Vec::new, "there is no proxy");
        return CompleteProxy { http: None, https: None, credentials: None, no_proxy };
    }
    let user: Vec<String> = spec.no_proxy.iter().flat_map(|set| &set.value).map(ToString::to_string).collect();
    let computed = no_proxy(&NoProxyInputs {
        user: &user,
        api_server_host: cluster.api_server.value.host(),
        service_cidrs: &networking.service_cidrs.value.0,
        pod_cidrs: &networking.pod_cidrs.value.0,
        cluster_domain: networking.cluster_domain.value.as_str(),
        provider: provider.as_str(),
        stores: &[],
        mirrors: &[],
    });
    let list = computed.into_iter().map(|entry| ours(&entry.text)).collect();
    CompleteProxy {
        http: spec.http.clone(),
        https,
        credentials: spec.credentials.clone(),
        no_proxy: derived(
            list,
            vec![
                "cluster.apiServer".to_owned(),
                "cluster.networking".to_owned(),
                "cluster.provider".to_owned(),
                "cluster.proxy.noProxy".to_owned(),
            ],
            "what a node must reach directly: itself, the cluster's own networks and names, the metadata service",
        ),
    }
}

/// What belongs to one layout is there in that layout only.
fn of_layout<'s, T>(
    written: &'s Written<T>,
    wanted: Layout,
    layout: &Setting<Layout>,
    check: &Check<'_>,
) -> Option<&'s T> {
    if layout.value == wanted {
        return Some(&written.spec);
    }
    if let Some(origin) = &written.origin {
        check.report(
            Some(origin),
            format!("these settings belong to the layout {wanted}, and the layout is {}", layout.value),
            format!("remove them, or write layout: {wanted}"),
        );
    }
    None
}
