//! The consumers, and a way to report all that is wrong at once.

use std::path::PathBuf;

use lab::Consumers;
use lab::consumers::{Case, golden_cases};
use sha2::{Digest, Sha256};

/// Nothing where there can be no lab; the reason has been said.
pub(crate) fn consumers() -> Option<Consumers> {
    lab::require().then(|| Consumers::open().expect("the cache"))
}

pub(crate) fn cases() -> Vec<Case> {
    let cases = golden_cases().expect("golden cases");
    assert!(!cases.is_empty(), "there is no golden case");
    cases
}

/// All cases that have a file of this name.
pub(crate) fn cases_with(name: &str) -> Vec<(Case, PathBuf)> {
    cases().into_iter().filter_map(|case| case.file(name).map(|file| (case, file))).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// A folder with one file, for an input that no case has.
pub(crate) fn file_with(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), text).expect("writing it");
    file
}

/// What the consumers said of which file of which case.
#[derive(Default)]
pub(crate) struct Report {
    checked: usize,
    complaints: Vec<String>,
}

impl Report {
    pub(crate) fn add(&mut self, case: &str, file: &str, outcome: anyhow::Result<()>) {
        self.checked += 1;
        if let Err(error) = outcome {
            self.complaints.push(format!("{case}/{file}: {error:#}"));
        }
    }

    /// Fails with every complaint, or if fewer files were looked at than there should be.
    pub(crate) fn finish(self, what: &str, at_least: usize) {
        eprintln!("{what}: {} checked", self.checked);
        assert!(self.complaints.is_empty(), "{what}:\n{}", self.complaints.join("\n"));
        assert!(self.checked >= at_least, "{what}: {} checked, expected at least {at_least}", self.checked);
    }
}
