//! Files, hooks and units: a cluster's reach every group, a group's are laid over them by name.

use std::collections::BTreeMap;

use super::{Check, default, derived};
use crate::items::{AdditionalUserData, ExtraUnit, FileAsset, Hook};
use crate::origin::{Origin, Setting};
use crate::texts::ModuleName;

/// What makes two items the same one.
pub(super) trait Keyed: Clone + PartialEq {
    fn key(&self) -> &str;
}

impl Keyed for FileAsset {
    fn key(&self) -> &str {
        self.path.as_str()
    }
}

impl Keyed for Hook {
    fn key(&self) -> &str {
        self.name.as_str()
    }
}

impl Keyed for ExtraUnit {
    fn key(&self) -> &str {
        self.name.as_str()
    }
}

impl Keyed for AdditionalUserData {
    fn key(&self) -> &str {
        self.name.as_str()
    }
}

impl Keyed for ModuleName {
    fn key(&self) -> &str {
        self.as_str()
    }
}

/// The cluster's items in their order, replaced by the group's of the same key; then the group's others.
pub(super) fn merge<T: Keyed>(
    cluster: &Setting<Vec<T>>,
    group: &Option<Setting<Vec<T>>>,
    cluster_path: &str,
    group_path: String,
    reason: &'static str,
) -> Setting<Vec<T>> {
    let Some(group) = group else {
        return match cluster.value.is_empty() {
            true => default(Vec::new(), reason),
            false => derived(cluster.value.clone(), vec![cluster_path.to_owned()], "what the cluster has"),
        };
    };
    if cluster.value.is_empty() {
        return group.clone();
    }
    let mut merged = cluster.value.clone();
    for item in &group.value {
        match merged.iter_mut().find(|known| known.key() == item.key()) {
            Some(known) => *known = item.clone(),
            None => merged.push(item.clone()),
        }
    }
    // A complete spec says everything in the group: that stays the user's own word.
    if merged == group.value {
        return group.clone();
    }
    derived(merged, vec![cluster_path.to_owned(), group_path], "what the cluster has, and the group besides")
}

pub(super) fn merge_map<K: Ord + Clone, V: Clone + PartialEq>(
    layers: &[&BTreeMap<K, V>],
    group: &Option<Setting<BTreeMap<K, V>>>,
    from: Vec<String>,
    rule: &'static str,
) -> Setting<BTreeMap<K, V>> {
    let mut merged = BTreeMap::new();
    for layer in layers {
        merged.extend(layer.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    match group {
        Some(group) => {
            merged.extend(group.value.iter().map(|(key, value)| (key.clone(), value.clone())));
            if merged == group.value { group.clone() } else { derived(merged, from, rule) }
        }
        None => derived(merged, from, rule),
    }
}

fn report_twice<T: Keyed>(list: &Option<Setting<Vec<T>>>, what: &str, check: &Check<'_>) {
    let Some(list) = list else { return };
    for (index, item) in list.value.iter().enumerate() {
        if list.value[..index].iter().any(|earlier| earlier.key() == item.key()) {
            check.report(Some(&list.origin), format!("{what} \"{}\" is there twice", item.key()), "remove one of them");
        }
    }
}

pub(super) fn check_files(files: &Option<Setting<Vec<FileAsset>>>, check: &Check<'_>) {
    report_twice(files, "the file", check);
    let Some(list) = files else { return };
    for (index, file) in list.value.iter().enumerate() {
        if file.secret && file.mode.0 != 0o600 {
            check.report(
                Some(&list.origin),
                format!("the secret file \"{}\" has the mode {:04o}", file.path, file.mode.0),
                "leave out the mode: secrets are 0600",
            );
        }
        let below = |other: &FileAsset| other.path.as_str().starts_with(&format!("{}/", file.path));
        if let Some(other) = list.value.iter().enumerate().find(|(at, other)| *at != index && below(other)) {
            check.report(
                Some(&list.origin),
                format!("\"{}\" is a file, so \"{}\" cannot lie below it", file.path, other.1.path),
                "rename one of them",
            );
        }
    }
}

pub(super) fn check_hooks(hooks: &Option<Setting<Vec<Hook>>>, check: &Check<'_>) {
    report_twice(hooks, "the hook", check);
    let Some(list) = hooks else { return };
    for hook in &list.value {
        if hook.unit.is_some() == hook.container.is_some() {
            check.report(
                Some(&list.origin),
                format!("the hook \"{}\" needs either \"unit\" or \"container\"", hook.name),
                "a unit is the text of a systemd service; a container has an image and a command",
            );
        }
    }
}

pub(super) fn check_units(units: &Option<Setting<Vec<ExtraUnit>>>, check: &Check<'_>) {
    report_twice(units, "the unit", check);
    let Some(list) = units else { return };
    for unit in &list.value {
        if unit.content.is_none() && unit.drop_ins.is_empty() {
            check.report(
                Some(&list.origin),
                format!("the unit \"{}\" has neither \"content\" nor \"dropIns\"", unit.name),
                "write one of them, or remove it",
            );
        }
    }
}

/// Files of ours that a user cannot replace: each has its own place in the spec.
pub(super) fn check_clashes(
    (files, files_origin): (&Vec<FileAsset>, &Origin),
    (units, units_origin): (&Vec<ExtraUnit>, &Origin),
    own: &[(&str, &str)],
    check: &Check<'_>,
) {
    let unit_paths = units.iter().filter(|unit| unit.content.is_some()).map(|unit| {
        let path = format!("/etc/systemd/system/{}", unit.name);
        (path, units_origin)
    });
    let file_paths = files.iter().map(|file| (file.path.to_string(), files_origin));
    let mut seen: Vec<String> = Vec::new();
    for (path, origin) in file_paths.chain(unit_paths) {
        if let Some((_, instead)) = own.iter().find(|(own, _)| *own == path) {
            check.report(Some(origin), format!("nodestrap writes \"{path}\" itself"), *instead);
        }
        if seen.contains(&path) {
            check.report(
                Some(origin),
                format!("\"{path}\" is there twice"),
                "a file and a unit cannot be the same file",
            );
        }
        seen.push(path);
    }
}
