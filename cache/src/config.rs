//! What a page cache may use. Owns the defaults and what follows from them; refuses what cannot work.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::page::PageSize;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// More than that waits for no disk: it is too slow for what comes.
const DISK_QUEUE_BYTES_MAX: u64 = 64 * MIB;
/// Readers of the disk at once have no use for more.
const DISK_READ_BYTES_MAX: u64 = 64 * MIB;
/// Extents, or as many bytes in smaller ones, that are held while they are brought to disk.
const FILLING_EXTENTS: u64 = 2;

/// Limits of a [`PageCache`](crate::page_cache::PageCache). All are hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// All memory for bytes: pages with their overhead, and bytes in flight. Default 1 GiB.
    ///
    /// A quarter at most is for bytes in flight; with a disk tier a sixteenth (64 MiB at most) is for what waits to be
    /// written, and a thirty-second for its index. Of the rest a quarter is the protected share of metadata ranges.
    pub memory_bytes: u64,
    /// Unit of the cache and smallest request. Default 16 KiB: a cold 4 KiB read costs four times its bytes, and one
    /// request. Lookup mounts take 4 KiB, scan mounts 64 KiB or more.
    pub page_size: PageSize,
    /// Bytes asked of the source at once, by all readers together. Default 64 MiB; cut to a quarter of
    /// `memory_bytes`.
    pub max_inflight_bytes: u64,
    /// The longest that a fetch may take, from waiting for its turn to the last byte. Default 60 s.
    pub deadline: Duration,
    /// The largest request, but for a tail. Default 4 MiB.
    pub max_extent_bytes: u64,
    /// Bytes that are fetched once more rather than spending a second request on what lies behind them. Default
    /// 64 KiB.
    pub max_gap_bytes: u64,
    /// The largest window that is read ahead of a sequential reader; 0 reads nothing ahead. Default 8 MiB.
    pub max_read_ahead_bytes: u64,
    /// The largest tail that is fetched in one request, and the largest metadata file that is fetched whole; 0 fetches
    /// only what is asked for. Default 8 MiB.
    pub max_tail_bytes: u64,
    /// Files kept open at the source. Default 4096.
    pub max_open_files: u64,
    /// An opened file that nobody has fetched from for so long is closed. Default 10 minutes.
    pub open_idle: Duration,
}

impl Default for CacheConfig {
    fn default() -> CacheConfig {
        CacheConfig {
            memory_bytes: 1024 * MIB,
            page_size: PageSize::DEFAULT,
            max_inflight_bytes: 64 * MIB,
            deadline: Duration::from_secs(60),
            max_extent_bytes: 4 * MIB,
            max_gap_bytes: 64 * KIB,
            max_read_ahead_bytes: 8 * MIB,
            max_tail_bytes: 8 * MIB,
            max_open_files: 4096,
            open_idle: Duration::from_secs(600),
        }
    }
}

/// [`CacheConfig`] with each limit cut to what the others leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) page_size: PageSize,
    pub(crate) data_bytes: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) inflight_bytes: u64,
    pub(crate) extent_pages: u64,
    pub(crate) gap_pages: u64,
    pub(crate) read_ahead_bytes: u64,
    pub(crate) tail_bytes: u64,
    /// Bytes that wait to be written to disk; 0 without a disk tier.
    pub(crate) disk_queue_bytes: u64,
    /// What the index of the disk tier takes in memory; 0 without one.
    pub(crate) disk_index_bytes: u64,
    /// Pages that are held for the disk while they are brought there, and pages that come back from it; 0 without one.
    pub(crate) filling_bytes: u64,
    pub(crate) disk_read_bytes: u64,
}

impl CacheConfig {
    pub(crate) fn limits(&self, has_disk: bool) -> Result<Limits> {
        let page = self.page_size.bytes();
        let inflight_bytes = self.max_inflight_bytes.min(self.memory_bytes / 4);
        if inflight_bytes < page {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{} bytes of memory with {} in flight do not hold a page of {page} bytes: \
                     give at least {} of memory",
                    self.memory_bytes,
                    self.max_inflight_bytes,
                    4 * page
                ),
            ));
        }
        // What waits for the disk are pages of the memory tier that it may have pushed out meanwhile.
        let share = |parts: u64, most: u64| match has_disk {
            true => (self.memory_bytes / parts).min(most),
            false => 0,
        };
        let disk_queue_bytes = share(16, DISK_QUEUE_BYTES_MAX);
        let disk_index_bytes = share(32, u64::MAX);
        let filling_bytes = share(16, FILLING_EXTENTS * self.max_extent_bytes);
        let disk_read_bytes = share(16, DISK_READ_BYTES_MAX);
        let of_disk = disk_queue_bytes + disk_index_bytes + filling_bytes + disk_read_bytes;
        let pages_bytes = self.memory_bytes - inflight_bytes - of_disk;
        let metadata_bytes = pages_bytes / 4;
        let data_bytes = pages_bytes - metadata_bytes;
        // A tail that would not leave room for others in its share is not worth it, nor is a window that would push
        // itself out before it is read.
        let tail_bytes = self.max_tail_bytes.min(inflight_bytes).min(metadata_bytes / 4);
        let read_ahead_bytes = self.max_read_ahead_bytes.min(inflight_bytes).min(data_bytes / 32);
        Ok(Limits {
            page_size: self.page_size,
            data_bytes,
            metadata_bytes,
            inflight_bytes,
            extent_pages: (self.max_extent_bytes.min(inflight_bytes) / page).max(1),
            gap_pages: self.max_gap_bytes / page,
            read_ahead_bytes,
            tail_bytes,
            disk_queue_bytes,
            disk_index_bytes,
            filling_bytes,
            disk_read_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_memory() {
        for memory_bytes in [64 * KIB, MIB, 512 * MIB, 1 << 40] {
            let config = CacheConfig {
                memory_bytes,
                ..CacheConfig::default()
            };
            for has_disk in [false, true] {
                let limits = config.limits(has_disk).unwrap();
                let parts = limits.data_bytes
                    + limits.metadata_bytes
                    + limits.inflight_bytes
                    + limits.disk_queue_bytes
                    + limits.disk_index_bytes
                    + limits.filling_bytes
                    + limits.disk_read_bytes;
                assert_eq!(parts, memory_bytes);
                assert_eq!(limits.disk_queue_bytes > 0, has_disk);
                assert!(limits.tail_bytes <= limits.inflight_bytes);
                assert!(limits.extent_pages * limits.page_size.bytes() <= limits.inflight_bytes);
            }
        }
    }

    #[test]
    fn memory_that_holds_no_page_in_flight_is_refused() {
        let config = CacheConfig {
            memory_bytes: 60 * KIB,
            ..CacheConfig::default()
        };
        assert_eq!(config.limits(false).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
