//! Programs of a bundle; for the bytes that its artefacts are, see [`super::artefact`].

use std::collections::BTreeMap;

use bundle::{
    Artefact, ArtefactDigest, ArtefactForm, Bundle, Component, Downloads, Provenance, Readers, RelativePath, S3,
    S3Credentials, Secret, Tree, sha256_hex,
};

use super::artefact::bytes_of;
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
    let mut tree = tree_of(component, version, build, random.pick(&["/usr/local/bin", "/opt/programs/bin"]));
    tree.artefact.places.extend(random.maybe(|_| "s3://bucket/else".to_owned()));
    if random.below(4) == 0 {
        tree.links.pop_last();
    }
    tree
}

/// With links in this folder, unless its place is a shared one.
pub(crate) fn tree_of(component: Component, version: &str, build: &str, folder: &str) -> Tree {
    let form = match component {
        Component::Containerd | Component::CniPlugins => ArtefactForm::TarGz,
        _ => ArtefactForm::Program,
    };
    let place = format!("https://one.example/{component}/{version}/{build}/{form}");
    let bytes = bytes_of(&place);
    Tree {
        component,
        version: version.to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(&bytes))).expect("a digest of the generator"),
            size: bytes.len() as u64,
            form,
            places: vec![place],
        },
        links: links(component, folder),
        read_by: Readers::default(),
    }
}

fn links(component: Component, folder: &str) -> BTreeMap<bundle::AbsolutePath, RelativePath> {
    let within = |text: &str| RelativePath::new(text).expect("a path of the generator");
    match component {
        Component::Containerd => ["containerd", "ctr"]
            .into_iter()
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
