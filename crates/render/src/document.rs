//! The bundle as JSON: canonical manifest, self-contained file, folder; and back, strictly.
//!
//! `bundle.json` and the folder's `manifest.json` are the same document, once with the contents inside and once without.
//! Both state the digest, so that any change after rendering is noticed when they are read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use crate::bundle::{
    API_VERSION, Bundle, File, Gate, Hook, Join, MAX_BUNDLE_BYTES, NodeKind, Runtime, Secrecy, Start, Unit,
};
use crate::check::{octal, validate_bundle, validate_path};
use crate::error::BundleError;
use crate::manifest::{self, Seal};

pub(crate) const KIND: &str = "Bundle";
const MANIFEST_MODE: u32 = 0o644;

/// More than any file's entry needs besides the content.
const ENTRY_BYTES: usize = 512;

/// serde_json fails on keys that are no strings and on types that refuse to be serialised.
pub(crate) const ALWAYS_JSON: &str = "a document has string keys and plain types only";

/// The document in the order in which people want to read it. What is written borrows from the bundle.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    digest: Cow<'a, str>,
    #[serde(borrow)]
    cluster: Cow<'a, str>,
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    kubernetes_version: Cow<'a, str>,
    node: Cow<'a, NodeKind>,
    required_programs: Cow<'a, [String]>,
    #[serde(borrow)]
    units: Vec<UnitEntry<'a>>,
    #[serde(default, skip_serializing_if = "<[Hook]>::is_empty")]
    hooks: Cow<'a, [Hook]>,
    runtime: Cow<'a, Runtime>,
    #[serde(borrow)]
    gate: GateEntry<'a>,
    #[serde(borrow)]
    join: JoinEntry<'a>,
    #[serde(borrow)]
    files: Vec<FileEntry<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UnitEntry<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    start: StartEntry,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StartEntry {
    BeforeGate,
    AfterGate,
    ByOthers,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GateEntry<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    environment: Cow<'a, BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    facts: Cow<'a, [String]>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JoinEntry<'a> {
    #[serde(borrow)]
    api_server: Cow<'a, str>,
    #[serde(borrow)]
    bootstrap_kubeconfig: Cow<'a, str>,
    #[serde(borrow)]
    kubeconfig: Cow<'a, str>,
    #[serde(borrow)]
    client_certificate: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    node_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kubelet_unit: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileEntry<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow)]
    mode: Cow<'a, str>,
    secret: bool,
    #[serde(borrow)]
    sha256: Cow<'a, str>,
    size: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content_base64: Option<Cow<'a, str>>,
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
        let hashes: Vec<String> = self.files.iter().map(File::sha256).collect();
        String::from_utf8_lossy(&manifest::canonical(self, &hashes)).into_owned()
    }

    /// `sha256:` and the SHA-256 of [`Bundle::manifest_json`].
    pub fn digest(&self) -> String {
        Seal::of(self).digest
    }

    /// The self-contained file. It holds secrets: write it with mode 0600.
    pub fn to_json(&self) -> String {
        self.to_json_with(&Seal::of(self))
    }

    /// The same, with a seal that is at hand already.
    pub(crate) fn to_json_with(&self, seal: &Seal) -> String {
        pretty(&document(self, seal, Contents::Inside))
    }

    /// Reads what [`Bundle::to_json`] wrote. Anything else is refused, never repaired.
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        read(bytes, |entry| match (&entry.content, &entry.content_base64) {
            (Some(text), None) => Ok(text.as_bytes().to_vec()),
            (None, Some(encoded)) => {
                BASE64.decode(encoded.as_bytes()).map_err(|_| BundleError::Content { path: entry.path.to_string() })
            }
            _ => Err(BundleError::Content { path: entry.path.to_string() }),
        })
    }

    /// The folder form as relative path, mode and content: `manifest.json`, then `root/…` in order of path.
    pub fn to_folder(&self) -> Vec<(String, u32, Vec<u8>)> {
        let manifest = pretty(&document(self, &Seal::of(self), Contents::Beside)).into_bytes();
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
                return Err(BundleError::Content { path: entry.path.to_string() });
            }
            validate_path(&entry.path)?;
            read_content(&format!("root{}", entry.path))
                .ok_or_else(|| BundleError::MissingFile { path: entry.path.to_string() })
        })
    }

    /// Whether the bundle keeps all rules and, as a file, the limit of size.
    pub(crate) fn validate(&self) -> Result<(), BundleError> {
        validate_bundle(self)?;
        // JSON makes six bytes of one at most: only what comes near the limit has to be written to know its size.
        let contents: usize = self.files.iter().map(|file| file.content.len() + ENTRY_BYTES).sum();
        if contents < MAX_BUNDLE_BYTES / 8 { Ok(()) } else { limit(self.to_json().len()) }
    }
}

fn document<'a>(bundle: &'a Bundle, seal: &'a Seal, contents: Contents) -> Document<'a> {
    let text = |text: &'a String| Cow::Borrowed(text.as_str());
    Document {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        digest: text(&seal.digest),
        cluster: text(&bundle.cluster),
        group: text(&bundle.group),
        kubernetes_version: text(&bundle.kubernetes_version),
        node: Cow::Borrowed(&bundle.kind),
        required_programs: Cow::Borrowed(&bundle.required_programs),
        units: bundle
            .units
            .iter()
            .map(|unit| UnitEntry { name: text(&unit.name), start: StartEntry::from(unit.start) })
            .collect(),
        hooks: Cow::Borrowed(&bundle.hooks),
        runtime: Cow::Borrowed(&bundle.runtime),
        gate: GateEntry {
            path: text(&bundle.gate.path),
            environment: Cow::Borrowed(&bundle.gate.environment),
            facts: Cow::Borrowed(&bundle.gate.facts),
        },
        join: JoinEntry {
            api_server: text(&bundle.join.api_server),
            bootstrap_kubeconfig: text(&bundle.join.bootstrap_kubeconfig),
            kubeconfig: text(&bundle.join.kubeconfig),
            client_certificate: text(&bundle.join.client_certificate),
            node_name: bundle.join.node_name.as_ref().map(text),
            kubelet_unit: text(&bundle.join.kubelet_unit),
        },
        files: bundle.files.iter().zip(&seal.files).map(|(file, hash)| file_entry(file, hash, contents)).collect(),
    }
}

fn file_entry<'a>(file: &'a File, sha256: &'a str, contents: Contents) -> FileEntry<'a> {
    let (content, content_base64) = match (contents, std::str::from_utf8(&file.content)) {
        (Contents::Beside, _) => (None, None),
        (Contents::Inside, Ok(text)) => (Some(text.into()), None),
        (Contents::Inside, Err(_)) => (None, Some(BASE64.encode(&file.content).into())),
    };
    FileEntry {
        path: file.path.as_str().into(),
        mode: octal(file.mode),
        secret: file.secrecy == Secrecy::Secret,
        sha256: sha256.into(),
        size: file.content.len() as u64,
        content,
        content_base64,
    }
}

fn read(
    bytes: &[u8],
    mut content: impl FnMut(&FileEntry<'_>) -> Result<Vec<u8>, BundleError>,
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
            path: entry.path.into_owned(),
        };
        total += file.content.len();
        limit(total)?;
        let actual = file.content.len() as u64;
        if actual != entry.size {
            return Err(BundleError::Size { path: file.path, stated: entry.size, actual });
        }
        let actual = file.sha256();
        if actual != entry.sha256 {
            return Err(BundleError::FileDigest { path: file.path, stated: entry.sha256.into_owned(), actual });
        }
        files.push(file);
    }
    let bundle = Bundle {
        cluster: document.cluster.into_owned(),
        group: document.group.into_owned(),
        kubernetes_version: document.kubernetes_version.into_owned(),
        kind: document.node.into_owned(),
        required_programs: document.required_programs.into_owned(),
        files,
        units: document
            .units
            .into_iter()
            .map(|unit| Unit { name: unit.name.into_owned(), start: unit.start.into() })
            .collect(),
        hooks: document.hooks.into_owned(),
        runtime: document.runtime.into_owned(),
        gate: Gate {
            path: document.gate.path.into_owned(),
            environment: document.gate.environment.into_owned(),
            facts: document.gate.facts.into_owned(),
        },
        join: Join {
            api_server: document.join.api_server.into_owned(),
            bootstrap_kubeconfig: document.join.bootstrap_kubeconfig.into_owned(),
            kubeconfig: document.join.kubeconfig.into_owned(),
            client_certificate: document.join.client_certificate.into_owned(),
            node_name: document.join.node_name.map(Cow::into_owned),
            kubelet_unit: document.join.kubelet_unit.into_owned(),
        },
    };
    // The rules before the digest: what is wrong with a bundle written by hand is more use than that it was changed.
    validate_bundle(&bundle)?;
    let actual = bundle.digest();
    if actual != document.digest {
        return Err(BundleError::Digest { stated: document.digest.into_owned(), actual });
    }
    Ok(bundle)
}

fn limit(bytes: usize) -> Result<(), BundleError> {
    if bytes > MAX_BUNDLE_BYTES { Err(BundleError::TooLarge { bytes }) } else { Ok(()) }
}

fn parse_mode(entry: &FileEntry<'_>) -> Result<u32, BundleError> {
    let mode = u32::from_str_radix(&entry.mode, 8).ok().filter(|mode| octal(*mode) == entry.mode);
    mode.ok_or_else(|| BundleError::Mode { path: entry.path.to_string(), mode: entry.mode.to_string() })
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

fn pretty(document: &Document<'_>) -> String {
    // A little more than is mostly needed: a fleet keeps thousands of these in memory.
    let expected = document.files.iter().fold(2048, |sum, file| sum + file.size as usize * 17 / 16 + 200);
    let mut bytes = Vec::with_capacity(expected);
    serde_json::to_writer_pretty(&mut bytes, document).expect(ALWAYS_JSON);
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is text")
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
