//! The course of a run: which work is due, and what its results mean.
//!
//! In: news from the workers, one piece at a time, on one thread. Out: jobs for the workers, events, and the outcome.
//! Fails: with the first failure of a step or of the journal; after it nothing new starts.
//!
//! ```text
//! waiting ─last need done→ ready → checking ─already so→ over
//!                                     │ needed
//!                                     └→ applying ─done→ over
//!                                           ↑   └─ transient → resting ┐     any other failure → over, and the run stops
//!                                           └──────────────────────────┘
//! ```

use std::{
    collections::{BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{
    digest::Digest,
    events::{Event, EventKind, Finish, RunOutcome, StepOutline},
    execute::{Clock, Condition, Deadline, ErrorClass, StepError},
    graph::Graph,
    human::human_round,
    journal::{JournalError, LogStore},
    ledger::{Durability, Ledger},
    plan::{Plan, StepId},
    reboot::Reboots,
    retry::{Jitter, RetryPolicy},
};

/// More details of one step than this go to the sink only: a progress bar must not fill the disk.
const DETAILS_KEPT: usize = 64;

/// Names a failure to record the end of a run, which belongs to no step of the plan.
const RECORD_STEP: &str = "record-outcome";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Check,
    Apply,
    Rest(Duration),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) step: usize,
    pub(crate) work: Work,
    pub(crate) attempt: u32,
    pub(crate) deadline: Deadline,
}

#[derive(Debug)]
pub(crate) struct News {
    pub(crate) step: usize,
    /// Monotonic, as the worker read it.
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Checked(Result<Condition, StepError>),
    Detail(String),
    Applied(Result<(), StepError>),
    Rested,
    /// The worker panicked and its job will never end.
    Died,
}

/// Where one step stands.
#[derive(Debug, Default)]
struct Track {
    unmet_needs: usize,
    /// Attempts that have failed.
    failures: u32,
    /// From the first check on.
    deadline: Option<Deadline>,
    /// Why it is needed, once the check has said so.
    why: Option<String>,
    details: usize,
    /// Its attempt asks for a reboot.
    reboots: bool,
    busy: bool,
    overdue_said: bool,
    given_up: bool,
}

pub(crate) struct Course<'a, A, S> {
    plan: &'a Plan<A>,
    graph: Graph,
    clock: &'a dyn Clock,
    jitter: &'a dyn Jitter,
    retry: RetryPolicy,
    ledger: Ledger<'a, S>,
    /// Tells resting workers that there will be no next attempt.
    stop: &'a AtomicBool,
    tracks: Vec<Track>,
    /// In the order of the plan.
    ready: BTreeSet<usize>,
    /// Next moves of steps that are under way; they wait for no free place, because their deadlines are running.
    due: VecDeque<(usize, Work)>,
    jobs_out: usize,
    steps_under_way: usize,
    applied_any: bool,
    reboots: Reboots,
    /// The machine is going down.
    rebooting: Option<(StepId, String)>,
    failure: Option<(StepId, StepError)>,
    /// The end of the run is recorded, although some step has not come back.
    has_ended: bool,
}

/// What a course needs to know at its start.
pub(crate) struct Setting<'a, A> {
    pub(crate) plan: &'a Plan<A>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) jitter: &'a dyn Jitter,
    pub(crate) retry: RetryPolicy,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) reboots: Reboots,
}

impl<'a, A, S: LogStore> Course<'a, A, S> {
    /// `started` is the event of the start of the run.
    pub(crate) fn new(setting: Setting<'a, A>, mut ledger: Ledger<'a, S>, started: EventKind) -> Self {
        let Setting { plan, clock, jitter, retry, stop, reboots } = setting;
        let graph = plan.graph();
        let tracks: Vec<_> =
            (0..graph.len()).map(|step| Track { unmet_needs: graph.needs(step).len(), ..Track::default() }).collect();
        let ready = (0..graph.len()).filter(|&step| graph.needs(step).is_empty()).collect();
        // Held back, so it cannot fail.
        let _ = ledger.mention(clock.monotonic(), started);
        Self {
            plan,
            graph,
            clock,
            jitter,
            retry,
            ledger,
            stop,
            tracks,
            ready,
            due: VecDeque::new(),
            jobs_out: 0,
            steps_under_way: 0,
            applied_any: false,
            reboots,
            rebooting: None,
            failure: None,
            has_ended: false,
        }
    }

    /// How many moves could be made now, if at most `limit` steps may be under way; a resting step is not.
    pub(crate) fn open_moves(&self, limit: usize) -> usize {
        self.due.len() + self.ready.len().min(limit.saturating_sub(self.steps_under_way))
    }

    pub(crate) fn jobs_out(&self) -> usize {
        self.jobs_out
    }

    /// Makes one of the open moves. None if it turned out that the step must not start.
    pub(crate) fn take(&mut self, choice: usize) -> Option<Job> {
        let (step, work) = match self.due.remove(choice) {
            Some(due) => due,
            None => {
                let step = *self.ready.iter().nth(choice - self.due.len())?;
                self.ready.remove(&step);
                self.steps_under_way += 1;
                (step, Work::Check)
            }
        };
        let allowed = self.plan.steps[step].deadline;
        let deadline = *self.tracks[step].deadline.get_or_insert_with(|| Deadline::starting_now(self.clock, allowed));
        let attempt = self.tracks[step].failures + 1;
        if work == Work::Apply && !self.announce(step, attempt) {
            return None;
        }
        self.tracks[step].busy = !matches!(work, Work::Rest(_));
        self.jobs_out += 1;
        Some(Job { step, work, attempt, deadline })
    }

    /// Writes down that an attempt starts; durably if it is a barrier. Whether it may start.
    fn announce(&mut self, step: usize, attempt: u32) -> bool {
        let why = self.tracks[step].why.clone().unwrap_or_default();
        let kind = EventKind::StepStarted { id: self.id(step), attempt, why };
        let now = self.clock.monotonic();
        let written = self.ledger.intend(now, kind, self.durability(step)).and_then(|()| {
            let (id, boot_id) = (self.id(step), self.reboots.boot_id.clone());
            match self.tracks[step].reboots {
                // A request that nobody remembers would not be counted.
                true => self.ledger.intend(now, EventKind::RebootRequested { id, boot_id }, Durability::Now),
                false => Ok(()),
            }
        });
        match written {
            Ok(()) => {
                self.applied_any = true;
                true
            }
            Err(error) => {
                self.steps_under_way -= 1;
                let error = unrecorded(&format!("that step `{}` starts", self.id(step)), &error);
                self.fail_for_good(step, self.clock.monotonic(), attempt, error);
                false
            }
        }
    }

    pub(crate) fn hear(&mut self, news: News) {
        let News { step, at, what } = news;
        if let What::Detail(text) = what {
            return self.hear_detail(step, at, text);
        }
        self.jobs_out -= 1;
        self.tracks[step].busy = false;
        if self.has_ended {
            return;
        }
        match what {
            What::Checked(Ok(condition)) => self.weigh(step, at, condition),
            What::Applied(Ok(())) if self.tracks[step].reboots => self.go_down(step),
            What::Applied(Ok(())) => self.finish_step(step, at, Finish::Done),
            What::Checked(Err(error)) | What::Applied(Err(error)) => {
                self.steps_under_way -= 1;
                self.judge(step, at, error);
            }
            What::Rested => {
                self.steps_under_way += 1;
                let work = if self.tracks[step].why.is_some() { Work::Apply } else { Work::Check };
                self.go_on(step, work);
            }
            What::Detail(_) | What::Died => {}
        }
    }

    /// What a look at the machine means for the step.
    fn weigh(&mut self, step: usize, at: Duration, condition: Condition) {
        let why = match condition {
            Condition::AlreadySo if self.reboots.is_pending(&self.id(step)) => {
                "a reboot was asked for in this boot, and has not happened".to_owned()
            }
            Condition::AlreadySo => return self.finish_step(step, at, Finish::AlreadySo),
            Condition::Needed(why) => {
                self.tracks[step].why = Some(why);
                return self.go_on(step, Work::Apply);
            }
            Condition::NeedsReboot(why) => why,
        };
        if let Err(error) = self.reboots.decide(&why) {
            self.steps_under_way -= 1;
            return self.judge(step, at, error);
        }
        self.tracks[step].reboots = true;
        self.tracks[step].why = Some(why);
        self.go_on(step, Work::Apply);
    }

    /// The reboot is under way: nothing new starts, and the step is not done before another boot.
    fn go_down(&mut self, step: usize) {
        self.steps_under_way -= 1;
        self.rebooting = Some((self.id(step), self.tracks[step].why.clone().unwrap_or_default()));
        self.halt();
    }

    fn hear_detail(&mut self, step: usize, at: Duration, text: String) {
        let kind = EventKind::StepDetail { id: self.id(step), text };
        self.tracks[step].details += 1;
        if self.tracks[step].details > DETAILS_KEPT {
            return self.ledger.whisper(at, kind);
        }
        if let Err(error) = self.ledger.record(at, kind, Durability::Eventually) {
            self.stop_for(step, unrecorded(&format!("how step `{}` goes", self.id(step)), &error));
        }
    }

    fn go_on(&mut self, step: usize, work: Work) {
        if self.failure.is_some() || self.rebooting.is_some() {
            self.steps_under_way -= 1;
        } else {
            self.due.push_back((step, work));
        }
    }

    fn finish_step(&mut self, step: usize, at: Duration, outcome: Finish) {
        self.steps_under_way -= 1;
        let kind = EventKind::StepFinished { id: self.id(step), outcome };
        let written = match outcome {
            Finish::AlreadySo => self.ledger.mention(at, kind),
            Finish::Done => self.ledger.record(at, kind, self.durability(step)),
        };
        if let Err(error) = written {
            return self.stop_for(step, unrecorded(&format!("that step `{}` is done", self.id(step)), &error));
        }
        for &dependent in self.graph.dependents(step) {
            let track = &mut self.tracks[dependent];
            track.unmet_needs -= 1;
            if track.unmet_needs == 0 && self.failure.is_none() && self.rebooting.is_none() {
                self.ready.insert(dependent);
            }
        }
    }

    /// Decides whether a failed attempt is followed by another.
    fn judge(&mut self, step: usize, at: Duration, error: StepError) {
        self.tracks[step].failures += 1;
        let attempt = self.tracks[step].failures;
        if error.class != ErrorClass::Transient || self.failure.is_some() {
            return self.fail_for_good(step, at, attempt, error);
        }
        let remaining = self.tracks[step].deadline.map_or(Duration::ZERO, |deadline| deadline.remaining(self.clock));
        let Some(rest) = self.retry.decide_rest(attempt, self.jitter.random(), remaining) else {
            let error = StepError { message: self.out_of_time(step, attempt, &error.message), ..error };
            return self.fail_for_good(step, at, attempt, error);
        };
        self.tell_output(step, at, &error);
        let kind = failed_event(self.id(step), attempt, &error, Some(rest));
        match self.ledger.record(at, kind, Durability::Eventually) {
            Ok(()) => self.due.push_back((step, Work::Rest(rest))),
            Err(error) => {
                self.stop_for(step, unrecorded(&format!("why step `{}` failed", self.id(step)), &error));
            }
        }
    }

    fn out_of_time(&self, step: usize, attempts: u32, message: &str) -> String {
        let (id, allowed) = (self.id(step), human_round(self.plan.steps[step].deadline));
        let tries = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
        format!("step `{id}` used up its deadline of {allowed} in {tries}, the last of which failed: {message}")
    }

    fn fail_for_good(&mut self, step: usize, at: Duration, attempt: u32, error: StepError) {
        self.tell_output(step, at, &error);
        let kind = failed_event(self.id(step), attempt, &error, None);
        // The run fails anyway, and for a better reason than that this record is missing.
        let _ = self.ledger.record(at, kind, Durability::Now);
        self.stop_for(step, error);
    }

    /// A help and no more: that the step failed is recorded next, and must be.
    fn tell_output(&mut self, step: usize, at: Duration, error: &StepError) {
        if let Some(text) = error.output.clone() {
            let _ = self.ledger.record(at, EventKind::StepOutput { id: self.id(step), text }, Durability::Eventually);
        }
    }

    /// The first failure names the outcome; after it nothing new starts.
    fn stop_for(&mut self, step: usize, error: StepError) {
        let id = self.id(step);
        self.failure.get_or_insert((id, error));
        self.halt();
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.ready.clear();
        for (_, work) in std::mem::take(&mut self.due) {
            // A rest that has not begun holds no place.
            self.steps_under_way -= usize::from(!matches!(work, Work::Rest(_)));
        }
    }

    /// How long until something has to be said about a step that is past its deadline.
    pub(crate) fn next_deadline(&self, grace: Duration) -> Option<Duration> {
        let busy = self.tracks.iter().filter(|track| track.busy && !track.given_up);
        let until = |track: &Track| {
            let more = if track.overdue_said { grace } else { Duration::ZERO };
            track.deadline.map(|deadline| deadline.remaining_with(more, self.clock))
        };
        busy.filter_map(until).min()
    }

    /// The first step that is past its deadline and all grace, with the deadline.
    pub(crate) fn find_hung(&self, grace: Duration) -> Option<(usize, Duration)> {
        let is_hung = |track: &Track| {
            let deadline = track.deadline.filter(|_| track.busy && track.overdue_said && !track.given_up)?;
            deadline.remaining_with(grace, self.clock).is_zero().then_some(deadline.allowed)
        };
        self.tracks.iter().enumerate().find_map(|(step, track)| Some((step, is_hung(track)?)))
    }

    /// The run has failed because of this step, and its end is recorded. Gives all events.
    pub(crate) fn give_up_on(&mut self, step: usize, allowed: Duration) -> Vec<Event> {
        self.tracks[step].given_up = true;
        if !std::mem::replace(&mut self.has_ended, true) {
            let (at, attempt) = (self.clock.monotonic(), self.tracks[step].failures + 1);
            self.fail_for_good(step, at, attempt, unanswered(&self.id(step), allowed));
            self.record_failure(at);
        }
        self.ledger.events()
    }

    fn record_failure(&mut self, at: Duration) {
        if let Some(failure) = self.failure.clone() {
            // There is a better reason to fail than a missing record of the failure.
            let _ = self.ledger.record(at, failed_run(failure), Durability::Now);
        }
    }

    /// A thread cannot be stopped from outside, but what hangs can be named before somebody kills the process.
    pub(crate) fn say_overdue(&mut self) {
        for step in 0..self.tracks.len() {
            let track = &self.tracks[step];
            let Some(deadline) = track.deadline.filter(|_| track.busy && !track.overdue_said) else { continue };
            if deadline.remaining(self.clock).is_zero() {
                self.tracks[step].overdue_said = true;
                let text = format!("still running after its deadline of {}", human_round(deadline.allowed));
                self.hear_detail(step, self.clock.monotonic(), text);
            }
        }
    }

    /// Tells the outcome, and hands back all events.
    pub(crate) fn end(mut self, plan: &Digest) -> Vec<Event> {
        let at = self.clock.monotonic();
        let written = match (&self.failure, self.applied_any) {
            _ if self.has_ended => Ok(()),
            // Whatever else failed meanwhile is looked at again in the next boot.
            _ if self.rebooting.is_some() => {
                let (step, why) = self.rebooting.take().unwrap_or_else(|| (StepId::from(RECORD_STEP), String::new()));
                let outcome = RunOutcome::Rebooting { step, why };
                // The request is recorded already, and nobody can call it back.
                let _ = self.ledger.record(at, EventKind::RunFinished { outcome }, Durability::Now);
                Ok(())
            }
            (Some(_), _) => {
                self.record_failure(at);
                Ok(())
            }
            (None, true) => {
                let done = EventKind::RunFinished { outcome: RunOutcome::Done };
                self.ledger.intend(at, done, Durability::Now)
            }
            (None, false) => self.ledger.settle(at, plan),
        };
        if let Err(error) = written {
            let failure = (StepId::from(RECORD_STEP), unrecorded("how the run ended", &error));
            self.ledger.whisper(at, failed_run(failure));
        }
        self.ledger.events()
    }

    pub(crate) fn id(&self, step: usize) -> StepId {
        self.plan.steps[step].id.clone()
    }

    fn durability(&self, step: usize) -> Durability {
        if self.plan.steps[step].barrier { Durability::Now } else { Durability::Eventually }
    }
}

pub(crate) fn outline<A>(plan: &Plan<A>) -> Vec<StepOutline> {
    let outline = |step: &crate::plan::Step<A>| StepOutline {
        id: step.id.clone(),
        needs: step.needs.clone(),
        deadline_ms: u64::try_from(step.deadline.as_millis()).unwrap_or(u64::MAX),
    };
    plan.steps.iter().map(outline).collect()
}

pub(crate) fn failed_run((step, error): (StepId, StepError)) -> EventKind {
    let StepError { class, message, advice, output: _ } = error;
    EventKind::RunFinished { outcome: RunOutcome::Failed { step, class, message, advice } }
}

fn failed_event(id: StepId, attempt: u32, error: &StepError, rest: Option<Duration>) -> EventKind {
    let StepError { class, message, advice, output: _ } = error.clone();
    let retry_in_ms = rest.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX));
    EventKind::StepFailed { id, attempt, class, message, advice, retry_in_ms }
}

/// Nobody knows what became of it.
pub(crate) fn unanswered(step: &StepId, allowed: Duration) -> StepError {
    let allowed = human_round(allowed);
    StepError::transient(format!("`{step}` has not come back, long after its deadline of {allowed}: given up on")).with_advice(
        "look in dmesg for a disk or a file system that does not answer; once this process is gone, the next run resumes",
    )
}

/// Without a record nothing may go on: a crash would leave a node that nobody can tell the state of.
fn unrecorded(what: &str, error: &JournalError) -> StepError {
    StepError::needs_operator(format!("cannot record {what}: {}", error.explain())).with_advice(error.advice())
}
