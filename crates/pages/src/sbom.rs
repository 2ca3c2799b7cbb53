//! What the binary is made of, as a CycloneDX document (1.5): every crate with its version, licence and checksum.
//!
//! In: what `cargo tree` prints with [`TREE_ARGUMENTS`], which knows the features of this very build, `Cargo.lock`, and the
//! release of Rust, whose standard library is linked in. Out: JSON in one order, without time or chance, so that two builds of
//! the same commit have the same. Fails with a sentence, when cargo says something that is not understood.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// To be followed by `--target`.
pub const TREE_ARGUMENTS: [&str; 9] =
    ["tree", "--locked", "-p", "cli", "-e", "normal", "--prefix", "depth", "--format=|{p}|{l}"];

/// What the binary is called, and the package that it is built from.
const BINARY: &str = "nodestrap";
const ROOT_PACKAGE: &str = "cli";

/// A crate by name and version.
type Id = (String, String);

struct Crate {
    licence: String,
    /// Part of this repository, and in no registry.
    is_own: bool,
    needs: BTreeSet<Id>,
}

pub fn sbom(tree: &str, lock: &str, rust: &str) -> Result<String, String> {
    let crates = read_tree(tree)?;
    let checksums = read_lock(lock);
    let (root, made_of): (Vec<_>, Vec<_>) = crates.iter().partition(|((name, _), _)| name == ROOT_PACKAGE);
    let [(root, binary)] = root.as_slice() else { return Err(format!("{ROOT_PACKAGE} is not in the tree")) };
    let mut components = vec![json!({
        "type": "library",
        "bom-ref": reference(&standard_library(rust)),
        "name": "std",
        "version": rust,
        "description": "the standard library of Rust, and the C library that it is linked with",
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        "purl": format!("pkg:github/rust-lang/rust@{rust}"),
    })];
    for (id, found) in &made_of {
        components.push(component(id, found, &checksums)?);
    }
    let needs = |id: &Id, needed: &BTreeSet<Id>| json!({ "ref": reference(id), "dependsOn": needed.iter().map(reference).collect::<Vec<_>>() });
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": reference(root),
            "name": BINARY,
            "version": root.1,
            "licenses": [{ "expression": binary.licence }],
        }},
        "components": components,
        "dependencies": crates.iter().map(|(id, found)| needs(id, &found.needs)).collect::<Vec<_>>(),
    });
    Ok(format!("{document:#}\n"))
}

fn standard_library(rust: &str) -> Id {
    ("std".to_owned(), rust.to_owned())
}

fn reference((name, version): &Id) -> String {
    format!("{name}@{version}")
}

fn component(id: &Id, found: &Crate, checksums: &BTreeMap<Id, String>) -> Result<Value, String> {
    let (name, version) = id;
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(id),
        "name": name,
        "version": version,
        "licenses": [{ "expression": found.licence }],
    });
    if found.is_own {
        component["purl"] = format!("pkg:generic/{BINARY}-{name}@{version}").into();
        return Ok(component);
    }
    let checksum = checksums.get(id).ok_or_else(|| format!("Cargo.lock has no checksum of {}", reference(id)))?;
    component["purl"] = format!("pkg:cargo/{name}@{version}").into();
    component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    Ok(component)
}

/// Lines such as `3|serde v1.0.0 (proc-macro)|MIT OR Apache-2.0 (*)`, in which a path means a crate of our own, and a star
/// that what it needs was said before.
fn read_tree(tree: &str) -> Result<BTreeMap<Id, Crate>, String> {
    let mut crates: BTreeMap<Id, Crate> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines() {
        let not_understood = || format!("cargo tree says {line:?}, which is not understood");
        let mut parts = line.splitn(3, '|');
        let (Some(depth), Some(package), Some(licence)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(not_understood());
        };
        let depth: usize = depth.parse().map_err(|_| not_understood())?;
        let (name, rest) = package.split_once(" v").ok_or_else(not_understood)?;
        let (version, remark) = rest.split_once(' ').unwrap_or((rest, ""));
        let licence = licence.trim_end_matches("(*)").trim();
        if licence.is_empty() {
            return Err(format!("{name} {version} has no licence"));
        }
        let id = (name.to_owned(), version.to_owned());
        crates.entry(id.clone()).or_insert_with(|| Crate {
            // An older way to write the same.
            licence: licence.replace('/', " OR "),
            is_own: remark.starts_with("(/"),
            needs: BTreeSet::new(),
        });
        above.truncate(depth);
        if let Some(parent) = above.last().and_then(|parent| crates.get_mut(parent)) {
            parent.needs.insert(id.clone());
        }
        above.push(id);
    }
    Ok(crates)
}

/// The checksums of all packages that have one.
fn read_lock(lock: &str) -> BTreeMap<Id, String> {
    let field = |package: &str, name: &str| {
        let value = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
        Some(value.trim_matches('"').to_owned())
    };
    let read =
        |package: &str| Some(((field(package, "name")?, field(package, "version")?), field(package, "checksum")?));
    lock.split("[[package]]").filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"aa\"\n\n\
                        [[package]]\nname = \"a\"\nversion = \"2.0.0\"\nchecksum = \"bb\"\n";

    #[test]
    fn every_crate_is_there_once_with_what_it_needs() {
        let tree = "0|cli v0.1.0 (/x/cli)|Apache-2.0\n1|own v0.1.0 (/x/own)|Apache-2.0\n2|a v1.0.0|MIT/Apache-2.0\n\
                    1|a v2.0.0 (proc-macro)|MIT\n2|a v1.0.0|MIT/Apache-2.0 (*)\n";
        let document: Value = serde_json::from_str(&sbom(tree, LOCK, "1.95.0").unwrap()).unwrap();
        let names: Vec<_> = document["components"].as_array().unwrap().iter().map(|one| &one["bom-ref"]).collect();
        assert_eq!(names, ["std@1.95.0", "a@1.0.0", "a@2.0.0", "own@0.1.0"]);
        assert_eq!(document["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(document["components"][2]["hashes"][0]["content"], "bb");
        let needs = |at: usize| document["dependencies"][at]["dependsOn"].clone();
        assert_eq!(needs(1), json!(["a@1.0.0"]), "{document:#}");
        assert_eq!(document["dependencies"][2]["ref"], "cli@0.1.0");
        assert_eq!(needs(2), json!(["a@2.0.0", "own@0.1.0"]));
    }

    #[test]
    fn what_is_not_understood_or_not_known_is_an_error() {
        for (tree, why) in [
            ("0|cli|MIT\n", "not understood"),
            ("cli v1\n", "not understood"),
            ("0|cli v0.1.0 (/x)|\n", "no licence"),
            ("0|other v0.1.0 (/x)|MIT\n", "not in the tree"),
            ("0|cli v0.1.0 (/x)|MIT\n1|unknown v1.0.0|MIT\n", "no checksum"),
        ] {
            let error = sbom(tree, LOCK, "1.95.0").unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
