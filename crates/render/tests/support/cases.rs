//! Each folder `golden/<case>` with its `spec.yaml`, completed and rendered.
//!
//! A spec has one group. The files that it may name are `ca.crt` and the manifest of artefacts of the examples, and those of the folder `pki`,
//! which are made for its API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bundle::{Bundle, render_gate};
use render::delivery::Format;
use render::{GroupDelivery, render_group};
use spec::CompleteSpec;

use super::keys::{self, Files};

/// What is rendered, by name; what goes onto a node is below `root/`.
pub(crate) type Tree = BTreeMap<String, Vec<u8>>;

/// Of `render`, whichever of the crates beside it asks.
pub(crate) fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../render/tests")
}

pub(crate) fn names() -> Vec<String> {
    let folder = tests().join("golden");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let folders = entries.map(|entry| entry.expect("the golden folder can be listed").path());
    let cases = folders.filter(|folder| folder.join("spec.yaml").exists());
    let mut names: Vec<String> =
        cases.filter_map(|folder| folder.file_name().map(|name| name.to_string_lossy().into_owned())).collect();
    names.sort();
    assert!(names.len() >= 59, "cases got lost: {names:?}");
    names
}

pub(crate) fn spec_text(case: &str) -> String {
    let path = tests().join("golden").join(case).join("spec.yaml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn complete(case: &str) -> CompleteSpec {
    complete_text(case, spec_text(case))
}

pub(crate) fn complete_text(name: &str, text: String) -> CompleteSpec {
    let keys = keys_of(&text);
    let parsed = spec::parse(&[spec::Source::new(format!("{name}/spec.yaml"), text)]);
    let spec = parsed.resolve(|reference| file(&reference.path, &keys));
    let complete = spec.and_then(|spec| spec::complete(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

/// What a spec may name.
pub(crate) fn file(path: &str, keys: &Files) -> Result<Vec<u8>, String> {
    match path.strip_prefix("pki/").and_then(|below| keys.get(below)) {
        Some(content) => Ok(content.clone().into_bytes()),
        None if path == "ca.crt" => Ok(authority().into_bytes()),
        None if path.starts_with("artefacts") => example(path),
        None => Err(format!("there is no {path}")),
    }
}

fn example(name: &str) -> Result<Vec<u8>, String> {
    fs::read(tests().join("../../../examples").join(name)).map_err(|error| error.to_string())
}

/// Public, and the same in every run.
pub(crate) fn authority() -> String {
    fs::read_to_string(tests().join("../../../examples/ca.crt")).expect("the authority of the examples can be read")
}

/// For the API server of the spec.
fn keys_of(text: &str) -> std::sync::Arc<Files> {
    let api_server = text.lines().find_map(|line| line.trim().strip_prefix("apiServer: "));
    keys::control_plane(api_server.expect("a spec names its API server").trim_matches('"'))
}

pub(crate) fn delivery(spec: &CompleteSpec) -> GroupDelivery<'_> {
    let [group] = spec.groups.as_slice() else { panic!("a case has one group") };
    render_group(spec, group.name.value.as_str()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn bundle(case: &str) -> Bundle {
    delivery(&complete(case)).bundle
}

/// The bundle in its shapes, the user data that the spec decides on, and the documents of the provider.
pub(crate) fn tree(group: &GroupDelivery<'_>) -> Tree {
    let bundle = &group.bundle;
    let mut tree: Tree = bundle.to_folder().into_iter().map(|(path, _, content)| (path, content)).collect();
    tree.insert("bundle.json".to_owned(), bundle.to_json().into_bytes());
    if let Some(format) = group.format() {
        let name = match format {
            Format::CloudConfig => "cloud-config.yaml",
            Format::Mime => "user-data.mime",
            Format::Ignition3 => "ignition-3.json",
            Format::Ignition2 => "ignition-2.json",
        };
        match group.user_data(format) {
            Ok(user_data) if user_data.media_type == "application/gzip" => {
                tree.insert(format!("{name}.gz"), user_data.bytes)
            }
            Ok(user_data) => tree.insert(name.to_owned(), user_data.bytes),
            // What a provider does not take is an error, and which one is part of the case.
            Err(error) => tree.insert("user-data.error.txt".to_owned(), format!("{error}\n").into_bytes()),
        };
    }
    if let Ok((template, machines, _)) = group.machines() {
        for document in [template, machines] {
            tree.insert(format!("{}.json", document.kind), document.to_json().into_bytes());
        }
    }
    tree.insert("gate.env".to_owned(), render_gate(&bundle.gate.environment));
    tree
}

/// The keys of a case are new in every run: in the files of its bundle, their names take their places. A key that came out
/// changed has no stand-in, and so no golden fits to it.
pub(crate) fn put_stand_ins(bundle: &mut Bundle, text: &str) {
    let keys = keys_of(text);
    for file in &mut bundle.files {
        let found = keys.iter().find(|(_, content)| file.content.text() == Some(content.as_str()));
        if let Some((path, _)) = found {
            file.content = format!("<{path}>").into();
        }
    }
}

/// Whether this is the content of a file that has nothing but a key in it.
pub(crate) fn is_stand_in(content: &[u8]) -> bool {
    content.starts_with(b"<") && content.ends_with(b">") && !content.contains(&b'\n')
}
