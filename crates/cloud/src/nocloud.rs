//! NoCloud: `meta-data` in a seed folder, as cloud-init reads it.

use std::path::Path;

use host::disk::Disk;
use serde::Deserialize;

use crate::{Platform, PlatformError};

/// Both names are cloud-init's; the second is for images that want the seed read after the network is up.
const SEED_FOLDERS: [&str; 2] = ["/var/lib/cloud/seed/nocloud", "/var/lib/cloud/seed/nocloud-net"];

/// Far more than any real meta-data; keeps a wrong file from filling the memory.
const META_DATA_LIMIT: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum MetaDataError {
    #[error("it is not UTF-8")]
    NotText,
    #[error("{0}")]
    Yaml(String),
    #[error("instance-id is missing or empty")]
    NoInstanceId,
}

#[derive(Deserialize)]
struct MetaData {
    #[serde(rename = "instance-id")]
    instance_id: Option<String>,
}

/// The instance id of a NoCloud `meta-data` document; other keys are the platform's business.
pub fn parse_meta_data(bytes: &[u8]) -> Result<String, MetaDataError> {
    let text = std::str::from_utf8(bytes).map_err(|_| MetaDataError::NotText)?;
    let parsed: MetaData = serde_saphyr::from_str(text).map_err(|error| MetaDataError::Yaml(error.to_string()))?;
    match parsed.instance_id {
        Some(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        _ => Err(MetaDataError::NoInstanceId),
    }
}

pub(crate) fn observe(disk: &dyn Disk) -> Result<Option<Platform>, PlatformError> {
    for seed in SEED_FOLDERS {
        let path = format!("{seed}/meta-data");
        if let Some(bytes) = disk.read(Path::new(&path), META_DATA_LIMIT)? {
            let instance_id =
                parse_meta_data(&bytes).map_err(|source| PlatformError::MetaData { path: path.clone(), source })?;
            return Ok(Some(Platform::NoCloud { instance_id, seed: seed.to_owned() }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_instance_id_and_ignores_the_rest() {
        assert_eq!(parse_meta_data(b"instance-id: i-n1\nlocal-hostname: n1\n").unwrap(), "i-n1");
        assert_eq!(parse_meta_data(b"{instance-id: \"0042\", tags: [a, b]}").unwrap(), "0042");
    }

    #[test]
    fn a_seed_without_an_instance_id_is_named_as_such() {
        for bad in [&b"local-hostname: n1\n"[..], b"instance-id: ''\n"] {
            assert!(matches!(parse_meta_data(bad), Err(MetaDataError::NoInstanceId)), "{bad:?}");
        }
        assert!(matches!(parse_meta_data(b"\xff\xfe"), Err(MetaDataError::NotText)));
        assert!(matches!(parse_meta_data(b"instance-id: [1, 2"), Err(MetaDataError::Yaml(_))));
    }
}
