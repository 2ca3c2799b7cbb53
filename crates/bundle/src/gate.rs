//! The gate: the environment file without which the kubelet does not start.
//!
//! `render_gate` gives its bytes in systemd's `EnvironmentFile` syntax, `check_gate` reads them back. The last line
//! carries the SHA-256 of everything before it, so that a file which a crash left empty, short or mixed with other
//! blocks is never taken for an open gate: any [`GateDamage`] means the gate is shut.

use std::collections::BTreeMap;

use crate::names::sha256_hex;

/// Where the gate of a node lies; the kubelet's unit reads it, and the bootstrap unit is skipped once it is there.
pub const GATE_PATH: &str = "/etc/kubernetes/kubelet.env";

/// The gate of the layout eksctl.
pub const EKSCTL_GATE_PATH: &str = "/etc/eksctl/kubelet.local.env";

/// All of them: nothing else is ever taken for a gate, or away as one.
pub const GATE_PATHS: [&str; 2] = [GATE_PATH, EKSCTL_GATE_PATH];

/// The variable of the last line; it seals what stands before it and is no part of the environment proper.
pub const SEAL: &str = "NODESTRAP_GATE";

const SEAL_PREFIX: &str = "NODESTRAP_GATE=sha256:";
const SEAL_LINE_BYTES: usize = SEAL_PREFIX.len() + 64 + 1;

/// Why a gate file counts as absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateDamage {
    #[error("the gate file is empty: run `nodestrap apply`, which writes it again")]
    Empty,
    #[error(
        "the gate file does not end with its seal, so it is cut short or foreign: run `nodestrap apply`, which writes it again"
    )]
    NoSeal,
    #[error(
        "the gate file was changed after it was written, its seal does not fit: run `nodestrap apply`, which writes it again"
    )]
    WrongSeal,
    #[error("the gate file is sealed but line {line} {problem}: run `nodestrap apply`, which writes it again")]
    Syntax { line: usize, problem: &'static str },
}

/// The bytes of the gate file.
///
/// Names must be those of environment variables and values free of control characters, as [`crate::Bundle::parse`]
/// ensures for the bundle's part: [`check_gate`] refuses anything else.
pub fn render_gate(environment: &BTreeMap<String, String>) -> Vec<u8> {
    let mut text = String::from(
        "# The kubelet starts only while this file is here and whole. Written last by `nodestrap apply`; not to be edited.\n",
    );
    // A second seal would make the last line ambiguous to readers that take the first assignment.
    for (name, value) in environment.iter().filter(|(name, _)| *name != SEAL) {
        write_variable(&mut text, name, value);
    }
    let seal = sha256_hex(text.as_bytes());
    text.push_str(SEAL_PREFIX);
    text.push_str(&seal);
    text.push('\n');
    text.into_bytes()
}

/// One line that systemd's `EnvironmentFile=` and a shell's `source` read alike. The value has no control characters.
pub fn write_variable(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    for character in value.chars() {
        // The characters that both treat specially inside double quotes.
        if matches!(character, '"' | '\\' | '`' | '$') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push_str("\"\n");
}

/// The environment of a whole gate file, without the seal.
pub fn check_gate(bytes: &[u8]) -> Result<BTreeMap<String, String>, GateDamage> {
    if bytes.is_empty() {
        return Err(GateDamage::Empty);
    }
    let Some((body, seal)) = bytes.split_at_checked(bytes.len().wrapping_sub(SEAL_LINE_BYTES)) else {
        return Err(GateDamage::NoSeal);
    };
    let whole_lines = body.is_empty() || body.ends_with(b"\n");
    if !whole_lines || !seal.starts_with(SEAL_PREFIX.as_bytes()) || !seal.ends_with(b"\n") {
        return Err(GateDamage::NoSeal);
    }
    // Compared as text, so that even the case of the digits cannot change unnoticed.
    if seal != format!("{SEAL_PREFIX}{}\n", sha256_hex(body)).as_bytes() {
        return Err(GateDamage::WrongSeal);
    }
    parse_environment(body).map_err(|(line, problem)| GateDamage::Syntax { line, problem })
}

/// The variables of an environment file that this crate wrote: a gate without its seal, or one of those that a layout
/// has beside it. The error is a line, counted from one, and what is wrong with it.
pub fn parse_environment(bytes: &[u8]) -> Result<BTreeMap<String, String>, (usize, &'static str)> {
    let text = std::str::from_utf8(bytes).map_err(|_| (1, "is not UTF-8"))?;
    let mut environment = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let wrong = |problem| (index + 1, problem);
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("has no '='"))?;
        if !is_variable_name(name) {
            return Err(wrong("has no name of a variable before the '='"));
        }
        let value = unquote(value).ok_or_else(|| wrong("has a value that is not properly quoted"))?;
        if environment.insert(name.to_owned(), value).is_some() {
            return Err(wrong("sets a variable for the second time"));
        }
    }
    Ok(environment)
}

/// A name that systemd accepts for an environment variable.
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The text of a double-quoted value; `None` unless it is exactly what `render_gate` writes.
fn unquote(quoted: &str) -> Option<String> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next()? {
                escaped @ ('"' | '\\' | '`' | '$') => value.push(escaped),
                _ => return None,
            },
            '"' | '`' | '$' => return None,
            control if control.is_control() => return None,
            plain => value.push(plain),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gate() -> BTreeMap<String, String> {
        BTreeMap::from([
            ("KUBELET_ARGS".to_owned(), "--config=/etc/kubernetes/kubelet.yaml --v=2".to_owned()),
            ("NODESTRAP_CLUSTER".to_owned(), "lab".to_owned()),
        ])
    }

    fn sealed(body: &str) -> Vec<u8> {
        format!("{body}{SEAL_PREFIX}{}\n", sha256_hex(body.as_bytes())).into_bytes()
    }

    #[test]
    fn variables_are_sorted_quoted_and_sealed() {
        let mut environment = gate();
        environment.extend([("A".to_owned(), "\"$x\\`".to_owned()), (SEAL.to_owned(), "forged".to_owned())]);
        let text = String::from_utf8(render_gate(&environment)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("# "));
        assert_eq!(lines[1], r#"A="\"\$x\\\`""#);
        assert_eq!(lines[2], r#"KUBELET_ARGS="--config=/etc/kubernetes/kubelet.yaml --v=2""#);
        assert_eq!(lines[3], r#"NODESTRAP_CLUSTER="lab""#);
        assert!(lines[4].starts_with("NODESTRAP_GATE=sha256:"));
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn every_truncation_is_damage() {
        let bytes = render_gate(&gate());
        assert_eq!(check_gate(&[]), Err(GateDamage::Empty));
        for length in 1..bytes.len() {
            assert!(check_gate(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn every_bit_flip_is_damage() {
        let bytes = render_gate(&gate());
        for position in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[position / 8] ^= 1 << (position % 8);
            assert!(check_gate(&damaged).is_err(), "bit {position}");
        }
    }

    #[test]
    fn what_a_crash_leaves_behind_is_damage() {
        let bytes = render_gate(&gate());
        let zeroes = vec![0; bytes.len()];
        let appended = [bytes.as_slice(), b"\0"].concat();
        let twice = [bytes.as_slice(), bytes.as_slice()].concat();
        let tail_zeroed = [&bytes[..bytes.len() / 2], &zeroes[bytes.len() / 2..]].concat();
        for damaged in [zeroes, appended, twice, tail_zeroed] {
            assert!(check_gate(&damaged).is_err());
        }
    }

    #[test]
    fn a_seal_does_not_excuse_bad_syntax() {
        assert_eq!(check_gate(&sealed("A=\"1\"\n")), Ok(BTreeMap::from([("A".to_owned(), "1".to_owned())])));
        for body in [
            "A\n",
            "=\"1\"\n",
            "1A=\"1\"\n",
            "A=1\n",
            "A=\"\n",
            "A=\"$x\"\n",
            "A=\"\\n\"\n",
            "A=\"\u{7}\"\n",
            "A=\"1\"\nA=\"1\"\n",
        ] {
            assert!(matches!(check_gate(&sealed(body)), Err(GateDamage::Syntax { .. })), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_rendered_is_read_back(
            environment in proptest::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", "[^\\p{Cc}]{0,20}", 0..6),
        ) {
            let mut expected = environment.clone();
            expected.remove(SEAL);
            prop_assert_eq!(check_gate(&render_gate(&environment)), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = check_gate(&bytes);
        }
    }
}
