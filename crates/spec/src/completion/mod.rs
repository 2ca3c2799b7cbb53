//! Every decision the user left open, made: pure, and the same for the same spec.

mod agreement;
mod artefacts;
mod cluster;
mod components;
mod containerd;
mod control_plane;
mod delivery;
mod extensions;
mod group;
mod kubelet;
mod lists;
mod networks;
mod os;
mod packages;
mod pki_folder;
mod report;
mod secrets;
mod tectonic;

use std::collections::BTreeMap;

use bundle::torcx::Minor;
use serde_json::Value;

use crate::catalog;
use crate::complete::{CompleteNodeGroup, CompleteSpec};
use crate::config::{self, ShapeConflict};
use crate::config_tree::{ConfigNode, ConfigTree};
use crate::decode::Drafts;
use crate::document::{Documents, Spec};
use crate::items::Addresses;
use crate::mistake::{Mistake, Severity};
use crate::origin::{Origin, Setting};
use crate::path;
use crate::record::Place;
use crate::source::{Sources, Span};
use crate::values::Role;

/// Fails only where the user contradicts what nodestrap must decide, or one decision of theirs another.
pub fn complete(spec: &Spec) -> Result<CompleteSpec, Vec<Mistake>> {
    complete_with(spec, PkiCheck::Whole)
}

/// The same while the files of `pki.folder` are still to be made: whatever is given in their place is not looked at.
pub fn complete_before_pki(spec: &Spec) -> Result<CompleteSpec, Vec<Mistake>> {
    complete_with(spec, PkiCheck::Later)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PkiCheck {
    Whole,
    Later,
}

fn complete_with(spec: &Spec, pki_check: PkiCheck) -> Result<CompleteSpec, Vec<Mistake>> {
    let check = Check { sources: &spec.sources, drafts: Drafts::new(&spec.sources), pki_check, now: spec.now };
    let documents = &spec.documents;
    let name = &documents.name;
    if exceeds_copies(documents, &check) {
        return Err(check.drafts.finish());
    }
    let cluster = cluster::complete_cluster(&documents.cluster, name, &check);
    let verified = cluster.artefacts.as_ref().and_then(|artefacts| artefacts::verify(artefacts, &check));
    let groups = documents
        .groups
        .iter()
        .map(|(name, group)| {
            let group = group::complete_group(name, group, &cluster, &check);
            let traits = os::traits(group.os.value);
            let pinned = verified.as_ref().map(|verified| artefacts::pin(&group, &cluster, &traits, verified, &check));
            let extensions = verified.as_ref().map(|verified| extensions::pin(&group, &cluster, verified, &check));
            CompleteNodeGroup {
                name: name.clone(),
                spec: group,
                pinned: pinned.unwrap_or_default(),
                pinned_extensions: extensions.unwrap_or_default(),
            }
        })
        .collect();
    let provenance = verified.as_ref().map(artefacts::provenance);
    let found = check.drafts.finish();
    if found.iter().any(|mistake| mistake.severity == Severity::Error) {
        return Err(found);
    }
    Ok(CompleteSpec { name: name.clone(), cluster, groups, provenance, warnings: found })
}

/// What is wrong beside mistakes that keep a spec from being completed: only what no value depends on that may be one of
/// those, so that nobody is sent after a mistake which is none.
pub(crate) fn check_apart<'a>(documents: &Documents, sources: &'a Sources, drafts: Drafts<'a>) -> Drafts<'a> {
    let check = Check { sources, drafts, pki_check: PkiCheck::Later, now: None };
    let spec = &documents.cluster;
    cluster::check_lists(spec, &check);
    let networking = &spec.networking;
    if let (Some(pods), Some(services)) = (&networking.pod_cidrs, &networking.service_cidrs) {
        let none = default(Addresses(Vec::new()), "");
        networks::check(pods, services, networking.cluster_dns.as_ref().unwrap_or(&none), &check);
    }
    for (_, group) in &documents.groups {
        group::check_lists(group, &check);
        group::complete_machines(&group.machines, &check);
        if let (Some(of_cluster), Some(of_group)) = (&spec.kubernetes_version, &group.kubernetes_version) {
            group::check_skew(of_group, of_cluster.value, Role::Worker, &check);
        }
    }
    check.drafts
}

/// Every group has what the cluster has: a short spec could ask for more than fits into memory.
fn exceeds_copies(documents: &Documents, check: &Check<'_>) -> bool {
    const MOST: usize = 1_000_000;
    fn sized<T>(list: &Option<Setting<T>>, length: impl Fn(&T) -> usize) -> Option<(usize, &Origin)> {
        list.as_ref().map(|list| (length(&list.value), &list.origin))
    }
    let spec = &documents.cluster;
    let lists = [
        sized(&spec.file_assets, Vec::len),
        sized(&spec.hooks, Vec::len),
        sized(&spec.units, Vec::len),
        sized(&spec.additional_user_data, Vec::len),
        sized(&spec.kernel_modules, Vec::len),
        sized(&spec.sysctls, BTreeMap::len),
    ];
    let Some((length, origin)) = lists.into_iter().flatten().max_by_key(|(length, _)| *length) else { return false };
    let groups = documents.groups.len();
    if length * groups <= MOST {
        return false;
    }
    check.report(
        Some(origin),
        format!("{groups} groups with {length} each are more than {MOST}"),
        "write in a group what only that group needs, or make several specs of this one",
    );
    true
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
    pki_check: PkiCheck,
    /// `None`: nothing is refused for its dates.
    now: Option<trust::Timestamp>,
}

impl Check<'_> {
    fn span(&self, origin: Option<&Origin>) -> Span {
        match origin {
            Some(Origin::User(position)) => self.sources.span(position),
            // Only values of the user are ever reported; the start of the input is a safe place for the impossible.
            _ => Span { file: 0, line: 1, column: 1, end_line: 1, end_column: 2 },
        }
    }

    /// What `check` finds for another minor than the cluster's own, where nothing is wrong yet.
    fn apart(&self, minor: Minor, check: impl FnOnce(&Check<'_>)) {
        let other = Check { drafts: self.drafts.apart(), ..*self };
        check(&other);
        self.drafts.take_over(other.drafts, minor);
    }

    fn report(&self, origin: Option<&Origin>, message: impl Into<String>, advice: impl Into<String>) {
        self.drafts.report(self.span(origin), message).advise(advice);
    }

    fn warn(&self, origin: Option<&Origin>, message: impl Into<String>, advice: impl Into<String>) {
        self.drafts.warn(self.span(origin), message).advise(advice);
    }

    /// About an item of a list.
    fn report_item(&self, place: Place, message: impl Into<String>, advice: impl Into<String>) {
        let span = place.0.unwrap_or_else(|| self.span(None));
        self.drafts.report(span, message).advise(advice);
    }

    fn warn_item(&self, place: Place, message: impl Into<String>, advice: impl Into<String>) {
        let span = place.0.unwrap_or_else(|| self.span(None));
        self.drafts.warn(span, message).advise(advice);
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
