//! The stream of events, folded into runs: what report and timeline have in common.
//!
//! In: events of any number of runs, oldest first. Out: one [`RunRecord`] a run. Fails: never; an event of a step that
//! its run does not know is passed over.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    digest::Digest,
    events::{Event, EventKind, FactNote, Finish, RunOutcome, StepOutline, Timestamp},
    execute::StepError,
    graph::Graph,
    plan::StepId,
};

#[derive(Clone, Debug)]
pub(crate) struct RunRecord {
    /// None if it ended before it had one.
    pub(crate) plan: Option<Digest>,
    pub(crate) boot_id: String,
    pub(crate) started: Timestamp,
    /// Of the last event so far.
    pub(crate) ended: Timestamp,
    pub(crate) outcome: RunOutcome,
    /// The step that asked for a reboot. The machine may go down before the run has written its end.
    pub(crate) rebooting_for: Option<StepId>,
    pub(crate) outline: Vec<StepOutline>,
    /// In the order of the outline.
    pub(crate) steps: Vec<StepRecord>,
    /// What came before the plan, in the order of time.
    pub(crate) phases: Vec<PhaseRecord>,
    pub(crate) facts: Vec<FactNote>,
    index: BTreeMap<StepId, usize>,
}

/// One piece of the work before there is a plan.
#[derive(Clone, Debug)]
pub(crate) struct PhaseRecord {
    pub(crate) name: StepId,
    pub(crate) started: Timestamp,
    /// Absent while it goes on, or when the run was cut off.
    pub(crate) ended: Option<Timestamp>,
    pub(crate) error: Option<StepError>,
    pub(crate) details: Vec<String>,
}

/// What one run did about one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepRecord {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) details: Vec<String>,
    /// What a program said that failed in the last attempt.
    pub(crate) output: Option<String>,
    pub(crate) finish: Option<Finish>,
    pub(crate) finished_at: Option<Timestamp>,
    /// The last failure was final: no retry was announced.
    pub(crate) gave_up: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) started: Timestamp,
    /// Absent while it runs, or when the run was cut off.
    pub(crate) ended: Option<Timestamp>,
    pub(crate) error: Option<StepError>,
}

impl StepRecord {
    pub(crate) fn started(&self) -> Option<Timestamp> {
        self.attempts.first().map(|attempt| attempt.started)
    }

    pub(crate) fn ended(&self) -> Option<Timestamp> {
        self.finished_at.or_else(|| self.attempts.last().and_then(|attempt| attempt.ended))
    }

    /// The error of the last attempt, if that attempt failed.
    pub(crate) fn error(&self) -> Option<&StepError> {
        match self.finish {
            Some(_) => None,
            None => self.attempts.last().and_then(|attempt| attempt.error.as_ref()),
        }
    }
}

impl RunRecord {
    pub(crate) fn graph(&self) -> Graph {
        Graph::new(self.outline.iter().map(|step| (&step.id, step.needs.as_slice())))
    }

    /// How long a step kept its dependents waiting: all attempts and the rests between them.
    pub(crate) fn duration(&self, step: usize) -> Duration {
        let step = &self.steps[step];
        match step.started() {
            Some(started) => step.ended().unwrap_or(self.ended).since(started),
            None => Duration::ZERO,
        }
    }

    pub(crate) fn critical_path(&self) -> Vec<usize> {
        let durations: Vec<_> = (0..self.steps.len()).map(|step| self.duration(step)).collect();
        self.graph().longest_path(&durations)
    }

    fn opened(at: Timestamp, boot_id: &str) -> Self {
        Self {
            plan: None,
            boot_id: boot_id.to_owned(),
            started: at,
            ended: at,
            outcome: RunOutcome::Unfinished,
            rebooting_for: None,
            outline: Vec::new(),
            steps: Vec::new(),
            phases: Vec::new(),
            facts: Vec::new(),
            index: BTreeMap::new(),
        }
    }

    /// From here on it has a plan.
    fn start(&mut self, at: Timestamp, plan: &Digest, outline: &[StepOutline]) {
        self.ended = self.ended.max(at);
        self.plan = Some(plan.clone());
        self.index = outline.iter().enumerate().map(|(at, step)| (step.id.clone(), at)).collect();
        self.steps = vec![StepRecord::default(); outline.len()];
        self.outline = outline.to_vec();
    }

    /// A run that found the work of this one done wrote only its end: it is a run of its own.
    fn found_done(&self, at: Timestamp) -> Self {
        let mut run = Self::opened(at, "");
        if let Some(plan) = &self.plan {
            run.start(at, plan, &self.outline);
        }
        run.facts.clone_from(&self.facts);
        for step in &mut run.steps {
            step.finish = Some(Finish::AlreadySo);
            step.finished_at = Some(at);
        }
        run.outcome = RunOutcome::NothingToDo;
        run
    }

    fn step(&mut self, id: &StepId) -> Option<&mut StepRecord> {
        self.index.get(id).map(|&index| &mut self.steps[index])
    }

    fn note(&mut self, event: &Event) {
        self.ended = self.ended.max(event.at);
        match &event.kind {
            EventKind::StepStarted { id, attempt, .. } => {
                if let Some(step) = self.step(id) {
                    step.finish = None;
                    step.finished_at = None;
                    step.output = None;
                    step.attempts.push(Attempt { number: *attempt, started: event.at, ended: None, error: None });
                }
            }
            EventKind::StepDetail { id, text } => {
                if let Some(step) = self.step(id) {
                    step.details.push(text.clone());
                }
            }
            EventKind::StepOutput { id, text } => {
                if let Some(step) = self.step(id) {
                    step.output = Some(text.clone());
                }
            }
            EventKind::StepFinished { id, outcome } => {
                if let Some(step) = self.step(id) {
                    step.finish = Some(*outcome);
                    step.finished_at = Some(event.at);
                    if let Some(attempt) = step.attempts.last_mut() {
                        attempt.ended.get_or_insert(event.at);
                    }
                }
            }
            EventKind::StepFailed { id, attempt, class, message, advice, retry_in_ms } => {
                let error = StepError { advice: advice.clone(), ..StepError::new(*class, message.as_str()) };
                if let Some(step) = self.step(id) {
                    step.note_failure(*attempt, event.at, error);
                    step.gave_up = retry_in_ms.is_none();
                }
            }
            EventKind::RunFinished { outcome } => self.outcome = outcome.clone(),
            EventKind::PhaseStarted { .. }
            | EventKind::PhaseDetail { .. }
            | EventKind::PhaseFinished { .. }
            | EventKind::PhaseFailed { .. } => self.note_phase(event),
            EventKind::FactsGathered { facts } => self.facts.clone_from(facts),
            EventKind::RebootRequested { id, .. } => self.rebooting_for = Some(id.clone()),
            EventKind::RunOpened { .. } | EventKind::RunStarted { .. } | EventKind::Unknown => {}
        }
    }

    fn note_phase(&mut self, event: &Event) {
        let at = event.at;
        let open = |name: &StepId, phases: &mut Vec<PhaseRecord>| {
            if phases.last().is_none_or(|phase| phase.name != *name) {
                phases.push(PhaseRecord {
                    name: name.clone(),
                    started: at,
                    ended: None,
                    error: None,
                    details: Vec::new(),
                });
            }
        };
        let (EventKind::PhaseStarted { phase: name }
        | EventKind::PhaseDetail { phase: name, .. }
        | EventKind::PhaseFinished { phase: name }
        | EventKind::PhaseFailed { phase: name, .. }) = &event.kind
        else {
            return;
        };
        open(name, &mut self.phases);
        let Some(phase) = self.phases.last_mut() else { return };
        match &event.kind {
            EventKind::PhaseDetail { text, .. } => phase.details.push(text.clone()),
            EventKind::PhaseFinished { .. } => phase.ended = Some(at),
            EventKind::PhaseFailed { class, message, advice, .. } => {
                phase.ended = Some(at);
                phase.error = Some(StepError { advice: advice.clone(), ..StepError::new(*class, message.as_str()) });
            }
            _ => {}
        }
    }
}

impl StepRecord {
    fn note_failure(&mut self, number: u32, at: Timestamp, error: StepError) {
        match self.attempts.last_mut() {
            Some(attempt) if attempt.ended.is_none() || attempt.number == number => {
                attempt.ended.get_or_insert(at);
                attempt.error = Some(error);
            }
            // A check that failed: the attempt was over before anything was started.
            _ => self.attempts.push(Attempt { number, started: at, ended: Some(at), error: Some(error) }),
        }
    }
}

pub(crate) fn runs(events: &[Event]) -> Vec<RunRecord> {
    let mut runs: Vec<RunRecord> = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::RunOpened { boot_id } => runs.push(RunRecord::opened(event.at, boot_id)),
            EventKind::RunStarted { plan, boot_id, steps, .. } => {
                let is_opened = |run: &RunRecord| run.plan.is_none() && run.outcome == RunOutcome::Unfinished;
                if !runs.last().is_some_and(is_opened) {
                    runs.push(RunRecord::opened(event.at, boot_id));
                }
                if let Some(run) = runs.last_mut() {
                    run.start(event.at, plan, steps);
                }
            }
            EventKind::RunFinished { outcome: RunOutcome::NothingToDo } => {
                if let Some(run) = runs.last_mut() {
                    if run.steps.iter().all(|step| step.finish == Some(Finish::AlreadySo)) {
                        run.note(event);
                    } else {
                        let found = run.found_done(event.at);
                        runs.push(found);
                    }
                }
            }
            _ => {
                if let Some(run) = runs.last_mut() {
                    run.note(event);
                }
            }
        }
    }
    runs
}
