//! Byte ranges to extents: what is read in one request.
//!
//! Owns how near two ranges must lie to be read together. Pure; never cuts a range. Called by
//! [`super::LookupPlan`].

use std::ops::Range;

/// How byte ranges become extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalesce {
    /// Ranges with at most so many bytes between them are one extent.
    pub gap_bytes: u64,
    /// Extents do not grow beyond this by coalescing. A single data page may be longer.
    pub extent_bytes_max: u64,
}

impl Default for Coalesce {
    /// On HDFS a request costs about what 64 KiB of bytes cost.
    fn default() -> Self {
        Coalesce {
            gap_bytes: 64 << 10,
            extent_bytes_max: 16 << 20,
        }
    }
}

/// Merges what overlaps, and what lies near each other; none of the ranges is cut.
pub(crate) fn coalesce_ranges(mut ranges: Vec<Range<u64>>, coalesce: Coalesce) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut extents: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match extents.last_mut() {
            Some(last)
                if range.start < last.end
                    || (range.start - last.end <= coalesce.gap_bytes
                        && range.end - last.start <= coalesce.extent_bytes_max) =>
            {
                last.end = last.end.max(range.end);
            }
            _ => extents.push(range),
        }
    }
    extents
}
