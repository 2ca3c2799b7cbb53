use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn artefact(name: &str, version: &str) -> Artefact {
    Artefact {
        name: ArtefactName::new(name).unwrap(),
        version: Version::new(version).unwrap(),
        architecture: Architecture::Amd64,
        os: BTreeSet::new(),
        role: None,
        form: Form::Program,
        size: 1,
        digest: Digest::new(format!("sha256:{}", "0".repeat(64))).unwrap(),
        extension: None,
        programs: vec![ProgramPath::new(name).unwrap()],
        places: vec![Place::new(format!("{name}/{version}/{name}")).unwrap()],
    }
}

fn os(names: &[&str]) -> BTreeSet<OsName> {
    names.iter().map(|name| OsName::new(*name).unwrap()).collect()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn manifest(artefacts: Vec<Artefact>) -> Result<Manifest, ManifestError> {
    Manifest::new(7, at(1_000), at(2_000), artefacts)
}

fn json_of(artefacts: Vec<Artefact>) -> Value {
    serde_json::from_str(&manifest(artefacts).unwrap().to_json()).unwrap()
}

/// What reading says after a change.
#[track_caller]
fn refused(change: impl FnOnce(&mut Value)) -> String {
    let mut document = json_of(vec![artefact("kubelet", "1.34.2")]);
    change(&mut document);
    Manifest::parse(document.to_string().as_bytes()).expect_err("refused").to_string()
}

#[test]
fn a_manifest_has_one_spelling() {
    let mut containerd = artefact("containerd", "2.1.0");
    containerd.form = Form::TarGz;
    containerd.programs = ["bin/containerd", "bin/ctr"].map(|path| ProgramPath::new(path).unwrap()).to_vec();
    containerd.os = os(&["debian", "ubuntu"]);
    containerd.role = Some(Role::Worker);
    let written = manifest(vec![artefact("kubelet", "1.34.2"), containerd]).unwrap().to_json();
    let expected = format!(
        r#"{{
  "apiVersion": "nodestrap.io/v1alpha1",
  "kind": "ArtefactManifest",
  "serial": 7,
  "issued": "1970-01-01T00:16:40Z",
  "expires": "1970-01-01T00:33:20Z",
  "artefacts": [
    {{
      "name": "containerd",
      "version": "2.1.0",
      "architecture": "amd64",
      "os": [
        "debian",
        "ubuntu"
      ],
      "role": "worker",
      "form": "tar.gz",
      "size": 1,
      "digest": "sha256:{zeros}",
      "programs": [
        "bin/containerd",
        "bin/ctr"
      ],
      "places": [
        "containerd/2.1.0/containerd"
      ]
    }},
    {{
      "name": "kubelet",
      "version": "1.34.2",
      "architecture": "amd64",
      "form": "program",
      "size": 1,
      "digest": "sha256:{zeros}",
      "programs": [
        "kubelet"
      ],
      "places": [
        "kubelet/1.34.2/kubelet"
      ]
    }}
  ]
}}
"#,
        zeros = "0".repeat(64)
    );
    assert_eq!(written, expected);
}

#[test]
fn what_is_no_manifest_of_ours_is_called_what_it_is() {
    let torcx = br#"{"kind":"torcx-package-list-v0","value":{"packages":[]}}"#;
    let error = Manifest::parse(torcx).unwrap_err();
    assert_eq!(error, ManifestError::Kind { found: "torcx-package-list-v0".to_owned() });
    assert!(refused(|document| document["apiVersion"] = json!("nodestrap.io/v2")).contains("'nodestrap.io/v2'"));
    for (bytes, line) in [(&b""[..], 1), (b"{\n", 2), (b"[]", 1), (b"\xff", 1)] {
        let error = Manifest::parse(bytes).unwrap_err();
        assert!(matches!(&error, ManifestError::Syntax { line: at, .. } if *at == line), "{error}");
    }
    let large = vec![b' '; MAX_MANIFEST_BYTES + 1];
    assert_eq!(Manifest::parse(&large), Err(ManifestError::TooLarge { bytes: large.len() }));
}

#[test]
fn nothing_that_is_not_known_is_read_over() {
    for (mistake, why) in [
        (refused(|document| document["comment"] = json!("x")), "unknown field `comment`"),
        (refused(|document| document["artefacts"][0]["sha1"] = json!("x")), "unknown field `sha1`"),
        (refused(|document| document["serial"] = json!(-1)), "invalid value"),
        (refused(|document| document["serial"] = json!("7")), "invalid type"),
        (refused(|document| document["issued"] = json!("yesterday")), "is no time such as"),
        (refused(|document| drop(document.as_object_mut().unwrap().remove("expires"))), "missing field `expires`"),
        (refused(|document| document["artefacts"][0]["os"] = json!([])), "leave it out"),
        (refused(|document| document["artefacts"][0]["os"] = json!(["ubuntu", "debian"])), "not sorted"),
        (refused(|document| document["artefacts"][0]["os"] = json!(["debian", "debian"])), "twice"),
        (refused(|document| document["artefacts"][0]["role"] = json!(null)), "'role' is null"),
        (refused(|document| document["artefacts"][0]["role"] = json!("master")), "unknown variant `master`"),
        (refused(|document| document["artefacts"][0]["architecture"] = json!("mips")), "unknown variant `mips`"),
        (refused(|document| document["artefacts"][0]["digest"] = json!("md5:00")), "the digest \"md5:00\""),
        (refused(|document| document["artefacts"][0]["places"] = json!(["../x"])), "'..'"),
    ] {
        assert!(mistake.contains(why) && mistake.contains("publish it again"), "{mistake}");
    }
    let text = json_of(vec![]).to_string();
    let twice = text.replace("\"serial\":7", "\"serial\":7,\"serial\":9");
    assert!(Manifest::parse(twice.as_bytes()).unwrap_err().to_string().contains("duplicate field `serial`"));
    let trailing = Manifest::parse(format!("{text} {text}").as_bytes()).unwrap_err();
    assert!(trailing.to_string().contains("trailing"), "{trailing}");
}

#[test]
fn an_artefact_must_make_sense() {
    for (mistake, why) in [
        (refused(|document| document["artefacts"][0]["size"] = json!(0)), "has the size 0"),
        (refused(|document| document["artefacts"][0]["places"] = json!([])), "no place"),
        (refused(|document| document["artefacts"][0]["programs"] = json!([])), "names no program"),
        (refused(|document| document["artefacts"][0]["programs"] = json!(["bin/kubelet"])), "its name alone"),
        (refused(|document| document["artefacts"][0]["programs"] = json!(["a", "b"])), "its name alone"),
        (refused(|document| document["expires"] = document["issued"].clone()), "not after it was issued"),
    ] {
        assert!(mistake.contains(why), "{mistake}");
    }
    let mut twice = artefact("a", "1");
    (twice.form, twice.programs) = (Form::TarGz, vec![ProgramPath::new("bin/a").unwrap(); 2]);
    assert!(manifest(vec![twice]).unwrap_err().to_string().contains("a 1 (amd64) names a program twice"));
}

fn extension(name: &str, version: &str) -> Artefact {
    let word = |text: &str| Some(ReleaseWord::new(text).unwrap());
    let release = ExtensionRelease {
        id: ReleaseWord::new("flatcar").unwrap(),
        sysext_level: word("1.0"),
        version_id: None,
        architecture: word("x86-64"),
    };
    Artefact {
        form: Form::Sysext,
        extension: Some(release),
        programs: vec![ProgramPath::new(format!("usr/bin/{name}")).unwrap()],
        ..artefact(name, version)
    }
}

#[test]
fn an_extension_says_which_systems_take_it_and_keeps_to_usr() {
    let written = json_of(vec![extension("kubernetes", "1.36.3")]);
    let expected = json!({"id": "flatcar", "sysextLevel": "1.0", "architecture": "x86-64"});
    assert_eq!(
        (&written["artefacts"][0]["form"], &written["artefacts"][0]["extension"]),
        (&json!("sysext"), &expected)
    );
    let read = Manifest::parse(written.to_string().as_bytes()).unwrap();
    assert_eq!(read.artefacts(), [extension("kubernetes", "1.36.3")]);

    let of_any = Artefact { extension: extension("a", "1").extension, ..artefact("a", "1") };
    let nameless = Artefact { extension: None, ..extension("a", "1") };
    let outside = Artefact { programs: vec![ProgramPath::new("opt/bin/a").unwrap()], ..extension("a", "1") };
    for (wrong, why) in [(of_any, "is no system extension"), (nameless, "without its"), (outside, "outside usr/")] {
        assert!(manifest(vec![wrong]).unwrap_err().to_string().contains(why), "{why}");
    }
    assert!(ReleaseWord::new("_any").is_ok() && ReleaseWord::new("__").is_err() && ReleaseWord::new("a b").is_err());
    let mut document = written;
    document["artefacts"][0]["extension"] = json!(null);
    let error = Manifest::parse(document.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("'extension' is null"), "{error}");
}

#[test]
fn an_archive_and_an_extension_of_one_name_are_for_different_wishes() {
    let (archive, image) = (artefact("containerd", "2.4.2"), extension("containerd", "2.4.2"));
    let both = manifest(vec![archive.clone(), image.clone()]).unwrap();
    let (amd64, worker) = (Architecture::Amd64, Role::Worker);
    assert_eq!(both.find("containerd", "2.4.2", "flatcar", amd64, worker), Ok(&archive));
    assert_eq!(both.find_extension("containerd", "2.4.2", "flatcar", amd64, worker), Ok(&image));
    let error = manifest(vec![image.clone(), Artefact { os: os(&["flatcar"]), ..image }]).unwrap_err();
    assert!(matches!(error, ManifestError::Overlap { .. }), "{error}");
    let alone = manifest(vec![archive]).unwrap();
    let missing = alone.find_extension("containerd", "2.4.2", "flatcar", amd64, worker).unwrap_err().to_string();
    assert!(missing.contains("no artefact 'containerd'"), "{missing}");
}

#[test]
fn artefacts_are_sorted() {
    let sorted = manifest(vec![artefact("b", "1"), artefact("a", "2"), artefact("a", "1")]).unwrap();
    let named: Vec<String> = sorted.artefacts().iter().map(ToString::to_string).collect();
    assert_eq!(named, ["a 1 (amd64)", "a 2 (amd64)", "b 1 (amd64)"]);
    let mut document = json_of(vec![artefact("a", "1"), artefact("b", "1")]);
    document["artefacts"].as_array_mut().unwrap().reverse();
    let error = Manifest::parse(document.to_string().as_bytes()).unwrap_err();
    assert_eq!(error, ManifestError::Order { artefact: "a 1 (amd64)".to_owned() });
}

#[test]
fn no_node_has_two_artefacts_to_choose_from() {
    let of = |names: &[&str], role: Option<Role>| Artefact { os: os(names), role, ..artefact("a", "1") };
    let both = |first: Artefact, second: Artefact| manifest(vec![first, second]);
    let (worker, control_plane) = (Some(Role::Worker), Some(Role::ControlPlane));
    for (first, second) in [
        (of(&[], None), of(&[], None)),
        (of(&[], None), of(&["debian"], None)),
        (of(&["debian"], None), of(&["debian", "ubuntu"], None)),
        (of(&["debian"], None), of(&["debian"], worker)),
        (of(&[], worker), of(&["debian"], worker)),
        (of(&["debian"], control_plane), of(&[], None)),
    ] {
        let error = both(first, second).unwrap_err();
        assert!(matches!(error, ManifestError::Overlap { .. }), "{error}");
    }
    for (first, second) in [
        (of(&["debian"], None), of(&["ubuntu"], None)),
        (of(&[], worker), of(&[], control_plane)),
        (of(&["debian"], worker), of(&["debian"], control_plane)),
        (of(&[], None), Artefact { architecture: Architecture::Arm64, ..of(&[], None) }),
        (of(&[], None), artefact("a", "2")),
    ] {
        both(first, second).unwrap();
    }
}

#[test]
fn what_is_missing_is_said_with_what_is_there() {
    let mut debian = artefact("kubelet", "1.34.2");
    (debian.os, debian.role) = (os(&["debian", "ubuntu"]), Some(Role::Worker));
    let arm = Artefact { architecture: Architecture::Arm64, ..artefact("kubelet", "1.34.1") };
    let all = manifest(vec![debian.clone(), arm.clone(), artefact("runc", "1.3.0")]).unwrap();
    let find = |name, version, os, architecture, role| all.find(name, version, os, architecture, role);
    let (amd64, arm64, worker) = (Architecture::Amd64, Architecture::Arm64, Role::Worker);
    assert_eq!(find("kubelet", "1.34.2", "ubuntu", amd64, worker), Ok(&debian));
    assert_eq!(find("kubelet", "1.34.1", "flatcar", arm64, Role::ControlPlane), Ok(&arm));
    for (found, words) in [
        (
            find("kubectl", "1.34.2", "debian", amd64, worker),
            "the manifest has no artefact 'kubectl'; it has kubelet, runc: publish it, or correct the name",
        ),
        (
            find("kubelet", "1.34.9", "debian", amd64, worker),
            "the manifest has kubelet, but not version '1.34.9'; it has 1.34.1, 1.34.2: \
             publish that version, or ask for another",
        ),
        (
            find("kubelet", "1.34.2", "debian", arm64, worker),
            "the manifest has kubelet 1.34.2, but not for the architecture arm64; it is there for amd64: \
             publish it for arm64",
        ),
        (
            find("kubelet", "1.34.2", "rhel", amd64, worker),
            "the manifest has kubelet 1.34.2 for amd64, but not for the operating system 'rhel'; \
             it is there for debian, ubuntu: publish it for 'rhel'",
        ),
        (
            find("kubelet", "1.34.2", "debian", amd64, Role::ControlPlane),
            "the manifest has kubelet 1.34.2 for amd64 and 'debian', but not for the role control-plane; \
             it is there for worker: publish it for nodes of the role control-plane",
        ),
    ] {
        assert_eq!(found.unwrap_err().to_string(), words);
    }
    let empty = manifest(vec![]).unwrap();
    let nothing = empty.find("kubelet", "1", "debian", amd64, worker).unwrap_err().to_string();
    assert!(nothing.contains("it has none at all"), "{nothing}");
    let many = manifest((10..40).map(|minor| artefact("kubelet", &format!("1.{minor}.0"))).collect()).unwrap();
    let missing = many.find("kubelet", "2", "debian", amd64, worker).unwrap_err().to_string();
    assert!(missing.contains("1.21.0 and 18 more"), "{missing}");
}

fn any_artefact() -> impl Strategy<Value = Artefact> {
    let os_names = proptest::sample::subsequence(vec!["al2023", "debian", "flatcar", "ubuntu"], 0..=4);
    let role = prop_oneof![Just(None), Just(Some(Role::Worker)), Just(Some(Role::ControlPlane))];
    let architecture = prop_oneof![Just(Architecture::Amd64), Just(Architecture::Arm64)];
    let digest = prop_oneof!["sha256:[0-9a-f]{64}", "sha512:[0-9a-f]{128}"];
    let programs = proptest::collection::btree_set("[a-z]{1,8}(/[a-z]{1,8}){0,2}", 1..4);
    let places = proptest::collection::vec("(https://[a-z]{1,8}/)?[a-z0-9.]{0,4}[a-z]", 1..3);
    ("[ab]", "[12]", architecture, os_names, role, 1..u64::MAX, digest, programs, places).prop_map(
        |(name, version, architecture, names, role, size, digest, programs, places)| Artefact {
            architecture,
            os: os(&names),
            role,
            form: Form::TarGz,
            size,
            digest: Digest::new(digest).unwrap(),
            programs: programs.into_iter().map(|program| ProgramPath::new(program).unwrap()).collect(),
            places: places.into_iter().map(|place| Place::new(place).unwrap()).collect(),
            ..artefact(&name, &version)
        },
    )
}

proptest! {
    /// What is written is read back, in the one spelling; and `find` gives each artefact to the nodes that it is for, and to
    /// no others.
    #[test]
    fn manifests_survive_the_way_back(
        serial: u64,
        issued in 0..4_000_000_000_u64,
        lasts in 1..4_000_000_000_u64,
        artefacts in proptest::collection::vec(any_artefact(), 0..8),
    ) {
        let (issued, expires) = (at(issued), at(issued + lasts));
        match Manifest::new(serial, issued, expires, artefacts.clone()) {
            Ok(manifest) => {
                let read = Manifest::parse(manifest.to_json().as_bytes());
                prop_assert_eq!(read.as_ref(), Ok(&manifest));
                for role in Role::ALL {
                    for os in ["al2023", "debian", "flatcar", "rhel", "ubuntu"] {
                        found_by_search(&manifest, "a", "1", os, Architecture::Amd64, *role)?;
                    }
                }
            }
            Err(error) => prop_assert!(matches!(error, ManifestError::Overlap { .. }), "{}", error),
        }
    }

    #[test]
    fn nothing_that_is_read_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Manifest::parse(&bytes);
    }
}

fn found_by_search(
    manifest: &Manifest,
    name: &str,
    version: &str,
    os: &str,
    architecture: Architecture,
    role: Role,
) -> Result<(), TestCaseError> {
    let fits: Vec<&Artefact> = manifest
        .artefacts()
        .iter()
        .filter(|artefact| artefact.name.as_str() == name && artefact.version.as_str() == version)
        .filter(|artefact| artefact.architecture == architecture && artefact.is_for_os(os))
        .filter(|artefact| artefact.role.is_none_or(|only| only == role))
        .collect();
    let found: Vec<&Artefact> = manifest.find(name, version, os, architecture, role).into_iter().collect();
    prop_assert_eq!(fits, found);
    Ok(())
}
