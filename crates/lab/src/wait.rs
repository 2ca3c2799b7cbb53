//! Waiting with a name and a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

/// Short enough that a test does not notice, long enough that polling with a program does not fill a core.
const PAUSE: Duration = Duration::from_millis(100);

/// Wraps an error that more waiting cannot cure; [`wait_until`] gives up at once when it sees one.
#[derive(Debug)]
pub struct Fatal(pub String);

impl std::fmt::Display for Fatal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fatal {}

/// Tries until there is a value. An error counts as "not yet" and is shown if the deadline passes; a [`Fatal`] ends the wait.
pub fn wait_until<T>(what: &str, deadline: Duration, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        let last = match attempt() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) if error.is::<Fatal>() => return Err(error.context(format!("waiting for {what}"))),
            Err(error) => Some(error),
        };
        if start.elapsed() >= deadline {
            let late = format!("{what}: not within {} s", deadline.as_secs());
            return Err(last.map_or_else(|| anyhow!("{late}"), |error| error.context(late.clone())));
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_passes_its_deadline_names_what_it_waited_for_and_the_last_error() {
        let error = wait_until::<()>("tea", Duration::ZERO, || Err(anyhow!("no kettle"))).expect_err("never ready");
        assert_eq!(format!("{error:#}"), "tea: not within 0 s: no kettle");
    }

    #[test]
    fn a_fatal_error_ends_the_wait_at_once() {
        let mut attempts = 0;
        let error = wait_until::<()>("tea", Duration::from_secs(3600), || {
            attempts += 1;
            Err(Fatal("the kettle is broken".into()).into())
        })
        .expect_err("fatal");
        assert_eq!((attempts, format!("{error:#}").as_str()), (1, "waiting for tea: the kettle is broken"));
    }
}
