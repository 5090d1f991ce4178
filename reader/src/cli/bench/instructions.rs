//! Flags of `lookup bench instructions`, as typed. Decides nothing. Called by the command line.

use std::path::PathBuf;

use super::{finish, lookup};
use crate::bench::{self, BenchError, InstructionsOptions};

/// Runs of each way, where nobody says otherwise.
const RUNS: u16 = 3;
const RUNS_QUICK: u16 = 1;

#[derive(Debug, clap::Args)]
pub(super) struct InstructionsArgs {
    /// The program valgrind, which counts instructions.
    #[arg(long, value_name = "PROGRAM", default_value = "valgrind")]
    valgrind: PathBuf,
    /// Compare with figures that --record wrote. Default: those of this version's release build.
    #[arg(long, value_name = "FILE")]
    recorded: Option<PathBuf>,
    /// Write what was counted to this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// One run of each way, of fewer lookups.
    #[arg(long)]
    quick: bool,
    /// Runs of each way; default 3, with --quick 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,
    /// What row ids and keys follow from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the report to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report to this file: one HTML page that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

pub(super) fn run(args: InstructionsArgs) -> Result<(), BenchError> {
    let runs = args.runs.unwrap_or(if args.quick { RUNS_QUICK } else { RUNS });
    let options = InstructionsOptions {
        valgrind: args.valgrind,
        lookup: lookup()?,
        recorded: args.recorded,
        record: args.record,
        runs: usize::from(runs),
        quick: args.quick,
        seed: args.seed,
    };
    let report = bench::instructions(&options, &mut |part| eprintln!("lookup bench: {part}"))?;
    finish(&report, args.json.as_deref(), args.report.as_deref())
}
