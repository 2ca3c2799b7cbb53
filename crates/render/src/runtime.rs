//! The container runtime: containerd's configuration as TOML, mirrors of registries, and where the runtime comes from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bundle::{AbsolutePath, Component, File, Runtime, RuntimeSource, Start};
use serde_json::Value;
use spec::{CompleteGroup, ConfigTree, Host, Os, Runtime as RuntimeName, SourceKind, WebUrl};

use crate::error::RenderError;
use crate::kubelet::{leaf_text, object};
use crate::part::{Part, name, public, unit, unit_file};
use crate::unit::{Failure, Section, UnitFile, arguments};

const CONTAINERD_UNIT: &str = "containerd.service";
const CONTAINERD_CONFIG_PATH: &str = "/etc/containerd/config.toml";
const CRIO_REGISTRIES_PATH: &str = "/etc/containers/registries.conf.d/90-nodestrap.conf";
/// Where completion leads containerd to, unless the user did.
const MIRRORS_FOLDER: &str = "/etc/containerd/certs.d";
/// Flatcar's own unit reads the configuration that this variable names, and not the one in `/etc`.
const CONFIG_VARIABLE: &str = "CONTAINERD_CONFIG";
const FLATCAR_DROP_IN: &str = "containerd.service.d/10-nodestrap-config.conf";
/// Of containerd 2, and of containerd 1.
const IMAGE_PLUGINS: [&str; 2] = ["io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri"];

const HEADER: &str =
    "# Written by nodestrap from the spec of the cluster; an edit does not survive the next render.\n\n";

pub(crate) fn unit_name(runtime: RuntimeName) -> &'static str {
    match runtime {
        RuntimeName::Containerd => CONTAINERD_UNIT,
        RuntimeName::CriO => "crio.service",
        RuntimeName::Docker => "docker.service",
    }
}

/// The runtime's files and its unit.
pub(crate) fn render_runtime(
    group: &CompleteGroup,
    mirrors: &BTreeMap<Host, Vec<WebUrl>>,
) -> Result<Part, RenderError> {
    let runtime = &group.container_runtime;
    let own_unit = unit_name(runtime.name.value);
    let read_at_start = |file: File| Ok::<_, RenderError>(file.read_by([name(own_unit)?]));
    let mut part = Part { units: vec![unit(own_unit, Start::BeforeGate)?], ..Part::default() };
    match runtime.name.value {
        RuntimeName::Containerd => {
            part.files.push(read_at_start(public(CONTAINERD_CONFIG_PATH, render_config(&runtime.config)?)?)?);
            // These it reads for each pull.
            part.files.extend(render_hosts(&runtime.config, mirrors)?);
            if is_without_unit(group) {
                part.files.push(unit_file(own_unit, brought_unit(runtime.binary.value.as_str())?)?);
            } else if is_preinstalled(group) && group.os.value == Os::Flatcar {
                let service = Section::new("Service").environment(CONFIG_VARIABLE, CONTAINERD_CONFIG_PATH);
                part.files.push(unit_file(FLATCAR_DROP_IN, UnitFile::new(vec![service]).render()?)?);
            }
        }
        RuntimeName::CriO if mirrors.is_empty() => {}
        RuntimeName::CriO => {
            part.files.push(read_at_start(public(CRIO_REGISTRIES_PATH, render_crio_registries(mirrors))?)?);
        }
        RuntimeName::Docker => {}
    }
    Ok(part)
}

/// A package has a unit of its own.
fn is_without_unit(group: &CompleteGroup) -> bool {
    let components = &group.components;
    components.is_tree(Component::Containerd) || components.is_extension(Component::Containerd)
}

/// Whether the runtime is there before the bootstrap begins.
pub(crate) fn is_preinstalled(group: &CompleteGroup) -> bool {
    !group.components.is_brought(Component::Containerd) && group.source.value != SourceKind::Torcx
}

pub(crate) fn describe(group: &CompleteGroup) -> Result<Runtime, RenderError> {
    let runtime = group.container_runtime.name.value;
    let source = match () {
        () if group.components.is_tree(Component::Containerd) => RuntimeSource::Tree,
        () if group.components.is_package(Component::Containerd) => RuntimeSource::Package,
        () if group.components.is_extension(Component::Containerd) => RuntimeSource::Sysext,
        () if is_preinstalled(group) => RuntimeSource::Preinstalled,
        () => RuntimeSource::Torcx,
    };
    Ok(Runtime { name: runtime, unit: name(unit_name(runtime))?, source })
}

/// What the image must bring of the runtime: nothing, if the bootstrap installs it.
pub(crate) fn required_program(group: &CompleteGroup) -> Option<AbsolutePath> {
    is_preinstalled(group).then(|| group.container_runtime.binary.value.clone())
}

fn render_config(tree: &ConfigTree) -> Result<Vec<u8>, RenderError> {
    let table = table(&object(tree), "")?;
    let body = toml::to_string_pretty(&table).map_err(|source| RenderError::ContainerdToml { source })?;
    Ok([HEADER, &body].concat().into_bytes())
}

/// Where the configuration leads containerd to; the first folder, if there are several.
pub(crate) fn mirrors_folder(tree: &ConfigTree) -> &str {
    let path = IMAGE_PLUGINS.iter().find_map(|plugin| leaf_text(tree, &["plugins", plugin, "registry", "config_path"]));
    path.and_then(|path| path.split(':').find(|folder| !folder.is_empty())).unwrap_or(MIRRORS_FOLDER)
}

/// One file for each registry that has mirrors.
fn render_hosts(tree: &ConfigTree, mirrors: &BTreeMap<Host, Vec<WebUrl>>) -> Result<Vec<File>, RenderError> {
    let folder = mirrors_folder(tree).trim_end_matches('/');
    let file = |(registry, urls): (&Host, &Vec<WebUrl>)| {
        // The registry of docker.io has a name of its own.
        let server = if registry.as_str() == "docker.io" { "registry-1.docker.io" } else { registry.as_str() };
        let mut text = format!("{HEADER}server = \"https://{server}\"\n");
        for url in urls {
            let url = url.as_str();
            let _ = write!(text, "\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
            // containerd adds /v2 to the address of a mirror unless it is told that it is there already.
            if url.split('/').skip(3).any(|part| part == "v2") {
                text.push_str("override_path = true\n");
            }
        }
        public(format!("{folder}/{registry}/hosts.toml"), text)
    };
    mirrors.iter().map(file).collect()
}

/// The same for CRI-O, which reads what podman reads; addresses have no scheme there.
fn render_crio_registries(mirrors: &BTreeMap<Host, Vec<WebUrl>>) -> String {
    let mut text = HEADER.to_owned();
    for (index, (registry, urls)) in mirrors.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        let _ = write!(text, "{gap}[[registry]]\nprefix = \"{registry}\"\nlocation = \"{registry}\"\n");
        for url in urls {
            let (scheme, location) = url.as_str().split_once("://").unwrap_or(("https", url.as_str()));
            let location = location.trim_end_matches('/');
            let _ = write!(text, "\n[[registry.mirror]]\nlocation = \"{location}\"\n");
            if scheme == "http" {
                text.push_str("insecure = true\n");
            }
        }
    }
    text
}

/// Neither a tree nor an extension has a unit of its own, unlike a package.
fn brought_unit(binary: &str) -> Result<Vec<u8>, RenderError> {
    let folder = binary.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = format!("{folder}:{UNIT_PATH}");
    let service = Section::new("Service")
        .text("Type", "notify")
        .command_with("ExecStartPre", Failure::Ignored, "/sbin/modprobe", arguments(["overlay"]))
        .command("ExecStart", binary, Vec::new())
        .text("Restart", "always")
        .text("RestartSec", "5")
        // Containers outlive a restart, and manage their own cgroups.
        .text("KillMode", "process")
        .text("Delegate", "yes")
        .text("LimitNPROC", "infinity")
        .text("LimitCORE", "infinity")
        .text("TasksMax", "infinity")
        .text("OOMScoreAdjust", "-999");
    // runc is linked beside it, and containerd asks the PATH for it: that of units has not every system's folder.
    let service = match UNIT_PATH.split(':').any(|known| known == folder) {
        true => service,
        false => service.environment("PATH", &path),
    };
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "containerd container runtime")
            .text("Documentation", "https://containerd.io")
            .words("After", &["network.target", "local-fs.target"]),
        service,
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}

/// Where systemd has units look for programs.
const UNIT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Keys are inserted in sorted order, so that the text does not depend on which map the toml crate was built with.
fn table(fields: &serde_json::Map<String, Value>, path: &str) -> Result<toml::Table, RenderError> {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    let mut table = toml::Table::new();
    for (name, field) in sorted {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        table.insert(name.clone(), toml_value(field, &path)?);
    }
    Ok(table)
}

fn toml_value(value: &Value, path: &str) -> Result<toml::Value, RenderError> {
    let refuse = |problem| RenderError::ContainerdValue { path: path.to_owned(), problem };
    Ok(match value {
        Value::Null => return Err(refuse("it has no null; leave the key out")),
        Value::Bool(flag) => toml::Value::Boolean(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => toml::Value::Integer(integer),
            (None, Some(float)) if number.is_f64() => toml::Value::Float(float),
            _ => return Err(refuse("the number needs more than 63 bits; write a smaller one")),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(items) => {
            toml::Value::Array(items.iter().map(|item| toml_value(item, path)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => toml::Value::Table(table(fields, path)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_toml_cannot_say_is_refused_with_its_path() {
        for (value, path) in [(json!({ "a": { "b": null } }), "a.b"), (json!({ "n": u64::MAX }), "n")] {
            let Value::Object(fields) = value else { unreachable!() };
            let error = table(&fields, "").err().unwrap();
            assert!(error.to_string().contains(&format!("'{path}'")), "{error}");
        }
    }
}
