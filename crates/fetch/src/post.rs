//! Telling somebody: one POST of a small JSON document, again and again within a deadline.
//!
//! In: a [`Post`]. Out: nothing; any 2xx is enough, and what else the answer says is not read. Fails with [`PostError`].
//!
//! Headers carry secrets, and so may the path of the address: messages show its host only. A redirect is not followed, for it
//! would carry the secrets to somebody else.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Builder;

use crate::Patience;
use crate::connect::{Arrival, Outbound};
use crate::content::Content;
use crate::error::{FetchError, Reason};
use crate::exchange::{Connection, head};
use crate::insist::{insist, times};
use crate::location::Location;

pub struct Post<'a> {
    pub url: &'a str,
    /// Certificate authorities (PEM) that are trusted beside those of the system.
    pub authorities: Option<&'a str>,
    /// Secrets.
    pub headers: &'a BTreeMap<String, String>,
    /// JSON.
    pub body: &'a [u8],
    /// For everything.
    pub deadline: Duration,
    /// Uniform over all of `u64`: for the jitter between attempts.
    pub random: &'a dyn Fn() -> u64,
}

#[derive(Debug)]
pub struct PostError {
    /// The host alone.
    to: String,
    attempts: u32,
    problem: String,
}

impl std::error::Error for PostError {}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, attempts, problem } = self;
        write!(f, "cannot tell {to}: {problem}{}", times(*attempts))
    }
}

/// Blocks the calling thread until somebody has taken it, or the deadline is over.
pub fn post(post: &Post<'_>) -> Result<(), PostError> {
    let fail = |to: &str, problem: String| PostError { to: to.to_owned(), attempts: 0, problem };
    let location = Location::parse(post.url).map_err(|why| fail("the webhook", why.to_owned()))?;
    let to = location.authority().to_owned();
    let outbound = Outbound::new(post.authorities, None).map_err(|error| fail(&to, error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&to, FetchError::Runtime(error).to_string()))?;
    // Whoever listens is near: a node that failed should be known to have failed soon after they are back. One wait is as
    // long as all, so what is left for everything ends it.
    let all = post.deadline;
    let patience =
        Patience { connect: all, stall: all, attempt: all, longest_rest: Duration::from_secs(3), ..Patience::new(all) };
    let attempt = async || once(post, &location, &outbound, &patience).await;
    let outcome = runtime.block_on(insist(&patience, post.random, attempt));
    // A name that is still being looked up must not hold up the end.
    runtime.shutdown_background();
    outcome.map_err(|(attempts, reason)| PostError { to, attempts, problem: reason.to_string() })
}

async fn once(
    post: &Post<'_>,
    location: &Location,
    outbound: &Outbound<'_>,
    patience: &Patience,
) -> Result<(), Reason> {
    let question = question(post, location)?;
    let mut connection = Connection::open(location, Arrival::Named, outbound, patience).await?;
    let answer = connection.ask(question, Content::bytes(Bytes::copy_from_slice(post.body)), patience.stall).await?;
    let status = answer.status();
    match status.as_u16() {
        200..=299 => Ok(()),
        300..=399 => {
            Err(Reason::Redirect("it would carry the report, and what opens the webhook, elsewhere".to_owned()))
        }
        _ => Err(Reason::answered(status, answer.headers())),
    }
}

fn question(post: &Post<'_>, location: &Location) -> Result<Builder, Reason> {
    let mut question = head(Method::POST, location, location.target())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close");
    for (name, value) in post.headers {
        let unusable = Reason::Url("one of the headers cannot be sent");
        let name = HeaderName::try_from(name).map_err(|_| unusable.clone())?;
        let mut value = HeaderValue::try_from(value).map_err(|_| unusable)?;
        value.set_sensitive(true);
        question = question.header(name, value);
    }
    Ok(question)
}
