//! One question to one service, asked until it is answered or the time is over.

use std::time::Duration;

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
    let mut attempts = 0;
    loop {
        attempts += 1;
        let allowed = patience.attempt.min(left());
        let late = Reason::TimedOut { waiting_for: "its answer", after: allowed };
        let reason = match timeout(allowed, attempt()).await.unwrap_or(Err(late)) {
            Ok(value) => return Ok(value),
            Err(reason) => reason,
        };
        let asked_for: Duration = reason.retry_after().unwrap_or_default();
        let rest = asked_for + decide_rest(patience, attempts, random());
        if !reason.may_pass() || rest >= left() {
            return Err((attempts, reason));
        }
        sleep(rest).await;
    }
}

/// For the end of a message.
pub(crate) fn times(attempts: u32) -> String {
    match attempts {
        0 => String::new(),
        1 => " (tried once)".to_owned(),
        _ => format!(" (tried {attempts} times)"),
    }
}
