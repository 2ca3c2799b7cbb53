//! The kubelet's files: configuration, what it joins with, unit and arguments.

use std::collections::BTreeMap;

use bundle::{BOOTSTRAP_UNIT, GATE_PATH};
use serde_json::{Map, Value};
use spec::{CompleteGroup, ConfigNode, ConfigTree, Setting, render_config_yaml};

use crate::error::RenderError;
use crate::gate_unit::GATE_UNIT;
use crate::unit::{Argument, Section, UnitFile, arguments};

pub(crate) const KUBELET_UNIT: &str = "kubelet.service";

// Flags by which the spec says where our files lie.
pub(crate) const CONFIG_FLAG: &str = "config";
pub(crate) const BOOTSTRAP_KUBECONFIG_FLAG: &str = "bootstrap-kubeconfig";
pub(crate) const KUBECONFIG_FLAG: &str = "kubeconfig";
/// Under which name the kubelet registers, if not that of the host.
pub(crate) const NODE_NAME_FLAG: &str = "hostname-override";

/// A flag without which the kubelet would not find what we write for it.
pub(crate) fn required_flag<'a>(group: &'a CompleteGroup, flag: &'static str) -> Result<&'a str, RenderError> {
    group.kubelet.flags.get(flag).map(|setting| setting.value.as_str()).ok_or(RenderError::MissingFlag { flag })
}

/// The client certificate that the kubelet gets when it joins.
pub(crate) fn client_certificate(group: &CompleteGroup) -> String {
    let folder = group.kubelet.flags.get("cert-dir").map_or("/var/lib/kubelet/pki", |setting| setting.value.as_str());
    [folder, "/kubelet-client-current.pem"].concat()
}

/// The `KubeletConfiguration` as YAML.
pub(crate) fn render_config(tree: &ConfigTree) -> Vec<u8> {
    render_config_yaml("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", tree).into_bytes()
}

/// The plain document of a tree whose leaves know their origin.
pub(crate) fn object(tree: &ConfigTree) -> Map<String, Value> {
    let value = |node: &ConfigNode| match node {
        ConfigNode::Leaf(setting) => setting.value.clone(),
        ConfigNode::Branch(tree) => Value::Object(object(tree)),
    };
    tree.iter().map(|(name, node)| (name.to_owned(), value(node))).collect()
}

/// The text at a path of a configuration.
pub(crate) fn leaf_text<'t>(tree: &'t ConfigTree, path: &[&str]) -> Option<&'t str> {
    let (first, rest) = path.split_first()?;
    match (tree.get(first)?, rest) {
        (ConfigNode::Leaf(setting), []) => setting.value.as_str(),
        (ConfigNode::Branch(below), rest) => leaf_text(below, rest),
        (ConfigNode::Leaf(_), _) => None,
    }
}

/// Flags as one value of the gate, which systemd splits at white space into arguments.
pub(crate) fn render_arguments(flags: &BTreeMap<String, Setting<String>>) -> Result<String, RenderError> {
    let length = flags.iter().map(|(flag, setting)| flag.len() + setting.value.len() + " --=".len()).sum();
    let mut arguments = String::with_capacity(length);
    for (flag, setting) in flags {
        let value = &setting.value;
        let name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if flag.is_empty() || flag.starts_with('-') || !flag.bytes().all(name) {
            return Err(RenderError::FlagName { flag: flag.clone() });
        }
        if let Some(found) = value.chars().find_map(unfit_for_splitting) {
            return Err(RenderError::FlagValue { flag: flag.clone(), found });
        }
        let space = if arguments.is_empty() { "" } else { " " };
        for part in [space, "--", flag, "=", value] {
            arguments.push_str(part);
        }
    }
    Ok(arguments)
}

/// The value itself stays out of the error: it may be long, and the character says enough.
fn unfit_for_splitting(character: char) -> Option<&'static str> {
    match character {
        white if white.is_whitespace() => Some("white space"),
        control if control.is_control() => Some("a control character"),
        '"' | '\'' | '`' => Some("a quote"),
        '\\' => Some("a backslash"),
        '$' => Some("a '$'"),
        _ => None,
    }
}

/// What `kubelet.service` runs and waits for.
pub(crate) struct KubeletUnit<'a> {
    pub(crate) binary: &'a str,
    pub(crate) arguments: Vec<Argument<'a>>,
    /// Path of nodestrap on the node.
    pub(crate) nodestrap: &'a str,
    pub(crate) runtime_unit: &'static str,
    /// Units that go on once the kubelet runs: they finish the pod network, and take the bootstrap credentials away.
    pub(crate) followers: Vec<&'static str>,
}

pub(crate) fn render_unit(inputs: KubeletUnit<'_>) -> Result<Vec<u8>, RenderError> {
    let mut wants = vec![inputs.runtime_unit, BOOTSTRAP_UNIT, GATE_UNIT];
    wants.extend(&inputs.followers);
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Kubernetes node agent")
            .text("Documentation", "https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/")
            .words("Wants", &wants)
            .words("After", &[inputs.runtime_unit, BOOTSTRAP_UNIT, GATE_UNIT])
            // It is restarted until the gate opens, however long that takes.
            .text("StartLimitIntervalSec", "0"),
        Section::new("Service")
            // No leading dash: without the gate the kubelet must not start.
            .text("EnvironmentFile", GATE_PATH)
            // A damaged gate counts as absent; once more, for a start without the units that this one wants.
            .command("ExecStartPre", inputs.nodestrap, arguments(["gate"]))
            .command("ExecStart", inputs.binary, inputs.arguments)
            .text("Restart", "always")
            .text("RestartSec", "2")
            // Containers outlive a restart of the kubelet.
            .text("KillMode", "process"),
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}
