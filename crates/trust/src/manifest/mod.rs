//! The one manifest of ours: which artefacts there are, for whom, and by which size and digest they are known.

mod check;
mod error;
mod find;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

pub use error::ManifestError;
pub use find::NotFound;
pub use values::{
    Architecture, ArtefactName, Digest, DigestAlgorithm, Form, InvalidValue, OsName, Place, ProgramPath, ReleaseWord,
    Role, Version,
};

use crate::timestamp::Timestamp;

pub const API_VERSION: &str = "nodestrap.io/v1alpha1";
pub const KIND: &str = "ArtefactManifest";
/// About ten thousand artefacts; more is no manifest but an attempt to fill the memory of a node.
pub const MAX_MANIFEST_BYTES: usize = 4 << 20;

/// Artefacts, sorted, and at most one of a name and version for any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    serial: u64,
    issued: Timestamp,
    expires: Timestamp,
    artefacts: Vec<Artefact>,
}

/// Some bytes, what they are, whom they are for, and where they can be had. A manifest is sorted by these fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artefact {
    pub name: ArtefactName,
    pub version: Version,
    pub architecture: Architecture,
    /// Empty: any.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", deserialize_with = "read_os")]
    pub os: BTreeSet<OsName>,
    /// None: any.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_role")]
    pub role: Option<Role>,
    pub form: Form,
    pub size: u64,
    pub digest: Digest,
    /// Of a system extension: which systems take it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_extension")]
    pub extension: Option<ExtensionRelease>,
    /// The executables within the archive, or the name of the one that the artefact is.
    pub programs: Vec<ProgramPath>,
    /// To be tried in this order.
    pub places: Vec<Place>,
}

/// What the `extension-release` of an image says. systemd compares it with the system's own release, and silently passes over an
/// image that does not fit: so it is signed with the rest, and compared before anything is fetched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExtensionRelease {
    /// `flatcar`; `_any` fits all.
    pub id: ReleaseWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysext_level: Option<ReleaseWord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_id: Option<ReleaseWord>,
    /// As systemd calls it: `x86-64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<ReleaseWord>,
}

/// How a manifest is written, field by field in this order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Document {
    api_version: String,
    kind: String,
    serial: u64,
    issued: Timestamp,
    expires: Timestamp,
    artefacts: Vec<Artefact>,
}

/// What every document has, read first: what is no manifest of ours shall not be called one with an unknown field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    kind: Option<String>,
    api_version: Option<String>,
}

impl Manifest {
    /// Sorts the artefacts.
    pub fn new(
        serial: u64,
        issued: Timestamp,
        expires: Timestamp,
        mut artefacts: Vec<Artefact>,
    ) -> Result<Self, ManifestError> {
        artefacts.sort();
        let manifest = Self { serial, issued, expires, artefacts };
        manifest.check()?;
        Ok(manifest)
    }

    /// What it says is not to be believed yet: see [`crate::verify_manifest`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::TooLarge { bytes: bytes.len() });
        }
        let header: Header = serde_json::from_slice(bytes).map_err(|error| syntax(&error))?;
        match (header.kind, header.api_version) {
            (Some(kind), _) if kind != KIND => return Err(ManifestError::Kind { found: short(&kind) }),
            (_, Some(found)) if found != API_VERSION => {
                return Err(ManifestError::ApiVersion { found: short(&found) });
            }
            _ => {}
        }
        let Document { serial, issued, expires, artefacts, .. } =
            serde_json::from_slice(bytes).map_err(|error| syntax(&error))?;
        let manifest = Self { serial, issued, expires, artefacts };
        manifest.check()?;
        Ok(manifest)
    }

    /// The one spelling of this manifest: fields in one order, two spaces of indentation, a newline at the end.
    pub fn to_json(&self) -> String {
        let document = Document {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            serial: self.serial,
            issued: self.issued,
            expires: self.expires,
            artefacts: self.artefacts.clone(),
        };
        // Texts, numbers and lists of them: nothing that could fail to be written.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    /// Counts up with every manifest that is published.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    pub fn issued(&self) -> Timestamp {
        self.issued
    }

    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    pub fn artefacts(&self) -> &[Artefact] {
        &self.artefacts
    }
}

impl Artefact {
    /// Images are looked for by those who want images: one of a name and version may be there in both forms.
    pub fn is_image(&self) -> bool {
        self.form == Form::Sysext
    }
}

/// As messages call it: `kubelet 1.34.2 (amd64, debian, worker)`.
impl fmt::Display for Artefact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} ({}", self.name, self.version, self.architecture)?;
        for os in &self.os {
            write!(formatter, ", {os}")?;
        }
        if let Some(role) = self.role {
            write!(formatter, ", {role}")?;
        }
        formatter.write_str(")")
    }
}

fn syntax(error: &serde_json::Error) -> ManifestError {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    ManifestError::Syntax { line: error.line(), column: error.column(), reason }
}

/// What others wrote is quoted, but not at any length.
fn short(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

fn read_os<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<OsName>, D::Error> {
    let names = Vec::<OsName>::deserialize(deserializer)?;
    if names.is_empty() {
        return Err(D::Error::custom("'os' is empty: leave it out if the artefact is for any operating system"));
    }
    if !names.is_sorted_by(|earlier, later| earlier < later) {
        return Err(D::Error::custom("'os' is not sorted, or names an operating system twice"));
    }
    Ok(names.into_iter().collect())
}

fn read_role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Role>, D::Error> {
    let role = Option::<Role>::deserialize(deserializer)?;
    let nothing = || D::Error::custom("'role' is null: leave it out if the artefact is for any role");
    role.map(Some).ok_or_else(nothing)
}

fn read_extension<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ExtensionRelease>, D::Error> {
    let release = Option::<ExtensionRelease>::deserialize(deserializer)?;
    let nothing = || D::Error::custom("'extension' is null: leave it out if the artefact is no extension");
    release.map(Some).ok_or_else(nothing)
}
