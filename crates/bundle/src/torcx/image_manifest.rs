//! What an image brings, and where torcx links it: units to `/run/systemd/system`, programs to `/run/torcx/bin`.

use serde_json::json;

use super::json::{FormatError, open, parse};

/// Within the image. Without it nothing is linked.
pub const IMAGE_MANIFEST_PATH: &str = "/.torcx/manifest.json";
pub const IMAGE_MANIFEST_KIND: &str = "image-manifest-v0";

const WHAT: &str = "manifest of the image";

/// Paths within the image, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageManifest {
    pub programs: Vec<String>,
    pub network: Vec<String>,
    pub units: Vec<String>,
    pub users: Vec<String>,
    pub temporary_files: Vec<String>,
    pub device_rules: Vec<String>,
}

impl ImageManifest {
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let json = parse(WHAT, bytes)?;
        let (_, value) = open(WHAT, &json, &[IMAGE_MANIFEST_KIND], "'image-manifest-v0'")?;
        let texts = |name| value.field(name)?.texts();
        Ok(Self {
            programs: texts("bin")?,
            network: texts("network")?,
            units: texts("units")?,
            users: texts("sysusers")?,
            temporary_files: texts("tmpfiles")?,
            device_rules: texts("udev_rules")?,
        })
    }

    pub fn to_json(&self) -> String {
        let value = json!({
            "bin": self.programs,
            "network": self.network,
            "units": self.units,
            "sysusers": self.users,
            "tmpfiles": self.temporary_files,
            "udev_rules": self.device_rules,
        });
        crate::json::pretty(&json!({ "kind": IMAGE_MANIFEST_KIND, "value": value }))
    }
}
