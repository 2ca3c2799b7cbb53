//! Readable YAML with sorted keys, for the few shapes we write: block maps, block lists, one-line scalars.
//!
//! A string stands bare only if no YAML reader, of 1.1 or 1.2, can take it for anything else; otherwise it is quoted.

use std::collections::BTreeMap;

use serde_json::Value;

/// A document; the same value gives the same bytes.
pub(crate) fn render_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_map(fields, 0, "", &mut text),
        Value::Array(items) if !items.is_empty() => write_list(items, 0, &mut text),
        leaf => {
            text.push_str(&scalar(leaf));
            text.push('\n');
        }
    }
    text
}

/// `first` takes the place of the indentation of the first line: the dash of a list item stands there.
fn write_map(fields: &serde_json::Map<String, Value>, depth: usize, first: &str, text: &mut String) {
    // Sorted here, because the order of serde_json's own map depends on features that other crates may turn on.
    let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index == 0 && !first.is_empty() {
            text.push_str(first);
        } else {
            text.push_str(&"  ".repeat(depth));
        }
        text.push_str(&string(name));
        text.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                text.push('\n');
                write_map(fields, depth + 1, "", text);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                write_list(items, depth + 1, text);
            }
            leaf => text.push_str(&format!(" {}\n", scalar(leaf))),
        }
    }
}

fn write_list(items: &[Value], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for item in items {
        match item {
            Value::Object(fields) if !fields.is_empty() => write_map(fields, depth + 1, &format!("{indent}- "), text),
            Value::Array(items) if !items.is_empty() => {
                text.push_str(&format!("{indent}-\n"));
                write_list(items, depth + 1, text);
            }
            leaf => text.push_str(&format!("{indent}- {}\n", scalar(leaf))),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => string(text),
        // Null, booleans, numbers and the empty `[]` and `{}` are the same in JSON and YAML.
        other => other.to_string(),
    }
}

fn string(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quote(text) }
}

fn is_plain(text: &str) -> bool {
    // What some reader takes for a boolean or for nothing.
    let reserved = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_.:-".contains(&byte))
        && !text.ends_with(':')
        && !reserved.contains(&text.to_ascii_lowercase().as_str())
}

/// A double-quoted scalar. Unlike JSON, YAML wants all that is not printable escaped.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Line separators would be folded, the byte order mark is not allowed inside a document.
            '\u{2028}' | '\u{2029}' | '\u{feff}' => quoted.push_str(&format!("\\u{:04x}", character as u32)),
            control if control.is_control() => quoted.push_str(&format!("\\u{:04x}", control as u32)),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_is_sorted_block_style() {
        let value = json!({
            "z": { "b": true, "a": 10 },
            "list": ["one", { "k": "v", "j": [1, 2] }, [], {}, ["x"]],
            "empty": {},
            "none": null,
        });
        let expected = "empty: {}\nlist:\n  - one\n  - j:\n      - 1\n      - 2\n    k: v\n  - []\n  - {}\n  -\n    - x\nnone: null\nz:\n  a: 10\n  b: true\n";
        assert_eq!(render_yaml(&value), expected);
    }

    #[test]
    fn strings_that_could_be_read_as_something_else_are_quoted() {
        let quoted = [
            "",
            "yes",
            "No",
            "ON",
            "null",
            "~",
            "1",
            "0644",
            "1e3",
            "12:30",
            "10s",
            "10.96.0.10",
            "=",
            "<<",
            "a: b",
            "a:",
            "- a",
            "#a",
            "a #b",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            "a,b",
            ".inf",
            "é",
            " a",
            "|",
        ];
        for text in quoted {
            assert_eq!(string(text), format!("\"{text}\""));
        }
        for text in ["Webhook", "/etc/kubernetes/pki/ca.crt", "unix:///run/containerd/containerd.sock", "cluster.local"]
        {
            assert_eq!(string(text), text);
        }
        assert_eq!(string("a\"\\\n\u{7f}\u{85}\u{2028}"), r#""a\"\\\n\u007f\u0085\u2028""#);
    }
}
