//! JSON as programs in Go read it: keys in any case, the last of two counts, `null` is as if it were not there, and what is not
//! known is passed over.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};

/// A document of torcx that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("the {what} is no JSON: {reason} (line {line}, column {column})")]
    Syntax { what: &'static str, line: usize, column: usize, reason: String },
    #[error("the {what} has kind {found:?}, where this nodestrap reads {expected}")]
    Kind { what: &'static str, found: String, expected: &'static str },
    /// `place`: such as `'value.images' of the profile`.
    #[error("{place} is {found}, not {expected}")]
    Type { place: String, found: &'static str, expected: &'static str },
}

/// With the order of its keys, which says which of two counts.
#[derive(Debug)]
pub(super) enum Json {
    Null,
    Bool,
    /// Only whole numbers that cannot be negative are of use to anybody here.
    Number(Option<u64>),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// A value, and what it is called in messages.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    what: &'static str,
    path: String,
    value: &'a Json,
}

const NULL: &Json = &Json::Null;

pub(super) fn parse(what: &'static str, bytes: &[u8]) -> Result<Json, FormatError> {
    serde_json::from_slice(bytes).map_err(|error: serde_json::Error| {
        let text = error.to_string();
        let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
        FormatError::Syntax { what, line: error.line(), column: error.column(), reason }
    })
}

/// The `value` of a document of one of these kinds, and which of them it is. The word is compared as it is.
pub(super) fn open<'a>(
    what: &'static str,
    json: &'a Json,
    kinds: &[&'static str],
    expected: &'static str,
) -> Result<(&'static str, At<'a>), FormatError> {
    let root = At { what, path: String::new(), value: json };
    let kind = root.field("kind")?.text()?;
    match kinds.iter().find(|known| **known == kind) {
        Some(known) => Ok((*known, root.field("value")?)),
        None => Err(FormatError::Kind { what, found: kind, expected }),
    }
}

impl<'a> At<'a> {
    /// `null` where there is none.
    pub(super) fn field(&self, name: &str) -> Result<Self, FormatError> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let value = match self.value {
            Json::Null => NULL,
            Json::Object(fields) => {
                let mut found = fields.iter().rev().filter(|(key, _)| is_same_key(key, name));
                found.next().map_or(NULL, |(_, value)| value)
            }
            _ => return Err(self.mistyped("an object")),
        };
        Ok(Self { what: self.what, path, value })
    }

    /// Empty where there is none.
    pub(super) fn text(&self) -> Result<String, FormatError> {
        match self.value {
            Json::Null => Ok(String::new()),
            Json::Text(text) => Ok(text.clone()),
            _ => Err(self.mistyped("a text")),
        }
    }

    /// Where there must be one.
    pub(super) fn name(&self) -> Result<String, FormatError> {
        match self.value {
            Json::Null => Err(self.mistyped("a name")),
            _ => self.text(),
        }
    }

    /// `None` where there is none, or where it is no whole number.
    pub(super) fn number(&self) -> Option<u64> {
        match self.value {
            Json::Number(number) => *number,
            _ => None,
        }
    }

    /// Empty where there is none.
    pub(super) fn items(&self) -> Result<Vec<Self>, FormatError> {
        match self.value {
            Json::Null => Ok(Vec::new()),
            Json::List(items) => {
                let at = |(index, value)| Self { what: self.what, path: format!("{}[{index}]", self.path), value };
                Ok(items.iter().enumerate().map(at).collect())
            }
            _ => Err(self.mistyped("a list")),
        }
    }

    pub(super) fn texts(&self) -> Result<Vec<String>, FormatError> {
        self.items()?.iter().map(Self::text).collect()
    }

    fn mistyped(&self, expected: &'static str) -> FormatError {
        let found = match self.value {
            Json::Null => "nothing",
            Json::Bool => "true or false",
            Json::Number(_) => "a number",
            Json::Text(_) => "a text",
            Json::List(_) => "a list",
            Json::Object(_) => "an object",
        };
        let place = match self.path.is_empty() {
            true => format!("the {}", self.what),
            false => format!("'{}' of the {}", self.path, self.what),
        };
        FormatError::Type { place, found, expected }
    }
}

/// Two letters outside ASCII are an s and a k to Go.
fn is_same_key(one: &str, other: &str) -> bool {
    let fold = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        _ => c.to_ascii_lowercase(),
    };
    one.chars().map(fold).eq(other.chars().map(fold))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(Some(number)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Number(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Number(None))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            fields.push(entry);
        }
        Ok(Json::Object(fields))
    }
}
