//! Writing YAML that every reader understands alike: whatever YAML 1.1 or 1.2 could take for something else is quoted.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use crate::config_tree::{ConfigNode, ConfigTree};

const INDENT: &str = "  ";

// What is `inline` here is compiled by the crate that calls it, and that one is made to be fast, not small.

/// A document of these fields, in their order; the same fields give the same bytes.
pub fn render_yaml(fields: &serde_json::Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in fields {
        write_field(&mut text, 0, name, value);
    }
    text
}

/// Any value as a document.
pub fn write_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => text = render_yaml(fields),
        Value::Array(items) if !items.is_empty() => write_items(&mut text, 0, items),
        value => {
            write_flow(&mut text, value);
            text.push('\n');
        }
    }
    text
}

/// A configuration of a component as a document, sorted by name, with its header in place of what the tree says there.
pub fn render_config_yaml(api_version: &str, kind: &str, tree: &ConfigTree) -> String {
    let mut text = String::with_capacity(2048);
    let write_header = |text: &mut String, (name, value): (&str, &str)| {
        write_key(text, 0, name);
        text.push(' ');
        write_scalar(text, value);
        text.push('\n');
    };
    let mut header = [("apiVersion", api_version), ("kind", kind)].into_iter().peekable();
    for (name, node) in tree {
        while let Some(field) = header.next_if(|(known, _)| *known < name.as_str()) {
            write_header(&mut text, field);
        }
        if header.peek().is_none_or(|(known, _)| *known != name) {
            write_node(&mut text, 0, name, node);
        }
    }
    header.for_each(|field| write_header(&mut text, field));
    text
}

fn write_node(text: &mut String, depth: usize, name: &str, node: &ConfigNode) {
    match node {
        ConfigNode::Leaf(setting) => write_field(text, depth, name, &setting.value),
        ConfigNode::Branch(fields) => {
            write_key(text, depth, name);
            text.push_str(if fields.is_empty() { " {}\n" } else { "\n" });
            for (name, node) in fields {
                write_node(text, depth + 1, name, node);
            }
        }
    }
}

pub(crate) fn write_key(text: &mut String, depth: usize, name: &str) {
    write_indent(text, depth);
    write_scalar(text, name);
    text.push(':');
}

pub(crate) fn write_field(text: &mut String, depth: usize, name: &str, value: &Value) {
    write_key(text, depth, name);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            text.push('\n');
            for (name, value) in fields {
                write_field(text, depth + 1, name, value);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            write_items(text, depth + 1, items);
        }
        Value::String(block) if is_block(block) => {
            text.push_str(" |\n");
            for line in block.lines() {
                write_indent(text, depth + 1);
                text.push_str(line);
                text.push('\n');
            }
        }
        value => {
            text.push(' ');
            write_flow(text, value);
            text.push('\n');
        }
    }
}

fn write_indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str(INDENT);
    }
}

fn write_items(text: &mut String, depth: usize, items: &[Value]) {
    for item in items {
        match item {
            Value::Object(fields) if !fits_a_line(fields) => {
                let start = text.len();
                for (name, value) in fields {
                    write_field(text, depth + 1, name, value);
                }
                // The dash stands where the last indent of the first field was, and is as wide.
                let dash = start + INDENT.len() * depth;
                text.replace_range(dash..dash + INDENT.len(), "- ");
            }
            item => {
                write_indent(text, depth);
                text.push_str("- ");
                write_flow(text, item);
                text.push('\n');
            }
        }
    }
}

/// Short mappings of scalars, such as a taint, read best in one line.
fn fits_a_line(fields: &serde_json::Map<String, Value>) -> bool {
    const MOST_FIELDS: usize = 4;
    let short = |value: &Value| match value {
        Value::String(text) => text.len() <= 40,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    };
    fields.len() <= MOST_FIELDS && fields.values().all(short)
}

/// On one line; collections in JSON's form with YAML's scalars.
fn write_flow(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => text.push_str(&write_number(number)),
        Value::String(value) => write_scalar(text, value),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                write_flow(text, item);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                write_scalar(text, name);
                text.push_str(": ");
                write_flow(text, value);
            }
            text.push('}');
        }
    }
}

/// YAML 1.1 takes `1e300` for a text: a float needs a point and a signed exponent.
fn write_number(number: &Number) -> String {
    let text = number.to_string();
    match text.split_once(['e', 'E']) {
        None => text,
        Some((mantissa, exponent)) => {
            let point = if mantissa.contains('.') { "" } else { ".0" };
            let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
            format!("{mantissa}{point}e{sign}{exponent}")
        }
    }
}

fn write_scalar(text: &mut String, value: &str) {
    if is_plain(value) { text.push_str(value) } else { write_quoted(text, value) }
}

/// Texts that no reader takes for anything else: they begin with a letter or slash, so they are no numbers, and use no
/// character that means something in block or flow style.
fn is_plain(text: &str) -> bool {
    const WORDS: &[&str] = &["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let first = text.bytes().next();
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/' | b'+' | b':' | b'@');
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == b'/')
        && text.bytes().all(inner)
        && !text.ends_with(':')
        // None of the words is longer.
        && !(text.len() <= 5 && WORDS.iter().any(|word| word.eq_ignore_ascii_case(text)))
}

/// Only lines that need no care: PEM blocks.
fn is_block(text: &str) -> bool {
    text.len() > 80
        && text.ends_with('\n')
        && text.lines().all(|line| {
            !line.is_empty()
                && !line.starts_with(' ')
                && !line.ends_with(' ')
                && line.bytes().all(|b| matches!(b, b' '..=b'~'))
        })
}

fn write_quoted(quoted: &mut String, text: &str) {
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c => {
                let code = u32::from(c);
                let _ = if code > 0xffff { write!(quoted, "\\U{code:08x}") } else { write!(quoted, "\\u{code:04x}") };
            }
        }
    }
    quoted.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decode::Drafts;
    use crate::source::{Source, Sources};
    use crate::tree::{Kind, Style, read_documents};

    fn written(write: impl FnOnce(&mut String)) -> String {
        let mut text = String::new();
        write(&mut text);
        text
    }

    fn scalar(value: &str) -> String {
        written(|text| write_scalar(text, value))
    }

    fn flow(value: &Value) -> String {
        written(|text| write_flow(text, value))
    }

    fn read_back(text: &str) -> (String, Style) {
        let sources = Sources::new(&[Source::new("test", text)]);
        let drafts = Drafts::new(&sources);
        let mut documents = read_documents(0, &sources.files()[0], &drafts);
        assert_eq!(drafts.finish(), []);
        let Kind::Map(mut entries) = documents.remove(0).kind else { panic!("no mapping in {text}") };
        let Kind::Scalar { text, style } = entries.remove(0).value.kind else { panic!("no scalar in {text}") };
        (text, style)
    }

    #[test]
    fn what_could_be_something_else_is_quoted() {
        for trap in [
            "yes",
            "No",
            "ON",
            "off",
            "y",
            "N",
            "true",
            "null",
            "~",
            "",
            "1.30",
            "0644",
            "0x1f",
            "1_000",
            "12:30",
            "1e3",
            "2026-01-01",
            ".inf",
            ".nan",
            "-",
            "?",
            ":",
            "- a",
            "a: b",
            "a #b",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "<<",
            "=",
            " a",
            "a ",
            "a\nb",
            "\u{85}",
            "\u{feff}",
            "[a",
            "{a",
            "key:",
        ] {
            assert!(scalar(trap).starts_with('"'), "{trap:?} is written bare");
        }
        for plain in ["runc", "/usr/bin/kubelet", "https://10.0.0.1:6443", "registry.k8s.io/pause:3.10.1", "node-ip"] {
            assert_eq!(scalar(plain), plain);
        }
    }

    #[test]
    fn floats_are_floats_to_old_readers_too() {
        assert_eq!(flow(&json!(1e300)), "1.0e+300");
        assert_eq!(flow(&json!(1.5e-300)), "1.5e-300");
        assert_eq!(flow(&json!(0.5)), "0.5");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_text_reads_back(value in any::<String>(), lines in "([ -~]{0,30}\n){1,8}") {
            for value in [value, lines] {
                let mut text = String::new();
                write_field(&mut text, 1, "key", &Value::from(value.as_str()));
                let (read, style) = read_back(&text);
                prop_assert_eq!(&read, &value);
                prop_assert!(style == Style::Text || is_plain(&value));
            }
        }
    }
}
