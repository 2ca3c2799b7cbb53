//! The manifest: everything of a bundle but the contents, as canonical JSON, and the digest over it.
//!
//! Fields are written in the order of their names; a test compares with [`crate::json::canonical`]. Every type is taken
//! apart by name, so that a field which is added to a bundle cannot be forgotten under its digest.

use crate::bundle::{API_VERSION, Archive, Bundle, File, Gate, Hook, Join, NodeKind, Package, Runtime, Secrecy, Unit};
use crate::check::octal;
use crate::content::sha256_hex;
use crate::document::{KIND, start_name};
use crate::json::{Layout, Writer};

/// As many as the entry of a file mostly has.
const ENTRY_BYTES: usize = 192;

/// `sha256:` and 64 hexadecimal digits.
pub(crate) fn digest(bundle: &Bundle) -> String {
    ["sha256:", &sha256_hex(canonical(bundle).as_bytes())].concat()
}

pub(crate) fn canonical(bundle: &Bundle) -> String {
    let room = String::with_capacity(1024 + ENTRY_BYTES * bundle.files.len());
    let mut writer = Writer::new(Layout::Compact, room);
    writer.object(|writer| write_bundle(writer, bundle));
    writer.finish()
}

fn write_bundle(writer: &mut Writer, bundle: &Bundle) {
    let Bundle {
        cluster,
        group,
        kubernetes_version,
        kind: NodeKind { role, os, provider, layout },
        required_programs,
        files,
        units,
        hooks,
        runtime,
        gate,
        join,
    } = bundle;
    writer.name("apiVersion").string(API_VERSION);
    writer.name("cluster").string(cluster);
    writer.name("files").list(files, |writer, file| writer.raw(&file.manifest_entry(entry)));
    writer.name("gate").object(|writer| write_gate(writer, gate));
    writer.name("group").string(group);
    if !hooks.is_empty() {
        writer.name("hooks").list(hooks, write_hook);
    }
    writer.name("join").object(|writer| write_join(writer, join));
    writer.name("kind").string(KIND);
    writer.name("kubernetesVersion").string(kubernetes_version);
    writer.name("node").object(|writer| {
        writer.name("layout").string(layout);
        writer.name("os").string(os);
        writer.name("provider").string(provider);
        writer.name("role").string(role);
    });
    writer.name("requiredPrograms").strings(required_programs);
    writer.name("runtime").object(|writer| write_runtime(writer, runtime));
    writer.name("units").list(units, |writer, Unit { name, start }| {
        writer.object(|writer| {
            writer.name("name").string(name);
            writer.name("start").plain(start_name(*start));
        });
    });
}

fn entry(File { path, mode, secrecy, content }: &File) -> String {
    let mut writer = Writer::new(Layout::Compact, String::with_capacity(ENTRY_BYTES));
    writer.object(|writer| {
        writer.name("mode").plain(&octal(*mode));
        writer.name("path").string(path);
        writer.name("secret").flag(*secrecy == Secrecy::Secret);
        writer.name("sha256").plain(content.sha256());
        writer.name("size").number(content.len() as u64);
    });
    writer.finish()
}

fn write_gate(writer: &mut Writer, Gate { path, environment, facts }: &Gate) {
    writer.name("environment").object(|writer| {
        environment.iter().for_each(|(name, value)| writer.key(name).string(value));
    });
    if !facts.is_empty() {
        writer.name("facts").strings(facts);
    }
    writer.name("path").string(path);
}

fn write_hook(writer: &mut Writer, Hook { name, slot, unit, timeout_seconds, required }: &Hook) {
    writer.object(|writer| {
        writer.name("name").string(name);
        writer.name("required").flag(*required);
        writer.name("slot").string(slot);
        writer.name("timeoutSeconds").number(*timeout_seconds);
        writer.name("unit").string(unit);
    });
}

fn write_join(writer: &mut Writer, join: &Join) {
    let Join { api_server, bootstrap_kubeconfig, kubeconfig, client_certificate, kubelet_unit, node_name } = join;
    writer.name("apiServer").string(api_server);
    writer.name("bootstrapKubeconfig").string(bootstrap_kubeconfig);
    writer.name("clientCertificate").string(client_certificate);
    writer.name("kubeconfig").string(kubeconfig);
    writer.name("kubeletUnit").string(kubelet_unit);
    if let Some(name) = node_name {
        writer.name("nodeName").string(name);
    }
}

fn write_runtime(writer: &mut Writer, Runtime { name, source, archive, package }: &Runtime) {
    if let Some(Archive { urls, sha256 }) = archive {
        writer.name("archive").object(|writer| {
            writer.name("sha256").string(sha256);
            writer.name("urls").strings(urls);
        });
    }
    writer.name("name").string(name);
    if let Some(Package { name, version }) = package {
        writer.name("package").object(|writer| {
            writer.name("name").string(name);
            writer.name("version").string(version);
        });
    }
    writer.name("source").string(source);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::bundle::Start;

    /// One with everything that a bundle may have.
    pub(crate) fn everything() -> Bundle {
        let text = str::to_owned;
        Bundle {
            cluster: text("demo"),
            group: text("workers"),
            kubernetes_version: text("1.36.3"),
            kind: NodeKind {
                role: text("worker"),
                os: text("debian"),
                provider: text("aws"),
                layout: text("nodestrap"),
            },
            required_programs: vec![text("/usr/bin/kubelet"), text("/usr/bin/\"quoted\"")],
            files: vec![
                File { mode: 0o750, ..File::public("/etc/a", vec![0xff, 0]) },
                File::secret("/etc/b", "line\n"),
                File::unit("hook.service", "[Service]\n"),
            ],
            units: [("a.service", Start::BeforeGate), ("b.service", Start::AfterGate), ("c.service", Start::ByOthers)]
                .map(|(name, start)| Unit::new(name, start))
                .into(),
            hooks: vec![Hook {
                name: text("hook"),
                slot: text("before-kubelet"),
                unit: text("hook.service"),
                timeout_seconds: 30,
                required: true,
            }],
            runtime: Runtime {
                name: text("containerd"),
                source: text("tree"),
                archive: Some(Archive { urls: vec![text("https://a.example/x")], sha256: "0".repeat(64) }),
                package: Some(Package { name: text("containerd.io"), version: text("2.1.0") }),
            },
            gate: Gate {
                path: text("/etc/kubernetes/kubelet.env"),
                environment: BTreeMap::from([(text("B"), text("é")), (text("A"), text("1"))]),
                facts: vec![text("NODE_IP")],
            },
            join: Join {
                api_server: text("https://10.0.0.1:6443"),
                bootstrap_kubeconfig: text("/etc/kubernetes/bootstrap.conf"),
                kubeconfig: text("/etc/kubernetes/kubelet.conf"),
                client_certificate: text("/var/lib/kubelet/pki/kubelet-client-current.pem"),
                kubelet_unit: text("kubelet.service"),
                node_name: Some(text("node-1")),
            },
        }
    }

    /// The document without the digest and the contents, its keys sorted.
    fn by_sorting(bundle: &Bundle) -> String {
        let mut document: Value = serde_json::from_str(&bundle.to_json()).unwrap();
        document.as_object_mut().unwrap().remove("digest");
        for file in document["files"].as_array_mut().unwrap() {
            let file = file.as_object_mut().unwrap();
            file.remove("content");
            file.remove("contentBase64");
        }
        crate::json::canonical(&document)
    }

    #[test]
    fn declared_order_is_the_order_of_sorted_keys() {
        let mut bundle = everything();
        assert_eq!(bundle.manifest_json(), by_sorting(&bundle));
        bundle.hooks.clear();
        bundle.gate.facts.clear();
        (bundle.runtime.archive, bundle.runtime.package, bundle.join.node_name) = (None, None, None);
        assert_eq!(bundle.manifest_json(), by_sorting(&bundle));
    }
}
