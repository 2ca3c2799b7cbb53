//! JSON whose bytes depend on the value alone: the one writer of the workspace.
//!
//! The order of serde_json's own map depends on a feature that any crate of a build may turn on, so keys are sorted here.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// Sorted keys, no white space.
pub fn canonical(value: &impl Serialize) -> String {
    canonical_value(&to_value(value))
}

/// Sorted keys, two spaces of indentation, a newline at the end.
pub fn pretty(value: &impl Serialize) -> String {
    pretty_value(&to_value(value))
}

/// What a bundle is made of has string keys and plain values, so that nothing of it can fail to be written.
pub(crate) fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

pub(crate) fn canonical_value(value: &Value) -> String {
    serde_json::to_string(&Sorted(value)).unwrap_or_default()
}

pub(crate) fn pretty_value(value: &Value) -> String {
    serde_json::to_string_pretty(&Sorted(value)).unwrap_or_default() + "\n"
}

/// Writes the fields of each map in the order of their names.
struct Sorted<'v>(&'v Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(name, _)| *name);
                serializer.collect_map(sorted.into_iter().map(|(name, value)| (name, Sorted(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            leaf => leaf.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_and_layouts_differ_in_white_space_only() {
        let value = json!({ "b": [1, { "d": null, "c": "é\n" }], "a": {}, "aa": [] });
        assert_eq!(canonical(&value), r#"{"a":{},"aa":[],"b":[1,{"c":"é\n","d":null}]}"#);
        assert_eq!(
            pretty(&value),
            "{\n  \"a\": {},\n  \"aa\": [],\n  \"b\": [\n    1,\n    {\n      \"c\": \"é\\n\",\n      \"d\": null\n    }\n  ]\n}\n"
        );
    }
}
