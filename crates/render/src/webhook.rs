//! Who is told how each run of nodestrap on a node ended.
//!
//! The bundle carries [`WebhookSettings`] as a secret file; `nodestrap apply` reads it from there, also before the file is
//! on the disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spec::CompleteReport;

use crate::bundle::File;

/// Where the bundle puts the settings of the webhook.
pub const WEBHOOK_SETTINGS_PATH: &str = "/etc/nodestrap/webhook.json";

/// No `Debug`: the values of headers are secrets, and the address may be one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookSettings {
    pub url: String,
    /// PEM; trusted beside what the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

impl WebhookSettings {
    /// Reads the file at [`WEBHOOK_SETTINGS_PATH`].
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// The file, if anybody is to be told.
pub(crate) fn render_webhook(report: &CompleteReport) -> Option<File> {
    let settings = WebhookSettings {
        url: report.webhook.as_ref()?.value.to_string(),
        certificate_authority: report.certificate_authority.as_ref().map(|pem| pem.value.as_str().to_owned()),
        headers: report
            .headers
            .value
            .iter()
            .map(|(name, value)| (name.to_string(), value.0.expose().trim_end_matches(['\n', '\r']).to_owned()))
            .collect(),
    };
    let mut text = serde_json::to_string_pretty(&settings).expect("a document has string keys and plain types only");
    text.push('\n');
    Some(File::secret(WEBHOOK_SETTINGS_PATH, text))
}
