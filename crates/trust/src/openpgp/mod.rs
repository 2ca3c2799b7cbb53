//! OpenPGP signatures of files. The library parses and computes; what counts as a good signature is decided here, because the
//! library takes revoked keys, SHA-1, and subkeys that nothing binds.

mod armour;
mod error;
mod judge;
mod key;
mod keyring;
mod packets;
mod sign;
mod verify;

use std::fmt;

use data_encoding::HEXUPPER;

pub use error::{
    KeyProblem, KeyringError, MAX_KEYRING_BYTES, MAX_SIGNATURE_BYTES, Refusal, SignatureError, SigningError,
    UnusableKey,
};
pub use keyring::Keyring;
pub use sign::sign_detached;
pub(crate) use verify::CLOCK_TOLERANCE_SECONDS;
pub use verify::verify_detached;

use crate::timestamp::Timestamp;

/// The name of a key that nobody can forge, as gpg prints it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(Vec<u8>);

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&HEXUPPER.encode(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Who made a good signature, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// Of the key that a keyring was given for.
    pub primary: Fingerprint,
    /// Of the key that signed: the primary key itself, or a subkey of it.
    pub key: Fingerprint,
    pub created: Timestamp,
    /// As the key has it, without control characters; for people, not for decisions.
    pub user_id: Option<String>,
}
