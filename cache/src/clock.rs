//! The one door to monotonic time and to the jitter of lifetimes, so that tests move time instead of sleeping.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::TryRngCore;
use rand::rngs::OsRng;

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

/// Spreads lifetimes, so that answers that came together do not end together. Each is shortened by up to a tenth and
/// never lengthened; the same key is always shortened by the same part.
#[derive(Clone, Copy, Debug)]
pub struct Jitter {
    seed: u64,
}

impl Jitter {
    /// Spread as no other mount, daemon or host spreads.
    pub fn random() -> Jitter {
        Jitter {
            // Without randomness all spread alike, which is no error.
            seed: OsRng.try_next_u64().unwrap_or(0),
        }
    }

    /// Spread the same each time.
    pub fn seeded(seed: u64) -> Jitter {
        Jitter { seed }
    }

    /// Between nine tenths of `lifetime` and all of it, by `key`.
    pub fn shorten(self, lifetime: Duration, key: impl Hash) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        let part = (hasher.finish() >> 32) as u32;
        lifetime - lifetime.mul_f64(0.1 * f64::from(part) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_spread_over_a_tenth_and_never_lengthened() {
        let second = Duration::from_secs(1);
        let mut by_part = [0; 10];
        for key in 0..10_000 {
            let (a, b) = (Jitter::seeded(7), Jitter::seeded(7));
            let lifetime = a.shorten(second, key);
            assert_eq!(lifetime, b.shorten(second, key));
            assert!(
                (Duration::from_millis(900)..=second).contains(&lifetime),
                "{lifetime:?}"
            );
            let part = (lifetime - Duration::from_millis(900)).as_millis() / 10;
            by_part[part.min(9) as usize] += 1;
        }
        assert!(
            by_part.iter().all(|count| (850..1150).contains(count)),
            "{by_part:?}"
        );
        assert_ne!(
            Jitter::seeded(7).shorten(second, "k"),
            Jitter::seeded(8).shorten(second, "k")
        );
        assert_eq!(Jitter::seeded(7).shorten(Duration::ZERO, "k"), Duration::ZERO);
    }
}
