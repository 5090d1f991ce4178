//! Rows out of the fetched bytes of one file.
//!
//! Owns what happens between bytes and arrays: data pages are checked, then the crate's Arrow reader
//! takes the planned rows from them. It sees what was fetched and nothing else. Called by
//! [`crate::table`].

use std::ops::Range;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_select::concat::concat_batches;
use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReaderBuilder, RowSelection, RowSelectionPolicy};
use parquet::file::reader::{ChunkReader, Length};

use super::{Columns, ParquetFile, pages};
use crate::decode::guarded;
use crate::error::{ReadError, Result};
use crate::fetch::Fetched;
use crate::plan::{ColumnPlan, FilePlan, Layout};

impl ParquetFile {
    /// Checks the data pages that were read for `plan`. Offset indexes that disagree with them are
    /// not used any more, and the caller has to plan again: `Ok(false)`.
    pub(crate) fn check_pages(&self, plan: &FilePlan, fetched: &Fetched) -> Result<bool> {
        let bytes = FetchedReader {
            fetched: fetched.clone(),
            len: self.structure.len,
        };
        let mut agrees = true;
        for group in &plan.row_groups {
            let last_row = group.rows.last().map_or(0, |range| range.end - 1);
            for column in &group.columns {
                match column {
                    ColumnPlan::Pages { column, pages, .. } => {
                        if !self.holds_rows(&bytes, group.row_group, *column, pages) {
                            self.structure.index.distrust(group.row_group, *column);
                            agrees = false;
                        }
                    }
                    ColumnPlan::Whole { column } => {
                        self.check_levels(&bytes, group.row_group, *column, last_row)?;
                    }
                }
            }
        }
        Ok(agrees)
    }

    fn holds_rows(&self, bytes: &FetchedReader, row_group: usize, column: usize, pages: &[usize]) -> bool {
        let group = self.metadata().row_group(row_group);
        let locations = self
            .structure
            .index
            .locations(row_group, column)
            .unwrap_or_default();
        let right = guarded(&self.path, "checking the page index", || {
            for page in pages {
                let Some(here) = locations.get(*page) else {
                    return Ok(false);
                };
                let next = locations.get(page + 1);
                let end = next.map_or(group.num_rows(), |next| next.first_row_index);
                let rows = (end - here.first_row_index).max(0) as u64;
                if !pages::holds_rows(bytes, group, column, here, rows)? {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        matches!(right, Ok(true))
    }

    /// Checks a repeated column that is read whole, once for each row it is wanted up to.
    fn check_levels(
        &self,
        bytes: &FetchedReader,
        row_group: usize,
        column: usize,
        last_row: u64,
    ) -> Result<()> {
        let group = self.metadata().row_group(row_group);
        let descriptor = group.column(column).column_descr();
        let checked = self.structure.index.rows_checked(row_group, column);
        if descriptor.max_rep_level() == 0 || checked > last_row {
            return Ok(());
        }
        let right = guarded(&self.path, "checking repetition levels", || {
            pages::has_all_levels(bytes, group, column, last_row)
        })?;
        if !right {
            let name = descriptor.path().string();
            let what = format!("column '{name}' has repetition levels that end early, or are not RLE");
            return Err(ReadError::corrupt(&self.path, what));
        }
        self.structure
            .index
            .set_rows_checked(row_group, column, last_row + 1);
        Ok(())
    }

    /// The planned rows, in the file's order.
    pub(crate) fn decode(
        &self,
        plan: &FilePlan,
        fetched: &Fetched,
        columns: &Columns,
    ) -> Result<RecordBatch> {
        let rows = plan.row_count;
        if columns.leaves.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            return RecordBatch::try_new_with_options(columns.schema.clone(), vec![], &options)
                .map_err(|e| ReadError::corrupt(&self.path, e.to_string()));
        }
        let bytes = FetchedReader {
            fetched: fetched.clone(),
            len: self.structure.len,
        };
        let (row_groups, selection) = self.selection(plan);
        let batch = guarded(&self.path, "decoding rows", || {
            let mask = ProjectionMask::leaves(
                self.structure.arrow.parquet_schema(),
                columns.leaves.iter().copied(),
            );
            let reader =
                ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, self.structure.arrow.clone())
                    .with_row_groups(row_groups)
                    .with_projection(mask)
                    .with_row_selection(selection)
                    // A mask would read the data pages between two wanted rows.
                    .with_row_selection_policy(RowSelectionPolicy::Selectors)
                    .with_batch_size(rows)
                    .build()?;
            let batches = reader.collect::<std::result::Result<Vec<_>, _>>()?;
            let batch = match &batches[..] {
                [] => return Ok(RecordBatch::new_empty(columns.schema.clone())),
                [one] => one.clone(),
                [first, ..] => concat_batches(&first.schema(), &batches)?,
            };
            Ok(batch.project(&columns.order)?)
        })?;
        if batch.num_rows() != rows {
            return Err(ReadError::corrupt(
                &self.path,
                format!("decoding rows: {rows} rows planned, {} found", batch.num_rows()),
            ));
        }
        RecordBatch::try_new(columns.schema.clone(), batch.columns().to_vec())
            .map_err(|e| ReadError::corrupt(&self.path, format!("decoding rows: {e}")))
    }

    /// The row groups of the plan, and the wanted rows within these, one after the other.
    fn selection(&self, plan: &FilePlan) -> (Vec<usize>, RowSelection) {
        let mut ranges = Vec::new();
        let mut start = 0;
        for row_group in &plan.row_groups {
            let shift = |range: &Range<u64>| start + range.start as usize..start + range.end as usize;
            ranges.extend(row_group.rows.iter().map(shift));
            start += self.rows(row_group.row_group) as usize;
        }
        let selection = RowSelection::from_consecutive_ranges(ranges.into_iter(), start);
        (plan.row_groups.iter().map(|g| g.row_group).collect(), selection)
    }
}

/// The format library's door to the bytes: what was fetched, and nothing else.
#[derive(Debug, Clone)]
pub(super) struct FetchedReader {
    fetched: Fetched,
    len: u64,
}

impl Length for FetchedReader {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for FetchedReader {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let bytes = self.fetched.from(start).filter(|bytes| !bytes.is_empty());
        Ok(bytes.ok_or_else(|| pages::outside_of_plan(start, 0))?.reader())
    }

    fn get_bytes(&self, start: u64, len: usize) -> parquet::errors::Result<Bytes> {
        let range = start..start.saturating_add(len as u64);
        self.fetched
            .get(&range)
            .ok_or_else(|| pages::outside_of_plan(start, len))
    }
}
