//! Sources, pages, tiers and budgets of lookupfs.
//!
//! The contract of this crate: a read returns the bytes that one version of a file has at its source, or an error.
//! A fault of the cache itself is a miss, never a failed read.

pub mod account;
mod budget;
pub mod clock;
mod coalesce;
pub mod config;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod disk;
pub mod error;
mod fetch;
mod flight;
#[cfg(test)]
mod flight_tests;
mod footer;
mod handles;
pub mod log_limit;
mod memory;
pub mod mutability;
pub mod namespace;
pub mod page;
pub mod page_cache;
pub mod rate;
mod read_ahead;
mod recognise;
mod shared_call;
pub mod source;
pub mod stats;
mod sync;
mod tails;
mod thrift;
pub mod version;
