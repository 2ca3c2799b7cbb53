//! The consumers, and a way to report all that is wrong at once.

#[path = "../../../render/tests/support/mod.rs"]
pub(crate) mod rendered;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::Result;
use lab::Consumers;
use lab::consumers::{Case, FileKind, UserData, cases_below};
use rendered::golden::write_tree;
use sha2::{Digest, Sha256};

/// Nothing where there can be no lab; the reason has been said.
pub(crate) fn consumers() -> Option<Consumers> {
    lab::require().then(|| Consumers::open().expect("the cache"))
}

/// What the golden cases render, with keys; or whatever is below `$NODESTRAP_GOLDEN`.
pub(crate) fn cases() -> Vec<Case> {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
        let folder = std::env::var_os("NODESTRAP_GOLDEN").map_or_else(render_cases, PathBuf::from);
        cases_below(&folder).expect("golden cases")
    });
    assert!(!CASES.is_empty(), "there is no golden case");
    CASES.clone()
}

/// Only this program writes there, and once: it is left for whoever looks into a complaint.
fn render_cases() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("consumers");
    // Cases come and go.
    let _ = std::fs::remove_dir_all(&folder);
    for case in rendered::cases::names() {
        let spec = rendered::cases::complete(&case);
        let tree = rendered::cases::tree(&rendered::cases::delivery(&spec));
        write_tree(&folder.join("golden").join(&case), &tree);
    }
    write_tree(&folder.join("golden-delivery"), &rendered::deliveries::documents());
    folder
}

/// All files of one kind: the case, the name, where it is.
pub(crate) fn files_of(kind: FileKind) -> Vec<(Case, String, PathBuf)> {
    let mut found = Vec::new();
    for case in cases() {
        for path in case.files_of(kind).expect("golden files") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((case.clone(), name, path));
        }
    }
    found
}

/// User data from wherever it came, judged by the program that it is for: right, and with a rendered bundle in it.
pub(crate) fn check_user_data(consumers: &Consumers, user_data: &[u8]) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), user_data)?;
    match FileKind::of(user_data) {
        Some(FileKind::Ignition(spec)) => crate::ignition::check(consumers, spec, file.path()),
        _ => {
            let files = [UserData { name: String::new(), path: file.path().to_owned() }];
            let verdicts = consumers.check_user_data(&files)?;
            verdicts.iter().try_for_each(|(_, verdict)| crate::cloud_init::check(verdict))
        }
    }
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
