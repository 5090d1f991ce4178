//! What `lookupfs stats` shows: gathered by the daemon, sent as JSON, printed for people.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::counters::CounterValues;
use crate::open_files::OpenStats;
use crate::options::DaemonOptions;

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
    /// Its mounts.
    pub mounts: Vec<MountStats>,
    /// What the kernel asked, over all mounts.
    pub kernel: CounterValues,
    /// The page cache.
    pub cache: serde_json::Value,
    /// What was asked of each source.
    pub sources: Vec<SourceStats>,
}

/// One mount.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountStats {
    /// Where.
    pub mount_point: PathBuf,
    /// What.
    pub source: String,
    /// Inodes that the kernel holds.
    pub inodes: u64,
    /// How files are opened.
    pub opens: OpenStats,
}

/// One source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceStats {
    /// Its id.
    pub id: String,
    /// Its counters.
    pub requests: serde_json::Value,
    /// What is known of its names: hits, misses, evictions and bytes of statuses, absent names and listings.
    pub namespace: serde_json::Value,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats {
            daemon,
            pid,
            version,
            uptime_s,
            ..
        } = self;
        writeln!(
            f,
            "daemon {daemon}, pid {pid}, lookupfs {version}, up {uptime_s:.0} s"
        )?;
        for mount in &self.mounts {
            let MountStats {
                mount_point,
                source,
                inodes,
                opens,
            } = mount;
            writeln!(
                f,
                "mount {} shows {source}, {inodes} inodes held, opens: {}",
                mount_point.display(),
                opens.mode
            )?;
            if opens.mode != "no-open" {
                let (passthrough, kept) = (opens.passthrough, opens.kept);
                writeln!(f, "  {passthrough} opens with passthrough, {kept} without")?;
            }
            if let Some(refusal) = &opens.refusal {
                writeln!(f, "  no passthrough: {refusal}")?;
            }
        }
        let kernel = serde_json::to_value(self.kernel).unwrap_or_default();
        section(f, "kernel", &kernel)?;
        section(f, "cache", &self.cache)?;
        for source in &self.sources {
            section(f, &format!("source {}", source.id), &source.requests)?;
            section(f, &format!("names of {}", source.id), &source.namespace)?;
        }
        Ok(())
    }
}

/// Prints numbers, one a line, with the names of the objects that hold them.
fn section(f: &mut fmt::Formatter<'_>, title: &str, value: &serde_json::Value) -> fmt::Result {
    writeln!(f, "{title}")?;
    lines(f, "", value)
}

fn lines(f: &mut fmt::Formatter<'_>, prefix: &str, value: &serde_json::Value) -> fmt::Result {
    let Some(members) = value.as_object() else {
        return Ok(());
    };
    for (name, value) in members {
        if value.is_object() {
            lines(f, &format!("{prefix}{name}."), value)?;
        } else {
            writeln!(f, "  {:<36} {value:>16}", format!("{prefix}{name}"))?;
        }
    }
    Ok(())
}
