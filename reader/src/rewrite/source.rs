//! [`Batches`]: all rows of a table, once, from the first to the last.
//!
//! Owns how a whole file is read in order: each column through a window of its own, so that small data pages do not become
//! small reads, with no use of the page index, which may lie. Values come from the format library's plain reader. A file
//! that changes meanwhile is an error. Called by [`super`].

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::decode::guarded;
use crate::decode::parquet::ParquetFile;
use crate::error::{ReadError, Result};
use crate::plan::Layout;
use crate::table::Table;

/// Bytes of all windows of a file together.
const WINDOWS_BYTES: u64 = 128 << 20;

/// Bytes of a batch, by what the footer states of its rows.
const BATCH_BYTES: u64 = 8 << 20;

/// Rows of a batch.
const BATCH_ROWS_MAX: u64 = 8192;

/// Batches of rows in the table's order.
pub(super) struct Batches<'a> {
    table: &'a Table,
    next_file: usize,
    open: Option<OpenFile>,
    failed: bool,
}

struct OpenFile {
    reader: ParquetRecordBatchReader,
    bytes: FileBytes,
    left: u64,
}

impl<'a> Batches<'a> {
    pub(super) fn new(table: &'a Table) -> Batches<'a> {
        Batches {
            table,
            next_file: 0,
            open: None,
            failed: false,
        }
    }

    fn advance(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if self.open.is_none() {
                let Some(file) = self.table.files().nth(self.next_file) else {
                    return Ok(None);
                };
                self.open = Some(OpenFile::new(self.table, self.next_file, file)?);
                self.next_file += 1;
            }
            let Some(open) = &mut self.open else { continue };
            let number = self.next_file - 1;
            let path = self.table.files().nth(number).map(|file| file.path().to_owned());
            let path = path.unwrap_or_default();
            let read = guarded(&path, "reading rows", || Ok(open.reader.next().transpose()?));
            // What failed below the format library says more.
            let batch = match (read, open.bytes.shared.failure.lock().take()) {
                (Err(_), Some(failure)) => return Err(failure),
                (read, _) => read?,
            };
            match batch {
                Some(batch) => {
                    open.left = open
                        .left
                        .checked_sub(batch.num_rows() as u64)
                        .ok_or_else(|| ReadError::corrupt(&path, "has more rows than its footer states"))?;
                    return Ok(Some(batch));
                }
                None if open.left > 0 => {
                    let what = format!("{} rows are missing at the end", open.left);
                    return Err(ReadError::corrupt(&path, what));
                }
                None => {
                    self.table.check_file_unchanged(number)?;
                    self.open = None;
                }
            }
        }
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        if self.failed {
            return None;
        }
        let next = self.advance().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

impl OpenFile {
    fn new(table: &Table, number: usize, file: &ParquetFile) -> Result<OpenFile> {
        let bytes = FileBytes::new(table, number, file);
        let leaves = file.metadata().file_metadata().schema_descr().num_columns();
        let row_bytes = file.row_bytes(&(0..leaves).collect::<Vec<_>>()).max(1);
        let batch_rows = (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS_MAX) as usize;
        let reader = guarded(file.path(), "reading rows", || {
            let metadata = file
                .metadata()
                .clone()
                .into_builder()
                .set_page_index(None)
                .build();
            let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())?;
            ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata)
                .with_batch_size(batch_rows)
                .build()
        })?;
        Ok(OpenFile {
            reader,
            bytes,
            left: file.row_count(),
        })
    }
}

/// The format library's door to the bytes of a file.
#[derive(Clone)]
struct FileBytes {
    shared: Arc<Shared>,
}

struct Shared {
    table: Table,
    number: usize,
    len: u64,
    /// Where each column of each row group lies, and which leaf it is. Sorted.
    columns: Vec<(Range<u64>, usize)>,
    window_bytes: u64,
    /// What was read last of each leaf, and where it begins.
    windows: Mutex<HashMap<usize, (u64, Bytes)>>,
    failure: Mutex<Option<ReadError>>,
}

impl FileBytes {
    fn new(table: &Table, number: usize, file: &ParquetFile) -> FileBytes {
        let leaves = file.metadata().file_metadata().schema_descr().num_columns();
        let mut columns: Vec<(Range<u64>, usize)> = (0..file.row_groups())
            .filter(|row_group| file.rows(*row_group) > 0)
            .flat_map(|row_group| (0..leaves).map(move |leaf| (file.column_bytes(row_group, leaf), leaf)))
            .collect();
        columns.sort_by_key(|(range, _)| range.start);
        FileBytes {
            shared: Arc::new(Shared {
                table: table.clone(),
                number,
                len: file.len(),
                columns,
                window_bytes: (WINDOWS_BYTES / leaves.max(1) as u64).clamp(64 << 10, 1 << 20),
                windows: Mutex::default(),
                failure: Mutex::default(),
            }),
        }
    }

    fn read(&self, range: Range<u64>) -> parquet::errors::Result<Bytes> {
        self.shared
            .table
            .read_file(self.shared.number, range)
            .map_err(|error| {
                let text = error.to_string();
                self.shared.failure.lock().get_or_insert(error);
                ParquetError::General(text)
            })
    }

    /// What is at hand from `at` on: one byte at least, or none at the end of the file.
    fn from(&self, at: u64) -> parquet::errors::Result<Bytes> {
        let shared = &self.shared;
        let after = shared.columns.partition_point(|(range, _)| range.start <= at);
        let column = after
            .checked_sub(1)
            .map(|place| &shared.columns[place])
            .filter(|(range, _)| at < range.end);
        let (end, leaf) = column.map_or((shared.len, usize::MAX), |(range, leaf)| (range.end, *leaf));
        if let Some((start, bytes)) = shared.windows.lock().get(&leaf)
            && *start <= at
            && at - start < bytes.len() as u64
        {
            return Ok(bytes.slice((at - start) as usize..));
        }
        let end = end.min(shared.len).min(at.saturating_add(shared.window_bytes));
        if at >= end {
            return Ok(Bytes::new());
        }
        let bytes = self.read(at..end)?;
        shared.windows.lock().insert(leaf, (at, bytes.clone()));
        Ok(bytes)
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.shared.len
    }
}

impl ChunkReader for FileBytes {
    type T = Sequential;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Sequential> {
        Ok(Sequential {
            file: self.clone(),
            at: start,
        })
    }

    fn get_bytes(&self, start: u64, len: usize) -> parquet::errors::Result<Bytes> {
        let at_hand = self.from(start)?;
        if len <= at_hand.len() {
            return Ok(at_hand.slice(..len));
        }
        let end = start
            .checked_add(len as u64)
            .filter(|end| *end <= self.shared.len);
        let end = end.ok_or_else(|| ParquetError::EOF(format!("bytes {start}..+{len} are past the end")))?;
        let mut bytes = at_hand.to_vec();
        let from = start + bytes.len() as u64;
        bytes.extend_from_slice(&self.read(from..end)?);
        Ok(bytes.into())
    }
}

/// Bytes from a place on.
struct Sequential {
    file: FileBytes,
    at: u64,
}

impl Read for Sequential {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at_hand = self.file.from(self.at).map_err(io::Error::other)?;
        let len = at_hand.len().min(buffer.len());
        at_hand.copy_to_slice(&mut buffer[..len]);
        self.at += len as u64;
        Ok(len)
    }
}
