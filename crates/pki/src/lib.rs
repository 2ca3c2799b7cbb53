//! Identities for the parts of a cluster: a certificate authority, the leaf certificates it issues, and kubeconfigs.
//!
//! Inputs: names, usages and a validity whose start the caller passes; this crate reads no clock, no file, no environment.
//! Outputs: PEM and kubeconfig text; whatever holds a private key is a [`Secret`], which has no `Debug` and no `Display`.
//! Failures: [`Error`], one variant per operation. Key randomness comes from the system through rcgen; all keys are
//! ECDSA P-256, which every Kubernetes component accepts and which is made in microseconds.

mod authority;
mod kubeconfig;
mod secret;

pub use authority::{Authority, Leaf, LeafRequest, SubjectName, Usage, Validity};
pub use kubeconfig::{Credential, Kubeconfig};
pub use secret::Secret;

/// What can go wrong; each variant is the operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("making a private key for '{common_name}'")]
    GenerateKey { common_name: String, source: rcgen::Error },
    #[error("signing the certificate of '{common_name}'")]
    Sign { common_name: String, source: rcgen::Error },
    #[error("reading the key of an authority")]
    ReadKey { source: rcgen::Error },
    #[error("reading the certificate of an authority")]
    ReadCertificate { source: rcgen::Error },
    #[error("the name '{name}' cannot be part of a certificate")]
    Name { name: String, source: rcgen::Error },
    #[error("the validity starts or ends outside the years that a certificate can name")]
    Validity,
    #[error("'{common_name}' has no usage: a certificate must be for a client, a server or both")]
    NoUsage { common_name: String },
}
