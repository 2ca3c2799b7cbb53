//! Where a run says what happens: to the journal first, then to whoever listens.
//!
//! In: what happened and when. Out: records in the journal, calls of the sink, and the events of this run.
//! Fails: [`JournalError`]; the caller then stops the run.
//!
//! A run that finds nothing to do must leave no trace, or a node that is looked after every minute fills its disk with
//! good news. So events are held back from the journal until one comes that matters.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    digest::Digest,
    events::{Event, EventKind, RunOutcome, Timestamp},
    execute::Clock,
    journal::{Journal, JournalError, LogStore},
    plan::StepId,
};

/// Whether a record must survive a loss of power before the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    Eventually,
    Now,
}

pub(crate) struct Ledger<'a, S> {
    journal: &'a mut Journal<S>,
    sink: &'a dyn Fn(&Event),
    wall_at_start: Timestamp,
    monotonic_at_start: Duration,
    /// How much of the journal is older than this run.
    earlier: usize,
    heard: Vec<Event>,
    /// Not in the journal yet; nothing is held back once the journal knows of this run.
    held: Vec<Event>,
    open: bool,
}

impl<'a, S: LogStore> Ledger<'a, S> {
    pub(crate) fn new(journal: &'a mut Journal<S>, sink: &'a dyn Fn(&Event), clock: &dyn Clock) -> Self {
        Self {
            earlier: journal.events().len(),
            journal,
            sink,
            wall_at_start: clock.now(),
            monotonic_at_start: clock.monotonic(),
            heard: Vec::new(),
            held: Vec::new(),
            open: false,
        }
    }

    /// The wall clock is read once: at first boot the network sets it while we run, and durations must not jump.
    fn event(&self, at: Duration, kind: EventKind) -> Event {
        Event { at: self.wall_at_start.after(at.saturating_sub(self.monotonic_at_start)), kind }
    }

    fn hear(&mut self, event: Event) {
        (self.sink)(&event);
        self.heard.push(event);
    }

    fn write(&mut self, event: &Event, durability: Durability) -> Result<(), JournalError> {
        if !std::mem::replace(&mut self.open, true) {
            // What this run builds on, such as a barrier that an earlier one recorded and was killed before the sync,
            // must be as durable as if it had been recorded by this one.
            self.journal.sync()?;
        }
        for held in std::mem::take(&mut self.held) {
            self.journal.append(&held)?;
        }
        self.journal.append(event)?;
        match durability {
            Durability::Now => self.journal.sync(),
            Durability::Eventually => Ok(()),
        }
    }

    /// For what is no news: goes to the journal only together with something that is.
    pub(crate) fn mention(&mut self, at: Duration, kind: EventKind) -> Result<(), JournalError> {
        let event = self.event(at, kind);
        let written = if self.open {
            self.write(&event, Durability::Eventually)
        } else {
            self.held.push(event.clone());
            Ok(())
        };
        self.hear(event);
        written
    }

    /// For the sink only.
    pub(crate) fn whisper(&mut self, at: Duration, kind: EventKind) {
        let event = self.event(at, kind);
        self.hear(event);
    }

    /// For what has happened: it is heard even if it cannot be written.
    pub(crate) fn record(&mut self, at: Duration, kind: EventKind, durability: Durability) -> Result<(), JournalError> {
        let event = self.event(at, kind);
        let written = self.write(&event, durability);
        self.hear(event);
        written
    }

    /// For what is about to happen: if it cannot be written, it must not happen, and nobody hears of it.
    pub(crate) fn intend(&mut self, at: Duration, kind: EventKind, durability: Durability) -> Result<(), JournalError> {
        let event = self.event(at, kind);
        self.write(&event, durability)?;
        self.hear(event);
        Ok(())
    }

    /// Writes the end of a run that found nothing to do, only where the journal would otherwise keep telling of the
    /// failure or the crash of an earlier run. At most one record, unless that run was of another plan.
    pub(crate) fn settle(&mut self, at: Duration, plan: &Digest) -> Result<(), JournalError> {
        let kind = EventKind::RunFinished { outcome: RunOutcome::NothingToDo };
        let stale = match self.journal.last_run() {
            None | Some((_, RunOutcome::Done | RunOutcome::NothingToDo)) => self.open,
            Some((last, RunOutcome::Failed { .. } | RunOutcome::Rebooting { .. } | RunOutcome::Unfinished)) => {
                if last == Some(plan) && !self.open {
                    self.held.clear();
                }
                true
            }
        };
        if stale {
            return self.intend(at, kind, Durability::Now);
        }
        self.whisper(at, kind);
        Ok(())
    }

    /// Whether the journal knows nothing of this run yet.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.open
    }

    /// What the journal knew before this run.
    pub(crate) fn earlier_events(&self) -> &[Event] {
        &self.journal.events()[..self.earlier]
    }

    /// The steps that are recorded done for this identity.
    pub(crate) fn history(&self, identity: &Digest) -> BTreeSet<StepId> {
        self.journal.history(identity)
    }

    /// Older events of the journal and those of this run, written or not.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.earlier_events().iter().chain(&self.heard).cloned().collect()
    }
}
