//! Writing YAML that every reader understands alike: whatever YAML 1.1 or 1.2 could take for something else is quoted.

use std::fmt::Write as _;

use serde_json::{Number, Value};

const INDENT: &str = "  ";

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
            let _ = writeln!(text, "{}", flow(value));
        }
    }
    text
}

pub(crate) fn write_key(text: &mut String, depth: usize, name: &str) {
    text.push_str(&INDENT.repeat(depth));
    text.push_str(&scalar(name));
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
                let _ = writeln!(text, "{}{line}", INDENT.repeat(depth + 1));
            }
        }
        value => {
            let _ = writeln!(text, " {}", flow(value));
        }
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
                let _ = writeln!(text, "{}- {}", INDENT.repeat(depth), flow(item));
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
fn flow(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => write_number(number),
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}: {}", scalar(name), flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
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

fn scalar(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { quoted(text) }
}

/// Texts that no reader takes for anything else: they begin with a letter or slash, so they are no numbers, and use no
/// character that means something in block or flow style.
fn is_plain(text: &str) -> bool {
    const WORDS: &[&str] = &["true", "false", "yes", "no", "on", "off", "y", "n", "null"];
    let first = text.chars().next();
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | ':' | '@');
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(inner)
        && !text.ends_with(':')
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
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

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
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
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decode::Drafts;
    use crate::source::{Source, Sources};
    use crate::tree::{Kind, Style, read_documents};

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
