//! From trees to values: a small declarative decoder that collects every mistake instead of stopping at the first.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::str::FromStr;

use bundle::torcx::Minor;

use crate::config::{is_canonical_int, plain_kind};
use crate::mistake::{Mistake, Severity};
use crate::nearest::nearest;
use crate::origin::{Origin, Setting};
use crate::source::{Sources, Span, is_secret_name};
use crate::syntax;
use crate::tree::{Entry, Kind, Node, Style};
use crate::values::Invalid;

/// Nobody mends more at once, and cutting out source lines for a hostile file of mistakes would take for ever.
const MOST_MISTAKES: usize = 100;

/// Mistakes while they are collected. Their source lines are cut last, when all secrets are known.
pub(crate) struct Drafts<'a> {
    sources: &'a Sources,
    drafts: RefCell<Vec<Draft>>,
}

struct Draft {
    severity: Severity,
    span: Span,
    message: String,
    advice: Option<String>,
}

/// A mistake just reported, to which advice can be added.
pub(crate) struct Report<'a> {
    drafts: &'a RefCell<Vec<Draft>>,
    index: usize,
}

impl Report<'_> {
    pub(crate) fn advise(self, advice: impl Into<String>) {
        if let Some(draft) = self.drafts.borrow_mut().get_mut(self.index) {
            draft.advice = Some(advice.into());
        }
    }
}

impl<'a> Drafts<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Self {
        Self { sources, drafts: RefCell::default() }
    }

    /// Mistakes of the same sources that may turn out to be none.
    pub(crate) fn apart(&self) -> Drafts<'a> {
        Self::new(self.sources)
    }

    /// What was found apart, for a minor that the spec names besides the one that it is for. What is wrong for that one, too, has
    /// been said.
    pub(crate) fn take_over(&self, apart: Drafts<'_>, minor: Minor) {
        let mut drafts = self.drafts.borrow_mut();
        let place = |draft: &Draft| (draft.span.file, draft.span.line, draft.span.column);
        let known: BTreeSet<_> = drafts.iter().map(place).collect();
        let found = apart.drafts.into_inner().into_iter().filter(|draft| !known.contains(&place(draft)));
        drafts.extend(found.map(|draft| match draft.message.split_once("; this cluster runs ") {
            Some((message, _)) => Draft {
                message: format!("{message}; tectonic.minors has {minor}"),
                advice: Some(format!("remove it, or take {minor} out of the minors")),
                ..draft
            },
            None => Draft { message: format!("{} (tectonic.minors has {minor})", draft.message), ..draft },
        }));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.drafts.borrow().is_empty()
    }

    pub(crate) fn report(&self, span: Span, message: impl Into<String>) -> Report<'_> {
        self.note(Severity::Error, span, message)
    }

    pub(crate) fn warn(&self, span: Span, message: impl Into<String>) -> Report<'_> {
        self.note(Severity::Warning, span, message)
    }

    fn note(&self, severity: Severity, span: Span, message: impl Into<String>) -> Report<'_> {
        let mut drafts = self.drafts.borrow_mut();
        drafts.push(Draft { severity, span, message: message.into(), advice: None });
        Report { drafts: &self.drafts, index: drafts.len() - 1 }
    }

    pub(crate) fn report_invalid(&self, span: Span, invalid: Invalid) {
        let report = self.report(span, invalid.message);
        if let Some(advice) = invalid.advice {
            report.advise(advice);
        }
    }

    pub(crate) fn malformed(&self, file: usize) {
        self.sources.mark_malformed(file);
    }

    pub(crate) fn hide(&self, span: Span) {
        self.sources.hide(span);
    }

    pub(crate) fn is_malformed(&self) -> bool {
        self.sources.is_malformed()
    }

    pub(crate) fn user(&self, span: Span) -> Origin {
        Origin::User(self.sources.position(span))
    }

    pub(crate) fn report_empty(&self) {
        let start = Span { file: 0, line: 1, column: 1, end_line: 1, end_column: 2 };
        self.report(start, "the input has no documents").advise("one Cluster and at least one NodeGroup are needed");
    }

    /// In the order of the text; the same mistake is said once. Whoever has mistakes to mend is not warned as well.
    pub(crate) fn finish(self) -> Vec<Mistake> {
        let mut drafts = self.drafts.into_inner();
        if drafts.iter().any(|draft| draft.severity == Severity::Error) {
            drafts.retain(|draft| draft.severity == Severity::Error);
        }
        drafts.sort_by_key(|draft| (draft.span.file, draft.span.line, draft.span.column));
        // What the cluster says is looked at for every group.
        let mut said = BTreeSet::new();
        drafts
            .retain(|draft| said.insert((draft.span.file, draft.span.line, draft.span.column, draft.message.clone())));
        let left_out = drafts.len().saturating_sub(MOST_MISTAKES);
        if let Some(draft) = drafts.get_mut(MOST_MISTAKES) {
            draft.message = format!("and {left_out} more from here on");
            draft.advice = None;
        }
        drafts
            .iter()
            .take(MOST_MISTAKES + 1)
            .map(|draft| self.sources.mistake(draft.severity, draft.span, &draft.message, draft.advice.as_deref()))
            .collect()
    }

    /// A value that must be text, and is one to every YAML reader.
    pub(crate) fn text<'n>(&self, node: &'n Node) -> Option<&'n str> {
        self.scalar(node).filter(|_| self.is_text(node))
    }

    /// Reports a number or a boolean, which editors and other readers would take for one (and 1.10 for 1.1). What it says is
    /// not repeated: it may be a secret.
    pub(crate) fn is_text(&self, node: &Node) -> bool {
        let Kind::Scalar { text, style: Style::Plain } = &node.kind else { return true };
        let Some(kind) = plain_kind(text) else { return true };
        self.report(node.span, format!("a text is needed here, and without quotes this is {kind}"))
            .advise("write it in quotes");
        false
    }

    /// A text, or a whole number that every reader writes alike.
    pub(crate) fn text_or_int<'n>(&self, node: &'n Node) -> Option<&'n str> {
        self.scalar(node).filter(|text| is_canonical_int(text) || self.is_text(node))
    }

    /// The letters of a value, whatever they mean.
    pub(crate) fn scalar<'n>(&self, node: &'n Node) -> Option<&'n str> {
        match &node.kind {
            Kind::Refused => None,
            _ if node.is_missing() => {
                self.report(node.span, "a value is missing")
                    .advise("write it, or remove the field; an empty text is \"\"");
                None
            }
            Kind::Scalar { text, .. } => Some(text),
            _ => {
                self.report(node.span, format!("a text is needed here, not {}", node.describe()));
                None
            }
        }
    }

    pub(crate) fn value<T: FromStr<Err: Into<Invalid>>>(&self, node: &Node) -> Option<T> {
        let text = self.scalar(node)?;
        if syntax::has_password(text) {
            self.hide(node.span);
        }
        self.checked(node, text.parse().map_err(T::Err::into)).filter(|_| self.is_text(node))
    }

    pub(crate) fn checked<T>(&self, node: &Node, result: Result<T, Invalid>) -> Option<T> {
        result.map_err(|invalid| self.report_invalid(node.span, invalid)).ok()
    }

    /// A text that `check` accepts.
    pub(crate) fn valid_text(&self, node: &Node, check: fn(&str) -> Result<(), Invalid>) -> Option<String> {
        let text = self.scalar(node)?;
        self.checked(node, check(text).map(|()| text.to_owned())).filter(|_| self.is_text(node))
    }

    pub(crate) fn list<'n>(&self, node: &'n Node) -> Option<&'n [Node]> {
        match &node.kind {
            Kind::List(items) => Some(items),
            Kind::Refused => None,
            Kind::Scalar { .. } if !node.is_missing() => {
                self.report(node.span, "a list is needed here, not a text").advise("write it in brackets: [ … ]");
                None
            }
            _ => {
                self.report(node.span, format!("a list is needed here, not {}", node.describe()));
                None
            }
        }
    }

    /// Decodes every item, so that all mistakes are found; `None` if any was wrong.
    pub(crate) fn items<T>(&self, node: &Node, decode: impl Fn(&Node) -> Option<T>) -> Option<Vec<T>> {
        let decoded: Vec<Option<T>> = self.list(node)?.iter().map(decode).collect();
        decoded.into_iter().collect()
    }

    pub(crate) fn entries<'n>(&self, node: &'n Node) -> Option<&'n [Entry]> {
        match &node.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Refused => None,
            _ => {
                self.report(node.span, format!("a mapping (key: value) is needed here, not {}", node.describe()));
                None
            }
        }
    }

    /// The fields of a mapping, to be asked for by name.
    pub(crate) fn fields<'n>(&'n self, node: &'n Node, what: &'static str) -> Option<Fields<'n>> {
        let entries = self.entries(node)?;
        Some(Fields { drafts: self, what, span: node.span, entries, known: Vec::new(), missing: Vec::new() })
    }
}

/// Asks for each known field once; `finish` reports the fields nobody asked for.
pub(crate) struct Fields<'n> {
    drafts: &'n Drafts<'n>,
    what: &'static str,
    span: Span,
    entries: &'n [Entry],
    known: Vec<&'static str>,
    missing: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    pub(crate) fn entry(&mut self, name: &'static str) -> Option<&'n Entry> {
        self.known.push(name);
        self.entries.iter().find(|entry| entry.key == name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == name)
    }

    /// The fields of a mapping that was left out here.
    pub(crate) fn absent(&self, what: &'static str) -> Fields<'n> {
        Fields { drafts: self.drafts, what, span: self.span, entries: &[], known: Vec::new(), missing: Vec::new() }
    }

    pub(crate) fn optional<T>(
        &mut self,
        name: &'static str,
        decode: impl FnOnce(&Drafts<'n>, &'n Node) -> Option<T>,
    ) -> Option<Setting<T>> {
        let entry = self.entry(name)?;
        let value = decode(self.drafts, &entry.value)?;
        Some(Setting { value, origin: self.drafts.user(place(entry)) })
    }

    pub(crate) fn required<T>(
        &mut self,
        name: &'static str,
        decode: impl FnOnce(&Drafts<'n>, &'n Node) -> Option<T>,
    ) -> Option<Setting<T>> {
        if !self.has(name) {
            self.missing.push(name);
        }
        self.optional(name, decode)
    }

    pub(crate) fn finish(self) {
        // Only now every name is known: `kubeApiserver` is no misspelt `apiServer`.
        let unknown = || self.entries.iter().filter(|entry| !self.known.contains(&entry.key.as_str()));
        for name in &self.missing {
            // A misspelt field is reported as unknown with advice; that it is missing too would be noise.
            if !unknown().any(|entry| nearest(&entry.key, [*name].into_iter()).is_some()) {
                self.drafts.report(first_line(self.span), format!("{} needs the field \"{name}\"", self.what));
            }
        }
        for entry in unknown() {
            report_unknown_field(self.drafts, entry, self.what, &self.known);
        }
    }
}

pub(crate) fn report_unknown_field(drafts: &Drafts<'_>, entry: &Entry, what: &str, known: &[&str]) {
    if is_secret_name(&entry.key) {
        drafts.hide(entry.value.span);
    }
    let report = drafts.report(entry.key_span, format!("{what} has no field \"{}\"", entry.key));
    match nearest(&entry.key, known.iter().copied()) {
        Some(name) => report.advise(format!("did you mean \"{name}\"?")),
        None if known.len() <= 8 && !known.is_empty() => report.advise(format!("it has: {}", known.join(", "))),
        None => {}
    }
}

/// Where a setting is: a scalar at its value, a collection at its key, whose line says what it is.
pub(crate) fn place(entry: &Entry) -> Span {
    match entry.value.kind {
        Kind::Scalar { .. } => entry.value.span,
        _ => entry.key_span,
    }
}

fn first_line(span: Span) -> Span {
    Span { end_line: span.line, end_column: span.column.saturating_add(1), ..span }
}
