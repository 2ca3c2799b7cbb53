//! Runs a plan on a machine so that it may be cut off at any instruction and started again.
//!
//! ```text
//! Plan ──Run──→ Event… ──→ sink (log, progress)
//!        ↑         └─────→ Journal ──→ Report, Timeline, and what the next Run need not do
//!   Executor, Clock, Jitter, LogStore: the world, as traits
//! ```
//!
//! In: a [`Plan`], and the world through traits. Out: events, a [`Report`], a journal, a [`Timeline`].
//! Fails: with the class, message and advice of the first step that failed. The crate knows no Kubernetes and touches
//! no file, clock, network, environment or source of randomness itself.

mod course;
mod digest;
mod events;
mod execute;
mod graph;
mod human;
mod journal;
mod ledger;
mod opening;
mod patience;
mod plan;
mod reboot;
mod report;
mod retry;
mod rotation;
mod run;
mod runs;
mod timeline;

pub use digest::{Digest, ParseDigestError};
pub use events::{Event, EventKind, FactNote, Finish, RunOutcome, StepOutline, Timestamp};
pub use execute::{Clock, Condition, Deadline, ErrorClass, Executor, History, StepContext, StepError};
pub use journal::{Damaged, Journal, JournalError, LogStore, Recovery};
pub use opening::Opening;
pub use patience::Patience;
pub use plan::{Plan, PlanError, Step, StepId};
pub use report::{PhaseReport, Report, StepOutcome, StepReport};
pub use retry::{Jitter, RetryPolicy};
pub use rotation::RotationLimits;
pub use run::{PlannedRun, Run, Workers};
pub use timeline::{Style, Timeline};
