//! containerd's settings, read back from containerd itself. It ignores keys that it does not know and only says so in its log.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use super::sandbox::Sandbox;
use crate::cache::Consumers;
use crate::command::output_text;

/// What the log says of a key, of the file or of a plug-in, that is in no struct of containerd.
const UNKNOWN_KEY: &str = "Ignoring unknown key";

impl Consumers {
    /// The settings below `root/etc/containerd` as containerd understands them: nothing unknown, and every value as written.
    pub fn check_containerd(&self, root: &Path) -> Result<()> {
        let settings = root.join("etc/containerd/config.toml");
        let text = std::fs::read_to_string(&settings).with_context(|| format!("reading {}", settings.display()))?;
        let written: Table = text.parse().with_context(|| format!("parsing {}", settings.display()))?;
        let dump = self.containerd_says(root, "dump")?;
        let known = self.containerd_says(root, "default")?;
        let mut wrong = unknown_plugins(&written, &known);
        compare(&mut Vec::new(), &Value::Table(in_current_form(&written)), &Value::Table(dump), &mut wrong);
        if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
    }

    fn containerd_says(&self, root: &Path, what: &str) -> Result<Table> {
        let sandbox = Sandbox::over(&[root, &self.node_root()?])?;
        let mut command = sandbox.command(&self.containerd()?, "/mnt/containerd");
        let output = command.args(["config", what]).stdin(Stdio::null()).output().context("running containerd")?;
        let log = String::from_utf8_lossy(&output.stderr);
        let unknown: Vec<&str> = log.lines().filter(|line| line.contains(UNKNOWN_KEY)).collect();
        if !output.status.success() || !unknown.is_empty() {
            bail!(
                "containerd config {what}: {}\n{}",
                output.status,
                if unknown.is_empty() { output_text(&output) } else { unknown.join("\n") }
            );
        }
        String::from_utf8_lossy(&output.stdout).parse().context("parsing what containerd said")
    }
}

/// containerd gives back the section of a plug-in that it does not have as if it were one.
fn unknown_plugins(written: &Table, known: &Table) -> Vec<String> {
    let names = |table: &Table| -> Vec<String> {
        table
            .get("plugins")
            .and_then(Value::as_table)
            .map(|plugins| plugins.keys().cloned().collect())
            .unwrap_or_default()
    };
    let known = names(known);
    let mut unknown = names(&in_current_form(written));
    unknown.retain(|name| !known.contains(name));
    unknown.into_iter().map(|name| format!("containerd has no plug-in {name:?}")).collect()
}

/// What containerd moves when it reads the settings of an earlier release.
const MOVED: [(&str, &str); 12] = [
    ("plugins/io.containerd.grpc.v1.cri/sandbox_image", "plugins/io.containerd.cri.v1.images/pinned_images/sandbox"),
    ("plugins/io.containerd.grpc.v1.cri/registry", "plugins/io.containerd.cri.v1.images/registry"),
    (
        "plugins/io.containerd.grpc.v1.cri/max_concurrent_downloads",
        "plugins/io.containerd.cri.v1.images/max_concurrent_downloads",
    ),
    (
        "plugins/io.containerd.grpc.v1.cri/image_pull_progress_timeout",
        "plugins/io.containerd.cri.v1.images/image_pull_progress_timeout",
    ),
    (
        "plugins/io.containerd.grpc.v1.cri/containerd/discard_unpacked_layers",
        "plugins/io.containerd.cri.v1.images/discard_unpacked_layers",
    ),
    ("plugins/io.containerd.grpc.v1.cri/containerd/snapshotter", "plugins/io.containerd.cri.v1.images/snapshotter"),
    ("plugins/io.containerd.grpc.v1.cri", "plugins/io.containerd.cri.v1.runtime"),
    ("grpc", "plugins/io.containerd.server.v1.grpc"),
    ("ttrpc", "plugins/io.containerd.server.v1.ttrpc"),
    ("metrics", "plugins/io.containerd.server.v1.metrics"),
    ("debug/address", "plugins/io.containerd.server.v1.debug/address"),
    ("version", ""),
];
/// Those that stay where they were although the rest of their section moves.
const STAYS: [&str; 5] = [
    "disable_tcp_service",
    "stream_server_address",
    "stream_server_port",
    "stream_idle_timeout",
    "enable_tls_streaming",
];

fn in_current_form(written: &Table) -> Table {
    let mut table = written.clone();
    let version = written.get("version").and_then(Value::as_integer).unwrap_or(1);
    for (from, to) in MOVED {
        let cri_as_a_whole = from == "plugins/io.containerd.grpc.v1.cri";
        // Since version 3 this section holds the streaming server only.
        if version >= 3 && from.starts_with("plugins/io.containerd.grpc.v1.cri") {
            continue;
        }
        let Some(mut value) = take(&mut table, from) else { continue };
        if cri_as_a_whole && let Some(section) = value.as_table_mut() {
            for key in STAYS {
                if let Some(stays) = section.remove(key) {
                    put(&mut table, &format!("{from}/{key}"), stays);
                }
            }
        }
        if !to.is_empty() {
            put(&mut table, to, value);
        }
    }
    // One folder has become a list of them.
    if let Some(folder) = take(&mut table, "plugins/io.containerd.cri.v1.runtime/cni/bin_dir") {
        put(&mut table, "plugins/io.containerd.cri.v1.runtime/cni/bin_dirs", Value::Array(vec![folder]));
    }
    table
}

fn take(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('/') {
        None => table.remove(path),
        Some((first, rest)) => take(table.get_mut(first)?.as_table_mut()?, rest),
    }
}

fn put(table: &mut Table, path: &str, value: Value) {
    match path.split_once('/') {
        None => match (table.get_mut(path).and_then(Value::as_table_mut), value) {
            (Some(there), Value::Table(more)) => there.extend(more),
            (_, value) => drop(table.insert(path.to_owned(), value)),
        },
        Some((first, rest)) => {
            let inner = table.entry(first.to_owned()).or_insert_with(|| Value::Table(Table::new()));
            if let Some(inner) = inner.as_table_mut() {
                put(inner, rest, value);
            }
        }
    }
}

fn compare(path: &mut Vec<String>, written: &Value, understood: &Value, wrong: &mut Vec<String>) {
    match (written, understood) {
        (Value::Table(written), Value::Table(understood)) => {
            for (key, value) in written {
                path.push(key.clone());
                match understood.get(key) {
                    Some(there) => compare(path, value, there, wrong),
                    None => wrong.push(format!("{} is lost: {value}", path.join(" / "))),
                }
                path.pop();
            }
        }
        (written, understood) if written == understood => {}
        (written, understood) => {
            wrong.push(format!("{} is written as {written}, understood as {understood}", path.join(" / ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_version_2_are_looked_for_where_containerd_moves_them() {
        let old = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"p\"\nstream_server_port = \"1\"\nenable_selinux = true\n";
        let new = "[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = \"p\"\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_selinux = true\n[plugins.\"io.containerd.grpc.v1.cri\"]\nstream_server_port = \"1\"\n";
        let parse = |text: &str| text.parse::<Table>().expect("TOML");
        assert_eq!(in_current_form(&parse(old)), parse(new));
    }
}
