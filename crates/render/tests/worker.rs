//! The bundle of a worker, from a complete spec made by hand: what goes where, and what cannot be written out.

use std::collections::BTreeMap;

use render::{Bundle, RenderError, Secrecy, Start, cloud_config, render_bundle};
use serde_json::json;
use spec::{
    CompleteCluster, CompleteContainerRuntime, CompleteGroup, CompleteJoin, CompleteKubelet, CompleteNetworking,
    CompleteSpec, ConfigNode, ConfigTree, Origin, PodNetwork, Role, RuntimeSource, Setting,
};

const TOKEN: &str = "canary.0123456789abcdef";
const AUTHORITY: &str = include_str!("ca.crt");

fn set<T>(value: T) -> Setting<T> {
    Setting { value, origin: Origin::Default { reason: "a test" } }
}

fn parsed<T: std::str::FromStr>(text: &str) -> Setting<T> {
    set(text.parse().ok().expect("a valid value"))
}

fn leaf(value: serde_json::Value) -> ConfigNode {
    ConfigNode::Leaf(set(value))
}

fn tree<const N: usize>(nodes: [(&str, ConfigNode); N]) -> ConfigTree {
    nodes.map(|(name, node)| (name.to_owned(), node)).into()
}

fn group(name: &str) -> CompleteGroup {
    CompleteGroup {
        name: parsed(name),
        role: set(Role::Worker),
        labels: set(BTreeMap::new()),
        taints: set(Vec::new()),
        kubelet: CompleteKubelet {
            binary: set("/usr/bin/kubelet".to_owned()),
            config: tree([
                ("failSwapOn", leaf(json!(false))),
                ("authentication", ConfigNode::Branch(tree([("anonymous", leaf(json!({ "enabled": false })))]))),
            ]),
            flags: [
                ("bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubelet.kubeconfig"),
                ("config", "/etc/kubernetes/kubelet.yaml"),
                ("kubeconfig", "/var/lib/kubelet/kubeconfig"),
                ("node-labels", "a=b,c=d"),
            ]
            .map(|(flag, value)| (flag.to_owned(), set(value.to_owned())))
            .into(),
        },
        container_runtime: CompleteContainerRuntime {
            source: set(RuntimeSource::Preinstalled),
            binary: set("/usr/bin/containerd".to_owned()),
            sandbox_image: set("nodestrap.local/pause:1".to_owned()),
            cni_binaries: set("/opt/cni/bin".to_owned()),
            config: tree([("version", leaf(json!(3)))]),
        },
    }
}

fn complete_spec() -> CompleteSpec {
    CompleteSpec {
        cluster: CompleteCluster {
            name: parsed("lab"),
            kubernetes_version: parsed("1.36.3"),
            api_server: parsed("https://10.0.0.1:6443"),
            join: CompleteJoin { bootstrap_token: parsed(TOKEN), certificate_authority: parsed(AUTHORITY) },
            networking: CompleteNetworking {
                pod_network: set(PodNetwork::Bridge),
                service_cidrs: set(Vec::new()),
                cluster_dns: set(Vec::new()),
                cluster_domain: parsed("cluster.local"),
            },
        },
        groups: vec![group("gpu"), group("workers")],
    }
}

fn render(change: impl FnOnce(&mut CompleteSpec, &mut CompleteGroup)) -> Result<Bundle, RenderError> {
    let mut spec = complete_spec();
    let mut group = group("workers");
    change(&mut spec, &mut group);
    spec.groups[1] = group;
    render_bundle(&spec, "workers")
}

fn text<'a>(bundle: &'a Bundle, path: &str) -> &'a str {
    let file = bundle.files.iter().find(|file| file.path == path).expect("the bundle has the file");
    std::str::from_utf8(&file.content).expect("the file is text")
}

#[test]
fn an_unknown_group_is_answered_with_the_known_ones() {
    let error = render_bundle(&complete_spec(), "masters").expect_err("there is no such group");
    assert_eq!(error.to_string(), "there is no group 'masters': the spec has 'gpu' and 'workers'");
}

#[test]
fn a_worker_gets_its_files_units_and_programs() {
    let bundle = render(|_, _| {}).unwrap();
    let files: Vec<(&str, u32, Secrecy)> =
        bundle.files.iter().map(|file| (file.path.as_str(), file.mode, file.secrecy)).collect();
    assert_eq!(
        files,
        [
            ("/etc/containerd/config.toml", 0o644, Secrecy::Public),
            ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", 0o600, Secrecy::Secret),
            ("/etc/kubernetes/kubelet.yaml", 0o644, Secrecy::Public),
            ("/etc/kubernetes/pki/ca.crt", 0o644, Secrecy::Public),
            ("/etc/nodestrap/network.json", 0o644, Secrecy::Public),
            ("/etc/systemd/system/kubelet.service", 0o644, Secrecy::Public),
            ("/etc/systemd/system/nodestrap-network.service", 0o644, Secrecy::Public),
        ]
    );
    let units: Vec<(&str, Start)> = bundle.units.iter().map(|unit| (unit.name.as_str(), unit.start)).collect();
    assert_eq!(
        units,
        [
            ("containerd.service", Start::BeforeGate),
            ("kubelet.service", Start::AfterGate),
            ("nodestrap-network.service", Start::ByOthers),
        ]
    );
    let programs = ["/usr/bin/kubelet", "/usr/bin/containerd"].map(str::to_owned).into_iter();
    let plugins = ["bridge", "host-local", "loopback", "portmap"].map(|plugin| format!("/opt/cni/bin/{plugin}"));
    assert_eq!(bundle.required_programs, programs.chain(plugins).collect::<Vec<_>>());
}

#[test]
fn a_unit_that_others_start_has_no_install_section_and_the_rest_of_ours_have_one() {
    let bundle = render(|_, _| {}).unwrap();
    for unit in &bundle.units {
        let path = format!("/etc/systemd/system/{}", unit.name);
        if let Some(file) = bundle.files.iter().find(|file| file.path == path) {
            let content = String::from_utf8_lossy(&file.content);
            assert_eq!(content.contains("\n[Install]\n"), unit.start != Start::ByOthers, "{}", unit.name);
        }
    }
}

#[test]
fn without_a_pod_network_nothing_of_it_is_left() {
    let bundle = render(|spec, _| spec.cluster.networking.pod_network.value = PodNetwork::None).unwrap();
    assert_eq!(bundle.units.len(), 2);
    assert_eq!(bundle.required_programs, ["/usr/bin/kubelet", "/usr/bin/containerd"]);
    assert!(!bundle.to_json().contains("network.json") && !bundle.to_json().contains("nodestrap-network"));
}

#[test]
fn the_token_is_in_the_secret_file_alone() {
    let bundle = render(|_, _| {}).unwrap();
    for file in &bundle.files {
        let found = String::from_utf8_lossy(&file.content).contains("canary");
        assert_eq!(found, file.secrecy == Secrecy::Secret, "{}", file.path);
    }
    assert!(!bundle.manifest_json().contains("canary"));
    assert!(!format!("{bundle:?}").contains("canary"));
    assert!(!cloud_config(&bundle).unwrap().contains("canary"));
    assert!(!bundle.gate.environment.values().any(|value| value.contains("canary")));
}

#[test]
fn the_kubelet_is_told_where_its_files_are() {
    let arguments = |bundle: &Bundle| bundle.gate.environment["KUBELET_ARGS"].clone();
    let bundle = render(|_, _| {}).unwrap();
    assert_eq!(
        arguments(&bundle),
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.kubeconfig --config=/etc/kubernetes/kubelet.yaml \
         --kubeconfig=/var/lib/kubelet/kubeconfig --node-labels=a=b,c=d"
    );
    let moved = render(|_, group| {
        for (flag, value) in
            [("config", "/etc/k/c.yaml"), ("bootstrap-kubeconfig", "/etc/k/b"), ("kubeconfig", "/var/k")]
        {
            group.kubelet.flags.insert(flag.to_owned(), set(value.to_owned()));
        }
    })
    .unwrap();
    assert!(
        arguments(&moved).starts_with("--bootstrap-kubeconfig=/etc/k/b --config=/etc/k/c.yaml --kubeconfig=/var/k")
    );
    assert!(text(&moved, "/etc/k/c.yaml").contains("kind: KubeletConfiguration\n"));
    assert!(text(&moved, "/etc/k/b").contains(TOKEN));
    assert_eq!((moved.join.bootstrap_kubeconfig.as_str(), moved.join.kubeconfig.as_str()), ("/etc/k/b", "/var/k"));
    assert!(text(&moved, "/etc/nodestrap/network.json").contains("\"kubeconfig\": \"/var/k\""));
}

#[test]
fn a_flag_that_says_where_a_file_lies_must_be_there() {
    for missing in ["bootstrap-kubeconfig", "config", "kubeconfig"] {
        let error = render(|_, group| {
            group.kubelet.flags.remove(missing);
        });
        assert!(matches!(error, Err(RenderError::MissingFlag { flag }) if flag == missing));
    }
}

#[test]
fn the_pod_network_looks_for_the_name_under_which_the_node_registers() {
    let settings = |bundle: &Bundle| {
        render::NetworkSettings::parse(text(bundle, render::NETWORK_SETTINGS_PATH).as_bytes())
            .expect("our own settings")
    };
    assert_eq!(settings(&render(|_, _| {}).unwrap()).node_name, None);
    let named = render(|_, group| {
        group.kubelet.flags.insert("hostname-override".to_owned(), set("n1".to_owned()));
    });
    assert_eq!(settings(&named.unwrap()).node_name.as_deref(), Some("n1"));
}

#[test]
fn flags_that_systemd_would_split_or_expand_are_refused_by_name() {
    for value in ["a b", "a\tb", "a\nb", "\"a\"", "'a'", "a\\b", "$HOME", "a\u{a0}b", "a\u{1}"] {
        let error = render(|_, group| {
            group.kubelet.flags.insert("node-ip".to_owned(), set(value.to_owned()));
        })
        .err()
        .unwrap();
        assert!(matches!(&error, RenderError::FlagValue { flag, .. } if flag == "node-ip"), "{value:?}: {error}");
    }
    for flag in ["", "--v", "V", "node ip", "a=b"] {
        let error = render(|_, group| {
            group.kubelet.flags.insert(flag.to_owned(), set("1".to_owned()));
        });
        assert!(matches!(error, Err(RenderError::FlagName { .. })), "{flag:?}");
    }
}

#[test]
fn two_files_for_one_path_are_refused() {
    let error = render(|_, group| {
        group.kubelet.flags.insert("config".to_owned(), set("/etc/kubernetes/pki/ca.crt".to_owned()));
    });
    assert!(matches!(error, Err(RenderError::Bundle { source: render::BundleError::DuplicatePath { .. } })));
}

#[test]
fn rendering_twice_gives_equal_bytes() {
    let (one, other) = (render(|_, _| {}).unwrap(), render(|_, _| {}).unwrap());
    assert_eq!(one.to_json(), other.to_json());
    assert_eq!(one.manifest_json(), other.manifest_json());
    assert_eq!(cloud_config(&one).unwrap(), cloud_config(&other).unwrap());
}
