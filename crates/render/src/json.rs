//! JSON whose bytes depend on the value alone.
//!
//! Keys are sorted here, because the order of serde_json's own map depends on features that other crates may turn on.

use serde_json::Value;

/// White space between the parts of a document.
#[derive(Clone, Copy)]
enum Layout {
    Compact,
    Indented { depth: usize },
}

/// Sorted keys, no white space.
pub(crate) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, Layout::Compact, &mut text);
    text
}

/// Sorted keys, two spaces of indentation, a newline at the end.
pub(crate) fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(value, Layout::Indented { depth: 0 }, &mut text);
    text.push('\n');
    text
}

fn write(value: &Value, layout: Layout, text: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, value)) in sorted.into_iter().enumerate() {
                separate(index, layout, text);
                write_string(name, text);
                text.push_str(if matches!(layout, Layout::Compact) { ":" } else { ": " });
                write(value, layout.inner(), text);
            }
            layout.line_break(text);
            text.push('}');
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(index, layout, text);
                write(item, layout.inner(), text);
            }
            layout.line_break(text);
            text.push(']');
        }
        Value::String(string) => write_string(string, text),
        leaf => text.push_str(&leaf.to_string()),
    }
}

/// Most strings need no escapes: those are copied as they stand.
fn write_string(string: &str, text: &mut String) {
    if string.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        text.push_str(&Value::from(string).to_string());
    } else {
        text.push('"');
        text.push_str(string);
        text.push('"');
    }
}

fn separate(index: usize, layout: Layout, text: &mut String) {
    if index > 0 {
        text.push(',');
    }
    layout.inner().line_break(text);
}

impl Layout {
    fn inner(self) -> Self {
        match self {
            Self::Compact => Self::Compact,
            Self::Indented { depth } => Self::Indented { depth: depth + 1 },
        }
    }

    fn line_break(self, text: &mut String) {
        if let Self::Indented { depth } = self {
            text.push('\n');
            text.extend(std::iter::repeat_n("  ", depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
