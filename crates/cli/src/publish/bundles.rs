//! Bundles in a store: each under the name by which user data leads to it.

use std::path::Path;

use anyhow::Context as _;
use bundle::{Bundle, Stub};
use serde::Serialize;

use super::args::PublishArguments;
use super::read_input;
use super::target::{Known, Target};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::{Paint, Screen, table};

/// A bundle nearly always holds a secret; in a folder it is for whoever serves that to open it further.
const BUNDLE_MODE: u32 = 0o600;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BundlesView {
    store: String,
    bundles: Vec<BundleView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BundleView {
    cluster: String,
    group: String,
    digest: String,
    place: String,
    /// Whether it was sent; otherwise it was there.
    sent: bool,
}

pub(super) fn publish_bundles(arguments: &PublishArguments, screen: &Screen) -> Outcome {
    let bundles = arguments.bundles.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?;
    let target = Target::open(&arguments.store)?;
    let mut published = Vec::new();
    for bundle in &bundles {
        published.push(send(&target, bundle)?);
    }
    let view = BundlesView { store: arguments.store.store.clone(), bundles: published };
    screen.result(&view, || text(&view, screen))
}

fn load(path: &Path) -> Result<Bundle, Failure> {
    Bundle::parse(&read_input(path)?)
        .with_context(|| {
            format!(
                "{:?} is no bundle: write one with `nodestrap render FILE --format bundle`",
                path.display().to_string()
            )
        })
        .or_fail(Code::WrongInput)
}

fn send(target: &Target, bundle: &Bundle) -> Result<BundleView, Failure> {
    let (json, digest) = bundle.to_json_with_digest();
    let name = Stub::object_name(&digest);
    let is_there = target.has(&name, &Known::of(json.as_bytes())).or_fail(Code::MayRetry)?;
    if !is_there {
        target.put(&name, json.as_bytes(), BUNDLE_MODE).or_fail(Code::MayRetry)?;
    }
    Ok(BundleView {
        cluster: bundle.cluster.clone(),
        group: bundle.group.clone(),
        digest: digest.to_string(),
        place: target.place_of(&name),
        sent: !is_there,
    })
}

fn text(view: &BundlesView, screen: &Screen) -> String {
    let sent = view.bundles.iter().filter(|bundle| bundle.sent).count();
    let sign = screen.paint(Paint::Good, "✓");
    let mut text = match sent {
        0 => format!("{sign} {} has all of it already; nothing changed\n", view.store),
        _ => format!("{sign} {sent} sent, {} there before\n", view.bundles.len() - sent),
    };
    let rows =
        view.bundles.iter().map(|bundle| vec![format!("{}/{}", bundle.cluster, bundle.group), bundle.place.clone()]);
    text.push_str(&table(&rows.collect::<Vec<_>>()));
    text
}
