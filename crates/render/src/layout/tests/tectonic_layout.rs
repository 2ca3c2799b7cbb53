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
            "/etc/systemd/system/k8s-node-bootstrap.service",
            "/etc/systemd/system/kubelet.service",
        ]
    );
    assert_eq!(bundle.gate.path, "/etc/kubernetes/kubelet.env");
    assert_eq!((bundle.runtime.name, bundle.runtime.unit.as_str()), (RuntimeName::Docker, "docker.service"));
    assert_eq!(bundle.runtime.source, RuntimeSource::Torcx);
    assert_eq!(units(&bundle), [("docker.service", Start::BeforeGate), ("kubelet.service", Start::AfterGate)]);
}

#[test]
fn only_a_master_waits_for_the_assets_of_a_cluster() {
    let mut spec = complete("tectonic-master");
    let bundle = render(&spec);
    assert_eq!(
        units(&bundle)[1..],
        [
            ("kubelet.service", Start::AfterGate),
            ("bootkube.path", Start::AfterGate),
            ("bootkube.service", Start::ByOthers),
            ("tectonic.path", Start::AfterGate),
            ("tectonic.service", Start::ByOthers),
        ]
    );
    for (name, start) in units(&bundle).into_iter().skip(1) {
        assert_eq!(unit(&bundle, name).contains("\n[Install]\n"), start != Start::ByOthers, "{name}");
    }
    let settings: Option<&mut spec::CompleteTectonic> = (&mut spec.cluster.tectonic).into();
    settings.unwrap().bootkube.value = false;
    assert_eq!(units(&render(&spec)).len(), 2);
}

/// The directives that the seed quotes for each unit, in its order.
#[test]
fn the_units_say_what_the_seed_says() {
    let bundle = rendered("tectonic-master");
    for (name, quoted) in [
        (
            "k8s-node-bootstrap.service",
            &[
                "ConditionPathExists=!/etc/kubernetes/kubelet.env",
                "Before=kubelet.service bootkube.service",
                "Restart=on-failure",
                "RestartSec=10",
                "TimeoutStartSec=1h",
                "ExecStart=/usr/bin/echo \"node components bootstrapped\"",
                "WantedBy=multi-user.target kubelet.service",
            ] as &[&str],
        ),
        (
            "kubelet.service",
            &[
                "EnvironmentFile=/etc/kubernetes/kubelet.env",
                "Restart=always",
                "RestartSec=10",
                "WantedBy=multi-user.target",
            ],
        ),
        ("bootkube.path", &["PathExists=/opt/tectonic/bootkube.sh", "WantedBy=multi-user.target"]),
        (
            "bootkube.service",
            &[
                "ConditionPathExists=!/opt/tectonic/init_bootkube.done",
                "Wants=kubelet.service",
                "After=kubelet.service",
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
                "After=bootkube.service",
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

#[test]
fn the_bootstrap_runs_under_its_old_name_with_its_old_flags() {
    let command = |case: &str| {
        let bundle = rendered(case);
        let line = directives(unit(&bundle, "k8s-node-bootstrap.service"))
            .into_iter()
            .find(|l| l.starts_with("ExecStartPre="))
            .unwrap();
        line.to_owned()
    };
    let worker = command("tectonic-worker");
    assert!(worker.starts_with("ExecStartPre=@/opt/bin/nodestrap tectonic-torcx-bootstrap --kubeconfig="), "{worker}");
    let flags_of_worker = flags(&worker);
    assert_eq!(flags_of_worker["kubeconfig"], "/etc/kubernetes/kubeconfig");
    assert_eq!(flags_of_worker["kubelet-env-path"], "/etc/kubernetes/kubelet.env");
    assert_eq!(flags_of_worker["version-manifest"], "/etc/kubernetes/installer/runtime-mappings.yaml");
    assert_eq!(flags_of_worker["torcx-skip-setup"], "false");
    assert_eq!(flags_of_worker["upgrade-os"], "true");
    assert_eq!(flags_of_worker["keyring"], "/etc/nodestrap/keyrings/addons.asc");
    assert!(flags_of_worker["torcx-manifest-url"].ends_with("/{{.Board}}/{{.OSVersion}}/torcx_manifest.json"));
    let master = command("tectonic-master");
    assert_eq!(flags(&master)["upgrade-os"], "false");
    assert!(!flags(&master).contains_key("keyring"));
}

#[test]
fn a_dollar_in_the_address_of_manifests_is_no_variable() {
    let mut spec = complete("tectonic-worker");
    let settings: Option<&mut spec::CompleteTectonic> = (&mut spec.cluster.tectonic).into();
    let settings = settings.unwrap();
    settings.manifest_url.value = "https://example.com/${VERSION_ID}/50%25".parse().unwrap();
    let bundle = render(&spec);
    let text = unit(&bundle, "k8s-node-bootstrap.service");
    assert!(text.contains("--torcx-manifest-url=https://example.com/$${VERSION_ID}/50%%25 "), "{text}");
    let settings: Option<&mut spec::CompleteTectonic> = (&mut spec.cluster.tectonic).into();
    settings.unwrap().manifest_url.value = "https://example.com/a b".parse().unwrap();
    assert!(matches!(try_render(&spec), Err(RenderError::UnitValue { key: "ExecStartPre", .. })));
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
fn the_seed_and_the_gate_name_the_same_image() {
    let spec = complete("tectonic-flatcar");
    let bundle = render(&spec);
    let seed = text(&bundle, "/etc/kubernetes/installer/kubelet.env");
    let expected =
        [("KUBELET_IMAGE_URL", "docker://registry.example.com/hyperkube"), ("KUBELET_IMAGE_TAG", "v1.11.10")];
    assert_eq!(read_by_torcx(seed), expected.into());
    assert!(seed.contains("KUBELET_IMAGE_TAG=\"v1.11.10\"\n"));
    let gate: BTreeMap<&str, &str> =
        bundle.gate.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(gate, expected.into());
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
    assert!(unit(&bundle, "k8s-node-bootstrap.service").contains("\nConflicts=locksmithd.service\n"));
}

#[test]
fn a_proxy_reaches_all_that_downloads() {
    let bundle = rendered("tectonic-master");
    for name in ["docker.service", "kubelet.service", "k8s-node-bootstrap.service"] {
        assert!(unit(&bundle, &format!("{name}.d/10-proxy.conf")).contains("http://proxy.example.com:3128"), "{name}");
    }
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
