//! AWS: a token by PUT, then one path a value, all over one connection. Seven requests with the user data.
//!
//! An instance whose metadata is switched off is refused there, but still knows its id and its type from its firmware.

use fetch::{Ending, Verb};
use host::disk::Disk;

use crate::dmi::{self, DMI_FOLDER, Dmi};
use crate::error::CloudError;
use crate::service::{DOCUMENT_LIMIT, Key, LINK_LOCAL, Presence, Refusal, Reply, Service, word};
use crate::words::{self, Form};
use crate::{Answered, Asking, Extent, Identified, Metadata, Said, USER_DATA_LIMIT, UserData, Wanted};

/// For machines without IPv4.
const OVER_IPV6: &str = "http://[fd00:ec2::254]";
const TOKEN_PATH: &str = "/latest/api/token";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
/// A token is for this run only; the shortest life that outlasts the deadline of a run.
const TOKEN_SECONDS: &str = "300";

pub(crate) fn ask(
    identified: &Identified,
    disk: &dyn Disk,
    wanted: Wanted,
    asking: &Asking<'_>,
) -> Result<Answered, CloudError> {
    match ask_service(identified, wanted, asking) {
        Err(CloudError::Service { platform, answer, advice })
            if wanted == Wanted::Facts && answer.ending == Ending::Refused =>
        {
            let firmware = dmi::load(disk)?;
            from_firmware(identified, &firmware).ok_or(CloudError::Service { platform, answer, advice })
        }
        answered => answered,
    }
}

/// The asset tag of the board is the instance id, and the product the instance type, on all but the oldest types.
fn from_firmware(identified: &Identified, firmware: &Dmi) -> Option<Answered> {
    let (id, kind) = (&firmware.board_asset_tag, &firmware.product_name);
    if !words::is_aws_instance_id(id) || !words::is_aws_instance_type(kind) {
        return None;
    }
    let metadata = Metadata {
        instance_id: Said::new(id, format!("{DMI_FOLDER}/board_asset_tag")),
        instance_type: Said::new(kind, format!("{DMI_FOLDER}/product_name")),
        ..identified.nothing_said("the metadata service of aws refuses to say")
    };
    Some(Answered { metadata, user_data: None, extent: Extent::Firmware })
}

fn ask_service(identified: &Identified, wanted: Wanted, asking: &Asking<'_>) -> Result<Answered, CloudError> {
    let mut session = Session::new(identified, asking)?;
    // First what every instance has: once it is there, the service knows this machine.
    let instance_id = session.value("instance-id", Presence::Always, words::is_aws_instance_id)?;
    let instance_type = session.value("instance-type", Presence::Always, words::is_aws_instance_type)?;
    let zone = session.value("placement/availability-zone", Presence::Always, words::is_label)?;
    let region = session.value("placement/region", Presence::Perhaps, words::is_label)?;
    // An instance in a subnet of IPv6 only has none.
    let local_ipv4 = session.value("local-ipv4", Presence::Perhaps, words::is_ipv4)?;
    let user_data = match wanted {
        Wanted::Facts => None,
        Wanted::FactsAndUserData => session.user_data()?,
    };
    let platform = Said::new(identified.platform.name(), identified.by.clone());
    let metadata = Metadata { platform, instance_id, instance_type, local_ipv4, region, zone };
    Ok(Answered { metadata, user_data, extent: Extent::Whole })
}

pub(crate) struct Session<'a> {
    service: Service<'a>,
    token: Option<String>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(identified: &Identified, asking: &Asking<'a>) -> Result<Self, CloudError> {
        Ok(Self { service: Service::new(identified, &[LINK_LOCAL, OVER_IPV6], asking)?, token: None })
    }

    fn value(&mut self, name: &'static str, presence: Presence, form: Form) -> Result<Said, CloudError> {
        let path = format!("/latest/meta-data/{name}");
        let value = self.get(name, &path, DOCUMENT_LIMIT, presence, |body| word(body, form))?;
        Ok(Said::new(value.unwrap_or_default(), self.service.url(&path)))
    }

    fn user_data(&mut self) -> Result<Option<UserData>, CloudError> {
        let path = "/latest/user-data";
        let read = |body: &[u8]| Ok(body.to_vec());
        let bytes = self.get("the user data", path, USER_DATA_LIMIT, Presence::Perhaps, read)?;
        let source = self.service.url(path);
        Ok(bytes.map(|bytes| UserData { bytes, source }))
    }

    /// A token that the service knows no more is replaced once; whoever refuses a fresh one is not that service.
    pub(crate) fn get<T>(
        &mut self,
        what: &'static str,
        path: &str,
        limit: usize,
        presence: Presence,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, CloudError> {
        let mut refusal = if self.token.is_some() { Refusal::Token } else { Refusal::Stranger };
        loop {
            let token = match self.token.take() {
                Some(token) => token,
                None => self.fetch_token()?,
            };
            let headers = [(TOKEN_HEADER, token.as_str())];
            let key = Key { what, path, headers: &headers, limit };
            let reply = self.service.ask(Verb::Get, &key, presence, refusal, |answer| read(&answer.body))?;
            let value = match reply {
                Reply::Refused => {
                    refusal = Refusal::Stranger;
                    continue;
                }
                Reply::Here(value) => Some(value),
                Reply::Absent => None,
            };
            self.token = Some(token);
            return Ok(value);
        }
    }

    fn fetch_token(&mut self) -> Result<String, CloudError> {
        let headers = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)];
        let key = Key { what: "a session token", path: TOKEN_PATH, headers: &headers, limit: DOCUMENT_LIMIT };
        let read = |answer: &fetch::Answer| word(&answer.body, is_token);
        match self.service.ask(Verb::Put, &key, Presence::Always, Refusal::Stranger, read)? {
            Reply::Here(token) => Ok(token),
            // Neither is said of what is always there and needs no token.
            Reply::Absent | Reply::Refused => Ok(String::new()),
        }
    }
}

/// It becomes a header: no blank, no control character. AWS gives 56 characters of base64.
fn is_token(text: &str) -> bool {
    (8..=1024).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_'))
}
