//! snapd, in the verbs of a bootstrap: aliases, settings, services of snaps that the image brings.
//!
//! In: names, settings, deadlines. Out: changes that snapd has finished, or a typed reason why not. [`SnapdSnaps`] speaks
//! snapd's own HTTP over its socket; [`crate::fake::FakeSnaps`] is for tests. Fails with [`SnapError`]:
//! [`SnapError::Unreachable`] when nobody answers, the other variants when the answer is no.

mod snapd;

use std::collections::BTreeMap;
use std::time::Duration;

pub use snapd::SnapdSnaps;

/// One service of a snap, as systemd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapService {
    /// The name inside the snap, such as `daemon`.
    pub app: String,
    pub active: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapError {
    #[error("cannot reach snapd at {socket:?}")]
    Unreachable { socket: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("there is no snap or application {what:?} on this machine ({operation}: snapd says {message:?})")]
    NotFound { operation: &'static str, what: String, message: String },
    /// Another change of the same snap is under way: of somebody else, or of a run that was cut off.
    #[error("{operation} of {what:?} has to wait: snapd says {message:?}")]
    Busy { operation: &'static str, what: String, message: String },
    /// `kind` is snapd's own word, such as `login-required`, or empty.
    #[error("{operation} of {what:?} was refused by snapd: {message:?} (status {status}, kind {kind:?})")]
    Refused { operation: &'static str, what: String, status: u16, kind: String, message: String },
    /// It was begun, and did not succeed; snapd has undone it.
    #[error("{operation} of {what:?} failed: change {change} of snapd ended with {status:?}: {message:?}")]
    Change { operation: &'static str, what: String, change: String, status: String, message: String },
    #[error("{operation} of {what:?} did not end within {waited:?}")]
    Deadline { operation: &'static str, what: String, waited: Duration },
    #[error("{operation} of {what:?}: what answers at the socket of snapd is not snapd: {problem}")]
    Answer { operation: &'static str, what: String, problem: String },
}

pub trait Snaps: Send + Sync {
    /// The commands that people type, and the application (`SNAP.APP`) that each starts.
    fn aliases(&self) -> Result<BTreeMap<String, String>, SnapError>;
    /// All settings of a snap, as its own hooks read them: as text.
    fn settings(&self, snap: &str) -> Result<BTreeMap<String, String>, SnapError>;
    fn services(&self, snap: &str) -> Result<Vec<SnapService>, SnapError>;
    /// Each verb waits until snapd has finished its change.
    fn add_alias(&self, alias: &str, app: &str, deadline: Duration) -> Result<(), SnapError>;
    /// Only an alias that somebody added by hand, as `add_alias` does.
    fn remove_alias(&self, alias: &str, deadline: Duration) -> Result<(), SnapError>;
    /// Sets these, takes those away that are `None`, and leaves others alone. snapd lets the snap's own hook look at them, and
    /// undoes them if that fails.
    fn set(&self, snap: &str, settings: &BTreeMap<String, Option<String>>, deadline: Duration)
    -> Result<(), SnapError>;
    /// All services of the snap; they start again at the next boot if they are enabled.
    fn stop(&self, snap: &str, deadline: Duration) -> Result<(), SnapError>;
    fn start(&self, snap: &str, deadline: Duration) -> Result<(), SnapError>;
}
