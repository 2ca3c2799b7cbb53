//! `KubeProxyConfiguration` v1alpha1, and the flags that say what it cannot.
//!
//! Generated from tools/catalog/facts by tools/catalog/generate: do not edit.

use super::schema::{Field, Flag, FlagKind, Schema, field, flag};
use super::values::Form;

pub(crate) const CONFIGURATION: &[Field] = &[
    field("apiVersion", Schema::Choice(&["kubeproxy.config.k8s.io/v1alpha1"])),
    field("bindAddress", Schema::Form(Form::Address)).builtin(r#""0.0.0.0""#),
    field("bindAddressHardFail", Schema::Bool).builtin("false"),
    field("clientConnection", Schema::Object(CLIENT_CONNECTION)),
    field("clusterCIDR", Schema::Form(Form::Networks)),
    field("configSyncPeriod", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""15m0s""#),
    field("conntrack", Schema::Object(CONNTRACK)),
    field("detectLocal", Schema::Object(DETECT_LOCAL)),
    field(
        "detectLocalMode",
        Schema::Choice(&["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]),
    )
    .builtin(r#""ClusterCIDR""#),
    field("enableProfiling", Schema::Bool).builtin("false"),
    field("featureGates", Schema::Map(&Schema::Bool)),
    field("healthzBindAddress", Schema::Form(Form::AddressPort)),
    field("hostnameOverride", Schema::Text),
    field("iptables", Schema::Object(IPTABLES)),
    field("ipvs", Schema::Object(IPVS)),
    field("kind", Schema::Choice(&["KubeProxyConfiguration"])),
    field("logging", Schema::Object(LOGGING)),
    field("metricsBindAddress", Schema::Form(Form::AddressPort)),
    field("mode", Schema::Choice(&["", "iptables", "ipvs", "nftables"])),
    field("nftables", Schema::Object(NFTABLES)),
    field("nodePortAddresses", Schema::List(&Schema::Form(Form::NodeAddresses))),
    field("oomScoreAdj", Schema::Int { min: -1000, max: 1000 }).builtin("-999"),
    field("portRange", Schema::Text),
    field("showHiddenMetricsForVersion", Schema::Form(Form::PreviousMinor)),
    field("windowsRunAsService", Schema::Bool).since(31).builtin("false"),
    field("winkernel", Schema::Object(WINKERNEL)),
];

const CLIENT_CONNECTION: &[Field] = &[
    field("acceptContentTypes", Schema::Text),
    field("burst", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("10"),
    field("contentType", Schema::Text).builtin(r#""application/vnd.kubernetes.protobuf""#),
    field("kubeconfig", Schema::Text),
    field("qps", Schema::Float).builtin("5"),
];

const CONNTRACK: &[Field] = &[
    field("maxPerCore", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("32768"),
    field("min", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("131072"),
    field("tcpBeLiberal", Schema::Bool).builtin("false"),
    field("tcpCloseWaitTimeout", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""1h0m0s""#),
    field("tcpEstablishedTimeout", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""24h0m0s""#),
    field("udpStreamTimeout", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""0s""#),
    field("udpTimeout", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""0s""#),
];

const DETECT_LOCAL: &[Field] = &[field("bridgeInterface", Schema::Text), field("interfaceNamePrefix", Schema::Text)];

const IPTABLES: &[Field] = &[
    field("localhostNodePorts", Schema::Bool).builtin("true"),
    field("masqueradeAll", Schema::Bool).builtin("false"),
    field("masqueradeBit", Schema::Int { min: 0, max: 31 }).builtin("14"),
    field("minSyncPeriod", Schema::Duration).builtin(r#""1s""#),
    field("syncPeriod", Schema::Duration).builtin(r#""30s""#),
];

const IPVS: &[Field] = &[
    field("excludeCIDRs", Schema::List(&Schema::Form(Form::Network))),
    field("minSyncPeriod", Schema::Duration).builtin(r#""0s""#),
    field("scheduler", Schema::Text),
    field("strictARP", Schema::Bool).builtin("false"),
    field("syncPeriod", Schema::Duration).builtin(r#""30s""#),
    field("tcpFinTimeout", Schema::Duration).builtin(r#""0s""#),
    field("tcpTimeout", Schema::Duration).builtin(r#""0s""#),
    field("udpTimeout", Schema::Duration).builtin(r#""0s""#),
];

const JSON: &[Field] =
    &[field("infoBufferSize", Schema::Text).builtin(r#""0""#), field("splitStream", Schema::Bool).builtin("false")];

const OPTIONS: &[Field] = &[field("json", Schema::Object(JSON)), field("text", Schema::Object(JSON))];

const VMODULE: &[Field] =
    &[field("filePattern", Schema::Text), field("verbosity", Schema::Int { min: 0, max: u32::MAX as i64 })];

const LOGGING: &[Field] = &[
    field("flushFrequency", Schema::Duration).builtin(r#""5s""#),
    field("format", Schema::Choice(&["text", "json"])).builtin(r#""text""#),
    field("options", Schema::Object(OPTIONS)),
    field("verbosity", Schema::Int { min: 0, max: u32::MAX as i64 }).builtin("0"),
    field("vmodule", Schema::List(&Schema::Object(VMODULE))),
];

const NFTABLES: &[Field] = &[
    field("masqueradeAll", Schema::Bool).builtin("false"),
    field("masqueradeBit", Schema::Int { min: 0, max: 31 }).builtin("14"),
    field("minSyncPeriod", Schema::Duration).builtin(r#""1s""#),
    field("syncPeriod", Schema::Duration).builtin(r#""30s""#),
];

const WINKERNEL: &[Field] = &[
    field("enableDSR", Schema::Bool).builtin("false"),
    field("forwardHealthCheckVip", Schema::Bool).builtin("false"),
    field("networkName", Schema::Text),
    field("rootHnsEndpointName", Schema::Text),
    field("sourceVip", Schema::Text),
];

pub(crate) const FLAGS: &[Flag] = &[
    flag("boot-id-file", FlagKind::Text).builtin("/proc/sys/kernel/random/boot_id"),
    flag("cleanup", FlagKind::Bool),
    flag("config", FlagKind::Text),
    flag("hostname-override", FlagKind::Text),
    flag("init-only", FlagKind::Bool),
    flag("log-flush-frequency", FlagKind::Duration).builtin("5s"),
    flag("log-json-info-buffer-size", FlagKind::Text),
    flag("log-json-split-stream", FlagKind::Bool),
    flag("log-text-info-buffer-size", FlagKind::Text),
    flag("log-text-split-stream", FlagKind::Bool),
    flag("logging-format", FlagKind::Text).builtin("text"),
    flag("machine-id-file", FlagKind::Text).builtin("/etc/machine-id,/var/lib/dbus/machine-id"),
    flag("master", FlagKind::Text),
    flag("v", FlagKind::Natural),
    flag("vmodule", FlagKind::Map),
    flag("write-config-to", FlagKind::Text),
];

/// Flags that belong into the configuration, with the field that is not simply named alike.
pub(crate) const FLAG_FIELDS: &[(&str, &str)] = &[
    ("bind-address", "bindAddress"),
    ("bind-address-hard-fail", "bindAddressHardFail"),
    ("cluster-cidr", "clusterCIDR"),
    ("config-sync-period", "configSyncPeriod"),
    ("conntrack-max-per-core", "conntrack.maxPerCore"),
    ("conntrack-min", "conntrack.min"),
    ("conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal"),
    ("conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout"),
    ("conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout"),
    ("conntrack-udp-timeout", "conntrack.udpTimeout"),
    ("conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout"),
    ("detect-local-mode", "detectLocalMode"),
    ("feature-gates", "featureGates"),
    ("healthz-bind-address", "healthzBindAddress"),
    ("healthz-port", "healthzBindAddress"),
    ("iptables-localhost-nodeports", "iptables.localhostNodePorts"),
    ("iptables-masquerade-bit", "iptables.masqueradeBit"),
    ("iptables-min-sync-period", "iptables.minSyncPeriod"),
    ("iptables-sync-period", "iptables.syncPeriod"),
    ("ipvs-exclude-cidrs", "ipvs.excludeCIDRs"),
    ("ipvs-min-sync-period", "ipvs.minSyncPeriod"),
    ("ipvs-scheduler", "ipvs.scheduler"),
    ("ipvs-strict-arp", "ipvs.strictARP"),
    ("ipvs-sync-period", "ipvs.syncPeriod"),
    ("ipvs-tcp-timeout", "ipvs.tcpTimeout"),
    ("ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout"),
    ("ipvs-udp-timeout", "ipvs.udpTimeout"),
    ("kube-api-burst", "clientConnection.burst"),
    ("kube-api-content-type", "clientConnection.contentType"),
    ("kube-api-qps", "clientConnection.qps"),
    ("kubeconfig", "clientConnection.kubeconfig"),
    ("masquerade-all", "iptables.masqueradeAll"),
    ("metrics-bind-address", "metricsBindAddress"),
    ("metrics-port", "metricsBindAddress"),
    ("nodeport-addresses", "nodePortAddresses"),
    ("oom-score-adj", "oomScoreAdj"),
    ("pod-bridge-interface", "detectLocal.bridgeInterface"),
    ("pod-interface-name-prefix", "detectLocal.interfaceNamePrefix"),
    ("profiling", "enableProfiling"),
    ("proxy-mode", "mode"),
    ("proxy-port-range", "portRange"),
    ("show-hidden-metrics-for-version", "showHiddenMetricsForVersion"),
];
