//! What each target starts from: the specs of this repository, the good and the bad, and all that is rendered from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bundle::render_gate;
use render::delivery::Format;
use render::{GroupDelivery, render_group};
use spec::{Source, complete_before_pki, parse};
use trust::{Architecture, Artefact, Form, Manifest, Role, Timestamp};

use super::keys::{VARIANTS, keyring_and_signature};
use super::{AUTHORITY, SIGNED};

/// By target.
pub type Seeds = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// The same in every run.
pub fn seeds(repository: &Path) -> Seeds {
    let mut seeds = Seeds::new();
    let mut add = |target: &'static str, seed: Vec<u8>| seeds.entry(target).or_default().push(seed);
    let cases = files_of(&repository.join("crates/render/tests/golden"), "spec.yaml");
    for spec in files_of(&repository.join("examples"), ".yaml").into_iter().chain(cases) {
        render_all(&spec, &mut add);
        add("spec_text", spec);
    }
    for class in files_of(&repository.join("crates/spec/tests/mistakes"), ".txt") {
        for spec in bad_specs(&String::from_utf8_lossy(&class)) {
            add("spec_text", spec.as_bytes().to_vec());
        }
    }
    for unit in files_of(&repository.join("dist/systemd"), "") {
        add("node_files", unit);
    }
    add("node_files", Vec::new());
    for seed in 0..8 {
        for variant in VARIANTS {
            let (keyring, signature) = keyring_and_signature(seed, variant, SIGNED);
            let length = u16::try_from(keyring.len()).expect("a small keyring").to_be_bytes();
            add("signature", [&length[..], &keyring, &signature].concat());
        }
    }
    for number in 0..64 {
        add("manifest", manifest(number).to_json().into_bytes());
    }
    for kind in [".json", ".yaml", ".env", "input.txt"] {
        for input in files_of(&repository.join("crates/bundle/tests/torcx"), kind) {
            add("torcx", input);
        }
    }
    for archive in archives() {
        add("tar", archive);
    }
    seeds
}

/// Artefacts for some systems and roles, others for all, by the bits of a number.
fn manifest(number: u64) -> Manifest {
    let at = |day: u64| Timestamp::from_seconds(1_700_000_000 + day * 86_400);
    let artefact = |index: u64| {
        let name = ["containerd", "kubelet", "runc"][index as usize % 3];
        let is_set = |bit: u64| ((number >> bit) + index) & 1 == 1;
        let form = if is_set(0) { Form::Program } else { Form::TarGz };
        let digest =
            if is_set(1) { format!("sha256:{}", "5a".repeat(32)) } else { format!("sha512:{}", "a5".repeat(64)) };
        let os: &[&str] = if is_set(2) { &["debian", "ubuntu"] } else { &[] };
        let place = if is_set(5) { format!("https://mirror.example/{name}") } else { format!("{name}/{index}/file") };
        Artefact {
            name: name.parse().expect("a name"),
            version: format!("1.{index}.{number}").parse().expect("a version"),
            architecture: if is_set(3) { Architecture::Amd64 } else { Architecture::Arm64 },
            os: os.iter().map(|os| os.parse().expect("an operating system")).collect(),
            role: is_set(4).then_some(Role::Worker),
            form,
            size: 1 << index,
            digest: digest.parse().expect("a digest"),
            programs: vec![name.parse().expect("a program")],
            extension: None,
            places: vec![place.parse().expect("a place")],
        }
    };
    Manifest::new(number, at(number), at(number + 30), (0..number % 5).map(artefact).collect()).expect("a manifest")
}

/// Every kind of entry with every kind of name, behind each thing that can stand before an entry.
fn archives() -> Vec<Vec<u8>> {
    let records = b"15 path=a/long\n12 size=0000\n30 SCHILY.xattr.user.x=nothing\n";
    let before = [
        Vec::new(),
        [entry(b'5', "a/", "", b""), entry(b'0', "a/f", "", &[b'x'; 600]), entry(b'2', "a/l", "../b", b"")].concat(),
        entry(b'x', "x", "", records),
        [entry(b'L', "././@LongLink", "", b"a/very/long/name\0"), entry(b'K', "k", "", b"../target\0")].concat(),
        entry(b'g', "g", "", b"13 comment=ab\n"),
    ];
    let mut archives = Vec::new();
    for before in &before {
        for kind in *b"0125367LKxgS" {
            for (name, link) in [("a/b", "a/f"), ("./a/l/x", "../../b"), ("../up", "l/../..")] {
                archives.push([before, &entry(kind, name, link, b""), &[0; 1024][..]].concat());
            }
        }
    }
    archives
}

fn entry(kind: u8, name: &str, link: &str, body: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    let size = format!("{:011o}", body.len());
    let fields = [(0, name.as_bytes()), (100, b"0000755"), (124, size.as_bytes()), (157, link.as_bytes())];
    for (at, field) in fields.into_iter().chain([(156, &[kind][..]), (257, b"ustar\x0000")]) {
        block[at..at + field.len()].copy_from_slice(field);
    }
    block.extend_from_slice(body);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Every group as a bundle, as user data and as files of a node.
fn render_all(spec: &[u8], add: &mut impl FnMut(&'static str, Vec<u8>)) {
    let source = Source::new("seed.yaml", String::from_utf8_lossy(spec));
    // Keys are not looked at: their names will do, and are the same in every run.
    let resolved = parse(&[source]).resolve(|reference| match Path::new(&reference.path).extension() {
        Some(extension) if extension == "crt" => Ok(AUTHORITY.to_vec()),
        _ => Ok(reference.path.clone().into_bytes()),
    });
    let Ok(complete) = resolved.and_then(|spec| complete_before_pki(&spec)) else { return };
    for group in &complete.groups {
        let Ok(group) = render_group(&complete, group.name.value.as_str()) else { continue };
        add("bundle", group.bundle.to_json().into_bytes());
        for user_data in user_data(&group) {
            add("user_data", user_data);
        }
        add("node_files", render_gate(&group.bundle.gate.environment));
        for file in &group.bundle.files {
            if [".service", ".path", ".env", "network.json"].iter().any(|end| file.path.ends_with(end)) {
                add("node_files", file.content.to_vec());
            }
        }
    }
}

/// In every format that the group can be delivered in.
fn user_data(group: &GroupDelivery<'_>) -> Vec<Vec<u8>> {
    let formats = [Format::CloudConfig, Format::Mime, Format::Ignition3, Format::Ignition2];
    formats.into_iter().filter_map(|format| Some(group.user_data(format).ok()?.bytes)).collect()
}

/// The specs of a file of `crates/spec/tests/mistakes`, without what they give.
fn bad_specs(class: &str) -> impl Iterator<Item = &str> {
    let sections = class.split("==== ").filter_map(|section| section.split_once('\n'));
    sections.filter(|(name, _)| *name != "gives").map(|(_, text)| text)
}

/// The contents of the files below a folder whose names end so, in the order of their paths.
fn files_of(folder: &Path, end: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(files_of(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
    }
    found
}
