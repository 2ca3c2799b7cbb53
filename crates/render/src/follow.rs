//! What a node of the layout tectonic finds out by itself: whom it asks, what it believes, and how it downloads what follows from it.

use bundle::torcx::{AddonName, KUBELET_ENV_SEED_PATH, MAPPINGS_SEED_PATH, UrlTemplate};
use bundle::{
    AbsolutePath, Downloads, Follow, FollowedAddon, FollowedRelease, MappingsPlace, OsUpdate, Provenance, SeedFallback,
    Signatures,
};
use spec::{CompleteCluster, CompleteGroup, CompleteTectonic, Runtime, SourceKind};

use crate::error::RenderError;
use crate::part::path;
use crate::trees::{no_proxy_beside, proxy_for, trusted_authorities};

/// The addon that brings a container runtime, whichever that is.
pub(crate) const ADDON: &str = "docker";
/// docker's data may be of a form that another version of it does not read; containerd's is not.
pub(crate) const DOCKERS_DATA: &str = "/var/lib/docker";
const KEYRINGS: &str = "/etc/nodestrap/keyrings";

pub(crate) fn render_follow(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    settings: &CompleteTectonic,
    kubeconfig: &str,
) -> Result<Follow, RenderError> {
    let addon = match group.source.value {
        SourceKind::Torcx => Some(render_addon(cluster, group, settings)?),
        _ => None,
    };
    Ok(Follow {
        release: FollowedRelease {
            forced: settings.force_kubernetes_version.as_ref().map(|forced| forced.value.clone()),
            kubeconfig: path(kubeconfig)?,
            seed: path(KUBELET_ENV_SEED_PATH)?,
            seed_fallback: match settings.seed_fallback.value {
                spec::SeedFallback::Allowed => SeedFallback::Allowed,
                spec::SeedFallback::Never => SeedFallback::Never,
            },
            minors: settings.minors.value.iter().copied().collect(),
        },
        addon,
        os_update: if settings.upgrade_os.value { OsUpdate::Attempt } else { OsUpdate::Ask },
    })
}

fn render_addon(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    settings: &CompleteTectonic,
) -> Result<FollowedAddon, RenderError> {
    let keyring = |keyring: &spec::Keyring| path(format!("{KEYRINGS}/{}.asc", keyring.name));
    let place = &settings.mappings_config_map;
    Ok(FollowedAddon {
        name: AddonName::new(ADDON)?,
        profile: settings.torcx_profile.value.clone(),
        manifest_url: manifest_url(settings)?.clone(),
        signatures: match settings.verify_signatures.value {
            true => {
                let keyrings = cluster.trust.keyrings.value.iter().map(keyring);
                Signatures::By { keyrings: keyrings.collect::<Result<_, _>>()? }
            }
            false => Signatures::Unverified {},
        },
        mappings: MappingsPlace {
            namespace: place.namespace.value.to_string(),
            name: place.name.value.to_string(),
            key: place.key.value.to_string(),
        },
        mappings_seed: path(MAPPINGS_SEED_PATH)?,
        data_folder: data_folder(group.container_runtime.name.value)?,
    })
}

fn data_folder(runtime: Runtime) -> Result<Option<AbsolutePath>, RenderError> {
    match runtime {
        Runtime::Docker => path(DOCKERS_DATA).map(Some),
        Runtime::Containerd | Runtime::CriO => Ok(None),
    }
}

fn manifest_url(settings: &CompleteTectonic) -> Result<&UrlTemplate, RenderError> {
    settings.manifest_url.as_ref().map(|url| &url.value).ok_or(RenderError::NoLayoutSettings { layout: "tectonic" })
}

/// Of package lists and addons; `None` if there are none to download.
pub(crate) fn render_downloads(
    cluster: &CompleteCluster,
    group: &CompleteGroup,
    settings: &CompleteTectonic,
) -> Result<Option<Downloads>, RenderError> {
    if group.source.value != SourceKind::Torcx {
        return Ok(None);
    }
    let proxy = proxy_for(cluster, manifest_url(settings)?.as_str());
    let authorities: String = trusted_authorities(cluster).collect();
    Ok(Some(Downloads {
        provenance: Provenance::OnNode {},
        certificate_authorities: (!authorities.is_empty()).then_some(authorities),
        no_proxy: no_proxy_beside(cluster, proxy.as_ref()),
        proxy,
        s3: None,
    }))
}
