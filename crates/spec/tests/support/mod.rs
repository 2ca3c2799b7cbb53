//! Reading cases and comparing with goldens; `UPDATE_GOLDEN=1 cargo test -p spec` rewrites them.
#![allow(clippy::unwrap_used, reason = "a helper of tests: a panic is its failure")]
#![allow(clippy::disallowed_methods, reason = "tests read their cases and write their goldens")]
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../render/tests/support/keys.rs"]
mod keys;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use spec::{CompleteSpec, Mistake, Source};

pub(crate) const TOKEN: &str = "abcdef.0123456789abcdef";

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

pub(crate) fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A spec that is refused, and what is said of it then.
pub(crate) struct BadSpec {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) gives: String,
}

/// As it stands in its file.
impl fmt::Display for BadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "==== {}\n{}==== gives\n{}", self.name, self.text, self.gives)
    }
}

/// The files of bad specs; each has those that are about the same.
pub(crate) fn mistake_classes() -> Vec<String> {
    let entries = fs::read_dir(folder().join("mistakes")).unwrap();
    let mut classes: Vec<String> =
        entries.map(|entry| format!("mistakes/{}", entry.unwrap().file_name().to_str().unwrap())).collect();
    classes.sort();
    classes
}

pub(crate) fn bad_specs(class: &str) -> Vec<BadSpec> {
    let all = read(&folder().join(class));
    let mut specs: Vec<BadSpec> = Vec::new();
    let mut gives = false;
    for line in all.split_inclusive('\n') {
        match line.strip_prefix("==== ").map(str::trim_end) {
            Some("gives") => gives = true,
            Some(name) => {
                gives = false;
                specs.push(BadSpec { name: name.to_owned(), text: String::new(), gives: String::new() });
            }
            None => {
                let last = specs.last_mut().unwrap_or_else(|| panic!("{class} does not begin with a name"));
                if gives { &mut last.gives } else { &mut last.text }.push_str(line);
            }
        }
    }
    specs
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

pub(crate) fn authority() -> String {
    example("ca.crt")
}

pub(crate) fn source(text: &str) -> Source {
    Source::new("cluster.yaml", text)
}

pub(crate) fn complete(text: &str) -> Result<CompleteSpec, Vec<Mistake>> {
    complete_sources(&[source(text)])
}

/// The paths of the parts of a value that lies at `path`: items of lists, fields of these, entries of mappings.
pub(crate) fn parts(path: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    let plain = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let parts: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (format!("{path}[{at}]"), item)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match plain(name) {
                true => (format!("{path}.{name}"), value),
                false => (format!("{path}.\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")), value),
            })
            .collect(),
        _ => Vec::new(),
    };
    for (path, value) in parts {
        found.push((path.clone(), value.clone()));
        self::parts(&path, value, found);
    }
}

pub(crate) fn complete_sources(sources: &[Source]) -> Result<CompleteSpec, Vec<Mistake>> {
    spec::complete(&resolve_sources(sources)?)
}

pub(crate) fn resolve_sources(sources: &[Source]) -> Result<spec::Spec, Vec<Mistake>> {
    spec::parse(sources).resolve(|reference| match reference.path.as_str() {
        "ca.crt" => Ok(authority().into_bytes()),
        "ca.key" => Ok(b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n".to_vec()),
        "no-certificate.crt" => Ok(b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n".to_vec()),
        "artefacts.json" | "artefacts.json.asc" | "artefacts-keys.asc" => Ok(example(&reference.path).into_bytes()),
        // The same without a signature, and with one that fits to something else.
        "unsigned.json" => Ok(example("artefacts.json").into_bytes()),
        "changed.json" => Ok(example("artefacts.json").replace("1.5.2", "1.5.3").into_bytes()),
        "changed.json.asc" => Ok(example("artefacts.json.asc").into_bytes()),
        "cut-off.json" => Ok(b"{\"kind\": \"ArtefactManifest\", ".to_vec()),
        "other-keys.asc" => Ok(read(&folder().join("cases/other-keys.asc")).into_bytes()),
        "keys.gpg" => Ok(vec![0x98, 0x33, 0x04, 0xff]),
        "token.txt" => Ok(format!("{TOKEN}\n").into_bytes()),
        // A control plane, and the same with damage.
        path if path.starts_with("control-plane/") => control_plane_file(path),
        "damaged/pki/ca.key" => Ok(b"hunter2\n".to_vec()),
        "damaged/pki/apiserver.crt" => control_plane_file("control-plane/pki/etcd/server.crt"),
        "damaged/pki/apiserver.key" => control_plane_file("control-plane/pki/etcd/server.key"),
        "damaged/pki/etcd/peer.key" => control_plane_file("control-plane/pki/sa.key"),
        "damaged/admin.conf" => Ok(b"hunter2: [\n".to_vec()),
        path if path.starts_with("damaged/") => control_plane_file(path),
        "bad-token.txt" => Ok(b"ABCDEF.hunter2".to_vec()),
        _ => Err("no such file".to_owned()),
    })
}

fn control_plane_file(path: &str) -> Result<Vec<u8>, String> {
    let below = path.split_once('/').map_or(path, |(_, below)| below);
    let content = keys::control_plane("https://10.0.0.10:6443").get(below).cloned();
    content.map(String::into_bytes).ok_or_else(|| "no such file".to_owned())
}

pub(crate) fn expect_complete(text: &str) -> CompleteSpec {
    complete(text).unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

/// With a file below `tests`.
pub(crate) fn compare_golden(path: &str, actual: &str) {
    let path = folder().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| !value.is_empty()) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    if golden != actual {
        let same = golden.lines().zip(actual.lines()).take_while(|(expected, found)| expected == found).count();
        let shown = |text: &str| text.lines().skip(same).take(20).map(|line| format!("  {line}\n")).collect::<String>();
        panic!(
            "{} differs from line {} on (`UPDATE_GOLDEN=1 cargo test -p spec` rewrites it); expected:\n{}found:\n{}",
            path.display(),
            same + 1,
            shown(&golden),
            shown(actual)
        );
    }
}
