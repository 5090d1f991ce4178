//! When the disk tier is left alone: a disk that hangs, or is full.
//!
//! Owns two moments in monotonic time. Refuses to decide for good: both pass. Called by `disk.rs` and `writer.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock::Clock;

/// How long the tier is off after the disk did not answer.
const OFF: Duration = Duration::from_secs(30);
/// How long nothing is written after the disk was full.
const PAUSE: Duration = Duration::from_secs(5);

/// Why nothing is written for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The disk was full.
    Full,
    /// The tier is switched off: the disk did not answer, or its directory cannot be used.
    Off,
}

/// Whether the tier is in use.
#[derive(Debug)]
pub(super) struct Switch {
    clock: Clock,
    start: Instant,
    /// Milliseconds after `start`.
    off_until_ms: AtomicU64,
    paused_until_ms: AtomicU64,
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::new(Clock::system())
    }
}

impl Switch {
    fn new(clock: Clock) -> Switch {
        Switch {
            start: clock.now(),
            clock,
            off_until_ms: AtomicU64::new(0),
            paused_until_ms: AtomicU64::new(0),
        }
    }

    /// Whether nothing may be asked of the disk.
    pub(super) fn is_off(&self) -> bool {
        // Most of the time nothing was ever wrong, and no clock is asked.
        let until = self.off_until_ms.load(Ordering::Relaxed);
        until != 0 && self.now_ms() < until
    }

    /// Whether nothing may be written.
    pub(super) fn is_paused(&self) -> bool {
        self.rests().is_some()
    }

    /// Whether nothing may be written, and why.
    pub(super) fn rests(&self) -> Option<Rest> {
        if self.is_off() {
            return Some(Rest::Off);
        }
        let until = self.paused_until_ms.load(Ordering::Relaxed);
        (until != 0 && self.now_ms() < until).then_some(Rest::Full)
    }

    pub(super) fn off_for_a_while(&self, why: &str) {
        if !self.is_off() {
            tracing::warn!(
                seconds = OFF.as_secs(),
                "the disk tier is switched off for a while: {why}"
            );
        }
        self.off_until_ms.store(self.after(OFF), Ordering::Relaxed);
    }

    pub(super) fn pause_writing(&self) {
        self.paused_until_ms.store(self.after(PAUSE), Ordering::Relaxed);
    }

    fn after(&self, wait: Duration) -> u64 {
        self.now_ms() + wait.as_millis() as u64
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().saturating_duration_since(self.start).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_and_paused_pass_in_time() {
        let clock = Clock::movable();
        let switch = Switch::new(clock.clone());
        assert!(!switch.is_off() && !switch.is_paused());
        switch.pause_writing();
        assert!(!switch.is_off() && switch.is_paused());
        assert_eq!(switch.rests(), Some(Rest::Full));
        clock.advance(PAUSE);
        assert!(!switch.is_paused());
        switch.off_for_a_while("a test");
        assert!(switch.is_off() && switch.is_paused());
        assert_eq!(switch.rests(), Some(Rest::Off));
        clock.advance(OFF - Duration::from_millis(10));
        assert!(switch.is_off());
        clock.advance(Duration::from_millis(10));
        assert!(!switch.is_off() && !switch.is_paused());
    }
}
