//! Whether data was signed by a key that is trusted.

use pgp::packet::{Packet, Signature, SignatureType, SignatureVersion};

use super::armour::{Block, unarmour};
use super::error::MAX_SIGNATURE_BYTES;
use super::key::{Component, Key, not_understood, time, weak_hash};
use super::keyring::merge_into;
use super::packets::{Piece, read_packets};
use super::{Fingerprint, Keyring, Refusal, SignatureError, Signer};
use crate::timestamp::Timestamp;

/// One for each key of an organisation; each costs a computation.
const MAX_SIGNATURES: usize = 32;
/// Clocks of two machines that are both synchronised, one of them badly.
pub(crate) const CLOCK_TOLERANCE_SECONDS: u64 = 300;

/// One good signature suffices; a bad one beside it does not spoil it.
pub fn verify_detached(
    data: &[u8],
    signature: &[u8],
    keyrings: &[Keyring],
    now: Option<Timestamp>,
) -> Result<Signer, SignatureError> {
    if signature.len() > MAX_SIGNATURE_BYTES {
        return Err(SignatureError::TooLarge { bytes: signature.len() });
    }
    let damaged = |reason| SignatureError::Damaged { reason };
    let packets = unarmour(signature, &[Block::Signature]).map_err(damaged)?;
    let mut keys = Vec::new();
    for key in keyrings.iter().flat_map(Keyring::keys) {
        merge_into(&mut keys, key.clone());
    }
    let mut refusals = Vec::new();
    for piece in read_packets(&packets).map_err(damaged)?.into_iter().take(MAX_SIGNATURES) {
        let refusal = match piece {
            Piece::Packet(packet) => match *packet {
                Packet::Signature(signature) => match verify_one(data, &signature, &keys, now) {
                    Ok(signer) => return Ok(signer),
                    Err(refusal) => refusal,
                },
                Packet::Marker(_) | Packet::Padding(_) => continue,
                _ => return Err(damaged("it has something else than signatures in it".to_owned())),
            },
            Piece::Unreadable { reason, .. } => Refusal::Unreadable { reason },
        };
        refusals.push(refusal);
    }
    Err(if refusals.is_empty() { SignatureError::Empty } else { SignatureError::Refused { refusals } })
}

fn verify_one(data: &[u8], signature: &Signature, keys: &[Key], now: Option<Timestamp>) -> Result<Signer, Refusal> {
    let made = check_form(signature)?;
    let mut refusal = Refusal::UnknownKey { issuer: issuer(signature) };
    for key in keys {
        for component in key.components().filter(|component| component.material.may_have_made(signature)) {
            match verify_by(data, signature, key, component, made, now) {
                Ok(signer) => return Ok(signer),
                Err(reason) => refusal = reason,
            }
        }
    }
    Err(refusal)
}

/// What can be said without any key; with when the signature was made.
fn check_form(signature: &Signature) -> Result<Timestamp, Refusal> {
    if !matches!(signature.version(), SignatureVersion::V4 | SignatureVersion::V6) {
        return Err(Refusal::Version { version: signature.version().into() });
    }
    match signature.typ() {
        Some(SignatureType::Binary) => {}
        Some(SignatureType::Text) => return Err(Refusal::Kind { found: "it is one of a text".to_owned() }),
        _ => return Err(Refusal::Kind { found: "it is one of keys".to_owned() }),
    }
    if let Some(hash) = weak_hash(signature) {
        return Err(Refusal::WeakHash { hash });
    }
    if let Some(what) = not_understood(signature) {
        return Err(Refusal::NotUnderstood { what });
    }
    signature.created().map(time).ok_or(Refusal::NoTime)
}

fn verify_by(
    data: &[u8],
    signature: &Signature,
    key: &Key,
    signer: &Component,
    made: Timestamp,
    now: Option<Timestamp>,
) -> Result<Signer, Refusal> {
    let fingerprint = &signer.fingerprint;
    let refuse = |(blamed, problem)| Refusal::Key { signer: fingerprint.clone(), key: blamed, problem };
    if let Some(flaw) = &signer.flaw {
        return Err(refuse((fingerprint.clone(), flaw.clone())));
    }
    if !signer.material.verify(signature, data) {
        return Err(Refusal::DataChanged { key: fingerprint.clone() });
    }
    key.judge(signer, Some(made)).map_err(refuse)?;
    if let Some(now) = now {
        let ends = signature.signature_expiration_time().filter(|span| span.as_secs() > 0);
        let expired = ends.map(|span| made.plus(u64::from(span.as_secs())));
        if let Some(expired) = expired.filter(|expired| now >= *expired) {
            return Err(Refusal::Expired { key: fingerprint.clone(), expired, now });
        }
        if made > now.plus(CLOCK_TOLERANCE_SECONDS) {
            return Err(Refusal::FromTheFuture { key: fingerprint.clone(), made, now });
        }
    }
    Ok(Signer {
        primary: key.primary.fingerprint.clone(),
        key: fingerprint.clone(),
        created: made,
        user_id: key.user_id.clone(),
    })
}

fn issuer(signature: &Signature) -> String {
    let named = |bytes: &[u8]| Fingerprint(bytes.to_vec()).to_string();
    let print = signature.issuer_fingerprint().first().map(|print| named(print.as_bytes()));
    let id = || signature.issuer_key_id().first().map(|id| named(id.as_ref()));
    print.or_else(id).unwrap_or_else(|| "that it does not name".to_owned())
}
