#![doc = include_str!("../README.md")]
//!
//! # How a lookup goes
//!
//! Row ids in any order → [`plan`] (pure: sorted, deduplicated data pages and exact byte ranges of
//! all columns of all files) → [`fetch`] (bounded, through one or many mounts) → `decode` (the
//! `parquet` crate's Arrow readers over the fetched bytes) → rows in the caller's order.

pub mod bench;
pub mod cancel;
pub mod cli;
pub mod decode;
pub mod error;
pub mod fetch;
pub mod inspect;
pub mod keys;
pub mod mounts;
pub mod output;
pub mod plan;
pub mod read_at;
pub mod rewrite;
pub mod row;
pub mod sample;
pub mod sidecar;
pub mod structures;
pub mod table;
mod temporary;

pub use arrow_array::RecordBatch;
pub use cancel::CancelToken;
pub use error::{ReadError, Result};
pub use keys::{Key, KeyColumn, KeyRange};
pub use mounts::{Spread, Target};
pub use row::{RowId, RowRange, Rows};
pub use sidecar::Sidecars;
pub use structures::StructureCache;
pub use table::{FoundKeys, Missing, OpenOptions, Projection, ReadThreads, RowStream, Table};
