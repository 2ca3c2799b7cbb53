//! GCE: everything about the instance in one answer, which carries the header that only this service sends.

use data_encoding::BASE64;
use fetch::Answer;
use serde::Deserialize;

use crate::error::CloudError;
use crate::service::{Key, LINK_LOCAL, Presence, Service, field, last_segment, required};
use crate::words;
use crate::{Answered, Asking, Extent, Identified, Metadata, Said, UserData, Wanted};

const PATH: &str = "/computeMetadata/v1/instance/?recursive=true";
/// The service wants it in every question, and puts it into every answer.
const FLAVOR: (&str, &str) = ("metadata-flavor", "Google");
/// All attributes of an instance together have 512 KiB at most; the rest is small.
const LIMIT: usize = 1024 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance {
    id: serde_json::Number,
    #[serde(default)]
    machine_type: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    network_interfaces: Vec<Interface>,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    ip: String,
}

/// Whoever makes the instance names them; only ours are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Attributes {
    user_data: Option<String>,
    /// cloud-init's way to put bytes into an attribute.
    user_data_encoding: Option<String>,
}

pub(crate) fn ask(identified: &Identified, wanted: Wanted, asking: &Asking<'_>) -> Result<Answered, CloudError> {
    let mut service = Service::new(identified, &[LINK_LOCAL], asking)?;
    let source = service.url(PATH);
    let key = Key { what: "the instance", path: PATH, headers: &[FLAVOR], limit: LIMIT };
    let platform = Said::new(identified.platform.name(), identified.by.clone());
    let answered = service.get(&key, Presence::Always, |answer| {
        expect_flavor(answer)?;
        read(&answer.body, &source, platform.clone(), wanted)
    })?;
    Ok(answered.unwrap_or_else(|| Answered {
        metadata: identified.nothing_said(&source),
        user_data: None,
        extent: Extent::Whole,
    }))
}

fn expect_flavor(answer: &Answer) -> Result<(), String> {
    let flavor = answer.headers.get(FLAVOR.0).and_then(|value| value.to_str().ok());
    if flavor == Some(FLAVOR.1) { Ok(()) } else { Err("its answer has no header 'Metadata-Flavor: Google'".to_owned()) }
}

fn read(body: &[u8], source: &str, platform: Said, wanted: Wanted) -> Result<Answered, String> {
    let instance: Instance = serde_json::from_slice(body).map_err(|_| "its answer is no instance of GCE".to_owned())?;
    let zone = last_segment(&instance.zone);
    // `europe-west1-b` lies in `europe-west1`.
    let region = zone.rsplit_once('-').map(|(region, _)| region);
    let address = instance.network_interfaces.first().map(|interface| interface.ip.as_str());
    let metadata = Metadata {
        platform,
        instance_id: required(Some(&instance.id.to_string()), "id", words::is_number, source)?,
        instance_type: field(Some(last_segment(&instance.machine_type)), "machineType", words::is_label, source)?,
        local_ipv4: field(address, "ip", words::is_ipv4, source)?,
        region: field(region, "zone", words::is_label, source)?,
        zone: field(Some(zone), "zone", words::is_label, source)?,
    };
    let user_data = match wanted {
        Wanted::Facts => None,
        Wanted::FactsAndUserData => user_data(instance.attributes, source)?,
    };
    Ok(Answered { metadata, user_data, extent: Extent::Whole })
}

fn user_data(attributes: Attributes, source: &str) -> Result<Option<UserData>, String> {
    let Some(text) = attributes.user_data else { return Ok(None) };
    let bytes = match attributes.user_data_encoding.as_deref() {
        None | Some("") => text.into_bytes(),
        Some("base64") => BASE64
            .decode(text.split_whitespace().collect::<String>().as_bytes())
            .map_err(|_| "user-data-encoding says base64, but user-data is not".to_owned())?,
        Some(_) => return Err("user-data-encoding is neither absent nor base64".to_owned()),
    };
    Ok(Some(UserData { bytes, source: format!("{source} (user-data)") }))
}
