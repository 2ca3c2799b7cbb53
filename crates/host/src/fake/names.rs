//! The way through a tree, name by name.

use std::io;
use std::path::Path;

/// The names of a path that are still to be gone through, and those of what lay behind the links on the way.
pub(super) struct Names<'a> {
    rest: &'a str,
    behind: Vec<&'a str>,
}

impl<'a> Names<'a> {
    pub(super) fn of(path: &'a Path) -> io::Result<Self> {
        match path.to_str() {
            Some(rest) if path.is_absolute() => Ok(Self { rest: trim(rest), behind: Vec::new() }),
            Some(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not absolute")),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not text")),
        }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        while self.rest.is_empty() {
            self.rest = self.behind.pop()?;
        }
        let (name, rest) = self.rest.split_once('/').unwrap_or((self.rest, ""));
        self.rest = trim(rest);
        Some(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.behind.iter().all(|rest| rest.is_empty())
    }

    pub(super) fn go_through(&mut self, target: &'a str) {
        self.behind.push(std::mem::replace(&mut self.rest, trim(target)));
    }
}

/// Without what says nothing at its start: "/" and "./".
fn trim(path: &str) -> &str {
    let rest = path.trim_start_matches('/');
    match rest.strip_prefix('.') {
        Some(more) if more.is_empty() || more.starts_with('/') => trim(more),
        _ => rest,
    }
}
