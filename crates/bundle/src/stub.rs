//! What user data carries in place of a bundle that is too large for it: where the bundle lies, and its digest.
//!
//! A stub is delivered at [`crate::BUNDLE_PATH`] like the bundle itself, and `kind` tells the two apart
//! ([`Payload::parse`]). Whoever fetches the bundle gives its bytes to [`Stub::accept`], which takes nothing but the very
//! bundle that the stub names, so that the store and the way to it need not be trusted for what they hand out.

use serde::{Deserialize, Serialize};

use crate::bundle::Bundle;
use crate::document::{API_VERSION, Header};
use crate::error::BundleError;
use crate::json::canonical;
use crate::names::Digest;
use crate::tree::S3;

const KIND: &str = "BundleReference";
const BUCKET: &str = "s3://";

/// Largest stub that is read. The certificates of an authority are most of it, at one or two KiB each.
pub const MAX_STUB_BYTES: usize = 64 * 1024;

/// More mirrors than this are a mistake.
const MAX_URLS: usize = 16;
const MAX_URL_BYTES: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stub {
    pub cluster: String,
    pub group: String,
    /// [`Bundle::digest`] of the bundle.
    pub digest: Digest,
    /// Where the bundle lies, whole addresses, in the order in which they are tried.
    pub urls: Vec<String>,
    /// PEM, for `https`; `None`: what the machine trusts already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authorities: Option<String>,
    /// Where buckets are, and what opens them: for addresses such as `s3://BUCKET/KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<Box<S3>>,
}

/// What a delivery puts at [`crate::BUNDLE_PATH`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    Bundle(Box<Bundle>),
    Stub(Stub),
}

/// A stub that must not be used, or a bundle that is not the one a stub names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StubError {
    #[error("the reference to a bundle has {bytes} bytes, more than the {MAX_STUB_BYTES} allowed: render it again")]
    TooLarge { bytes: usize },
    #[error(
        "the reference to a bundle cannot be read, line {line} column {column}: \
         render it again with this version of nodestrap and deliver it unchanged"
    )]
    Syntax { line: usize, column: usize },
    #[error("the document has kind '{found}', not '{KIND}': give what `nodestrap render` wrote")]
    Kind { found: String },
    #[error(
        "the reference to a bundle has apiVersion '{found}', this nodestrap reads '{API_VERSION}': \
         render it again with this version of nodestrap"
    )]
    ApiVersion { found: String },
    #[error("'{field}' in the reference to a bundle {problem}: render it again")]
    Field { field: &'static str, problem: &'static str },
    #[error("the bundle from the store is damaged or not a bundle: publish it again")]
    Bundle { source: BundleError },
    #[error(
        "the store gave the bundle '{found}' where '{wanted}' was asked for: \
         publish the bundle that belongs to this user data, under the name of its digest"
    )]
    OtherBundle { wanted: Digest, found: Digest },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document<S> {
    api_version: String,
    kind: String,
    reference: S,
}

impl Stub {
    /// The name of a bundle in a store: the hexadecimal digits of its digest, and `.json`.
    pub fn object_name(digest: &Digest) -> String {
        format!("{}.json", digest.hex())
    }

    /// The stub of a bundle that lies under each of `stores`, base addresses such as `https://store.example/bundles` or
    /// `s3://BUCKET/FOLDER`; those in buckets need `s3`.
    pub fn new(
        bundle: &Bundle,
        stores: &[String],
        certificate_authorities: Option<&str>,
        s3: Option<&S3>,
    ) -> Result<Self, StubError> {
        let digest = bundle.digest();
        let name = Self::object_name(&digest);
        let stub = Self {
            cluster: bundle.cluster.clone(),
            group: bundle.group.clone(),
            urls: stores.iter().map(|store| format!("{}/{name}", store.trim_end_matches('/'))).collect(),
            certificate_authorities: certificate_authorities.map(str::to_owned),
            s3: s3.cloned().map(Box::new),
            digest,
        };
        stub.validate()?;
        Ok(stub)
    }

    /// Canonical JSON: sorted keys, no white space but the newline at the end.
    pub fn to_json(&self) -> String {
        let (api_version, kind) = (API_VERSION.to_owned(), KIND.to_owned());
        canonical(&Document { api_version, kind, reference: self }) + "\n"
    }

    /// Reads what [`Stub::to_json`] wrote. Anything else is refused, never repaired.
    pub fn parse(bytes: &[u8]) -> Result<Self, StubError> {
        if bytes.len() > MAX_STUB_BYTES {
            return Err(StubError::TooLarge { bytes: bytes.len() });
        }
        // Read first, so that a document of another kind or version is named as such.
        let header: Header = serde_json::from_slice(bytes).map_err(syntax)?;
        if header.kind != KIND {
            return Err(StubError::Kind { found: header.kind });
        }
        if header.api_version != API_VERSION {
            return Err(StubError::ApiVersion { found: header.api_version });
        }
        let Document { reference: stub, .. } = serde_json::from_slice::<Document<Self>>(bytes).map_err(syntax)?;
        stub.validate()?;
        Ok(stub)
    }

    /// The bundle of this stub, from the bytes that a store gave.
    pub fn accept(&self, bytes: &[u8]) -> Result<Bundle, StubError> {
        let bundle = Bundle::parse(bytes).map_err(|source| StubError::Bundle { source })?;
        let found = bundle.digest();
        if found != self.digest {
            return Err(StubError::OtherBundle { wanted: self.digest.clone(), found });
        }
        Ok(bundle)
    }

    fn validate(&self) -> Result<(), StubError> {
        let refuse = |field, problem| Err(StubError::Field { field, problem });
        for (field, text) in [("cluster", &self.cluster), ("group", &self.group)] {
            if text.is_empty() || text.chars().any(char::is_control) {
                return refuse(field, "has a control character or is empty");
            }
        }
        if self.urls.is_empty() || self.urls.len() > MAX_URLS {
            return refuse("urls", "must have one to sixteen addresses");
        }
        for url in &self.urls {
            let valid = match (url.strip_prefix(BUCKET), &self.s3) {
                (None, _) => validate_url(url),
                (Some(_), None) => Err("has an address in a bucket, and nothing says where that is"),
                (Some(object), Some(_)) => validate_object(object),
            };
            if let Err(problem) = valid {
                return refuse("urls", problem);
            }
        }
        if let Some(endpoint) = self.s3.as_ref().and_then(|s3| s3.endpoint.as_deref())
            && let Err(problem) = validate_url(endpoint)
        {
            return refuse("s3.endpoint", problem);
        }
        match &self.certificate_authorities {
            Some(pem) if !pem.contains("-----BEGIN CERTIFICATE-----") || !pem.is_ascii() => {
                refuse("certificateAuthorities", "is not a certificate in PEM")
            }
            _ => Ok(()),
        }
    }
}

impl Payload {
    /// Reads the file at [`crate::BUNDLE_PATH`]: a bundle, or a stub in its place.
    pub fn parse(bytes: &[u8]) -> Result<Self, PayloadError> {
        match Bundle::parse(bytes) {
            Ok(bundle) => Ok(Self::Bundle(Box::new(bundle))),
            Err(_) if claims_to_be_a_stub(bytes) => Ok(Self::Stub(Stub::parse(bytes)?)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Why the file at [`crate::BUNDLE_PATH`] cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Stub(#[from] StubError),
}

fn claims_to_be_a_stub(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Header>(bytes).is_ok_and(|header| header.kind == KIND)
}

/// An address that a plain GET can read, now and when the machine comes back in a year. So no signature in a query, which
/// expires, and no password, which would end up in logs.
pub fn validate_url(url: &str) -> Result<(), &'static str> {
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return Err("has an address that starts with neither 'https://' nor 'http://'");
    };
    validate_text(url)?;
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.is_empty() || authority.contains('@') {
        return Err("has an address without a host, or with a user name in it");
    }
    Ok(())
}

/// `BUCKET/KEY`: what opens it stands elsewhere.
fn validate_object(object: &str) -> Result<(), &'static str> {
    validate_text(object)?;
    match object.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() && !bucket.contains('@') => Ok(()),
        _ => Err("has an address in a bucket that is not s3://BUCKET/KEY"),
    }
}

fn validate_text(address: &str) -> Result<(), &'static str> {
    if address.len() > MAX_URL_BYTES {
        return Err("has an address of more than 2048 bytes");
    }
    if !address.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)) {
        return Err("has an address with white space or another character that must be escaped");
    }
    if address.contains(['?', '#']) {
        return Err("has an address with a query or a fragment, which a lasting address does not need");
    }
    Ok(())
}

fn syntax(error: serde_json::Error) -> StubError {
    StubError::Syntax { line: error.line(), column: error.column() }
}
