//! [`Report`]: all of a run, as JSON with the raw samples, and as a table for people.
//!
//! Owns the names of the JSON's fields, which other programs read. Called by the command line.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Value, json};

use super::cell::Cell;
use super::error::BenchError;
use super::findings::{Count, Findings, Skipped, Verdict};

/// What "cold" and "warm" mean in a run of `mounts`.
pub(super) const MOUNTS_CONDITIONS: [(&str, &str); 5] = [
    (
        "warm",
        "every stripe of the file was read twice before, through the mount that its reads go through; the kernel holds it on every side",
    ),
    (
        "cold",
        "ranges of a file of which none was read before through the daemon; neither the kernel nor the daemon can have them. The DataNode's machine may hold the file in memory, for both sides",
    ),
    (
        "cold sequential",
        "mounts and daemons were made anew before each read, and had read a few bytes of another file, so that connections stood",
    ),
    (
        "cold ls -l",
        "mounts and daemons were made anew before each listing",
    ),
    (
        "method",
        "sides alternate in one run on the same offsets; the interval is a 95 % bootstrap of the median of the pairs' ratios",
    ),
];

/// What a run was.
#[derive(Debug)]
pub(super) struct About<'a> {
    pub(super) workload: &'static str,
    pub(super) quick: bool,
    pub(super) pairs: usize,
    pub(super) seed: u64,
    /// Options of the daemon behind the first mount, if it could be asked.
    pub(super) daemon: Option<Value>,
    /// What the words mean.
    pub(super) conditions: &'a [(&'a str, &'a str)],
}

/// All of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `mounts`, `point`, `get-scan`, `writer` or `instructions`.
    pub workload: &'static str,
    /// Whether it was a quick run, with fewer pairs and less data.
    pub quick: bool,
    /// Pairs of each comparison.
    pub pairs: usize,
    /// What offsets and bootstrap followed from.
    pub seed: u64,
    /// The machine, and how busy it was.
    pub machine: Value,
    /// Options of the daemon behind the first mount, where it could be asked.
    pub daemon: Value,
    /// What the words mean.
    pub conditions: Value,
    /// Figures beside their targets.
    pub verdicts: Vec<Verdict>,
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
    /// Numbers without a target.
    pub counts: Vec<Count>,
    /// Every comparison with its raw samples.
    pub cells: Vec<Cell>,
}

impl Report {
    pub(super) fn new(about: About<'_>, findings: Findings, load_before: f64) -> Report {
        Report {
            workload: about.workload,
            quick: about.quick,
            pairs: about.pairs,
            seed: about.seed,
            machine: machine(load_before),
            daemon: about.daemon.unwrap_or(Value::Null),
            conditions: about
                .conditions
                .iter()
                .map(|(name, text)| ((*name).to_owned(), json!(text)))
                .collect(),
            verdicts: findings.verdicts,
            skipped: findings.skipped,
            counts: findings.counts,
            cells: findings.cells,
        }
    }

    /// Fails where a lookup did, or brought another value than the other sides.
    ///
    /// # Errors
    /// With the number of them; the report itself names the sides.
    pub fn check_values(&self) -> Result<(), BenchError> {
        let sides = self.cells.iter().flat_map(|cell| &cell.sides);
        match sides.map(|side| side.errors).sum::<u64>() {
            0 => Ok(()),
            errors => Err(BenchError::Invalid(format!(
                "{errors} lookups failed or brought other values than the other sides; the report says where"
            ))),
        }
    }

    /// The verdicts as a table, then what was skipped and what else was counted.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let width = self
            .verdicts
            .iter()
            .map(|verdict| verdict.name.len())
            .max()
            .unwrap_or(0);
        for verdict in &self.verdicts {
            let [low, high] = verdict.interval;
            let interval = if verdict.pairs > 1 {
                format!("{} to {}", number(low), number(high))
            } else {
                String::new()
            };
            // A String takes all that is written.
            let _ = writeln!(
                text,
                "{:<9}  {:<width$}  {:>8}  {:<18}  {:<15}  {}",
                verdict.verdict.word(),
                verdict.name,
                number(verdict.figure),
                interval,
                verdict.target,
                verdict.detail
            );
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "{:<9}  {}: {}", "skipped", skipped.name, skipped.reason);
        }
        for count in &self.counts {
            let _ = writeln!(
                text,
                "{:<9}  {}: {} {}",
                "counted",
                count.name,
                number(count.value),
                count.unit
            );
        }
        let of = |word: &str| {
            self.verdicts
                .iter()
                .filter(|verdict| verdict.verdict.word() == word)
                .count()
        };
        let (met, missed, undecided) = (of("met"), of("missed"), of("undecided"));
        let _ = writeln!(
            text,
            "{met} met, {missed} missed, {undecided} undecided, {} skipped; {} pairs, seed {}, load {} before and {} after",
            self.skipped.len(),
            self.pairs,
            self.seed,
            self.machine["load_before"],
            self.machine["load_after"]
        );
        text
    }
}

/// Three significant digits, or all of a whole number.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Processes that ran or waited for a disk, over the last minute; 0 where the kernel does not say.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0)
}

fn machine(load_before: f64) -> Value {
    let first_line = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "cores": cores,
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "memory": first_line("/proc/meminfo").trim_start_matches("MemTotal:").trim(),
        "load_before": load_before,
        "load_after": load(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Condition, Side};
    use super::super::pread::Run;
    use super::*;

    #[test]
    fn a_wrong_value_while_it_is_timed_fails_the_run() {
        let report = |errors| {
            let run = Run {
                seconds: 1.0,
                operations: 1,
                errors,
                ..Run::default()
            };
            let condition = Condition {
                name: "test",
                size_bytes: 0,
                threads: 1,
            };
            let sides = vec![Side::new("ours", move |_| Ok(run.clone()))];
            let findings = Findings {
                cells: vec![condition.measure(sides, &[vec![], vec![]], 1).unwrap()],
                ..Findings::default()
            };
            let about = About {
                workload: "test",
                quick: false,
                pairs: 2,
                seed: 1,
                daemon: None,
                conditions: &[],
            };
            Report::new(about, findings, 0.0)
        };
        assert!(report(0).check_values().is_ok());
        let said = report(3).check_values().unwrap_err().to_string();
        assert!(said.starts_with("6 lookups failed"), "{said}");
    }
}
