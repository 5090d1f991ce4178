//! What a page cache has done and holds: the counters, and the numbers that operators see.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::disk::DiskStats;
use crate::memory::Kind;

/// A counter that only goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one kind of page.
#[derive(Debug, Default)]
pub(crate) struct KindCounters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) joins: Counter,
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    data: KindCounters,
    metadata: KindCounters,
    pub(crate) served_bytes: Counter,
    pub(crate) extents: Counter,
    pub(crate) extent_bytes: Counter,
    pub(crate) read_ahead_bytes: Counter,
    pub(crate) tail_reads: Counter,
    pub(crate) failed_extents: Counter,
}

impl Counters {
    pub(crate) fn of(&self, kind: Kind) -> &KindCounters {
        match kind {
            Kind::Data => &self.data,
            Kind::Metadata => &self.metadata,
        }
    }
}

/// Pages of one kind. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindStats {
    /// Pages that a read found in memory.
    pub hits: u64,
    /// Pages that a read had fetched.
    pub misses: u64,
    /// Pages that a read found on their way already.
    pub joins: u64,
    /// Pages pushed out, or refused, for want of room.
    pub evictions: u64,
    /// Bytes of pages alive now, overhead included; readers may hold some of them.
    pub memory_bytes: u64,
}

/// A snapshot of a page cache. Counts are since the start; what is called "now" is a gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheStats {
    /// Pages outside of metadata ranges.
    pub data: KindStats,
    /// Pages of metadata ranges: footers, page indexes, manifests.
    pub metadata: KindStats,
    /// Bytes given to readers.
    pub served_bytes: u64,
    /// Requests made of sources for bytes.
    pub extents: u64,
    /// Bytes asked for in them.
    pub extent_bytes: u64,
    /// Those of them that were asked ahead of a sequential reader.
    pub read_ahead_bytes: u64,
    /// Extents that were a tail or a whole metadata file.
    pub tail_reads: u64,
    /// Extents that ended in an error.
    pub failed_extents: u64,
    /// Files opened at sources.
    pub opens: u64,
    /// Files open now.
    pub open_files: u64,
    /// Bytes in flight now.
    pub inflight_bytes: u64,
    /// Pages on their way now.
    pub inflight_pages: u64,
    /// The disk tier, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStats>,
}

/// Answers of one kind in a namespace. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnswerStats {
    /// Questions answered from memory.
    pub hits: u64,
    /// Questions that a source was asked, or that joined one under way. Of absent names: answers that nothing is there.
    pub misses: u64,
    /// Answers pushed out for want of room.
    pub evictions: u64,
    /// Bytes of memory now, by estimate.
    pub memory_bytes: u64,
}

/// What a bound on requests has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RateStats {
    /// Requests that waited for their turn.
    pub delayed: u64,
    /// How long all of them together, in milliseconds.
    pub delayed_ms: u64,
    /// Requests that would have waited longer than their deadline, and were refused.
    pub refused: u64,
}

/// A snapshot of the namespace of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamespaceStats {
    /// What is at a path.
    pub statuses: AnswerStats,
    /// That nothing is at a path.
    pub absent: AnswerStats,
    /// Whole directories.
    pub listings: AnswerStats,
    /// Of the hits of statuses and absent names, those that a listing answered.
    pub hits_by_listing: u64,
    /// Listings made in place of the statuses of many names of one directory.
    pub listings_for_names: u64,
    /// The bound on requests.
    pub rate: RateStats,
}
