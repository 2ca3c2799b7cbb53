//! What a spec says in torcx's words: the types are the bundle's, which a node reads the same way.

use std::str::FromStr;

use bundle::torcx::{AddonVersion, KubernetesVersion, Minor, ProfileName, TemplateError, UrlTemplate};
use serde_json::{Value, json};

use crate::record::{Context, SpecValue};
use crate::syntax;
use crate::texts::text_values;
use crate::tree::{Kind, Node};
use crate::values::{Invalid, text_value};
use crate::view::Look;

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
