//! Signatures of our own, for `nodestrap publish`: what gpg makes and gpgv verifies.

use pgp::composed::{ArmorOptions, DetachedSignature};
use pgp::packet::{Signature, SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::types::{KeyDetails, KeyVersion, Password, S2kParams, SecretParams, SigningKey, StringToKey};

use super::armour::{Block, unarmour};
use super::error::MAX_KEYRING_BYTES;
use super::key::{Component, Key};
use super::keyring::read_keys;
use super::packets::{SecretPart, read_packets, shown, sort_packets};
use super::{Fingerprint, KeyProblem, SigningError, UnusableKey};
use crate::timestamp::Timestamp;

/// An armoured detached signature, such as `gpg --armor --detach-sign` makes: by the newest subkey that may sign, or else by
/// the primary key. `secret_key` is one key, armoured or binary.
pub fn sign_detached(
    data: &[u8],
    secret_key: &[u8],
    passphrase: Option<&[u8]>,
    created: Timestamp,
) -> Result<String, SigningError> {
    let damaged = |reason| SigningError::Damaged { reason };
    if secret_key.len() > MAX_KEYRING_BYTES {
        return Err(damaged(format!("it has {} bytes", secret_key.len())));
    }
    let packets = unarmour(secret_key, &[Block::SecretKey, Block::PublicKey]).map_err(damaged)?;
    let sorted = sort_packets(read_packets(&packets).map_err(damaged)?);
    if let Some((_, reason)) = sorted.lost.first() {
        return Err(damaged(reason.clone()));
    }
    if sorted.secrets.is_empty() {
        return Err(SigningError::NoSecretKey);
    }
    let keys = read_keys(&sorted);
    let [key] = keys.as_slice() else { return Err(SigningError::SeveralKeys { count: keys.len() }) };
    let signer = choose(key, &sorted.secrets, created)?;
    let signature = match signer {
        SecretPart::Primary(secret) => sign(data, secret, secret.secret_params(), passphrase, created),
        SecretPart::Subkey(secret) => sign(data, secret, secret.secret_params(), passphrase, created),
    }?;
    let failed = |error: &pgp::errors::Error| SigningError::Sign { key: signer.fingerprint(), reason: shown(error) };
    // A computer that computes wrongly shall not publish it, nor give its key away by it.
    let checked = match signer {
        SecretPart::Primary(secret) => signature.verify(secret.public_key(), data),
        SecretPart::Subkey(secret) => signature.verify(secret.public_key(), data),
    };
    checked.map_err(|error| failed(&error))?;
    DetachedSignature::new(signature).to_armored_string(ArmorOptions::default()).map_err(|error| failed(&error))
}

/// The newest subkey that may sign and whose secret part is there, or else the primary key.
fn choose<'s>(key: &Key, secrets: &'s [SecretPart], at: Timestamp) -> Result<&'s SecretPart, SigningError> {
    let mut components: Vec<&Component> = key.subkeys.iter().collect();
    components.sort_by_key(|component| std::cmp::Reverse(component.created));
    components.push(&key.primary);
    let (mut problems, mut missing) = (Vec::new(), None);
    for component in components {
        if let Err((blamed, problem)) = key.judge(component, Some(at)) {
            problems.push(UnusableKey { key: blamed.to_string(), problem });
            continue;
        }
        let secret = secrets.iter().find(|secret| secret.fingerprint() == component.fingerprint);
        match secret.filter(|secret| secret.is_there()) {
            Some(secret) => return Ok(secret),
            None => missing = missing.or(Some(component.fingerprint.clone())),
        }
    }
    problems.dedup();
    Err(match missing {
        Some(key) => SigningError::SecretPartMissing { key },
        None => SigningError::NoUsableKey { keys: problems },
    })
}

impl SecretPart {
    fn fingerprint(&self) -> Fingerprint {
        let fingerprint = match self {
            Self::Primary(secret) => secret.fingerprint(),
            Self::Subkey(secret) => secret.fingerprint(),
        };
        Fingerprint(fingerprint.as_bytes().to_vec())
    }

    /// gpg writes a placeholder where the secret part is on a card, or was left out.
    fn is_there(&self) -> bool {
        let params = match self {
            Self::Primary(secret) => secret.secret_params(),
            Self::Subkey(secret) => secret.secret_params(),
        };
        match params {
            SecretParams::Plain(_) => true,
            SecretParams::Encrypted(encrypted) => !matches!(
                encrypted.string_to_key_params(),
                S2kParams::Cfb { s2k: StringToKey::Private { .. }, .. }
                    | S2kParams::MalleableCfb { s2k: StringToKey::Private { .. }, .. }
                    | S2kParams::Aead { s2k: StringToKey::Private { .. }, .. }
            ),
        }
    }
}

fn sign(
    data: &[u8],
    key: &(impl SigningKey + Unlock),
    params: &SecretParams,
    passphrase: Option<&[u8]>,
    created: Timestamp,
) -> Result<Signature, SigningError> {
    let fingerprint = Fingerprint(key.fingerprint().as_bytes().to_vec());
    // What gpg makes; a signature of the newer kind needs random numbers, and gpg does not read it.
    if key.version() != KeyVersion::V4 {
        let problem = KeyProblem::Version { version: key.version().into() };
        return Err(SigningError::NoUsableKey { keys: vec![UnusableKey { key: fingerprint.to_string(), problem }] });
    }
    let password = match (params.is_encrypted(), passphrase) {
        (true, None) => return Err(SigningError::PassphraseNeeded { key: fingerprint }),
        (true, Some(passphrase)) => Password::from(passphrase),
        (false, _) => Password::empty(),
    };
    if !key.opens_with(&password) {
        return Err(SigningError::WrongPassphrase { key: fingerprint });
    }
    let failed = |reason: String| SigningError::Sign { key: fingerprint.clone(), reason };
    let seconds = u32::try_from(created.seconds()).map_err(|_| failed(format!("OpenPGP cannot say {created}")))?;
    let mut config = SignatureConfig::v4(SignatureType::Binary, key.algorithm(), key.hash_alg());
    let part = |data| Subpacket::regular(data).map_err(|error| failed(shown(&error)));
    config.hashed_subpackets = vec![
        part(SubpacketData::IssuerFingerprint(key.fingerprint()))?,
        part(SubpacketData::SignatureCreationTime(pgp::types::Timestamp::from_secs(seconds)))?,
    ];
    config.unhashed_subpackets = vec![part(SubpacketData::IssuerKeyId(key.legacy_key_id()))?];
    config.sign(key, &password, data).map_err(|error| failed(shown(&error)))
}

/// To tell a wrong passphrase from other failures.
trait Unlock {
    fn opens_with(&self, password: &Password) -> bool;
}

impl Unlock for pgp::packet::SecretKey {
    fn opens_with(&self, password: &Password) -> bool {
        matches!(self.unlock(password, |_, _| Ok(())), Ok(Ok(())))
    }
}

impl Unlock for pgp::packet::SecretSubkey {
    fn opens_with(&self, password: &Password) -> bool {
        matches!(self.unlock(password, |_, _| Ok(())), Ok(Ok(())))
    }
}
