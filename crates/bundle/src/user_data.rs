//! From user data back to the bundle, or the stub, that it carries.
//!
//! For machines on which nothing else reads the user data. It comes from a metadata service that anybody on the network
//! may pose as, so all of it is hostile until the bundle's own digest fits: every size is limited before memory is taken,
//! nothing is unpacked twice, and nothing is repaired or guessed.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_MIME_PERMISSIVE};
use serde::Deserialize;
use serde_json::Value;

use crate::bundle::BUNDLE_PATH;
use crate::document::MAX_BUNDLE_BYTES;
use crate::gzip::{self, GzipDamage};
use crate::stub::{Payload, PayloadError};
use crate::values::read_yaml;

/// What is to be installed: JSON with `urls`, `sha256`, `path` and the text of the `unit`.
pub const INSTALL_TYPE: &str = "application/vnd.nodestrap.install+json";
/// The bundle or a stub in its place, as gzip.
pub const BUNDLE_TYPE: &str = "application/vnd.nodestrap.bundle+json";

/// Most bytes of user data that are read, before and after unpacking: the largest bundle in base64, and as much again
/// for what else a user delivers.
pub const MAX_USER_DATA_BYTES: usize = 2 * MAX_BUNDLE_BYTES;

const MAX_PARTS: usize = 256;

/// User data of one's own, delivered after nodestrap's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserDataPart {
    pub name: String,
    pub content_type: String,
    pub content: Vec<u8>,
}

/// Why user data gives no bundle. No message shows any of the data, which may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    #[error("the user data is empty: give the machine what `nodestrap render` wrote")]
    Empty,
    #[error("the user data has more than {MAX_USER_DATA_BYTES} bytes, packed or unpacked: render it again")]
    TooLarge,
    #[error("the user data is gzip, but cut short or damaged: deliver it unchanged")]
    Gzip,
    #[error(
        "the user data is {what}, which is none of cloud-config, MIME, Ignition and bundle: deliver it as rendered"
    )]
    Format { what: &'static str },
    #[error("the {format} in the user data cannot be read: {problem}; deliver it as rendered")]
    Syntax { format: &'static str, problem: &'static str },
    #[error("the user data carries no file '{BUNDLE_PATH}': give the machine what `nodestrap render` wrote")]
    NoBundle,
    #[error("the user data carries the file '{BUNDLE_PATH}' more than once: keep one of them")]
    TwoBundles,
    #[error("the bundle in the user data cannot be unpacked: {problem}; deliver it as rendered")]
    Content { problem: &'static str },
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

/// Reads what `nodestrap render` wrote in any format, or a bundle or stub by itself.
pub fn read_user_data(bytes: &[u8]) -> Result<Payload, UserDataError> {
    if bytes.len() > MAX_USER_DATA_BYTES {
        return Err(UserDataError::TooLarge);
    }
    let bytes = &*unpacked(bytes)?;
    let text = text_of(bytes)?;
    let found = if text.starts_with("#cloud-config") {
        from_cloud_config(text)?
    } else if text.trim_start().starts_with('{') {
        match from_json(text)? {
            Json::Payload => return Ok(Payload::parse(bytes)?),
            Json::Ignition(found) => found,
        }
    } else if starts_like_a_message(text) {
        from_message(text)?
    } else {
        return Err(UserDataError::Format { what: "some other text" });
    };
    match found.as_slice() {
        [] => Err(UserDataError::NoBundle),
        [payload] => Ok(Payload::parse(payload)?),
        [_, _, ..] => Err(UserDataError::TwoBundles),
    }
}

/// The parts of a MIME message that are not nodestrap's, and none of a cloud-config, which has no place for them; `None`
/// for any other format, and for what cannot be read.
pub fn read_additional_parts(bytes: &[u8]) -> Option<Vec<UserDataPart>> {
    let bytes = unpacked(bytes).ok()?;
    let text = text_of(&bytes).ok()?;
    let mut found = Vec::new();
    if text.starts_with("#cloud-config") {
        return Some(found);
    }
    if !starts_like_a_message(text) {
        return None;
    }
    for part in message_parts(text).ok()? {
        let part = Part::of(&part);
        let handler = part.content_type == "text/part-handler";
        if handler || part.content_type == BUNDLE_TYPE || part.content_type == INSTALL_TYPE {
            continue;
        }
        let named = header(part.headers, "content-disposition").unwrap_or_default();
        let name = named.split_once("filename=").map_or("", |(_, name)| name.trim_matches('"'));
        let name = if name.is_empty() { format!("[{}]", found.len()) } else { name.to_owned() };
        found.push(UserDataPart { name, content: part.content().ok()?, content_type: part.content_type });
    }
    Some(found)
}

fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, UserDataError> {
    if !gzip::is_gzip(bytes) {
        return Ok(bytes.into());
    }
    gzip::decompress(bytes, MAX_USER_DATA_BYTES).map(Cow::Owned).map_err(|damage| match damage {
        GzipDamage::Damaged => UserDataError::Gzip,
        GzipDamage::TooLarge => UserDataError::TooLarge,
    })
}

fn text_of(bytes: &[u8]) -> Result<&str, UserDataError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(UserDataError::Empty);
    }
    if gzip::is_gzip(bytes) {
        return Err(UserDataError::Format { what: "gzip within gzip" });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| UserDataError::Format { what: "not text in UTF-8" })?;
    if text.starts_with('\u{feff}') {
        return Err(UserDataError::Format { what: "text behind a byte order mark" });
    }
    Ok(text)
}

/// Contents of the bundle's file, unpacked; more than one is the caller's error.
type Found = Vec<Vec<u8>>;

#[derive(Deserialize)]
struct CloudConfig {
    #[serde(default)]
    write_files: Vec<WriteFile>,
}

#[derive(Deserialize)]
struct WriteFile {
    #[serde(default)]
    path: String,
    #[serde(default)]
    encoding: Option<String>,
    #[serde(default)]
    content: Option<String>,
}

fn from_cloud_config(text: &str) -> Result<Found, UserDataError> {
    let damaged = |problem| UserDataError::Syntax { format: "cloud-config", problem };
    // Without aliases, which user data has no use for, and which are how a small text becomes a large one.
    let config: CloudConfig =
        read_yaml(text).ok_or_else(|| damaged("it is not the YAML of a cloud-config, or more than is read"))?;
    let ours = config.write_files.into_iter().filter(|file| file.path == BUNDLE_PATH);
    ours.map(|file| {
        let content = file.content.unwrap_or_default();
        match file.encoding.as_deref() {
            Some("gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64") => unpack(&base64(&content)?),
            Some("b64" | "base64") => Ok(base64(&content)?),
            None | Some("text/plain") => Ok(content.into_bytes()),
            Some(_) => Err(UserDataError::Content { problem: "its encoding is not known" }),
        }
    })
    .collect()
}

enum Json {
    /// A bundle or a stub by itself.
    Payload,
    Ignition(Found),
}

fn from_json(text: &str) -> Result<Json, UserDataError> {
    // serde_json stops at a depth of 128 by itself.
    let document: Value = serde_json::from_str(text)
        .map_err(|_| UserDataError::Syntax { format: "JSON", problem: "it is cut short or damaged" })?;
    let Some(version) = document.pointer("/ignition/version").and_then(Value::as_str) else {
        return Ok(Json::Payload);
    };
    if !version.starts_with("2.") && !version.starts_with("3.") {
        return Err(UserDataError::Syntax { format: "Ignition config", problem: "its version is neither 2.x nor 3.x" });
    }
    let files = document.pointer("/storage/files").and_then(Value::as_array);
    let ours = files.into_iter().flatten().filter(|file| file.get("path").and_then(Value::as_str) == Some(BUNDLE_PATH));
    ours.map(from_ignition_file).collect::<Result<Found, _>>().map(Json::Ignition)
}

fn from_ignition_file(file: &Value) -> Result<Vec<u8>, UserDataError> {
    let field = |name: &str| file.pointer(&format!("/contents/{name}")).and_then(Value::as_str);
    let encoded = field("source").and_then(|source| source.strip_prefix("data:"));
    let (media_type, encoded) = encoded
        .and_then(|data| data.split_once(','))
        .ok_or(UserDataError::Content { problem: "its source is not a data URL" })?;
    if !media_type.ends_with(";base64") {
        return Err(UserDataError::Content { problem: "its data URL is not in base64" });
    }
    let content = base64(encoded)?;
    match field("compression") {
        None | Some("") => Ok(content),
        Some("gzip") => unpack(&content),
        Some(_) => Err(UserDataError::Content { problem: "its compression is not known" }),
    }
}

fn starts_like_a_message(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default().to_ascii_lowercase();
    first.starts_with("mime-version:") || first.starts_with("content-type:")
}

fn from_message(text: &str) -> Result<Found, UserDataError> {
    let mut found = Found::new();
    for part in message_parts(text)? {
        found.extend(from_part(&Part::of(&part))?);
    }
    Ok(found)
}

fn message_parts(text: &str) -> Result<Vec<String>, UserDataError> {
    let damaged = |problem| UserDataError::Syntax { format: "MIME message", problem };
    // Lines may have got carriage returns on the way; what matters to us survives their loss.
    let text = text.replace("\r\n", "\n");
    let (headers, body) = text.split_once("\n\n").ok_or(damaged("it has no parts"))?;
    let content_type = header(headers, "content-type").unwrap_or_default();
    let boundary = boundary_of(&content_type).ok_or(damaged("it is not multipart with a boundary"))?;
    let (delimiter, end) = (format!("--{boundary}"), format!("--{boundary}--"));
    let (mut parts, mut current, mut ended): (Vec<Vec<&str>>, Option<Vec<&str>>, bool) = (Vec::new(), None, false);
    for line in body.split('\n') {
        let bare = line.trim_end();
        if bare == delimiter || bare == end {
            parts.extend(current.take());
            if bare == end {
                ended = true;
                break;
            }
            if parts.len() >= MAX_PARTS {
                return Err(damaged("it has too many parts"));
            }
            current = Some(Vec::new());
        } else if let Some(lines) = &mut current {
            lines.push(line);
        }
    }
    if !ended {
        return Err(damaged("it ends before its last boundary"));
    }
    Ok(parts.into_iter().map(|lines| lines.join("\n")).collect())
}

struct Part<'a> {
    headers: &'a str,
    body: &'a str,
    /// Lower case, without parameters.
    content_type: String,
}

impl<'a> Part<'a> {
    fn of(text: &'a str) -> Self {
        let (headers, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let content_type = header(headers, "content-type").unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        Self { headers, body, content_type }
    }

    fn content(&self) -> Result<Vec<u8>, UserDataError> {
        let encoding = header(self.headers, "content-transfer-encoding").unwrap_or_default().to_ascii_lowercase();
        match encoding.trim() {
            "base64" => base64(self.body),
            "" | "7bit" | "8bit" => Ok(self.body.as_bytes().to_vec()),
            _ => Err(UserDataError::Content { problem: "its transfer encoding is not known" }),
        }
    }
}

/// What one part says about the bundle: a bundle of ours, or a cloud-config that writes its file.
fn from_part(part: &Part<'_>) -> Result<Found, UserDataError> {
    let content_type = part.content_type.as_str();
    if content_type != BUNDLE_TYPE && content_type != "text/cloud-config" {
        return Ok(Found::new());
    }
    let content = part.content()?;
    if content_type == BUNDLE_TYPE {
        return Ok(vec![if gzip::is_gzip(&content) { unpack(&content)? } else { content }]);
    }
    match std::str::from_utf8(&content) {
        Ok(text) => from_cloud_config(text),
        Err(_) => Err(UserDataError::Syntax { format: "cloud-config", problem: "it is not text in UTF-8" }),
    }
}

/// The value of a header, with its continued lines joined.
fn header(headers: &str, name: &str) -> Option<String> {
    let mut lines = headers.split('\n');
    let first = lines.find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })?;
    let continued = lines.take_while(|line| line.starts_with([' ', '\t']));
    Some(continued.fold(first, |value, line| value + " " + line.trim()))
}

fn boundary_of(content_type: &str) -> Option<&str> {
    let (media_type, parameters) = content_type.split_once(';')?;
    if !media_type.trim().to_ascii_lowercase().starts_with("multipart/") {
        return None;
    }
    let value = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim())
    })?;
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    (!value.is_empty() && value.len() <= 70).then_some(value)
}

fn base64(text: &str) -> Result<Vec<u8>, UserDataError> {
    let compact = BASE64.decode(text.as_bytes());
    let decoded = compact.or_else(|_| BASE64_MIME_PERMISSIVE.decode(text.trim().as_bytes()));
    decoded.map_err(|_| UserDataError::Content { problem: "it is not base64" })
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, UserDataError> {
    gzip::decompress(packed, MAX_BUNDLE_BYTES).map_err(|damage| UserDataError::Content {
        problem: match damage {
            GzipDamage::Damaged => "its gzip is cut short or damaged",
            GzipDamage::TooLarge => "it is larger than a bundle may be",
        },
    })
}
