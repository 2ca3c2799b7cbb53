//! Settings of the layout tectonic. What torcx has words for is of the bundle's types, which a node reads the same way.

use std::collections::BTreeMap;
use std::str::FromStr;

use bundle::torcx::{AddonVersion, KubernetesVersion, Minor, ProfileName, TemplateError, UrlTemplate};
use serde_json::{Value, json};

use crate::record::{Context, Leaf, Maybe, Nested, SpecValue, record};
use crate::syntax;
use crate::texts::{Line, Name, text_values};
use crate::tree::{Kind, Node};
use crate::values::{DomainName, Invalid, KubeconfigSource, SeedFallback, text_value};
use crate::view::Look;

record!(
    "tectonic",
    /// Settings of the layout tectonic.
    TectonicSpec => CompleteTectonic {
        /// Where /etc/kubernetes/kubeconfig comes from: rendered (from join), or pulled (a unit from additionalUserData fetches it before
        /// k8s-node-bootstrap.service; join then has neither a token nor a program).
        kubeconfig: Leaf<KubeconfigSource> = "kubeconfig",
        /// The image that the kubelet wrapper runs, without its tag. To be said of releases since 1.24.
        kubelet_image: Leaf<Line> = "kubeletImage",
        /// The tag, for a cluster that does not answer: a node that gets an answer runs the release of its cluster. Default: from
        /// kubernetesVersion.
        kubelet_image_tag: Leaf<Line> = "kubeletImageTag",
        /// The release of the nodes, whatever their cluster runs: then they do not ask it.
        force_kubernetes_version: Maybe<KubernetesVersion> = "forceKubernetesVersion",
        /// The minors of Kubernetes that nodes may meet; the spec is checked for each, and a node refuses any other. Default: that
        /// of kubernetesVersion.
        minors: Leaf<Vec<Minor>> = "minors",
        /// Whether what lies in /etc/kubernetes/installer stands in for a cluster that does not answer: allowed, or never.
        seed_fallback: Leaf<SeedFallback> = "seedFallback",
        /// Versions of the addon docker for each minor of Kubernetes, best first; for a cluster that has no ConfigMap of them.
        runtime_mappings: Leaf<BTreeMap<Minor, Vec<AddonVersion>>> = "runtimeMappings",
        /// The ConfigMap of the cluster that says the same, and counts before it.
        mappings_config_map: Nested<CompleteMappingsConfigMap> = "mappingsConfigMap",
        /// Template of the address of torcx's package lists, with {{.Board}} and {{.OSVersion}}. Needed by the source torcx.
        manifest_url: Maybe<UrlTemplate> = "manifestURL",
        /// Whether one of trust.keyrings must have signed them. `nodestrap status` says so for ever if not.
        verify_signatures: Leaf<bool> = "verifySignatures",
        /// The profile of torcx that is made where a node has none.
        torcx_profile: Leaf<ProfileName> = "torcxProfile",
        /// Whether the operating system is updated at bootstrap.
        upgrade_os: Leaf<bool> = "upgradeOS",
        /// Whether masters have the units bootkube and tectonic. They wait for assets, which one master receives.
        bootkube: Leaf<bool> = "bootkube",
    }
);

record!(
    "mappingsConfigMap",
    /// A ConfigMap of runtime mappings.
    MappingsConfigMapSpec => CompleteMappingsConfigMap {
        /// Its namespace.
        namespace: Leaf<Name> = "namespace",
        /// Its name.
        name: Leaf<DomainName> = "name",
        /// The key that has them.
        key: Leaf<ConfigMapKey> = "key",
    }
);

const WORD: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";

text_values!(
    Minor => "1.36", "^(0|[1-9][0-9]*)\\.(0|[1-9][0-9]*)$";
    AddonVersion => "18.06", WORD;
    ProfileName => "tectonic", WORD;
    KubernetesVersion => "v1.36.3", "^v?[0-9]+\\.[0-9]+\\.[0-9]+([-+][0-9A-Za-z.+-]+)?$";
);

impl From<TemplateError> for Invalid {
    fn from(error: TemplateError) -> Self {
        Self::new(error.to_string())
            .advise("an address with {{.Board}} and {{.OSVersion}}, which each node replaces by its own")
    }
}

impl SpecValue for UrlTemplate {
    fn decode<'n>(context: Context<'n>, node: &'n Node) -> Option<Self> {
        // What stands before the host or behind the path may let people in.
        if matches!(&node.kind, Kind::Scalar { text, .. } if text.contains('?') || syntax::has_password(text)) {
            context.drafts.hide(node.span);
        }
        let text = context.drafts.scalar(node)?;
        context.drafts.checked(node, Self::parse(text).map_err(Invalid::from))
    }

    fn to_json(&self, _: Look) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        json!({
            "type": "string",
            "pattern": "^https?://[^\\s]+$",
            "examples": ["https://torcx.example.com/manifests/{{.Board}}/{{.OSVersion}}/torcx_manifest.json"],
        })
    }
}

text_value!(
    /// The key of a ConfigMap.
    ConfigMapKey,
    validate_config_map_key
);
text_values!(ConfigMapKey => "runtime-mappings.yaml", "^[A-Za-z0-9._-]{1,253}$");

fn validate_config_map_key(text: &str) -> Result<(), Invalid> {
    const LONGEST: usize = 253;
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.is_empty() || text.len() > LONGEST || [".", ".."].contains(&text) || !text.bytes().all(is_known) {
        return Err(Invalid::new(format!("\"{text}\" is not a key of a ConfigMap"))
            .advise("at most 253 letters, digits, \"-\", \"_\" and \".\""));
    }
    Ok(())
}
