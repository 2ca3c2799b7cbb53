//! What becomes of a run in which something never comes back: a disk that does not answer holds whoever asks it.
//!
//! No thread can be stopped from outside, so a run that hangs cannot end by itself. But it can say so: in its journal, to its
//! sink, and to whoever can end the process, with a report that names the step and its deadline. What was under way then
//! is as if the process had been killed at that moment, which any next run can deal with.
//!
//! A step hangs on a worker, and the thread that keeps the course sees it. That thread may hang too, in a look at the machine
//! or in the journal; so another one looks after it, which touches nothing.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{
    course::unanswered,
    digest::Digest,
    events::RunOutcome,
    execute::{Clock, StepError},
    plan::StepId,
    report::Report,
};

/// Names what is no step: the journal.
const JOURNAL: &str = "journal";

/// A record of some hundred bytes: anything near this is a dying disk.
const RECORD_DEADLINE: Duration = Duration::from_secs(120);

/// How often the thread that keeps the course is looked after.
const ROUND: Duration = Duration::from_secs(1);

/// How long a run waits for what never comes back.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// From the deadline of a step on. Whoever keeps its deadline has better words for it.
    pub grace: Duration,
    /// Told once, on any thread, of the run that failed. If it returns, the run goes on waiting.
    pub give_up: &'a (dyn Fn(&Report) + Sync),
}

impl Patience<'_> {
    /// For whoever knows that everything comes back.
    pub const ENDLESS: Patience<'static> = Patience { grace: Duration::MAX, give_up: &|_| {} };
}

/// Looks after the thread that keeps the course.
pub(crate) struct Watch<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) patience: Patience<'a>,
    pub(crate) digest: &'a Digest,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What that thread does, how long it may take, and until when.
    busy: Option<(StepId, Duration, Duration)>,
    is_over: bool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(clock: &'a dyn Clock, patience: Patience<'a>, digest: &'a Digest) -> Self {
        Self { clock, patience, digest, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Does what may hang on the journal.
    pub(crate) fn recording<T>(&self, act: impl FnOnce() -> T) -> T {
        self.during(StepId::from(JOURNAL), RECORD_DEADLINE, RECORD_DEADLINE, act)
    }

    /// Does what may hang for this step, which has `left` of its deadline.
    pub(crate) fn during<T>(&self, step: StepId, allowed: Duration, left: Duration, act: impl FnOnce() -> T) -> T {
        let until = self.clock.monotonic().saturating_add(left).saturating_add(self.patience.grace);
        self.state().busy = Some((step, allowed, until));
        let done = act();
        self.state().busy = None;
        done
    }

    /// Until [`Watch::end`].
    pub(crate) fn look_after(&self) {
        let round = ROUND.min(self.patience.grace);
        let mut state = self.state();
        while !state.is_over {
            if let Some((step, allowed, _)) = state.busy.take_if(|(_, _, until)| *until <= self.clock.monotonic()) {
                drop(state);
                (self.patience.give_up)(&self.report(step, allowed));
                state = self.state();
            }
            state = self.changed.wait_timeout(state, round).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// All that can be said by somebody who cannot get at the journal.
    fn report(&self, step: StepId, allowed: Duration) -> Report {
        let StepError { class, message, advice, .. } = unanswered(&step, allowed);
        Report::empty(Some(self.digest.clone()), RunOutcome::Failed { step, class, message, advice })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
