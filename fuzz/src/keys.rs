//! Keyrings and signatures to start from: made here, the same in every run, because no key belongs into a repository.

use pgp::composed::{ArmorOptions, DetachedSignature, KeyType};
use pgp::crypto::ecc_curve::ECCCurve;
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{
    KeyFlags, PacketTrait, PubKeyInner, PublicKey, PublicSubkey, SecretKey, SecretSubkey, Signature, SignatureConfig,
    SignatureType, Subpacket, SubpacketData, UserId,
};
use pgp::types::{Duration, KeyDetails, KeyVersion, PacketHeaderVersion, Password, SigningKey, Tag, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;

const MADE: u32 = 1_700_000_000;

/// How a keyring differs from a plain one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Plain,
    Subkey,
    Revoked,
    RevokedSubkey,
    NistCurve,
    Expires,
    Armoured,
    TwoSignatures,
}

pub const VARIANTS: [Variant; 8] = [
    Variant::Plain,
    Variant::Subkey,
    Variant::Revoked,
    Variant::RevokedSubkey,
    Variant::NistCurve,
    Variant::Expires,
    Variant::Armoured,
    Variant::TwoSignatures,
];

/// A keyring, and a signature of the data by its key.
pub fn keyring_and_signature(seed: u64, variant: Variant, data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut random = StdRng::seed_from_u64(seed);
    let kind = if variant == Variant::NistCurve { KeyType::ECDSA(ECCCurve::P256) } else { KeyType::Ed25519Legacy };
    let (primary, public) = primary_key(&mut random, &kind);
    let hash = HashAlgorithm::Sha256;
    let mut packets = Vec::new();
    write(&public, &mut packets);
    if variant == Variant::Revoked {
        let revocation = config(SignatureType::KeyRevocation, &primary, hash, vec![]);
        write(&revocation.sign_key(&primary, &Password::empty(), &public).expect("signed"), &mut packets);
    }
    let id = UserId::from_str(PacketHeaderVersion::New, "store <store@example.org>").expect("a name");
    write(&id, &mut packets);
    let mut claims = vec![signing()];
    if variant == Variant::Expires {
        claims.push(SubpacketData::KeyExpirationTime(Duration::from_secs(1_000)));
    }
    let certification = config(SignatureType::CertPositive, &primary, hash, claims)
        .sign_certification(&primary, &public, &Password::empty(), Tag::UserId, &id)
        .expect("signed");
    write(&certification, &mut packets);
    let signature = match variant {
        Variant::Subkey | Variant::RevokedSubkey => {
            let subkey = bind_subkey(&mut random, &primary, &public, variant, &mut packets);
            sign(data, &subkey, hash)
        }
        _ => sign(data, &primary, hash),
    };
    (packets, written(signature, data, &primary, variant))
}

fn primary_key(random: &mut StdRng, kind: &KeyType) -> (SecretKey, PublicKey) {
    let (params, secret) = kind.generate(random).expect("a key");
    let (version, algorithm) = (KeyVersion::V4, kind.to_alg());
    let inner = PubKeyInner::new(version, algorithm, Timestamp::from_secs(MADE), None, params).expect("a key");
    let public = PublicKey::from_inner(inner).expect("a key");
    (SecretKey::new(public.clone(), secret).expect("a key"), public)
}

fn bind_subkey(
    random: &mut StdRng,
    primary: &SecretKey,
    public: &PublicKey,
    variant: Variant,
    packets: &mut Vec<u8>,
) -> SecretSubkey {
    let (params, secret) = KeyType::Ed25519Legacy.generate(random).expect("a key");
    let (version, algorithm) = (KeyVersion::V4, KeyType::Ed25519Legacy.to_alg());
    let inner = PubKeyInner::new(version, algorithm, Timestamp::from_secs(MADE), None, params).expect("a key");
    let key = PublicSubkey::from_inner(inner).expect("a key");
    let subkey = SecretSubkey::new(key.clone(), secret).expect("a key");
    let hash = HashAlgorithm::Sha256;
    let agreed = config(SignatureType::KeyBinding, &subkey, hash, vec![])
        .sign_primary_key_binding(&subkey, &key, &Password::empty(), public)
        .expect("signed");
    let claims = vec![signing(), SubpacketData::EmbeddedSignature(Box::new(agreed))];
    let bind = |config: SignatureConfig| {
        config.sign_subkey_binding(primary, public, &Password::empty(), &key).expect("signed")
    };
    write(&key, packets);
    write(&bind(config(SignatureType::SubkeyBinding, primary, hash, claims)), packets);
    if variant == Variant::RevokedSubkey {
        write(&bind(config(SignatureType::SubkeyRevocation, primary, hash, vec![])), packets);
    }
    subkey
}

fn signing() -> SubpacketData {
    let mut flags = KeyFlags::default();
    flags.set_certify(true);
    flags.set_sign(true);
    SubpacketData::KeyFlags(flags)
}

fn config(
    kind: SignatureType,
    key: &impl KeyDetails,
    hash: HashAlgorithm,
    claims: Vec<SubpacketData>,
) -> SignatureConfig {
    let mut config = SignatureConfig::v4(kind, key.algorithm(), hash);
    let made = SubpacketData::SignatureCreationTime(Timestamp::from_secs(MADE + 10));
    let parts = [made, SubpacketData::IssuerFingerprint(key.fingerprint())].into_iter().chain(claims);
    config.hashed_subpackets = parts.map(|part| Subpacket::regular(part).expect("a part")).collect();
    config
}

fn sign(data: &[u8], key: &impl SigningKey, hash: HashAlgorithm) -> Signature {
    config(SignatureType::Binary, key, hash, vec![]).sign(key, &Password::empty(), data).expect("signed")
}

fn written(signature: Signature, data: &[u8], primary: &SecretKey, variant: Variant) -> Vec<u8> {
    let mut bytes = Vec::new();
    match variant {
        Variant::Armoured => {
            let signature = DetachedSignature::new(signature);
            return signature.to_armored_bytes(ArmorOptions::default()).expect("armoured");
        }
        Variant::TwoSignatures => write(&sign(&data[1..], primary, HashAlgorithm::Sha512), &mut bytes),
        _ => {}
    }
    write(&signature, &mut bytes);
    bytes
}

fn write(packet: &impl PacketTrait, packets: &mut Vec<u8>) {
    packet.to_writer_with_header(packets).expect("a packet can be written");
}
