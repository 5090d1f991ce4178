//! The command line of `lookup`: flags as typed, and what each command does with them.
//!
//! Owns flags, exit codes (0 done, 1 failed, 2 wrong usage) and what goes to stdout and stderr.
//! Decides nothing about files. Called by `main`.

mod args;
mod bench;
mod rewrite;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::error::{ReadError, Result};
use crate::inspect::{Comparison, TableLayout};
use crate::keys::Key;
use crate::output::{RowWriter, written};
use crate::sample::{self, SampleOptions};
use crate::table::{Missing, Table};
use args::{Args, Command, GetArgs, InspectArgs, RowSource, SampleArgs, ScanArgs, TargetArgs};

/// Parses the process's arguments, runs the command, reports what went wrong.
pub fn main() -> ExitCode {
    let checked = |args: Args| match args.command.check() {
        Ok(()) => Ok(args),
        Err(what) => Err(clap::Error::raw(ErrorKind::ValueValidation, what)),
    };
    let args = match Args::try_parse().and_then(checked) {
        Ok(args) => args,
        Err(error) => return wrong_usage(&error),
    };
    silence_expected_panics();
    let result = match args.command {
        Command::Bench(args) => return bench(args),
        Command::Get(args) => get(args),
        Command::Scan(args) => scan(args),
        Command::Inspect(args) => inspect(args),
        Command::Sample(args) => sample(args),
        Command::Rewrite(args) => rewrite::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough: `lookup scan ... | head` is no failure.
        Err(ReadError::Write { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "lookup: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: bench::BenchArgs) -> ExitCode {
    match bench::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lookup: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says on one line what is wrong with the command line; help that was asked for, or that is all there is to say, is
/// printed whole.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if is_help {
        error.exit();
    }
    let text = error.render().to_string();
    // The first paragraph is the error; usage and hints follow it.
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let line = words.join(" ");
    let _ = writeln!(
        io::stderr(),
        "lookup: {}; try `lookup --help`",
        line.trim_start_matches("error: ")
    );
    ExitCode::from(2)
}

/// A panic of a format library on malformed bytes comes back as an error; its text is no news.
fn silence_expected_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !crate::decode::panic_is_expected() {
            before(info);
        }
    }));
}

fn get(args: GetArgs) -> Result<()> {
    match args.key_column() {
        Some(column) => get_keys(&args, column),
        None => get_rows(args),
    }
}

fn get_rows(args: GetArgs) -> Result<()> {
    let rows = match args.rows {
        Some(RowSource::Rows(rows)) => rows,
        _ => crate::row::Rows::from_lines(io::stdin().lock())?,
    };
    if rows.ids().is_empty() {
        return Err(ReadError::Invalid(
            "the list of row ids is empty; give at least one, as in --rows 7,9,100-110".into(),
        ));
    }
    let table = open(&args.target)?;
    let projection = args.target.projection();
    let missing = args.missing.unwrap_or_default();
    let stream = table.get_stream(rows.into_ids(), &projection, missing)?;
    print(&args.target, &table, stream)
}

fn get_keys(args: &GetArgs, column: &str) -> Result<()> {
    let values = args.key.iter().filter_map(|key| key.value.as_deref());
    let mut keys: Vec<Key> = values.map(Key::from).collect();
    if let Some(path) = &args.keys_file {
        keys.extend(match path.to_str() {
            Some("-") => Key::from_lines(io::stdin().lock())?,
            _ => {
                let failed = |source| ReadError::Open {
                    path: path.clone(),
                    source,
                };
                Key::from_lines(BufReader::new(File::open(path).map_err(failed)?))?
            }
        });
    }
    let table = open(&args.target)?;
    let column = table.key_column(column)?;
    let missing = args.missing.unwrap_or(Missing::Skip);
    let (stream, found) = table.get_keys_stream(&column, &keys, &args.target.projection(), missing)?;
    print(&args.target, &table, stream)?;
    match found.missing().count() {
        0 => {}
        count => {
            let line = format!(
                "lookup: {count} of {} keys are not in '{}'",
                keys.len(),
                column.name()
            );
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
    Ok(())
}

fn scan(args: ScanArgs) -> Result<()> {
    let table = open(&args.target)?;
    let projection = args.target.projection();
    let stream = match &args.key_range {
        Some(keys) => {
            let column = table.key_column(&keys.column)?;
            table.scan_keys(&column, &keys.range, &projection, args.page)?
        }
        None => table.scan(args.rows, &projection, args.page)?,
    };
    print(&args.target, &table, stream)
}

fn inspect(args: InspectArgs) -> Result<()> {
    let table = Table::open(args.mounts.target(), args.mounts.options())?;
    let text = match &args.other {
        None => {
            let layout = TableLayout::of(&table)?;
            match args.json {
                true => json(&layout)?,
                false => layout.to_text(),
            }
        }
        Some(other) => {
            let other = Table::open(args.mounts.target_of(other), args.mounts.options())?;
            let comparison = Comparison::of(&table, &other)?;
            match args.json {
                true => json(&comparison)?,
                false => comparison.to_text(),
            }
        }
    };
    io::stdout().lock().write_all(text.as_bytes()).map_err(written)
}

fn json(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| ReadError::Output(e.to_string()))?;
    Ok(text + "\n")
}

fn sample(args: SampleArgs) -> Result<()> {
    let path = args.mounts.target().first_path();
    if args.verify {
        let table = Table::open(args.mounts.target(), args.mounts.options())?;
        if let Some(rows) = args.rows.filter(|rows| *rows != table.row_count()) {
            let what = format!("{} rows, {rows} expected", table.row_count());
            return Err(ReadError::WrongValue { path, what });
        }
        let values = sample::verify(&table, args.columns, args.seed)?;
        let (rows, bytes) = (table.row_count(), table.counters().bytes);
        let line = format!(
            "{}: {rows} rows, {values} values, all as written; {bytes} bytes read\n",
            path.display()
        );
        return io::stdout().lock().write_all(line.as_bytes()).map_err(written);
    }
    let rows = args.rows.unwrap_or_default();
    let options = SampleOptions {
        shape: args.columns,
        rows,
        seed: args.seed,
        force: args.force,
        page_rows: args.page_rows,
    };
    sample::write(&path, options)?;
    let line = format!("{}: {rows} rows written, seed {}\n", path.display(), args.seed);
    io::stdout().lock().write_all(line.as_bytes()).map_err(written)
}

fn open(args: &TargetArgs) -> Result<Table> {
    Table::open(args.mounts.target(), args.options()?)
}

fn print(args: &TargetArgs, table: &Table, stream: crate::RowStream) -> Result<()> {
    let out = BufWriter::new(io::stdout().lock());
    let mut writer = RowWriter::new(out, args.output, stream.schema())?;
    let mut rows = 0;
    for batch in stream {
        let batch = batch?;
        rows += batch.num_rows();
        writer.write(&batch)?;
    }
    writer.finish()?;
    if args.explain {
        eprint!("{}", table.counters().explain(rows));
    }
    Ok(())
}
