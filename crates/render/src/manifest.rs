//! The manifest: everything of a bundle but the contents, as canonical JSON, and the digest over it.
//!
//! Fields are declared in the order of their names as written, so that a plain serialiser gives sorted keys: a fleet of
//! thousands is sealed without building and sorting a tree for each node. A test compares with [`crate::json::canonical`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::bundle::{API_VERSION, Archive, Bundle, File, Hook, Join, NodeKind, Package, Runtime, Secrecy, sha256_hex};
use crate::check::octal;
use crate::document::{ALWAYS_JSON, KIND, StartEntry};

/// The SHA-256 of each file of a bundle in their order, and the bundle's digest over them all.
pub(crate) struct Seal {
    pub(crate) files: Vec<String>,
    /// `sha256:` and 64 hexadecimal digits.
    pub(crate) digest: String,
}

impl Seal {
    pub(crate) fn of(bundle: &Bundle) -> Self {
        let files: Vec<String> = bundle.files.iter().map(File::sha256).collect();
        let digest = ["sha256:", &sha256_hex(&canonical(bundle, &files))].concat();
        Self { files, digest }
    }
}

/// The canonical JSON; `hashes` are those of the files, in their order.
pub(crate) fn canonical(bundle: &Bundle, hashes: &[String]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024 + 192 * bundle.files.len());
    serde_json::to_writer(&mut bytes, &Manifest::of(bundle, hashes)).expect(ALWAYS_JSON);
    bytes
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    api_version: &'static str,
    cluster: &'a str,
    files: Vec<FileEntry<'a>>,
    gate: GateEntry<'a>,
    group: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<HookEntry<'a>>,
    join: JoinEntry<'a>,
    kind: &'static str,
    kubernetes_version: &'a str,
    node: NodeEntry<'a>,
    required_programs: &'a [String],
    runtime: RuntimeEntry<'a>,
    units: Vec<UnitEntry<'a>>,
}

#[derive(Serialize)]
struct FileEntry<'a> {
    mode: Cow<'static, str>,
    path: &'a str,
    secret: bool,
    sha256: &'a str,
    size: usize,
}

#[derive(Serialize)]
struct GateEntry<'a> {
    environment: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    facts: &'a [String],
    path: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HookEntry<'a> {
    name: &'a str,
    required: bool,
    slot: &'a str,
    timeout_seconds: u64,
    unit: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JoinEntry<'a> {
    api_server: &'a str,
    bootstrap_kubeconfig: &'a str,
    client_certificate: &'a str,
    kubeconfig: &'a str,
    kubelet_unit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<&'a str>,
}

#[derive(Serialize)]
struct NodeEntry<'a> {
    layout: &'a str,
    os: &'a str,
    provider: &'a str,
    role: &'a str,
}

#[derive(Serialize)]
struct RuntimeEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    archive: Option<ArchiveEntry<'a>>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<PackageEntry<'a>>,
    source: &'a str,
}

#[derive(Serialize)]
struct ArchiveEntry<'a> {
    sha256: &'a str,
    urls: &'a [String],
}

#[derive(Serialize)]
struct PackageEntry<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct UnitEntry<'a> {
    name: &'a str,
    start: StartEntry,
}

// Every type is taken apart by name, so that a field which is added to a bundle cannot be forgotten under its digest.

impl<'a> Manifest<'a> {
    fn of(bundle: &'a Bundle, hashes: &'a [String]) -> Self {
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
        Self {
            api_version: API_VERSION,
            cluster,
            files: files.iter().zip(hashes).map(|(file, sha256)| FileEntry::of(file, sha256)).collect(),
            gate: GateEntry { environment: &gate.environment, facts: &gate.facts, path: &gate.path },
            group,
            hooks: hooks.iter().map(HookEntry::of).collect(),
            join: JoinEntry::of(join),
            kind: KIND,
            kubernetes_version,
            node: NodeEntry { layout, os, provider, role },
            required_programs,
            runtime: RuntimeEntry::of(runtime),
            units: units.iter().map(|unit| UnitEntry { name: &unit.name, start: unit.start.into() }).collect(),
        }
    }
}

impl<'a> FileEntry<'a> {
    fn of(file: &'a File, sha256: &'a str) -> Self {
        let File { path, mode, secrecy, content } = file;
        Self { mode: octal(*mode), path, secret: *secrecy == Secrecy::Secret, sha256, size: content.len() }
    }
}

impl<'a> HookEntry<'a> {
    fn of(hook: &'a Hook) -> Self {
        let Hook { name, slot, unit, timeout_seconds, required } = hook;
        Self { name, required: *required, slot, timeout_seconds: *timeout_seconds, unit }
    }
}

impl<'a> JoinEntry<'a> {
    fn of(join: &'a Join) -> Self {
        let Join { api_server, bootstrap_kubeconfig, kubeconfig, client_certificate, kubelet_unit, node_name } = join;
        let node_name = node_name.as_deref();
        Self { api_server, bootstrap_kubeconfig, client_certificate, kubeconfig, kubelet_unit, node_name }
    }
}

impl<'a> RuntimeEntry<'a> {
    fn of(runtime: &'a Runtime) -> Self {
        let Runtime { name, source, archive, package } = runtime;
        Self {
            archive: archive.as_ref().map(|Archive { urls, sha256 }| ArchiveEntry { sha256, urls }),
            name,
            package: package.as_ref().map(|Package { name, version }| PackageEntry { name, version }),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::bundle::{Gate, Start, Unit};

    /// One with everything that a bundle may have.
    fn everything() -> Bundle {
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
