//! Whatever reads what others wrote, with anything: it may refuse, but never panic, and what it takes must survive the way
//! back. `fuzz_targets/` give these to libFuzzer; `crates/cli/tests/fuzz.rs` runs them in every test, so that they cannot rot.

pub mod keys;
pub mod seeds;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use bundle::{Bundle, NetworkSettings, Payload, Stub, Webhook, check_gate, diff_bundles, read_user_data};
use fetch::unpack::{EntryKind, Form, Limits, Listing, unpack};
use flate2::Compression;
use flate2::write::GzEncoder;
use host::disk::{Disk, Kind};
use host::fake::FakeDisk;
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

/// What others write for torcx, of every format: what is taken survives the way back.
pub fn torcx(data: &[u8]) {
    use bundle::torcx::{
        ImageManifest, KubeletEnv, PackageList, Profile, ProfileName, RuntimeMappings, Seal, UrlTemplate,
    };
    if let Ok(list) = PackageList::parse(data) {
        let again = PackageList::parse(list.to_json().as_bytes()).expect("our own is read");
        assert_eq!(again.packages.len(), list.packages.len(), "the way back");
    }
    if let Ok(profile) = Profile::parse(data) {
        assert_eq!(Profile::parse(profile.to_json().as_bytes()).as_ref(), Ok(&profile), "the way back");
    }
    if let Ok(manifest) = ImageManifest::parse(data) {
        assert_eq!(ImageManifest::parse(manifest.to_json().as_bytes()).as_ref(), Ok(&manifest), "the way back");
    }
    let text = String::from_utf8_lossy(data);
    if let Ok(mappings) = RuntimeMappings::parse(&text) {
        assert_eq!(RuntimeMappings::parse(&mappings.to_yaml()).as_ref(), Ok(&mappings), "the way back");
    }
    let _ = (KubeletEnv::parse(&text).map(|seed| seed.version()), ProfileName::parse_next(&text));
    let _ = (Seal::parse(&text), UrlTemplate::parse(&text));
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

const BLOCK: usize = 512;

/// An archive, before it is compressed: whatever it says, nothing leaves the folder, and no link in it leads out.
pub fn tar(data: &[u8]) {
    let mut bytes = data.to_vec();
    bytes.chunks_exact_mut(BLOCK).filter(|block| block[257..262] == *b"ustar").for_each(mend_checksum);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    let written = encoder.write_all(&bytes);
    let packed = written.and_then(|()| encoder.finish()).expect("memory takes anything");
    let (disk, folder) = (FakeDisk::new(), Path::new("/in"));
    disk.make_folder(folder, 0o755).expect("an empty disk takes a folder");
    let entered = disk.enter(folder).expect("it was made just now");
    let limits = Limits { total: 1 << 22, ..Limits::USUAL };
    let outcome = unpack(&mut packed.as_slice(), Form::TarGz, &*entered, &limits);
    let outside = disk.paths().into_iter().find(|path| !path.starts_with(folder) && !path.starts_with("/run"));
    assert_eq!(outside, None, "it left the folder");
    match outcome {
        Ok(listing) => {
            assert_eq!(
                listing.compare(&disk, folder).expect("the disk is well"),
                [],
                "it is not what it was said to be"
            );
            assert_links_stay_inside(&disk, folder, &listing);
        }
        Err(error) => assert!(!error.to_string().is_empty(), "refused without a reason"),
    }
}

/// A wrong checksum is refused at once, and nothing behind it is tried.
fn mend_checksum(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn assert_links_stay_inside(disk: &FakeDisk, folder: &Path, listing: &Listing) {
    for entry in &listing.entries {
        let EntryKind::Link { .. } = &entry.kind else { continue };
        let mut at = PathBuf::from(folder);
        let mut todo: Vec<String> = names_of(&entry.path);
        for _ in 0..1000 {
            let Some(name) = todo.pop() else { break };
            match name.as_str() {
                ".." => drop(at.pop()),
                name => at.push(name),
            }
            assert!(at.starts_with(folder), "the link {:?} leads out, to {at:?}", entry.path);
            if let Ok(Some(stat)) = disk.stat(&at)
                && let Kind::Link { target } = stat.kind
            {
                at.pop();
                todo.extend(names_of(&target));
            }
        }
    }
}

/// The first one last.
fn names_of(path: &str) -> Vec<String> {
    path.split('/').filter(|name| !matches!(*name, "" | ".")).rev().map(str::to_owned).collect()
}
