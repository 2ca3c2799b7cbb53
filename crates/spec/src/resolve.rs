//! From sources to a `Spec`: parse, let the caller read the files it refers to, decode.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::str::FromStr;

use crate::decode::Drafts;
use crate::document::{FileReference, Spec, decode_documents};
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
            Some((cluster, groups)) if mistakes.is_empty() => {
                Ok(Spec { cluster, groups, sources: Rc::clone(&self.sources) })
            }
            _ => Err(mistakes),
        }
    }
}

fn decode(
    sources: &Sources,
    files: &Files<'_>,
) -> (Option<(crate::document::ClusterSpec, Vec<crate::document::GroupSpec>)>, Vec<Mistake>) {
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
    (decoded, drafts.finish())
}

type Contents = BTreeMap<(String, u32, u32), Result<Vec<u8>, String>>;

fn key(reference: &FileReference) -> (String, u32, u32) {
    let position = &reference.position;
    (position.file.clone(), position.line, position.column)
}

/// How `{file: path}` is answered.
pub(crate) enum Files<'a> {
    /// Nothing was read yet: only note what will be needed.
    Record(&'a RefCell<Vec<FileReference>>),
    Given(&'a Contents),
}

impl Files<'_> {
    /// A value written in place, or `{file: path}`.
    pub(crate) fn value_or_file<T: FromStr<Err = Invalid>>(
        &self,
        drafts: &Drafts<'_>,
        node: &Node,
        field: &'static str,
    ) -> Option<T> {
        if !matches!(node.kind, Kind::Map(_)) {
            return drafts.value(node);
        }
        let mut fields = drafts.fields(node, "a reference to a file")?;
        let path = fields.required("file", |drafts, node| {
            let text = drafts.text(node)?;
            let usable = !text.is_empty() && !text.chars().any(char::is_control);
            let path = usable.then(|| (node, text.to_owned()));
            drafts.checked(node, path.ok_or_else(|| Invalid::new("not the path of a file")))
        });
        fields.finish();
        let setting = path?;
        let (node, path) = setting.value;
        let crate::origin::Origin::User(position) = setting.origin else { return None };
        let reference = FileReference { path, position, field };
        match self {
            Self::Record(references) => {
                references.borrow_mut().push(reference);
                None
            }
            Self::Given(contents) => {
                let problem = |text: String| Invalid::new(format!("the file \"{}\": {text}", reference.path));
                let result = match contents.get(&key(&reference)) {
                    None => Err(problem("was not read".to_owned())),
                    Some(Err(reason)) => Err(problem(reason.clone())),
                    Some(Ok(bytes)) => {
                        std::str::from_utf8(bytes).map_err(|_| problem("is not text".to_owned())).and_then(|text| {
                            text.trim().parse().map_err(|invalid: Invalid| Invalid {
                                message: problem(invalid.message).message,
                                advice: invalid.advice,
                            })
                        })
                    }
                };
                drafts.checked(node, result)
            }
        }
    }
}
