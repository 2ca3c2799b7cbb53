//! Without any program: keys that the library makes. What real GnuPG makes is in `crates/lab/tests/trust`.

use std::sync::LazyLock;

use pgp::composed::{
    ArmorOptions, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedSecretKey, SubkeyParamsBuilder,
};
use pgp::crypto::ecc_curve::ECCCurve;
use pgp::crypto::hash::HashAlgorithm;
use pgp::ser::Serialize as _;
use pgp::types::{KeyVersion, Password};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::*;

/// When keys are made. Their bindings are of today, because the library asks the clock.
pub(crate) const MADE: u64 = 1_700_000_000;
const DATA: &[u8] = b"data";

fn params(version: KeyVersion, key_type: KeyType) -> SecretKeyParamsBuilder {
    let made = pgp::types::Timestamp::from_secs(u32::try_from(MADE).unwrap());
    let mut params = SecretKeyParamsBuilder::default();
    params.version(version).key_type(key_type).can_certify(true).can_sign(true).created_at(made);
    params.primary_user_id("store <store@example.org>".to_owned());
    params
}

/// Another one for each seed.
pub(crate) fn make_key(seed: u64) -> SignedSecretKey {
    let params = params(KeyVersion::V4, KeyType::Ed25519Legacy).build().unwrap();
    params.generate(StdRng::seed_from_u64(seed)).unwrap()
}

fn make_key_with_subkey(seed: u64) -> SignedSecretKey {
    let made = pgp::types::Timestamp::from_secs(u32::try_from(MADE).unwrap());
    let mut subkey = SubkeyParamsBuilder::default();
    subkey.version(KeyVersion::V4).key_type(KeyType::Ed25519Legacy).can_sign(true).created_at(made);
    let mut params = params(KeyVersion::V4, KeyType::Ed25519Legacy);
    params.subkey(subkey.build().unwrap());
    params.build().unwrap().generate(StdRng::seed_from_u64(seed)).unwrap()
}

fn public_bytes(key: &SignedSecretKey) -> Vec<u8> {
    key.to_public_key().to_bytes().unwrap()
}

pub(crate) fn keyring_of(key: &SignedSecretKey) -> Keyring {
    Keyring::parse(&public_bytes(key)).unwrap()
}

pub(crate) fn secret_of(key: &SignedSecretKey) -> Vec<u8> {
    key.to_armored_bytes(ArmorOptions::default()).unwrap()
}

fn later() -> Timestamp {
    Timestamp::from_seconds(MADE + 1000)
}

fn print_of(key: &impl pgp::types::KeyDetails) -> Fingerprint {
    Fingerprint(key.fingerprint().as_bytes().to_vec())
}

#[test]
fn what_we_sign_we_accept() {
    let key = make_key_with_subkey(1);
    let signature = sign_detached(DATA, &secret_of(&key), None, later()).unwrap();
    let signer = verify_detached(DATA, signature.as_bytes(), &[keyring_of(&key)], Some(later())).unwrap();
    let expected = Signer {
        primary: print_of(&key.primary_key),
        key: print_of(&key.secret_subkeys[0].key),
        created: later(),
        user_id: Some("store <store@example.org>".to_owned()),
    };
    assert_eq!(signer, expected);
    assert_eq!(signer.primary.to_string().len(), 40);
}

#[test]
fn keys_of_version_6_are_verified_but_do_not_sign() {
    for key_type in [KeyType::Ed25519, KeyType::ECDSA(ECCCurve::P384)] {
        let key = params(KeyVersion::V6, key_type).build().unwrap().generate(StdRng::seed_from_u64(1)).unwrap();
        let (random, hash) = (StdRng::seed_from_u64(2), HashAlgorithm::Sha512);
        let signature =
            DetachedSignature::sign_binary_data(random, &key.primary_key, &Password::empty(), hash, DATA).unwrap();
        verify_detached(DATA, &signature.to_bytes().unwrap(), &[keyring_of(&key)], None).unwrap();
        let refused = sign_detached(DATA, &secret_of(&key), None, later()).unwrap_err();
        assert!(refused.to_string().contains("version 6"), "{refused}");
    }
}

#[test]
fn names_of_users_cannot_speak_to_a_terminal() {
    let mut params = params(KeyVersion::V4, KeyType::Ed25519Legacy);
    params.primary_user_id("a\u{1b}[31m\u{202e}b\n".to_owned() + &"x".repeat(300));
    let key = params.build().unwrap().generate(StdRng::seed_from_u64(1)).unwrap();
    let signature = sign_detached(DATA, &secret_of(&key), None, later()).unwrap();
    let signer = verify_detached(DATA, signature.as_bytes(), &[keyring_of(&key)], None).unwrap();
    let user_id = signer.user_id.unwrap();
    assert!(user_id.starts_with("a[31mbxx") && user_id.len() == 128, "{user_id:?}");
}

#[test]
fn what_is_neither_key_nor_signature_is_called_that() {
    for (bytes, why) in [
        (&b""[..], "no public key"),
        (b"\n", "no public key"),
        (b"hello", "neither armoured"),
        (b"\x88", "cut off"),
        (b"\xb4\x02ab", "no public key"),
    ] {
        let refused = Keyring::parse(bytes).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let keys = [keyring_of(&make_key(1))];
    for (bytes, why) in [
        (&b""[..], "no signature"),
        (b"hello", "neither armoured"),
        (b"\xb4\x02ab", "something else than signatures"),
        (b"\x88\x02\x03\x05", "cannot be read"),
    ] {
        let refused = verify_detached(DATA, bytes, &keys, None).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let large = vec![0x88; MAX_SIGNATURE_BYTES + 1];
    assert_eq!(verify_detached(DATA, &large, &keys, None), Err(SignatureError::TooLarge { bytes: large.len() }));
    let large = vec![0x88; MAX_KEYRING_BYTES + 1];
    assert_eq!(Keyring::parse(&large).unwrap_err(), KeyringError::TooLarge { bytes: large.len() });
}

#[test]
fn a_signature_of_keys_is_none_of_data() {
    let key = make_key(1);
    let certification = key.details.users[0].signatures[0].clone();
    let bytes = DetachedSignature::new(certification).to_bytes().unwrap();
    let refused = verify_detached(DATA, &bytes, &[keyring_of(&key)], None).unwrap_err().to_string();
    assert!(refused.contains("one of keys"), "{refused}");
}

#[test]
fn without_keyrings_every_key_is_unknown() {
    let signature = sign_detached(DATA, &secret_of(&make_key(1)), None, later()).unwrap();
    let refused = verify_detached(DATA, signature.as_bytes(), &[], None).unwrap_err().to_string();
    assert!(refused.contains("in none of the keyrings"), "{refused}");
}

/// A key, and what it has signed. Made once: without optimisation a key takes a while.
static SIGNED: LazyLock<(SignedSecretKey, Vec<u8>)> = LazyLock::new(|| {
    let key = make_key_with_subkey(1);
    let armoured = sign_detached(DATA, &secret_of(&key), None, later()).unwrap();
    let signature = armour::unarmour(armoured.as_bytes(), &[armour::Block::Signature]).unwrap();
    (key, signature)
});

fn flip(bytes: &mut [u8], at: &prop::sample::Index) {
    let bit = at.index(bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Some parts of a signature are signed by nobody. But whatever is changed, it is the same key that signed the same data.
    #[test]
    fn no_flipped_bit_makes_another_signer(
        in_keyring in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
        in_signature in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
        in_data: Option<prop::sample::Index>,
    ) {
        let (key, signature) = &*SIGNED;
        let (mut keyring, mut signature, mut data) = (public_bytes(key), signature.clone(), DATA.to_vec());
        let untouched = in_keyring.is_empty() && in_signature.is_empty() && in_data.is_none();
        in_keyring.iter().for_each(|at| flip(&mut keyring, at));
        in_signature.iter().for_each(|at| flip(&mut signature, at));
        in_data.iter().for_each(|at| flip(&mut data, at));
        let verified = Keyring::parse(&keyring).map(|keyring| verify_detached(&data, &signature, &[keyring], None));
        match verified {
            Ok(Ok(signer)) => {
                prop_assert_eq!(signer.key, print_of(&key.secret_subkeys[0].key));
                prop_assert_eq!(signer.primary, print_of(&key.primary_key));
                prop_assert_eq!(data, DATA);
            }
            Ok(Err(error)) => prop_assert!(!untouched, "{}", error),
            Err(error) => prop_assert!(!untouched, "{}", error),
        }
    }

    #[test]
    fn nothing_that_is_read_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Keyring::parse(&bytes);
        let _ = Keyring::parse(&[&[0x99, 0, 250], &bytes[..]].concat());
        let _ = verify_detached(DATA, &bytes, &[], None);
        let _ = verify_detached(DATA, &[&[0x89, 0, 250], &bytes[..]].concat(), &[], None);
    }
}
