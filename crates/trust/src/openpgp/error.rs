//! Why a key, a signature or a request to sign is refused: which key, why, and what to do.

use super::Fingerprint;
use crate::timestamp::Timestamp;

/// More than any keyring of release keys has.
pub const MAX_KEYRING_BYTES: usize = 4 << 20;
/// A signature has a few hundred bytes; a file may have several of them.
pub const MAX_SIGNATURE_BYTES: usize = 64 << 10;

/// A keyring by which nothing can be verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error(
        "the keyring has {bytes} bytes, more than the {MAX_KEYRING_BYTES} allowed: export the keys that sign, no others"
    )]
    TooLarge { bytes: usize },
    #[error("the keyring is damaged: {reason}; export it again with `gpg --armor --export`")]
    Damaged { reason: String },
    #[error("the keyring has no public key: export one with `gpg --armor --export`")]
    Empty,
    #[error(
        "the keyring has a secret key: take the file away from wherever it was published, \
         and export the public key with `gpg --armor --export`"
    )]
    SecretKey,
    #[error("the keyring has no key whose signatures can be accepted: {}", listed(keys))]
    NoUsableKey { keys: Vec<UnusableKey> },
}

/// A key of a keyring, and why no signature of it can be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {key} {problem}")]
pub struct UnusableKey {
    /// Its fingerprint, or its place in the file if it cannot be read.
    pub key: String,
    pub problem: KeyProblem,
}

/// What speaks against a key, at any time or at that of a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    #[error("is of version {version}, which is out of use: make a new key")]
    Version { version: u8 },
    #[error(
        "is {algorithm}, which is too weak or not supported: \
         use RSA of 2048 bits or more, Ed25519, or NIST P-256, P-384, P-521"
    )]
    Algorithm { algorithm: String },
    #[error("has a part that cannot be read ({reason}): export it again, or with `--export-options export-minimal`")]
    Unreadable { reason: String },
    #[error("has no valid signature of its own that says what it is for: export the key again, or make a new one")]
    NoBinding,
    #[error(
        "is bound by a signature with {hash} only: \
         renew it with a current gpg (`--cert-digest-algo SHA256`, then set its expiry)"
    )]
    WeakBinding { hash: String },
    #[error(
        "has not itself signed that it belongs to its primary key (no back-signature): \
         run gpg's `cross-certify` and export it again"
    )]
    NoBackSignature,
    #[error("carries a back-signature that is wrong or too weak: run gpg's `cross-certify` and export it again")]
    BadBackSignature,
    #[error("is not meant for signing: sign with a key that has the usage 'S'")]
    NotForSigning,
    #[error("was revoked at {at} ({reason}): sign with another key, and put that into the keyring")]
    Revoked { at: Timestamp, reason: String },
    #[error("was revoked by the key {by} that may do so: sign with another key, and put that into the keyring")]
    RevokedByAnother { by: String },
    #[error("was retired at {at} ({reason}), before the signature was made: sign with its successor")]
    Retired { at: Timestamp, reason: String },
    #[error("expired at {at}, before the signature was made: prolong it and export it again, or sign with another key")]
    Expired { at: Timestamp },
    #[error("was made at {at}, after the signature: look at the clock of the machine that signed")]
    MadeLater { at: Timestamp },
}

/// Why nothing vouches for the data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error(
        "the signature has {bytes} bytes, more than the {MAX_SIGNATURE_BYTES} allowed: \
         look whether it is a detached signature"
    )]
    TooLarge { bytes: usize },
    #[error("the signature is damaged: {reason}; make it again with `gpg --armor --detach-sign`")]
    Damaged { reason: String },
    #[error("the file has no signature: make one with `gpg --armor --detach-sign`")]
    Empty,
    #[error("{}", listed(refusals))]
    Refused { refusals: Vec<Refusal> },
}

/// What speaks against one signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the signature is of a version ({version}) that is out of use or not known: sign with a current gpg")]
    Version { version: u8 },
    #[error("the signature is not one of a file as it is ({found}): sign with `gpg --detach-sign`, without --textmode")]
    Kind { found: String },
    #[error("the signature uses {hash}, which is too weak: sign with SHA-256 or better (`gpg --digest-algo SHA256`)")]
    WeakHash { hash: String },
    #[error("the signature cannot be read ({reason}): make it again with `gpg --armor --detach-sign`")]
    Unreadable { reason: String },
    #[error("the signature does not say when it was made: sign with a current gpg")]
    NoTime,
    #[error("the signature demands that its reader knows {what}: sign without it")]
    NotUnderstood { what: String },
    #[error(
        "the signature is by the key {issuer}, which is in none of the keyrings: \
         add its public key if it is to be trusted"
    )]
    UnknownKey { issuer: String },
    #[error(
        "the signature by the key {key} does not fit the data: one of them was changed, or belongs to another version"
    )]
    DataChanged { key: Fingerprint },
    #[error("the signature by the key {signer} is not accepted: {} {key} {problem}", whose(key, signer))]
    Key { signer: Fingerprint, key: Fingerprint, problem: KeyProblem },
    #[error("the signature by the key {key} expired at {expired}, and it is {now}: sign again")]
    Expired { key: Fingerprint, expired: Timestamp, now: Timestamp },
    #[error(
        "the signature by the key {key} was made at {made}, which is in the future of {now}: \
         look at the clocks of both machines"
    )]
    FromTheFuture { key: Fingerprint, made: Timestamp, now: Timestamp },
}

fn whose(key: &Fingerprint, signer: &Fingerprint) -> &'static str {
    if key == signer { "the key" } else { "its primary key" }
}

/// Why nothing was signed. No message has anything of the key or its passphrase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    #[error("the secret key cannot be read: {reason}; export it with `gpg --armor --export-secret-keys`")]
    Damaged { reason: String },
    #[error("the file has no secret key: export one with `gpg --armor --export-secret-keys`")]
    NoSecretKey,
    #[error(
        "the file has {count} secret keys: \
         export the one that shall sign, with `gpg --armor --export-secret-keys FINGERPRINT`"
    )]
    SeveralKeys { count: usize },
    #[error("nothing of the secret key may sign: {}", listed(keys))]
    NoUsableKey { keys: Vec<UnusableKey> },
    #[error(
        "the secret part of the key {key} is not in the file: it is on a card, or was left out when it was exported"
    )]
    SecretPartMissing { key: Fingerprint },
    #[error("the key {key} is locked by a passphrase: give it")]
    PassphraseNeeded { key: Fingerprint },
    #[error("the key {key} cannot be unlocked: the passphrase is wrong")]
    WrongPassphrase { key: Fingerprint },
    #[error("the key {key} failed to sign: {reason}")]
    Sign { key: Fingerprint, reason: String },
}

fn listed<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
