//! Whether the folder of a control plane's keys is whole and belongs to this cluster. When they end is not asked here: that
//! takes a clock.

use ::pki::{Document, Fault, check_folder};

use super::{Check, PkiCheck};
use crate::complete::ClusterSpec;
use crate::pki::{PkiFolder, name_some};
use crate::values::CertificatePem;

const AUTHORITY: &str = "pki/ca.crt";

pub(super) fn check_pki_folder(spec: &ClusterSpec, check: &Check<'_>) {
    let Some(folder) = &spec.pki.folder else { return };
    let has_authority = check_authority(spec, &folder.value, check);
    if check.pki_check == PkiCheck::Later {
        return;
    }
    let api_server = spec.api_server.value.as_str();
    let mut faults = check_folder(&documents(&folder.value), api_server);
    faults.retain(|fault| has_authority || fault.path != AUTHORITY);
    if faults.is_empty() {
        return;
    }
    let path = folder.value.path();
    let shown: Vec<String> = faults.iter().map(|Fault { path, what }| format!("{path} {what}")).collect();
    check.report(
        Some(&folder.origin),
        format!("in the folder \"{path}\" {}", name_some(&shown, "; ")),
        format!(
            "bring the right files back, or move these away: `nodestrap pki create FILE… --out {}` makes what is missing",
            path.trim_end_matches('/')
        ),
    );
}

/// By the names that `pki create` gives them.
fn documents(folder: &PkiFolder) -> Vec<Document> {
    let document = |(name, content): (&&str, &crate::values::Secret)| Document {
        path: PkiFolder::path_of(name),
        content: Ok(::pki::Secret::new(content.expose())),
    };
    folder.files().iter().map(document).collect()
}

/// A control plane and its nodes believe in one authority; `false` if the folder has none.
fn check_authority(spec: &ClusterSpec, folder: &PkiFolder, check: &Check<'_>) -> bool {
    let written = folder.files().get("ca.crt").map(|text| text.expose().parse::<CertificatePem>());
    let trusted = &spec.join.certificate_authority;
    let path = folder.path();
    match written {
        Some(Ok(written)) if trusted.value.as_str().contains(written.as_str()) => {}
        Some(Err(invalid)) => {
            let message = format!("{AUTHORITY} in \"{path}\": {}", invalid.message);
            let origin = spec.pki.folder.as_ref().map(|folder| &folder.origin);
            check.report(origin, message, invalid.advice.unwrap_or_default());
            return false;
        }
        _ => check.report(
            Some(&trusted.origin),
            format!("this is not the authority of the control plane, which is {AUTHORITY} in \"{path}\""),
            format!("write {{file: {}/{AUTHORITY}}}", path.trim_end_matches('/')),
        ),
    }
    true
}
