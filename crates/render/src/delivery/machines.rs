//! The documents with which a provider starts the machines of a group, and starts new ones when they end.
//!
//! Each is exactly what the provider's own tool or interface takes: `aws ec2 create-launch-template --cli-input-json`,
//! `aws autoscaling create-auto-scaling-group --cli-input-json`, and the bodies of GCE's `instanceTemplates.insert` and
//! `instanceGroupManagers.insert`. A template is named after its content, so that another content is another template
//! and a group says which one it starts from.

use std::collections::BTreeMap;

use bundle::{json, sha256_hex};
use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::delivery::UserData;
use crate::error::RenderError;

/// Digits of the digest in the name of a template.
const NAME_DIGITS: usize = 12;

/// Time in which a new machine counts as healthy, so that it is not replaced while it still boots.
const GRACE_SECONDS: u32 = 300;

/// What the provider has to know about the machines of a group. Names are those of the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    /// Of the group, unique in its account or project.
    pub name: String,
    /// AWS: `ami-…`; GCE: `projects/…/global/images/…`.
    pub image: String,
    pub instance_type: String,
    pub min: u32,
    pub max: u32,
    /// `None`: what the provider starts with, `min`.
    pub desired: Option<u32>,
    /// AWS: one or more, in different zones; GCE: one.
    pub subnets: Vec<String>,
    /// AWS: ids of security groups; GCE: network tags.
    pub security_groups: Vec<String>,
    /// AWS: name or ARN of an instance profile; GCE: e-mail address of a service account.
    pub identity: Option<String>,
    /// GCE calls them labels.
    pub tags: BTreeMap<String, String>,
    pub root_volume: Option<RootVolume>,
    /// GCE: zones of a regional group; empty for a group in one zone. AWS takes the zones of the subnets.
    pub zones: Vec<String>,
    /// AWS: through how many hops the metadata service answers. `None`: one, so that pods cannot ask it.
    pub metadata_hops: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootVolume {
    /// AWS: as the image names it, such as `/dev/xvda`; GCE needs none.
    pub device: String,
    pub gib: u32,
    /// Such as `gp3` or `pd-balanced`; `None`: the provider's default.
    pub kind: Option<String>,
}

/// A request body. It carries user data: treat it as a secret.
#[derive(Clone, PartialEq)]
pub struct Document {
    /// What the request makes, such as `launch-template`.
    pub kind: &'static str,
    /// Of what the request makes.
    pub name: String,
    pub body: Value,
    /// `sha256:` and the SHA-256 of the body as canonical JSON.
    pub digest: String,
}

impl Document {
    fn new(kind: &'static str, name: String, body: Value) -> Self {
        let digest = digest(&body);
        Self { kind, name, body, digest }
    }

    /// Sorted, indented, the same bytes every time.
    pub fn to_json(&self) -> String {
        json::pretty(&self.body)
    }
}

fn digest(body: &Value) -> String {
    format!("sha256:{}", sha256_hex(json::canonical(body).as_bytes()))
}

/// The name of a template: that of the group, and digits that stand for everything in it.
fn template_name(machines: &Machines, content: &Value) -> String {
    let digest = sha256_hex(json::canonical(content).as_bytes());
    format!("{}-{}", machines.name, &digest[..NAME_DIGITS])
}

/// Input of `aws ec2 create-launch-template --cli-input-json`.
pub fn aws_launch_template(machines: &Machines, user_data: &UserData) -> Result<Document, RenderError> {
    validate(machines)?;
    validate_aws(machines)?;
    let mut data = json!({
        "ImageId": machines.image,
        "InstanceType": machines.instance_type,
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": machines.metadata_hops.unwrap_or(1),
            "HttpTokens": "required",
        },
        "UserData": BASE64.encode(&user_data.bytes),
    });
    if !machines.security_groups.is_empty() {
        data["SecurityGroupIds"] = machines.security_groups.clone().into();
    }
    if let Some(identity) = &machines.identity {
        let key = if identity.starts_with("arn:") { "Arn" } else { "Name" };
        data["IamInstanceProfile"] = json!({ key: identity });
    }
    if let Some(volume) = &machines.root_volume {
        let mut disk = json!({ "DeleteOnTermination": true, "Encrypted": true, "VolumeSize": volume.gib });
        if let Some(kind) = &volume.kind {
            disk["VolumeType"] = kind.as_str().into();
        }
        data["BlockDeviceMappings"] = json!([{ "DeviceName": volume.device, "Ebs": disk }]);
    }
    let tags: Vec<Value> = machines.tags.iter().map(|(key, value)| json!({ "Key": key, "Value": value })).collect();
    if !tags.is_empty() {
        data["TagSpecifications"] = json!([
            { "ResourceType": "instance", "Tags": tags },
            { "ResourceType": "volume", "Tags": tags },
        ]);
    }
    let name = template_name(machines, &data);
    let mut body = json!({
        "LaunchTemplateData": data,
        "LaunchTemplateName": name,
        "VersionDescription": user_data.digest,
    });
    if !tags.is_empty() {
        body["TagSpecifications"] = json!([{ "ResourceType": "launch-template", "Tags": tags }]);
    }
    Ok(Document::new("launch-template", name, body))
}

/// Input of `aws autoscaling create-auto-scaling-group --cli-input-json`, for machines from that launch template.
pub fn aws_auto_scaling_group(machines: &Machines, template: &Document) -> Result<Document, RenderError> {
    validate(machines)?;
    validate_aws(machines)?;
    let tag = |(key, value): (&String, &String)| json!({ "Key": key, "PropagateAtLaunch": true, "Value": value });
    let mut body = json!({
        "AutoScalingGroupName": machines.name,
        "HealthCheckGracePeriod": GRACE_SECONDS,
        "HealthCheckType": "EC2",
        // A template is never changed, so its first version is the only one.
        "LaunchTemplate": { "LaunchTemplateName": template.name, "Version": "1" },
        "MaxSize": machines.max,
        "MinSize": machines.min,
        "VPCZoneIdentifier": machines.subnets.join(","),
    });
    if let Some(desired) = machines.desired {
        body["DesiredCapacity"] = desired.into();
    }
    if !machines.tags.is_empty() {
        body["Tags"] = machines.tags.iter().map(tag).collect();
    }
    Ok(Document::new("auto-scaling-group", machines.name.clone(), body))
}

/// Body of GCE's `instanceTemplates.insert`.
pub fn gce_instance_template(machines: &Machines, user_data: &UserData) -> Result<Document, RenderError> {
    validate(machines)?;
    validate_gce(machines)?;
    let text = std::str::from_utf8(&user_data.bytes).map_err(|_| {
        refusal("userData", "is not text, which is all that GCE's metadata takes: render it without compression")
    })?;
    let mut image = json!({ "sourceImage": machines.image });
    if let Some(volume) = &machines.root_volume {
        // Whole numbers of 64 bits are strings in Google's JSON.
        image["diskSizeGb"] = volume.gib.to_string().into();
        if let Some(kind) = &volume.kind {
            image["diskType"] = kind.as_str().into();
        }
    }
    let mut properties = json!({
        "disks": [{ "autoDelete": true, "boot": true, "initializeParams": image, "type": "PERSISTENT" }],
        "machineType": machines.instance_type,
        "metadata": { "items": [{ "key": "user-data", "value": text }] },
        "networkInterfaces": [{ "subnetwork": machines.subnets.first() }],
        "scheduling": { "automaticRestart": true, "onHostMaintenance": "MIGRATE" },
    });
    if !machines.security_groups.is_empty() {
        properties["tags"] = json!({ "items": machines.security_groups });
    }
    if !machines.tags.is_empty() {
        properties["labels"] = json!(machines.tags);
    }
    if let Some(identity) = &machines.identity {
        let scopes = ["https://www.googleapis.com/auth/cloud-platform"];
        properties["serviceAccounts"] = json!([{ "email": identity, "scopes": scopes }]);
    }
    let name = template_name(machines, &properties);
    let body = json!({ "description": user_data.digest, "name": name, "properties": properties });
    Ok(Document::new("instance-template", name, body))
}

/// Body of GCE's `instanceGroupManagers.insert`, or of its regional namesake where there are zones.
///
/// The group starts a machine again whenever one ends by itself. It does not judge their health: a node that is not Ready
/// is the cluster's to mend, and a cloud that ends machines during an outage of the control plane makes it worse.
pub fn gce_instance_group(machines: &Machines, template: &Document) -> Result<Document, RenderError> {
    validate(machines)?;
    validate_gce(machines)?;
    let mut body = json!({
        "baseInstanceName": machines.name,
        "instanceTemplate": format!("global/instanceTemplates/{}", template.name),
        "name": machines.name,
        "targetSize": machines.desired.unwrap_or(machines.min),
        // Another template changes machines only when somebody asks for it.
        "updatePolicy": { "type": "OPPORTUNISTIC" },
    });
    if !machines.zones.is_empty() {
        let zones: Vec<Value> = machines.zones.iter().map(|zone| json!({ "zone": format!("zones/{zone}") })).collect();
        body["distributionPolicy"] = json!({ "zones": zones });
    }
    Ok(Document::new("instance-group", machines.name.clone(), body))
}

fn refusal(field: &'static str, problem: impl Into<String>) -> RenderError {
    RenderError::Machines { field, problem: problem.into() }
}

fn validate(machines: &Machines) -> Result<(), RenderError> {
    for (field, text) in
        [("name", &machines.name), ("image", &machines.image), ("instanceType", &machines.instance_type)]
    {
        if text.is_empty() || text.chars().any(|character| character.is_control() || character.is_whitespace()) {
            return Err(refusal(field, "is empty or has white space in it"));
        }
    }
    let desired = machines.desired.unwrap_or(machines.min);
    if machines.min > desired || desired > machines.max {
        let sizes = format!("'{}' of at least '{}' and at most '{}'", desired, machines.min, machines.max);
        return Err(refusal("desired", format!("is out of order with {sizes}")));
    }
    if machines.root_volume.as_ref().is_some_and(|volume| volume.gib == 0) {
        return Err(refusal("rootVolume", "has no size"));
    }
    Ok(())
}

fn validate_aws(machines: &Machines) -> Result<(), RenderError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./()".contains(&byte);
    let longest = 128 - NAME_DIGITS - 1;
    if machines.name.len() < 3 || machines.name.len() > longest || !machines.name.bytes().all(allowed) {
        return Err(refusal("name", format!("is not 3 to {longest} letters, digits and '-_./()'")));
    }
    if machines.subnets.is_empty() || machines.subnets.iter().any(|subnet| subnet.is_empty() || subnet.contains(',')) {
        return Err(refusal("subnets", "needs the id of one subnet or more"));
    }
    if machines.root_volume.as_ref().is_some_and(|volume| volume.device.is_empty()) {
        return Err(refusal("rootVolume", "needs the name of the image's root device, such as '/dev/xvda'"));
    }
    if machines.metadata_hops.is_some_and(|hops| !(1..=64).contains(&hops)) {
        return Err(refusal("metadataHops", "is not from 1 to 64"));
    }
    for (key, value) in &machines.tags {
        let reserved = key.to_ascii_lowercase().starts_with("aws:");
        if key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256 || reserved {
            return Err(refusal(
                "tags",
                format!(
                    "has '{key}', which AWS does not take: keys have 1 to 128 characters and do not start with 'aws:', values have up to 256"
                ),
            ));
        }
    }
    Ok(())
}

fn validate_gce(machines: &Machines) -> Result<(), RenderError> {
    let longest = 63 - NAME_DIGITS - 1;
    let name = |text: &str| {
        let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(rest) && !text.ends_with('-')
    };
    if !name(&machines.name) || machines.name.len() > longest {
        let rule = format!("is not 1 to {longest} lower-case letters, digits and dashes that start with a letter");
        return Err(refusal("name", rule));
    }
    if machines.subnets.len() != 1 {
        return Err(refusal("subnets", "needs exactly one subnetwork"));
    }
    for (key, value) in &machines.tags {
        let allowed = |text: &str| {
            text.len() <= 63
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
        };
        if !key.starts_with(|first: char| first.is_ascii_lowercase()) || !allowed(key) || !allowed(value) {
            let rule = "labels are up to 63 lower-case letters, digits, dashes and underscores";
            return Err(refusal("tags", format!("has '{key}', which GCE does not take: {rule}")));
        }
    }
    Ok(())
}
