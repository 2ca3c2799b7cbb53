//! User data for cloud-init: one file, the bundle.
//!
//! The image brings nodestrap and `k8s-node-bootstrap.service`, which is ordered after cloud-init, so nothing is run or
//! installed from here.

use data_encoding::BASE64;

use bundle::{BUNDLE_PATH, Bundle, Digest};

use crate::delivery::gzip;
use crate::error::RenderError;

/// The `#cloud-config` document. It holds the bundle's secrets; its length is what the 16 KiB of some clouds limit.
pub fn cloud_config(bundle: &Bundle) -> Result<String, RenderError> {
    bundle.validate().map_err(|problem| RenderError::Bundle { problem })?;
    let (json, digest) = bundle.to_json_with_digest();
    Ok(render(bundle, &digest, json.as_bytes()))
}

/// The document that puts `payload`, the bundle of this digest or a stub of it, into its place.
pub(crate) fn render(bundle: &Bundle, digest: &Digest, payload: &[u8]) -> String {
    let content = BASE64.encode(&gzip::compress(payload));
    format!(
        "#cloud-config\n\
         # cluster {cluster}, group {group}, Kubernetes {kubernetes}\n\
         # bundle {digest}\n\
         # nodestrap {version}\n\
         write_files:\n  \
           - path: {BUNDLE_PATH}\n    \
             owner: root:root\n    \
             permissions: '0600'\n    \
             encoding: gz+b64\n    \
             content: \"{content}\"\n",
        cluster = bundle.cluster,
        group = bundle.group,
        kubernetes = bundle.kubernetes_version,
        version = env!("CARGO_PKG_VERSION"),
    )
}
