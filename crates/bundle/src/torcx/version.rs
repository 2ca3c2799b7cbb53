//! Versions as others write them: the text is kept, and what has to be compared is known as numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// No version is near this, and a tag of an image must not be longer.
const MAX_BYTES: usize = 128;

/// A text that is no version, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}")]
pub struct InvalidVersion {
    pub what: &'static str,
    pub text: String,
    pub problem: &'static str,
}

/// A release of Kubernetes with all that a vendor adds to it: `v1.9.6+coreos.0`, `v1.31.4-eks-2d5f260`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KubernetesVersion {
    text: String,
    minor: Minor,
}

/// `1.10`: not a number, which would be 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Minor {
    pub major: u32,
    pub minor: u32,
}

impl KubernetesVersion {
    /// As an API server says it; the `v` may be missing.
    pub fn parse(text: &str) -> Result<Self, InvalidVersion> {
        let refuse = |problem| InvalidVersion { what: "the version of Kubernetes", text: text.to_owned(), problem };
        if text.len() > MAX_BYTES {
            return Err(refuse("has more than 128 bytes"));
        }
        if text.contains('_') {
            return Err(refuse("has a '_', which only the tag of an image has: write '+' there"));
        }
        let release = parse_release(text.strip_prefix('v').unwrap_or(text)).ok_or_else(|| {
            refuse("is not MAJOR.MINOR.PATCH with what a vendor adds after '-' or '+', such as v1.9.6+coreos.0")
        })?;
        Ok(Self { text: text.to_owned(), minor: release })
    }

    /// From the tag of an image, which must not have a `+`.
    pub fn from_tag(tag: &str) -> Result<Self, InvalidVersion> {
        let version = Self::parse(&tag.replace('_', "+"));
        version.map_err(|error| InvalidVersion {
            what: "the tag of the kubelet's image",
            text: tag.to_owned(),
            ..error
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn minor(&self) -> Minor {
        self.minor
    }

    /// The same as the tag of an image.
    pub fn tag(&self) -> String {
        self.text.replace('+', "_")
    }
}

/// By the rules of semantic versions.
fn parse_release(text: &str) -> Option<Minor> {
    let (text, build) = split_optional(text, '+');
    let (numbers, added) = split_optional(text, '-');
    let is_identifier = |one: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !one.is_empty() && one.bytes().all(is_known)
    };
    if !build.into_iter().chain(added).all(|part| part.split('.').all(is_identifier)) {
        return None;
    }
    let numbers: Vec<u32> = numbers.split('.').map(number).collect::<Option<_>>()?;
    match numbers.as_slice() {
        [major, minor, _patch] => Some(Minor { major: *major, minor: *minor }),
        _ => None,
    }
}

fn split_optional(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// One spelling only: no sign, no leading zero.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

impl FromStr for KubernetesVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        Self::parse(text)
    }
}

impl TryFrom<String> for KubernetesVersion {
    type Error = InvalidVersion;

    fn try_from(text: String) -> Result<Self, InvalidVersion> {
        Self::parse(&text)
    }
}

impl From<KubernetesVersion> for String {
    fn from(version: KubernetesVersion) -> Self {
        version.text
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for Minor {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let numbers = text.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
        let (major, minor) = numbers.ok_or_else(|| InvalidVersion {
            what: "the minor version",
            text: text.to_owned(),
            problem: "is not MAJOR.MINOR, such as 1.10",
        })?;
        Ok(Self { major, minor })
    }
}

impl TryFrom<String> for Minor {
    type Error = InvalidVersion;

    fn try_from(text: String) -> Result<Self, InvalidVersion> {
        text.parse()
    }
}

impl From<Minor> for String {
    fn from(minor: Minor) -> Self {
        minor.to_string()
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// A release of the operating system, as `VERSION_ID` and update_engine say it: `2512.1.0`. Compared number by number, however
/// many there are; it becomes the name of a folder and a part of an address, so nothing else is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OsVersion {
    /// Without zeros at the end.
    numbers: Vec<u64>,
    text: String,
}

impl OsVersion {
    pub fn parse(text: &str) -> Result<Self, InvalidVersion> {
        let refuse =
            |problem| InvalidVersion { what: "the version of the operating system", text: text.to_owned(), problem };
        if text.len() > MAX_BYTES {
            return Err(refuse("has more than 128 bytes"));
        }
        // Builds of developers say when they were made.
        let (release, build) = split_optional(text, '+');
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        // Some write a month with a zero before it.
        let digits = |one: &str| if one.bytes().all(|byte| byte.is_ascii_digit()) { one.parse().ok() } else { None };
        let numbers: Option<Vec<u64>> = release.split('.').map(digits).collect();
        let is_well = build.is_none_or(|build| !build.is_empty() && build.bytes().all(is_known));
        let Some(mut numbers) = numbers.filter(|_| is_well) else {
            return Err(refuse("is not numbers with dots between them, such as 2512.1.0"));
        };
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        if numbers.is_empty() {
            return Err(refuse(
                "is no version: update_engine says so when it was restarted and has forgotten which it is",
            ));
        }
        Ok(Self { numbers, text: text.to_owned() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// By its numbers alone.
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.is_below(&other.numbers)
    }

    pub(super) fn is_below(&self, numbers: &[u64]) -> bool {
        self.numbers.as_slice() < numbers
    }
}

impl FromStr for OsVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        Self::parse(text)
    }
}

impl TryFrom<String> for OsVersion {
    type Error = InvalidVersion;

    fn try_from(text: String) -> Result<Self, InvalidVersion> {
        Self::parse(&text)
    }
}

impl From<OsVersion> for String {
    fn from(version: OsVersion) -> Self {
        version.text
    }
}

impl fmt::Display for OsVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}
