//! The first line of a push.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

const FORMAT: &str = "nodestrap-push-v1";
/// A digest of 64 digits, two numbers and the names of the formats.
pub(super) const LONGEST: usize = 160;

/// What follows, and the mode of the folder itself. Two pushes with one heading are the same push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    pub digest: Digest,
    /// In bytes, of the tar.
    pub size: u64,
    /// Of the folder; permission bits only, and its owner can always use it.
    pub mode: u32,
}

/// Whoever sent this speaks something else, or is no nodestrap at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what was sent does not begin as a push of this version does ({FORMAT:?}): {why}")]
pub struct HeadingError {
    why: &'static str,
}

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORMAT} {} {} {:04o}", self.digest, self.size, self.mode)
    }
}

impl FromStr for Heading {
    type Err = HeadingError;

    fn from_str(line: &str) -> Result<Self, HeadingError> {
        let refused = |why| HeadingError { why };
        let words: Vec<&str> = line.split(' ').collect();
        let [FORMAT, digest, size, mode] = words[..] else {
            return Err(refused("it is not that word, a digest, a size and a mode"));
        };
        let heading = Self {
            digest: digest.parse().map_err(|_| refused("its digest is none"))?,
            size: size.parse().map_err(|_| refused("its size is no number"))?,
            mode: u32::from_str_radix(mode, 8).map_err(|_| refused("its mode is no octal number"))?,
        };
        if heading.mode & !0o777 != 0 || heading.mode & 0o700 != 0o700 {
            return Err(refused("its mode is none for a folder"));
        }
        // One text for one heading: what is compared later is what was read.
        match heading.to_string() == line {
            true => Ok(heading),
            false => Err(refused("it is not written as nodestrap writes it")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading() -> Heading {
        Heading { digest: Digest::Sha256([0xab; 32]), size: 10_240, mode: 0o750 }
    }

    #[test]
    fn a_heading_is_read_as_it_is_written() {
        let line = heading().to_string();
        assert_eq!(line.parse(), Ok(heading()));
        assert!(line.ends_with(" 10240 0750"), "{line}");
        let longest = Heading { size: u64::MAX, ..heading() };
        assert!(longest.to_string().len() < LONGEST);
    }

    #[test]
    fn anything_else_is_refused() {
        let line = heading().to_string();
        let others = [
            String::new(),
            "SSH-2.0-OpenSSH".to_owned(),
            line.replace("v1", "v2"),
            line.replace("0750", "750"),
            line.replace("0750", "4750"),
            line.replace("0750", "0550"),
            line.replace("10240", "+10240"),
            line.replace("10240", "-1"),
            line.replace("sha256", "md5"),
            format!("{line} "),
            format!("{line}\r"),
        ];
        for other in others {
            assert!(other.parse::<Heading>().is_err(), "{other:?}");
        }
    }
}
