//! Identities for the parts of a cluster: authorities, the leaf certificates they issue, and kubeconfigs.
//!
//! Inputs: names, usages, the texts of files that are there, and a validity whose start the caller passes; this crate
//! reads no clock, no file, no environment. Outputs: PEM and kubeconfig text as values; whatever may hold a private key is
//! a [`Secret`], which has no `Debug` and no `Display`. Failures: [`Error`], one variant per operation, none of which
//! repeats a secret. Randomness for keys and serial numbers comes from the system.
//!
//! | module | decides |
//! |---|---|
//! | `control_plane` | which files a control plane needs, and which of them are missing |
//! | `folder` | whether the files of a control plane fit together and to its API server |
//! | `inspect` | what the files of a folder are, when they end, whether they fit together |
//! | `renew` | which certificates are made anew |

mod authority;
mod certificate;
mod control_plane;
mod folder;
mod inspect;
mod key;
mod kubeconfig;
mod pem;
mod renew;
mod scalars;
mod secret;

pub use authority::{Authority, Leaf, LeafRequest, SubjectName, Usage, Validity};
pub use certificate::Certificate;
pub use control_plane::{
    ADMIN_GROUP, Completed, ControlPlane, ControlPlaneNode, Ended, KUBELET_CLIENT, PkiFile, SUPER_ADMIN_GROUP,
    complete_control_plane, control_plane_files,
};
pub use folder::{Fault, check_folder};
pub use inspect::{Document, Finding, Inspected, IssuerFit, KeyFit, SOON, State, What, inspect};
pub use key::{KeyAlgorithm, PrivateKey};
pub use kubeconfig::{Credential, Kubeconfig};
pub use renew::{KeyChoice, Renewals, Renewed, Selection, renew};
pub use secret::Secret;

/// What can go wrong; each variant is the operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("making a private key")]
    GenerateKey { source: rcgen::Error },
    #[error("making an RSA key of {bits} bits")]
    GenerateRsaKey { bits: usize, source: rsa::Error },
    #[error("the system gives no random numbers")]
    Random,
    #[error("signing the certificate of '{common_name}'")]
    Sign { common_name: String, source: rcgen::Error },
    #[error("this is not PEM text")]
    Pem,
    #[error("there is no private key in it")]
    NoKey,
    #[error("the private key cannot be read: an unencrypted RSA, P-256, P-384 or Ed25519 key is needed")]
    ReadKey,
    #[error("there is no certificate in it")]
    NoCertificate,
    #[error("the certificate cannot be read")]
    ReadCertificate,
    #[error("the authority '{common_name}' cannot be read")]
    ReadAuthority { common_name: String, source: rcgen::Error },
    #[error("the key of the authority '{common_name}' belongs to another certificate")]
    KeyOfAnother { common_name: String },
    #[error("'{common_name}' may not sign certificates: it is not an authority")]
    NotAnAuthority { common_name: String },
    #[error("the authority '{common_name}' has expired; nothing that it signs would be accepted")]
    AuthorityEnded { common_name: String },
    #[error("this is not a kubeconfig that can be read")]
    ReadKubeconfig,
    #[error("the name '{name}' cannot be part of a certificate")]
    Name { name: String, source: rcgen::Error },
    #[error("the validity starts or ends outside the years that a certificate can name")]
    Validity,
    #[error("'{common_name}' has no usage: a certificate must be for a client, a server or both")]
    NoUsage { common_name: String },
    #[error("\"{url}\" is not the URL of an API server: write https://HOST:PORT")]
    ApiServer { url: String },

    #[error("{path}")]
    Within { path: String, source: Box<Error> },
    #[error("{certificate} does not belong to {key}; move away the one that is wrong")]
    KeyMismatch { certificate: String, key: String },
    #[error("{certificate} is here without {key}; bring the key back or move the certificate away")]
    KeyMissing { certificate: String, key: String },
    #[error("{certificate} was not issued by {authority}; move away the one that is wrong")]
    NotIssuedBy { certificate: String, authority: String },
    #[error("{certificate} lacks {missing}; remove it (not its key) to have it issued again")]
    Uncovered { certificate: String, missing: String },
    #[error("{wanted} must be signed with {key}, which is not here")]
    AuthorityKeyMissing { wanted: String, key: String },
    #[error("{path} is here without a certificate and a key inside; move it away")]
    NothingEmbedded { path: String },
    #[error(
        "{path} is for the API server {found}, not for {wanted}; \
         name another folder, or move it away to have it issued again"
    )]
    OtherServer { path: String, found: String, wanted: String },
    #[error(
        "{path} is for the cluster \"{found}\", not for \"{wanted}\"; \
         name another folder, or move it away to have it issued again"
    )]
    OtherCluster { path: String, found: String, wanted: String },
    #[error(
        "{authority} has expired, so nobody would accept {wanted}; make new authorities in another folder \
         (`nodestrap pki create … --out NEW`) and give every machine what is in it"
    )]
    AuthorityExpired { wanted: String, authority: String },
    #[error("cannot be read: {why}")]
    ReadFile { why: String },

    #[error("the authority that issued {certificate} is not here; bring its .crt and .key back")]
    IssuerMissing { certificate: String },
    #[error("a renewed certificate of '{common_name}' would lack something: {what}")]
    NotOurs { common_name: String, what: String },
    #[error("no certificate is called \"{name}\" here")]
    NothingCalled { name: String },
    #[error("{path} is an authority: it is not renewed, because all that it signed would have to be issued again")]
    AuthorityRenewal { path: String },
    #[error("{path} is renewed by the program that made it")]
    NotRenewable { path: String },
    #[error("{path} holds another key from an earlier renewal; move it away, it is not overwritten")]
    OldKeyInTheWay { path: String },
}

impl Error {
    /// Says in which file it went wrong.
    pub(crate) fn within(self, path: impl Into<String>) -> Self {
        match self {
            // They name their files already.
            named @ (Self::Within { .. }
            | Self::KeyMismatch { .. }
            | Self::KeyMissing { .. }
            | Self::NotIssuedBy { .. }
            | Self::Uncovered { .. }
            | Self::AuthorityExpired { .. }
            | Self::AuthorityKeyMissing { .. }) => named,
            other => Self::Within { path: path.into(), source: Box::new(other) },
        }
    }
}
