//! Every metric: its name, its type, what it says, and where its numbers stand in the JSON of `lookupfs stats`.
//!
//! A number that is added to the JSON gets its lines here and in METRICS.md.

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

const fn counter(name: &'static str, help: &'static str) -> Family {
    let kind = Type::Counter;
    Family { name, kind, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    let kind = Type::Gauge;
    Family { name, kind, help }
}

const fn sample(
    family: &'static str,
    at: &'static str,
    labels: &'static [(&'static str, &'static str)],
) -> Sample {
    Sample { family, at, labels }
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
