//! The workload `writer`: what size statistics cost when columns are written.
//!
//! Owns what is given ([`WriterOptions`]), the sides, and the conditions. Times are reported; what is judged is the share of
//! instructions, by callgrind, since the format library has no switch for size statistics alone, and a part in a hundred is below
//! what a clock tells apart. Without callgrind the verdicts are skipped, and the report says so. Called by the command line.

mod callgrind;
mod columns;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use arrow_array::RecordBatch;

use super::cell::{Cell, Condition, Side};
use super::error::{BenchError, Result};
use super::findings::{Findings, target_of};
use super::pread::Run;
use super::program;
use super::report::{About, Report};
use super::statistics::Estimate;
use crate::rewrite::SizeStatistics;
use callgrind::Share;
use columns::Written;
pub use columns::WrittenColumn;

/// The sides, the one first that the others are held against.
const SIDES: [(&str, Written); 4] = [
    ("size statistics none", Written::Bounds(SizeStatistics::None)),
    ("size statistics chunk", Written::Bounds(SizeStatistics::Chunk)),
    ("size statistics page", Written::Bounds(SizeStatistics::Page)),
    ("no statistics of any kind", Written::Bare),
];

/// One row in so many is null, at random, so that levels change all the time: what counts them runs for each change.
const NULL_EACH: u64 = 10;

const ROWS: usize = 1_000_000;
const ROWS_QUICK: usize = 200_000;
/// Rows that are written under callgrind, which takes fifty times as long; the share is the same for any number.
const ROWS_COUNTED: usize = 200_000;

/// Addresses on one command line of addr2line, which allows some 2 MB.
const ADDRESSES_TOGETHER: usize = 20_000;

/// The function that callgrind counts, with all that it calls.
const COUNTED: &str = "*writer::columns::write_row_group*";

const WHAT: &str = "writer, size statistics / page-level write";

const CONDITIONS: [(&str, &str); 4] = [
    (
        "data",
        "one column in memory, null in one row of ten at random; plain and uncompressed, since a codec or a dictionary would only make \
         the share smaller; written into memory",
    ),
    (
        "sides",
        "bounds and null counts of every data page, with size statistics taken out as `lookup rewrite` does; beside them a write \
         without statistics of any kind. The crate counts levels in all but the last",
    ),
    (
        "share",
        "instructions of the source lines that speak of histograms or unencoded sizes, and of what was inlined there, of all \
         instructions of a write with size statistics of data pages",
    ),
    (
        "method",
        "every written file is read back once before anything is timed; sides alternate, the interval is a 95 % bootstrap of the \
         median of the rounds' ratios",
    ),
];

/// What a run is given.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// The program `valgrind`.
    pub valgrind: PathBuf,
    /// The program `addr2line`, which knows what was inlined where.
    pub addr2line: PathBuf,
    /// This program, which callgrind runs with `bench write-once`.
    pub lookup: PathBuf,
    /// Pairs of each comparison.
    pub pairs: usize,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// What values and bootstrap follow from.
    pub seed: u64,
}

/// Measures all columns.
///
/// # Errors
/// Where what was written is not what was given.
pub fn run(options: &WriterOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    if options.pairs == 0 {
        return Err(BenchError::Invalid("give one pair or more".into()));
    }
    let load_before = super::report::load();
    let mut findings = Findings::default();
    for column in WrittenColumn::ALL {
        progress(column.name());
        findings.cells.push(timed(options, column)?);
        progress(&format!("{}, instructions", column.name()));
        judge(options, column, &mut findings)?;
    }
    let about = About {
        workload: "writer",
        quick: options.quick,
        pairs: options.pairs,
        seed: options.seed,
        daemon: None,
        conditions: &CONDITIONS,
    };
    Ok(Report::new(about, findings, load_before))
}

/// Writes a column once with size statistics of data pages: what callgrind counts. About one row in `null_each` is null, none if
/// that is 0.
///
/// # Errors
/// Where it cannot be written, or is not what was given.
pub fn write_once(column: WrittenColumn, rows: usize, null_each: u64, seed: u64) -> Result<(), BenchError> {
    let batches = columns::batches(column, rows, null_each, seed)?;
    let written = Written::Bounds(SizeStatistics::Page);
    let bytes = columns::write_row_group(&batches, written)?;
    columns::check(bytes, &batches, written)
}

fn timed(options: &WriterOptions, column: WrittenColumn) -> Result<Cell> {
    let rows = if options.quick { ROWS_QUICK } else { ROWS };
    let batches = columns::batches(column, rows, NULL_EACH, options.seed)?;
    for (_, written) in SIDES {
        columns::check(columns::write_row_group(&batches, written)?, &batches, written)?;
    }
    let batches = &batches;
    let sides = SIDES.map(|(name, written)| Side::new(name, move |_: &[u64]| once(batches, written)));
    let condition = Condition {
        name: column.name(),
        size_bytes: 0,
        threads: 1,
    };
    // Nothing is drawn: each round writes the same rows.
    let rounds = vec![Vec::new(); options.pairs];
    let mut cell = condition.measure(sides.into(), &rounds, options.seed)?;
    cell.notes.push(format!("{rows} rows a write; rates are rows"));
    Ok(cell)
}

fn once(batches: &[RecordBatch], written: Written) -> Result<Run> {
    let began = Instant::now();
    let bytes = columns::write_row_group(batches, written)?;
    let seconds = began.elapsed().as_secs_f64();
    drop(bytes);
    Ok(Run {
        seconds,
        operations: batches.iter().map(|batch| batch.num_rows() as u64).sum(),
        ..Run::default()
    })
}

fn judge(options: &WriterOptions, column: WrittenColumn, findings: &mut Findings) -> Result<()> {
    let case = column.name();
    let both =
        counted(options, column, NULL_EACH).and_then(|share| Ok((share, counted(options, column, 0)?)));
    let (share, without_nulls) = match both {
        Ok(both) => both,
        Err(reason) => {
            findings.skip(&format!("{WHAT}: {case}"), reason.to_string());
            return Ok(());
        }
    };
    let estimate = Estimate::counted(share.percent());
    findings.judge_by(target_of(WHAT)?, case, &estimate, 0, "by callgrind");
    let mut count = |what: &str, value, unit| findings.count(format!("{what}: {case}"), value, unit);
    let per_row = |instructions: u64| instructions as f64 / ROWS_COUNTED as f64;
    count("page-level write", per_row(share.total), "instructions a row");
    count(
        "of these, size statistics",
        per_row(share.part),
        "instructions a row",
    );
    count(
        "size statistics where no row is null",
        without_nulls.percent(),
        "%",
    );
    Ok(())
}

/// Runs this program under callgrind.
fn counted(options: &WriterOptions, column: WrittenColumn, null_each: u64) -> Result<Share> {
    let output = std::env::temp_dir().join(format!(
        "lookup-bench-{}-{}.callgrind",
        std::process::id(),
        column.word()
    ));
    let share = counted_into(options, column, null_each, &output);
    // It is not there where callgrind never ran.
    let _ = std::fs::remove_file(&output);
    share
}

fn counted_into(
    options: &WriterOptions,
    column: WrittenColumn,
    null_each: u64,
    output: &Path,
) -> Result<Share> {
    let mut out_file = std::ffi::OsString::from("--callgrind-out-file=");
    out_file.push(output);
    let mut command = piped(&options.valgrind);
    command
        .args([
            "--tool=callgrind",
            "--dump-instr=yes",
            "--compress-strings=no",
            "--compress-pos=no",
        ])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(out_file)
        .arg(&options.lookup)
        .args(["bench", "write-once", column.word(), "--rows"])
        .args([
            ROWS_COUNTED.to_string(),
            "--null-each".into(),
            null_each.to_string(),
        ])
        .args(["--seed", &options.seed.to_string()]);
    program::output(&mut command)?;
    let text = std::fs::read(output).map_err(|error| BenchError::file(output, error))?;
    let counted = callgrind::counted(&String::from_utf8_lossy(&text), &options.lookup)?;
    let mut frames = String::new();
    for addresses in counted.addresses().chunks(ADDRESSES_TOGETHER) {
        let mut command = piped(&options.addr2line);
        command
            .args(["-a", "-i", "-e"])
            .arg(&options.lookup)
            .args(addresses);
        frames += &String::from_utf8_lossy(&program::output(&mut command)?.stdout);
    }
    counted.share(&frames, &|path| std::fs::read_to_string(path).ok())
}

fn piped(program: &Path) -> Command {
    let mut command = Command::new(program);
    program::piped(&mut command);
    command
}
