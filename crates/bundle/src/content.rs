//! The bytes of a file, and what stands for them where they are not.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::{is_lower_hex, sha256_hex};

/// Bytes that do not change; copies share them, and their digest. Serialised they are their [`Sum`]: whoever carries the bytes
/// too adds them with [`Content::add_to`].
#[derive(Clone)]
pub struct Content(Arc<Known>);

struct Known {
    bytes: Vec<u8>,
    sha256: OnceLock<String>,
    /// How many bytes there were before they were taken away; then the digest is that of those.
    spent: Option<u64>,
}

/// What proves a content without being it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// Lower-case hexadecimal digits.
    pub sha256: String,
    pub size: u64,
}

/// A content with its bytes, as it is read: as text where it is text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    sha256: String,
    size: u64,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
    #[serde(default)]
    spent: bool,
}

impl Content {
    /// Lower-case hexadecimal digits.
    pub fn sha256(&self) -> &str {
        self.0.sha256.get_or_init(|| sha256_hex(&self.0.bytes))
    }

    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0.bytes).ok()
    }

    pub fn sum(&self) -> Sum {
        Sum { sha256: self.sha256().to_owned(), size: self.0.spent.unwrap_or(self.len() as u64) }
    }

    /// What is left of a secret that has done its work: its sum, and no bytes.
    pub fn spent(sum: Sum) -> Self {
        Self(Arc::new(Known { bytes: Vec::new(), sha256: OnceLock::from(sum.sha256), spent: Some(sum.size) }))
    }

    pub fn is_spent(&self) -> bool {
        self.0.spent.is_some()
    }

    /// The bytes beside their sum, for who carries both.
    pub(crate) fn add_to(&self, sum: &mut Value) {
        let (name, value) = match self.text() {
            _ if self.is_spent() => ("spent", Value::from(true)),
            Some(text) => ("text", Value::from(text)),
            None => ("base64", BASE64.encode(self).into()),
        };
        sum[name] = value;
    }
}

impl Written {
    /// The bytes, proved. Nothing of them is in an error: they may be a secret.
    pub(crate) fn prove(self) -> Result<Content, String> {
        let content: Content = match (self.text, self.base64, self.spent) {
            (None, None, true) if is_lower_hex(&self.sha256, 64) => {
                return Ok(Content::spent(Sum { sha256: self.sha256, size: self.size }));
            }
            (Some(text), None, false) => text.into(),
            (None, Some(encoded), false) => {
                BASE64.decode(encoded.as_bytes()).map_err(|_| "has content that is not base64".to_owned())?.into()
            }
            _ => return Err("must have its content either as 'text' or as 'base64'".to_owned()),
        };
        let found = content.sum();
        if found.size != self.size {
            return Err(format!("has {} bytes where {} are stated", found.size, self.size));
        }
        if found.sha256 != self.sha256 {
            return Err(format!("was changed, its SHA-256 is '{}', not '{}'", found.sha256, self.sha256));
        }
        Ok(content)
    }
}

impl Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.sum().serialize(serializer)
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
        Self(Arc::new(Known { bytes: bytes.into(), sha256: OnceLock::new(), spent: None }))
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let is_either_spent = self.is_spent() || other.is_spent();
        // Of what was spent the sum is all that is known.
        Arc::ptr_eq(&self.0, &other.0)
            || if is_either_spent { self.sum() == other.sum() } else { self.0.bytes == other.0.bytes }
    }
}

impl Eq for Content {}

/// It may be a secret.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_spent_keeps_its_sum_and_nothing_else() {
        let whole = Content::from("a token");
        let spent = Content::spent(whole.sum());
        assert!(spent.is_spent() && spent.is_empty() && !whole.is_spent());
        assert_eq!((spent.sum(), &spent), (whole.sum(), &whole));
        let mut json = serde_json::to_value(&spent).unwrap();
        spent.add_to(&mut json);
        let read = |json| serde_json::from_value::<Written>(json).unwrap().prove();
        assert!(read(json.clone()).unwrap().is_spent());
        json["text"] = "a token".into();
        assert!(read(json).is_err(), "either its bytes or none");
    }

    proptest! {
        #[test]
        fn content_is_read_back_from_json_and_a_changed_byte_is_noticed(
            bytes in proptest::collection::vec(any::<u8>(), 1..100),
            at in any::<prop::sample::Index>(),
        ) {
            let content = Content::from(bytes.clone());
            let mut json = serde_json::to_value(&content).unwrap();
            content.add_to(&mut json);
            let read = |json| serde_json::from_value::<Written>(json).unwrap().prove();
            prop_assert_eq!(read(json.clone()), Ok(content.clone()));
            let mut other = bytes;
            let at = at.index(other.len());
            other[at] ^= 1;
            let other = Content::from(other);
            prop_assert_ne!(&content, &other);
            let fields = json.as_object_mut().unwrap();
            fields.remove("text");
            fields.remove("base64");
            other.add_to(&mut json);
            prop_assert!(read(json).unwrap_err().contains("was changed"));
        }
    }
}
