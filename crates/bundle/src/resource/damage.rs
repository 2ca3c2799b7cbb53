//! Whether a file can still be what somebody wanted it to be, told without its content: by its sum and its format.
//!
//! Nobody writes an empty file, zero bytes or half a document over the configuration of a kubelet: that is damage, and what
//! was there is put back. Anything else may be the work of a person, and is left to them.

use super::file::Found;
use crate::bundle::octal;
use crate::format::Format;
use crate::manifest::FileDigest;
use crate::names::sha256_hex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    AsWritten,
    /// Changed by somebody, in a few words.
    Drift(String),
    /// Nothing that its reader could use, in a few words.
    Damage(String),
}

pub fn judge(known: &FileDigest, found: &Found<'_>) -> Judgement {
    let (mode, size, content) = match found {
        Found::Absent => return Judgement::Damage("it is missing".to_owned()),
        // Of a link only its reader knows where it leads.
        Found::Other(what) if what.starts_with("a link") => return Judgement::Drift(format!("it is {what}")),
        Found::Other(what) => return Judgement::Damage(format!("it is {what}")),
        Found::File { mode, size, content, .. } => (*mode, *size, *content),
    };
    let is_as_written = |content: &[u8]| sha256_hex(content) == known.sha256;
    match content {
        Some(content) if is_as_written(content) && mode == known.mode => Judgement::AsWritten,
        Some(content) if is_as_written(content) => {
            Judgement::Drift(format!("its mode is {}, not {}", octal::text(mode), octal::text(known.mode)))
        }
        Some([]) => Judgement::Damage("it is empty".to_owned()),
        Some(content) if content.iter().all(|byte| *byte == 0) => {
            Judgement::Damage("there is nothing but zero bytes in it".to_owned())
        }
        Some(content) if known.format != Format::Binary && content.contains(&0) => {
            Judgement::Damage("there are zero bytes in it".to_owned())
        }
        Some(content) if !known.format.can_read(content) => {
            Judgement::Damage(format!("it cannot be read as {}", known.format.as_str()))
        }
        _ => Judgement::Drift(format!("its content was changed ({size} bytes, {} were written)", known.size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::File;
    use crate::names::AbsolutePath;

    const WANTED: &str = "kind: KubeletConfiguration\nmaxPods: 110\n";

    fn judged(wanted: &[u8], found: &Found<'_>) -> Judgement {
        let file = File::public(AbsolutePath::known("/etc/kubernetes/kubelet.yaml"), wanted);
        judge(&FileDigest::of(&file, "/etc/kubernetes/manifests/"), found)
    }

    fn file(content: &[u8]) -> Found<'_> {
        Found::File { mode: 0o644, owner: None, size: content.len() as u64, content: Some(content) }
    }

    #[track_caller]
    fn assert_damage(found: &Found<'_>, words: &str) {
        match judged(WANTED.as_bytes(), found) {
            Judgement::Damage(what) if what.contains(words) => {}
            other => panic!("{words:?} is damage, not {other:?}"),
        }
    }

    #[track_caller]
    fn assert_drift(wanted: &str, found: &Found<'_>, words: &str) {
        match judged(wanted.as_bytes(), found) {
            Judgement::Drift(what) if what.contains(words) => {}
            other => panic!("{words:?} is drift, not {other:?}"),
        }
    }

    #[test]
    fn what_nobody_would_write_is_damage() {
        assert_damage(&Found::Absent, "missing");
        assert_damage(&Found::Other("a folder".to_owned()), "a folder");
        assert_damage(&file(b""), "empty");
        assert_damage(&file(&[0; 41]), "zero bytes");
        assert_damage(&file(b"kind: KubeletConfiguration\nmaxPods: \0\0\0\0"), "zero bytes");
        assert_damage(&file(b"kind: [KubeletConf"), "cannot be read as YAML");
        assert_damage(&file(b"\xff\xfe\xfd"), "cannot be read as YAML");
    }

    #[test]
    fn what_somebody_may_have_meant_is_drift() {
        assert_drift(WANTED, &file(b"kind: KubeletConfiguration\nmaxPods: 50\n"), "was changed");
        assert_drift(WANTED, &file(b"# tonight\nkind: KubeletConfiguration\nmaxPods: 110\n"), "was changed");
        assert_drift(WANTED, &Found::Other("a link to /etc/mine.yaml".to_owned()), "a link to");
        let long = Found::File { mode: 0o644, owner: None, size: 1 << 30, content: None };
        assert_drift(WANTED, &long, "1073741824 bytes");
        let tight = Found::File { mode: 0o600, owner: None, size: 41, content: Some(WANTED.as_bytes()) };
        assert_drift(WANTED, &tight, "0600, not 0644");
        // What was never YAML cannot break.
        assert_drift("plain words", &file(b"other words"), "was changed");
    }

    #[test]
    fn a_file_as_it_was_written_is_neither_even_if_it_is_empty_or_binary() {
        for content in [WANTED.as_bytes(), b"", b"a\0b"] {
            assert_eq!(judged(content, &file(content)), Judgement::AsWritten);
        }
        assert!(matches!(judged(b"a\0b", &file(b"a\0c")), Judgement::Drift(_)), "zero bytes are part of what it is");
        assert!(matches!(judged(b"a\0b", &file(b"\0\0\0")), Judgement::Damage(_)));
    }
}
