//! What the disk tier has done and holds: counters, and the numbers that operators see.

use serde::Serialize;

use super::Core;
use crate::memory::Kind;
use crate::stats::Counter;

/// Counters of the tier. All only go up.
#[derive(Debug, Default)]
pub(super) struct DiskCounters {
    data_hits: Counter,
    data_hit_bytes: Counter,
    metadata_hits: Counter,
    metadata_hit_bytes: Counter,
    pub(super) misses: Counter,
    pub(super) written_pages: Counter,
    pub(super) written_bytes: Counter,
    pub(super) evicted_pages: Counter,
    pub(super) corrupt_pages: Counter,
    pub(super) dropped_versions: Counter,
    pub(super) failed_reads: Counter,
    pub(super) failed_writes: Counter,
    pub(super) failed_deletions: Counter,
    pub(super) skipped_pages: Counter,
    pub(super) full_pauses: Counter,
    pub(super) timeouts: Counter,
    pub(super) crowded_reads: Counter,
    /// Runs and jobs that the writer has done with: whether what waits before it moves.
    pub(super) steps: Counter,
    pub(super) lost_directories: Counter,
    pub(super) verified_files: Counter,
}

impl DiskCounters {
    pub(super) fn count_hit(&self, kind: Kind, bytes: u64) {
        let (hits, hit_bytes) = match kind {
            Kind::Data => (&self.data_hits, &self.data_hit_bytes),
            Kind::Metadata => (&self.metadata_hits, &self.metadata_hit_bytes),
        };
        hits.add(1);
        hit_bytes.add(bytes);
    }
}

/// Pages of one kind on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskKindStats {
    /// Pages that a read found on disk.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Bytes on disk now, of versions that were used since the start.
    pub used_bytes: u64,
}

/// A snapshot of the disk tier. Counts are since the start; what is called "now" is a gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskStats {
    /// Pages outside of metadata ranges.
    pub data: DiskKindStats,
    /// Pages of metadata ranges.
    pub metadata: DiskKindStats,
    /// Pages that a read looked for on disk and did not find.
    pub misses: u64,
    /// Bytes on disk now, page maps included, in units of the file system.
    pub used_bytes: u64,
    /// What they may be at most.
    pub limit_bytes: u64,
    /// Versions of which something is on disk now.
    pub versions: u64,
    /// Pages on disk now, of versions that were used since the start.
    pub pages: u64,
    /// Bytes that wait to be written now.
    pub queued_bytes: u64,
    /// Pages written.
    pub written_pages: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Pages that went to make room.
    pub evicted_pages: u64,
    /// Pages that failed their checksum, and were fetched again.
    pub corrupt_pages: u64,
    /// Versions dropped because their map is damaged, or of another format or page size.
    pub dropped_versions: u64,
    /// Reads that the disk failed.
    pub failed_reads: u64,
    /// Writes that the disk failed.
    pub failed_writes: u64,
    /// Deletions that the disk failed.
    pub failed_deletions: u64,
    /// Pages not written: too many waited already, the disk was full, or nothing could be evicted for them.
    pub skipped_pages: u64,
    /// Times that writing paused because the disk was full.
    pub full_pauses: u64,
    /// Times that the disk was given up because it did not answer: reads, and writes that others waited for.
    pub timeouts: u64,
    /// Reads that went to the source because too many waited for the disk already.
    pub crowded_reads: u64,
    /// Times that the directory was found deleted.
    pub lost_directories: u64,
    /// Complete files whose every checksum was verified.
    pub verified_files: u64,
    /// Versions pinned now, since a complete file of them is in use.
    pub pinned: u64,
    /// 1 while the tier is in use, 0 while it is switched off.
    pub on: u64,
}

impl Core {
    pub(super) fn stats(&self, queued_bytes: u64) -> DiskStats {
        let counters = &self.counters;
        let index = self.index.lock();
        DiskStats {
            data: DiskKindStats {
                hits: counters.data_hits.get(),
                hit_bytes: counters.data_hit_bytes.get(),
                used_bytes: index.queues.data_bytes,
            },
            metadata: DiskKindStats {
                hits: counters.metadata_hits.get(),
                hit_bytes: counters.metadata_hit_bytes.get(),
                used_bytes: index.queues.metadata_bytes,
            },
            misses: counters.misses.get(),
            used_bytes: index.bytes_on_disk(),
            limit_bytes: index.limits.disk_bytes,
            versions: index.versions.len() as u64,
            pages: index.pages,
            queued_bytes,
            written_pages: counters.written_pages.get(),
            written_bytes: counters.written_bytes.get(),
            evicted_pages: counters.evicted_pages.get(),
            corrupt_pages: counters.corrupt_pages.get(),
            dropped_versions: counters.dropped_versions.get(),
            failed_reads: counters.failed_reads.get(),
            failed_writes: counters.failed_writes.get(),
            failed_deletions: counters.failed_deletions.get(),
            skipped_pages: counters.skipped_pages.get(),
            full_pauses: counters.full_pauses.get(),
            timeouts: counters.timeouts.get(),
            crowded_reads: counters.crowded_reads.get(),
            lost_directories: counters.lost_directories.get(),
            verified_files: counters.verified_files.get(),
            pinned: index.pinned,
            on: u64::from(!self.switch.is_off()),
        }
    }
}
