//! Addons of torcx: the versioned store of what boots next has what the profile names.

use bundle::Bundle;
use engine::{Clock, ErrorClass};

use super::{Problem, Proof};
use crate::os_update::NextBoot;
use crate::session::NodeHost;

/// Not there yet: a bundle that follows an addon is refused, and none is taken for proved.
pub(super) fn prove_addons(
    _host: &NodeHost,
    bundle: &Bundle,
    _next: &NextBoot,
    _clock: &dyn Clock,
    _tell: &dyn Fn(&str),
    proof: &mut Proof,
) {
    if let Some(addon) = bundle.follow.as_ref().and_then(|follow| follow.addon.as_ref()) {
        proof.problems.push(Problem {
            artefact: format!("the addon {}", addon.name),
            reason: "this version of nodestrap cannot stage addons of torcx for another operating system yet"
                .to_owned(),
            advice: "do not reboot into an update".to_owned(),
            class: ErrorClass::NeedsOperator,
        });
    }
}
