//! The public keys that are trusted, and what speaks against each of them.

use super::armour::{Block, unarmour};
use super::error::MAX_KEYRING_BYTES;
use super::key::Key;
use super::packets::{Sorted, read_packets, sort_packets};
use super::{Fingerprint, KeyProblem, KeyringError, UnusableKey};

/// Public keys that are trusted to sign. One of them at least can be used; of the others it is known why they cannot.
#[derive(Clone, Debug)]
pub struct Keyring {
    keys: Vec<Key>,
}

impl Keyring {
    /// Armoured, also several blocks, or binary.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyringError> {
        if bytes.len() > MAX_KEYRING_BYTES {
            return Err(KeyringError::TooLarge { bytes: bytes.len() });
        }
        let damaged = |reason| KeyringError::Damaged { reason };
        let packets = unarmour(bytes, &[Block::PublicKey, Block::SecretKey]).map_err(damaged)?;
        let sorted = sort_packets(read_packets(&packets).map_err(damaged)?);
        if !sorted.secrets.is_empty() {
            return Err(KeyringError::SecretKey);
        }
        let keys = read_keys(&sorted);
        let problems: Vec<Vec<UnusableKey>> = keys.iter().map(problems_of).collect();
        if problems.iter().any(Vec::is_empty) {
            return Ok(Self { keys });
        }
        let lost = sorted.lost.into_iter().map(|(place, reason)| UnusableKey {
            key: format!("number {place} of the file"),
            problem: KeyProblem::Unreadable { reason },
        });
        let unusable: Vec<UnusableKey> = lost.chain(problems.into_iter().flatten()).collect();
        Err(if unusable.is_empty() { KeyringError::Empty } else { KeyringError::NoUsableKey { keys: unusable } })
    }

    /// Of the primary keys, usable or not.
    pub fn fingerprints(&self) -> impl Iterator<Item = &Fingerprint> {
        self.keys.iter().map(|key| &key.primary.fingerprint)
    }

    pub(super) fn keys(&self) -> &[Key] {
        &self.keys
    }
}

/// Copies of the same key are one.
pub(super) fn read_keys(sorted: &Sorted) -> Vec<Key> {
    let mut keys = Vec::new();
    for certificate in &sorted.certificates {
        merge_into(&mut keys, Key::read(certificate, &sorted.revocations));
    }
    keys
}

pub(super) fn merge_into(keys: &mut Vec<Key>, key: Key) {
    match keys.iter_mut().find(|known| known.primary.fingerprint == key.primary.fingerprint) {
        Some(known) => known.merge(key),
        None => keys.push(key),
    }
}

/// Empty if a part of the key can sign.
fn problems_of(key: &Key) -> Vec<UnusableKey> {
    let mut problems = Vec::new();
    for component in key.components() {
        match key.judge(component, None) {
            Ok(()) => return Vec::new(),
            Err((fingerprint, problem)) => problems.push(UnusableKey { key: fingerprint.to_string(), problem }),
        }
    }
    // What speaks against the primary key speaks against each of its subkeys.
    problems.dedup();
    problems
}
