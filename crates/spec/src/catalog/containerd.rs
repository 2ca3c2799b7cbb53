//! containerd's configuration, version 3: its top level. Plug-ins have their own tables, too many and too quickly
//! changing to be listed; what nodestrap sets itself is checked when the configuration is put together.

use super::schema::{Field, INT64, Schema, TEXT_MAP, TEXTS, field};

pub(crate) const CONTAINERD_V3: &[Field] = &[
    field("cgroup", Schema::Map(&Schema::Free)),
    field("debug", Schema::Map(&Schema::Free)),
    field("disabled_plugins", TEXTS),
    field("grpc", Schema::Map(&Schema::Free)),
    field("imports", TEXTS),
    field("metrics", Schema::Map(&Schema::Free)),
    field("oom_score", INT64),
    field("plugins", Schema::Map(&Schema::Free)),
    field("proxy_plugins", Schema::Map(&Schema::Free)),
    field("required_plugins", TEXTS),
    field("root", Schema::Text),
    field("state", Schema::Text),
    field("stream_processors", Schema::Map(&Schema::Free)),
    field("temp", Schema::Text),
    field("timeouts", TEXT_MAP),
    field("ttrpc", Schema::Map(&Schema::Free)),
    field("version", INT64),
];
