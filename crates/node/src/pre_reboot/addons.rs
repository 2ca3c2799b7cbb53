//! Addons of torcx: the versioned store of what boots next has what the profile names.

use std::time::Duration;

use bundle::Bundle;
use bundle::torcx::OsRelease;
use engine::{Clock, Deadline, History, StepContext, StepError};

use super::{Problem, Proof};
use crate::facts::gather_facts;
use crate::failure::chain;
use crate::os_update::NextBoot;
use crate::resource::torcx::{self, stage};
use crate::session::{NodeHost, Past};

/// Two package lists, and an archive for each of two systems; what came of them is not fetched again by the next question.
const STAGE_DEADLINE: Duration = Duration::from_secs(600);

/// Chosen by the package lists of both systems, fetched, proved, and named in the profile. What no system needs any more goes.
pub(super) fn prove_addons(
    host: &NodeHost,
    bundle: &Bundle,
    next: &NextBoot,
    clock: &dyn Clock,
    tell: &dyn Fn(&str),
    proof: &mut Proof,
) {
    let Some(addon) = bundle.follow.as_ref().and_then(|follow| follow.addon.as_ref()) else { return };
    match stage_addon(host, bundle, next, clock, tell) {
        Ok(Staged { proved, collected }) => {
            proof.proved.extend(proved);
            proof
                .remarks
                .extend(collected.into_iter().map(|path| format!("{path}: no system that can boot needs it any more")));
        }
        Err(StepError { class, message, advice, .. }) => proof.problems.push(Problem {
            artefact: format!("the addon {}", addon.name),
            reason: message,
            advice: advice.unwrap_or_else(|| "do not reboot into an update".to_owned()),
            class,
        }),
    }
}

struct Staged {
    proved: Vec<String>,
    collected: Vec<String>,
}

fn stage_addon(
    host: &NodeHost,
    bundle: &Bundle,
    next: &NextBoot,
    clock: &dyn Clock,
    tell: &dyn Fn(&str),
) -> Result<Staged, StepError> {
    let invalid = |error: &dyn std::error::Error| StepError::needs_operator(chain(error));
    let mut facts = gather_facts(host).map_err(|error| invalid(&error))?;
    facts.find_out(host, bundle).map_err(|error| StepError::new(error.class(), chain(&error)))?;
    let node = host.node(bundle, &facts, clock, &Past::default());
    let os = OsRelease::new(torcx::current(&node)?, torcx::next_version(next.clone())?);
    let (history, detail) = (History::default(), |line: String| tell(&line));
    let deadline = Deadline::starting_now(clock, STAGE_DEADLINE);
    let context = StepContext { deadline, attempt: 1, detail: &detail, history: &history };
    let proved = stage::stage(&node, &os, &context)?;
    Ok(Staged { proved, collected: stage::collect(&node, &os)? })
}
