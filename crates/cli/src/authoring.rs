//! `check`, `complete`, `explain` and `render`: what runs off the node.

use std::fmt::Write as _;
use std::path::Path;

use host::disk::{Disk, RootedDisk};
use render::bundle::Bundle;
use serde::Serialize;
use spec::{Explanation, NotFound, Origin, SecretDisplay};

use crate::args::{CompleteArguments, ExplainArguments, Format, Output, RenderArguments, SpecArguments};
use crate::documents::{choose_group, load_complete};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::{Paint, Screen, table};

/// A rendered folder may hold secrets.
const FOLDER_MODE: u32 = 0o700;
const USER_DATA_MODE: u32 = 0o600;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckView {
    cluster: String,
    kubernetes_version: String,
    groups: Vec<String>,
}

pub(crate) fn check(arguments: &SpecArguments, screen: &Screen) -> Outcome {
    let spec = load_complete(&arguments.files, screen)?;
    let view = CheckView {
        cluster: spec.name.value.to_string(),
        kubernetes_version: spec.cluster.kubernetes_version.value.to_string(),
        groups: spec.groups.iter().map(|group| group.name.value.to_string()).collect(),
    };
    screen.result(&view, || {
        format!(
            "{} cluster {}, Kubernetes {}, node groups: {}\n",
            screen.paint(Paint::Good, "✓"),
            view.cluster,
            view.kubernetes_version,
            view.groups.join(", ")
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
    let spec = load_complete(std::slice::from_ref(&arguments.file), screen)?;
    let wanted = arguments.path.as_deref().map_or(EVERYTHING.to_vec(), |path| vec![path]);
    let mut explanations = Vec::new();
    for path in wanted {
        explanations.extend(spec::explain(&spec, path).map_err(not_found)?);
    }
    let views: Vec<ExplainView> = explanations.iter().map(ExplainView::new).collect();
    screen.result(&views, || explain_text(screen, &views))
}

/// The two roots of every path.
const EVERYTHING: [&str; 2] = ["cluster", "nodeGroups"];

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
        rows.push(vec!["reaches".to_owned(), view.reaches.join(", ")]);
        text.push_str(&table(&rows));
    }
    text
}

pub(crate) fn render(arguments: &RenderArguments, screen: &Screen) -> Outcome {
    let spec = load_complete(&arguments.spec.files, screen)?;
    let group = choose_group(&spec, arguments.group.as_deref())?;
    let bundle = render::render_bundle(&spec, &group).or_fail(Code::WrongInput)?;
    match (arguments.format, &arguments.out) {
        (Format::Folder, Some(out)) => write_folder(&bundle, out, screen),
        (Format::Folder, None) => Err(anyhow::anyhow!("a folder needs a place: --out PATH")).or_fail(Code::WrongInput),
        (Format::CloudConfig, out) => {
            let user_data = render::cloud_config(&bundle).or_fail(Code::WrongInput)?;
            deliver(&user_data, out.as_deref(), &bundle, screen)
        }
        (Format::Bundle, out) => deliver(&bundle.to_json(), out.as_deref(), &bundle, screen),
    }
}

fn deliver(text: &str, out: Option<&Path>, bundle: &Bundle, screen: &Screen) -> Outcome {
    let Some(out) = out else {
        screen.print(text)?;
        return Ok(Code::Done);
    };
    let here = RootedDisk::open(Path::new("/")).or_fail(Code::WrongInput)?;
    let path = std::path::absolute(out).or_fail(Code::WrongInput)?;
    host::files::write_durable(&here, &path, USER_DATA_MODE, text.as_bytes(), None).or_fail(Code::WrongInput)?;
    screen.remark(&format!("{}: {} bytes, bundle {}", out.display(), text.len(), bundle.digest()));
    Ok(Code::Done)
}

/// All of it, or nothing at the place: the folder is filled beside it and switched in.
fn write_folder(bundle: &Bundle, out: &Path, screen: &Screen) -> Outcome {
    let fail = |error: std::io::Error, path: &Path| Failure {
        code: Code::WrongInput,
        error: anyhow::Error::from(error).context(format!("cannot write {:?}", path.display().to_string())),
    };
    let out = std::path::absolute(out).or_fail(Code::WrongInput)?;
    if std::fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(anyhow::anyhow!("{:?} is not empty; name a new folder", out.display().to_string()))
            .or_fail(Code::WrongInput);
    }
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".nodestrap-new");
    let staging = out.with_file_name(name);
    if staging.exists() {
        std::fs::remove_dir_all(&staging).map_err(|error| fail(error, &staging))?;
    }
    let filled =
        fill_folder(bundle, &staging).and_then(|()| std::fs::rename(&staging, &out).map_err(|error| fail(error, &out)));
    if let Err(failure) = filled {
        // There are secrets inside; the first error is the one that counts.
        let _ = std::fs::remove_dir_all(&staging);
        return Err(failure);
    }
    screen.remark(&format!("{}: {} files, bundle {}", out.display(), bundle.files.len(), bundle.digest()));
    Ok(Code::Done)
}

fn fill_folder(bundle: &Bundle, folder: &Path) -> Result<(), Failure> {
    let here = RootedDisk::open(Path::new("/")).or_fail(Code::WrongInput)?;
    here.make_folder(folder, FOLDER_MODE).or_fail(Code::WrongInput)?;
    let disk = RootedDisk::open(folder).or_fail(Code::WrongInput)?;
    for (relative, mode, content) in bundle.to_folder() {
        let path = Path::new("/").join(&relative);
        if let Some(folder) = path.parent() {
            disk.make_folder(folder, FOLDER_MODE).or_fail(Code::WrongInput)?;
        }
        disk.create(&path, mode, &content).or_fail(Code::WrongInput)?;
    }
    disk.sync_file_system(Path::new("/")).or_fail(Code::WrongInput)
}
