//! `KubeletConfiguration` v1beta1, and the flags that say what it cannot.
//!
//! Generated from tools/catalog/facts by tools/catalog/generate: do not edit.

use super::schema::{Field, Flag, FlagKind, INT32, INT64, Schema, TEXT_MAP, TEXTS, field, flag};
use super::values::{CIPHER_SUITES, Form, TLS_VERSION};

pub(crate) const CONFIGURATION: &[Field] = &[field("address", Schema::Form(Form::Address)).builtin(r#""0.0.0.0""#),
field("allowedUnsafeSysctls", TEXTS),
field("apiVersion", Schema::Choice(&["kubelet.config.k8s.io/v1beta1"])),
field("authentication", Schema::Object(AUTHENTICATION)),
field("authorization", Schema::Object(AUTHORIZATION)),
field("cgroupDriver", Schema::Choice(&["systemd", "cgroupfs"])),
field("cgroupRoot", Schema::Text),
field("cgroupsPerQOS", Schema::Bool).builtin("true"),
field("clusterDNS", TEXTS),
field("clusterDomain", Schema::Text),
field("configMapAndSecretChangeDetectionStrategy", Schema::Choice(&["Get", "Cache", "Watch"])).builtin(r#""Watch""#),
field("containerLogMaxFiles", Schema::Int { min: 2, max: i32::MAX as i64 }).builtin("5"),
field("containerLogMaxSize", Schema::Text).builtin(r#""10Mi""#),
field("containerLogMaxWorkers", Schema::Int { min: 1, max: i32::MAX as i64 }).builtin("1"),
field("containerLogMonitorInterval", Schema::Within { min: 3000, max: i64::MAX }).builtin(r#""10s""#),
field("containerRuntimeEndpoint", Schema::Text).builtin(r#""unix:///run/containerd/containerd.sock""#),
field("contentType", Schema::Text).builtin(r#""application/vnd.kubernetes.protobuf""#),
field("cpuCFSQuota", Schema::Bool).builtin("true"),
field("cpuCFSQuotaPeriod", Schema::Within { min: 1, max: 1000 }).builtin(r#""100ms""#),
field("cpuManagerPolicy", Schema::Choice(&["none", "static"])).builtin(r#""none""#),
field("cpuManagerPolicyOptions", TEXT_MAP),
field("cpuManagerReconcilePeriod", Schema::Duration).builtin(r#""10s""#),
field("crashLoopBackOff", Schema::Object(CRASH_LOOP_BACK_OFF)).since(32),
field("enableContentionProfiling", Schema::Bool).builtin("false"),
field("enableControllerAttachDetach", Schema::Bool).builtin("true"),
field("enableDebugFlagsHandler", Schema::Bool).builtin("true"),
field("enableDebuggingHandlers", Schema::Bool).builtin("true"),
field("enableProfilingHandler", Schema::Bool).builtin("true"),
field("enableServer", Schema::Bool).builtin("true"),
field("enableSystemLogHandler", Schema::Bool).builtin("true"),
field("enableSystemLogQuery", Schema::Bool),
field("enforceNodeAllocatable", Schema::List(&Schema::Choice(&["pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible", "none"]))).builtin(r#"["pods"]"#),
field("eventBurst", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("100"),
field("eventRecordQPS", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("50"),
field("evictionHard", TEXT_MAP).builtin(r#"{"imagefs.available":"15%","imagefs.inodesFree":"5%","memory.available":"100Mi","nodefs.available":"10%","nodefs.inodesFree":"5%"}"#),
field("evictionMaxPodGracePeriod", INT32).builtin("0"),
field("evictionMinimumReclaim", TEXT_MAP),
field("evictionPressureTransitionPeriod", Schema::Duration).builtin(r#""5m0s""#),
field("evictionSoft", TEXT_MAP),
field("evictionSoftGracePeriod", TEXT_MAP),
field("failCgroupV1", Schema::Bool).since(31),
field("failSwapOn", Schema::Bool).builtin("true"),
field("featureGates", Schema::Map(&Schema::Bool)),
field("fileCheckFrequency", Schema::Duration).builtin(r#""20s""#),
field("hairpinMode", Schema::Choice(&["hairpin-veth", "promiscuous-bridge", "none"])).builtin(r#""promiscuous-bridge""#),
field("healthzBindAddress", Schema::Text).builtin(r#""127.0.0.1""#),
field("healthzPort", Schema::Int { min: 0, max: 65535 }).builtin("10248"),
field("httpCheckFrequency", Schema::Duration).builtin(r#""20s""#),
field("imageGCHighThresholdPercent", Schema::Int { min: 0, max: 100 }).builtin("85"),
field("imageGCLowThresholdPercent", Schema::Int { min: 0, max: 100 }).builtin("80"),
field("imageMaximumGCAge", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""0s""#),
field("imageMinimumGCAge", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""2m0s""#),
field("imagePullCredentialsVerificationPolicy", Schema::Choice(&["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"])).since(33),
field("imageServiceEndpoint", Schema::Text),
field("iptablesDropBit", Schema::Int { min: 0, max: 31 }).builtin("15"),
field("iptablesMasqueradeBit", Schema::Int { min: 0, max: 31 }).builtin("14"),
field("kernelMemcgNotification", Schema::Bool).builtin("false"),
field("kind", Schema::Choice(&["KubeletConfiguration"])),
field("kubeAPIBurst", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("100"),
field("kubeAPIQPS", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("50"),
field("kubeReserved", TEXT_MAP),
field("kubeReservedCgroup", Schema::Text),
field("kubeletCgroups", Schema::Text),
field("localStorageCapacityIsolation", Schema::Bool).builtin("true"),
field("logging", Schema::Object(LOGGING)),
field("makeIPTablesUtilChains", Schema::Bool).builtin("true"),
field("maxOpenFiles", Schema::Int { min: 0, max: i64::MAX }).builtin("1000000"),
field("maxParallelImagePulls", Schema::Int { min: 1, max: i32::MAX as i64 }),
field("maxPods", Schema::Int { min: 1, max: 65535 }).builtin("110"),
field("memoryManagerPolicy", Schema::Choice(&["None", "Static"])).builtin(r#""None""#),
field("memoryReservationPolicy", Schema::Choice(&["None", "TieredReservation"])).since(36).builtin(r#""None""#),
field("memorySwap", Schema::Object(MEMORY_SWAP)),
field("memoryThrottlingFactor", Schema::Number { min: f64::MIN_POSITIVE, max: 1.0 }).builtin("0.9"),
field("mergeDefaultEvictionSettings", Schema::Bool).since(33).builtin("false"),
field("nodeLeaseDurationSeconds", Schema::Int { min: 1, max: i32::MAX as i64 }).builtin("40"),
field("nodeStatusMaxImages", Schema::Int { min: -1, max: i32::MAX as i64 }).builtin("50"),
field("nodeStatusReportFrequency", Schema::Duration),
field("nodeStatusUpdateFrequency", Schema::Duration).builtin(r#""10s""#),
field("oomScoreAdj", Schema::Int { min: -1000, max: 1000 }).builtin("-999"),
field("podCIDR", Schema::Text),
field("podLogsDir", Schema::Text).builtin(r#""/var/log/pods""#),
field("podPidsLimit", INT64).builtin("-1"),
field("podsPerCore", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("0"),
field("port", Schema::Int { min: 1, max: 65535 }).builtin("10250"),
field("preloadedImagesVerificationAllowlist", TEXTS).since(33),
field("protectKernelDefaults", Schema::Bool).builtin("false"),
field("providerID", Schema::Text),
field("qosReserved", TEXT_MAP),
field("readOnlyPort", Schema::Int { min: 0, max: 65535 }).builtin("0"),
field("registerNode", Schema::Bool).builtin("true"),
field("registerWithTaints", Schema::List(&Schema::Object(REGISTER_WITH_TAINTS))),
field("registryBurst", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("10"),
field("registryPullQPS", Schema::Int { min: 0, max: i32::MAX as i64 }).builtin("5"),
field("reservedMemory", Schema::List(&Schema::Object(RESERVED_MEMORY))),
field("reservedSystemCPUs", Schema::Form(Form::CpuSet)),
field("resolvConf", Schema::Text).builtin(r#""/etc/resolv.conf""#),
field("rotateCertificates", Schema::Bool).builtin("false"),
field("runOnce", Schema::Bool).builtin("false"),
field("runtimeRequestTimeout", Schema::Duration).builtin(r#""2m0s""#),
field("seccompDefault", Schema::Bool).builtin("false"),
field("serializeImagePulls", Schema::Bool),
field("serverTLSBootstrap", Schema::Bool).builtin("false"),
field("showHiddenMetricsForVersion", Schema::Form(Form::PreviousMinor)),
field("shutdownGracePeriod", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""0s""#),
field("shutdownGracePeriodByPodPriority", Schema::List(&Schema::Object(SHUTDOWN_GRACE_PERIOD_BY_POD_PRIORITY))),
field("shutdownGracePeriodCriticalPods", Schema::Within { min: 0, max: i64::MAX }).builtin(r#""0s""#),
field("singleProcessOOMKill", Schema::Bool).since(32),
field("staticPodPath", Schema::Text),
field("staticPodURL", Schema::Text),
field("staticPodURLHeader", Schema::Map(&TEXTS)),
field("streamingConnectionIdleTimeout", Schema::Duration).builtin(r#""4h0m0s""#),
field("syncFrequency", Schema::Duration).builtin(r#""1m0s""#),
field("systemCgroups", Schema::Text),
field("systemReserved", TEXT_MAP),
field("systemReservedCgroup", Schema::Text),
field("tlsCertFile", Schema::Text),
field("tlsCipherSuites", CIPHER_SUITES),
field("tlsCurvePreferences", Schema::List(&INT32)).since(36),
field("tlsMinVersion", TLS_VERSION),
field("tlsPrivateKeyFile", Schema::Text),
field("topologyManagerPolicy", Schema::Choice(&["none", "best-effort", "restricted", "single-numa-node"])).builtin(r#""none""#),
field("topologyManagerPolicyOptions", TEXT_MAP),
field("topologyManagerScope", Schema::Choice(&["container", "pod"])).builtin(r#""container""#),
field("tracing", Schema::Object(TRACING)),
field("userNamespaces", Schema::Object(USER_NAMESPACES)).since(33),
field("volumePluginDir", Schema::Text).builtin(r#""/usr/libexec/kubernetes/kubelet-plugins/volume/exec/""#),
field("volumeStatsAggPeriod", Schema::Duration).builtin(r#""1m0s""#),
];

const ANONYMOUS: &[Field] = &[field("enabled", Schema::Bool).builtin("false")];

const WEBHOOK: &[Field] =
    &[field("cacheTTL", Schema::Duration).builtin(r#""2m0s""#), field("enabled", Schema::Bool).builtin("true")];

const X509: &[Field] = &[field("clientCAFile", Schema::Text)];

const AUTHENTICATION: &[Field] = &[
    field("anonymous", Schema::Object(ANONYMOUS)),
    field("webhook", Schema::Object(WEBHOOK)),
    field("x509", Schema::Object(X509)),
];

const WEBHOOK_2: &[Field] = &[
    field("cacheAuthorizedTTL", Schema::Duration).builtin(r#""5m0s""#),
    field("cacheUnauthorizedTTL", Schema::Duration).builtin(r#""30s""#),
];

const AUTHORIZATION: &[Field] = &[
    field("mode", Schema::Choice(&["AlwaysAllow", "Webhook"])).builtin(r#""Webhook""#),
    field("webhook", Schema::Object(WEBHOOK_2)),
];

const CRASH_LOOP_BACK_OFF: &[Field] = &[field("maxContainerRestartPeriod", Schema::Within { min: 1000, max: 300000 })];

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

const MEMORY_SWAP: &[Field] = &[field("swapBehavior", Schema::Choice(&["", "NoSwap", "LimitedSwap"]))];

const REGISTER_WITH_TAINTS: &[Field] = &[
    field("effect", Schema::Choice(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
    field("key", Schema::Text),
    field("value", Schema::Text),
];

const RESERVED_MEMORY: &[Field] =
    &[field("limits", TEXT_MAP), field("numaNode", Schema::Int { min: 0, max: i32::MAX as i64 })];

const SHUTDOWN_GRACE_PERIOD_BY_POD_PRIORITY: &[Field] =
    &[field("priority", INT32), field("shutdownGracePeriodSeconds", INT64)];

const TRACING: &[Field] =
    &[field("endpoint", Schema::Text), field("samplingRatePerMillion", Schema::Int { min: 0, max: 1000000 })];

const USER_NAMESPACES: &[Field] = &[field("idsPerPod", Schema::Int { min: 0, max: i64::MAX })];

pub(crate) const FLAGS: &[Flag] = &[
    flag("application-metrics-count-limit", FlagKind::Int).builtin("100").deprecated(),
    flag("boot-id-file", FlagKind::Text).builtin("/proc/sys/kernel/random/boot_id").deprecated(),
    flag("bootstrap-kubeconfig", FlagKind::Text),
    flag("cert-dir", FlagKind::Text).builtin("/var/lib/kubelet/pki"),
    flag("cloud-config", FlagKind::Text).until(34).deprecated(),
    flag("cloud-provider", FlagKind::Text),
    flag("config", FlagKind::Text),
    flag("config-dir", FlagKind::Text),
    flag("container-hints", FlagKind::Text).builtin("/etc/cadvisor/container_hints.json").deprecated(),
    flag("containerd", FlagKind::Text).builtin("/run/containerd/containerd.sock").deprecated(),
    flag("containerd-namespace", FlagKind::Text).builtin("k8s.io").deprecated(),
    flag("enable-load-reader", FlagKind::Bool).deprecated(),
    flag("event-storage-age-limit", FlagKind::Text).builtin("default=0").deprecated(),
    flag("event-storage-event-limit", FlagKind::Text).builtin("default=0").deprecated(),
    flag("exit-on-lock-contention", FlagKind::Bool),
    flag("experimental-allocatable-ignore-eviction", FlagKind::Bool).deprecated(),
    flag("experimental-mounter-path", FlagKind::Text).deprecated(),
    flag("global-housekeeping-interval", FlagKind::Duration).builtin("1m0s").deprecated(),
    flag("hostname-override", FlagKind::Text),
    flag("housekeeping-interval", FlagKind::Duration).builtin("10s"),
    flag("image-credential-provider-bin-dir", FlagKind::Text),
    flag("image-credential-provider-config", FlagKind::Text),
    flag("keep-terminated-pod-volumes", FlagKind::Bool).until(31).deprecated(),
    flag("kubeconfig", FlagKind::Text),
    flag("lock-file", FlagKind::Text),
    flag("log-cadvisor-usage", FlagKind::Bool).deprecated(),
    flag("log-flush-frequency", FlagKind::Duration).builtin("5s"),
    flag("log-json-info-buffer-size", FlagKind::Text).deprecated(),
    flag("log-json-split-stream", FlagKind::Bool).deprecated(),
    flag("log-text-info-buffer-size", FlagKind::Text).deprecated(),
    flag("log-text-split-stream", FlagKind::Bool).deprecated(),
    flag("machine-id-file", FlagKind::Text).builtin("/etc/machine-id,/var/lib/dbus/machine-id").deprecated(),
    flag("maximum-dead-containers", FlagKind::Int32).builtin("-1").deprecated(),
    flag("maximum-dead-containers-per-container", FlagKind::Int32).builtin("1").deprecated(),
    flag("minimum-container-ttl-duration", FlagKind::Duration).deprecated(),
    flag("node-ip", FlagKind::Text),
    flag("node-labels", FlagKind::Map),
    flag("pod-infra-container-image", FlagKind::Text).until(35).deprecated(),
    flag("register-schedulable", FlagKind::Bool).until(34).builtin("true").deprecated(),
    flag("root-dir", FlagKind::Text).builtin("/var/lib/kubelet"),
    flag("runtime-cgroups", FlagKind::Text),
    flag("storage-driver-buffer-duration", FlagKind::Duration).builtin("1m0s").deprecated(),
    flag("storage-driver-db", FlagKind::Text).builtin("cadvisor").deprecated(),
    flag("storage-driver-host", FlagKind::Text).builtin("localhost:8086").deprecated(),
    flag("storage-driver-password", FlagKind::Text).builtin("root").deprecated(),
    flag("storage-driver-secure", FlagKind::Bool).deprecated(),
    flag("storage-driver-table", FlagKind::Text).builtin("stats").deprecated(),
    flag("storage-driver-user", FlagKind::Text).builtin("root").deprecated(),
    flag("v", FlagKind::Natural),
    flag("vmodule", FlagKind::Map),
];

/// Flags that belong into the configuration, with the field that is not simply named alike.
pub(crate) const FLAG_FIELDS: &[(&str, &str)] = &[
    ("anonymous-auth", "authentication.anonymous.enabled"),
    ("authentication-token-webhook", "authentication.webhook.enabled"),
    ("authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL"),
    ("authorization-mode", "authorization.mode"),
    ("authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL"),
    ("authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL"),
    ("client-ca-file", "authentication.x509.clientCAFile"),
    ("contention-profiling", "enableContentionProfiling"),
    ("event-qps", "eventRecordQPS"),
    ("image-gc-high-threshold", "imageGCHighThresholdPercent"),
    ("image-gc-low-threshold", "imageGCLowThresholdPercent"),
    ("kube-api-content-type", "contentType"),
    ("logging-format", "logging.format"),
    ("manifest-url", "staticPodURL"),
    ("manifest-url-header", "staticPodURLHeader"),
    ("minimum-image-ttl-duration", "imageMinimumGCAge"),
    ("pod-manifest-path", "staticPodPath"),
    ("pod-max-pids", "podPidsLimit"),
    ("registry-qps", "registryPullQPS"),
    ("reserved-cpus", "reservedSystemCPUs"),
    ("rotate-server-certificates", "serverTLSBootstrap"),
];
