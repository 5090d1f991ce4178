//! Counters as text for people: sizes with units, and the ratios that people would work out.

use std::fmt;

use serde_json::Value;

use super::{MountStats, Stats};
use crate::file_usage::FileStats;
use crate::open_files::OpenStats;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (daemon, pid, version) = (&self.daemon, self.pid, &self.version);
        let up = self.uptime_s;
        write!(f, "daemon {daemon}, pid {pid}, lookupfs {version}, up {up:.0} s")?;
        let shown = match &self.at_reset {
            Some(before) => {
                let ago = (up - before.uptime_s).max(0.0);
                writeln!(f, "; counts are since the reset {ago:.0} s ago")?;
                self.clone().since_reset()
            }
            None => {
                writeln!(f)?;
                self.clone()
            }
        };
        let options = &shown.options;
        write!(
            f,
            "  memory {}, pages of {}",
            size(options.memory),
            size(options.page_size)
        )?;
        match &options.cache_dir {
            Some(cache_dir) => writeln!(f, ", cache_dir {}", cache_dir.display())?,
            None => writeln!(f, ", no cache_dir")?,
        }
        for mount in &shown.mounts {
            self::mount(f, mount)?;
        }
        let kernel = serde_json::to_value(shown.kernel).unwrap_or_default();
        section(f, "kernel", &kernel)?;
        section(f, "cache", &shown.cache)?;
        for source in &shown.sources {
            section(f, &format!("source {}", source.id), &source.requests)?;
            section(f, &format!("names of {}", source.id), &source.namespace)?;
        }
        Ok(())
    }
}

fn mount(f: &mut fmt::Formatter<'_>, mount: &MountStats) -> fmt::Result {
    let (point, source) = (mount.mount_point.display(), &mount.source);
    writeln!(f, "mount {point} shows {source}, {} inodes held", mount.inodes)?;
    let (served, fetched) = (mount.requests.bytes_read, mount.fetched_bytes);
    writeln!(
        f,
        "  served {} in {} reads, fetched {} in {} extents: read amplification {}",
        size(served),
        mount.requests.reads,
        size(fetched),
        mount.fetched_extents,
        ratio(fetched, served)
    )?;
    match &mount.oldest {
        Some(oldest) => writeln!(
            f,
            "  {} operations wait, the oldest for {:.1} s: {} {}",
            mount.in_flight, oldest.age_s, oldest.operation, oldest.path
        )?,
        None => writeln!(f, "  {} operations wait", mount.in_flight)?,
    }
    self::opens(f, &mount.opens)?;
    let settings = &mount.settings;
    write!(
        f,
        "  kernel: FUSE {}, opens {}, {} event loops, max_background {}, reads up to {}",
        settings.abi,
        settings.opens,
        settings.event_loops,
        settings.max_background,
        size(settings.max_read_bytes)
    )?;
    if let Some(bytes) = settings.read_ahead_bytes {
        write!(f, ", read-ahead {}", size(bytes))?;
    }
    writeln!(f)?;
    match &mount.files {
        Some(files) => self::files(f, files),
        None => Ok(()),
    }
}

fn opens(f: &mut fmt::Formatter<'_>, opens: &OpenStats) -> fmt::Result {
    let (passthrough, kept) = (opens.passthrough, opens.kept);
    if passthrough + kept > 0 {
        write!(f, "  {passthrough} opens with passthrough, {kept} without")?;
        let reasons = [
            (opens.incomplete, "not complete on the local disk"),
            (opens.unverified, "not verified yet"),
            (opens.held_open, "held open without it since before"),
        ];
        let mut reasons = reasons.iter().filter(|(count, _)| *count > 0).peekable();
        if reasons.peek().is_some() {
            let texts: Vec<String> = reasons.map(|(count, why)| format!("{count} {why}")).collect();
            write!(f, " ({})", texts.join(", "))?;
        }
        writeln!(f)?;
    }
    match &opens.refusal {
        Some(refusal) => writeln!(f, "  no passthrough: {refusal}"),
        None => Ok(()),
    }
}

fn files(f: &mut fmt::Formatter<'_>, files: &[FileStats]) -> fmt::Result {
    let [served, fetched, reads] = ["served", "fetched", "reads"];
    writeln!(f, "  {served:>10} {fetched:>10} {:>8} {reads:>10}  file", "ratio")?;
    for file in files {
        writeln!(
            f,
            "  {:>10} {:>10} {:>8} {:>10}  {}",
            size(file.served_bytes),
            size(file.fetched_bytes),
            ratio(file.fetched_bytes, file.served_bytes),
            file.reads,
            file.path
        )?;
    }
    Ok(())
}

/// Prints numbers, one a line, with the names of the objects that hold them.
fn section(f: &mut fmt::Formatter<'_>, title: &str, value: &Value) -> fmt::Result {
    writeln!(f, "{title}")?;
    lines(f, "", value)
}

fn lines(f: &mut fmt::Formatter<'_>, prefix: &str, value: &Value) -> fmt::Result {
    let Some(members) = value.as_object() else {
        return Ok(());
    };
    for (name, value) in members {
        if value.is_object() {
            lines(f, &format!("{prefix}{name}."), value)?;
        } else if !value.is_null() {
            writeln!(f, "  {:<36} {:>16}", format!("{prefix}{name}"), value.to_string())?;
        }
    }
    let count = |name: &str| members.get(name).and_then(Value::as_u64);
    if let (Some(hits), Some(misses)) = (count("hits"), count("misses")) {
        let all = hits + misses + count("joins").unwrap_or(0);
        let name = format!("{prefix}hit_ratio");
        writeln!(f, "  {name:<36} {:>16}", ratio(hits, all))?;
    }
    Ok(())
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.3}", part as f64 / whole as f64)
}

/// Bytes in the largest unit that leaves a number of at least 1.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut amount = bytes as f64;
    let mut shown = None;
    for unit in UNITS {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        shown = Some(unit);
    }
    match shown {
        Some(unit) => format!("{amount:.1} {unit}"),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ratios_read_well() {
        let shown = [0, 1023, 1024, 1 << 20, 5 << 40, u64::MAX].map(size);
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "5.0 TiB", "16384.0 PiB"]
        );
        assert_eq!([ratio(1, 3), ratio(3, 2), ratio(1, 0)], ["0.333", "1.500", "-"]);
    }
}
