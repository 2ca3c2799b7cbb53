//! The kubelet of Kubernetes 1.36: every field of `KubeletConfiguration` v1beta1 with its JSON kind, and the flags beside
//! it. Names and kinds are facts of k8s.io/kubelet v0.36.3; the bounds are those the kubelet itself checks at start.

use super::schema::{COUNT, COUNT64, Field, INT32, INT64, PERCENT, Schema, TEXT_MAP, TEXTS, field};

/// Zero switches the port off.
const PORT: Schema = Schema::Int { min: 0, max: 65535 };
const VERBOSITY: Schema = Schema::Int { min: 0, max: u32::MAX as i64 };

pub(crate) const CONFIGURATION: &[Field] = &[
    // Accepted, so that a whole document can be pasted, and left out again: nodestrap writes them itself.
    field("apiVersion", Schema::Choice(&["kubelet.config.k8s.io/v1beta1"])),
    field("kind", Schema::Choice(&["KubeletConfiguration"])),
    field("enableServer", Schema::Bool),
    field("staticPodPath", Schema::Text),
    field("podLogsDir", Schema::Text),
    field("syncFrequency", Schema::Duration),
    field("fileCheckFrequency", Schema::Duration),
    field("httpCheckFrequency", Schema::Duration),
    field("staticPodURL", Schema::Text),
    field("staticPodURLHeader", Schema::Map(&TEXTS)),
    field("address", Schema::Text),
    field("port", Schema::Int { min: 1, max: 65535 }),
    field("readOnlyPort", PORT),
    field("tlsCertFile", Schema::Text),
    field("tlsPrivateKeyFile", Schema::Text),
    field("tlsCipherSuites", TEXTS),
    field("tlsCurvePreferences", Schema::List(&INT32)),
    field("tlsMinVersion", Schema::Text),
    field("rotateCertificates", Schema::Bool),
    field("serverTLSBootstrap", Schema::Bool),
    field("authentication", Schema::Object(AUTHENTICATION)),
    field("authorization", Schema::Object(AUTHORIZATION)),
    field("registryPullQPS", COUNT),
    field("registryBurst", COUNT),
    field(
        "imagePullCredentialsVerificationPolicy",
        Schema::Choice(&["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"]),
    ),
    field("preloadedImagesVerificationAllowlist", TEXTS),
    field("eventRecordQPS", COUNT),
    field("eventBurst", COUNT),
    field("enableDebuggingHandlers", Schema::Bool),
    field("enableContentionProfiling", Schema::Bool),
    field("healthzPort", PORT),
    field("healthzBindAddress", Schema::Text),
    field("oomScoreAdj", Schema::Int { min: -1000, max: 1000 }),
    field("clusterDomain", Schema::Text),
    field("clusterDNS", TEXTS),
    field("streamingConnectionIdleTimeout", Schema::Duration),
    field("nodeStatusUpdateFrequency", Schema::Duration),
    field("nodeStatusReportFrequency", Schema::Duration),
    field("nodeLeaseDurationSeconds", Schema::Int { min: 1, max: i32::MAX as i64 }),
    field("imageMinimumGCAge", Schema::Duration),
    field("imageMaximumGCAge", Schema::Duration),
    field("imageGCHighThresholdPercent", PERCENT),
    field("imageGCLowThresholdPercent", PERCENT),
    field("volumeStatsAggPeriod", Schema::Duration),
    field("kubeletCgroups", Schema::Text),
    field("systemCgroups", Schema::Text),
    field("cgroupRoot", Schema::Text),
    field("cgroupsPerQOS", Schema::Bool),
    field("cgroupDriver", Schema::Choice(&["systemd", "cgroupfs"])),
    field("cpuManagerPolicy", Schema::Choice(&["none", "static"])),
    field("singleProcessOOMKill", Schema::Bool),
    field("cpuManagerPolicyOptions", TEXT_MAP),
    field("cpuManagerReconcilePeriod", Schema::Duration),
    field("memoryManagerPolicy", Schema::Choice(&["None", "Static"])),
    field("topologyManagerPolicy", Schema::Choice(&["none", "best-effort", "restricted", "single-numa-node"])),
    field("topologyManagerScope", Schema::Choice(&["container", "pod"])),
    field("topologyManagerPolicyOptions", TEXT_MAP),
    field("qosReserved", TEXT_MAP),
    field("runtimeRequestTimeout", Schema::Duration),
    field("hairpinMode", Schema::Choice(&["hairpin-veth", "promiscuous-bridge", "none"])),
    field("maxPods", COUNT),
    field("podCIDR", Schema::Text),
    field("podPidsLimit", INT64),
    field("resolvConf", Schema::Text),
    field("runOnce", Schema::Bool),
    field("cpuCFSQuota", Schema::Bool),
    field("cpuCFSQuotaPeriod", Schema::Duration),
    field("nodeStatusMaxImages", Schema::Int { min: -1, max: i32::MAX as i64 }),
    field("maxOpenFiles", COUNT64),
    field("contentType", Schema::Text),
    field("kubeAPIQPS", COUNT),
    field("kubeAPIBurst", COUNT),
    field("serializeImagePulls", Schema::Bool),
    field("maxParallelImagePulls", Schema::Int { min: 1, max: i32::MAX as i64 }),
    field("evictionHard", TEXT_MAP),
    field("evictionSoft", TEXT_MAP),
    field("evictionSoftGracePeriod", TEXT_MAP),
    field("evictionPressureTransitionPeriod", Schema::Duration),
    field("evictionMaxPodGracePeriod", INT32),
    field("evictionMinimumReclaim", TEXT_MAP),
    field("mergeDefaultEvictionSettings", Schema::Bool),
    field("podsPerCore", COUNT),
    field("enableControllerAttachDetach", Schema::Bool),
    field("protectKernelDefaults", Schema::Bool),
    field("makeIPTablesUtilChains", Schema::Bool),
    field("iptablesMasqueradeBit", Schema::Int { min: 0, max: 31 }),
    field("iptablesDropBit", Schema::Int { min: 0, max: 31 }),
    field("featureGates", Schema::Map(&Schema::Bool)),
    field("failSwapOn", Schema::Bool),
    field("memorySwap", Schema::Object(MEMORY_SWAP)),
    field("containerLogMaxSize", Schema::Text),
    field("containerLogMaxFiles", INT32),
    field("containerLogMaxWorkers", INT32),
    field("containerLogMonitorInterval", Schema::Duration),
    field("configMapAndSecretChangeDetectionStrategy", Schema::Choice(&["Get", "Cache", "Watch"])),
    field("systemReserved", TEXT_MAP),
    field("kubeReserved", TEXT_MAP),
    field("reservedSystemCPUs", Schema::Text),
    field("showHiddenMetricsForVersion", Schema::Text),
    field("systemReservedCgroup", Schema::Text),
    field("kubeReservedCgroup", Schema::Text),
    field("enforceNodeAllocatable", TEXTS),
    field("allowedUnsafeSysctls", TEXTS),
    field("volumePluginDir", Schema::Text),
    field("providerID", Schema::Text),
    field("kernelMemcgNotification", Schema::Bool),
    field("logging", Schema::Object(LOGGING)),
    field("enableSystemLogHandler", Schema::Bool),
    field("enableSystemLogQuery", Schema::Bool),
    field("shutdownGracePeriod", Schema::Duration),
    field("shutdownGracePeriodCriticalPods", Schema::Duration),
    field("shutdownGracePeriodByPodPriority", Schema::List(&Schema::Object(SHUTDOWN_BY_PRIORITY))),
    field("crashLoopBackOff", Schema::Object(CRASH_LOOP)),
    field("reservedMemory", Schema::List(&Schema::Object(MEMORY_RESERVATION))),
    field("enableProfilingHandler", Schema::Bool),
    field("enableDebugFlagsHandler", Schema::Bool),
    field("seccompDefault", Schema::Bool),
    field("memoryThrottlingFactor", Schema::Float),
    field("memoryReservationPolicy", Schema::Choice(&["None", "TieredReservation"])),
    field("registerWithTaints", Schema::List(&Schema::Object(TAINT))),
    field("registerNode", Schema::Bool),
    field("tracing", Schema::Object(TRACING)),
    field("localStorageCapacityIsolation", Schema::Bool),
    field("containerRuntimeEndpoint", Schema::Text),
    field("imageServiceEndpoint", Schema::Text),
    field("failCgroupV1", Schema::Bool),
    field("userNamespaces", Schema::Object(USER_NAMESPACES)),
];

const AUTHENTICATION: &[Field] = &[
    field("x509", Schema::Object(&[field("clientCAFile", Schema::Text)])),
    field("webhook", Schema::Object(&[field("enabled", Schema::Bool), field("cacheTTL", Schema::Duration)])),
    field("anonymous", Schema::Object(&[field("enabled", Schema::Bool)])),
];

const AUTHORIZATION: &[Field] = &[
    field("mode", Schema::Choice(&["AlwaysAllow", "Webhook"])),
    field(
        "webhook",
        Schema::Object(&[
            field("cacheAuthorizedTTL", Schema::Duration),
            field("cacheUnauthorizedTTL", Schema::Duration),
        ]),
    ),
];

const MEMORY_SWAP: &[Field] = &[field("swapBehavior", Schema::Choice(&["", "NoSwap", "LimitedSwap"]))];

const CRASH_LOOP: &[Field] = &[field("maxContainerRestartPeriod", Schema::Duration)];

const USER_NAMESPACES: &[Field] = &[field("idsPerPod", COUNT64)];

const TRACING: &[Field] =
    &[field("endpoint", Schema::Text), field("samplingRatePerMillion", Schema::Int { min: 0, max: 1_000_000 })];

const LOGGING: &[Field] = &[
    field("format", Schema::Choice(&["text", "json"])),
    // Go also takes nanoseconds as a number here; a text says the unit.
    field("flushFrequency", Schema::Duration),
    field("verbosity", VERBOSITY),
    field("vmodule", Schema::List(&Schema::Object(VMODULE_ITEM))),
    field(
        "options",
        Schema::Object(&[field("text", Schema::Object(LOG_ROUTING)), field("json", Schema::Object(LOG_ROUTING))]),
    ),
];

const VMODULE_ITEM: &[Field] = &[field("filePattern", Schema::Text), field("verbosity", VERBOSITY)];

const LOG_ROUTING: &[Field] = &[field("splitStream", Schema::Bool), field("infoBufferSize", Schema::Text)];

const SHUTDOWN_BY_PRIORITY: &[Field] = &[field("priority", INT32), field("shutdownGracePeriodSeconds", INT64)];

const MEMORY_RESERVATION: &[Field] = &[field("numaNode", COUNT), field("limits", TEXT_MAP)];

const TAINT: &[Field] = &[
    field("key", Schema::Text),
    field("value", Schema::Text),
    field("effect", Schema::Choice(&["NoSchedule", "PreferNoSchedule", "NoExecute"])),
];

pub(crate) const FLAGS: &[&str] = &[
    "bootstrap-kubeconfig",
    "cert-dir",
    "cloud-provider",
    "config",
    "config-dir",
    "exit-on-lock-contention",
    "experimental-allocatable-ignore-eviction",
    "experimental-mounter-path",
    "hostname-override",
    "housekeeping-interval",
    "image-credential-provider-bin-dir",
    "image-credential-provider-config",
    "kubeconfig",
    "lock-file",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "maximum-dead-containers",
    "maximum-dead-containers-per-container",
    "minimum-container-ttl-duration",
    "node-ip",
    "node-labels",
    "root-dir",
    "runtime-cgroups",
    "v",
    "vmodule",
];

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
