//! What an artefact is described by: valid by construction, because names become paths and places are fetched from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that cannot be the value in question, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}")]
pub struct InvalidValue {
    pub what: &'static str,
    pub text: String,
    pub problem: String,
}

/// Longer than any that we have seen by a factor of two; a bound, because each becomes part of a path.
const MAX_NAME: usize = 64;
const MAX_PATH: usize = 512;
const MAX_PLACE: usize = 2048;
/// Where fetch can get bytes from.
const SCHEMES: [&str; 4] = ["https", "http", "s3", "file"];

/// A text with a rule.
macro_rules! value {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidValue> {
                let text = text.into();
                match $check(&text) {
                    Ok(()) => Ok(Self(text)),
                    Err(problem) => {
                        let text = text.chars().take(MAX_NAME).collect();
                        Err(InvalidValue { what: $what, text, problem: problem.to_string() })
                    }
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidValue;

            fn try_from(text: String) -> Result<Self, InvalidValue> {
                Self::new(text)
            }
        }

        impl FromStr for $name {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

value!(
    /// What an artefact is: `kubelet`, `cni-plugins`.
    ArtefactName,
    "the name",
    check_name
);
value!(
    /// As its makers write it, mostly without the `v`: `1.34.2`, `1.9.6+coreos.0`.
    Version,
    "the version",
    check_version
);
value!(
    /// An operating system by the word that a spec has for it: `debian`, `flatcar`.
    OsName,
    "the operating system",
    check_name
);
value!(
    /// `sha256:` or `sha512:` and lower-case hexadecimal digits.
    Digest,
    "the digest",
    check_digest
);
value!(
    /// An executable within an archive (`bin/containerd`), or the name of one that comes alone (`kubelet`).
    ProgramPath,
    "the program",
    check_relative_path
);
value!(
    /// Where an artefact can be had: relative to the store's address, or an address of its own.
    Place,
    "the place",
    check_place
);

value!(
    /// What an extension says about the systems that it fits: `flatcar`, `1.0`, `x86-64`.
    ReleaseWord,
    "the word of an extension-release",
    check_release_word
);

/// Words that are known when nodestrap is built.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }
        }

        impl FromStr for $name {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| InvalidValue {
                    what: $what,
                    text: text.chars().take(MAX_NAME).collect(),
                    problem: format!("is not one of {}", [$($text),+].join(", ")),
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words!(
    /// What a program was compiled for.
    Architecture, "the architecture" {
        Amd64 = "amd64",
        Arm64 = "arm64",
    }
);
words!(
    /// What the nodes that an artefact is made for do.
    Role, "the role" {
        ControlPlane = "control-plane",
        Worker = "worker",
    }
);
words!(
    /// What the bytes of an artefact are.
    Form, "the form" {
        /// The executable itself.
        Program = "program",
        TarGz = "tar.gz",
        /// An image of a system extension.
        Sysext = "sysext",
    }
);
words!(
    /// How a digest was computed; nothing weaker is read.
    DigestAlgorithm, "the algorithm" {
        Sha256 = "sha256",
        Sha512 = "sha512",
    }
);

fn check_name(text: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    check_word(text, allowed, "has something else than lower-case letters, digits, '.', '_' and '-'")
}

fn check_version(text: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'~');
    check_word(text, allowed, "has something else than letters, digits, '.', '_', '-', '+' and '~'")
}

/// As in os-release; `_any` is one, too.
fn check_release_word(text: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'~');
    let rest = text.strip_prefix('_').unwrap_or(text);
    check_word(rest, allowed, "has something else than letters, digits, '.', '_', '-', '+' and '~'")
}

/// It must be safe as part of a path and of an option of a program.
fn check_word(text: &str, allowed: fn(u8) -> bool, otherwise: &'static str) -> Result<(), &'static str> {
    match text.as_bytes() {
        [] => Err("is empty"),
        bytes if bytes.len() > MAX_NAME => Err("is longer than 64 characters"),
        bytes if !bytes.iter().all(|byte| allowed(*byte)) => Err(otherwise),
        [first, ..] if !first.is_ascii_alphanumeric() => Err("does not begin with a letter or a digit"),
        _ => Ok(()),
    }
}

fn check_digest(text: &str) -> Result<(), &'static str> {
    let (algorithm, hex) = text.split_once(':').ok_or("does not begin with 'sha256:' or 'sha512:'")?;
    let digits = match algorithm {
        "sha256" => 64,
        "sha512" => 128,
        _ => return Err("does not begin with 'sha256:' or 'sha512:'"),
    };
    match hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        true if hex.len() == digits => Ok(()),
        true => Err("has another number of digits than its algorithm gives"),
        false => Err("has something else than lower-case hexadecimal digits"),
    }
}

/// One spelling, and no way out of where it is relative to.
fn check_relative_path(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.len() > MAX_PATH {
        return Err("is longer than 512 characters");
    }
    if text.starts_with('/') {
        return Err("is absolute: it must be relative");
    }
    if text.chars().any(|character| character.is_control() || character.is_whitespace() || "\\?#%".contains(character))
    {
        return Err("has white space, a control character, or one of '\\', '?', '#', '%'");
    }
    match text.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("") => Err("has an empty part"),
        Some(".") => Err("has a part '.'"),
        Some(_) => Err("has a part '..'"),
        None => Ok(()),
    }
}

fn check_place(text: &str) -> Result<(), &'static str> {
    let Some((scheme, rest)) = text.split_once("://") else { return check_relative_path(text) };
    if !SCHEMES.contains(&scheme) {
        return Err("is no address of https, http, s3 or file");
    }
    if text.len() > MAX_PLACE {
        return Err("is longer than 2048 characters");
    }
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\#\"<>`{}|^".contains(&byte)) {
        return Err("has white space, '#', or a character that an address must encode");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err("has a user or password: a manifest is public, give credentials to the store");
    }
    match (scheme, authority.is_empty()) {
        ("file", false) => Err("names a host: write file:///path"),
        ("file", true) | (_, false) if path.is_empty() => Err("names no file"),
        ("https" | "http" | "s3", true) => Err("has no host"),
        _ if path.split('/').any(|part| matches!(part, "." | "..")) => Err("has a part '.' or '..'"),
        _ => Ok(()),
    }
}

impl Digest {
    pub fn algorithm(&self) -> DigestAlgorithm {
        if self.0.starts_with("sha512:") { DigestAlgorithm::Sha512 } else { DigestAlgorithm::Sha256 }
    }

    /// Without the algorithm.
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, hex)| hex)
    }
}

impl ProgramPath {
    /// Its last part: what the program is called.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl Place {
    pub fn is_relative(&self) -> bool {
        !self.0.contains("://")
    }

    /// The whole address, given that of the store.
    pub fn within(&self, store: &str) -> String {
        if self.is_relative() { format!("{}/{}", store.trim_end_matches('/'), self.0) } else { self.0.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_safe_in_paths_and_on_command_lines() {
        for good in ["kubelet", "cni-plugins", "cri-o", "a.b_c", "0"] {
            assert!(ArtefactName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "Kubelet", "-a", ".a", "..", "a/b", "a b", "ä", "a\0", &"a".repeat(65)] {
            assert!(ArtefactName::new(bad).is_err(), "{bad:?}");
        }
        for good in ["1.34.2", "v1.9.6+coreos.0", "1.2~rc1", "2.0.0-rc.1"] {
            assert!(Version::new(good).is_ok(), "{good}");
        }
        for bad in ["", "..", "-1", "1/2", "1 2", "1:2"] {
            assert!(Version::new(bad).is_err(), "{bad:?}");
        }
        let refused = ArtefactName::new("Kubelet").unwrap_err().to_string();
        assert!(refused.starts_with("the name \"Kubelet\" has something else than lower-case"), "{refused}");
    }

    #[test]
    fn digests_are_of_two_algorithms_and_have_all_their_digits() {
        let digest = Digest::new(format!("sha512:{}", "0f".repeat(64))).unwrap();
        assert_eq!((digest.algorithm(), digest.hex().len()), (DigestAlgorithm::Sha512, 128));
        assert_eq!(Digest::new(format!("sha256:{}", "a".repeat(64))).unwrap().algorithm(), DigestAlgorithm::Sha256);
        for (bad, why) in [
            (String::new(), "begin"),
            ("a".repeat(64), "begin"),
            (format!("md5:{}", "a".repeat(32)), "begin"),
            (format!("sha1:{}", "a".repeat(40)), "begin"),
            (format!("sha256:{}", "a".repeat(63)), "number"),
            (format!("sha512:{}", "a".repeat(64)), "number"),
            (format!("sha256:{}", "A".repeat(64)), "lower-case"),
        ] {
            let refused = Digest::new(bad).unwrap_err();
            assert!(refused.problem.contains(why), "{refused}");
        }
    }

    #[test]
    fn programs_stay_within_their_archive() {
        assert_eq!(ProgramPath::new("bin/containerd").unwrap().name(), "containerd");
        assert_eq!(ProgramPath::new("kubelet").unwrap().name(), "kubelet");
        for bad in ["", "/bin/a", "../a", "a/../b", "./a", "a//b", "a/", "a b", "a\nb", "a\\b"] {
            assert!(ProgramPath::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn places_are_relative_to_the_store_or_addresses_without_credentials() {
        let relative = Place::new("kubelet/1.34.2/amd64/kubelet").unwrap();
        assert_eq!(relative.within("s3://bucket/a/"), "s3://bucket/a/kubelet/1.34.2/amd64/kubelet");
        let address = Place::new("https://mirror.example:8443/a/b?x=1").unwrap();
        assert_eq!(address.within("s3://bucket"), "https://mirror.example:8443/a/b?x=1");
        assert!(Place::new("file:///srv/a").is_ok() && Place::new("s3://bucket/a").is_ok());
        for (bad, why) in [
            ("", "empty"),
            ("/a", "absolute"),
            ("../a", "'..'"),
            ("a?b", "'?'"),
            ("ftp://a/b", "https"),
            ("https://", "host"),
            ("https:///a", "host"),
            ("https://host", "no file"),
            ("file:///", "no file"),
            ("file://host/a", "names a host"),
            ("https://me:secret@host/a", "credentials"),
            ("https://host/a/../b", "'..'"),
            ("https://host/a b", "white space"),
            ("https://host/a#b", "'#'"),
        ] {
            let refused = Place::new(bad).expect_err(bad);
            assert!(refused.problem.contains(why), "{refused}");
        }
    }
}
