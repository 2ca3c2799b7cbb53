//! Hooks: units of the user's that are started at their slot and waited for. What they did is theirs to know.

use bundle::resource::hook::{CANNOT_BE_OBSERVED, CANNOT_BE_UNDONE};
use bundle::resource::unit::started_after;
use bundle::{Necessity, Slot, UnitName};
use engine::{Condition, History, StepContext, StepError};
use host::units::{JobResult, UnitError};
use serde::{Deserialize, Serialize};

use super::file::FILES_DEADLINE;
use super::record::Record;
use super::{Deed, Family, Node, UndoPhase, UndoStep, Undoing, Verified};
use crate::failure::{chain, disk_error, output_of, unit_error};
use crate::hook_output::HookOutput;
use crate::reset::ResetAction;

pub(crate) struct Hooks;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// A unit of the user's is started and its end waited for.
    RunHook { hook: String, slot: Slot, unit: UnitName, necessity: Necessity },
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        let Self::RunHook { unit, slot, necessity, .. } = self;
        format!("{unit}, {slot}, {necessity}")
    }

    fn check(&self, _: &Node<'_>, history: &History) -> Result<Condition, StepError> {
        let Self::RunHook { unit, .. } = self;
        Ok(match history.done_before {
            true => Condition::AlreadySo,
            false => Condition::Needed(format!("{unit} has not run for this bundle on this machine")),
        })
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::RunHook { hook, slot, unit, necessity } = self;
        // A hook may change what it likes.
        node.files_are_as_planned.store(false, std::sync::atomic::Ordering::Relaxed);
        node.forget_starts(started_after(node.bundle, *slot))?;
        let output = HookOutput::prepare(node.tools.disk, unit).map_err(|error| disk_error(&error))?;
        node.tools.disk.hold_system_folders().map_err(|error| disk_error(&error))?;
        let ended = output.run(node.tools.units, node.tools.remaining(context));
        judge(hook, *slot, *necessity, ended, context)?;
        // Once it is recorded as done it does not run again, so whatever it wrote, wherever, has to be there for ever.
        node.tools.disk.sync_everything().map_err(|error| disk_error(&error))
    }
}

/// An optional hook that fails leaves a word in the report, and the node goes on.
fn judge(
    hook: &str,
    slot: Slot,
    necessity: Necessity,
    ended: Result<(), UnitError>,
    context: &StepContext<'_>,
) -> Result<(), StepError> {
    let Err(error) = ended else { return Ok(()) };
    let failed = match &error {
        // Nobody answered, or somebody else took the job away: that says nothing about the hook.
        UnitError::Bus { .. } | UnitError::Call { .. } | UnitError::Job { result: JobResult::Canceled, .. } => false,
        UnitError::Job { .. } | UnitError::Deadline { .. } | UnitError::NotFound { .. } | UnitError::Masked { .. } => {
            true
        }
    };
    match (failed, necessity) {
        (false, _) => Err(unit_error(&error)),
        (true, Necessity::Optional) => {
            context.detail(format!("optional hook {hook:?} ({slot}) failed, the node goes on: {}", chain(&error)));
            Ok(())
        }
        (true, Necessity::Required) => {
            let consequence = match slot {
                Slot::AfterKubelet => "the gate is open and the kubelet runs all the same",
                _ => "the gate stays shut",
            };
            let message = format!("required hook {hook:?} ({slot}) failed, {consequence}: {}", chain(&error));
            let advice = "journalctl -u with its name says more; mend the hook in the spec, or let its necessity be \
                          optional; it runs again with every apply";
            Err(StepError::permanent(message).with_advice(advice).with_output(output_of(&error)))
        }
    }
}

impl Family for Hooks {
    fn keep(&self, node: &Node<'_>, _: &Record, record: &mut Record) -> Result<(), StepError> {
        record.hooks.extend(node.bundle.hooks.iter().map(|hook| hook.name.clone()));
        Ok(())
    }

    fn verify(&self, node: &Node<'_>) -> Result<Verified, StepError> {
        let remark = |hook: &bundle::Hook| format!("hook {:?} cannot be observed: {CANNOT_BE_OBSERVED}", hook.name);
        Ok(Verified { drift: Vec::new(), remarks: node.bundle.hooks.iter().map(remark).collect() })
    }

    /// What an earlier hook did stays; its name is remembered for `reset` to tell.
    fn find_obsolete(&self, _: &Node<'_>, _: &Record, _: &mut Record) -> Result<(), StepError> {
        Ok(())
    }

    fn undo(&self, record: &Record) -> Vec<UndoStep> {
        let tell = Undo::TellOfHooks { hooks: record.hooks.iter().cloned().collect() };
        let step = || UndoStep {
            phase: UndoPhase::Tell,
            id: "tell-of-hooks".to_owned(),
            deadline: FILES_DEADLINE,
            barrier: false,
            action: ResetAction::Hook(tell),
        };
        (!record.hooks.is_empty()).then(step).into_iter().collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Undo {
    /// What they did cannot be undone, and somebody should know.
    TellOfHooks { hooks: Vec<String> },
}

impl Deed<Undoing<'_>> for Undo {
    fn describe(&self) -> String {
        let Self::TellOfHooks { hooks } = self;
        format!("{}: cannot be undone", hooks.join(" "))
    }

    fn check(&self, _: &Undoing<'_>, history: &History) -> Result<Condition, StepError> {
        let Self::TellOfHooks { hooks } = self;
        Ok(match history.done_before {
            true => Condition::AlreadySo,
            false => Condition::Needed(format!("what {} did stays", hooks.join(", "))),
        })
    }

    fn apply(&self, _: &Undoing<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::TellOfHooks { hooks } = self;
        context.detail(format!("{} cannot be undone: {CANNOT_BE_UNDONE}", hooks.join(", ")));
        Ok(())
    }
}
