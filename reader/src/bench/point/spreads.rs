//! Lookups spread over mounts by hash, thread and round-robin: how fast they are warm, and how much of the file the kernels of all
//! mounts hold for it.
//!
//! Owns the cells `spread` and the counts beside them; nothing is judged, since no target is agreed: the figures are why `hash` is
//! the default. Refuses a single mount, over which nothing can be spread. Called by `point.rs`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use super::super::cell::{Cell, Condition, Side};
use super::super::error::{BenchError, Result};
use super::super::findings::Findings;
use super::super::load::{Load, drive};
use super::super::statistics;
use super::sides;
use super::{Given, REPEATS};
use crate::mounts::Spread;
use crate::read_at::kernel_bytes;
use crate::table::{OpenOptions, Table};

/// The rows that are asked for: with 16 mounts that each hold them all, 800 MB of kernel memory.
const ROWS: u64 = 50_000;

const SPREADS: [(&str, Spread); 3] = [
    ("hash", Spread::Hash),
    ("thread", Spread::Thread),
    ("round-robin", Spread::RoundRobin),
];

/// Threads of the cells.
const THREADS: [usize; 2] = [1, 64];

/// Measures all of them. `rounds` gives row ids of `count` lookups below a number, for each round.
pub(super) fn measure(
    given: &Given<'_>,
    findings: &mut Findings,
    seed: u64,
    mut rounds: impl FnMut(u64) -> Vec<Vec<u64>>,
) -> Result<Vec<Cell>> {
    if given.file.mounts.len() < 2 {
        findings.skip(
            "spread over mounts",
            "one mount was given; give --mount more than once",
        );
        return Ok(Vec::new());
    }
    let rows = given.rows.min(ROWS);
    let mut tables: Vec<(&str, Table)> = Vec::new();
    let paths: Vec<PathBuf> = given
        .file
        .mounts
        .iter()
        .map(|mount| mount.join(given.file.file))
        .collect();
    let dropped = rounds(rows);
    for (name, spread) in SPREADS {
        let options = OpenOptions {
            spread,
            ..OpenOptions::default()
        };
        let table = sides::table(&given.file, &options)?;
        // What is known is known on every side; what the kernels hold is what is looked for.
        known(&table, rows)?;
        forget(&paths)?;
        for rows in &dropped {
            drive(load(THREADS[1], 1), rows, &|_, rows| sides::kept(&table, rows))?;
        }
        let held = paths.iter().map(kernel_bytes_of).sum::<Result<u64>>()?;
        let of_file = rows as f64 * 1028.0;
        let what = format!(
            "spread {name}: in the kernels after {} lookups of {rows} rows, in times of these",
            lookups(&dropped)
        );
        findings.count(what, held as f64 / of_file, "times");
        tables.push((name, table));
    }
    let mut cells = Vec::new();
    for threads in THREADS {
        let cell = cell(threads, &tables, &rounds(rows), seed)?;
        for (side, (name, _)) in cell.sides.iter().zip(SPREADS) {
            findings.count(
                format!("spread {name}: {threads} threads"),
                side.median_per_second,
                "rows/s",
            );
        }
        compare(&cell, threads, seed, findings);
        cells.push(cell);
    }
    Ok(cells)
}

fn load(threads: usize, repeats: usize) -> Load {
    Load {
        threads,
        rows_a_request: 1,
        repeats,
    }
}

fn lookups(rounds: &[Vec<u64>]) -> usize {
    rounds.iter().map(Vec::len).sum()
}

/// Looks a row of each data page up, so that all of them are mapped.
fn known(table: &Table, rows: u64) -> Result<()> {
    for row in (0..rows).step_by(1000) {
        sides::kept(table, &[row])?;
    }
    Ok(())
}

fn cell(threads: usize, tables: &[(&str, Table)], rounds: &[Vec<u64>], seed: u64) -> Result<Cell> {
    let repeats = if threads == 1 { REPEATS / 10 } else { REPEATS };
    let sides = tables.iter().map(|(name, table)| {
        let mut is_warm = false;
        Side::new(*name, move |rows: &[u64]| {
            if !std::mem::replace(&mut is_warm, true) {
                // Each of the mounts that a row may be read through has it.
                drive(load(threads, 20), rows, &|_, rows| sides::kept(table, rows))?;
            }
            drive(load(threads, repeats), rows, &|_, rows| sides::kept(table, rows))
        })
    });
    let condition = Condition {
        name: "spread",
        size_bytes: 0,
        threads,
    };
    // The same rows in each round: what a round has to make warm is no matter of the spread.
    let same = vec![rounds.first().cloned().unwrap_or_default(); rounds.len()];
    let mut cell = condition.measure(sides.collect(), &same, seed)?;
    cell.notes.push("table kept, 1 row a request".into());
    Ok(cell)
}

/// How the others do against the first.
fn compare(cell: &Cell, threads: usize, seed: u64, findings: &mut Findings) {
    let rates = |side: usize| -> Vec<f64> { cell.rounds.iter().map(|runs| runs[side].rate()).collect() };
    for (side, (name, _)) in SPREADS.iter().enumerate().skip(1) {
        if let Some(estimate) = statistics::ratio(&rates(side), &rates(0), seed) {
            let [low, high] = estimate.interval;
            let what = format!("spread {name} / hash: {threads} threads, {low:.2} to {high:.2}");
            findings.count(what, estimate.figure, "times");
        }
    }
}

/// Has the kernels of all mounts drop the file.
fn forget(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        let file = File::open(path).map_err(|error| BenchError::file(path, error))?;
        // SAFETY: the descriptor is open for the length of the call, which touches no memory of ours.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    Ok(())
}

fn kernel_bytes_of(path: &PathBuf) -> Result<u64> {
    let file = File::open(path).map_err(|error| BenchError::file(path, error))?;
    let len = file
        .metadata()
        .map_err(|error| BenchError::file(path, error))?
        .len();
    Ok(kernel_bytes(&file, 0, len))
}
