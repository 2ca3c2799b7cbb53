//! Golden trees: `golden/<case>/spec.yaml` and everything that is rendered from it, byte by byte.
//!
//! Each spec has one group. Files that it refers to lie beside it or, if many cases share them, in `tests/`.
//! A change of these files is a change of what nodes receive: it belongs into the release notes. `UPDATE_GOLDEN=1`
//! rewrites them.
#![allow(clippy::disallowed_methods)] // reads and writes the golden files

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bundle::{Bundle, Secrecy, cni_config, render_gate};
use render::delivery::Format;
use render::{cloud_config, render_bundle, render_group};

type Tree = BTreeMap<String, Vec<u8>>;

fn golden_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn complete_spec(path: &Path) -> spec::CompleteSpec {
    complete_text(path, fs::read_to_string(path).expect("the spec can be read"))
}

/// As if `text` stood there.
fn complete_text(path: &Path, text: String) -> spec::CompleteSpec {
    let api_server = text.lines().find_map(|line| line.trim().strip_prefix("apiServer: "));
    let api_server = api_server.unwrap_or_default().trim_matches('"').to_owned();
    let parsed = spec::parse(&[spec::Source::new(path.display().to_string(), text)]);
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let spec = parsed.resolve(|reference| {
        let file = fs::read(path.with_file_name(&reference.path));
        let bytes = file.or_else(|_| fs::read(shared.join(&reference.path))).map_err(|error| error.to_string())?;
        let is_shared_kubeconfig = reference.path.starts_with("pki/") && reference.path.ends_with(".conf");
        Ok(if is_shared_kubeconfig { for_api_server(bytes, &api_server) } else { bytes })
    });
    let complete = spec.and_then(|spec| spec::complete(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

/// The shared kubeconfigs, for the API server of the case.
fn for_api_server(kubeconfig: Vec<u8>, api_server: &str) -> Vec<u8> {
    let text = String::from_utf8(kubeconfig).expect("a kubeconfig is text");
    text.replace("https://10.0.0.10:6443", api_server).into_bytes()
}

fn cases() -> Vec<String> {
    let entries = fs::read_dir(golden_root()).expect("the golden folder can be listed");
    let folders = entries.map(|entry| entry.expect("the golden folder can be listed").path());
    let cases = folders.filter(|folder| folder.join("spec.yaml").exists());
    let mut names: Vec<String> =
        cases.filter_map(|folder| folder.file_name().map(|name| name.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// The bundle in its shapes, the user data that the spec decides on, and the documents of the provider.
fn rendered(spec: &spec::CompleteSpec) -> Tree {
    let group = render_group(spec, spec.groups[0].name.value.as_str()).expect("it rendered once");
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

fn render_case(case: &str) -> Bundle {
    let spec = complete_spec(&golden_root().join(case).join("spec.yaml"));
    let [group] = spec.groups.as_slice() else { panic!("{case}: a case has one group") };
    let group = group.name.value.as_str();
    let bundle = render_bundle(&spec, group).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(bundle.to_json(), render_bundle(&spec, group).expect("it rendered once").to_json());
    assert_eq!(Bundle::parse(bundle.to_json().as_bytes()).as_ref(), Ok(&bundle), "{case}");
    bundle
}

#[test]
fn every_case_is_rendered_to_its_golden_tree() {
    let cases = cases();
    assert!(cases.len() >= 40, "cases got lost: {cases:?}");
    for case in cases {
        render_case(&case);
        assert_golden(&case, &rendered(&complete_spec(&golden_root().join(&case).join("spec.yaml"))));
    }
}

/// Whoever keeps the complete spec instead of the short one gets the same nodes.
#[test]
fn a_completed_spec_renders_as_the_one_that_it_came_from() {
    for case in cases() {
        let path = golden_root().join(&case).join("spec.yaml");
        let spec = complete_spec(&path);
        let again = complete_text(&path, spec.to_yaml(spec::SecretDisplay::Shown));
        let (before, after) = (rendered(&spec), rendered(&again));
        for (path, content) in &before {
            let same = after.get(path) == Some(content);
            assert!(same, "{case}: {path}\n{}", String::from_utf8_lossy(after.get(path).map_or(b"", |text| text)));
        }
        assert_eq!(before.len(), after.len(), "{case}");
    }
}

/// Some clouds take no more user data than this; a plain node must fit by far.
#[test]
fn a_minimal_worker_fits_into_the_smallest_user_data() {
    assert!(cloud_config(&render_case("minimal")).unwrap().len() < 16 * 1024);
}

/// Whatever a case is about: only files that are marked as secret may hold what its user would not print.
#[test]
fn keys_and_tokens_are_in_secret_files_only() {
    for case in cases() {
        let bundle = render_case(&case);
        for file in bundle.files.iter().filter(|file| file.secrecy == Secrecy::Public) {
            let text = String::from_utf8_lossy(&file.content);
            for secret in ["PRIVATE KEY", "abcdef.0123456789abcdef", "client-key-data", "not-a-real-token"] {
                assert!(!text.contains(secret), "{case}: {} holds {secret}", file.path);
            }
        }
        assert!(!bundle.manifest_json().contains("PRIVATE KEY"), "{case}");
    }
}

/// What a unit runs before the gate opens must be there by then: its file is in the bundle, or it is the system's own.
#[test]
fn units_are_of_the_bundle_or_of_the_system() {
    let of_system = [
        "containerd.service",
        "crio.service",
        "systemd-timesyncd.service",
        "chronyd.service",
        // eksctl's images bring their kubelet, as a unit or as a snap.
        "kubelet.service",
        "snap.kubelet-eks.daemon.service",
        // Tectonic's systems bring docker.
        "docker.service",
    ];
    for case in cases() {
        let bundle = render_case(&case);
        for unit in &bundle.units {
            let ours = bundle.unit_file(&unit.name).is_some();
            assert!(ours || of_system.contains(&unit.name.as_str()), "{case}: {}", unit.name);
        }
    }
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
