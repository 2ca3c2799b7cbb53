//! Snaps: settings and aliases that snapd is asked for, and how they differ from what it has.

use std::collections::BTreeMap;

use super::reason::judge_flag;
use super::{Aspect, Change, ChangeKind, Difference, Family, ValueChange};
use crate::bundle::{Bundle, Snap};
use crate::values::changes;

pub struct Snaps;

/// What snapd says of a snap.
pub struct Found<'a> {
    pub aliases: &'a BTreeMap<String, String>,
    pub settings: &'a BTreeMap<String, String>,
    /// Services of the snap that do not run.
    pub stopped: &'a [String],
}

/// Settings and aliases of others are left alone, and so are no difference.
pub fn compare(wanted: &Snap, found: &Found<'_>) -> Vec<Difference> {
    let there = |found: Option<&String>| found.cloned().unwrap_or_else(|| "not set".to_owned());
    let aliases = wanted.aliases.iter().filter(|(alias, app)| found.aliases.get(*alias) != Some(*app));
    let aliases = aliases.map(|(alias, app)| {
        Difference::new(alias, Aspect::Alias, format!("starts {app}"), there(found.aliases.get(alias)))
    });
    let settings = wanted.settings.iter().filter(|(key, value)| found.settings.get(*key) != Some(*value));
    let settings = settings.map(|(key, value)| {
        let subject = format!("{} {key}", wanted.name);
        Difference::new(subject, Aspect::Setting, value, there(found.settings.get(key)))
    });
    let stopped = found.stopped.iter();
    let stopped =
        stopped.map(|app| Difference::new(format!("{}.{app}", wanted.name), Aspect::Active, "active", "not running"));
    aliases.chain(settings).chain(stopped).collect()
}

impl Family for Snaps {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let (before, after) = (old.snap.as_ref(), new.snap.as_ref());
        let values = |part: fn(&Snap) -> &BTreeMap<String, String>| {
            changes(&before.map(part).cloned().unwrap_or_default(), &after.map(part).cloned().unwrap_or_default())
        };
        let settings = values(|snap| &snap.settings);
        let aliases = values(|snap| &snap.aliases).into_iter();
        let aliases = aliases.map(|change| ValueChange { path: format!("(alias) {}", change.path), ..change });
        let reasons = settings.iter().map(|change| judge_flag(&change.path)).collect();
        let all: Vec<ValueChange> = settings.into_iter().chain(aliases).collect();
        let Some(snap) = after.or(before).filter(|_| !all.is_empty()) else { return Vec::new() };
        vec![Change {
            family: "snap",
            subject: snap.name.clone(),
            change: ChangeKind::of(before, after).unwrap_or(ChangeKind::Changed),
            values: all,
            secret: false,
            note: ", a snap".to_owned(),
            reasons,
        }]
    }
}
