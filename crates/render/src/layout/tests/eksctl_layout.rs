//! What the seed of eksctl says about files, flags and variables.

use super::environment_files::TemporaryFile;
use super::*;

/// MAX_PODS as a bootstrap written in bash finds it: a number in `kubelet.env` first, then the map.
fn max_pods_by_bash(bundle: &Bundle, instance_type: &str) -> String {
    const SCRIPT: &str = r#"
            set -o errexit -o pipefail -o nounset
            look_up() {
                while read -r kind pods; do
                    if [[ "$kind" == "$1" && "$pods" =~ ^[0-9]+$ ]]; then echo "$pods"; return; fi
                done < "$MAP"
            }
            source "$KUBELET_ENV"
            echo "${MAX_PODS:-$(look_up "$1")}""#;
    let environment = TemporaryFile::new(text(bundle, "/etc/eksctl/kubelet.env").as_bytes());
    let map = TemporaryFile::new(text(bundle, "/etc/eksctl/max_pods.map").as_bytes());
    let output = Command::new("bash")
        .args(["-c", SCRIPT, "bootstrap", instance_type])
        .env("KUBELET_ENV", &environment.0)
        .env("MAP", &map.0)
        .env_remove("MAX_PODS")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_files_lie_where_the_seed_says() {
    let bundle = rendered("eksctl-al2");
    let expected = [
        "/etc/containerd/config.toml",
        "/etc/eksctl/ca.crt",
        "/etc/eksctl/kubeconfig.yaml",
        "/etc/eksctl/kubelet.env",
        "/etc/eksctl/kubelet.yaml",
        "/etc/eksctl/max_pods.map",
        "/etc/eksctl/metadata.env",
        "/etc/systemd/system/k8s-node-bootstrap.service.d/10-gate.conf",
        DROP_IN,
        "/etc/systemd/system/kubelet.service.d/20-nodestrap-gate.conf",
        "/etc/systemd/system/nodestrap-gate.service",
    ];
    assert_eq!(paths(&bundle), expected);
    assert_eq!(bundle.gate.path, "/etc/eksctl/kubelet.local.env");
    let of_machine = [GateFact::InstanceId, GateFact::InstanceType, GateFact::MaxPods, GateFact::NodeIp];
    assert_eq!(bundle.gate.facts, of_machine.into());
    let started = [("containerd.service", Start::BeforeGate), ("kubelet.service", Start::AfterGate)];
    assert_eq!(units(&bundle), [&started[..], &[("nodestrap-gate.service", Start::ByOthers)]].concat());
    assert_eq!(bundle.required_programs, ["/usr/bin/kubelet", "/usr/bin/containerd"]);
}

#[test]
fn the_gate_of_the_layout_is_what_the_bootstrap_and_the_kubelet_look_at() {
    for (case, kubelet, skipped) in
        [("eksctl-al2", "kubelet.service", false), ("eksctl-ubuntu", "snap.kubelet-eks.daemon.service", true)]
    {
        let bundle = rendered(case);
        let bootstrap = unit(&bundle, "k8s-node-bootstrap.service.d/10-gate.conf");
        assert_eq!(directives(bootstrap), ["ConditionPathExists=!/etc/eksctl/kubelet.local.env"]);
        let check = unit(&bundle, &format!("{kubelet}.d/20-nodestrap-gate.conf"));
        let mut expected =
            vec!["Wants=k8s-node-bootstrap.service nodestrap-gate.service", "After=nodestrap-gate.service"];
        expected.extend(skipped.then_some("ConditionPathExists=/etc/eksctl/kubelet.local.env"));
        expected.push("ExecStartPre=/usr/bin/nodestrap gate --path /etc/eksctl/kubelet.local.env");
        assert_eq!(directives(check), expected, "{case}");
    }
}

#[test]
fn max_pods_is_looked_up_unless_somebody_chose() {
    let bundle = rendered("eksctl-al2");
    assert!(!text(&bundle, "/etc/eksctl/kubelet.env").contains("MAX_PODS") && bundle.gate.max_pods.is_none());
    for (instance_type, pods) in [("m5.large", "29"), ("t3.nano", "4"), ("unheard.of", "")] {
        assert_eq!(max_pods_by_bash(&bundle, instance_type), pods, "{instance_type}");
    }
    let bundle = rendered("eksctl-al2-max-pods-override");
    assert!(text(&bundle, "/etc/eksctl/kubelet.env").ends_with("MAX_PODS=\"17\"\n"));
    assert_eq!(max_pods_by_bash(&bundle, "m5.large"), "17");
    assert_eq!(bundle.gate.max_pods, Some(17));
}

#[test]
fn what_the_configuration_says_about_max_pods_reaches_the_flag_that_beats_it() {
    let number = |change: &dyn Fn(&mut spec::CompleteGroup)| {
        let mut spec = complete("eksctl-al2023-token");
        change(&mut spec.groups[0].spec);
        let bundle = render(&spec);
        text(&bundle, "/etc/eksctl/kubelet.env")
            .lines()
            .find_map(|line| line.strip_prefix("MAX_PODS=").map(str::to_owned))
    };
    let leaf = |pods: u32| spec::ConfigNode::Leaf(set(serde_json::json!(pods)));
    // m5.large has 29, and the map says so too.
    assert_eq!(number(&|_| {}), None);
    assert_eq!(number(&|group| group.max_pods.value = MaxPods::Number(29)), Some("\"29\"".to_owned()));
    // With prefixes, or by the user's own word, it is not what the map says.
    let differs = |group: &mut spec::CompleteGroup| {
        group.kubelet.config.insert("maxPods", leaf(110));
    };
    assert_eq!(number(&differs), Some("\"110\"".to_owned()));
    let unknown = |group: &mut spec::CompleteGroup| {
        group.machines.instance_type = None;
        group.kubelet.config.insert("maxPods", leaf(29));
    };
    assert_eq!(number(&unknown), Some("\"29\"".to_owned()));
}

/// The flags of the seed's drop-in, in its order.
const SEED_FLAGS: [(&str, &str); 13] = [
    ("node-ip", "${NODE_IP}"),
    ("node-labels", "${NODE_LABELS},alpha.eksctl.io/instance-id=${INSTANCE_ID}"),
    ("max-pods", "${MAX_PODS}"),
    ("register-node", "true"),
    ("register-with-taints", "${NODE_TAINTS}"),
    ("cloud-provider", "aws"),
    ("container-runtime", "docker"),
    ("network-plugin", "cni"),
    ("cni-bin-dir", "/opt/cni/bin"),
    ("cni-conf-dir", "/etc/cni/net.d"),
    (
        "pod-infra-container-image",
        "${AWS_EKS_ECR_ACCOUNT}.dkr.ecr.${AWS_DEFAULT_REGION}.amazonaws.com/eks/pause-amd64:3.1",
    ),
    ("kubeconfig", "/etc/eksctl/kubeconfig.yaml"),
    ("config", "/etc/eksctl/kubelet.yaml"),
];

/// A node of the seed's time: docker, and a token because the credential programs of then had another version.
fn of_the_seeds_time() -> CompleteSpec {
    let mut spec = complete("eksctl-al2");
    spec.cluster.join.bootstrap_token = Some(set("abcdef.0123456789abcdef".parse().unwrap()));
    let group = &mut spec.groups[0].spec;
    group.kubernetes_version.value = KubeVersion { major: 1, minor: 14, patch: 10 };
    group.container_runtime.name.value = Runtime::Docker;
    group.container_runtime.config = spec::ConfigTree::new();
    group.kubelet.flags.insert("cloud-provider".to_owned(), set("aws".to_owned()));
    spec
}

#[test]
fn a_kubelet_of_the_seeds_time_gets_the_seeds_drop_in() {
    let bundle = render(&of_the_seeds_time());
    let drop_in = text(&bundle, DROP_IN);
    let expected = SEED_FLAGS.map(|(name, value)| format!("--{name}={value}")).join(" ");
    assert_eq!(exec_start(drop_in), format!("/usr/bin/kubelet {expected}"));
    let service: Vec<&str> = directives(drop_in.split_once("[Service]").unwrap().1);
    assert_eq!(
        service[..4],
        [
            "EnvironmentFile=/etc/eksctl/metadata.env",
            "EnvironmentFile=/etc/eksctl/kubelet.env",
            "EnvironmentFile=/etc/eksctl/kubelet.local.env",
            "ExecStart=",
        ]
    );
    assert_eq!(service.len(), 5);
    assert_eq!(bundle.units[0].name, "docker.service");
    assert!(!paths(&bundle).contains(&"/etc/containerd/config.toml"));
}

#[test]
fn what_a_release_does_not_know_is_not_written() {
    let names = |minor, runtime| {
        let mut spec = of_the_seeds_time();
        spec.groups[0].spec.kubernetes_version.value = KubeVersion { major: 1, minor, patch: 0 };
        spec.groups[0].spec.container_runtime.name.value = runtime;
        let bundle = render(&spec);
        flags(exec_start(text(&bundle, DROP_IN))).into_keys().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let of_docker = ["container-runtime", "network-plugin", "cni-bin-dir", "cni-conf-dir"];
    for (minor, runtime, has_runtime, has_network, has_pause) in [
        (23, Runtime::Docker, true, true, true),
        (23, Runtime::Containerd, true, false, true),
        (24, Runtime::Containerd, false, false, true),
        (34, Runtime::Containerd, false, false, true),
        (35, Runtime::Containerd, false, false, false),
        (36, Runtime::Containerd, false, false, false),
    ] {
        let names = names(minor, runtime);
        assert_eq!(names.contains(of_docker[0]), has_runtime, "1.{minor}");
        for name in &of_docker[1..] {
            assert_eq!(names.contains(*name), has_network, "1.{minor} {name}");
        }
        assert_eq!(names.contains("container-runtime-endpoint"), has_runtime && !has_network, "1.{minor}");
        assert_eq!(names.contains("pod-infra-container-image"), has_pause, "1.{minor}");
        for always in ["node-ip", "node-labels", "max-pods", "register-node", "register-with-taints"] {
            assert!(names.contains(always), "1.{minor} {always}");
        }
    }
}

#[test]
fn what_left_the_kubelet_is_in_the_configuration_of_containerd() {
    let spec = complete("eksctl-al2");
    let config: toml::Table = text(&render(&spec), "/etc/containerd/config.toml").parse().unwrap();
    let at = |path: &[&str]| {
        let plugins = config["plugins"].as_table().unwrap();
        path[1..].iter().fold(&plugins[path[0]], |value, name| &value[*name]).clone()
    };
    let image = spec.groups[0].spec.container_runtime.sandbox_image.value.to_string();
    assert_eq!(at(&["io.containerd.cri.v1.images", "pinned_images", "sandbox"]).as_str(), Some(image.as_str()));
    assert_eq!(at(&["io.containerd.cri.v1.runtime", "cni", "conf_dir"]).as_str(), Some("/etc/cni/net.d"));
    assert_eq!(at(&["io.containerd.cri.v1.runtime", "cni", "bin_dirs"])[0].as_str(), Some("/opt/cni/bin"));
}

#[test]
fn a_pause_image_of_the_users_is_that_of_docker_too() {
    let mut spec = of_the_seeds_time();
    let image = &mut spec.groups[0].spec.container_runtime.sandbox_image;
    image.value = "registry.example.com/pause:1".parse().unwrap();
    image.origin = Origin::User(Position { file: "spec.yaml".to_owned(), line: 1, column: 1 });
    let bundle = render(&spec);
    let flags = flags(exec_start(text(&bundle, DROP_IN)));
    assert_eq!(flags["pod-infra-container-image"], "registry.example.com/pause:1");
}

#[test]
fn without_labels_the_flag_does_not_begin_with_a_comma() {
    let bundle = rendered("eksctl-al2-max-pods-override");
    let flags = flags(exec_start(text(&bundle, DROP_IN)));
    assert_eq!(flags["node-labels"], "alpha.eksctl.io/instance-id=${INSTANCE_ID}");
    assert!(text(&bundle, "/etc/eksctl/kubelet.env").contains("NODE_LABELS=\"\"\n"));
}

#[test]
fn a_flag_of_the_users_wins_and_follows_those_of_the_seed() {
    let mut spec = complete("eksctl-al2");
    for (name, value) in [("node-ip", "10.0.0.7"), ("v", "2"), ("a-first", "50%")] {
        spec.groups[0].spec.kubelet.flags.insert(name.to_owned(), set(value.to_owned()));
    }
    let bundle = render(&spec);
    let line = exec_start(text(&bundle, DROP_IN));
    assert!(line.starts_with("/usr/bin/kubelet --node-ip=10.0.0.7 --node-labels="), "{line}");
    assert!(line.ends_with(" --config=/etc/eksctl/kubelet.yaml --a-first=50%% --v=2"), "{line}");
    spec.groups[0].spec.kubelet.flags.insert("v".to_owned(), set("$HOME".to_owned()));
    assert!(matches!(try_render(&spec), Err(RenderError::FlagValue { .. })));
}

#[test]
fn the_kubelet_shows_a_token_or_runs_a_program() {
    let by_program = rendered("eksctl-al2");
    let kubeconfig = text(&by_program, "/etc/eksctl/kubeconfig.yaml");
    for part in ["aws-iam-authenticator", "golden", "client.authentication.k8s.io/v1"] {
        assert!(kubeconfig.contains(part), "{part} in {kubeconfig}");
    }
    assert!(!flags(exec_start(text(&by_program, DROP_IN))).contains_key("bootstrap-kubeconfig"));
    assert_eq!(by_program.join.kubeconfig, "/etc/eksctl/kubeconfig.yaml");

    let by_token = rendered("eksctl-al2023-token");
    let flags = flags(exec_start(text(&by_token, DROP_IN)));
    assert_eq!(flags["bootstrap-kubeconfig"], "/etc/eksctl/kubeconfig.yaml");
    assert_eq!(flags["kubeconfig"], "/var/lib/kubelet/kubeconfig");
    for file in &by_token.files {
        let has_token = String::from_utf8_lossy(&file.content).contains("0123456789abcdef\n");
        let secret = file.secrecy == Secrecy::Secret;
        assert_eq!(secret, file.path == "/etc/eksctl/kubeconfig.yaml", "{}", file.path);
        assert!(secret || !has_token, "{}", file.path);
    }

    let mut old = complete("eksctl-al2");
    old.groups[0].spec.kubernetes_version.value = KubeVersion { major: 1, minor: 21, patch: 0 };
    assert!(matches!(try_render(&old), Err(RenderError::ExecTooOld { .. })));
    old.cluster.join.exec = None;
    assert!(matches!(try_render(&old), Err(RenderError::NoCredential)));
}

#[test]
fn a_node_must_know_its_region() {
    let mut spec = complete("eksctl-al2");
    spec.cluster.region = None;
    assert!(matches!(try_render(&spec), Err(RenderError::NoRegion)));
}

#[test]
fn ubuntu_gets_settings_of_a_snap_instead_of_a_drop_in() {
    let bundle = rendered("eksctl-ubuntu");
    assert!(!paths(&bundle).contains(&DROP_IN));
    assert_eq!(bundle.join.kubelet_unit, "snap.kubelet-eks.daemon.service");
    assert_eq!(
        units(&bundle),
        [
            ("containerd.service", Start::BeforeGate),
            ("nodestrap-kubelet-gate.path", Start::BeforeGate),
            ("snap.kubelet-eks.daemon.service", Start::AfterGate),
            ("nodestrap-gate.service", Start::ByOthers),
        ]
    );
    assert_eq!(
        directives(unit(&bundle, "nodestrap-kubelet-gate.path"))[1..3],
        ["PathChanged=/etc/eksctl/kubelet.local.env", "Unit=snap.kubelet-eks.daemon.service"]
    );
    assert_eq!(bundle.required_programs, ["/usr/bin/containerd"]);
    assert!(paths(&bundle).contains(&"/etc/systemd/system/snap.kubelet-eks.daemon.service.d/10-proxy.conf"));
    let snap = bundle.snap.as_ref().unwrap();
    assert_eq!(snap.name, "kubelet-eks");
    assert!(snap.owns(&bundle.join.kubelet_unit));
    assert_eq!(snap.aliases["kubelet"], "kubelet-eks.kubelet");
    assert_eq!(snap.aliases["kubectl"], "kubectl-eks.kubectl");
    assert_eq!(snap.settings["max-pods"], "${MAX_PODS}");
    assert_eq!(snap.settings["v"], "2");
    // What is known here is filled in; each other variable is one that the node finds out.
    for value in snap.settings.values() {
        for variable in value.split("${").skip(1).map(|rest| rest.split_once('}').unwrap().0) {
            assert!(bundle.gate.facts.iter().any(|fact| fact.as_str() == variable), "{variable}");
        }
    }
    let labels = &snap.settings["node-labels"];
    assert!(labels.ends_with("example.com/pool=general,alpha.eksctl.io/instance-id=${INSTANCE_ID}"), "{labels}");
}

#[test]
fn a_snap_of_the_seeds_time_gets_the_seeds_settings() {
    let mut spec = of_the_seeds_time();
    spec.groups[0].spec.os.value = spec::Os::Ubuntu;
    let bundle = render(&spec);
    // snapd reads no environment files, so their variables are filled in.
    let files = ["/etc/eksctl/metadata.env", "/etc/eksctl/kubelet.env"].map(|path| text(&bundle, path).as_bytes());
    let known = files.map(|file| bundle::parse_environment(file).unwrap());
    let fill = |value: &str| {
        let variables = known.iter().flatten();
        variables.fold(value.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
    };
    let expected: BTreeMap<String, String> =
        SEED_FLAGS.iter().map(|(name, value)| ((*name).to_owned(), fill(value))).collect();
    assert_eq!(bundle.snap.as_ref().unwrap().settings, expected);
}
