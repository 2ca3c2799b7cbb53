//! Shows a run as it goes: a bar on a terminal, lines elsewhere, events as JSON on request.

use std::cell::RefCell;
use std::io::{IsTerminal, Write as _};

use engine::{Event, EventKind, Finish, RunOutcome};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Progress;

pub(crate) struct ProgressView {
    shape: Shape,
    /// `STATUS=` lines for `systemctl status`, when a service manager listens.
    notify_socket: Option<std::ffi::OsString>,
    unfinished: RefCell<Vec<String>>,
    /// What it means that the run is done.
    done: &'static str,
}

enum Shape {
    Bar(ProgressBar),
    Plain,
    Json,
    None,
}

impl ProgressView {
    pub(crate) fn new(wanted: Progress) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let shape = match wanted {
            Progress::Bar => Shape::Bar(bar()),
            Progress::Auto if terminal => Shape::Bar(bar()),
            Progress::Auto | Progress::Plain => Shape::Plain,
            Progress::Json => Shape::Json,
            Progress::None => Shape::None,
        };
        let done = "node complete, the gate is open";
        Self { shape, notify_socket: std::env::var_os("NOTIFY_SOCKET"), unfinished: RefCell::default(), done }
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
        match &self.shape {
            Shape::Bar(bar) => self.draw(bar, event),
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
        if let (Some(socket), Some(line)) = (&self.notify_socket, self.describe(event)) {
            // Nobody needs this line so much that a run should fail for it.
            let _ = host::machine::sd_notify(socket, &line);
        }
    }

    /// What happens before there is a plan. No event of a run, so those who read events are not told.
    pub(crate) fn say(&self, line: &str) {
        match &self.shape {
            Shape::Bar(bar) => bar.suspend(|| {
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }),
            Shape::Plain => {
                let _ = writeln!(std::io::stderr().lock(), "{line}");
            }
            Shape::Json | Shape::None => {}
        }
        if let Some(socket) = &self.notify_socket {
            let _ = host::machine::sd_notify(socket, line);
        }
    }

    fn draw(&self, bar: &ProgressBar, event: &Event) {
        match &event.kind {
            EventKind::RunStarted { steps, .. } => bar.set_length(u64::try_from(steps.len()).unwrap_or(u64::MAX)),
            EventKind::StepStarted { id, .. } => self.unfinished.borrow_mut().push(id.0.clone()),
            EventKind::StepFinished { id, .. } => {
                self.unfinished.borrow_mut().retain(|step| *step != id.0);
                bar.inc(1);
            }
            EventKind::StepFailed { .. } => {
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
        EventKind::StepDetail { id, text } => Some(format!("{}: {text}", id.0)),
        EventKind::StepFinished { id, outcome: Finish::Done } => Some(format!("{}: done", id.0)),
        EventKind::StepFailed { id, message, advice, retry_in_ms, .. } => {
            let advice = advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
            let next = retry_in_ms.map(|rest| format!(" (again in {rest} ms)")).unwrap_or_default();
            Some(format!("{}: failed: {message}{advice}{next}", id.0))
        }
        EventKind::RunFinished { outcome: RunOutcome::Rebooting { .. } } => {
            Some("rebooting; resumes by itself".to_owned())
        }
        EventKind::RunFinished { outcome: RunOutcome::Failed { step, .. } } => Some(format!("stopped at {}", step.0)),
        _ => None,
    }
}
