//! How fast warming may fetch: whoever pays for bytes waits until the rate has brought them forth.
//!
//! Owns the moment from which the rate is free again. Refuses to save up: what was not used before is gone, so a pause
//! brings no burst. Called by `job.rs` for each step.

use std::time::{Duration, Instant};

use lookupfs_cache::clock::Clock;
use parking_lot::Mutex;

/// A rate in bytes a second, shared by all who fetch.
#[derive(Debug)]
pub struct Bucket {
    bytes_per_s: u64,
    clock: Clock,
    free_at: Mutex<Instant>,
}

impl Bucket {
    /// `bytes_per_s` is at least 1.
    pub fn new(bytes_per_s: u64, clock: Clock) -> Bucket {
        let free_at = Mutex::new(clock.now());
        Bucket {
            bytes_per_s: bytes_per_s.max(1),
            clock,
            free_at,
        }
    }

    /// Takes `bytes`, and says how long to wait for them.
    pub fn pay(&self, bytes: u64) -> Duration {
        let now = self.clock.now();
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        let price = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock();
        let from = (*free_at).max(now);
        // A time beyond what the clock can show is as good as for ever: the daemon does not run so long.
        *free_at = from.checked_add(price).unwrap_or(from);
        free_at.saturating_duration_since(now)
    }

    /// The largest step that keeps a stream of them even: a quarter of a second's bytes.
    pub fn step_bytes(&self) -> u64 {
        self.bytes_per_s / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookupfs_cache::clock::Clock;

    #[test]
    fn any_number_of_payers_stay_under_the_rate() {
        let clock = Clock::movable();
        let begun = clock.now();
        let bucket = Bucket::new(1 << 20, clock.clone());
        // Eight payers who each fetch again as soon as they may; steps of all sizes.
        let mut ready: Vec<Instant> = vec![begun; 8];
        let mut fetched = 0u64;
        for step in 0..10_000u64 {
            let payer = (0..8).min_by_key(|at| ready[*at]).unwrap();
            clock.advance(ready[payer].saturating_duration_since(clock.now()));
            let now = clock.now();
            // What is under way beyond the rate is at most one step of each payer.
            let allowed = now.duration_since(begun).as_secs_f64() * f64::from(1 << 20);
            assert!(
                fetched as f64 <= allowed + 8.0 * 65_536.0,
                "{fetched} of {allowed}"
            );
            let bytes = step * 2_654_435_761 % 65_536;
            fetched += bytes;
            ready[payer] = now + bucket.pay(bytes);
        }
        let spent = clock.now().duration_since(begun).as_secs_f64();
        assert!(spent >= (fetched - 8 * 65_536) as f64 / f64::from(1 << 20));
        assert!(
            spent <= 2.0 + fetched as f64 / f64::from(1 << 20),
            "and no slower"
        );
    }

    #[test]
    fn a_pause_is_not_saved_up_and_no_number_overflows() {
        let clock = Clock::movable();
        let bucket = Bucket::new(1000, clock.clone());
        clock.advance(Duration::from_secs(3600));
        assert!(bucket.pay(1000) >= Duration::from_millis(999));
        let _ = Bucket::new(0, clock.clone()).pay(u64::MAX);
        let wait = Bucket::new(u64::MAX, clock).pay(1 << 20);
        assert!(wait < Duration::from_millis(1));
    }
}
