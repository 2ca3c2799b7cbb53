//! Whether the manifest of artefacts may be used, and what it has for the nodes of a group.

use std::collections::BTreeMap;

use bundle::{ArtefactDigest, ArtefactForm, Component, InvalidName, Provenance, RelativePath, network};
use trust::openpgp::Keyring;
use trust::{Artefact, Form, Policy, TrustError, Unsigned, Verified, verify_manifest};

use super::os::Traits;
use super::{Check, default, or_default};
use crate::artefacts::{S3Credentials, SIGNATURE_SUFFIX, Serial};
use crate::complete::{ArtefactsSpec, CompleteArtefacts, CompleteCluster, CompleteGroup, CompleteS3, Pinned, S3Spec};
use crate::origin::{Origin, Setting};
use crate::syntax;
use crate::texts::{AbsolutePath, StoreUrl};
use crate::values::{Architecture, PodNetwork, Role};

pub(super) fn complete_artefacts(spec: &Setting<ArtefactsSpec>, check: &Check<'_>) -> CompleteArtefacts {
    let spec = &spec.value;
    let artefacts = CompleteArtefacts {
        store: spec.store.clone(),
        mirrors: or_default(&spec.mirrors, Vec::new, "there is one store"),
        manifest: spec.manifest.clone(),
        keyrings: or_default(&spec.keyrings, Vec::new, "nobody is believed"),
        unsigned: or_default(&spec.unsigned, || false, "somebody vouches for what nodes run"),
        minimum_serial: or_default(&spec.minimum_serial, || Serial(0), "the manifest is taken from beside the spec"),
        certificate_authority: spec.certificate_authority.clone(),
        s3: spec.s3.as_ref().map(|s3| complete_s3(&s3.value, check)),
    };
    check_stores(&artefacts, spec.s3.as_ref().map(|s3| &s3.origin), check);
    artefacts
}

pub(super) fn complete_s3(spec: &S3Spec, check: &Check<'_>) -> CompleteS3 {
    let credentials = or_default(&spec.credentials, || S3Credentials::InstanceRole, "no key lies on the nodes");
    if let Some(endpoint) = spec.endpoint.as_ref().filter(|url| syntax::is_read_on_the_way(url.value.as_str())) {
        let has_token = !matches!(&credentials.value, S3Credentials::Key { session_token: None, .. });
        match has_token {
            true => check.report(
                Some(&endpoint.origin),
                "the session token of the credentials would be sent in the clear",
                "write https://…",
            ),
            false => check.warn(
                Some(&endpoint.origin),
                "over plain http anybody on the way sees what nodes fetch",
                "write https://…",
            ),
        }
    }
    CompleteS3 {
        region: spec.region.clone(),
        endpoint: spec.endpoint.clone(),
        path_style: or_default(&spec.path_style, || false, "the bucket is in the name of the host, as AWS wants it"),
        credentials,
    }
}

fn check_stores(artefacts: &CompleteArtefacts, s3: Option<&Origin>, check: &Check<'_>) {
    let one = |store: &Setting<StoreUrl>| (store.value.clone(), store.origin.clone());
    let mirrors = artefacts.mirrors.value.iter().map(|mirror| (mirror.clone(), artefacts.mirrors.origin.clone()));
    let stores: Vec<(StoreUrl, Origin)> = std::iter::once(one(&artefacts.store)).chain(mirrors).collect();
    for (store, origin) in &stores {
        let url = store.as_str();
        if url.contains('?') {
            let message = "the address of a store cannot have a question mark: the names of artefacts come behind it";
            check.report(Some(origin), message, "write the address of the folder");
        } else if syntax::is_read_on_the_way(url) {
            check.warn(
                Some(origin),
                format!(
                    "over plain http anybody on the way sees what nodes fetch from \"{url}\", and can keep it from them"
                ),
                "write https://…; digests keep it from being changed",
            );
        }
        if store.is_bucket() && s3.is_none() {
            check.report(Some(origin), NO_S3, S3_SETTINGS);
        }
    }
    // Places of the manifest may be in buckets, too.
    if let Some(origin) = s3
        && !stores.iter().any(|(store, _)| store.is_bucket())
        && !artefacts.manifest.value.text().contains("s3://")
    {
        check.report(Some(origin), "nothing is in a bucket", "remove s3, or write store: s3://BUCKET/FOLDER");
    }
}

pub(super) const NO_S3: &str = "for artefacts in a bucket the region is needed";
pub(super) const S3_SETTINGS: &str = "write s3: {region: …} too";

/// Reports in trust's own words what speaks against the manifest, each with what to do.
pub(super) fn verify(artefacts: &CompleteArtefacts, check: &Check<'_>) -> Option<Verified> {
    let manifest = &artefacts.manifest;
    let keyrings: Vec<Keyring> =
        artefacts.keyrings.value.iter().filter_map(|keys| Keyring::parse(keys.0.as_bytes()).ok()).collect();
    let policy = Policy {
        now: check.now,
        minimum_serial: artefacts.minimum_serial.value.0,
        unsigned: if artefacts.unsigned.value { Unsigned::Allowed } else { Unsigned::Refused },
    };
    let signature = manifest.value.signature();
    let bytes = signature.ok().map(str::as_bytes);
    let error = match verify_manifest(manifest.value.text().as_bytes(), bytes, &keyrings, policy) {
        Ok(verified) => return Some(verified),
        Err(error) => error,
    };
    let origin = match &error {
        TrustError::Rollback { .. } => [&artefacts.minimum_serial.origin, &manifest.origin],
        _ => [&manifest.origin, &manifest.origin],
    };
    let origin = origin.into_iter().find(|origin| matches!(origin, Origin::User(_)));
    let path = manifest.value.path();
    match (&error, signature) {
        (TrustError::Unsigned, Err(reason)) => check.report(
            origin,
            format!("the manifest has no signature: \"{path}{SIGNATURE_SUFFIX}\": {reason}"),
            "`nodestrap publish` signs it; if nobody vouches for it, write unsigned: true",
        ),
        (TrustError::NoKeyring, _) => check.report(
            origin,
            "nobody is believed to have signed the manifest: there is no keyring",
            "write keyrings: [{file: keys.asc}]; `gpg --armor --export ID` makes such a file",
        ),
        _ => {
            let span = check.span(origin);
            check.drafts.report(span, chain(&error));
        }
    }
    None
}

/// What lies at the bottom says what is wrong and what to do.
fn chain(error: &TrustError) -> String {
    match error {
        TrustError::Signature(error) => error.to_string(),
        TrustError::Manifest(error) => error.to_string(),
        other => other.to_string(),
    }
}

pub(super) fn provenance(verified: &Verified) -> Provenance {
    match &verified.provenance {
        trust::Provenance::Signed(signer) => {
            Provenance::Signed { by: signer.primary.to_string(), serial: verified.serial() }
        }
        trust::Provenance::Unsigned => Provenance::Unsigned {},
    }
}

/// What the manifest has for each tree of a group. What it lacks is reported where the user asks for it.
pub(super) fn pin(
    group: &CompleteGroup,
    cluster: &CompleteCluster,
    traits: &Traits,
    verified: &Verified,
    check: &Check<'_>,
) -> BTreeMap<Component, Pinned> {
    let (Some(artefacts), Some(folder)) = (&cluster.artefacts, traits.programs) else { return BTreeMap::new() };
    let (architecture, role) = machine(group);
    let mut pinned = BTreeMap::new();
    for (component, version) in group.components.trees() {
        let origins = [Some(&version.origin), group.components.source_origin(component), Some(&group.source.origin)];
        let origin = origins.into_iter().flatten().find(|origin| matches!(origin, Origin::User(_)));
        let os = group.os.value.as_str();
        let found = verified.manifest.find(component.as_str(), version.value.as_str(), os, architecture, role);
        let found = match found {
            Ok(found) => found,
            Err(missing) => {
                check.drafts.report(check.span(origin), missing.to_string());
                continue;
            }
        };
        check_programs(component, found, cluster, origin, check);
        let places = places(found, artefacts);
        if places.iter().any(|place| place.starts_with("s3://")) && artefacts.s3.is_none() {
            check.report(Some(&artefacts.manifest.origin), NO_S3, S3_SETTINGS);
        }
        let folder = match component {
            Component::CniPlugins => group.container_runtime.cni_binaries.value.as_str(),
            _ => folder,
        };
        match pinned_artefact(found, places, folder) {
            Ok(artefact) => {
                check_files(component, &artefact, group, check);
                pinned.insert(component, artefact);
            }
            Err(invalid) => check.report(
                origin,
                format!("the artefact {found} cannot be put onto a node: {invalid}"),
                "publish it with other names",
            ),
        }
    }
    pinned
}

/// What artefacts are for, in the manifest's words.
pub(super) fn machine(group: &CompleteGroup) -> (trust::Architecture, trust::Role) {
    let architecture = match group.architecture.value {
        Architecture::Amd64 => trust::Architecture::Amd64,
        Architecture::Arm64 => trust::Architecture::Arm64,
    };
    let role = match group.role.value {
        Role::ControlPlane => trust::Role::ControlPlane,
        Role::Worker => trust::Role::Worker,
    };
    (architecture, role)
}

fn pinned_artefact(found: &Artefact, places: Vec<String>, folder: &str) -> Result<Pinned, InvalidName> {
    let link = |program: &trust::ProgramPath| {
        let place = AbsolutePath::new(format!("{folder}/{}", program.name()))?;
        Ok((place, RelativePath::new(program.as_str())?))
    };
    let artefact = bundle::Artefact {
        digest: ArtefactDigest::new(found.digest.as_str())?,
        size: found.size,
        form: match found.form {
            Form::Program => ArtefactForm::Program,
            Form::TarGz => ArtefactForm::TarGz,
            Form::Sysext => ArtefactForm::Sysext,
        },
        places,
    };
    Ok(Pinned { artefact, links: found.programs.iter().map(link).collect::<Result<_, _>>()? })
}

/// Of the user's, in the place of a link.
fn check_files(component: Component, pinned: &Pinned, group: &CompleteGroup, check: &Check<'_>) {
    for file in group.file_assets.value.iter().filter(|file| pinned.links.contains_key(&file.path)) {
        let message =
            format!("\"{}\" is the link to a program of {component}, which this file would replace", file.path);
        check.report_item(file.place, message, "choose another path");
    }
}

/// Each place in every store that has it, as often as it is another address.
pub(super) fn places(found: &Artefact, artefacts: &CompleteArtefacts) -> Vec<String> {
    let stores: Vec<&str> =
        std::iter::once(&artefacts.store.value).chain(&artefacts.mirrors.value).map(|store| store.as_str()).collect();
    let mut places: Vec<String> = Vec::new();
    for place in found.places.iter().flat_map(|place| stores.iter().map(|store| place.within(store))) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// What a node runs of a component.
pub(super) fn programs(component: Component, cluster: &CompleteCluster) -> Vec<&'static str> {
    match component {
        Component::CniPlugins if cluster.networking.pod_network.value == PodNetwork::Bridge => {
            network::PLUGINS.to_vec()
        }
        Component::CniPlugins => vec!["loopback"],
        Component::Containerd => vec!["containerd", "containerd-shim-runc-v2", "ctr"],
        Component::Crictl => vec!["crictl"],
        Component::Kubectl => vec!["kubectl"],
        Component::Kubelet => vec!["kubelet"],
        Component::Runc => vec!["runc"],
    }
}

fn check_programs(
    component: Component,
    found: &Artefact,
    cluster: &CompleteCluster,
    origin: Option<&Origin>,
    check: &Check<'_>,
) {
    let has = |name: &&str| found.programs.iter().any(|program| program.name() == *name);
    let missing: Vec<&str> = programs(component, cluster).into_iter().filter(|name| !has(name)).collect();
    if !missing.is_empty() {
        let there: Vec<&str> = found.programs.iter().map(|program| program.name()).collect();
        check.report(
            origin,
            format!("the artefact {found} has no program {}; it has {}", missing.join(", "), there.join(", ")),
            "publish it with all programs of its makers",
        );
    }
}

/// Of clusters that say nothing.
pub(super) fn default_architecture() -> Setting<Architecture> {
    default(Architecture::Amd64, "most machines are")
}
