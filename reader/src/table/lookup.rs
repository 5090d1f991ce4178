//! One lookup: plan, fetch, check, decode, and put into the caller's order.
//!
//! Owns the order of these steps, the limits of a request, and that no rows come out of a file that
//! changed meanwhile. Called by [`super::Table`] and [`super::RowStream`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow_schema::{ArrowError, FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;

use super::{Inner, Missing, OPEN_FILES_MAX, Projection, Stage};
use crate::decode::guarded;
use crate::decode::parquet::{Columns, ParquetFile};
use crate::error::{ReadError, Result};
use crate::fetch::{Deadline, Fetched};
use crate::plan::{FilePlan, LookupPlan, RowsAbsent};
use crate::row::RowId;

/// Row ids that an error names.
const ABSENT_NAMED_MAX: usize = 6;

/// What was fetched for the batch before: consecutive batches share data pages.
#[derive(Debug, Default)]
pub(super) struct Kept(Vec<(usize, Fetched)>);

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

    fn timed<T>(&self, stage: Stage, call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        let spent_us = started.elapsed().as_micros() as u64;
        self.times_us[stage as usize].fetch_add(spent_us, Relaxed);
        result
    }

    /// One request: everything it needs is planned together, and fetched together.
    pub(super) fn lookup(
        &self,
        rows: &[RowId],
        projection: &Projection,
        missing: Missing,
        deadline: Deadline,
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
        let (batch, order) = loop {
            let trusted: u64 = self
                .files
                .iter()
                .map(|file| file.parquet.index_generation())
                .sum();
            match self.try_lookup(rows, projection, &columns, deadline, kept) {
                Ok(Some(found)) => break found,
                // An index was found to lie, here or on another thread: plan again without it.
                Ok(None) => {}
                Err(_) if trusted != self.index_generation() => {}
                Err(error) => return Err(error),
            }
            deadline.check("reading")?;
        };
        self.close_extra();
        let places = match (order, places) {
            (None, None) => None,
            (Some(order), None) => Some(UInt64Array::from(order)),
            (None, Some(places)) => Some(UInt64Array::from(places)),
            (Some(order), Some(places)) => Some(
                places
                    .into_iter()
                    .map(|place| Some(order[place? as usize]))
                    .collect::<UInt64Array>(),
            ),
        };
        self.in_order(batch, places, missing == Missing::Null)
    }

    /// `None` if a page index turned out to be wrong.
    fn try_lookup(
        &self,
        rows: &[RowId],
        projection: &Projection,
        columns: &Columns,
        deadline: Deadline,
        kept: &mut Kept,
    ) -> Result<Option<(RecordBatch, Option<Vec<u64>>)>> {
        let plan = self.timed(Stage::Plan, || {
            let files: Vec<&ParquetFile> = self.files.iter().map(|file| &file.parquet).collect();
            let coalesce = self.options.coalesce;
            LookupPlan::new(rows, &self.row_map, &files, &columns.leaves, coalesce)
                .map_err(|RowsAbsent(rows)| self.absent(&rows))
        })?;
        self.check_size("these rows", plan.fetch_bytes(), self.options.max_fetch_bytes)?;
        let fetched = self.timed(Stage::Fetch, || self.fetch(&plan, kept, deadline))?;
        for file in &plan.files {
            self.files[file.file].mounted.check_unchanged()?;
        }
        let batches = self.timed(Stage::Decode, || -> Result<Option<Vec<RecordBatch>>> {
            let mut agrees = true;
            for (file, fetched) in plan.files.iter().zip(&fetched) {
                agrees &= self.files[file.file].parquet.check_pages(file, fetched)?;
            }
            if !agrees {
                return Ok(None);
            }
            let decode = |(file, fetched)| self.decode(file, fetched, projection, columns);
            plan.files
                .iter()
                .zip(&fetched)
                .map(decode)
                .collect::<Result<_>>()
                .map(Some)
        })?;
        kept.0 = plan.files.iter().map(|file| file.file).zip(fetched).collect();
        let Some(batches) = batches else {
            return Ok(None);
        };
        let batch = match <[RecordBatch; 1]>::try_from(batches) {
            Ok([one]) => one,
            Err(batches) => self.concat(&columns.schema, &batches)?,
        };
        let bytes = batch.get_array_memory_size() as u64;
        let expected = bytes / (plan.row_count().max(1) as u64) * rows.len() as u64;
        self.check_size("the result", bytes.max(expected), self.options.max_result_bytes)?;
        Ok(Some((batch, plan.order)))
    }

    fn check_size(&self, what: &str, need_bytes: u64, limit_bytes: u64) -> Result<()> {
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

    fn fetch(&self, plan: &LookupPlan, kept: &Kept, deadline: Deadline) -> Result<Vec<Fetched>> {
        let wanted: Vec<_> = plan
            .files
            .iter()
            .map(|file| (self.files[file.file].mounted.clone(), &file.extents[..]))
            .collect();
        let before: Vec<Fetched> = plan
            .files
            .iter()
            .map(|file| {
                let kept = kept.0.iter().find(|(number, _)| *number == file.file);
                kept.map(|(_, fetched)| fetched.clone()).unwrap_or_default()
            })
            .collect();
        self.fetcher.fetch(&wanted, &before, deadline)
    }

    fn decode(
        &self,
        plan: &FilePlan,
        fetched: &Fetched,
        projection: &Projection,
        columns: &Columns,
    ) -> Result<RecordBatch> {
        let file = &self.files[plan.file].parquet;
        if plan.file == 0 {
            return file.decode(plan, fetched, columns);
        }
        file.decode(plan, fetched, &file.project(projection.0.as_deref())?)
    }

    fn concat(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch> {
        guarded(&self.path, "joining rows", || {
            // Files may differ in key-value metadata; the first file's stands for all.
            let batches = batches
                .iter()
                .map(|b| batch_of(schema.clone(), b.columns().to_vec(), b.num_rows()))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(concat_batches(schema, &batches)?)
        })
    }

    /// Puts rows into their places; a place that is null is a row of nulls.
    fn in_order(
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

    /// Handles beyond the limit do not stay open.
    fn close_extra(&self) {
        for file in self.files.iter().skip(OPEN_FILES_MAX) {
            file.mounted.close();
        }
    }
}

fn batch_of(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

pub(super) fn all_nullable(schema: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
    let fields: Vec<_> = schema.fields().iter().map(nullable).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
