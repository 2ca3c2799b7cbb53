//! A JSON schema of the documents, for editors; made from the same lines that decode them.

use serde_json::{Map, Value, json};

use crate::catalog::{Field, Flag, Schema};
use crate::complete::{CompleteCluster, CompleteGroup};
use crate::document::API_VERSION;
use crate::record::{Record, SpecValue, record_schema};
use crate::texts::{DURATION, Name};
use crate::values::ClusterName;

/// JSON schema (draft 2020-12) of a spec file: each of its documents is a Cluster or a NodeGroup.
pub fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nodestrap",
        "oneOf": [
            document("Cluster", ClusterName::schema(), CompleteCluster::schema(), true),
            document("NodeGroup", Name::schema(), CompleteGroup::schema(), false),
        ],
    })
}

fn document(kind: &str, name: Value, spec: Value, needs_spec: bool) -> Value {
    let metadata = record_schema(vec![("name", "What it is called.", name, true)]);
    record_schema(vec![
        ("apiVersion", "The version of this format.", json!({ "const": API_VERSION }), true),
        ("kind", "Which document this is.", json!({ "const": kind }), true),
        ("metadata", "Its name.", metadata, true),
        ("spec", "What is wanted.", spec, needs_spec),
    ])
}

/// Of a component's configuration; fields that only some releases know are among them.
pub(crate) fn config_schema(fields: &[Field]) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties(fields) })
}

fn properties(fields: &[Field]) -> Map<String, Value> {
    let mut properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), schema_of(field.schema))).collect();
    if let Some(gates) = properties.get_mut("featureGates").and_then(Value::as_object_mut) {
        gates.insert("propertyNames".to_owned(), json!({ "pattern": "^[A-Z][A-Za-z0-9]*$" }));
    }
    properties
}

fn schema_of(schema: Schema) -> Value {
    match schema {
        Schema::Bool => json!({ "type": "boolean" }),
        Schema::Int { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Schema::Float | Schema::Number { .. } => json!({ "type": "number" }),
        // kubeReserved: {cpu: 1}
        Schema::Text => json!({ "type": ["string", "integer"] }),
        Schema::Form(form) => json!({ "type": "string", "pattern": form.pattern() }),
        Schema::Choice(choices) => json!({ "enum": choices }),
        Schema::Duration | Schema::Within { .. } => {
            json!({ "type": "string", "pattern": DURATION, "examples": ["10s", "1h30m0s"] })
        }
        Schema::List(of) => json!({ "type": "array", "items": schema_of(*of) }),
        Schema::Map(of) => json!({ "type": "object", "additionalProperties": schema_of(*of) }),
        Schema::Object(fields) => config_schema(fields),
        Schema::Open(fields) => json!({ "type": "object", "properties": properties(fields) }),
        Schema::Free => json!({}),
    }
}

pub(crate) fn flags_schema(flags: &[Flag]) -> Value {
    let value = json!({ "type": ["string", "number", "boolean"] });
    let properties: Map<String, Value> = flags.iter().map(|flag| (flag.name.to_owned(), value.clone())).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}
