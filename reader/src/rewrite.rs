//! [`rewrite`]: a Parquet file made anew in a layout for lookups.
//!
//! Owns the order of the work: choose the layout, put rows in order if asked, stream them into a temporary file, compare that
//! with the input if asked, and move it to its name. Memory is bounded: a batch of rows, a row group that is not yet written,
//! and, to sort, the keys. Never leaves half a file under the final name. Called by the command line.

mod columns;
mod order;
mod size_statistics;
mod source;
mod useless_bounds;
mod verify;
mod write;

use std::fs::File;
use std::io;
use std::path::Path;
use std::str::FromStr;

use arrow_array::RecordBatch;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};

use crate::error::{ReadError, Result};
use crate::row::RowId;
use crate::table::{Missing, Projection, Table};
use crate::temporary::Temporary;
pub use size_statistics::SizeStatistics;
use source::Batches;

/// The layout of a file to be written.
#[derive(Debug, Clone, Default)]
pub struct RewriteOptions {
    /// Rows of every data page but the last of a row group. Without it, data pages have up to 64 KiB and up to 4,096 rows.
    pub page_rows: Option<usize>,
    /// Rows of a row group; 131,072 without it. One that takes more than 256 MiB of memory ends earlier.
    pub row_group_rows: Option<usize>,
    /// Which size statistics there are.
    pub size_statistics: SizeStatistics,
    /// Without it, each column keeps its codec.
    pub codec: Option<Codec>,
    /// How values are written.
    pub encoding: ValueEncoding,
    /// The column that rows are sorted by; without it they keep their order.
    pub sort_by: Option<String>,
    /// Whether the result is compared with the input.
    pub verify: bool,
    /// Whether a file that is there already is replaced.
    pub force: bool,
    /// What may be held to sort, in bytes.
    pub memory_bytes: u64,
}

/// A codec as it is written on a command line: `zstd`, or `zstd:3`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codec(pub Compression);

impl FromStr for Codec {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Codec> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let level = |default: u32| level.map_or(Some(default), |level| level.parse().ok());
        let codec = match name {
            "none" | "uncompressed" if text == name => Some(Compression::UNCOMPRESSED),
            "snappy" if text == name => Some(Compression::SNAPPY),
            "lz4" if text == name => Some(Compression::LZ4_RAW),
            "zstd" => level(3)
                .and_then(|l| ZstdLevel::try_new(l as i32).ok())
                .map(Compression::ZSTD),
            "gzip" => level(6)
                .and_then(|l| GzipLevel::try_new(l).ok())
                .map(Compression::GZIP),
            "brotli" => level(4)
                .and_then(|l| BrotliLevel::try_new(l).ok())
                .map(Compression::BROTLI),
            _ => None,
        };
        codec.map(Codec).ok_or_else(|| {
            ReadError::Invalid(format!(
                "'{text}': write none, snappy, lz4, zstd, gzip or brotli; of the last three also a level, as zstd:3"
            ))
        })
    }
}

/// How values are written, where their type allows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ValueEncoding {
    /// A dictionary where the input has one, else plain.
    #[default]
    Auto,
    /// As they are: a value of an uncompressed file is one read of its own bytes.
    Plain,
    /// A dictionary, and plain from where it grows beyond 1 MiB.
    Dictionary,
    /// Differences of integers, common beginnings of strings; plain elsewhere.
    Delta,
    /// Numbers byte by byte; plain elsewhere.
    ByteStreamSplit,
}

impl FromStr for ValueEncoding {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<ValueEncoding> {
        match text {
            "auto" => Ok(ValueEncoding::Auto),
            "plain" => Ok(ValueEncoding::Plain),
            "dictionary" => Ok(ValueEncoding::Dictionary),
            "delta" => Ok(ValueEncoding::Delta),
            "byte-stream-split" => Ok(ValueEncoding::ByteStreamSplit),
            _ => Err(ReadError::Invalid(format!(
                "'{text}': write auto, plain, dictionary, delta or byte-stream-split"
            ))),
        }
    }
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The keys are put in order.
    Sorting,
    /// So many rows were written.
    Written(u64),
    /// So many rows were compared.
    Verified(u64),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewritten {
    /// Rows.
    pub rows: u64,
    /// Row groups.
    pub row_groups: usize,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes the rows of `table` to `out`. The Parquet schema is kept, but for what only old writers wrote: INT96 becomes
/// timestamps in nanoseconds, and lists of two levels become lists of three.
pub fn rewrite(
    table: &Table,
    out: &Path,
    options: &RewriteOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Rewritten> {
    let failed = |source| ReadError::Write {
        path: out.to_owned(),
        source,
    };
    if !options.force && out.symlink_metadata().is_ok() {
        return Err(failed(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "exists already; choose another name, or --force to replace it",
        )));
    }
    let plan = columns::plan(table, options)?;
    let order = match &options.sort_by {
        Some(column) => {
            progress(Progress::Sorting);
            Some(order::by_key(table, column, options.memory_bytes)?)
        }
        None => None,
    };
    let temporary = Temporary::beside(out).map_err(failed)?;
    let file = temporary.create().map_err(failed)?;
    let written = write::write(&file, rows(table, order.as_deref())?, &plan, options, progress);
    let row_groups = written.map_err(|error| match error {
        write::Failure::Input(error) => error,
        write::Failure::Output(what) => match what.strip_prefix("External: ") {
            Some(system) => failed(io::Error::other(system.to_owned())),
            None => ReadError::Output(what),
        },
    })?;
    file.sync_all().map_err(failed)?;
    let rewritten = Rewritten {
        rows: table.row_count(),
        row_groups,
        bytes: length(&file).map_err(failed)?,
    };
    if options.verify {
        verify::verify(table, order.as_deref(), temporary.path(), progress)?;
    }
    temporary.move_to(out, options.force).map_err(failed)?;
    Ok(rewritten)
}

fn length(file: &File) -> io::Result<u64> {
    file.metadata().map(|attributes| attributes.len())
}

/// All rows in the order of the files, or in another.
fn rows<'a>(
    table: &'a Table,
    order: Option<&[RowId]>,
) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + 'a>> {
    Ok(match order {
        None => Box::new(Batches::new(table)),
        Some(order) => Box::new(table.get_stream(order.to_vec(), &Projection::all(), Missing::Error)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_have_levels_where_there_are_any() {
        let codec = |text: &str| text.parse::<Codec>().map(|codec| codec.0);
        assert_eq!(codec("none").unwrap(), Compression::UNCOMPRESSED);
        assert_eq!(
            codec("zstd:7").unwrap(),
            Compression::ZSTD(ZstdLevel::try_new(7).unwrap())
        );
        for text in ["snappy:1", "zstd:99", "zstd:x", "lzo", ""] {
            assert!(
                codec(text).unwrap_err().to_string().contains("write none"),
                "{text}"
            );
        }
    }
}
