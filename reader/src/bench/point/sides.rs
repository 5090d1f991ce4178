//! The sides of point lookups: this library, the `parquet` crate, and the limit that the system sets.
//!
//! Owns how each of them finds rows, and the sum that says which values came. Refuses a row that is not the one asked for.
//! Called by `point.rs`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::file::metadata::PageIndexPolicy;

use super::super::error::{BenchError, Result};
use super::super::random::mix;
use super::super::values::sum_of_values;
use crate::mounts::Target;
use crate::row::RowId;
use crate::table::{OpenOptions, Projection, Table};

/// Rows of a data page, as `lookup sample` writes them: reads of one data page go through one mount on every side.
const PAGE_ROWS: u64 = 4096;

/// The mount that a row's data page is read through.
fn mount_of(row: u64, mounts: usize) -> usize {
    (mix(row / PAGE_ROWS) % mounts.max(1) as u64) as usize
}

/// A file on one or many mounts.
#[derive(Debug, Clone)]
pub(super) struct OnMounts<'a> {
    pub(super) mounts: &'a [PathBuf],
    pub(super) file: &'a str,
    target: Target,
}

impl<'a> OnMounts<'a> {
    pub(super) fn new(mounts: &'a [PathBuf], file: &'a str) -> OnMounts<'a> {
        OnMounts {
            mounts,
            file,
            target: Target::on_mounts(mounts.to_vec(), file),
        }
    }

    fn path(&self, row: u64) -> PathBuf {
        self.mounts[mount_of(row, self.mounts.len())].join(self.file)
    }
}

/// This library, which opens the file for each request.
pub(super) fn opened(file: &OnMounts<'_>, options: &OpenOptions, rows: &[u64]) -> Result<u64> {
    kept(&Table::open(file.target.clone(), options.clone())?, rows)
}

/// This library with a table that is open.
pub(super) fn kept(table: &Table, rows: &[u64]) -> Result<u64> {
    let ids: Vec<RowId> = rows.iter().copied().map(RowId).collect();
    sum(&table.get(&ids, &Projection::all())?, rows)
}

/// Opens a table that is kept.
pub(super) fn table(file: &OnMounts<'_>, options: &OpenOptions) -> Result<Table> {
    Ok(Table::open(file.target.clone(), options.clone())?)
}

/// What the crate needs to know of a file, with its page index.
pub(super) fn metadata(path: &Path) -> Result<ArrowReaderMetadata> {
    let file = File::open(path).map_err(|error| BenchError::file(path, error))?;
    ArrowReaderMetadata::load(&file, options()).map_err(|error| said(path, &error))
}

fn options() -> ArrowReaderOptions {
    ArrowReaderOptions::new()
        .with_offset_index_policy(PageIndexPolicy::Optional)
        .with_column_index_policy(PageIndexPolicy::Skip)
}

/// The crate's reader: opens the file, and reads its footer unless it is given.
pub(super) fn by_crate(
    file: &OnMounts<'_>,
    known: Option<&ArrowReaderMetadata>,
    rows_in_file: u64,
    rows: &[u64],
) -> Result<u64> {
    let path = file.path(rows.first().copied().unwrap_or(0));
    let failed = |error| said(&path, &error);
    let open = File::open(&path).map_err(|error| BenchError::file(&path, error))?;
    let builder = match known {
        Some(known) => ParquetRecordBatchReaderBuilder::new_with_metadata(open, known.clone()),
        None => ParquetRecordBatchReaderBuilder::try_new_with_options(open, options()).map_err(failed)?,
    };
    // It reads in the file's order.
    let mut sorted = rows.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let ranges = sorted.iter().map(|row| *row as usize..*row as usize + 1);
    let selection = RowSelection::from_consecutive_ranges(ranges, rows_in_file as usize);
    let reader = builder
        .with_row_selection(selection)
        .with_batch_size(sorted.len().max(1))
        .build()
        .map_err(failed)?;
    let (mut found, mut total) = (0, 0u64);
    for batch in reader {
        let batch = batch.map_err(|error| BenchError::Invalid(format!("{}: {error}", path.display())))?;
        let of_batch = sorted.get(found..found + batch.num_rows()).unwrap_or_default();
        total = total.wrapping_add(sum(&batch, of_batch)?);
        found += batch.num_rows();
    }
    // Duplicates of a request count as often as they were asked for.
    match found == sorted.len() && sorted.len() == rows.len() {
        true => Ok(total),
        false => Err(BenchError::Invalid(format!(
            "{found} of {} rows came",
            rows.len()
        ))),
    }
}

fn said(path: &Path, error: &parquet::errors::ParquetError) -> BenchError {
    BenchError::Invalid(format!("{}: {error}", path.display()))
}

/// What the system takes for a row of a KiB: open, one `pread`, close.
pub(super) fn limit(path: &Path, len: u64, rows: &[u64]) -> Result<u64> {
    let mut buffer = [0; 1024];
    for row in rows {
        let file = File::open(path).map_err(|error| BenchError::file(path, error))?;
        let at = (row * 1024) % len.saturating_sub(1024).max(1);
        file.read_exact_at(&mut buffer, at)
            .map_err(|error| BenchError::file(path, error))?;
    }
    Ok(0)
}

/// A sum over the values, in any order of rows. Where there is a column
/// `id` it says which row it is, and must say so of each.
fn sum(batch: &RecordBatch, rows: &[u64]) -> Result<u64> {
    if batch.num_rows() != rows.len() {
        return Err(BenchError::Invalid(format!(
            "{} rows for {}",
            batch.num_rows(),
            rows.len()
        )));
    }
    let total = sum_of_values(batch);
    let ids = batch
        .column_by_name("id")
        .or_else(|| batch.column_by_name("c00"))
        .and_then(|ids| ids.as_primitive_opt::<Int64Type>());
    let is_right = |ids: &Int64Array| rows.iter().zip(ids.values()).all(|(row, id)| *row == *id as u64);
    match ids.is_none_or(is_right) {
        true => Ok(total),
        false => Err(BenchError::Invalid(
            "another row than the one asked for came".into(),
        )),
    }
}
