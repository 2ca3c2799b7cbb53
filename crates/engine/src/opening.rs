//! The beginning of a run, before there is a plan: its phases are told of like steps, also when they fail.
//!
//! In: what is being done to get a plan. Out: events, and then either the run itself or the report of why there is none.
//! Fails: never; what cannot be recorded here is found again, and reported, by the first step.
//!
//! Like everything of a run, phases reach the journal only together with something that matters: a step that is started,
//! a failure, or somebody far away who is asked ([`Opening::detail`]).

use std::cell::RefCell;

use serde::Serialize;

use crate::{
    course::failed_run,
    events::{Event, EventKind, FactNote, RunOutcome},
    execute::{Clock, StepError},
    journal::{Journal, LogStore},
    ledger::{Durability, Ledger},
    plan::StepId,
    report::Report,
    run::PlannedRun,
    runs::runs,
};

/// More details of the phases than this go to the sink only: enough to see who is being asked, and a unit that tries for ever
/// must not fill the disk with it. Why it failed is in the failure.
const DETAILS_KEPT: usize = 4;

pub struct Opening<'a, S = Box<dyn LogStore>> {
    ledger: RefCell<Ledger<'a, S>>,
    clock: &'a dyn Clock,
    boot_id: String,
    details: RefCell<usize>,
}

impl<'a, S: LogStore> Opening<'a, S> {
    /// `sink` hears every event, on the calling thread; `boot_id` is that of the running kernel.
    pub fn new(journal: &'a mut Journal<S>, sink: &'a dyn Fn(&Event), clock: &'a dyn Clock, boot_id: &str) -> Self {
        let opening = Self {
            ledger: RefCell::new(Ledger::new(journal, sink, clock)),
            clock,
            boot_id: boot_id.to_owned(),
            details: RefCell::default(),
        };
        opening.mention(EventKind::RunOpened { boot_id: boot_id.to_owned() });
        opening
    }

    /// Does the work of one phase; its failure is told of when the run is [given up](Opening::give_up).
    pub fn phase<T, E>(&self, phase: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.mention(EventKind::PhaseStarted { phase: phase.into() });
        let result = work();
        if result.is_ok() {
            self.mention(EventKind::PhaseFinished { phase: phase.into() });
        }
        result
    }

    /// What a phase says while it asks somebody who may not answer: written at once, for those who look on.
    pub fn detail(&self, phase: &str, text: impl Into<String>) {
        let kind = EventKind::PhaseDetail { phase: phase.into(), text: text.into() };
        let mut ledger = self.ledger.borrow_mut();
        *self.details.borrow_mut() += 1;
        if *self.details.borrow() > DETAILS_KEPT {
            ledger.whisper(self.clock.monotonic(), kind);
        } else {
            let _ = ledger.record(self.clock.monotonic(), kind, Durability::Eventually);
        }
    }

    pub fn facts(&self, facts: Vec<FactNote>) {
        self.mention(EventKind::FactsGathered { facts });
    }

    /// There is no plan because this phase failed. A failure that the journal already ends with, of the same boot, is not
    /// written again: a unit that is restarted for ever must not fill the disk, and the first one tells since when.
    pub fn give_up(self, phase: &str, error: StepError) -> Report {
        let mut ledger = self.ledger.into_inner();
        let at = self.clock.monotonic();
        let StepError { class, message, advice, output: _ } = error.clone();
        let failed = EventKind::PhaseFailed { phase: phase.into(), class, message, advice };
        let ended = failed_run((StepId::from(phase), error));
        let known = ledger.is_untouched() && repeats(ledger.earlier_events(), &self.boot_id, &ended);
        for (kind, durability) in [(failed, Durability::Eventually), (ended, Durability::Now)] {
            if known {
                ledger.whisper(at, kind);
            } else {
                // The run fails anyway, and for a better reason than that this record is missing.
                let _ = ledger.record(at, kind, durability);
            }
        }
        let events = ledger.events();
        Report::from_events(&events).unwrap_or_else(|| Report::empty(None, RunOutcome::Unfinished))
    }

    /// Runs the plan that the phases led to.
    pub fn run<A: Serialize + Sync>(self, planned: PlannedRun<'_, A>) -> Report {
        planned.run(self.ledger.into_inner(), self.clock, &self.boot_id)
    }

    /// Held back from the journal, so it cannot fail unless something was written already.
    fn mention(&self, kind: EventKind) {
        let _ = self.ledger.borrow_mut().mention(self.clock.monotonic(), kind);
    }
}

/// Whether the last recorded run ended in the same way, in the same boot, before it had a plan.
fn repeats(earlier: &[Event], boot_id: &str, ended: &EventKind) -> bool {
    let EventKind::RunFinished { outcome } = ended else { return false };
    runs(earlier).last().is_some_and(|run| run.plan.is_none() && run.boot_id == boot_id && run.outcome == *outcome)
}
