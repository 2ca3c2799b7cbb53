//! Kubernetes' rules for names, labels and taints, and Go's for durations.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::nearest::nearest;
use crate::values::Invalid;

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

/// RFC 1123 label.
pub(crate) fn validate_dns_label(text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new("a name cannot be empty"));
    }
    if text.len() > LABEL_LENGTH {
        return Err(Invalid::new(format!("\"{text}\" is longer than {LABEL_LENGTH} characters")));
    }
    if is_dns_label(text) {
        return Ok(());
    }
    let invalid = Invalid::new(format!(
        "\"{text}\" is not a DNS label: lower-case letters, digits and \"-\", beginning and ending with a letter or digit"
    ));
    Err(match suggest_label(text) {
        Some(suggestion) => invalid.advise(format!("\"{suggestion}\" would do")),
        None => invalid,
    })
}

/// Labels joined by dots.
pub(crate) fn validate_dns_subdomain(text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new("a name cannot be empty"));
    }
    if text.len() > SUBDOMAIN_LENGTH {
        return Err(Invalid::new(format!("a DNS name cannot be longer than {SUBDOMAIN_LENGTH} characters")));
    }
    if text.split('.').all(|label| label.len() <= LABEL_LENGTH && is_dns_label(label)) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "\"{text}\" is not a DNS name: labels of lower-case letters, digits and \"-\", joined by dots"
    )))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn suggest_label(text: &str) -> Option<String> {
    let lower: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let suggestion = lower.trim_matches('-');
    is_dns_label(suggestion).then(|| suggestion.to_owned())
}

/// `[prefix/]name`, the key of a label or taint.
pub(crate) fn validate_qualified_name(text: &str) -> Result<(), Invalid> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        validate_dns_subdomain(prefix).map_err(|_| {
            Invalid::new(format!("\"{text}\" is not a valid key: the part before \"/\" must be a DNS name"))
        })?;
    }
    if is_name_part(name) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "\"{text}\" is not a valid key: [prefix/]name is needed, name at most {LABEL_LENGTH} letters, digits, \"-\", \
         \"_\" and \".\", beginning and ending with a letter or digit"
    )))
}

/// The value of a label or taint; empty is valid.
pub(crate) fn validate_label_value(text: &str) -> Result<(), Invalid> {
    if text.is_empty() || is_name_part(text) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "\"{text}\" is not a valid value: at most {LABEL_LENGTH} letters, digits, \"-\", \"_\" and \".\", beginning \
         and ending with a letter or digit"
    )))
}

fn is_name_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LABEL_LENGTH && text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last())
}

/// Labels of the kubernetes.io and k8s.io domains that a kubelet may set on its own node (admission plug-in
/// NodeRestriction, and the kubelet's own check of `--node-labels`).
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const KUBELET_LABEL_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses what the API server would refuse a kubelet: the node would never register.
pub(crate) fn validate_node_label_key(key: &str) -> Result<(), Invalid> {
    validate_qualified_name(key)?;
    let Some((domain, name)) = key.split_once('/') else { return Ok(()) };
    let within = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let reserved = within("kubernetes.io") || within("k8s.io");
    if !reserved || KUBELET_LABELS.contains(&key) || KUBELET_LABEL_DOMAINS.iter().any(|parent| within(parent)) {
        return Ok(());
    }
    let invalid = Invalid::new(format!("a kubelet may not set the label \"{key}\" on its own node"));
    Err(if domain == "node-role.kubernetes.io" {
        invalid.advise(format!(
            "an administrator sets roles: `kubectl label node NAME {key}=`; for scheduling, use a label of your own \
             domain, for example example.com/role: {name}"
        ))
    } else if within("node-restriction.kubernetes.io") {
        invalid.advise("these labels are there to be set by an administrator only: `kubectl label node NAME …`")
    } else {
        invalid.advise(format!(
            "use your own domain, for example example.com/{name}, or node.kubernetes.io/{name}, which is allowed"
        ))
    })
}

/// A duration as Go writes it: `1h30m`, `2m0s`, `500ms`, `0`.
pub(crate) fn validate_go_duration(text: &str) -> Result<(), Invalid> {
    parse_go_duration(text).map(|_| ())
}

/// In nanoseconds, of which Go counts 64 bits.
pub(crate) fn parse_go_duration(text: &str) -> Result<i64, Invalid> {
    const UNITS: &[(&str, f64)] =
        &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    let invalid = || {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let advice = if plain { format!("add the unit: {text}s") } else { "for example 10s, 2m0s or 1h30m".to_owned() };
        Invalid::new(format!("\"{text}\" is not a duration")).advise(advice)
    };
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let (number, after) = rest.split_at(number_end);
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        let points = number.len() - digits;
        if digits == 0 || points > 1 {
            return Err(invalid());
        }
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let (_, factor) = UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(invalid)?;
        nanoseconds += number.parse::<f64>().map_err(|_| invalid())? * factor;
        rest = after;
    }
    // Exact enough: a number with more than 53 bits is of years in nanoseconds.
    if nanoseconds >= i64::MAX as f64 {
        return Err(Invalid::new(format!("\"{text}\" is too long a duration")).advise("Go counts to 292 years"));
    }
    let nanoseconds = nanoseconds as i64;
    Ok(if text.starts_with('-') { -nanoseconds } else { nanoseconds })
}

/// Both ends in milliseconds; `i64::MAX` as the most: no end.
pub(crate) fn validate_duration_within(text: &str, min: i64, max: i64) -> Result<(), Invalid> {
    const NANOSECONDS: i64 = 1_000_000;
    let duration = parse_go_duration(text)?;
    let shown = |milliseconds: i64| match milliseconds % 1000 {
        0 => format!("{}s", milliseconds / 1000),
        _ => format!("{milliseconds}ms"),
    };
    if duration >= min.saturating_mul(NANOSECONDS) && duration <= max.saturating_mul(NANOSECONDS) {
        return Ok(());
    }
    Err(Invalid::new(match max {
        i64::MAX => format!("{text} is out of range: {} or more", shown(min)),
        _ => format!("{text} is out of range: {} to {}", shown(min), shown(max)),
    }))
}

/// `f64::MIN_POSITIVE` as the least: above 0.
pub(crate) fn validate_number_within(number: f64, min: f64, max: f64) -> Result<(), Invalid> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(Invalid::new(match min == f64::MIN_POSITIVE {
        true => format!("{number} is out of range: above 0, up to {max}"),
        false => format!("{number} is out of range: {min} to {max}"),
    }))
}

/// An absolute path without `.`, `..`, empty parts or characters that would need quoting in a unit file.
pub(crate) fn validate_absolute_path(text: &str) -> Result<(), Invalid> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(Invalid::new(format!("\"{text}\" is not an absolute path")).advise("begin it with \"/\""));
    };
    if rest.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(Invalid::new(format!("\"{text}\" is not a plain path: no empty part, \".\" or \"..\"")));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '+' | '@' | ',' | '=' | ':');
    if let Some(odd) = text.chars().find(|c| !plain(*c)) {
        return Err(Invalid::new(format!("a path here cannot contain {odd:?}")));
    }
    Ok(())
}

/// Which gates there are differs between releases and components; how they are called does not.
pub(crate) fn validate_feature_gate(name: &str) -> Result<(), Invalid> {
    if name.starts_with(|first: char| first.is_ascii_uppercase())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return Ok(());
    }
    Err(Invalid::new(format!("\"{name}\" is not the name of a feature gate"))
        .advise("letters and digits, beginning with a capital, as in GracefulNodeShutdown"))
}

/// `[COMPONENT:]GATE=true|false`, separated by commas.
pub(crate) fn validate_feature_gates(text: &str) -> Result<(), Invalid> {
    text.split(',').filter(|gate| !gate.trim().is_empty()).try_for_each(|gate| {
        let (name, value) = gate.split_once('=').unwrap_or((gate, ""));
        validate_feature_gate(name.rsplit(':').next().unwrap_or_default().trim())?;
        match value.trim() {
            // As Go reads a boolean.
            "1" | "t" | "T" | "true" | "True" | "TRUE" | "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(()),
            _ => Err(Invalid::new(format!("the feature gate {} is neither true nor false", name.trim()))
                .advise(format!("write {}=true or {}=false", name.trim(), name.trim()))),
        }
    })
}

/// `[registry/]repository[:tag][@digest]`, checked for shape only.
pub(crate) fn validate_image(text: &str) -> Result<(), Invalid> {
    let bad = |why: &str| Err(Invalid::new(format!("\"{text}\" is not an image reference: {why}")));
    if text.is_empty() {
        return bad("it is empty");
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | ':' | '@' | '[' | ']');
    if let Some(odd) = text.chars().find(|c| !allowed(*c)) {
        return bad(&format!("it contains {odd:?}"));
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    if let Some(digest) = digest {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return bad("the digest must be sha256: and 64 hexadecimal digits");
        }
    }
    let last = name.rsplit('/').next().unwrap_or_default();
    let (repository, tag) = match last.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (last, None),
    };
    if name.split('/').any(str::is_empty) || repository.is_empty() {
        return bad("a part of its name is empty");
    }
    match tag {
        None if digest.is_none() => bad("a tag or digest is needed, so that all nodes run the same"),
        Some("latest") if digest.is_none() => bad("\"latest\" is not the same for ever; name a version"),
        Some("") => bad("the tag is empty"),
        _ => Ok(()),
    }
}

/// Where images are: a host and, if need be, folders; what comes after it is the name of an image.
pub(crate) fn validate_registry(text: &str) -> Result<(), Invalid> {
    let bad = |why: &str| {
        Invalid::new(format!("\"{text}\" is not a registry: {why}"))
            .advise("HOST[:PORT][/FOLDER], for example registry.example.com:5000/kubernetes")
    };
    if text.contains("://") {
        return Err(bad("images have no scheme"));
    }
    let mut parts = text.split('/');
    validate_host(parts.next().unwrap_or_default()).map_err(|_| bad("it does not begin with a host"))?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let folder = |part: &str| part.bytes().all(plain) && edge(part.as_bytes().first()) && edge(part.as_bytes().last());
    if !parts.all(folder) {
        return Err(bad("folders have lower-case letters, digits and \".\", \"_\", \"-\" between them"));
    }
    if text.len() > SUBDOMAIN_LENGTH - "/kube-controller-manager".len() {
        return Err(bad("it is too long for the name of an image"));
    }
    Ok(())
}

/// A name under which others are made: members of etcd are MEMBER.internal.NAME.
pub(crate) fn validate_cluster_name(text: &str) -> Result<(), Invalid> {
    const LONGEST: usize = SUBDOMAIN_LENGTH - LABEL_LENGTH - ".internal.".len();
    if text.len() > LONGEST {
        return Err(Invalid::new(format!(
            "the name of a cluster cannot be longer than {LONGEST} characters: names of nodes are made below it"
        )));
    }
    validate_dns_subdomain(text)
}

/// A network of services: no host bits, and room for the tenth address, which is the cluster's DNS.
pub(crate) fn parse_service_network(text: &str) -> Result<IpNet, Invalid> {
    let network: IpNet = text.parse().map_err(|_| {
        Invalid::new(format!("\"{text}\" is not a network"))
            .advise("ADDRESS/PREFIX is needed, for example 10.96.0.0/12")
    })?;
    if network.addr() != network.network() {
        return Err(Invalid::new(format!("\"{text}\" has bits set behind its prefix"))
            .advise(format!("write {}", network.trunc())));
    }
    if tenth_address(&network).is_none() {
        return Err(Invalid::new(format!("\"{text}\" is too small for services"))
            .advise("at least 16 addresses are needed: the tenth is the cluster's DNS"));
    }
    Ok(network)
}

/// By convention the DNS service has the tenth address of the service network.
pub(crate) fn tenth_address(network: &IpNet) -> Option<IpAddr> {
    const DNS_OFFSET: u32 = 10;
    let address = match network.network() {
        IpAddr::V4(first) => IpAddr::V4(u32::from(first).checked_add(DNS_OFFSET)?.into()),
        IpAddr::V6(first) => IpAddr::V6(u128::from(first).checked_add(DNS_OFFSET.into())?.into()),
    };
    network.contains(&address).then_some(address)
}

/// `key[=value]:Effect`, as kubectl writes taints.
pub(crate) fn split_taint(text: &str) -> Option<(&str, &str, &str)> {
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Some((key, value, effect))
}

/// One line without control characters or surrounding white space; not empty.
pub(crate) fn validate_line(text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::new("a text is needed here, not an empty one"));
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(Invalid::new("one line is needed here, without control characters and white space around it"));
    }
    Ok(())
}

/// Whether a text is an address with a password, which must not be shown even if it is refused.
pub(crate) fn has_password(text: &str) -> bool {
    let authority = |rest: &str| rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'));
    text.split_once("://").is_some_and(|(_, rest)| authority(rest))
}

/// Whether others see what is said to a valid address. What stays on the machine is seen by nobody else.
pub(crate) fn is_read_on_the_way(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host.parse::<std::net::IpAddr>().map_or(host == "localhost", |address| address.is_loopback());
    !is_loopback
}

/// `http://` or `https://`, a host, no user name, no fragment.
pub(crate) fn validate_web_url(text: &str) -> Result<(), Invalid> {
    let bad = |why: &str| Err(Invalid::new(format!("\"{text}\" is not a web address: {why}")));
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return bad("it begins with neither https:// nor http://");
    };
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '\\' | '<' | '>')) {
        return bad("it has a character that must be written as %XX");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        // Nor in this message.
        return Err(Invalid::new("a web address must not have a user name or password; they would be seen in logs")
            .advise("a proxy takes them from credentials beside its address, a webhook from headers"));
    }
    if text.contains('#') {
        return bad("it has a fragment");
    }
    validate_host(authority)
}

/// `name`, `address`, `[v6]`, each with `:port` if need be.
pub(crate) fn validate_host(text: &str) -> Result<(), Invalid> {
    let bad = || Invalid::new(format!("\"{text}\" is not a host")).advise("NAME or NAME:PORT; IPv6 in brackets");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(bad)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| bad())?;
            (None, after.strip_prefix(':').or(if after.is_empty() { None } else { Some("?") }))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    if let Some(host) = host {
        validate_dns_subdomain(host).map_err(|_| bad())?;
    }
    match port {
        None => Ok(()),
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(())
        }
        Some(_) => Err(bad()),
    }
}

fn validate_hexadecimal(text: &str, digits: usize) -> Result<(), Invalid> {
    if text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    Err(Invalid::new(format!("{digits} hexadecimal digits in lower case are needed here")))
}

pub(crate) fn validate_sha256(text: &str) -> Result<(), Invalid> {
    validate_hexadecimal(text, 64).map_err(|invalid| invalid.advise("`sha256sum FILE` prints them"))
}

pub(crate) fn validate_sha512(text: &str) -> Result<(), Invalid> {
    validate_hexadecimal(text, 128).map_err(|invalid| invalid.advise("`sha512sum FILE` prints them"))
}

/// systemd's rule, for the kinds of unit that nodestrap starts.
pub(crate) fn validate_unit_name(text: &str) -> Result<(), Invalid> {
    bundle::UnitName::new(text).map(drop).map_err(|_| {
        Invalid::new(format!("\"{text}\" is not the name of a unit"))
            .advise(format!("a name and one of {}", bundle::UNIT_SUFFIXES.join(", ")))
    })
}

pub(crate) fn validate_variable_name(text: &str) -> Result<(), Invalid> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !text.is_empty() && text.bytes().all(inner) && !text.as_bytes()[0].is_ascii_digit() {
        return Ok(());
    }
    Err(Invalid::new(format!("\"{text}\" is not the name of an environment variable")))
}

pub(crate) fn validate_sysctl_name(text: &str) -> Result<(), Invalid> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if !text.is_empty() && text.bytes().all(inner) && text.contains(['.', '/']) && !text.contains("..") {
        return Ok(());
    }
    Err(Invalid::new(format!("\"{text}\" is not a kernel parameter")).advise("as in net.ipv4.ip_forward"))
}

pub(crate) fn validate_module_name(text: &str) -> Result<(), Invalid> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !text.is_empty() && text.len() < 64 && text.bytes().all(inner) {
        return Ok(());
    }
    Err(Invalid::new(format!("\"{text}\" is not a kernel module")).advise("as in br_netfilter"))
}

pub(crate) fn validate_media_type(text: &str) -> Result<(), Invalid> {
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte))
    };
    match text.split_once('/') {
        Some((kind, subtype)) if token(kind) && token(subtype) => Ok(()),
        _ => Err(Invalid::new(format!("\"{text}\" is not a media type")).advise("as in text/x-shellscript")),
    }
}

/// What the request needs for itself nobody else may set.
pub(crate) fn validate_header_name(text: &str) -> Result<(), Invalid> {
    const OURS: [&str; 6] = ["host", "content-length", "content-type", "connection", "transfer-encoding", "user-agent"];
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(inner) {
        return Err(Invalid::new(format!("\"{text}\" is not the name of a header")).advise("as in Authorization"));
    }
    if OURS.contains(&text.to_ascii_lowercase().as_str()) {
        return Err(Invalid::new(format!("the header \"{text}\" is set by nodestrap")));
    }
    Ok(())
}

pub(crate) fn unknown_choice(text: &str, choices: &[&str]) -> Invalid {
    let list = choices.iter().map(|choice| format!("\"{choice}\"")).collect::<Vec<_>>().join(", ");
    let invalid = Invalid::new(match choices {
        [only] => format!("\"{text}\" is not possible here: only \"{only}\" is"),
        // Nobody reads so long a list.
        _ if choices.len() > 12 => format!("\"{text}\" is not one of the {} names that are known here", choices.len()),
        _ => format!("\"{text}\" is not one of {list}"),
    });
    match nearest(text, choices.iter().copied()) {
        Some(name) if choices.len() > 1 => invalid.advise(format!("did you mean \"{name}\"?")),
        _ => invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for good in ["0", "10s", "2m0s", "1h30m", "1.5h", ".5s", "500ms", "1us", "1µs", "-1s", "+3ns"] {
            assert!(validate_go_duration(good).is_ok(), "{good}");
        }
        for bad in ["", "10", "s", "1d", "1 s", "1.2.3s", ".s", "-", "1h30", "10S", "9999999999999h", "1e3s"] {
            assert!(validate_go_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_go_duration("1h0m1.5s").unwrap(), 3_601_500_000_000);
        assert_eq!(parse_go_duration("-2ms").unwrap(), -2_000_000);
        assert!(validate_duration_within("3s", 3000, i64::MAX).is_ok());
        assert!(validate_duration_within("2999ms", 3000, i64::MAX).is_err());
        assert!(validate_duration_within("301s", 1000, 300_000).is_err());
    }

    #[test]
    fn the_dns_address_is_counted_not_spelt() {
        let tenth = |network: &str| tenth_address(&network.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(tenth("10.96.0.0/12").as_deref(), Some("10.96.0.10"));
        assert_eq!(tenth("172.20.0.240/28").as_deref(), Some("172.20.0.250"));
        assert_eq!(tenth("fd00::fff0/124").as_deref(), Some("fd00::fffa"));
        assert_eq!(tenth("10.0.0.0/29"), None);
        assert_eq!(tenth("255.255.255.248/29"), None);
    }

    #[test]
    fn kubelets_may_set_only_their_labels() {
        for good in
            ["pool", "example.com/pool", "kubernetes.io/os", "node.kubernetes.io/x", "a.kubelet.kubernetes.io/x"]
        {
            assert!(validate_node_label_key(good).is_ok(), "{good}");
        }
        for bad in ["kubernetes.io/x", "a.k8s.io/x", "node-role.kubernetes.io/worker", "a/b/c", "/x", "x/", "", "-a"] {
            assert!(validate_node_label_key(bad).is_err(), "{bad}");
        }
        assert!(validate_node_label_key("notkubernetes.io/x").is_ok());
    }

    #[test]
    fn a_registry_makes_an_image_of_every_name() {
        let long = "a".repeat(63);
        for good in ["registry.k8s.io", "localhost:5000", "10.0.0.1:5000/a/b_c.d-e", "[fd00::1]:5000/x", long.as_str()]
        {
            assert!(validate_registry(good).is_ok(), "{good}");
            assert!(validate_image(&format!("{good}/pause:3.10")).is_ok(), "{good}");
        }
        let too_long = format!("a/{}", "a".repeat(250));
        for bad in [
            "",
            "https://x",
            "x/",
            "x//y",
            "/x",
            "x y",
            "é",
            "x@sha256:abc",
            "%h",
            "X",
            "-x",
            "x:99999",
            "x:tag",
            "x/..",
            "a:80:80",
            "x/A",
            "x/-a",
            &too_long,
        ] {
            assert!(validate_registry(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cluster_leaves_room_for_the_names_of_its_nodes() {
        let name = |length: usize| vec!["a".repeat(35); 5].join(".")[..length].to_owned();
        assert!(validate_cluster_name(&name(179)).is_ok());
        assert!(validate_dns_subdomain(&format!("{}.internal.{}", "m".repeat(63), name(179))).is_ok());
        let long = vec!["a".repeat(60); 3].join(".") + ".a";
        assert!(validate_cluster_name(&long).is_err());
    }

    #[test]
    fn images_name_a_version() {
        let digest = format!("localhost:5000/pause@sha256:{}", "a".repeat(64));
        for good in ["registry.k8s.io/pause:3.10.1", "localhost:5000/pause:1", digest.as_str()] {
            assert!(validate_image(good).is_ok(), "{good}");
        }
        for bad in
            ["", "pause", "localhost:5000/pause", "pause:latest", "pause:", "a//b:1", "a b:1", "pause@sha256:abc"]
        {
            assert!(validate_image(bad).is_err(), "{bad}");
        }
    }
}
