//! What the seeds of Tectonic say about files, units and their order.

use super::*;

#[test]
fn the_files_lie_where_the_seeds_say() {
    let bundle = rendered("tectonic-worker");
    assert_eq!(
        paths(&bundle),
        [
            "/etc/kubernetes/ca.crt",
            "/etc/kubernetes/installer/kubelet.env",
            "/etc/kubernetes/installer/runtime-mappings.yaml",
            "/etc/kubernetes/kubeconfig",
            "/etc/nodestrap/keyrings/addons.asc",
            "/etc/systemd/system/kubelet.service",
            "/etc/systemd/system/nodestrap-clean-runtime-data.service",
            "/etc/systemd/system/nodestrap-gate.service",
            "/etc/systemd/system/sysinit.target.d/10-nodestrap-clean-runtime-data.conf",
        ]
    );
    assert_eq!(bundle.gate.path, "/etc/kubernetes/kubelet.env");
    assert_eq!((bundle.runtime.name, bundle.runtime.unit.as_str()), (RuntimeName::Docker, "docker.service"));
    assert_eq!(bundle.runtime.source, RuntimeSource::Torcx);
    assert_eq!(
        units(&bundle),
        [
            ("docker.service", Start::BeforeGate),
            ("kubelet.service", Start::AfterGate),
            ("nodestrap-gate.service", Start::ByOthers),
            ("nodestrap-clean-runtime-data.service", Start::ByOthers),
        ]
    );
}

#[test]
fn only_a_master_waits_for_the_assets_of_a_cluster() {
    let mut spec = complete("tectonic-master");
    let bundle = render(&spec);
    assert_eq!(
        units(&bundle)[4..],
        [
            ("bootkube.path", Start::AfterGate),
            ("bootkube.service", Start::ByOthers),
            ("tectonic.path", Start::AfterGate),
            ("tectonic.service", Start::ByOthers),
        ]
    );
    for (name, start) in units(&bundle).into_iter().skip(4) {
        assert_eq!(unit(&bundle, name).contains("\n[Install]\n"), start != Start::ByOthers, "{name}");
    }
    let settings: Option<&mut spec::CompleteTectonic> = (&mut spec.cluster.tectonic).into();
    settings.unwrap().bootkube.value = false;
    assert_eq!(units(&render(&spec)).len(), 4);
}

/// The directives that the seed quotes for each unit, in its order.
#[test]
fn the_units_say_what_the_seed_says() {
    let bundle = rendered("tectonic-master");
    for (name, quoted) in [
        (
            "kubelet.service",
            &[
                "EnvironmentFile=/etc/kubernetes/kubelet.env",
                "Restart=always",
                "RestartSec=10",
                "WantedBy=multi-user.target",
            ] as &[&str],
        ),
        ("bootkube.path", &["PathExists=/opt/tectonic/bootkube.sh", "WantedBy=multi-user.target"]),
        (
            "bootkube.service",
            &[
                "ConditionPathExists=!/opt/tectonic/init_bootkube.done",
                "Wants=kubelet.service",
                "After=kubelet.service k8s-node-bootstrap.service",
                "Type=oneshot",
                "RemainAfterExit=true",
                "ExecStart=/usr/bin/bash /opt/tectonic/bootkube.sh",
                "ExecStartPost=/bin/touch /opt/tectonic/init_bootkube.done",
            ],
        ),
        ("tectonic.path", &["PathExists=/opt/tectonic/tectonic-rkt.sh", "WantedBy=multi-user.target"]),
        (
            "tectonic.service",
            &[
                "ConditionPathExists=!/opt/tectonic/init_tectonic.done",
                "Requires=bootkube.service",
                "After=bootkube.service k8s-node-bootstrap.service",
                "Type=oneshot",
                "RemainAfterExit=true",
                "ExecStart=/usr/bin/bash /opt/tectonic/tectonic-rkt.sh",
                "ExecStartPost=/bin/touch /opt/tectonic/init_tectonic.done",
            ],
        ),
    ] {
        let lines = directives(unit(&bundle, name));
        let mut rest = lines.iter();
        for directive in quoted {
            assert!(rest.any(|line| line == directive), "{directive} of {name} in this order in {lines:#?}");
        }
    }
}

/// What the seed quotes of it. That it is tried for ever stands where it gave up after an hour.
#[test]
fn the_bootstrap_is_the_unit_that_all_layouts_have_and_says_what_the_seed_says() {
    for case in ["tectonic-master", "tectonic-worker", "tectonic-today-worker"] {
        let bundle = rendered(case);
        assert!(!paths(&bundle).iter().any(|path| path.contains("/k8s-node-bootstrap.service")), "{case}");
    }
    let text = crate::delivery::bootstrap_unit("/opt/bin/nodestrap").unwrap();
    let lines = directives(&text);
    for directive in [
        "ConditionPathExists=!/etc/kubernetes/kubelet.env",
        "Before=kubelet.service",
        "StartLimitIntervalSec=0",
        "ExecStartPre=/opt/bin/nodestrap apply",
        "Restart=on-failure",
        "RestartSec=10",
        "TimeoutStartSec=infinity",
        "WantedBy=multi-user.target kubelet.service",
    ] {
        assert!(lines.contains(&directive), "{directive} in {lines:#?}");
    }
}

#[test]
fn a_damaged_gate_pulls_the_bootstrap_in_with_the_kubelet() {
    for case in ["tectonic-worker", "tectonic-today-worker"] {
        let bundle = rendered(case);
        let text = unit(&bundle, "kubelet.service");
        for key in ["Wants=", "After="] {
            let line = directives(text).into_iter().find(|line| line.starts_with(key)).unwrap();
            assert!(line.contains(" k8s-node-bootstrap.service nodestrap-gate.service"), "{case}: {line}");
        }
        assert!(text.contains("\nStartLimitIntervalSec=0\n"), "{case}");
    }
}

#[test]
fn the_kubelet_gets_every_flag_and_its_folders() {
    let spec = complete("tectonic-worker");
    let bundle = render(&spec);
    let text = unit(&bundle, "kubelet.service");
    let line = exec_start(text);
    assert!(line.starts_with("/usr/lib/coreos/kubelet-wrapper --"), "{line}");
    let written: BTreeMap<String, String> =
        flags(line).into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let expected = spec.groups[0].spec.kubelet.flags.iter();
    assert_eq!(written, expected.map(|(name, setting)| (name.clone(), setting.value.clone())).collect());
    for folder in ["/etc/kubernetes/manifests", "/srv/kubernetes/manifests", "/etc/kubernetes/checkpoint-secrets"] {
        assert!(text.contains(&format!("ExecStartPre=/usr/bin/mkdir -p {folder}\n")), "{folder}");
    }
    assert!(text.contains(&format!("ExecStartPre=/usr/bin/mkdir -p {}\n", written["cni-conf-dir"])));
    assert_eq!(written["client-ca-file"], "/etc/kubernetes/ca.crt");
    assert!(!text.contains("bash"), "no shell is needed to find the authority");
}

/// How tectonic-torcx reads an environment file: up to the first `=`, without quotes; what has no `=` is no line.
fn read_by_torcx(content: &str) -> BTreeMap<&str, &str> {
    let lines = content.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name, value.trim_matches('"'))).collect()
}

#[test]
fn the_seed_names_the_image_of_the_gate_and_the_tag_for_a_cluster_that_does_not_answer() {
    let spec = complete("tectonic-flatcar");
    let bundle = render(&spec);
    let seed = text(&bundle, "/etc/kubernetes/installer/kubelet.env");
    let expected =
        [("KUBELET_IMAGE_URL", "docker://registry.example.com/hyperkube"), ("KUBELET_IMAGE_TAG", "v1.11.10")];
    assert_eq!(read_by_torcx(seed), expected.into());
    assert!(seed.contains("KUBELET_IMAGE_TAG=\"v1.11.10\"\n"));
    let gate: Vec<(&str, &str)> =
        bundle.gate.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(gate, expected[..1], "the tag is for the node to find out");
    assert_eq!(bundle.gate.facts, [GateFact::KubeletImageTag].into());
    let mut spec = spec;
    let settings: Option<&mut spec::CompleteTectonic> = (&mut spec.cluster.tectonic).into();
    settings.unwrap().kubelet_image_tag.value = "v1\"".parse().unwrap();
    assert!(matches!(try_render(&spec), Err(RenderError::ImageVariable { name: "KUBELET_IMAGE_TAG", .. })));
}

#[test]
fn releases_stay_texts_in_the_mappings() {
    let bundle = rendered("tectonic-worker");
    let mappings = text(&bundle, "/etc/kubernetes/installer/runtime-mappings.yaml");
    assert!(mappings.starts_with("kind: VersionManifestV1\nversions:\n  k8s:\n"), "{mappings}");
    for quoted in ["\"1.10\":", "\"1.9\":", "\"17.03\"", "\"1.12\""] {
        assert!(mappings.contains(quoted), "{quoted} in {mappings}");
    }
}

#[test]
fn locksmith_is_masked_and_stopped() {
    let bundle = rendered("tectonic-worker");
    let idle: Vec<(&str, Idleness)> = bundle.idle_units.iter().map(|unit| (&*unit.name, unit.idleness)).collect();
    assert_eq!(idle, [("locksmithd.service", Idleness::Masked)]);
    assert!(!bundle.units.iter().any(|unit| unit.name == "locksmithd.service"));
}

#[test]
fn a_proxy_reaches_all_that_downloads() {
    let bundle = rendered("tectonic-master");
    for name in ["docker.service", "kubelet.service"] {
        assert!(unit(&bundle, &format!("{name}.d/10-proxy.conf")).contains("http://proxy.example.com:3128"), "{name}");
    }
    let downloads = bundle.downloads.unwrap();
    assert_eq!(downloads.proxy.unwrap().expose(), "http://proxy.example.com:3128");
    assert!(downloads.no_proxy.contains(&"api.tectonic.example.com".to_owned()), "{:?}", downloads.no_proxy);
}

#[test]
fn the_token_is_in_the_kubeconfig_alone() {
    let bundle = rendered("tectonic-worker");
    for file in &bundle.files {
        let found = String::from_utf8_lossy(&file.content).contains("abcdef.0123456789abcdef");
        assert_eq!(found, file.path == "/etc/kubernetes/kubeconfig", "{}", file.path);
        assert_eq!(found, file.secrecy == Secrecy::Secret, "{}", file.path);
    }
}

fn tectonic(spec: &mut CompleteSpec) -> &mut spec::CompleteTectonic {
    let settings: Option<&mut spec::CompleteTectonic> = (&mut spec.cluster.tectonic).into();
    settings.unwrap()
}

#[test]
fn a_node_is_told_whom_to_ask_what_to_believe_and_what_stands_in() {
    let bundle = rendered("tectonic-today-worker");
    let follow = bundle.follow.as_ref().unwrap();
    let release = &follow.release;
    assert_eq!(release.kubeconfig, bundle.join.bootstrap_kubeconfig);
    assert_eq!(release.kubeconfig, "/etc/kubernetes/kubeconfig");
    assert_eq!((release.seed.as_str(), &release.forced), ("/etc/kubernetes/installer/kubelet.env", &None));
    assert_eq!(release.seed_fallback, SeedFallback::Allowed);
    let minors: Vec<String> = release.minors.iter().map(ToString::to_string).collect();
    assert_eq!(minors, ["1.35", "1.36"]);
    assert_eq!(follow.os_update, OsUpdate::Attempt);

    let addon = follow.addon.as_ref().unwrap();
    assert_eq!((addon.name.as_str(), addon.profile.as_str()), ("docker", "tectonic"));
    assert_eq!(addon.mappings, MappingsPlace::default());
    assert_eq!(addon.mappings_seed, "/etc/kubernetes/installer/runtime-mappings.yaml");
    let Signatures::By { keyrings } = &addon.signatures else { panic!("{:?}", addon.signatures) };
    assert!(keyrings.iter().all(|keyring| bundle.file(keyring).is_some()) && keyrings.len() == 1, "{keyrings:?}");
    let downloads = bundle.downloads.as_ref().unwrap();
    assert_eq!((&downloads.provenance, &downloads.proxy), (&Provenance::OnNode {}, &None));
    // What an installer leaves is what a node reads.
    let seed = KubeletEnv::parse(text(&bundle, &release.seed)).unwrap();
    assert_eq!(seed.version().unwrap().as_str(), "v1.36.3");
    let mappings = RuntimeMappings::parse(text(&bundle, &addon.mappings_seed)).unwrap();
    for minor in &release.minors {
        assert!(mappings.preferred(*minor, &addon.name).is_ok(), "{minor}");
    }
}

#[test]
fn each_setting_reaches_the_node_that_follows() {
    let follow = rendered("tectonic-today-master").follow.unwrap();
    assert_eq!(follow.release.forced.unwrap().tag(), "v1.30.2_example.1");
    assert_eq!(follow.release.seed_fallback, SeedFallback::Never);
    assert_eq!(follow.os_update, OsUpdate::Ask);
    let addon = follow.addon.unwrap();
    assert_eq!(addon.profile.as_str(), "golden");
    let MappingsPlace { namespace, name, key } = addon.mappings;
    assert_eq!([namespace, name, key], ["kube-system", "runtimes", "mappings"]);

    let mut spec = complete("tectonic-today-worker");
    tectonic(&mut spec).verify_signatures.value = false;
    let follow = render(&spec).follow.unwrap();
    assert_eq!(follow.addon.unwrap().signatures, Signatures::Unverified {});
}

#[test]
fn who_brings_the_runtime_in_the_image_has_nothing_to_do_with_torcx() {
    let bundle = rendered("tectonic-today-flatcar");
    assert_eq!(bundle.follow.as_ref().unwrap().addon, None);
    assert_eq!((bundle.downloads.as_ref(), bundle.runtime.source), (None, RuntimeSource::Preinstalled));
    assert!(!paths(&bundle).iter().any(|path| path.ends_with("runtime-mappings.yaml")));
    assert!(bundle.required_programs.iter().any(|program| program == "/usr/bin/containerd"));
    assert!(bundle.required_programs.iter().any(|program| program == "/usr/lib/flatcar/kubelet-wrapper"));
}

/// The data of docker may not be what another version of it reads; containerd reads its own.
#[test]
fn docker_starts_with_an_empty_folder_and_containerd_with_what_it_has() {
    let folder = |case: &str| rendered(case).follow.unwrap().addon.unwrap().data_folder;
    assert_eq!(folder("tectonic-worker").unwrap(), "/var/lib/docker");
    assert_eq!(folder("tectonic-today-worker"), None);
    let bundle = rendered("tectonic-worker");
    let text = unit(&bundle, "nodestrap-clean-runtime-data.service");
    for directive in [
        "DefaultDependencies=no",
        "ConditionPathExists=/var/lib/nodestrap/clean-runtime-data.json",
        "After=local-fs.target",
        "Before=docker.service containerd.service kubelet.service k8s-node-bootstrap.service shutdown.target",
        "Type=oneshot",
        "ExecStart=/opt/bin/nodestrap clean-runtime-data",
    ] {
        assert!(directives(text).contains(&directive), "{directive} in {text}");
    }
    let wants = unit(&bundle, "sysinit.target.d/10-nodestrap-clean-runtime-data.conf");
    assert_eq!(directives(wants), ["Wants=nodestrap-clean-runtime-data.service"]);
    assert!(!paths(&rendered("tectonic-today-worker")).iter().any(|path| path.contains("clean-runtime-data")));
}

#[test]
fn a_kubelet_of_today_is_that_of_nodestraps_layout_in_its_wrapper() {
    let bundle = rendered("tectonic-today-worker");
    assert_eq!(
        paths(&bundle),
        [
            "/etc/containerd/config.toml",
            "/etc/kubernetes/ca.crt",
            "/etc/kubernetes/installer/kubelet.env",
            "/etc/kubernetes/installer/runtime-mappings.yaml",
            "/etc/kubernetes/kubeconfig",
            "/etc/kubernetes/kubelet.yaml",
            "/etc/modules-load.d/nodestrap.conf",
            "/etc/nodestrap/keyrings/addons.asc",
            "/etc/sysctl.d/90-nodestrap.conf",
            "/etc/systemd/system/kubelet.service",
            "/etc/systemd/system/nodestrap-gate.service",
            "/etc/systemd/system/nodestrap-kernel.service",
            "/etc/systemd/system/nodestrap-network.service",
        ]
    );
    assert_eq!(
        units(&bundle),
        [
            ("nodestrap-kernel.service", Start::BeforeGate),
            ("containerd.service", Start::BeforeGate),
            ("kubelet.service", Start::AfterGate),
            ("nodestrap-network.service", Start::ByOthers),
            ("nodestrap-gate.service", Start::ByOthers),
        ]
    );
    let kubelet = unit(&bundle, "kubelet.service");
    assert!(directives(kubelet).contains(&"EnvironmentFile=/etc/kubernetes/kubelet.env"), "{kubelet}");
    assert!(!kubelet.contains("rkt"), "{kubelet}");
    let line = exec_start(kubelet);
    assert!(line.starts_with("/usr/lib/coreos/kubelet-wrapper --"), "{line}");
    let expected = [
        ("bootstrap-kubeconfig", "/etc/kubernetes/kubeconfig"),
        ("config", "/etc/kubernetes/kubelet.yaml"),
        ("kubeconfig", "/var/lib/kubelet/kubeconfig"),
        ("node-labels", "example.com/pool=general"),
    ];
    assert_eq!(flags(line), expected.into());
    let config = text(&bundle, "/etc/kubernetes/kubelet.yaml");
    for said in ["clientCAFile: \"/etc/kubernetes/ca.crt\"", "rotateCertificates: true"] {
        assert!(config.contains(said) || config.contains(&said.replace('"', "")), "{said} in {config}");
    }
    // What torcx brings cannot be there before it did.
    let programs: Vec<&str> = bundle.required_programs.iter().map(|program| program.as_str()).collect();
    let plugins = bundle::network::PLUGINS.map(|plugin| format!("/opt/cni/bin/{plugin}"));
    let needed: Vec<&str> =
        ["/usr/lib/coreos/kubelet-wrapper"].into_iter().chain(plugins.iter().map(String::as_str)).collect();
    assert_eq!(programs, needed);
    assert_eq!(bundle.runtime.source, RuntimeSource::Torcx);
    assert_eq!(bundle.pod_network.unwrap().unit, "nodestrap-network.service");
}

/// A control plane of today, too, is what bootkube brings up: its kubelet joins like all others, and may not call itself a master.
#[test]
fn a_master_of_today_waits_for_its_assets_and_joins_like_a_worker() {
    let bundle = rendered("tectonic-today-master");
    for name in ["bootkube.path", "bootkube.service", "tectonic.path", "tectonic.service"] {
        assert!(units(&bundle).iter().any(|(unit, _)| *unit == name), "{name}");
    }
    let line = exec_start(unit(&bundle, "kubelet.service"));
    assert_eq!(flags(line).get("node-labels"), None);
    assert!(text(&bundle, "/etc/kubernetes/kubelet.yaml").contains("node-role.kubernetes.io/control-plane"));
    assert!(!paths(&bundle).iter().any(|path| path.starts_with("/etc/kubernetes/manifests")));
    let programs = bundle.required_programs.iter().filter(|program| program.contains("/cni/"));
    assert_eq!((programs.count(), bundle.pod_network), (0, None), "a DaemonSet brings the network");
}

#[test]
fn the_service_proxy_of_today_is_a_static_pod_as_everywhere() {
    let mut spec = complete("tectonic-today-worker");
    spec.cluster.kube_proxy.kubeconfig = Some(set(spec::SecretText(spec::Secret::new("apiVersion: v1\n"))));
    let bundle = render(&spec);
    assert!(paths(&bundle).contains(&"/etc/kubernetes/manifests/kube-proxy.yaml"));
}

/// As an installer has it that keeps assets in a bucket: the unit that pulls them comes with Ignition, before any bundle is read.
#[test]
fn a_users_unit_can_bring_assets_and_the_kubeconfig_before_the_bootstrap() {
    let unit = "[Unit]\\nBefore=k8s-node-bootstrap.service\\n[Service]\\nType=oneshot\\nExecStart=/opt/bin/pull\\n\
                [Install]\\nRequiredBy=k8s-node-bootstrap.service\\n";
    let config = format!(
        "{{\"ignition\":{{\"version\":\"2.2.0\"}},\"systemd\":{{\"units\":[{{\"name\":\"init-assets.service\",\
         \"enabled\":true,\"contents\":\"{unit}\"}}]}}}}"
    );
    for case in ["tectonic-master", "tectonic-today-worker"] {
        let text = load_spec(case)
            .replacen("    bootstrapToken: abcdef.0123456789abcdef\n", "", 1)
            .replacen("  tectonic: {", "  tectonic: {kubeconfig: pulled, ", 1)
            .replacen("  tectonic:\n", "  tectonic:\n    kubeconfig: pulled\n", 1)
            + &format!(
                "  additionalUserData: [{{name: assets, type: application/vnd.coreos.ignition+json, content: '{config}'}}]\n"
            );
        let spec = complete_text(&text);
        let group = crate::render_group(&spec, "workers").unwrap();
        let bundle = &group.bundle;
        assert_eq!(bundle.file("/etc/kubernetes/kubeconfig"), None, "{case}");
        assert_eq!(bundle.join.bootstrap_kubeconfig, "/etc/kubernetes/kubeconfig", "{case}");
        assert_eq!(bundle.follow.as_ref().unwrap().release.kubeconfig, "/etc/kubernetes/kubeconfig", "{case}");
        let user_data = group.user_data(crate::delivery::Format::Ignition2).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&user_data.bytes).unwrap();
        let source = document.pointer("/ignition/config/append/0/source").and_then(|source| source.as_str()).unwrap();
        let carried = data_encoding::BASE64.decode(source.rsplit_once(',').unwrap().1.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(carried).unwrap(), config, "{case}");
    }
}

/// locksmithd would be first: an update that is staged makes it reboot the machine.
#[test]
fn what_is_masked_is_so_before_the_bootstrap_begins() {
    let spec = complete("tectonic-worker");
    let group = crate::render_group(&spec, "workers").unwrap();
    for format in [crate::delivery::Format::Ignition2, crate::delivery::Format::Ignition3] {
        let document: serde_json::Value = serde_json::from_slice(&group.user_data(format).unwrap().bytes).unwrap();
        let units = document["systemd"]["units"].as_array().unwrap();
        let expected = serde_json::json!({"name": "locksmithd.service", "mask": true});
        assert!(units.contains(&expected), "{units:?}");
        assert_eq!(units[0]["name"], "k8s-node-bootstrap.service");
    }
}
