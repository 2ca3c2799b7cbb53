//! NoCloud: `meta-data` and `user-data` in a seed folder or on a volume, as cloud-init reads them.

use std::path::Path;

use host::disk::{Disk, DiskError};
use host::volumes::Sought;
use serde::Deserialize;

use crate::error::CloudError;
use crate::identify::Place;
use crate::words::{self, Form};
use crate::{Answered, Extent, Identified, Metadata, Said, USER_DATA_LIMIT, UserData, Wanted};

/// Both names are cloud-init's; the second is for images that want the seed read after the network is up.
const SEED_FOLDERS: [&str; 2] = ["/var/lib/cloud/seed/nocloud", "/var/lib/cloud/seed/nocloud-net"];
pub(crate) const VOLUME: Sought = Sought { labels: &["cidata"], file: "/meta-data" };

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
    #[error("{0} does not have the form of such a value")]
    Form(&'static str),
}

/// What we take of a `meta-data` document; other keys are the platform's business. All but the first may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaData {
    pub instance_id: String,
    pub instance_type: String,
    pub local_ipv4: String,
    pub region: String,
    pub zone: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Document {
    instance_id: Option<String>,
    // The names are those of AWS, which whoever writes a seed by hand copies.
    instance_type: Option<String>,
    local_ipv4: Option<String>,
    region: Option<String>,
    availability_zone: Option<String>,
}

pub fn parse_meta_data(bytes: &[u8]) -> Result<MetaData, MetaDataError> {
    let text = std::str::from_utf8(bytes).map_err(|_| MetaDataError::NotText)?;
    let document: Document = serde_saphyr::from_str(text).map_err(|error| MetaDataError::Yaml(error.to_string()))?;
    let optional = |value: Option<String>, name: &'static str, form: Form| {
        let value = value.unwrap_or_default().trim().to_owned();
        if value.is_empty() || form(&value) { Ok(value) } else { Err(MetaDataError::Form(name)) }
    };
    match document.instance_id {
        Some(id) if !id.trim().is_empty() => Ok(MetaData {
            instance_id: id.trim().to_owned(),
            instance_type: optional(document.instance_type, "instance-type", words::is_name)?,
            local_ipv4: optional(document.local_ipv4, "local-ipv4", words::is_ipv4)?,
            region: optional(document.region, "region", words::is_name)?,
            zone: optional(document.availability_zone, "availability-zone", words::is_name)?,
        }),
        _ => Err(MetaDataError::NoInstanceId),
    }
}

/// The first seed folder that has meta-data.
pub(crate) fn find_seed(disk: &dyn Disk) -> Result<Option<&'static str>, DiskError> {
    for seed in SEED_FOLDERS {
        if disk.stat(&Path::new(seed).join("meta-data"))?.is_some() {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

pub(crate) fn read(identified: &Identified, disk: &dyn Disk, wanted: Wanted) -> Result<Answered, CloudError> {
    let (place, folder) = match &identified.place {
        Place::Seed(folder) => ((*folder).to_owned(), *folder),
        Place::Volume(volume) => (volume.name.clone(), "/"),
        Place::Elsewhere => ("".to_owned(), ""),
    };
    let read = |name: &str, limit: u64| match &identified.place {
        Place::Volume(volume) => volume.read(&Path::new(folder).join(name), limit),
        Place::Seed(_) => disk.read(&Path::new(folder).join(name), limit),
        Place::Elsewhere => Ok(None),
    };
    let Some(bytes) = read("meta-data", META_DATA_LIMIT)? else {
        let looked_at = format!("{} and volumes labelled {}", SEED_FOLDERS.join(", "), VOLUME.labels.join(", "));
        return Err(CloudError::NoSeed { platform: identified.platform.name(), looked_at });
    };
    let path = format!("{place}/meta-data");
    let meta_data = parse_meta_data(&bytes).map_err(|source| CloudError::MetaData { path, source })?;
    let user_data = match wanted {
        Wanted::Facts => None,
        Wanted::FactsAndUserData => read("user-data", USER_DATA_LIMIT as u64)?,
    };
    let said = |value: String| Said::new(value, place.clone());
    let metadata = Metadata {
        platform: Said::new(identified.platform.name(), identified.by.clone()),
        instance_id: said(meta_data.instance_id),
        instance_type: said(meta_data.instance_type),
        local_ipv4: said(meta_data.local_ipv4),
        region: said(meta_data.region),
        zone: said(meta_data.zone),
    };
    let user_data = user_data.map(|bytes| UserData { bytes, source: format!("{place}/user-data") });
    Ok(Answered { metadata, user_data, extent: Extent::Whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_knows_and_ignores_the_rest() {
        let plain = parse_meta_data(b"instance-id: i-n1\nlocal-hostname: n1\n").unwrap();
        assert_eq!(plain, MetaData { instance_id: "i-n1".to_owned(), ..MetaData::default() });
        assert_eq!(parse_meta_data(b"{instance-id: \"0042\", tags: [a, b]}").unwrap().instance_id, "0042");
        let full =
            b"instance-id: i-1\ninstance-type: m5.large\nlocal-ipv4: 10.0.0.7\nregion: r\navailability-zone: z\n";
        let full = parse_meta_data(full).unwrap();
        let values = [full.instance_type, full.local_ipv4, full.region, full.zone];
        assert_eq!(values, ["m5.large", "10.0.0.7", "r", "z"]);
    }

    #[test]
    fn a_seed_without_an_instance_id_is_named_as_such() {
        for bad in [&b"local-hostname: n1\n"[..], b"instance-id: ''\n"] {
            assert!(matches!(parse_meta_data(bad), Err(MetaDataError::NoInstanceId)), "{bad:?}");
        }
        assert!(matches!(parse_meta_data(b"\xff\xfe"), Err(MetaDataError::NotText)));
        assert!(matches!(parse_meta_data(b"instance-id: [1, 2"), Err(MetaDataError::Yaml(_))));
        let wrong = parse_meta_data(b"instance-id: i\nlocal-ipv4: here\n");
        assert!(matches!(wrong, Err(MetaDataError::Form("local-ipv4"))), "{wrong:?}");
    }
}
