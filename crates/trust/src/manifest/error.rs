//! A manifest that must not be used, whoever signed it.

use super::{API_VERSION, KIND, MAX_MANIFEST_BYTES};
use crate::timestamp::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error(
        "the manifest has {bytes} bytes, more than the {MAX_MANIFEST_BYTES} allowed: \
         publish one with fewer artefacts, or look whether the address is that of a manifest"
    )]
    TooLarge { bytes: usize },
    #[error(
        "the manifest cannot be read, line {line} column {column}: {reason}; \
         publish it again with this version of nodestrap"
    )]
    Syntax { line: usize, column: usize, reason: String },
    #[error("the document has kind '{found}', not '{KIND}': give the manifest that `nodestrap publish` wrote")]
    Kind { found: String },
    #[error(
        "the manifest has apiVersion '{found}' where this nodestrap, {}, reads '{API_VERSION}': \
         use the version of nodestrap that published it, or publish it again with this one", env!("CARGO_PKG_VERSION")
    )]
    ApiVersion { found: String },
    #[error("the manifest expires at {expires}, not after it was issued at {issued}: publish it with a later date")]
    ExpiresBeforeIssued { issued: Timestamp, expires: Timestamp },
    #[error("the artefact {artefact} {problem}: correct it and publish the manifest again")]
    Artefact { artefact: String, problem: &'static str },
    #[error("the artefact {artefact} is out of order: publish the manifest with `nodestrap publish`, which sorts it")]
    Order { artefact: String },
    #[error(
        "the artefact {artefact} is for nodes that another of the same name and version is for, too: \
         remove one, or say which operating systems and roles each is for"
    )]
    Overlap { artefact: String },
}
