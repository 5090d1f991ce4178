//! Flags as typed, with units and defaults. Decides nothing.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::error::{ReadError, Result};
use crate::keys::KeyRange;
use crate::mounts::{Spread, Target};
use crate::output::Output;
use crate::row::{RowRange, Rows};
use crate::sample::Shape;
use crate::sidecar::Sidecars;
use crate::structures::StructureCache;
use crate::table::{Missing, OpenOptions, Projection};

/// Row ids and keys to exact rows.
#[derive(Debug, Parser)]
#[command(
    name = "lookup",
    version,
    about = "Looks exact rows up in Parquet files, by row id or key"
)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the rows with the given row ids or keys, in the order given.
    ///
    /// Exit codes: 0 done, 1 failed, 2 wrong usage.
    Get(GetArgs),
    /// Print a range of rows, or the rows whose keys lie in a range.
    ///
    /// Exit codes: 0 done, 1 failed, 2 wrong usage.
    Scan(ScanArgs),
    /// Print how a file is laid out, or two beside each other: row groups, data pages, encodings, index,
    /// footer, what a lookup of one row costs, and what stands in the way of lookups.
    ///
    /// Numbers as 1/4/9 are the least, the one in the middle and the greatest. Reads footers and page
    /// indexes, no data.
    ///
    /// Exit codes: 0 done, 1 failed, 2 wrong usage.
    Inspect(InspectArgs),
    /// Write a sample file whose every value follows from its shape, seed and row id, or check one.
    ///
    /// narrow: id INT64 (the row id) and payload, 1 KiB of random BINARY; uncompressed, 4,096 rows a
    /// data page. varying: the same with payloads of 512 to 1,536 bytes. key: a sorted INT64 key and 10
    /// columns of 100 bytes; uncompressed, with bounds of each data page. wide: 42 columns of 7 types,
    /// with nulls, zstd and dictionary.
    ///
    /// Exit codes: 0 done, 1 failed (also: the first wrong value), 2 wrong usage.
    Sample(SampleArgs),
    /// Write the rows of a file, or of a directory of files, to one file in a layout for lookups: small
    /// data pages with an index, and, if asked, another order, codec or encoding.
    ///
    /// OUT is written under a temporary name and moved into place. Without --sort-by the rows keep their
    /// order and so their row ids. Memory is bounded whatever the size of IN.
    ///
    /// Exit codes: 0 done, 1 failed (also: --verify found a difference), 2 wrong usage.
    Rewrite(super::rewrite::RewriteArgs),
    /// Measure given mounts, and hold the figures against their targets.
    Bench(super::bench::BenchArgs),
}

impl Command {
    /// What the parser cannot see.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Command::Get(args) => args.check(),
            _ => Ok(()),
        }
    }
}

/// Which file, through which mounts.
#[derive(Debug, clap::Args)]
pub(super) struct MountArgs {
    /// A Parquet file, or a directory of Parquet files whose row ids run on in name order.
    #[arg(value_name = "TARGET")]
    path: PathBuf,
    /// A mount root; TARGET is relative to it. Repeat it for mounts that show the same source, and
    /// reads are spread over them.
    #[arg(long, value_name = "DIR")]
    mount: Vec<PathBuf>,
    /// How reads are spread over mounts: hash (of version and position), thread or round-robin.
    #[arg(long, value_name = "HOW", default_value = "hash")]
    spread: Spread,
    /// Seconds that opening, and each batch of rows, may take.
    #[arg(long, value_name = "S", default_value = "60")]
    deadline: Seconds,
}

impl MountArgs {
    pub(super) fn target(&self) -> Target {
        self.target_of(&self.path)
    }

    /// Another path on the same mounts.
    pub(super) fn target_of(&self, path: &Path) -> Target {
        Target::on_mounts(self.mount.iter().cloned(), path)
    }

    pub(super) fn options(&self) -> OpenOptions {
        OpenOptions {
            spread: self.spread,
            deadline: Some(self.deadline.0),
            ..OpenOptions::default()
        }
    }
}

/// What to read and how to print it.
#[derive(Debug, clap::Args)]
pub(super) struct TargetArgs {
    #[command(flatten)]
    pub(super) mounts: MountArgs,
    /// Columns to read, in this order; a.b is the field b of the struct a. Default: all.
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    columns: Vec<String>,
    /// How rows are printed: table, json (one object a line), csv or arrow (an IPC stream).
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(super) output: Output,
    /// Memory for rows and for the bytes that they come from; more rows go out in more batches.
    /// Units: KiB, MiB, GiB.
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    memory: ByteSize,
    /// Print opens, reads, bytes, what was known already, and microseconds of each stage on stderr.
    #[arg(long)]
    pub(super) explain: bool,
    /// Where what is known of a file stays from one run to the next: a directory, or none. Default: lookupfs in
    /// XDG_CACHE_HOME, else in ~/.cache; nothing is kept where that cannot be used.
    #[arg(long, value_name = "DIR")]
    sidecars: Option<PathBuf>,
    /// Compare page indexes with the headers of all data pages before they are used. Reads whole columns, once.
    #[arg(long)]
    verify: bool,
}

impl TargetArgs {
    pub(super) fn projection(&self) -> Projection {
        match &self.columns[..] {
            [] => Projection::all(),
            columns => Projection::columns(columns),
        }
    }

    /// The directory that was named has to do; that the default one does not is for --explain to say.
    fn sidecars(&self) -> Result<Option<Sidecars>> {
        match &self.sidecars {
            Some(none) if none.as_os_str() == "none" => Ok(None),
            Some(dir) => Sidecars::open(dir).map(Some),
            None => match Sidecars::default_dir().map(Sidecars::open) {
                Some(Ok(sidecars)) => Ok(Some(sidecars)),
                Some(Err(error)) if self.explain => {
                    eprintln!("nothing is kept for the next run: {error}");
                    Ok(None)
                }
                _ => Ok(None),
            },
        }
    }

    pub(super) fn options(&self) -> Result<OpenOptions> {
        Ok(OpenOptions {
            // Rows exist twice while they are put in order, and the bytes of a batch stay for the next.
            max_result_bytes: self.memory.0 / 8,
            max_fetch_bytes: self.memory.0 / 4,
            structures: StructureCache::new(self.memory.0 / 4),
            sidecars: self.sidecars()?,
            verify: self.verify,
            ..self.mounts.options()
        })
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Row ids: 7,9,100-110 (both ends included), or - to read them from stdin, one a line or with
    /// commas between.
    #[arg(
        long,
        value_name = "IDS",
        allow_hyphen_values = true,
        required_unless_present = "key"
    )]
    pub(super) rows: Option<RowSource>,
    /// A key, as id=7: the rows where the column has this value. Repeat it for more keys of the same
    /// column. With --keys-file, just the column.
    #[arg(long, value_name = "COL=VALUE", conflicts_with = "rows")]
    pub(super) key: Vec<KeyArg>,
    /// A file with one key a line (- is stdin); empty lines are skipped. --key names the column.
    #[arg(long, value_name = "F", requires = "key")]
    pub(super) keys_file: Option<PathBuf>,
    /// What a row id or key that does not exist gives: error, null (a row of nulls) or skip. Default:
    /// error for row ids, skip for keys, and then their number is printed on stderr.
    #[arg(long, value_name = "WHAT")]
    pub(super) missing: Option<Missing>,
}

impl GetArgs {
    /// The key column, if keys are asked for.
    pub(super) fn key_column(&self) -> Option<&str> {
        self.key.first().map(|key| key.column.as_str())
    }

    fn check(&self) -> Result<(), String> {
        let Some(column) = self.key_column() else {
            return Ok(());
        };
        if let Some(other) = self.key.iter().find(|key| key.column != column) {
            let other = &other.column;
            return Err(format!(
                "--key names two columns, '{column}' and '{other}'; look them up one by one"
            ));
        }
        let without_value = self.key.iter().any(|key| key.value.is_none());
        match (&self.keys_file, without_value) {
            (None, true) => Err(format!(
                "--key {column} has no value: write {column}=VALUE, or give --keys-file"
            )),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ScanArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// The rows A..B, without B; A.. runs to the end.
    #[arg(long, value_name = "A..B", default_value = "..", conflicts_with = "key_range")]
    pub(super) rows: RowRange,
    /// The rows whose key lies in the range A..B, without B, as id=100..200, in the order of the file;
    /// either end may be left out.
    #[arg(long, value_name = "COL=A..B")]
    pub(super) key_range: Option<KeyRangeArg>,
    /// Rows that are read and printed at a time.
    #[arg(long, value_name = "ROWS", default_value_t = 4096, value_parser = page)]
    pub(super) page: usize,
}

#[derive(Debug, clap::Args)]
pub(super) struct InspectArgs {
    #[command(flatten)]
    pub(super) mounts: MountArgs,
    /// Another file, to show beside the first.
    #[arg(value_name = "OTHER")]
    pub(super) other: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct SampleArgs {
    #[command(flatten)]
    pub(super) mounts: MountArgs,
    /// Rows to write; with --verify, rows that the file must have.
    #[arg(long, value_name = "N", required_unless_present = "verify")]
    pub(super) rows: Option<u64>,
    /// Which columns: narrow, varying, key or wide.
    #[arg(long, value_name = "SHAPE", default_value = "narrow")]
    pub(super) columns: Shape,
    /// Rows of every data page but the last of a row group. Default: 4096, and the writer's own choice
    /// for wide.
    #[arg(long, value_name = "N", value_parser = page, conflicts_with = "verify")]
    pub(super) page_rows: Option<usize>,
    /// The same seed gives the same values.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    /// Replace a file that is there already.
    #[arg(long, conflicts_with = "verify")]
    pub(super) force: bool,
    /// Write nothing: compare every value of the file with what shape and seed say, read through
    /// the mounts. Exit code 1 at the first that is wrong.
    #[arg(long)]
    pub(super) verify: bool,
}

fn page(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows) if (1..=1 << 24).contains(&rows) => Ok(rows),
        _ => Err("write a number of rows from 1 to 16777216".into()),
    }
}

/// A column, and a value of it.
#[derive(Debug, Clone)]
pub(super) struct KeyArg {
    pub(super) column: String,
    pub(super) value: Option<String>,
}

impl FromStr for KeyArg {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<KeyArg> {
        let (column, value) = match text.split_once('=') {
            Some((column, value)) => (column, Some(value.to_owned())),
            None => (text, None),
        };
        if column.is_empty() {
            return Err(ReadError::Invalid(format!("'{text}': write COL=VALUE")));
        }
        Ok(KeyArg {
            column: column.to_owned(),
            value,
        })
    }
}

/// A column, and a range of its values.
#[derive(Debug, Clone)]
pub(super) struct KeyRangeArg {
    pub(super) column: String,
    pub(super) range: KeyRange,
}

impl FromStr for KeyRangeArg {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<KeyRangeArg> {
        match text.split_once('=') {
            Some((column, range)) if !column.is_empty() => Ok(KeyRangeArg {
                column: column.to_owned(),
                range: range.parse()?,
            }),
            _ => Err(ReadError::Invalid(format!("'{text}': write COL=A..B"))),
        }
    }
}

/// Row ids, or that they are on stdin.
#[derive(Debug, Clone)]
pub(super) enum RowSource {
    Rows(Rows),
    Stdin,
}

impl FromStr for RowSource {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<RowSource> {
        match text {
            "-" => Ok(RowSource::Stdin),
            text => text.parse().map(RowSource::Rows),
        }
    }
}

impl FromStr for Missing {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Missing> {
        match text {
            "error" => Ok(Missing::Error),
            "null" => Ok(Missing::Null),
            "skip" => Ok(Missing::Skip),
            _ => Err(ReadError::Invalid(format!("'{text}': write error, null or skip"))),
        }
    }
}

/// A number of bytes with a unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteSize(pub(super) u64);

impl FromStr for ByteSize {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<ByteSize> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit
            .to_ascii_lowercase()
            .trim_end_matches('b')
            .trim_end_matches('i')
        {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            _ => 64,
        };
        let bytes = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(1u64.checked_shl(shift)?));
        match bytes {
            Some(bytes) if bytes >= 1 << 20 => Ok(ByteSize(bytes)),
            _ => Err(ReadError::Invalid(format!(
                "'{text}': write a size of 1MiB or more, as 512MiB"
            ))),
        }
    }
}

/// A number of seconds.
#[derive(Debug, Clone, Copy)]
struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Seconds> {
        match text.parse::<f64>() {
            Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => {
                Ok(Seconds(Duration::from_secs_f64(seconds)))
            }
            _ => Err(ReadError::Invalid(format!(
                "'{text}': write seconds, as 2.5, up to 86400"
            ))),
        }
    }
}
