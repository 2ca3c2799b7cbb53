//! The rooms depend on each other in one direction only; see ARCHITECTURE.md.
#![allow(clippy::disallowed_methods, reason = "a test asks cargo")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Each room, and the rooms it may know. A new arrow is a decision: add it here and say why in ARCHITECTURE.md.
const MAY_KNOW: [(&str, &[&str]); 15] = [
    ("bundle", &[]),
    ("engine", &[]),
    ("pki", &[]),
    ("host", &[]),
    // It judges bytes that others have fetched or read, for whoever asks.
    ("trust", &[]),
    // It uses the words that a bundle has, and judges the folder of keys and the manifest that it names; all are as pure as it is.
    ("spec", &["bundle", "pki", "trust"]),
    ("render", &["bundle", "spec", "pki"]),
    ("fetch", &["host"]),
    // A metadata service is asked over http, with the same patience and bounds as a store.
    ("cloud", &["host", "fetch"]),
    ("cluster", &["host"]),
    // It reads bundles, whoever wrote them: not the renderer, and nothing of what users write.
    ("node", &["bundle", "engine", "host", "fetch", "cloud", "cluster", "trust"]),
    ("cli", &["bundle", "spec", "render", "pki", "engine", "host", "fetch", "cloud", "cluster", "node", "trust"]),
    ("lab", &["pki", "trust"]),
    // It describes the spec and the command line, whose arguments are of the types of both.
    ("pages", &["spec", "pki"]),
    // It measures what runs off the node.
    ("bench-render", &["bundle", "spec", "render"]),
];

#[test]
fn rooms_only_know_the_rooms_that_the_design_lets_them_know() {
    let rooms = rooms_from_cargo();
    let may_know: BTreeMap<&str, BTreeSet<&str>> =
        MAY_KNOW.iter().map(|(room, known)| (*room, known.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    for (room, known) in &rooms {
        let Some(allowed) = may_know.get(room.as_str()) else {
            wrong.push(format!("{room} is a new room: give it a line in MAY_KNOW"));
            continue;
        };
        wrong.extend(
            known.iter().filter(|other| !allowed.contains(other.as_str())).map(|other| format!("{room} -> {other}")),
        );
    }
    assert!(wrong.is_empty(), "arrows against the design: {wrong:#?}");
    assert_eq!(rooms.len(), MAY_KNOW.len(), "a room of MAY_KNOW is gone");
}

/// Name of each workspace member with those it names as (non-dev) dependencies.
fn rooms_from_cargo() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    packages
        .iter()
        .map(|package| {
            let known = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .filter_map(|dependency| dependency["name"].as_str())
                .filter(|name| names.contains(name))
                .map(str::to_owned)
                .collect();
            (package["name"].as_str().expect("name").to_owned(), known)
        })
        .collect()
}
