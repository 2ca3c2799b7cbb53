//! Configuration documents inside a spec: decoded by a schema, merged leaf by leaf.

use serde_json::{Map, Number, Value};

use crate::catalog::{Component, Field, Schema, Target};
use crate::config_tree::{ConfigNode, ConfigTree};
use crate::decode::{Drafts, place, report_unknown_field};
use crate::origin::{Origin, Setting};
use crate::record::Context;
use crate::source::{Span, is_secret_name};
use crate::syntax;
use crate::tree::{Entry, Kind, Node, Style};

/// The configuration of a component, less what says which document it is: nodestrap writes that itself.
pub(crate) fn decode_component(context: Context<'_>, node: &Node, component: Component) -> Option<ConfigTree> {
    let what = match component {
        Component::Kubelet => "KubeletConfiguration",
        Component::KubeProxy => "KubeProxyConfiguration",
        Component::KubeScheduler => "KubeSchedulerConfiguration",
        _ => "containerd's configuration",
    };
    let component = match component {
        Component::Containerd if is_version_2(node) => Component::ContainerdOne,
        component => component,
    };
    let target = context.release.target(component);
    let Some(fields) = target.component.config() else {
        context
            .drafts
            .report(node.span, format!("{} of this release has no configuration file", target.component.title()))
            .advise("write flags");
        return None;
    };
    let mut config = decode_config(context.drafts, node, fields, what, target)?;
    config.retain(|name| name != "apiVersion" && name != "kind");
    Some(config)
}

/// A configuration for containerd 1 says so itself.
fn is_version_2(node: &Node) -> bool {
    let Kind::Map(entries) = &node.kind else { return false };
    let version = entries.iter().find(|entry| entry.key == "version").map(|entry| &entry.value.kind);
    matches!(version, Some(Kind::Scalar { text, .. }) if text == "2")
}

/// Decodes what can be decoded and reports the rest, also what the version of `target` does not have.
fn decode_config(drafts: &Drafts<'_>, node: &Node, fields: &[Field], what: &str, target: Target) -> Option<ConfigTree> {
    Some(decode_object(drafts, drafts.entries(node)?, fields, what, target))
}

fn decode_object<'e>(
    drafts: &Drafts<'_>,
    entries: impl IntoIterator<Item = &'e Entry>,
    fields: &[Field],
    what: &str,
    target: Target,
) -> ConfigTree {
    let names: Vec<&str> = fields.iter().filter(|field| target.has(field.available)).map(|field| field.name).collect();
    let mut tree = ConfigTree::new();
    for entry in entries {
        let Some(field) = fields.iter().find(|field| field.name == entry.key) else {
            report_unknown_field(drafts, entry, what, &names);
            continue;
        };
        if let Some((why, advice)) = target.unavailable(field.available) {
            let message = format!("{what} has no field \"{}\" {why}", entry.key);
            drafts.report(entry.key_span, message).advise(advice);
        }
        if let Some(node) = decode_node(drafts, entry, field.schema, target) {
            tree.insert(&entry.key, node);
        }
    }
    tree
}

fn decode_node(drafts: &Drafts<'_>, entry: &Entry, schema: Schema, target: Target) -> Option<ConfigNode> {
    if is_secret_name(&entry.key) {
        drafts.hide(entry.value.span);
    }
    if let ("featureGates", Kind::Map(gates)) = (entry.key.as_str(), &entry.value.kind) {
        for gate in gates {
            if let Err(invalid) = syntax::validate_feature_gate(&gate.key) {
                drafts.report_invalid(gate.key_span, invalid);
            }
        }
    }
    let branch = |tree: ConfigTree| {
        // An empty mapping can mean something (`evictionHard: {}`): it stays, as a leaf that knows its origin.
        if tree.is_empty() { leaf(drafts, place(entry), Value::Object(Map::new())) } else { ConfigNode::Branch(tree) }
    };
    match (schema, &entry.value.kind) {
        (Schema::Object(fields), _) => {
            let entries = drafts.entries(&entry.value)?;
            Some(branch(decode_object(drafts, entries, fields, &entry.key, target)))
        }
        (Schema::Open(fields), _) => {
            Some(branch(decode_open(drafts, drafts.entries(&entry.value)?, fields, &entry.key, target)))
        }
        (Schema::Map(of), _) => Some(branch(decode_map(drafts, drafts.entries(&entry.value)?, *of, target))),
        (Schema::Free, Kind::Map(entries)) => Some(branch(decode_map(drafts, entries, Schema::Free, target))),
        _ => decode_value(drafts, &entry.value, schema, target).map(|value| leaf(drafts, place(entry), value)),
    }
}

fn decode_open(drafts: &Drafts<'_>, entries: &[Entry], fields: &[Field], what: &str, target: Target) -> ConfigTree {
    let (known, free): (Vec<&Entry>, Vec<&Entry>) =
        entries.iter().partition(|entry| fields.iter().any(|field| field.name == entry.key));
    let mut tree = decode_object(drafts, known, fields, what, target);
    tree.extend(decode_map(drafts, free, Schema::Free, target));
    tree
}

fn decode_map<'e>(
    drafts: &Drafts<'_>,
    entries: impl IntoIterator<Item = &'e Entry>,
    of: Schema,
    target: Target,
) -> ConfigTree {
    entries.into_iter().filter_map(|entry| Some((entry.key.clone(), decode_node(drafts, entry, of, target)?))).collect()
}

fn leaf(drafts: &Drafts<'_>, span: Span, value: Value) -> ConfigNode {
    ConfigNode::Leaf(Setting { value, origin: drafts.user(span) })
}

fn decode_value(drafts: &Drafts<'_>, node: &Node, schema: Schema, target: Target) -> Option<Value> {
    match schema {
        Schema::Bool => decode_bool(drafts, node).map(Value::Bool),
        Schema::Int { min, max } => decode_int(drafts, node, min, max).map(Value::from),
        Schema::Float => decode_float(drafts, node),
        Schema::Number { min, max } => {
            let value = decode_float(drafts, node)?;
            let number = value.as_f64().unwrap_or_default();
            drafts.checked(node, syntax::validate_number_within(number, min, max)).map(|()| value)
        }
        Schema::Text => drafts.text_or_int(node).map(Value::from),
        Schema::Form(form) => {
            let text = drafts.scalar(node)?;
            drafts.checked(node, form.check(text, target))?;
            drafts.is_text(node).then(|| Value::from(text))
        }
        Schema::Choice(choices) => {
            let text = drafts.scalar(node)?;
            let known = choices.contains(&text).then(|| Value::from(text));
            drafts.checked(node, known.ok_or_else(|| syntax::unknown_choice(text, choices)))
        }
        Schema::Duration => drafts.valid_text(node, syntax::validate_go_duration).map(Value::from),
        Schema::Within { min, max } => {
            let text = drafts.scalar(node)?;
            drafts.checked(node, syntax::validate_duration_within(text, min, max))?;
            drafts.is_text(node).then(|| Value::from(text))
        }
        Schema::List(of) => drafts.items(node, |item| decode_value(drafts, item, *of, target)).map(Value::from),
        Schema::Map(of) => {
            let decoded = drafts
                .entries(node)?
                .iter()
                .map(|entry| Some((entry.key.clone(), decode_value(drafts, &entry.value, *of, target)?)));
            Some(Value::Object(decoded.collect::<Vec<_>>().into_iter().collect::<Option<Map<_, _>>>()?))
        }
        Schema::Object(fields) => {
            // Inside lists: no leaf of its own, so origins are not kept.
            let tree = decode_object(drafts, drafts.entries(node)?, fields, "an item of this list", target);
            Some(tree_to_json(&tree))
        }
        Schema::Open(fields) => {
            Some(tree_to_json(&decode_open(drafts, drafts.entries(node)?, fields, "an item of this list", target)))
        }
        Schema::Free => decode_free(drafts, node, target),
    }
}

/// `yes` and `on` are true in YAML 1.1 and texts in 1.2: nobody can rely on them.
fn is_old_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "on" | "y" => Some(true),
        "no" | "off" | "n" => Some(false),
        _ => None,
    }
}

/// What YAML readers take a text without quotes for, if not for a text.
pub(crate) fn plain_kind(text: &str) -> Option<&'static str> {
    let is_bool = text.len() > 1 && is_old_bool(text).is_some();
    if is_bool || matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE") {
        return Some("a boolean");
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_based = |(prefix, radix)| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|rest: &str| !rest.is_empty() && rest.chars().all(|digit| digit.is_digit(radix)))
    };
    let is_number = all_digits || is_float(text) || [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().any(is_based);
    is_number.then_some("a number")
}

/// A whole number as every reader writes it.
pub(crate) fn is_canonical_int(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

fn plain_text<'n>(drafts: &Drafts<'_>, node: &'n Node, wanted: &str) -> Option<&'n str> {
    let text = drafts.scalar(node)?;
    if matches!(node.kind, Kind::Scalar { style: Style::Text, .. }) {
        drafts.report(node.span, format!("{wanted} is needed here, not a text")).advise("remove the quotes");
        return None;
    }
    Some(text)
}

pub(crate) fn decode_bool(drafts: &Drafts<'_>, node: &Node) -> Option<bool> {
    let text = plain_text(drafts, node, "true or false")?;
    match text {
        "true" => return Some(true),
        "false" => return Some(false),
        _ => {}
    }
    let report = drafts.report(node.span, format!("true or false is needed here, not \"{text}\""));
    let meant = is_old_bool(text).or_else(|| text.to_ascii_lowercase().parse().ok());
    if let Some(meant) = meant {
        report.advise(format!("write {meant}"));
    }
    None
}

pub(crate) fn decode_int(drafts: &Drafts<'_>, node: &Node, min: i64, max: i64) -> Option<i64> {
    let text = plain_text(drafts, node, "a whole number")?;
    if !is_canonical_int(text) {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let report = drafts.report(node.span, format!("a whole number is needed here, not \"{text}\""));
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            report.advise("a leading zero means octal to some readers: leave it out");
        }
        return None;
    }
    match text.parse::<i64>() {
        Ok(value) if (min..=max).contains(&value) => Some(value),
        _ => {
            drafts.report(node.span, format!("{text} is out of range: {min} to {max}"));
            None
        }
    }
}

fn decode_float(drafts: &Drafts<'_>, node: &Node) -> Option<Value> {
    let text = plain_text(drafts, node, "a number")?;
    let value = is_float(text).then(|| text.parse().ok().and_then(Number::from_f64)).flatten();
    if value.is_none() {
        drafts.report(node.span, format!("a number is needed here, not \"{text}\""));
    }
    value.map(Value::Number)
}

/// YAML 1.2 core schema, without infinity and not-a-number: neither JSON nor TOML files share a spelling of them.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    all_digits(whole)
        && all_digits(fraction)
        && !leading_zero
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && all_digits(exponent))
}

fn decode_free(drafts: &Drafts<'_>, node: &Node, target: Target) -> Option<Value> {
    match &node.kind {
        Kind::List(_) => drafts.items(node, |item| decode_free(drafts, item, target)).map(Value::from),
        Kind::Map(_) => decode_value(drafts, node, Schema::Map(&Schema::Free), target),
        Kind::Scalar { text, style: Style::Text } => Some(Value::from(text.as_str())),
        Kind::Refused => None,
        Kind::Scalar { text, style: Style::Plain } => decode_plain(drafts, node, text),
    }
}

fn decode_plain(drafts: &Drafts<'_>, node: &Node, text: &str) -> Option<Value> {
    if node.is_missing() {
        return drafts.text(node).map(Value::from);
    }
    if let Some(meant) = is_old_bool(text) {
        drafts
            .report(node.span, format!("\"{text}\" is a boolean to some YAML readers and a text to others"))
            .advise(format!("write {meant}, or \"{text}\" in quotes"));
        return None;
    }
    match text {
        "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits && (digits == "0" || !digits.starts_with('0')) {
        return decode_int(drafts, node, i64::MIN, i64::MAX).map(Value::from);
    }
    let based = ["0x", "0o", "0b"].iter().any(|prefix| digits.starts_with(prefix));
    if all_digits || based {
        drafts
            .report(node.span, format!("\"{text}\" is a different number to different YAML readers"))
            .advise("write it in decimal, or in quotes if it is a text");
        return None;
    }
    if is_float(text) { decode_float(drafts, node) } else { Some(Value::from(text)) }
}

pub(crate) fn tree_to_json(tree: &ConfigTree) -> Value {
    Value::Object(tree.iter().map(|(name, node)| (name.to_owned(), node_to_json(node))).collect())
}

pub(crate) fn node_to_json(node: &ConfigNode) -> Value {
    match node {
        ConfigNode::Leaf(setting) => setting.value.clone(),
        ConfigNode::Branch(tree) => tree_to_json(tree),
    }
}

/// The first origin in a branch, or that of the leaf.
pub(crate) fn origin_of(node: &ConfigNode) -> Option<&Origin> {
    match node {
        ConfigNode::Leaf(setting) => Some(&setting.origin),
        ConfigNode::Branch(tree) => tree.iter().find_map(|(_, node)| origin_of(node)),
    }
}

pub(crate) fn find<'t>(tree: &'t ConfigTree, path: &[&str]) -> Option<&'t ConfigNode> {
    let (first, rest) = path.split_first()?;
    match (tree.get(first)?, rest) {
        (node, []) => Some(node),
        (ConfigNode::Branch(tree), rest) => find(tree, rest),
        (ConfigNode::Leaf(_), _) => None,
    }
}

/// Puts a leaf where `path` says, making the branches on the way.
pub(crate) fn insert(tree: &mut ConfigTree, path: &[&str], setting: Setting<Value>) {
    match path {
        [] => {}
        [name] => {
            tree.insert(name, ConfigNode::Leaf(setting));
        }
        [name, rest @ ..] => {
            if let ConfigNode::Branch(below) = tree.get_or_branch(name) {
                insert(below, rest, setting);
            }
        }
    }
}

/// A value of the user where nodestrap has a table, or the other way round.
pub(crate) struct ShapeConflict {
    pub(crate) path: Vec<String>,
    pub(crate) needed: &'static str,
    pub(crate) origin: Option<Origin>,
}

/// Lays `over` over `base`: leaves of `over` win, branches are merged.
pub(crate) fn merge(base: &mut ConfigTree, over: &ConfigTree, conflicts: &mut Vec<ShapeConflict>) {
    merge_below(base, over, &mut Vec::new(), conflicts);
}

fn merge_below(base: &mut ConfigTree, over: &ConfigTree, path: &mut Vec<String>, conflicts: &mut Vec<ShapeConflict>) {
    let mut new = Vec::new();
    for (name, node) in over {
        path.push(name.to_owned());
        match (base.get_mut(name), node) {
            (Some(ConfigNode::Branch(below)), ConfigNode::Branch(over)) => merge_below(below, over, path, conflicts),
            (Some(ConfigNode::Branch(_)), ConfigNode::Leaf(setting)) if is_empty_mapping(&setting.value) => {}
            (Some(ConfigNode::Branch(_)), ConfigNode::Leaf(_)) => {
                let origin = origin_of(node).cloned();
                conflicts.push(ShapeConflict { path: path.clone(), needed: "a table", origin });
            }
            (Some(ConfigNode::Leaf(setting)), ConfigNode::Branch(_)) if !is_empty_mapping(&setting.value) => {
                let origin = origin_of(node).cloned();
                conflicts.push(ShapeConflict { path: path.clone(), needed: "a single value", origin });
            }
            _ => new.push((name.to_owned(), node.clone())),
        }
        path.pop();
    }
    if !new.is_empty() {
        base.extend(new);
    }
}

fn is_empty_mapping(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}
