//! Where the numbers of each metric stand in the JSON of `lookupfs stats`.
//!
//! A number that is added to the JSON gets its lines here and in METRICS.md.

/// One sample of a family.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Name of its family.
    pub family: &'static str,
    /// Where its number stands: a JSON pointer from the object of the daemon, cache, source or mount.
    pub at: &'static str,
    /// Labels beside those of that object.
    pub labels: &'static [(&'static str, &'static str)],
}

const fn sample(
    family: &'static str,
    at: &'static str,
    labels: &'static [(&'static str, &'static str)],
) -> Sample {
    Sample { family, at, labels }
}

/// Of the whole daemon.
pub const DAEMON: &[Sample] = &[
    sample("lookupfs_uptime_seconds", "/uptime_s", &[]),
    sample("lookupfs_memory_limit_bytes", "/options/memory", &[]),
    sample("lookupfs_in_flight_limit_bytes", "/options/max_inflight", &[]),
    sample("lookupfs_page_size_bytes", "/options/page_size", &[]),
];

/// Of its page cache.
pub const CACHE: &[Sample] = &[
    sample(
        "lookupfs_cache_hits_total",
        "/data/hits",
        &[("tier", "memory"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_hits_total",
        "/metadata/hits",
        &[("tier", "memory"), ("kind", "metadata")],
    ),
    sample(
        "lookupfs_cache_misses_total",
        "/data/misses",
        &[("tier", "memory"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_misses_total",
        "/metadata/misses",
        &[("tier", "memory"), ("kind", "metadata")],
    ),
    sample(
        "lookupfs_cache_joins_total",
        "/data/joins",
        &[("tier", "memory"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_joins_total",
        "/metadata/joins",
        &[("tier", "memory"), ("kind", "metadata")],
    ),
    sample(
        "lookupfs_cache_evictions_total",
        "/data/evictions",
        &[("tier", "memory"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_evictions_total",
        "/metadata/evictions",
        &[("tier", "memory"), ("kind", "metadata")],
    ),
    sample(
        "lookupfs_cache_bytes",
        "/data/memory_bytes",
        &[("tier", "memory"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_bytes",
        "/metadata/memory_bytes",
        &[("tier", "memory"), ("kind", "metadata")],
    ),
    sample("lookupfs_cache_served_bytes_total", "/served_bytes", &[]),
    sample("lookupfs_cache_extents_total", "/extents", &[]),
    sample("lookupfs_cache_extent_bytes_total", "/extent_bytes", &[]),
    sample("lookupfs_cache_read_ahead_bytes_total", "/read_ahead_bytes", &[]),
    sample("lookupfs_cache_tail_reads_total", "/tail_reads", &[]),
    sample("lookupfs_cache_failed_extents_total", "/failed_extents", &[]),
    sample("lookupfs_cache_opens_total", "/opens", &[]),
    sample("lookupfs_cache_open_files", "/open_files", &[]),
    sample("lookupfs_cache_in_flight_bytes", "/inflight_bytes", &[]),
    sample("lookupfs_cache_in_flight_pages", "/inflight_pages", &[]),
];

/// Of its disk tier, where it has one.
pub const DISK: &[Sample] = &[
    sample(
        "lookupfs_cache_hits_total",
        "/data/hits",
        &[("tier", "disk"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_hits_total",
        "/metadata/hits",
        &[("tier", "disk"), ("kind", "metadata")],
    ),
    sample(
        "lookupfs_cache_hit_bytes_total",
        "/data/hit_bytes",
        &[("tier", "disk"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_hit_bytes_total",
        "/metadata/hit_bytes",
        &[("tier", "disk"), ("kind", "metadata")],
    ),
    sample(
        "lookupfs_cache_bytes",
        "/data/used_bytes",
        &[("tier", "disk"), ("kind", "data")],
    ),
    sample(
        "lookupfs_cache_bytes",
        "/metadata/used_bytes",
        &[("tier", "disk"), ("kind", "metadata")],
    ),
    // The disk does not know the kind of what it does not have.
    sample(
        "lookupfs_cache_misses_total",
        "/misses",
        &[("tier", "disk"), ("kind", "any")],
    ),
    sample(
        "lookupfs_cache_evictions_total",
        "/evicted_pages",
        &[("tier", "disk"), ("kind", "any")],
    ),
    sample("lookupfs_disk_used_bytes", "/used_bytes", &[]),
    sample("lookupfs_disk_limit_bytes", "/limit_bytes", &[]),
    sample("lookupfs_disk_versions", "/versions", &[]),
    sample("lookupfs_disk_pages", "/pages", &[]),
    sample("lookupfs_disk_queued_bytes", "/queued_bytes", &[]),
    sample("lookupfs_disk_written_pages_total", "/written_pages", &[]),
    sample("lookupfs_disk_written_bytes_total", "/written_bytes", &[]),
    sample("lookupfs_disk_corrupt_pages_total", "/corrupt_pages", &[]),
    sample("lookupfs_disk_dropped_versions_total", "/dropped_versions", &[]),
    sample("lookupfs_disk_failed_reads_total", "/failed_reads", &[]),
    sample("lookupfs_disk_failed_writes_total", "/failed_writes", &[]),
    sample("lookupfs_disk_failed_deletions_total", "/failed_deletions", &[]),
    sample("lookupfs_disk_skipped_pages_total", "/skipped_pages", &[]),
    sample("lookupfs_disk_full_pauses_total", "/full_pauses", &[]),
    sample("lookupfs_disk_timeouts_total", "/timeouts", &[]),
    sample("lookupfs_disk_crowded_reads_total", "/crowded_reads", &[]),
    sample("lookupfs_disk_lost_directories_total", "/lost_directories", &[]),
    sample("lookupfs_disk_verified_files_total", "/verified_files", &[]),
    sample("lookupfs_disk_pinned_versions", "/pinned", &[]),
    sample("lookupfs_disk_on", "/on", &[]),
];

/// Of one source; labelled with it.
pub const SOURCE: &[Sample] = &[
    sample(
        "lookupfs_source_requests_total",
        "/status",
        &[("request", "status")],
    ),
    sample("lookupfs_source_requests_total", "/list", &[("request", "list")]),
    sample("lookupfs_source_requests_total", "/open", &[("request", "open")]),
    sample(
        "lookupfs_source_requests_total",
        "/read_link",
        &[("request", "read_link")],
    ),
    sample("lookupfs_source_requests_total", "/read", &[("request", "read")]),
    sample("lookupfs_source_read_bytes_total", "/read_bytes", &[]),
    sample("lookupfs_source_failed_requests_total", "/failed", &[]),
    sample("lookupfs_source_in_flight_requests", "/in_flight", &[]),
];

/// Of the names of one source; labelled with it.
pub const NAMES: &[Sample] = &[
    sample(
        "lookupfs_names_hits_total",
        "/statuses/hits",
        &[("kind", "status")],
    ),
    sample("lookupfs_names_hits_total", "/absent/hits", &[("kind", "absent")]),
    sample(
        "lookupfs_names_hits_total",
        "/listings/hits",
        &[("kind", "listing")],
    ),
    sample(
        "lookupfs_names_misses_total",
        "/statuses/misses",
        &[("kind", "status")],
    ),
    sample(
        "lookupfs_names_misses_total",
        "/absent/misses",
        &[("kind", "absent")],
    ),
    sample(
        "lookupfs_names_misses_total",
        "/listings/misses",
        &[("kind", "listing")],
    ),
    sample(
        "lookupfs_names_evictions_total",
        "/statuses/evictions",
        &[("kind", "status")],
    ),
    sample(
        "lookupfs_names_evictions_total",
        "/absent/evictions",
        &[("kind", "absent")],
    ),
    sample(
        "lookupfs_names_evictions_total",
        "/listings/evictions",
        &[("kind", "listing")],
    ),
    sample(
        "lookupfs_names_bytes",
        "/statuses/memory_bytes",
        &[("kind", "status")],
    ),
    sample(
        "lookupfs_names_bytes",
        "/absent/memory_bytes",
        &[("kind", "absent")],
    ),
    sample(
        "lookupfs_names_bytes",
        "/listings/memory_bytes",
        &[("kind", "listing")],
    ),
    sample("lookupfs_names_hits_by_listing_total", "/hits_by_listing", &[]),
    sample("lookupfs_names_listings_total", "/listings_for_names", &[]),
    sample("lookupfs_source_delayed_requests_total", "/rate/delayed", &[]),
    sample("lookupfs_source_refused_requests_total", "/rate/refused", &[]),
];

/// Of one mount; labelled with it and its source.
pub const MOUNT: &[Sample] = &[
    sample(
        "lookupfs_mount_file_opens_total",
        "/opens/passthrough",
        &[("how", "passthrough")],
    ),
    sample(
        "lookupfs_mount_file_opens_total",
        "/opens/kept",
        &[("how", "kept")],
    ),
    sample(
        "lookupfs_mount_opens_not_passed_total",
        "/opens/incomplete",
        &[("reason", "incomplete")],
    ),
    sample(
        "lookupfs_mount_opens_not_passed_total",
        "/opens/unverified",
        &[("reason", "unverified")],
    ),
    sample(
        "lookupfs_mount_opens_not_passed_total",
        "/opens/held_open",
        &[("reason", "held-open")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/lookups",
        &[("request", "lookup")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/getattrs",
        &[("request", "getattr")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/opens",
        &[("request", "open")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/opendirs",
        &[("request", "opendir")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/readdirs",
        &[("request", "readdir")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/reads",
        &[("request", "read")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/readlinks",
        &[("request", "readlink")],
    ),
    sample(
        "lookupfs_mount_requests_total",
        "/requests/ioctls",
        &[("request", "ioctl")],
    ),
    sample(
        "lookupfs_mount_reads_at_once_total",
        "/requests/reads_at_once",
        &[],
    ),
    sample("lookupfs_mount_served_bytes_total", "/requests/bytes_read", &[]),
    sample("lookupfs_mount_fetched_bytes_total", "/fetched_bytes", &[]),
    sample("lookupfs_mount_fetched_extents_total", "/fetched_extents", &[]),
    sample(
        "lookupfs_mount_refused_writes_total",
        "/requests/refused_writes",
        &[],
    ),
    sample("lookupfs_mount_errors_total", "/requests/errors", &[]),
    sample("lookupfs_mount_stale_reads_total", "/requests/changed", &[]),
    sample("lookupfs_mount_panics_total", "/requests/panics", &[]),
    sample("lookupfs_mount_inodes", "/inodes", &[]),
    sample("lookupfs_mount_in_flight_operations", "/in_flight", &[]),
    sample("lookupfs_mount_event_loops", "/settings/event_loops", &[]),
    sample(
        "lookupfs_mount_max_background_requests",
        "/settings/max_background",
        &[],
    ),
    sample(
        "lookupfs_mount_congestion_threshold_requests",
        "/settings/congestion_threshold",
        &[],
    ),
    sample("lookupfs_mount_max_read_bytes", "/settings/max_read_bytes", &[]),
    sample(
        "lookupfs_mount_max_readahead_bytes",
        "/settings/max_readahead_bytes",
        &[],
    ),
    sample(
        "lookupfs_mount_read_ahead_bytes",
        "/settings/read_ahead_bytes",
        &[],
    ),
];
