//! How long to rest before a step is tried again: full jitter, so that a thousand nodes do not knock in step.
//!
//! In: the attempt that failed, a random number, what is left of the deadline. Out: a rest, or none when the next
//! attempt could only start after the deadline. Fails: never.

use std::time::Duration;

/// A source of random numbers.
pub trait Jitter {
    /// Uniform over all of `u64`.
    fn random(&self) -> u64;
}

impl<F: Fn() -> u64> Jitter for F {
    fn random(&self) -> u64 {
        self()
    }
}

/// The rest before attempt n+1 is uniform between zero and `base · 2ⁿ⁻¹`, at most `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub base: Duration,
    pub cap: Duration,
}

impl Default for RetryPolicy {
    /// Starts below what people notice, and stays below what a deadline of half a minute can afford.
    fn default() -> Self {
        Self { base: Duration::from_millis(200), cap: Duration::from_secs(10) }
    }
}

impl RetryPolicy {
    /// The longest rest after this attempt failed; attempts count from one.
    pub fn ceiling(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// Whole milliseconds, as the journal writes it. `None`: the next attempt could only start after the deadline.
    pub fn decide_rest(&self, attempt: u32, random: u64, remaining: Duration) -> Option<Duration> {
        let choices = self.ceiling(attempt).as_millis() + 1;
        // The high half of the product spreads the random number over the choices without a division's bias.
        let millis = (u128::from(random) * choices) >> 64;
        let rest = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        (rest < remaining).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ceiling_doubles_from_base_to_cap_and_stays() {
        let policy = RetryPolicy::default();
        let ceilings: Vec<_> = [1, 2, 3, 6, 7, 40, u32::MAX].map(|n| policy.ceiling(n).as_millis()).into();
        assert_eq!(ceilings, [200, 400, 800, 6_400, 10_000, 10_000, 10_000]);
    }

    #[test]
    fn jitter_reaches_both_ends() {
        let policy = RetryPolicy::default();
        let rest = |random| policy.decide_rest(1, random, Duration::MAX);
        assert_eq!((rest(0), rest(u64::MAX)), (Some(Duration::ZERO), Some(Duration::from_millis(200))));
    }

    proptest! {
        #[test]
        fn a_rest_is_within_the_ceiling_and_ends_before_the_deadline(
            attempt: u32, random: u64, remaining_ms in 0..30_000_u64, base_ms in 0..5_000_u64, cap_ms in 0..20_000_u64,
        ) {
            let policy = RetryPolicy { base: Duration::from_millis(base_ms), cap: Duration::from_millis(cap_ms) };
            let remaining = Duration::from_millis(remaining_ms);
            match policy.decide_rest(attempt, random, remaining) {
                Some(rest) => prop_assert!(rest <= policy.ceiling(attempt) && rest < remaining),
                None => prop_assert!(policy.ceiling(attempt) >= remaining),
            }
        }
    }
}
