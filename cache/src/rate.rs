//! How many metadata requests a second a source gets: a token bucket that refuses rather than making anybody wait longer
//! than a deadline.
//!
//! Owns the turns. A turn is taken when it is given out, so a caller that goes away while it waits wastes one, and the line
//! is never longer than the deadline. Called by `namespace.rs`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::error::{Error, ErrorKind, Result};
use crate::stats::{Counter, RateStats};

/// What may come at once after a quiet time: as much as in so long.
const BURST: Duration = Duration::from_secs(1);

/// A bound on requests.
#[derive(Debug)]
pub struct Rate {
    /// 0: no bound.
    per_second: u32,
    wait_max: Duration,
    /// When the bucket will be full again.
    full_at: Mutex<Option<Instant>>,
    delayed: Counter,
    delayed_us: Counter,
    refused: Counter,
}

impl Rate {
    /// At most `per_second` requests a second, and that many at once; 0: any number. Nobody waits longer than `wait_max`.
    pub fn new(per_second: u32, wait_max: Duration) -> Rate {
        Rate {
            per_second,
            wait_max,
            full_at: Mutex::new(None),
            delayed: Counter::default(),
            delayed_us: Counter::default(),
            refused: Counter::default(),
        }
    }

    /// Any number.
    pub fn unlimited() -> Rate {
        Rate::new(0, Duration::ZERO)
    }

    /// Waits for the turn of one request.
    ///
    /// # Errors
    /// `TimedOut` at once where the turn would not come in time. `what` names the request.
    pub(crate) async fn turn(&self, what: impl FnOnce() -> String) -> Result<()> {
        if self.per_second == 0 {
            return Ok(());
        }
        let now = Instant::now();
        let step = Duration::from_secs(1) / self.per_second;
        let turn = {
            let mut full_at = self.full_at.lock();
            let next = full_at.unwrap_or(now).max(now) + step;
            let turn = next.checked_sub(BURST).unwrap_or(now).max(now);
            if turn - now <= self.wait_max {
                *full_at = Some(next);
                Ok(turn)
            } else {
                Err(turn - now)
            }
        };
        match turn {
            Ok(turn) if turn == now => Ok(()),
            Ok(turn) => {
                self.delayed.add(1);
                self.delayed_us.add((turn - now).as_micros() as u64);
                sleep_until(turn).await;
                Ok(())
            }
            Err(wait) => {
                self.refused.add(1);
                let (what, rate) = (what(), self.per_second);
                Err(Error::new(
                    ErrorKind::TimedOut,
                    format!(
                        "{what}: its turn is {wait:.1?} away, since namenode_rate={rate} requests a second are all \
                         taken until then; raise namenode_rate or ttl, or look up fewer names"
                    ),
                ))
            }
        }
    }

    /// Notes that a request has cost `requests` more than its turn was for.
    pub(crate) fn charge(&self, requests: u64) {
        if self.per_second == 0 || requests == 0 {
            return;
        }
        let now = Instant::now();
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        let debt = (Duration::from_secs(1) / self.per_second).saturating_mul(requests);
        let mut full_at = self.full_at.lock();
        let before = full_at.unwrap_or(now).max(now);
        // A debt delays others, but not so long that they would be refused for it.
        let most = now + BURST + self.wait_max / 2;
        *full_at = Some((before + debt.min(BURST + self.wait_max)).min(most).max(before));
    }

    /// Requests that waited, how long, and that were refused.
    pub fn stats(&self) -> RateStats {
        RateStats {
            delayed: self.delayed.get(),
            delayed_ms: self.delayed_us.get() / 1000,
            refused: self.refused.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn a_second_s_worth_comes_at_once_and_the_rest_in_its_turn() {
        let rate = Arc::new(Rate::new(100, Duration::from_secs(10)));
        let begun = Instant::now();
        for _ in 0..100 {
            rate.turn(String::new).await.unwrap();
        }
        assert_eq!((begun.elapsed(), rate.stats().delayed), (Duration::ZERO, 0));
        let late: Vec<_> = (0..300)
            .map(|_| {
                let rate = rate.clone();
                tokio::spawn(async move { rate.turn(String::new).await.unwrap() })
            })
            .collect();
        for one in late {
            one.await.unwrap();
        }
        assert!(
            (2990..=3010).contains(&begun.elapsed().as_millis()),
            "{:?}",
            begun.elapsed()
        );
        let stats = rate.stats();
        assert_eq!((stats.delayed, stats.refused), (300, 0));
        assert!((445_000..=455_000).contains(&stats.delayed_ms), "{stats:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_refused_at_once_and_the_line_stays_short() {
        let rate = Rate::new(10, Duration::from_millis(50));
        for _ in 0..10 {
            rate.turn(String::new).await.unwrap();
        }
        let begun = Instant::now();
        let error = rate.turn(|| "status of /f".to_owned()).await.unwrap_err();
        assert_eq!(
            (error.kind(), begun.elapsed()),
            (ErrorKind::TimedOut, Duration::ZERO)
        );
        assert!(error.to_string().contains("namenode_rate=10"), "{error}");
        assert_eq!(rate.stats().refused, 1);
        tokio::time::advance(Duration::from_millis(100)).await;
        rate.turn(String::new).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_listing_delays_what_comes_after_it_and_refuses_nobody() {
        let rate = Rate::new(10, Duration::from_secs(1));
        rate.turn(String::new).await.unwrap();
        rate.charge(1_000_000);
        let begun = Instant::now();
        rate.turn(String::new).await.unwrap();
        assert!(
            begun.elapsed() > Duration::from_millis(500),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!((rate.stats().delayed, rate.stats().refused), (1, 0));
    }
}
