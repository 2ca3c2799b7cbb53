//! Golden trees: `golden/<case>/spec.yaml` and everything that is rendered from it, byte by byte.
//!
//! A change of these files is a change of what nodes receive: it belongs into the release notes. `UPDATE_GOLDEN=1`
//! rewrites them.
#![allow(clippy::disallowed_methods)] // reads and writes the golden files

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use render::{Bundle, cloud_config, cni_config, render_bundle, render_gate};

/// Each worker case has one group of this name.
const GROUP: &str = "workers";

type Tree = BTreeMap<String, Vec<u8>>;

fn golden_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Files that a spec refers to are relative to its folder.
fn complete_spec(path: &Path) -> spec::CompleteSpec {
    let text = fs::read_to_string(path).expect("the spec can be read");
    let parsed = spec::parse(&[spec::Source::new(path.display().to_string(), text)]);
    let spec =
        parsed.resolve(|reference| fs::read(path.with_file_name(&reference.path)).map_err(|error| error.to_string()));
    let complete = spec.and_then(|spec| spec::complete(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

fn rendered(bundle: &Bundle) -> Tree {
    let mut tree: Tree = bundle.to_folder().into_iter().map(|(path, _, content)| (path, content)).collect();
    tree.insert("bundle.json".to_owned(), bundle.to_json().into_bytes());
    tree.insert("cloud-config.yaml".to_owned(), cloud_config(bundle).expect("a rendered bundle is valid").into_bytes());
    tree.insert("gate.env".to_owned(), render_gate(&bundle.gate, &BTreeMap::new()));
    tree
}

fn load_tree(folder: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(folder).expect("the golden folder can be listed") {
        let entry = entry.expect("the golden folder can be listed");
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            load_tree(&entry.path(), &format!("{name}/"), tree);
        } else if name != "spec.yaml" {
            tree.insert(name, fs::read(entry.path()).expect("a golden file can be read"));
        }
    }
}

fn assert_golden(case: &str, actual: &Tree) {
    let folder = golden_root().join(case);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        update(&folder, actual);
    }
    let mut expected = Tree::new();
    load_tree(&folder, "", &mut expected);
    for path in expected.keys().chain(actual.keys()).collect::<BTreeSet<_>>() {
        let text = |tree: &Tree| tree.get(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(text(actual), text(&expected), "{case}/{path}: left is rendered, right is golden");
    }
}

fn update(folder: &Path, tree: &Tree) {
    let mut stale = Tree::new();
    fs::create_dir_all(folder).expect("the golden folder can be made");
    load_tree(folder, "", &mut stale);
    for path in stale.keys() {
        fs::remove_file(folder.join(path)).expect("a golden file can be removed");
    }
    for (path, content) in tree {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("the golden folder can be made");
        fs::write(path, content).expect("a golden file can be written");
    }
}

fn assert_worker(case: &str) -> Bundle {
    let spec = complete_spec(&golden_root().join(case).join("spec.yaml"));
    let bundle = render_bundle(&spec, GROUP).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(bundle.to_json(), render_bundle(&spec, GROUP).expect("it rendered once").to_json());
    assert_eq!(Bundle::parse(bundle.to_json().as_bytes()).as_ref(), Ok(&bundle));
    assert_golden(case, &rendered(&bundle));
    bundle
}

#[test]
fn a_minimal_worker() {
    let bundle = assert_worker("minimal");
    // Some clouds take no more user data than this; the plainest node must fit by far.
    assert!(cloud_config(&bundle).unwrap().len() < 16 * 1024);
}

#[test]
fn a_dual_stack_worker() {
    assert_worker("dual-stack");
}

#[test]
fn labels_and_taints() {
    assert_worker("labels-and-taints");
}

#[test]
fn no_pod_network() {
    assert_worker("no-pod-network");
}

#[test]
fn the_settings_of_the_lab() {
    assert_worker("lab");
}

#[test]
fn every_group_of_the_examples_is_rendered() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["minimal.yaml", "full.yaml"] {
        let spec = complete_spec(&examples.join(name));
        for group in &spec.groups {
            let bundle =
                render_bundle(&spec, group.name.value.as_str()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(cloud_config(&bundle).is_ok(), "{name}");
        }
    }
}

#[test]
fn cni_configurations() {
    let config = |cidrs: &[&str]| {
        cni_config(&cidrs.iter().map(|cidr| (*cidr).to_owned()).collect::<Vec<_>>(), "cni0").into_bytes()
    };
    let tree = Tree::from([
        ("ipv4.conflist".to_owned(), config(&["10.97.3.0/24"])),
        ("ipv6.conflist".to_owned(), config(&["fd00:97:0:3::/64"])),
        ("dual-stack.conflist".to_owned(), config(&["10.97.3.0/24", "fd00:97:0:3::/64"])),
    ]);
    assert_golden("cni", &tree);
}
