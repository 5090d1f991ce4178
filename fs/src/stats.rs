//! What `lookupfs stats` shows: gathered by the daemon, sent as JSON, printed for people by [`people`].
//!
//! Counts go up from the start of the daemon, or of a mount, and never down: what was counted since a reset is a
//! difference that is made where it is shown. METRICS.md documents every name.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::mount_namespace;
use crate::counters::CounterValues;
use crate::file_usage::FileStats;
use crate::kernel_settings::KernelSettings;
use crate::open_files::OpenStats;
use crate::operations::Oldest;
use crate::options::DaemonOptions;
use crate::path_text;

pub mod people;

/// Everything that a daemon counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Name of the daemon.
    pub daemon: String,
    /// Its process id.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Its options.
    pub options: DaemonOptions,
    /// The mount namespace it mounts in; `None` where it cannot see that.
    #[serde(default)]
    pub mount_namespace: Option<String>,
    /// Its mounts.
    pub mounts: Vec<MountStats>,
    /// What the kernel asked, over all mounts, those that have gone included.
    pub kernel: CounterValues,
    /// The page cache.
    pub cache: Value,
    /// What was asked of each source.
    pub sources: Vec<SourceStats>,
    /// The same at the last reset, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_reset: Option<Box<Stats>>,
}

/// One mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountStats {
    /// Where.
    #[serde(with = "path_text")]
    pub mount_point: PathBuf,
    /// What.
    pub source: String,
    /// The [`SourceStats::id`] of the source that it is part of.
    pub source_id: String,
    /// Inodes that the kernel holds.
    pub inodes: u64,
    /// What the kernel asked of it.
    pub requests: CounterValues,
    /// Bytes fetched from the source for its readers, along with what they asked for and ahead of it.
    pub fetched_bytes: u64,
    /// Extents they were fetched in.
    pub fetched_extents: u64,
    /// Operations that wait for an answer now.
    pub in_flight: u64,
    /// The one of them that has waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Oldest>,
    /// What is in force between kernel and mount.
    pub settings: KernelSettings,
    /// The files with the most bytes, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileStats>>,
    /// How files are opened.
    pub opens: OpenStats,
}

/// One source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceStats {
    /// Its id.
    pub id: String,
    /// Its counters.
    pub requests: Value,
    /// What is known of its names: hits, misses, evictions and bytes of statuses, absent names and listings.
    pub namespace: Value,
}

/// Numbers that say how it is now, wherever they stand: a difference of them would mean nothing.
pub const GAUGES: &[&str] = &[
    "memory_bytes",
    "open_files",
    "inflight_bytes",
    "inflight_pages",
    "in_flight",
    "inodes",
    "used_bytes",
    "limit_bytes",
    "versions",
    "pages",
    "queued_bytes",
    "pinned",
    "on",
];

impl Stats {
    /// Whether the daemon serves this mount point of the caller: the same path may be another's in another mount namespace.
    pub fn serves(&self, mount_point: &Path) -> bool {
        let is_seen = match (&self.mount_namespace, mount_namespace()) {
            (Some(theirs), Some(own)) => *theirs == own,
            _ => true,
        };
        is_seen && self.mounts.iter().any(|mount| mount.mount_point == mount_point)
    }

    /// What was counted since the last reset; without one, since the start.
    #[must_use]
    pub fn since_reset(mut self) -> Stats {
        let Some(before) = self.at_reset.take() else {
            return self;
        };
        self.kernel = difference_of(&self.kernel, &before.kernel);
        subtract(&mut self.cache, &before.cache);
        for source in &mut self.sources {
            if let Some(before) = before.sources.iter().find(|before| before.id == source.id) {
                subtract(&mut source.requests, &before.requests);
                subtract(&mut source.namespace, &before.namespace);
            }
        }
        for mount in &mut self.mounts {
            let is_same = |before: &&MountStats| before.mount_point == mount.mount_point;
            if let Some(before) = before.mounts.iter().find(is_same) {
                mount.requests = difference_of(&mount.requests, &before.requests);
                mount.fetched_bytes = counted(mount.fetched_bytes, before.fetched_bytes);
                mount.opens.passthrough = counted(mount.opens.passthrough, before.opens.passthrough);
                mount.opens.kept = counted(mount.opens.kept, before.opens.kept);
                mount.fetched_extents = counted(mount.fetched_extents, before.fetched_extents);
            }
        }
        self
    }
}

/// A count that is below what it was has begun anew, as that of a source or a mount that was closed meanwhile.
fn counted(now: u64, before: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn difference_of(now: &CounterValues, before: &CounterValues) -> CounterValues {
    let to_value = |values: &CounterValues| serde_json::to_value(values).unwrap_or_default();
    let mut value = to_value(now);
    subtract(&mut value, &to_value(before));
    serde_json::from_value(value).unwrap_or(*now)
}

/// Takes the counts of `before` off those of `now`, name by name; gauges stay.
fn subtract(now: &mut Value, before: &Value) {
    let Some(members) = now.as_object_mut() else {
        return;
    };
    for (name, value) in members {
        let Some(before) = before.get(name) else { continue };
        if value.is_object() {
            subtract(value, before);
        } else if let (Some(n), Some(b)) = (value.as_u64(), before.as_u64())
            && !GAUGES.contains(&name.as_str())
        {
            *value = counted(n, b).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_are_taken_off_and_gauges_are_not() {
        let mut now = json!({"hits": 10, "memory_bytes": 5, "inner": {"misses": 7, "in_flight": 3}, "new": 4, "x": "y"});
        subtract(
            &mut now,
            &json!({"hits": 4, "memory_bytes": 9, "inner": {"misses": 8, "in_flight": 1}, "x": "z"}),
        );
        let expected =
            json!({"hits": 6, "memory_bytes": 5, "inner": {"misses": 7, "in_flight": 3}, "new": 4, "x": "y"});
        assert_eq!(now, expected, "a count that fell has begun anew");
    }
}
