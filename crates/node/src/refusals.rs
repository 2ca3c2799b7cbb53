//! What a bundle asks for that this version, this machine or this node cannot do. Pure; a part of the plan.
//!
//! Nothing of a bundle is ever left out silently: what cannot be done is refused before anything is written.

use bundle::{Bundle, Extension, Os as KnownOs, SourceKind, System};
use serde::{Deserialize, Serialize};

use crate::facts::{Facts, Os};
use crate::gate_facts;
use crate::ownership;
use crate::resource::snap::planned_snap;

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
    [runtime(bundle), os(bundle, &facts.os.value), snap]
        .into_iter()
        .flatten()
        .chain(gate.refusals)
        .chain(extensions(bundle, &facts.os.value, &facts.architecture.value))
        .chain(ownership::refusals(bundle, facts))
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
            os.id,
            bundle.node.os.as_str()
        )
    };
    unknown.then(remark).into_iter().collect()
}

/// The image has no runtime, and nobody would bring one.
fn runtime(bundle: &Bundle) -> Option<Refusal> {
    let source = bundle.runtime.source.kind();
    let has_addon = bundle.follow.as_ref().is_some_and(|follow| follow.addon.is_some());
    (source == SourceKind::Torcx && !has_addon).then(|| Refusal {
        reason: format!("the container runtime is to come from {:?}, and the bundle names no addon", source.as_str()),
        advice: "render it again with this version of nodestrap; or say source: preinstalled".to_owned(),
    })
}

/// systemd would pass over such an image, unmerge what is there, and report success.
pub(crate) fn extensions(bundle: &Bundle, os: &Os, architecture: &str) -> Vec<Refusal> {
    let system = System { id: &os.id, sysext_level: &os.sysext_level, version_id: &os.version, architecture };
    let refuse = |extension: &Extension| {
        let misfit = extension.release.misfit(system)?;
        Some(Refusal {
            reason: format!("the system extension {} does not fit this machine: {misfit}", extension.title()),
            advice: "publish an image that fits it, render and deliver again; what is merged now stays".to_owned(),
        })
    };
    bundle.extensions.iter().filter_map(refuse).collect()
}

/// Paths and programs differ: a bundle for one system half-works on another, which is worse than not at all.
pub(crate) fn os(bundle: &Bundle, os: &Os) -> Option<Refusal> {
    let found = known_as(os)?;
    let wanted = bundle.node.os;
    (found != wanted).then(|| Refusal {
        reason: format!("the bundle is for {wanted}, and this machine runs {found} ({})", os.name),
        advice: format!("say os: {found} in the group, render and deliver again; or boot an image of {wanted}"),
    })
}

/// The name that specs have for this system.
fn known_as(os: &Os) -> Option<KnownOs> {
    Some(match (os.id.as_str(), os.version.as_str()) {
        ("flatcar", _) => KnownOs::Flatcar,
        ("coreos", _) => KnownOs::ContainerLinux,
        ("debian", _) => KnownOs::Debian,
        ("ubuntu", _) => KnownOs::Ubuntu,
        ("amzn", "2") => KnownOs::Al2,
        ("amzn", version) if version.split('.').next() == Some("2023") => KnownOs::Al2023,
        ("rhcos", _) => KnownOs::Rhcos,
        // Since it is built from RHEL's own packages it also calls itself so.
        ("rhel", _) if os.variant == "coreos" => KnownOs::Rhcos,
        ("rhel", _) => KnownOs::Rhel,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_known_by_what_they_call_themselves() {
        for (id, version, variant, expected) in [
            ("debian", "12", "", Some(KnownOs::Debian)),
            ("ubuntu", "24.04", "", Some(KnownOs::Ubuntu)),
            ("flatcar", "4081.2.0", "", Some(KnownOs::Flatcar)),
            ("coreos", "2345.3.0", "", Some(KnownOs::ContainerLinux)),
            ("amzn", "2", "", Some(KnownOs::Al2)),
            ("amzn", "2023", "", Some(KnownOs::Al2023)),
            ("amzn", "2018.03", "", None),
            ("rhel", "9.4", "", Some(KnownOs::Rhel)),
            ("rhel", "9.6", "coreos", Some(KnownOs::Rhcos)),
            ("rhcos", "4.15", "coreos", Some(KnownOs::Rhcos)),
            ("fedora", "41", "coreos", None),
            ("rocky", "9.3", "", None),
        ] {
            let text = |text: &str| text.to_owned();
            let os = Os {
                id: text(id),
                version: text(version),
                variant: text(variant),
                board: String::new(),
                sysext_level: String::new(),
                name: String::new(),
            };
            assert_eq!(known_as(&os), expected, "{id} {version} {variant}");
        }
    }
}
