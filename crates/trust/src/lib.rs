//! Whose word a node takes: OpenPGP signatures under a policy of our own, and the manifest of artefacts that they cover.
//! Knows nobody.
//!
//! In: bytes of a manifest, of a signature and of keyrings, and what time it is if that is known. Out: who signed
//! ([`openpgp::Signer`]), a [`Manifest`] and what it says about one artefact ([`Manifest::find`]); a signature of our own
//! ([`openpgp::sign_detached`]). Fails: [`TrustError`] and those it is made of, each with which key or artefact, why, and
//! what to do.
//!
//! Pure: no file, clock, environment or network. Signing asks the system for random numbers, nothing else does.

mod manifest;
pub mod openpgp;
mod timestamp;
mod verified;

pub use manifest::{
    API_VERSION, Architecture, Artefact, ArtefactName, Digest, DigestAlgorithm, ExtensionRelease, Form, InvalidValue,
    KIND, MAX_MANIFEST_BYTES, Manifest, ManifestError, NotFound, OsName, Place, ProgramPath, ReleaseWord, Role,
    Version,
};
pub use timestamp::{InvalidTimestamp, Timestamp};
pub use verified::{Policy, Provenance, TrustError, Unsigned, Verified, verify_manifest};
