//! OpenStack: the same two files, on a config drive or from the metadata service.
//!
//! Neither tells the flavor, the address or the region; those facts stay empty.

use std::path::Path;

use host::volumes::{Sought, Volume};
use serde::Deserialize;

use crate::error::CloudError;
use crate::identify::Place;
use crate::service::{DOCUMENT_LIMIT, Key, LINK_LOCAL, Presence, Service, field, required, user_data_key};
use crate::words;
use crate::{Answered, Asking, Extent, Identified, Metadata, Said, USER_DATA_LIMIT, UserData, Wanted};

pub(crate) const DRIVE: Sought = Sought { labels: &["config-2"], file: META_DATA };
const META_DATA: &str = "/openstack/latest/meta_data.json";
const USER_DATA: &str = "/openstack/latest/user_data";

#[derive(Deserialize)]
struct Document {
    uuid: String,
    #[serde(default)]
    availability_zone: Option<String>,
}

pub(crate) fn ask(identified: &Identified, wanted: Wanted, asking: &Asking<'_>) -> Result<Answered, CloudError> {
    match &identified.place {
        Place::Volume(drive) => read_drive(identified, drive, wanted),
        _ => ask_service(identified, wanted, asking),
    }
}

fn read_drive(identified: &Identified, drive: &Volume, wanted: Wanted) -> Result<Answered, CloudError> {
    let named = |path: &str| format!("{}{path}", drive.name);
    let broken = |problem: &str| CloudError::Drive { path: named(META_DATA), problem: problem.to_owned() };
    let bytes = drive.read(Path::new(META_DATA), DOCUMENT_LIMIT as u64)?.ok_or_else(|| broken("it is not there"))?;
    let metadata = read(identified, &bytes, &named(META_DATA)).map_err(|problem| broken(&problem))?;
    let user_data = match wanted {
        Wanted::Facts => None,
        Wanted::FactsAndUserData => drive
            .read(Path::new(USER_DATA), USER_DATA_LIMIT as u64)?
            .map(|bytes| UserData { bytes, source: named(USER_DATA) }),
    };
    Ok(Answered { metadata, user_data, extent: Extent::Whole })
}

fn ask_service(identified: &Identified, wanted: Wanted, asking: &Asking<'_>) -> Result<Answered, CloudError> {
    let mut service = Service::new(identified, &[LINK_LOCAL], asking)?;
    let source = service.url(META_DATA);
    let key = Key { what: "the instance", path: META_DATA, headers: &[], limit: DOCUMENT_LIMIT };
    let metadata = service.get(&key, Presence::Always, |answer| {
        read(identified, &answer.body, &source).map_err(|problem| format!("its answer cannot be used: {problem}"))
    })?;
    let metadata = metadata.unwrap_or_else(|| identified.nothing_said(&source));
    let user_data = match wanted {
        Wanted::Facts => None,
        Wanted::FactsAndUserData => {
            let source = service.url(USER_DATA);
            let bytes = service.get(&user_data_key(USER_DATA), Presence::Perhaps, |answer| Ok(answer.body.clone()))?;
            bytes.map(|bytes| UserData { bytes, source })
        }
    };
    Ok(Answered { metadata, user_data, extent: Extent::Whole })
}

fn read(identified: &Identified, bytes: &[u8], source: &str) -> Result<Metadata, String> {
    let document: Document =
        serde_json::from_slice(bytes).map_err(|_| "it is no meta_data.json of OpenStack".to_owned())?;
    Ok(Metadata {
        instance_id: required(Some(&document.uuid), "uuid", words::is_uuid, source)?,
        zone: field(document.availability_zone.as_deref(), "availability_zone", words::is_name, source)?,
        platform: Said::new(identified.platform.name(), identified.by.clone()),
        ..identified.nothing_said(source)
    })
}
