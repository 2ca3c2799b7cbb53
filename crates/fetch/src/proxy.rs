//! The proxy between this machine and the stores, and who is reached without it.
//!
//! What is excluded is written as Go's `httpproxy` reads it, since the spec's list is for the kubelet and the runtime too: a
//! name with all below it, `.name` for only what is below it, an address, a network, each but the network with an optional
//! port. This machine itself and the metadata services are never reached through a proxy, whatever the list says.

use std::net::IpAddr;

use data_encoding::BASE64;
use hyper::header::HeaderValue;
use ipnet::IpNet;

use crate::connect::{is_link_local, is_metadata_service, is_this_machine};
use crate::error::FetchError;
use crate::location::Location;

/// Names of services that live at link-local addresses.
const METADATA_NAMES: [&str; 2] = ["metadata.google.internal", "metadata"];

/// No `Debug`: it may hold a password.
pub struct Proxy {
    location: Location,
    authorization: Option<HeaderValue>,
    excluded: Vec<Excluded>,
}

struct Excluded {
    host: Host,
    port: Option<u16>,
}

enum Host {
    Everything,
    Network(IpNet),
    /// In lower case.
    Name {
        name: String,
        itself: bool,
    },
}

impl Proxy {
    /// `url` is such as `http://user:password@proxy.example:3128`; user and password may have percent-encoded characters.
    pub fn new(url: &str, excluded: &[String]) -> Result<Self, FetchError> {
        let wrong = |problem: &str| FetchError::Proxy { problem: problem.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it is not a URL"))?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (credentials, authority) = match rest[..end].rsplit_once('@') {
            Some((credentials, authority)) => (Some(credentials), authority),
            None => (None, &rest[..end]),
        };
        let location = Location::parse(&format!("{scheme}://{authority}/")).map_err(wrong)?;
        let authorization = credentials.map(basic).transpose().map_err(wrong)?;
        Ok(Self { location, authorization, excluded: excluded.iter().filter_map(|entry| exclude(entry)).collect() })
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Whether this proxy is between us and that location.
    pub(crate) fn is_for(&self, location: &Location) -> bool {
        let host = location.host().trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let always_direct = match address {
            Some(address) => is_this_machine(address) || is_link_local(address) || is_metadata_service(address),
            None => host == "localhost" || host.ends_with(".localhost") || METADATA_NAMES.contains(&host.as_str()),
        };
        let is_excluded = |entry: &Excluded| {
            entry.port.is_none_or(|port| port == location.port())
                && match &entry.host {
                    Host::Everything => true,
                    Host::Network(network) => address.is_some_and(|address| network.contains(&address)),
                    Host::Name { name, itself } => {
                        host.strip_suffix(name.as_str()).is_some_and(|before| match before {
                            "" => *itself,
                            before => before.ends_with('.'),
                        })
                    }
                }
        };
        !always_direct && !self.excluded.iter().any(is_excluded)
    }
}

/// `None` for what excludes nobody.
fn exclude(entry: &str) -> Option<Excluded> {
    let entry = entry.trim().to_ascii_lowercase();
    if entry == "*" {
        return Some(Excluded { host: Host::Everything, port: None });
    }
    let network = |text: &str| text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    if let Some(found) = network(&entry) {
        return Some(Excluded { host: Host::Network(found), port: None });
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), Some(port.parse().ok()?)),
        None => (entry, None),
    };
    if let Some(found) = network(host.trim_start_matches('[').trim_end_matches(']')) {
        return Some(Excluded { host: Host::Network(found), port });
    }
    let below = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
    let name = below.unwrap_or(&host).to_owned();
    (!name.is_empty()).then(|| Excluded { host: Host::Name { name, itself: below.is_none() }, port })
}

fn basic(credentials: &str) -> Result<HeaderValue, &'static str> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut plain = decoded(user)?;
    plain.push(b':');
    plain.extend(decoded(password)?);
    let mut header = HeaderValue::try_from(format!("Basic {}", BASE64.encode(&plain)))
        .map_err(|_| "its user or password cannot be sent")?;
    header.set_sensitive(true);
    Ok(header)
}

fn decoded(text: &str) -> Result<Vec<u8>, &'static str> {
    const WRONG: &str = "its user or password has a % that is not followed by two hexadecimal digits";
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or(WRONG)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| WRONG)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_proxied(url: &str, excluded: &[&str]) -> bool {
        let excluded: Vec<String> = excluded.iter().map(|entry| (*entry).to_owned()).collect();
        let Ok(proxy) = Proxy::new("http://proxy.example:3128", &excluded) else { panic!("no proxy") };
        proxy.is_for(&Location::parse(url).unwrap())
    }

    #[test]
    fn this_machine_and_metadata_services_are_never_reached_through_a_proxy() {
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "localhost",
            "LOCALHOST",
            "a.localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "0.0.0.0",
            "169.254.169.254",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "168.63.129.16",
            "metadata.google.internal",
        ] {
            assert!(!is_proxied(&format!("http://{host}:8080/x"), &[]), "{host}");
        }
        for host in ["example.com", "10.0.0.1", "[2001:db8::1]", "localhost.example"] {
            assert!(is_proxied(&format!("https://{host}/x"), &[]), "{host}");
        }
    }

    #[test]
    fn exclusions_mean_what_they_mean_to_go() {
        for (url, entry) in [
            ("https://example.com/", "example.com"),
            ("https://a.example.com/", "example.com"),
            ("https://a.example.com/", ".example.com"),
            ("https://A.Example.com/", "*.example.COM"),
            ("https://example.com:8443/", "example.com:8443"),
            ("https://10.1.2.3/", "10.0.0.0/8"),
            ("https://10.1.2.3/", "10.1.2.3"),
            ("https://[fd00::7]/", "fd00::/8"),
            ("https://[fd00::7]:1/", "[fd00::7]:1"),
            ("https://anything/", "*"),
        ] {
            assert!(!is_proxied(url, &[entry]), "{url} {entry}");
        }
        for (url, entry) in [
            ("https://example.com/", ".example.com"),
            ("https://badexample.com/", "example.com"),
            ("https://example.com.evil/", "example.com"),
            ("https://example.com/", "example.com:8443"),
            ("https://11.1.2.3/", "10.0.0.0/8"),
            ("https://example.com/", ""),
            ("https://example.com/", "."),
        ] {
            assert!(is_proxied(url, &[entry]), "{url} {entry}");
        }
    }

    #[test]
    fn a_password_is_decoded_for_its_header_and_shown_in_no_error() {
        let Ok(proxy) = Proxy::new("http://me:p%40ss@proxy:3128/", &[]) else { panic!("no proxy") };
        assert_eq!(proxy.authorization().map(HeaderValue::as_bytes), Some(&b"Basic bWU6cEBzcw=="[..]));
        assert_eq!(proxy.location().to_string(), "http://proxy:3128/");
        for url in ["socks5://me:canary@proxy", "me:canary@proxy", "http://me:canary%zz@proxy", "http://me:canary@"] {
            let Err(error) = Proxy::new(url, &[]) else { panic!("{url}") };
            assert!(error.to_string().contains("proxy") && !error.to_string().contains("canary"), "{error}");
        }
    }
}
