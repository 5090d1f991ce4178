//! Locks and atomics whose every step the scheduler sees: what `src/sync.rs` is for the code that is compiled into a test of
//! orders.

pub(crate) use shuttle::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A lock as parking_lot has it.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a panic fails the test before")
    }
}
