//! The one door to locks and atomics of code whose order of steps is tested: `cache/tests/races.rs` and
//! `cache/tests/evictions.rs` compile that code with a door of their own, behind which a scheduler tries the orders.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

pub(crate) use parking_lot::Mutex;
