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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openpgp::tests::{MADE, keyring_of, make_key, secret_of};
    use crate::openpgp::{Refusal, sign_detached};

    const DAY: u64 = 86_400;

    fn at(days: u64) -> Timestamp {
        Timestamp::from_seconds(MADE + days * DAY)
    }

    /// Issued on day 10, until day 20.
    fn manifest(serial: u64) -> Vec<u8> {
        Manifest::new(serial, at(10), at(20), vec![]).unwrap().to_json().into_bytes()
    }

    fn policy(unsigned: Unsigned) -> Policy {
        Policy { now: Some(at(15)), minimum_serial: 7, unsigned }
    }

    fn signed(serial: u64, policy: Policy) -> Result<Verified, TrustError> {
        let (key, bytes) = (make_key(1), manifest(serial));
        let signature = sign_detached(&bytes, &secret_of(&key), None, at(10)).unwrap();
        verify_manifest(&bytes, Some(signature.as_bytes()), &[keyring_of(&key)], policy)
    }

    #[test]
    fn a_signed_manifest_of_its_time_is_used() {
        let verified = signed(7, policy(Unsigned::Refused)).unwrap();
        assert_eq!(verified.serial(), 7);
        let Provenance::Signed(signer) = verified.provenance else { panic!("unsigned") };
        assert_eq!((signer.created, signer.user_id.as_deref()), (at(10), Some("store <store@example.org>")));
    }

    #[test]
    fn an_older_one_is_a_rollback_whatever_the_clock_says() {
        for now in [Some(at(15)), None] {
            let error = signed(6, Policy { now, ..policy(Unsigned::Refused) }).unwrap_err();
            assert_eq!(error, TrustError::Rollback { serial: 6, minimum: 7 });
            assert!(error.to_string().contains("serial 6") && error.to_string().contains("serial 7"), "{error}");
        }
    }

    #[test]
    fn dates_are_judged_only_by_a_clock() {
        let verified_at = |now| signed(7, Policy { now, ..policy(Unsigned::Refused) });
        let expired = TrustError::Expired { expires: at(20), now: at(20) };
        assert_eq!(verified_at(Some(at(20))), Err(expired));
        verified_at(Some(Timestamp::from_seconds(at(20).seconds() - 1))).unwrap();
        verified_at(None).unwrap();
        let soon = Timestamp::from_seconds(at(10).seconds() - CLOCK_TOLERANCE_SECONDS);
        verified_at(Some(soon)).unwrap();
        let (bytes, early) = (manifest(7), Policy { now: Some(at(9)), ..policy(Unsigned::Allowed) });
        let error = verify_manifest(&bytes, None, &[], early).unwrap_err();
        assert_eq!(error, TrustError::IssuedInTheFuture { issued: at(10), now: at(9) });
    }

    #[test]
    fn without_a_signature_it_takes_a_word_of_the_spec() {
        let (bytes, keys) = (manifest(7), [keyring_of(&make_key(1))]);
        let unsigned = |policy| verify_manifest(&bytes, None, &keys, policy);
        assert_eq!(unsigned(policy(Unsigned::Refused)), Err(TrustError::Unsigned));
        assert_eq!(unsigned(policy(Unsigned::Allowed)).unwrap().provenance, Provenance::Unsigned);
        let nobody = verify_manifest(&bytes, Some(b"x"), &[], policy(Unsigned::Refused));
        assert_eq!(nobody, Err(TrustError::NoKeyring));
        let unread = verify_manifest(&bytes, Some(b"x"), &[], policy(Unsigned::Allowed)).unwrap();
        assert_eq!(unread.provenance, Provenance::Unsigned);
    }

    #[test]
    fn a_bad_signature_is_never_taken_for_none() {
        let (key, other) = (make_key(1), make_key(2));
        let bytes = manifest(7);
        let by_other = sign_detached(&bytes, &secret_of(&other), None, at(10)).unwrap();
        let error = verify_manifest(&bytes, Some(by_other.as_bytes()), &[keyring_of(&key)], policy(Unsigned::Allowed));
        let Err(TrustError::Signature(SignatureError::Refused { refusals })) = error else { panic!("{error:?}") };
        assert!(matches!(refusals[..], [Refusal::UnknownKey { .. }]), "{refusals:?}");
        let empty = verify_manifest(&bytes, Some(b""), &[keyring_of(&key)], policy(Unsigned::Allowed));
        assert_eq!(empty, Err(TrustError::Signature(SignatureError::Empty)));
    }

    #[test]
    fn what_is_signed_must_still_be_a_manifest() {
        let key = make_key(1);
        let torcx = br#"{"kind":"torcx-package-list-v0"}"#;
        let signature = sign_detached(torcx, &secret_of(&key), None, at(10)).unwrap();
        let keys = [keyring_of(&key)];
        let error = verify_manifest(torcx, Some(signature.as_bytes()), &keys, policy(Unsigned::Refused)).unwrap_err();
        assert!(matches!(error, TrustError::Manifest(ManifestError::Kind { .. })), "{error}");
        let large = vec![b' '; MAX_MANIFEST_BYTES + 1];
        let error = verify_manifest(&large, None, &keys, policy(Unsigned::Refused)).unwrap_err();
        assert!(matches!(error, TrustError::Manifest(ManifestError::TooLarge { .. })), "{error}");
    }
}
