//! `NO_PROXY`, computed: what a node must always reach directly, then what the user adds.
//!
//! The syntax is that of Go's `httpproxy`, which the kubelet, containerd and image credential plug-ins use: a name with
//! all below it, `.name` for only what is below it, an address, a network (for addresses written in URLs), each but the
//! network with an optional port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::syntax::validate_dns_subdomain;
use crate::values::Invalid;

pub(crate) struct NoProxyInputs<'a> {
    /// Checked by [`validate_entry`].
    pub(crate) user: &'a [String],
    /// A name or an address, without brackets and port.
    pub(crate) api_server_host: &'a str,
    pub(crate) service_cidrs: &'a [IpNet],
    pub(crate) pod_cidrs: &'a [IpNet],
    pub(crate) cluster_domain: &'a str,
    /// `aws`, `gce`, `azure` or anything else.
    pub(crate) provider: &'a str,
    /// Hosts of the object stores that are reached directly.
    pub(crate) stores: &'a [String],
    /// Hosts of the registry mirrors that are reached directly.
    pub(crate) mirrors: &'a [String],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Loopback,
    Metadata,
    ApiServer,
    Services,
    Pods,
    ServiceNames,
    ClusterDomain,
    ProviderNames,
    Store,
    Mirror,
    User,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) reason: Reason,
}

/// In the order of [`Reason`], each entry once, with the first reason that it has.
pub(crate) fn no_proxy(inputs: &NoProxyInputs<'_>) -> Vec<Entry> {
    let mut list = List::default();
    list.add(Reason::Loopback, ["localhost", "127.0.0.0/8", "::1"]);
    list.add(Reason::Metadata, ["169.254.169.254"]);
    list.add(Reason::Metadata, metadata_of(inputs.provider).iter().copied());
    list.add(Reason::ApiServer, [inputs.api_server_host]);
    list.add(Reason::Services, inputs.service_cidrs.iter().map(IpNet::to_string));
    list.add(Reason::Pods, inputs.pod_cidrs.iter().map(IpNet::to_string));
    list.add(Reason::ServiceNames, [".svc"]);
    list.add(Reason::ClusterDomain, [format!(".{}", inputs.cluster_domain)]);
    list.add(Reason::ProviderNames, names_of(inputs.provider).iter().copied());
    list.add(Reason::Store, inputs.stores.iter().map(String::as_str));
    list.add(Reason::Mirror, inputs.mirrors.iter().map(String::as_str));
    list.add(Reason::User, inputs.user.iter().map(String::as_str));
    list.entries
}

/// The value of the environment variable.
#[cfg(test)]
fn join(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>().join(",")
}

/// What the provider's metadata service is reached by, besides 169.254.169.254, which nearly all have.
fn metadata_of(provider: &str) -> &'static [&'static str] {
    match provider {
        "aws" => &["fd00:ec2::254"],
        "gce" => &["metadata.google.internal"],
        // The address of the wire server, which the guest agent and health probes use.
        "azure" => &["168.63.129.16"],
        _ => &[],
    }
}

fn names_of(provider: &str) -> &'static [&'static str] {
    match provider {
        // us-east-1 has names of its own.
        "aws" => &[".compute.internal", ".ec2.internal"],
        "gce" => &[".internal"],
        "azure" => &[".internal.cloudapp.net"],
        _ => &[],
    }
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    seen: BTreeSet<String>,
}

impl List {
    fn add<T: Into<String>>(&mut self, reason: Reason, texts: impl IntoIterator<Item = T>) {
        for text in texts {
            let text = text.into();
            if self.seen.insert(meaning(&text)) {
                self.entries.push(Entry { text, reason });
            }
        }
    }
}

/// Equal for entries that match the same.
fn meaning(entry: &str) -> String {
    let lower = entry.to_lowercase();
    if let Ok(network) = lower.parse::<IpNet>() {
        let whole = network.prefix_len() == network.max_prefix_len();
        return if whole { network.addr().to_string() } else { network.trunc().to_string() };
    }
    if let Ok(address) = lower.parse::<IpAddr>() {
        return address.to_string();
    }
    lower.strip_prefix("*.").map_or(lower.clone(), |rest| format!(".{rest}"))
}

/// Refuses what Go would quietly never match.
pub(crate) fn validate_entry(text: &str) -> Result<(), Invalid> {
    let bad = |why: &str| Invalid::new(format!("\"{text}\" cannot be excluded from the proxy: {why}"));
    const SHAPE: &str = "write a name (example.com), only what is below it (.example.com), an address or a network \
                         (10.0.0.0/8)";
    if text.is_empty() {
        return Err(bad("it is empty").advise(SHAPE));
    }
    if text.contains(|c: char| c == ',' || c.is_whitespace()) {
        return Err(bad("it is more than one entry").advise("write each as an entry of the list"));
    }
    if text == "*" {
        return Err(bad("\"*\" turns the proxy off for everything").advise("leave out the proxy instead"));
    }
    if let Some((_, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        return Err(bad("it is a URL").advise(format!("write its host: {host}")));
    }
    if text.parse::<IpAddr>().is_ok() || text.parse::<IpNet>().is_ok() {
        return Ok(());
    }
    if text.contains('/') {
        return Err(bad("it is not a network").advise("write ADDRESS/PREFIX, for example 10.0.0.0/8 or fd00::/8"));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let address = rest.split(']').next().unwrap_or_default();
        return match rest.split_once("]:") {
            Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() && is_port(port) => Ok(()),
            _ => Err(bad("brackets are for an IPv6 address with a port")
                .advise(format!("write {address}, or [{address}]:PORT"))),
        };
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    if port.is_some_and(|port| !is_port(port)) {
        return Err(bad("what follows \":\" is not a port").advise("write HOST:PORT, with a port from 1 to 65535"));
    }
    if host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let name = host.strip_prefix("*.").or_else(|| host.strip_prefix('.')).unwrap_or(host);
    // A name whose last label is a number can only be meant as part of an address.
    let last = name.trim_end_matches(['.', '*']).rsplit('.').next().unwrap_or_default();
    if !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad("parts of an address match nothing").advise("write a network, for example 10.0.0.0/8"));
    }
    if name.contains('*') {
        return Err(bad("\"*\" has a meaning in front of a domain only").advise("write .example.com for all below it"));
    }
    validate_dns_subdomain(&name.to_ascii_lowercase()).map_err(|_| bad("it is not a DNS name").advise(SHAPE))
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(provider: &str, api_server_host: &str, user: &[&str]) -> Vec<Entry> {
        let user: Vec<String> = user.iter().map(|&entry| entry.to_owned()).collect();
        no_proxy(&NoProxyInputs {
            user: &user,
            api_server_host,
            service_cidrs: &["10.96.0.0/12".parse().unwrap(), "fd00:96::/112".parse().unwrap()],
            pod_cidrs: &["10.244.0.0/16".parse().unwrap()],
            cluster_domain: "cluster.local",
            provider,
            stores: &["store.example.com".to_owned()],
            mirrors: &["mirror.example.com:5000".to_owned()],
        })
    }

    #[test]
    fn the_list_has_all_that_a_node_reaches_directly() {
        assert_eq!(
            join(&list("aws", "api.example.com", &["example.org", "10.0.0.0/8"])),
            "localhost,127.0.0.0/8,::1,169.254.169.254,fd00:ec2::254,api.example.com,10.96.0.0/12,fd00:96::/112,\
             10.244.0.0/16,.svc,.cluster.local,.compute.internal,.ec2.internal,store.example.com,\
             mirror.example.com:5000,example.org,10.0.0.0/8"
        );
    }

    #[test]
    fn each_provider_adds_its_own() {
        let added = |provider: &str| {
            let of_none = list("none", "api", &[]);
            let added: Vec<String> =
                list(provider, "api", &[]).into_iter().filter(|e| !of_none.contains(e)).map(|e| e.text).collect();
            added.join(" ")
        };
        assert_eq!(added("aws"), "fd00:ec2::254 .compute.internal .ec2.internal");
        assert_eq!(added("gce"), "metadata.google.internal .internal");
        assert_eq!(added("azure"), "168.63.129.16 .internal.cloudapp.net");
        assert_eq!(added("openstack"), "");
    }

    #[test]
    fn an_entry_stands_once_with_its_first_reason() {
        let user = ["LOCALHOST", "10.96.7.0/12", "*.svc", "0:0::1", "Store.example.com", "a.example", "A.EXAMPLE"];
        let entries = list("none", "127.0.0.1", &[user.as_slice(), &["127.0.0.1/32", ".a.example"]].concat());
        let of_user: Vec<&str> = entries.iter().filter(|e| e.reason == Reason::User).map(|e| e.text.as_str()).collect();
        assert_eq!(of_user, ["a.example", ".a.example"]);
        let reason = |text: &str| entries.iter().find(|entry| entry.text == text).map(|entry| entry.reason);
        assert_eq!(reason("127.0.0.1"), Some(Reason::ApiServer));
        assert_eq!(reason("10.96.0.0/12"), Some(Reason::Services));
        assert!(entries.is_sorted_by_key(|entry| entry.reason));
    }

    #[test]
    fn what_is_computed_is_what_a_user_may_write() {
        for provider in ["aws", "gce", "azure", "none"] {
            for entry in list(provider, "fd00::1", &[]) {
                assert_eq!(validate_entry(&entry.text), Ok(()), "{}", entry.text);
            }
        }
    }

    #[test]
    fn entries_that_would_never_match_are_refused() {
        for good in [
            "example.com",
            ".example.com",
            "*.example.com",
            "a.b:8080",
            "10.0.0.1",
            "10.0.0.1:80",
            "[fd00::1]:6443",
            "fd00::/8",
            "::1",
            "registry",
            "EXAMPLE.com",
        ] {
            assert_eq!(validate_entry(good), Ok(()), "{good}");
        }
        for (bad, advice) in [
            ("", "write a name"),
            ("a,b", "each as an entry"),
            ("a b", "each as an entry"),
            ("*", "leave out the proxy"),
            ("https://a.b/c", "write its host: a.b"),
            ("10.0.0.0/33", "ADDRESS/PREFIX"),
            ("a.b/c", "ADDRESS/PREFIX"),
            ("[fd00::1]", "write fd00::1, or [fd00::1]:PORT"),
            ("[a]:80", "PORT"),
            ("a:0", "1 to 65535"),
            ("a:http", "1 to 65535"),
            ("10.", "10.0.0.0/8"),
            ("192.168", "10.0.0.0/8"),
            ("10.*", "10.0.0.0/8"),
            ("a.*.b", ".example.com"),
            ("*a.b", ".example.com"),
            ("a_b", "write a name"),
            ("..a", "write a name"),
            (".", "write a name"),
        ] {
            let invalid = validate_entry(bad).unwrap_err();
            assert!(invalid.advice.as_deref().is_some_and(|given| given.contains(advice)), "{bad}: {invalid:?}");
        }
    }
}
