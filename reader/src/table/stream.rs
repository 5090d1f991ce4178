//! [`RowStream`]: rows in batches, each within the memory limit.
//!
//! Owns how many rows go into one batch. Each batch is a lookup of its own; what the batch before
//! fetched is used again where both need it. Made by [`super::Table`].

use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::keys::KeyScan;
use super::lookup::{Kept, all_nullable};
use super::{Missing, Projection, Table};
use crate::error::{ReadError, Result};
use crate::row::RowId;

/// Rows in a batch where nothing else limits it.
const BATCH_ROWS_MAX: usize = 64 << 10;

/// Batches of rows. The deadline counts for each batch.
#[derive(Debug)]
pub struct RowStream {
    table: Table,
    rows: Source,
    projection: Projection,
    missing: Missing,
    schema: SchemaRef,
    batch_rows: usize,
    kept: Kept,
}

#[derive(Debug)]
enum Source {
    Rows(std::vec::IntoIter<RowId>),
    Range(Range<u64>),
    Keys(Box<KeyScan>),
}

impl RowStream {
    pub(super) fn of_rows(
        table: Table,
        rows: Vec<RowId>,
        projection: Projection,
        missing: Missing,
    ) -> Result<RowStream> {
        let rows = Source::Rows(rows.into_iter());
        RowStream::new(table, rows, projection, missing, BATCH_ROWS_MAX)
    }

    pub(super) fn of_range(
        table: Table,
        range: Range<u64>,
        projection: Projection,
        page: usize,
    ) -> Result<RowStream> {
        if page == 0 {
            return Err(ReadError::Invalid("a page has at least one row".into()));
        }
        RowStream::new(table, Source::Range(range), projection, Missing::Error, page)
    }

    pub(super) fn of_keys(
        table: Table,
        scan: KeyScan,
        projection: Projection,
        page: usize,
    ) -> Result<RowStream> {
        if page == 0 {
            return Err(ReadError::Invalid("a page has at least one row".into()));
        }
        RowStream::new(
            table,
            Source::Keys(Box::new(scan)),
            projection,
            Missing::Error,
            page,
        )
    }

    fn new(
        table: Table,
        rows: Source,
        projection: Projection,
        missing: Missing,
        batch_rows_max: usize,
    ) -> Result<RowStream> {
        let file = &table.0.files[0].parquet;
        let columns = file.project(projection.0.as_deref())?;
        // Half of the limit, since this is an estimate; a batch that is too large is halved again.
        let fit = table.0.options.max_result_bytes / 2 / file.row_bytes(&columns.leaves).max(1);
        let batch_rows = usize::try_from(fit)
            .unwrap_or(usize::MAX)
            .clamp(1, batch_rows_max);
        let schema = match missing {
            Missing::Null => all_nullable(&columns.schema),
            _ => columns.schema.clone(),
        };
        Ok(RowStream {
            table,
            rows,
            projection,
            missing,
            schema,
            batch_rows,
            kept: Kept::default(),
        })
    }

    /// The schema of every batch, known before the first.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn ahead(&mut self) -> Result<Vec<RowId>> {
        Ok(match &mut self.rows {
            Source::Rows(rows) => rows.as_slice().iter().take(self.batch_rows).copied().collect(),
            Source::Range(range) => range.clone().take(self.batch_rows).map(RowId).collect(),
            Source::Keys(scan) => scan.ahead(&self.table, self.batch_rows)?,
        })
    }

    fn advance(&mut self, count: usize) {
        match &mut self.rows {
            Source::Rows(rows) => rows.by_ref().take(count).for_each(drop),
            Source::Range(range) => range.start += count as u64,
            Source::Keys(scan) => scan.advance(count),
        }
    }

    fn end(&mut self) {
        self.rows = Source::Range(0..0);
    }
}

impl Iterator for RowStream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            let rows = match self.ahead() {
                Ok(rows) => rows,
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            };
            if rows.is_empty() {
                return None;
            }
            let deadline = self.table.deadline();
            let inner = &self.table.0;
            let found = inner.lookup(&rows, &self.projection, self.missing, &deadline, &mut self.kept);
            match found {
                Err(ReadError::TooLarge { .. }) if rows.len() > 1 => {
                    self.batch_rows = rows.len().div_ceil(2);
                }
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
                Ok(batch) => {
                    self.advance(rows.len());
                    return Some(Ok(batch));
                }
            }
        }
    }
}
