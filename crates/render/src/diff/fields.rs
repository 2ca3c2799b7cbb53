//! The fields of a bundle besides its files, its units and what stands in its gate, by path.
//!
//! Every type is taken apart by name, so that a field which is added to a bundle cannot be forgotten here.

use data_encoding::BASE64;
use serde_json::Value;

use super::values::{Leaf, Values, parse_yaml};
use crate::bundle::{Archive, Bundle, Gate, Hook, Join, NodeKind, Package, Runtime};
use crate::content::sha256_hex;

pub(super) const REQUIRED_PROGRAMS: &str = "requiredPrograms";
pub(super) const AUTHORITY: &str = "join.certificateAuthority";

pub(super) fn fields(bundle: &Bundle) -> Values {
    let Bundle {
        cluster,
        group,
        kubernetes_version,
        kind: NodeKind { role, os, provider, layout },
        required_programs,
        files: _,
        units: _,
        hooks,
        runtime,
        gate: Gate { path: gate_path, environment: _, facts },
        join,
    } = bundle;
    let mut fields = Fields::default();
    fields.text("cluster", cluster);
    fields.text("group", group);
    fields.text("kubernetesVersion", kubernetes_version);
    fields.text("node.role", role);
    fields.text("node.os", os);
    fields.text("node.provider", provider);
    fields.text("node.layout", layout);
    // Their order means nothing.
    let mut programs = required_programs.clone();
    programs.sort();
    fields.list(REQUIRED_PROGRAMS, &programs);
    fields.text("gate.path", gate_path);
    fields.list("gate.facts", facts);
    hooks.iter().for_each(|hook| fields.hook(hook));
    fields.runtime(runtime);
    fields.join(join);
    if let Some(authority) = authority(bundle) {
        fields.text(AUTHORITY, &format!("sha256:{}", sha256_hex(&authority)));
    }
    fields.0
}

/// The kubelet copies it from the kubeconfig that it joins with to the one that it keeps.
fn authority(bundle: &Bundle) -> Option<Vec<u8>> {
    let file = bundle.files.iter().find(|file| file.path == bundle.join.bootstrap_kubeconfig)?;
    let kubeconfig = parse_yaml(std::str::from_utf8(&file.content).ok()?)?;
    let encoded = kubeconfig.pointer("/clusters/0/cluster/certificate-authority-data").and_then(Value::as_str)?;
    // What is not base64 is compared as it stands.
    Some(BASE64.decode(encoded.as_bytes()).unwrap_or_else(|_| encoded.as_bytes().to_vec()))
}

#[derive(Default)]
struct Fields(Values);

impl Fields {
    fn text(&mut self, path: &str, value: &str) {
        self.0.insert(path.to_owned(), Leaf::text(value));
    }

    fn list(&mut self, path: &str, items: &[String]) {
        self.0.insert(path.to_owned(), Leaf::list(items));
    }

    fn hook(&mut self, Hook { name, slot, unit, timeout_seconds, required }: &Hook) {
        self.text(&format!("hooks.{name}.slot"), slot);
        self.text(&format!("hooks.{name}.unit"), unit);
        self.text(&format!("hooks.{name}.timeoutSeconds"), &timeout_seconds.to_string());
        self.text(&format!("hooks.{name}.necessity"), if *required { "required" } else { "optional" });
    }

    fn runtime(&mut self, Runtime { name, source, archive, package }: &Runtime) {
        self.text("runtime.name", name);
        self.text("runtime.source", source);
        if let Some(Archive { urls, sha256 }) = archive {
            self.list("runtime.archive.urls", urls);
            self.text("runtime.archive.sha256", sha256);
        }
        if let Some(Package { name, version }) = package {
            self.text("runtime.package.name", name);
            self.text("runtime.package.version", version);
        }
    }

    fn join(&mut self, join: &Join) {
        let Join { api_server, bootstrap_kubeconfig, kubeconfig, client_certificate, kubelet_unit, node_name } = join;
        self.text("join.apiServer", api_server);
        self.text("join.bootstrapKubeconfig", bootstrap_kubeconfig);
        self.text("join.kubeconfig", kubeconfig);
        self.text("join.clientCertificate", client_certificate);
        self.text("join.kubeletUnit", kubelet_unit);
        if let Some(name) = node_name {
            self.text("join.nodeName", name);
        }
    }
}
