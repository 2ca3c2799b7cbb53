//! Time that passes only when told to.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

/// `sleep` returns at once and moves both clocks.
pub struct FakeClock {
    state: Mutex<State>,
}

struct State {
    wall_ms: u64,
    monotonic: Duration,
    slept: Vec<Duration>,
    /// When the wall clock will be set, and to what.
    to_set: Option<(Duration, u64)>,
}

impl FakeClock {
    /// Starts at this wall time, in milliseconds since 1970.
    pub fn new(wall_ms: u64) -> Self {
        let state = State { wall_ms, monotonic: Duration::ZERO, slept: Vec::new(), to_set: None };
        Self { state: Mutex::new(state) }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.with(|state| state.wall_ms)
    }

    pub fn monotonic(&self) -> Duration {
        self.with(|state| state.monotonic)
    }

    pub fn sleep(&self, duration: Duration) {
        self.advance(duration);
        self.with(|state| state.slept.push(duration));
    }

    pub fn advance(&self, duration: Duration) {
        self.with(|state| {
            state.wall_ms = state.wall_ms.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
            state.monotonic = state.monotonic.saturating_add(duration);
            if let Some((_, wall_ms)) = state.to_set.take_if(|(at, _)| *at <= state.monotonic) {
                state.wall_ms = wall_ms;
            }
        });
    }

    /// The wall clock jumps (a first time sync); monotonic time does not.
    pub fn set_wall(&self, wall_ms: u64) {
        self.with(|state| state.wall_ms = wall_ms);
    }

    /// Somebody sets the wall clock once so much time has passed from now on.
    pub fn set_wall_after(&self, after: Duration, wall_ms: u64) {
        self.with(|state| state.to_set = Some((state.monotonic.saturating_add(after), wall_ms)));
    }

    /// Every sleep so far: what a retry policy really waited.
    pub fn slept(&self) -> Vec<Duration> {
        self.with(|state| state.slept.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_moves_both_clocks_and_a_jump_only_one() {
        let clock = FakeClock::new(1_000);
        clock.sleep(Duration::from_secs(2));
        assert_eq!((clock.now_ms(), clock.monotonic()), (3_000, Duration::from_secs(2)));
        clock.set_wall(9);
        assert_eq!((clock.now_ms(), clock.monotonic()), (9, Duration::from_secs(2)));
        assert_eq!(clock.slept(), [Duration::from_secs(2)]);
    }

    #[test]
    fn a_clock_that_is_set_later_is_set_once_and_in_time() {
        let clock = FakeClock::new(0);
        clock.advance(Duration::from_secs(1));
        clock.set_wall_after(Duration::from_secs(2), 70_000);
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now_ms(), 2_000);
        clock.sleep(Duration::from_secs(1));
        assert_eq!((clock.now_ms(), clock.monotonic()), (70_000, Duration::from_secs(3)));
        clock.sleep(Duration::from_secs(1));
        assert_eq!(clock.now_ms(), 71_000);
    }
}
