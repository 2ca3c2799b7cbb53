//! Who is told how each run of nodestrap on a node ended.

use std::collections::BTreeMap;

use super::{Check, or_default, secrets};
use crate::complete::{CompleteReport, ReportSpec};

pub(super) fn complete_report(spec: &ReportSpec, check: &Check<'_>) -> CompleteReport {
    if spec.webhook.is_none() {
        let authority = spec.certificate_authority.as_ref().map(|setting| &setting.origin);
        let headers = spec.headers.as_ref().filter(|headers| !headers.value.is_empty()).map(|setting| &setting.origin);
        if let Some(origin) = authority.or(headers) {
            check.report(Some(origin), "nobody is told: report.webhook is missing", "write webhook: https://… too");
        }
    }
    let has_headers = spec.headers.as_ref().is_some_and(|headers| !headers.value.is_empty());
    if let Some(webhook) = &spec.webhook {
        secrets::check_webhook(webhook, has_headers, check);
    }
    if let Some(headers) = &spec.headers {
        for (name, value) in &headers.value {
            // A file ends with a line break, which is no part of the value.
            let line = value.0.expose().trim_end_matches(['\n', '\r']);
            if line.is_empty() || line.chars().any(char::is_control) || !line.is_ascii() {
                check.report(
                    Some(&headers.origin),
                    format!("the value of the header \"{name}\" is not one line of plain text"),
                    "a header cannot carry anything else",
                );
            }
        }
    }
    CompleteReport {
        webhook: spec.webhook.clone(),
        certificate_authority: spec.certificate_authority.clone(),
        headers: or_default(&spec.headers, BTreeMap::new, "the webhook asks for nothing"),
    }
}
