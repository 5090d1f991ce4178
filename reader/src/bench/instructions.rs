//! The workload `instructions`: what a warm lookup costs in instructions, by callgrind, so that a regression shows whatever the noise
//! of the machine.
//!
//! Owns what is given ([`InstructionsOptions`]), the files, the runs under callgrind, and the comparison with figures that were
//! recorded. Instructions of the kernel are not counted. Refuses to compare a build without optimisation with what was recorded of
//! one that has it. Called by the command line.

mod recorded;
mod ways;

use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{BenchError, Result};
use super::findings::{Findings, target_of};
use super::program;
use super::report::{About, Report};
use super::statistics::Estimate;
use crate::sample::{self, SampleOptions};
use recorded::Recorded;
pub use ways::{Way, look_up};

/// Rows of each file: some data pages, all of which are known before anything is counted.
const ROWS: u64 = 8_000;

/// Lookups that are counted, a run.
const LOOKUPS: u64 = 400;
const LOOKUPS_QUICK: u64 = 100;

/// The function that callgrind counts, with all that it calls.
const COUNTED: &str = "*instructions::ways::counted*";

const WHAT: &str = "instructions a lookup / recorded";

const CONDITIONS: [(&str, &str); 3] = [
    (
        "data",
        "`lookup sample` files of 8,000 rows on a local disk: narrow is 2 columns, uncompressed; wide 42, zstd and dictionary; key a \
         sorted key and 10 columns",
    ),
    (
        "warm",
        "all rows were looked up before by the process whose instructions are counted; row ids and keys follow from the seed",
    ),
    (
        "counted",
        "by callgrind, in user space, from the request to its rows; copies and hashes of the C library and of codecs depend on what the \
         processor can do",
    ),
];

/// What a run is given.
#[derive(Debug, Clone)]
pub struct InstructionsOptions {
    /// The program `valgrind`.
    pub valgrind: PathBuf,
    /// This program, which callgrind runs with `bench look-up`.
    pub lookup: PathBuf,
    /// Figures to compare with; `None` is those of the release that this program is of.
    pub recorded: Option<PathBuf>,
    /// Write what was counted to this file, for later runs to compare with.
    pub record: Option<PathBuf>,
    /// Runs of each way.
    pub runs: usize,
    /// Fewer lookups.
    pub quick: bool,
    /// What row ids and keys follow from.
    pub seed: u64,
}

/// Counts all ways.
///
/// # Errors
/// Where valgrind is missing or fails, a value is wrong, or a file cannot be written or understood.
pub fn run(options: &InstructionsOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    if options.runs == 0 {
        return Err(BenchError::Invalid("give one run or more".into()));
    }
    let load_before = super::report::load();
    let known = recorded::to_compare_with(options.recorded.as_deref())?;
    let directory = crate::temporary::Directory::new("lookup-instructions")
        .map_err(|error| BenchError::file(&std::env::temp_dir(), error))?;
    let mut findings = Findings::default();
    let mut made = Vec::new();
    for way in Way::ALL {
        progress(way.name());
        let file = directory.path().join(way.shape_name());
        if !file.exists() {
            let sample = SampleOptions {
                shape: way.shape(),
                rows: ROWS,
                ..SampleOptions::default()
            };
            sample::write(&file, sample)?;
        }
        let counts: Vec<f64> = (0..options.runs)
            .map(|_| counted(options, way, &file, directory.path()))
            .collect::<Result<_>>()?;
        let estimate = Estimate::spread(&counts);
        findings.count(
            format!(
                "{}, {} runs, {:.2} % apart",
                way.name(),
                counts.len(),
                apart(&estimate)
            ),
            estimate.figure,
            way.unit(),
        );
        made.push((way, estimate.figure));
        match &known {
            Err(reason) => findings.skip(&format!("{WHAT}: {}", way.name()), reason.clone()),
            Ok(known) => compare(known, way, &estimate, &mut findings)?,
        }
    }
    if let Some(path) = &options.record {
        recorded::write(path, &made)?;
    }
    let about = About {
        workload: "instructions",
        quick: options.quick,
        pairs: options.runs,
        seed: options.seed,
        daemon: None,
        conditions: &CONDITIONS,
    };
    Ok(Report::new(about, findings, load_before))
}

fn apart(estimate: &Estimate) -> f64 {
    let [low, high] = estimate.interval;
    (high - low) * 100.0 / estimate.figure.max(1.0)
}

fn compare(known: &Recorded, way: Way, estimate: &Estimate, findings: &mut Findings) -> Result<()> {
    let Some(before) = known.of(way) else {
        let name = format!("{WHAT}: {}", way.name());
        findings.skip(&name, "it was not recorded; --record writes what was counted");
        return Ok(());
    };
    let ratio = |count: f64| count / before;
    let estimate = Estimate {
        figure: ratio(estimate.figure),
        interval: estimate.interval.map(ratio),
        ..*estimate
    };
    let detail = format!("{before:.0} {} recorded", way.unit());
    findings.judge_by(target_of(WHAT)?, way.name(), &estimate, 0, &detail);
    Ok(())
}

/// Runs this program under callgrind; instructions of one unit of `way`.
fn counted(options: &InstructionsOptions, way: Way, file: &Path, directory: &Path) -> Result<f64> {
    let output = directory.join(format!("{}.callgrind", way.word()));
    let lookups = if options.quick { LOOKUPS_QUICK } else { LOOKUPS };
    // As many rows would take minutes, and a request of many is an average by itself.
    let lookups = if way.units() > 1 { lookups / 10 } else { lookups };
    let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
    out_file.push(&output);
    let mut command = Command::new(&options.valgrind);
    program::piped(&mut command);
    command
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(out_file)
        .arg(&options.lookup)
        .args(["bench", "look-up", way.word()])
        .arg(file)
        .args([
            "--lookups",
            &lookups.to_string(),
            "--seed",
            &options.seed.to_string(),
        ]);
    program::output(&mut command)?;
    let text = std::fs::read_to_string(&output).map_err(|error| BenchError::file(&output, error))?;
    let total = total_of(&text).ok_or_else(|| {
        BenchError::Invalid(format!(
            "callgrind wrote no totals, or counted nothing of {COUNTED}"
        ))
    })?;
    Ok(total as f64 / (lookups * way.units()) as f64)
}

/// What callgrind says of all that it counted.
fn total_of(output: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok().filter(|total| *total > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_all_counts_is_read() {
        let output = "events: Ir\nfn=(1) x\n3 7\ntotals: 123456\n";
        assert_eq!(total_of(output), Some(123_456));
        assert_eq!(total_of("events: Ir\ntotals: 0\n"), None, "nothing was counted");
        assert_eq!(total_of("events: Ir\n"), None);
    }
}
