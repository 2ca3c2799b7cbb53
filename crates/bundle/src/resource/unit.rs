//! Units: when each starts, what it is started with, and how its state differs from the wanted one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Aspect, Change, ChangeKind, Difference, Family, Subject, ValueChange, judge};
use crate::bundle::{Bundle, MAX_PODS_MAP_PATH, Snap, Start, Unit, UnitNature};
use crate::idle::IdleUnit;
use crate::json::canonical;
use crate::names::{Digest, UnitName};
use crate::values::{changes, unit_sections};
use crate::vocabulary::{GateFact, Idleness, Slot};

pub struct Units;

/// What a service manager says of a unit.
pub struct Found<'a> {
    pub activity: Activity,
    pub enabled: bool,
    /// The file on the disk is not the one that systemd has read.
    pub needs_reload: bool,
    /// How its last run ended, in systemd's words; empty or "success" if well.
    pub result: &'a str,
    /// Of the file that is there.
    pub nature: UnitNature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Active,
    Activating,
    Deactivating,
    Inactive,
    Failed,
    NotFound,
    Masked,
}

impl UnitNature {
    /// What the text of a unit file says. The last `Type=` counts, as with systemd.
    pub fn of(text: &str) -> Self {
        let sections = unit_sections(text);
        let last_type = sections.iter().rev().find(|(section, key, _)| section == "Service" && key == "Type");
        // Those that make a link for this unit: `Also=` alone makes one for others.
        let links = ["WantedBy", "RequiredBy", "UpheldBy", "Alias"];
        Self {
            oneshot: last_type.is_some_and(|(_, _, value)| value == "oneshot"),
            installable: sections.iter().any(|(section, key, value)| {
                section == "Install" && links.contains(&key.as_str()) && !value.is_empty()
            }),
        }
    }
}

impl Unit {
    pub fn is_enabled(&self, nature: UnitNature) -> bool {
        self.start != Start::ByOthers && nature.installable
    }
}

/// All differences, the weightiest first.
pub fn compare(wanted: &Unit, found: &Found<'_>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let name = wanted.name.as_str();
    if let Some(expected) = wrong_activity(found.activity, wanted.start, found.nature.oneshot) {
        let result = match found.result {
            "" | "success" => String::new(),
            result => format!(" ({result})"),
        };
        let found = format!("{}{result}", found.activity.word());
        differences.push(Difference::new(name, Aspect::Active, expected, found));
    }
    let unusable = matches!(found.activity, Activity::NotFound | Activity::Masked);
    if wanted.is_enabled(found.nature) && !found.enabled && !unusable {
        differences.push(Difference::new(name, Aspect::Enabled, "starts at boot", "does not"));
    }
    if found.needs_reload {
        differences.push(Difference::new(name, Aspect::Reload, "read by systemd", "changed on disk since"));
    }
    differences
}

/// What is there of a unit that shall not run.
pub struct FoundIdle {
    pub is_masked: bool,
    /// A link of the administrator's starts it at boot.
    pub is_enabled: bool,
    pub runs: bool,
}

/// The same for those that shall not run. That one which is only disabled runs says nothing: others may start it.
pub fn compare_idle(wanted: &IdleUnit, found: &FoundIdle) -> Vec<Difference> {
    let mut differences = Vec::new();
    let name = wanted.name.as_str();
    if wanted.idleness == Idleness::Masked && !found.is_masked {
        differences.push(Difference::new(name, Aspect::Enabled, "masked", "not masked"));
    }
    if found.is_enabled {
        differences.push(Difference::new(name, Aspect::Enabled, "does not start at boot", "does"));
    }
    if wanted.idleness == Idleness::Masked && found.runs {
        differences.push(Difference::new(name, Aspect::Active, "not running", "active"));
    }
    differences
}

/// What is expected instead of this state, if it is wrong.
fn wrong_activity(activity: Activity, start: Start, oneshot: bool) -> Option<&'static str> {
    let runs = matches!(activity, Activity::Active | Activity::Activating);
    let rests = matches!(activity, Activity::Inactive | Activity::Deactivating);
    match start {
        _ if runs => None,
        Start::ByOthers if rests => None,
        Start::ByOthers => Some("not failed"),
        _ if oneshot && rests => None,
        _ if oneshot => Some("ran to its end"),
        Start::BeforeGate | Start::AfterGate => Some("active"),
    }
}

impl Activity {
    fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Activating => "activating",
            Self::Deactivating => "deactivating",
            Self::Inactive => "inactive",
            Self::Failed => "failed",
            Self::NotFound => "not found",
            Self::Masked => "masked",
        }
    }
}

/// Everything that a unit reads when it starts, as one digest: it has to start anew when this changes. `gate` is the whole
/// environment of the gate, which the kubelet reads.
pub fn started_with(bundle: &Bundle, gate: &BTreeMap<String, String>, unit: &UnitName) -> Digest {
    let files = bundle.all_files();
    let read = files.iter().filter(|file| file.read_by.units.contains(unit));
    let mut files: Vec<_> = read.map(|file| (file.path.to_string(), file.mode, file.sha256().to_owned())).collect();
    let trees = bundle.trees.iter().filter(|tree| tree.read_by.units.contains(unit));
    files.extend(trees.map(|tree| (tree.folder(), 0, tree.artefact.digest.to_string())));
    let packages = bundle.packages.iter().flat_map(|packages| &packages.packages);
    let packages = packages.filter(|package| package.read_by.units.contains(unit));
    files.extend(packages.map(|package| (package.name.clone(), 0, package.title())));
    let extensions = bundle.extensions.iter().filter(|extension| extension.read_by.units.contains(unit));
    files.extend(extensions.map(|extension| (extension.image(), 0, extension.artefact.digest.to_string())));
    let gate = (*unit == bundle.join.kubelet_unit).then_some((&bundle.gate.path, gate));
    let snap = bundle.snap.as_ref().filter(|snap| snap.owns(unit));
    Digest::of(canonical(&(files, gate, snap)).as_bytes())
}

/// Units that run after what a hook of this slot may have changed, and so start anew after it.
pub fn started_after(bundle: &Bundle, slot: Slot) -> Vec<&UnitName> {
    let runtime = bundle.units.iter().position(|unit| unit.name == bundle.runtime.unit);
    let follows = |(index, unit): &(usize, &Unit)| match (slot, unit.start) {
        (_, Start::ByOthers) | (Slot::AfterKubelet, _) => false,
        (Slot::BeforeKubelet, start) => start == Start::AfterGate,
        (_, Start::AfterGate) | (Slot::BeforeFiles | Slot::AfterFiles, _) => true,
        (Slot::BeforeRuntime, _) => runtime.is_none_or(|runtime| *index >= runtime),
        (Slot::AfterRuntime, _) => runtime.is_none_or(|runtime| *index > runtime),
    };
    bundle.units.iter().enumerate().filter(follows).map(|(_, unit)| &unit.name).collect()
}

/// Units that `apply` starts anew on a node that has `old` and gets `new`.
pub(super) fn restarts(old: &Bundle, new: &Bundle) -> BTreeSet<UnitName> {
    let starts = |unit: &&Unit| unit.start != Start::ByOthers;
    let was_started = |unit: &&Unit| old.units.iter().filter(starts).any(|before| before.name == unit.name);
    let (old_gate, new_gate) = (expected_gate(old), expected_gate(new));
    let reads_otherwise =
        |unit: &&Unit| started_with(old, &old_gate, &unit.name) != started_with(new, &new_gate, &unit.name);
    // snapd hands them to the services of its snap.
    let settings = |bundle: &Bundle| bundle.snap.as_ref().map(|snap| snap.settings.clone());
    let is_set_otherwise = |snap: &&Snap| settings(old).as_ref() != Some(&snap.settings);
    let snap = new.snap.as_ref().filter(is_set_otherwise);
    let starts_anew =
        |unit: &&Unit| !was_started(unit) || reads_otherwise(unit) || snap.is_some_and(|snap| snap.owns(&unit.name));
    let by_content = new.units.iter().filter(starts).filter(starts_anew).map(|unit| unit.name.clone());
    // Hooks run for every new bundle.
    let is_new = old.manifest_json() != new.manifest_json();
    let hooks = new.hooks.iter().filter(|_| is_new);
    let by_hooks = hooks.flat_map(|hook| started_after(new, hook.slot)).cloned();
    by_content.chain(by_hooks).collect()
}

/// As far as a bundle tells what the gate will say. Of what only the node knows it tells that it will stand there, and where
/// the node looks it up.
fn expected_gate(bundle: &Bundle) -> BTreeMap<String, String> {
    let looked_up = || bundle.file(MAX_PODS_MAP_PATH).map(|map| map.sha256().to_owned());
    let fact = |fact: &GateFact| {
        let said = match fact {
            GateFact::MaxPods => bundle.gate.max_pods.map(|number| number.to_string()).or_else(looked_up),
            GateFact::InstanceId | GateFact::InstanceType | GateFact::KubeletImageTag | GateFact::NodeIp => None,
        };
        (fact.to_string(), said.unwrap_or_default())
    };
    bundle.gate.environment.clone().into_iter().chain(bundle.gate.facts.iter().map(fact)).collect()
}

impl Family for Units {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let starts = |bundle: &Bundle| -> BTreeMap<String, String> {
            let started = bundle.units.iter().map(|unit| (unit.name.to_string(), start(unit.start).to_owned()));
            let idle = bundle.idle_units.iter().map(|unit| (unit.name.to_string(), unit.idleness.to_string()));
            started.chain(idle).collect()
        };
        let order = order_change(old, new);
        let changes = changes(&starts(old), &starts(new)).into_iter();
        let is_runtime = |name: &str| [old, new].iter().any(|bundle| bundle.runtime.unit == *name);
        let is_started = |name: &str| [old, new].iter().flat_map(|bundle| &bundle.units).any(|unit| unit.name == *name);
        changes
            .filter_map(|value| {
                let change = ChangeKind::of(value.old.as_ref(), value.new.as_ref())?;
                let when = value.new.as_deref().or(value.old.as_deref()).unwrap_or_default();
                let name = value.path.clone();
                let subject = match () {
                    () if is_runtime(&name) => Subject::RuntimeStart,
                    () if !is_started(&name) => Subject::IdleUnit,
                    () => Subject::Unit,
                };
                Some(Change {
                    family: "unit",
                    reasons: vec![judge(subject, &name, &name)],
                    note: format!(", {when}"),
                    subject: name,
                    change,
                    secret: false,
                    values: vec![value],
                })
            })
            .chain(order)
            .collect()
    }
}

/// Of the units that both have: each starts after those before it.
fn order_change(old: &Bundle, new: &Bundle) -> Option<Change> {
    let shared = |these: &Bundle, those: &Bundle| -> Vec<String> {
        let is_there = |unit: &&Unit| those.units.iter().any(|other| other.name == unit.name);
        these.units.iter().filter(is_there).map(|unit| unit.name.to_string()).collect()
    };
    let (before, after) = (shared(old, new), shared(new, old));
    let path = "order of units".to_owned();
    (before != after).then(|| Change {
        family: "unit",
        reasons: vec![judge(Subject::UnitOrder, "", &path)],
        note: format!(", {}", after.join(", ")),
        subject: path.clone(),
        change: ChangeKind::Changed,
        secret: false,
        values: vec![ValueChange { path, old: Some(before.join(", ")), new: Some(after.join(", ")) }],
    })
}

fn start(start: Start) -> &'static str {
    match start {
        Start::BeforeGate => "started before the gate opens",
        Start::AfterGate => "started after the gate opened",
        Start::ByOthers => "started by other units",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_type_of_a_unit_counts_however_it_is_spelt() {
        let nature = |text: &str| UnitNature::of(text);
        assert!(nature("[Service]\nType = oneshot\nExecStart=/x\n").oneshot);
        assert!(!nature("[Service]\nType=oneshot\nType=exec\n").oneshot);
        assert!(!nature("[Unit]\nType=oneshot\n[Service]\nExecStart=/x\n").oneshot);
        assert!(!nature("[Service]\n# Type=oneshot\n").oneshot);
        assert!(nature("[Install]\nWantedBy=a.target\n").installable);
        assert!(nature("[Install]\nAlias = a.service\n").installable);
        assert!(!nature("[Service]\nExecStart=/bin/echo [Install]\n").installable);
        // systemd calls the first static and the second indirect; neither is ever enabled.
        assert!(!nature("[Install]\nWantedBy=\n").installable);
        assert!(!nature("[Install]\nAlso=a.socket\n").installable);
    }
}
