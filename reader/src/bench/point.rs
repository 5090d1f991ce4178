//! The workload `point`: rows by row id through mounts, each from a file that is opened for it, against the `parquet` crate over
//! the same mounts and against what the system takes to open, read a KiB and close.
//!
//! Owns what is given ([`PointOptions`]), the names of the files, and the conditions. Refuses nothing that is missing: it is
//! skipped, and the report says why. Called by the command line.

mod sides;
mod spreads;

use std::path::{Path, PathBuf};

use super::cell::{Cell, Condition, Side};
use super::error::{BenchError, Result};
use super::findings::Findings;
use super::load::{Load, drive};
use super::program;
use super::random::Random;
use super::report::{About, Report};
use super::statistics;
use crate::row::{RowId, RowRange};
use crate::sample::{self, Shape};
use crate::table::{OpenOptions, Projection, Table};
use sides::OnMounts;

/// An INT64 `id` and a KiB of BINARY `payload`, uncompressed, as `lookup sample` writes them.
const NARROW_FILE: &str = "narrow.parquet";
/// 42 columns, zstd and dictionary, as `lookup sample --columns wide` writes them.
const WIDE_FILE: &str = "wide.parquet";

const OPENED: &str = "lookup, file opened";
const KEPT: &str = "lookup, table kept";
const CRATE: &str = "parquet crate";
const CRATE_KEPT: &str = "parquet crate, metadata kept";
const LIMIT: &str = "open, pread 1 KiB, close on the local disk";

/// Threads and rows a request that most targets are for.
const JUDGED: (usize, usize) = (64, 1);
/// How often the faster sides look the rows of a round up.
const REPEATS: usize = 100;
/// Rows of one request where there are many.
const MANY_ROWS: usize = 1024;

/// What "warm" and the sides mean here.
const CONDITIONS: [(&str, &str); 3] = [
    (
        "warm",
        "every row of the file was read before through the mounts, and its values compared with what the sample says; what a \
         kernel or a reader keeps is kept",
    ),
    (
        "sides",
        "each looks the same rows up in a round, the faster ones several times; a data page is read through one mount on every \
         side; a file is opened for each request but where a table or its metadata is kept",
    ),
    (
        "method",
        "closed loop: a thread sends its next request when it has the last one's rows; sides alternate, the interval is a 95 % \
         bootstrap of the median of the rounds' ratios",
    ),
];

/// What a run is given.
#[derive(Debug, Clone, Default)]
pub struct PointOptions {
    /// Mount points of one source.
    pub mounts: Vec<PathBuf>,
    /// The same files on a local disk.
    pub local: PathBuf,
    /// Mount points of other filesystems, by name.
    pub peers: Vec<(String, PathBuf)>,
    /// The program to ask for the daemon's options.
    pub lookupfs: Option<PathBuf>,
    /// Pairs of each comparison.
    pub pairs: usize,
    /// Fewer and shorter runs.
    pub quick: bool,
    /// What row ids and bootstrap follow from.
    pub seed: u64,
}

/// Measures everything that the options give the means for.
///
/// # Errors
/// Where a file is no sample, or a row of the warm-up is wrong.
pub fn run(options: &PointOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
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
    for (file, shape) in [(NARROW_FILE, Shape::Narrow), (WIDE_FILE, Shape::Wide)] {
        progress(file);
        session.file(file, shape)?;
    }
    let daemon = match &options.lookupfs {
        Some(lookupfs) => program::stats(lookupfs, &options.mounts[0]).ok(),
        None => None,
    };
    let about = About {
        workload: "point",
        quick: options.quick,
        pairs: options.pairs,
        seed: options.seed,
        daemon: daemon.map(|stats| stats.options().clone()),
        conditions: &CONDITIONS,
    };
    Ok(Report::new(about, session.findings, load_before))
}

struct Session<'a> {
    options: &'a PointOptions,
    findings: Findings,
    random: Random,
}

impl Session<'_> {
    fn file(&mut self, file: &str, shape: Shape) -> Result<()> {
        let local = self.options.local.join(file);
        if !local.is_file() {
            let reason = format!("no {file} in {}", self.options.local.display());
            self.findings.skip(&format!("point lookups of {file}"), reason);
            return Ok(());
        }
        // One cache for all lookups of the run, as a tool has it.
        let options = OpenOptions::default();
        let on_mounts = OnMounts::new(&self.options.mounts, file);
        let table = sides::table(&on_mounts, &options)?;
        warm_up(&table, shape)?;
        for (_, peer) in &self.options.peers {
            read_all(&peer.join(file))?;
        }
        let given = Given {
            file: on_mounts,
            options: &options,
            table: &table,
            local: &local,
            rows: table.row_count(),
        };
        match shape {
            Shape::Narrow => self.narrow(&given),
            _ => self.wide(&given),
        }
    }

    /// Row ids of each round.
    fn rounds(&mut self, given: &Given<'_>, count: usize) -> Vec<Vec<u64>> {
        let count = if self.options.quick {
            count.div_ceil(4)
        } else {
            count
        };
        let random = &mut self.random;
        // A request asks for no row twice, which the crate's reader could not give.
        let mut round = || {
            let mut rows: Vec<u64> = (0..count).map(|_| random.below(given.rows)).collect();
            rows.sort_unstable();
            rows.dedup();
            random.shuffle(&mut rows);
            rows
        };
        (0..self.options.pairs).map(|_| round()).collect()
    }

    fn narrow(&mut self, given: &Given<'_>) -> Result<()> {
        for (threads, rows_a_request) in [(1, 1), (2, 1), (64, 1), (256, 1), (128, 4), (256, 4)] {
            let rounds = self.rounds(given, 1200);
            let cell = self.cell(given, (threads, rows_a_request), REPEATS, &rounds)?;
            let case = case(threads, rows_a_request);
            let seed = self.options.seed;
            if (threads, rows_a_request) == JUDGED {
                let findings = &mut self.findings;
                let mut judge =
                    |what, ours, base| findings.judge_pair(what, &case, &cell, (ours, base), seed);
                judge("point, file opened / parquet crate", OPENED, CRATE)?;
                judge("point, table kept / parquet crate", KEPT, CRATE)?;
                judge("point, file opened / open, pread, close", OPENED, LIMIT)?;
                for (name, _) in &self.options.peers {
                    let peer = peer_side(name);
                    self.findings.judge_pair(
                        "point, file opened / peer",
                        &format!("{name}, {case}"),
                        &cell,
                        (OPENED, &peer),
                        seed,
                    )?;
                }
                if self.options.peers.is_empty() {
                    self.findings
                        .skip("point, file opened / peer", "no --peer-mount was given");
                }
            }
            if threads == 2 {
                self.judge_p99(&cell, &case)?;
            }
            self.findings.cells.push(cell);
        }
        self.spreads(given)
    }

    fn spreads(&mut self, given: &Given<'_>) -> Result<()> {
        let (mut findings, seed) = (std::mem::take(&mut self.findings), self.options.seed);
        let cells = spreads::measure(given, &mut findings, seed, |rows| {
            let below = Given {
                rows,
                ..given.clone()
            };
            self.rounds(&below, 1200)
        });
        self.findings = findings;
        self.findings.cells.extend(cells?);
        Ok(())
    }

    fn wide(&mut self, given: &Given<'_>) -> Result<()> {
        let seed = self.options.seed;
        let rounds = self.rounds(given, 200);
        let one = self.cell(given, (1, 1), 20, &rounds)?;
        self.findings.judge_pair(
            "42 columns, one row, file opened / parquet crate, metadata kept",
            "1 thread",
            &one,
            (OPENED, CRATE_KEPT),
            seed,
        )?;
        self.judge_rate("42 columns, one row a request, file opened", &one)?;
        self.findings.cells.push(one);
        let rounds = self.rounds(given, 4 * MANY_ROWS);
        let many = self.cell(given, (1, MANY_ROWS), 5, &rounds)?;
        self.judge_rate("42 columns, 1,024 rows a request, file opened", &many)?;
        self.findings.cells.push(many);
        Ok(())
    }

    /// All sides, the crate first.
    fn cell(
        &self,
        given: &Given<'_>,
        (threads, rows_a_request): (usize, usize),
        repeats: usize,
        rounds: &[Vec<u64>],
    ) -> Result<Cell> {
        let path = self.options.mounts[0].join(given.file.file);
        let metadata = sides::metadata(&path)?;
        let load = |repeats| Load {
            threads,
            rows_a_request,
            repeats,
        };
        let (once, often) = (load(1), load(repeats));
        let (file, rows_in_file) = (&given.file, given.rows);
        let mut sides = vec![
            Side::new(CRATE, move |rows: &[u64]| {
                drive(once, rows, &|_, rows| {
                    sides::by_crate(file, None, rows_in_file, rows)
                })
            }),
            Side::new(CRATE_KEPT, {
                let metadata = metadata.clone();
                move |rows: &[u64]| {
                    drive(once, rows, &|_, rows| {
                        sides::by_crate(file, Some(&metadata), rows_in_file, rows)
                    })
                }
            }),
            Side::new(OPENED, move |rows: &[u64]| {
                drive(often, rows, &|_, rows| sides::opened(file, given.options, rows))
            }),
            Side::new(KEPT, move |rows: &[u64]| {
                drive(often, rows, &|_, rows| sides::kept(given.table, rows))
            }),
        ];
        // Peers are slow, and judged in one condition.
        let peers = self
            .options
            .peers
            .iter()
            .filter(|_| (threads, rows_a_request) == JUDGED);
        for (name, mount) in peers {
            let mounts = std::slice::from_ref(mount);
            let name_of_file = file.file;
            sides.push(Side::new(peer_side(name), move |rows: &[u64]| {
                let file = OnMounts::new(mounts, name_of_file);
                drive(once, rows, &|_, rows| {
                    sides::by_crate(&file, None, rows_in_file, rows)
                })
            }));
        }
        let condition = Condition {
            name: if given.file.file == NARROW_FILE {
                "narrow"
            } else {
                "wide"
            },
            size_bytes: 0,
            threads,
        };
        let mut cell = condition.measure(sides, rounds, self.options.seed)?;
        cell.notes.push(format!("rows a request: {rows_a_request}"));
        if rows_a_request == 1 && condition.name == "narrow" {
            self.limit(given, often, condition, rounds, &mut cell)?;
        }
        Ok(cell)
    }

    /// What the system takes: it brings other bytes than rows, so it runs beside the others, and is not compared with them.
    fn limit(
        &self,
        given: &Given<'_>,
        load: Load,
        condition: Condition,
        rounds: &[Vec<u64>],
        cell: &mut Cell,
    ) -> Result<()> {
        let file = std::fs::metadata(given.local).map_err(|error| BenchError::file(given.local, error))?;
        let len = file.len();
        let limit = Side::new(LIMIT, move |rows: &[u64]| {
            drive(load, rows, &|_, rows| sides::limit(given.local, len, rows))
        });
        let ours = Side::new(OPENED, move |rows: &[u64]| {
            drive(load, rows, &|_, rows| {
                sides::opened(&given.file, given.options, rows).map(|_| 0)
            })
        });
        let beside = condition.measure(vec![limit, ours], rounds, self.options.seed)?;
        self.beside(cell, beside);
        Ok(())
    }

    /// Puts the side of the limit, and ours of the same rounds, to the others.
    fn beside(&self, cell: &mut Cell, beside: Cell) {
        for (own, other) in cell.rounds.iter_mut().zip(&beside.rounds) {
            own.extend(other.iter().take(1).cloned());
        }
        cell.sides.extend(beside.sides.into_iter().take(1));
    }

    fn judge_p99(&mut self, cell: &Cell, case: &str) -> Result<()> {
        let (Some(ours), Some(base)) = (cell.side(OPENED), cell.side(CRATE)) else {
            return Ok(());
        };
        let p99 = |side: usize| -> Vec<f64> {
            cell.rounds
                .iter()
                .map(|runs| runs[side].p99_us.max(0.001))
                .collect()
        };
        let Some(estimate) = statistics::ratio(&p99(ours), &p99(base), self.options.seed) else {
            return Ok(());
        };
        let errors = cell.sides[ours].errors + cell.sides[base].errors;
        self.findings.judge(
            "point, P99 of file opened / parquet crate",
            case,
            &estimate,
            errors,
            "",
        )
    }

    fn judge_rate(&mut self, what: &str, cell: &Cell) -> Result<()> {
        let Some(side) = cell.side(OPENED) else {
            return Ok(());
        };
        let rates: Vec<f64> = cell.rounds.iter().map(|runs| runs[side].rate()).collect();
        let Some(estimate) = statistics::ratio(&rates, &vec![1.0; rates.len()], self.options.seed) else {
            return Ok(());
        };
        self.findings.judge(
            what,
            "",
            &estimate,
            cell.sides[side].errors,
            "rows a second on one thread",
        )
    }
}

/// What the sides of one file are given.
#[derive(Clone)]
struct Given<'a> {
    file: OnMounts<'a>,
    options: &'a OpenOptions,
    table: &'a Table,
    local: &'a Path,
    rows: u64,
}

/// Reads every row through the mounts and compares every value with what the sample says, twice: what is looked up by its own
/// bytes later is in the kernel's memory, and what is kept is known.
fn warm_up(table: &Table, shape: Shape) -> Result<()> {
    for _ in 0..2 {
        let mut first = 0;
        for batch in table.scan(RowRange::ALL, &Projection::all(), 16_384)? {
            let batch = batch?;
            let end = first + batch.num_rows() as u64;
            sample::check_rows(table, &batch, shape, 0, first..end)?;
            first = end;
        }
    }
    // A row of each data page, so that all of them are mapped.
    let rows: Vec<RowId> = (0..table.row_count()).step_by(1000).map(RowId).collect();
    for some in rows.chunks(512) {
        table.get(some, &Projection::all())?;
    }
    Ok(())
}

fn read_all(path: &Path) -> Result<()> {
    super::pread::read_through(path).map(drop)
}

fn peer_side(name: &str) -> String {
    format!("{name}, {CRATE}")
}

fn case(threads: usize, rows: usize) -> String {
    match rows {
        1 => format!("{threads} threads"),
        rows => format!("{threads} threads, {rows} rows a request"),
    }
}
