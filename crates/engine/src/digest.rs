//! The name of content: `sha256:` and 64 hexadecimal digits.
//!
//! In: bytes, or the text form. Out: a value that compares, sorts and prints as its text form.
//! Fails: [`ParseDigestError`] for any other text, so that a digest in hand is always well formed.

use std::{fmt, str::FromStr};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const HEX_LENGTH: usize = 64;

/// `sha256:<hex>` of some bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("{PREFIX}{}", HEXLOWER.encode(&Sha256::digest(bytes))))
    }

    /// With the prefix, as it is written everywhere.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hexadecimal digits alone, for file names.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    /// The first twelve digits: enough for people to tell plans apart, never enough for a comparison in code.
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest: expected `sha256:` and 64 lower case hexadecimal digits")]
pub struct ParseDigestError {
    text: String,
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseDigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.strip_prefix(PREFIX) {
            Some(hex) if hex.len() == HEX_LENGTH && hex.bytes().all(is_digit) => Ok(Self(text)),
            _ => Err(ParseDigestError { text }),
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_the_empty_input_is_the_known_one() {
        let known = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), known);
        assert_eq!(known.parse(), Ok(Digest::of(b"")));
    }

    #[test]
    fn text_that_is_no_digest_is_refused() {
        let upper = Digest::of(b"").as_str().to_uppercase();
        for text in ["", "sha256:", "sha256:é", "sha512:00", upper.as_str(), &format!("{}0", Digest::of(b""))] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
