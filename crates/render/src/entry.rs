//! What the documents of a bundle say of one file, kept with its content.
//!
//! Most files are the same for many groups of a cluster, and a node asks for the digest of its bundle at every step.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::bundle::{File, Secrecy};

/// What was written, and the file that it was written for.
pub(crate) struct Entry {
    path: String,
    mode: u32,
    secrecy: Secrecy,
    manifest: OnceLock<String>,
    document: OnceLock<String>,
}

impl Entry {
    fn of(file: &File) -> Self {
        let (manifest, document) = (OnceLock::new(), OnceLock::new());
        Self { path: file.path.clone(), mode: file.mode, secrecy: file.secrecy, manifest, document }
    }

    fn is_of(&self, file: &File) -> bool {
        self.path == file.path && self.mode == file.mode && self.secrecy == file.secrecy
    }
}

impl File {
    /// In the manifest; `write` does it if that was not done before.
    pub(crate) fn manifest_entry(&self, write: impl FnOnce(&Self) -> String) -> Cow<'_, str> {
        self.entry(|entry| &entry.manifest, write)
    }

    /// The same in the document that holds the contents.
    pub(crate) fn document_entry(&self, write: impl FnOnce(&Self) -> String) -> Cow<'_, str> {
        self.entry(|entry| &entry.document, write)
    }

    fn entry(
        &self,
        form: impl FnOnce(&Entry) -> &OnceLock<String>,
        write: impl FnOnce(&Self) -> String,
    ) -> Cow<'_, str> {
        let entry = self.content.entry(|| Entry::of(self));
        // Another file may have the same content, and have been first.
        match entry.is_of(self) {
            true => Cow::Borrowed(form(entry).get_or_init(|| write(self))),
            false => Cow::Owned(write(self)),
        }
    }
}
