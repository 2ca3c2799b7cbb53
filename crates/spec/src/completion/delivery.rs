//! How what a node receives reaches it.

use super::os::Traits;
use super::{Check, artefacts, default, derived, from, ours};
use crate::complete::{
    CompleteDelivery, CompleteNodestrap, CompleteS3, CompleteStore, DeliveryDefaults, DeliverySpec, NodestrapDefaults,
    NodestrapSpec, StoreDefaults, StoreSpec,
};
use crate::items::AdditionalUserData;
use crate::origin::{Origin, Setting};
use crate::texts::StoreUrl;
use crate::values::{Compression, DeliveryFormat, Installation, Os};

/// The group's word, or else the cluster's.
fn inherit<T: Clone>(group: &Option<Setting<T>>, cluster: &Option<Setting<T>>, path: &str) -> Option<Setting<T>> {
    group.clone().or_else(|| {
        let setting = cluster.as_ref()?;
        Some(derived(setting.value.clone(), from(path), "what the cluster says"))
    })
}

pub(super) fn complete_delivery(
    spec: &DeliverySpec,
    cluster: &DeliveryDefaults,
    os: &Setting<Os>,
    traits: &Traits,
    group: &str,
    user_data: &Setting<Vec<AdditionalUserData>>,
    check: &Check<'_>,
) -> CompleteDelivery {
    let os_path = || from(&format!("nodeGroups.{group}.os"));
    let nodestrap = complete_nodestrap(&spec.nodestrap, &cluster.nodestrap, traits, &os_path);
    let needs_mime = nodestrap.installation.value == Installation::Download || !user_data.value.is_empty();
    let format = inherit(&spec.format, &cluster.format, "cluster.delivery.format").unwrap_or_else(|| {
        if traits.delivery == DeliveryFormat::CloudConfig && needs_mime {
            let from = vec![
                format!("nodeGroups.{group}.delivery.nodestrap.installation"),
                format!("nodeGroups.{group}.additionalUserData"),
            ];
            return derived(DeliveryFormat::Mime, from, "several parts need a multipart message");
        }
        derived(traits.delivery, os_path(), "what this system's first boot understands")
    });
    let written = |group: Option<&Origin>, cluster: Option<&Origin>| group.or(cluster).cloned();
    let format_origin =
        written(spec.format.as_ref().map(|set| &set.origin), cluster.format.as_ref().map(|set| &set.origin));
    check_format(format.value, format_origin.as_ref(), os, traits, needs_mime, check);
    let installation = &spec.nodestrap.installation;
    let of_cluster = &cluster.nodestrap.installation;
    let origin = written(installation.as_ref().map(|set| &set.origin), of_cluster.as_ref().map(|set| &set.origin));
    check_download(&nodestrap, format.value, origin.as_ref(), check);
    CompleteDelivery {
        compression: inherit(&spec.compression, &cluster.compression, "cluster.delivery.compression")
            .unwrap_or_else(|| default(Compression::Auto, "user data is small in every sense")),
        store: CompleteStore {
            urls: inherit(&spec.store.urls, &cluster.store.urls, "cluster.delivery.store.urls")
                .unwrap_or_else(|| default(Vec::<StoreUrl>::new(), "the whole bundle is in the user data")),
            certificate_authority: inherit(
                &spec.store.certificate_authority,
                &cluster.store.certificate_authority,
                "cluster.delivery.store.certificateAuthority",
            ),
            s3: complete_s3(&spec.store, &cluster.store, check),
        },
        nodestrap,
        format,
    }
}

/// A bucket is opened by what stands beside its region, so nothing of the cluster's is mixed in.
fn complete_s3(spec: &StoreSpec, cluster: &StoreDefaults, check: &Check<'_>) -> Option<CompleteS3> {
    fn of_cluster<T: Clone>(setting: &Setting<T>, field: &str) -> Setting<T> {
        let path = format!("cluster.delivery.store.s3.{field}");
        derived(setting.value.clone(), from(&path), "what the cluster says")
    }
    if let Some(own) = &spec.s3 {
        return Some(artefacts::complete_s3(&own.value, check));
    }
    let CompleteS3 { region, endpoint, path_style, credentials } = cluster.s3.as_ref()?;
    Some(CompleteS3 {
        region: of_cluster(region, "region"),
        endpoint: endpoint.as_ref().map(|endpoint| of_cluster(endpoint, "endpoint")),
        path_style: of_cluster(path_style, "pathStyle"),
        credentials: of_cluster(credentials, "credentials"),
    })
}

fn complete_nodestrap(
    spec: &NodestrapSpec,
    cluster: &NodestrapDefaults,
    traits: &Traits,
    os_path: &dyn Fn() -> Vec<String>,
) -> CompleteNodestrap {
    let path = |field: &str| format!("cluster.delivery.nodestrap.{field}");
    let installation = inherit(&spec.installation, &cluster.installation, &path("installation"))
        .unwrap_or_else(|| default(Installation::Image, "a node installs nothing that its image can bring"));
    let place = match installation.value {
        Installation::Image => traits.nodestrap_in_image,
        Installation::Download => traits.nodestrap_downloaded,
    };
    CompleteNodestrap {
        path: inherit(&spec.path, &cluster.path, &path("path"))
            .unwrap_or_else(|| derived(ours(place), os_path(), "where programs can be on this system")),
        urls: inherit(&spec.urls, &cluster.urls, &path("urls"))
            .unwrap_or_else(|| default(Vec::new(), "it is not downloaded")),
        sha256: inherit(&spec.sha256, &cluster.sha256, &path("sha256")),
        sha512: inherit(&spec.sha512, &cluster.sha512, &path("sha512")),
        installation,
    }
}

fn check_format(
    format: DeliveryFormat,
    written: Option<&Origin>,
    os: &Setting<Os>,
    traits: &Traits,
    needs_mime: bool,
    check: &Check<'_>,
) {
    let origin = written.or(Some(&os.origin));
    if format != DeliveryFormat::Folder && !traits.deliveries.contains(&format) {
        let known: Vec<&str> = traits.deliveries.iter().map(|format| format.as_str()).collect();
        check.report(
            origin,
            format!("the first boot of {} does not understand {format}", os.value),
            format!("it takes {}; a folder can be put anywhere", known.join(" and ")),
        );
    }
    if format == DeliveryFormat::CloudConfig && needs_mime {
        check.report(
            origin,
            "a cloud-config cannot carry a download of nodestrap or additionalUserData",
            "write format: mime",
        );
    }
}

fn check_download(nodestrap: &CompleteNodestrap, format: DeliveryFormat, origin: Option<&Origin>, check: &Check<'_>) {
    if nodestrap.installation.value != Installation::Download {
        return;
    }
    if nodestrap.urls.value.is_empty() || nodestrap.sha256.is_none() {
        check.report(
            origin,
            "a download of nodestrap needs \"urls\" and \"sha256\"",
            "`make dist` prints the digest of the static binary; put it where nodes can fetch it",
        );
    }
    if format == DeliveryFormat::Ignition2 && nodestrap.sha512.is_none() {
        check.report(origin, "Ignition 2.3 knows only sha512", "write delivery.nodestrap.sha512 too");
    }
}
