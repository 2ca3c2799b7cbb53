//! Golden cases: `golden/<case>/spec.yaml` and what is rendered from it.
//!
//! `manifest.txt` has the size and digest of everything and the manifest of the bundle; a few cases that show most keep
//! their files as well. A change of these is a change of what nodes receive: it belongs into the release notes.
//! `UPDATE_GOLDEN=1 cargo test -p render` rewrites them.
#![allow(clippy::disallowed_methods)] // reads the examples

mod support;

use std::fs;
use std::path::Path;

use bundle::{Bundle, Secrecy, cni_config};
use render::{cloud_config, render_bundle};
use support::cases::{self, Tree};
use support::golden::{Differences, Shelf, sha256};

/// Between them they have most of what nodes get: both roles, the three layouts, snaps, hooks and files of the user's. What
/// the others have is told by their digests.
const WITH_FILES: [&str; 7] = [
    "eksctl-al2",
    "eksctl-ubuntu",
    "hooks-and-files",
    "metal-debian-control-plane",
    "minimal",
    "tectonic-today-worker",
    "tectonic-worker",
];

/// What is rendered, with the names of keys in their places.
fn stable_tree(case: &str) -> Tree {
    let spec = cases::complete(case);
    let mut group = cases::delivery(&spec);
    cases::put_stand_ins(&mut group.bundle, &cases::spec_text(case));
    cases::tree(&group)
}

fn manifest(tree: &Tree) -> String {
    let mut text = String::from("# Rendered from spec.yaml: bytes, SHA-256, name; then the manifest of the bundle.\n");
    for (name, content) in tree.iter().filter(|(name, _)| !name.starts_with("root/") && *name != "manifest.json") {
        text.push_str(&format!("{:>6} {} {name}\n", content.len(), sha256(content)));
    }
    text.push('\n');
    text.push_str(&String::from_utf8_lossy(&tree["manifest.json"]));
    // Which key lies where says more than the digest of its name.
    for content in tree.values().filter(|content| cases::is_stand_in(content)) {
        text = text.replace(&sha256(content), &String::from_utf8_lossy(content));
    }
    text
}

#[test]
fn every_case_is_rendered_as_its_golden_files_say() {
    let mut differences = Differences::default();
    for case in cases::names() {
        let tree = stable_tree(&case);
        let mut found = Differences::default();
        let manifest = manifest(&tree);
        found.compare(&format!("golden/{case}/manifest.txt"), &manifest);
        if WITH_FILES.contains(&case.as_str()) {
            let files = tree.iter().filter_map(|(name, content)| Some((name.strip_prefix("root/")?, content)));
            // Nobody reads keys and certificates; the manifest has them.
            let files = files.filter(|(name, content)| !cases::is_stand_in(content) && !name.ends_with(".crt"));
            let files: Tree = files.map(|(name, content)| (name.to_owned(), content.clone())).collect();
            found.compare_tree(&format!("golden/{case}/root"), &files);
        }
        let shelf = Shelf::new(&case);
        if found.is_empty() {
            shelf.keep_good(&manifest, &tree);
        } else {
            let path = cases::tests().join("golden").join(&case).join("manifest.txt");
            found.add(&shelf.keep_bad(&fs::read_to_string(path).unwrap_or_default(), &tree));
        }
        differences.append(found);
    }
    differences.finish();
}

#[test]
fn rendering_twice_gives_the_same_and_a_bundle_can_be_read_back() {
    for case in cases::names() {
        let spec = cases::complete(&case);
        let bundle = cases::delivery(&spec).bundle;
        assert_eq!(bundle.to_json(), cases::delivery(&spec).bundle.to_json(), "{case}");
        assert_eq!(Bundle::parse(bundle.to_json().as_bytes()).as_ref(), Ok(&bundle), "{case}");
    }
}

/// Whoever keeps the complete spec instead of the short one gets the same nodes.
#[test]
fn a_completed_spec_renders_as_the_one_that_it_came_from() {
    for case in cases::names() {
        let spec = cases::complete(&case);
        let again = cases::complete_text(&case, spec.to_yaml(spec::SecretDisplay::Shown));
        let trees = [&spec, &again].map(|spec| cases::tree(&cases::delivery(spec)));
        let [before, after] = &trees;
        for (path, content) in before {
            let same = after.get(path) == Some(content);
            assert!(same, "{case}: {path}\n{}", String::from_utf8_lossy(after.get(path).map_or(b"", |text| text)));
        }
        assert_eq!(before.len(), after.len(), "{case}");
    }
}

/// The golden files of control planes have names in place of keys; this is about the keys themselves.
#[test]
fn a_control_plane_gets_every_key_of_its_folder_unchanged() {
    let keys = support::keys::control_plane("https://10.0.0.10:6443");
    let bundle = cases::bundle("metal-debian-control-plane");
    let content = |path: &str| {
        let file = bundle.files.iter().find(|file| file.path == path);
        file.unwrap_or_else(|| panic!("there is no {path}")).content.text().expect("it is text").to_owned()
    };
    let of_pods = ["admin.conf", "controller-manager.conf", "scheduler.conf"];
    let wanted: Vec<&String> =
        keys.keys().filter(|path| path.starts_with("pki/") || of_pods.contains(&path.as_str())).collect();
    assert_eq!(wanted.len(), 25, "{wanted:?}");
    for path in wanted {
        assert!(content(&format!("/etc/kubernetes/{path}")) == keys[path], "{path} was changed");
    }
}

/// Some clouds take no more user data than this; a plain node must fit by far.
#[test]
fn a_minimal_worker_fits_into_the_smallest_user_data() {
    assert!(cloud_config(&cases::bundle("minimal")).unwrap().len() < 16 * 1024);
}

/// Whatever a case is about: only files that are marked as secret may hold what its user would not print.
#[test]
fn keys_and_tokens_are_in_secret_files_only() {
    for case in cases::names() {
        let bundle = cases::bundle(&case);
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
        // Of an image whose spec says so.
        "smartd.service",
    ];
    for case in cases::names() {
        let bundle = cases::bundle(&case);
        for unit in &bundle.units {
            let path = format!("/etc/systemd/system/{}", unit.name);
            let ours = bundle.file(&path).is_some();
            assert!(ours || of_system.contains(&unit.name.as_str()), "{case}: {}", unit.name);
        }
    }
}

#[test]
fn every_group_of_the_examples_is_rendered() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["minimal.yaml", "full.yaml"] {
        let text = fs::read_to_string(examples.join(name)).expect("the example can be read");
        let spec = cases::complete_text(name, text);
        for group in &spec.groups {
            let bundle =
                render_bundle(&spec, group.name.value.as_str()).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(cloud_config(&bundle).is_ok(), "{name}");
        }
    }
}

#[test]
fn cni_configurations() {
    let config = |cidrs: &[&str]| cni_config(&cidrs.iter().map(|cidr| (*cidr).to_owned()).collect::<Vec<_>>(), "cni0");
    let ranges: [&[&str]; 3] = [&["10.97.3.0/24"], &["fd00:97:0:3::/64"], &["10.97.3.0/24", "fd00:97:0:3::/64"]];
    let shown = ranges.map(|cidrs| format!("{}:\n{}\n", cidrs.join(", "), config(cidrs)));
    let mut differences = Differences::default();
    differences.compare("golden/cni.txt", &shown.concat());
    differences.finish();
}

/// Whoever reads it has no tree to look at.
#[test]
fn a_difference_is_shown_below_the_lines_that_say_what_it_is_of() {
    let entry = |digest: &str| format!("a\nb\npath\nmode\nsecret\n{digest}\nsize\n");
    let shown = support::golden::line_diff(&entry("old"), &(entry("new") + "more\n"));
    assert_eq!(shown, "    path\n    mode\n    secret\n  - old\n  + new\n    size\n  + more");
    assert_eq!(support::golden::line_diff("", "new\n"), "  + new");
    assert_eq!(support::golden::line_diff("a", "a\n"), "    only in how the last line ends");
}
