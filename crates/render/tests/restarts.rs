//! What each change makes `apply` start anew: those who read what changed, and nobody else.
#![allow(clippy::disallowed_methods, reason = "reads the specs of examples/")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bundle::{Bundle, BundleDiff, Consequence, diff_bundles};
use spec::CompleteSpec;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn example(name: &str) -> String {
    fs::read_to_string(examples().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Keys of a control plane are served by what they are called: whether they fit together is no matter here.
fn complete(name: &str, text: String) -> CompleteSpec {
    let parsed = spec::parse(&[spec::Source::new(name, text)]);
    let spec = parsed.resolve(|reference| match reference.path.strip_prefix("control-plane/") {
        None => fs::read(examples().join(&reference.path)).map_err(|error| error.to_string()),
        Some("pki/ca.crt") => fs::read(examples().join("ca.crt")).map_err(|error| error.to_string()),
        Some(path) => Ok(format!("key of {path}\n").into_bytes()),
    });
    let complete = spec.and_then(|spec| spec::complete_before_pki(&spec));
    complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

fn bundles(name: &str, text: String) -> Vec<Bundle> {
    let spec = complete(name, text);
    let names = spec.groups.iter().map(|group| group.name.value.as_str());
    names.map(|group| render::render_bundle(&spec, group).unwrap_or_else(|error| panic!("{name}: {error}"))).collect()
}

/// `examples/minimal.yaml`, with these lines as the spec of its group.
fn minimal(group: &str) -> Bundle {
    let spec = if group.is_empty() { String::new() } else { format!("spec:\n{group}") };
    bundles("minimal.yaml", example("minimal.yaml") + &spec).remove(0)
}

fn diff(old: &str, new: &str) -> BundleDiff {
    diff_bundles(&minimal(old), &minimal(new))
}

#[track_caller]
fn assert_restarts(diff: &BundleDiff, expected: &[&str]) {
    let found: Vec<&str> = diff.restarts.iter().map(|unit| unit.as_str()).collect();
    assert_eq!(found, expected, "{diff}");
}

const OWN_UNITS: &str = "  units:\n    \
    - {name: one.service, content: \"[Service]\\nExecStart=/bin/one\\n\"}\n    \
    - {name: two.service, content: \"[Service]\\nExecStart=/bin/two\\n\"}\n    \
    - {name: containerd.service, dropIns: {limits: \"[Service]\\nLimitNOFILE=infinity\\n\"}}\n";

fn asset(path: &str, content: &str) -> String {
    format!("{OWN_UNITS}  fileAssets: [{{path: {path}, content: \"{content}\"}}]\n")
}

#[test]
fn the_same_spec_restarts_nothing() {
    assert_restarts(&diff("", ""), &[]);
    assert_restarts(&diff(&asset("/etc/x", "1"), &asset("/etc/x", "1")), &[]);
}

#[test]
fn configuration_and_flags_of_the_kubelet_restart_the_kubelet_alone() {
    for group in [
        "  kubelet: {config: {maxPods: 50}}\n",
        "  maxPods: 50\n",
        "  kubelet: {flags: {v: 4}}\n",
        "  labels: {a: b}\n",
    ] {
        assert_restarts(&diff("", group), &["kubelet.service"]);
    }
}

#[test]
fn settings_of_the_runtime_restart_the_runtime_alone() {
    let config = "  containerRuntime: {config: {debug: {level: debug}}}\n";
    assert_restarts(&diff("", config), &["containerd.service"]);
    assert_restarts(
        &diff("", "  containerRuntime: {sandboxImage: 'registry.example.com/pause:1'}\n"),
        &["containerd.service"],
    );
}

#[test]
fn a_file_of_the_users_restarts_the_units_of_the_users() {
    let changed = |path: &str| diff(&asset(path, "1"), &asset(path, "2"));
    assert_restarts(&changed("/etc/example"), &["one.service", "two.service"]);
    // And who reads what lies there.
    assert_restarts(&changed("/etc/containerd/own.toml"), &["containerd.service", "one.service", "two.service"]);
    assert_restarts(&changed("/etc/containerd/certs.d/a/hosts.toml"), &["one.service", "two.service"]);
    let drop_in = "/etc/systemd/system/kubelet.service.d/99-own.conf";
    assert_restarts(&changed(drop_in), &["kubelet.service", "one.service", "two.service"]);
    // Without such units nobody is disturbed.
    let alone = |content: &str| format!("  fileAssets: [{{path: /etc/example, content: \"{content}\"}}]\n");
    let diff = diff(&alone("1"), &alone("2"));
    assert_restarts(&diff, &[]);
    assert_eq!(diff.consequence, Consequence::None);
}

#[test]
fn a_unit_of_the_users_restarts_by_itself() {
    let other = OWN_UNITS.replace("/bin/two", "/bin/three");
    assert_restarts(&diff(OWN_UNITS, &other), &["two.service"]);
    let drop_in = OWN_UNITS.replace("infinity", "4096");
    assert_restarts(&diff(OWN_UNITS, &drop_in), &["containerd.service"]);
    assert_restarts(
        &diff("", "  units: [{name: c.service, content: \"[Service]\\nExecStart=/c\\n\"}]\n"),
        &["c.service"],
    );
}

#[test]
fn what_the_system_reads_at_boot_takes_a_boot_and_restarts_nothing() {
    let alone =
        |path: &str, content: &str| format!("  fileAssets: [{{path: {path}, content: \"vm.swappiness={content}\"}}]\n");
    for path in [
        "/etc/sysctl.d/10-own.conf",
        "/etc/modules-load.d/own.conf",
        "/etc/modprobe.d/own.conf",
        "/etc/default/grub",
        "/etc/chrony.conf",
    ] {
        let diff = diff(&alone(path, "1"), &alone(path, "2"));
        assert_restarts(&diff, &[]);
        assert_eq!(diff.consequence, Consequence::Reboot, "{diff}");
        assert!(diff.to_string().ends_with("nodestrap apply restarts nothing; the rest is left to you\n"), "{diff}");
    }
}

#[test]
fn authorities_that_the_system_trusts_restart_the_runtime_too() {
    let spec = |more: &str| {
        let trust =
            format!("  trust: {{certificateAuthorities: [{{name: a, certificate: {{file: ca.crt}}}}{more}]}}\n");
        bundles("minimal.yaml", example("minimal.yaml").replacen("---\n", &format!("{trust}---\n"), 1)).remove(0)
    };
    let diff = diff_bundles(&spec(""), &spec(", {name: b, certificate: {file: ca.crt}}"));
    assert_restarts(&diff, &["containerd.service", "nodestrap-trust.service"]);
}

#[test]
fn hooks_may_have_changed_what_later_units_read() {
    let spec = |slot: &str, asset: &str| {
        format!(
            "  hooks: [{{name: a, slot: {slot}, unit: \"ExecStart=/bin/true\"}}]\n  \
             fileAssets: [{{path: /etc/x, content: \"{asset}\"}}]\n"
        )
    };
    let before_gate = ["containerd.service", "kubelet.service", "nodestrap-kernel.service"];
    for (slot, expected) in [
        ("before-files", &before_gate[..]),
        ("after-files", &before_gate),
        ("before-runtime", &before_gate[..2]),
        ("after-runtime", &before_gate[1..2]),
        ("before-kubelet", &before_gate[1..2]),
        ("after-kubelet", &[]),
    ] {
        assert_restarts(&diff(&spec(slot, "1"), &spec(slot, "2")), expected);
        assert_restarts(&diff(&spec(slot, "1"), &spec(slot, "1")), &[]);
    }
}

#[test]
fn settings_of_a_snap_restart_its_kubelet() {
    let text = include_str!("golden/eksctl-ubuntu/spec.yaml");
    let bundle = |text: &str| bundles("eksctl-ubuntu", text.to_owned()).remove(0);
    assert!(text.contains("flags: {v: 2}"));
    let diff = diff_bundles(&bundle(text), &bundle(&text.replace("flags: {v: 2}", "flags: {v: 4}")));
    assert_restarts(&diff, &["snap.kubelet-eks.daemon.service"]);
}

#[test]
fn what_the_node_puts_into_the_gate_restarts_the_kubelet() {
    let old = bundles("eksctl-al2", include_str!("golden/eksctl-al2/spec.yaml").to_owned()).remove(0);
    let changed = |change: fn(&mut Bundle)| {
        let mut new = old.clone();
        change(&mut new);
        diff_bundles(&old, &new)
    };
    let another_map = |bundle: &mut Bundle| {
        let map = bundle.files.iter_mut().find(|file| file.path == bundle::MAX_PODS_MAP_PATH).expect("there is one");
        map.content = "m5.large 30\n".into();
    };
    for diff in [
        changed(|bundle| {
            bundle.gate.facts.pop_first();
        }),
        changed(|bundle| bundle.gate.max_pods = Some(7)),
        changed(another_map),
    ] {
        assert_restarts(&diff, &["kubelet.service"]);
        assert_eq!(diff.consequence, Consequence::RestartKubelet, "{diff}");
    }
}

/// Files that nobody reads when it starts: paths, or folders with a slash behind them, and why nothing has to start anew.
const READ_BY_NOBODY: [(&str, &str); 12] = [
    ("/etc/kubernetes/admin.conf", "people read it, and programs that they start"),
    ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", "the kubelet reads it until it has joined"),
    ("/etc/kubernetes/manifests/", "the kubelet watches this folder"),
    ("/etc/containerd/certs.d/", "containerd reads it for each pull"),
    ("/etc/nodestrap/webhook.json", "nodestrap reads it when a run ends"),
    ("/etc/nodestrap/keyrings/", "nodestrap reads it when it verifies something"),
    ("/etc/eksctl/max_pods.map", "nodestrap reads it, and what it finds is in the gate"),
    ("/etc/kubernetes/installer/", "nodestrap reads it, and what it finds is in the gate"),
    ("/etc/kubernetes/kubeconfig", "the kubelet reads it until it has joined"),
    ("/etc/apt/", "apt reads it whenever it is started"),
    ("/etc/systemd/system/sysinit.target.d/", "it is for the next boot"),
    ("/etc/tmpfiles.d/nodestrap-hooks.conf", "systemd reads it at every boot, and apply makes the folder itself"),
];

#[test]
fn every_file_of_the_examples_has_a_reader_or_a_reason_to_have_none() {
    let names: BTreeSet<String> = fs::read_dir(examples())
        .expect("the examples can be listed")
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    let mut unread: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for name in names {
        for bundle in bundles(&name, example(&name)) {
            for file in bundle.all_files().iter().filter(|file| file.read_by.is_empty()) {
                let is_it = |place: &str| file.path == place || place.ends_with('/') && file.path.starts_with(place);
                match READ_BY_NOBODY.iter().find(|(place, _)| is_it(place)) {
                    Some((place, _)) => drop(used.insert(*place)),
                    None => drop(unread.entry(file.path.to_string()).or_default().insert(name.clone())),
                }
            }
        }
    }
    assert_eq!(unread, BTreeMap::new());
    let known: BTreeSet<&str> = READ_BY_NOBODY.iter().map(|(place, _)| *place).collect();
    assert_eq!(used, known, "every reason is for a file of some example");
}
