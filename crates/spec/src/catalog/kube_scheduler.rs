//! `KubeSchedulerConfiguration` v1, and the flags that say what it cannot.
//!
//! Generated from tools/catalog/facts by tools/catalog/generate: do not edit.

use super::schema::{Field, Flag, FlagKind, INT32, INT64, Schema, field, flag};

pub(crate) const CONFIGURATION: &[Field] = &[
    field("apiVersion", Schema::Choice(&["kubescheduler.config.k8s.io/v1"])),
    field("clientConnection", Schema::Object(CLIENT_CONNECTION)),
    field("delayCacheUntilActive", Schema::Bool).builtin("false"),
    field("enableContentionProfiling", Schema::Bool).builtin("true"),
    field("enableProfiling", Schema::Bool).builtin("true"),
    field("extenders", Schema::List(&Schema::Object(EXTENDERS))),
    field("kind", Schema::Choice(&["KubeSchedulerConfiguration"])),
    field("leaderElection", Schema::Object(LEADER_ELECTION)),
    field("parallelism", Schema::Int { min: 1, max: i32::MAX as i64 }).builtin("16"),
    field("percentageOfNodesToScore", Schema::Int { min: 0, max: 100 }).builtin("0"),
    field("podInitialBackoffSeconds", Schema::Int { min: 1, max: i64::MAX }).builtin("1"),
    field("podMaxBackoffSeconds", Schema::Int { min: 1, max: i64::MAX }).builtin("10"),
    field("profiles", Schema::List(&Schema::Object(PROFILES))).builtin(r#"[{"schedulerName":"default-scheduler"}]"#),
];

const CLIENT_CONNECTION: &[Field] = &[
    field("acceptContentTypes", Schema::Text),
    field("burst", INT32).builtin("100"),
    field("contentType", Schema::Text).builtin(r#""application/vnd.kubernetes.protobuf""#),
    field("kubeconfig", Schema::Text),
    field("qps", Schema::Float).builtin("50"),
];

const MANAGED_RESOURCES: &[Field] = &[field("ignoredByScheduler", Schema::Bool), field("name", Schema::Text)];

const TLS_CONFIG: &[Field] = &[
    field("caData", Schema::Text),
    field("caFile", Schema::Text),
    field("certData", Schema::Text),
    field("certFile", Schema::Text),
    field("insecure", Schema::Bool),
    field("keyData", Schema::Text),
    field("keyFile", Schema::Text),
    field("serverName", Schema::Text),
];

const EXTENDERS: &[Field] = &[
    field("bindVerb", Schema::Text),
    field("enableHTTPS", Schema::Bool),
    field("filterVerb", Schema::Text),
    field("httpTimeout", Schema::Duration),
    field("ignorable", Schema::Bool),
    field("managedResources", Schema::List(&Schema::Object(MANAGED_RESOURCES))),
    field("nodeCacheCapable", Schema::Bool),
    field("preemptVerb", Schema::Text),
    field("prioritizeVerb", Schema::Text),
    field("tlsConfig", Schema::Object(TLS_CONFIG)),
    field("urlPrefix", Schema::Text),
    field("weight", INT64),
];

const LEADER_ELECTION: &[Field] = &[
    field("leaderElect", Schema::Bool).builtin("true"),
    field("leaseDuration", Schema::Duration).builtin(r#""15s""#),
    field("renewDeadline", Schema::Duration).builtin(r#""10s""#),
    field("resourceLock", Schema::Text).builtin(r#""leases""#),
    field("resourceName", Schema::Text).builtin(r#""kube-scheduler""#),
    field("resourceNamespace", Schema::Text).builtin(r#""kube-system""#),
    field("retryPeriod", Schema::Duration).builtin(r#""2s""#),
];

const PLUGIN_CONFIG: &[Field] = &[field("args", Schema::Free), field("name", Schema::Text)];

const DISABLED: &[Field] = &[field("name", Schema::Text), field("weight", INT32)];

const BIND: &[Field] = &[
    field("disabled", Schema::List(&Schema::Object(DISABLED))),
    field("enabled", Schema::List(&Schema::Object(DISABLED))),
];

const PLUGINS: &[Field] = &[
    field("bind", Schema::Object(BIND)),
    field("filter", Schema::Object(BIND)),
    field("multiPoint", Schema::Object(BIND)),
    field("permit", Schema::Object(BIND)),
    field("placementGenerate", Schema::Object(BIND)).since(36),
    field("placementScore", Schema::Object(BIND)).since(36),
    field("postBind", Schema::Object(BIND)),
    field("postFilter", Schema::Object(BIND)),
    field("preBind", Schema::Object(BIND)),
    field("preEnqueue", Schema::Object(BIND)),
    field("preFilter", Schema::Object(BIND)),
    field("preScore", Schema::Object(BIND)),
    field("queueSort", Schema::Object(BIND)),
    field("reserve", Schema::Object(BIND)),
    field("score", Schema::Object(BIND)),
];

const PROFILES: &[Field] = &[
    field("percentageOfNodesToScore", Schema::Int { min: 0, max: 100 }),
    field("pluginConfig", Schema::List(&Schema::Object(PLUGIN_CONFIG))),
    field("plugins", Schema::Object(PLUGINS)),
    field("schedulerName", Schema::Text),
];

pub(crate) const FLAGS: &[Flag] = &[
    flag("allow-metric-labels", FlagKind::Map),
    flag("allow-metric-labels-manifest", FlagKind::Text),
    flag("authentication-kubeconfig", FlagKind::Text),
    flag("authentication-skip-lookup", FlagKind::Bool),
    flag("authentication-token-webhook-cache-ttl", FlagKind::Duration).builtin("10s"),
    flag("authentication-tolerate-lookup-failure", FlagKind::Bool).builtin("true"),
    flag("authorization-always-allow-paths", FlagKind::List).builtin("[/healthz,/readyz,/livez]"),
    flag("authorization-kubeconfig", FlagKind::Text),
    flag("authorization-webhook-cache-authorized-ttl", FlagKind::Duration).builtin("10s"),
    flag("authorization-webhook-cache-unauthorized-ttl", FlagKind::Duration).builtin("10s"),
    flag("bind-address", FlagKind::Address).builtin("0.0.0.0"),
    flag("cert-dir", FlagKind::Text),
    flag("client-ca-file", FlagKind::Text),
    flag("config", FlagKind::Text),
    flag("disable-http2-serving", FlagKind::Bool).since(31),
    flag("disabled-metrics", FlagKind::List),
    flag("emulated-version", FlagKind::List).since(31),
    flag("feature-gates", FlagKind::Map),
    flag("http2-max-streams-per-connection", FlagKind::Int),
    flag("leader-elect", FlagKind::Bool).builtin("true"),
    flag("leader-elect-lease-duration", FlagKind::Duration).builtin("15s"),
    flag("leader-elect-renew-deadline", FlagKind::Duration).builtin("10s"),
    flag("leader-elect-resource-lock", FlagKind::Text).builtin("leases"),
    flag("leader-elect-resource-name", FlagKind::Text).builtin("kube-scheduler"),
    flag("leader-elect-resource-namespace", FlagKind::Text).builtin("kube-system"),
    flag("leader-elect-retry-period", FlagKind::Duration).builtin("2s"),
    flag("log-flush-frequency", FlagKind::Duration).builtin("5s"),
    flag("log-json-info-buffer-size", FlagKind::Text),
    flag("log-json-split-stream", FlagKind::Bool),
    flag("log-text-info-buffer-size", FlagKind::Text),
    flag("log-text-split-stream", FlagKind::Bool),
    flag("logging-format", FlagKind::Text).builtin("text"),
    flag("master", FlagKind::Text),
    flag("min-compatibility-version", FlagKind::List).since(35),
    flag("permit-address-sharing", FlagKind::Bool),
    flag("permit-port-sharing", FlagKind::Bool),
    flag("pod-max-in-unschedulable-pods-duration", FlagKind::Duration).builtin("5m0s").deprecated(),
    flag("requestheader-allowed-names", FlagKind::List),
    flag("requestheader-client-ca-file", FlagKind::Text),
    flag("requestheader-extra-headers-prefix", FlagKind::List).builtin("[x-remote-extra-]"),
    flag("requestheader-group-headers", FlagKind::List).builtin("[x-remote-group]"),
    flag("requestheader-uid-headers", FlagKind::List).since(32),
    flag("requestheader-username-headers", FlagKind::List).builtin("[x-remote-user]"),
    flag("secure-port", FlagKind::Int).builtin("10259"),
    flag("show-hidden-metrics-for-version", FlagKind::Text),
    flag("tls-cert-file", FlagKind::Text),
    flag("tls-cipher-suites", FlagKind::List),
    flag("tls-curve-preferences", FlagKind::List).since(36),
    flag("tls-min-version", FlagKind::Text),
    flag("tls-private-key-file", FlagKind::Text),
    flag("tls-sni-cert-key", FlagKind::Text),
    flag("v", FlagKind::Natural),
    flag("vmodule", FlagKind::Map),
    flag("write-config-to", FlagKind::Text),
];

/// Flags that belong into the configuration, with the field that is not simply named alike.
pub(crate) const FLAG_FIELDS: &[(&str, &str)] = &[
    ("contention-profiling", "enableContentionProfiling"),
    ("kube-api-burst", "clientConnection.burst"),
    ("kube-api-content-type", "clientConnection.contentType"),
    ("kube-api-qps", "clientConnection.qps"),
    ("kubeconfig", "clientConnection.kubeconfig"),
    ("profiling", "enableProfiling"),
];
