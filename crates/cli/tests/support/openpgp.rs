//! Keys to publish with, made at test time: no key belongs into a repository.

use pgp::composed::{ArmorOptions, KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::types::{KeyVersion, Timestamp};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// Before all tests.
const MADE: u32 = 1_700_000_000;

/// Another one for each seed.
pub(crate) fn make_key(seed: u64) -> SignedSecretKey {
    let mut params = SecretKeyParamsBuilder::default();
    params.version(KeyVersion::V4).key_type(KeyType::Ed25519Legacy).can_certify(true).can_sign(true);
    params.created_at(Timestamp::from_secs(MADE)).primary_user_id("release <release@example.org>".to_owned());
    params.build().unwrap().generate(StdRng::seed_from_u64(seed)).unwrap()
}

pub(crate) fn secret(key: &SignedSecretKey) -> Vec<u8> {
    key.to_armored_bytes(ArmorOptions::default()).unwrap()
}

pub(crate) fn public(key: &SignedSecretKey) -> Vec<u8> {
    key.to_public_key().to_armored_bytes(ArmorOptions::default()).unwrap()
}
