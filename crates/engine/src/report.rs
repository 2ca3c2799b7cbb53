//! How the last run went, step by step.
//!
//! In: events, live or read back from the journal: the same events give the same report. Out: a [`Report`].
//! Fails: never; without any run there is no report.

use serde::Serialize;

use crate::{
    digest::Digest,
    events::{Event, FactNote, Finish, RunOutcome, Timestamp},
    execute::StepError,
    graph::Graph,
    plan::StepId,
    runs::{PhaseRecord, RunRecord, runs},
};

/// The last run. Times of steps are milliseconds since `started_at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Absent if the run ended before it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Digest>,
    pub boot_id: String,
    pub outcome: RunOutcome,
    /// Counts from one over all recorded runs.
    pub run: usize,
    pub started_at: Timestamp,
    pub duration_ms: u64,
    /// What came before the plan, in the order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseReport>,
    /// What the plan was decided from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<FactNote>,
    /// In the order of the plan.
    pub steps: Vec<StepReport>,
    /// The chain of needs that took longest, first step first.
    pub critical_path: Vec<StepId>,
}

/// Work before there is a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseReport {
    pub id: StepId,
    pub started_ms: u64,
    /// Absent while it goes on, or when the run was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// The last thing it said about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    pub id: StepId,
    pub outcome: StepOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Zero if the step was never tried in this run.
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// What a program said that failed in the last attempt: for root, who asks with `status`, and never written out, because
    /// a report is for everybody.
    #[serde(skip)]
    pub output: Option<String>,
    /// What keeps a [`StepOutcome::Blocked`] step from starting: the step that failed or hangs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<StepId>,
    /// The earlier run of the same plan that did this step, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_in_run: Option<usize>,
    /// The last thing it said about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum StepOutcome {
    Done,
    AlreadySo,
    Failed,
    /// Never started, because of the step in `blocked_by`.
    Blocked,
    /// Started and not ended, or waiting for its turn in a run that has not ended.
    Unfinished,
}

impl Report {
    /// None if the events hold no run.
    pub fn from_events(events: &[Event]) -> Option<Self> {
        let runs = runs(events);
        let (last, earlier) = runs.split_last()?;
        let graph = last.graph();
        let steps = (0..last.steps.len()).map(|step| report_step(last, earlier, &graph, step)).collect();
        Some(Self {
            plan: last.plan.clone(),
            boot_id: last.boot_id.clone(),
            outcome: last.outcome.clone(),
            run: runs.len(),
            started_at: last.started,
            duration_ms: millis_since(last.started, last.ended),
            phases: last.phases.iter().map(|phase| report_phase(last, phase)).collect(),
            facts: last.facts.clone(),
            steps,
            critical_path: last.critical_path().into_iter().map(|step| last.outline[step].id.clone()).collect(),
        })
    }

    /// Of a run that said nothing at all.
    pub(crate) fn empty(plan: Option<Digest>, outcome: RunOutcome) -> Self {
        Self {
            plan,
            boot_id: String::new(),
            outcome,
            run: 0,
            started_at: Timestamp::default(),
            duration_ms: 0,
            phases: Vec::new(),
            facts: Vec::new(),
            steps: Vec::new(),
            critical_path: Vec::new(),
        }
    }

    pub fn step(&self, id: &str) -> Option<&StepReport> {
        self.steps.iter().find(|step| step.id.as_str() == id)
    }
}

fn millis_since(start: Timestamp, at: Timestamp) -> u64 {
    at.0.saturating_sub(start.0)
}

fn report_phase(run: &RunRecord, phase: &PhaseRecord) -> PhaseReport {
    PhaseReport {
        id: phase.name.clone(),
        started_ms: millis_since(run.started, phase.started),
        ended_ms: phase.ended.map(|at| millis_since(run.started, at)),
        error: phase.error.clone(),
        detail: phase.details.last().cloned(),
    }
}

fn report_step(run: &RunRecord, earlier: &[RunRecord], graph: &Graph, index: usize) -> StepReport {
    let (step, id) = (&run.steps[index], &run.outline[index].id);
    let done_in_run = find_earlier_run(run, earlier, id);
    // What a step said when it was done still holds when a later run finds it so.
    let said_now = step.details.last();
    let said_then = || match step.finish {
        Some(Finish::AlreadySo) => earlier.get(done_in_run?.checked_sub(1)?)?.steps.get(index)?.details.last(),
        _ => None,
    };
    StepReport {
        id: id.clone(),
        outcome: outcome_of(run, graph, index),
        started_ms: step.started().map(|at| millis_since(run.started, at)),
        ended_ms: step.ended().map(|at| millis_since(run.started, at)),
        attempts: step.attempts.iter().map(|attempt| attempt.number).max().unwrap_or(0),
        error: step.error().cloned(),
        output: step.error().and(step.output.clone()),
        blocked_by: find_blocker(run, graph, index),
        done_in_run,
        detail: said_now.or_else(said_then).cloned(),
    }
}

pub(crate) fn outcome_of(run: &RunRecord, graph: &Graph, index: usize) -> StepOutcome {
    let step = &run.steps[index];
    match (step.finish, step.error()) {
        (Some(Finish::Done), _) => StepOutcome::Done,
        (Some(Finish::AlreadySo), _) => StepOutcome::AlreadySo,
        // Between two attempts of a run that goes on, the step has not failed yet.
        (None, Some(_)) if run.outcome != RunOutcome::Unfinished || step.gave_up => StepOutcome::Failed,
        (None, _) if find_blocker(run, graph, index).is_some() => StepOutcome::Blocked,
        (None, _) => StepOutcome::Unfinished,
    }
}

/// The step at the root of why this one was never tried.
pub(crate) fn find_blocker(run: &RunRecord, graph: &Graph, index: usize) -> Option<StepId> {
    let untouched = |step: usize| run.steps[step].finish.is_none() && run.steps[step].attempts.is_empty();
    if !untouched(index) {
        return None;
    }
    let stuck = |step: &usize| run.steps[*step].finish.is_none() && !run.steps[*step].attempts.is_empty();
    let needs = graph.all_needs(index);
    let failed = needs.iter().copied().find(|step| run.steps[*step].error().is_some());
    match (failed.or_else(|| needs.iter().copied().find(stuck)), &run.outcome) {
        (Some(need), _) => Some(run.outline[need].id.clone()),
        // Nothing it needs failed, but after a failure nothing new starts.
        (None, RunOutcome::Failed { step, .. }) => Some(step.clone()),
        (None, _) => None,
    }
}

fn find_earlier_run(run: &RunRecord, earlier: &[RunRecord], id: &StepId) -> Option<usize> {
    let did = |record: &RunRecord| {
        let position = record.outline.iter().position(|step| step.id == *id);
        record.plan == run.plan && position.is_some_and(|at| record.steps[at].finish == Some(Finish::Done))
    };
    earlier.iter().rposition(did).map(|at| at + 1)
}
