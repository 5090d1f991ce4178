//! Bytes in flight: how much may be fetched at once. First come, first served.
//!
//! Owns the permits. Refuses to wait by itself: callers bound each wait by their deadline. A permit is released when it
//! is dropped, whatever became of the fetch. Called by `fetch.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Error, ErrorKind, Result};

/// Bytes that one permit of the semaphore stands for, so that 32 bits suffice for a fetch of any size.
const UNIT: u64 = 1024;

/// The byte budget.
#[derive(Debug)]
pub(crate) struct Budget {
    semaphore: Arc<Semaphore>,
    total: u64,
    in_flight: Arc<AtomicU64>,
}

/// So many bytes, until dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    bytes: u64,
    in_flight: Arc<AtomicU64>,
    _permit: OwnedSemaphorePermit,
}

impl Budget {
    /// At most `total` bytes at once, counted in KiB.
    pub(crate) fn new(total: u64) -> Budget {
        let permits = usize::try_from(total / UNIT).unwrap_or(Semaphore::MAX_PERMITS);
        Budget {
            semaphore: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
            total,
            in_flight: Arc::default(),
        }
    }

    /// Waits in line for `bytes`; more than the whole budget counts as the whole budget.
    pub(crate) async fn acquire(&self, bytes: u64) -> Result<Permit> {
        let bytes = bytes.min(self.total);
        // Rounded up, so that small fetches are not free; but never more than there is.
        let units = bytes.div_ceil(UNIT).min(self.total / UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let permit = self
            .semaphore
            .clone()
            .acquire_many_owned(units)
            .await
            .map_err(|closed| Error::with_cause(ErrorKind::Unavailable, "the byte budget is gone", closed))?;
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        Ok(Permit {
            bytes,
            in_flight: self.in_flight.clone(),
            _permit: permit,
        })
    }

    /// Takes `bytes` if there is room for them now and nobody waits; more than the whole budget counts as the whole
    /// budget.
    pub(crate) fn try_acquire(&self, bytes: u64) -> Option<Permit> {
        let bytes = bytes.min(self.total);
        let units = u32::try_from(bytes.div_ceil(UNIT).min(self.total / UNIT)).ok()?;
        let permit = self.semaphore.clone().try_acquire_many_owned(units).ok()?;
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        Some(Permit {
            bytes,
            in_flight: self.in_flight.clone(),
            _permit: permit,
        })
    }

    /// The most that is ever taken.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes taken now.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes that may be taken.
    pub(crate) fn limit(&self) -> u64 {
        self.total
    }

    /// Whether so much is taken, or waited for, that nothing should be fetched ahead of need.
    pub(crate) fn is_busy(&self) -> bool {
        (self.semaphore.available_permits() as u64) < self.total / UNIT / 2
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn waiters_are_served_in_line_and_all_is_released() {
        let budget = Arc::new(Budget::new(64 << 10));
        drop(
            budget
                .try_acquire(1 << 30)
                .expect("more than the whole is the whole"),
        );
        let first = budget.acquire(1 << 30).await.unwrap();
        assert_eq!(budget.in_flight(), 64 << 10);
        assert!(budget.is_busy());

        // A waiter that gives up leaves nothing taken.
        let late = tokio::time::timeout(Duration::from_secs(1), budget.acquire(1024)).await;
        assert!(late.is_err());

        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (number, bytes) in [(0, 60 << 10), (1, 8 << 10), (2, 1024)] {
            let (budget, order) = (budget.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _permit = budget.acquire(bytes).await.unwrap();
                order.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1, 2]);
        assert_eq!(budget.in_flight(), 0);
        assert!(!budget.is_busy());
    }
}
