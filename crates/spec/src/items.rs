//! Values with parts, and lists of them: files, hooks, units, user data, mirrors, keys.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::contents::{HookText, PublicKeys, UnitText};
use crate::record::{Context, Place, SpecValue, item};
use crate::syntax;
use crate::texts::{ADDRESS, AbsolutePath, Duration, Image, Line, MediaType, NETWORK, Name, UnitName, VariableName};
use crate::tree::{Kind, Node};
use crate::values::Secret;
use crate::values::{
    BootstrapToken, CertificatePem, HookSlot, Invalid, Necessity, REDACTED, Taint, TaintEffect, UnitState, family,
};
use crate::view::{Look, SecretDisplay};

impl SpecValue for String {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        context.drafts.text(node).map(str::to_owned)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        json!({ "type": "string" })
    }
}

impl SpecValue for bool {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        crate::config::decode_bool(context.drafts, node)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(*self)
    }

    fn schema() -> Value {
        json!({ "type": "boolean" })
    }
}

impl SpecValue for u32 {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let number = crate::config::decode_int(context.drafts, node, 0, i64::from(u32::MAX))?;
        u32::try_from(number).ok()
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(*self)
    }

    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
}

impl<T: SpecValue> SpecValue for Vec<T> {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        context.drafts.items(node, |item| T::decode(context, item))
    }

    fn to_json(&self, look: Look) -> Value {
        self.iter().map(|item| item.to_json(look)).collect()
    }

    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }
}

/// A part that may be left out.
impl<T: SpecValue> SpecValue for Option<T> {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        T::decode(context, node).map(Some)
    }

    fn to_json(&self, look: Look) -> Value {
        self.as_ref().map_or(Value::Null, |value| value.to_json(look))
    }

    fn schema() -> Value {
        T::schema()
    }
}

/// Keys that are texts with a rule.
impl<K: SpecValue + FromStr<Err: Into<Invalid>> + ToString + Ord, T: SpecValue> SpecValue for BTreeMap<K, T> {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let entries = context.drafts.entries(node)?;
        let decoded: Vec<Option<(K, T)>> = entries
            .iter()
            .map(|entry| {
                let key: Result<K, Invalid> = entry.key.parse().map_err(K::Err::into);
                let key = key.map_err(|invalid| context.drafts.report_invalid(entry.key_span, invalid)).ok();
                let value = T::decode(context, &entry.value);
                Some((key?, value?))
            })
            .collect();
        decoded.into_iter().collect()
    }

    fn to_json(&self, look: Look) -> Value {
        Value::Object(self.iter().map(|(key, value)| (key.to_string(), value.to_json(look))).collect())
    }

    fn schema() -> Value {
        let names = json!({ "pattern": K::schema()["pattern"] });
        json!({ "type": "object", "propertyNames": names, "additionalProperties": T::schema() })
    }
}

/// Networks: at most one of each family, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(pub Vec<IpNet>);

impl SpecValue for Networks {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        let networks = drafts.items(node, |item| {
            let text = drafts.scalar(item)?;
            drafts.checked(item, syntax::parse_service_network(text))
        })?;
        let items = drafts.list(node)?;
        if items.is_empty() {
            drafts.report(node.span, "at least one network is needed");
            return None;
        }
        for (index, (network, item)) in networks.iter().zip(items).enumerate() {
            if networks[..index].iter().any(|earlier| family(earlier.addr()) == family(network.addr())) {
                let family = family(network.addr());
                drafts.report(item.span, format!("a second {family} network: at most one of each family"));
                return None;
            }
        }
        Some(Self(networks))
    }

    fn to_json(&self, _: Look) -> Value {
        self.0.iter().map(ToString::to_string).collect()
    }

    fn schema() -> Value {
        json!({
            "type": "array", "minItems": 1, "maxItems": 2,
            "items": { "type": "string", "pattern": NETWORK, "examples": ["10.96.0.0/12", "fd00:10:96::/112"] },
        })
    }
}

/// Addresses of the cluster's DNS service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(pub Vec<IpAddr>);

impl SpecValue for Addresses {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        let addresses = drafts.items(node, |item| {
            let text = drafts.scalar(item)?;
            let parsed = text.parse::<IpAddr>().map_err(|_| Invalid::new(format!("\"{text}\" is not an IP address")));
            drafts.checked(item, parsed)
        })?;
        if addresses.is_empty() {
            drafts.report(node.span, "at least one address is needed");
            return None;
        }
        Some(Self(addresses))
    }

    fn to_json(&self, _: Look) -> Value {
        self.0.iter().map(ToString::to_string).collect()
    }

    fn schema() -> Value {
        let address = json!({ "type": "string", "pattern": ADDRESS, "examples": ["10.96.0.10"] });
        json!({ "type": "array", "minItems": 1, "items": address })
    }
}

/// `[prefix/]name`.
const QUALIFIED_NAME: &str = "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$";

/// Labels that a kubelet may set on its own node.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Labels(pub BTreeMap<String, String>);

impl SpecValue for Labels {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        let mut labels = BTreeMap::new();
        for entry in drafts.entries(node)? {
            if let Err(invalid) = syntax::validate_node_label_key(&entry.key) {
                drafts.report_invalid(entry.key_span, invalid);
            }
            if let Some(value) = drafts.valid_text(&entry.value, syntax::validate_label_value) {
                labels.insert(entry.key.clone(), value);
            }
        }
        Some(Self(labels))
    }

    fn to_json(&self, _: Look) -> Value {
        Value::Object(self.0.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect())
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "propertyNames": { "pattern": QUALIFIED_NAME },
            "additionalProperties": { "type": "string", "pattern": LABEL_VALUE },
        })
    }
}

/// Taints, each key and effect once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Taints(pub Vec<Taint>);

impl SpecValue for Taints {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        let taints = drafts.items(node, |item| decode_taint(context, item))?;
        for (index, (taint, item)) in taints.iter().zip(drafts.list(node)?).enumerate() {
            if taints[..index].iter().any(|earlier| (&earlier.key, earlier.effect) == (&taint.key, taint.effect)) {
                drafts.report(item.span, format!("a second taint \"{}\" with the effect {}", taint.key, taint.effect));
            }
        }
        Some(Self(taints))
    }

    fn to_json(&self, _: Look) -> Value {
        self.0
            .iter()
            .map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect.as_str() }))
            .collect()
    }

    fn schema() -> Value {
        let taint = crate::record::record_schema(vec![
            ("key", "The key.", json!({ "type": "string", "pattern": QUALIFIED_NAME }), true),
            ("value", "The value; may be left out.", json!({ "type": "string", "pattern": LABEL_VALUE }), false),
            ("effect", "What it does to pods that do not tolerate it.", TaintEffect::schema(), true),
        ]);
        json!({ "type": "array", "items": taint })
    }
}

fn decode_taint(context: Context<'_>, node: &Node) -> Option<Taint> {
    let drafts = context.drafts;
    if let Kind::Scalar { text, .. } = &node.kind
        && !node.is_missing()
    {
        let report = drafts.report(node.span, "a taint is a mapping, not a text");
        report.advise(match syntax::split_taint(text) {
            Some((key, value, effect)) => format!("write {{key: {key}, value: \"{value}\", effect: {effect}}}"),
            None => "write {key: …, value: …, effect: NoSchedule}".to_owned(),
        });
        return None;
    }
    let mut fields = drafts.fields(node, "a taint")?;
    let key = fields.required("key", |drafts, node| drafts.valid_text(node, syntax::validate_qualified_name));
    let value = fields.optional("value", |drafts, node| drafts.valid_text(node, syntax::validate_label_value));
    let effect = fields.required("effect", |drafts, node| drafts.value::<TaintEffect>(node));
    fields.finish();
    Some(Taint { key: key?.value, value: value.map(|set| set.value).unwrap_or_default(), effect: effect?.value })
}

impl SpecValue for BootstrapToken {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        // Before anything can be reported about it.
        if !matches!(node.kind, Kind::Map(_)) {
            context.drafts.hide(node.span);
        }
        context.files.value_or_file(context.drafts, node, "bootstrapToken")
    }

    fn to_json(&self, look: Look) -> Value {
        match look.secrets {
            SecretDisplay::Shown => Value::from(self.expose()),
            SecretDisplay::Redacted => Value::from(REDACTED),
        }
    }

    fn schema() -> Value {
        value_or_file(json!({ "type": "string", "pattern": "^[a-z0-9]{6}\\.[a-z0-9]{16}$" }))
    }
}

pub(crate) fn value_or_file(value: Value) -> Value {
    let file = crate::record::record_schema(vec![(
        "file",
        "Path of the file, relative to the folder of the spec.",
        json!({ "type": "string" }),
        true,
    )]);
    json!({ "oneOf": [value, file] })
}

impl SpecValue for CertificatePem {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let certificate = context.files.value_or_file(context.drafts, node, "certificate");
        // A certificate is public, but what is none may be a pasted private key.
        if certificate.is_none() && !matches!(node.kind, Kind::Map(_)) {
            context.drafts.hide(node.span);
        }
        certificate
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        value_or_file(json!({ "type": "string", "description": "PEM, or base64 of PEM." }))
    }
}

/// Text written in place or taken from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(pub String);

impl FromStr for Content {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Ok(Self(text.to_owned()))
    }
}

impl SpecValue for Content {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        context.files.text_or_file(context.drafts, node, "content").map(Self)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.0.as_str())
    }

    fn schema() -> Value {
        value_or_file(json!({ "type": "string" }))
    }
}

fn report_redacted(context: Context<'_>, node: &Node) {
    context
        .drafts
        .report(node.span, "this secret was redacted when the spec was printed")
        .advise("print it again with --show-secrets, or name a file: {file: …}");
}

/// A text that must not be seen, in place or from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretText(pub Secret);

impl SpecValue for SecretText {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        if !matches!(node.kind, Kind::Map(_)) {
            context.drafts.hide(node.span);
        }
        let text = context.files.text_or_file(context.drafts, node, "secret")?;
        if text == REDACTED {
            report_redacted(context, node);
            return None;
        }
        Some(Self(Secret::new(text)))
    }

    fn to_json(&self, look: Look) -> Value {
        match look.secrets {
            SecretDisplay::Shown => Value::from(self.0.expose()),
            SecretDisplay::Redacted => Value::from(REDACTED),
        }
    }

    fn schema() -> Value {
        value_or_file(json!({ "type": "string" }))
    }
}

/// Octal, as `chmod` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl SpecValue for FileMode {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let text = context.drafts.scalar(node)?;
        let digits = text.len() == 4 && text.starts_with('0') && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let mode = digits.then(|| u32::from_str_radix(text, 8).ok()).flatten().map(Self);
        let mode = mode.ok_or_else(|| {
            Invalid::new(format!("\"{text}\" is not a file mode")).advise("four octal digits in quotes, as in \"0644\"")
        });
        context.drafts.checked(node, mode).filter(|_| context.drafts.is_text(node))
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(format!("{:04o}", self.0))
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^0[0-7]{3}$" })
    }
}

/// How many pods a node takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaxPods {
    Number(u32),
    /// By the instance type, from the table that nodestrap carries.
    Map,
    /// Worked out from the instance type.
    Expression(crate::expression::Expression),
}

impl SpecValue for MaxPods {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let text = context.drafts.scalar(node)?;
        if text == "map" {
            return Some(Self::Map);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = crate::config::decode_int(context.drafts, node, 1, i64::from(u16::MAX))?;
            return u32::try_from(number).ok().map(Self::Number);
        }
        context.drafts.checked(node, text.parse().map(Self::Expression))
    }

    fn to_json(&self, _: Look) -> Value {
        match self {
            Self::Number(number) => Value::from(*number),
            Self::Map => Value::from("map"),
            Self::Expression(expression) => Value::from(expression.to_string()),
        }
    }

    fn schema() -> Value {
        json!({
            "oneOf": [
                { "type": "integer", "minimum": 1, "maximum": u16::MAX },
                { "type": "string", "pattern": "[^0-9]", "examples": ["map", "min(default_enis * (ips_per_eni - 1) + 2, 110)"] },
            ],
        })
    }
}

/// A file that the user wants on the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct FileAsset {
    pub path: AbsolutePath,
    pub content: Content,
    pub mode: FileMode,
    pub secret: bool,
    pub place: Place,
}

item!(
    "a file asset",
    /// As it is written.
    WrittenFile {
        /// Where it lies on the node.
        path: AbsolutePath = "path",
        /// Its text, or `{file: …}`.
        content: Content = "content",
        /// Octal. Default: 0644, and 0600 for a secret.
        mode: Option<FileMode> = "mode" or None,
        /// Kept out of every output; its mode is then 0600.
        secret: bool = "secret" or false,
    }
);

impl SpecValue for FileAsset {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let drafts = context.drafts;
        let field = |name: &str| match &node.kind {
            Kind::Map(entries) => entries.iter().find(|entry| entry.key == name).map(|entry| &entry.value),
            _ => None,
        };
        // Before anything can be reported about it; if it is not clear whether it is a secret, it is one.
        let said =
            field("secret").is_some_and(|said| !matches!(&said.kind, Kind::Scalar { text, .. } if text == "false"));
        let content = field("content").filter(|content| said && !matches!(content.kind, Kind::Map(_)));
        if let Some(content) = content {
            drafts.hide(content.span);
        }
        let WrittenFile { path, content: text, mode, secret, place } = WrittenFile::decode(context, node)?;
        if let Some(content) = content.filter(|_| secret && text.0 == REDACTED) {
            report_redacted(context, content);
            return None;
        }
        let mode = mode.unwrap_or(FileMode(if secret { 0o600 } else { 0o644 }));
        Some(Self { path, content: text, mode, secret, place })
    }

    fn to_json(&self, look: Look) -> Value {
        let Self { path, content, mode, secret, place } = self.clone();
        let content = match look.secrets {
            SecretDisplay::Redacted if secret => Content(REDACTED.to_owned()),
            _ => content,
        };
        WrittenFile { path, content, mode: Some(mode), secret, place }.to_json(look)
    }

    fn schema() -> Value {
        WrittenFile::schema()
    }
}

item!(
    "a container of a hook",
    /// What a hook runs in a container.
    HookContainer {
        /// The image.
        image: Image = "image",
        /// The command with its arguments.
        command: Vec<Line> = "command" or Vec::new(),
        /// Environment variables.
        environment: BTreeMap<VariableName, Line> = "environment" or BTreeMap::new(),
    }
);

item!(
    "a hook",
    /// Something of the user's that runs at a named point of the bootstrap.
    Hook {
        /// Names it in plans, logs and reports; a hook of a group replaces that of the cluster with the same name.
        name: Name = "name",
        /// When it runs.
        slot: HookSlot = "slot",
        /// The `[Service]` section of a oneshot unit, or a whole unit; either this or `container`.
        unit: Option<HookText> = "unit" or None,
        /// A container to run; either this or `unit`.
        container: Option<HookContainer> = "container" or None,
        /// After this long it counts as failed. Default: 5m0s.
        timeout: Duration = "timeout" or Duration::five_minutes(),
        /// Whether a failure stops the bootstrap. Default: required.
        necessity: Necessity = "necessity" or Necessity::Required,
    }
);

/// A systemd unit of the user's, or what shall become of one that the image has.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraUnit {
    pub name: UnitName,
    pub content: Option<UnitText>,
    pub drop_ins: BTreeMap<Name, UnitText>,
    /// `None`: nobody starts or stops it because of this.
    pub state: Option<UnitState>,
    pub place: Place,
}

item!(
    "an extra unit",
    /// As it is written.
    WrittenUnit {
        /// With its suffix.
        name: UnitName = "name",
        /// The text of the unit, or `{file: …}`; left out for a unit that the image has.
        content: Option<UnitText> = "content" or None,
        /// Drop-ins by name (without `.conf`).
        drop_ins: BTreeMap<Name, UnitText> = "dropIns" or BTreeMap::new(),
        /// Of a unit with content: true is `state: enabled`, and false leaves it to other units to start it.
        enabled: Option<bool> = "enabled" or None,
        /// enabled: started before the kubelet, and at boot. disabled: stopped, and not started at boot. masked: stopped, and
        /// started by nobody. Default: enabled with content; without, what the image makes of it.
        state: Option<UnitState> = "state" or None,
    }
);

impl SpecValue for ExtraUnit {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        let WrittenUnit { name, content, drop_ins, enabled, state, place } = WrittenUnit::decode(context, node)?;
        if enabled.is_some() && state.is_some() {
            let problem = format!("the unit \"{name}\" has both \"enabled\" and \"state\"");
            context.drafts.report(node.span, problem).advise("remove \"enabled\": state says it all");
            return None;
        }
        let by_content = content.is_some() && enabled != Some(false);
        let state = state.or_else(|| by_content.then_some(UnitState::Enabled));
        Some(Self { name, content, drop_ins, state, place })
    }

    fn to_json(&self, look: Look) -> Value {
        let Self { name, content, drop_ins, state, place } = self.clone();
        // What other units start has no state.
        let enabled = (content.is_some() && state.is_none()).then_some(false);
        WrittenUnit { name, content, drop_ins, enabled, state, place }.to_json(look)
    }

    fn schema() -> Value {
        WrittenUnit::schema()
    }
}

item!(
    "additional user data",
    /// A part of user data that is the user's own.
    AdditionalUserData {
        /// Its file name in the multipart message.
        name: Line = "name",
        /// The media type that cloud-init or Ignition knows it by.
        r#type: MediaType = "type",
        /// The text, or `{file: …}`.
        content: Content = "content",
    }
);

item!(
    "a program that gives credentials",
    /// A client-go credential plug-in.
    ExecCredential {
        /// The program; a path or a name in the kubelet's PATH.
        command: Line = "command",
        /// Its arguments.
        arguments: Vec<Line> = "arguments" or Vec::new(),
        /// Environment variables.
        environment: BTreeMap<VariableName, Line> = "environment" or BTreeMap::new(),
    }
);

item!(
    "a certificate authority to trust",
    /// Trusted by the node and its container runtime, besides what the image trusts.
    TrustedAuthority {
        /// Names its file.
        name: Name = "name",
        /// PEM, or `{file: …}`.
        certificate: CertificatePem = "certificate",
    }
);

item!(
    "a keyring",
    /// OpenPGP keys whose signatures are believed.
    Keyring {
        /// Names its file.
        name: Name = "name",
        /// ASCII armour, or `{file: …}`.
        keys: PublicKeys = "keys",
    }
);
