//! What a bundle asks for that this version or this machine cannot do. Pure; a part of the plan.
//!
//! Nothing of a bundle is ever left out silently: what cannot be done is refused before anything is written.

use render::bundle::Bundle;
use serde::{Deserialize, Serialize};

use crate::facts::{Facts, Os};
use crate::gate_facts;
use crate::plan::unit_text;
use crate::snap::planned_snap;

const BOOTSTRAP_UNIT: &str = "k8s-node-bootstrap.service";
/// What a bundle of the layout tectonic wants to call nodestrap by.
const OLD_NAME: &str = "tectonic-torcx-bootstrap";
const LAYOUTS: [&str; 3] = ["nodestrap", "eksctl", "tectonic"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub reason: String,
    /// What to do about it.
    pub advice: String,
}

/// All of them at once.
pub(crate) fn refusals(bundle: &Bundle, facts: &Facts) -> Vec<Refusal> {
    let gate = gate_facts::resolve(bundle, facts);
    // With a variable missing, what is made of it would only be missing too.
    let snap = if gate.refusals.is_empty() { planned_snap(bundle, &gate.environment).err() } else { None };
    [layout(bundle), runtime(bundle), old_name(bundle), slots(bundle), os(bundle, &facts.os.value), snap]
        .into_iter()
        .flatten()
        .chain(gate.refusals)
        .collect()
}

/// What is no reason to stop, but people want to know.
pub(crate) fn remarks(bundle: &Bundle, facts: &Facts) -> Vec<String> {
    let os = &facts.os.value;
    let unknown = known_as(os).is_none();
    let remark = || {
        format!(
            "this machine's operating system is {:?}, which nodestrap does not know; it is treated as {:?}, as the \
             bundle says",
            os.id, bundle.kind.os
        )
    };
    unknown.then(remark).into_iter().collect()
}

fn layout(bundle: &Bundle) -> Option<Refusal> {
    let layout = &bundle.kind.layout;
    (!LAYOUTS.contains(&layout.as_str())).then(|| Refusal {
        reason: format!("this version of nodestrap does not know the layout {layout:?}"),
        advice: format!("use one of {}", LAYOUTS.join(", ")),
    })
}

fn runtime(bundle: &Bundle) -> Option<Refusal> {
    let source = &bundle.runtime.source;
    (source != "preinstalled").then(|| Refusal {
        reason: format!("this version of nodestrap cannot install a container runtime from {source:?} yet"),
        advice: "use an image that brings it, and containerRuntime.source: preinstalled".to_owned(),
    })
}

/// A node whose bootstrap unit cannot run would never mend a damaged gate.
fn old_name(bundle: &Bundle) -> Option<Refusal> {
    unit_text(bundle, BOOTSTRAP_UNIT).is_some_and(|text| text.contains(OLD_NAME)).then(|| Refusal {
        reason: format!("the bundle's {BOOTSTRAP_UNIT} calls nodestrap {OLD_NAME}, a name it does not answer to yet"),
        advice: "use layout: nodestrap".to_owned(),
    })
}

/// Whoever reads a bundle checks this too; here it keeps a hook from being passed over.
fn slots(bundle: &Bundle) -> Option<Refusal> {
    let stray = bundle.hooks.iter().find(|hook| !crate::plan::SLOTS.contains(&hook.slot.as_str()))?;
    Some(Refusal {
        reason: format!(
            "hook {:?} has the slot {:?}, which this version of nodestrap does not know",
            stray.name, stray.slot
        ),
        advice: format!("use one of {}", crate::plan::SLOTS.join(", ")),
    })
}

/// Paths and programs differ: a bundle for one system half-works on another, which is worse than not at all.
fn os(bundle: &Bundle, os: &Os) -> Option<Refusal> {
    let found = known_as(os)?;
    let wanted = &bundle.kind.os;
    (found != wanted).then(|| Refusal {
        reason: format!("the bundle is for {wanted}, and this machine runs {found} ({})", os.name),
        advice: format!("say os: {found} in the group, render and deliver again; or boot an image of {wanted}"),
    })
}

/// The name that specs have for this system.
fn known_as(os: &Os) -> Option<&'static str> {
    Some(match (os.id.as_str(), os.version.as_str()) {
        ("flatcar", _) => "flatcar",
        ("coreos", _) => "container-linux",
        ("debian", _) => "debian",
        ("ubuntu", _) => "ubuntu",
        ("amzn", "2") => "al2",
        ("amzn", version) if version.split('.').next() == Some("2023") => "al2023",
        ("rhcos", _) => "rhcos",
        // Since it is built from RHEL's own packages it also calls itself so.
        ("rhel", _) if os.variant == "coreos" => "rhcos",
        ("rhel", _) => "rhel",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_known_by_what_they_call_themselves() {
        for (id, version, variant, expected) in [
            ("debian", "12", "", Some("debian")),
            ("ubuntu", "24.04", "", Some("ubuntu")),
            ("flatcar", "4081.2.0", "", Some("flatcar")),
            ("coreos", "2345.3.0", "", Some("container-linux")),
            ("amzn", "2", "", Some("al2")),
            ("amzn", "2023", "", Some("al2023")),
            ("amzn", "2018.03", "", None),
            ("rhel", "9.4", "", Some("rhel")),
            ("rhel", "9.6", "coreos", Some("rhcos")),
            ("rhcos", "4.15", "coreos", Some("rhcos")),
            ("fedora", "41", "coreos", None),
            ("rocky", "9.3", "", None),
        ] {
            let text = |text: &str| text.to_owned();
            let os = Os { id: text(id), version: text(version), variant: text(variant), name: String::new() };
            assert_eq!(known_as(&os), expected, "{id} {version} {variant}");
        }
    }
}
