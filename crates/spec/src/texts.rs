//! Values that are written as one text, each with its rule.

use std::str::FromStr;

pub use bundle::{AbsolutePath, UnitName};
use serde_json::{Value, json};

use crate::artefacts;
use crate::config::is_canonical_int;
use crate::packages;
use crate::record::{Context, SpecValue};
use crate::syntax;
use crate::tree::{Kind, Node};
use crate::values::{ApiServerUrl, ClusterName, DomainName, GroupName, Invalid, KubeVersion, text_value};
use crate::view::Look;

/// Types that are written as one text: an example (none where anything fits, because editors offer it) and a pattern, which
/// takes all that the rule takes and refuses what is usually mistaken for it. Patterns are of the kind that JavaScript, Python
/// and Rust share.
macro_rules! text_values {
    ($($type:ty => $example:literal, $pattern:expr);+ $(;)?) => {
        $(
            impl $crate::record::SpecValue for $type {
                fn decode<'n>(context: $crate::record::Context<'n>, node: &'n $crate::tree::Node) -> Option<Self> {
                    context.drafts.value(node)
                }

                fn to_json(&self, _: $crate::view::Look) -> serde_json::Value {
                    serde_json::Value::from(self.to_string())
                }

                fn schema() -> serde_json::Value {
                    $crate::texts::text_schema($example, $pattern)
                }
            }
        )+
    };
}
pub(crate) use text_values;

pub(crate) fn text_schema(example: &str, pattern: &str) -> Value {
    let mut schema = json!({ "type": "string", "pattern": pattern });
    if let (false, Some(fields)) = (example.is_empty(), schema.as_object_mut()) {
        fields.insert("examples".to_owned(), json!([example]));
    }
    schema
}

const LABEL: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
const DOMAIN: &str = "^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$";
/// Names, addresses, IPv6 in brackets; a port.
const HOST: &str = "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\\[[0-9a-fA-F:.]+\\])(:[0-9]{1,5})?$";
const LINE: &str = "^\\S([^\\n\\r\\t]*\\S)?$";
pub(crate) const DURATION: &str = "^[-+]?(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
pub(crate) const ADDRESS: &str = "^[0-9a-fA-F:.]+$";
pub(crate) const NETWORK: &str = "^[0-9a-fA-F:.]+/[0-9]{1,3}$";

text_values!(
    ClusterName => "prod.example.com", DOMAIN;
    GroupName => "workers", LABEL;
    DomainName => "cluster.local", DOMAIN;
    ApiServerUrl => "https://10.0.0.10:6443", "^https://[^/?#@\\s]+$";
    KubeVersion => "1.36.3", "^1\\.(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)$";
);

/// Texts with a rule of their own.
macro_rules! checked_texts {
    ($($(#[$doc:meta])+ $name:ident($check:path, $example:literal, $pattern:expr)),+ $(,)?) => {
        $(
            text_value!($(#[$doc])+ $name, $check);
            text_values!($name => $example, $pattern);
        )+
    };
}

checked_texts!(
    /// An image with a tag or a digest.
    Image(syntax::validate_image, "registry.k8s.io/pause:3.10.2", "^[A-Za-z0-9._:/@\\[\\]-]+[:@][A-Za-z0-9._:-]+$"),
    /// A registry of images, with folders if need be.
    Registry(
        syntax::validate_registry,
        "registry.example.com:5000/kubernetes",
        "^[a-z0-9A-F.\\[\\]:-]+(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*$"
    ),
    /// A name for a file, a hook, a certificate: a DNS label.
    Name(syntax::validate_dns_label, "my-name", LABEL),
    /// A web address, http or https.
    WebUrl(syntax::validate_web_url, "https://mirror.example.com/kubernetes", "^https?://[^/?#@\\s]+([/?][^#\\s]*)?$"),
    /// A host, with a port if need be.
    Host(syntax::validate_host, "registry.example.com:5000", HOST),
    /// 64 hexadecimal digits.
    Sha256(
        syntax::validate_sha256,
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "^[0-9a-f]{64}$"
    ),
    /// 128 hexadecimal digits.
    Sha512(syntax::validate_sha512, "cf83e135…", "^[0-9a-f]{128}$"),
    /// A duration as Go writes it.
    Duration(syntax::validate_go_duration, "5m0s", DURATION),
    /// The name of an environment variable.
    VariableName(syntax::validate_variable_name, "HTTP_PROXY", "^[A-Za-z_][A-Za-z0-9_]*$"),
    /// The name of a kernel parameter.
    SysctlName(syntax::validate_sysctl_name, "net.ipv4.ip_forward", "^[A-Za-z0-9_-]*[./][A-Za-z0-9._/-]*$"),
    /// The name of a kernel module.
    ModuleName(syntax::validate_module_name, "br_netfilter", "^[A-Za-z0-9_-]{1,63}$"),
    /// A machine type of the provider.
    InstanceTypeName(syntax::validate_line, "m5.large", LINE),
    /// What is reached without the proxy, as Go reads it.
    NoProxyEntry(crate::no_proxy::validate_entry, ".example.com", "^[^,\\s]+$"),
    /// The name of a header of a web request.
    HeaderName(syntax::validate_header_name, "Authorization", "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"),
    /// The version of a component, as the manifest of artefacts or the package manager has it.
    ComponentVersion(packages::validate_version, "2.4.2", "^[0-9A-Za-z][0-9A-Za-z.+_~^:-]*$"),
    /// The name of a package.
    PackageName(packages::validate_package_name, "iptables", "^[0-9A-Za-z][0-9A-Za-z.+_-]*$"),
    /// The suite of a repository of apt.
    Suite(packages::validate_suite, "./", "^[0-9A-Za-z./_+~-]+$"),
    /// A part of such a suite.
    SuiteComponent(packages::validate_suite_component, "main", "^[0-9A-Za-z./_+-]+$"),
    /// A media type.
    MediaType(syntax::validate_media_type, "text/x-shellscript", "^[A-Za-z0-9.+_-]+/[A-Za-z0-9.+_-]+$"),
);

/// Names that a bundle has, too; a spec is stricter about some, and says what to write instead.
macro_rules! names_of_a_bundle {
    ($($name:ty: $check:path => $example:literal, $pattern:expr);+ $(;)?) => {
        $(
            impl SpecValue for $name {
                fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
                    let text = context.drafts.valid_text(node, $check)?;
                    context.drafts.checked(node, Self::new(text).map_err(Invalid::from))
                }

                fn to_json(&self, _: Look) -> Value {
                    Value::from(self.as_str())
                }

                fn schema() -> Value {
                    text_schema($example, $pattern)
                }
            }
        )+
    };
}

names_of_a_bundle!(
    AbsolutePath: syntax::validate_absolute_path => "/usr/bin/kubelet", "^(/[A-Za-z0-9_.+@,=:-]+)+$";
    UnitName: syntax::validate_unit_name =>
        "node-exporter.service", "^[A-Za-z0-9:_.\\\\@-]+\\.(service|socket|target|timer|mount|path)$";
);

text_value!(
    /// Where artefacts or bundles lie: a web address, a bucket, a folder of the node.
    StoreUrl,
    artefacts::validate_store_url
);

impl StoreUrl {
    pub(crate) fn is_bucket(&self) -> bool {
        self.as_str().starts_with("s3://")
    }
}

impl SpecValue for StoreUrl {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        // What stands behind it may be a signature.
        if matches!(&node.kind, Kind::Scalar { text, .. } if text.contains('?')) {
            context.drafts.hide(node.span);
        }
        context.drafts.value(node)
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        text_schema(
            "https://artefacts.example.com/nodes",
            "^(https?://[^/?#@\\s]+([/?][^#\\s]*)?|s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[^?#\\s]*)?|file:///[^?#\\s]+)$",
        )
    }
}

text_value!(
    /// One line of text. A whole number is as good as one, because every reader writes it alike: `vm.max_map_count: 262144`.
    Line,
    syntax::validate_line
);

impl SpecValue for Line {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        match &node.kind {
            Kind::Scalar { text, .. } if is_canonical_int(text) => context.drafts.checked(node, text.parse()),
            _ => context.drafts.value(node),
        }
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        json!({ "type": ["string", "integer"], "pattern": LINE })
    }
}

impl Duration {
    pub(crate) fn five_minutes() -> Self {
        Self("5m0s".to_owned())
    }
}
