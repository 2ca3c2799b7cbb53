//! What holds for every input.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use spec::{Colour, Origin, REDACTED, SecretDisplay, Source, explain, paths, render_mistakes};
use support::{TOKEN, complete, complete_sources, example, expect_complete, parts, source};

/// Texts that some reader of YAML takes for something else.
fn nasty_text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "yes",
            "no",
            "on",
            "null",
            "~",
            "",
            "1.30",
            "0644",
            "0x10",
            "1_000",
            "12:30",
            "2026-01-01",
            "true",
            "1e3",
            ".inf",
            "- a",
            "a: b",
            "# c",
            "*a",
            "&a",
            "<<",
            "=",
            "ä",
            "語",
            "\u{1f600}",
            "a\nb\n",
            "\t",
            "\"",
            "\\",
            "'",
            "${A}",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,24}",
    ]
}

fn label_value() -> impl Strategy<Value = String> {
    "([A-Za-z0-9]([-A-Za-z0-9_.]{0,10}[A-Za-z0-9])?)?"
}

/// Any JSON without null and without the empty-versus-absent questions of nothing.
fn free_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e300..1e300f64).prop_map(Value::from),
        nasty_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(nasty_text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn kubelet_config() -> impl Strategy<Value = Value> {
    (
        prop::option::of(1..1000i64),
        prop::option::of(prop::sample::select(vec!["systemd", "cgroupfs"])),
        prop::option::of(any::<bool>()),
        prop::option::of(prop::sample::select(vec!["2m0s", "500ms", "1h30m", "0"])),
        prop::option::of(prop::collection::btree_map("[a-z.]{1,8}", nasty_text(), 0..3)),
        prop::option::of(prop::collection::vec(nasty_text(), 0..3)),
        prop::option::of(0.001..1.0f64),
    )
        .prop_map(|(max_pods, driver, anonymous, sync, eviction, suites, factor)| {
            let mut config = Map::new();
            let mut set = |name: &str, value: Option<Value>| value.map(|value| config.insert(name.to_owned(), value));
            set("maxPods", max_pods.map(Value::from));
            set("cgroupDriver", driver.map(Value::from));
            set("authentication", anonymous.map(|enabled| json!({"anonymous": {"enabled": enabled}})));
            set("syncFrequency", sync.map(Value::from));
            set("evictionHard", eviction.map(|map| json!(map)));
            set("allowedUnsafeSysctls", suites.map(|list| json!(list)));
            set("memoryThrottlingFactor", factor.map(Value::from));
            Value::Object(config)
        })
}

fn group(name: &'static str) -> impl Strategy<Value = Value> {
    (
        prop::collection::btree_map("(example\\.com/)?[a-z]{1,8}", label_value(), 0..4),
        prop::collection::btree_map("[a-z]{1,8}", label_value(), 0..3),
        kubelet_config(),
        prop::collection::btree_map("[a-z._]{1,12}", free_value(), 0..4),
        prop::option::of(prop::sample::select(vec!["node-ip", "hostname-override", "root-dir"])),
    )
        .prop_map(move |(labels, taints, config, plugins, flag)| {
            let taints: Vec<Value> =
                taints.iter().map(|(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"})).collect();
            let mut flags = Map::new();
            if let Some(flag) = flag {
                flags.insert(flag.to_owned(), json!("yes"));
            }
            json!({
                "apiVersion": "nodestrap.io/v1alpha1",
                "kind": "NodeGroup",
                "metadata": {"name": name},
                "spec": {
                    "labels": labels,
                    "taints": taints,
                    "kubelet": {"config": config, "flags": flags},
                    "containerRuntime": {"config": {"plugins": plugins}},
                },
            })
        })
}

/// JSON is YAML: valid specs as text.
fn valid_spec() -> impl Strategy<Value = (Value, Vec<Value>)> {
    let networks = prop::sample::select(vec![
        json!({}),
        json!({"serviceCIDRs": ["10.0.0.0/16"]}),
        json!({"serviceCIDRs": ["fd00:1::/112", "172.20.0.240/28"], "podNetwork": "none"}),
        json!({"clusterDNS": ["169.254.20.10"], "clusterDomain": "k8s.example"}),
    ]);
    let extras = prop::sample::select(vec![
        json!({}),
        json!({"provider": "aws", "region": "eu-central-1", "sysctls": {"vm.max_map_count": "262144"}}),
        json!({"provider": "gce", "proxy": {"http": "http://proxy:3128", "noProxy": [".corp"]}}),
        json!({
            "fileAssets": [{"path": "/etc/a", "content": "1\n"}, {"path": "/etc/b", "content": "yes", "secret": true}],
            "hooks": [{"name": "h", "slot": "before-kubelet", "unit": "ExecStart=/bin/true\n", "timeout": "30s"}],
            "units": [{"name": "u.service", "dropIns": {"x": "[Service]\nNice=1\n"}}],
            "kernelModules": ["nf_conntrack"],
        }),
        json!({
            "registryMirrors": {"docker.io": ["https://mirror.example.com"]},
            "ntpServers": ["time.example.com"],
            "kubeApiserver": {"flags": {"max-requests-inflight": 800, "audit-log-path": "-"}},
            "kubeProxy": {"config": {"mode": "ipvs"}},
            "etcd": {"members": ["a", "b", "c"]},
        }),
        json!({
            "delivery": {
                "nodestrap": {
                    "installation": "download",
                    "urls": ["https://example.com/nodestrap"],
                    "sha256": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                },
                "store": {"urls": ["https://store.example.com/bundles"]},
            },
            "additionalUserData": [{"name": "hello.sh", "type": "text/x-shellscript", "content": "#!/bin/sh\n"}],
        }),
    ]);
    let version = prop::sample::select(vec!["1.30.14", "1.31.14", "1.32.13", "1.33.0", "1.34.4", "1.35.4", "1.36.3"]);
    (networks, extras, version, group("a"), group("b")).prop_map(|(networking, extras, version, a, b)| {
        let mut cluster = json!({
            "apiVersion": "nodestrap.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "demo"},
            "spec": {
                "apiServer": "https://[fd00::1]:6443",
                "join": {"bootstrapToken": TOKEN, "certificateAuthority": {"file": "ca.crt"}},
                "networking": networking,
            },
        });
        cluster["spec"]["kubernetesVersion"] = json!(version);
        for (name, value) in extras.as_object().expect("the extras are objects") {
            cluster["spec"][name] = value.clone();
        }
        (cluster, vec![a, b])
    })
}

fn as_text((cluster, groups): &(Value, Vec<Value>)) -> String {
    let documents: Vec<String> = std::iter::once(cluster).chain(groups).map(|value| format!("{value:#}\n")).collect();
    documents.join("---\n")
}

fn leaves(value: &Value, at: String, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                leaves(value, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        value => found.push((at, value.clone())),
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Insert(String),
    Delete(usize),
    RepeatLine,
}

fn mutate(text: &str, mutations: &[(prop::sample::Index, Mutation)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, mutation) in mutations {
        let at = at.index(chars.len() + 1);
        match mutation {
            Mutation::Insert(piece) => {
                chars.splice(at..at, piece.chars());
            }
            Mutation::Delete(count) => {
                chars.drain(at..(at + count).min(chars.len()));
            }
            Mutation::RepeatLine => {
                let from = chars[..at].iter().rposition(|c| *c == '\n').map_or(0, |newline| newline + 1);
                let line: Vec<char> = chars[from..at].to_vec();
                chars.splice(from..from, line.into_iter().chain(['\n']));
            }
        }
    }
    chars.into_iter().collect()
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        prop::sample::select(vec![
            ":", ": ", "\n", "  ", "- ", "[", "]", "{", "}", "\"", "'", "|", "&a ", "*a", "!!str ", "#", "---\n", "\t",
            "? ", "~", "%", "\u{0}", "\r", "ä", "\u{feff}", ",",
        ])
        .prop_map(|piece| Mutation::Insert(piece.to_owned())),
        (1..40usize).prop_map(Mutation::Delete),
        Just(Mutation::RepeatLine),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), yaml in "([a-z]{0,3}[-:?\\[\\]{},&*!|>'\"%@` \n\t]{0,3}){0,30}") {
        for text in [text, yaml] {
            let mistakes = complete(&text).err().unwrap();
            prop_assert!(!mistakes.is_empty());
            prop_assert!(render_mistakes(&mistakes, Colour::Ansi).contains("mistake"));
        }
    }

    #[test]
    fn mutated_specs_neither_panic_nor_show_the_token(
        full in any::<bool>(),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), mutation()), 1..6),
    ) {
        let text = mutate(&example(if full { "full.yaml" } else { "minimal.yaml" }), &mutations);
        if let Err(mistakes) = complete(&text) {
            prop_assert!(!mistakes.is_empty());
            let shown = render_mistakes(&mistakes, Colour::Plain);
            prop_assert!(!shown.contains("0123456789abcdef"), "{}", shown);
        }
    }

    #[test]
    fn completing_a_complete_spec_changes_nothing(spec in valid_spec()) {
        let once = expect_complete(&as_text(&spec));
        let text = once.to_yaml(SecretDisplay::Shown);
        // The second reading refuses what the release does not know, so that nothing of the kind was decided.
        let twice = expect_complete(&text);
        prop_assert_eq!(twice.to_yaml(SecretDisplay::Shown), text);
        prop_assert_eq!(twice.to_json(SecretDisplay::Shown), once.to_json(SecretDisplay::Shown));
    }

    #[test]
    fn what_the_user_wrote_wins(spec in valid_spec()) {
        let complete = expect_complete(&as_text(&spec));
        let json = complete.to_json(SecretDisplay::Shown);
        for group in &spec.1 {
            let name = group["metadata"]["name"].as_str().unwrap();
            let mut written = Vec::new();
            leaves(&group["spec"], String::new(), &mut written);
            for (pointer, value) in written {
                let found = json.pointer(&format!("/nodeGroups/{name}{pointer}"));
                // An empty mapping adds nothing to what is there.
                if value != json!({}) {
                    prop_assert_eq!(found, Some(&value), "{}", pointer);
                }
            }
        }
    }

    #[test]
    fn every_leaf_is_explained_and_every_derivation_leads_to_settings(spec in valid_spec()) {
        let text = as_text(&spec);
        let complete = expect_complete(&text);
        let explain = |path: &str| explain(&complete, &[source(&text)], path);
        let mut expected = Vec::new();
        leaves(&complete.to_json(SecretDisplay::Redacted), String::new(), &mut expected);
        let mut found = Vec::new();
        let mut sources = BTreeSet::new();
        let explained = ["cluster", "nodeGroups"].map(|root| explain(root).unwrap()).concat();
        prop_assert_eq!(paths(&complete), explained.iter().map(|leaf| leaf.path.clone()).collect::<Vec<_>>());
        for explanation in explained {
            if let Origin::Derived { from, .. } = &explanation.origin {
                sources.extend(from.iter().map(|source| (source.clone(), explanation.path.clone())));
            }
            leaves(&explanation.value, String::new(), &mut found);
        }
        let mut known = BTreeMap::new();
        for (source, path) in sources {
            let leads = known.entry(source.clone()).or_insert_with(|| explain(&source).is_ok());
            prop_assert!(*leads, "{} is derived from {}", path, source);
        }
        let values = |leaves: Vec<(String, Value)>| {
            let mut values: Vec<String> = leaves.into_iter().map(|(_, value)| value.to_string()).collect();
            values.sort();
            values
        };
        prop_assert_eq!(values(found), values(expected));
    }
}

proptest! {
    // Each case asks for every part on its own.
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_part_of_a_list_is_explained_and_stands_where_it_is_said_to(spec in valid_spec()) {
        let text = as_text(&spec);
        let complete = expect_complete(&text);
        let sources = [source(&text)];
        for whole in spec::explain_all(&complete, &sources) {
            let mut found = Vec::new();
            parts(&whole.path, &whole.value, &mut found);
            for (path, value) in found {
                let explained = explain(&complete, &sources, &path).unwrap();
                prop_assert_eq!(explained.len(), 1);
                prop_assert_eq!((&explained[0].path, &explained[0].value), (&path, &value));
                prop_assert!(explained[0].reaches.iter().all(|group| whole.reaches.contains(group)));
                if let Origin::User(at) = &explained[0].origin {
                    let line = text.split('\n').nth(at.line as usize - 1).unwrap();
                    let there: String = line.chars().skip(at.column as usize - 1).collect();
                    let name = path.rsplit(['.', ']']).next().unwrap().trim_matches('"');
                    // A collection in a mapping is where its key is; a redacted secret is another text.
                    let is_there = match value {
                        Value::Array(_) | Value::Object(_) => {
                            there.starts_with(['[', '{']) || [name, &json!(name).to_string()].iter().any(|key| there.contains(*key))
                        }
                        ref value if *value == json!(REDACTED) => true,
                        ref value => there.starts_with(&value.to_string()),
                    };
                    prop_assert!(is_there, "{} is {}, and {:?} is there", path, value, there);
                }
            }
        }
    }
}

#[test]
fn examples_complete_to_themselves() {
    for name in ["minimal.yaml", "full.yaml", "bare-debian.yaml", "private-bucket.yaml"] {
        let text = expect_complete(&example(name)).to_yaml(SecretDisplay::Shown);
        assert_eq!(expect_complete(&text).to_yaml(SecretDisplay::Shown), text);
    }
}

#[test]
fn every_system_and_layout_completes_to_itself() {
    let systems = ["flatcar", "debian", "ubuntu", "al2", "al2023", "rhel", "rhcos"].map(|os| ("nodestrap", os));
    let layouts = [("eksctl", "al2"), ("eksctl", "ubuntu"), ("tectonic", "container-linux"), ("tectonic", "flatcar")];
    for (layout, os) in systems.into_iter().chain(layouts) {
        let text = example("minimal.yaml");
        let (cluster, group) = text.split_once("---\n").unwrap();
        let machines = "machines: {instanceType: m5.large}, maxPods: \"min(max_pods, 20)\"";
        let of_today = "kubernetesVersion: 1.36.3\n  tectonic: {kubeletImage: registry.example.com/kubelet}";
        let (settings, source) = match layout {
            "tectonic" => (vec!["tectonic: {}", of_today], ", source: preinstalled"),
            _ => (vec!["region: eu-central-1"], ""),
        };
        for settings in settings {
            let spec = format!(
                "{cluster}  layout: {layout}\n  provider: aws\n  {settings}\n---\n{group}spec: {{os: {os}, {machines}{source}}}\n"
            );
            let once = expect_complete(&spec).to_yaml(SecretDisplay::Shown);
            assert_eq!(expect_complete(&once).to_yaml(SecretDisplay::Shown), once, "{layout} {os} {settings}");
        }
    }
}

#[test]
fn a_redacted_spec_is_refused_with_the_way_out() {
    let redacted = expect_complete(&example("minimal.yaml")).to_yaml(SecretDisplay::Redacted);
    let mistakes = complete(&redacted).err().unwrap();
    assert_eq!(mistakes.len(), 1);
    assert!(mistakes[0].advice.as_ref().unwrap().contains("--show-secrets"));
}

#[test]
fn windows_line_ends_and_several_files_are_no_trouble() {
    let text = example("minimal.yaml");
    let unix = expect_complete(&text).to_yaml(SecretDisplay::Shown);
    assert_eq!(expect_complete(&text.replace('\n', "\r\n")).to_yaml(SecretDisplay::Shown), unix);
    assert_eq!(expect_complete(&format!("\u{feff}{text}")).to_yaml(SecretDisplay::Shown), unix);
    let (cluster, group) = text.split_once("---\n").unwrap();
    let files = [Source::new("group.yaml", group), Source::new("cluster.yaml", cluster)];
    let complete = complete_sources(&files).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    assert_eq!(complete.to_yaml(SecretDisplay::Shown), unix);
}

#[test]
fn a_group_has_as_many_pods_as_its_kubelet_is_told() {
    let text = format!("{}spec: {{kubelet: {{config: {{maxPods: 50}}}}}}\n", example("minimal.yaml"));
    let complete = expect_complete(&text);
    assert_eq!(complete.to_json(SecretDisplay::Shown)["nodeGroups"]["workers"]["maxPods"], 50);
    let again = expect_complete(&complete.to_yaml(SecretDisplay::Shown));
    assert_eq!(again.to_json(SecretDisplay::Shown), complete.to_json(SecretDisplay::Shown));
}

#[test]
fn what_a_program_does_by_itself_is_that_of_its_release_and_of_its_other_fields() {
    let of = |version: &str, group: &str| {
        let minimal = example("minimal.yaml");
        let cluster = minimal.replace("  join:", &format!("  kubernetesVersion: {version}\n  join:"));
        let text = format!("{cluster}spec: {{kubelet: {{config: {{{group}}}}}}}\n");
        expect_complete(&text).to_json(SecretDisplay::Shown)
    };
    let flag = |spec: &Value, component: &str, flag: &str| spec["builtIn"]["cluster"][component]["flags"][flag].clone();
    let field =
        |spec: &Value, field: &str| spec["builtIn"]["nodeGroups"]["workers"]["kubelet"]["config"][field].clone();
    let found: Vec<Vec<Value>> =
        [of("1.30.14", ""), of("1.32.13", "maxParallelImagePulls: 3"), of("1.36.3", "nodeStatusUpdateFrequency: 20s")]
            .iter()
            .map(|spec| {
                vec![
                    flag(spec, "kubeControllerManager", "node-monitor-grace-period"),
                    flag(spec, "kubeApiserver", "audit-log-maxage"),
                    field(spec, "failCgroupV1"),
                    field(spec, "serializeImagePulls"),
                    field(spec, "nodeStatusReportFrequency"),
                ]
            })
            .collect();
    let wanted = [
        vec![json!("40s"), json!("0"), Value::Null, json!(true), json!("5m0s")],
        vec![json!("50s"), json!("0"), json!(false), json!(false), json!("5m0s")],
        vec![json!("50s"), json!("366"), json!(true), json!(true), json!("20s")],
    ];
    assert_eq!(found, wanted);
}

#[test]
fn the_kubelets_cgroup_driver_decides_for_containerd() {
    let text = format!("{}spec: {{kubelet: {{config: {{cgroupDriver: cgroupfs}}}}}}\n", example("minimal.yaml"));
    let complete = expect_complete(&text);
    let found = explain(&complete, &[source(&text)], "runc.options.SystemdCgroup").unwrap();
    assert_eq!(found[0].value, json!(false));
    assert_eq!(found[0].reaches, ["workers"]);
}

#[test]
fn files_are_asked_for_and_their_position_is_known() {
    let text = "kind: Cluster\nspec:\n  join:\n    bootstrapToken: {file: token.txt}\n    certificateAuthority: {file: ca.crt}\n";
    let parsed = spec::parse(&[Source::new("x/cluster.yaml", text)]);
    let found: Vec<(&str, &str, u32)> =
        parsed.file_references().iter().map(|file| (file.path.as_str(), file.field, file.position.line)).collect();
    assert_eq!(found, [("token.txt", "bootstrapToken", 4), ("ca.crt", "certificate", 5)]);
}

#[test]
fn a_file_that_is_not_text_is_refused_at_its_first_bad_byte() {
    let mistake = Source::from_bytes("a.yaml", b"kind: x\nb: \xff".to_vec()).err().unwrap();
    assert_eq!((mistake.line, mistake.column), (2, 4));
}

#[test]
fn a_flood_of_mistakes_is_cut_off() {
    let text: String = (0..2_000).map(|index| format!("field{index}: 1\n")).collect();
    let mistakes = complete(&format!("kind: Cluster\n{text}")).err().unwrap();
    assert_eq!(mistakes.len(), 101);
}

#[test]
fn hostile_nesting_and_size_are_refused() {
    for text in ["[".repeat(100_000), "- ".repeat(5000), format!("a: {}", "x".repeat(1 << 20)), "{a: ".repeat(3000)] {
        assert!(!complete(&text).err().unwrap().is_empty());
    }
}
