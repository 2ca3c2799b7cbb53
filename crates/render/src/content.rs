//! The bytes of a file, and what is asked of them again and again.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::entry::Entry;

/// Bytes that do not change. Copies share them, and what was worked out for one is there for all: the groups of a cluster
/// have most of their files in common, and a node asks for the digest of its bundle at every step.
#[derive(Clone)]
pub struct Content(Arc<Known>);

struct Known {
    bytes: Vec<u8>,
    sha256: OnceLock<String>,
    entry: OnceLock<Entry>,
}

impl Content {
    /// Lower-case hexadecimal digits.
    pub fn sha256(&self) -> &str {
        self.0.sha256.get_or_init(|| sha256_hex(&self.0.bytes))
    }

    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0.bytes).ok()
    }

    /// What is written of the file that has this content; of the first, if several do.
    pub(crate) fn entry(&self, first: impl FnOnce() -> Entry) -> &Entry {
        self.0.entry.get_or_init(first)
    }
}

impl Deref for Content {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl<T: Into<Vec<u8>>> From<T> for Content {
    fn from(bytes: T) -> Self {
        Self(Arc::new(Known { bytes: bytes.into(), sha256: OnceLock::new(), entry: OnceLock::new() }))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.bytes == other.0.bytes
    }
}

impl Eq for Content {}

/// It may be a secret.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn content_is_equal_if_its_bytes_are(bytes in proptest::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>()) {
            prop_assert_eq!(Content::from(bytes.clone()), Content::from(bytes.clone()));
            let mut longer = bytes.clone();
            longer.push(0);
            prop_assert_ne!(Content::from(bytes.clone()), Content::from(longer.clone()));
            let mut other = longer.clone();
            let at = at.index(other.len());
            other[at] ^= 1;
            prop_assert_ne!(Content::from(longer), Content::from(other));
        }
    }
}
