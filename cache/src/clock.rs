//! The one door to monotonic time, so that tests move time instead of sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A monotonic clock. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Nanoseconds added to the system's clock; only tests ever change it.
    ahead_ns: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Clock {
        Clock::default()
    }

    /// A clock that [`Clock::advance`] can move ahead of the system's.
    pub fn movable() -> Clock {
        Clock {
            ahead_ns: Some(Arc::default()),
        }
    }

    /// Now.
    pub fn now(&self) -> Instant {
        let ahead_ns = self
            .ahead_ns
            .as_ref()
            .map_or(0, |ahead| ahead.load(Ordering::Relaxed));
        Instant::now() + Duration::from_nanos(ahead_ns)
    }

    /// Moves a [`Clock::movable`] clock and all its clones ahead; the system's clock cannot be moved.
    pub fn advance(&self, by: Duration) {
        if let Some(ahead) = &self.ahead_ns {
            ahead.fetch_add(by.as_nanos().min(u128::from(u64::MAX)) as u64, Ordering::Relaxed);
        }
    }
}
