//! JSON whose bytes depend on the value alone: the one writer of the workspace.
//!
//! The order of serde_json's own map depends on a feature that any crate of a build may turn on, so keys are sorted here.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Sorted keys, no white space.
pub fn canonical(value: &impl Serialize) -> String {
    serde_json::to_string(&sorted(value)).unwrap_or_default()
}

/// Sorted keys, two spaces of indentation, a newline at the end.
pub fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(&sorted(value)).unwrap_or_default() + "\n"
}

/// A value whose maps have an order of their own.
#[derive(Serialize)]
#[serde(untagged)]
enum Sorted {
    Map(BTreeMap<String, Sorted>),
    List(Vec<Sorted>),
    Leaf(Value),
}

/// What a bundle is made of has string keys and plain values, so that nothing of it can fail to be written.
fn sorted(value: &impl Serialize) -> Sorted {
    sort(serde_json::to_value(value).unwrap_or_default())
}

fn sort(value: Value) -> Sorted {
    match value {
        Value::Object(fields) => Sorted::Map(fields.into_iter().map(|(name, value)| (name, sort(value))).collect()),
        Value::Array(items) => Sorted::List(items.into_iter().map(sort).collect()),
        leaf => Sorted::Leaf(leaf),
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
