//! One attempt at a lookup: plan, fetch, check, decode.
//!
//! Owns the order of these steps, that everything a request needs is planned together and fetched together, and that no
//! rows come out of a file that changed meanwhile. Columns out of mapped data pages and columns out of the format library's
//! readers come together here. Called by [`super::lookup`].

use std::ops::Range;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;

use super::lookup::{Kept, batch_of};
use super::{Inner, Stage};
use crate::decode::guarded;
use crate::decode::parquet::{
    Columns, FileRows, Gather, ParquetFile, Rest, RestColumns, Spanned, Split, Stop, Walked,
};
use crate::error::{ReadError, Result};
use crate::fetch::{Deadline, Fetched};
use crate::plan::{RowsAbsent, Wanted, coalesce_ranges};
use crate::row::RowId;

/// What is asked for.
pub(super) struct Request<'a> {
    pub(super) rows: &'a [RowId],
    pub(super) columns: &'a Columns,
    pub(super) deadline: &'a Deadline,
}

/// What earlier attempts found out.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Leaf columns that cannot be mapped.
    excluded: Vec<usize>,
    walked: Walked,
    spanned: Spanned,
}

/// A part of the result, or that another attempt is needed.
type Part = Option<RecordBatch>;

impl Inner {
    /// `None` if something stood in the way that the next attempt goes round.
    pub(super) fn attempt(
        &self,
        request: &Request<'_>,
        progress: &mut Progress,
        kept: &mut Kept,
    ) -> Result<Option<RecordBatch>> {
        let wanted =
            Wanted::new(request.rows, &self.row_map).map_err(|RowsAbsent(rows)| self.absent(&rows))?;
        let by_file = wanted.by_file(&self.row_map);
        if by_file.is_empty() {
            return Ok(Some(RecordBatch::new_empty(request.columns.schema.clone())));
        }
        let generation = || -> u64 {
            let files = by_file.iter().map(|(file, _)| &self.files[*file].parquet);
            files.map(ParquetFile::index_generation).sum()
        };
        let trusted = generation();
        let result = self.attempt_rows(request, &wanted, &by_file, progress, kept);
        self.close_extra(by_file.iter().map(|(file, _)| *file));
        match result {
            // Another thread found an index to lie while this one used it.
            Err(_) if trusted != generation() => Ok(None),
            result => result,
        }
    }

    fn attempt_rows(
        &self,
        request: &Request<'_>,
        wanted: &Wanted,
        by_file: &[(usize, Vec<u64>)],
        progress: &mut Progress,
        kept: &mut Kept,
    ) -> Result<Option<RecordBatch>> {
        let columns = request.columns;
        let other_split = self.split(columns, by_file, &progress.excluded)?;
        let split = other_split.as_ref().unwrap_or(&columns.split);
        let files: Vec<FileRows<'_>> = by_file
            .iter()
            .map(|(file, rows)| FileRows {
                file: &self.files[*file].parquet,
                rows,
            })
            .collect();
        let (mut gather, mut rests) = match self.timed(Stage::Plan, || self.plan(&files, split, progress)) {
            Ok(plans) => plans,
            Err(stop) => return self.go_round(stop, progress),
        };
        let mut needed = gather.as_mut().map(Gather::take_needed).unwrap_or_default();
        needed.resize(files.len(), Vec::new());
        for (needed, rest) in needed.iter_mut().zip(&mut rests) {
            needed.extend(rest.take_needed());
        }
        let must_walk = gather.as_ref().is_some_and(Gather::must_walk) || rests.iter().any(Rest::must_walk);
        let fetched = self.timed(Stage::Fetch, || {
            self.fetch(needed, by_file, kept, request.deadline)
        })?;
        for (file, _) in by_file {
            self.files[*file].mounted.check_unchanged()?;
        }
        if must_walk {
            let walked = self.timed(Stage::Plan, || walk(gather.as_ref(), &rests, &fetched, progress));
            return walked.map_or_else(|stop| self.go_round(stop, progress), |()| Ok(None));
        }
        self.timed(Stage::Decode, || {
            let flat = match gather {
                None => None,
                Some(gather) => {
                    let limit_bytes = self.options.max_result_bytes;
                    match gather.finish(&fetched, wanted.order.as_deref(), limit_bytes, request.deadline) {
                        Ok((batch, counts)) => {
                            self.done.add(counts);
                            Some(batch)
                        }
                        Err(stop) => return self.go_round(stop, progress),
                    }
                }
            };
            let rest = match &split.rest {
                None => None,
                Some(columns) => match self.decode_rest(request, columns, rests, &fetched, wanted) {
                    Ok(batch) => Some(batch),
                    Err(stop) => return self.go_round(stop, progress),
                },
            };
            self.join(request, split, flat, rest).map(Some)
        })
    }

    /// A split other than the one that the columns have, if that cannot be used.
    fn split(
        &self,
        columns: &Columns,
        by_file: &[(usize, Vec<u64>)],
        excluded: &[usize],
    ) -> Result<Option<Split>> {
        let first = &self.files[0].parquet;
        let mut shapes = by_file.iter().map(|(file, _)| &self.files[*file].parquet);
        // Values of one data page come from all files, so that these must write them alike.
        if !shapes.all(|file| file.has_shape_of(first)) {
            return first.split(columns, &columns.leaves).map(Some);
        }
        match excluded.is_empty() {
            true => Ok(None),
            false => first.split(columns, excluded).map(Some),
        }
    }

    fn plan<'a>(
        &'a self,
        files: &'a [FileRows<'a>],
        split: &'a Split,
        progress: &Progress,
    ) -> Result<(Option<Gather<'a>>, Vec<Rest<'a>>), Stop> {
        let gather = match &split.flat {
            None => None,
            Some(flat) => Some(Gather::plan(
                files,
                flat,
                &self.options.structures,
                &progress.walked,
            )?),
        };
        let cache = &self.options.structures;
        let rests = match &split.rest {
            None => Vec::new(),
            Some(columns) => {
                let plan = |rows: &FileRows<'a>| {
                    Rest::plan(*rows, columns, cache, &progress.walked, &progress.spanned)
                };
                files.iter().map(plan).collect()
            }
        };
        Ok((gather, rests))
    }

    /// Notes what stood in the way; an error if it cannot be gone round.
    fn go_round(&self, stop: Stop, progress: &mut Progress) -> Result<Option<RecordBatch>> {
        match stop {
            Stop::Again => Ok(None),
            Stop::Fallback(leaf) => {
                progress.excluded.push(leaf);
                Ok(None)
            }
            Stop::TooMany => {
                let limit = self.options.max_result_bytes;
                self.check_size("the result", limit.saturating_add(1), limit)
                    .map(|()| None)
            }
            Stop::Failed(error) => Err(error),
        }
    }

    /// Reads what is needed of each file. What the batch before read is not read again.
    fn fetch(
        &self,
        needed: Vec<Vec<Range<u64>>>,
        by_file: &[(usize, Vec<u64>)],
        kept: &mut Kept,
        deadline: &Deadline,
    ) -> Result<Vec<Fetched>> {
        if needed.iter().all(Vec::is_empty) {
            return Ok(vec![Fetched::default(); by_file.len()]);
        }
        let extents: Vec<_> = needed
            .into_iter()
            .map(|ranges| coalesce_ranges(ranges, self.options.coalesce))
            .collect();
        let fetch_bytes = extents
            .iter()
            .flatten()
            .map(|extent| extent.end - extent.start)
            .sum();
        self.check_size("these rows", fetch_bytes, self.options.max_fetch_bytes)?;
        let wanted: Vec<_> = by_file
            .iter()
            .zip(&extents)
            .map(|((file, _), extents)| (self.files[*file].mounted.clone(), &extents[..]))
            .collect();
        let before: Vec<Fetched> = by_file
            .iter()
            .map(|(file, _)| {
                let kept = kept.0.iter().find(|(number, _)| number == file);
                kept.map(|(_, fetched)| fetched.clone()).unwrap_or_default()
            })
            .collect();
        let read_before = before
            .iter()
            .zip(&extents)
            .all(|(before, extents)| extents.iter().all(|extent| before.get(extent).is_some()));
        let fetched = self.fetcher.fetch(&wanted, &before, deadline)?;
        // What all of this lies in may hold the next batch too.
        if !read_before {
            kept.0 = by_file
                .iter()
                .map(|(file, _)| *file)
                .zip(fetched.iter().cloned())
                .collect();
        }
        Ok(fetched)
    }

    /// Rows of the columns that the format library's readers take, in the order asked.
    fn decode_rest(
        &self,
        request: &Request<'_>,
        columns: &RestColumns,
        rests: Vec<Rest<'_>>,
        fetched: &[Fetched],
        wanted: &Wanted,
    ) -> Result<RecordBatch, Stop> {
        let mut batches = Vec::with_capacity(rests.len());
        for (rest, fetched) in rests.into_iter().zip(fetched) {
            let (batch, counts) = rest.finish(fetched, request.deadline)?;
            self.done.add(counts);
            batches.push(batch);
        }
        self.join_rest(request, columns.schema(), batches, wanted)
            .map_err(Stop::Failed)
    }

    /// Rows of all files, in the order asked.
    fn join_rest(
        &self,
        request: &Request<'_>,
        schema: &SchemaRef,
        batches: Vec<RecordBatch>,
        wanted: &Wanted,
    ) -> Result<RecordBatch> {
        let batch = match <[RecordBatch; 1]>::try_from(batches) {
            Ok([one]) => one,
            Err(batches) => guarded(&self.path, "joining rows", || {
                Ok(concat_batches(schema, &batches)?)
            })?,
        };
        let bytes = batch.get_array_memory_size() as u64;
        let expected = bytes / (wanted.rows.len().max(1) as u64) * request.rows.len() as u64;
        self.check_size("the result", bytes.max(expected), self.options.max_result_bytes)?;
        let places = wanted.order.clone().map(UInt64Array::from);
        self.in_order(batch, places, false)
    }

    /// Puts the columns together that were read in different ways.
    fn join(&self, request: &Request<'_>, split: &Split, flat: Part, rest: Part) -> Result<RecordBatch> {
        let columns = request.columns;
        let rows = request.rows.len();
        let mut in_file_order: Vec<Option<ArrayRef>> = vec![None; columns.order.len()];
        let parts = [(&split.flat_places, flat), (&split.rest_places, rest)];
        for (places, batch) in parts {
            for (place, column) in places.iter().zip(batch.iter().flat_map(RecordBatch::columns)) {
                in_file_order[*place] = Some(column.clone());
            }
        }
        let in_order: Option<Vec<ArrayRef>> = columns
            .order
            .iter()
            .map(|place| in_file_order[*place].clone())
            .collect();
        let in_order = in_order.ok_or_else(|| ReadError::corrupt(&self.path, "a column has no rows"))?;
        let batch = guarded(&self.path, "joining columns", || {
            Ok(batch_of(columns.schema.clone(), in_order, rows)?)
        })?;
        let bytes = batch.get_array_memory_size() as u64;
        self.check_size("the result", bytes, self.options.max_result_bytes)?;
        Ok(batch)
    }
}

/// Looks for the data pages of columns that have no index that can be used.
fn walk(
    gather: Option<&Gather<'_>>,
    rests: &[Rest<'_>],
    fetched: &[Fetched],
    progress: &mut Progress,
) -> Result<(), Stop> {
    if let Some(gather) = gather {
        gather.walk(fetched, &mut progress.walked)?;
    }
    for (rest, fetched) in rests.iter().zip(fetched) {
        rest.walk(fetched, &mut progress.walked, &mut progress.spanned)?;
    }
    Ok(())
}
