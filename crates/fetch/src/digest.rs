//! By what bytes are known: a SHA-256 or a SHA-512, and nothing weaker.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256, Sha512};

/// Read at once.
const PIECE: usize = 128 * 1024;

/// Written as `sha256:HEX` or `sha512:HEX`, in lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Digest {
    Sha256([u8; 32]),
    Sha512([u8; 64]),
}

/// No digest that anything could be verified by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// Also `md5:` and `sha1:`: whoever can make two files of one digest decides what is fetched.
    #[error("{text:?} is no digest: write sha256: with 64 or sha512: with 128 hexadecimal digits")]
    Algorithm { text: String },
    #[error("{text:?} is no digest: {algorithm} has {wanted} hexadecimal digits in lower case")]
    Digits { text: String, algorithm: &'static str, wanted: usize },
}

impl Digest {
    /// `sha256` or `sha512`.
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::Sha512(_) => "sha512",
        }
    }

    /// Without the algorithm: 64 or 128 digits in lower case.
    pub fn hex(&self) -> String {
        match self {
            Self::Sha256(sum) => HEXLOWER.encode(sum),
            Self::Sha512(sum) => HEXLOWER.encode(sum),
        }
    }

    /// Of bytes that are in memory, by the algorithm of this one: whether they are the right ones.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        let mut hasher = Hasher::like(self);
        hasher.update(bytes);
        hasher.finish() == *self
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        if let Some(digits) = text.strip_prefix("sha256:") {
            return Ok(Self::Sha256(sum(text, digits, "sha256")?));
        }
        match text.strip_prefix("sha512:") {
            Some(digits) => Ok(Self::Sha512(sum(text, digits, "sha512")?)),
            None => Err(DigestError::Algorithm { text: text.to_owned() }),
        }
    }
}

fn sum<const N: usize>(text: &str, digits: &str, algorithm: &'static str) -> Result<[u8; N], DigestError> {
    let decoded = HEXLOWER.decode(digits.as_bytes()).ok().and_then(|bytes| <[u8; N]>::try_from(bytes).ok());
    decoded.ok_or_else(|| DigestError::Digits { text: text.to_owned(), algorithm, wanted: 2 * N })
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Digest {
    /// Whether these are the digest's bytes, read to their end.
    pub fn is_of_all(&self, reader: &mut dyn Read) -> io::Result<bool> {
        let (mut hasher, mut piece) = (Hasher::like(self), vec![0; PIECE]);
        loop {
            match reader.read(&mut piece) {
                Ok(0) => return Ok(hasher.finish() == *self),
                Ok(length) => hasher.update(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A digest in the making.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// By the same algorithm.
    pub(crate) fn like(digest: &Digest) -> Self {
        match digest {
            Digest::Sha256(_) => Self::Sha256(Sha256::new()),
            Digest::Sha512(_) => Self::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest::Sha256(hasher.finalize().into()),
            Self::Sha512(hasher) => Digest::Sha512(hasher.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_256: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_read_and_written_as_one_text_and_tells_its_bytes_from_others() {
        let digest: Digest = EMPTY_256.parse().unwrap();
        assert_eq!(digest.to_string(), EMPTY_256);
        assert!(digest.is_of(b"") && !digest.is_of(b"x"));
        let long = format!("sha512:{}", "ab".repeat(64));
        assert_eq!(long.parse::<Digest>().unwrap().to_string(), long);
    }

    #[test]
    fn weaker_algorithms_other_lengths_and_capitals_are_refused() {
        let md5 = "md5:d41d8cd98f00b204e9800998ecf8427e".parse::<Digest>().unwrap_err();
        assert!(md5.to_string().contains("sha256:"), "{md5}");
        for text in ["", "sha256:", "sha1:da39a3ee", &EMPTY_256[..70], &EMPTY_256.replace("e3b0", "E3B0")] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        assert!(format!("sha512:{}", &EMPTY_256[7..]).parse::<Digest>().is_err());
    }
}
