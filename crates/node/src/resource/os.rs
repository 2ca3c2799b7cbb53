//! The update of the operating system at the bootstrap: staged by update_engine, before anything is chosen that hangs on it.
//!
//! Only a machine that never was a complete node has update_engine look for an update: later ones are for those who drain nodes, and
//! for the pre-reboot hook. What update_engine stages is noted ([`crate::os_update`]), since it forgets it itself.

use std::sync::mpsc;
use std::time::Duration;

use bundle::OsUpdate;
use engine::{Condition, ErrorClass, History, StepContext, StepError};
use host::update_engine::{NextOs, UpdateEngineError, Why};
use serde::{Deserialize, Serialize};

use super::{Deed, Node};
use crate::failure::{chain, disk_error, file_error};
use crate::os_update::{self, NextBoot};

/// Half a gigabyte to download, to be written and read back.
pub(crate) const UPDATE_DEADLINE: Duration = Duration::from_secs(1800);
/// For what is left to do once update_engine has been given up.
const MARGIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// What update_engine finds is staged, or at least it is known what is.
    UpdateSystem { update: OsUpdate },
}

impl Deed<Node<'_>> for Action {
    fn describe(&self) -> String {
        let Self::UpdateSystem { update } = self;
        match update {
            OsUpdate::Attempt => "by update_engine: staged, and booted once all that it needs is here".to_owned(),
            OsUpdate::Ask => "none; update_engine is asked what is staged".to_owned(),
        }
    }

    fn check(&self, node: &Node<'_>, history: &History) -> Result<Condition, StepError> {
        let Self::UpdateSystem { update } = self;
        if history.done_before || node.was_complete {
            return Ok(Condition::AlreadySo);
        }
        Ok(Condition::Needed(match update {
            OsUpdate::Attempt => "update_engine was not asked for an update yet".to_owned(),
            OsUpdate::Ask => "update_engine was not asked what is staged yet".to_owned(),
        }))
    }

    fn apply(&self, node: &Node<'_>, context: &StepContext<'_>) -> Result<(), StepError> {
        let Self::UpdateSystem { update } = self;
        let engine = node.tools.update_engine;
        let said = match update {
            OsUpdate::Ask => engine.observe().map(|observed| observed.next_os()),
            OsUpdate::Attempt => attempt(node, context),
        };
        let said = said.map_err(|error| engine_error(&error))?;
        os_update::note(node.tools.disk, &said, &node.boot_id).map_err(|error| file_error(&error))?;
        match (&said, node.next_boot_after(&said)?) {
            (_, NextBoot::Other { version, .. }) => context.detail(format!("{version} is staged")),
            // A node with an old system is better than none, but somebody should know.
            (NextOs::NothingStaged(Why::Failed { .. }), NextBoot::Same(why)) => {
                context.detail(format!("the node goes on with the system that runs: {why}"));
            }
            (_, NextBoot::Same(why)) => context.detail(why.to_string()),
        }
        Ok(())
    }
}

/// Whoever watches sees how far it is.
fn attempt(node: &Node<'_>, context: &StepContext<'_>) -> Result<NextOs, UpdateEngineError> {
    let patience = node.tools.remaining(context).saturating_sub(MARGIN);
    let engine = node.tools.update_engine;
    let (sender, heard) = mpsc::channel();
    let ask = move || engine.attempt_and_wait(patience, &mut |status| drop(sender.send(status.to_string())));
    std::thread::scope(|scope| {
        let asking = std::thread::Builder::new().spawn_scoped(scope, ask);
        let asking = asking.map_err(|source| UpdateEngineError::Bus {
            address: "a thread of nodestrap's own".to_owned(),
            source: source.into(),
        })?;
        let mut last = String::new();
        for line in heard {
            if line != last {
                context.detail(line.clone());
                last = line;
            }
        }
        let died = |_| UpdateEngineError::Answer("its reader died".to_owned());
        asking.join().unwrap_or_else(|panic| Err(died(panic)))
    })
}

impl Node<'_> {
    /// What the next boot brings, as update_engine says now, or said before. Reads only.
    pub(crate) fn next_boot(&self) -> Result<NextBoot, StepError> {
        let said = self.tools.update_engine.observe().map_err(|error| engine_error(&error))?.next_os();
        self.next_boot_after(&said)
    }

    /// The same, for steps that go by it: what is said now is known after update_engine has forgotten it.
    pub(crate) fn note_next_boot(&self) -> Result<(), StepError> {
        let said = self.tools.update_engine.observe().map_err(|error| engine_error(&error))?.next_os();
        os_update::note(self.tools.disk, &said, &self.boot_id).map_err(|error| file_error(&error))
    }

    fn next_boot_after(&self, said: &NextOs) -> Result<NextBoot, StepError> {
        let record = os_update::load(self.tools.disk).map_err(|error| disk_error(&error))?;
        os_update::next_os(said, record.as_ref(), &self.boot_id)
            .map_err(|error| StepError::needs_operator(error.to_string()))
    }
}

pub(crate) fn engine_error(error: &UpdateEngineError) -> StepError {
    let (class, advice) = match error {
        UpdateEngineError::Answer(_) => (ErrorClass::NeedsOperator, "look at what answers for com.coreos.update1"),
        UpdateEngineError::Call { .. } => {
            (ErrorClass::NeedsOperator, "journalctl -u update-engine says why; or say that the system is not updated")
        }
        _ => (
            ErrorClass::Transient,
            "update_engine_client -status says more; a node that shall not wait for an update says upgradeOS: false",
        ),
    };
    StepError::new(class, chain(error)).with_advice(advice)
}
