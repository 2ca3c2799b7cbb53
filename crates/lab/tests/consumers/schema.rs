//! The JSON schema that editors get, by a validator that is not ours: what is a spec passes, what is misspelt does not.

use std::path::PathBuf;
use std::process::Command;

use lab::Consumers;

use crate::support::consumers;

/// For each document of each file: its name, and the first complaint if there is one, with a tab between them.
const VALIDATE: &str = r#"
import json, sys, yaml
from jsonschema import Draft202012Validator

class Reader(yaml.SafeLoader):
    "YAML 1.2: no dates, and only true and false are booleans."

Reader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool", ":int", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
import re
Reader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
Reader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile("^[-+]?[0-9]+$"), list("-+0123456789"))
Reader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?$"), list("-+.0123456789"))

schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
for name in sys.argv[2:]:
    for document in yaml.load_all(open(name), Reader):
        # Each kind by its own schema, so that the complaint is about the field and not about "oneOf".
        kind = [one for one in schema["oneOf"] if one["properties"]["kind"]["const"] == document.get("kind")]
        whole = list(Draft202012Validator(schema).iter_errors(document))
        parts = list(Draft202012Validator(kind[0]).iter_errors(document)) if kind else whole
        assert bool(whole) == bool(parts), name
        complaint = f"{parts[0].json_path}: {parts[0].message[:200]}" if parts else ""
        print(name, complaint.replace("\n", " "), sep="\t")
"#;

fn binary() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// The documents that the validator refuses, and how many there were.
fn refused(consumers: &Consumers, files: &[PathBuf]) -> (Vec<String>, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = folder.path().join("schema.json");
    let printed = Command::new(binary()).arg("schema").output().expect("nodestrap runs");
    std::fs::write(&schema, printed.stdout).expect("the schema is written");
    let mut python = Command::new(consumers.python().expect("Python"));
    let output = python.args(["-c", VALIDATE]).arg(&schema).args(files).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    let count = lines.len();
    (lines.into_iter().filter(|line| !line.ends_with('\t')).collect(), count)
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn specs() -> Vec<PathBuf> {
    let list = |folder: PathBuf| {
        std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("an entry").path())
    };
    let examples = list(repository().join("examples")).filter(|path| path.extension().is_some_and(|it| it == "yaml"));
    let goldens = list(repository().join("crates/render/tests/golden")).map(|case| case.join("spec.yaml"));
    let completed =
        ["minimal.yaml", "full.yaml"].map(|name| repository().join("crates/spec/tests/golden/complete").join(name));
    let mut specs: Vec<PathBuf> = examples.chain(goldens.filter(|spec| spec.is_file())).chain(completed).collect();
    specs.sort();
    specs
}

#[test]
fn every_example_and_every_golden_spec_fits_to_the_schema() {
    let Some(consumers) = consumers() else { return };
    let specs = specs();
    let (refused, documents) = refused(&consumers, &specs);
    assert!(documents >= 2 * specs.len() && specs.len() > 15, "{documents} documents of {} specs", specs.len());
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn what_is_misspelt_missing_or_of_another_type_does_not() {
    let Some(consumers) = consumers() else { return };
    let minimal = std::fs::read_to_string(repository().join("examples/minimal.yaml")).expect("the example");
    let workers = "metadata: {name: workers}";
    let cases = [
        (minimal.replace("apiServer:", "apiserver:"), "apiserver"),
        (minimal.replace("bootstrapToken:", "bootstrapTokn:"), "bootstrapTokn"),
        (minimal.replace("kind: NodeGroup", "kind: NodeGruop"), "oneOf\\|not valid under any"),
        (minimal.replace("metadata: {name: demo}\n", ""), "metadata"),
        (minimal.replace("https://10.0", "http://10.0"), "http"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{role: master}}")), "master"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{taints: [{{key: a, effect: Never}}]}}")), "Never"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{kubelet: {{config: {{maxPod: 5}}}}}}")), "maxPod"),
        (minimal.replace(workers, &format!("{workers}\nspec: {{kubelet: {{config: {{maxPods: many}}}}}}")), "many"),
        (
            minimal.replace(workers, &format!("{workers}\nspec: {{kubelet: {{flags: {{no-such-flag: a}}}}}}")),
            "no-such-flag",
        ),
    ];
    for (text, word) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spec.yaml");
        std::fs::write(&file, &text).expect("the spec is written");
        let (refused, documents) = refused(&consumers, &[file]);
        assert_eq!((refused.len(), documents), (1, 2), "{word}: {refused:?}");
        assert!(word.split("\\|").any(|word| refused[0].contains(word)), "{word}: {refused:?}");
    }
}

/// The minimal example with these lines in the spec of the Cluster and of the NodeGroup.
fn with(cluster: &str, group: &str) -> String {
    let minimal = std::fs::read_to_string(repository().join("examples/minimal.yaml")).expect("the example");
    let cluster = minimal.replacen("spec:\n", &format!("spec:\n  {cluster}\n"), 1);
    match group.is_empty() {
        true => cluster,
        false => format!("{}\nspec:\n  {group}\n", cluster.trim_end()),
    }
}

/// Texts that look right: every one of them is refused by both.
const WRONG: &[(&str, &str)] = &[
    ("region: 1.10", ""),
    ("region: true", ""),
    ("kubernetesVersion: \"1.36\"", ""),
    ("kubernetesVersion: v1.36.3", ""),
    ("kubernetesVersion: 1.36", ""),
    ("kubernetesVersion: 1.036.3", ""),
    ("networking: {serviceCIDRs: [10.96.0.0]}", ""),
    ("networking: {serviceCIDRs: [services/12]}", ""),
    ("networking: {podCIDRs: 10.244.0.0/16}", ""),
    ("networking: {podCIDRs: []}", ""),
    ("networking: {clusterDNS: [dns.example.com]}", ""),
    ("networking: {clusterDomain: Cluster.local}", ""),
    ("proxy: {http: proxy.example.com:3128}", ""),
    ("proxy: {http: \"ftp://proxy.example.com\"}", ""),
    ("proxy: {http: \"http://proxy.example.com\", noProxy: [\"a.example.com,b.example.com\"]}", ""),
    ("ntpServers: [\"https://ntp.example.com\"]", ""),
    ("assets: {containerRegistry: \"https://registry.example.com\"}", ""),
    ("artefacts: {store: files.example.com, manifest: {file: a.json}}", ""),
    ("registryMirrors: {\"https://docker.io\": [\"https://mirror.example.com\"]}", ""),
    ("registryMirrors: {docker.io: [mirror.example.com]}", ""),
    ("report: {webhook: example.com}", ""),
    ("report: {webhook: \"https://example.com\", headers: {\"My Header\": a}}", ""),
    ("sysctls: {ip_forward: \"1\"}", ""),
    ("kernelModules: [\"br netfilter\"]", ""),
    ("etcd: {image: quay.io/coreos/etcd}", ""),
    ("kubeProxy: {config: {bindAddress: localhost}}", ""),
    ("kubeProxy: {config: {clusterCIDR: 10.244.0.0}}", ""),
    ("kubeProxy: {config: {featureGates: {nodeSwap: true}}}", ""),
    ("fileAssets: [{path: etc/motd, content: a}]", ""),
    ("fileAssets: [{path: /etc//motd, content: a}]", ""),
    ("fileAssets: [{path: /etc/motd, content: 5}]", ""),
    ("fileAssets: [{path: /etc/motd, content: a, mode: 0644}]", ""),
    ("fileAssets: [{path: /etc/motd, content: a, mode: \"644\"}]", ""),
    ("units: [{name: exporter, content: \"[Service]\"}]", ""),
    ("hooks: [{name: My_Hook, slot: before-kubelet, unit: \"ExecStart=/bin/true\"}]", ""),
    ("hooks: [{name: hook, slot: before-kubelet, unit: \"ExecStart=/bin/true\", timeout: 5}]", ""),
    ("hooks: [{name: hook, slot: before-kubelet, unit: \"ExecStart=/bin/true\", timeout: 5 minutes}]", ""),
    ("hooks: [{name: hook, slot: before-kubelet, container: {image: busybox}}]", ""),
    ("hooks: [{name: hook, slot: before-kubelet, container: {image: \"a:1\", environment: {A-B: c}}}]", ""),
    ("additionalUserData: [{name: a, type: shell, content: a}]", ""),
    ("", "labels: {version: 1.10}"),
    ("", "labels: {swap: true}"),
    ("", "labels: {version: 5}"),
    ("", "labels: {\"a b\": c}"),
    ("", "labels: {a: \"b c\"}"),
    ("", "taints: [{key: \"a b\", effect: NoSchedule}]"),
    ("", "taints: [{key: a, value: 1, effect: NoSchedule}]"),
    ("", "maxPods: 0"),
    ("", "maxPods: \"110\""),
    ("", "maxPods: 70000"),
    ("", "machines: {desired: 5000000000}"),
    ("", "kubelet: {binary: kubelet}"),
    ("", "kubelet: {config: {clusterDomain: 1.5}}"),
    ("", "kubelet: {config: {kubeReserved: {cpu: 0.5}}}"),
    ("", "kubelet: {config: {address: localhost}}"),
    ("", "kubelet: {config: {syncFrequency: 60}}"),
    ("", "kubelet: {config: {syncFrequency: 1 minute}}"),
    ("", "kubelet: {config: {reservedSystemCPUs: all}}"),
    ("", "containerRuntime: {sandboxImage: registry.k8s.io/pause}"),
    ("", "delivery: {nodestrap: {installation: download, urls: [\"https://a.example.com/n\"], sha256: ABC}}"),
];

/// Texts that look odd: every one of them is taken by both.
const RIGHT: &[(&str, &str)] = &[
    ("kubernetesVersion: 1.36.3", "sysctls: {vm.max_map_count: 262144, net/ipv4/conf/eth0.1/forwarding: \"1\"}"),
    (
        "networking: {serviceCIDRs: [\"fd00:10:96::/112\", 10.96.0.0/12], clusterDNS: [\"fd00:10:96::a\"]}",
        "maxPods: 110",
    ),
    (
        "proxy: {http: \"http://[fd00::1]:3128\", noProxy: [.example.com, \"[fd00::2]:80\", fd00::/8, \"a.example.com:80\"]}",
        "maxPods: 10 * 11",
    ),
    ("ntpServers: [10.0.0.1, \"[fd00::1]\", time.example.com]", "labels: {example.com/A_b.c: \"\", a: \"1.10\"}"),
    ("assets: {containerRegistry: \"[FD00::1]:5000/a/b_c\"}", "taints: [{key: example.com/a, effect: NoExecute}]"),
    ("etcd: {image: \"quay.io:443/coreos/etcd:v3.6.5\"}", "machines: {tags: {cost: 5, name: a b}}"),
    ("kubeProxy: {config: {bindAddress: \"::\", clusterCIDR: \"\", iptables: {syncPeriod: 1h0.5m}}}", ""),
    (
        "units: [{name: 'dev-disk\\x2d1@a:b.mount', content: \"[X-Mine]\"}]",
        "kubelet: {flags: {v: 2}, config: {kubeReserved: {cpu: 1}}}",
    ),
    ("report: {webhook: \"https://example.com:8443/a?b=c\", headers: {X-Token: a}}", ""),
    ("region: 1", ""),
];

/// Whether `nodestrap check` takes it.
fn is_taken(file: &std::path::Path) -> bool {
    Command::new(binary()).arg("check").arg(file).output().expect("nodestrap runs").status.success()
}

#[test]
fn check_and_the_schema_are_of_one_mind() {
    let Some(consumers) = consumers() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: String, (cluster, group): &(&str, &str)| {
        let file = folder.path().join(name);
        std::fs::write(&file, with(cluster, group)).expect("the spec is written");
        file
    };
    let files = |what: &str, cases: &[(&str, &str)]| -> Vec<PathBuf> {
        cases.iter().enumerate().map(|(index, case)| write(format!("{what}-{index:02}.yaml"), case)).collect()
    };
    let (wrong, right) = (files("wrong", WRONG), files("right", RIGHT));
    let (complaints, _) = refused(&consumers, &wrong);
    for (file, case) in wrong.iter().zip(WRONG) {
        let name = file.to_string_lossy();
        assert!(complaints.iter().any(|line| line.starts_with(&*name)), "the schema takes {case:?}");
        assert!(!is_taken(file), "check takes {case:?}");
    }
    let (complaints, _) = refused(&consumers, &right);
    assert!(complaints.is_empty(), "{complaints:#?}");
    for file in right.iter().chain(&specs_with_their_files(folder.path())) {
        let text = std::fs::read_to_string(file).expect("the spec");
        assert!(is_taken(file), "check refuses {}:\n{text}", file.display());
    }
}

/// Copies beside the certificates, keys and manifests that they name; without those of control planes, which need a folder each.
fn specs_with_their_files(folder: &std::path::Path) -> Vec<PathBuf> {
    for entry in std::fs::read_dir(repository().join("examples")).expect("the examples") {
        let path = entry.expect("a file of the examples").path();
        if path.extension().is_some_and(|extension| extension != "yaml") {
            let name = path.file_name().expect("it has a name");
            std::fs::copy(&path, folder.join(name)).expect("a file of the examples");
        }
    }
    let specs = specs().into_iter().enumerate().filter_map(|(index, spec)| {
        let text = std::fs::read_to_string(&spec).expect("a spec");
        let copy = folder.join(format!("spec-{index:02}.yaml"));
        std::fs::write(&copy, &text).expect("the copy");
        (!text.contains("pki")).then_some(copy)
    });
    let specs: Vec<PathBuf> = specs.collect();
    assert!(specs.len() > 30, "{}", specs.len());
    specs
}
