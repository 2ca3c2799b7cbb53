//! Whatever reads what others wrote, with anything: it may refuse, but never panic, and what it takes must survive the way
//! back. `fuzz_targets/` give these to libFuzzer; `crates/cli/tests/fuzz.rs` runs them in every test, so that they cannot rot.

pub mod keys;
pub mod seeds;

use std::path::Path;

use bundle::{Bundle, NetworkSettings, Payload, Stub, Webhook, check_gate, diff_bundles, read_user_data};
use render::render_group;
use spec::{Colour, CompleteSpec, FileReference, Mistake, SecretDisplay, Source, complete, parse, render_mistakes};
use trust::openpgp::{Keyring, verify_detached};
use trust::{Architecture, Manifest, Policy, Role, Unsigned, verify_manifest};

const AUTHORITY: &[u8] = include_bytes!("../../examples/ca.crt");

/// A spec: all mistakes, or a complete spec that completes to itself and whose groups can be rendered and read back.
pub fn spec_text(data: &[u8]) {
    let source = match Source::from_bytes("fuzz.yaml", data.to_vec()) {
        Ok(source) => source,
        Err(mistake) => return explained(&[mistake]),
    };
    let complete = match completed(source) {
        Ok(complete) => complete,
        Err(mistakes) => return explained(&mistakes),
    };
    let printed = complete.to_yaml(SecretDisplay::Shown);
    match completed(Source::new("again.yaml", printed.as_str())) {
        Ok(again) => assert_eq!(again.to_yaml(SecretDisplay::Shown), printed, "completing again changes it"),
        Err(mistakes) => panic!("what was completed is refused:\n{}", render_mistakes(&mistakes, Colour::Plain)),
    }
    for group in &complete.groups {
        rendered(&complete, group.name.value.as_str());
    }
}

fn completed(source: Source) -> Result<CompleteSpec, Vec<Mistake>> {
    parse(&[source]).resolve(file).and_then(|spec| complete(&spec))
}

/// Files that a spec may name: a certificate, and what there is not.
fn file(reference: &FileReference) -> Result<Vec<u8>, String> {
    match Path::new(&reference.path).extension() {
        Some(extension) if extension == "crt" => Ok(AUTHORITY.to_vec()),
        _ => Err("there is no such file".to_owned()),
    }
}

fn explained(mistakes: &[Mistake]) {
    assert!(!mistakes.is_empty(), "refused without a reason");
    for colour in [Colour::Plain, Colour::Ansi] {
        assert!(!render_mistakes(mistakes, colour).is_empty());
    }
}

fn rendered(spec: &CompleteSpec, group: &str) {
    let Ok(group) = render_group(spec, group) else { return };
    assert_eq!(Bundle::parse(group.bundle.to_json().as_bytes()).as_ref(), Ok(&group.bundle), "the way back");
    let Some(Ok(delivered)) = group.format().map(|format| group.user_data(format)) else { return };
    match read_user_data(&delivered.bytes) {
        Ok(Payload::Bundle(bundle)) => assert_eq!(*bundle, group.bundle, "the way back"),
        Ok(Payload::Stub(_)) => {}
        Err(error) => panic!("our own user data is refused: {error}"),
    }
}

/// What a metadata service says.
pub fn user_data(data: &[u8]) {
    if let Ok(payload) = read_user_data(data) {
        survives(&payload);
    }
}

/// What lies where a delivery puts a bundle.
pub fn bundle(data: &[u8]) {
    let _ = Bundle::parse(data);
    let _ = Stub::parse(data);
    if let Ok(payload) = Payload::parse(data) {
        survives(&payload);
    }
}

fn survives(payload: &Payload) {
    match payload {
        Payload::Bundle(bundle) => {
            assert_eq!(Bundle::parse(bundle.to_json().as_bytes()).as_ref(), Ok(&**bundle));
            assert!(diff_bundles(bundle, bundle).is_empty(), "it differs from itself");
        }
        Payload::Stub(stub) => assert_eq!(Stub::parse(stub.to_json().as_bytes()).as_ref(), Ok(stub)),
    }
}

/// Small files on a node: the gate, settings of the network and the webhook, unit files, os-release.
pub fn node_files(data: &[u8]) {
    let _ = check_gate(data);
    let _ = NetworkSettings::parse(data);
    let _ = Webhook::parse(data);
    let text = String::from_utf8_lossy(data);
    let _ = host::units::unit_file::parse_install(&text);
    let _ = host::machine::parse_os_release(&text);
}

/// What a store says that it has.
pub fn manifest(data: &[u8]) {
    let policy = Policy { now: None, minimum_serial: 0, unsigned: Unsigned::Allowed };
    let Ok(verified) = verify_manifest(data, None, &[], policy) else { return };
    let manifest = verified.manifest;
    assert_eq!(Manifest::parse(manifest.to_json().as_bytes()).as_ref(), Ok(&manifest), "the way back");
    for artefact in manifest.artefacts() {
        let os = artefact.os.first().map_or("any", |os| os.as_str());
        let role = artefact.role.unwrap_or(Role::Worker);
        let (name, version) = (artefact.name.as_str(), artefact.version.as_str());
        assert_eq!(
            manifest.find(name, version, os, artefact.architecture, role),
            Ok(artefact),
            "what is there is found"
        );
        let other =
            if artefact.architecture == Architecture::Amd64 { Architecture::Arm64 } else { Architecture::Amd64 };
        let _ = manifest.find(name, version, os, other, role).map_err(|missing| missing.to_string());
    }
}

/// What the signatures of the seeds are of.
pub const SIGNED: &[u8] = b"what was signed";

/// A keyring after its length in two bytes, and a signature: it may be good, but only for what was signed.
pub fn signature(data: &[u8]) {
    let Some(([high, low], rest)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
    let (keyring, signature) = rest.split_at(length);
    let keyrings: Vec<Keyring> = match Keyring::parse(keyring) {
        Ok(keyring) => vec![keyring],
        Err(error) => {
            assert!(!error.to_string().is_empty());
            vec![]
        }
    };
    match verify_detached(SIGNED, signature, &keyrings, None) {
        Ok(signer) => {
            assert!(!keyrings.is_empty(), "accepted by nobody: {signer:?}");
            assert!(verify_detached(b"something else", signature, &keyrings, None).is_err(), "{signer:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
