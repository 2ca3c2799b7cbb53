//! How often the machine may be rebooted until a run is complete, and whether a reboot that was asked for has happened.
//!
//! In: the boots in which the journal tells of a request, and the boot that is running. Out: whether one more may be asked
//! for. Fails: with what still asks, once there were as many as there may be. Pure.
//!
//! A request proves nothing: the machine may have been cut off before it, or may refuse. Only a run in another boot shows
//! that the reboot happened, so requests are counted by the boots that they ended.

use std::collections::BTreeSet;

use crate::{
    events::{Event, EventKind, RunOutcome},
    execute::StepError,
    plan::StepId,
};

/// One for what was installed, one for what that installed. A third would be the beginning of a loop.
const MOST_REBOOTS: usize = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reboots {
    /// Of the running kernel.
    pub(crate) boot_id: String,
    /// Who asked, in which boot.
    pub(crate) asked: BTreeSet<(StepId, String)>,
}

impl Reboots {
    /// What the events tell since a run was last complete, whatever plans came between: what asks for a reboot at every boot
    /// does so under any of them.
    pub(crate) fn from_events(events: &[Event], boot_id: &str) -> Self {
        let mut asked = BTreeSet::new();
        for event in events {
            match &event.kind {
                EventKind::RunFinished { outcome: RunOutcome::Done | RunOutcome::NothingToDo } => asked.clear(),
                EventKind::RebootRequested { id, boot_id } => {
                    asked.insert((id.clone(), boot_id.clone()));
                }
                _ => {}
            }
        }
        Self { boot_id: boot_id.to_owned(), asked }
    }

    /// This step has asked in this very boot, which has not ended.
    pub(crate) fn is_pending(&self, step: &StepId) -> bool {
        self.asked.contains(&(step.clone(), self.boot_id.clone()))
    }

    /// Reboots that happened: the boots in which one was asked for, and which are over.
    fn happened(&self) -> usize {
        self.asked.iter().map(|(_, boot)| boot).filter(|boot| **boot != self.boot_id).collect::<BTreeSet<_>>().len()
    }

    /// Whether one more may be asked for.
    pub(crate) fn decide(&self, why: &str) -> Result<(), StepError> {
        match self.happened() {
            happened if happened < MOST_REBOOTS => Ok(()),
            happened => Err(StepError::needs_operator(format!(
                "the machine was rebooted {happened} times since it was last complete, and a reboot is still asked for: {why}"
            ))
            .with_advice("find what asks for it at every boot and mend it; then this goes on by itself")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn asked(boots: &[&str], now: &str) -> Reboots {
        let asked = boots.iter().map(|boot| (StepId::from("r"), (*boot).to_owned())).collect();
        Reboots { boot_id: now.to_owned(), asked }
    }

    #[test]
    fn reboots_are_counted_by_the_boots_that_ended() {
        for (boots, now, allowed) in [
            (&[][..], "a", true),
            (&["a"], "a", true),
            (&["a"], "b", true),
            // The second was asked for in this boot and has not happened: it is asked for again, not a third.
            (&["a", "b"], "b", true),
            (&["a", "b"], "c", false),
            (&["a", "b", "c"], "c", false),
        ] {
            assert_eq!(asked(boots, now).decide("x").is_ok(), allowed, "{boots:?} in {now}");
        }
        let error = asked(&["a", "b"], "c").decide("/run/reboot-required is there").unwrap_err();
        assert!(error.message.contains("2 times") && error.message.contains("/run/reboot-required"), "{error}");
        assert!(asked(&["a"], "a").is_pending(&"r".into()) && !asked(&["a"], "b").is_pending(&"r".into()));
        assert!(!asked(&["a"], "a").is_pending(&"other".into()));
    }

    #[test]
    fn only_a_complete_run_begins_a_new_count() {
        let start = |plan: &[u8]| {
            let (plan, identity) = (crate::Digest::of(plan), None);
            EventKind::RunStarted { plan, identity, boot_id: "b".into(), steps: vec![] }
        };
        let ask = |boot: &str| EventKind::RebootRequested { id: "r".into(), boot_id: boot.into() };
        let count = |kinds: Vec<EventKind>| {
            let events: Vec<Event> = kinds.into_iter().map(|kind| Event { at: Timestamp(0), kind }).collect();
            Reboots::from_events(&events, "now").asked.len()
        };
        let done = EventKind::RunFinished { outcome: RunOutcome::Done };
        let (ours, other) = (b"ours", b"other");
        assert_eq!(count(vec![start(ours), ask("a"), start(ours), ask("b")]), 2);
        assert_eq!(count(vec![start(ours), ask("a"), ask("a")]), 1);
        assert_eq!(count(vec![start(ours), ask("a"), done, start(ours), ask("b")]), 1);
        assert_eq!(count(vec![start(ours), ask("a"), start(other), ask("b"), start(ours)]), 2);
    }
}
