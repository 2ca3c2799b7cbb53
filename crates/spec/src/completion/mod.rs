//! Every decision the user left open, made: pure, and the same for the same spec.

mod agreement;
mod cluster;
mod containerd;
mod control_plane;
mod delivery;
mod group;
mod kubelet;
mod lists;
mod os;
mod report;

use serde_json::Value;

use crate::catalog;
use crate::complete::{CompleteNodeGroup, CompleteSpec, ConfigNode, ConfigTree};
use crate::config::{self, ShapeConflict};
use crate::decode::Drafts;
use crate::document::Spec;
use crate::mistake::Mistake;
use crate::origin::{Origin, Setting};
use crate::path;
use crate::source::{Sources, Span};

/// Fails only where the user contradicts what nodestrap must decide, or one decision of theirs another.
pub fn complete(spec: &Spec) -> Result<CompleteSpec, Vec<Mistake>> {
    let check = Check { sources: &spec.sources, drafts: Drafts::new(&spec.sources) };
    let documents = &spec.documents;
    let name = &documents.name;
    let cluster = cluster::complete_cluster(&documents.cluster, name, &check);
    let groups = documents
        .groups
        .iter()
        .map(|(name, group)| {
            let group = group::complete_group(name, group, &cluster, &check);
            CompleteNodeGroup { name: name.clone(), spec: group }
        })
        .collect();
    let mistakes = check.drafts.finish();
    if mistakes.is_empty() { Ok(CompleteSpec { name: name.clone(), cluster, groups }) } else { Err(mistakes) }
}

fn default<T>(value: T, reason: &'static str) -> Setting<T> {
    Setting { value, origin: Origin::Default { reason } }
}

fn derived<T>(value: T, from: Vec<String>, rule: &'static str) -> Setting<T> {
    Setting { value, origin: Origin::Derived { from, rule } }
}

fn from(path: &str) -> Vec<String> {
    vec![path.to_owned()]
}

fn or_default<T: Clone>(setting: &Option<Setting<T>>, value: impl FnOnce() -> T, reason: &'static str) -> Setting<T> {
    setting.clone().unwrap_or_else(|| default(value(), reason))
}

/// A path, image or name of ours: valid, because a test completes them all.
fn ours<T: std::str::FromStr>(text: &str) -> T {
    match text.parse() {
        Ok(value) => value,
        Err(_) => unreachable!("nodestrap's own \"{text}\" is valid"),
    }
}

/// Mistakes found while decisions are put together.
pub(crate) struct Check<'a> {
    sources: &'a Sources,
    drafts: Drafts<'a>,
}

impl Check<'_> {
    fn span(&self, origin: Option<&Origin>) -> Span {
        match origin {
            Some(Origin::User(position)) => self.sources.span(position),
            // Only values of the user are ever reported; the start of the input is a safe place for the impossible.
            _ => Span { file: 0, line: 1, column: 1, end_line: 1, end_column: 2 },
        }
    }

    fn report(&self, origin: Option<&Origin>, message: impl Into<String>, advice: impl Into<String>) {
        self.drafts.report(self.span(origin), message).advise(advice);
    }

    /// Reports the user's leaf at `path` unless `accepts` says that it agrees with what nodestrap decides.
    fn agree(
        &self,
        user: &ConfigTree,
        path: &[&str],
        accepts: impl FnOnce(&Value) -> bool,
        message: impl FnOnce() -> (String, String),
    ) {
        if let Some(node) = config::find(user, path)
            && !accepts(&config::node_to_json(node))
        {
            let (message, advice) = message();
            self.report(config::origin_of(node), message, advice);
        }
    }

    fn report_conflicts(&self, conflicts: Vec<ShapeConflict>) {
        for conflict in conflicts {
            let path = path::join(conflict.path.iter().map(String::as_str));
            self.report(
                conflict.origin.as_ref(),
                format!("{path} must be {}", conflict.needed),
                "nodestrap's own configuration is laid out so; write only the fields that you want to change",
            );
        }
    }
}

/// Defaults of ours, then the user's tree over them.
fn overlay(mut ours: ConfigTree, user: &ConfigTree, check: &Check<'_>) -> ConfigTree {
    let mut conflicts = Vec::new();
    config::merge(&mut ours, user, &mut conflicts);
    check.report_conflicts(conflicts);
    ours
}

fn leaf_text<'t>(tree: &'t ConfigTree, path: &[&str]) -> Option<&'t str> {
    match config::find(tree, path) {
        Some(ConfigNode::Leaf(setting)) => setting.value.as_str(),
        _ => None,
    }
}

fn release(version: crate::values::KubeVersion) -> &'static catalog::Release {
    catalog::find_release(version).unwrap_or_else(|_| catalog::newest_release())
}
