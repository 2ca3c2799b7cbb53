//! User data in every format: what it carries, how large it may be, and that it can be read back.

mod support;

use std::collections::BTreeMap;

use bundle::{
    AbsolutePath, Bundle, File, MAX_USER_DATA_BYTES, Payload, Stub, UserDataError, UserDataPart, read_user_data,
};
use proptest::prelude::*;
use render::delivery::{Carries, Compress, Delivery, Format, Installation, Provider, Proxy, Store};
use render::{RenderError, user_data};

const FORMATS: [Format; 4] = [Format::CloudConfig, Format::Mime, Format::Ignition3, Format::Ignition2];
const PROVIDERS: [Provider; 5] = [Provider::Aws, Provider::Gce, Provider::Azure, Provider::Openstack, Provider::Metal];

fn bundle() -> Bundle {
    support::cases::bundle("minimal")
}

/// A bundle with a file that deflate cannot make smaller.
fn large(bytes: usize) -> Bundle {
    let mut bundle = bundle();
    let mut state: u32 = 1;
    let content = (0..bytes).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    bundle.files.push(File::public(path("/opt/noise"), content.collect::<Vec<u8>>()));
    bundle
}

fn path(text: &str) -> AbsolutePath {
    AbsolutePath::new(text).expect("a path of this test")
}

fn download() -> Installation {
    Installation::Download {
        urls: vec!["https://one.example/nodestrap".to_owned(), "http://10.0.0.1/nodestrap".to_owned()],
        sha256: "ab".repeat(32),
        sha512: Some("cd".repeat(64)),
        proxy: Proxy::default(),
    }
}

fn store() -> Store {
    Store { urls: vec!["https://store.example/bundles".to_owned()], certificate_authorities: None, s3: None }
}

fn delivery<'a>(bundle: &'a Bundle, provider: Provider) -> Delivery<'a> {
    Delivery {
        bundle,
        installation: &Installation::InImage,
        nodestrap_path: "/usr/bin/nodestrap",
        additional: &[],
        store: None,
        provider,
        compress: Compress::WhereTaken,
    }
}

fn part(name: &str, content_type: &str, content: &[u8]) -> UserDataPart {
    UserDataPart { name: name.to_owned(), content_type: content_type.to_owned(), content: content.to_vec() }
}

fn payload(bundle: &Bundle) -> Payload {
    Payload::Bundle(Box::new(bundle.clone()))
}

#[test]
fn every_format_is_read_back_for_every_provider() {
    let (bundle, download) = (bundle(), download());
    for provider in PROVIDERS {
        for format in FORMATS {
            for installation in [&Installation::InImage, &download] {
                let delivery =
                    Delivery { installation, nodestrap_path: "/opt/bin/nodestrap", ..delivery(&bundle, provider) };
                let data = match user_data(format, &delivery) {
                    Err(RenderError::InstallationNeedsMime) => {
                        assert_eq!((format, installation), (Format::CloudConfig, &download));
                        continue;
                    }
                    other => other.unwrap(),
                };
                let again = user_data(format, &delivery).unwrap();
                assert_eq!(data, again);
                assert_eq!(data.carries, Carries::Bundle);
                assert_eq!(read_user_data(&data.bytes), Ok(payload(&bundle)), "{format:?} {provider}");
                assert_eq!(data.bytes.starts_with(&[0x1f, 0x8b]), provider.takes_gzip(format));
                assert!(!format!("{data:?}").contains("canary"));
            }
        }
    }
}

#[test]
fn too_much_for_the_provider_is_an_error_that_names_the_largest_parts() {
    let cases = [
        (Provider::Aws, 16_384, 20_000),
        (Provider::Openstack, 49_149, 60_000),
        (Provider::Azure, 65_535, 70_000),
        (Provider::Gce, 262_144, 300_000),
    ];
    for (provider, limit, noise) in cases {
        let bundle = large(noise);
        for format in FORMATS {
            let error = user_data(format, &delivery(&bundle, provider)).unwrap_err();
            let RenderError::UserDataTooLarge { limit: found, .. } = &error else { panic!("{error}") };
            assert_eq!(*found, limit);
            let text = error.to_string();
            let named = format!("'/opt/noise' with {noise} bytes");
            assert!(text.contains(&named) && text.contains("delivery.store"), "{text}");
        }
    }
    assert!(user_data(Format::Mime, &delivery(&large(500_000), Provider::Metal)).is_ok(), "metal has no limit");
}

#[test]
fn a_store_turns_what_is_too_large_into_a_stub() {
    let (bundle, store) = (large(20_000), store());
    for format in FORMATS {
        let delivery = Delivery { store: Some(&store), ..delivery(&bundle, Provider::Aws) };
        let data = user_data(format, &delivery).unwrap();
        let Carries::Stub(stub) = &data.carries else { panic!("{format:?} carries the bundle") };
        assert_eq!(stub.digest, bundle.digest());
        assert_eq!(stub.urls, [format!("https://store.example/bundles/{}", Stub::object_name(&bundle.digest()))]);
        assert!(data.bytes.len() < 6000, "{format:?}: {}", data.bytes.len());
        assert_eq!(read_user_data(&data.bytes), Ok(Payload::Stub(stub.clone())));
        assert_eq!(stub.accept(bundle.to_json().as_bytes()).as_ref(), Ok(&bundle));
    }
    // What fits needs no store.
    let small = self::bundle();
    let delivery = Delivery { store: Some(&store), ..delivery(&small, Provider::Aws) };
    assert_eq!(user_data(Format::Mime, &delivery).unwrap().carries, Carries::Bundle);
}

#[test]
fn additional_parts_that_are_too_large_are_not_the_stores_to_solve() {
    let (bundle, store) = (bundle(), store());
    let noise = large(20_000).files.pop().unwrap().content;
    let additional = [part("noise.bin", "application/octet-stream", &noise)];
    let delivery = Delivery { store: Some(&store), additional: &additional, ..delivery(&bundle, Provider::Aws) };
    let text = user_data(Format::Mime, &delivery).unwrap_err().to_string();
    assert!(text.contains("'noise.bin' with") && !text.contains("delivery.store"), "{text}");
}

#[test]
fn cloud_config_carries_one_document_only() {
    let bundle = bundle();
    let additional = [part("a.sh", "text/x-shellscript", b"#!/bin/sh\n")];
    let with_part = Delivery { additional: &additional, ..delivery(&bundle, Provider::Metal) };
    let text = user_data(Format::CloudConfig, &with_part).unwrap_err().to_string();
    assert!(text.contains("'a.sh'") && text.contains("mime"), "{text}");
}

#[test]
fn ignition_takes_ignition_configs_of_its_major_version_only() {
    let bundle = bundle();
    let content_type = "application/vnd.coreos.ignition+json";
    let config = |version: &str| format!(r#"{{"ignition":{{"version":"{version}"}}}}"#).into_bytes();
    for (format, version, key) in [
        (Format::Ignition3, "3.3.0", "/ignition/config/merge"),
        (Format::Ignition2, "2.2.0", "/ignition/config/append"),
    ] {
        let additional = [part("users.ign", content_type, &config(version))];
        let with_part = Delivery { additional: &additional, ..delivery(&bundle, Provider::Metal) };
        let data = user_data(format, &with_part).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&data.bytes).unwrap();
        assert_eq!(document.pointer(key).and_then(|list| list.as_array()).map(Vec::len), Some(1));
        for wrong in [
            part("a", content_type, &config("1.0.0")),
            part("a", content_type, b"{"),
            part("a", "text/x-shellscript", b"#!/bin/sh\n"),
        ] {
            let with_part = Delivery { additional: &[wrong], ..delivery(&bundle, Provider::Metal) };
            let error = user_data(format, &with_part).unwrap_err();
            assert!(matches!(error, RenderError::AdditionalPart { .. }), "{error}");
        }
    }
}

#[test]
fn ignition_verifies_the_binary_by_the_hash_that_its_version_knows() {
    let (bundle, download) = (bundle(), download());
    let delivery = Delivery {
        installation: &download,
        nodestrap_path: "/opt/bin/nodestrap",
        ..delivery(&bundle, Provider::Metal)
    };
    for (format, hash) in [
        (Format::Ignition3, format!("sha256-{}", "ab".repeat(32))),
        (Format::Ignition2, format!("sha512-{}", "cd".repeat(64))),
    ] {
        let data = user_data(format, &delivery).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&data.bytes).unwrap();
        let binary = &document["storage"]["files"][1];
        assert_eq!(binary["path"], "/opt/bin/nodestrap");
        assert_eq!(binary["mode"], 0o755);
        assert_eq!(binary["contents"]["source"], "https://one.example/nodestrap");
        assert_eq!(binary["contents"]["verification"]["hash"], hash.as_str());
        let unit = document["systemd"]["units"][0]["contents"].as_str().unwrap();
        assert!(unit.contains("ExecStartPre=/opt/bin/nodestrap apply\n"), "{unit}");
        // Ignition 2 refuses a compressed data URL at boot, where nobody sees the error.
        let compression = &document["storage"]["files"][0]["contents"]["compression"];
        assert_eq!(compression.as_str(), (format == Format::Ignition3).then_some("gzip"));
    }
    let only_sha256 = Installation::Download {
        urls: vec!["https://one.example/nodestrap".to_owned()],
        sha256: "ab".repeat(32),
        sha512: None,
        proxy: Proxy::default(),
    };
    let delivery = Delivery { installation: &only_sha256, ..delivery };
    assert!(matches!(user_data(Format::Ignition2, &delivery), Err(RenderError::Ignition2NeedsSha512)));
    assert!(user_data(Format::Ignition3, &delivery).is_ok());
}

#[test]
fn a_download_without_a_good_address_or_digest_is_refused() {
    let bundle = bundle();
    let good = "https://one.example/nodestrap";
    for (urls, sha256, sha512) in [
        (vec![], "ab".repeat(32), None),
        (vec!["ftp://a/b"], "ab".repeat(32), None),
        (vec!["https://user@a/b"], "ab".repeat(32), None),
        (vec![good], "AB".repeat(32), None),
        (vec![good], "ab".repeat(31), None),
        (vec![good], "ab".repeat(32), Some("cd".repeat(32))),
    ] {
        let urls = urls.into_iter().map(str::to_owned).collect();
        let installation = Installation::Download { urls, sha256, sha512, proxy: Proxy::default() };
        let delivery = Delivery { installation: &installation, ..delivery(&bundle, Provider::Metal) };
        let error = user_data(Format::Mime, &delivery).unwrap_err();
        assert!(matches!(error, RenderError::Download { .. }), "{installation:?}: {error}");
    }
}

#[test]
fn a_part_cannot_change_the_message_around_it() {
    let bundle = bundle();
    for wrong in [
        part("", "text/plain", b"x"),
        part("a\"; b", "text/plain", b"x"),
        part("a\nContent-Type: x/y", "text/plain", b"x"),
        part("a", "text", b"x"),
        part("a", "text/plain\nX: y", b"x"),
        part("a", "text/plain; charset=utf-8", b"x"),
        part("a", "multipart/mixed", b"x"),
        part("a", "application/vnd.nodestrap.bundle+json", b"x"),
        part("a", "Application/VND.nodestrap.install+json", b"x"),
        part("a", "text/plain", b""),
    ] {
        let with_part = Delivery { additional: std::slice::from_ref(&wrong), ..delivery(&bundle, Provider::Metal) };
        let error = user_data(Format::Mime, &with_part).unwrap_err();
        assert!(matches!(error, RenderError::AdditionalPart { .. }), "{wrong:?}: {error}");
    }
}

#[test]
fn parts_keep_their_order_behind_ours() {
    let (bundle, download) = (bundle(), download());
    let additional =
        [part("z.sh", "text/x-shellscript", b"#!/bin/sh\n"), part("a", "text/cloud-config", b"#cloud-config\n{}\n")];
    let delivery = Delivery { installation: &download, additional: &additional, ..delivery(&bundle, Provider::Metal) };
    let data = user_data(Format::Mime, &delivery).unwrap();
    let names: Vec<&str> = data.parts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["nodestrap.py", "nodestrap.json", "bundle.json", "z.sh", "a"]);
    let text = String::from_utf8(data.bytes).unwrap();
    assert!(text.is_ascii() && text.starts_with("MIME-Version: 1.0\n"), "cloud-init looks for it near the start");
    let types: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Content-Type: ")).skip(1).collect();
    assert_eq!(
        types,
        [
            "text/part-handler",
            "application/vnd.nodestrap.install+json",
            "application/vnd.nodestrap.bundle+json",
            "text/x-shellscript",
            "text/cloud-config"
        ]
    );
}

#[test]
fn user_data_that_is_damaged_or_not_ours_is_refused_with_the_reason() {
    let bundle = bundle();
    let gzip = user_data(Format::Mime, &delivery(&bundle, Provider::Aws)).unwrap().bytes;
    let ignition = user_data(Format::Ignition3, &delivery(&bundle, Provider::Aws)).unwrap().bytes;
    let ignition = String::from_utf8(ignition).unwrap();
    let cloud_config = render::cloud_config(&bundle).unwrap();
    let twice = cloud_config.clone() + cloud_config.split_once("write_files:\n").unwrap().1;
    for (bytes, expected) in [
        (Vec::new(), UserDataError::Empty),
        (b" \n".to_vec(), UserDataError::Empty),
        (vec![b' '; MAX_USER_DATA_BYTES + 1], UserDataError::TooLarge),
        (gzip[..gzip.len() / 2].to_vec(), UserDataError::Gzip),
        (b"#!/bin/sh\n".to_vec(), UserDataError::Format { what: "some other text" }),
        (
            format!("\u{feff}{cloud_config}").into_bytes(),
            UserDataError::Format { what: "text behind a byte order mark" },
        ),
        (b"#cloud-config\n{}\n".to_vec(), UserDataError::NoBundle),
        (twice.into_bytes(), UserDataError::TwoBundles),
        (br#"{"ignition":{"version":"3.4.0"}}"#.to_vec(), UserDataError::NoBundle),
        (
            ignition.replace("data:;base64,", "https://a/").into_bytes(),
            UserDataError::Content { problem: "its source is not a data URL" },
        ),
        (
            b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n".to_vec(),
            UserDataError::Syntax { format: "MIME message", problem: "it ends before its last boundary" },
        ),
        (
            b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nx\n--x--\n".to_vec(),
            UserDataError::NoBundle,
        ),
    ] {
        let start = String::from_utf8_lossy(&bytes).chars().take(60).collect::<String>();
        assert_eq!(read_user_data(&bytes), Err(expected), "{start}");
    }
}

#[test]
fn carriage_returns_and_a_foreign_writer_of_the_message_do_no_harm() {
    let bundle = bundle();
    let data = user_data(Format::Mime, &delivery(&bundle, Provider::Metal)).unwrap();
    let text = String::from_utf8(data.bytes).unwrap().replace('\n', "\r\n");
    assert_eq!(read_user_data(text.as_bytes()), Ok(payload(&bundle)));
    // A cloud-config within a message, as other tools put it, with a folded header.
    let cloud_config = render::cloud_config(&bundle).unwrap();
    let text = format!(
        "Content-Type: multipart/mixed;\n boundary=\"=====1==\"\nMIME-Version: 1.0\n\npreamble\n--=====1==\n\
         Content-Type: text/cloud-config; charset=\"us-ascii\"\n\n{cloud_config}\n--=====1==--\nepilogue\n"
    );
    assert_eq!(read_user_data(text.as_bytes()), Ok(payload(&bundle)));
}

fn bundles() -> impl Strategy<Value = Bundle> {
    let content = prop_oneof![proptest::collection::vec(any::<u8>(), 0..200), ".{0,100}".prop_map(String::into_bytes)];
    let files = proptest::collection::btree_map("[a-z0-9._-]{1,6}x", (content, any::<bool>()), 0..5);
    let environment = proptest::collection::btree_map("[A-Z][A-Z_]{0,4}", "[^\\p{Cc}]{0,12}", 0..4);
    ("[^\\p{Cc}]{1,12}", files, environment).prop_map(|(cluster, files, environment): (String, BTreeMap<_, _>, _)| {
        let mut bundle = Bundle { cluster, ..bundle() };
        bundle.files = files
            .into_iter()
            .map(|(name, (content, secret))| {
                let path = path(&format!("/opt/{name}"));
                if secret { File::secret(path, content) } else { File::public(path, content) }
            })
            .collect();
        // Their files are not among the random ones.
        bundle.units.iter_mut().for_each(|unit| unit.brought = None);
        bundle.gate.environment = environment;
        bundle
    })
}

proptest! {
    #[test]
    fn any_bundle_survives_every_format(bundle in bundles(), format in 0..4usize, provider in 0..5usize, content in proptest::collection::vec(any::<u8>(), 1..200)) {
        let (format, provider) = (FORMATS[format], PROVIDERS[provider]);
        let additional = [part("x", "application/octet-stream", &content), part("y", "text/x-shellscript", b"#!/bin/sh\n--boundary\n\n")];
        let additional = if format == Format::Mime { &additional[..] } else { &[] };
        let delivery = Delivery { additional, ..delivery(&bundle, provider) };
        let data = user_data(format, &delivery).unwrap();
        prop_assert_eq!(&data, &user_data(format, &delivery).unwrap());
        prop_assert_eq!(read_user_data(&data.bytes), Ok(payload(&bundle)));
    }

    #[test]
    fn any_damage_is_refused_or_harmless(format in 0..4usize, position in any::<prop::sample::Index>(), byte: u8) {
        let bundle = bundle();
        let mut bytes = user_data(FORMATS[format], &delivery(&bundle, Provider::Metal)).unwrap().bytes;
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(read) = read_user_data(&bytes) {
            prop_assert_eq!(read, payload(&bundle));
        }
    }
}
