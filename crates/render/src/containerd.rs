//! containerd's configuration as TOML.

use serde_json::Value;
use spec::ConfigTree;

use crate::error::RenderError;
use crate::kubelet::object;

/// The image brings this unit.
pub(crate) const CONTAINERD_UNIT: &str = "containerd.service";

const HEADER: &str =
    "# Written by nodestrap from the spec of the cluster; an edit does not survive the next render.\n\n";

pub(crate) fn render_config(tree: &ConfigTree) -> Result<Vec<u8>, RenderError> {
    let table = table(&object(tree), "")?;
    let body = toml::to_string_pretty(&table).map_err(|source| RenderError::ContainerdToml { source })?;
    Ok(format!("{HEADER}{body}").into_bytes())
}

/// Keys are inserted in sorted order, so that the text does not depend on which map the toml crate was built with.
fn table(fields: &serde_json::Map<String, Value>, path: &str) -> Result<toml::Table, RenderError> {
    let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    let mut table = toml::Table::new();
    for (name, field) in sorted {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        table.insert(name.clone(), toml_value(field, &path)?);
    }
    Ok(table)
}

fn toml_value(value: &Value, path: &str) -> Result<toml::Value, RenderError> {
    let refuse = |problem| RenderError::ContainerdValue { path: path.to_owned(), problem };
    Ok(match value {
        Value::Null => return Err(refuse("it has no null; leave the key out")),
        Value::Bool(flag) => toml::Value::Boolean(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => toml::Value::Integer(integer),
            (None, Some(float)) if number.is_f64() => toml::Value::Float(float),
            _ => return Err(refuse("the number needs more than 63 bits; write a smaller one")),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(items) => {
            toml::Value::Array(items.iter().map(|item| toml_value(item, path)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => toml::Value::Table(table(fields, path)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_toml_cannot_say_is_refused_with_its_path() {
        for (value, path) in [(json!({ "a": { "b": null } }), "a.b"), (json!({ "n": u64::MAX }), "n")] {
            let Value::Object(fields) = value else { unreachable!() };
            let error = table(&fields, "").err().unwrap();
            assert!(error.to_string().contains(&format!("'{path}'")), "{error}");
        }
    }
}
