//! Files: what is wanted of each, how one on a disk differs from it, and what it takes when it changes.

use std::collections::BTreeSet;

use super::reason::{Places, judge_file};
use super::{Aspect, Change, ChangeKind, Difference, Family, ValueChange};
use crate::bundle::{Bundle, File, octal};
use crate::values::file_changes;

pub struct Files;

/// A file as it was found. `owner` is left out where owners are not ours to judge.
pub enum Found<'a> {
    Absent,
    /// Such as "a folder".
    Other(String),
    File {
        mode: u32,
        owner: Option<(u32, u32)>,
        size: u64,
        /// `None` if there is more of it than is compared.
        content: Option<&'a [u8]>,
    },
}

/// Every file of a bundle belongs to root.
const OWNER: (u32, u32) = (0, 0);

/// All differences, the weightiest first. Contents of secrets are in none of them.
pub fn compare(wanted: &File, found: &Found<'_>) -> Vec<Difference> {
    // Nobody misses what was spent, and whoever put something there did so on purpose.
    if wanted.content.is_spent() {
        return Vec::new();
    }
    let path = wanted.path.as_str();
    let (mode, owner, size, content) = match found {
        Found::Absent => return vec![Difference::new(path, Aspect::Presence, "a file", "nothing")],
        Found::Other(what) => return vec![Difference::new(path, Aspect::Presence, "a file", what)],
        Found::File { mode, owner, size, content } => (*mode, *owner, *size, *content),
    };
    let mut differences: Vec<Difference> = compare_content(wanted, size, content).into_iter().collect();
    if mode != wanted.mode {
        differences.push(Difference::new(path, Aspect::Mode, octal::text(wanted.mode), octal::text(mode)));
    }
    if let Some(owner) = owner.filter(|owner| *owner != OWNER) {
        let text = |(uid, gid): (u32, u32)| format!("{uid}:{gid}");
        differences.push(Difference::new(path, Aspect::Owner, text(OWNER), text(owner)));
    }
    differences
}

fn compare_content(wanted: &File, size: u64, found: Option<&[u8]>) -> Option<Difference> {
    if found == Some(&*wanted.content) {
        return None;
    }
    let bytes = |count: u64| format!("{count} bytes");
    // The digest of a short secret could be guessed backwards, so a secret shows its size only.
    let values = match found {
        Some(found) if !wanted.is_secret() => file_changes(&wanted.path, &wanted.content, found),
        _ => Vec::new(),
    };
    let (expected, found) = match (wanted.is_secret(), values.len()) {
        (true, _) => ("secret, not shown".to_owned(), "other content".to_owned()),
        (false, 0) => (bytes(wanted.content.len() as u64), bytes(size)),
        (false, 1) => ("as rendered".to_owned(), "1 value differs".to_owned()),
        (false, count) => ("as rendered".to_owned(), format!("{count} values differ")),
    };
    Some(Difference { values, ..Difference::new(wanted.path.as_str(), Aspect::Content, expected, found) })
}

impl Family for Files {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let (old_places, new_places) = (Places::of(old), Places::of(new));
        let paths: BTreeSet<&str> = old.files.iter().chain(&new.files).map(|file| file.path.as_str()).collect();
        let changes = paths.into_iter().filter_map(|path| change(path, old.file(path), new.file(path)));
        changes.map(|change| Change { reasons: judge_file(&change, &old_places, &new_places), ..change }).collect()
    }
}

fn change(path: &str, old: Option<&File>, new: Option<&File>) -> Option<Change> {
    if old == new {
        return None;
    }
    let kind = ChangeKind::of(old, new)?;
    let secret = [old, new].into_iter().flatten().any(File::is_secret);
    let mut values = Vec::new();
    if let (Some(old), Some(new)) = (old, new) {
        if !secret {
            values = file_changes(path, &old.content, &new.content);
        }
        let modes = (old.mode != new.mode).then(|| (octal::text(old.mode), octal::text(new.mode)));
        values.extend(modes.map(|(old, new)| ValueChange {
            path: "(mode)".to_owned(),
            old: Some(old),
            new: Some(new),
        }));
    }
    let is_same_content = old.map(|file| &file.content) == new.map(|file| &file.content);
    let note = match (secret, kind, values.is_empty()) {
        (true, ..) => " (secret, not shown)",
        (false, ChangeKind::Changed, true) if is_same_content => " (the same content, read by others)",
        (false, ChangeKind::Changed, true) => " (the same values, spelt differently)",
        _ => "",
    };
    let (subject, note) = (path.to_owned(), note.to_owned());
    Some(Change { family: "file", subject, change: kind, values, secret, note, reasons: Vec::new() })
}
