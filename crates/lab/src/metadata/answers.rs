//! What each provider's service says, to whom.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::listener::Request;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Provider {
    Aws,
    Gce,
    Azure,
    OpenStack,
}

/// The machine that the service knows.
#[derive(Clone, Serialize, Deserialize)]
pub struct Instance {
    pub provider: Provider,
    pub id: String,
    pub kind: String,
    /// An instance of AWS in a subnet of IPv6 only has none.
    pub ipv4: Option<String>,
    pub region: String,
    pub zone: String,
    pub user_data: Option<Vec<u8>>,
    /// Of AWS.
    pub role: Option<Role>,
}

/// An instance role, with credentials that open nothing.
#[derive(Clone, Serialize, Deserialize)]
pub struct Role {
    pub name: String,
    pub access_key: String,
    pub secret_key: String,
    pub token: String,
    /// Such as `2026-11-18T07:00:00Z`.
    pub expiration: String,
}

impl Instance {
    /// One that the provider might have made.
    pub fn of(provider: Provider) -> Self {
        let (id, kind, region, zone) = match provider {
            Provider::Aws => ("i-0123456789abcdef0", "m5.large", "eu-central-1", "eu-central-1a"),
            Provider::Gce => ("4520031799277581759", "n2-standard-4", "europe-west1", "europe-west1-b"),
            Provider::Azure => ("02aab8a4-74ef-476e-8182-f6d2ba4166a6", "Standard_D2s_v5", "westeurope", "2"),
            Provider::OpenStack => ("83679162-1378-4288-a2d4-70e13ec132aa", "", "", "nova"),
        };
        Self {
            provider,
            id: id.to_owned(),
            kind: kind.to_owned(),
            ipv4: Some("10.0.0.7".to_owned()),
            region: region.to_owned(),
            zone: zone.to_owned(),
            user_data: None,
            role: None,
        }
    }

    pub fn with_user_data(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { user_data: Some(bytes.into()), ..self }
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
}

fn refuse(status: u16) -> Answer {
    let page = format!("<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n");
    Answer { status, headers: vec![("Content-Type", "text/html")], body: page.into_bytes() }
}

fn say(kind: &'static str, body: impl Into<Vec<u8>>) -> Answer {
    Answer { status: 200, headers: vec![("Content-Type", kind)], body: body.into() }
}

pub(crate) fn answer(instance: &Instance, request: &Request) -> Answer {
    // No service answers to somebody who came through a proxy.
    if request.header("x-forwarded-for").is_some() {
        return refuse(403);
    }
    match instance.provider {
        Provider::Aws => aws(instance, request),
        Provider::Gce => gce(instance, request),
        Provider::Azure => azure(instance, request),
        Provider::OpenStack => openstack(instance, request),
    }
}

const TOKEN: &str = "AQAEAFC0bGFiIHRva2VuIG9mIGEgbWV0YWRhdGEgc2VydmljZQ==";

fn aws(instance: &Instance, request: &Request) -> Answer {
    if request.path == "/latest/api/token" {
        let ttl = request.header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|ttl| ttl.parse::<u32>().ok());
        return match (request.verb.as_str(), ttl) {
            ("PUT", Some(1..=21_600)) => say("text/plain", TOKEN),
            ("PUT", _) => refuse(400),
            _ => refuse(405),
        };
    }
    if request.header("x-aws-ec2-metadata-token") != Some(TOKEN) {
        return refuse(401);
    }
    if let Some(asked) = request.path.strip_prefix("/latest/meta-data/iam/security-credentials/") {
        return match &instance.role {
            Some(role) if asked.is_empty() => say("text/plain", role.name.clone()),
            Some(role) if asked == role.name => say("text/plain", credentials_of(role)),
            _ => refuse(404),
        };
    }
    let value = match request.path.as_str() {
        "/latest/meta-data/instance-id" => Some(instance.id.clone()),
        "/latest/meta-data/instance-type" => Some(instance.kind.clone()),
        "/latest/meta-data/local-ipv4" => instance.ipv4.clone(),
        "/latest/meta-data/local-hostname" => {
            instance.ipv4.as_ref().map(|ip| format!("ip-{}.{}.compute.internal", ip.replace('.', "-"), instance.region))
        }
        "/latest/meta-data/placement/region" => Some(instance.region.clone()),
        "/latest/meta-data/placement/availability-zone" => Some(instance.zone.clone()),
        "/latest/user-data" => {
            return match &instance.user_data {
                Some(bytes) => say("application/octet-stream", bytes.clone()),
                None => refuse(404),
            };
        }
        _ => None,
    };
    value.map_or_else(|| refuse(404), |value| say("text/plain", value))
}

/// A document of several lines, as the service has it.
fn credentials_of(role: &Role) -> String {
    let document = json!({
        "Code": "Success",
        "LastUpdated": "2026-11-18T06:00:00Z",
        "Type": "AWS-HMAC",
        "AccessKeyId": role.access_key,
        "SecretAccessKey": role.secret_key,
        "Token": role.token,
        "Expiration": role.expiration,
    });
    format!("{document:#}")
}

fn gce(instance: &Instance, request: &Request) -> Answer {
    if request.header("metadata-flavor") != Some("Google") {
        return refuse(403);
    }
    if request.path != "/computeMetadata/v1/instance/?recursive=true" {
        return refuse(404);
    }
    let mut attributes = json!({ "ssh-keys": "somebody:ssh-ed25519 AAAA" });
    if let Some(bytes) = &instance.user_data {
        // An attribute is text; bytes go in as cloud-init wants them.
        match std::str::from_utf8(bytes) {
            Ok(text) => attributes["user-data"] = text.into(),
            Err(_) => {
                attributes["user-data"] = BASE64.encode(bytes).into();
                attributes["user-data-encoding"] = "base64".into();
            }
        }
    }
    let id: u64 = instance.id.parse().unwrap_or_default();
    let document = json!({
        "attributes": attributes,
        "cpuPlatform": "Intel Cascade Lake",
        "hostname": "n1.c.project.internal",
        "id": id,
        "machineType": format!("projects/1234567890/machineTypes/{}", instance.kind),
        "name": "n1",
        "networkInterfaces": [{ "ip": instance.ipv4, "mac": "42:01:0a:00:00:07", "mtu": 1460 }],
        "zone": format!("projects/1234567890/zones/{}", instance.zone),
    });
    let mut answer = say("application/json", document.to_string());
    answer.headers.push(("Metadata-Flavor", "Google"));
    answer
}

fn azure(instance: &Instance, request: &Request) -> Answer {
    if request.header("metadata") != Some("true") {
        return refuse(400);
    }
    let Some(("/metadata/instance", query)) = request.path.split_once('?') else { return refuse(404) };
    if !query.split('&').any(|part| part.strip_prefix("api-version=").is_some_and(|version| version >= "2021-01-01")) {
        return refuse(400);
    }
    let addresses = json!([{ "privateIpAddress": instance.ipv4, "publicIpAddress": "" }]);
    let document = json!({
        "compute": {
            "customData": "",
            "location": instance.region,
            "name": "n1",
            "userData": instance.user_data.as_deref().map(|bytes| BASE64.encode(bytes)).unwrap_or_default(),
            "vmId": instance.id,
            "vmSize": instance.kind,
            "zone": instance.zone,
        },
        "network": { "interface": [{ "ipv4": { "ipAddress": addresses }, "macAddress": "000D3A000007" }] },
    });
    say("application/json; charset=utf-8", document.to_string())
}

fn openstack(instance: &Instance, request: &Request) -> Answer {
    match (request.path.as_str(), &instance.user_data) {
        ("/openstack/latest/meta_data.json", _) => {
            let document = json!({
                "availability_zone": instance.zone,
                "hostname": "n1.novalocal",
                "launch_index": 0,
                "name": "n1",
                "uuid": instance.id,
            });
            say("application/json", document.to_string())
        }
        ("/openstack/latest/user_data", Some(bytes)) => say("application/octet-stream", bytes.clone()),
        _ => refuse(404),
    }
}
