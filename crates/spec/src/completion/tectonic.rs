//! Settings of the layout tectonic: what a node finds out from its cluster, and the addon of torcx that goes with that.

use std::collections::BTreeMap;

use bundle::MappingsPlace;
use bundle::torcx::{AddonVersion, DEFAULT_PROFILE, KubernetesVersion, Minor};

use super::{Check, default, derived, from, or_default, ours};
use crate::catalog;
use crate::complete::{ClusterSpec, CompleteCluster};
use crate::origin::{Origin, Setting};
use crate::tectonic::{CompleteMappingsConfigMap, CompleteTectonic, MappingsConfigMapSpec, TectonicSpec};
use crate::texts::Line;
use crate::values::{KubeVersion, KubeconfigSource, Layout, SeedFallback, SourceKind};

/// Whether nodes of a layout have what Tectonic's own time had: docker, and a kubelet that takes flags alone.
pub(crate) fn is_of_tectonics_time(layout: Layout, version: KubeVersion) -> bool {
    layout == Layout::Tectonic && version < KubeVersion::FIRST_WITHOUT_DOCKER
}

impl CompleteCluster {
    /// Whether its nodes have what Tectonic's own time had: docker, and a kubelet that takes flags alone.
    pub fn is_of_tectonics_time(&self) -> bool {
        is_of_tectonics_time(self.layout.value, self.kubernetes_version.value)
    }

    /// Whether its nodes are those of nodestrap's own layout, as far as other paths and the wrapper of the kubelet allow.
    pub fn is_like_nodestraps(&self) -> bool {
        match self.layout.value {
            Layout::Nodestrap => true,
            Layout::Tectonic => !self.is_of_tectonics_time(),
            Layout::Eksctl => false,
        }
    }

    /// Other minors than its own that its nodes may meet.
    pub(super) fn other_minors(&self) -> impl Iterator<Item = Minor> + '_ {
        let own = self.kubernetes_version.value.minor_release();
        let settings: Option<&CompleteTectonic> = (&self.tectonic).into();
        settings.into_iter().flat_map(|settings| &settings.minors.value).copied().filter(move |minor| *minor != own)
    }
}

pub(super) fn complete_tectonic(
    spec: &TectonicSpec,
    layout: &Setting<Layout>,
    version: &Setting<KubeVersion>,
    check: &Check<'_>,
) -> CompleteTectonic {
    let of_its_time = is_of_tectonics_time(layout.value, version.value);
    let minors = spec.minors.clone().unwrap_or_else(|| {
        derived(
            vec![version.value.minor_release()],
            from("cluster.kubernetesVersion"),
            "the release of the cluster alone",
        )
    });
    check_minors(&minors, version, of_its_time, check);
    if let Some(forced) = &spec.force_kubernetes_version {
        check_release(forced, &forced.value, &minors, check);
    }
    if let Some(tag) = &spec.kubelet_image_tag {
        match KubernetesVersion::from_tag(tag.value.as_str()) {
            Ok(release) => check_release(tag, &release, &minors, check),
            Err(error) => check.report(
                Some(&tag.origin),
                error.to_string(),
                "nodes read the release from it where their cluster does not answer",
            ),
        }
    }
    if let Some(url) = spec.manifest_url.as_ref().filter(|url| url.value.is_dead()) {
        let advice = "mirror the lists and addons that you have, and write the address of the mirror";
        check.report(Some(&url.origin), "the bucket that had Tectonic's package lists is gone since 2020", advice);
    }
    CompleteTectonic {
        kubeconfig: or_default(&spec.kubeconfig, || KubeconfigSource::Rendered, "a node needs nothing but its bundle"),
        kubelet_image: kubelet_image(spec, layout, of_its_time, check),
        kubelet_image_tag: spec.kubelet_image_tag.clone().unwrap_or_else(|| {
            let (build, rule) = match of_its_time {
                true => ("_coreos.0", "CoreOS' first build of the release"),
                false => ("", "the tag of the release"),
            };
            derived(ours(&format!("v{}{build}", version.value)), from("cluster.kubernetesVersion"), rule)
        }),
        force_kubernetes_version: spec.force_kubernetes_version.clone(),
        minors,
        seed_fallback: or_default(
            &spec.seed_fallback,
            || SeedFallback::Allowed,
            "the first nodes of a cluster have nobody to ask",
        ),
        runtime_mappings: spec.runtime_mappings.clone().unwrap_or_else(|| match of_its_time {
            true => default(mappings_of_its_time(), "the versions of docker that these releases were tested with"),
            false => default(BTreeMap::new(), "only who builds addons of torcx knows their versions"),
        }),
        mappings_config_map: complete_config_map(&spec.mappings_config_map),
        manifest_url: spec.manifest_url.clone(),
        verify_signatures: or_default(&spec.verify_signatures, || true, "nothing is trusted that was not verified"),
        torcx_profile: or_default(&spec.torcx_profile, || ours(DEFAULT_PROFILE), "the profile of Tectonic"),
        upgrade_os: or_default(&spec.upgrade_os, || true, "a node starts with the newest system"),
        bootkube: or_default(&spec.bootkube, || true, "the units wait for assets, which one master receives"),
    }
}

/// What others put onto a node, the spec has no part in.
pub(super) fn check_join(cluster: &ClusterSpec, check: &Check<'_>) {
    let pulled = cluster.tectonic.spec.kubeconfig.as_ref().filter(|set| set.value == KubeconfigSource::Pulled);
    let join = &cluster.join;
    let written = [join.bootstrap_token.as_ref().map(|set| &set.origin), join.exec.as_ref().map(|set| &set.origin)];
    if let (Some(_), Some(origin)) = (pulled, written.into_iter().flatten().next()) {
        check.report(
            Some(origin),
            "tectonic.kubeconfig is pulled: what nodes join with comes with it",
            "remove bootstrapToken and exec from join, or leave tectonic.kubeconfig out",
        );
    }
}

fn kubelet_image(spec: &TectonicSpec, layout: &Setting<Layout>, of_its_time: bool, check: &Check<'_>) -> Setting<Line> {
    spec.kubelet_image.clone().unwrap_or_else(|| {
        if !of_its_time {
            check.report(
                Some(&layout.origin),
                "which image the kubelet's wrapper runs has to be said: of today's releases none is published for it",
                "write tectonic: {kubeletImage: …}, without a tag",
            );
        }
        default(ours("docker://quay.io/coreos/hyperkube"), "the image of the kubelet wrapper")
    })
}

fn mappings_of_its_time() -> BTreeMap<Minor, Vec<AddonVersion>> {
    let docker = |minor: u32, versions: &[&str]| {
        (Minor { major: 1, minor }, versions.iter().map(|version| ours(version)).collect::<Vec<_>>())
    };
    [docker(8, &["1.12"]), docker(9, &["17.03", "1.12"]), docker(10, &["17.03"]), docker(11, &["17.03"])].into()
}

fn complete_config_map(spec: &MappingsConfigMapSpec) -> CompleteMappingsConfigMap {
    let MappingsPlace { namespace, name, key } = MappingsPlace::default();
    const TECTONICS: &str = "where Tectonic has them";
    CompleteMappingsConfigMap {
        namespace: or_default(&spec.namespace, || ours(&namespace), TECTONICS),
        name: or_default(&spec.name, || ours(&name), TECTONICS),
        key: or_default(&spec.key, || ours(&key), TECTONICS),
    }
}

/// They decide for which releases the rest of the spec is checked.
fn check_minors(minors: &Setting<Vec<Minor>>, version: &Setting<KubeVersion>, of_its_time: bool, check: &Check<'_>) {
    let report = |message: String, advice: String| check.report(Some(&minors.origin), message, advice);
    let own = version.value.minor_release();
    for (index, minor) in minors.value.iter().enumerate() {
        if minors.value[..index].contains(minor) {
            report(format!("the minor {minor} is named twice"), "remove one of them".to_owned());
        }
        let newest = KubeVersion { major: minor.major, minor: minor.minor, patch: 0 };
        if let Err(invalid) = catalog::find_release_of_tectonic(newest) {
            report(format!("Kubernetes {minor} is not known to this nodestrap"), invalid.advice.unwrap_or_default());
        } else if is_of_tectonics_time(Layout::Tectonic, newest) != of_its_time {
            report(
                format!("nodes of Kubernetes {minor} are made of other things than those of {own}"),
                "name minors of before 1.24 or since then, not both".to_owned(),
            );
        }
    }
    if !minors.value.contains(&own) {
        report(
            format!("the cluster runs Kubernetes {own}, as kubernetesVersion says, and minors does not have it"),
            format!("add \"{own}\", or write another kubernetesVersion"),
        );
    }
}

/// A node refuses a release that the rest of its bundle was not checked for.
fn check_release<T>(
    setting: &Setting<T>,
    release: &KubernetesVersion,
    minors: &Setting<Vec<Minor>>,
    check: &Check<'_>,
) {
    let minor = release.minor();
    if !minors.value.contains(&minor) {
        let known: Vec<String> = minors.value.iter().map(ToString::to_string).collect();
        check.report(
            Some(&setting.origin),
            format!("this is Kubernetes {minor}, and nodes of this spec are for {}", known.join(", ")),
            format!("write kubernetesVersion: {minor}.…, or add \"{minor}\" to tectonic.minors"),
        );
    }
}

/// What a group needs whose container runtime is an addon of torcx.
pub(super) fn check_addon(source: &Setting<SourceKind>, cluster: &CompleteCluster, check: &Check<'_>) {
    let settings: Option<&CompleteTectonic> = (&cluster.tectonic).into();
    let Some(settings) = settings.filter(|_| source.value == SourceKind::Torcx) else { return };
    let at = |own: &Origin| match own {
        Origin::User(_) => own.clone(),
        _ => match &source.origin {
            written @ Origin::User(_) => written.clone(),
            _ => cluster.layout.origin.clone(),
        },
    };
    if settings.manifest_url.is_none() {
        check.report(
            Some(&at(&source.origin)),
            "the source torcx needs package lists: nothing says where they are",
            "write tectonic: {manifestURL: \"https://…/{{.Board}}/{{.OSVersion}}/torcx_manifest.json\"}, or source: preinstalled",
        );
    }
    if settings.verify_signatures.value && cluster.trust.keyrings.value.is_empty() {
        check.report(
            Some(&at(&settings.verify_signatures.origin)),
            "the signatures of torcx's package lists are verified, and trust.keyrings has no keys",
            "write trust: {keyrings: [{name: addons, keys: {file: keys.asc}}]}, or tectonic: {verifySignatures: false}",
        );
    }
    let mappings = &settings.runtime_mappings;
    for minor in &settings.minors.value {
        if mappings.value.get(minor).is_none_or(Vec::is_empty) {
            check.report(
                Some(&at(&mappings.origin)),
                format!("runtimeMappings has no version of the addon for Kubernetes {minor}"),
                format!("write tectonic: {{runtimeMappings: {{\"{minor}\": [\"…\"]}}}}, the best one first"),
            );
        }
    }
}
