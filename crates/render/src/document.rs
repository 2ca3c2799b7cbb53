//! The bundle as JSON: canonical manifest, self-contained file, folder; and back, strictly.
//!
//! `bundle.json` and the folder's `manifest.json` are the same document, once with the contents inside and once without.
//! Both state the digest, so that any change after rendering is noticed when they are read.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bundle::{
    API_VERSION, Bundle, File, Gate, Hook, Join, MAX_BUNDLE_BYTES, NodeKind, Runtime, Secrecy, Start, Unit, sha256_hex,
};
use crate::check::{octal, validate_bundle, validate_path};
use crate::error::BundleError;
use crate::json;

const KIND: &str = "Bundle";
const MANIFEST_MODE: u32 = 0o644;

/// serde_json fails on keys that are no strings and on types that refuse to be serialised.
const ALWAYS_JSON: &str = "a document has string keys and plain types only";

/// The document in the order in which people want to read it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    digest: String,
    cluster: String,
    group: String,
    kubernetes_version: String,
    node: NodeKind,
    required_programs: Vec<String>,
    units: Vec<UnitEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<Hook>,
    runtime: Runtime,
    gate: GateEntry,
    join: JoinEntry,
    files: Vec<FileEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UnitEntry {
    name: String,
    start: StartEntry,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StartEntry {
    BeforeGate,
    AfterGate,
    ByOthers,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GateEntry {
    path: String,
    environment: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    facts: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JoinEntry {
    api_server: String,
    bootstrap_kubeconfig: String,
    kubeconfig: String,
    client_certificate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
    kubelet_unit: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileEntry {
    path: String,
    mode: String,
    secret: bool,
    sha256: String,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_base64: Option<String>,
}

/// Read before anything else, so that a document of another version is named as such and not as full of mistakes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Contents {
    Inside,
    Beside,
}

impl Bundle {
    /// Canonical JSON (sorted keys, no white space) of everything but the contents, which stand as SHA-256.
    pub fn manifest_json(&self) -> String {
        let mut value = json_value(&document(self, String::new(), Contents::Beside));
        if let Value::Object(fields) = &mut value {
            fields.remove("digest");
        }
        json::canonical(&value)
    }

    /// `sha256:` and the SHA-256 of [`Bundle::manifest_json`].
    pub fn digest(&self) -> String {
        format!("sha256:{}", sha256_hex(self.manifest_json().as_bytes()))
    }

    /// The self-contained file. It holds secrets: write it with mode 0600.
    pub fn to_json(&self) -> String {
        pretty(&document(self, self.digest(), Contents::Inside))
    }

    /// Reads what [`Bundle::to_json`] wrote. Anything else is refused, never repaired.
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        read(bytes, |entry| match (&entry.content, &entry.content_base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(encoded)) => {
                BASE64.decode(encoded.as_bytes()).map_err(|_| BundleError::Content { path: entry.path.clone() })
            }
            _ => Err(BundleError::Content { path: entry.path.clone() }),
        })
    }

    /// The folder form as relative path, mode and content: `manifest.json`, then `root/…` in order of path.
    pub fn to_folder(&self) -> Vec<(String, u32, Vec<u8>)> {
        let manifest = pretty(&document(self, self.digest(), Contents::Beside)).into_bytes();
        let files = self.files.iter().map(|file| (format!("root{}", file.path), file.mode, file.content.clone()));
        std::iter::once(("manifest.json".to_owned(), MANIFEST_MODE, manifest)).chain(files).collect()
    }

    /// Reads the folder form. `read_content` gives the content of a relative path such as `root/etc/kubernetes/kubelet.yaml`;
    /// it is asked only for paths that stay under `root/`.
    pub fn from_folder(
        manifest: &[u8],
        mut read_content: impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<Self, BundleError> {
        read(manifest, |entry| {
            if entry.content.is_some() || entry.content_base64.is_some() {
                return Err(BundleError::Content { path: entry.path.clone() });
            }
            validate_path(&entry.path)?;
            read_content(&format!("root{}", entry.path))
                .ok_or_else(|| BundleError::MissingFile { path: entry.path.clone() })
        })
    }

    /// Whether the bundle keeps all rules and, as a file, the limit of size.
    pub(crate) fn validate(&self) -> Result<(), BundleError> {
        validate_bundle(self)?;
        limit(self.to_json().len())
    }
}

fn document(bundle: &Bundle, digest: String, contents: Contents) -> Document {
    Document {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        digest,
        cluster: bundle.cluster.clone(),
        group: bundle.group.clone(),
        kubernetes_version: bundle.kubernetes_version.clone(),
        node: bundle.kind.clone(),
        required_programs: bundle.required_programs.clone(),
        units: bundle
            .units
            .iter()
            .map(|unit| UnitEntry { name: unit.name.clone(), start: StartEntry::from(unit.start) })
            .collect(),
        hooks: bundle.hooks.clone(),
        runtime: bundle.runtime.clone(),
        gate: GateEntry {
            path: bundle.gate.path.clone(),
            environment: bundle.gate.environment.clone(),
            facts: bundle.gate.facts.clone(),
        },
        join: JoinEntry {
            api_server: bundle.join.api_server.clone(),
            bootstrap_kubeconfig: bundle.join.bootstrap_kubeconfig.clone(),
            kubeconfig: bundle.join.kubeconfig.clone(),
            client_certificate: bundle.join.client_certificate.clone(),
            node_name: bundle.join.node_name.clone(),
            kubelet_unit: bundle.join.kubelet_unit.clone(),
        },
        files: bundle.files.iter().map(|file| file_entry(file, contents)).collect(),
    }
}

fn file_entry(file: &File, contents: Contents) -> FileEntry {
    let (content, content_base64) = match (contents, std::str::from_utf8(&file.content)) {
        (Contents::Beside, _) => (None, None),
        (Contents::Inside, Ok(text)) => (Some(text.to_owned()), None),
        (Contents::Inside, Err(_)) => (None, Some(BASE64.encode(&file.content))),
    };
    FileEntry {
        path: file.path.clone(),
        mode: octal(file.mode),
        secret: file.secrecy == Secrecy::Secret,
        sha256: file.sha256(),
        size: file.content.len() as u64,
        content,
        content_base64,
    }
}

fn read(
    bytes: &[u8],
    mut content: impl FnMut(&FileEntry) -> Result<Vec<u8>, BundleError>,
) -> Result<Bundle, BundleError> {
    limit(bytes.len())?;
    let header: Header = serde_json::from_slice(bytes).map_err(syntax)?;
    if header.kind != KIND {
        return Err(BundleError::Kind { found: header.kind });
    }
    if header.api_version != API_VERSION {
        return Err(wrong_api_version(header.api_version));
    }
    let document: Document = serde_json::from_slice(bytes).map_err(syntax)?;
    let mut files = Vec::with_capacity(document.files.len());
    let mut total = 0;
    for entry in document.files {
        let file = File {
            mode: parse_mode(&entry)?,
            secrecy: if entry.secret { Secrecy::Secret } else { Secrecy::Public },
            content: content(&entry)?,
            path: entry.path,
        };
        total += file.content.len();
        limit(total)?;
        let actual = file.content.len() as u64;
        if actual != entry.size {
            return Err(BundleError::Size { path: file.path, stated: entry.size, actual });
        }
        let actual = file.sha256();
        if actual != entry.sha256 {
            return Err(BundleError::FileDigest { path: file.path, stated: entry.sha256, actual });
        }
        files.push(file);
    }
    let bundle = Bundle {
        cluster: document.cluster,
        group: document.group,
        kubernetes_version: document.kubernetes_version,
        kind: document.node,
        required_programs: document.required_programs,
        files,
        units: document.units.into_iter().map(|unit| Unit { name: unit.name, start: unit.start.into() }).collect(),
        hooks: document.hooks,
        runtime: document.runtime,
        gate: Gate { path: document.gate.path, environment: document.gate.environment, facts: document.gate.facts },
        join: Join {
            api_server: document.join.api_server,
            bootstrap_kubeconfig: document.join.bootstrap_kubeconfig,
            kubeconfig: document.join.kubeconfig,
            client_certificate: document.join.client_certificate,
            node_name: document.join.node_name,
            kubelet_unit: document.join.kubelet_unit,
        },
    };
    // The rules before the digest: what is wrong with a bundle written by hand is more use than that it was changed.
    validate_bundle(&bundle)?;
    let actual = bundle.digest();
    if actual != document.digest {
        return Err(BundleError::Digest { stated: document.digest, actual });
    }
    Ok(bundle)
}

fn limit(bytes: usize) -> Result<(), BundleError> {
    if bytes > MAX_BUNDLE_BYTES { Err(BundleError::TooLarge { bytes }) } else { Ok(()) }
}

fn parse_mode(entry: &FileEntry) -> Result<u32, BundleError> {
    let mode = u32::from_str_radix(&entry.mode, 8).ok().filter(|mode| octal(*mode) == entry.mode);
    mode.ok_or_else(|| BundleError::Mode { path: entry.path.clone(), mode: entry.mode.clone() })
}

fn wrong_api_version(found: String) -> BundleError {
    let version = |text: &str| text.strip_prefix("nodestrap.io/").and_then(api_version_rank);
    match (version(&found), version(API_VERSION)) {
        (Some(theirs), Some(ours)) if theirs > ours => BundleError::NewerApiVersion { found },
        _ => BundleError::ApiVersion { found },
    }
}

/// Orders `v1alpha1 < v1alpha2 < v1beta1 < v1 < v2alpha1`, as Kubernetes does within a major version.
fn api_version_rank(text: &str) -> Option<(u32, u32, u32)> {
    let rest = text.strip_prefix('v')?;
    for (stability, word) in [(0, "alpha"), (1, "beta")] {
        if let Some((major, number)) = rest.split_once(word) {
            return Some((major.parse().ok()?, stability, number.parse().ok()?));
        }
    }
    Some((rest.parse().ok()?, 2, 0))
}

/// A type error of serde shows the value it met, which may be a secret: only what names fields is passed on.
fn syntax(error: serde_json::Error) -> BundleError {
    let text = error.to_string();
    let reason = match error.classify() {
        serde_json::error::Category::Data => {
            let names_only = ["unknown field", "missing field", "duplicate field", "unknown variant"];
            if names_only.iter().any(|start| text.starts_with(start)) {
                text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_owned())
            } else {
                "a value is not of the right type".to_owned()
            }
        }
        serde_json::error::Category::Eof => "it ends too early".to_owned(),
        _ => "it is not JSON".to_owned(),
    };
    BundleError::Syntax { line: error.line(), column: error.column(), reason }
}

fn pretty(document: &Document) -> String {
    let mut text = serde_json::to_string_pretty(document).expect(ALWAYS_JSON);
    text.push('\n');
    text
}

fn json_value(document: &Document) -> Value {
    serde_json::to_value(document).expect(ALWAYS_JSON)
}

impl From<Start> for StartEntry {
    fn from(start: Start) -> Self {
        match start {
            Start::BeforeGate => Self::BeforeGate,
            Start::AfterGate => Self::AfterGate,
            Start::ByOthers => Self::ByOthers,
        }
    }
}

impl From<StartEntry> for Start {
    fn from(start: StartEntry) -> Self {
        match start {
            StartEntry::BeforeGate => Self::BeforeGate,
            StartEntry::AfterGate => Self::AfterGate,
            StartEntry::ByOthers => Self::ByOthers,
        }
    }
}
