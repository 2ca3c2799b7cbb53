//! A bundle that does not fit into user data: a stub there, and the bundle in a store over https.

use std::path::Path;

use anyhow::{Context, Result};
use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest, Sha256};

use crate::lab::Lab;
use crate::web::WebServer;
use crate::worker_spec::WorkerSpec;

/// Text that no compression makes fit into what AWS takes as user data.
pub fn incompressible_text() -> String {
    let digests = (0_u32..2048).map(|number| HEXLOWER.encode(&Sha256::digest(number.to_be_bytes())));
    digests.collect()
}

impl WorkerSpec {
    /// Of a bundle with that file, which is too large for user data, in the stores at these addresses.
    pub fn too_large_for_user_data(lab: &Lab, path: &str, stores: &[&str]) -> Self {
        let authority = BASE64.encode(lab.ca_pem().as_bytes());
        let group = format!(
            "fileAssets: [{{path: {path}, content: {}}}]\n\
             delivery: {{store: {{urls: [{}], certificateAuthority: {authority}}}}}\n",
            incompressible_text(),
            stores.join(", ")
        );
        Self { cluster: "provider: aws\n".to_owned(), group, ..Self::of(lab) }
    }
}

/// Where `render` says that the bundle has to be published, as paths of the stores.
pub fn published_paths(remarks: &str, stores: &[&WebServer]) -> Result<Vec<String>> {
    let path_in = |store: &&WebServer| -> Result<String> {
        let (_, rest) = remarks.split_once(&store.url()).context("the store is not named")?;
        Ok(rest.split_whitespace().next().unwrap_or_default().to_owned())
    };
    stores.iter().map(path_in).collect()
}

/// A store that has the bundle, and the stub that leads there.
pub(super) fn offer(lab: &Lab, nodestrap: &Path, say: &dyn Fn(&str)) -> Result<(WebServer, Vec<u8>)> {
    let store = lab.start_store()?;
    let address = store.url() + "/bundles";
    let spec = WorkerSpec::too_large_for_user_data(lab, "/etc/large", &[&address]);
    let stub = spec.render(nodestrap, &[])?;
    for path in published_paths(&stub.remarks, &[&store])? {
        store.put(&path, spec.render(nodestrap, &["--format", "bundle"])?.bytes)?;
        say(&format!("the bundle is published at {}{path}", store.url()));
    }
    say(&format!("{} bytes of user data: a stub that names it", stub.bytes.len()));
    Ok((store, stub.bytes))
}
