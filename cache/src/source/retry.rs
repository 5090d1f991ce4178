//! Tries again what may pass: exponential back-off with jitter, a bounded number of times, inside a deadline.

use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Pauses that double, each shortened at random so that callers that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST_PAUSE }
    }

    /// The length of the next pause: between half and the whole of it.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        // Without randomness a whole pause will do.
        let random = OsRng.try_next_u32().unwrap_or(u32::MAX);
        pause.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
    }

    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.next_pause()).await;
    }
}
