//! Why nothing was fetched, for each mirror, and what to do about it.

use std::fmt;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};

use crate::s3;
use crate::sink::SinkError;

/// However long a mirror asks us to stay away, we look again after this.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("there is no address to fetch {what} from")]
    NoMirror { what: String },
    #[error("the certificate authorities to trust cannot be read: {problem}; give certificates in PEM form")]
    Authorities { problem: String },
    #[error("the proxy cannot be used: {problem}; write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT")]
    Proxy { problem: String },
    #[error("no runtime can be made for network requests")]
    Runtime(#[source] std::io::Error),
    #[error("cannot store {what} while it is fetched")]
    Sink { what: String, source: SinkError },
    #[error("cannot fetch {what}{}: {}; {}", given_up(.gave_up_after), list(.mirrors), advice(.mirrors))]
    Mirrors {
        what: String,
        /// The overall deadline, if it was what ended the attempts.
        gave_up_after: Option<Duration>,
        mirrors: Vec<MirrorFailure>,
    },
}

impl FetchError {
    /// Whether the same request may succeed later without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoMirror { .. } | Self::Authorities { .. } | Self::Proxy { .. } | Self::Sink { .. } => false,
            Self::Runtime(_) => true,
            Self::Mirrors { mirrors, .. } => mirrors.iter().any(|mirror| mirror.reason.may_pass()),
        }
    }
}

/// What became of one mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorFailure {
    /// Without what opens the store.
    pub url: String,
    pub attempts: u32,
    /// Of the last attempt.
    pub reason: Reason,
}

impl fmt::Display for MirrorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, attempts, reason } = self;
        match attempts {
            0 => write!(f, "{url}: {reason}"),
            1 => write!(f, "{url}: {reason} (asked once)"),
            _ => write!(f, "{url}: {reason} (asked {attempts} times)"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The address itself.
    Url(&'static str),
    /// The time was over before its turn came.
    NotAsked,
    Lookup(String),
    Connect(String),
    /// `by_clock`: the certificate is not valid at the time that this machine takes for now.
    Certificate {
        problem: String,
        by_clock: bool,
    },
    /// The connection or the protocol broke.
    Exchange(String),
    TimedOut {
        waiting_for: &'static str,
        after: Duration,
    },
    /// Less than was asked for, for too long.
    TooSlow {
        bytes: u64,
        within: Duration,
    },
    Status {
        code: u16,
        name: &'static str,
        retry_after: Option<Duration>,
    },
    /// What an S3 store says in a word of its own, such as `SlowDown`.
    Store {
        status: u16,
        code: String,
        retry_after: Option<Duration>,
    },
    /// It was not the mirror that failed, but the way to it.
    Proxy {
        proxy: String,
        reason: Box<Reason>,
    },
    Redirect(String),
    TooLarge {
        limit: usize,
    },
    /// The headers promise another object, or another part of it, than was asked for.
    Mismatch(String),
    /// Packed, though nobody asked for it.
    Encoded(String),
    /// A local file.
    File(String),
    /// The body is not what was asked for.
    Verification(String),
}

impl Reason {
    pub(crate) fn status(status: StatusCode) -> Self {
        Self::answered(status, &HeaderMap::new())
    }

    pub(crate) fn answered(status: StatusCode, headers: &HeaderMap) -> Self {
        let asked_for = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let retry_after = asked_for.map(|seconds| Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER));
        Self::Status { code: status.as_u16(), name: status.canonical_reason().unwrap_or_default(), retry_after }
    }

    /// For how long whoever is overloaded wants to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { code: 429 | 503, retry_after, .. } | Self::Store { status: 429 | 503, retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    pub fn may_pass(&self) -> bool {
        match self {
            Self::NotAsked | Self::Lookup(_) | Self::Connect(_) | Self::Exchange(_) => true,
            Self::TimedOut { .. } | Self::TooSlow { .. } => true,
            // At boot the clock may be set while we try.
            Self::Certificate { by_clock, .. } => *by_clock,
            Self::Status { code, .. } => matches!(code, 408 | 429 | 500..=599),
            Self::Store { status, code, .. } => s3::may_pass(*status, code),
            Self::Proxy { reason, .. } => reason.may_pass(),
            Self::Url(_) | Self::Redirect(_) | Self::TooLarge { .. } | Self::Verification(_) => false,
            Self::Mismatch(_) | Self::Encoded(_) | Self::File(_) => false,
        }
    }

    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::Url(_) => "correct the address where the store is configured",
            Self::NotAsked | Self::Lookup(_) | Self::Connect(_) | Self::Exchange(_) | Self::TimedOut { .. } => {
                "see whether the store is up and the network and its DNS let this machine through"
            }
            Self::TooSlow { .. } => "see what slows the store or the way to it down, or give a mirror that is nearer",
            Self::Certificate { by_clock: true, .. } => {
                "compare this machine's clock with a good one; if it is right, renew the store's certificate"
            }
            Self::Certificate { .. } => {
                "compare the certificate authorities given for the store, or else those of the image, with the one that \
                 signed the store's certificate"
            }
            Self::Status { code: 404 | 410, .. } => "put the object into the store, or correct the store's address",
            Self::Status { code: 401 | 403, .. } => {
                "let this machine read the store; if the address carries a signature, it may have expired"
            }
            Self::Status { .. } => "look at the store's log",
            Self::Store { code, .. } => s3::advice(code),
            Self::Proxy { reason, .. } if matches!(reason.as_ref(), Self::Status { code: 407, .. }) => {
                "correct the user and the password of the proxy"
            }
            Self::Proxy { .. } => {
                "see whether the proxy is up and lets this machine through to the store, or exclude the store from it"
            }
            Self::Redirect(_) => "give the address to which the store really answers",
            Self::Encoded(_) => "turn compression off for this file in the server's settings",
            Self::File(_) => "put the file there, or correct the address where the store is configured",
            Self::TooLarge { .. } | Self::Mismatch(_) | Self::Verification(_) => {
                "something else lies under this name: put the right object into the store again"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(problem) => f.write_str(problem),
            Self::NotAsked => f.write_str("not asked before the time was over"),
            Self::Lookup(problem) => write!(f, "its name cannot be looked up: {problem}"),
            Self::Connect(problem) => write!(f, "no connection: {problem}"),
            Self::Certificate { problem, .. } => write!(f, "its certificate is refused: {problem}"),
            Self::Exchange(problem) => write!(f, "the exchange broke off: {problem}"),
            Self::TimedOut { waiting_for, after } => write!(f, "waited {after:?} for {waiting_for}"),
            Self::TooSlow { bytes, within } => write!(f, "too slow: {bytes} bytes within {within:.1?}"),
            Self::Status { code, name: "", .. } => write!(f, "it answers {code}"),
            Self::Status { code, name, .. } => write!(f, "it answers {code} {name}"),
            Self::Store { status, code, .. } => write!(f, "it answers {status} {code}: {}", s3::meaning(code)),
            Self::Proxy { proxy, reason } => write!(f, "through the proxy {proxy}: {reason}"),
            Self::Redirect(problem) => write!(f, "its redirect is not followed: {problem}"),
            Self::TooLarge { limit } => write!(f, "its answer is larger than the {limit} bytes allowed"),
            Self::Mismatch(problem) => f.write_str(problem),
            Self::Encoded(encoding) => write!(f, "its answer is packed by {encoding:?}, which nobody asked for"),
            Self::File(problem) => write!(f, "cannot read it: {problem}"),
            Self::Verification(problem) => write!(f, "its answer is not what was asked for: {problem}"),
        }
    }
}

fn given_up(after: &Option<Duration>) -> String {
    after.map(|after| format!(" within {after:?}")).unwrap_or_default()
}

fn list(mirrors: &[MirrorFailure]) -> String {
    mirrors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Each piece of advice once, in the order of the mirrors.
fn advice(mirrors: &[MirrorFailure]) -> String {
    let mut given: Vec<&str> = Vec::new();
    for mirror in mirrors {
        let advice = mirror.reason.advice();
        if !given.contains(&advice) {
            given.push(advice);
        }
    }
    given.join("; ")
}

/// An error with its causes, once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
