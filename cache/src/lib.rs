//! Sources, pages, tiers and budgets of lookupfs.
//!
//! The contract of this crate: a read returns the bytes that one version of a file has at its source, or an error.
//! A fault of the cache itself is a miss, never a failed read.

pub mod error;
pub mod page;
pub mod source;
pub mod version;
