//! Every metric: its name, its type, and what it says. `samples.rs` says where its numbers come from.
//!
//! A family that is added gets its line here and in METRICS.md.

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Up, from the start of the daemon or of the mount.
    Counter,
    /// Up and down.
    Gauge,
}

/// All samples of one name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name, with a unit where it has one.
    pub name: &'static str,
    /// Its type.
    pub kind: Type,
    /// One sentence.
    pub help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    let kind = Type::Counter;
    Family { name, kind, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    let kind = Type::Gauge;
    Family { name, kind, help }
}

/// All families, in the order in which they are written.
pub const FAMILIES: &[Family] = &[
    gauge(
        "lookupfs_build_info",
        "Always 1; the label tells the version of the program.",
    ),
    gauge("lookupfs_uptime_seconds", "Seconds since the daemon started."),
    gauge(
        "lookupfs_memory_limit_bytes",
        "Memory that pages may have, in flight ones included.",
    ),
    gauge(
        "lookupfs_in_flight_limit_bytes",
        "Bytes that may be in flight at once.",
    ),
    gauge("lookupfs_page_size_bytes", "Size of a page of the cache."),
    counter(
        "lookupfs_cache_hits_total",
        "Pages that a read found in the tier.",
    ),
    counter(
        "lookupfs_cache_misses_total",
        "Pages that a read had fetched, since they were not in the tier.",
    ),
    counter(
        "lookupfs_cache_joins_total",
        "Pages that a read found on their way already, fetched for another.",
    ),
    counter(
        "lookupfs_cache_evictions_total",
        "Pages pushed out of the tier, or refused, for want of room.",
    ),
    gauge(
        "lookupfs_cache_bytes",
        "Bytes of pages in the tier, overhead included.",
    ),
    counter("lookupfs_cache_served_bytes_total", "Bytes given to readers."),
    counter(
        "lookupfs_cache_extents_total",
        "Requests made of sources for bytes.",
    ),
    counter("lookupfs_cache_extent_bytes_total", "Bytes asked for in them."),
    counter(
        "lookupfs_cache_read_ahead_bytes_total",
        "Those of them that were asked ahead of a sequential reader.",
    ),
    counter(
        "lookupfs_cache_tail_reads_total",
        "Extents that were the metadata at the end of a file, or a whole metadata file.",
    ),
    counter(
        "lookupfs_cache_failed_extents_total",
        "Extents that ended in an error.",
    ),
    counter("lookupfs_cache_opens_total", "Files opened at sources."),
    gauge("lookupfs_cache_open_files", "Files open at sources now."),
    gauge(
        "lookupfs_cache_in_flight_bytes",
        "Bytes on their way from sources now.",
    ),
    gauge(
        "lookupfs_cache_in_flight_pages",
        "Pages on their way from sources now.",
    ),
    counter(
        "lookupfs_cache_hit_bytes_total",
        "Bytes of the pages that a read found on disk.",
    ),
    gauge("lookupfs_disk_used_bytes", "Bytes on disk, page maps included."),
    gauge("lookupfs_disk_limit_bytes", "What they may be at most."),
    gauge(
        "lookupfs_disk_versions",
        "Versions of which something is on disk.",
    ),
    gauge(
        "lookupfs_disk_pages",
        "Pages on disk, of versions that were used since the start.",
    ),
    gauge("lookupfs_disk_queued_bytes", "Bytes that wait to be written."),
    counter("lookupfs_disk_written_pages_total", "Pages written."),
    counter("lookupfs_disk_written_bytes_total", "Their bytes."),
    counter(
        "lookupfs_disk_corrupt_pages_total",
        "Pages that failed their checksum, and were fetched again.",
    ),
    counter(
        "lookupfs_disk_dropped_versions_total",
        "Versions whose map is damaged, or of another format or page size.",
    ),
    counter("lookupfs_disk_failed_reads_total", "Reads that the disk failed."),
    counter(
        "lookupfs_disk_failed_writes_total",
        "Writes that the disk failed.",
    ),
    counter(
        "lookupfs_disk_failed_deletions_total",
        "Deletions that the disk failed.",
    ),
    counter(
        "lookupfs_disk_skipped_pages_total",
        "Pages not written: too many waited, the disk was full, or nothing could go for them.",
    ),
    counter(
        "lookupfs_disk_full_pauses_total",
        "Times that writing paused because the disk was full.",
    ),
    counter(
        "lookupfs_disk_timeouts_total",
        "Times that the disk was given up because it did not answer.",
    ),
    counter(
        "lookupfs_disk_crowded_reads_total",
        "Reads that went to the source because too many waited for the disk already.",
    ),
    counter(
        "lookupfs_disk_lost_directories_total",
        "Times that the directory was found deleted.",
    ),
    counter(
        "lookupfs_disk_verified_files_total",
        "Complete files whose every checksum was verified.",
    ),
    gauge(
        "lookupfs_disk_pinned_versions",
        "Versions pinned, since a complete file of them is in use.",
    ),
    gauge(
        "lookupfs_disk_on",
        "1 while the disk tier is in use, 0 while it is switched off.",
    ),
    counter(
        "lookupfs_source_requests_total",
        "Requests made of the source, by type, failed ones included.",
    ),
    counter(
        "lookupfs_source_read_bytes_total",
        "Bytes that the source answered reads with.",
    ),
    counter(
        "lookupfs_source_failed_requests_total",
        "Requests that ended in an error.",
    ),
    gauge(
        "lookupfs_source_in_flight_requests",
        "Requests that the source has not answered yet.",
    ),
    counter(
        "lookupfs_names_hits_total",
        "Questions about names that were answered from memory.",
    ),
    counter(
        "lookupfs_names_misses_total",
        "Questions about names that the source was asked, or that joined one under way. Of absent names: answers that nothing is there.",
    ),
    counter(
        "lookupfs_names_evictions_total",
        "Answers about names pushed out for want of room.",
    ),
    gauge(
        "lookupfs_names_bytes",
        "Memory of answers about names, by estimate.",
    ),
    counter(
        "lookupfs_names_hits_by_listing_total",
        "Of the hits of statuses and absent names, those that a listing answered.",
    ),
    counter(
        "lookupfs_names_listings_total",
        "Listings made in place of the statuses of many names of one directory.",
    ),
    counter(
        "lookupfs_source_delayed_requests_total",
        "Requests that waited for their turn under namenode_rate.",
    ),
    counter(
        "lookupfs_source_delay_seconds_total",
        "How long all of them together.",
    ),
    counter(
        "lookupfs_source_refused_requests_total",
        "Requests that would have waited longer than their deadline, refused.",
    ),
    counter(
        "lookupfs_mount_requests_total",
        "Requests of the kernel, by type.",
    ),
    counter(
        "lookupfs_mount_reads_at_once_total",
        "Reads answered at once, from what the daemon had.",
    ),
    counter(
        "lookupfs_mount_served_bytes_total",
        "Bytes that reads were answered with.",
    ),
    counter(
        "lookupfs_mount_fetched_bytes_total",
        "Bytes fetched from the source for readers of this mount. Divided by served bytes: read amplification.",
    ),
    counter(
        "lookupfs_mount_fetched_extents_total",
        "Extents they were fetched in.",
    ),
    counter(
        "lookupfs_mount_refused_writes_total",
        "Requests that would write, refused.",
    ),
    counter(
        "lookupfs_mount_errors_total",
        "Requests answered with an error other than that nothing is there, or that the mount is read-only.",
    ),
    counter(
        "lookupfs_mount_stale_reads_total",
        "Reads of files that are no longer the version that was looked up.",
    ),
    counter(
        "lookupfs_mount_panics_total",
        "Handlers that panicked. Always worth a bug report.",
    ),
    gauge("lookupfs_mount_inodes", "Inodes that the kernel holds."),
    gauge(
        "lookupfs_mount_in_flight_operations",
        "Operations that wait for an answer.",
    ),
    gauge(
        "lookupfs_mount_oldest_operation_age_seconds",
        "How long the oldest of them has waited; 0 without any.",
    ),
    gauge(
        "lookupfs_mount_info",
        "Always 1; labels tell the version of FUSE's protocol, and what opening a file costs.",
    ),
    gauge("lookupfs_mount_event_loops", "Threads that receive requests."),
    gauge(
        "lookupfs_mount_max_background_requests",
        "Requests that the kernel sends at once in the background.",
    ),
    counter(
        "lookupfs_mount_file_opens_total",
        "Opens of files that cost a message, by how the kernel reads them.",
    ),
    counter(
        "lookupfs_mount_opens_not_passed_total",
        "Opens through the kernel page cache where passthrough was asked for, by reason.",
    ),
    gauge(
        "lookupfs_mount_congestion_threshold_requests",
        "Of them, how many make the kernel hold back its own read-ahead.",
    ),
    gauge(
        "lookupfs_mount_max_read_bytes",
        "The longest read that the kernel asks for.",
    ),
    gauge(
        "lookupfs_mount_max_readahead_bytes",
        "The most that the kernel has offered to read ahead.",
    ),
    gauge(
        "lookupfs_mount_read_ahead_bytes",
        "What the kernel reads ahead of a sequential reader now.",
    ),
];
