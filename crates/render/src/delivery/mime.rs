//! User data for cloud-init as a MIME message: a part handler that installs, what it installs, and parts of one's own.
//!
//! The bundle goes as a part of its own type and not as cloud-config, because cloud-init merges cloud-configs, and a list
//! of files in one of them takes the place of that in another.
//!
//! cloud-init decodes the message as UTF-8 and gives 8-bit text on as something else, so every byte here is ASCII. Lines
//! end with a bare newline: its parser takes both, and a carriage return would end up in scripts.

use bundle::{BUNDLE_TYPE, Digest, INSTALL_TYPE, UserDataPart, json, sha256_hex};
use data_encoding::BASE64;
use serde_json::json;

use crate::delivery::{Assembly, Delivery, Installation, bootstrap_unit, gzip};
use crate::error::RenderError;

/// The Python that cloud-init runs for both.
pub const PART_HANDLER: &str = include_str!("part_handler.py");

const BASE64_COLUMNS: usize = 76;
/// RFC 5322 asks for no more than this in a line.
const MAX_LINE: usize = 998;

pub(crate) fn assemble(delivery: &Delivery<'_>, digest: &Digest, payload: &[u8]) -> Result<Assembly, RenderError> {
    let mut parts = vec![encode("nodestrap.py", "text/part-handler", PART_HANDLER.as_bytes())];
    if let Installation::Download { urls, sha256, proxy, .. } = delivery.installation {
        let mut order = json!({
            "path": delivery.nodestrap_path,
            "sha256": sha256,
            "unit": bootstrap_unit(delivery.nodestrap_path)?,
            "urls": urls,
        });
        if !proxy.is_none() {
            order["proxy"] = json!({ "direct": proxy.direct, "http": proxy.http, "https": proxy.https });
        }
        parts.push(encode("nodestrap.json", INSTALL_TYPE, json::pretty(&order).as_bytes()));
    }
    parts.push(encode("bundle.json", BUNDLE_TYPE, &gzip::compress(payload)));
    for part in delivery.additional {
        validate(part)?;
        parts.push(encode(&part.name, &part.content_type, &part.content));
    }
    let boundary = boundary(&parts);
    let mut text = format!(
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\
         X-Nodestrap-Bundle: {digest}\n\n"
    );
    for (_, part) in &parts {
        text.push_str(&format!("--{boundary}\n{part}\n"));
    }
    text.push_str(&format!("--{boundary}--\n"));
    let parts = parts.into_iter().map(|(name, part)| (name, part.len())).collect();
    Ok(Assembly { bytes: text.into_bytes(), media_type: "multipart/mixed", parts })
}

/// The name of a part and its text: header, empty line, body.
fn encode(name: &str, content_type: &str, content: &[u8]) -> (String, String) {
    let (encoding, body) = match plain(content) {
        Some(text) => ("7bit", text.to_owned()),
        None => ("base64", wrapped_base64(content)),
    };
    let text = format!(
        "Content-Type: {content_type}\nContent-Transfer-Encoding: {encoding}\n\
         Content-Disposition: attachment; filename=\"{name}\"\n\n{body}"
    );
    (name.to_owned(), text)
}

/// The text, if it arrives unchanged without being encoded.
fn plain(content: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(content).ok().filter(|text| text.is_ascii())?;
    let printable = text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~'));
    let short = text.lines().all(|line| line.len() <= MAX_LINE);
    (printable && short && !text.is_empty()).then_some(text)
}

fn wrapped_base64(content: &[u8]) -> String {
    let encoded = BASE64.encode(content);
    let mut text = String::with_capacity(encoded.len() + encoded.len() / BASE64_COLUMNS + 1);
    for (index, character) in encoded.chars().enumerate() {
        if index > 0 && index % BASE64_COLUMNS == 0 {
            text.push('\n');
        }
        text.push(character);
    }
    text.push('\n');
    text
}

/// From the content, so that it is the same every time; and in none of the parts, which is all that MIME asks of it.
fn boundary(parts: &[(String, String)]) -> String {
    let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
    let mut boundary = format!("nodestrap-{}", &sha256_hex(texts.concat().as_bytes())[..32]);
    while texts.iter().any(|text| text.contains(&boundary)) {
        boundary = format!("nodestrap-{}", &sha256_hex(boundary.as_bytes())[..32]);
    }
    boundary
}

/// Names and types stand in headers: nothing may end or add a header, and nothing may pose as a part of ours.
fn validate(part: &UserDataPart) -> Result<(), RenderError> {
    let refuse = |problem| Err(RenderError::AdditionalPart { name: part.name.clone(), problem });
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if part.name.is_empty() || part.name.len() > 128 || !part.name.bytes().all(name) {
        return refuse("needs a name of letters, digits, '.', '_' and '-'");
    }
    let token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    match part.content_type.split_once('/') {
        Some((main, sub)) if token(main) && token(sub) && part.content_type.len() <= 128 => {}
        _ => return refuse("needs a content type such as 'text/x-shellscript', without parameters"),
    }
    let content_type = part.content_type.to_ascii_lowercase();
    if content_type.starts_with("multipart/") || content_type.starts_with("message/") {
        return refuse("cannot be a message within the message: give its parts one by one");
    }
    if content_type.starts_with("application/vnd.nodestrap.") {
        return refuse("has a content type that is nodestrap's own");
    }
    if part.content.is_empty() {
        return refuse("is empty");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bundle::{BOOTSTRAP_UNIT, BUNDLE_PATH};

    #[test]
    fn the_handler_knows_the_same_names() {
        for line in [
            format!("INSTALL = \"{INSTALL_TYPE}\""),
            format!("BUNDLE = \"{BUNDLE_TYPE}\""),
            format!("BUNDLE_PATH = \"{BUNDLE_PATH}\""),
            format!("UNIT = \"{BOOTSTRAP_UNIT}\""),
        ] {
            assert!(PART_HANDLER.lines().any(|found| found == line), "{line}");
        }
        assert!(PART_HANDLER.is_ascii(), "it goes unencoded");
    }

    #[test]
    fn the_boundary_depends_on_the_parts_alone() {
        let of = |text: &str| boundary(&[("a".to_owned(), text.to_owned())]);
        assert_eq!(of("x"), of("x"));
        assert_ne!(of("x"), of("y"));
    }

    #[test]
    fn only_text_that_arrives_unchanged_goes_unencoded() {
        assert_eq!(plain(b"#!/bin/sh\n\ttrue\n"), Some("#!/bin/sh\n\ttrue\n"));
        for content in [&b"a\r\n"[..], "\u{e9}".as_bytes(), &[0xff], b"\0", &[b'x'; 999], b""] {
            assert_eq!(plain(content), None, "{content:?}");
        }
        assert_eq!(wrapped_base64(&[0; 60]).lines().map(str::len).collect::<Vec<_>>(), [76, 4]);
    }
}
