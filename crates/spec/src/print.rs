//! The complete spec as documents: YAML that completes to itself, and JSON for tools.

use serde_json::Value;

use crate::complete::CompleteSpec;
use crate::document::API_VERSION;
use crate::view::{self, SecretDisplay, View};
use crate::yaml;

impl CompleteSpec {
    /// One document for the cluster and one for each group; parsing and completing them gives the same text again.
    pub fn to_yaml(&self, secrets: SecretDisplay) -> String {
        let mut text = document("Cluster", view::cluster(self, secrets));
        for group in &self.groups {
            text.push_str("---\n");
            text.push_str(&document("NodeGroup", view::group(group, secrets)));
        }
        text
    }

    /// `{"cluster": …, "nodeGroups": {NAME: …}}`: the tree that the paths of `explain` walk. What components do by
    /// themselves is a tree of the same form under `builtIn`.
    pub fn to_json(&self, secrets: SecretDisplay) -> Value {
        let whole = view::whole(self, secrets);
        let mut json = whole.decided();
        json["builtIn"] = whole.built_in();
        json
    }
}

fn document(kind: &str, view: View<'_>) -> String {
    let View::Branch(fields) = view else { return String::new() };
    let (name, spec): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(field, _)| field == "name");
    let mut text = String::new();
    yaml::write_field(&mut text, 0, "apiVersion", &Value::from(API_VERSION));
    yaml::write_field(&mut text, 0, "kind", &Value::from(kind));
    text.push_str("metadata:\n");
    write_fields(&mut text, 1, &name);
    text.push_str("spec:\n");
    write_fields(&mut text, 1, &spec);
    text
}

fn write_fields(text: &mut String, depth: usize, fields: &[(String, View<'_>)]) {
    for (name, view) in fields {
        write_field(text, depth, name, view);
    }
}

/// What components do by themselves is a comment: read back, it would be a decision.
fn write_field(text: &mut String, depth: usize, name: &str, view: &View<'_>) {
    match view {
        _ if view.is_built_in() => {
            let mut aside = String::new();
            yaml::write_field(&mut aside, depth, name, &view.to_json());
            let indent = "  ".repeat(depth);
            for line in aside.lines() {
                let rest = line.strip_prefix(&indent).unwrap_or(line);
                text.push_str(&format!("{indent}# {rest}\n"));
            }
        }
        View::Leaf(value, _) | View::Entry(value, _) | View::BuiltIn(value, _) => {
            yaml::write_field(text, depth, name, value)
        }
        View::Branch(below) if below.iter().all(|(_, view)| view.is_built_in()) => {
            yaml::write_field(text, depth, name, &serde_json::json!({}));
        }
        View::Branch(below) => {
            yaml::write_key(text, depth, name);
            text.push('\n');
            write_fields(text, depth + 1, below);
        }
    }
}
