//! One lookup: attempts until one succeeds, and the places of row ids that do not exist.
//!
//! Owns what becomes of absent row ids, and the limits of a request. Each attempt is [`super::attempt`]'s. Called by [`super::Table`] and [`super::RowStream`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow_schema::{ArrowError, FieldRef, Schema, SchemaRef};
use arrow_select::take::take;

use super::attempt::{Progress, Request};
use super::handles::OPEN_FILES_MAX;
use super::open::close;
use super::{Inner, Missing, Projection, Stage};
use crate::decode::guarded;
use crate::error::{ReadError, Result};
use crate::fetch::{Deadline, Fetched};
use crate::row::RowId;

/// Row ids that an error names.
const ABSENT_NAMED_MAX: usize = 6;

/// What was fetched for the batch before: consecutive batches share data pages.
#[derive(Debug, Default)]
pub(super) struct Kept(pub(super) Vec<(usize, Fetched)>);

impl Inner {
    pub(super) fn absent(&self, rows: &[RowId]) -> ReadError {
        ReadError::RowsAbsent {
            path: self.path.clone(),
            rows: rows.iter().take(ABSENT_NAMED_MAX).map(|row| row.0).collect(),
            row_count: self.row_map.row_count(),
        }
    }

    pub(super) fn check_rows(&self, rows: &[RowId]) -> Result<()> {
        let count = self.row_map.row_count();
        let absent: Vec<_> = rows.iter().copied().filter(|row| row.0 >= count).collect();
        if absent.is_empty() {
            Ok(())
        } else {
            Err(self.absent(&absent))
        }
    }

    pub(super) fn index_generation(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.parquet.index_generation())
            .sum()
    }

    pub(super) fn timed<T>(&self, stage: Stage, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        let spent_us = started.elapsed().as_micros() as u64;
        self.done.times_us[stage as usize].fetch_add(spent_us, Relaxed);
        result
    }

    /// One request: everything it needs is planned together, and fetched together.
    pub(super) fn lookup(
        &self,
        rows: &[RowId],
        projection: &Projection,
        missing: Missing,
        deadline: &Deadline,
        kept: &mut Kept,
    ) -> Result<RecordBatch> {
        let count = self.row_map.row_count();
        let present: Vec<RowId>;
        let (rows, places) = if missing == Missing::Error || rows.iter().all(|r| r.0 < count) {
            (rows, None)
        } else {
            present = rows.iter().copied().filter(|row| row.0 < count).collect();
            let mut next = 0..;
            let places: Vec<Option<u64>> = rows
                .iter()
                .map(|row| if row.0 < count { next.next() } else { None })
                .collect();
            (&present[..], (missing == Missing::Null).then_some(places))
        };
        let columns = self.files[0].parquet.project(projection.0.as_deref())?;
        let request = Request {
            rows,
            columns: &columns,
            deadline,
        };
        let mut progress = Progress::default();
        let batch = loop {
            match self.attempt(&request, &mut progress, kept)? {
                Some(batch) => break batch,
                // An index was found to lie, or what was thought to be mappable is not: once more, knowing that.
                None => deadline.check("reading")?,
            }
        };
        self.in_order(batch, places.map(UInt64Array::from), missing == Missing::Null)
    }

    pub(super) fn check_size(&self, what: &str, need_bytes: u64, limit_bytes: u64) -> Result<()> {
        if need_bytes <= limit_bytes {
            return Ok(());
        }
        Err(ReadError::TooLarge {
            what: format!("{}: {what}", self.path.display()),
            need_bytes,
            limit_bytes,
            remedy: "raise --memory, ask for fewer rows or columns, or use get_stream",
        })
    }

    /// Puts rows into their places; a place that is null is a row of nulls.
    pub(super) fn in_order(
        &self,
        batch: RecordBatch,
        places: Option<UInt64Array>,
        nullable: bool,
    ) -> Result<RecordBatch> {
        let schema = if nullable {
            all_nullable(&batch.schema())
        } else {
            batch.schema()
        };
        guarded(&self.path, "ordering rows", || {
            let Some(places) = places else {
                return Ok(batch_of(schema, batch.columns().to_vec(), batch.num_rows())?);
            };
            let columns = batch
                .columns()
                .iter()
                .map(|column| match column.is_empty() {
                    true => Ok(new_null_array(column.data_type(), places.len())),
                    false => take(column, &places, None),
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok(batch_of(schema, columns, places.len())?)
        })
    }

    /// Handles beyond the limit do not stay open: those that were used longest ago go.
    pub(super) fn close_extra(&self, used: impl Iterator<Item = usize>) {
        if self.files.len() > OPEN_FILES_MAX {
            close(&self.files, self.handles.used(used));
        }
    }

    /// Whether both are the same versions of the same files.
    pub(super) fn has_versions_of(&self, other: &Inner) -> bool {
        self.files.len() == other.files.len()
            && self
                .files
                .iter()
                .zip(&other.files)
                .all(|(file, other)| file.mounted.is_version_of(&other.mounted))
    }
}

pub(super) fn batch_of(
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

pub(super) fn all_nullable(schema: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
    let fields: Vec<_> = schema.fields().iter().map(nullable).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
