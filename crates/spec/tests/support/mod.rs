//! Reading cases and comparing with goldens; `UPDATE_GOLDEN=1 cargo test -p spec` rewrites them.
#![allow(clippy::unwrap_used, reason = "a helper of tests: a panic is its failure")]
#![allow(clippy::disallowed_methods, reason = "tests read their cases and write their goldens")]
#![allow(dead_code, reason = "each test file uses a part of it")]

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

pub(crate) fn cases(kind: &str) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder().join("cases").join(kind)).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

pub(crate) fn authority() -> String {
    read(&folder().join("cases/ca.crt"))
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
    let spec = spec::parse(sources).resolve(|reference| match reference.path.as_str() {
        "ca.crt" => Ok(authority().into_bytes()),
        "ca.key" => Ok(b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n".to_vec()),
        "no-certificate.crt" => Ok(b"-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n".to_vec()),
        "keys.gpg" => Ok(vec![0x98, 0x33, 0x04, 0xff]),
        "token.txt" => Ok(format!("{TOKEN}\n").into_bytes()),
        // The control plane of the tests of `render`, and the same with damage.
        path if path.starts_with("control-plane/") => shared_pki(path),
        "damaged/pki/ca.key" => Ok(b"hunter2\n".to_vec()),
        "damaged/pki/apiserver.crt" => shared_pki("control-plane/pki/etcd/server.crt"),
        "damaged/pki/apiserver.key" => shared_pki("control-plane/pki/etcd/server.key"),
        "damaged/pki/etcd/peer.key" => shared_pki("control-plane/pki/sa.key"),
        "damaged/admin.conf" => Ok(b"hunter2: [\n".to_vec()),
        path if path.starts_with("damaged/") => shared_pki(path),
        "bad-token.txt" => Ok(b"ABCDEF.hunter2".to_vec()),
        _ => Err("no such file".to_owned()),
    })?;
    spec::complete(&spec)
}

fn shared_pki(path: &str) -> Result<Vec<u8>, String> {
    let below = path.split_once('/').map_or(path, |(_, below)| below);
    fs::read(folder().join("../../render/tests/pki").join(below)).map_err(|error| error.to_string())
}

pub(crate) fn expect_complete(text: &str) -> CompleteSpec {
    complete(text).unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

pub(crate) fn compare_golden(path: &str, actual: &str) {
    let path = folder().join("golden").join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, actual).unwrap();
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == actual, "{} differs (UPDATE_GOLDEN=1 rewrites it); now:\n{actual}", path.display());
}
