//! The seams between the engine and the world: who checks and applies a step, and where time comes from.
//!
//! In and out: see each trait. Fails: [`StepError`], whose class decides between retry, stop and asking a person.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{events::Timestamp, plan::Step};

/// What a look at the machine says about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    AlreadySo,
    /// With the reason, for people.
    Needed(String),
    /// Only a reboot makes it so; `apply` asks for one. The engine counts them, and ends the run once it is asked for.
    NeedsReboot(String),
}

/// What the journal knows about a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// This step was recorded done in a run of the same identity, was not started again since, and no run of another
    /// identity came between.
    pub done_before: bool,
}

/// The moment by which all attempts of a step together must have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// As [`Clock::monotonic`] tells it.
    pub at: Duration,
    /// How long the step had from its start.
    pub allowed: Duration,
}

impl Deadline {
    pub fn starting_now(clock: &dyn Clock, allowed: Duration) -> Self {
        Self { at: clock.monotonic().saturating_add(allowed), allowed }
    }

    /// What is left of it; zero once it has passed.
    pub fn remaining(&self, clock: &dyn Clock) -> Duration {
        self.remaining_with(Duration::ZERO, clock)
    }

    /// The same, if it had been so much later.
    pub(crate) fn remaining_with(&self, more: Duration, clock: &dyn Clock) -> Duration {
        self.at.saturating_add(more).saturating_sub(clock.monotonic())
    }
}

/// What an attempt is told.
pub struct StepContext<'a> {
    /// No thread can be stopped from outside: every wait inside the step must end by this moment.
    pub deadline: Deadline,
    /// Counts from one.
    pub attempt: u32,
    /// Says how it is going; becomes a [`crate::EventKind::StepDetail`].
    pub detail: &'a dyn Fn(String),
    pub history: &'a History,
}

impl StepContext<'_> {
    pub fn detail(&self, text: impl Into<String>) {
        (self.detail)(text.into());
    }
}

/// What kind of trouble: decides what the engine does, and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorClass {
    /// What the user wrote cannot work.
    WrongInput,
    /// May go away by itself: the only class that is retried.
    Transient,
    /// Will not go away by trying again.
    Permanent,
    /// A person has to do or decide something first.
    NeedsOperator,
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongInput => "wrong input",
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::NeedsOperator => "needs operator",
        })
    }
}

/// Why a step failed. `Display` is the message alone: class and advice are shown in their own places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    pub class: ErrorClass,
    /// What failed, on what, and why.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What a program said that failed, which may be anything: for root only. It becomes an event of its own,
    /// [`crate::EventKind::StepOutput`], and is in no message and no report.
    #[serde(skip)]
    pub output: Option<String>,
}

impl StepError {
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), advice: None, output: None }
    }

    pub fn wrong_input(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::WrongInput, message)
    }

    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, message)
    }

    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, message)
    }

    pub fn needs_operator(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::NeedsOperator, message)
    }

    pub fn with_advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    pub fn with_output(self, output: Option<String>) -> Self {
        Self { output, ..self }
    }
}

/// Knows what the actions of a plan mean. Called from several threads at once, for different steps.
pub trait Executor<A>: Sync {
    /// Looks and changes nothing.
    fn check(&self, step: &Step<A>, history: &History) -> Result<Condition, StepError>;

    /// Makes it so. May be called again after any interruption, and must then end in the same state.
    fn apply(&self, step: &Step<A>, context: &StepContext<'_>) -> Result<(), StepError>;
}

/// Where time comes from.
pub trait Clock: Sync {
    /// Wall clock; read once a run, because it may be set while we run.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment; never goes backwards.
    fn monotonic(&self) -> Duration;

    fn sleep(&self, duration: Duration);
}
