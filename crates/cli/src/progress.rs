//! Shows a run as it goes: a bar on a terminal, lines elsewhere, events as JSON on request.

use std::cell::RefCell;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use engine::{Event, EventKind, Finish, RunOutcome, StepOutline};
use host::machine::{JournalSocket, Priority, Readiness};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Progress;

/// Between the end of a step and the next word to the service manager.
const MARGIN: Duration = Duration::from_secs(60);

pub(crate) struct ProgressView {
    shape: Shape,
    /// `STATUS=` lines for `systemctl status`, when a service manager listens.
    notify_socket: Option<std::ffi::OsString>,
    unfinished: RefCell<Vec<String>>,
    /// Of the plan that runs, for the deadlines of its steps.
    outline: RefCell<Vec<StepOutline>>,
    plan: RefCell<String>,
    /// What it means that the run is done.
    done: &'static str,
}

enum Shape {
    Bar(ProgressBar),
    Plain,
    /// As a service: with fields, instead of lines on standard error, which would come to the same journal.
    Journal(JournalSocket),
    Json,
    None,
}

impl ProgressView {
    pub(crate) fn new(wanted: Progress) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let shape = match wanted {
            Progress::Bar => Shape::Bar(bar()),
            Progress::Auto if terminal => Shape::Bar(bar()),
            Progress::Auto => {
                match std::env::var("JOURNAL_STREAM").ok().as_deref().and_then(JournalSocket::of_standard_error) {
                    Some(socket) => Shape::Journal(socket),
                    None => Shape::Plain,
                }
            }
            Progress::Plain => Shape::Plain,
            Progress::Json => Shape::Json,
            Progress::None => Shape::None,
        };
        Self {
            shape,
            notify_socket: std::env::var_os("NOTIFY_SOCKET"),
            unfinished: RefCell::default(),
            outline: RefCell::default(),
            plan: RefCell::default(),
            done: "node complete, the gate is open",
        }
    }

    /// Whether those who look for a failure find it in the journal, with all its fields.
    pub(crate) fn tells_journal(&self) -> bool {
        matches!(self.shape, Shape::Journal(_))
    }

    /// For a run that ends otherwise than with an open gate.
    pub(crate) fn ending_with(self, done: &'static str) -> Self {
        Self { done, ..self }
    }

    fn describe(&self, event: &Event) -> Option<String> {
        match &event.kind {
            EventKind::RunFinished { outcome: RunOutcome::Done } => Some(self.done.to_owned()),
            _ => describe(event),
        }
    }

    pub(crate) fn tell(&self, event: &Event) {
        if let EventKind::RunStarted { plan, steps, .. } = &event.kind {
            self.plan.replace(plan.to_string());
            self.outline.replace(steps.clone());
        }
        match &self.shape {
            Shape::Bar(bar) => self.draw(bar, event),
            Shape::Journal(socket) => self.enter(socket, event),
            Shape::Plain => {
                if let Some(line) = self.describe(event) {
                    let _ = writeln!(std::io::stderr().lock(), "{line}");
                }
            }
            Shape::Json => {
                if let Ok(line) = serde_json::to_string(event) {
                    let _ = writeln!(std::io::stderr().lock(), "{line}");
                }
            }
            Shape::None => {}
        }
        if let (Some(socket), Some(line)) = (&self.notify_socket, self.describe(event).filter(|_| !is_for_root(event)))
        {
            // Nobody needs this line so much that a run should fail for it.
            let _ = match self.readiness(event) {
                Some(readiness) => host::machine::sd_notify_with(socket, &line, readiness),
                None => host::machine::sd_notify(socket, &line),
            };
        }
    }

    /// A step that may take long must not be killed by the unit's own timeout.
    fn readiness(&self, event: &Event) -> Option<Readiness> {
        match &event.kind {
            EventKind::StepStarted { id, .. } => {
                let outline = self.outline.borrow();
                let step = outline.iter().find(|step| step.id == *id)?;
                Some(Readiness::Working(Duration::from_millis(step.deadline_ms).saturating_add(MARGIN)))
            }
            EventKind::RunFinished { outcome: RunOutcome::Done | RunOutcome::NothingToDo } => Some(Readiness::Ready),
            _ => None,
        }
    }

    fn enter(&self, socket: &JournalSocket, event: &Event) {
        let Some(line) = self.describe(event) else { return };
        let entry = Entry::of(event);
        let (plan, priority) = (self.plan.borrow(), (entry.priority as u8).to_string());
        let mut fields = vec![
            ("MESSAGE", line.as_str()),
            ("PRIORITY", priority.as_str()),
            ("SYSLOG_IDENTIFIER", "nodestrap"),
            ("NODESTRAP_PLAN", plan.as_str()),
            ("NODESTRAP_STEP", entry.step),
            ("NODESTRAP_OUTCOME", entry.outcome),
            ("MESSAGE_ID", entry.message_id),
        ];
        fields.retain(|(_, value)| !value.is_empty());
        if socket.send(&fields).is_err() {
            let _ = writeln!(std::io::stderr().lock(), "{line}");
        }
    }

    fn draw(&self, bar: &ProgressBar, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { steps, .. } => bar.set_length(u64::try_from(steps.len()).unwrap_or(u64::MAX)),
            EventKind::StepStarted { id, .. } | EventKind::PhaseStarted { phase: id } => {
                self.unfinished.borrow_mut().push(id.0.clone());
            }
            EventKind::PhaseFinished { phase } => self.unfinished.borrow_mut().retain(|step| *step != phase.0),
            EventKind::StepFinished { id, .. } => {
                self.unfinished.borrow_mut().retain(|step| *step != id.0);
                bar.inc(1);
            }
            EventKind::StepFailed { .. }
            | EventKind::StepOutput { .. }
            | EventKind::PhaseDetail { .. }
            | EventKind::PhaseFailed { .. } => {
                if let Some(line) = self.describe(event) {
                    bar.suspend(|| {
                        let _ = writeln!(std::io::stderr().lock(), "{line}");
                    });
                }
            }
            EventKind::RunFinished { .. } => bar.finish_and_clear(),
            _ => {}
        }
        bar.set_message(self.unfinished.borrow().join(", "));
    }
}

/// What the journal is told besides the text; empty where there is nothing to tell.
struct Entry<'a> {
    priority: Priority,
    step: &'a str,
    outcome: &'static str,
    /// Of the kinds that somebody may want to find or be woken by.
    message_id: &'static str,
}

const NODE_COMPLETE: &str = "5d3c8a1ef04b4c0c9a0f6b5d2f7e9c11";
const RUN_FAILED: &str = "b0a1c4d2e6f74e3d8c5b7a9f1e2d3c42";
const STEP_FAILED: &str = "8e7f6a5b4c3d4b2a9180f7e6d5c4b3a7";

impl<'a> Entry<'a> {
    fn of(event: &'a Event) -> Self {
        let entry = |priority, step, outcome, message_id| Self { priority, step, outcome, message_id };
        match &event.kind {
            EventKind::StepFailed { id, retry_in_ms: Some(_), .. } => {
                entry(Priority::Warning, id.as_str(), "retry", STEP_FAILED)
            }
            EventKind::StepFailed { id, .. } | EventKind::PhaseFailed { phase: id, .. } => {
                entry(Priority::Error, id.as_str(), "failed", STEP_FAILED)
            }
            EventKind::StepStarted { id, .. } => entry(Priority::Info, id.as_str(), "started", ""),
            EventKind::StepFinished { id, .. } => entry(Priority::Info, id.as_str(), "done", ""),
            EventKind::StepDetail { id, .. }
            | EventKind::StepOutput { id, .. }
            | EventKind::PhaseDetail { phase: id, .. } => entry(Priority::Info, id.as_str(), "", ""),
            EventKind::RunFinished { outcome: RunOutcome::Failed { step, .. } } => {
                entry(Priority::Error, step.as_str(), "failed", RUN_FAILED)
            }
            EventKind::RunFinished { .. } => entry(Priority::Notice, "", "done", NODE_COMPLETE),
            _ => entry(Priority::Info, "", "", ""),
        }
    }
}

/// `systemctl status` shows its line to everybody.
fn is_for_root(event: &Event) -> bool {
    matches!(event.kind, EventKind::StepOutput { .. })
}

/// Its length comes with the first event.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

/// One line for people, for the events that they want to read.
fn describe(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::StepStarted { id, attempt: 1, why } => Some(format!("{}: {why}", id.0)),
        EventKind::StepStarted { id, attempt, .. } => Some(format!("{}: attempt {attempt}", id.0)),
        EventKind::PhaseDetail { phase: id, text }
        | EventKind::StepDetail { id, text }
        | EventKind::StepOutput { id, text } => Some(format!("{}: {text}", id.0)),
        EventKind::StepFinished { id, outcome: Finish::Done } => Some(format!("{}: done", id.0)),
        EventKind::StepFailed { id, message, advice, retry_in_ms, .. } => {
            let advice = advised(advice.as_deref());
            let next = retry_in_ms.map(|rest| format!(" (again in {rest} ms)")).unwrap_or_default();
            Some(format!("{}: failed: {message}{advice}{next}", id.0))
        }
        EventKind::PhaseFailed { phase, message, advice, .. } => {
            Some(format!("{}: failed: {message}{}", phase.0, advised(advice.as_deref())))
        }
        EventKind::RunFinished { outcome: RunOutcome::Rebooting { .. } } => {
            Some("rebooting; resumes by itself".to_owned())
        }
        EventKind::RunFinished { outcome: RunOutcome::Failed { step, .. } } => Some(format!("stopped at {}", step.0)),
        EventKind::RunFinished { outcome: RunOutcome::NothingToDo } => Some("nothing to do".to_owned()),
        _ => None,
    }
}

fn advised(advice: Option<&str>) -> String {
    advice.map(|advice| format!("; {advice}")).unwrap_or_default()
}
