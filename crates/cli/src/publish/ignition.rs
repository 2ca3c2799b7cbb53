//! A document for Ignition in a bucket, and the small one that leads machines to it.
//!
//! ```text
//! user data: replace yourself by https://BUCKET…/sha512-HEX.ign?signature, which has this SHA-512
//! ```
//!
//! Ignition needs no key of its own for this, and refuses a document of another digest. The signature in the address is one by the
//! key of whoever publishes, and says until when it holds.

use std::path::Path;

use anyhow::Context as _;
use fetch::Digest;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::args::PublishArguments;
use super::target::{Known, Target};
use super::{read_input, timestamp};
use crate::outcome::{Code, OrFail, Outcome};
use crate::pki::files::now;
use crate::show::Screen;

/// It nearly always holds a secret.
const DOCUMENT_MODE: u32 = 0o600;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IgnitionView {
    place: String,
    digest: String,
    expires: String,
    /// Whether it was sent; otherwise it was there.
    sent: bool,
    /// The user data of machines; a secret.
    document: Value,
}

pub(super) fn publish_ignition(path: &Path, arguments: &PublishArguments, screen: &Screen) -> Outcome {
    let shown = || format!("{:?}", path.display().to_string());
    let document = read_input(path)?;
    let version = version_of(&document)
        .with_context(|| {
            format!("{} is no document for Ignition: write one with `nodestrap render --format ignition`", shown())
        })
        .or_fail(Code::WrongInput)?;
    let target = Target::open(&arguments.store)?;
    let digest = Digest::Sha512(Sha512::digest(&document).into());
    let name = format!("sha512-{}.ign", digest.hex());
    // What expires is counted from before it was sent: rather too early than too late.
    let until = timestamp(now() + arguments.expires);
    let address = target.presign(&name, arguments.expires).or_fail(Code::WrongInput)?;
    let is_there = target.has(&name, &Known::of(&document)).or_fail(Code::MayRetry)?;
    if !is_there {
        target.put(&name, &document, DOCUMENT_MODE).or_fail(Code::MayRetry)?;
    }
    screen.remark(&format!("machines can fetch it until {until}, if the key of the bucket lasts so long"));
    let view = IgnitionView {
        place: target.place_of(&name),
        digest: digest.to_string(),
        expires: until.to_string(),
        sent: !is_there,
        document: leading_to(&version, &address, &digest),
    };
    screen.result(&view, || format!("{}\n", view.document))
}

/// Of the specs that we write; a document that replaces another one may be of any, and is of its own.
fn version_of(document: &[u8]) -> anyhow::Result<String> {
    let document: Value = serde_json::from_slice(document)?;
    let version =
        document.pointer("/ignition/version").and_then(Value::as_str).context("it has no \"ignition.version\"")?;
    match version.starts_with("2.") || version.starts_with("3.") {
        true => Ok(version.to_owned()),
        false => anyhow::bail!("nodestrap does not know the version {version:?} of Ignition's spec"),
    }
}

/// All specs since 2.0 spell it so, and know SHA-512.
fn leading_to(version: &str, address: &str, digest: &Digest) -> Value {
    let replace = json!({ "source": address, "verification": { "hash": format!("sha512-{}", digest.hex()) } });
    json!({ "ignition": { "config": { "replace": replace }, "version": version } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_document_names_the_address_and_the_digest_in_the_words_of_ignition() {
        let digest = Digest::Sha512([0xab; 64]);
        let document = leading_to("2.3.0", "https://b.example/sha512-ab.ign?X-Amz-Signature=1", &digest);
        assert_eq!(document.pointer("/ignition/version"), Some(&"2.3.0".into()));
        let source = "https://b.example/sha512-ab.ign?X-Amz-Signature=1";
        assert_eq!(document.pointer("/ignition/config/replace/source"), Some(&source.into()));
        let hash = document.pointer("/ignition/config/replace/verification/hash").and_then(Value::as_str).unwrap();
        assert_eq!(hash, format!("sha512-{}", "ab".repeat(64)));
        // A provider takes 16 KiB and more.
        assert!(document.to_string().len() < 1024);
    }

    #[test]
    fn what_is_no_document_for_ignition_is_told() {
        assert_eq!(version_of(br#"{"ignition": {"version": "3.4.0"}}"#).unwrap(), "3.4.0");
        for wrong in ["", "#cloud-config", "{}", r#"{"ignition": {}}"#, r#"{"ignition": {"version": "1"}}"#] {
            assert!(version_of(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
