//! containerd's configuration, version 3: its top level. Plug-ins have their own tables, too many and too quickly
//! changing to be listed; what nodestrap sets itself is checked when the configuration is put together.

use super::schema::{Field, INT64, Schema, TEXT_MAP, TEXTS, field};

pub(crate) const CONTAINERD_V3: &[Field] = &[
    field("version", INT64),
    field("root", Schema::Text),
    field("state", Schema::Text),
    field("temp", Schema::Text),
    field("debug", Schema::Map(&Schema::Free)),
    field("disabled_plugins", TEXTS),
    field("required_plugins", TEXTS),
    field("plugins", Schema::Map(&Schema::Free)),
    field("oom_score", INT64),
    field("cgroup", Schema::Map(&Schema::Free)),
    field("proxy_plugins", Schema::Map(&Schema::Free)),
    field("timeouts", TEXT_MAP),
    field("imports", TEXTS),
    field("stream_processors", Schema::Map(&Schema::Free)),
    field("grpc", Schema::Map(&Schema::Free)),
    field("ttrpc", Schema::Map(&Schema::Free)),
    field("metrics", Schema::Map(&Schema::Free)),
];
