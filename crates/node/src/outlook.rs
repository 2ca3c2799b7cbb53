//! What is being done on a node, what comes next, and since when it is as it is. Pure.

use std::time::Duration;

use engine::{Event, EventKind, Report, RunOutcome, StepOutcome, Timestamp};
use serde::Serialize;

use crate::status::{Phase, is_complete};

/// Whether a nodestrap holds the node's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    AtWork,
    Absent,
    /// The machine cannot tell.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// RFC 3339; since when the node is in its phase.
    pub since: Option<String>,
    /// Steps that were started and have not ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<String>,
    /// One line for people.
    pub next: Option<String>,
    /// Steps that still have to be done, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remaining: Vec<String>,
}

/// `events` are those that the report was made from.
pub(crate) fn outlook(phase: Phase, report: Option<&Report>, events: &[Event], worker: Worker) -> Outlook {
    let steps = report.map(|report| report.steps.as_slice()).unwrap_or_default();
    let open = steps.iter().filter(|step| !matches!(step.outcome, StepOutcome::Done | StepOutcome::AlreadySo));
    let (started, waiting): (Vec<_>, Vec<_>) =
        open.partition(|step| step.outcome == StepOutcome::Unfinished && step.started_ms.is_some());
    let names = |steps: &[&engine::StepReport]| steps.iter().map(|step| step.id.0.clone()).collect::<Vec<_>>();
    let mut now = names(&started);
    let phases = report.map(|report| report.phases.as_slice()).unwrap_or_default();
    now.extend(phases.iter().filter(|phase| phase.ended_ms.is_none()).map(|phase| phase.id.0.clone()));
    let remaining = names(&waiting);
    let goes_on = phase == Phase::Unfinished || (worker == Worker::AtWork && phase == Phase::NotFetched);
    if !goes_on {
        now.clear();
    }
    let next = match report {
        Some(report) if phase == Phase::Unfinished && worker != Worker::AtWork && is_complete(report) => {
            Some("nodestrap apply, which opens the gate again".to_owned())
        }
        _ => next(phase, &now, &remaining, worker),
    };
    Outlook { since: since(phase, report, events).map(|at| at.to_string()), now, next, remaining }
}

fn next(phase: Phase, now: &[String], remaining: &[String], worker: Worker) -> Option<String> {
    let rest = match remaining {
        [] => String::new(),
        [one] => format!(", then {one}"),
        [first, rest @ ..] => format!(", then {first} and {} more", rest.len()),
    };
    let resume = match (now, remaining) {
        ([], []) => String::new(),
        ([], [first, ..]) => format!(", from {first} on"),
        (now, _) => format!(", from {} on", now.join(", ")),
    };
    Some(match (phase, worker) {
        (Phase::NotDelivered, _) => "a bundle must be delivered: nodestrap render FILE --group NAME".to_owned(),
        (Phase::BundleBroken, _) => "the bundle must be rendered and delivered again".to_owned(),
        (Phase::Unfinished | Phase::NotFetched, Worker::AtWork) => {
            let now =
                if now.is_empty() { "the next step starts".to_owned() } else { format!("{} ends", now.join(", ")) };
            format!("{now}{rest}")
        }
        (Phase::NotFetched | Phase::NotStarted, _) => "nodestrap apply, which the bootstrap unit runs".to_owned(),
        (Phase::Unfinished, _) => format!("the next nodestrap apply resumes{resume}"),
        (Phase::Rebooting, _) => format!("the machine boots, and the bootstrap unit resumes{resume}"),
        (Phase::Failed, _) => format!("the bootstrap unit tries again by itself{resume}"),
        (Phase::Joining, _) => "the kubelet gets its certificate, then the node registers".to_owned(),
        (Phase::Joined, _) => return None,
    })
}

/// A failure that repeats itself stands in the way since it happened first.
fn since(phase: Phase, report: Option<&Report>, events: &[Event]) -> Option<Timestamp> {
    let report = report?;
    match phase {
        Phase::Failed => failing_since(events),
        Phase::Unfinished | Phase::NotFetched => Some(report.started_at),
        Phase::Rebooting | Phase::Joining | Phase::Joined => {
            Some(report.started_at.after(Duration::from_millis(report.duration_ms)))
        }
        Phase::NotDelivered | Phase::BundleBroken | Phase::NotStarted => None,
    }
}

/// The first of the failures in a row of which the last run is the last, all at the same step.
pub(crate) fn failing_since(events: &[Event]) -> Option<Timestamp> {
    let mut since = None;
    let mut last = None;
    for event in events.iter().rev() {
        let EventKind::RunFinished { outcome } = &event.kind else { continue };
        let RunOutcome::Failed { step, .. } = outcome else { break };
        if last.is_some_and(|last| last != step) {
            break;
        }
        // A clock that was ahead then does not make it begin after its end.
        (last, since) = (Some(step), Some(since.map_or(event.at, |later: Timestamp| later.min(event.at))));
    }
    since
}

#[cfg(test)]
mod tests {
    use engine::{ErrorClass, StepId, StepOutline};

    use super::*;

    fn at(seconds: u64, kind: EventKind) -> Event {
        Event { at: Timestamp(seconds * 1000), kind }
    }

    fn run_started(seconds: u64) -> Event {
        let outline = |id: &str| StepOutline { id: id.into(), needs: Vec::new(), deadline_ms: 0 };
        let steps = ["stage-files", "commit-files", "open-gate"].map(outline).into();
        at(
            seconds,
            EventKind::RunStarted { plan: engine::Digest::of(b"p"), identity: None, boot_id: "b".into(), steps },
        )
    }

    fn failed(seconds: u64, step: &str) -> Event {
        let (step, class) = (StepId::from(step), ErrorClass::Transient);
        let outcome = RunOutcome::Failed { step, class, message: "m".into(), advice: None };
        at(seconds, EventKind::RunFinished { outcome })
    }

    #[test]
    fn a_failure_is_as_old_as_the_first_of_its_kind() {
        let events = [failed(1, "other"), failed(2, "same"), failed(3, "same"), failed(4, "same")];
        assert_eq!(failing_since(&events), Some(Timestamp(2000)));
        let ahead = [failed(9_000, "same"), failed(4, "same"), failed(5, "same")];
        assert_eq!(failing_since(&ahead), Some(Timestamp(4000)), "no failure begins after its end");
        let mended = at(5, EventKind::RunFinished { outcome: RunOutcome::Done });
        assert_eq!(failing_since(&[&events[..], &[mended]].concat()), None);
    }

    #[test]
    fn what_runs_and_what_comes_then_are_told_apart() {
        let started = EventKind::StepStarted { id: "stage-files".into(), attempt: 1, why: "w".into() };
        let events = [run_started(1), at(2, started)];
        let report = Report::from_events(&events);
        let outlook = outlook(Phase::Unfinished, report.as_ref(), &events, Worker::AtWork);
        assert_eq!(outlook.now, ["stage-files"]);
        assert_eq!(outlook.remaining, ["commit-files", "open-gate"]);
        assert_eq!(outlook.next.as_deref(), Some("stage-files ends, then commit-files and 1 more"));
        assert_eq!(outlook.since.as_deref(), Some("1970-01-01T00:00:01Z"));
        let cut_off = super::outlook(Phase::Unfinished, report.as_ref(), &events, Worker::Absent);
        assert_eq!(cut_off.next.as_deref(), Some("the next nodestrap apply resumes, from stage-files on"));
    }
}
