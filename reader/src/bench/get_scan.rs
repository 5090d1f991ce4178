//! The workload `get-scan`: one row by its key, by this library and by a scan of the `parquet` crate that is pruned by bounds.
//!
//! Owns what is given ([`GetScanOptions`]), the names of the files, and the conditions. Refuses nothing that is missing: it is
//! skipped, and the report says why. Called by the command line.

mod sides;

use std::cell::Cell as Sum;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use super::cell::{Cell, Condition, Side};
use super::cpu;
use super::error::{BenchError, Result};
use super::findings::Findings;
use super::load::{Load, LookUp, Turn, drive};
use super::program;
use super::random::Random;
use super::report::{About, Report};
use super::statistics;
use crate::row::RowRange;
use crate::sample::{self, Shape};
use crate::structures::StructureCache;
use crate::table::{OpenOptions, Projection};
use sides::{Client, Scanner};

const SCAN: &str = "scan of one row, parquet crate, all kept";
const SHARED: &str = "get by key, one client";
const OWN: &str = "get by key, a client a thread";

/// Threads that are judged, and those that show what one alone does.
const THREADS: usize = 16;
const ALONE: usize = 1;

/// Keys whose data pages are made known together.
const KEYS_TOGETHER: usize = 512;

/// A file, `lookup sample --columns key` with seed 0, and how much is asked of it in a round: the scans of a round take about a
/// second on two processors, and gets are repeated with other keys until they do.
struct Layout {
    file: &'static str,
    name: &'static str,
    page_rows: usize,
    keys: usize,
    repeats: usize,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        file: "key.parquet",
        name: "4,096 rows a data page",
        page_rows: 4096,
        keys: 1600,
        repeats: 32,
    },
    Layout {
        file: "key-40.parquet",
        name: "40 rows a data page",
        page_rows: 40,
        keys: 8000,
        repeats: 6,
    },
];

const CONDITIONS: [(&str, &str); 4] = [
    (
        "warm",
        "every row of the file was read before through the mounts, and its values compared with what the sample says; then the \
         row of one key of each data page by every client and by the scan",
    ),
    (
        "sides",
        "get: the library's lookup by key, table kept. Scan: the crate's reader with its metadata, page index and open files kept, \
         pruned by the bounds of row groups and data pages, filtered by the key. Clients of a thread share the memory that the one \
         client has",
    ),
    (
        "method",
        "closed loop: a thread sends its next request when it has the row of the last; sides alternate, the interval is a 95 % \
         bootstrap of the median of the rounds' ratios",
    ),
    (
        "published",
        "on another machine of 4 cores, with requests over a network: get 74-76 thousand a second and scan 35-36; with blocks of \
         4 KiB 80-85 and 43-44",
    ),
];

/// What a run is given.
#[derive(Debug, Clone, Default)]
pub struct GetScanOptions {
    /// Mount points of one source, or local directories.
    pub mounts: Vec<PathBuf>,
    /// The program to ask for the daemon's options.
    pub lookupfs: Option<PathBuf>,
    /// Pairs of each comparison.
    pub pairs: usize,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// What keys and bootstrap follow from.
    pub seed: u64,
}

/// Measures both layouts.
///
/// # Errors
/// Where a file is no sample, or a row of the warm-up is wrong.
pub fn run(options: &GetScanOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    if options.mounts.is_empty() || options.pairs == 0 {
        return Err(BenchError::Invalid(
            "give one --mount DIR or more, and one pair or more".into(),
        ));
    }
    let load_before = super::report::load();
    let mut session = Session {
        options,
        findings: Findings::default(),
        random: Random::new(options.seed),
    };
    for layout in &LAYOUTS {
        progress(layout.file);
        session.layout(layout)?;
    }
    let daemon = match &options.lookupfs {
        Some(lookupfs) => program::stats(lookupfs, &options.mounts[0]).ok(),
        None => None,
    };
    let about = About {
        workload: "get-scan",
        quick: options.quick,
        pairs: options.pairs,
        seed: options.seed,
        daemon: daemon.map(|stats| stats.options().clone()),
        conditions: &CONDITIONS,
    };
    Ok(Report::new(about, session.findings, load_before))
}

struct Session<'a> {
    options: &'a GetScanOptions,
    findings: Findings,
    random: Random,
}

/// What the sides of one file are given.
struct Given<'a> {
    layout: &'a Layout,
    shared: Client,
    own: Vec<Client>,
    scanner: Scanner,
    keys: Vec<i64>,
}

impl Session<'_> {
    fn layout(&mut self, layout: &Layout) -> Result<()> {
        let path = self.options.mounts[0].join(layout.file);
        if !path.is_file() {
            let reason = format!("no {} in {}", layout.file, self.options.mounts[0].display());
            self.findings
                .skip(&format!("get and scan of {}", layout.file), reason);
            return Ok(());
        }
        let given = self.warm_up(layout)?;
        for threads in [THREADS, ALONE] {
            self.cell(&given, threads)?;
        }
        Ok(())
    }

    /// Opens all clients, compares every value, and makes known what can be.
    fn warm_up<'a>(&self, layout: &'a Layout) -> Result<Given<'a>> {
        let mounts = &self.options.mounts;
        let open = |options| Client::open(mounts, layout.file, options);
        let shared = open(OpenOptions::default())?;
        let budget = OpenOptions::default().structures.budget_bytes() / THREADS as u64;
        let of_thread = |_| {
            open(OpenOptions {
                structures: StructureCache::new(budget),
                ..OpenOptions::default()
            })
        };
        let own = (0..THREADS).map(of_thread).collect::<Result<Vec<_>>>()?;
        let keys = checked_keys(&shared)?;
        let of_pages: Vec<i64> = keys.iter().copied().step_by(layout.page_rows).collect();
        for client in std::iter::once(&shared).chain(&own) {
            of_pages
                .chunks(KEYS_TOGETHER)
                .try_for_each(|keys| client.touch(keys))?;
        }
        let scanner = Scanner::open(mounts, layout.file)?;
        for (page, key) in of_pages.iter().enumerate() {
            scanner.scan((page * layout.page_rows) as u64, *key)?;
        }
        Ok(Given {
            layout,
            shared,
            own,
            scanner,
            keys,
        })
    }

    /// Row ids of each round, whose keys are looked for.
    fn rounds(&mut self, given: &Given<'_>, threads: usize) -> Vec<Vec<u64>> {
        let fewer = if threads == ALONE { 2 } else { 1 } * if self.options.quick { 4 } else { 1 };
        let count = given.layout.keys / fewer;
        let rows = given.keys.len() as u64;
        let random = &mut self.random;
        let mut round = || (0..count).map(|_| random.below(rows)).collect();
        (0..self.options.pairs).map(|_| round()).collect()
    }

    fn cell(&mut self, given: &Given<'_>, threads: usize) -> Result<()> {
        let rounds = self.rounds(given, threads);
        let load = |repeats| Load {
            threads,
            rows_a_request: 1,
            repeats,
        };
        let (once, often) = (load(1), load(given.layout.repeats));
        // Other rows each time, so that nothing is nearer than it would be.
        let key_of = |turn: Turn, rows: &[u64]| {
            let row = rows.first().copied().unwrap_or(0);
            let row = row.wrapping_add(turn.repeat as u64 * 0x9e37_79b1) % given.keys.len() as u64;
            (row, given.keys[row as usize])
        };
        let scan: LookUp<'_> = &|turn, rows| {
            let (row, key) = key_of(turn, rows);
            given.scanner.scan(row, key)
        };
        let shared: LookUp<'_> = &|turn, rows| given.shared.get(key_of(turn, rows).1);
        let own: LookUp<'_> = &|turn, rows| given.own[turn.thread].get(key_of(turn, rows).1);
        let used = [Used::default(), Used::default(), Used::default()];
        let names = [(SCAN, once, scan), (SHARED, often, shared), (OWN, often, own)];
        let sides = names.iter().zip(&used).map(|((name, load, look_up), used)| {
            Side::new(*name, move |rows: &[u64]| {
                let before = cpu::seconds();
                let run = drive(*load, rows, *look_up)?;
                used.add(cpu::seconds() - before, run.operations);
                Ok(run)
            })
        });
        let condition = Condition {
            name: given.layout.name,
            size_bytes: 0,
            threads,
        };
        let cell = condition.measure(sides.collect(), &rounds, self.options.seed)?;
        let case = format!("{}, {threads} threads", given.layout.name).replace(" 1 threads", " 1 thread");
        self.judge(&case, cell, &used)
    }

    fn judge(&mut self, case: &str, cell: Cell, used: &[Used; 3]) -> Result<()> {
        let seed = self.options.seed;
        if cell.threads == THREADS {
            let what = "get-scan, get / scan of one row";
            self.findings
                .judge_pair(what, case, &cell, (SHARED, SCAN), seed)?;
        }
        let more = [
            ("get / scan", SHARED, SCAN),
            ("a client a thread / one", OWN, SHARED),
        ];
        for (what, ours, base) in more {
            if let Some((estimate, _)) = cell.ratio(ours, base, seed) {
                self.findings
                    .count(format!("{what}: {case}"), estimate.figure, "times the rate");
            }
        }
        for ((name, used), side) in [SCAN, SHARED, OWN].iter().zip(used).zip(&cell.sides) {
            let rate = statistics::median(&[side.median_per_second]).unwrap_or(0.0);
            self.findings
                .count(format!("{name}: {case}"), rate.round(), "rows/s");
            self.findings
                .count(format!("{name}, CPU: {case}"), used.microseconds(), "us a row");
        }
        self.findings.cells.push(cell);
        Ok(())
    }
}

/// What a side has used of all processors.
#[derive(Debug, Default)]
struct Used {
    seconds: Sum<f64>,
    rows: Sum<u64>,
}

impl Used {
    fn add(&self, seconds: f64, rows: u64) {
        self.seconds.set(self.seconds.get() + seconds);
        self.rows.set(self.rows.get() + rows);
    }

    fn microseconds(&self) -> f64 {
        self.seconds.get() * 1e6 / self.rows.get().max(1) as f64
    }
}

/// Reads every row and compares every value with what the sample says, twice, as a file that is in use is known; gives all
/// keys.
fn checked_keys(client: &Client) -> Result<Vec<i64>> {
    let mut keys: Vec<i64> = Vec::new();
    for _ in 0..2 {
        keys.clear();
        for batch in client.table.scan(RowRange::ALL, &Projection::all(), 16_384)? {
            let batch = batch?;
            let first = keys.len() as u64;
            let rows = first..first + batch.num_rows() as u64;
            sample::check_rows(&client.table, &batch, Shape::Key, 0, rows)?;
            keys.extend(batch.column(0).as_primitive::<Int64Type>().values());
        }
    }
    match keys.is_empty() {
        true => Err(BenchError::Invalid(format!(
            "{}: no rows; make it by `lookup sample --columns key`",
            client.table.path().display()
        ))),
        false => Ok(keys),
    }
}
