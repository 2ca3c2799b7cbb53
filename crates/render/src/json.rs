//! JSON whose bytes depend on the value alone.
//!
//! [`Writer`] writes what it is told, in the order in which it is told; [`canonical`] and [`pretty`] sort the keys of a
//! value, because the order of serde_json's own map depends on features that other crates may turn on.

use std::fmt::Write as _;

use serde_json::Value;

/// White space between the parts of a document.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Layout {
    Compact,
    /// By two spaces.
    Indented,
}

/// Sorted keys, no white space.
pub(crate) fn canonical(value: &Value) -> String {
    let mut writer = Writer::new(Layout::Compact, String::new());
    writer.value(value);
    writer.text
}

/// Sorted keys, two spaces of indentation, a newline at the end.
pub(crate) fn pretty(value: &Value) -> String {
    let mut writer = Writer::new(Layout::Indented, String::new());
    writer.value(value);
    writer.text.push('\n');
    writer.text
}

/// A document that is written without building a tree of it first: a fleet has thousands.
pub(crate) struct Writer {
    layout: Layout,
    depth: usize,
    /// Nothing stands yet in the innermost object or list.
    is_empty: bool,
    text: String,
}

impl Writer {
    /// `text` is where the document goes, and may have room for it.
    pub(crate) fn new(layout: Layout, text: String) -> Self {
        Self::within_document(layout, 0, text)
    }

    /// For a part of a document that lies so deep in it.
    pub(crate) fn within_document(layout: Layout, depth: usize, text: String) -> Self {
        Self { layout, depth, is_empty: true, text }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    pub(crate) fn object(&mut self, fields: impl FnOnce(&mut Self)) {
        self.within('{', '}', fields);
    }

    pub(crate) fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        self.within('[', ']', |writer| {
            for item in items {
                writer.separate();
                write(writer, item);
            }
        });
    }

    /// The name of a field, whose value is written next; one of ours, which needs no escapes.
    ///
    /// Inlined, so that its length is known and it is not copied by a call: a bundle has hundreds of names.
    #[inline(always)]
    pub(crate) fn name(&mut self, name: &'static str) -> &mut Self {
        self.separate();
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str(if self.layout == Layout::Compact { "\":" } else { "\": " });
        self
    }

    /// The same for a name of the user's.
    pub(crate) fn key(&mut self, key: &str) -> &mut Self {
        self.separate();
        self.string(key);
        self.text.push_str(if self.layout == Layout::Compact { ":" } else { ": " });
        self
    }

    pub(crate) fn strings<'t>(&mut self, items: impl IntoIterator<Item = &'t String>) {
        self.list(items, |writer, item| writer.string(item));
    }

    pub(crate) fn string(&mut self, string: &str) {
        quote(string, &mut self.text);
    }

    /// What needs no escapes for certain, such as a digest.
    pub(crate) fn plain(&mut self, text: &str) {
        self.text.push('"');
        self.text.push_str(text);
        self.text.push('"');
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.text.push_str(if flag { "true" } else { "false" });
    }

    pub(crate) fn number(&mut self, number: u64) {
        let _ = write!(self.text, "{number}");
    }

    /// What is JSON already.
    pub(crate) fn raw(&mut self, json: &str) {
        self.text.push_str(json);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                self.object(|writer| sorted.into_iter().for_each(|(key, value)| writer.key(key).value(value)));
            }
            Value::Array(items) => self.list(items, Self::value),
            Value::String(string) => self.string(string),
            leaf => self.raw(&leaf.to_string()),
        }
    }

    fn within(&mut self, open: char, close: char, inside: impl FnOnce(&mut Self)) {
        self.text.push(open);
        self.depth += 1;
        self.is_empty = true;
        inside(self);
        self.depth -= 1;
        if !self.is_empty {
            self.line_break();
        }
        self.is_empty = false;
        self.text.push(close);
    }

    fn separate(&mut self) {
        if !self.is_empty {
            self.text.push(',');
        }
        self.is_empty = false;
        self.line_break();
    }

    fn line_break(&mut self) {
        /// Deeper than most documents go.
        const LINE_START: &str = "\n                ";
        if self.layout == Layout::Indented {
            let width = 1 + 2 * self.depth;
            self.text.push_str(&LINE_START[..width.min(LINE_START.len())]);
            for _ in LINE_START.len()..width {
                self.text.push(' ');
            }
        }
    }
}

/// Writes a string with its quotes, and no more escapes than JSON asks for.
pub(crate) fn quote(string: &str, text: &mut String) {
    text.reserve(string.len() + 2);
    text.push('"');
    let bytes = string.as_bytes();
    let mut copied = 0;
    while let Some(length) = plain_length(&bytes[copied..]) {
        let special = copied + length;
        text.push_str(&string[copied..special]);
        escape(bytes[special], text);
        copied = special + 1;
    }
    text.push_str(&string[copied..]);
    text.push('"');
}

/// How many bytes stand before the first that needs an escape, if one does. Eight are looked at in one go.
fn plain_length(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The highest bit of a byte: it was less than the other one. A carry can spoil later bytes, never the first.
        let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & HIGH;
        let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let special = below(word, b' ') | equal(b'"') | equal(b'\\');
        if special != 0 {
            return Some(number * 8 + special.trailing_zeros() as usize / 8);
        }
    }
    let in_rest = rest.iter().position(|byte| *byte < b' ' || *byte == b'"' || *byte == b'\\');
    in_rest.map(|at| words.len() * 8 + at)
}

fn escape(byte: u8, text: &mut String) {
    text.push_str(match byte {
        b'\n' => "\\n",
        b'"' => "\\\"",
        b'\\' => "\\\\",
        b'\t' => "\\t",
        b'\r' => "\\r",
        0x08 => "\\b",
        0x0c => "\\f",
        control => {
            let _ = write!(text, "\\u{control:04x}");
            return;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_and_layouts_differ_in_white_space_only() {
        let value = json!({ "b": [1, { "d": null, "c": "é\n" }], "a": {}, "aa": [] });
        assert_eq!(canonical(&value), r#"{"a":{},"aa":[],"b":[1,{"c":"é\n","d":null}]}"#);
        assert_eq!(
            pretty(&value),
            "{\n  \"a\": {},\n  \"aa\": [],\n  \"b\": [\n    1,\n    {\n      \"c\": \"é\\n\",\n      \"d\": null\n    }\n  ]\n}\n"
        );
    }

    proptest! {
        #[test]
        fn strings_are_written_as_serde_json_writes_them(string in "[\\x00-\\x7fé\u{2028}😀]{0,100}") {
            let mut text = String::new();
            quote(&string, &mut text);
            prop_assert_eq!(text, serde_json::to_string(&string).unwrap());
        }
    }
}
