//! The bundle as JSON: manifest, self-contained file, folder; and back, strictly.
//!
//! `bundle.json` and the folder's `manifest.json` are the same document, once with the contents inside and once without. Both
//! state the digest, which covers the manifest: everything but the contents, which stand there as SHA-256.

use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bundle::Bundle;
use crate::check::validate_bundle;
use crate::content::Content;
use crate::error::BundleError;
use crate::json::{canonical, canonical_value, pretty_value, to_value};
use crate::names::{AbsolutePath, Digest};

/// The one version of the format that this nodestrap writes and reads.
pub const API_VERSION: &str = "nodestrap.io/v1alpha2";

/// Largest bundle that is written or read. A worker's is about 10 KiB and no user data service takes more than 1 MiB;
/// the limit keeps a damaged or hostile file from filling the memory of a booting node.
pub const MAX_BUNDLE_BYTES: usize = 1024 * 1024;

const KIND: &str = "Bundle";
/// It may name whom to tell, with the credentials for that.
const MANIFEST_MODE: u32 = 0o600;
/// More than any file's entry needs besides the content.
const ENTRY_BYTES: usize = 512;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document<B> {
    api_version: String,
    kind: String,
    digest: Digest,
    bundle: B,
}

/// Enough to name a document of another version as such, and not as full of mistakes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

impl Bundle {
    /// Canonical JSON (sorted keys, no white space) of everything but the contents, which stand as SHA-256.
    pub fn manifest_json(&self) -> String {
        canonical(self)
    }

    /// The SHA-256 of [`Bundle::manifest_json`].
    pub fn digest(&self) -> Digest {
        Digest::of(self.manifest_json().as_bytes())
    }

    /// The self-contained file. It holds secrets: write it with mode 0600.
    pub fn to_json(&self) -> String {
        self.to_json_with_digest().0
    }

    /// The same, and the digest that it states.
    pub fn to_json_with_digest(&self) -> (String, Digest) {
        let (mut document, digest) = self.document();
        if let Some(Value::Array(entries)) = document.pointer_mut("/bundle/files") {
            for (entry, file) in entries.iter_mut().zip(&self.files) {
                file.content.add_to(&mut entry["content"]);
            }
        }
        (pretty_value(&document), digest)
    }

    /// Without the contents.
    fn document(&self) -> (Value, Digest) {
        let bundle = to_value(self);
        let digest = Digest::of(canonical_value(&bundle).as_bytes());
        (json!({ "apiVersion": API_VERSION, "kind": KIND, "digest": digest, "bundle": bundle }), digest)
    }

    /// Reads what [`Bundle::to_json`] wrote. Anything else is refused, never repaired.
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        limit(bytes.len())?;
        let document = serde_json::from_slice(bytes).map_err(|error| refused(bytes, &error))?;
        accept(document)
    }

    /// The folder form as relative path, mode and content: `manifest.json`, then `root/…` in order of path.
    pub fn to_folder(&self) -> Vec<(String, u32, Vec<u8>)> {
        let manifest = pretty_value(&self.document().0).into_bytes();
        let files = self.files.iter().map(|file| (format!("root{}", file.path), file.mode, file.content.to_vec()));
        std::iter::once(("manifest.json".to_owned(), MANIFEST_MODE, manifest)).chain(files).collect()
    }

    /// Reads the folder form. `read_content` gives the content of a relative path such as `root/etc/kubernetes/kubelet.yaml`;
    /// it is asked only for paths that stay under `root/`.
    pub fn from_folder(
        manifest: &[u8],
        mut read_content: impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Result<Self, BundleError> {
        limit(manifest.len())?;
        let syntax = |error: serde_json::Error| refused(manifest, &error);
        let mut document: Document<Value> = serde_json::from_slice(manifest).map_err(syntax)?;
        // Before anything is read that another version may have put elsewhere.
        expect_ours(&Header { api_version: document.api_version.clone(), kind: document.kind.clone() })?;
        let mut total = 0;
        for entry in document.bundle["files"].as_array_mut().into_iter().flatten() {
            let path = entry["path"].as_str().unwrap_or_default();
            let path = AbsolutePath::new(path)
                .map_err(|error| BundleError::Path { path: path.to_owned(), problem: error.problem })?;
            let content = read_content(&format!("root{path}"));
            let content = Content::from(content.ok_or(BundleError::MissingFile { path: path.to_string() })?);
            total += content.len();
            limit(total)?;
            match &mut entry["content"] {
                Value::Object(fields) if !fields.contains_key("text") && !fields.contains_key("base64") => {
                    fields.insert("base64".to_owned(), BASE64.encode(&content).into());
                }
                _ => return Err(BundleError::ContentTwice { path: path.to_string() }),
            }
        }
        let Document { api_version, kind, digest, bundle } = document;
        let bundle = serde_json::from_value(bundle).map_err(syntax)?;
        accept(Document { api_version, kind, digest, bundle })
    }

    /// Whether the bundle keeps all rules and, as a file, the limit of size.
    pub fn validate(&self) -> Result<(), BundleError> {
        validate_bundle(self)?;
        // JSON makes six bytes of one at most: only what comes near the limit has to be written to know its size.
        let contents: usize = self.files.iter().map(|file| file.content.len() + ENTRY_BYTES).sum();
        if contents < MAX_BUNDLE_BYTES / 8 { Ok(()) } else { limit(self.to_json().len()) }
    }
}

fn accept(document: Document<Bundle>) -> Result<Bundle, BundleError> {
    let Document { api_version, kind, digest: stated, bundle } = document;
    expect_ours(&Header { api_version, kind })?;
    // The rules before the digest: what is wrong with a bundle written by hand is more use than that it was changed.
    validate_bundle(&bundle)?;
    match bundle.digest() {
        actual if actual == stated => Ok(bundle),
        actual => Err(BundleError::Digest { stated, actual }),
    }
}

fn limit(bytes: usize) -> Result<(), BundleError> {
    if bytes > MAX_BUNDLE_BYTES { Err(BundleError::TooLarge { bytes }) } else { Ok(()) }
}

/// A document of another kind or version is told as such, whatever else is wrong with it.
fn refused(bytes: &[u8], error: &serde_json::Error) -> BundleError {
    match serde_json::from_slice::<Header>(bytes).map(|header| expect_ours(&header)) {
        Ok(Err(not_ours)) => not_ours,
        _ => syntax(error),
    }
}

fn expect_ours(header: &Header) -> Result<(), BundleError> {
    let found = header.api_version.clone();
    match (header.kind == KIND, rank(&found), rank(API_VERSION)) {
        (false, _, _) => Err(BundleError::Kind { found: header.kind.clone() }),
        (true, _, _) if found == API_VERSION => Ok(()),
        (true, Some(theirs), Some(ours)) if theirs > ours => Err(BundleError::NewerApiVersion { found }),
        _ => Err(BundleError::OlderApiVersion { found }),
    }
}

/// Orders `v1alpha1 < v1alpha2 < v1beta1 < v1 < v2alpha1`, as Kubernetes does within a major version.
fn rank(api_version: &str) -> Option<(u32, u32, u32)> {
    let rest = api_version.strip_prefix("nodestrap.io/v")?;
    for (stability, word) in [(0, "alpha"), (1, "beta")] {
        if let Some((major, number)) = rest.split_once(word) {
            return Some((major.parse().ok()?, stability, number.parse().ok()?));
        }
    }
    Some((rest.parse().ok()?, 2, 0))
}

fn syntax(error: &serde_json::Error) -> BundleError {
    BundleError::Syntax { line: error.line(), column: error.column(), reason: harmless_reason(error) }
}

/// A type error of serde shows the value it met, which may be a secret: only what names fields, paths and units is passed on.
pub(crate) fn harmless_reason(error: &serde_json::Error) -> String {
    const HARMLESS: [&str; 9] = [
        "unknown field",
        "missing field",
        "duplicate field",
        "unknown variant",
        "the file ",
        "the mode ",
        "the path ",
        "the unit ",
        "the digest ",
    ];
    let text = error.to_string();
    match error.classify() {
        serde_json::error::Category::Data if HARMLESS.iter().any(|start| text.starts_with(start)) => {
            text.rsplit_once(" at line ").map_or(text.clone(), |(reason, _)| reason.to_owned())
        }
        serde_json::error::Category::Data => "a value is not of the right type".to_owned(),
        serde_json::error::Category::Eof => "it ends too early".to_owned(),
        _ => "it is not JSON".to_owned(),
    }
}
