//! Time of the machine, as plain numbers; the trait above it belongs to whoever schedules.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Default)]
pub struct LinuxClock;

impl LinuxClock {
    pub fn new() -> Self {
        Self
    }

    /// Milliseconds since 1970; 0 while the clock stands before that. May jump.
    pub fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Since boot; never jumps and never goes back. For durations and deadlines.
    pub fn monotonic(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    pub fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let before = LinuxClock.monotonic();
        LinuxClock.sleep(Duration::from_millis(2));
        assert!(LinuxClock.monotonic() >= before + Duration::from_millis(2));
        assert!(LinuxClock.now_ms() > 1_700_000_000_000);
    }
}
