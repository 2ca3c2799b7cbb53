//! The stub: what it says, what it refuses, and which bundle it accepts.

mod sample;

use bundle::{Bundle, MAX_STUB_BYTES, Payload, PayloadError, S3, S3Credentials, Secret, Stub, StubError};
use proptest::prelude::*;
use sample::sample as bundle;

const AUTHORITY: &str = include_str!("../../../examples/ca.crt");

fn other_bundle() -> Bundle {
    Bundle { group: "others".to_owned(), ..bundle() }
}

fn stub() -> Stub {
    let stores = ["https://one.example/bundles/".to_owned(), "http://10.0.0.1:8080".to_owned()];
    Stub::new(&bundle(), &stores, Some(AUTHORITY), None).expect("a good stub")
}

fn s3(credentials: S3Credentials) -> S3 {
    let endpoint = Some("https://s3.example:9000".to_owned());
    S3 { region: "eu-west-1".to_owned(), endpoint, path_style: true, credentials }
}

fn changed(change: impl FnOnce(&mut serde_json::Value)) -> StubError {
    let mut document = serde_json::from_str(&stub().to_json()).expect("a stub is JSON");
    change(&mut document);
    Stub::parse(document.to_string().as_bytes()).expect_err("a changed stub is refused")
}

#[test]
fn a_stub_is_canonical_names_the_object_by_its_digest_and_survives() {
    let (stub, digest) = (stub(), bundle().digest());
    let digits = digest.hex();
    assert_eq!(stub.urls[0], format!("https://one.example/bundles/{digits}.json"));
    assert_eq!(stub.urls[1], format!("http://10.0.0.1:8080/{digits}.json"));
    let json = stub.to_json();
    let start = r#"{"apiVersion":"nodestrap.io/v1alpha2","kind":"BundleReference","reference":{"certificateAuthorities":"-----BEGIN"#;
    assert!(json.starts_with(start) && json.ends_with("}}\n"), "{json}");
    assert_eq!(Stub::parse(json.as_bytes()), Ok(stub.clone()));
    assert_eq!(Payload::parse(json.as_bytes()), Ok(Payload::Stub(stub)));
}

#[test]
fn a_payload_is_told_by_its_kind() {
    let json = bundle().to_json();
    assert_eq!(Payload::parse(json.as_bytes()), Ok(Payload::Bundle(Box::new(bundle()))));
    for (text, is_bundle_error) in [
        ("", true),
        ("{}", true),
        (r#"{"apiVersion":"nodestrap.io/v1alpha2","kind":"Cluster"}"#, true),
        (r#"{"apiVersion":"nodestrap.io/v1alpha2","kind":"BundleReference"}"#, false),
        (r#"{"apiVersion":"nodestrap.io/v1alpha1","kind":"BundleReference","urls":[]}"#, false),
        (r#"{"apiVersion":"nodestrap.io/v2","kind":"BundleReference"}"#, false),
    ] {
        let error = Payload::parse(text.as_bytes()).expect_err("neither");
        assert_eq!(matches!(error, PayloadError::Bundle(_)), is_bundle_error, "{text}: {error}");
    }
}

#[test]
fn only_the_named_bundle_is_accepted() {
    let stub = stub();
    assert_eq!(stub.accept(bundle().to_json().as_bytes()), Ok(bundle()));
    let error = stub.accept(other_bundle().to_json().as_bytes()).expect_err("another bundle");
    assert!(matches!(error, StubError::OtherBundle { .. }), "{error}");
    let mut damaged = bundle().to_json().into_bytes();
    damaged.truncate(damaged.len() / 2);
    assert!(matches!(stub.accept(&damaged), Err(StubError::Bundle { .. })));
}

#[test]
fn addresses_that_do_not_last_or_tell_secrets_are_refused() {
    for url in [
        "",
        "ftp://a/b",
        "https://",
        "https:///x",
        "https://user:password@a/b",
        "https://a/b?X-Amz-Signature=1",
        "https://a/b#c",
        "https://a/ b",
        "https://a/b\n",
        "https://a/\u{e9}",
        "file:///etc/shadow",
    ] {
        let error = changed(|document| document["reference"]["urls"][0] = url.into());
        assert!(matches!(error, StubError::Field { field: "urls", .. }), "{url}: {error}");
        assert!(!error.to_string().contains("password"));
    }
    let error = changed(|document| document["reference"]["urls"] = serde_json::json!([]));
    assert!(matches!(error, StubError::Field { field: "urls", .. }));
    let error = changed(|document| document["reference"]["urls"] = vec!["https://a/b"; 17].into());
    assert!(matches!(error, StubError::Field { field: "urls", .. }));
    let error = changed(|document| document["reference"]["urls"][0] = format!("https://a/{}", "x".repeat(3000)).into());
    assert!(matches!(error, StubError::Field { field: "urls", .. }));
}

#[test]
fn a_stub_that_leads_into_a_bucket_says_where_that_is_and_tells_nobody_its_key() {
    let stores = ["s3://nodes/bundles".to_owned(), "https://one.example".to_owned()];
    let key = S3Credentials::Key {
        access_key: "AK".to_owned(),
        secret_key: Secret::new("canary"),
        session_token: Some(Secret::new("canary-token")),
    };
    for credentials in [S3Credentials::InstanceRole {}, key] {
        let stub = Stub::new(&bundle(), &stores, None, Some(&s3(credentials))).expect("a good stub");
        assert_eq!(stub.urls[0], format!("s3://nodes/bundles/{}.json", bundle().digest().hex()));
        assert_eq!(Stub::parse(stub.to_json().as_bytes()), Ok(stub.clone()));
        assert!(!format!("{stub:?}").contains("canary"), "{stub:?}");
    }
    let error = Stub::new(&bundle(), &stores, None, None).expect_err("nothing says where the bucket is");
    assert!(matches!(error, StubError::Field { field: "urls", .. }), "{error}");

    let within = |change: &dyn Fn(&mut serde_json::Value)| {
        changed(|document| {
            document["reference"]["s3"] = serde_json::json!({"region": "r", "credentials": {"kind": "instance-role"}});
            change(&mut document["reference"]);
        })
    };
    for url in
        ["s3://", "s3://nodes", "s3://nodes/", "s3:///key", "s3://a:b@nodes/key", "s3://nodes/a b", "s3://nodes/a?b"]
    {
        let error = within(&|reference| reference["urls"][0] = url.into());
        assert!(matches!(error, StubError::Field { field: "urls", .. }), "{url}: {error}");
    }
    let error = within(&|reference| reference["s3"]["endpoint"] = "ftp://s3.example".into());
    assert!(matches!(error, StubError::Field { field: "s3.endpoint", .. }), "{error}");
    let error = within(&|reference| reference["s3"]["credentials"] = serde_json::json!({"kind": "anybody"}));
    assert!(matches!(error, StubError::Syntax { .. }), "{error}");
}

#[test]
fn fields_are_checked() {
    for digest in ["", "sha256:", "sha256:abc", &"a".repeat(64), &format!("sha256:{}", "A".repeat(64))] {
        let error = changed(|document| document["reference"]["digest"] = (*digest).into());
        assert!(matches!(error, StubError::Syntax { .. }), "{digest}: {error}");
    }
    assert!(matches!(changed(|document| document["surprise"] = 1.into()), StubError::Syntax { .. }));
    assert!(matches!(changed(|document| document["reference"]["surprise"] = 1.into()), StubError::Syntax { .. }));
    assert!(matches!(changed(|document| document["kind"] = "Bundle".into()), StubError::Kind { .. }));
    for (field, value) in [("cluster", ""), ("group", "a\nb"), ("certificateAuthorities", "no certificate")] {
        let error = changed(|document| document["reference"][field] = value.into());
        assert!(matches!(error, StubError::Field { field: found, .. } if found == field), "{error}");
    }
    let long = " ".repeat(MAX_STUB_BYTES) + &stub().to_json();
    assert!(matches!(Stub::parse(long.as_bytes()), Err(StubError::TooLarge { .. })));
}

#[test]
fn a_stub_of_another_version_is_named_as_such_whatever_it_looks_like() {
    for version in ["nodestrap.io/v1alpha1", "nodestrap.io/v1", "v1"] {
        for text in [
            format!(r#"{{"apiVersion":"{version}","kind":"BundleReference","urls":["https://a/b"],"digest":"x"}}"#),
            stub().to_json().replace("nodestrap.io/v1alpha2", version),
        ] {
            assert_eq!(
                Stub::parse(text.as_bytes()),
                Err(StubError::ApiVersion { found: version.to_owned() }),
                "{text}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Stub::parse(&bytes);
        let _ = Payload::parse(&bytes);
    }

    #[test]
    fn any_changed_byte_of_a_stub_is_refused_or_gives_a_valid_stub(position in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = stub().to_json().into_bytes();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(read) = Stub::parse(&bytes) {
            prop_assert_eq!(Stub::parse(read.to_json().as_bytes()), Ok(read));
        }
    }
}
