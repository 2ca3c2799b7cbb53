//! Files as values: parsed where the format is known, so that a change has a path and not only a line.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::bundle::MAX_BUNDLE_BYTES;
use crate::content::sha256_hex;
use crate::diff::ValueChange;

/// Most lines of a text that are listed; beyond that the digest says enough.
const MAX_LINES: usize = 40;

/// Keys that are in one of the two, or have another value in the other.
pub(super) fn changes(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<ValueChange> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| ValueChange { path: key.clone(), old: old.get(key).cloned(), new: new.get(key).cloned() })
        .collect()
}

/// What differs between two contents of a file; empty if only the spelling does.
pub(super) fn file_changes(path: &str, old: &[u8], new: &[u8]) -> Vec<ValueChange> {
    if old == new {
        return Vec::new();
    }
    match (parse(path, old), parse(path, new)) {
        (Some(old), Some(new)) => changes(&old, &new),
        _ => text_changes(old, new),
    }
}

fn parse(path: &str, content: &[u8]) -> Option<BTreeMap<String, String>> {
    let text = std::str::from_utf8(content).ok()?;
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let mut values = BTreeMap::new();
    match extension {
        "yaml" | "yml" | "kubeconfig" => flatten("", &parse_yaml(text)?, &mut values),
        "json" | "conflist" => flatten("", &serde_json::from_str(text).ok()?, &mut values),
        "toml" => flatten("", &serde_json::to_value(toml::from_str::<toml::Table>(text).ok()?).ok()?, &mut values),
        "service" | "socket" | "timer" | "mount" | "path" | "target" => values = sections(text)?,
        "conf" if path.contains(".service.d/") => values = sections(text)?,
        "env" => values = assignments(text)?,
        "conf" if path.starts_with("/etc/sysctl.d/") => values = assignments(text)?,
        _ => return None,
    }
    Some(values)
}

fn parse_yaml(text: &str) -> Option<Value> {
    spec::read_yaml(text, MAX_BUNDLE_BYTES)
}

/// Leaves by path. A list of plain values is one leaf: its items have no names of their own.
fn flatten(path: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let name = if name.contains(['.', '[', ' ']) { format!("\"{name}\"") } else { name.clone() };
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, field, values);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), item, values);
            }
        }
        leaf => {
            let text = leaf.as_str().map_or_else(|| crate::json::canonical(leaf), str::to_owned);
            values.insert(path.to_owned(), text);
        }
    }
}

/// A unit file; a key that stands more than once counts up.
fn sections(text: &str) -> Option<BTreeMap<String, String>> {
    let (mut values, mut section) = (BTreeMap::new(), String::new());
    // A backslash at the end joins lines.
    for line in text.replace("\\\n", " ").lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        let (key, value) = line.split_once('=')?;
        let first = format!("{section}.{}", key.trim());
        let mut path = first.clone();
        for count in 1.. {
            if !values.contains_key(&path) {
                break;
            }
            path = format!("{first}[{count}]");
        }
        values.insert(path, value.trim().to_owned());
    }
    Some(values)
}

fn assignments(text: &str) -> Option<BTreeMap<String, String>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=')?;
            let value = value.trim();
            let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            Some((name.trim().to_owned(), value.to_owned()))
        })
        .collect()
}

/// Lines that are in one text only; for keys, certificates and anything long or binary just the digest.
fn text_changes(old: &[u8], new: &[u8]) -> Vec<ValueChange> {
    let lines = |content: &[u8]| -> Option<Vec<String>> {
        let text = std::str::from_utf8(content).ok().filter(|text| !text.contains("-----BEGIN"))?;
        Some(text.lines().map(str::to_owned).collect())
    };
    if let (Some(old), Some(new)) = (lines(old), lines(new)) {
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these.iter().filter(|line| !those.contains(line)).cloned().collect()
        };
        let removed = only(&old, &new).into_iter().map(|line| (Some(line), None));
        let added = only(&new, &old).into_iter().map(|line| (None, Some(line)));
        let changed: Vec<ValueChange> =
            removed.chain(added).map(|(old, new)| ValueChange { path: "line".to_owned(), old, new }).collect();
        // None: the lines have another order, or one of them stands there more often.
        if !changed.is_empty() && old.len().max(new.len()) <= MAX_LINES {
            return changed;
        }
    }
    let digest = |content: &[u8]| Some(format!("sha256:{}", sha256_hex(content)));
    vec![ValueChange { path: "content".to_owned(), old: digest(old), new: digest(new) }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str, old: &str, new: &str) -> Vec<String> {
        file_changes(path, old.as_bytes(), new.as_bytes()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_known_format_is_compared_by_value() {
        assert_eq!(
            shown("/a.yaml", "a: {b: 1, c: [x, y]}\n", "a: {b: 2, c: [x]}\nd: yes\n"),
            ["a.b: 1 → 2", r#"a.c: ["x","y"] → ["x"]"#, "d: added yes"]
        );
        assert_eq!(shown("/a.json", r#"{"a":[{"b":null}]}"#, r#"{"a":[{"b":0}]}"#), ["a[0].b: null → 0"]);
        assert_eq!(
            shown("/a.toml", "[plugins.\"io.x.y\"]\nz = 1\n", "[plugins.\"io.x.y\"]\nz = true\n"),
            [r#"plugins."io.x.y".z: 1 → true"#]
        );
        assert_eq!(
            shown(
                "/etc/systemd/system/a.service",
                "[Unit]\nAfter=a\nAfter=b\n[Service]\n# x\nExecStart=/a \\\n  --b\n",
                "[Unit]\nAfter=a\nAfter=c\n[Service]\nExecStart=/a\n"
            ),
            ["Service.ExecStart: /a    --b → /a", "Unit.After[1]: b → c"]
        );
        assert_eq!(shown("/a.env", "A=\"1\"\nB=2\n", "A=1\nB=3\n"), ["B: 2 → 3"]);
        assert_eq!(shown("/etc/sysctl.d/a.conf", "net.a = 1\n", "net.a=0\n"), ["net.a: 1 → 0"]);
    }

    #[test]
    fn what_is_not_known_or_not_well_formed_is_compared_as_text() {
        assert_eq!(shown("/a.json", "{", "{}"), ["line: removed {", "line: added {}"]);
        assert_eq!(shown("/etc/motd", "a\nb\n", "a\nc\n"), ["line: removed b", "line: added c"]);
        assert_eq!(shown("/etc/motd", "a\nb\n", "b\na\n").len(), 1, "another order is a change");
        let pem = shown("/a.crt", "-----BEGIN X\nold\n", "-----BEGIN X\nnew\n");
        assert!(pem.len() == 1 && pem[0].starts_with("content: sha256:") && !pem[0].contains("old"), "{pem:?}");
    }

    #[test]
    fn another_spelling_of_the_same_values_is_no_change() {
        assert!(shown("/a.json", r#"{"a": 1}"#, "{\"a\":1}\n").is_empty());
        assert!(shown("/a.service", "[Unit]\nA=1\n", "# new\n[Unit]\nA = 1\n").is_empty());
    }
}
