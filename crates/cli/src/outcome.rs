//! How a command ends: one table of exit codes for all of them.

use std::fmt;
use std::process::ExitCode;

use engine::ErrorClass;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Done = 0,
    WrongInput = 2,
    MayRetry = 3,
    NeedsPerson = 4,
    Busy = 5,
    Reboot = 10,
}

impl Code {
    /// What another nodestrap ended with; `None` if that was none of these.
    pub(crate) fn of_status(status: i32) -> Option<Self> {
        let all = [Self::Done, Self::WrongInput, Self::MayRetry, Self::NeedsPerson, Self::Busy, Self::Reboot];
        all.into_iter().find(|code| *code as i32 == status)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

impl From<ErrorClass> for Code {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::WrongInput => Self::WrongInput,
            ErrorClass::Transient => Self::MayRetry,
            ErrorClass::Permanent | ErrorClass::NeedsOperator => Self::NeedsPerson,
        }
    }
}

/// An error with the exit code that it means.
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) error: anyhow::Error,
}

pub(crate) type Outcome = Result<Code, Failure>;

impl fmt::Display for Failure {
    /// The chain of causes, once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

/// Says which exit code an error means where it leaves a library.
pub(crate) trait OrFail<T> {
    fn or_fail(self, code: Code) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, code: Code) -> Result<T, Failure> {
        self.map_err(|error| Failure { code, error: error.into() })
    }
}
