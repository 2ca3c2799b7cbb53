//! User data for cloud-init: one file, the bundle.
//!
//! The image brings nodestrap and `k8s-node-bootstrap.service`, which is ordered after cloud-init, so nothing is run or
//! installed from here. The same bundle gives the same bytes: the header of the gzip stream carries no time and no
//! operating system.

use std::io::Write;

use data_encoding::BASE64;
use flate2::{Compression, GzBuilder};

use crate::bundle::{BUNDLE_PATH, Bundle};
use crate::error::RenderError;

/// "Unknown" in RFC 1952.
const GZIP_NO_OS: u8 = 255;

/// The `#cloud-config` document. It holds the bundle's secrets; its length is what the 16 KiB of some clouds limit.
pub fn cloud_config(bundle: &Bundle) -> Result<String, RenderError> {
    bundle.validate().map_err(|source| RenderError::Bundle { source })?;
    let content = BASE64.encode(&compress(bundle.to_json().as_bytes())?);
    Ok(format!(
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
        digest = bundle.digest(),
        version = env!("CARGO_PKG_VERSION"),
    ))
}

fn compress(bytes: &[u8]) -> Result<Vec<u8>, RenderError> {
    let mut encoder = GzBuilder::new().mtime(0).operating_system(GZIP_NO_OS).write(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|source| RenderError::Compress { source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_gzip_stream_names_no_time_and_no_system_and_unpacks_to_the_input() {
        let packed = compress(b"the same bytes always").unwrap();
        // Magic, deflate, no flags, no time, slowest and best compression, unknown system.
        assert_eq!(packed[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "the same bytes always");
    }
}
