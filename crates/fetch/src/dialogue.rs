//! Several questions to one service, over one connection that is kept, each asked until it is answered or the time is over.
//!
//! What an answer is worth is for the caller to say ([`Verdict`]). A redirect is an answer like any other: it is never
//! followed. The time for everything begins with the dialogue, so that a service that is slow at the first question has
//! less time for the last.

use std::fmt;
use std::time::Duration;

use hyper::Method;
use hyper::header::CONTENT_LENGTH;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

use crate::connect::{Arrival, Outbound};
use crate::content::Content;
use crate::error::{FetchError, Reason};
use crate::exchange::{Connection, body, question};
use crate::location::Location;
use crate::mirrors::decide_rest;
use crate::{Patience, redacted};

/// One service, by all the addresses that it has.
pub struct Dialogue<'a> {
    runtime: Runtime,
    /// Link-local addresses are never reached through a proxy.
    outbound: Outbound<'static>,
    addresses: Vec<Location>,
    /// Which of the addresses is asked now.
    turn: usize,
    connection: Option<Connection<'static>>,
    patience: Patience,
    started: Instant,
    random: &'a dyn Fn() -> u64,
    tell: &'a dyn Fn(&str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    /// Without a body.
    Put,
}

pub struct Question<'a> {
    /// What is asked for, as people call it: it appears in messages.
    pub what: &'a str,
    pub verb: Verb,
    /// With its query; it appears in messages, so it must hold no secret.
    pub path: &'a str,
    pub headers: &'a [(&'static str, &'a str)],
    /// The largest body that is taken, in bytes.
    pub limit: usize,
}

pub struct Answer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    /// Empty unless the status is 200.
    pub body: Vec<u8>,
}

/// What an answer is worth.
pub enum Verdict<T> {
    Take(T),
    /// It may be better next time; says what is wrong now.
    Again(String),
    /// Asking again would not help; says why.
    Stop(String),
}

/// A question to which no answer came that could be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} from {url}: {reason} ({})", asked(*.attempts, *.waited))]
pub struct NoAnswer {
    pub what: String,
    pub url: String,
    /// Of the last attempt that told anything.
    pub reason: String,
    pub attempts: u32,
    /// Since the question was asked first.
    pub waited: Duration,
    pub ending: Ending,
}

/// Why a question is no longer asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It may be answered later, without anybody doing anything.
    TimeOver,
    /// Whoever asked was told not to ask again.
    Refused,
    TooLarge,
}

fn asked(attempts: u32, waited: Duration) -> impl fmt::Display {
    let times = match attempts {
        0 => "not asked before the time was over".to_owned(),
        1 => "asked once".to_owned(),
        more => format!("asked {more} times"),
    };
    format!("{times}, waited {:.1} s", waited.as_secs_f64())
}

impl<'a> Dialogue<'a> {
    /// `addresses` are those of one and the same service, such as `http://169.254.169.254`, the preferred one first.
    pub fn begin(
        addresses: &[String],
        patience: Patience,
        random: &'a dyn Fn() -> u64,
        tell: &'a dyn Fn(&str),
    ) -> Result<Self, FetchError> {
        let what = || "the metadata".to_owned();
        let parse = |address: &String| Location::parse(address);
        let addresses: Vec<Location> =
            addresses.iter().map(parse).collect::<Result<_, _>>().map_err(|_| FetchError::NoMirror { what: what() })?;
        if addresses.is_empty() {
            return Err(FetchError::NoMirror { what: what() });
        }
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
        let outbound = Outbound::new(None, None)?;
        Ok(Self {
            runtime,
            outbound,
            addresses,
            turn: 0,
            connection: None,
            patience,
            started: Instant::now(),
            random,
            tell,
        })
    }

    /// Where a path lies that is asked for now.
    pub fn url(&self, path: &str) -> String {
        let address = self.addresses.get(self.turn).map(|location| redacted(&location.to_string())).unwrap_or_default();
        format!("{}{path}", address.trim_end_matches('/'))
    }

    /// Asks until `judge` takes or refuses an answer, or the time is over. `judge` also hears for how long this question
    /// has been asked. Blocks the calling thread.
    pub fn ask<T>(
        &mut self,
        question: &Question<'_>,
        judge: impl Fn(&Answer, Duration) -> Verdict<T>,
    ) -> Result<T, NoAnswer> {
        let began = Instant::now();
        let mut trouble = NoAnswer {
            what: question.what.to_owned(),
            url: self.url(question.path),
            reason: "the time for all questions was over".to_owned(),
            attempts: 0,
            waited: Duration::ZERO,
            ending: Ending::TimeOver,
        };
        while !self.left().is_zero() {
            let allowed = self.patience.attempt.min(self.left());
            let (url, was_open) = (self.url(question.path), self.connection.is_some());
            let verdict = match self.attempt(question, allowed) {
                Ok(answer) => judge(&answer, began.elapsed()),
                Err(why @ Reason::TooLarge { .. }) => {
                    trouble.ending = Ending::TooLarge;
                    Verdict::Again(why.to_string())
                }
                // A server may close a connection that was kept; that says nothing about this question.
                Err(Reason::Exchange(_)) if was_open => continue,
                // The time for everything is over; what was said before tells more.
                Err(Reason::TimedOut { .. }) if allowed < self.patience.attempt && trouble.attempts > 0 => break,
                Err(why) => Verdict::Again(why.to_string()),
            };
            let reason = match verdict {
                Verdict::Take(value) => return Ok(value),
                Verdict::Again(reason) => reason,
                Verdict::Stop(reason) => {
                    trouble.ending = Ending::Refused;
                    reason
                }
            };
            (self.tell)(&format!("{url}: {reason}"));
            trouble = NoAnswer { url, reason, attempts: trouble.attempts + 1, ..trouble };
            let rest = decide_rest(&self.patience, trouble.attempts, (self.random)());
            if trouble.ending != Ending::TimeOver || rest >= self.left() {
                break;
            }
            self.runtime.block_on(async { sleep(rest).await });
        }
        Err(NoAnswer { waited: began.elapsed(), ..trouble })
    }

    fn left(&self) -> Duration {
        self.patience.overall.saturating_sub(self.started.elapsed())
    }

    fn attempt(&mut self, asked: &Question<'_>, allowed: Duration) -> Result<Answer, Reason> {
        let Self { runtime, outbound, addresses, turn, connection, patience, .. } = self;
        let Some(location) = addresses.get(*turn) else { return Err(Reason::NotAsked) };
        let mut open = connection.take();
        let outcome = runtime.block_on(async {
            let exchange = async {
                if open.is_none() {
                    open = Some(Connection::open(location, Arrival::Named, outbound, patience).await?);
                }
                let Some(connection) = open.as_mut() else { return Err(Reason::NotAsked) };
                exchange(connection, location, asked, patience.stall).await
            };
            let late = Reason::TimedOut { waiting_for: "its whole answer", after: allowed };
            timeout(allowed, exchange).await.unwrap_or(Err(late))
        });
        match &outcome {
            Ok(answer) if answer.status == 200 => *connection = open,
            Ok(_) => {}
            // Nobody is there: perhaps at another address.
            Err(Reason::Connect(_) | Reason::Lookup(_)) | Err(Reason::TimedOut { .. }) => {
                *turn = (*turn + 1) % addresses.len();
            }
            Err(_) => {}
        }
        outcome
    }
}

async fn exchange(
    connection: &mut Connection<'_>,
    location: &Location,
    asked: &Question<'_>,
    stall: Duration,
) -> Result<Answer, Reason> {
    let mut builder = match asked.verb {
        Verb::Get => question(Method::GET, location, asked.path),
        Verb::Put => question(Method::PUT, location, asked.path).header(CONTENT_LENGTH, 0),
    };
    for (name, value) in asked.headers {
        builder = builder.header(*name, *value);
    }
    let answer = connection.ask(builder, Content::empty(), stall).await?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    // The page that comes with a refusal is of no use, and may have no end.
    let body = if status == 200 { body(answer, stall, asked.limit).await? } else { Vec::new() };
    Ok(Answer { status, headers, body })
}
