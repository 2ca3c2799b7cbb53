//! Names that become paths, units and proofs on a node: valid by construction, so that nobody has to look again.

use std::fmt;
use std::ops::Deref;
use std::path::Path;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A text that cannot be the name in question, and why. The text itself is no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}")]
pub struct InvalidName {
    pub what: &'static str,
    pub text: String,
    pub problem: &'static str,
}

/// A text with a rule, which reads like a `str`.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                match $check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(problem) => Err(InvalidName { what: $what, text, problem }),
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Where something lies on a node: one spelling only, and it cannot leave the root.
    AbsolutePath,
    "the path",
    check_path
);
name!(
    /// The full name of a systemd unit of a type that a bundle may start, such as `kubelet.service`.
    UnitName,
    "the unit",
    check_unit_name
);
name!(
    /// `sha256:` and 64 lower-case hexadecimal digits.
    Digest,
    "the digest",
    check_digest
);

name!(
    /// `sha256:` or `sha512:` and as many lower-case hexadecimal digits.
    ArtefactDigest,
    "the digest",
    check_artefact_digest
);
name!(
    /// Where something lies within a folder that may be moved: one spelling only, and it cannot leave the folder.
    RelativePath,
    "the path",
    check_relative_path
);

/// Types of unit that a bundle may start.
pub const UNIT_SUFFIXES: [&str; 6] = [".service", ".socket", ".target", ".timer", ".mount", ".path"];

fn check_path(path: &str) -> Result<(), &'static str> {
    match path.strip_prefix('/') {
        None => Err("is not absolute"),
        Some(_) if path.chars().any(char::is_control) => Err("has a control character"),
        Some(rest) if rest.split('/').any(|part| part == "..") => Err("has a '..' in it"),
        Some(rest) if rest.split('/').any(|part| part.is_empty() || part == ".") => {
            Err("has an empty or '.' part in it")
        }
        Some(_) => Ok(()),
    }
}

fn check_unit_name(name: &str) -> Result<(), &'static str> {
    let stem = UNIT_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":_.\\@-".contains(&byte);
    match stem {
        Some(stem) if !stem.is_empty() && name.len() < 256 && stem.bytes().all(allowed) => Ok(()),
        _ => Err("is no name of a unit"),
    }
}

fn check_digest(text: &str) -> Result<(), &'static str> {
    match text.strip_prefix(Digest::PREFIX) {
        Some(digits) if is_lower_hex(digits, 64) => Ok(()),
        _ => Err("is not 'sha256:' and 64 lower-case hexadecimal digits"),
    }
}

fn check_artefact_digest(text: &str) -> Result<(), &'static str> {
    match text.split_once(':') {
        Some(("sha256", digits)) if is_lower_hex(digits, 64) => Ok(()),
        Some(("sha512", digits)) if is_lower_hex(digits, 128) => Ok(()),
        _ => Err("is neither 'sha256:' with 64 nor 'sha512:' with 128 lower-case hexadecimal digits"),
    }
}

fn check_relative_path(path: &str) -> Result<(), &'static str> {
    if path.starts_with('/') {
        return Err("is not relative");
    }
    check_path(&format!("/{path}"))
}

pub fn is_lower_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl AbsolutePath {
    /// A path of ours.
    pub(crate) fn known(path: &'static str) -> Self {
        debug_assert!(check_path(path).is_ok(), "{path} is a path of ours");
        Self(path.to_owned())
    }

    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The folders above, innermost first, without `/`.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.rmatch_indices('/').map(|(at, _)| &self.0[..at]).filter(|folder| !folder.is_empty())
    }

    /// Whether it is that file or folder, or lies within it.
    pub fn is_within(&self, place: &str) -> bool {
        let rest = self.0.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || place.ends_with('/'))
    }
}

impl AsRef<Path> for AbsolutePath {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}

impl Digest {
    const PREFIX: &'static str = "sha256:";

    pub fn of(bytes: &[u8]) -> Self {
        Self([Self::PREFIX, &sha256_hex(bytes)].concat())
    }

    /// Without the prefix.
    pub fn hex(&self) -> &str {
        &self.0[Self::PREFIX.len()..]
    }
}

impl ArtefactDigest {
    /// Without the name of the algorithm.
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, digits)| digits)
    }
}

/// 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// Text that must not reach a log or a terminal: no `Display`, a `Debug` that says nothing, and one method whose name can be
/// searched for. It is serialised as it is, because a bundle is a secret itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for writing it to a file of mode 0600 and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Containers with a derived `Debug` need one; it never shows the text.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling_and_stays_under_the_root() {
        for good in ["/a", "/etc/kubernetes/kubelet.yaml", "/with blank"] {
            assert!(AbsolutePath::new(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("a", "absolute"),
            ("", "absolute"),
            ("/", "empty"),
            ("/a/", "empty"),
            ("//a", "empty"),
            ("/./a", "'.'"),
            ("/a/../b", "'..'"),
            ("/a\nb", "control"),
        ] {
            let refused = AbsolutePath::new(bad).unwrap_err().to_string();
            assert!(refused.starts_with("the path ") && refused.contains(why), "{refused}");
        }
        let path = AbsolutePath::new("/a/b/c").unwrap();
        assert_eq!(path.folders().collect::<Vec<_>>(), ["/a/b", "/a"]);
        assert!(path.is_within("/a/b") && path.is_within("/a/") && !path.is_within("/a/bc"));
    }

    #[test]
    fn units_have_a_type_and_digests_their_prefix() {
        assert!(UnitName::new("snap.kubelet-eks.daemon.service").is_ok());
        for bad in ["", "a", ".service", "a b.service", "a/b.service", "a.slice"] {
            assert!(UnitName::new(bad).is_err(), "{bad}");
        }
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(Digest::new(digest.hex()).is_err() && Digest::new(digest.as_str()).is_ok());
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "[secret]");
    }
}
