//! The bundle as bytes: what is written is read back, what was changed is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;
use render::{
    Archive, Bundle, BundleError, File, Gate, Hook, Join, NodeKind, Package, Runtime, Secrecy, Start, Unit,
    cloud_config,
};

const CANARY: &str = "canary.0123456789abcdef";

fn file(path: &str, mode: u32, secrecy: Secrecy, content: &[u8]) -> File {
    File { path: path.to_owned(), mode, secrecy, content: content.into() }
}

fn hook(name: &str) -> Hook {
    Hook {
        name: name.to_owned(),
        slot: "before-kubelet".to_owned(),
        unit: "hook.service".to_owned(),
        timeout_seconds: 300,
        required: true,
    }
}

fn sample() -> Bundle {
    Bundle {
        cluster: "lab".to_owned(),
        group: "workers".to_owned(),
        kubernetes_version: "1.36.3".to_owned(),
        kind: NodeKind {
            role: "worker".to_owned(),
            os: "debian".to_owned(),
            provider: "metal".to_owned(),
            layout: "nodestrap".to_owned(),
        },
        required_programs: vec!["/usr/bin/kubelet".to_owned()],
        files: vec![
            file("/etc/a/secret", 0o600, Secrecy::Secret, CANARY.as_bytes()),
            file("/etc/a/text", 0o644, Secrecy::Public, "é: \"quoted\"\n".as_bytes()),
            file("/etc/b", 0o755, Secrecy::Public, &[0, 255, 1, 254]),
            file("/etc/systemd/system/hook.service", 0o644, Secrecy::Public, b"[Service]\n"),
        ],
        units: vec![
            Unit { name: "containerd.service".to_owned(), start: Start::BeforeGate },
            Unit { name: "kubelet.service".to_owned(), start: Start::AfterGate },
            Unit { name: "nodestrap-network.service".to_owned(), start: Start::ByOthers },
        ],
        hooks: vec![hook("a"), hook("b")],
        runtime: Runtime {
            name: "containerd".to_owned(),
            source: "tree".to_owned(),
            archive: Some(Archive { urls: vec!["https://a/b".to_owned()], sha256: "0a".repeat(32) }),
            package: None,
        },
        gate: Gate {
            path: "/etc/kubernetes/kubelet.env".to_owned(),
            environment: BTreeMap::from([("KUBELET_ARGS".to_owned(), "--v=2".to_owned())]),
            facts: vec!["NODE_IP".to_owned()],
        },
        join: Join {
            api_server: "https://10.0.0.1:6443".to_owned(),
            bootstrap_kubeconfig: "/etc/a/secret".to_owned(),
            kubeconfig: "/var/lib/kubelet/kubeconfig".to_owned(),
            node_name: None,
            client_certificate: "/var/lib/kubelet/pki/kubelet-client-current.pem".to_owned(),
            kubelet_unit: "kubelet.service".to_owned(),
        },
    }
}

/// Parses the sample after a change of its document; the digest stays that of the sample.
fn parse_changed(change: impl FnOnce(&mut serde_json::Value)) -> BundleError {
    let mut document = serde_json::from_str(&sample().to_json()).expect("the sample is JSON");
    change(&mut document);
    Bundle::parse(document.to_string().as_bytes()).expect_err("a changed bundle is refused")
}

fn from_parts(parts: &[(String, u32, Vec<u8>)]) -> Result<Bundle, BundleError> {
    let read = |path: &str| parts.iter().find(|part| part.0 == path).map(|part| part.2.clone());
    Bundle::from_folder(&parts[0].2, read)
}

#[test]
fn the_manifest_is_canonical_json_without_contents() {
    let manifest = sample().manifest_json();
    let expected = concat!(
        r#"{"apiVersion":"nodestrap.io/v1alpha1","cluster":"lab","files":["#,
        r#"{"mode":"0600","path":"/etc/a/secret","secret":true,"sha256":"SECRET","size":23},"#,
        r#"{"mode":"0644","path":"/etc/a/text","secret":false,"sha256":"TEXT","size":13},"#,
        r#"{"mode":"0755","path":"/etc/b","secret":false,"sha256":"BINARY","size":4},"#,
        r#"{"mode":"0644","path":"/etc/systemd/system/hook.service","secret":false,"sha256":"UNIT","size":10}],"#,
        r#""gate":{"environment":{"KUBELET_ARGS":"--v=2"},"facts":["NODE_IP"],"path":"/etc/kubernetes/kubelet.env"},"#,
        r#""group":"workers","#,
        r#""hooks":[{"name":"a","required":true,"slot":"before-kubelet","timeoutSeconds":300,"unit":"hook.service"},"#,
        r#"{"name":"b","required":true,"slot":"before-kubelet","timeoutSeconds":300,"unit":"hook.service"}],"#,
        r#""join":{"apiServer":"https://10.0.0.1:6443","bootstrapKubeconfig":"/etc/a/secret","#,
        r#""clientCertificate":"/var/lib/kubelet/pki/kubelet-client-current.pem","#,
        r#""kubeconfig":"/var/lib/kubelet/kubeconfig","kubeletUnit":"kubelet.service"},"kind":"Bundle","#,
        r#""kubernetesVersion":"1.36.3","#,
        r#""node":{"layout":"nodestrap","os":"debian","provider":"metal","role":"worker"},"#,
        r#""requiredPrograms":["/usr/bin/kubelet"],"#,
        r#""runtime":{"archive":{"sha256":"ARCHIVE","urls":["https://a/b"]},"name":"containerd","source":"tree"},"#,
        r#""units":[{"name":"containerd.service","start":"beforeGate"},"#,
        r#"{"name":"kubelet.service","start":"afterGate"},{"name":"nodestrap-network.service","start":"byOthers"}]}"#,
    );
    let mut expected = expected.replace("ARCHIVE", &"0a".repeat(32));
    for (name, file) in ["SECRET", "TEXT", "BINARY", "UNIT"].into_iter().zip(sample().files) {
        expected = expected.replace(name, file.sha256());
    }
    assert_eq!(manifest, expected);
}

#[test]
fn the_digest_covers_every_field() {
    let digest = sample().digest();
    let changes: [fn(&mut Bundle); 18] = [
        |bundle| bundle.cluster.push('x'),
        |bundle| bundle.group.push('x'),
        |bundle| bundle.kubernetes_version.push('1'),
        |bundle| bundle.required_programs.push("/x".to_owned()),
        |bundle| bundle.files[0].content = "other".into(),
        |bundle| bundle.files[1].mode = 0o640,
        |bundle| bundle.files[0].secrecy = Secrecy::Public,
        |bundle| bundle.files[2].path.push('x'),
        |bundle| bundle.units[1].start = Start::ByOthers,
        |bundle| bundle.gate.path.push('x'),
        |bundle| bundle.gate.environment.clear(),
        |bundle| bundle.gate.facts.clear(),
        |bundle| bundle.kind.os.push('x'),
        |bundle| bundle.hooks[1].required = false,
        |bundle| bundle.runtime.source.push('x'),
        |bundle| bundle.runtime.archive = None,
        |bundle| bundle.join.api_server.push('1'),
        |bundle| bundle.join.kubeconfig.push('1'),
    ];
    for change in changes {
        let mut changed = sample();
        change(&mut changed);
        assert_ne!(changed.digest(), digest);
    }
}

#[test]
fn a_bundle_survives_the_file_and_the_folder() {
    let bundle = sample();
    assert_eq!(Bundle::parse(bundle.to_json().as_bytes()), Ok(bundle.clone()));
    let parts = bundle.to_folder();
    let names: Vec<(&str, u32)> = parts.iter().map(|part| (part.0.as_str(), part.1)).collect();
    assert_eq!(
        names,
        [
            ("manifest.json", 0o644),
            ("root/etc/a/secret", 0o600),
            ("root/etc/a/text", 0o644),
            ("root/etc/b", 0o755),
            ("root/etc/systemd/system/hook.service", 0o644)
        ]
    );
    assert_eq!(from_parts(&parts), Ok(bundle));
}

#[test]
fn every_bit_flip_in_the_file_is_refused_or_harmless() {
    let bundle = sample();
    let bytes = bundle.to_json().into_bytes();
    for position in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[position / 8] ^= 1 << (position % 8);
        if let Ok(read) = Bundle::parse(&damaged) {
            assert_eq!(read, bundle, "bit {position}");
        }
    }
}

#[test]
fn every_bit_flip_in_the_folder_is_refused_or_harmless() {
    let bundle = sample();
    let parts = bundle.to_folder();
    for part in 0..parts.len() {
        for position in 0..parts[part].2.len() * 8 {
            let mut damaged = parts.clone();
            damaged[part].2[position / 8] ^= 1 << (position % 8);
            match from_parts(&damaged) {
                Ok(read) => assert!(part == 0 && read == bundle, "part {part}, bit {position}"),
                Err(error) => assert!(!error.to_string().contains(CANARY)),
            }
        }
    }
}

#[test]
fn every_truncation_of_the_file_is_refused() {
    let bytes = sample().to_json().into_bytes();
    // Only the newline at the end may be missing.
    for length in 0..bytes.len() - 1 {
        assert!(Bundle::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn other_versions_and_kinds_are_named() {
    for newer in ["v1alpha2", "v1beta1", "v1", "v2alpha1"] {
        let found = format!("nodestrap.io/{newer}");
        let error = parse_changed(|document| {
            document["apiVersion"] = found.clone().into();
            document["aFieldOfTheFuture"] = true.into();
        });
        assert_eq!(error, BundleError::NewerApiVersion { found });
        assert!(error.to_string().contains("newer nodestrap"));
    }
    for other in ["v1", "example.com/v9", "nodestrap.io/v1alpha0", "nodestrap.io/x"] {
        let error = parse_changed(|document| document["apiVersion"] = other.into());
        assert_eq!(error, BundleError::ApiVersion { found: other.to_owned() });
    }
    let error = parse_changed(|document| document["kind"] = "Cluster".into());
    assert_eq!(error, BundleError::Kind { found: "Cluster".to_owned() });
}

#[test]
fn unknown_fields_are_refused_by_name() {
    for path in ["", "/gate", "/join", "/files/0", "/units/0", "/node", "/hooks/0", "/runtime", "/runtime/archive"] {
        let error = parse_changed(|document| {
            document.pointer_mut(path).expect("the sample has it")["surprise"] = true.into();
        });
        assert!(matches!(error, BundleError::Syntax { .. }));
        assert!(error.to_string().contains("unknown field `surprise`"), "{error}");
    }
}

#[test]
fn paths_that_could_leave_the_root_or_clash_are_refused() {
    let with_path = |path: &str| parse_changed(|document| document["files"][2]["path"] = path.into());
    for path in ["etc/b", "", "/etc/../b", "/..", "/etc//b", "/etc/./b", "/etc/b/", "/", "/etc/\u{0}b", "/etc/b\n"] {
        assert!(matches!(with_path(path), BundleError::Path { .. }), "{path:?}");
    }
    assert!(matches!(with_path("/etc/a/text"), BundleError::DuplicatePath { .. }));
    assert!(matches!(with_path("/etc/a/a"), BundleError::Order { .. }));
    assert!(matches!(with_path("/etc/a/text/b"), BundleError::FileUnderFile { .. }));
    assert!(matches!(with_path("/etc/kubernetes/kubelet.env"), BundleError::GateAmongFiles { .. }));
    assert!(matches!(with_path("/etc/kubernetes/kubelet.env/x"), BundleError::FileUnderFile { .. }));
    assert!(matches!(with_path("/etc/kubernetes"), BundleError::FileUnderFile { .. }));
}

#[test]
fn a_folder_is_never_asked_for_a_path_outside_its_root() {
    let mut document: serde_json::Value = serde_json::from_slice(&sample().to_folder()[0].2).unwrap();
    document["files"][0]["path"] = "/../../etc/shadow".into();
    let error = Bundle::from_folder(document.to_string().as_bytes(), |path| panic!("asked for '{path}'"));
    assert!(matches!(error, Err(BundleError::Path { .. })));
}

#[test]
fn a_missing_file_of_a_folder_is_named() {
    let mut parts = sample().to_folder();
    parts.remove(2);
    assert_eq!(from_parts(&parts), Err(BundleError::MissingFile { path: "/etc/a/text".to_owned() }));
}

#[test]
fn modes_and_contents_are_checked() {
    for mode in ["644", "00644", "0999", "1777", "4755", "+644", "rw-"] {
        let error = parse_changed(|document| document["files"][1]["mode"] = mode.into());
        assert!(matches!(error, BundleError::Mode { .. }), "{mode}: {error}");
    }
    let error = parse_changed(|document| document["files"][0]["mode"] = "0640".into());
    assert!(matches!(error, BundleError::SecretMode { .. }));
    let error = parse_changed(|document| document["files"][1]["contentBase64"] = "".into());
    assert!(matches!(error, BundleError::Content { .. }));
    let error = parse_changed(|document| document["files"][2]["contentBase64"] = "?".into());
    assert!(matches!(error, BundleError::Content { .. }));
    let error = parse_changed(|document| document["files"][1]["size"] = 3.into());
    assert!(matches!(error, BundleError::Size { .. }));
    let error = parse_changed(|document| document["files"][2]["contentBase64"] = "AP8B/w==".into());
    assert!(matches!(error, BundleError::FileDigest { .. }));
}

#[test]
fn units_gate_and_texts_are_checked() {
    for name in ["kubelet", ".service", "a/b.service", "a b.service", "containerd.service"] {
        let error = parse_changed(|document| document["units"][1]["name"] = name.into());
        assert!(matches!(error, BundleError::UnitName { .. } | BundleError::DuplicateUnit { .. }), "{name}: {error}");
    }
    for name in ["", "1A", "A B", "NODESTRAP_GATE"] {
        let error = parse_changed(|document| document["gate"]["environment"][name] = "x".into());
        assert!(matches!(error, BundleError::GateName { .. }), "{name}: {error}");
    }
    let error = parse_changed(|document| document["gate"]["environment"]["A"] = "x\ny".into());
    assert!(matches!(error, BundleError::GateValue { .. }));
    for facts in [["A", "A"], ["B", "A"], ["A", "KUBELET_ARGS"], ["A", "NODESTRAP_GATE"], ["A", "b c"]] {
        let error = parse_changed(|document| document["gate"]["facts"] = facts.as_slice().into());
        assert!(matches!(error, BundleError::GateName { .. }), "{facts:?}: {error}");
    }
    let error = parse_changed(|document| document["node"]["os"] = "".into());
    assert!(matches!(error, BundleError::Text { field: "node.os" }));
    // The cluster's name stands in a comment of the user data: a newline would end the comment.
    let error = parse_changed(|document| document["cluster"] = "lab\nruncmd: [id]".into());
    assert!(matches!(error, BundleError::Text { field: "cluster" }));
}

#[test]
fn hooks_and_the_runtime_are_checked() {
    let hook = |field: &str, value: serde_json::Value| parse_changed(|document| document["hooks"][1][field] = value);
    for (field, value) in
        [("name", "a".into()), ("slot", "some-time".into()), ("timeoutSeconds", 0.into()), ("unit", "x.service".into())]
    {
        assert!(matches!(hook(field, value), BundleError::Hook { .. }), "{field}");
    }
    assert!(matches!(hook("unit", "x".into()), BundleError::UnitName { .. }));
    let archive =
        |field: &str, value: serde_json::Value| parse_changed(|document| document["runtime"]["archive"][field] = value);
    for (field, value) in [
        ("sha256", "0A".repeat(32).into()),
        ("sha256", "00".into()),
        ("urls", Vec::<String>::new().into()),
        ("urls", vec!["file:///a"].into()),
    ] {
        assert!(matches!(archive(field, value), BundleError::Runtime { .. }), "{field}");
    }
    for source in ["package", "wishes"] {
        let error = parse_changed(|document| document["runtime"]["source"] = source.into());
        assert!(matches!(error, BundleError::Runtime { .. }), "{source}");
    }
    let mut bundle = sample();
    bundle.runtime = Runtime {
        source: "package".to_owned(),
        archive: None,
        package: Some(Package { name: "containerd".to_owned(), version: "2.2.1-1".to_owned() }),
        ..bundle.runtime
    };
    assert_eq!(Bundle::parse(bundle.to_json().as_bytes()), Ok(bundle));
}

#[test]
fn a_change_that_breaks_no_rule_is_found_by_the_digest() {
    let error = parse_changed(|document| document["join"]["apiServer"] = "https://evil.example:6443".into());
    assert!(matches!(error, BundleError::Digest { .. }));
}

#[test]
fn the_size_is_limited_both_ways() {
    let mut bundle = sample();
    bundle.files[1].content = vec![b'x'; 1024 * 1024].into();
    assert!(matches!(Bundle::parse(bundle.to_json().as_bytes()), Err(BundleError::TooLarge { .. })));
    assert!(matches!(from_parts(&bundle.to_folder()), Err(BundleError::TooLarge { .. })));
    let error = cloud_config(&bundle).expect_err("too large");
    assert!(matches!(error, render::RenderError::Bundle { problem: BundleError::TooLarge { .. } }));
}

#[test]
fn no_error_and_no_debug_output_shows_a_secret() {
    let bundle = sample();
    assert!(!format!("{bundle:?}").contains("canary"));
    // A value of the wrong type in the place of another: serde's own message would quote it.
    let error = parse_changed(|document| document["files"][0]["size"] = CANARY.into());
    assert!(!error.to_string().contains("canary") && !format!("{error:?}").contains("canary"));
}

fn bundles() -> impl Strategy<Value = Bundle> {
    let content = prop_oneof![proptest::collection::vec(any::<u8>(), 0..40), ".{0,40}".prop_map(String::into_bytes)];
    let files = proptest::collection::btree_map("[a-z0-9._-]{1,6}x", (content, any::<bool>(), 0u32..=0o777), 0..5);
    let units = proptest::collection::btree_map("[a-z@-]{1,8}", 0..3usize, 0..4);
    let environment = proptest::collection::btree_map("[A-Z][A-Z_]{0,4}", "[^\\p{Cc}]{0,12}", 0..4);
    ("[^\\p{Cc}]{1,12}", "[a-z]{1,8}", files, units, environment).prop_map(
        |(cluster, group, files, units, environment)| {
            let files = files.into_iter().map(|(name, (content, secret, mode))| {
                let (mode, secrecy) = if secret { (0o600, Secrecy::Secret) } else { (mode, Secrecy::Public) };
                File { path: format!("/etc/{name}"), mode, secrecy, content: content.into() }
            });
            let starts = [Start::BeforeGate, Start::AfterGate, Start::ByOthers];
            let units =
                units.into_iter().map(|(name, start)| Unit { name: format!("{name}.service"), start: starts[start] });
            let mut bundle = Bundle { cluster, group, files: files.collect(), units: units.collect(), ..sample() };
            bundle.gate.environment = environment;
            // Their files are not among the random ones.
            bundle.hooks.clear();
            bundle
        },
    )
}

proptest! {
    #[test]
    fn any_bundle_survives_the_file_and_the_folder(bundle in bundles()) {
        let json = bundle.to_json();
        prop_assert_eq!(&bundle.clone().to_json(), &json);
        prop_assert_eq!(Bundle::parse(json.as_bytes()), Ok(bundle.clone()));
        prop_assert_eq!(from_parts(&bundle.to_folder()), Ok(bundle.clone()));
        prop_assert_eq!(cloud_config(&bundle).ok(), cloud_config(&bundle).ok());
    }

    #[test]
    fn any_changed_byte_is_refused_or_harmless(bundle in bundles(), position in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = bundle.to_json().into_bytes();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(read) = Bundle::parse(&bytes) {
            prop_assert_eq!(read, bundle);
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Bundle::parse(&bytes);
        let _ = Bundle::from_folder(&bytes, |_| Some(bytes.clone()));
    }

    #[test]
    fn no_json_of_the_right_version_makes_the_parser_panic(tail in "[\\[\\]{}:,\"a-z0-9 .\\\\-]{0,80}") {
        let text = format!(r#"{{"apiVersion":"nodestrap.io/v1alpha1","kind":"Bundle",{tail}"#);
        let _ = Bundle::parse(text.as_bytes());
    }
}
