//! Values that are written as one text, each with its rule.

use std::str::FromStr;

use serde_json::{Value, json};

use crate::record::{Context, SpecValue};
use crate::syntax;
use crate::tree::Node;
use crate::values::{ApiServerUrl, ClusterName, DomainName, GroupName, Invalid, KubeVersion, text_value};
use crate::view::Look;

/// Types that are written as one text.
macro_rules! text_values {
    ($($type:ty => $shape:literal),+ $(,)?) => {
        $(
            impl SpecValue for $type {
                fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
                    context.drafts.value(node)
                }

                fn to_json(&self, _: Look) -> Value {
                    Value::from(self.to_string())
                }

                fn schema() -> Value {
                    // An editor offers examples, so there is none where anything fits.
                    let examples = Some($shape).filter(|shape| !shape.is_empty());
                    examples.map_or_else(
                        || json!({ "type": "string" }),
                        |shape| json!({ "type": "string", "examples": [shape] }),
                    )
                }
            }
        )+
    };
}

text_values!(
    ClusterName => "prod.example.com",
    GroupName => "workers",
    DomainName => "cluster.local",
);

/// Texts with a rule of their own.
macro_rules! checked_texts {
    ($($(#[$doc:meta])+ $name:ident($check:path, $example:literal)),+ $(,)?) => {
        $(
            text_value!($(#[$doc])+ $name, $check);
            text_values!($name => $example);
        )+
    };
}

checked_texts!(
    /// An absolute path on the node.
    AbsolutePath(syntax::validate_absolute_path, "/usr/bin/kubelet"),
    /// An image with a tag or a digest.
    Image(syntax::validate_image, "registry.k8s.io/pause:3.10.2"),
    /// A registry of images, with folders if need be.
    Registry(syntax::validate_registry, "registry.example.com:5000/kubernetes"),
    /// One line of text.
    Line(syntax::validate_line, ""),
    /// A name for a file, a hook, a certificate: a DNS label.
    Name(syntax::validate_dns_label, "my-name"),
    /// A web address, http or https.
    WebUrl(syntax::validate_web_url, "https://mirror.example.com/kubernetes"),
    /// A host, with a port if need be.
    Host(syntax::validate_host, "registry.example.com:5000"),
    /// 64 hexadecimal digits.
    Sha256(syntax::validate_sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    /// 128 hexadecimal digits.
    Sha512(syntax::validate_sha512, "cf83e135…"),
    /// A duration as Go writes it.
    Duration(syntax::validate_go_duration, "5m0s"),
    /// The name of a systemd unit.
    UnitName(syntax::validate_unit_name, "node-exporter.service"),
    /// The name of an environment variable.
    VariableName(syntax::validate_variable_name, "HTTP_PROXY"),
    /// The name of a kernel parameter.
    SysctlName(syntax::validate_sysctl_name, "net.ipv4.ip_forward"),
    /// The name of a kernel module.
    ModuleName(syntax::validate_module_name, "br_netfilter"),
    /// A machine type of the provider.
    InstanceTypeName(syntax::validate_line, "m5.large"),
    /// What is reached without the proxy, as Go reads it.
    NoProxyEntry(crate::no_proxy::validate_entry, ".example.com"),
    /// The name of a header of a web request.
    HeaderName(syntax::validate_header_name, "Authorization"),
    /// A media type.
    MediaType(syntax::validate_media_type, "text/x-shellscript"),
);

impl Duration {
    pub(crate) fn five_minutes() -> Self {
        Self("5m0s".to_owned())
    }
}

impl SpecValue for ApiServerUrl {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        context.drafts.value(node)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^https://", "examples": ["https://10.0.0.10:6443"] })
    }
}

impl SpecValue for KubeVersion {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        context.drafts.value(node)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.to_string())
    }

    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^1\\.[0-9]+\\.[0-9]+$", "examples": ["1.36.3"] })
    }
}
