//! Sources, pages, tiers and budgets of lookupfs.
//!
//! The contract of this crate: a read returns the bytes that one version of a file has at its source, or an error.
//! A fault of the cache itself is a miss, never a failed read.

mod budget;
mod coalesce;
pub mod config;
pub mod error;
mod fetch;
mod flight;
mod footer;
mod handles;
mod memory;
pub mod page;
pub mod page_cache;
mod read_ahead;
mod recognise;
pub mod source;
pub mod stats;
mod tails;
mod thrift;
pub mod version;
