//! Programs that the bootstrap brings: which the manifest has for these nodes, who runs them, and how they are downloaded.

use bundle::{Component, Downloads, Extension, ExtensionName, Readers, S3, S3Credentials, Secret, Tree};
use spec::{CompleteArtefacts, CompleteCluster, CompleteNodeGroup, CompleteS3, CompleteSpec};

use crate::error::RenderError;
use crate::kubelet::KUBELET_UNIT;
use crate::part::name as unit_name;
use crate::runtime;

/// Sorted by component.
pub(crate) fn render_trees(group: &CompleteNodeGroup) -> Result<Vec<Tree>, RenderError> {
    let runtime = runtime::unit_name(group.spec.container_runtime.name.value);
    let tree = |(component, version): (Component, &spec::Setting<spec::ComponentVersion>)| {
        let pinned = group.pinned.get(&component).ok_or(RenderError::NoArtefact { component })?;
        let reader = match component {
            Component::Kubelet => Some(KUBELET_UNIT),
            Component::Containerd | Component::Runc => Some(runtime),
            // They are found anew by whoever runs them.
            Component::CniPlugins | Component::Crictl | Component::Kubectl => None,
        };
        let units = reader.map(unit_name).transpose()?.into_iter().collect();
        Ok(Tree {
            component,
            version: version.value.to_string(),
            artefact: pinned.artefact.clone(),
            links: pinned.links.clone(),
            read_by: Readers { units, ..Readers::default() },
        })
    };
    group.spec.components.trees().map(tree).collect()
}

/// Sorted by name.
pub(crate) fn render_extensions(group: &CompleteNodeGroup) -> Result<Vec<Extension>, RenderError> {
    let runtime = runtime::unit_name(group.spec.container_runtime.name.value);
    let extension = |(name, version, _): (ExtensionName, &spec::Setting<spec::ComponentVersion>, Vec<Component>)| {
        let pinned = group.pinned_extensions.get(&name).ok_or(RenderError::NoExtension { name })?;
        let reader = match name {
            ExtensionName::Kubernetes => KUBELET_UNIT,
            ExtensionName::Containerd => runtime,
        };
        Ok(Extension {
            name,
            version: version.value.to_string(),
            artefact: pinned.artefact.clone(),
            release: pinned.release.clone(),
            programs: pinned.programs.clone(),
            read_by: Readers { units: [unit_name(reader)?].into(), ..Readers::default() },
        })
    };
    group.spec.components.extensions().map(extension).collect()
}

/// How the node gets them; `None` if there are none.
pub(crate) fn render_downloads(spec: &CompleteSpec, group: &CompleteNodeGroup) -> Option<Downloads> {
    let (artefacts, provenance) = (spec.cluster.artefacts.as_ref()?, spec.provenance.clone()?);
    if !group.spec.components.have_artefacts() {
        return None;
    }
    let cluster = &spec.cluster;
    let proxy = proxy_for(cluster, artefacts.store.value.as_str());
    Some(Downloads {
        provenance,
        certificate_authorities: authorities(cluster, artefacts),
        no_proxy: no_proxy_beside(cluster, proxy.as_ref()),
        proxy,
        s3: artefacts.s3.as_ref().map(s3),
    })
}

/// The store's own, and those by which a proxy or a mirror may be known.
fn authorities(cluster: &CompleteCluster, artefacts: &CompleteArtefacts) -> Option<String> {
    let own = artefacts.certificate_authority.iter().map(|authority| authority.value.as_str());
    let all: String = own.chain(trusted_authorities(cluster)).collect();
    (!all.is_empty()).then_some(all)
}

pub(crate) fn trusted_authorities(cluster: &CompleteCluster) -> impl Iterator<Item = &str> {
    cluster.trust.certificate_authorities.value.iter().map(|trusted| trusted.certificate.as_str())
}

/// What is reached without the proxy, if there is one.
pub(crate) fn no_proxy_beside(cluster: &CompleteCluster, proxy: Option<&Secret>) -> Vec<String> {
    match proxy {
        Some(_) => cluster.proxy.no_proxy.value.iter().map(ToString::to_string).collect(),
        None => Vec::new(),
    }
}

/// The one for the scheme of this address.
pub(crate) fn proxy_for(cluster: &CompleteCluster, address: &str) -> Option<Secret> {
    let proxy = match address.starts_with("http://") {
        true => cluster.proxy.for_http(),
        false => cluster.proxy.for_https(),
    };
    proxy.map(Secret::new)
}

/// Where buckets are, for whoever reads them: trees, and what a stub leads to.
pub(crate) fn s3(s3: &CompleteS3) -> S3 {
    S3 {
        region: s3.region.value.to_string(),
        endpoint: s3.endpoint.as_ref().map(|endpoint| endpoint.value.to_string()),
        path_style: s3.path_style.value,
        credentials: match &s3.credentials.value {
            spec::S3Credentials::InstanceRole => S3Credentials::InstanceRole {},
            spec::S3Credentials::Key { access_key, secret_key, session_token } => S3Credentials::Key {
                access_key: access_key.clone(),
                secret_key: secret_key.clone(),
                session_token: session_token.clone(),
            },
        },
    }
}
