//! One question to one service, asked until it is answered or the time is over.

use tokio::time::{Instant, sleep, timeout};

use crate::Patience;
use crate::error::Reason;
use crate::mirrors::decide_rest;

/// Fails with how often it was asked, and the last reason.
pub(crate) async fn insist<T>(
    patience: &Patience,
    random: &dyn Fn() -> u64,
    attempt: impl AsyncFn() -> Result<T, Reason>,
) -> Result<T, (u32, Reason)> {
    let started = Instant::now();
    let left = || patience.overall.saturating_sub(started.elapsed());
    let (mut attempts, mut said) = (0, None);
    loop {
        attempts += 1;
        let allowed = patience.attempt.min(left());
        let reason = match timeout(allowed, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => reason,
            // The time for everything is over; what was said before tells more.
            Err(_) if allowed < patience.attempt && said.is_some() => break,
            Err(_) => Reason::TimedOut { waiting_for: "its answer", after: allowed },
        };
        let rest = reason.retry_after().unwrap_or_default() + decide_rest(patience, attempts, random());
        let goes_on = reason.may_pass() && rest < left();
        said = Some(reason);
        if !goes_on {
            break;
        }
        sleep(rest).await;
    }
    Err((attempts, said.unwrap_or(Reason::NotAsked)))
}

/// For the end of a message.
pub(crate) fn times(attempts: u32) -> String {
    match attempts {
        0 => String::new(),
        1 => " (tried once)".to_owned(),
        _ => format!(" (tried {attempts} times)"),
    }
}
