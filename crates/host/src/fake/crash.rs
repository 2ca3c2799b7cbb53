//! When the fake machine dies or its disk fails. One counter for all effects, so that "the n-th operation" means the
//! same for files and units together.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// What is left after the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process dies; the kernel keeps everything that was written.
    ProcessKill,
    /// The machine dies and boots again: un-synced state is lost, kept or torn; `/run` is empty.
    PowerLoss,
}

/// Where in the n-th operation the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    /// Half of the bytes of a `create` or an `append` are written; as `After` for everything else.
    Midway,
    After,
}

/// An error that the disk gives instead of doing the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A kernel error number, for example 28 (`ENOSPC`), 5 (`EIO`), 30 (`EROFS`).
    Errno(i32),
    Kind(io::ErrorKind),
}

impl Fault {
    pub const DISK_FULL: Self = Self::Errno(28);
    pub const INPUT_OUTPUT: Self = Self::Errno(5);
    pub const READ_ONLY: Self = Self::Errno(30);

    fn error(self) -> io::Error {
        match self {
            Self::Errno(number) => io::Error::from_raw_os_error(number),
            Self::Kind(kind) => kind.into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    Once,
    /// This operation and all later ones. A full disk still allows removals, and stays full: somebody else fills it.
    FromThenOn,
    /// As `FromThenOn`, and nothing can be read any more either: the disk is gone.
    ReadsToo,
}

/// Shared by all fakes of one machine.
#[derive(Default)]
pub struct CrashPoint {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: u64,
    crash: Option<(u64, Moment)>,
    fault: Option<(u64, Fault, Repeat)>,
    loss: Option<u64>,
    crashed: bool,
    log: Vec<Line>,
}

/// Of the log; written out only for whoever reads it.
struct Line {
    what: String,
    end: End,
}

enum End {
    Done,
    Killed(Moment),
    Failed(Fault),
}

/// What the caller must do with its operation.
pub(crate) enum Verdict {
    Do,
    /// Do it (or half of it), then fail with [`crashed`].
    DoThenDie(Moment),
}

impl CrashPoint {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The process dies at the `n`-th operation, counted from 1 since the machine was made.
    pub fn crash_at(&self, n: u64, moment: Moment) {
        self.with(|state| state.crash = Some((n, moment)));
    }

    /// The `n`-th operation fails with this error, and has no effect.
    pub fn fail_at(&self, n: u64, fault: Fault, repeat: Repeat) {
        self.with(|state| state.fault = Some((n, fault, repeat)));
    }

    /// Right after the `n`-th operation, all that is not written back yet is lost, and somebody else is told.
    pub fn lose_writeback_at(&self, n: u64) {
        self.with(|state| state.loss = Some(n));
    }

    /// Whether that moment has come; only once.
    pub(crate) fn loses_writeback_now(&self) -> bool {
        self.with(|state| state.loss.take_if(|at| *at <= state.done).is_some())
    }

    /// Takes a failure back: the disk has room again.
    pub fn heal(&self) {
        self.with(|state| (state.fault, state.loss) = (None, None));
    }

    /// How many operations were asked for so far.
    pub fn operations(&self) -> u64 {
        self.with(|state| state.done)
    }

    pub fn crashed(&self) -> bool {
        self.with(|state| state.crashed)
    }

    /// One line per operation, for example `3 rename /a/.x.nodestrap-new /a/x`.
    pub fn log(&self) -> Vec<String> {
        self.with(|state| state.log.iter().zip(1..).map(|(line, number)| line.show(number)).collect())
    }

    /// Reading is no operation, but the dead do not read.
    pub(crate) fn read(&self) -> io::Result<()> {
        self.with(|state| match state.fault {
            _ if state.crashed => Err(crashed()),
            Some((at, fault, Repeat::ReadsToo)) if state.done >= at => Err(fault.error()),
            _ => Ok(()),
        })
    }

    pub(crate) fn operation(&self, what: String) -> io::Result<Verdict> {
        self.with(|state| {
            if state.crashed {
                return Err(crashed());
            }
            state.done += 1;
            let n = state.done;
            let (end, verdict) = match (state.crash, state.fault) {
                (Some((at, moment)), _) if at == n => {
                    state.crashed = true;
                    let is_done = moment != Moment::Before;
                    (End::Killed(moment), if is_done { Ok(Verdict::DoThenDie(moment)) } else { Err(crashed()) })
                }
                (_, Some((at, fault, repeat))) if is_hit(&what, n, at, fault, repeat) => {
                    (End::Failed(fault), Err(fault.error()))
                }
                _ => (End::Done, Ok(Verdict::Do)),
            };
            state.log.push(Line { what, end });
            verdict
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Line {
    fn show(&self, number: u64) -> String {
        let what = &self.what;
        match self.end {
            End::Done => format!("{number} {what}"),
            End::Killed(moment) => format!("{number} {what} (killed {moment:?})"),
            End::Failed(fault) => format!("{number} {what} (failed: {fault:?})"),
        }
    }
}

fn is_hit(what: &str, n: u64, at: u64, fault: Fault, repeat: Repeat) -> bool {
    let allowed = fault == Fault::DISK_FULL && what.starts_with("remove ");
    n == at || (n > at && repeat != Repeat::Once && !allowed)
}

pub(crate) fn crashed() -> io::Error {
    io::Error::other("crashed")
}
