//! Programs of a bundle, and the bytes that its artefacts are: whoever plays their store has [`bytes_of`].

use std::collections::BTreeMap;

use bundle::{
    Artefact, ArtefactDigest, ArtefactForm, Bundle, Component, Downloads, Provenance, Readers, RelativePath, S3,
    S3Credentials, Secret, Tree, sha256_hex,
};

use super::{Random, path};

/// Where an ordinary file of some bundles lies, too: a place may change hands.
pub(crate) const SHARED_PLACE: &str = "/usr/local/bin/crictl";

pub(crate) fn trees(random: &mut Random) -> Vec<Tree> {
    // Half of the bundles count on their image alone.
    match random.coin() {
        true => random.some_of(Component::ALL).into_iter().map(|component| tree(random, component)).collect(),
        false => Vec::new(),
    }
}

pub(crate) fn tree(random: &mut Random, component: Component) -> Tree {
    let (version, build) = (random.pick(&["1.2.3", "1.2.4+k"]), random.pick(&["a", "b"]));
    let form = match component {
        Component::Containerd | Component::CniPlugins => ArtefactForm::TarGz,
        _ => ArtefactForm::Program,
    };
    let place = format!("https://one.example/{component}/{version}/{build}/{form}");
    let bytes = bytes_of(&place);
    let mut places = vec![place];
    places.extend(random.maybe(|_| "s3://bucket/else".to_owned()));
    Tree {
        component,
        version: version.to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(&bytes))).expect("a digest of the generator"),
            size: bytes.len() as u64,
            form,
            places,
        },
        links: links(random, component),
        read_by: Readers::default(),
    }
}

fn links(random: &mut Random, component: Component) -> BTreeMap<bundle::AbsolutePath, RelativePath> {
    let within = |text: &str| RelativePath::new(text).expect("a path of the generator");
    let folder = random.pick(&["/usr/local/bin", "/opt/programs/bin"]);
    match component {
        Component::Containerd => ["containerd", "ctr"]
            .into_iter()
            .filter(|_| random.below(4) > 0)
            .map(|name| (path(&format!("{folder}/{name}")), within(&format!("bin/{name}"))))
            .collect(),
        Component::CniPlugins => BTreeMap::new(),
        Component::Crictl => [(path(SHARED_PLACE), within("crictl"))].into(),
        _ => [(path(&format!("{folder}/{component}")), within(component.as_str()))].into(),
    }
}

pub(crate) fn downloads(random: &mut Random) -> Downloads {
    let key = S3Credentials::Key {
        access_key: "AKIA".to_owned(),
        secret_key: Secret::new("canary-key"),
        session_token: random.maybe(|_| Secret::new("canary-session")),
    };
    let credentials = if random.coin() { key } else { S3Credentials::InstanceRole {} };
    Downloads {
        provenance: match random.coin() {
            true => Provenance::Signed { by: "AB".repeat(20), serial: 7 },
            false => Provenance::Unsigned {},
        },
        certificate_authorities: random.maybe(|_| include_str!("../../../../examples/ca.crt").to_owned()),
        proxy: random.maybe(|_| Secret::new("http://canary:canary@proxy.example:3128")),
        no_proxy: random.some_of(&["10.0.0.0/8", ".example"]).into_iter().map(str::to_owned).collect(),
        s3: random.maybe(|random| S3 {
            region: random.pick(&["eu-west-1", "us-east-1"]).to_owned(),
            endpoint: random.maybe(|_| "https://s3.example".to_owned()),
            path_style: random.coin(),
            credentials,
        }),
    }
}

/// Only who is there runs programs, and a runtime from a tree is one.
pub(crate) fn settle(bundle: &mut Bundle, random: &mut Random) {
    bundle.trees.sort_by_key(|tree| tree.component);
    let has_runtime = bundle.trees.iter().any(|tree| tree.component.as_str() == bundle.runtime.name.as_str());
    if bundle.runtime.source == bundle::RuntimeSource::Tree && !has_runtime {
        bundle.runtime.source = bundle::RuntimeSource::Preinstalled;
    }
    let (kubelet, runtime) = (bundle.join.kubelet_unit.clone(), bundle.runtime.unit.clone());
    for tree in &mut bundle.trees {
        tree.read_by.units = match tree.component {
            Component::Kubelet => [kubelet.clone()].into(),
            Component::Containerd | Component::Runc | Component::CniPlugins => [runtime.clone()].into(),
            Component::Crictl | Component::Kubectl => Default::default(),
        };
        bundle.files.retain(|file| !tree.links.contains_key(&file.path));
    }
    match bundle.trees.is_empty() {
        true => bundle.downloads = None,
        false if bundle.downloads.is_none() => bundle.downloads = Some(downloads(random)),
        false => {}
    }
}

/// What lies at a place of the generator. Its name says all: the component, version, build and form.
pub(crate) fn bytes_of(place: &str) -> Vec<u8> {
    let program = |name: &str| format!("{name} of {place}\n").repeat(9).into_bytes();
    match place.ends_with("tar.gz") {
        true => {
            let names =
                if place.contains("/containerd/") { ["bin/containerd", "bin/ctr"] } else { ["bridge", "loopback"] };
            gzip(&archive(&names.map(|name| (name, program(name)))))
        }
        false => program("a program"),
    }
}

/// As tar writes it (ustar): one block of header each, contents in blocks of 512, two empty blocks at the end.
pub(crate) fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, b"0000755\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// As gzip writes what cannot be compressed.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks: Vec<&[u8]> = bytes.chunks(0xffff).collect();
    for (index, block) in blocks.iter().enumerate() {
        let length = u16::try_from(block.len()).expect("a chunk");
        out.push(u8::from(index + 1 == blocks.len()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(*block);
    }
    let mut sum = !0_u32;
    for byte in bytes {
        sum ^= u32::from(*byte);
        (0..8).for_each(|_| sum = if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 });
    }
    out.extend((!sum).to_le_bytes());
    out.extend(u32::try_from(bytes.len()).expect("small").to_le_bytes());
    out
}
