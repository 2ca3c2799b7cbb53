//! What is secret stays so on its way: over plain http anybody between two machines can read it.

use super::Check;
use crate::artefacts::S3Credentials;
use crate::complete::CompleteCluster;
use crate::items::FileAsset;
use crate::origin::Setting;
use crate::syntax;
use crate::texts::{StoreUrl, WebUrl};
use crate::values::Role;

/// The first secret, as people call it, that a bundle of such a group holds.
pub(super) fn held(cluster: &CompleteCluster, role: Role, files: &[FileAsset]) -> Option<&'static str> {
    let has = |name, is_there: bool| is_there.then_some(name);
    let s3 = cluster.artefacts.as_ref().and_then(|artefacts| artefacts.s3.as_ref());
    let has_proxy_password = cluster.proxy.credentials.is_some();
    let has_key = s3.is_some_and(|s3| matches!(s3.credentials.value, S3Credentials::Key { .. }));
    has("the private keys of the control plane", role == Role::ControlPlane)
        .or(has("the bootstrap token", cluster.join.bootstrap_token.is_some()))
        .or(has("a secret file", files.iter().any(|file| file.secret)))
        .or(has("the kubeconfig of kube-proxy", cluster.kube_proxy.kubeconfig.is_some()))
        .or(has("the webhook's credentials", cluster.report.webhook.is_some()))
        .or(has("the password of the proxy", has_proxy_password))
        .or(has("the key of the artefacts' bucket", has_key))
}

pub(super) fn check_store(urls: Option<&Setting<Vec<StoreUrl>>>, secret: Option<&str>, check: &Check<'_>) {
    let Some(urls) = urls else { return };
    for url in &urls.value {
        let scheme = url.as_str().split_once(':').map_or("", |(scheme, _)| scheme);
        if !["http", "https"].contains(&scheme) {
            check.report(
                Some(&urls.origin),
                format!("nodes cannot fetch their bundle from {scheme}:// yet"),
                "write https://…; buckets are for artefacts only",
            );
            return;
        }
    }
    let Some(secret) = secret else { return };
    for url in &urls.value {
        // A signature in an address is refused where it is used; until then it is nobody's to read.
        let url = url.as_str().split('?').next().unwrap_or_default();
        if syntax::is_read_on_the_way(url) {
            check.report(
                Some(&urls.origin),
                format!("the bundle holds {secret}, which \"{url}\" would send in the clear"),
                "write https://…; certificateAuthority beside it names an authority that the image does not trust",
            );
        } else if url.starts_with("https://") {
            check.warn(
                Some(&urls.origin),
                format!("\"{url}\" gives the bundle, with {secret}, to whoever reaches it and knows the digest"),
                "stores take no credentials yet: let only the machines reach it, and use tokens that expire",
            );
        }
    }
}

/// Its address is no credential by itself, but what stands behind a question mark may be one.
pub(super) fn check_webhook(webhook: &Setting<WebUrl>, has_headers: bool, check: &Check<'_>) {
    let url = webhook.value.as_str();
    if !syntax::is_read_on_the_way(url) {
        return;
    }
    if url.contains('?') {
        check.drafts.hide(check.span(Some(&webhook.origin)));
    }
    if has_headers || url.contains('?') {
        check.report(
            Some(&webhook.origin),
            "the webhook's credentials would be sent in the clear",
            "write https://…, or leave out the headers and what follows the question mark",
        );
    } else {
        check.warn(
            Some(&webhook.origin),
            "over plain http anybody on the way reads the reports, and can make the receiver believe others",
            "write https://…",
        );
    }
}
