//! The one door to locks of code whose order of steps is tested: `cache/tests/races.rs` compiles that code with a door of its
//! own, behind which a scheduler tries the orders.

pub(crate) use parking_lot::Mutex;
