//! `KubeProxyConfiguration` v1alpha1, and the flags of kube-proxy.
//!
//! Generated from tools/catalog/facts by tools/catalog/generate: do not edit.

use super::schema::{Field, Flag, FlagKind, INT32, Schema, TEXTS, field, flag};

pub(crate) const CONFIGURATION: &[Field] = &[
    field("apiVersion", Schema::Choice(&["kubeproxy.config.k8s.io/v1alpha1"])),
    field("bindAddress", Schema::Text).builtin(r#""0.0.0.0""#),
    field("bindAddressHardFail", Schema::Bool).builtin("false"),
    field("clientConnection", Schema::Object(CLIENT_CONNECTION)),
    field("clusterCIDR", Schema::Text),
    field("configSyncPeriod", Schema::Duration).builtin(r#""15m0s""#),
    field("conntrack", Schema::Object(CONNTRACK)),
    field("detectLocal", Schema::Object(DETECT_LOCAL)),
    field("detectLocalMode", Schema::Text).builtin(r#""ClusterCIDR""#),
    field("enableProfiling", Schema::Bool).builtin("false"),
    field("featureGates", Schema::Map(&Schema::Bool)),
    field("healthzBindAddress", Schema::Text),
    field("hostnameOverride", Schema::Text),
    field("iptables", Schema::Object(IPTABLES)),
    field("ipvs", Schema::Object(IPVS)),
    field("kind", Schema::Choice(&["KubeProxyConfiguration"])),
    field("logging", Schema::Object(LOGGING)),
    field("metricsBindAddress", Schema::Text),
    field("mode", Schema::Text),
    field("nftables", Schema::Object(NFTABLES)),
    field("nodePortAddresses", TEXTS),
    field("oomScoreAdj", Schema::Int { min: -1000, max: 1000 }).builtin("-999"),
    field("portRange", Schema::Text),
    field("showHiddenMetricsForVersion", Schema::Text),
    field("windowsRunAsService", Schema::Bool).since(31).builtin("false"),
    field("winkernel", Schema::Object(WINKERNEL)),
];

const CLIENT_CONNECTION: &[Field] = &[
    field("acceptContentTypes", Schema::Text),
    field("burst", INT32).builtin("10"),
    field("contentType", Schema::Text).builtin(r#""application/vnd.kubernetes.protobuf""#),
    field("kubeconfig", Schema::Text),
    field("qps", Schema::Float).builtin("5"),
];

const CONNTRACK: &[Field] = &[
    field("maxPerCore", INT32).builtin("32768"),
    field("min", INT32).builtin("131072"),
    field("tcpBeLiberal", Schema::Bool).builtin("false"),
    field("tcpCloseWaitTimeout", Schema::Duration).builtin(r#""1h0m0s""#),
    field("tcpEstablishedTimeout", Schema::Duration).builtin(r#""24h0m0s""#),
    field("udpStreamTimeout", Schema::Duration).builtin(r#""0s""#),
    field("udpTimeout", Schema::Duration).builtin(r#""0s""#),
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
    field("excludeCIDRs", TEXTS),
    field("minSyncPeriod", Schema::Duration),
    field("scheduler", Schema::Text),
    field("strictARP", Schema::Bool).builtin("false"),
    field("syncPeriod", Schema::Duration),
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
    field("minSyncPeriod", Schema::Duration),
    field("syncPeriod", Schema::Duration),
];

const WINKERNEL: &[Field] = &[
    field("enableDSR", Schema::Bool).builtin("false"),
    field("forwardHealthCheckVip", Schema::Bool).builtin("false"),
    field("networkName", Schema::Text),
    field("rootHnsEndpointName", Schema::Text),
    field("sourceVip", Schema::Text),
];

pub(crate) const FLAGS: &[Flag] = &[
    flag("bind-address", FlagKind::Text).builtin("0.0.0.0"),
    flag("bind-address-hard-fail", FlagKind::Bool),
    flag("boot-id-file", FlagKind::Text).builtin("/proc/sys/kernel/random/boot_id"),
    flag("cleanup", FlagKind::Bool),
    flag("cluster-cidr", FlagKind::Text),
    flag("config", FlagKind::Text),
    flag("config-sync-period", FlagKind::Duration).builtin("15m0s"),
    flag("conntrack-max-per-core", FlagKind::Int).builtin("32768"),
    flag("conntrack-min", FlagKind::Int).builtin("131072"),
    flag("conntrack-tcp-be-liberal", FlagKind::Bool),
    flag("conntrack-tcp-timeout-close-wait", FlagKind::Duration).builtin("1h0m0s"),
    flag("conntrack-tcp-timeout-established", FlagKind::Duration).builtin("24h0m0s"),
    flag("conntrack-udp-timeout", FlagKind::Duration),
    flag("conntrack-udp-timeout-stream", FlagKind::Duration),
    flag("detect-local-mode", FlagKind::Text),
    flag("feature-gates", FlagKind::Map),
    flag("healthz-bind-address", FlagKind::Text).builtin("0.0.0.0:10256"),
    flag("healthz-port", FlagKind::Int).deprecated(),
    flag("hostname-override", FlagKind::Text),
    flag("init-only", FlagKind::Bool),
    flag("iptables-localhost-nodeports", FlagKind::Bool).builtin("true"),
    flag("iptables-masquerade-bit", FlagKind::Int).builtin("14"),
    flag("iptables-min-sync-period", FlagKind::Duration).builtin("1s"),
    flag("iptables-sync-period", FlagKind::Duration).builtin("30s"),
    flag("ipvs-exclude-cidrs", FlagKind::List),
    flag("ipvs-min-sync-period", FlagKind::Duration),
    flag("ipvs-scheduler", FlagKind::Text),
    flag("ipvs-strict-arp", FlagKind::Bool),
    flag("ipvs-sync-period", FlagKind::Duration).builtin("30s"),
    flag("ipvs-tcp-timeout", FlagKind::Duration),
    flag("ipvs-tcpfin-timeout", FlagKind::Duration),
    flag("ipvs-udp-timeout", FlagKind::Duration),
    flag("kube-api-burst", FlagKind::Int).builtin("10"),
    flag("kube-api-content-type", FlagKind::Text).builtin("application/vnd.kubernetes.protobuf"),
    flag("kube-api-qps", FlagKind::Float).builtin("5"),
    flag("kubeconfig", FlagKind::Text),
    flag("log-flush-frequency", FlagKind::Duration).builtin("5s"),
    flag("log-json-info-buffer-size", FlagKind::Text),
    flag("log-json-split-stream", FlagKind::Bool),
    flag("log-text-info-buffer-size", FlagKind::Text),
    flag("log-text-split-stream", FlagKind::Bool),
    flag("logging-format", FlagKind::Text).builtin("text"),
    flag("machine-id-file", FlagKind::Text).builtin("/etc/machine-id,/var/lib/dbus/machine-id"),
    flag("masquerade-all", FlagKind::Bool),
    flag("master", FlagKind::Text),
    flag("metrics-bind-address", FlagKind::Text).builtin("127.0.0.1:10249"),
    flag("metrics-port", FlagKind::Int).deprecated(),
    flag("nodeport-addresses", FlagKind::List),
    flag("oom-score-adj", FlagKind::Int).builtin("-999"),
    flag("pod-bridge-interface", FlagKind::Text),
    flag("pod-interface-name-prefix", FlagKind::Text),
    flag("profiling", FlagKind::Bool),
    flag("proxy-mode", FlagKind::Text),
    flag("proxy-port-range", FlagKind::Text).until(31).deprecated(),
    flag("show-hidden-metrics-for-version", FlagKind::Text),
    flag("v", FlagKind::Int),
    flag("vmodule", FlagKind::Map),
    flag("write-config-to", FlagKind::Text),
];
