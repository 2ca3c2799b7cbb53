//! User data for Ignition, specs 3.4.0 and 2.3.0.
//!
//! Ignition itself fetches the binary and refuses it unless its hash fits. What differs in 2.3: modes and units are the
//! same, but every file names its file system, only SHA-512 is known, and a `data` URL must not be compressed: its
//! validator takes that, and the machine then does not boot.

use bundle::{BOOTSTRAP_UNIT, BUNDLE_PATH, Idleness, UserDataPart, json};
use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use crate::delivery::{Assembly, Delivery, Installation, bootstrap_unit, gzip};
use crate::error::RenderError;

/// The content type of Ignition configs.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.coreos.ignition+json";

// Decimal in JSON.
const BUNDLE_MODE: u32 = 0o600;
const BINARY_MODE: u32 = 0o755;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Version {
    V2,
    V3,
}

impl Version {
    fn number(self) -> &'static str {
        match self {
            Self::V2 => "2.3.0",
            Self::V3 => "3.4.0",
        }
    }

    fn major(self) -> &'static str {
        match self {
            Self::V2 => "2.",
            Self::V3 => "3.",
        }
    }
}

/// Indentation is for people, and Ignition 2.3 takes nothing compressed: it would be a fifth of what a provider takes.
fn without_blanks(payload: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<Value>(payload) {
        Ok(document) => json::canonical(&document).into(),
        Err(_) => payload.to_vec(),
    }
}

pub(crate) fn assemble(version: Version, delivery: &Delivery<'_>, payload: &[u8]) -> Result<Assembly, RenderError> {
    let contents = match version {
        Version::V3 => json!({ "compression": "gzip", "source": data_url(&gzip::compress(payload)) }),
        Version::V2 => json!({ "source": data_url(&without_blanks(payload)) }),
    };
    let bundle = file(version, BUNDLE_PATH, BUNDLE_MODE, contents);
    let mut parts = vec![("bundle".to_owned(), json::canonical(&bundle).len())];
    let (mut files, mut unit) = (vec![bundle], json!({ "enabled": true, "name": BOOTSTRAP_UNIT }));
    let mut ignition = Map::from_iter([("version".to_owned(), version.number().into())]);
    if let Installation::Download { urls, sha256, sha512, proxy } = delivery.installation {
        let hash = match (version, sha512) {
            (Version::V3, _) => format!("sha256-{sha256}"),
            (Version::V2, Some(digest)) => format!("sha512-{digest}"),
            (Version::V2, None) => return Err(RenderError::Ignition2NeedsSha512),
        };
        let contents = json!({ "source": urls.first(), "verification": { "hash": hash } });
        files.push(file(version, delivery.nodestrap_path, BINARY_MODE, contents));
        unit["contents"] = bootstrap_unit(delivery.nodestrap_path)?.into();
        parts.push(("unit".to_owned(), json::canonical(&unit).len()));
        if version == Version::V3 && !proxy.is_none() {
            let addresses = [("httpProxy", &proxy.http), ("httpsProxy", &proxy.https)];
            let said =
                addresses.into_iter().filter_map(|(name, url)| Some((name.to_owned(), Value::from(url.clone()?))));
            let mut said = Map::from_iter(said);
            said.insert("noProxy".to_owned(), proxy.direct.clone().into());
            ignition.insert("proxy".to_owned(), said.into());
        }
    }
    if !delivery.additional.is_empty() {
        let key = if version == Version::V3 { "merge" } else { "append" };
        let configs = delivery.additional.iter().map(|part| merged(version, part)).collect::<Result<Vec<_>, _>>()?;
        parts.extend(
            delivery
                .additional
                .iter()
                .zip(&configs)
                .map(|(part, json)| (part.name.clone(), json::canonical(json).len())),
        );
        ignition.insert("config".to_owned(), json!({ key: configs }));
    }
    let document = json!({
        "ignition": ignition,
        "storage": { "files": files },
        "systemd": { "units": std::iter::once(unit).chain(masked_units(delivery)).collect::<Vec<_>>() },
    });
    Ok(Assembly { bytes: (json::canonical(&document) + "\n").into_bytes(), media_type: CONTENT_TYPE, parts })
}

/// From the first boot on: what must never run must not do so until nodestrap comes to it either, and coordinators of reboots
/// like to be first. Others are stopped when files are switched in.
fn masked_units(delivery: &Delivery<'_>) -> impl Iterator<Item = Value> {
    let masked = delivery.bundle.idle_units.iter().filter(|unit| unit.idleness == Idleness::Masked);
    masked.map(|unit| json!({ "mask": true, "name": unit.name }))
}

fn file(version: Version, path: &str, mode: u32, contents: Value) -> Value {
    let mut file = json!({ "contents": contents, "mode": mode, "path": path });
    match version {
        // An image may bring an older binary in the same place; 2.3 overwrites without being asked.
        Version::V3 => file["overwrite"] = true.into(),
        Version::V2 => file["filesystem"] = "root".into(),
    }
    file
}

/// A config of the user's, merged into ours; where both say something, Ignition takes what the merged one says.
fn merged(version: Version, part: &UserDataPart) -> Result<Value, RenderError> {
    let refuse = |problem| RenderError::AdditionalPart { name: part.name.clone(), problem };
    if part.content_type != CONTENT_TYPE {
        return Err(refuse(
            "cannot be carried by Ignition, which runs nothing: \
             give an Ignition config of type 'application/vnd.coreos.ignition+json', or use the format mime",
        ));
    }
    let config: Value = serde_json::from_slice(&part.content).map_err(|_| refuse("is not JSON"))?;
    let stated = config.pointer("/ignition/version").and_then(Value::as_str);
    if !stated.is_some_and(|stated| stated.starts_with(version.major())) {
        return Err(refuse(match version {
            Version::V3 => "must have an 'ignition.version' of 3.x, like the config that it is merged into",
            Version::V2 => "must have an 'ignition.version' of 2.x, like the config that it is appended to",
        }));
    }
    Ok(match version {
        Version::V3 => json!({ "compression": "gzip", "source": data_url(&gzip::compress(&part.content)) }),
        Version::V2 => json!({ "source": data_url(&part.content) }),
    })
}

fn data_url(bytes: &[u8]) -> String {
    format!("data:;base64,{}", BASE64.encode(bytes))
}
