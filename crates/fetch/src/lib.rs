//! Bytes from elsewhere: over http(s), from S3 stores and from local files.
//!
//! | for | in, out |
//! |---|---|
//! | a small document ([`fetch`]) | its addresses and a function that tells whether a body is the right one; out: what that made of it |
//! | how large an object is ([`announced_size`]) | its addresses; out: what the first mirror says that has it |
//! | a large object ([`download`]) | its addresses, size and digest; out: all bytes in a [`Sink`], resumed where they were left off |
//! | a service that is asked several things ([`Dialogue`]) | one connection, no redirects; what an answer is worth is the caller's to say |
//! | a webhook ([`post`]) | one POST until somebody takes it |
//! | those who publish ([`Bucket`]) | put, look, list and delete in an S3 store |
//! | those who push ([`assets`]) | a folder, as bytes that another program carries, and its place on a node |
//!
//! Fails with an error that names every mirror with the reason it was given up for, and says what to do.
//!
//! ```text
//! each round:   mirror 1 ──→ mirror 2 ──→ … ──→ rest (full jitter, longer each round) ──→ next round
//!                  │ verified: done
//!                  │ transport error, too slow, 408, 429, 5xx: asked again in the next round, or when it says so
//!                  └ other status, other size, not verified, certificate or redirect refused: out
//! ```
//!
//! One place makes connections (`connect`): our own trust, time-outs and the spec's proxy; the environment is not asked.
//! Nothing is used before it is verified. The query of a URL may be a signature that opens a store, so it never appears in a
//! message; nor does a key, a token or a password.

pub mod assets;
mod bucket;
mod connect;
mod content;
mod dialogue;
mod digest;
mod download;
mod error;
mod exchange;
mod insist;
mod location;
mod mirrors;
mod pace;
mod place;
mod post;
mod proxy;
mod s3;
mod secret;
mod sigv4;
mod sink;
mod size;
pub mod squashfs;
pub mod store;
pub mod unpack;

use std::time::Duration;

use host::disk::Disk;
use hyper::StatusCode;
use hyper::header::HeaderMap;

pub use bucket::{Bucket, BucketError, Listed, Stored, Upload};
pub use dialogue::{Answer, Dialogue, Ending, NoAnswer, Question, Verb, Verdict};
pub use digest::{Digest, DigestError};
pub use download::{Completed, Download, Mixing, download};
pub use error::{FetchError, MirrorFailure, Reason};
pub use location::redacted;
pub use mirrors::Notice;
pub use pace::Slowest;
pub use post::{Post, PostError, post};
pub use proxy::Proxy;
pub use s3::{LONGEST_PRESIGNED, PresignError, S3, S3Settings, Style};
pub use secret::Secret;
pub use sigv4::Credentials;
pub use sink::{Sink, SinkError};
pub use size::announced_size;

use connect::Outbound;
use mirrors::Rounds;
use place::{Place, Target};

/// How mirrors are reached. The default: straight, by the system's authorities, and neither buckets nor local files.
#[derive(Clone, Copy, Default)]
pub struct Network<'a> {
    /// Certificate authorities (PEM) that are trusted beside those of the system.
    pub authorities: Option<&'a str>,
    pub proxy: Option<&'a Proxy>,
    /// For `s3://` places.
    pub s3: Option<S3<'a>>,
    /// For `file:` places.
    pub disk: Option<&'a dyn Disk>,
}

/// One small document that several mirrors may have.
pub struct Request<'a> {
    /// What is fetched, as people call it: it appears in messages.
    pub what: &'a str,
    /// Where the object is, the preferred mirror first.
    pub urls: &'a [String],
    pub network: Network<'a>,
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

    /// For objects of a hundred megabytes. Whether a mirror is too slow is for [`Slowest`] to say.
    pub fn of_download(overall: Duration) -> Self {
        Self { attempt: Duration::from_secs(900), ..Self::new(overall) }
    }
}

/// Asks the mirrors until one gives a body that `verify` accepts. Blocks the calling thread.
pub fn fetch<T, E: std::error::Error>(
    request: &Request<'_>,
    verify: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<T, FetchError> {
    let network = &request.network;
    let outbound = connect::Outbound::new(network.authorities, network.proxy)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
    let rounds = Rounds::new(request.what, &request.patience, request.random, request.tell);
    let urls: Vec<&str> = request.urls.iter().map(String::as_str).collect();
    let attempt = async |_: usize, place: &Place| {
        let body = read_whole(request, place, &outbound).await?;
        verify(&body).map_err(|error| Reason::Verification(error::chain(&error)).into())
    };
    let outcome = runtime.block_on(rounds.ask(&urls, attempt));
    // A name that is still being looked up must not hold up the answer.
    runtime.shutdown_background();
    outcome
}

async fn read_whole(request: &Request<'_>, place: &Place, outbound: &Outbound<'_>) -> Result<Vec<u8>, Reason> {
    let (network, limit, stall) = (&request.network, request.limit, request.patience.stall);
    let target = match place {
        Place::Web(location) => Target::web(location),
        Place::Bucket(object) => Target::object(object, network.s3.as_ref())?,
        Place::File(path) => {
            let disk = network.disk.ok_or(Reason::Url("local files cannot be fetched here"))?;
            let found = disk.read(path, limit as u64).map_err(|error| Reason::File(error::chain(&error)))?;
            return found.ok_or_else(|| Reason::File("there is no such file".to_owned()));
        }
    };
    let opened = exchange::get(&target, &HeaderMap::new(), outbound, &request.patience).await?;
    if opened.answer.status() != StatusCode::OK {
        return Err(exchange::refusal(opened.answer, target.dialect, stall).await);
    }
    exchange::refuse_encoded(opened.answer.headers())?;
    exchange::body(opened.answer, stall, limit).await
}
