//! Whether a mirror is fast enough to be worth waiting for.

use std::time::Duration;

use crate::error::Reason;

/// The slowest that a mirror may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowest {
    /// So much must come …
    pub bytes: u64,
    /// … in each such time. It is only the time that is spent waiting for the mirror: a slow disk is not its fault.
    pub within: Duration,
}

impl Default for Slowest {
    /// Less than a modem from 1998: whoever is slower never ends.
    fn default() -> Self {
        Self { bytes: 128 * 1024, within: Duration::from_secs(20) }
    }
}

pub(crate) struct Pace {
    slowest: Slowest,
    waited: Duration,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(slowest: Slowest) -> Self {
        Self { slowest, waited: Duration::ZERO, bytes: 0 }
    }

    pub(crate) fn came(&mut self, bytes: u64, waited: Duration) -> Result<(), Reason> {
        self.bytes += bytes;
        self.waited += waited;
        if self.waited < self.slowest.within {
            return Ok(());
        }
        if self.bytes < self.slowest.bytes {
            return Err(Reason::TooSlow { bytes: self.bytes, within: self.waited });
        }
        *self = Self::new(self.slowest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_left_and_a_pause_after_much_is_not() {
        let second = Duration::from_secs(1);
        let slowest = Slowest { bytes: 100, within: 3 * second };
        let mut pace = Pace::new(slowest);
        assert!(pace.came(100, second).is_ok());
        assert!(pace.came(0, 2 * second).is_ok(), "enough came in this time");
        assert!(pace.came(49, second).is_ok());
        assert!(pace.came(50, second).is_ok(), "the time is not over");
        assert_eq!(pace.came(0, second), Err(Reason::TooSlow { bytes: 99, within: 3 * second }));
    }

    #[test]
    fn what_takes_no_waiting_is_never_too_slow() {
        let mut pace = Pace::new(Slowest::default());
        for _ in 0..100_000 {
            assert!(pace.came(1, Duration::ZERO).is_ok());
        }
    }
}
