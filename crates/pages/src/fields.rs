//! Every field of a spec: type, default and meaning.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use spec::{Colour, CompleteSpec, Explanation, Origin, Source, complete, explain_all, parse, render_mistakes};

use crate::markdown::{code, table};

/// Fields that hold the settings of a program: their names are the program's, and far too many.
const OF_PROGRAMS: [&str; 2] = ["config", "flags"];

pub(crate) fn describe(example: &str) -> Result<String, String> {
    let spec = complete_example(example)?;
    let schema = spec::json_schema();
    let decided = Decided::of(&spec);
    let mut text = String::new();
    for (document, root) in
        [("Cluster", "cluster".to_owned()), ("NodeGroup", format!("nodeGroups.{}", only_group(&spec)?))]
    {
        let fields = fields_of(&schema, document).ok_or_else(|| format!("the schema has no {document}"))?;
        let mut rows = Vec::new();
        collect(fields, "", &|path| decided.default_of(&format!("{root}.{path}")), &mut rows);
        let _ = writeln!(text, "### Every field of a `{document}`, under `spec`\n");
        let _ = writeln!(text, "{}", table(&["field", "type", "default", "meaning"], &rows));
    }
    let _ = writeln!(text, "### What nodestrap sets in the settings of programs\n\n{SETTINGS}\n");
    for (path, leaves) in decided.settings_of_programs() {
        let shown = path
            .replacen(&format!("nodeGroups.{}", only_group(&spec)?), "NodeGroup", 1)
            .replacen("cluster", "Cluster", 1);
        let _ = writeln!(text, "#### {}\n\n{}", code(&shown), table(&["setting", "value", "why"], &leaves));
    }
    Ok(text)
}

const SETTINGS: &str = "Of the minimal spec, on a worker or where the control plane runs. Everything else is left to the program; \
`nodestrap complete` shows what it does by itself as comments.";

fn complete_example(example: &str) -> Result<CompleteSpec, String> {
    let parsed = parse(&[Source::new("minimal.yaml", example)]);
    let resolved = parsed.resolve(|reference| Err(format!("the example names the file {:?}", reference.path)));
    resolved.and_then(|spec| complete(&spec)).map_err(|mistakes| render_mistakes(&mistakes, Colour::Plain))
}

fn only_group(spec: &CompleteSpec) -> Result<String, String> {
    match spec.groups.as_slice() {
        [only] => Ok(only.name.value.to_string()),
        _ => Err("the minimal example has one group".to_owned()),
    }
}

/// The schema of `spec` in the document of a kind.
fn fields_of<'s>(schema: &'s Value, kind: &str) -> Option<&'s Map<String, Value>> {
    let documents = schema.get("oneOf")?.as_array()?;
    let document =
        documents.iter().find(|document| document.pointer("/properties/kind/const") == Some(&Value::from(kind)))?;
    document.get("properties")?.get("spec")?.as_object()
}

fn collect(
    schema: &Map<String, Value>,
    prefix: &str,
    default_of: &dyn Fn(&str) -> String,
    rows: &mut Vec<Vec<String>>,
) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in properties {
        let Some(field) = field.as_object() else { continue };
        let path = format!("{prefix}{name}");
        let is_record = field.contains_key("properties") && !OF_PROGRAMS.contains(&name.as_str());
        let default = match (required.contains(&name.as_str()), is_record) {
            (true, _) => "required".to_owned(),
            (false, true) => String::new(),
            (false, false) => default_of(&path),
        };
        let meaning = field.get("description").and_then(Value::as_str).unwrap_or_default();
        rows.push(vec![code(&path), type_of(name, field), default, meaning.to_owned()]);
        if OF_PROGRAMS.contains(&name.as_str()) {
            continue;
        }
        collect(field, &format!("{path}."), default_of, rows);
        if let Some(item) = field.get("items").and_then(Value::as_object) {
            collect(item, &format!("{path}[]."), default_of, rows);
        }
    }
}

fn type_of(name: &str, schema: &Map<String, Value>) -> String {
    if OF_PROGRAMS.contains(&name) {
        return "settings of the program".to_owned();
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
        return choices.iter().filter_map(Value::as_str).map(code).collect::<Vec<_>>().join(", ");
    }
    for word in ["oneOf", "anyOf"] {
        if let Some(alternatives) = schema.get(word).and_then(Value::as_array) {
            let types = alternatives.iter().filter_map(Value::as_object).map(|one| type_of("", one));
            return types.collect::<Vec<_>>().join(", or ");
        }
    }
    let below = |word: &str| schema.get(word).and_then(Value::as_object).map(|one| type_of("", one));
    match schema.get("type").and_then(Value::as_str) {
        // A line of text, which may look like a number.
        None if schema.get("type").is_some_and(Value::is_array) => "text".to_owned(),
        Some("array") => format!("list: {}", below("items").unwrap_or_else(|| "anything".to_owned())),
        Some("object") if schema.get("properties").and_then(|fields| fields.get("file")).is_some() => {
            "`{file: PATH}`".to_owned()
        }
        Some("object") if schema.contains_key("properties") => "record".to_owned(),
        Some("object") => {
            format!("mapping: {}", below("additionalProperties").unwrap_or_else(|| "anything".to_owned()))
        }
        Some("string") => text_type(schema),
        Some("integer") => "whole number".to_owned(),
        Some(other) => other.to_owned(),
        None => "anything".to_owned(),
    }
}

/// What a longer one means nobody sees at a glance.
const LONGEST_PATTERN: usize = 32;

fn text_type(schema: &Map<String, Value>) -> String {
    let example = schema.get("examples").and_then(|examples| examples.get(0)).and_then(Value::as_str);
    match (example, schema.get("pattern").and_then(Value::as_str)) {
        (Some(example), _) => format!("text, such as {}", code(example)),
        (None, Some(pattern)) if pattern.len() <= LONGEST_PATTERN => format!("text like {}", code(pattern)),
        (None, _) => "text".to_owned(),
    }
}

/// What was decided for the example, by path.
struct Decided(Vec<Explanation>);

impl Decided {
    fn of(spec: &CompleteSpec) -> Self {
        // Where in its text something stands is not said here.
        Self(explain_all(spec, &[]))
    }

    /// Empty: without the field there is nothing.
    fn default_of(&self, path: &str) -> String {
        if let Some(exact) = self.0.iter().find(|explanation| explanation.path == path) {
            return if matches!(exact.origin, Origin::User(_)) { String::new() } else { with_reason(exact) };
        }
        // A mapping that is not empty is explained key by key.
        let below = format!("{path}.");
        let entries: Vec<&Explanation> = self
            .0
            .iter()
            .filter(|explanation| explanation.path.starts_with(&below) && is_decided(explanation))
            .collect();
        if entries.is_empty() || is_of_a_program(path) {
            return if entries.is_empty() { String::new() } else { "see below".to_owned() };
        }
        let entry = |explanation: &&Explanation| {
            format!("{}: {}", code(&explanation.path[below.len()..]), with_reason(explanation))
        };
        entries.iter().map(entry).collect::<Vec<_>>().join("; ")
    }

    /// By the path of `config` or `flags`: setting, value, reason.
    fn settings_of_programs(&self) -> BTreeMap<String, Vec<Vec<String>>> {
        let mut found: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
        for explanation in self.0.iter().filter(|explanation| is_decided(explanation)) {
            let split = OF_PROGRAMS.iter().find_map(|name| {
                explanation
                    .path
                    .split_once(&format!(".{name}."))
                    .map(|(before, after)| (format!("{before}.{name}"), after))
            });
            if let Some((path, setting)) = split {
                let row = vec![code(setting), value_of(&explanation.value), reason_of(&explanation.origin)];
                found.entry(path).or_default().push(row);
            }
        }
        found
    }
}

fn is_of_a_program(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|last| OF_PROGRAMS.contains(&last))
}

fn is_decided(explanation: &Explanation) -> bool {
    matches!(explanation.origin, Origin::Default { .. } | Origin::Derived { .. })
}

fn with_reason(explanation: &Explanation) -> String {
    format!("{} ({})", value_of(&explanation.value), reason_of(&explanation.origin))
}

fn value_of(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => code(text),
        Value::Array(items) if items.iter().all(Value::is_string) && !items.is_empty() => {
            items.iter().filter_map(Value::as_str).map(code).collect::<Vec<_>>().join(", ")
        }
        other => code(&other.to_string()),
    }
}

fn reason_of(origin: &Origin) -> String {
    match origin {
        Origin::User(_) => "as the example says".to_owned(),
        Origin::Default { reason } => reason.to_string(),
        Origin::Derived { rule, .. } => rule.to_string(),
        Origin::BuiltIn { component } => format!("what {component} does by itself"),
    }
}
