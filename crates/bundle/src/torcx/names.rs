//! Names that become names of files, references of torcx and parts of addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::InvalidName;

const MAX_BYTES: usize = 128;
/// torcx takes other suffixes for squashfs, which nodestrap does not write.
const ARCHIVE_SUFFIX: &str = ".torcx.tgz";

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                match check(&text) {
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

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

name!(
    /// An addon of torcx, such as `docker`.
    AddonName,
    "the addon"
);
name!(
    /// Which version of an addon; torcx calls it a reference. `17.03` is a text.
    AddonVersion,
    "the version of the addon"
);
name!(
    /// What the machine is to the operating system, such as `amd64-usr`.
    Board,
    "the board"
);
name!(
    /// A profile of torcx, without the suffix of its file.
    ProfileName,
    "the profile"
);

/// All of them are part of a file's name, and no part of an address has to be escaped.
fn check(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("is empty"),
        _ if text.starts_with('.') => Err("begins with a dot"),
        _ if text.len() > MAX_BYTES => Err("has more than 128 bytes"),
        _ if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) => {
            Err("has a character that is no ASCII letter, digit, '.', '_' or '-'")
        }
        _ => Ok(()),
    }
}

impl Board {
    /// Of an operating system that does not say: by the processor, as systemd calls it (`x86-64`) or others do (`amd64`).
    pub fn of_architecture(architecture: &str) -> Option<Self> {
        match architecture {
            "x86-64" | "amd64" | "x86_64" => Some(Self("amd64-usr".to_owned())),
            "arm64" | "aarch64" => Some(Self("arm64-usr".to_owned())),
            _ => None,
        }
    }
}

/// What torcx looks for in a store: `docker:17.03.torcx.tgz`.
pub fn archive_name(name: &AddonName, version: &AddonVersion) -> String {
    format!("{name}:{version}{ARCHIVE_SUFFIX}")
}
