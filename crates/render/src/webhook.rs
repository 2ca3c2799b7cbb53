//! Who is told how each run of nodestrap on a node ended.

use bundle::{Secret, Webhook};
use spec::CompleteReport;

/// `None` if nobody is to be told.
pub(crate) fn render_webhook(report: &CompleteReport) -> Option<Webhook> {
    let header = |value: &spec::SecretText| Secret::new(value.0.expose().trim_end_matches(['\n', '\r']));
    Some(Webhook {
        url: Secret::new(report.webhook.as_ref()?.value.to_string()),
        certificate_authority: report.certificate_authority.as_ref().map(|pem| pem.value.as_str().to_owned()),
        headers: report.headers.value.iter().map(|(name, value)| (name.to_string(), header(value))).collect(),
    })
}
