//! Benchmarks over given mounts: `lookup bench`.
//!
//! Owns method and report: sides alternate in one run on the same work, ratios are of pairs, a verdict has an interval.
//! Refuses to make data or mounts (`mount-scripts/bench.sh` does) and to know HDFS: the client without a mount is a
//! process of its own (`native`). Called by the command line.

mod cell;
mod chart;
mod cpu;
mod error;
mod findings;
mod get_scan;
mod instructions;
mod load;
mod mounts;
mod native;
mod page;
mod places;
mod point;
mod pread;
mod program;
mod random;
mod report;
mod statistics;
mod target;
mod values;
mod writer;

pub use cell::{Cell, SideSummary};
pub use error::BenchError;
pub use findings::{Count, Skipped, Verdict};
pub use get_scan::{GetScanOptions, run as get_scan};
pub use instructions::{InstructionsOptions, Way, look_up, run as instructions};
pub use mounts::{MountsOptions, run as mounts};
pub use native::answer_locally;
pub use point::{PointOptions, run as point};
pub use pread::Run;
pub use report::Report;
pub use statistics::Estimate;
pub use target::{
    Bound, GET_SCAN_TARGETS, INSTRUCTIONS_TARGETS, Outcome, POINT_TARGETS, TARGETS, Target, WRITER_TARGETS,
};
pub use writer::{WriterOptions, WrittenColumn, run as writer, write_once};
