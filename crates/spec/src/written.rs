//! Where in the user's files a part of a setting stands. A complete spec knows the place of each setting; the places of the
//! items of its lists and the entries of its mappings are looked up in the text again, when somebody asks.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::decode::{Drafts, place};
use crate::document::{entry_at, scalar_at};
use crate::origin::{Origin, Position};
use crate::path::{self, Step};
use crate::source::{Source, Sources, Span};
use crate::tree::{self, Kind, Node};

/// What tells two items of a list apart, where they have a field for it.
const IDENTITIES: [&str; 2] = ["name", "path"];

/// What names an item of a list.
pub(crate) fn identity(item: &Value) -> Option<(&'static str, &str)> {
    IDENTITIES.into_iter().find_map(|field| Some((field, item.get(field)?.as_str()?)))
}

/// The files of the user, as trees.
pub(crate) struct Text {
    documents: Vec<Node>,
    files: Vec<String>,
}

impl Text {
    pub(crate) fn read(sources: &[Source]) -> Self {
        let sources = Sources::new(sources);
        // What is wrong was reported when the spec was made.
        let drafts = Drafts::new(&sources);
        let files = sources.files().iter();
        let documents =
            files.enumerate().flat_map(|(index, source)| tree::read_documents(index, source, &drafts)).collect();
        Self { documents, files: sources.files().iter().map(|source| source.name.clone()).collect() }
    }
}

/// The same, to be looked up by place and by path.
pub(crate) struct Written<'t> {
    files: &'t [String],
    /// By file, line and column of where they count as written. Scalars have no parts that could be looked for.
    collections: BTreeMap<(&'t str, u32, u32), &'t Node>,
    cluster: Option<&'t Node>,
    groups: BTreeMap<&'t str, &'t Node>,
}

impl<'t> Written<'t> {
    pub(crate) fn new(text: &'t Text) -> Self {
        let mut written =
            Self { files: &text.files, collections: BTreeMap::new(), cluster: None, groups: BTreeMap::new() };
        for document in &text.documents {
            written.index(document);
            match scalar_at(document, &["kind"]) {
                Some((_, "Cluster")) => written.cluster = Some(document),
                Some((_, "NodeGroup")) => {
                    let name = scalar_at(document, &["metadata", "name"]);
                    written.groups.extend(name.map(|(_, name)| (name, document)));
                }
                _ => {}
            }
        }
        written
    }

    fn index(&mut self, node: &'t Node) {
        match &node.kind {
            Kind::Map(entries) => {
                for entry in entries.iter().filter(|entry| !matches!(entry.value.kind, Kind::Scalar { .. })) {
                    let span = place(entry);
                    self.collections.insert((self.file(span), span.line, span.column), &entry.value);
                    self.index(&entry.value);
                }
            }
            Kind::List(items) => items.iter().for_each(|item| self.index(item)),
            Kind::Scalar { .. } | Kind::Refused => {}
        }
    }

    fn file(&self, span: Span) -> &'t str {
        self.files.get(span.file).map_or("", String::as_str)
    }

    fn user(&self, span: Span) -> Origin {
        Origin::User(Position { file: self.file(span).to_owned(), line: span.line, column: span.column })
    }

    /// The origin of a part of a setting: where the user wrote that very part, else the origin of the whole. `setting` is the
    /// path of the setting, `whole` its origin and `value` its value.
    pub(crate) fn origin(&self, setting: &[String], whole: &Origin, value: &Value, part: &[Step]) -> Origin {
        let found = match whole {
            _ if part.is_empty() => None,
            Origin::User(at) => {
                self.collections.get(&(at.file.as_str(), at.line, at.column)).map(|node| self.below(node, None, part))
            }
            // The last of them is laid over the others.
            Origin::Derived { from, .. } => {
                from.iter().rev().filter(|from| is_named_alike(from, setting)).find_map(|from| {
                    let (node, rest) = self.find(self.setting(from)?, value, part)?;
                    Some(self.below(node.0, Some(node.1), rest))
                })
            }
            Origin::Default { .. } | Origin::BuiltIn { .. } => None,
        };
        found.unwrap_or_else(|| whole.clone())
    }

    /// Whether the user's list or mapping at `path` has an item or entry that takes the place of this one.
    pub(crate) fn has(&self, path: &str, value: &Value, part: &[Step]) -> bool {
        self.setting(path).is_some_and(|node| self.find(node, value, part).is_some())
    }

    /// What the user wrote at a path.
    fn setting(&self, path: &str) -> Option<&'t Node> {
        let steps = path::split(path)?;
        let names: Option<Vec<&str>> = steps
            .iter()
            .map(|step| match step {
                Step::Name(name) => Some(name.as_str()),
                Step::Index(_) => None,
            })
            .collect();
        let (document, below) = match names.as_deref()? {
            ["cluster", below @ ..] => (self.cluster?, below),
            ["nodeGroups", group, below @ ..] => (*self.groups.get(group)?, below),
            _ => return None,
        };
        Some(&entry_at(document, &[&["spec"], below].concat())?.value)
    }

    /// The user's item or entry that the first step of `part` leads to in `value`, which is put together of several: so an
    /// item is looked for by what names it, not by its index.
    fn find<'s>(&self, node: &'t Node, value: &Value, part: &'s [Step]) -> Option<((&'t Node, Span), &'s [Step])> {
        let (first, rest) = part.split_first()?;
        let found = match (first, &node.kind) {
            (Step::Name(name), Kind::Map(entries)) => {
                let entry = entries.iter().find(|entry| entry.key == *name)?;
                (&entry.value, place(entry))
            }
            (Step::Index(index), Kind::List(items)) => {
                let wanted = value.get(index)?;
                let item = items.iter().find(|item| match identity(wanted) {
                    Some((field, name)) => scalar_at(item, &[field]).is_some_and(|(_, text)| text == name),
                    None => matches!(&item.kind, Kind::Scalar { text, .. } if wanted == text.as_str()),
                })?;
                (item, item.span)
            }
            _ => return None,
        };
        Some((found, rest))
    }

    /// Where the user wrote the part of what stands at `node`, which itself stands at `at`.
    fn below(&self, node: &'t Node, at: Option<Span>, part: &[Step]) -> Origin {
        let Some((first, rest)) = part.split_first() else { return self.user(at.unwrap_or(node.span)) };
        match (first, &node.kind) {
            (Step::Name(name), Kind::Map(entries)) => match entries.iter().find(|entry| entry.key == *name) {
                Some(entry) => self.below(&entry.value, Some(place(entry)), rest),
                None => Origin::Default { reason: "it is left out there" },
            },
            (Step::Index(index), Kind::List(items)) if *index < items.len() => self.below(&items[*index], None, rest),
            // Written in another form than it is shown in.
            _ => self.user(at.unwrap_or(node.span)),
        }
    }
}

/// What is put together of lists or mappings of one name has their items; what is derived in another way has not.
fn is_named_alike(from: &str, setting: &[String]) -> bool {
    setting.last().is_some_and(|name| from.rsplit('.').next() == Some(name))
}
