//! containerd's configuration: the top level and the tables of the CRI plug-ins; other plug-ins have no table here.
//!
//! Names and kinds are those of the Go types of containerd 1.7.30 (version 2 of the configuration) and 2.0.0 to 2.4.2
//! (version 3). In version 3, since and until are minors of containerd 2. containerd warns about a name that it does not
//! know and goes on without it, so a wrong name is found here or never.

use super::schema::{Field, INT64, Schema, TEXT_MAP, TEXTS, field};

const FLAG: Schema = Schema::Bool;
const ANYTHING: Schema = Schema::Map(&Schema::Free);

/// What containerd 1 reads.
pub(crate) const CONTAINERD_V2: &[Field] = &[
    field("cgroup", Schema::Object(CGROUP)),
    field("debug", Schema::Object(DEBUG)),
    field("disabled_plugins", TEXTS),
    field("grpc", Schema::Object(GRPC)),
    field("imports", TEXTS),
    field("metrics", Schema::Object(METRICS)),
    field("oom_score", INT64).builtin("0"),
    field("plugin_dir", Schema::Text),
    field("plugins", Schema::Open(PLUGINS_V2)),
    field("proxy_plugins", Schema::Map(&Schema::Object(PROXY_PLUGIN))),
    field("required_plugins", TEXTS),
    field("root", Schema::Text).builtin(r#""/var/lib/containerd""#),
    field("state", Schema::Text).builtin(r#""/run/containerd""#),
    field("stream_processors", Schema::Map(&Schema::Object(STREAM_PROCESSOR))),
    field("temp", Schema::Text),
    field("timeouts", TEXT_MAP),
    field("ttrpc", Schema::Object(TTRPC)),
    field("version", INT64),
];

/// What containerd 2 reads. Since 2.4 it writes version 4, and still reads this one.
pub(crate) const CONTAINERD_V3: &[Field] = &[
    field("cgroup", Schema::Object(CGROUP)),
    field("debug", Schema::Object(DEBUG)),
    field("disabled_plugins", TEXTS),
    field("grpc", Schema::Object(GRPC)),
    field("imports", TEXTS),
    field("metrics", Schema::Object(METRICS)),
    field("oom_score", INT64).builtin("0"),
    field("plugin_dir", Schema::Text).until(1),
    field("plugins", Schema::Open(PLUGINS_V3)),
    field("proxy_plugins", Schema::Map(&Schema::Object(PROXY_PLUGIN))),
    field("required_plugins", TEXTS),
    field("root", Schema::Text).builtin(r#""/var/lib/containerd""#),
    field("state", Schema::Text).builtin(r#""/run/containerd""#),
    field("stream_processors", Schema::Map(&Schema::Object(STREAM_PROCESSOR))),
    field("temp", Schema::Text),
    field("timeouts", TEXT_MAP),
    field("ttrpc", Schema::Object(TTRPC)),
    field("version", INT64),
];

const CGROUP: &[Field] = &[field("path", Schema::Text)];

const DEBUG: &[Field] = &[
    field("address", Schema::Text),
    field("format", Schema::Text),
    field("gid", INT64).builtin("0"),
    field("level", Schema::Text),
    field("log_trace_id", FLAG).since(3).builtin("false"),
    field("uid", INT64).builtin("0"),
];

const GRPC: &[Field] = &[
    field("address", Schema::Text).builtin(r#""/run/containerd/containerd.sock""#),
    field("gid", INT64).builtin("0"),
    field("max_recv_message_size", INT64).builtin("16777216"),
    field("max_send_message_size", INT64).builtin("16777216"),
    field("tcp_address", Schema::Text),
    field("tcp_tls_ca", Schema::Text),
    field("tcp_tls_cert", Schema::Text),
    field("tcp_tls_common_name", Schema::Text).since(2),
    field("tcp_tls_key", Schema::Text),
    field("uid", INT64).builtin("0"),
];

const TTRPC: &[Field] = &[
    // Follows that of grpc.
    field("address", Schema::Text),
    field("gid", INT64).builtin("0"),
    field("uid", INT64).builtin("0"),
];

const METRICS: &[Field] = &[field("address", Schema::Text), field("grpc_histogram", FLAG).builtin("false")];

const PROXY_PLUGIN: &[Field] = &[
    field("address", Schema::Text),
    field("capabilities", TEXTS),
    field("exports", TEXT_MAP),
    field("platform", Schema::Text),
    field("type", Schema::Text),
];

const STREAM_PROCESSOR: &[Field] = &[
    field("accepts", TEXTS),
    field("args", TEXTS),
    field("env", TEXTS),
    field("path", Schema::Text),
    field("returns", Schema::Text),
];

const PLUGINS_V3: &[Field] = &[
    field("io.containerd.cri.v1.images", Schema::Object(IMAGES)),
    field("io.containerd.cri.v1.runtime", Schema::Object(RUNTIME)),
    field("io.containerd.grpc.v1.cri", Schema::Open(CRI_SERVER)),
];

const PLUGINS_V2: &[Field] = &[field("io.containerd.grpc.v1.cri", Schema::Object(CRI_V2))];

const IMAGES: &[Field] = &[
    field("concurrent_layer_fetch_buffer", INT64).since(1).builtin("0"),
    field("disable_snapshot_annotations", FLAG).builtin("true"),
    field("discard_unpacked_layers", FLAG).builtin("false"),
    field("image_decryption", Schema::Object(IMAGE_DECRYPTION)),
    field("image_pull_progress_timeout", Schema::Duration).builtin(r#""5m0s""#),
    field("image_pull_with_sync_fs", FLAG).builtin("false"),
    field("max_concurrent_downloads", INT64).builtin("3"),
    // The default pins a sandbox image that changes with the version.
    field("pinned_images", TEXT_MAP),
    field("registry", Schema::Object(REGISTRY)),
    field("runtime_platforms", Schema::Map(&Schema::Object(RUNTIME_PLATFORM))),
    field("snapshotter", Schema::Text).builtin(r#""overlayfs""#),
    field("stats_collect_period", INT64).builtin("10"),
    field("use_local_image_pull", FLAG).since(1).builtin("false"),
];

const IMAGE_DECRYPTION: &[Field] = &[field("key_model", Schema::Text).builtin(r#""node""#)];

const RUNTIME_PLATFORM: &[Field] = &[field("platform", Schema::Text), field("snapshotter", Schema::Text)];

const REGISTRY: &[Field] = &[
    field("auths", ANYTHING),
    field("config_path", Schema::Text),
    field("configs", ANYTHING),
    field("headers", Schema::Map(&TEXTS)),
    field("mirrors", Schema::Map(&Schema::Object(&[field("endpoint", TEXTS)]))),
];

const RUNTIME: &[Field] = &[
    field("cdi_spec_dirs", TEXTS).builtin(r#"["/etc/cdi","/var/run/cdi"]"#),
    field("cni", Schema::Object(CNI_V3)),
    field("containerd", Schema::Object(CONTAINERD)),
    field("device_ownership_from_security_context", FLAG).builtin("false"),
    field("disable_apparmor", FLAG).builtin("false"),
    field("disable_hugetlb_controller", FLAG).builtin("true"),
    field("disable_proc_mount", FLAG).builtin("false"),
    field("drain_exec_sync_io_timeout", Schema::Duration).builtin(r#""0s""#),
    field("enable_cdi", FLAG).until(4).builtin("true"),
    field("enable_criu", FLAG).since(4).builtin("true"),
    field("enable_selinux", FLAG).builtin("false"),
    field("enable_unprivileged_icmp", FLAG).builtin("true"),
    field("enable_unprivileged_ports", FLAG).builtin("true"),
    field("ignore_deprecation_warnings", TEXTS),
    field("ignore_image_defined_volumes", FLAG).builtin("false"),
    field("max_container_log_line_size", INT64).builtin("16384"),
    field("netns_mounts_under_state_dir", FLAG).builtin("false"),
    field("restrict_oom_score_adj", FLAG).builtin("false"),
    field("selinux_category_range", INT64).builtin("1024"),
    field("stats_collect_period", Schema::Text).since(3),
    field("stats_retention_period", Schema::Text).since(3),
    field("tolerate_missing_hugetlb_controller", FLAG).builtin("true"),
    field("unset_seccomp_profile", Schema::Text),
];

/// `bin_dirs` is new in containerd 2.1: a node with 2.0 needs `bin_dir`, which 2.4 no longer has.
const CNI_V3: &[Field] = &[
    field("bin_dir", Schema::Text).until(4),
    field("bin_dirs", TEXTS).since(1).builtin(r#"["/opt/cni/bin"]"#),
    field("conf_dir", Schema::Text).builtin(r#""/etc/cni/net.d""#),
    field("conf_template", Schema::Text),
    field("ip_pref", Schema::Text),
    field("max_conf_num", INT64).builtin("1"),
    field("setup_serially", FLAG).builtin("false"),
    field("use_internal_loopback", FLAG).builtin("false"),
];

const CONTAINERD: &[Field] = &[
    field("default_runtime_name", Schema::Text).builtin(r#""runc""#),
    field("ignore_blockio_not_enabled_errors", FLAG).builtin("false"),
    field("ignore_rdt_not_enabled_errors", FLAG).builtin("false"),
    field("runtimes", Schema::Map(&Schema::Object(RUNTIME_CLASS))),
];

const RUNTIME_CLASS: &[Field] = &[
    field("base_runtime_spec", Schema::Text),
    field("cgroup_writable", FLAG).since(1).builtin("false"),
    field("cni_conf_dir", Schema::Text),
    field("cni_max_conf_num", INT64).builtin("0"),
    field("container_annotations", TEXTS),
    field("disable_pause_image_pull", FLAG).since(4).builtin("false"),
    field("io_type", Schema::Text),
    // Those of the shim that `runtime_type` names.
    field("options", ANYTHING),
    field("pod_annotations", TEXTS),
    field("privileged_without_host_devices", FLAG).builtin("false"),
    field("privileged_without_host_devices_all_devices_allowed", FLAG).builtin("false"),
    field("runtime_path", Schema::Text),
    field("runtime_type", Schema::Text),
    field("sandboxer", Schema::Text),
    field("snapshotter", Schema::Text),
];

const CRI_SERVER: &[Field] = &[
    field("disable_tcp_service", FLAG).builtin("true"),
    field("enable_tls_streaming", FLAG).builtin("false"),
    field("stream_idle_timeout", Schema::Duration).builtin(r#""4h0m0s""#),
    field("stream_server_address", Schema::Text).builtin(r#""127.0.0.1""#),
    field("stream_server_port", Schema::Text).builtin(r#""0""#),
    field("x509_key_pair_streaming", Schema::Object(KEY_PAIR)),
];

const KEY_PAIR: &[Field] = &[field("tls_cert_file", Schema::Text), field("tls_key_file", Schema::Text)];

const CRI_V2: &[Field] = &[
    field("cdi_spec_dirs", TEXTS).builtin(r#"["/etc/cdi","/var/run/cdi"]"#),
    field("cni", Schema::Object(CNI_V2)),
    field("containerd", Schema::Object(CONTAINERD_IN_V2)),
    field("device_ownership_from_security_context", FLAG).builtin("false"),
    field("disable_apparmor", FLAG).builtin("false"),
    field("disable_cgroup", FLAG).builtin("false"),
    field("disable_hugetlb_controller", FLAG).builtin("true"),
    field("disable_proc_mount", FLAG).builtin("false"),
    field("disable_tcp_service", FLAG).builtin("true"),
    field("drain_exec_sync_io_timeout", Schema::Duration).builtin(r#""0s""#),
    field("enable_cdi", FLAG).builtin("false"),
    field("enable_selinux", FLAG).builtin("false"),
    field("enable_tls_streaming", FLAG).builtin("false"),
    field("enable_unprivileged_icmp", FLAG).builtin("false"),
    field("enable_unprivileged_ports", FLAG).builtin("false"),
    field("ignore_deprecation_warnings", TEXTS),
    field("ignore_image_defined_volumes", FLAG).builtin("false"),
    field("image_decryption", Schema::Object(IMAGE_DECRYPTION)),
    field("image_pull_progress_timeout", Schema::Duration).builtin(r#""5m0s""#),
    field("image_pull_with_sync_fs", FLAG).builtin("false"),
    field("max_concurrent_downloads", INT64).builtin("3"),
    field("max_container_log_line_size", INT64).builtin("16384"),
    field("netns_mounts_under_state_dir", FLAG).builtin("false"),
    field("registry", Schema::Object(REGISTRY)),
    field("restrict_oom_score_adj", FLAG).builtin("false"),
    // The default changes with the version.
    field("sandbox_image", Schema::Text),
    field("selinux_category_range", INT64).builtin("1024"),
    field("stats_collect_period", INT64).builtin("10"),
    field("stream_idle_timeout", Schema::Duration).builtin(r#""4h0m0s""#),
    field("stream_server_address", Schema::Text).builtin(r#""127.0.0.1""#),
    field("stream_server_port", Schema::Text).builtin(r#""0""#),
    field("systemd_cgroup", FLAG).builtin("false"),
    field("tolerate_missing_hugetlb_controller", FLAG).builtin("true"),
    field("unset_seccomp_profile", Schema::Text),
    field("x509_key_pair_streaming", Schema::Object(KEY_PAIR)),
];

const CNI_V2: &[Field] = &[
    field("bin_dir", Schema::Text).builtin(r#""/opt/cni/bin""#),
    field("conf_dir", Schema::Text).builtin(r#""/etc/cni/net.d""#),
    field("conf_template", Schema::Text),
    field("ip_pref", Schema::Text),
    field("max_conf_num", INT64).builtin("1"),
    field("setup_serially", FLAG).builtin("false"),
];

const CONTAINERD_IN_V2: &[Field] = &[
    field("default_runtime", Schema::Object(RUNTIME_CLASS_V2)),
    field("default_runtime_name", Schema::Text).builtin(r#""runc""#),
    field("disable_snapshot_annotations", FLAG).builtin("true"),
    field("discard_unpacked_layers", FLAG).builtin("false"),
    field("ignore_blockio_not_enabled_errors", FLAG).builtin("false"),
    field("ignore_rdt_not_enabled_errors", FLAG).builtin("false"),
    field("no_pivot", FLAG).builtin("false"),
    field("runtimes", Schema::Map(&Schema::Object(RUNTIME_CLASS_V2))),
    field("snapshotter", Schema::Text).builtin(r#""overlayfs""#),
    field("untrusted_workload_runtime", Schema::Object(RUNTIME_CLASS_V2)),
];

const RUNTIME_CLASS_V2: &[Field] = &[
    field("base_runtime_spec", Schema::Text),
    field("cni_conf_dir", Schema::Text),
    field("cni_max_conf_num", INT64).builtin("0"),
    field("container_annotations", TEXTS),
    // Those of the shim that `runtime_type` names.
    field("options", ANYTHING),
    field("pod_annotations", TEXTS),
    field("privileged_without_host_devices", FLAG).builtin("false"),
    field("privileged_without_host_devices_all_devices_allowed", FLAG).builtin("false"),
    field("runtime_engine", Schema::Text),
    field("runtime_path", Schema::Text),
    field("runtime_root", Schema::Text),
    field("runtime_type", Schema::Text),
    field("sandbox_mode", Schema::Text),
    field("snapshotter", Schema::Text),
];
