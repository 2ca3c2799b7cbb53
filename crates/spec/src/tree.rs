//! YAML as a tree in which everything knows its place.
//!
//! Scalars stay text: what `1.30`, `yes` or `0644` means is decided by the field they are written for. Mistakes of form
//! (duplicate keys, aliases, tags) are collected, not returned, so that reading goes on and finds the next one.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, StrInput};

use crate::decode::Drafts;
use crate::source::{Source, Span, number};

/// A spec of a thousand groups is far below; a hostile file is stopped early.
const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 100_000;
/// YAML readers give up looking for the colon after 1024 characters.
const MAX_KEY_BYTES: usize = 512;

pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Scalar {
        text: String,
        style: Style,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// Something that was reported already (an alias); decoding it says nothing more.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Without quotes: may mean a number, a boolean or nothing.
    Plain,
    /// Quoted or a block: text for certain.
    Text,
}

pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    /// `key:` with nothing after it, `~` or `null`.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, style: Style::Plain } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn describe(&self) -> &'static str {
        match &self.kind {
            _ if self.is_missing() => "nothing",
            Kind::Scalar { .. } => "a text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
            Kind::Refused => "an alias",
        }
    }
}

/// The documents of a stream. Whether it was read to its end is known from `drafts.is_malformed`.
pub(crate) fn read_documents(file: usize, source: &Source, drafts: &Drafts) -> Vec<Node> {
    let start = Span { file, line: 1, column: 1, end_line: 1, end_column: 2 };
    if source.text.len() > MAX_BYTES {
        drafts.malformed(file);
        drafts.report(start, "the file is larger than 1 MiB").advise("split it into several files");
        return Vec::new();
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    // Ours come first, with a better message; these only keep the scanner's own work bounded.
    options.flow_nesting_limit = MAX_DEPTH + 16;
    options.block_nesting_limit = MAX_DEPTH + 16;
    options.emit_unresolved_aliases = true;
    let parser = Parser::new_from_str_with_options(&source.text, options);
    let mut reader = Reader { parser, file, drafts, nodes: 0 };
    let mut documents = Vec::new();
    match reader.read_stream(&mut documents) {
        Ok(()) => {}
        Err(stop) => {
            drafts.malformed(file);
            reader.report(stop);
        }
    }
    documents
}

/// Why reading ended before the end.
enum Stop {
    Scan(ScanError),
    TooDeep(Span),
    TooMany(Span),
    Unexpected(Span),
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    file: usize,
    drafts: &'a Drafts<'a>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Stop> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Err(error)) => Err(Stop::Scan(error)),
            Some(Ok((event, span))) => {
                let span = self.span(&span);
                Ok(Some((event, span)))
            }
        }
    }

    fn span(&self, span: &granit_parser::Span) -> Span {
        Span {
            file: self.file,
            line: number(span.start.line()).max(1),
            column: number(span.start.col()).saturating_add(1),
            end_line: number(span.end.line()).max(1),
            end_column: number(span.end.col()).saturating_add(1),
        }
    }

    fn read_stream(&mut self, documents: &mut Vec<Node>) -> Result<(), Stop> {
        while let Some((event, span)) = self.next()? {
            if matches!(
                event,
                Event::Scalar(..)
                    | Event::SequenceStart(..)
                    | Event::MappingStart(..)
                    | Event::Alias(_)
                    | Event::UnresolvedAlias(_)
            ) {
                documents.push(self.read_node(event, span, 0)?);
            }
        }
        Ok(())
    }

    fn read_node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Stop> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Stop::TooMany(span));
        }
        if depth > MAX_DEPTH {
            return Err(Stop::TooDeep(span));
        }
        if event.tag().is_some() {
            self.drafts.report(span, "YAML tags are not supported").advise("remove the \"!…\"; quotes make a text");
        }
        match event {
            Event::Scalar(text, style, ..) => {
                let style = if style == ScalarStyle::Plain { Style::Plain } else { Style::Text };
                Ok(Node { span, kind: Kind::Scalar { text: text.into_owned(), style } })
            }
            Event::SequenceStart(..) => self.read_list(span, depth),
            Event::MappingStart(..) => self.read_map(span, depth),
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.drafts.report(span, "YAML aliases are not supported").advise("write the value out at both places");
                Ok(Node { span, kind: Kind::Refused })
            }
            _ => Err(Stop::Unexpected(span)),
        }
    }

    fn read_list(&mut self, start: Span, depth: usize) -> Result<Node, Stop> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Some((Event::SequenceEnd, end)) => {
                    return Ok(Node { span: whole(start, end, items.last()), kind: Kind::List(items) });
                }
                Some((event, span)) => items.push(self.read_node(event, span, depth + 1)?),
                None => return Err(Stop::Unexpected(start)),
            }
        }
    }

    fn read_map(&mut self, start: Span, depth: usize) -> Result<Node, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines_of_keys: HashMap<String, u32> = HashMap::new();
        loop {
            let (event, span) = match self.next()? {
                Some((Event::MappingEnd, end)) => {
                    let last = entries.last().map(|entry| &entry.value);
                    return Ok(Node { span: whole(start, end, last), kind: Kind::Map(entries) });
                }
                Some(next) => next,
                None => return Err(Stop::Unexpected(start)),
            };
            let key = self.read_node(event, span, depth + 1)?;
            let Some((event, span)) = self.next()? else { return Err(Stop::Unexpected(start)) };
            let mut value = self.read_node(event, span, depth + 1)?;
            let Kind::Scalar { text, style } = key.kind else {
                self.drafts.report(key.span, "a key must be a text");
                continue;
            };
            if text.len() > MAX_KEY_BYTES {
                self.drafts.report(key.span, format!("a key is longer than {MAX_KEY_BYTES} bytes"));
                continue;
            }
            if value.is_missing() {
                // The position of nothing is of no use to the reader.
                value.span = key.span;
            }
            if text == "<<" && style == Style::Plain {
                self.drafts.report(key.span, "YAML merge keys are not supported").advise("write the fields out");
            } else if let Some(first) = lines_of_keys.get(&text) {
                self.drafts.report(key.span, format!("\"{text}\" is given twice; the first time on line {first}"));
            } else {
                lines_of_keys.insert(text.clone(), key.span.line);
                entries.push(Entry { key: text, key_span: key.span, value });
            }
        }
    }

    fn report(&self, stop: Stop) {
        match stop {
            Stop::Scan(error) => {
                let marker = error.marker();
                let (line, column) = (number(marker.line()).max(1), number(marker.col()).saturating_add(1));
                let span = Span { file: self.file, line, column, end_line: line, end_column: column.saturating_add(1) };
                self.drafts.report(span, format!("not well-formed YAML: {}", error.info()));
            }
            Stop::TooDeep(span) => {
                self.drafts.report(span, format!("nested deeper than {MAX_DEPTH} levels"));
            }
            Stop::TooMany(span) => {
                self.drafts.report(span, format!("more than {MAX_NODES} values in one file"));
            }
            Stop::Unexpected(span) => {
                self.drafts.report(span, "not well-formed YAML: it ends in the middle");
            }
        }
    }
}

/// A collection reaches from its start event to its end; the end event of a block has no place of its own.
fn whole(start: Span, end: Span, last: Option<&Node>) -> Span {
    let (mut end_line, mut end_column) = (end.end_line, end.end_column);
    if let Some(last) = last
        && (end.line, end.column) == (end.end_line, end.end_column)
    {
        (end_line, end_column) = (last.span.end_line, last.span.end_column);
    }
    Span { end_line, end_column, ..start }
}
