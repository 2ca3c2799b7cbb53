//! What the manifest has for each system extension of a group.

use std::collections::{BTreeMap, BTreeSet};

use bundle::{ArtefactDigest, ArtefactForm, Component, ExtensionName, ExtensionRelease, InvalidName};
use trust::{Artefact, Verified};

use super::Check;
use super::artefacts::{NO_S3, S3_SETTINGS, machine, places, programs};
use super::components::extension_of;
use crate::complete::{CompleteCluster, CompleteGroup, PinnedExtension};
use crate::origin::Origin;
use crate::texts::AbsolutePath;

/// What it lacks is reported where the user asks for it.
pub(super) fn pin(
    group: &CompleteGroup,
    cluster: &CompleteCluster,
    verified: &Verified,
    check: &Check<'_>,
) -> BTreeMap<ExtensionName, PinnedExtension> {
    let Some(artefacts) = &cluster.artefacts else { return BTreeMap::new() };
    let (architecture, role) = machine(group);
    let mut pinned = BTreeMap::new();
    for (name, version, components) in group.components.extensions() {
        let leader = components.first().map(|component| extension_of(*component).1);
        let of_leader = leader.and_then(|leader| group.components.source_origin(leader));
        let origins = [Some(&version.origin), of_leader, Some(&group.source.origin)];
        let origin = origins.into_iter().flatten().find(|origin| matches!(origin, Origin::User(_)));
        let os = group.os.value.as_str();
        let found = verified.manifest.find_extension(name.as_str(), version.value.as_str(), os, architecture, role);
        let found = match found {
            Ok(found) => found,
            Err(missing) => {
                check.drafts.report(check.span(origin), missing.to_string());
                continue;
            }
        };
        check_programs(found, &components, group, cluster, origin, check);
        let places = places(found, artefacts);
        if places.iter().any(|place| place.starts_with("s3://")) && artefacts.s3.is_none() {
            check.report(Some(&artefacts.manifest.origin), NO_S3, S3_SETTINGS);
        }
        match pinned_extension(found, places) {
            Ok(Some(extension)) => drop(pinned.insert(name, extension)),
            // A manifest that was read has one for each image.
            Ok(None) => {}
            Err(invalid) => check.report(
                origin,
                format!("the artefact {found} cannot be put onto a node: {invalid}"),
                "publish it with other names",
            ),
        }
    }
    pinned
}

fn pinned_extension(found: &Artefact, places: Vec<String>) -> Result<Option<PinnedExtension>, InvalidName> {
    let Some(release) = &found.extension else { return Ok(None) };
    let programs = found.programs.iter().map(|program| AbsolutePath::new(format!("/{program}")));
    let text = |word: &Option<trust::ReleaseWord>| word.as_ref().map(ToString::to_string);
    Ok(Some(PinnedExtension {
        artefact: bundle::Artefact {
            digest: ArtefactDigest::new(found.digest.as_str())?,
            size: found.size,
            form: ArtefactForm::Sysext,
            places,
        },
        release: ExtensionRelease {
            id: release.id.to_string(),
            sysext_level: text(&release.sysext_level),
            version_id: text(&release.version_id),
            architecture: text(&release.architecture),
        },
        programs: programs.collect::<Result<BTreeSet<_>, _>>()?,
    }))
}

/// Where each program must be, if that is said anywhere; else it may lie in any folder.
fn place_of(component: Component, program: &str, group: &CompleteGroup) -> Option<String> {
    match component {
        Component::Kubelet => Some(group.kubelet.binary.value.to_string()),
        Component::Containerd if program == "containerd" => Some(group.container_runtime.binary.value.to_string()),
        Component::CniPlugins => Some(format!("{}/{program}", group.container_runtime.cni_binaries.value)),
        _ => None,
    }
}

fn check_programs(
    found: &Artefact,
    components: &[Component],
    group: &CompleteGroup,
    cluster: &CompleteCluster,
    origin: Option<&Origin>,
    check: &Check<'_>,
) {
    let mut missing = Vec::new();
    for component in components {
        for program in programs(*component, cluster) {
            let place = place_of(*component, program, group);
            let is_there = found.programs.iter().any(|path| match &place {
                Some(place) => format!("/{path}") == *place,
                None => path.name() == program,
            });
            if !is_there {
                missing.push(place.unwrap_or_else(|| program.to_owned()));
            }
        }
    }
    if !missing.is_empty() {
        let there: Vec<String> = found.programs.iter().map(|program| format!("/{program}")).collect();
        check.report(
            origin,
            format!("the extension {found} has no program {}; it has {}", missing.join(", "), there.join(", ")),
            "publish it with all of them; or say where they are: kubelet.binary, containerRuntime.binary and cniBinaries",
        );
    }
}
