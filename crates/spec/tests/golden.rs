//! What users see: mistakes, complete specs and explanations, byte for byte.

mod support;

use spec::{
    Colour, CompleteSpec, ConfigNode, ConfigTree, Explanation, Origin, SecretDisplay, Source, explain, explain_all,
    paths, render_mistakes,
};
use support::{
    BadSpec, TOKEN, bad_specs, compare_golden, complete, complete_sources, example, expect_complete, mistake_classes,
    read, resolve_sources, source,
};

#[test]
fn every_bad_spec_gives_its_mistakes() {
    let mut count = 0;
    for class in mistake_classes() {
        let mut now = String::new();
        for BadSpec { name, text, .. } in bad_specs(&class) {
            let mistakes = complete(&text).err().unwrap_or_else(|| panic!("{name} is valid"));
            let shown = render_mistakes(&mistakes, Colour::Plain);
            for secret in [TOKEN, "hunter", "not-a-token"] {
                assert!(!shown.contains(secret), "{name} shows a secret:\n{shown}");
            }
            now.push_str(&BadSpec { name, text, gives: shown }.to_string());
            count += 1;
        }
        compare_golden(&class, &now);
    }
    assert!(count >= 89, "cases got lost: {count}");
}

/// Each with what it says about the store or the webhook, and how it is warned of.
#[test]
fn what_can_be_used_all_the_same_is_warned_of() {
    let mut now = String::new();
    for (name, more) in [
        ("a-store-without-credentials", "delivery: {store: {urls: [\"https://store.example.com\"]}}"),
        (
            "a-bucket-with-a-key",
            "delivery: {store: {urls: [\"s3://nodes/bundles\"], s3: {region: r, credentials: {accessKey: a, secretKey: b}}}}",
        ),
        ("a-webhook-without-credentials", "report: {webhook: \"http://hooks.example.com/nodes\"}"),
    ] {
        let text = example("minimal.yaml").replacen("\n  join:", &format!("\n  {more}\n  join:"), 1);
        now.push_str(&format!("==== {name}\n{}", render_mistakes(&expect_complete(&text).warnings, Colour::Plain)));
    }
    compare_golden("golden/warnings.txt", &now);
    for harmless in [
        "delivery: {store: {urls: [\"http://127.0.0.1:8080/bundles\"]}}",
        "delivery: {store: {urls: [\"s3://nodes/bundles\"], s3: {region: eu-west-1}}}",
        "report: {webhook: \"http://[::1]/nodes\", headers: {X-Key: a}}",
        "report: {webhook: \"http://localhost:80/nodes\", headers: {X-Key: a}}",
        "report: {webhook: \"https://hooks.example.com/nodes\", headers: {X-Key: a}}",
    ] {
        let text = example("minimal.yaml").replacen("\n  join:", &format!("\n  {harmless}\n  join:"), 1);
        assert_eq!(expect_complete(&text).warnings, [], "{harmless}");
    }
}

#[test]
fn ten_mistakes_are_reported_at_once() {
    let ten = bad_specs("mistakes/documents.txt").into_iter().find(|case| case.name == "ten-at-once").unwrap();
    assert_eq!(complete(&ten.text).err().unwrap().len(), 10);
}

#[test]
fn colour_is_for_terminals_only() {
    let mistakes = complete("kind: Cluster\n").err().unwrap();
    compare_golden("golden/colour.txt", &render_mistakes(&mistakes, Colour::Ansi));
}

#[test]
fn examples_complete_to_their_goldens() {
    let mut redacted = String::new();
    for name in ["minimal", "full"] {
        let complete = expect_complete(&example(&format!("{name}.yaml")));
        compare_golden(&format!("golden/complete/{name}.yaml"), &complete.to_yaml(SecretDisplay::Shown));
        redacted.push_str(&format!("==== {name}\n{}", changed_lines(&complete)));
        let json = serde_json::to_string_pretty(&complete.to_json(SecretDisplay::Redacted)).unwrap();
        compare_golden(&format!("golden/complete/{name}.json"), &format!("{json}\n"));
    }
    compare_golden("golden/complete/redacted.txt", &redacted);
}

/// What a reader sees in place of secrets; all other lines are the same.
fn changed_lines(complete: &CompleteSpec) -> String {
    let [shown, redacted] = [SecretDisplay::Shown, SecretDisplay::Redacted].map(|display| complete.to_yaml(display));
    assert_eq!(shown.lines().count(), redacted.lines().count(), "a secret takes one line");
    let pairs = shown.lines().zip(redacted.lines()).filter(|(shown, redacted)| shown != redacted);
    pairs.map(|(_, redacted)| format!("{redacted}\n")).collect()
}

fn folders_of_plug_ins(tree: &ConfigTree, found: &mut Vec<String>) {
    for (name, node) in tree {
        match node {
            ConfigNode::Leaf(setting) if name.starts_with("bin_dir") => found.push(format!("{name}={}", setting.value)),
            ConfigNode::Leaf(_) => {}
            ConfigNode::Branch(below) => folders_of_plug_ins(below, found),
        }
    }
}

/// containerd 2.0 knows `bin_dir` alone, 2.4 `bin_dirs` alone; between them the old one is deprecated, and both are refused.
#[test]
fn the_folder_of_cni_plug_ins_is_named_as_the_containerd_of_the_spec_has_it() {
    let cni = |runtime: &str| {
        let group = format!("spec:\n  containerRuntime:\n    cniBinaries: /usr/lib/cni\n{runtime}");
        let complete = expect_complete(&format!("{}\n{group}", example("minimal.yaml").trim_end()));
        let mut written = Vec::new();
        folders_of_plug_ins(&complete.groups[0].spec.container_runtime.config, &mut written);
        written.join(" ")
    };
    let version = |version: &str| cni(&format!("  components: {{containerd: {{version: \"{version}\"}}}}\n"));
    let (one, list) = ("bin_dir=\"/usr/lib/cni\"", "bin_dirs=[\"/usr/lib/cni\"]");
    assert_eq!([version("2.0.5-1"), version("v2.0.0-rc1")], [one, one]);
    assert_eq!([version("2.1.4-1"), version("2.4.2"), cni("")], [list, list, list]);
    let configured = |config: &str| cni(&format!("    config: {config}\n"));
    let plugins = "{plugins: {io.containerd.cri.v1.runtime: {cni: {bin_dir: /usr/lib/cni}}}}";
    assert_eq!(configured(plugins), one, "only somebody with containerd 2.0 writes this");
}

#[test]
fn the_kubelet_asks_containerd_where_it_listens() {
    let endpoint = |group: &str| {
        let complete = expect_complete(&format!("{}\nspec:\n{group}", example("minimal.yaml").trim_end()));
        match complete.groups[0].spec.kubelet.config.get("containerRuntimeEndpoint") {
            Some(ConfigNode::Leaf(setting)) => setting.value.as_str().unwrap().to_owned(),
            _ => panic!("a text"),
        }
    };
    let runtime = "  containerRuntime: {config: {grpc: {address: /run/k8s/containerd.sock}}}\n";
    assert_eq!(endpoint("  role: worker\n"), "unix:///run/containerd/containerd.sock");
    assert_eq!(endpoint(runtime), "unix:///run/k8s/containerd.sock");
    let same = "  kubelet: {config: {containerRuntimeEndpoint: unix:///var/run/k8s/containerd.sock}}\n";
    assert_eq!(endpoint(&format!("{runtime}{same}")), "unix:///var/run/k8s/containerd.sock");
}

/// Whoever authors has a clock, and hands it in; without one nothing is refused for its dates.
#[test]
fn a_manifest_ends_by_the_clock_that_is_given() {
    let spec = || resolve_sources(&[source(&example("bare-debian.yaml"))]).unwrap_or_else(|found| panic!("{found:?}"));
    let at = |time: &str| spec::complete(&spec().at(time.parse().unwrap()));
    assert!(spec::complete(&spec()).is_ok() && at("2026-11-18T12:00:00Z").is_ok());
    let shown = ["2100-01-01T00:00:00Z", "2026-11-17T00:00:00Z"]
        .map(|time| render_mistakes(&at(time).err().unwrap_or_else(|| panic!("{time} will do")), Colour::Plain));
    compare_golden("golden/dates.txt", &shown.concat());
}

/// What of a spec with trees is about them.
#[test]
fn trees_are_explained() {
    let text = example("bare-debian.yaml");
    let complete = expect_complete(&text);
    let wanted = ["artefacts", ".source", ".components", ".architecture", ".binary", "cniBinaries"];
    let all = explain_all(&complete, &[source(&text)]);
    let found = all.iter().filter(|leaf| wanted.iter().any(|part| leaf.path.contains(part)));
    compare_golden("golden/explain/trees.txt", &found.map(shown).collect::<String>());
}

#[test]
fn a_bare_machine_takes_a_few_lines_more() {
    let lines = example("bare-debian.yaml").lines().filter(|line| !line.starts_with('#')).count();
    assert!(lines <= 16, "{lines}");
}

#[test]
fn minimal_example_has_ten_lines() {
    assert_eq!(example("minimal.yaml").lines().count(), 10);
}

fn shown(explanation: &Explanation) -> String {
    let mut value = explanation.value.to_string();
    if value.len() > 60 {
        value = format!("{}…", &value[..60]);
    }
    let origin = match &explanation.origin {
        Origin::User(at) => format!("user: {}:{}:{}", at.file, at.line, at.column),
        Origin::Default { reason } => format!("default: {reason}"),
        Origin::Derived { from, rule } => format!("derived from {}: {rule}", from.join(", ")),
        Origin::BuiltIn { component } => format!("what {component} does by itself"),
    };
    let reaches = explanation.reaches.join(", ");
    format!("{}\n  {value}\n  {origin}\n  reaches {reaches}\n", explanation.path)
}

#[test]
fn every_setting_of_the_examples_is_explained() {
    for name in ["minimal", "full"] {
        let text = example(&format!("{name}.yaml"));
        let complete = expect_complete(&text);
        let all = explain_all(&complete, &[source(&text)]);
        assert_eq!(paths(&complete), all.iter().map(|leaf| leaf.path.as_str()).collect::<Vec<_>>());
        compare_golden(&format!("golden/explain/{name}.txt"), &all.iter().map(shown).collect::<String>());
    }
}

/// A cluster and a group that say something of everything that has parts, each in a file of its own.
#[test]
fn every_part_of_a_list_or_mapping_is_explained_where_it_stands() {
    let sources = ["cluster", "group"].map(|name| {
        let path = support::folder().join(format!("cases/explain/{name}.yaml"));
        Source::new(format!("{name}.yaml"), read(&path))
    });
    let complete = complete_sources(&sources).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let mut text = String::new();
    for leaf in explain_all(&complete, &sources) {
        let mut parts = Vec::new();
        support::parts(&leaf.path, &leaf.value, &mut parts);
        let is_entry = leaf.path.contains("sysctls") || leaf.path.contains("labels") || leaf.path.contains("tags");
        if !matches!(leaf.origin, Origin::BuiltIn { .. }) && (is_entry || !parts.is_empty()) {
            text.push_str(&shown(&leaf));
            for (path, _) in parts {
                let explained = explain(&complete, &sources, &path).unwrap();
                text.push_str(&explained.iter().map(shown).collect::<String>());
            }
        }
    }
    compare_golden("golden/explain/parts.txt", &text);
}

#[test]
fn an_item_goes_by_its_name_and_its_path_may_begin_anywhere() {
    let text = example("full.yaml");
    let complete = expect_complete(&text);
    let found = |path: &str| explain(&complete, &[source(&text)], path).unwrap().remove(0).path;
    for (asked, meant) in [
        ("hooks.prepare", "cluster.hooks[0]"),
        ("hooks.warm-cache.slot", "nodeGroups.gpu.hooks[1].slot"),
        ("nodeGroups.gpu.hooks.prepare.timeout", "nodeGroups.gpu.hooks[0].timeout"),
        ("fileAssets.\"/etc/example/motd\".mode", "cluster.fileAssets[0].mode"),
        ("clusterDNS[1]", "cluster.networking.clusterDNS[1]"),
        ("registryMirrors.\"docker.io\"[0]", "cluster.registryMirrors.\"docker.io\"[0]"),
    ] {
        assert_eq!(found(asked), meant, "{asked}");
    }
}

#[test]
fn explain_without_an_answer_names_the_nearest() {
    let mut shown = String::new();
    for (name, path) in [
        ("minimal", "cluster.networking.clusterDns"),
        ("minimal", "cluster.kubelet.config.maxPod"),
        ("minimal", "nothing.like.this"),
        ("minimal", "broken.\"quote"),
        ("minimal", ""),
        ("full", "kubelet.config.maxPods"),
        ("minimal", "cluster.networking.clusterDNS[1]"),
        ("minimal", "cluster.networking.clusterDNS[0].name"),
        ("minimal", "cluster.networking[0]"),
        ("minimal", "nothing[0]"),
        ("full", "nodeGroups.gpu.fileAssets[9].path"),
        ("full", "nodeGroups.gpu.hooks.other"),
        ("full", "containerd.service"),
    ] {
        let text = example(&format!("{name}.yaml"));
        let complete = expect_complete(&text);
        let error = explain(&complete, &[source(&text)], path).map(|found| found[0].path.clone()).unwrap_err();
        shown.push_str(&format!("{path}: {error:?}\n"));
    }
    compare_golden("golden/explain/not-found.txt", &shown);
}

#[test]
fn mistakes_of_several_files_are_reported_in_their_order() {
    let cluster = Source::new("a.yaml", "kind: Cluster\napiVersion: x\n");
    let group = Source::new("b.yaml", "apiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {nam: w}\n");
    let mistakes = complete_sources(&[cluster, group]).err().unwrap();
    compare_golden("golden/several-files.txt", &render_mistakes(&mistakes, Colour::Plain));
}
