//! Files as values: parsed where the format is known, so that a change has a path and not only a line.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::format::Format;
use crate::names::sha256_hex;
use crate::resource::ValueChange;

/// Most lines of a text that are listed; beyond that the digest says enough.
const MAX_LINES: usize = 40;

/// What stands at one path of a file.
#[derive(PartialEq)]
pub(crate) struct Leaf {
    pub(crate) text: String,
    /// Of a list of plain values, or of a command: these are compared one by one.
    items: Option<Vec<String>>,
}

pub(crate) type Values = BTreeMap<String, Leaf>;

impl Leaf {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), items: None }
    }

    pub(crate) fn list(items: &[String]) -> Self {
        Self { text: items.join(" "), items: Some(items.to_vec()) }
    }

    /// Taken apart only where it is certain where each word ends.
    fn command(line: &str) -> Self {
        let quoted = line.contains(['"', '\'', '\\']);
        Self { text: line.to_owned(), items: (!quoted).then(|| line.split_whitespace().map(str::to_owned).collect()) }
    }
}

/// Keys that are in one of the two, or have another value in the other.
pub(crate) fn changes(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<ValueChange> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key))
        .map(|key| ValueChange { path: key.clone(), old: old.get(key).cloned(), new: new.get(key).cloned() })
        .collect()
}

pub(crate) fn leaf_changes(old: &Values, new: &Values) -> Vec<ValueChange> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .flat_map(|key| {
            let (old, new) = (old.get(key), new.get(key));
            let items = |leaf: Option<&Leaf>| leaf.and_then(|leaf| leaf.items.clone());
            let by_item = match (items(old), items(new)) {
                (Some(old), Some(new)) if old == new => return Vec::new(),
                (Some(old), Some(new)) => item_changes(key, old, new),
                _ if old == new => return Vec::new(),
                _ => Vec::new(),
            };
            if !by_item.is_empty() {
                return by_item;
            }
            // Not a list on both sides, or the same items in another order.
            let text = |leaf: Option<&Leaf>| leaf.map(|leaf| leaf.text.clone());
            vec![ValueChange { path: key.clone(), old: text(old), new: text(new) }]
        })
        .collect()
}

/// Items that are in one of the two lists only, wherever they stand; a flag of a command with both its values.
fn item_changes(path: &str, old: Vec<String>, new: Vec<String>) -> Vec<ValueChange> {
    let (mut gone, mut added) = (Vec::new(), new);
    for item in old {
        match added.iter().position(|other| *other == item) {
            Some(index) => drop(added.remove(index)),
            None => gone.push(item),
        }
    }
    if let ([old], [new]) = (gone.as_slice(), added.as_slice())
        && flag(old).is_none()
        && flag(new).is_none()
    {
        return vec![ValueChange { path: path.to_owned(), old: Some(old.clone()), new: Some(new.clone()) }];
    }
    let place = |item: &str| flag(item).map_or_else(|| path.to_owned(), |(name, _)| format!("{path} {name}"));
    let value = |item: &str| flag(item).map_or(item, |(_, value)| value).to_owned();
    let mut changes = Vec::new();
    for item in gone {
        let same =
            flag(&item).and_then(|(name, _)| added.iter().position(|other| Some(name) == flag(other).map(|f| f.0)));
        let new = same.map(|index| value(&added.remove(index)));
        changes.push(ValueChange { path: place(&item), old: Some(value(&item)), new });
    }
    changes.extend(added.iter().map(|item| ValueChange { path: place(item), old: None, new: Some(value(item)) }));
    changes
}

/// Its name with the dashes, and its value.
fn flag(word: &str) -> Option<(&str, &str)> {
    word.starts_with('-').then(|| word.split_once('='))?
}

/// What differs between two contents of a file; empty if only the spelling does.
pub(crate) fn file_changes(path: &str, old: &[u8], new: &[u8]) -> Vec<ValueChange> {
    if old == new {
        return Vec::new();
    }
    match (parse(path, old), parse(path, new)) {
        (Some(old), Some(new)) => leaf_changes(&old, &new),
        _ => text_changes(old, new),
    }
}

/// `None` where the format is not known, or the content is not well-formed.
pub(crate) fn parse(path: &str, content: &[u8]) -> Option<Values> {
    let text = std::str::from_utf8(content).ok()?;
    let mut values = Values::new();
    match Format::by_name(path)? {
        Format::Yaml => flatten("", &read_yaml(text)?, &mut values),
        Format::Json => flatten("", &serde_json::from_str(text).ok()?, &mut values),
        Format::Toml => {
            flatten("", &serde_json::to_value(toml::from_str::<toml::Table>(text).ok()?).ok()?, &mut values);
        }
        Format::Unit => values = sections(text),
        Format::Environment => values = assignments(text)?,
        Format::Pem | Format::Text | Format::Binary => return None,
    }
    Some(values)
}

/// One document without aliases, which nothing of ours has a use for, and which are how a small text becomes a large one.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Option<T> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_aliases: 0, max_anchors: 0, max_merge_keys: 0 },
        strict_booleans: true,
    };
    serde_saphyr::from_str_with_options(text, options).ok()
}

/// Files and folders of the node that a pod's manifest mounts.
pub fn host_paths(manifest: &[u8]) -> Vec<String> {
    let values = parse("manifest.yaml", manifest).unwrap_or_default();
    let mounts = values.into_iter().filter(|(path, _)| path.ends_with(".hostPath.path"));
    mounts.map(|(_, leaf)| leaf.text).collect()
}

/// Leaves by path. A list of plain values is one leaf; other items go by their names, or else by their numbers.
pub(crate) fn flatten(path: &str, value: &Value, values: &mut Values) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let name = if name.contains(['.', '[', ' ']) { format!("\"{name}\"") } else { name.clone() };
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, field, values);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            let name = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
            let names: BTreeSet<String> = items.iter().filter_map(name).collect();
            for (index, item) in items.iter().enumerate() {
                match name(item).filter(|_| names.len() == items.len()) {
                    Some(name) => {
                        let before = values.len();
                        flatten(&format!("{path}[{name}]"), item, values);
                        // The path says it, unless there is nothing else that has one.
                        if values.len() > before + 1 {
                            values.remove(&format!("{path}[{name}].name"));
                        }
                    }
                    None => flatten(&format!("{path}[{index}]"), item, values),
                }
            }
        }
        leaf => {
            let plain = |leaf: &Value| leaf.as_str().map_or_else(|| crate::json::canonical(leaf), str::to_owned);
            let items = leaf.as_array().map(|items| items.iter().map(plain).collect());
            values.insert(path.to_owned(), Leaf { text: plain(leaf), items });
        }
    }
}

/// Section, key and value of each line of a unit file, as systemd reads it: a backslash at the end joins lines, and a comment
/// between joined lines does not end them.
pub(crate) fn unit_sections(text: &str) -> Vec<(String, String, String)> {
    let (mut entries, mut section, mut open) = (Vec::new(), String::new(), String::new());
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(part) = line.strip_suffix('\\') {
            open = format!("{open}{} ", part.trim_end());
            continue;
        }
        let line = std::mem::take(&mut open) + line;
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
        } else if !line.is_empty() {
            let (key, value) = line.split_once('=').unwrap_or((&line, ""));
            entries.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    entries
}

/// A unit file; a key that stands more than once counts up.
fn sections(text: &str) -> Values {
    let mut values = Values::new();
    for (section, key, value) in unit_sections(text) {
        let first = format!("{section}.{key}");
        let counted = (1..).map(|count| format!("{first}[{count}]"));
        let path = std::iter::once(first.clone()).chain(counted).find(|path| !values.contains_key(path));
        let leaf = if key.starts_with("Exec") { Leaf::command(&value) } else { Leaf::text(value) };
        values.insert(path.unwrap_or(first), leaf);
    }
    values
}

fn assignments(text: &str) -> Option<Values> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=')?;
            let value = value.trim();
            let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            Some((name.trim().to_owned(), Leaf::text(value)))
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
        let (removed, added) = (only(&old, &new), only(&new, &old));
        let pairs: Vec<(Option<String>, Option<String>)> = match removed.len() == added.len() {
            // As many as before: most likely the same ones with other values.
            true => removed.into_iter().map(Some).zip(added.into_iter().map(Some)).collect(),
            false => {
                let removed = removed.into_iter().map(|line| (Some(line), None));
                removed.chain(added.into_iter().map(|line| (None, Some(line)))).collect()
            }
        };
        let changed: Vec<ValueChange> =
            pairs.into_iter().map(|(old, new)| ValueChange { path: "line".to_owned(), old, new }).collect();
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
            ["a.b: 1 → 2", "a.c: removed y", "d: added yes"]
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
            ["Service.ExecStart: removed --b", "Unit.After[1]: b → c"]
        );
        assert_eq!(shown("/a.env", "A=\"1\"\nB=2\n", "A=1\nB=3\n"), ["B: 2 → 3"]);
        assert_eq!(shown("/etc/sysctl.d/a.conf", "net.a = 1\n", "net.a=0\n"), ["net.a: 1 → 0"]);
    }

    #[test]
    fn lists_and_commands_are_compared_item_by_item() {
        let pod = |words: &str| format!("spec: {{containers: [{{name: etcd, command: [{words}]}}]}}\n");
        let command = "spec.containers[etcd].command";
        assert_eq!(
            shown("/a.yaml", &pod("etcd, --a=1, --b=2, --c"), &pod("etcd, --a=1, --b=3, --d=4")),
            [format!("{command} --b: 2 → 3"), format!("{command}: removed --c"), format!("{command} --d: added 4")]
        );
        assert_eq!(shown("/a.yaml", "a: [x, y, z]\n", "a: [x, y2, z]\n"), ["a: y → y2"]);
        assert_eq!(shown("/a.yaml", "a: [x, x, y]\n", "a: [x, y]\n"), ["a: removed x"]);
        assert_eq!(shown("/a.yaml", "a: [x, y]\n", "a: [y, x]\n"), [r#"a: ["x","y"] → ["y","x"]"#]);
        assert_eq!(shown("/a.yaml", "a: [x]\n", "a: x\n"), [r#"a: ["x"] → x"#]);
        let unit = |line: &str| format!("[Service]\nExecStart={line}\n");
        assert_eq!(
            shown("/a.service", &unit("/a --b=1 --c=2"), &unit("/a --b=1 --c=3")),
            ["Service.ExecStart --c: 2 → 3"]
        );
        // Within quotes every blank counts.
        assert_eq!(
            shown("/a.service", &unit("/a 'b  c'"), &unit("/a 'b c'")),
            ["Service.ExecStart: /a 'b  c' → /a 'b c'"]
        );
    }

    #[test]
    fn an_item_with_a_name_goes_by_it() {
        assert_eq!(
            shown("/a.yaml", "a: [{name: x, b: 1}, {name: y, b: 2}]\n", "a: [{name: y, b: 3}]\n"),
            ["a[x].b: removed 1", "a[y].b: 2 → 3"]
        );
        assert_eq!(
            shown("/a.yaml", "a: [{name: x}]\n", "a: [{name: y}]\n"),
            ["a[x].name: removed x", "a[y].name: added y"]
        );
    }

    #[test]
    fn a_long_value_is_cut_around_what_differs() {
        let members = |count: u32| -> String {
            (1..=count)
                .map(|n| format!("cp-{n}=https://cp-{n}.internal.example.com:2380"))
                .collect::<Vec<_>>()
                .join(",")
        };
        let [line] = shown("/a.env", &format!("M={}", members(3)), &format!("M={}", members(4))).try_into().unwrap();
        let (old, new) = line.split_once(" → ").unwrap();
        assert!(!old.contains("cp-4") && new.contains("cp-4=https://cp-4.internal.example.com:2380"), "{line}");
        // What can be seen of one is not the same as what can be seen of the other, wherever they part.
        for index in 0..300 {
            let mut other = "x".repeat(300);
            other.replace_range(index..=index, "y");
            let [line] = shown("/a.env", &format!("M={}", "x".repeat(300)), &format!("M={other}")).try_into().unwrap();
            let (old, new) = line.strip_prefix("M: ").unwrap().split_once(" → ").unwrap();
            assert!(old != new && new.contains('y') && line.chars().count() < 220, "{line}");
        }
    }

    #[test]
    fn what_is_not_known_or_not_well_formed_is_compared_as_text() {
        assert_eq!(shown("/a.json", "{", "{}"), ["line: { → {}"]);
        assert_eq!(shown("/etc/motd", "a\nb\n", "a\nc\n"), ["line: b → c"]);
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
