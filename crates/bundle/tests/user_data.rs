//! Reading user data: whatever it is, it gives the bundle that it carries or the reason why there is none.

mod sample;

use bundle::{
    BUNDLE_PATH, BUNDLE_TYPE, INSTALL_TYPE, MAX_USER_DATA_BYTES, Payload, PayloadError, Stub, UserDataError,
    read_additional_parts, read_user_data,
};
use data_encoding::BASE64;
use proptest::prelude::*;
use sample::sample as bundle;

fn payload() -> Payload {
    Payload::Bundle(Box::new(bundle()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn cloud_config(encoding: &str, content: &str) -> String {
    format!("#cloud-config\nwrite_files:\n- {{path: {BUNDLE_PATH}, encoding: {encoding}, content: \"{content}\"}}\n")
}

fn ignition(source: &str, compression: &str) -> String {
    let contents = format!(r#"{{"source":"{source}"{compression}}}"#);
    format!(
        r#"{{"ignition":{{"version":"3.4.0"}},"storage":{{"files":[{{"path":"{BUNDLE_PATH}","contents":{contents}}}]}}}}"#
    )
}

fn message(parts: &[(&str, &str, &str)]) -> String {
    let part = |(headers, encoding, body): &(&str, &str, &str)| {
        format!("--b\nContent-Type: {headers}\nContent-Transfer-Encoding: {encoding}\n\n{body}\n")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n{parts}--b--\n")
}

#[test]
fn a_bundle_by_itself_and_a_stub_by_itself_are_read() {
    assert_eq!(read_user_data(bundle().to_json().as_bytes()), Ok(payload()));
    let stub = Stub::new(&bundle(), &["https://store.example/bundles".to_owned()], None, None).unwrap();
    assert_eq!(read_user_data(stub.to_json().as_bytes()), Ok(Payload::Stub(stub)));
}

#[test]
fn every_way_to_write_it_down_is_read() {
    let json = bundle().to_json();
    let (plain, packed) = (BASE64.encode(json.as_bytes()), BASE64.encode(&gzip(json.as_bytes())));
    for text in [
        cloud_config("gz+b64", &packed),
        cloud_config("gzip+base64", &packed),
        cloud_config("b64", &plain),
        cloud_config("text/plain", serde_json::to_string(&json).unwrap().trim_matches('"')),
        ignition(&format!("data:;base64,{plain}"), ""),
        ignition(&format!("data:;base64,{packed}"), r#","compression":"gzip""#),
        message(&[(BUNDLE_TYPE, "base64", &packed)]),
        message(&[(BUNDLE_TYPE, "8bit", &json)]),
        message(&[("text/cloud-config", "7bit", &cloud_config("gz+b64", &packed))]),
    ] {
        assert_eq!(read_user_data(text.as_bytes()), Ok(payload()), "{text}");
        assert_eq!(read_user_data(&gzip(text.as_bytes())), Ok(payload()), "{text}");
    }
}

#[test]
fn what_carries_no_bundle_of_ours_is_refused_with_the_reason() {
    let packed = BASE64.encode(&gzip(bundle().to_json().as_bytes()));
    let once = message(&[(BUNDLE_TYPE, "base64", &packed)]);
    let content = |problem| UserDataError::Content { problem };
    for (bytes, expected) in [
        (gzip(&gzip(once.as_bytes())), UserDataError::Format { what: "gzip within gzip" }),
        (vec![0xff, 0xfe], UserDataError::Format { what: "not text in UTF-8" }),
        (message(&[(BUNDLE_TYPE, "base64", packed.as_str()); 2]).into_bytes(), UserDataError::TwoBundles),
        (message(&[(INSTALL_TYPE, "7bit", "{}")]).into_bytes(), UserDataError::NoBundle),
        (
            message(&[(BUNDLE_TYPE, "quoted-printable", "x")]).into_bytes(),
            content("its transfer encoding is not known"),
        ),
        (cloud_config("uuencode", "x").into_bytes(), content("its encoding is not known")),
        (cloud_config("gz+b64", "eA==").into_bytes(), content("its gzip is cut short or damaged")),
        (cloud_config("b64", "?").into_bytes(), content("it is not base64")),
        (ignition("data:,x", "").into_bytes(), content("its data URL is not in base64")),
        (ignition("data:;base64,eA==", r#","compression":"xz""#).into_bytes(), content("its compression is not known")),
        (
            br#"{"ignition":{"version":"4.0.0"}}"#.to_vec(),
            UserDataError::Syntax { format: "Ignition config", problem: "its version is neither 2.x nor 3.x" },
        ),
    ] {
        assert_eq!(read_user_data(&bytes), Err(expected), "{}", String::from_utf8_lossy(&bytes));
    }
    let older = read_user_data(br#"{"apiVersion":"nodestrap.io/v1alpha1","kind":"Bundle"}"#).unwrap_err();
    assert!(matches!(older, UserDataError::Payload(PayloadError::Bundle(_))), "{older}");
    assert!(older.to_string().starts_with("the bundle is of an older nodestrap"), "{older}");
}

#[test]
fn parts_that_are_not_ours_are_given_with_their_names() {
    let packed = BASE64.encode(&gzip(bundle().to_json().as_bytes()));
    let text = message(&[
        ("text/part-handler", "7bit", "x"),
        (INSTALL_TYPE, "7bit", "{}"),
        (BUNDLE_TYPE, "base64", &packed),
        ("Text/X-Shellscript\nContent-Disposition: attachment; filename=\"a.sh\"", "base64", "IyEvYmluL3NoCg=="),
        ("text/plain; charset=utf-8", "8bit", "é"),
    ]);
    let parts = read_additional_parts(text.as_bytes()).unwrap();
    let found: Vec<_> =
        parts.iter().map(|part| (part.name.as_str(), part.content_type.as_str(), &part.content[..])).collect();
    assert_eq!(found, [("a.sh", "text/x-shellscript", &b"#!/bin/sh\n"[..]), ("[1]", "text/plain", "é".as_bytes())]);
    assert_eq!(read_additional_parts(b"#cloud-config\n{}\n"), Some(Vec::new()));
    assert_eq!(read_additional_parts(ignition("data:;base64,", "").as_bytes()), None);
    assert_eq!(read_additional_parts(b""), None);
}

#[test]
fn a_text_that_grows_when_it_is_read_is_stopped() {
    let bomb = "#cloud-config\na: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nwrite_files: [*b,*b,*b,*b]\n";
    assert!(matches!(read_user_data(bomb.as_bytes()), Err(UserDataError::Syntax { .. })));
    let deep = format!("#cloud-config\na: {}{}\n", "[".repeat(5000), "]".repeat(5000));
    assert!(matches!(read_user_data(deep.as_bytes()), Err(UserDataError::Syntax { .. })));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    assert!(matches!(read_user_data(deep.as_bytes()), Err(UserDataError::Syntax { .. })));
    assert_eq!(read_user_data(&vec![b' '; MAX_USER_DATA_BYTES + 1]), Err(UserDataError::TooLarge));
    assert_eq!(read_user_data(&gzip(&vec![b' '; 8 << 20])), Err(UserDataError::TooLarge));
    let text = cloud_config("gz+b64", &BASE64.encode(&gzip(&vec![b' '; 2 << 20])));
    assert_eq!(
        read_user_data(text.as_bytes()),
        Err(UserDataError::Content { problem: "it is larger than a bundle may be" })
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_user_data(&bytes);
    }

    #[test]
    fn no_text_that_starts_well_makes_the_reader_panic(start in 0..5usize, tail in "[\\[\\]{}:,\"a-z0-9 .\\\\=\n-]{0,200}") {
        let starts = ["#cloud-config\n", "MIME-Version: 1.0\n", "Content-Type: multipart/mixed; boundary=a\n\n--a\n", "{\"ignition\":{\"version\":\"3.0\"},", "{"];
        let _ = read_user_data(format!("{}{tail}", starts[start]).as_bytes());
    }
}
