//! The kubelet's files: configuration, bootstrap kubeconfig, unit and arguments.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde_json::{Map, Value, json};
use spec::{ConfigNode, ConfigTree, Setting, render_yaml};

use crate::containerd::CONTAINERD_UNIT;
use crate::error::RenderError;
use crate::gate::GATE_PATH;
use crate::unit::{Argument, Section, UnitFile};

/// The variable of the gate that carries all flags.
pub(crate) const ARGUMENTS_VARIABLE: &str = "KUBELET_ARGS";

pub(crate) const NODESTRAP: &str = "/usr/bin/nodestrap";
pub(crate) const KUBELET_UNIT: &str = "kubelet.service";
const BOOTSTRAP_UNIT: &str = "k8s-node-bootstrap.service";

/// The `KubeletConfiguration` as YAML.
pub(crate) fn render_config(tree: &ConfigTree) -> Vec<u8> {
    let mut fields = object(tree);
    fields.insert("apiVersion".to_owned(), "kubelet.config.k8s.io/v1beta1".into());
    fields.insert("kind".to_owned(), "KubeletConfiguration".into());
    render_yaml(&fields).into_bytes()
}

/// The plain document of a tree whose leaves know their origin.
pub(crate) fn object(tree: &ConfigTree) -> Map<String, Value> {
    let value = |node: &ConfigNode| match node {
        ConfigNode::Leaf(setting) => setting.value.clone(),
        ConfigNode::Branch(tree) => Value::Object(object(tree)),
    };
    tree.iter().map(|(name, node)| (name.clone(), value(node))).collect()
}

/// The kubeconfig with which a kubelet asks for its certificate. A secret: it carries the token.
pub(crate) fn render_bootstrap_kubeconfig(cluster: &str, server: &str, authority_pem: &str, token: &str) -> Vec<u8> {
    let user = "kubelet-bootstrap";
    let authority = BASE64.encode(authority_pem.as_bytes());
    let fields = [
        ("apiVersion", json!("v1")),
        ("kind", json!("Config")),
        (
            "clusters",
            json!([{"name": cluster, "cluster": {"certificate-authority-data": authority, "server": server}}]),
        ),
        ("users", json!([{"name": user, "user": {"token": token}}])),
        ("contexts", json!([{"name": cluster, "context": {"cluster": cluster, "user": user}}])),
        ("current-context", json!(cluster)),
    ];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    render_yaml(&fields).into_bytes()
}

/// All flags as one value of the gate, which systemd splits at white space into arguments.
pub(crate) fn render_arguments(flags: &BTreeMap<String, Setting<String>>) -> Result<String, RenderError> {
    let mut arguments = Vec::with_capacity(flags.len());
    for (flag, setting) in flags {
        let value = &setting.value;
        let name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if flag.is_empty() || flag.starts_with('-') || !flag.bytes().all(name) {
            return Err(RenderError::FlagName { flag: flag.clone() });
        }
        if let Some(found) = value.chars().find_map(unfit_for_splitting) {
            return Err(RenderError::FlagValue { flag: flag.clone(), found });
        }
        arguments.push(format!("--{flag}={value}"));
    }
    Ok(arguments.join(" "))
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

/// `kubelet.service`. `network_unit`: the unit that finishes the pod network, if the bundle has one.
pub(crate) fn render_unit(binary: &str, network_unit: Option<&str>) -> Result<Vec<u8>, RenderError> {
    let mut wants = vec![CONTAINERD_UNIT, BOOTSTRAP_UNIT];
    wants.extend(network_unit);
    UnitFile::new(vec![
        Section::new("Unit")
            .text("Description", "Kubernetes node agent")
            .text("Documentation", "https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/")
            .words("Wants", &wants)
            .words("After", &[CONTAINERD_UNIT, BOOTSTRAP_UNIT])
            // It is restarted until the gate opens, however long that takes.
            .text("StartLimitIntervalSec", "0"),
        Section::new("Service")
            // No leading dash: without the gate the kubelet must not start.
            .text("EnvironmentFile", GATE_PATH)
            // A damaged gate counts as absent.
            .command("ExecStartPre", NODESTRAP, vec![Argument::Word("gate")])
            .command("ExecStart", binary, vec![Argument::SplitVariable(ARGUMENTS_VARIABLE)])
            .text("Restart", "always")
            .text("RestartSec", "2")
            // Containers outlive a restart of the kubelet.
            .text("KillMode", "process"),
        Section::new("Install").text("WantedBy", "multi-user.target"),
    ])
    .render()
}
