//! What a program refuses at start although its type fits: forms of texts, and ranges and choices of flags.
//!
//! From the validation that the programs of each minor run before anything else; where minors differ, what any of them
//! takes is taken. Ranges and choices of fields are in tools/catalog/facts/refine.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::schema::Schema;
use super::{Component, Target};
use crate::values::Invalid;

/// How a text must look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Address,
    /// An address, with or without a port.
    AddressPort,
    /// Processors: `0-3,8`.
    CpuSet,
    Network,
    /// One of each family, separated by a comma.
    Networks,
    /// A network of the nodes, or the word that stands for the first address of each.
    NodeAddresses,
    NotEmpty,
    /// `FIRST-LAST`, `FIRST+COUNT` or one port.
    PortRange,
    /// The minor before the program's own.
    PreviousMinor,
}

impl Form {
    /// Takes all that `check` takes, for any release.
    pub(crate) fn pattern(self) -> &'static str {
        match self {
            Self::Address => "^[0-9a-fA-F:.]*$",
            Self::AddressPort => "^[0-9a-fA-F:.\\[\\]]*$",
            Self::CpuSet => "^[0-9,-]*$",
            Self::Network => "^([0-9a-fA-F:.]+/[0-9]{1,3})?$",
            Self::Networks => "^([0-9a-fA-F:.]+/[0-9]{1,3}(,[0-9a-fA-F:.]+/[0-9]{1,3})?)?$",
            Self::NodeAddresses => "^([0-9a-fA-F:.]+/[0-9]{1,3}|primary)?$",
            Self::NotEmpty => ".",
            Self::PortRange => "^([0-9]+([+-][0-9]+)?)?$",
            Self::PreviousMinor => "^([0-9]+\\.[0-9]+)?$",
        }
    }

    pub(crate) fn check(self, text: &str, target: Target) -> Result<(), Invalid> {
        // Everywhere else nothing stands for the program's own choice.
        if text.is_empty() && self != Self::NotEmpty {
            return Ok(());
        }
        let previous = target.minor.map(|minor| format!("1.{}", minor.saturating_sub(1)));
        let knows_primary = target.minor.is_none_or(|minor| minor >= 31);
        let fits = match self {
            Self::NotEmpty => !text.is_empty(),
            Self::Address => is_address(text),
            Self::AddressPort => is_address(text) || text.parse::<SocketAddr>().is_ok_and(|address| address.port() > 0),
            Self::CpuSet => is_cpu_set(text),
            Self::Network => is_network(text),
            Self::Networks => is_one_of_each_family(text),
            Self::NodeAddresses => is_network(text) || text == "primary" && knows_primary,
            Self::PortRange => is_port_range(text),
            Self::PreviousMinor => previous.as_deref().is_none_or(|previous| previous == text),
        };
        if fits {
            return Ok(());
        }
        let needed = match self {
            Self::NotEmpty => "a text that is not empty",
            Self::Address => "an IP address",
            Self::AddressPort => "ADDRESS:PORT",
            Self::CpuSet => "a list of processors such as 0-3,8",
            Self::NodeAddresses if knows_primary => "a network or \"primary\"",
            Self::NodeAddresses => "before Kubernetes 1.31 a network",
            Self::Network => "a network such as 10.0.0.0/8",
            Self::Networks => "a network, or one of IPv4 and one of IPv6",
            Self::PortRange => "a range of ports such as 30000-32767",
            Self::PreviousMinor => "the minor before this one",
        };
        let invalid = Invalid::new(format!("{needed} is needed here, not \"{text}\""));
        Err(match previous.filter(|_| self == Self::PreviousMinor) {
            Some(previous) => invalid.advise(format!("write \"{previous}\"")),
            None => invalid,
        })
    }
}

fn is_network(text: &str) -> bool {
    text.parse::<IpNet>().is_ok()
}

fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

fn is_one_of_each_family(text: &str) -> bool {
    let networks: Option<Vec<IpNet>> = text.split(',').map(|network| network.parse().ok()).collect();
    match networks.as_deref() {
        Some([_]) => true,
        Some([first, second]) => first.addr().is_ipv4() != second.addr().is_ipv4(),
        _ => false,
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

/// `FIRST-LAST` or one number.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((number(first)?, number(last)?)).filter(|(first, last)| first <= last)
}

fn is_cpu_set(text: &str) -> bool {
    text.split(',').all(|part| range(part).is_some())
}

fn is_port_range(text: &str) -> bool {
    let last = match text.split_once('+') {
        Some((first, count)) => number(first).and_then(|first| first.checked_add(number(count)?)),
        None => range(text).map(|(_, last)| last),
    };
    last.is_some_and(|last| last <= u16::MAX.into())
}

/// The ranges, choices and forms of a component's flags.
pub(crate) fn flag_schema(component: Component, flag: &str) -> Option<Schema> {
    let tables: [&[(&str, Schema)]; 2] = match component {
        Component::KubeApiserver => [APISERVER, SERVERS],
        Component::KubeControllerManager | Component::KubeScheduler => [CONTROLLERS, SERVERS],
        Component::Etcd => [ETCD, &[]],
        _ => return None,
    };
    tables.iter().copied().flatten().find(|(name, _)| *name == flag).map(|(_, schema)| *schema)
}

/// Defaults that are not the same in all minors: of a flag as `--help` shows it, of a field its JSON; and since when.
static CHANGED: &[(Component, &str, u32, &str)] = &[
    (Component::KubeApiserver, "audit-log-maxage", 0, "0"),
    (Component::KubeApiserver, "audit-log-maxage", 36, "366"),
    (Component::KubeApiserver, "audit-log-maxbackup", 0, "0"),
    (Component::KubeApiserver, "audit-log-maxbackup", 36, "100"),
    (Component::KubeApiserver, "audit-log-maxsize", 0, "0"),
    (Component::KubeApiserver, "audit-log-maxsize", 36, "100"),
    (Component::KubeControllerManager, "node-monitor-grace-period", 0, "40s"),
    (Component::KubeControllerManager, "node-monitor-grace-period", 32, "50s"),
    (Component::Kubelet, "failCgroupV1", 31, "false"),
    (Component::Kubelet, "failCgroupV1", 35, "true"),
    (Component::Kubelet, "imagePullCredentialsVerificationPolicy", 35, r#""NeverVerifyPreloadedImages""#),
    (Component::Kubelet, "maxContainerRestartPeriod", 35, r#""5m0s""#),
];

/// The default of a flag or field, if its table says none because it changed.
pub(crate) fn changed_builtin(target: Target, name: &str) -> Option<&'static str> {
    let (.., builtin) = CHANGED.iter().rfind(|(component, known, since, _)| {
        *component == target.component && *known == name && target.minor.is_some_and(|minor| minor >= *since)
    })?;
    Some(builtin)
}

const fn choice(words: &'static [&'static str]) -> Schema {
    Schema::Choice(words)
}

static SERVERS: &[(&str, Schema)] = &[
    ("logging-format", choice(&["text", "json"])),
    ("show-hidden-metrics-for-version", Schema::Form(Form::PreviousMinor)),
    ("tls-cipher-suites", CIPHER_SUITES),
    ("tls-min-version", TLS_VERSION),
];

static CONTROLLERS: &[(&str, Schema)] = &[
    ("node-cidr-mask-size", Schema::Int { min: 0, max: 128 }),
    ("node-cidr-mask-size-ipv4", Schema::Int { min: 0, max: 32 }),
    ("node-cidr-mask-size-ipv6", Schema::Int { min: 0, max: 128 }),
    ("secure-port", Schema::Int { min: 0, max: 65535 }),
];

const AUDIT_MODE: Schema = choice(&["batch", "blocking", "blocking-strict"]);

const ADMISSION_PLUGINS: Schema = Schema::List(&choice(&[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "JobValidation",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NamespaceLifecycle",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PersistentVolumeLabel",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
]));

static APISERVER: &[(&str, Schema)] = &[
    ("audit-log-format", choice(&["legacy", "json"])),
    ("audit-log-mode", AUDIT_MODE),
    ("audit-webhook-mode", AUDIT_MODE),
    ("authorization-mode", Schema::List(&choice(&["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"]))),
    ("disable-admission-plugins", ADMISSION_PLUGINS),
    ("enable-admission-plugins", ADMISSION_PLUGINS),
    ("goaway-chance", Schema::Number { min: 0.0, max: 0.02 }),
    ("secure-port", Schema::Int { min: 1, max: 65535 }),
    ("service-account-issuer", Schema::Form(Form::NotEmpty)),
    ("service-cluster-ip-range", Schema::Form(Form::Networks)),
    ("storage-backend", choice(&["etcd3"])),
];

const ETCD_TLS_VERSION: Schema = choice(&["TLS1.2", "TLS1.3"]);

static ETCD: &[(&str, Schema)] = &[
    ("auto-compaction-mode", choice(&["periodic", "revision"])),
    ("election-timeout", Schema::Int { min: 1, max: 50_000 }),
    ("heartbeat-interval", Schema::Int { min: 1, max: 10_000 }),
    ("initial-cluster-state", choice(&["new", "existing"])),
    ("tls-max-version", ETCD_TLS_VERSION),
    ("tls-min-version", ETCD_TLS_VERSION),
];

pub(crate) const TLS_VERSION: Schema = choice(&["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]);

pub(crate) const CIPHER_SUITES: Schema = Schema::List(&choice(&[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
]));

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target = Target { component: Component::Kubelet, minor: Some(36) };

    #[test]
    fn forms_are_those_that_the_programs_read() {
        let good = [
            (Form::Address, "::1"),
            (Form::AddressPort, "0.0.0.0"),
            (Form::AddressPort, "[::]:10249"),
            (Form::CpuSet, "0-3,8"),
            (Form::Networks, "10.0.0.0/8,fd00::/48"),
            (Form::NodeAddresses, "primary"),
            (Form::PortRange, "30000-32767"),
            (Form::PortRange, "30000+10"),
            (Form::PreviousMinor, "1.35"),
            (Form::PreviousMinor, ""),
        ];
        for (form, text) in good {
            assert!(form.check(text, TARGET).is_ok(), "{form:?} {text}");
        }
        let bad = [
            (Form::Address, "localhost"),
            (Form::AddressPort, "0.0.0.0:0"),
            (Form::AddressPort, ":10249"),
            (Form::CpuSet, "0-"),
            (Form::CpuSet, "3-0"),
            (Form::Networks, "10.0.0.0/8,11.0.0.0/8"),
            (Form::NodeAddresses, "foo"),
            (Form::NotEmpty, ""),
            (Form::PortRange, "40000-30000"),
            (Form::PortRange, "65535+1"),
            (Form::PreviousMinor, "1.30"),
        ];
        for (form, text) in bad {
            assert!(form.check(text, TARGET).is_err(), "{form:?} {text}");
        }
    }

    #[test]
    fn the_flags_exist() {
        for (component, table) in [
            (Component::KubeApiserver, SERVERS),
            (Component::KubeApiserver, APISERVER),
            (Component::KubeControllerManager, CONTROLLERS),
            (Component::Etcd, ETCD),
        ] {
            for (name, _) in table {
                assert!(component.flags().iter().any(|flag| flag.name == *name), "{name}");
                assert!(flag_schema(component, name).is_some());
            }
        }
    }
}
