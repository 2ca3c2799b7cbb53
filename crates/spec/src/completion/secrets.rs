//! What is secret stays so on its way: over plain http anybody between two machines can read it.

use super::Check;
use crate::artefacts::S3Credentials;
use crate::complete::{CompleteCluster, CompleteS3};
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

/// Where bundles lie, where the user says so.
pub(super) struct Store<'a> {
    pub(super) urls: Option<&'a Setting<Vec<StoreUrl>>>,
    pub(super) s3: Option<&'a CompleteS3>,
}

pub(super) fn check_store(store: &Store<'_>, secret: Option<&str>, check: &Check<'_>) {
    let Some(urls) = store.urls else { return };
    for url in &urls.value {
        if url.as_str().starts_with("file:") {
            check.report(
                Some(&urls.origin),
                "a store of bundles is reached over https or is a bucket, and no folder of the node",
                "write https://… or s3://BUCKET/FOLDER; an image that has its bundle needs no store",
            );
            return;
        }
    }
    if urls.value.iter().any(StoreUrl::is_bucket) {
        check_bucket(urls, store.s3, secret, check);
    }
    let Some(secret) = secret else { return };
    for url in &urls.value {
        // A signature in an address is refused where it is used; until then it is nobody's to read.
        let url = url.as_str().split('?').next().unwrap_or_default();
        if syntax::is_read_on_the_way(url) {
            check.report(Some(&urls.origin), in_the_clear(secret, url), WRITE_HTTPS);
        } else if url.starts_with("https://") {
            check.warn(
                Some(&urls.origin),
                format!("\"{url}\" gives the bundle, with {secret}, to whoever reaches it and knows the digest"),
                "let only the machines reach it and use tokens that expire, or take a bucket: s3://BUCKET/FOLDER",
            );
        }
    }
}

const WRITE_HTTPS: &str =
    "write https://…; certificateAuthority beside it names an authority that the image does not trust";

fn in_the_clear(secret: &str, url: &str) -> String {
    format!("the bundle holds {secret}, which \"{url}\" would send in the clear")
}

fn check_bucket(urls: &Setting<Vec<StoreUrl>>, s3: Option<&CompleteS3>, secret: Option<&str>, check: &Check<'_>) {
    let Some(s3) = s3 else {
        check.report(Some(&urls.origin), "for bundles in a bucket the region is needed", "write s3: {region: …} too");
        return;
    };
    let endpoint = s3.endpoint.as_ref().filter(|endpoint| syntax::is_read_on_the_way(endpoint.value.as_str()));
    if let (Some(endpoint), Some(secret)) = (endpoint, secret) {
        check.report(Some(&endpoint.origin), in_the_clear(secret, endpoint.value.as_str()), WRITE_HTTPS);
    }
    if matches!(s3.credentials.value, S3Credentials::Key { .. }) {
        check.warn(
            Some(&s3.credentials.origin),
            "user data carries this key, and everything on a machine that can ask for user data can read it",
            "write instance-role where machines have one, or give the key the right to read these bundles and no other",
        );
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
