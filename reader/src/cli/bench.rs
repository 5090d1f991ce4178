//! `lookup bench`: flags as typed, and where the report goes. Decides nothing about figures. Called by the command line.

mod instructions;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::bench::{
    self, BenchError, GetScanOptions, MountsOptions, PointOptions, Report, Way, WriterOptions, WrittenColumn,
};
use instructions::InstructionsArgs;

/// Pairs of each comparison, where nobody says otherwise.
const PAIRS: usize = 15;
const PAIRS_QUICK: usize = 5;

#[derive(Debug, clap::Args)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, clap::Subcommand)]
enum Workload {
    /// Raw reads through mounts, against the same files on a local disk and against the HDFS client alone.
    ///
    /// It reads warm.bin, cold.bin, sequential.bin, many/ and rows/*.parquet below each directory; what is not there is
    /// skipped, and the report says why. mount-scripts/bench.sh makes the files and the mounts, and gives all flags.
    /// Cold reads need daemons that have not seen cold.bin yet.
    ///
    /// Exit codes: 0 done (whatever the verdicts are), 1 failed, 2 wrong usage.
    Mounts(Box<MountsArgs>),
    /// Rows by row id, each from a file that is opened for it, against the parquet crate over the same mounts.
    ///
    /// It reads narrow.parquet and wide.parquet below each directory, as `lookup sample` writes them with seed 0; what is not
    /// there is skipped, and the report says why. Every value is compared once before anything is timed.
    ///
    /// Exit codes: 0 done (whatever the verdicts are), 1 failed or a value was wrong, 2 wrong usage.
    Point(Box<PointArgs>),
    /// One row by its key, against a scan of one row by the parquet crate, pruned by bounds and filtered by the key.
    ///
    /// It reads key.parquet and key-40.parquet below each mount, as `lookup sample --columns key` writes them with seed 0, the
    /// second with --page-rows 40; what is not there is skipped, and the report says why. Every value is compared once before
    /// anything is timed.
    ///
    /// Exit codes: 0 done (whatever the verdicts are), 1 failed or a value was wrong, 2 wrong usage.
    GetScan(Box<GetScanArgs>),
    /// What size statistics cost when INT64, STRING and LIST columns are written: times, and the share of instructions.
    ///
    /// It needs no mount and no file. Instructions are counted by valgrind's callgrind, and put down to source lines by
    /// addr2line; without these the verdicts are skipped, and the report says so. What is written is read back once before anything is timed.
    ///
    /// Exit codes: 0 done (whatever the verdicts are), 1 failed or a value was wrong, 2 wrong usage.
    Writer(Box<WriterArgs>),
    /// Instructions of warm lookups, against those that were recorded, so that a regression shows on any machine.
    ///
    /// It needs no mount: it writes its own files among the system's temporary ones. Instructions are counted by valgrind's
    /// callgrind, and are those of a release build on x86-64 where nothing else is given with --recorded.
    ///
    /// Exit codes: 0 done (whatever the verdicts are), 1 failed or a value was wrong, 2 wrong usage.
    Instructions(Box<InstructionsArgs>),
    /// Look rows of a sample file up, for callgrind.
    #[command(hide = true)]
    LookUp {
        /// narrow, narrow-opened, wide, wide-opened, wide-many or key.
        way: Way,
        /// The file, written with seed 0.
        file: PathBuf,
        /// How many.
        #[arg(long)]
        lookups: u64,
        /// What row ids follow from.
        #[arg(long)]
        seed: u64,
    },
    /// Write a column of rows into memory once, with size statistics of data pages, for callgrind.
    #[command(hide = true)]
    WriteOnce {
        /// int64, string or list.
        column: WrittenColumn,
        /// How many.
        #[arg(long)]
        rows: usize,
        /// One row in so many is null; none if 0.
        #[arg(long)]
        null_each: u64,
        /// What the values follow from.
        #[arg(long)]
        seed: u64,
    },
    /// Answer requests of --native from a local directory, on stdin and stdout: to try a run without HDFS.
    Local {
        /// The directory that paths are relative to.
        directory: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct MountsArgs {
    /// A mount point; repeat it for mounts of the same source. The first is measured alone, and all together.
    #[arg(long, value_name = "DIR", required = true)]
    mount: Vec<PathBuf>,
    /// The same files on a local disk.
    #[arg(long, value_name = "DIR")]
    local: PathBuf,
    /// A command that reads by the HDFS client alone: a line of JSON in, a line of JSON out. Words between blanks.
    #[arg(long, value_name = "COMMAND")]
    native: Option<String>,
    /// A mount point with -o passthrough whose files are complete on the local disk; repeatable.
    #[arg(long, value_name = "DIR")]
    passthrough_mount: Vec<PathBuf>,
    /// A mount point of the lookup profile (page_size=4k), of a daemon of its own.
    #[arg(long, value_name = "DIR")]
    exact_mount: Option<PathBuf>,
    /// A mount point of a daemon of its own with a small memory=SIZE.
    #[arg(long, value_name = "DIR")]
    memory_mount: Option<PathBuf>,
    /// A mount point that --fresh-command makes anew, before each cold sequential read and cold listing.
    #[arg(long, value_name = "DIR", requires = "fresh_command")]
    fresh_mount: Option<PathBuf>,
    /// The command that unmounts and mounts --fresh-mount and every --peer-mount with empty caches.
    #[arg(long, value_name = "COMMAND", requires = "fresh_mount")]
    fresh_command: Option<String>,
    /// A mount point of another filesystem that shows the same files, such as rclone=/mnt/r; repeatable.
    #[arg(long, value_name = "NAME=DIR", value_parser = peer, requires = "fresh_command")]
    peer_mount: Vec<(String, PathBuf)>,
    /// The program lookupfs, which is asked for counters (`stats MOUNTPOINT --json`).
    #[arg(long, value_name = "PROGRAM")]
    lookupfs: Option<PathBuf>,
    /// A program that counts the NameNode's requests, as minihdfs.sh does (`audit count [cmd=NAME]`).
    #[arg(long, value_name = "PROGRAM")]
    audit: Option<PathBuf>,
    /// Fewer pairs and shorter runs; verdicts may be undecided.
    #[arg(long)]
    quick: bool,
    /// Pairs of each comparison; default 15, with --quick 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: Option<u16>,
    /// What offsets and intervals follow from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the report with all raw samples to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report with charts to this file: one HTML page that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct PointArgs {
    /// A mount point; repeat it for mounts of the same source, over which data pages are spread.
    #[arg(long, value_name = "DIR", required = true)]
    mount: Vec<PathBuf>,
    /// The same files on a local disk.
    #[arg(long, value_name = "DIR")]
    local: PathBuf,
    /// A mount point of another filesystem that shows the same files, such as rclone=/mnt/r; repeatable.
    #[arg(long, value_name = "NAME=DIR", value_parser = peer)]
    peer_mount: Vec<(String, PathBuf)>,
    /// The program lookupfs, which is asked for the daemon's options (`stats MOUNTPOINT --json`).
    #[arg(long, value_name = "PROGRAM")]
    lookupfs: Option<PathBuf>,
    /// Fewer pairs and shorter runs; verdicts may be undecided.
    #[arg(long)]
    quick: bool,
    /// Pairs of each comparison; default 15, with --quick 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: Option<u16>,
    /// What row ids and intervals follow from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the report with all raw samples to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report with charts to this file: one HTML page that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct GetScanArgs {
    /// A mount point, or a directory; repeat it for mounts of the same source, over which data pages are spread.
    #[arg(long, value_name = "DIR", required = true)]
    mount: Vec<PathBuf>,
    /// The program lookupfs, which is asked for the daemon's options (`stats MOUNTPOINT --json`).
    #[arg(long, value_name = "PROGRAM")]
    lookupfs: Option<PathBuf>,
    /// Fewer pairs and shorter runs; verdicts may be undecided.
    #[arg(long)]
    quick: bool,
    /// Pairs of each comparison; default 15, with --quick 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: Option<u16>,
    /// What keys and intervals follow from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the report with all raw samples to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report with charts to this file: one HTML page that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct WriterArgs {
    /// The program valgrind, which counts instructions.
    #[arg(long, value_name = "PROGRAM", default_value = "valgrind")]
    valgrind: PathBuf,
    /// The program addr2line of binutils, which says what was inlined where.
    #[arg(long, value_name = "PROGRAM", default_value = "addr2line")]
    addr2line: PathBuf,
    /// Fewer pairs and shorter runs.
    #[arg(long)]
    quick: bool,
    /// Pairs of each comparison; default 15, with --quick 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: Option<u16>,
    /// What values and intervals follow from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the report with all raw samples to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report with charts to this file: one HTML page that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

fn peer(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, directory)) if !name.is_empty() && !directory.is_empty() => {
            Ok((name.to_owned(), directory.into()))
        }
        _ => Err("write NAME=DIR, as rclone=/mnt/r".into()),
    }
}

/// Runs the workload; verdicts go to stdout, what is under way to stderr.
pub(super) fn run(args: BenchArgs) -> Result<(), BenchError> {
    match args.workload {
        Workload::Mounts(args) => mounts(*args),
        Workload::Point(args) => point(*args),
        Workload::GetScan(args) => get_scan(*args),
        Workload::Writer(args) => writer(*args),
        Workload::WriteOnce {
            column,
            rows,
            null_each,
            seed,
        } => bench::write_once(column, rows, null_each, seed),
        Workload::Instructions(args) => instructions::run(*args),
        Workload::LookUp {
            way,
            file,
            lookups,
            seed,
        } => bench::look_up(way, &file, lookups, seed),
        Workload::Local { directory } => {
            bench::answer_locally(&directory, io::stdin().lock(), io::stdout().lock())
        }
    }
}

fn mounts(args: MountsArgs) -> Result<(), BenchError> {
    let options = MountsOptions {
        mounts: args.mount,
        local: args.local,
        native: args.native,
        passthrough: args.passthrough_mount,
        exact: args.exact_mount,
        memory: args.memory_mount,
        fresh: args.fresh_mount.zip(args.fresh_command),
        peers: args.peer_mount,
        lookupfs: args.lookupfs,
        audit: args.audit,
        pairs: pairs(args.pairs, args.quick),
        quick: args.quick,
        seed: args.seed,
    };
    let report = bench::mounts(&options, &mut |part| eprintln!("lookup bench: {part}"))?;
    finish(&report, args.json.as_deref(), args.report.as_deref())
}

fn point(args: PointArgs) -> Result<(), BenchError> {
    let options = PointOptions {
        mounts: args.mount,
        local: args.local,
        peers: args.peer_mount,
        lookupfs: args.lookupfs,
        pairs: pairs(args.pairs, args.quick),
        quick: args.quick,
        seed: args.seed,
    };
    let report = bench::point(&options, &mut |part| eprintln!("lookup bench: {part}"))?;
    finish(&report, args.json.as_deref(), args.report.as_deref())?;
    report.check_values()
}

fn get_scan(args: GetScanArgs) -> Result<(), BenchError> {
    let options = GetScanOptions {
        mounts: args.mount,
        lookupfs: args.lookupfs,
        pairs: pairs(args.pairs, args.quick),
        quick: args.quick,
        seed: args.seed,
    };
    let report = bench::get_scan(&options, &mut |part| eprintln!("lookup bench: {part}"))?;
    finish(&report, args.json.as_deref(), args.report.as_deref())?;
    report.check_values()
}

/// This program.
fn lookup() -> Result<PathBuf, BenchError> {
    std::env::current_exe().map_err(|source| BenchError::File {
        path: "lookup".into(),
        source,
    })
}

fn writer(args: WriterArgs) -> Result<(), BenchError> {
    let lookup = lookup()?;
    let options = WriterOptions {
        valgrind: args.valgrind,
        addr2line: args.addr2line,
        lookup,
        pairs: pairs(args.pairs, args.quick),
        quick: args.quick,
        seed: args.seed,
    };
    let report = bench::writer(&options, &mut |part| eprintln!("lookup bench: {part}"))?;
    finish(&report, args.json.as_deref(), args.report.as_deref())
}

fn pairs(asked: Option<u16>, quick: bool) -> usize {
    asked.map_or(if quick { PAIRS_QUICK } else { PAIRS }, usize::from)
}

fn finish(report: &Report, json: Option<&Path>, page: Option<&Path>) -> Result<(), BenchError> {
    write_report(report, json, page)?;
    written(
        Path::new("stdout"),
        io::stdout().lock().write_all(report.to_text().as_bytes()),
    )
}

fn write_report(report: &Report, json: Option<&Path>, page: Option<&Path>) -> Result<(), BenchError> {
    if let Some(path) = json {
        written(
            path,
            std::fs::write(path, serde_json::to_string_pretty(report)? + "\n"),
        )?;
    }
    if let Some(path) = page {
        written(path, std::fs::write(path, report.to_html()))?;
    }
    Ok(())
}

fn written(path: &Path, done: io::Result<()>) -> Result<(), BenchError> {
    done.map_err(|source| BenchError::File {
        path: path.to_owned(),
        source,
    })
}
