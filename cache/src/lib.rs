//! Sources, pages, tiers and budgets of lookupfs.
//!
//! The contract of this crate: a read returns the bytes that one version of a file has at its source, or an error.
//! A fault of the cache itself is a miss, never a failed read.

pub mod clock;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod error;
pub mod namespace;
pub mod page;
mod shared_call;
pub mod source;
pub mod version;
