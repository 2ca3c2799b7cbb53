//! The bundle as JSON: canonical manifest, self-contained file, folder; and back, strictly.
//!
//! `bundle.json` and the folder's `manifest.json` are the same document, once with the contents inside and once without.
//! Both state the digest, so that any change after rendering is noticed when they are read.

use std::borrow::Cow;

use data_encoding::BASE64;
use serde::Deserialize;

use crate::bundle::{
    API_VERSION, Archive, Bundle, File, Gate, Hook, Join, MAX_BUNDLE_BYTES, NodeKind, Package, Runtime, Secrecy, Start,
    Unit,
};
use crate::check::{Places, octal, validate_bundle, validate_path};
use crate::content::Content;
use crate::error::BundleError;
use crate::json::{Layout, Writer};
use crate::manifest;

pub(crate) const KIND: &str = "Bundle";
const MANIFEST_MODE: u32 = 0o644;

/// More than any file's entry needs besides the content.
const ENTRY_BYTES: usize = 512;

/// As it is read; written by [`write_document`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document<'a> {
    api_version: String,
    kind: String,
    digest: String,
    cluster: String,
    group: String,
    kubernetes_version: String,
    node: NodeKind,
    required_programs: Vec<String>,
    units: Vec<Unit>,
    #[serde(default)]
    hooks: Vec<Hook>,
    runtime: Runtime,
    gate: Gate,
    join: Join,
    #[serde(borrow)]
    files: Vec<FileEntry<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileEntry<'a> {
    path: String,
    #[serde(borrow)]
    mode: Cow<'a, str>,
    secret: bool,
    #[serde(borrow)]
    sha256: Cow<'a, str>,
    size: u64,
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content_base64: Option<Cow<'a, str>>,
}

/// Enough to name a document of another version as such, and not as full of mistakes.
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
        manifest::canonical(self)
    }

    /// `sha256:` and the SHA-256 of [`Bundle::manifest_json`].
    pub fn digest(&self) -> String {
        manifest::digest(self)
    }

    /// The self-contained file. It holds secrets: write it with mode 0600.
    pub fn to_json(&self) -> String {
        self.to_json_with(&self.digest())
    }

    /// The same, with a digest that is at hand already.
    pub(crate) fn to_json_with(&self, digest: &str) -> String {
        write_document(self, digest, Contents::Inside)
    }

    /// Reads what [`Bundle::to_json`] wrote. Anything else is refused, never repaired.
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        read(bytes, |entry| match (&entry.content, &entry.content_base64) {
            (Some(text), None) => Ok(text.as_bytes().into()),
            (None, Some(encoded)) => {
                let bytes = BASE64.decode(encoded.as_bytes());
                bytes.map(Content::from).map_err(|_| BundleError::Content { path: entry.path.clone() })
            }
            _ => Err(BundleError::Content { path: entry.path.clone() }),
        })
    }

    /// The folder form as relative path, mode and content: `manifest.json`, then `root/…` in order of path.
    pub fn to_folder(&self) -> Vec<(String, u32, Vec<u8>)> {
        let manifest = write_document(self, &self.digest(), Contents::Beside).into_bytes();
        let files = self.files.iter().map(|file| (format!("root{}", file.path), file.mode, file.content.to_vec()));
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
                .map(Content::from)
                .ok_or_else(|| BundleError::MissingFile { path: entry.path.clone() })
        })
    }

    /// Whether the bundle keeps all rules and, as a file, the limit of size.
    pub(crate) fn validate(&self, places: Places) -> Result<(), BundleError> {
        validate_bundle(self, places)?;
        // JSON makes six bytes of one at most: only what comes near the limit has to be written to know its size.
        let contents: usize = self.files.iter().map(|file| file.content.len() + ENTRY_BYTES).sum();
        if contents < MAX_BUNDLE_BYTES / 8 { Ok(()) } else { limit(self.to_json().len()) }
    }
}

/// In the order in which people want to read it.
fn write_document(bundle: &Bundle, digest: &str, contents: Contents) -> String {
    let expected = bundle.files.iter().fold(2048, |sum, file| sum + expected_bytes(file));
    let mut writer = Writer::new(Layout::Indented, String::with_capacity(expected));
    writer.object(|writer| {
        writer.name("apiVersion").string(API_VERSION);
        writer.name("kind").string(KIND);
        writer.name("digest").string(digest);
        writer.name("cluster").string(&bundle.cluster);
        writer.name("group").string(&bundle.group);
        writer.name("kubernetesVersion").string(&bundle.kubernetes_version);
        writer.name("node").object(|writer| write_kind(writer, &bundle.kind));
        writer.name("requiredPrograms").strings(&bundle.required_programs);
        writer.name("units").list(&bundle.units, |writer, unit| {
            writer.object(|writer| {
                writer.name("name").string(&unit.name);
                writer.name("start").plain(start_name(unit.start));
            });
        });
        if !bundle.hooks.is_empty() {
            writer.name("hooks").list(&bundle.hooks, write_hook);
        }
        writer.name("runtime").object(|writer| write_runtime(writer, &bundle.runtime));
        writer.name("gate").object(|writer| write_gate(writer, &bundle.gate));
        writer.name("join").object(|writer| write_join(writer, &bundle.join));
        writer.name("files").list(&bundle.files, |writer, file| match contents {
            Contents::Inside => writer.raw(&file.document_entry(entry)),
            Contents::Beside => writer.object(|writer| write_file(writer, file)),
        });
    });
    let mut text = writer.finish();
    text.push('\n');
    text
}

fn write_kind(writer: &mut Writer, kind: &NodeKind) {
    writer.name("role").string(&kind.role);
    writer.name("os").string(&kind.os);
    writer.name("provider").string(&kind.provider);
    writer.name("layout").string(&kind.layout);
}

fn write_hook(writer: &mut Writer, hook: &Hook) {
    writer.object(|writer| {
        writer.name("name").string(&hook.name);
        writer.name("slot").string(&hook.slot);
        writer.name("unit").string(&hook.unit);
        writer.name("timeoutSeconds").number(hook.timeout_seconds);
        writer.name("required").flag(hook.required);
    });
}

fn write_runtime(writer: &mut Writer, runtime: &Runtime) {
    writer.name("name").string(&runtime.name);
    writer.name("source").string(&runtime.source);
    if let Some(Archive { urls, sha256 }) = &runtime.archive {
        writer.name("archive").object(|writer| {
            writer.name("urls").strings(urls);
            writer.name("sha256").string(sha256);
        });
    }
    if let Some(Package { name, version }) = &runtime.package {
        writer.name("package").object(|writer| {
            writer.name("name").string(name);
            writer.name("version").string(version);
        });
    }
}

fn write_gate(writer: &mut Writer, gate: &Gate) {
    writer.name("path").string(&gate.path);
    writer.name("environment").object(|writer| {
        gate.environment.iter().for_each(|(name, value)| writer.key(name).string(value));
    });
    if !gate.facts.is_empty() {
        writer.name("facts").strings(&gate.facts);
    }
}

fn write_join(writer: &mut Writer, join: &Join) {
    writer.name("apiServer").string(&join.api_server);
    writer.name("bootstrapKubeconfig").string(&join.bootstrap_kubeconfig);
    writer.name("kubeconfig").string(&join.kubeconfig);
    writer.name("clientCertificate").string(&join.client_certificate);
    if let Some(name) = &join.node_name {
        writer.name("nodeName").string(name);
    }
    writer.name("kubeletUnit").string(&join.kubelet_unit);
}

/// Of a file with its content, as deep in the document as it stands there.
fn entry(file: &File) -> String {
    let room = String::with_capacity(expected_bytes(file));
    let mut writer = Writer::within_document(Layout::Indented, 2, room);
    writer.object(|writer| {
        write_file(writer, file);
        match file.content.text() {
            Some(text) => writer.name("content").string(text),
            None => writer.name("contentBase64").plain(&BASE64.encode(&file.content)),
        }
    });
    writer.finish()
}

fn write_file(writer: &mut Writer, file: &File) {
    writer.name("path").string(&file.path);
    writer.name("mode").plain(&octal(file.mode));
    writer.name("secret").flag(file.secrecy == Secrecy::Secret);
    writer.name("sha256").plain(file.sha256());
    writer.name("size").number(file.content.len() as u64);
}

/// A little more than is mostly needed: a fleet keeps thousands of these in memory.
fn expected_bytes(file: &File) -> usize {
    file.content.len() * 17 / 16 + 200
}

/// As [`Start`] is read.
pub(crate) fn start_name(start: Start) -> &'static str {
    match start {
        Start::BeforeGate => "beforeGate",
        Start::AfterGate => "afterGate",
        Start::ByOthers => "byOthers",
    }
}

fn read(
    bytes: &[u8],
    mut content: impl FnMut(&FileEntry<'_>) -> Result<Content, BundleError>,
) -> Result<Bundle, BundleError> {
    limit(bytes.len())?;
    let document: Document = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        Err(error) => {
            let Header { kind, api_version } = serde_json::from_slice(bytes).map_err(syntax)?;
            expect_ours(kind, api_version)?;
            return Err(syntax(error));
        }
    };
    expect_ours(document.kind, document.api_version)?;
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
        if file.sha256() != entry.sha256 {
            let (stated, actual) = (entry.sha256.into_owned(), file.sha256().to_owned());
            return Err(BundleError::FileDigest { path: file.path, stated, actual });
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
        units: document.units,
        hooks: document.hooks,
        runtime: document.runtime,
        gate: document.gate,
        join: document.join,
    };
    // The rules before the digest: what is wrong with a bundle written by hand is more use than that it was changed.
    validate_bundle(&bundle, Places::New)?;
    let actual = bundle.digest();
    if actual != document.digest {
        return Err(BundleError::Digest { stated: document.digest, actual });
    }
    Ok(bundle)
}

fn expect_ours(kind: String, api_version: String) -> Result<(), BundleError> {
    match (kind == KIND, api_version == API_VERSION) {
        (true, true) => Ok(()),
        (true, false) => Err(wrong_api_version(api_version)),
        (false, _) => Err(BundleError::Kind { found: kind }),
    }
}

fn limit(bytes: usize) -> Result<(), BundleError> {
    if bytes > MAX_BUNDLE_BYTES { Err(BundleError::TooLarge { bytes }) } else { Ok(()) }
}

fn parse_mode(entry: &FileEntry<'_>) -> Result<u32, BundleError> {
    let mode = u32::from_str_radix(&entry.mode, 8).ok().filter(|mode| octal(*mode) == entry.mode);
    mode.ok_or_else(|| BundleError::Mode { path: entry.path.clone(), mode: entry.mode.to_string() })
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
