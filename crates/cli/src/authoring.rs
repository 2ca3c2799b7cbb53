//! `check`, `complete` and `explain`: what is said and what is decided.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use spec::{CompleteSpec, Explanation, Mistake, NotFound, Origin, SecretDisplay};

use crate::args::{CompleteArguments, ExplainArguments, Output, SpecArguments};
use crate::documents::{complete_sources, load_complete, load_sources, show_mistakes};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::{Paint, Screen, table};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckView {
    cluster: String,
    kubernetes_version: String,
    groups: Vec<String>,
    /// What does not keep the spec from being used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WarningView {
    file: String,
    line: u32,
    column: u32,
    message: String,
    advice: Option<String>,
}

impl WarningView {
    fn new(warning: &Mistake) -> Self {
        let Mistake { file, line, column, message, advice, .. } = warning.clone();
        Self { file, line, column, message, advice }
    }
}

pub(crate) fn check(arguments: &SpecArguments, screen: &Screen) -> Outcome {
    let spec = load_complete(&arguments.files, screen)?;
    let refusals = render::refusals(&spec);
    if !refusals.is_empty() {
        let lines: Vec<String> = refusals
            .into_iter()
            .map(|(group, error)| format!("group {group}: {:#}", anyhow::Error::from(error)))
            .collect();
        return Err(anyhow::anyhow!(lines.join("\n"))).or_fail(Code::WrongInput);
    }
    let view = CheckView {
        cluster: spec.name.value.to_string(),
        kubernetes_version: spec.cluster.kubernetes_version.value.to_string(),
        groups: spec.groups.iter().map(|group| group.name.value.to_string()).collect(),
        warnings: spec.warnings.iter().map(WarningView::new).collect(),
    };
    if screen.output == Output::Text {
        show_mistakes(&spec.warnings, screen);
    }
    screen.result(&view, || {
        format!(
            "{} cluster {}, Kubernetes {}, node groups: {}\n",
            screen.paint(Paint::Good, "✓"),
            view.cluster,
            view.kubernetes_version,
            some_of(&view.groups)
        )
    })
}

pub(crate) fn complete(arguments: &CompleteArguments, screen: &Screen) -> Outcome {
    let spec = load_complete(&arguments.spec.files, screen)?;
    let secrets = if arguments.show_secrets { SecretDisplay::Shown } else { SecretDisplay::Redacted };
    match screen.output {
        // YAML is what people write specs in, so it is the text form too.
        Output::Text | Output::Yaml => screen.print(&spec.to_yaml(secrets))?,
        Output::Json => {
            let json = serde_json::to_string_pretty(&spec.to_json(secrets)).or_fail(Code::NeedsPerson)?;
            screen.print(&format!("{json}\n"))?;
        }
    }
    Ok(Code::Done)
}

pub(crate) fn explain(arguments: &ExplainArguments, screen: &Screen) -> Outcome {
    let (files, path) = arguments.split();
    let sources = load_sources(files, screen)?;
    let spec = complete_sources(&sources, screen)?;
    let mut explanations = match path {
        Some(path) => spec::explain(&spec, &sources, path).map_err(not_found)?,
        None => spec::explain_all(&spec, &sources),
    };
    leave_out_small_bundles(&spec, &mut explanations);
    let views: Vec<ExplainView> = explanations.iter().map(ExplainView::new).collect();
    screen.result(&views, || explain_text(screen, &views))
}

/// A store is for bundles that are too large for the provider, which shows only when they are rendered.
fn leave_out_small_bundles(spec: &CompleteSpec, explanations: &mut [Explanation]) {
    let is_small = |group: &str| {
        let rendered = render::render_group(spec, group).ok()?;
        Some(rendered.user_data(rendered.format()?).ok()?.carries == render::delivery::Carries::Bundle)
    };
    let is_of_store = |explanation: &&mut Explanation| {
        let root = if explanation.path.starts_with("cluster.") { 1 } else { 2 };
        explanation.path.split('.').skip(root).take(2).eq(["delivery", "store"])
    };
    let mut known = BTreeMap::new();
    for explanation in explanations.iter_mut().filter(is_of_store) {
        explanation
            .reaches
            .retain(|group| !*known.entry(group.clone()).or_insert_with(|| is_small(group).unwrap_or_default()));
    }
}

/// The names, or the first of them: a fleet has thousands.
fn some_of(names: &[String]) -> String {
    const MOST: usize = 20;
    match names.split_at_checked(MOST) {
        Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(", "), rest.len()),
        _ => names.join(", "),
    }
}

fn not_found(error: NotFound) -> Failure {
    let advice = match &error {
        NotFound::Unknown { nearest, .. } if !nearest.is_empty() => {
            format!("; did you mean {}?", nearest.join(", or "))
        }
        NotFound::Unknown { .. } => "; without a path every value is listed".to_owned(),
        NotFound::Ambiguous { .. } => "; say which".to_owned(),
    };
    Failure { code: Code::WrongInput, error: anyhow::anyhow!("{error}{advice}") }
}

fn describe(origin: &Origin) -> String {
    match origin {
        Origin::User(at) => format!("the user: {}, line {}, column {}", at.file, at.line, at.column),
        Origin::Default { reason } => format!("default: {reason}"),
        Origin::Derived { from, rule } => format!("derived from {}: {rule}", from.join(", ")),
        Origin::BuiltIn { component } => format!("nobody: what {component} of this release does by itself"),
    }
}

#[derive(Serialize)]
struct ExplainView {
    path: String,
    value: serde_json::Value,
    origin: String,
    reaches: Vec<String>,
}

impl ExplainView {
    fn new(explanation: &Explanation) -> Self {
        Self {
            path: explanation.path.clone(),
            value: explanation.value.clone(),
            origin: describe(&explanation.origin),
            reaches: explanation.reaches.clone(),
        }
    }
}

fn explain_text(screen: &Screen, views: &[ExplainView]) -> String {
    const LONGEST_VALUE: usize = 60;
    let mut text = String::new();
    for view in views {
        let mut value = match &view.value {
            serde_json::Value::String(plain) => plain.lines().next().unwrap_or_default().to_owned(),
            other => other.to_string(),
        };
        if value.chars().count() > LONGEST_VALUE && views.len() > 1 {
            value = value.chars().take(LONGEST_VALUE).collect::<String>() + "…";
        }
        let _ = writeln!(text, "{} = {value}", screen.paint(Paint::Strong, &view.path));
        let mut rows = vec![vec!["from".to_owned(), view.origin.clone()]];
        let reaches = if view.reaches.is_empty() { "no nodes".to_owned() } else { view.reaches.join(", ") };
        rows.push(vec!["reaches".to_owned(), reaches]);
        text.push_str(&table(&rows));
    }
    text
}
