//! The container runtime: containerd's configuration as TOML, mirrors of registries, and where the runtime comes from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use spec::{CompleteContainerRuntime, ConfigNode, ConfigTree, Host, Runtime as RuntimeName, RuntimeSource, WebUrl};

use crate::bundle::{Archive, File, Package, Part, Runtime, Start, Unit};
use crate::error::RenderError;
use crate::kubelet::object;
use crate::unit::{Failure, Section, UnitFile, arguments};

const CONTAINERD_CONFIG_PATH: &str = "/etc/containerd/config.toml";
const CRIO_REGISTRIES_PATH: &str = "/etc/containers/registries.conf.d/90-nodestrap.conf";
/// Where containerd looks for mirrors, once it is told so.
pub(crate) const MIRRORS_FOLDER: &str = "/etc/containerd/certs.d";
const IMAGES_PLUGIN: &str = "io.containerd.cri.v1.images";

const HEADER: &str =
    "# Written by nodestrap from the spec of the cluster; an edit does not survive the next render.\n\n";

pub(crate) fn unit_name(runtime: RuntimeName) -> &'static str {
    match runtime {
        RuntimeName::Containerd => "containerd.service",
        RuntimeName::CriO => "crio.service",
        RuntimeName::Docker => "docker.service",
    }
}

/// The runtime's files and its unit.
pub(crate) fn render_runtime(
    runtime: &CompleteContainerRuntime,
    mirrors: &BTreeMap<Host, Vec<WebUrl>>,
) -> Result<Part, RenderError> {
    let name = runtime.name.value;
    let mut part = Part { files: Vec::new(), units: vec![Unit::new(unit_name(name), Start::BeforeGate)] };
    match name {
        RuntimeName::Containerd => {
            let config = render_config(&runtime.config, !mirrors.is_empty())?;
            part.files.push(File::public(CONTAINERD_CONFIG_PATH, config));
            part.files.extend(render_hosts(&runtime.config, mirrors));
            if runtime.source.value == RuntimeSource::Tree {
                part.files.push(File::unit(unit_name(name), tree_unit(runtime.binary.value.as_str())?));
            }
        }
        RuntimeName::CriO => part.files.extend(render_crio_registries(mirrors)),
        RuntimeName::Docker => {}
    }
    Ok(part)
}

/// What a node must know to install the runtime.
pub(crate) fn describe(runtime: &CompleteContainerRuntime) -> Runtime {
    Runtime {
        name: runtime.name.value.to_string(),
        source: runtime.source.value.to_string(),
        archive: runtime.archive.as_ref().map(|archive| Archive {
            urls: archive.value.urls.iter().map(ToString::to_string).collect(),
            sha256: archive.value.sha256.to_string(),
        }),
        package: runtime.package.as_ref().map(|package| Package {
            name: package.value.name.to_string(),
            version: package.value.version.to_string(),
        }),
    }
}

/// What the image must bring of the runtime: nothing, if the bootstrap installs it.
pub(crate) fn required_program(runtime: &CompleteContainerRuntime) -> Option<String> {
    (runtime.source.value == RuntimeSource::Preinstalled).then(|| runtime.binary.value.to_string())
}

/// `mirrored`: mirrors are written to files that containerd must be told about, unless the user did.
pub(crate) fn render_config(tree: &ConfigTree, mirrored: bool) -> Result<Vec<u8>, RenderError> {
    let mut fields = object(tree);
    if mirrored && mirrors_folder(tree).is_none() {
        let registry = ["plugins", IMAGES_PLUGIN, "registry"].into_iter().try_fold(&mut fields, |fields, name| {
            let below = fields.entry(name).or_insert_with(|| Value::Object(serde_json::Map::new()));
            below.as_object_mut()
        });
        let registry = registry.ok_or_else(|| RenderError::ContainerdValue {
            path: format!("plugins.{IMAGES_PLUGIN}.registry"),
            problem: "registryMirrors needs a table here",
        })?;
        registry.insert("config_path".to_owned(), Value::from(MIRRORS_FOLDER));
    }
    let table = table(&fields, "")?;
    let body = toml::to_string_pretty(&table).map_err(|source| RenderError::ContainerdToml { source })?;
    Ok([HEADER, &body].concat().into_bytes())
}

/// The user's own folder of mirrors; the first, if there are several.
fn mirrors_folder(tree: &ConfigTree) -> Option<&str> {
    let branch = |tree, name: &str| match ConfigTree::get(tree, name) {
        Some(ConfigNode::Branch(below)) => Some(below),
        _ => None,
    };
    let registry = branch(branch(branch(tree, "plugins")?, IMAGES_PLUGIN)?, "registry")?;
    match registry.get("config_path")? {
        ConfigNode::Leaf(setting) => setting.value.as_str()?.split(':').find(|folder| !folder.is_empty()),
        ConfigNode::Branch(_) => None,
    }
}

/// One file for each registry that has mirrors.
fn render_hosts(tree: &ConfigTree, mirrors: &BTreeMap<Host, Vec<WebUrl>>) -> Vec<File> {
    let folder = mirrors_folder(tree).unwrap_or(MIRRORS_FOLDER).trim_end_matches('/');
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
        File::public(format!("{folder}/{registry}/hosts.toml"), text)
    };
    mirrors.iter().map(file).collect()
}

/// The same for CRI-O, which reads what podman reads; addresses have no scheme there.
fn render_crio_registries(mirrors: &BTreeMap<Host, Vec<WebUrl>>) -> Option<File> {
    if mirrors.is_empty() {
        return None;
    }
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
    Some(File::public(CRIO_REGISTRIES_PATH, text))
}

/// A tree has no unit of its own, unlike a package or an extension.
fn tree_unit(binary: &str) -> Result<Vec<u8>, RenderError> {
    let folder = binary.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = format!("{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "containerd container runtime")
            .text("Documentation", "https://containerd.io")
            .words("After", &["network.target", "local-fs.target"]),
        Section::new("Service")
            .text("Type", "notify")
            // runc and the shims are beside it.
            .environment("PATH", &path)
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
            .text("OOMScoreAdjust", "-999"),
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}

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
