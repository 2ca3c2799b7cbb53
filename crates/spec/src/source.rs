//! The text the user gave, positions in it, and what of it may be shown.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::mistake::{Mistake, Severity};
use crate::origin::Position;

/// A file of the user, already read.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// As the user wrote it; shown in mistakes and origins.
    pub name: String,
    pub text: String,
}

impl Source {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// For bytes straight from a file: a YAML file must be UTF-8.
    pub fn from_bytes(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self, Mistake> {
        let name = name.into();
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text }),
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let before = String::from_utf8_lossy(valid);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                Err(Mistake {
                    severity: Severity::Error,
                    file: name,
                    line: number(line),
                    column: number(column),
                    length: 1,
                    message: "the file is not UTF-8 text".to_owned(),
                    advice: None,
                    // The line is not shown: it is not text.
                    source: String::new(),
                })
            }
        }
    }
}

/// A stretch of a source; lines and columns are one-based, the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) file: usize,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) end_line: u32,
    pub(crate) end_column: u32,
}

pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// From file, line and column of a start to line and column of its end.
type Ends = BTreeMap<(usize, u32, u32), (u32, u32)>;

/// All sources of one run, with the places that must never be shown.
pub(crate) struct Sources {
    files: Vec<Source>,
    /// Files that are not well-formed YAML: where their secrets are is not known, so more is hidden.
    malformed: RefCell<Vec<usize>>,
    secrets: RefCell<Vec<Span>>,
    /// Where the value that begins at a position ends, so that a `Position` alone can be underlined later.
    ends: RefCell<Ends>,
}

impl Sources {
    pub(crate) fn new(files: &[Source]) -> Self {
        Self {
            files: files.to_vec(),
            malformed: RefCell::default(),
            secrets: RefCell::default(),
            ends: RefCell::default(),
        }
    }

    pub(crate) fn files(&self) -> &[Source] {
        &self.files
    }

    pub(crate) fn name(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |source| &source.name)
    }

    pub(crate) fn hide(&self, span: Span) {
        self.secrets.borrow_mut().push(span);
    }

    pub(crate) fn mark_malformed(&self, file: usize) {
        self.malformed.borrow_mut().push(file);
    }

    pub(crate) fn is_malformed(&self) -> bool {
        !self.malformed.borrow().is_empty()
    }

    pub(crate) fn position(&self, span: Span) -> Position {
        self.ends.borrow_mut().insert((span.file, span.line, span.column), (span.end_line, span.end_column));
        Position { file: self.name(span.file).to_owned(), line: span.line, column: span.column }
    }

    /// The span that `position` was made of.
    pub(crate) fn span(&self, position: &Position) -> Span {
        let file = self.files.iter().position(|source| source.name == position.file).unwrap_or_default();
        let (line, column) = (position.line, position.column);
        let (end_line, end_column) =
            self.ends.borrow().get(&(file, line, column)).copied().unwrap_or((line, column.saturating_add(1)));
        Span { file, line, column, end_line, end_column }
    }

    pub(crate) fn mistake(&self, severity: Severity, span: Span, message: &str, advice: Option<&str>) -> Mistake {
        let line = self.shown_line(span.file, span.line);
        let rest_of_line = number(line.chars().count()).saturating_sub(span.column.saturating_sub(1));
        let length = if span.end_line > span.line { rest_of_line } else { span.end_column.saturating_sub(span.column) };
        Mistake {
            severity,
            file: self.name(span.file).to_owned(),
            line: span.line,
            column: span.column,
            length: length.min(rest_of_line).max(1),
            message: printable(message),
            advice: advice.map(printable),
            source: line,
        }
    }

    /// A line as it may be shown: secrets as `•`, control characters (terminal escapes) as a space or `�`.
    fn shown_line(&self, file: usize, line: u32) -> String {
        let Some(source) = self.files.get(file) else { return String::new() };
        let text = source.text.split('\n').nth(line.saturating_sub(1) as usize).unwrap_or_default();
        let text = text.strip_suffix('\r').unwrap_or(text);
        let mut shown: Vec<char> = text.chars().collect();
        for secret in self.secrets.borrow().iter().filter(|secret| secret.file == file) {
            if line < secret.line || line > secret.end_line {
                continue;
            }
            let from = if line == secret.line { secret.column.saturating_sub(1) as usize } else { 0 };
            let to = if line == secret.end_line { secret.end_column.saturating_sub(1) as usize } else { shown.len() };
            mask(&mut shown, from, to);
        }
        mask_tokens(&mut shown);
        if self.malformed.borrow().contains(&file) {
            mask_after_secret_names(&mut shown);
            if continues_secret(&source.text, line) {
                let end = shown.len();
                mask(&mut shown, 0, end);
            }
        }
        shown.into_iter().map(printable_char).collect()
    }
}

const MASK: char = '•';

fn mask(shown: &mut [char], from: usize, to: usize) {
    let to = to.min(shown.len());
    for c in shown.iter_mut().take(to).skip(from).filter(|c| !c.is_whitespace()) {
        *c = MASK;
    }
}

/// Whatever looks like a bootstrap token, or like the secret half of one that an edit has torn apart, is hidden wherever
/// it stands.
fn mask_tokens(shown: &mut [char]) {
    const ID: usize = 6;
    const SECRET: usize = 16;
    /// Longer runs are digests, which are public and worth reading.
    const LONGEST: usize = 40;
    let of_token = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut start = 0;
    while start < shown.len() {
        let length = shown[start..].iter().take_while(|c| of_token(c)).count();
        let run = &shown[start..start + length];
        let mixed = run.iter().any(char::is_ascii_digit) && run.iter().any(char::is_ascii_lowercase);
        let id =
            shown[..start].strip_suffix(&['.']).map(|before| before.iter().rev().take_while(|c| of_token(c)).count());
        let whole_token = length >= SECRET && id.is_some_and(|id| id >= ID);
        if whole_token || (mixed && (SECRET..=LONGEST).contains(&length)) {
            mask(shown, start - id.map_or(0, |id| id + 1), start + length);
        }
        start += length + 1;
    }
}

fn mask_after_secret_names(shown: &mut [char]) {
    let lower: String = shown.iter().map(char::to_ascii_lowercase).collect();
    let name_end = SECRET_NAMES.iter().filter_map(|name| lower.find(name).map(|at| at + name.len())).min();
    if let Some(end) = name_end {
        let end = lower[..end].chars().count();
        if let Some(colon) = shown[end..].iter().position(|c| *c == ':') {
            mask(shown, end + colon + 1, shown.len());
        }
    }
}

/// Whether the line has no key of its own and belongs to a field with the name of a secret.
fn continues_secret(text: &str, line: u32) -> bool {
    let lines: Vec<&str> = text.split('\n').take(line as usize).collect();
    let Some((last, before)) = lines.split_last() else { return false };
    !last.contains(':') && before.iter().rfind(|line| line.contains(':')).is_some_and(|line| is_secret_name(line))
}

const SECRET_NAMES: &[&str] = &["token", "secret", "passw", "privatekey", "private-key", "credential"];

/// Whether the value of a field of this name had better not be shown, known field or not.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| lower.contains(secret))
}

fn printable_char(c: char) -> char {
    match c {
        '\t' => ' ',
        // Overrides of the writing direction can make a line read as something else than it is.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Messages quote what the user wrote, which may hold a token in a place nobody expects (half of a broken line as a key).
fn printable(text: &str) -> String {
    let mut shown: Vec<char> = text.chars().map(printable_char).collect();
    mask_tokens(&mut shown);
    shown.into_iter().collect()
}
