//! A Parquet file's footer and offset index: one read of the tail, then exactly what is missing.
//!
//! Owns every check of a footer that later code relies on: row groups add up, column ranges lie in
//! the file. Refuses files that state otherwise. Called by [`super::FileStructure::open`].

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataOptions,
    ParquetMetaDataReader, ParquetStatisticsPolicy, RowGroupMetaData,
};

use super::index::CheckedIndex;
use super::schema_guard;
use crate::decode::guarded;
use crate::error::{ReadError, Result};

/// Length of the metadata's length and the magic at the end.
const TAIL: u64 = 8;

/// The magic at both ends.
const MAGIC: &[u8] = b"PAR1";

/// A footer, checked.
#[derive(Debug)]
pub(super) struct Footer {
    pub(super) metadata: ParquetMetaData,
    pub(super) index: CheckedIndex,
    /// Footer alone, with its 8 bytes of length and magic.
    pub(super) footer_bytes: u64,
    /// From the first byte of the page index, or of the footer, to the end.
    pub(super) tail_bytes: u64,
}

/// Reads footer and offset index; `guess` is how many bytes of the tail to read at first.
pub(super) fn load(
    path: &Path,
    len: u64,
    guess: u64,
    read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>,
) -> Result<Footer> {
    if len < TAIL + MAGIC.len() as u64 {
        return Err(ReadError::corrupt(
            path,
            format!("not a Parquet file: {len} bytes are too few; if it should be one, it was cut"),
        ));
    }
    let mut tail = Tail {
        start: len - guess.clamp(TAIL, len),
        bytes: Bytes::new(),
        end: len,
    };
    tail.bytes = read(tail.start..len)?;
    let footer_bytes = check_tail(path, len, &tail, read)?;
    tail.extend_to(len - footer_bytes, read)?;
    let thrift = tail.get(len - footer_bytes..len - TAIL).unwrap_or_default();
    schema_guard::check_schema(&thrift).map_err(|what| ReadError::corrupt(path, what))?;
    let metadata = guarded(path, "reading the footer", || parse(&tail.bytes, len))?;
    let metadata = check(path, metadata, len - footer_bytes)?;

    let wanted = CheckedIndex::bytes_wanted(&metadata, len - footer_bytes);
    let index = match wanted {
        Some(range) => {
            let bytes = match tail.get(range.clone()) {
                Some(bytes) => bytes,
                // What lies between index and footer was not asked for, so only the front is read
                // where they touch, and else just the index.
                None if range.end >= tail.start => {
                    tail.extend_to(range.start, read)?;
                    tail.get(range.clone()).unwrap_or_default()
                }
                None => read(range.clone())?,
            };
            guarded(path, "reading the page index", || {
                Ok(CheckedIndex::decode(&metadata, range.start, &bytes))
            })?
        }
        None => CheckedIndex::absent(&metadata),
    };
    let tail_bytes = footer_bytes.max(index_start(&metadata).map_or(0, |start| len - start.min(len)));
    Ok(Footer {
        metadata,
        index,
        footer_bytes,
        tail_bytes,
    })
}

/// The end of the file, as far as it was read.
struct Tail {
    start: u64,
    end: u64,
    bytes: Bytes,
}

impl Tail {
    fn get(&self, range: Range<u64>) -> Option<Bytes> {
        if range.start < self.start || range.end > self.end || range.start > range.end {
            return None;
        }
        Some(
            self.bytes
                .slice((range.start - self.start) as usize..(range.end - self.start) as usize),
        )
    }

    fn extend_to(&mut self, start: u64, read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>) -> Result<()> {
        if start < self.start {
            let front = read(start..self.start)?;
            self.bytes = [&front[..], &self.bytes[..]].concat().into();
            self.start = start;
        }
        Ok(())
    }
}

/// Checks the last 8 bytes; gives the footer's length with them.
fn check_tail(
    path: &Path,
    len: u64,
    tail: &Tail,
    read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>,
) -> Result<u64> {
    let last = &tail.bytes[tail.bytes.len() - TAIL as usize..];
    let (length, magic) = last.split_at(4);
    if magic != MAGIC {
        let head = read(0..MAGIC.len() as u64)?;
        return Err(not_parquet(path, &head, &tail.bytes));
    }
    let length = u64::from(u32::from_le_bytes([length[0], length[1], length[2], length[3]]));
    if length + TAIL + MAGIC.len() as u64 > len {
        return Err(ReadError::corrupt(
            path,
            format!("the footer should have {length} bytes, the whole file has {len}"),
        ));
    }
    Ok(length + TAIL)
}

/// What the file is instead.
fn not_parquet(path: &Path, head: &[u8], tail: &[u8]) -> ReadError {
    let format = match (head, tail) {
        (_, [.., b'P', b'A', b'R', b'E']) => "an encrypted Parquet footer",
        (_, [.., b'L', b'A', b'N', b'C']) => "Lance",
        (b"ORC" | [b'O', b'R', b'C', _], _) => "ORC",
        ([b'O', b'b', b'j', 1], _) => "Avro",
        (b"PFA1", _) => "Puffin",
        (b"ARRO", _) => "an Arrow IPC file",
        (b"PAR1", _) => {
            return ReadError::corrupt(
                path,
                "begins as a Parquet file, but has no footer: it was cut, or is still being written",
            );
        }
        _ => {
            return ReadError::corrupt(
                path,
                "not a Parquet file: neither end has its magic; supported: Parquet",
            );
        }
    };
    ReadError::Unsupported {
        path: path.to_owned(),
        format: format.into(),
    }
}

fn parse(tail: &Bytes, len: u64) -> Result<ParquetMetaData, ParquetError> {
    // Statistics are for pruning, which a row id needs none of.
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let mut reader = ParquetMetaDataReader::new()
        .with_metadata_options(Some(options))
        .with_page_index_policy(PageIndexPolicy::Skip);
    reader.try_parse_sized(tail, len)?;
    reader.finish()
}

/// Checks row counts and column ranges; `end` is where column bytes must end.
fn check(path: &Path, metadata: ParquetMetaData, end: u64) -> Result<ParquetMetaData> {
    let corrupt = |what: String| Err(ReadError::corrupt(path, what));
    let mut rows = 0i64;
    for (number, row_group) in metadata.row_groups().iter().enumerate() {
        let here = row_group.num_rows();
        match rows.checked_add(here) {
            Some(sum) if here >= 0 => rows = sum,
            _ => return corrupt(format!("row group {number} states {here} rows")),
        }
    }
    let stated = metadata.file_metadata().num_rows();
    if rows != stated {
        return corrupt(format!(
            "the row groups have {rows} rows, the footer states {stated}"
        ));
    }
    let metadata = without_zero_offsets(path, metadata)?;
    for (number, row_group) in metadata.row_groups().iter().enumerate() {
        if row_group.num_rows() == 0 {
            continue;
        }
        for column in row_group.columns() {
            let name = column.column_path().string();
            if column.file_path().is_some() {
                return Err(ReadError::Unsupported {
                    path: path.to_owned(),
                    format: format!("column '{name}' in another file"),
                });
            }
            if column_bytes(column).is_none_or(|bytes| bytes.end > end || bytes.is_empty()) {
                return corrupt(format!(
                    "row group {number} states that column '{name}' lies outside of the file"
                ));
            }
        }
    }
    Ok(metadata)
}

/// The range that the format library will take for the column.
pub(super) fn column_bytes(column: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    Some(start..start.checked_add(u64::try_from(column.compressed_size()).ok()?)?)
}

/// Some writers write offset 0 for "no dictionary", and the library takes that for an offset.
fn without_zero_offsets(path: &Path, metadata: ParquetMetaData) -> Result<ParquetMetaData> {
    let zero = |c: &ColumnChunkMetaData| c.dictionary_page_offset().is_some_and(|o| o < 4);
    if !metadata
        .row_groups()
        .iter()
        .flat_map(RowGroupMetaData::columns)
        .any(zero)
    {
        return Ok(metadata);
    }
    guarded(path, "reading the footer", || {
        let mut builder: ParquetMetaDataBuilder = metadata.into_builder();
        let mut row_groups = Vec::new();
        for row_group in builder.take_row_groups() {
            let mut row_group = row_group.into_builder();
            let mut columns = Vec::new();
            for column in row_group.take_columns() {
                columns.push(match zero(&column) {
                    true => column.into_builder().set_dictionary_page_offset(None).build()?,
                    false => column,
                });
            }
            row_groups.push(row_group.set_column_metadata(columns).build()?);
        }
        Ok(builder.set_row_groups(row_groups).build())
    })
}

/// Where the page index begins.
fn index_start(metadata: &ParquetMetaData) -> Option<u64> {
    metadata
        .row_groups()
        .iter()
        .flat_map(RowGroupMetaData::columns)
        .flat_map(|c| [c.offset_index_offset(), c.column_index_offset()])
        .flatten()
        .filter_map(|offset| u64::try_from(offset).ok())
        .min()
}
