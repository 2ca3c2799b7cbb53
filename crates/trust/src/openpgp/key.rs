//! What a key says about itself and its subkeys, as far as it is proved: bindings and revocations whose signatures are valid.
//! When they count is for [`super::judge`] to say.

use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{KeyFlags, PublicKey, PublicSubkey, RevocationCode, Signature, SignatureType, SubpacketData, UserId};
use pgp::ser::Serialize as _;
use pgp::types::{EcdsaPublicParams, EddsaLegacyPublicParams, KeyDetails, KeyVersion, PublicParams, Tag};

use super::packets::Certificate;
use super::{Fingerprint, KeyProblem};
use crate::timestamp::Timestamp;

const MIN_RSA_BITS: u16 = 2048;
/// Long enough for a name and an address.
const MAX_USER_ID: usize = 128;

/// A primary key with its subkeys.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) primary: Component,
    pub(super) subkeys: Vec<Component>,
    pub(super) user_id: Option<String>,
}

/// A primary key or a subkey.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) material: Material,
    pub(super) fingerprint: Fingerprint,
    pub(super) created: Timestamp,
    /// What no binding can mend.
    pub(super) flaw: Option<KeyProblem>,
    /// The newest first.
    pub(super) bindings: Vec<Binding>,
    /// The hash of a binding that would count if it were better.
    pub(super) weak_binding: Option<String>,
    pub(super) revocations: Vec<Revocation>,
}

#[derive(Clone, Debug)]
pub(super) enum Material {
    Primary(PublicKey),
    Subkey(PublicSubkey),
}

/// A signature of the primary key that says what a key is for, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) created: Timestamp,
    /// When the binding itself ends.
    pub(super) ends: Option<Timestamp>,
    /// When the key expires.
    pub(super) key_expires: Option<Timestamp>,
    /// None if it does not say what the key is for.
    pub(super) may_sign: Option<bool>,
    pub(super) back_signature: BackSignature,
}

/// A signing subkey must agree that it belongs to its primary key: otherwise anybody could adopt it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackSignature {
    NotNeeded,
    Good,
    Missing,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Revocation {
    pub(super) created: Timestamp,
    pub(super) strength: Strength,
    pub(super) reason: String,
    /// The key that says so, if it is another one.
    pub(super) by: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strength {
    /// Nothing that the key has ever signed counts any more: somebody else may have it.
    Hard,
    /// What it signed before stays good.
    Soft,
}

impl Key {
    /// `revocations` are all of the file.
    pub(super) fn read(certificate: &Certificate, revocations: &[Signature]) -> Self {
        let mut primary = read_primary(certificate);
        primary.revocations = revocations.iter().filter_map(|one| key_revocation(certificate, one)).collect();
        let subkeys = certificate.subkeys.iter().map(|(key, own)| read_subkey(certificate, key, own)).collect();
        Self { primary, subkeys, user_id: user_id(certificate) }
    }

    pub(super) fn components(&self) -> impl Iterator<Item = &Component> {
        std::iter::once(&self.primary).chain(&self.subkeys)
    }

    /// Two copies of a key: what either of them says counts, most of all that it is revoked.
    pub(super) fn merge(&mut self, other: Self) {
        self.primary.merge(other.primary);
        for subkey in other.subkeys {
            match self.subkeys.iter_mut().find(|known| known.fingerprint == subkey.fingerprint) {
                Some(known) => known.merge(subkey),
                None => self.subkeys.push(subkey),
            }
        }
        self.user_id = self.user_id.take().or(other.user_id);
    }
}

impl Component {
    fn new(material: Material, flaw: Option<KeyProblem>) -> Self {
        let details = material.details();
        let fingerprint = Fingerprint(details.fingerprint().as_bytes().to_vec());
        let created = time(details.created_at());
        let flaw =
            flaw.or_else(|| check_version(details.version())).or_else(|| check_algorithm(details.public_params()));
        Self { fingerprint, created, flaw, material, bindings: Vec::new(), weak_binding: None, revocations: Vec::new() }
    }

    fn merge(&mut self, other: Self) {
        self.flaw = self.flaw.take().or(other.flaw);
        self.weak_binding = self.weak_binding.take().or(other.weak_binding);
        self.bindings.extend(other.bindings);
        self.revocations.extend(other.revocations);
        self.order();
    }

    fn order(&mut self) {
        self.bindings.sort_by_key(|binding| std::cmp::Reverse(binding.created));
    }

    /// A binding whose signature is proved already, if it is strong enough to count.
    fn bind(&mut self, signature: &Signature, back_signature: BackSignature) {
        let Some(made) = signature.created().map(time).filter(|made| *made >= self.created) else { return };
        if !is_understood(signature) {
            return;
        }
        if let Some(hash) = weak_hash(signature) {
            self.weak_binding = Some(hash);
            return;
        }
        let flags = key_flags(signature);
        let after = |start: Timestamp, seconds: u32| (seconds > 0).then(|| start.plus(u64::from(seconds)));
        self.bindings.push(Binding {
            created: made,
            ends: signature.signature_expiration_time().and_then(|span| after(made, span.as_secs())),
            key_expires: signature.key_expiration_time().and_then(|span| after(self.created, span.as_secs())),
            may_sign: flags.map(|flags| flags.sign()),
            back_signature,
        });
    }
}

impl Material {
    pub(super) fn details(&self) -> &dyn KeyDetails {
        match self {
            Self::Primary(key) => key,
            Self::Subkey(key) => key,
        }
    }

    pub(super) fn verify(&self, signature: &Signature, data: &[u8]) -> bool {
        match self {
            Self::Primary(key) => signature.verify(key, data).is_ok(),
            Self::Subkey(key) => signature.verify(key, data).is_ok(),
        }
    }

    /// Whether the signature names this key, or no key at all.
    pub(super) fn may_have_made(&self, signature: &Signature) -> bool {
        may_be_by(signature, self.details().fingerprint().as_bytes(), self.details().legacy_key_id().as_ref())
    }
}

/// A hint only: what counts is whether the signature can be verified.
fn may_be_by(signature: &Signature, fingerprint: &[u8], key_id: &[u8]) -> bool {
    let (prints, ids) = (signature.issuer_fingerprint(), signature.issuer_key_id());
    let unnamed = prints.is_empty() && ids.is_empty();
    unnamed || prints.iter().any(|print| print.as_bytes() == fingerprint) || ids.iter().any(|id| id.as_ref() == key_id)
}

fn is_by(signature: &Signature, key: &impl KeyDetails) -> bool {
    may_be_by(signature, key.fingerprint().as_bytes(), key.legacy_key_id().as_ref())
}

fn read_primary(certificate: &Certificate) -> Component {
    let primary = &certificate.primary;
    let flaw = certificate.unreadable.clone().map(|reason| KeyProblem::Unreadable { reason });
    let mut component = Component::new(Material::Primary(primary.clone()), flaw);
    for signature in &certificate.direct {
        if signature.typ() == Some(SignatureType::Key)
            && is_by(signature, primary)
            && signature.verify_key(primary).is_ok()
        {
            component.bind(signature, BackSignature::NotNeeded);
        }
    }
    for (id, signatures) in &certificate.users {
        for signature in valid_certifications(primary, id, signatures) {
            component.bind(signature, BackSignature::NotNeeded);
        }
    }
    component.order();
    component
}

/// Those by the key itself that were not withdrawn later.
fn valid_certifications<'s>(primary: &PublicKey, id: &UserId, signatures: &'s [Signature]) -> Vec<&'s Signature> {
    let own = |signature: &&Signature| {
        is_by(signature, primary) && signature.verify_certification(primary, Tag::UserId, id).is_ok()
    };
    let (withdrawn, certified): (Vec<&Signature>, Vec<&Signature>) = signatures
        .iter()
        .filter(|signature| signature.is_certification())
        .filter(own)
        .partition(|signature| signature.typ() == Some(SignatureType::CertRevocation));
    let withdrawn_at = withdrawn.iter().filter_map(|signature| signature.created()).max();
    certified.into_iter().filter(|signature| signature.created() > withdrawn_at).collect()
}

fn read_subkey(certificate: &Certificate, key: &PublicSubkey, own: &[Signature]) -> Component {
    let primary = &certificate.primary;
    let mut component = Component::new(Material::Subkey(key.clone()), None);
    let bindings = own.iter().filter(|signature| signature.typ() == Some(SignatureType::SubkeyBinding));
    for signature in bindings.filter(|signature| signature.verify_subkey_binding(primary, key).is_ok()) {
        component.bind(signature, back_signature(signature, primary, key));
    }
    component.order();
    component.revocations = certificate
        .direct
        .iter()
        .filter(|signature| signature.typ() == Some(SignatureType::SubkeyRevocation))
        .filter(|signature| signature.verify_subkey_binding(primary, key).is_ok())
        .map(|signature| revocation(signature, None))
        .collect();
    component
}

fn back_signature(binding: &Signature, primary: &PublicKey, key: &PublicSubkey) -> BackSignature {
    if !key_flags(binding).is_some_and(|flags| flags.sign()) {
        return BackSignature::NotNeeded;
    }
    let Some(config) = binding.config() else { return BackSignature::Missing };
    let mut embedded =
        config.hashed_subpackets().chain(config.unhashed_subpackets()).filter_map(|part| match &part.data {
            SubpacketData::EmbeddedSignature(signature) => Some(&**signature),
            _ => None,
        });
    let is_good = |signature: &Signature| {
        weak_hash(signature).is_none()
            && is_understood(signature)
            && signature.verify_primary_key_binding(key, primary).is_ok()
    };
    match embedded.next() {
        None => BackSignature::Missing,
        Some(first) if is_good(first) || embedded.any(is_good) => BackSignature::Good,
        Some(_) => BackSignature::Bad,
    }
}

/// Of the primary key, if this is one. However weak its hash: nobody forges a signature in order to be believed less.
fn key_revocation(certificate: &Certificate, signature: &Signature) -> Option<Revocation> {
    let primary = &certificate.primary;
    if is_by(signature, primary) {
        return signature.verify_key(primary).is_ok().then(|| revocation(signature, None));
    }
    // The key of the other may not be at hand, so that its word cannot be proved; that it has one was said by the key itself.
    let belongs = certificate.direct.contains(signature);
    let named: Vec<String> = certificate
        .direct
        .iter()
        .chain(certificate.users.iter().flat_map(|(_, signatures)| signatures))
        .filter_map(Signature::revocation_key)
        .filter(|revoker| {
            let id = revoker.fingerprint.len().checked_sub(8).map(|from| &revoker.fingerprint[from..]);
            may_be_by(signature, &revoker.fingerprint, id.unwrap_or_default())
        })
        .map(|revoker| Fingerprint(revoker.fingerprint.to_vec()).to_string())
        .collect();
    let by = named.into_iter().next().filter(|_| belongs)?;
    Some(Revocation { strength: Strength::Hard, ..revocation(signature, Some(by)) })
}

fn revocation(signature: &Signature, by: Option<String>) -> Revocation {
    let (strength, reason) = match signature.revocation_reason_code() {
        Some(RevocationCode::KeySuperseded) => (Strength::Soft, "superseded"),
        Some(RevocationCode::KeyRetired) => (Strength::Soft, "no longer used"),
        Some(RevocationCode::KeyCompromised) => (Strength::Hard, "compromised"),
        _ => (Strength::Hard, "no reason given"),
    };
    let (created, strength) = match signature.created() {
        Some(created) => (time(created), strength),
        None => (Timestamp::from_seconds(0), Strength::Hard),
    };
    Revocation { created, strength, reason: reason.to_owned(), by }
}

/// The one that the key calls its main one, or the first that it has certified.
fn user_id(certificate: &Certificate) -> Option<String> {
    let primary = &certificate.primary;
    let certified = certificate.users.iter().filter_map(|(id, signatures)| {
        let newest = valid_certifications(primary, id, signatures).into_iter().max_by_key(|own| own.created())?;
        Some((newest.is_primary(), id))
    });
    let (_, id) = certified.reduce(|first, other| if other.0 && !first.0 { other } else { first })?;
    let text = String::from_utf8_lossy(id.id());
    Some(text.chars().filter(|character| is_plain(*character)).take(MAX_USER_ID).collect())
}

/// Nothing that moves a cursor or turns the direction of a text around.
fn is_plain(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !character.is_control() && !turns
}

fn check_version(version: KeyVersion) -> Option<KeyProblem> {
    (!matches!(version, KeyVersion::V4 | KeyVersion::V6)).then(|| KeyProblem::Version { version: version.into() })
}

fn check_algorithm(params: &PublicParams) -> Option<KeyProblem> {
    let algorithm = match params {
        PublicParams::RSA(key) => {
            // A number is written after the count of its bits; the modulus comes first.
            let mut written = Vec::new();
            let bits = match (key.to_writer(&mut written), written.as_slice()) {
                (Ok(()), [high, low, ..]) => u16::from_be_bytes([*high, *low]),
                _ => 0,
            };
            if bits >= MIN_RSA_BITS {
                return None;
            }
            format!("RSA of {bits} bits")
        }
        PublicParams::Ed25519(_) | PublicParams::EdDSALegacy(EddsaLegacyPublicParams::Ed25519 { .. }) => return None,
        PublicParams::ECDSA(
            EcdsaPublicParams::P256 { .. } | EcdsaPublicParams::P384 { .. } | EcdsaPublicParams::P521 { .. },
        ) => return None,
        PublicParams::DSA(_) => "DSA".to_owned(),
        PublicParams::Elgamal(_) => "ElGamal".to_owned(),
        PublicParams::ECDSA(_) => "ECDSA on another curve".to_owned(),
        PublicParams::ECDH(_) | PublicParams::X25519(_) | PublicParams::X448(_) => {
            return Some(KeyProblem::NotForSigning);
        }
        _ => "of another algorithm".to_owned(),
    };
    Some(KeyProblem::Algorithm { algorithm })
}

pub(super) fn weak_hash(signature: &Signature) -> Option<String> {
    match signature.hash_alg() {
        Some(
            HashAlgorithm::Sha256
            | HashAlgorithm::Sha384
            | HashAlgorithm::Sha512
            | HashAlgorithm::Sha3_256
            | HashAlgorithm::Sha3_512,
        ) => None,
        Some(hash) => Some(hash.to_string()),
        None => Some("an unknown hash".to_owned()),
    }
}

/// What a signature marks as critical must be understood, or the signature must not be used.
pub(super) fn is_understood(signature: &Signature) -> bool {
    not_understood(signature).is_none()
}

pub(super) fn not_understood(signature: &Signature) -> Option<String> {
    signature.config()?.hashed_subpackets().filter(|part| part.is_critical).find_map(|part| match &part.data {
        SubpacketData::Notation(notation) => Some(
            String::from_utf8_lossy(&notation.name).chars().filter(|character| is_plain(*character)).take(64).collect(),
        ),
        SubpacketData::Experimental(kind, _) | SubpacketData::Other(kind, _) => Some(format!("subpacket {kind}")),
        _ => None,
    })
}

fn key_flags(signature: &Signature) -> Option<&KeyFlags> {
    signature.config()?.hashed_subpackets().find_map(|part| match &part.data {
        SubpacketData::KeyFlags(flags) => Some(flags),
        _ => None,
    })
}

pub(super) fn time(of: pgp::types::Timestamp) -> Timestamp {
    Timestamp::from_seconds(u64::from(of.as_secs()))
}
