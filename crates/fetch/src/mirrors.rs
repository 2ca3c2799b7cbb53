//! Round after round through the mirrors, until one is right, all are out, or the time is over.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::connect::Trust;
use crate::error::{FetchError, MirrorFailure, Reason, chain};
use crate::exchange;
use crate::location::{Location, redacted};
use crate::{Patience, Request};

/// What happens, for those who watch; shows no more of a URL than may be seen.
#[derive(Debug)]
pub enum Notice<'a> {
    Asking { what: &'a str, url: &'a str },
    Failed { url: &'a str, reason: &'a Reason },
    Resting { what: &'a str, rest: Duration },
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asking { what, url } => write!(f, "fetching {what} from {url}"),
            Self::Failed { url, reason } => write!(f, "{url}: {reason}"),
            Self::Resting { what, rest } => write!(f, "fetching {what} again in {} ms", rest.as_millis()),
        }
    }
}

struct Mirror {
    location: Result<Location, &'static str>,
    shown: String,
    attempts: u32,
    reason: Option<Reason>,
}

impl Mirror {
    fn new(url: &str) -> Self {
        let location = Location::parse(url);
        let reason = location.as_ref().err().map(|why| Reason::Url(why));
        Self { location, shown: redacted(url), attempts: 0, reason }
    }

    fn is_worth_asking(&self) -> bool {
        self.reason.as_ref().is_none_or(Reason::may_pass)
    }

    fn into_failure(self) -> MirrorFailure {
        MirrorFailure { url: self.shown, attempts: self.attempts, reason: self.reason.unwrap_or(Reason::NotAsked) }
    }
}

pub(crate) async fn ask<T, E: std::error::Error>(
    request: &Request<'_>,
    trust: &Trust,
    verify: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<T, FetchError> {
    let what = request.what;
    if request.urls.is_empty() {
        return Err(FetchError::NoMirror { what: what.to_owned() });
    }
    let patience = &request.patience;
    let mut mirrors: Vec<Mirror> = request.urls.iter().map(|url| Mirror::new(url)).collect();
    let started = Instant::now();
    let left = || patience.overall.saturating_sub(started.elapsed());
    let mut round = 0;
    while mirrors.iter().any(Mirror::is_worth_asking) {
        if round > 0 {
            let rest = decide_rest(patience, round, (request.random)());
            if rest >= left() {
                break;
            }
            (request.tell)(&Notice::Resting { what, rest });
            sleep(rest).await;
        }
        round += 1;
        for mirror in mirrors.iter_mut().filter(|mirror| mirror.is_worth_asking()) {
            let Ok(location) = &mirror.location else { continue };
            let allowed = patience.attempt.min(left());
            if allowed.is_zero() {
                break;
            }
            (request.tell)(&Notice::Asking { what, url: &mirror.shown });
            mirror.attempts += 1;
            let attempt = timeout(allowed, exchange::get(location, trust, patience, request.limit)).await;
            if attempt.is_err() && allowed < patience.attempt && mirror.reason.is_some() {
                // The time for everything is over; what this mirror said before tells more.
                break;
            }
            let late = Reason::TimedOut { waiting_for: "its whole answer", after: allowed };
            let verified = attempt
                .unwrap_or(Err(late))
                .and_then(|body| verify(&body).map_err(|error| Reason::Verification(chain(&error))));
            match verified {
                Ok(value) => return Ok(value),
                Err(reason) => {
                    (request.tell)(&Notice::Failed { url: &mirror.shown, reason: &reason });
                    mirror.reason = Some(reason);
                }
            }
        }
    }
    let gave_up_after = mirrors.iter().any(Mirror::is_worth_asking).then_some(patience.overall);
    let mirrors = mirrors.into_iter().map(Mirror::into_failure).collect();
    Err(FetchError::Mirrors { what: what.to_owned(), gave_up_after, mirrors })
}

/// Full jitter, so that a thousand nodes do not knock in step: uniform between zero and a ceiling that doubles.
pub(crate) fn decide_rest(patience: &Patience, rounds: u32, random: u64) -> Duration {
    let ceiling = patience.first_rest.saturating_mul(1 << (rounds - 1).min(31)).min(patience.longest_rest);
    let choices = ceiling.as_millis() + 1;
    Duration::from_millis(u64::try_from((u128::from(random) * choices) >> 64).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_a_ceiling_and_reach_both_ends() {
        let patience = Patience::new(Duration::from_secs(1));
        let longest = |rounds| decide_rest(&patience, rounds, u64::MAX).as_millis();
        assert_eq!([1, 2, 3, 6, 7, u32::MAX].map(longest), [200, 400, 800, 6_400, 10_000, 10_000]);
        assert_eq!(decide_rest(&patience, 9, 0), Duration::ZERO);
    }
}
