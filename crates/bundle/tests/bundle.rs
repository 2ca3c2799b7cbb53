//! The bundle as bytes: what is written is read back, what was changed is refused.

mod generator;
mod sample;

use bundle::{
    Bundle, BundleError, MAX_BUNDLE_BYTES, Manifest, Necessity, Provenance, RuntimeSource, Secrecy, Secret, Start,
    UnitNature,
};
use generator::Sources;
use proptest::prelude::*;
use sample::{CANARY, path, sample, unit_name};
use serde_json::{Value, json};

/// Parses the sample after a change of its document; the digest stays that of the sample.
fn parse_changed(change: impl FnOnce(&mut Value)) -> BundleError {
    let mut document = serde_json::from_str(&sample().to_json()).expect("the sample is JSON");
    change(&mut document);
    Bundle::parse(document.to_string().as_bytes()).expect_err("a changed bundle is refused")
}

/// The same, of what is within the document.
fn parse_with(pointer: &str, value: impl Into<Value>) -> BundleError {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    parse_changed(|document| match document.pointer_mut(&format!("/bundle{parent}")).expect("the sample has it") {
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value.into(),
        object => object[name] = value.into(),
    })
}

/// What is wrong with a document that no bundle can be made of.
fn reason(error: BundleError) -> String {
    match error {
        BundleError::Syntax { reason, .. } => reason,
        other => panic!("not a matter of form: {other}"),
    }
}

fn from_parts(parts: &[(String, u32, Vec<u8>)]) -> Result<Bundle, BundleError> {
    let read = |path: &str| parts.iter().find(|part| part.0 == path).map(|part| part.2.clone());
    Bundle::from_folder(&parts[0].2, read)
}

#[test]
fn what_a_node_keeps_of_a_bundle_has_every_file_by_its_digest_and_no_secret() {
    let (bundle, manifest) = (sample(), sample().manifest());
    assert_eq!((&manifest.bundle, &manifest.join), (&bundle.digest(), &bundle.join));
    let digests =
        bundle.all_files().iter().map(|file| (file.path.clone(), file.sha256().to_owned())).collect::<Vec<_>>();
    let kept = manifest.files.iter().map(|file| (file.path.clone(), file.sha256.clone())).collect::<Vec<_>>();
    assert_eq!(kept, digests);
    let json = serde_json::to_string(&manifest).expect("JSON");
    assert!(!json.contains(CANARY), "{json}");
    assert_eq!(serde_json::from_str::<Manifest>(&json).expect("it is read back"), manifest);
}

#[test]
fn the_manifest_is_canonical_json_without_contents() {
    let manifest = sample().manifest_json();
    let expected = concat!(
        r#"{"cluster":"lab","downloads":{"noProxy":["a"],"provenance":{"by":"AB","kind":"signed","serial":3},"#,
        r#""proxy":"http://canary:canary@proxy","s3":{"credentials":{"accessKey":"k","kind":"key","#,
        r#""secretKey":"canary-key"},"pathStyle":true,"region":"r"}},"#,
        r#""extensions":[{"artefact":{"digest":"sha256:ARCHIVE","form":"sysext","places":["https://a/b"],"size":7},"#,
        r#""name":"kubernetes","programs":["/usr/bin/kubelet"],"readBy":{"units":["containerd.service"]},"#,
        r#""release":{"architecture":"x86-64","id":"flatcar","sysextLevel":"1.0"},"version":"1.36.3"}],"#,
        r#""files":["#,
        r#"{"content":{"sha256":"SECRET","size":23},"mode":"0600","path":"/etc/a/secret","secrecy":"secret"},"#,
        r#"{"content":{"sha256":"TEXT","size":13},"mode":"0644","path":"/etc/a/text","#,
        r#""readBy":{"units":["containerd.service"]}},"#,
        r#"{"content":{"sha256":"BINARY","size":4},"mode":"0755","path":"/etc/b"},"#,
        r#"{"content":{"sha256":"HOOK","size":10},"mode":"0644","path":"/etc/systemd/system/hook.service","#,
        r#""readBy":{"units":["hook.service"]}},"#,
        r#"{"content":{"sha256":"PODS","size":23},"mode":"0644","path":"/etc/systemd/system/pods.service","#,
        r#""readBy":{"units":["pods.service"]}}],"#,
        r#""follow":{"addon":{"dataFolder":"/var/lib/docker","manifestUrl":"https://a/{{.Board}}/{{.OSVersion}}","#,
        r#""mappings":{"key":"runtime-mappings.yaml","name":"tectonic-torcx-runtime-mappings","namespace":"tectonic-system"},"#,
        r#""mappingsSeed":"/etc/a/text","name":"docker","profile":"tectonic","#,
        r#""signatures":{"keyrings":["/etc/a/text"],"kind":"by"}},"osUpdate":"ask","#,
        r#""release":{"forced":"v1.36.3+lab","kubeconfig":"/etc/a/secret","minors":["1.36"],"seed":"/etc/a/text","#,
        r#""seedFallback":"never"}},"#,
        r#""gate":{"environment":{"KUBELET_ARGS":"--v=2"},"facts":["NODE_IP"],"maxPods":29,"#,
        r#""path":"/etc/kubernetes/kubelet.env"},"#,
        r#""group":"workers","#,
        r#""hooks":[{"name":"a","necessity":"required","slot":"before-kubelet","timeoutSeconds":300,"#,
        r#""unit":"hook.service"},"#,
        r#"{"name":"b","necessity":"required","slot":"before-kubelet","timeoutSeconds":300,"unit":"hook.service"}],"#,
        r#""idleUnits":[{"idleness":"masked","name":"locksmithd.service"}],"#,
        r#""join":{"apiServer":"https://10.0.0.1:6443","bootstrapKubeconfig":"/etc/a/secret","#,
        r#""clientCertificate":"/var/lib/kubelet/pki/kubelet-client-current.pem","#,
        r#""kubeconfig":"/var/lib/kubelet/kubeconfig","kubeletUnit":"kubelet.service","nodeName":"n1"},"#,
        r#""kubernetesVersion":"1.36.3","#,
        r#""node":{"layout":"nodestrap","os":"debian","provider":"metal","role":"worker"},"#,
        r#""packages":{"commands":["conntrack"],"environment":{"no_proxy":"10.0.0.0/8"},"keys":["d491d7d2"],"#,
        r#""manager":"dnf","packages":[{"name":"conntrack-tools"},"#,
        r#"{"component":"kubectl","name":"kubectl","version":"1.36.3-150500.1.1"}],"programs":["/usr/bin/kubectl"],"#,
        r#""repositories":["/etc/a/text"],"settings":["/etc/a/text"]},"#,
        r#""podNetwork":{"bridge":"cni0","cniConfig":"/etc/cni/net.d/10-pods.conflist","unit":"pods.service"},"#,
        r#""requiredPrograms":["/usr/bin/kubelet"],"#,
        r#""runtime":{"name":"containerd","source":{"kind":"tree"},"#,
        r#""unit":"containerd.service"},"#,
        r#""snap":{"aliases":{"kubelet":"kubelet-eks.kubelet"},"name":"kubelet-eks","#,
        r#""settings":{"node-ip":"${NODE_IP}"}},"#,
        r#""trees":[{"artefact":{"digest":"sha256:ARCHIVE","form":"tar.gz","places":["https://a/b"],"size":7},"#,
        r#""component":"containerd","links":{"/usr/local/bin/containerd":"bin/containerd"},"#,
        r#""readBy":{"units":["containerd.service"]},"version":"2.2.1"}],"#,
        r#""units":[{"name":"containerd.service","start":"beforeGate"},"#,
        r#"{"name":"kubelet.service","start":"afterGate"},"#,
        r#"{"brought":{"installable":false,"oneshot":true},"name":"pods.service","start":"byOthers"}],"#,
        r#""webhook":{"certificateAuthority":"-----BEGIN CERTIFICATE-----\n","#,
        r#""headers":{"Authorization":"Bearer canary-header"},"url":"https://hooks.example/canary-address"}}"#,
    );
    let mut expected = expected.replace("ARCHIVE", &"0a".repeat(32));
    for (name, file) in ["SECRET", "TEXT", "BINARY", "HOOK", "PODS"].into_iter().zip(sample().files) {
        expected = expected.replace(name, file.sha256());
    }
    assert_eq!(manifest, expected);
}

#[test]
fn the_digest_covers_every_field() {
    let digest = sample().digest();
    let changes: [fn(&mut Bundle); 45] = [
        |bundle| bundle.cluster.push('x'),
        |bundle| bundle.group.push('x'),
        |bundle| bundle.kubernetes_version.push('1'),
        |bundle| bundle.node.os = bundle::Os::Ubuntu,
        |bundle| bundle.idle_units[0].idleness = bundle::Idleness::Disabled,
        |bundle| bundle.required_programs.push(path("/x")),
        |bundle| bundle.files[0].content = "other".into(),
        |bundle| bundle.files[1].mode = 0o640,
        |bundle| bundle.files[0].secrecy = Secrecy::Public,
        |bundle| bundle.files[2].path = path("/etc/bx"),
        |bundle| bundle.files[1].read_by.units.clear(),
        |bundle| bundle.files[1].read_by.pods = ["x".to_owned()].into(),
        |bundle| bundle.units[1].start = Start::ByOthers,
        |bundle| bundle.units[2].brought = Some(UnitNature { oneshot: false, installable: false }),
        |bundle| bundle.units.swap(0, 1),
        |bundle| bundle.gate.path = path("/x"),
        |bundle| bundle.gate.environment.clear(),
        |bundle| bundle.gate.facts.clear(),
        |bundle| bundle.gate.max_pods = None,
        |bundle| bundle.hooks[1].necessity = Necessity::Optional,
        |bundle| bundle.hooks[1].timeout_seconds = 1,
        |bundle| bundle.runtime.unit = unit_name("x.service"),
        |bundle| bundle.runtime.source = RuntimeSource::Preinstalled,
        |bundle| bundle.trees[0].version.push('0'),
        |bundle| bundle.trees[0].artefact.size = 8,
        |bundle| bundle.trees[0].artefact.places.push("https://c/d".to_owned()),
        |bundle| bundle.trees[0].links.clear(),
        |bundle| bundle.trees[0].read_by.units.clear(),
        |bundle| bundle.trees.clear(),
        |bundle| bundle.downloads.as_mut().unwrap().provenance = Provenance::Unsigned {},
        |bundle| bundle.downloads.as_mut().unwrap().proxy = None,
        |bundle| bundle.follow.as_mut().unwrap().os_update = bundle::OsUpdate::Attempt,
        |bundle| bundle.follow.as_mut().unwrap().release.forced = None,
        |bundle| bundle.follow.as_mut().unwrap().addon = None,
        |bundle| bundle.follow = None,
        |bundle| bundle.join.api_server.push('1'),
        |bundle| bundle.join.kubeconfig = path("/x"),
        |bundle| bundle.join.node_name = None,
        |bundle| bundle.pod_network.as_mut().unwrap().bridge.push('x'),
        |bundle| bundle.pod_network = None,
        |bundle| bundle.snap.as_mut().unwrap().settings.clear(),
        |bundle| bundle.snap = None,
        |bundle| bundle.webhook.as_mut().unwrap().url = Secret::new("https://x"),
        |bundle| bundle.webhook.as_mut().unwrap().headers.clear(),
        |bundle| bundle.webhook = None,
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
            ("manifest.json", 0o600),
            ("root/etc/a/secret", 0o600),
            ("root/etc/a/text", 0o644),
            ("root/etc/b", 0o755),
            ("root/etc/systemd/system/hook.service", 0o644),
            ("root/etc/systemd/system/pods.service", 0o644),
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
                Err(error) => assert!(!error.to_string().contains("canary")),
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
    for newer in ["v1alpha3", "v1beta1", "v1", "v2alpha1"] {
        let found = format!("nodestrap.io/{newer}");
        let error = parse_changed(|document| {
            document["apiVersion"] = found.clone().into();
            document["aFieldOfTheFuture"] = true.into();
        });
        assert_eq!(error, BundleError::NewerApiVersion { found });
        assert!(error.to_string().contains("newer nodestrap"));
    }
    for other in ["v1", "example.com/v9", "nodestrap.io/v1alpha1", "nodestrap.io/x"] {
        let error = parse_changed(|document| document["apiVersion"] = other.into());
        assert_eq!(error, BundleError::OlderApiVersion { found: other.to_owned() });
    }
    let error = parse_changed(|document| document["kind"] = "Cluster".into());
    assert_eq!(error, BundleError::Kind { found: "Cluster".to_owned() });
}

/// Whatever a bundle of an older nodestrap looks like, its reader is told one thing: render it again.
#[test]
fn a_bundle_of_an_older_nodestrap_gets_one_sentence() {
    let expected = format!(
        "the bundle is of an older nodestrap, with apiVersion 'nodestrap.io/v1alpha1' where this one reads \
         'nodestrap.io/v1alpha2': render it again with version {} and deliver it; what is on the node stays as it is \
         until then",
        env!("CARGO_PKG_VERSION")
    );
    let flat = json!({
        "cluster": "lab", "digest": format!("sha256:{}", "0a".repeat(32)), "group": "workers",
        "files": [{"path": "/etc/a", "mode": "0644", "secret": false, "sha256": "", "size": 1, "content": CANARY}],
        "gate": {"environment": {}, "facts": ["NODE_IP"], "path": "/etc/kubernetes/kubelet.env"},
        "runtime": {"name": "containerd", "source": "preinstalled"},
    });
    let like_ours: Value = serde_json::from_str(&sample().to_json()).unwrap();
    let manifest: Value = serde_json::from_slice(&sample().to_folder()[0].2).unwrap();
    let others = [json!({}), json!({"bundle": {"files": [{"path": "/../x"}]}}), json!({"digest": CANARY})];
    for mut document in others.into_iter().chain([flat, like_ours, manifest]) {
        document["apiVersion"] = "nodestrap.io/v1alpha1".into();
        document["kind"] = "Bundle".into();
        let text = document.to_string();
        let of_file = Bundle::parse(text.as_bytes()).unwrap_err();
        let of_folder = Bundle::from_folder(text.as_bytes(), |path| panic!("asked for '{path}'")).unwrap_err();
        assert_eq!([of_file.to_string(), of_folder.to_string()], [expected.as_str(), &expected], "{text}");
    }
}

#[test]
fn unknown_fields_are_refused_by_name() {
    for path in [
        "",
        "/bundle",
        "/bundle/gate",
        "/bundle/join",
        "/bundle/files/1",
        "/bundle/files/1/content",
        "/bundle/files/1/readBy",
        "/bundle/units/0",
        "/bundle/units/2/brought",
        "/bundle/node",
        "/bundle/hooks/0",
        "/bundle/runtime",
        "/bundle/runtime/source",
        "/bundle/trees/0",
        "/bundle/trees/0/artefact",
        "/bundle/downloads",
        "/bundle/downloads/provenance",
        "/bundle/downloads/s3",
        "/bundle/downloads/s3/credentials",
        "/bundle/podNetwork",
        "/bundle/snap",
        "/bundle/webhook",
    ] {
        let error = parse_changed(|document| {
            document.pointer_mut(path).expect("the sample has it")["surprise"] = true.into();
        });
        assert!(reason(error).contains("unknown field `surprise`"), "{path}");
    }
    // Also where a word alone says it all.
    for kind in ["preinstalled", "torcx", "tree"] {
        let error = parse_with("/runtime/source", json!({"kind": kind, "surprise": true}));
        assert!(reason(error).contains("unknown field `surprise`"), "{kind}");
    }
}

#[test]
fn paths_that_could_leave_the_root_or_clash_are_refused() {
    let with_path = |path: &str| parse_with("/files/2/path", path);
    for path in ["etc/b", "", "/etc/../b", "/..", "/etc//b", "/etc/./b", "/etc/b/", "/", "/etc/\u{0}b", "/etc/b\n"] {
        assert!(reason(with_path(path)).starts_with("the path "), "{path:?}");
    }
    assert!(matches!(with_path("/etc/a/text"), BundleError::DuplicatePath { .. }));
    assert!(matches!(with_path("/etc/a/a"), BundleError::Order { .. }));
    assert!(matches!(with_path("/etc/a/text/b"), BundleError::FileUnderFile { .. }));
    assert!(matches!(with_path("/etc/kubernetes/kubelet.env"), BundleError::GateAmongFiles { .. }));
    assert!(matches!(with_path("/etc/kubernetes/kubelet.env/x"), BundleError::FileUnderFile { .. }));
    assert!(matches!(with_path("/etc/kubernetes"), BundleError::FileUnderFile { .. }));
    // What the node writes by itself has its place, too.
    for own in ["/etc/nodestrap/network.json", "/etc/nodestrap/webhook.json"] {
        assert!(matches!(with_path(own), BundleError::DuplicatePath { .. }), "{own}");
    }
    assert!(matches!(with_path("/etc/nodestrap"), BundleError::FileUnderFile { .. }));
}

#[test]
fn a_folder_is_never_asked_for_a_path_outside_its_root() {
    let mut document: Value = serde_json::from_slice(&sample().to_folder()[0].2).unwrap();
    document["bundle"]["files"][0]["path"] = "/../../etc/shadow".into();
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
fn the_manifest_of_a_folder_has_no_contents() {
    let bundle = sample();
    let read = |path: &str| bundle.to_folder().into_iter().find(|part| part.0 == path).map(|part| part.2);
    for content in
        [json!({"sha256": "", "size": 0, "text": ""}), json!({"sha256": "", "size": 0, "base64": ""}), json!(1)]
    {
        let mut document: Value = serde_json::from_slice(&bundle.to_folder()[0].2).unwrap();
        document["bundle"]["files"][0]["content"] = content;
        let error = Bundle::from_folder(document.to_string().as_bytes(), read).unwrap_err();
        assert_eq!(error, BundleError::ContentTwice { path: "/etc/a/secret".to_owned() });
    }
    let mut document: Value = serde_json::from_slice(&bundle.to_folder()[0].2).unwrap();
    document["bundle"]["files"][1]["mode"] = "999".into();
    let error = Bundle::from_folder(document.to_string().as_bytes(), read).unwrap_err();
    assert!(error.to_string().starts_with("the bundle cannot be read: the mode '999' is not"), "{error}");
}

#[test]
fn modes_and_contents_are_checked() {
    for mode in ["644", "00644", "0999", "1777", "4755", "+644", "rw-"] {
        assert!(reason(parse_with("/files/1/mode", mode)).starts_with("the mode "), "{mode}");
    }
    assert!(matches!(parse_with("/files/0/mode", "0640"), BundleError::SecretMode { .. }));
    for (pointer, value, problem) in [
        ("/files/1/content/base64", json!(""), "the file '/etc/a/text' must have its content either"),
        ("/files/2/content/base64", json!("?"), "the file '/etc/b' has content that is not base64"),
        ("/files/2/content/base64", Value::Null, "the file '/etc/b' must have its content either"),
        ("/files/1/content/size", json!(3), "the file '/etc/a/text' has 13 bytes where 3 are stated"),
        ("/files/2/content/base64", json!("AP8B/w=="), "the file '/etc/b' was changed"),
        ("/files/0/content/text", json!("canary.0123456789abcdee"), "the file '/etc/a/secret' was changed"),
    ] {
        let found = reason(parse_with(pointer, value));
        assert!(found.starts_with(problem) && !found.contains("canary"), "{pointer}: {found}");
    }
}

#[test]
fn units_gate_and_texts_are_checked() {
    for name in ["kubelet", ".service", "a/b.service", "a b.service"] {
        assert!(reason(parse_with("/units/1/name", name)).starts_with("the unit "), "{name}");
    }
    assert!(matches!(parse_with("/units/1/name", "containerd.service"), BundleError::DuplicateUnit { .. }));
    for name in ["", "1A", "A B", "NODESTRAP_GATE", "NODE_IP"] {
        let error = parse_changed(|document| document["bundle"]["gate"]["environment"][name] = "x".into());
        assert!(matches!(error, BundleError::GateName { .. }), "{name}: {error}");
    }
    let error = parse_changed(|document| document["bundle"]["gate"]["environment"]["A"] = "x\ny".into());
    assert!(matches!(error, BundleError::GateValue { .. }));
    assert!(reason(parse_with("/gate/facts/0", "SHOE_SIZE")).starts_with("unknown variant `SHOE_SIZE`"));
    for (pointer, word) in [("/node/os", ""), ("/node/role", "king"), ("/node/layout", "x"), ("/node/provider", "x")] {
        assert!(reason(parse_with(pointer, word)).starts_with("unknown variant"), "{pointer}");
    }
    assert!(matches!(parse_with("/kubernetesVersion", ""), BundleError::Text { field: "kubernetesVersion" }));
    // The cluster's name stands in a comment of the user data: a newline would end the comment.
    assert!(matches!(parse_with("/cluster", "lab\nruncmd: [id]"), BundleError::Text { field: "cluster" }));
}

/// A node must not have to guess what a unit of the bundle is.
#[test]
fn units_say_what_they_are_if_their_file_is_there_and_only_then() {
    let error = parse_with("/units/2/brought", Value::Null);
    assert!(matches!(&error, BundleError::Unit { name, .. } if name == "pods.service"), "{error}");
    let error = parse_with("/units/0/brought", json!({"oneshot": false, "installable": true}));
    assert!(matches!(&error, BundleError::Unit { name, .. } if name == "containerd.service"), "{error}");
}

#[test]
fn hooks_and_the_runtime_are_checked() {
    for (field, value) in [("name", json!("a")), ("timeoutSeconds", json!(0)), ("unit", json!("x.service"))] {
        assert!(matches!(parse_with(&format!("/hooks/1/{field}"), value), BundleError::Hook { .. }), "{field}");
    }
    assert!(reason(parse_with("/hooks/1/slot", "some-time")).starts_with("unknown variant `some-time`"));
    assert!(reason(parse_with("/hooks/1/unit", "x")).starts_with("the unit "));
    assert!(reason(parse_with("/runtime/source/kind", "wishes")).starts_with("unknown variant `wishes`"));
}

#[test]
fn trees_are_named_provable_and_lie_where_nothing_else_does() {
    for (field, value) in [
        ("version", json!("")),
        ("version", json!("../1")),
        ("version", json!("1/2")),
        ("artefact/size", json!(0)),
        ("artefact/places", json!([])),
        ("artefact/places", json!(["ftp://a/b"])),
        ("artefact/places", json!(["https://a b"])),
        ("artefact/places", json!(["file://a"])),
        ("links", json!({"/etc/a/text": "bin/containerd"})),
        ("links", json!({"/etc/a/text/below": "bin/containerd"})),
        ("links", json!({"/opt/nodestrap/bin/x": "bin/containerd"})),
    ] {
        let error = parse_with(&format!("/trees/0/{field}"), value.clone());
        assert!(matches!(error, BundleError::Tree { .. }), "{field} {value}: {error}");
    }
    for digest in ["sha256:00".to_owned(), format!("md5:{}", "0a".repeat(16)), format!("sha256:{}", "0A".repeat(32))] {
        assert!(reason(parse_with("/trees/0/artefact/digest", json!(digest))).starts_with("the digest "), "{digest}");
    }
    for path in ["/bin/x", "../x", "a/../x", ""] {
        let links = json!({"/usr/local/bin/containerd": path});
        assert!(reason(parse_with("/trees/0/links", links)).starts_with("the path "), "{path}");
    }
    assert!(matches!(parse_with("/downloads", Value::Null), BundleError::Tree { .. }));
    assert!(matches!(parse_with("/trees", json!([])), BundleError::Runtime { .. }));
    let long = format!("sha512:{}", "0a".repeat(64));
    let mut bundle = sample();
    bundle.trees[0].artefact.digest = bundle::ArtefactDigest::new(long).unwrap();
    assert_eq!(Bundle::parse(bundle.to_json().as_bytes()), Ok(bundle));
}

#[test]
fn a_change_that_breaks_no_rule_is_found_by_the_digest() {
    let error = parse_with("/join/apiServer", "https://evil.example:6443");
    assert!(matches!(error, BundleError::Digest { .. }));
}

#[test]
fn the_size_is_limited_both_ways() {
    let mut bundle = sample();
    bundle.files[1].content = vec![b'x'; MAX_BUNDLE_BYTES].into();
    assert!(matches!(Bundle::parse(bundle.to_json().as_bytes()), Err(BundleError::TooLarge { .. })));
    assert!(matches!(from_parts(&bundle.to_folder()), Err(BundleError::TooLarge { .. })));
    assert!(matches!(bundle.validate(), Err(BundleError::TooLarge { .. })));
}

#[test]
fn no_error_and_no_debug_output_shows_a_secret() {
    let bundle = sample();
    assert!(!format!("{bundle:?} {:?}", bundle.all_files()).contains("canary"));
    // A value of the wrong type in the place of another: serde's own message would quote it.
    for (pointer, value) in [
        ("/files/0/content/size", json!(CANARY)),
        ("/files/0/content/text", json!([CANARY])),
        ("/files/0/readBy", json!(CANARY)),
        ("/webhook", json!(CANARY)),
        ("/webhook/headers", json!(CANARY)),
        ("/webhook/headers/Authorization", json!({"value": CANARY})),
        ("/webhook/url", json!({CANARY: CANARY})),
    ] {
        let error = parse_with(pointer, value);
        assert!(!format!("{error} {error:?}").contains("canary"), "{pointer}: {error}");
    }
}

#[test]
fn settings_of_the_webhook_are_kept_as_a_secret_and_read_back() {
    let bundle = sample();
    let files = bundle.all_files();
    let file = files.iter().find(|file| file.path == bundle::WEBHOOK_SETTINGS_PATH).unwrap();
    assert!(file.is_secret() && file.mode == 0o600);
    assert_eq!(bundle::Webhook::parse(&file.content).ok(), bundle.webhook);
    for text in [r#""canary""#, r#"{"url":["canary"]}"#, r#"{"url":"a","headers":"canary"}"#] {
        let error = bundle::Webhook::parse(text.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}

/// A plan has steps for them as soon as there are any.
#[test]
fn packages_without_one_package_are_refused() {
    let mut bundle = sample();
    assert!(bundle.validate().is_ok());
    bundle.packages.as_mut().unwrap().packages.clear();
    bundle.runtime.source = bundle::RuntimeSource::Preinstalled;
    let error = bundle.validate().unwrap_err();
    assert!(error.to_string().contains("packages"), "{error}");
}

fn bundles() -> impl Strategy<Value = Bundle> {
    any::<u64>().prop_map(|seed| generator::bundle_with(seed, Sources::Any))
}

proptest! {
    #[test]
    fn any_bundle_survives_the_file_and_the_folder(bundle in bundles()) {
        let json = bundle.to_json();
        prop_assert_eq!(&bundle.clone().to_json(), &json);
        prop_assert_eq!(Bundle::parse(json.as_bytes()), Ok(bundle.clone()));
        prop_assert_eq!(from_parts(&bundle.to_folder()), Ok(bundle));
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
        let text = format!(r#"{{"apiVersion":"nodestrap.io/v1alpha2","kind":"Bundle",{tail}"#);
        let _ = Bundle::parse(text.as_bytes());
    }
}
