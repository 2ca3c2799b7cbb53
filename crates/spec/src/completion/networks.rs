//! Which networks of pods and services fit together, and what their components take.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Check;
use crate::complete::{ClusterSpec, CompleteNetworking};
use crate::items::{Addresses, Networks};
use crate::origin::{Origin, Setting};
use crate::values::{ApiServerUrl, KubeVersion, PodNetwork, family};

/// From here on the API server takes service networks of any size.
const FIRST_WITH_LARGE_SERVICE_NETWORKS: KubeVersion = KubeVersion { major: 1, minor: 33, patch: 0 };
/// Before, as many bits of a service's address were its own.
const MOST_SERVICE_BITS: u8 = 20;
/// The controller manager divides a network of pods into so many parts at most: two to the power of this.
const MOST_NODE_BITS: u8 = 16;
/// A resolver asks no more.
const MOST_DNS_SERVERS: usize = 3;

/// What can be said of the networks alone.
pub(super) fn check(
    pods: &Setting<Networks>,
    services: &Setting<Networks>,
    dns: &Setting<Addresses>,
    check: &Check<'_>,
) {
    let of_user = |origin: &&Origin| matches!(origin, Origin::User(_));
    let either = [&pods.origin, &services.origin].into_iter().find(of_user);
    for pods in &pods.value.0 {
        for services in &services.value.0 {
            if pods.contains(services) || services.contains(pods) {
                check.report(
                    either,
                    format!("the network of pods {pods} and that of services {services} overlap"),
                    "an address can belong to one of them only: choose networks apart",
                );
            }
        }
    }
    let has = |networks: &Networks, address: IpAddr| {
        networks.0.iter().any(|network| family(network.addr()) == family(address))
    };
    for network in services.value.0.iter().filter(|network| !has(&pods.value, network.addr())) {
        check.report(
            either,
            format!("services have {} addresses, and pods have none", family(network.addr())),
            "write a network of that family in podCIDRs, or leave podCIDRs out",
        );
    }
    for network in pods.value.0.iter().chain(&services.value.0).filter(|network| is_special(network.addr())) {
        check.report(
            either,
            format!("{network} is reserved for other purposes"),
            "choose a private network, for example 10.244.0.0/16 or fd00:10:244::/56",
        );
    }
    if of_user(&&dns.origin) {
        check_dns(pods, services, dns, &has, check);
    }
}

/// Nodes reach the API server before there are any services and pods.
pub(super) fn check_api_server(api_server: &Setting<ApiServerUrl>, networking: &CompleteNetworking, check: &Check<'_>) {
    let Ok(address) = api_server.value.host().parse::<IpAddr>() else { return };
    for (what, field, networks) in [
        ("services", "serviceCIDRs", &networking.service_cidrs.value),
        ("pods", "podCIDRs", &networking.pod_cidrs.value),
    ] {
        if let Some(network) = networks.0.iter().find(|network| network.contains(&address)) {
            check.report(
                Some(&api_server.origin),
                format!(
                    "{address} is in the network of {what} {network}, whose addresses Kubernetes gives away itself"
                ),
                format!("write the address that the machine has, or choose another network: networking.{field}"),
            );
        }
    }
}

fn check_dns(
    pods: &Setting<Networks>,
    services: &Setting<Networks>,
    dns: &Setting<Addresses>,
    has: &dyn Fn(&Networks, IpAddr) -> bool,
    check: &Check<'_>,
) {
    let addresses = &dns.value.0;
    let refuse = |message: String, advice: &str| check.report(Some(&dns.origin), message, advice);
    if addresses.len() > MOST_DNS_SERVERS {
        refuse(format!("{} addresses of DNS servers", addresses.len()), "pods ask three at most");
    }
    for (index, address) in addresses.iter().enumerate() {
        if addresses[..index].contains(address) {
            refuse(format!("{address} is there twice"), "remove one of them");
        }
        if pods.value.0.iter().any(|pods| pods.contains(address)) {
            refuse(
                format!("{address} is an address of a pod, which changes"),
                "write the address of the DNS service, in serviceCIDRs",
            );
        }
        if !has(&services.value, *address) {
            refuse(
                format!("{address} is an {} address, and services have none", family(*address)),
                "write an address in serviceCIDRs",
            );
        }
        if let Some(network) = services.value.0.iter().find(|network| network.contains(address))
            && let Some(taken) = taken(network, *address)
        {
            refuse(format!("{address} is {taken}"), "the tenth address of the network is what most clusters use");
        }
    }
}

/// What else has this address of a service network.
fn taken(network: &IpNet, address: IpAddr) -> Option<&'static str> {
    let mut hosts = network.hosts();
    match address {
        _ if address == network.network() => Some("the network itself"),
        _ if hosts.find(|host| *host != network.network()) == Some(address) => Some("the API server's own service"),
        IpAddr::V4(_) if address == network.broadcast() => Some("the last address, which no service gets"),
        _ => None,
    }
}

/// Loopback, multicast, link-local, IPv4 in IPv6 and what stands for nothing.
fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_multicast() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some()
                || v6.is_unspecified()
        }
    }
}

/// What the API server and the controller manager of the release refuse at their start.
pub(super) fn check_sizes(
    spec: &ClusterSpec,
    networking: &CompleteNetworking,
    version: KubeVersion,
    check: &Check<'_>,
) {
    for network in &networking.service_cidrs.value.0 {
        let bits = network.max_prefix_len() - network.prefix_len();
        if version < FIRST_WITH_LARGE_SERVICE_NETWORKS && bits > MOST_SERVICE_BITS {
            let smallest = network.max_prefix_len() - MOST_SERVICE_BITS;
            check.report(
                Some(&networking.service_cidrs.origin),
                format!("the API server of {version} refuses {network}: it is too large"),
                format!("/{smallest} is the largest network of services before Kubernetes 1.33"),
            );
        }
    }
    if networking.pod_network.value != PodNetwork::Bridge {
        return;
    }
    for network in &networking.pod_cidrs.value.0 {
        let (own_flag, default) =
            if network.addr().is_ipv4() { ("node-cidr-mask-size-ipv4", 24) } else { ("node-cidr-mask-size-ipv6", 64) };
        let flags = &spec.kube_controller_manager.flags;
        let said = [own_flag, "node-cidr-mask-size"].into_iter().find_map(|flag| flags.get(flag));
        let of_node: u8 = said.and_then(|said| said.value.parse().ok()).unwrap_or(default);
        let advice =
            format!("choose another network, or the size of a node's part: kubeControllerManager.flags.{own_flag}");
        if network.prefix_len() > of_node {
            check.report(
                Some(&networking.pod_cidrs.origin),
                format!("{network} is too small: each node gets a /{of_node} of it"),
                advice,
            );
        } else if of_node - network.prefix_len() > MOST_NODE_BITS {
            check.report(
                Some(&networking.pod_cidrs.origin),
                format!("the controller manager refuses {network}: it has more than 65536 parts of /{of_node}"),
                advice,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_taken() {
        let taken = |network: &str, address: &str| taken(&network.parse().unwrap(), address.parse().unwrap());
        assert_eq!(taken("10.96.0.0/12", "10.96.0.10"), None);
        assert_eq!(taken("10.96.0.0/12", "10.96.0.0"), Some("the network itself"));
        assert_eq!(taken("10.96.0.0/12", "10.96.0.1"), Some("the API server's own service"));
        assert_eq!(taken("10.96.0.0/28", "10.96.0.15"), Some("the last address, which no service gets"));
        assert_eq!(taken("fd00::/112", "fd00::"), Some("the network itself"));
        assert_eq!(taken("fd00::/112", "fd00::1"), Some("the API server's own service"));
        assert_eq!(taken("fd00::/112", "fd00::a"), None);
    }
}
