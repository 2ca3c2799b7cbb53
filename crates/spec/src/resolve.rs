//! From sources to a `Spec`: parse, let the caller read the files it refers to, decode.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::str::FromStr;

use crate::artefacts::{ManifestFile, SIGNATURE_SUFFIX};
use crate::completion;
use crate::contents::{KEYS, SHAPE_OF_KEYS};
use crate::decode::Drafts;
use crate::document::{Documents, FileReference, Spec, decode_documents};
use crate::mistake::Mistake;
use crate::source::{Source, Sources};
use crate::tree::{self, Kind, Node};
use crate::values::Invalid;

/// Sources that were read as YAML. Mistakes are kept until `resolve`, so that all are reported together.
pub struct Parsed {
    sources: Rc<Sources>,
    references: Vec<FileReference>,
}

/// Never fails and never panics: mistakes come out of `Parsed::resolve`, all at once.
pub fn parse(sources: &[Source]) -> Parsed {
    let sources = Rc::new(Sources::new(sources));
    let recorded = RefCell::new(Vec::new());
    // The same decoder that makes the values finds the references; what else it finds is found again by `resolve`.
    decode(&sources, &Files::Record(&recorded));
    Parsed { sources, references: recorded.into_inner() }
}

impl Parsed {
    /// The files to read, in the order of the text.
    pub fn file_references(&self) -> &[FileReference] {
        &self.references
    }

    /// `read` gives the content of a file, or why it cannot be read; the reason is reported at the reference.
    pub fn resolve(
        &self,
        mut read: impl FnMut(&FileReference) -> Result<Vec<u8>, String>,
    ) -> Result<Spec, Vec<Mistake>> {
        let contents: Contents = self.references.iter().map(|reference| (key(reference), read(reference))).collect();
        let (decoded, mistakes) = decode(&self.sources, &Files::Given(&contents));
        match decoded {
            Some(documents) if mistakes.is_empty() => {
                Ok(Spec { documents, sources: Rc::clone(&self.sources), now: None })
            }
            _ => Err(mistakes),
        }
    }
}

fn decode(sources: &Sources, files: &Files<'_>) -> (Option<Documents>, Vec<Mistake>) {
    let drafts = Drafts::new(sources);
    let documents: Vec<Node> = sources
        .files()
        .iter()
        .enumerate()
        .flat_map(|(index, source)| tree::read_documents(index, source, &drafts))
        .collect();
    let decoded = decode_documents(&drafts, &documents, files);
    if documents.iter().all(Node::is_missing) && !drafts.is_malformed() {
        drafts.report_empty();
    }
    let drafts = match &decoded {
        Some(documents) if !drafts.is_empty() => completion::check_apart(documents, sources, drafts),
        _ => drafts,
    };
    (decoded, drafts.finish())
}

type Contents = BTreeMap<(String, u32, u32, String), Result<Vec<u8>, String>>;

fn key(reference: &FileReference) -> (String, u32, u32, String) {
    let position = &reference.position;
    (position.file.clone(), position.line, position.column, reference.path.clone())
}

const NOT_TEXT: &str = "is not text";

/// How `{file: path}` is answered.
pub(crate) enum Files<'a> {
    /// Nothing was read yet: only note what will be needed.
    Record(&'a RefCell<Vec<FileReference>>),
    Given(&'a Contents),
}

impl Files<'_> {
    /// A value written in place, or `{file: path}`.
    pub(crate) fn value_or_file<'n, T: FromStr<Err = Invalid>>(
        &self,
        drafts: &'n Drafts<'n>,
        node: &'n Node,
        field: &'static str,
    ) -> Option<T> {
        if !matches!(node.kind, Kind::Map(_)) {
            return drafts.value(node);
        }
        let (node, reference) = reference(drafts, node, field)?;
        let text = self.read(drafts, node, &reference)?;
        drafts.checked(node, text.trim().parse().map_err(|invalid| within(&reference, invalid)))
    }

    /// A text written in place, or `{file: path}`; taken as it is, to the last line feed.
    pub(crate) fn text_or_file<'n>(
        &self,
        drafts: &'n Drafts<'n>,
        node: &'n Node,
        field: &'static str,
    ) -> Option<String> {
        self.checked_text_or_file(drafts, node, field, |_| Ok(()))
    }

    /// The same, if `check` accepts it.
    pub(crate) fn checked_text_or_file<'n>(
        &self,
        drafts: &'n Drafts<'n>,
        node: &'n Node,
        field: &'static str,
        check: fn(&str) -> Result<(), Invalid>,
    ) -> Option<String> {
        if !matches!(node.kind, Kind::Map(_)) {
            return drafts.valid_text(node, check);
        }
        let (node, reference) = reference(drafts, node, field)?;
        let text = self.read(drafts, node, &reference)?;
        drafts.checked(node, check(&text).map_err(|invalid| within(&reference, invalid))).map(|()| text)
    }

    /// `{file: path}` of a manifest, with what lies beside it as its signature.
    pub(crate) fn manifest<'n>(&self, drafts: &'n Drafts<'n>, node: &'n Node) -> Option<ManifestFile> {
        let (node, reference) = reference(drafts, node, "manifest")?;
        let beside = FileReference { path: format!("{}{SIGNATURE_SUFFIX}", reference.path), ..reference.clone() };
        let (text, signature) = (self.read(drafts, node, &reference), self.content(&beside));
        Some(ManifestFile::new(reference.path, text?, signature?))
    }

    /// The text of a file, or why it cannot be had; `None` while references are only collected.
    pub(crate) fn content(&self, reference: &FileReference) -> Option<Result<String, String>> {
        match self {
            Self::Record(references) => {
                references.borrow_mut().push(reference.clone());
                None
            }
            Self::Given(contents) => Some(match contents.get(&key(reference)) {
                None => Err("was not read".to_owned()),
                Some(Err(reason)) => Err(reason.clone()),
                Some(Ok(bytes)) => std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| NOT_TEXT.to_owned()),
            }),
        }
    }

    /// The text of a file that the user refers to at `node`; `None` while references are only collected.
    pub(crate) fn read(&self, drafts: &Drafts<'_>, node: &Node, reference: &FileReference) -> Option<String> {
        let content = self.content(reference)?;
        drafts.checked(
            node,
            content.map_err(|reason| match reference.field == KEYS && reason == NOT_TEXT {
                true => problem(reference, &reason).advise(SHAPE_OF_KEYS),
                false => problem(reference, &reason),
            }),
        )
    }
}

fn problem(reference: &FileReference, text: &str) -> Invalid {
    Invalid::new(format!("the file \"{}\": {text}", reference.path))
}

fn within(reference: &FileReference, invalid: Invalid) -> Invalid {
    Invalid { message: problem(reference, &invalid.message).message, advice: invalid.advice }
}

fn reference<'n>(drafts: &'n Drafts<'n>, node: &'n Node, field: &'static str) -> Option<(&'n Node, FileReference)> {
    let mut fields = drafts.fields(node, "a reference to a file")?;
    let path = fields.required("file", |drafts, node| {
        let text = drafts.text(node)?;
        let usable = !text.is_empty() && !text.chars().any(char::is_control);
        let path = usable.then(|| (node, text.to_owned()));
        drafts.checked(node, path.ok_or_else(|| Invalid::new("not the path of a file")))
    });
    fields.finish();
    let setting = path?;
    let (at, path) = setting.value;
    let crate::origin::Origin::User(position) = setting.origin else { return None };
    Some((at, FileReference { path, position, field }))
}
