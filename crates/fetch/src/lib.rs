//! Verified bytes over http(s).
//!
//! In: the addresses of one object on several mirrors, how long to wait for what, and a function that tells whether a
//! body is the right one ([`Request`]). Out: what that function made of the body. Fails with [`FetchError`], which names
//! every mirror with the reason it was given up for, and says what to do.
//!
//! ```text
//! each round:   mirror 1 ──→ mirror 2 ──→ … ──→ rest (full jitter, longer each round) ──→ next round
//!                  │ verified: done
//!                  │ transport error, 408, 429, 5xx: asked again in the next round
//!                  └ other status, too large, not verified, certificate or redirect refused: out
//! ```
//!
//! A service that is asked several things, each of which depends on the answer before (a metadata service), is a
//! [`Dialogue`]: one connection, no redirects, and the same rests.
//!
//! Nothing is written, and nothing is used before it is verified. Neither the environment nor a proxy is asked. The query
//! of a URL may be a signature that opens a store, so it never appears in a message.

mod connect;
mod dialogue;
mod digest;
mod error;
mod exchange;
mod location;
mod mirrors;
mod post;
mod sink;
pub mod store;
pub mod unpack;

use std::time::Duration;

pub use dialogue::{Answer, Dialogue, Ending, NoAnswer, Question, Verb, Verdict};
pub use digest::{Digest, DigestError};
pub use error::{FetchError, MirrorFailure, Reason};
pub use location::redacted;
pub use mirrors::Notice;
pub use post::{Post, PostError, post};
pub use sink::{Sink, SinkError};

/// One object that several mirrors may have.
pub struct Request<'a> {
    /// What is fetched, as people call it: it appears in messages.
    pub what: &'a str,
    /// Where the object is, the preferred mirror first.
    pub urls: &'a [String],
    /// Certificate authorities (PEM) that are trusted beside those of the system.
    pub authorities: Option<&'a str>,
    /// The largest body that is taken, in bytes.
    pub limit: usize,
    pub patience: Patience,
    /// Uniform over all of `u64`: for the jitter between rounds.
    pub random: &'a dyn Fn() -> u64,
    /// Told of every attempt.
    pub tell: &'a dyn Fn(&Notice<'_>),
}

/// How long each wait may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the name to a connection that is ready to be asked.
    pub connect: Duration,
    /// Between two signs of life of a mirror.
    pub stall: Duration,
    /// For one attempt at one mirror, redirects included: a mirror that trickles must not use up the time of the others.
    pub attempt: Duration,
    /// For everything.
    pub overall: Duration,
    /// The longest rest after the first round; it doubles with each round.
    pub first_rest: Duration,
    pub longest_rest: Duration,
}

impl Patience {
    /// For objects of a few megabytes: a mirror that needs longer is overloaded or too far away.
    pub fn new(overall: Duration) -> Self {
        Self {
            connect: Duration::from_secs(5),
            stall: Duration::from_secs(10),
            attempt: Duration::from_secs(30),
            overall,
            first_rest: Duration::from_millis(200),
            longest_rest: Duration::from_secs(10),
        }
    }
}

/// Asks the mirrors until one gives a body that `verify` accepts. Blocks the calling thread.
pub fn fetch<T, E: std::error::Error>(
    request: &Request<'_>,
    verify: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<T, FetchError> {
    let trust = connect::Trust::new(request.authorities)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
    let outcome = runtime.block_on(mirrors::ask(request, &trust, verify));
    // A name that is still being looked up must not hold up the answer.
    runtime.shutdown_background();
    outcome
}
