//! Round after round through the mirrors, until one is right, all are out, or the time is over.

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::Patience;
use crate::error::{FetchError, MirrorFailure, Reason};
use crate::location::redacted;
use crate::place::Place;
use crate::sink::SinkError;

/// What happens, for those who watch; shows no more of a URL than may be seen.
#[derive(Debug)]
pub enum Notice<'a> {
    Asking {
        what: &'a str,
        url: &'a str,
    },
    Failed {
        url: &'a str,
        reason: &'a Reason,
    },
    Resting {
        what: &'a str,
        rest: Duration,
    },
    /// Whenever another hundredth is there.
    Progress {
        what: &'a str,
        bytes: u64,
        of: u64,
    },
    /// What was there of it could not be used.
    StartingOver {
        what: &'a str,
        why: &'a str,
    },
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asking { what, url } => write!(f, "fetching {what} from {url}"),
            Self::Failed { url, reason } => write!(f, "{url}: {reason}"),
            Self::Resting { what, rest } => write!(f, "fetching {what} again in {} ms", rest.as_millis()),
            Self::Progress { what, bytes, of } => write!(f, "{what}: {} of {} MB", tenths(*bytes), tenths(*of)),
            Self::StartingOver { what, why } => write!(f, "fetching {what} from its beginning: {why}"),
        }
    }
}

/// Of megabytes, for people.
fn tenths(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Why an attempt came to nothing.
pub(crate) enum Trouble {
    /// It lies with the mirror.
    Mirror(Reason),
    /// It lies with us: no mirror could do better.
    Sink(SinkError),
}

impl From<Reason> for Trouble {
    fn from(reason: Reason) -> Self {
        Self::Mirror(reason)
    }
}

impl From<SinkError> for Trouble {
    fn from(error: SinkError) -> Self {
        Self::Sink(error)
    }
}

struct Mirror {
    place: Result<Place, &'static str>,
    shown: String,
    attempts: u32,
    reason: Option<Reason>,
    not_before: Option<Instant>,
}

impl Mirror {
    fn new(url: &str) -> Self {
        let place = Place::parse(url);
        let reason = place.as_ref().err().map(|why| Reason::Url(why));
        Self { place, shown: redacted(url), attempts: 0, reason, not_before: None }
    }

    fn is_worth_asking(&self) -> bool {
        self.reason.as_ref().is_none_or(Reason::may_pass)
    }

    /// Those that kept us waiting come last in the next round.
    fn is_slow(&self) -> bool {
        matches!(self.reason, Some(Reason::TimedOut { .. } | Reason::TooSlow { .. }))
    }

    /// For how long it still wants to be left alone.
    fn delay(&self) -> Duration {
        self.not_before.map_or(Duration::ZERO, |moment| moment.saturating_duration_since(Instant::now()))
    }

    fn failed(&mut self, reason: Reason) {
        self.not_before = reason.retry_after().map(|delay| Instant::now() + delay);
        self.reason = Some(reason);
    }

    fn into_failure(self) -> MirrorFailure {
        MirrorFailure { url: self.shown, attempts: self.attempts, reason: self.reason.unwrap_or(Reason::NotAsked) }
    }
}

/// How mirrors are asked, whatever for.
pub(crate) struct Rounds<'a> {
    what: &'a str,
    patience: &'a Patience,
    random: &'a dyn Fn() -> u64,
    tell: &'a dyn Fn(&Notice<'_>),
    started: Instant,
    /// An attempt came nearer to the end before it failed: the rests begin anew.
    pub(crate) advanced: Cell<bool>,
}

impl<'a> Rounds<'a> {
    /// The time for everything begins now.
    pub(crate) fn new(
        what: &'a str,
        patience: &'a Patience,
        random: &'a dyn Fn() -> u64,
        tell: &'a dyn Fn(&Notice<'_>),
    ) -> Self {
        Self { what, patience, random, tell, started: Instant::now(), advanced: Cell::default() }
    }

    /// `attempt` gets the number of the mirror, counted from 0, and where it is.
    pub(crate) async fn ask<T>(
        &self,
        urls: &[&str],
        mut attempt: impl AsyncFnMut(usize, &Place) -> Result<T, Trouble>,
    ) -> Result<T, FetchError> {
        let what = self.what;
        if urls.is_empty() {
            return Err(FetchError::NoMirror { what: what.to_owned() });
        }
        let patience = self.patience;
        let mut mirrors: Vec<Mirror> = urls.iter().map(|url| Mirror::new(url)).collect();
        let left = || patience.overall.saturating_sub(self.started.elapsed());
        let mut round = 0;
        'rounds: while mirrors.iter().any(Mirror::is_worth_asking) {
            if round > 0 {
                let soonest = mirrors.iter().filter(|mirror| mirror.is_worth_asking()).map(Mirror::delay).min();
                let rest = soonest.unwrap_or_default() + decide_rest(patience, round, (self.random)());
                if rest >= left() {
                    break;
                }
                (self.tell)(&Notice::Resting { what, rest });
                sleep(rest).await;
            }
            round = if self.advanced.take() { 1 } else { round + 1 };
            for number in order(&mirrors) {
                let Some(mirror) = mirrors.get_mut(number) else { continue };
                let Ok(place) = &mirror.place else { continue };
                let allowed = patience.attempt.min(left());
                if allowed.is_zero() {
                    break;
                }
                (self.tell)(&Notice::Asking { what, url: &mirror.shown });
                mirror.attempts += 1;
                let reason = match timeout(allowed, attempt(number, place)).await {
                    Ok(Ok(value)) => return Ok(value),
                    Ok(Err(Trouble::Sink(source))) => return Err(FetchError::Sink { what: what.to_owned(), source }),
                    Ok(Err(Trouble::Mirror(reason))) => reason,
                    // The time for everything is over; what this mirror said before tells more.
                    Err(_) if allowed < patience.attempt && mirror.reason.is_some() => break 'rounds,
                    Err(_) => Reason::TimedOut { waiting_for: "its whole answer", after: allowed },
                };
                (self.tell)(&Notice::Failed { url: &mirror.shown, reason: &reason });
                mirror.failed(reason);
            }
        }
        let gave_up_after = mirrors.iter().any(Mirror::is_worth_asking).then_some(patience.overall);
        let mirrors = mirrors.into_iter().map(Mirror::into_failure).collect();
        Err(FetchError::Mirrors { what: what.to_owned(), gave_up_after, mirrors })
    }
}

/// Who is asked in this round, the best first.
fn order(mirrors: &[Mirror]) -> Vec<usize> {
    let asked = mirrors.iter().enumerate().filter(|(_, mirror)| mirror.is_worth_asking() && mirror.delay().is_zero());
    let mut asked: Vec<(bool, usize)> = asked.map(|(number, mirror)| (mirror.is_slow(), number)).collect();
    asked.sort_unstable();
    asked.into_iter().map(|(_, number)| number).collect()
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
