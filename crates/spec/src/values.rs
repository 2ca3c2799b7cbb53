//! The values of a spec: one type each, valid by construction (`"…".parse()` is the only way to make most of them).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use bundle::torcx::{InvalidVersion, Minor};
use bundle::{InvalidName, UnknownWord};
pub use bundle::{Layout, Necessity, Os, Provider, Role, RuntimeName as Runtime, Secret, Slot as HookSlot, SourceKind};

use crate::syntax;

/// Why a text is not a value of the wanted type. Neither part ever repeats a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    pub message: String,
    pub advice: Option<String>,
}

impl Invalid {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), advice: None }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// Words that a bundle has, too.
impl From<UnknownWord> for Invalid {
    fn from(unknown: UnknownWord) -> Self {
        syntax::unknown_choice(&unknown.text, &unknown.known)
    }
}

impl From<InvalidVersion> for Invalid {
    fn from(invalid: InvalidVersion) -> Self {
        Self::new(invalid.to_string())
    }
}

impl From<InvalidName> for Invalid {
    fn from(invalid: InvalidName) -> Self {
        Self::new(invalid.to_string())
    }
}

/// A type that is one text with a rule of its own.
macro_rules! text_value {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                $check(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}
pub(crate) use text_value;

text_value!(
    /// A DNS subdomain, so that tools which name clusters by domain (`prod.example.com`) can keep their names.
    ClusterName,
    syntax::validate_cluster_name
);
text_value!(
    /// A DNS label: it becomes part of file names, node labels and paths of `explain`.
    GroupName,
    syntax::validate_dns_label
);
text_value!(
    /// The DNS domain of the cluster's services.
    DomainName,
    syntax::validate_dns_subdomain
);

impl DomainName {
    pub(crate) fn cluster_local() -> Self {
        Self("cluster.local".to_owned())
    }
}

/// How a user writes one word of several.
macro_rules! words_of_a_spec {
    ($($name:ty),+ $(,)?) => {
        $(
            impl crate::record::SpecValue for $name {
                fn decode<'n>(context: crate::record::Context<'n>, node: &'n crate::tree::Node) -> Option<Self> {
                    context.drafts.value(node)
                }

                fn to_json(&self, _: crate::view::Look) -> serde_json::Value {
                    self.as_str().into()
                }

                fn schema() -> serde_json::Value {
                    serde_json::json!({ "enum": Self::ALL.iter().map(|choice| choice.as_str()).collect::<Vec<_>>() })
                }
            }
        )+
    };
}

words_of_a_spec!(Layout, Necessity, Os, Provider, Role, Runtime, HookSlot, SourceKind);

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        words_of_a_spec!($name);

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::ALL.iter().copied().find(|choice| choice.as_str() == text).ok_or_else(|| {
                    let names: Vec<&str> = Self::ALL.iter().map(|choice| choice.as_str()).collect();
                    syntax::unknown_choice(text, &names)
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

choice!(
    /// How pods of a node reach each other.
    PodNetwork {
        /// A bridge on each node: enough for one node and for networks that route pod CIDRs.
        Bridge = "bridge",
        /// Nothing is configured: a CNI DaemonSet brings the network.
        None = "none",
    }
);
choice!(
    /// How what a node receives reaches it.
    DeliveryFormat {
        /// A cloud-config document with the bundle in it.
        CloudConfig = "cloud-config",
        /// MIME multipart for cloud-init: the bundle, the installation of nodestrap, and user data of the user's.
        Mime = "mime",
        /// Ignition, spec 3.
        Ignition = "ignition",
        /// Ignition, spec 2.3, for Container Linux and old Flatcar.
        Ignition2 = "ignition-2.3",
        /// A folder, to be put on the node by other means.
        Folder = "folder",
    }
);
choice!(
    /// How nodestrap itself reaches a node.
    Installation {
        /// It is part of the image.
        Image = "image",
        /// It is downloaded on first boot and checked before it is used.
        Download = "download",
    }
);
choice!(
    /// Whether user data is compressed.
    Compression {
        /// Where the provider and the format take it.
        Auto = "auto",
        Never = "never",
    }
);
choice!(
    /// Where the kubeconfig comes from with which nodes of the layout tectonic join.
    KubeconfigSource {
        /// From `join`.
        Rendered = "rendered",
        /// A unit of the user's puts it onto the node before the bootstrap.
        Pulled = "pulled",
    }
);
choice!(
    /// Whether what an installer left on a node stands in for a cluster that does not answer.
    SeedFallback {
        Allowed = "allowed",
        /// Such a node waits for its cluster.
        Never = "never",
    }
);
choice!(
    /// What the programs of a node were compiled for.
    Architecture {
        Amd64 = "amd64",
        Arm64 = "arm64",
    }
);
choice!(
    /// How much of a node is kept back for the system and for Kubernetes itself.
    Reservation {
        /// By the size of the machine, where the instance type is known.
        Auto = "auto",
        None = "none",
    }
);
choice!(
    /// What becomes of a unit.
    UnitState {
        /// Started before the kubelet, and at boot.
        Enabled = "enabled",
        /// Stopped, and not started at boot.
        Disabled = "disabled",
        /// Stopped, and started by nobody.
        Masked = "masked",
    }
);

choice!(
    /// What a taint does to pods that do not tolerate it.
    TaintEffect {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
        NoExecute = "NoExecute",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    /// May be empty.
    pub value: String,
    pub effect: TaintEffect,
}

/// A release of Kubernetes; ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubeVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl KubeVersion {
    /// Since then kubelets have no client of docker, and read from a file what had been flags.
    pub const FIRST_WITHOUT_DOCKER: Self = Self { major: 1, minor: 24, patch: 0 };

    pub fn minor_release(self) -> Minor {
        Minor { major: self.major, minor: self.minor }
    }
}

impl FromStr for KubeVersion {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let not_a_version =
            || Invalid::new(format!("\"{text}\" is not a Kubernetes version: MAJOR.MINOR.PATCH is needed"));
        let number = |part: &str| -> Result<u32, Invalid> {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && (part.len() == 1 || !part.starts_with('0'));
            if !plain {
                return Err(not_a_version());
            }
            part.parse().map_err(|_| not_a_version())
        };
        if let Some(rest) = text.strip_prefix('v')
            && rest.parse::<Self>().is_ok()
        {
            return Err(not_a_version().advise(format!("write {rest}, without the \"v\"")));
        }
        match text.split('.').collect::<Vec<_>>().as_slice() {
            [major, minor, patch] => Ok(Self { major: number(major)?, minor: number(minor)?, patch: number(patch)? }),
            [major, minor] if number(major).is_ok() && number(minor).is_ok() => Err(not_a_version()
                .advise("name the patch release too, as in 1.36.3: the same spec must always give the same bytes")),
            _ => Err(not_a_version()),
        }
    }
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// `https://host[:port]`, nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServerUrl {
    text: String,
    host: String,
    port: u16,
}

impl ApiServerUrl {
    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A DNS name or an IP address; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// 443 if none was written, as for every https URL.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for ApiServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for ApiServerUrl {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        const SHAPE: &str = "write https://HOST:PORT, for example https://10.0.0.10:6443";
        let Some(rest) = text.strip_prefix("https://") else {
            return Err(match text.strip_prefix("http://") {
                Some(_) => Invalid::new("the API server must be reached over https, not http").advise(SHAPE),
                None => Invalid::new(format!("\"{text}\" is not an https URL")).advise(SHAPE),
            });
        };
        if let Some(at) = rest.find(['/', '?', '#', '@']) {
            let extra = if rest[at..].starts_with('@') { "a user name" } else { "a path, query or fragment" };
            return Err(Invalid::new(format!("the URL of the API server cannot have {extra}")).advise(SHAPE));
        }
        let (host, port) = split_host(rest).map_err(|invalid| invalid.advise(SHAPE))?;
        let port = match port {
            None => 443,
            Some(port) => port
                .parse()
                .ok()
                .filter(|number: &u16| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or_else(|| Invalid::new(format!("\"{port}\" is not a port: 1 to 65535")).advise(SHAPE))?,
        };
        Ok(Self { text: text.to_owned(), host: host.to_owned(), port })
    }
}

fn split_host(authority: &str) -> Result<(&str, Option<&str>), Invalid> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or_else(|| Invalid::new("the bracket of the IPv6 address is not closed"))?;
        host.parse::<Ipv6Addr>().map_err(|_| Invalid::new(format!("\"{host}\" is not an IPv6 address")))?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(Invalid::new(format!("\"{after}\" after the IPv6 address is not a port"))),
        };
    }
    if authority.parse::<Ipv6Addr>().is_ok() {
        return Err(Invalid::new(format!("the IPv6 address needs brackets: https://[{authority}]:6443")));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    // A name whose last label is a number can only be meant as an address.
    let numeric =
        host.rsplit('.').next().is_some_and(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()));
    if numeric {
        host.parse::<Ipv4Addr>().map_err(|_| Invalid::new(format!("\"{host}\" is not an IPv4 address")))?;
    } else {
        syntax::validate_dns_subdomain(host)?;
    }
    Ok((host, port))
}

/// `id.secret`: what a kubelet joins with before it has a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    whole: Secret,
}

impl BootstrapToken {
    /// The public half; it names the token's Secret in `kube-system`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole token, for the bootstrap kubeconfig and for nothing else.
    pub fn expose(&self) -> &str {
        self.whole.expose()
    }
}

impl FromStr for BootstrapToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text == REDACTED {
            return Err(Invalid::new("the token was redacted when this spec was printed")
                .advise("print it again with --show-secrets, or write the token here"));
        }
        let well_formed = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        match text.split_once('.') {
            Some((id, secret)) if well_formed(id, 6) && well_formed(secret, 16) => {
                Ok(Self { id: id.to_owned(), whole: Secret::new(text) })
            }
            // The text is not repeated: even a mistyped token is most of a secret.
            _ => Err(Invalid::new("not a bootstrap token: [a-z0-9]{6}.[a-z0-9]{16} is needed")
                .advise("`kubeadm token create` makes one; so does a Secret of type bootstrap.kubernetes.io/token")),
        }
    }
}

/// What stands in printed specs in place of a secret.
pub const REDACTED: &str = "[redacted]";

/// One or more PEM certificates of authorities, in one normal form: LF, 64 columns, nothing between the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePem(String);

impl CertificatePem {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CertificatePem {
    type Err = Invalid;

    /// Takes PEM, or base64 of PEM as in a kubeconfig's `certificate-authority-data`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let normal = crate::pem::normalise_certificates(text)?;
        match pki::Certificate::find_leaf(&normal) {
            Ok(None) => Ok(Self(normal)),
            Ok(Some(leaf)) => Err(Invalid::new(format!(
                "\"{}\" is no certificate authority: its certificate does not say CA:TRUE",
                leaf.common_name
            ))
            .advise(match leaf.issuer == leaf.common_name {
                true => "make it again with the extension basicConstraints=critical,CA:TRUE".to_owned(),
                false => format!("write the certificate that signed it, whose name is \"{}\"", leaf.issuer),
            })),
            Err(_) => Err(Invalid::new("the certificate is damaged: it cannot be read").advise(
                "`openssl x509 -text -noout -in FILE` shows what is in it; on a control plane it is \
                 /etc/kubernetes/pki/ca.crt",
            )),
        }
    }
}

/// The address families of a list, for "at most one per family".
pub(crate) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_servers_have_a_host_and_a_port() {
        for (text, host, port) in [
            ("https://10.99.0.1:6443", "10.99.0.1", 6443),
            ("https://api.example.com", "api.example.com", 443),
            ("https://[fd00::1]:6443", "fd00::1", 6443),
            ("https://[fd00::1]", "fd00::1", 443),
        ] {
            let url: ApiServerUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.host(), url.port()), (text, host, port));
        }
        for bad in
            ["", "https://", "https://a:0", "https://a:+1", "https://[::1", "https://[a]", "https://a_b", "https://u@a"]
        {
            assert!(bad.parse::<ApiServerUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<KubeVersion>().unwrap();
        assert!(version("1.9.10") < version("1.36.3"));
        assert_eq!(version("1.36.3").to_string(), "1.36.3");
        for bad in ["1.36", "1", "", "1.036.3", "1.36.3-rc.1", "1.36.+3", "v1.36.3", "1.36.99999999999"] {
            assert!(bad.parse::<KubeVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_shows_its_public_half_only() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        assert_eq!(token.id(), "abcdef");
        assert_eq!(token.expose(), "abcdef.0123456789abcdef");
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        let refused = "abcdef.hunter2".parse::<BootstrapToken>().unwrap_err();
        assert!(!format!("{refused:?}").contains("hunter2"));
    }
}
