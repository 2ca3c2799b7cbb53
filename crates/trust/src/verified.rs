//! A manifest that may be used: signed by a key that we trust, not older than what was seen, not out of date.

use crate::manifest::{MAX_MANIFEST_BYTES, Manifest, ManifestError};
use crate::openpgp::{CLOCK_TOLERANCE_SECONDS, Keyring, SignatureError, Signer, verify_detached};
use crate::timestamp::Timestamp;

/// What is asked of a manifest beside its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// None where no clock is to be trusted: then nothing is refused for its dates.
    pub now: Option<Timestamp>,
    /// The highest serial that was ever seen, or that a bundle asks for.
    pub minimum_serial: u64,
    pub unsigned: Unsigned,
}

/// What to do with a manifest without a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsigned {
    Allowed,
    Refused,
}

/// A manifest that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub manifest: Manifest,
    pub provenance: Provenance,
}

impl Verified {
    /// To be remembered, durably, before anything of the manifest is used.
    pub fn serial(&self) -> u64 {
        self.manifest.serial()
    }
}

/// On whose word a manifest is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provenance {
    Signed(Signer),
    /// On nobody's: the spec allows it, and status says so for as long as anything of it is there.
    Unsigned,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    #[error(
        "the manifest has no signature: sign it when it is published, \
         or say in the spec that unsigned manifests are allowed"
    )]
    Unsigned,
    #[error("there is no keyring by which the manifest could be verified: name one in the spec")]
    NoKeyring,
    #[error("the signature of the manifest was not accepted")]
    Signature(#[from] SignatureError),
    #[error("the manifest cannot be used")]
    Manifest(#[from] ManifestError),
    #[error(
        "the manifest has serial {serial}, but serial {minimum} was seen or asked for already (rollback): \
         publish a newer manifest, and look who serves the old one"
    )]
    Rollback { serial: u64, minimum: u64 },
    #[error(
        "the manifest expired at {expires}, and it is {now}: publish a new one, and look whether this is the newest"
    )]
    Expired { expires: Timestamp, now: Timestamp },
    #[error(
        "the manifest was issued at {issued}, which is in the future of {now}: look at the clocks of both machines"
    )]
    IssuedInTheFuture { issued: Timestamp, now: Timestamp },
}

/// A signature that is there must be good, also where none is needed; only without any keyring is it not looked at.
pub fn verify_manifest(
    bytes: &[u8],
    signature: Option<&[u8]>,
    keyrings: &[Keyring],
    policy: Policy,
) -> Result<Verified, TrustError> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(ManifestError::TooLarge { bytes: bytes.len() }.into());
    }
    let provenance = match (signature, policy.unsigned) {
        (Some(signature), _) if !keyrings.is_empty() => {
            Provenance::Signed(verify_detached(bytes, signature, keyrings, policy.now)?)
        }
        (_, Unsigned::Allowed) => Provenance::Unsigned,
        (Some(_), Unsigned::Refused) => return Err(TrustError::NoKeyring),
        (None, Unsigned::Refused) => return Err(TrustError::Unsigned),
    };
    let manifest = Manifest::parse(bytes)?;
    if manifest.serial() < policy.minimum_serial {
        return Err(TrustError::Rollback { serial: manifest.serial(), minimum: policy.minimum_serial });
    }
    match policy.now {
        Some(now) if now >= manifest.expires() => Err(TrustError::Expired { expires: manifest.expires(), now }),
        Some(now) if manifest.issued() > now.plus(CLOCK_TOLERANCE_SECONDS) => {
            Err(TrustError::IssuedInTheFuture { issued: manifest.issued(), now })
        }
        _ => Ok(Verified { manifest, provenance }),
    }
}
