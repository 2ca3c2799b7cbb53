//! Azure: compute and network of the instance in one answer.
//!
//! User data is `userData`, in base64. What Azure calls custom data is not served here at all: it comes on a disc that the
//! platform's agent reads.

use data_encoding::BASE64;
use serde::Deserialize;

use crate::error::CloudError;
use crate::service::{Key, LINK_LOCAL, Presence, Service, field, required};
use crate::words;
use crate::{Answered, Asking, Extent, Identified, Metadata, Said, USER_DATA_LIMIT, UserData, Wanted};

/// The first stable version that has user data is of January 2021.
const PATH: &str = "/metadata/instance?api-version=2021-02-01";

#[derive(Deserialize)]
struct Instance {
    compute: Compute,
    #[serde(default)]
    network: Network,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Compute {
    vm_id: String,
    #[serde(default)]
    vm_size: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    user_data: String,
}

#[derive(Default, Deserialize)]
struct Network {
    #[serde(default)]
    interface: Vec<Interface>,
}

#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    ipv4: Addresses,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Addresses {
    #[serde(default)]
    ip_address: Vec<Address>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    #[serde(default)]
    private_ip_address: String,
}

pub(crate) fn ask(identified: &Identified, wanted: Wanted, asking: &Asking<'_>) -> Result<Answered, CloudError> {
    let mut service = Service::new(identified, &[LINK_LOCAL], asking)?;
    let source = service.url(PATH);
    let key = Key { what: "the instance", path: PATH, headers: &[("metadata", "true")], limit: USER_DATA_LIMIT };
    let platform = Said::new(identified.platform.name(), identified.by.clone());
    let answered =
        service.get(&key, Presence::Always, |answer| read(&answer.body, &source, platform.clone(), wanted))?;
    Ok(answered.unwrap_or_else(|| Answered {
        metadata: identified.nothing_said(&source),
        user_data: None,
        extent: Extent::Whole,
    }))
}

fn read(body: &[u8], source: &str, platform: Said, wanted: Wanted) -> Result<Answered, String> {
    let Instance { compute, network } =
        serde_json::from_slice(body).map_err(|_| "its answer is no instance of Azure".to_owned())?;
    let address = network.interface.first().and_then(|interface| interface.ipv4.ip_address.first());
    let address = address.map(|address| address.private_ip_address.as_str());
    let metadata = Metadata {
        platform,
        instance_id: required(Some(&compute.vm_id), "vmId", words::is_uuid, source)?,
        instance_type: field(Some(&compute.vm_size), "vmSize", words::is_azure_name, source)?,
        local_ipv4: field(address, "privateIpAddress", words::is_ipv4, source)?,
        region: field(Some(&compute.location), "location", words::is_azure_name, source)?,
        zone: field(Some(&compute.zone), "zone", words::is_azure_name, source)?,
    };
    let user_data = match wanted {
        Wanted::FactsAndUserData if !compute.user_data.is_empty() => {
            let bytes = BASE64
                .decode(compute.user_data.as_bytes())
                .map_err(|_| "userData in its answer is not base64".to_owned())?;
            Some(UserData { bytes, source: format!("{source} (userData)") })
        }
        _ => None,
    };
    Ok(Answered { metadata, user_data, extent: Extent::Whole })
}
