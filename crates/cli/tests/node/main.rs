//! `plan`, `apply`, `status`, `timeline` and `gate` on a folder that stands for a machine.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod bucket;
mod busy;
mod gate;
mod needs_a_person;
mod ownership;
mod plan;
mod platform;
mod reset;
mod status;
mod store;
mod timeline;
mod trees;
mod verify;
mod wrong_input;

use std::collections::BTreeSet;

use serde_json::Value;
use support::{
    BUNDLE, GATE, JOURNAL, Ran, Sandbox, bundle, can_run, example, finish, golden, is_root, nodestrap, other_bundle,
    program, text,
};

/// A certificate and its key, as far as anybody but a kubelet looks.
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nMAA=\n\
                   -----END EC PRIVATE KEY-----\n";

/// Every file that an apply of the example brings, with its mode.
const BROUGHT: [(&str, u32); 16] = [
    ("/etc/containerd/config.toml", 0o644),
    ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", 0o600),
    (GATE, 0o644),
    ("/etc/kubernetes/kubelet.yaml", 0o644),
    ("/etc/kubernetes/pki/ca.crt", 0o644),
    ("/etc/modules-load.d/nodestrap.conf", 0o644),
    ("/etc/nodestrap/network.json", 0o644),
    ("/etc/sysctl.d/90-nodestrap.conf", 0o644),
    ("/etc/systemd/system/kubelet.service", 0o644),
    ("/etc/systemd/system/nodestrap-gate.service", 0o644),
    ("/etc/systemd/system/nodestrap-kernel.service", 0o644),
    ("/etc/systemd/system/nodestrap-network.service", 0o644),
    ("/etc/systemd/system/nodestrap-spend-credentials.service", 0o644),
    ("/var/lib/nodestrap/before/record.json", 0o600),
    ("/var/lib/nodestrap/complete.json", 0o600),
    (JOURNAL, 0o600),
];

/// What `apply` says of a bundle that it refuses, on a machine that is no node yet; `plan` says nothing but why.
fn said_of_refusal(command: &str) -> &'static str {
    match command {
        "apply" => "nothing was changed; the gate is shut\n",
        _ => "",
    }
}

/// In YAML the same as in JSON.
fn agree(in_format: impl Fn(&str) -> Ran, code: i32) -> Value {
    let json = in_format("json").expect(code).json();
    let yaml: Value = serde_saphyr::from_str(&in_format("yaml").expect(code).out).unwrap();
    assert_eq!(json, yaml);
    json
}
