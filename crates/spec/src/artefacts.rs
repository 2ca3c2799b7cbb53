//! Values of the section `artefacts`: where programs lie, the manifest that vouches for them, and what a bucket asks for.

use serde_json::{Value, json};

use crate::items::SecretText;
use crate::record::{Context, SpecValue, item, record_schema};
use crate::syntax;
use crate::texts::Line;
use crate::tree::{Kind, Node};
use crate::values::{Invalid, Secret};
use crate::view::Look;

const SHAPE_OF_STORES: &str = "write https://HOST/FOLDER, s3://BUCKET/FOLDER or file:///FOLDER";

/// `https://`, `http://`, `s3://BUCKET/…` or `file:///…`.
pub(crate) fn validate_store_url(text: &str) -> Result<(), Invalid> {
    let bad = |why: &str| Err(Invalid::new(format!("\"{text}\" is not a store: {why}")).advise(SHAPE_OF_STORES));
    let plain = |path: &str| {
        path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"'\\<>".contains(&byte))
            && !path.split('/').any(|part| part == "." || part == "..")
    };
    if let Some(rest) = text.strip_prefix("s3://") {
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(|byte| is_letter(byte) || byte == b'.' || byte == b'-')
            && bucket.bytes().next().is_some_and(is_letter)
            && bucket.bytes().next_back().is_some_and(is_letter);
        return match (is_bucket, plain(path)) {
            (false, _) => bad("a bucket has 3 to 63 lower-case letters, digits, dots and dashes"),
            (true, false) => bad("the folder in the bucket has something that belongs into no path"),
            (true, true) => Ok(()),
        };
    }
    if let Some(path) = text.strip_prefix("file://") {
        return match path.starts_with('/') && path.len() > 1 && plain(path) {
            true => Ok(()),
            false => bad("behind file:// comes the absolute path of a folder on the node"),
        };
    }
    if !text.starts_with("https://") && !text.starts_with("http://") {
        return bad("it begins with none of https://, s3:// and file:///");
    }
    syntax::validate_web_url(text)
}

/// What can be the name of a folder, as the version of a tree: `2.4.2`, `1.36.3+example.1`.
pub(crate) fn validate_component_version(text: &str) -> Result<(), Invalid> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b".+_-".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && text.len() <= 64 && text.bytes().all(harmless) {
        true => Ok(()),
        false => Err(Invalid::new(format!("\"{text}\" is not a version of an artefact"))
            .advise("write it as the manifest does, for example 2.4.2: letters, digits and \".+_-\"")),
    }
}

/// The manifest of artefacts, and the signature that lies beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    path: String,
    text: String,
    signature: Result<String, String>,
}

/// At the end of the name of a manifest: the name of its signature.
pub(crate) const SIGNATURE_SUFFIX: &str = ".asc";

impl ManifestFile {
    pub(crate) fn new(path: String, text: String, signature: Result<String, String>) -> Self {
        Self { path, text, signature }
    }

    /// As written: relative to the spec.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Or why there is none.
    pub(crate) fn signature(&self) -> Result<&str, &str> {
        self.signature.as_deref().map_err(String::as_str)
    }
}

impl SpecValue for ManifestFile {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        context.files.manifest(context.drafts, node)
    }

    fn to_json(&self, _: Look) -> Value {
        json!({ "file": self.path })
    }

    fn schema() -> Value {
        record_schema(vec![(
            "file",
            "Path of the manifest, relative to the folder of the spec; its signature is beside it, as FILE.asc.",
            json!({ "type": "string" }),
            true,
        )])
    }
}

/// Counts up with every manifest that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial(pub u64);

impl SpecValue for Serial {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let number = crate::config::decode_int(context.drafts, node, 0, i64::MAX)?;
        u64::try_from(number).ok().map(Self)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.0)
    }

    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 0 })
    }
}

/// By what a node proves to a bucket who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum S3Credentials {
    /// The role that the provider gives to the machine.
    InstanceRole,
    Key {
        access_key: String,
        secret_key: Secret,
        session_token: Option<Secret>,
    },
}

item!(
    "credentials",
    /// A key of somebody who may read the bucket.
    S3Key {
        /// Its public half.
        access_key: Line = "accessKey",
        /// Its secret half, in place or as `{file: …}`.
        secret_key: SecretText = "secretKey",
        /// For a key that ends by itself.
        session_token: Option<SecretText> = "sessionToken" or None,
    }
);

const INSTANCE_ROLE: &str = "instance-role";

impl SpecValue for S3Credentials {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        if !matches!(node.kind, Kind::Map(_)) {
            let text = drafts.text(node)?;
            if text == INSTANCE_ROLE {
                return Some(Self::InstanceRole);
            }
            // It may be a key.
            drafts.hide(node.span);
            let invalid = Invalid::new("these are no credentials")
                .advise("write instance-role, or {accessKey: …, secretKey: {file: …}}");
            drafts.report_invalid(node.span, invalid);
            return None;
        }
        let key = S3Key::decode(context, node)?;
        let secret = |secret: &SecretText| {
            // A file ends with a line break, which is no part of the key.
            let line = secret.0.expose().trim_end_matches(['\n', '\r']);
            let is_line = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic());
            let refusal = || Invalid::new("a key of S3 is one line of plain text, which this is not");
            drafts.checked(node, is_line.then(|| Secret::new(line)).ok_or_else(refusal))
        };
        let session_token = match &key.session_token {
            Some(token) => Some(secret(token)?),
            None => None,
        };
        let (access_key, secret_key) = (key.access_key.to_string(), secret(&key.secret_key)?);
        Some(Self::Key { access_key, secret_key, session_token })
    }

    fn to_json(&self, look: Look) -> Value {
        match self {
            Self::InstanceRole => Value::from(INSTANCE_ROLE),
            Self::Key { access_key, secret_key, session_token } => {
                let secret = |secret: &Secret| SecretText(secret.clone()).to_json(look);
                let mut key = json!({ "accessKey": access_key, "secretKey": secret(secret_key) });
                if let (Some(token), Some(fields)) = (session_token, key.as_object_mut()) {
                    fields.insert("sessionToken".to_owned(), secret(token));
                }
                key
            }
        }
    }

    fn schema() -> Value {
        json!({ "oneOf": [{ "enum": [INSTANCE_ROLE] }, S3Key::schema()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_web_addresses_buckets_and_folders() {
        for good in [
            "https://artefacts.example.com/a/b",
            "http://127.0.0.1:8080",
            "s3://bucket",
            "s3://my.bucket-1/a/b/",
            "file:///srv/artefacts",
        ] {
            assert_eq!(validate_store_url(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "begins with none"),
            ("ftp://example.com", "begins with none"),
            ("/srv/artefacts", "begins with none"),
            ("s3://B", "a bucket has"),
            ("s3://-bucket/a", "a bucket has"),
            ("s3://bucket/../a", "belongs into no path"),
            ("s3://bucket/a?b", "belongs into no path"),
            ("file://srv", "absolute path"),
            ("file:///", "absolute path"),
            ("file:///a/../b", "absolute path"),
            ("https://me:secret@example.com", "user name or password"),
        ] {
            let refused = validate_store_url(bad).expect_err(bad);
            assert!(refused.message.contains(why) && !refused.message.contains("secret@"), "{bad}: {refused}");
        }
    }

    #[test]
    fn versions_can_be_names_of_folders() {
        for good in ["2.4.2", "1.36.3+example.1", "v1.9.6_coreos.0", "2.0.0-rc.1"] {
            assert_eq!(validate_component_version(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "-1", "1/2", "1 2", "1~2", &"1".repeat(65)] {
            assert!(validate_component_version(bad).is_err(), "{bad}");
        }
    }
}
