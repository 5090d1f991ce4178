//! [`Table`]: open once, look rows up as often as you like, from as many threads as you like.
//!
//! Owns the order of a lookup (plan, fetch, check, decode, put into the caller's order), the limits
//! of a request, and that no rows come out of a file that changed meanwhile. Called by the command
//! line and by tools that link this crate.

mod open;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;

use crate::decode::guarded;
use crate::decode::parquet::{Columns, ParquetFile};
use crate::error::{ReadError, Result};
use crate::fetch::{Deadline, Fetched, Fetcher};
use crate::mounts::{MountedFile, Opener, Spread, Target};
use crate::plan::{Coalesce, LookupPlan, RowMap, RowsAbsent};
use crate::read_at::ReadCounts;
use crate::row::{RowId, RowRange};
pub use stream::RowStream;

/// Files of a directory whose handles stay open between requests. More files are opened again, so
/// that a large directory does not use up the process's descriptors.
const OPEN_FILES_MAX: usize = 128;

/// Row ids that an error names.
const ABSENT_NAMED_MAX: usize = 6;

/// How a table is read.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How reads are spread over mounts.
    pub spread: Spread,
    /// Reads of one request that are under way at once.
    pub parallel_reads: usize,
    /// How byte ranges become reads.
    pub coalesce: Coalesce,
    /// How long a request may take, opening included; `None` is for ever.
    pub deadline: Option<Duration>,
    /// [`Table::get`] returns no more than this; [`Table::get_stream`] returns batches of this size.
    pub max_result_bytes: u64,
    /// Bytes of one request that are held before they are decoded.
    pub max_fetch_bytes: u64,
    /// How much of a file's tail is read at first, in the hope that footer and page index are in it.
    pub tail_bytes_guess: u64,
    /// Counts opens, reads and bytes of the default opener.
    pub counts: ReadCounts,
    /// Opens files; `None` is `pread`.
    pub opener: Option<Opener>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            spread: Spread::Hash,
            parallel_reads: 16,
            coalesce: Coalesce::default(),
            deadline: None,
            max_result_bytes: 256 << 20,
            max_fetch_bytes: 1 << 30,
            tail_bytes_guess: 64 << 10,
            counts: ReadCounts::default(),
            opener: None,
        }
    }
}

/// Which columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Projection(Option<Vec<String>>);

impl Projection {
    /// All columns, in the file's order.
    pub fn all() -> Projection {
        Projection(None)
    }

    /// These columns in this order. `a.b` is the field `b` of the struct `a`, of which only the
    /// named fields are read.
    pub fn columns(paths: impl IntoIterator<Item = impl Into<String>>) -> Projection {
        Projection(Some(paths.into_iter().map(Into::into).collect()))
    }
}

/// What becomes of a row id that does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Missing {
    /// The request fails and names it.
    #[default]
    Error,
    /// A row of nulls in its place.
    Null,
    /// Nothing in its place.
    Skip,
}

/// What a table did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupCounters {
    /// Files opened.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Page indexes that disagreed with the data pages they describe, and were given up.
    pub indexes_given_up: u64,
    /// Microseconds spent opening: footers and page indexes.
    pub open_us: u64,
    /// Microseconds spent planning.
    pub plan_us: u64,
    /// Microseconds spent waiting for bytes.
    pub fetch_us: u64,
    /// Microseconds spent decoding, checks of the page index included.
    pub decode_us: u64,
}

/// A Parquet file, or a directory of these. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Table(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    files: Vec<TableFile>,
    row_map: RowMap,
    schema: SchemaRef,
    options: OpenOptions,
    fetcher: Fetcher,
    times_us: [AtomicU64; 4],
}

#[derive(Debug)]
struct TableFile {
    mounted: Arc<MountedFile>,
    parquet: ParquetFile,
}

#[derive(Clone, Copy)]
enum Stage {
    Open,
    Plan,
    Fetch,
    Decode,
}

impl Table {
    /// Opens a file, or all files of a directory in the order of their names, through one path or
    /// through several mounts.
    pub fn open(target: impl Into<Target>, options: OpenOptions) -> Result<Table> {
        open::open(&target.into(), options).map(|inner| Table(Arc::new(inner)))
    }

    /// All columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    /// The columns of `projection`.
    pub fn projected_schema(&self, projection: &Projection) -> Result<SchemaRef> {
        Ok(self.0.files[0].parquet.project(projection.0.as_deref())?.schema)
    }

    /// Rows in all files. Row ids are smaller than this.
    pub fn row_count(&self) -> u64 {
        self.0.row_map.row_count()
    }

    /// The path that errors name.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What has been done so far.
    pub fn counters(&self) -> LookupCounters {
        let [open_us, plan_us, fetch_us, decode_us] =
            [0, 1, 2, 3].map(|stage| self.0.times_us[stage].load(Relaxed));
        let counts = &self.0.options.counts;
        LookupCounters {
            opens: counts.opens(),
            reads: counts.reads(),
            bytes: counts.bytes(),
            indexes_given_up: self.0.index_generation(),
            open_us,
            plan_us,
            fetch_us,
            decode_us,
        }
    }

    /// The rows asked for, in the order asked, duplicates included. A row id that does not exist is
    /// an error that names it.
    pub fn get(&self, rows: &[RowId], projection: &Projection) -> Result<RecordBatch> {
        self.get_with(rows, projection, Missing::Error)
    }

    /// As [`Table::get`], with a choice of what becomes of row ids that do not exist.
    pub fn get_with(&self, rows: &[RowId], projection: &Projection, missing: Missing) -> Result<RecordBatch> {
        let deadline = Deadline::starting_now(self.0.options.deadline);
        self.0
            .lookup(rows, projection, missing, deadline, &mut Kept::default())
    }

    /// The same rows as [`Table::get_with`], in batches of at most `max_result_bytes`.
    pub fn get_stream(
        &self,
        rows: Vec<RowId>,
        projection: &Projection,
        missing: Missing,
    ) -> Result<RowStream> {
        if missing == Missing::Error {
            self.0.check_rows(&rows)?;
        }
        RowStream::of_rows(self.clone(), rows, projection.clone(), missing)
    }

    /// The rows of a range in batches of `page` rows, or of fewer where these would be more than
    /// `max_result_bytes`.
    pub fn scan(&self, range: RowRange, projection: &Projection, page: usize) -> Result<RowStream> {
        let end = range.end.map_or(self.row_count(), |end| end.0);
        if end > self.row_count() || range.start.0 > end {
            let absent = if end > self.row_count() {
                end - 1
            } else {
                range.start.0
            };
            return Err(self.0.absent(&[RowId(absent)]));
        }
        RowStream::of_range(self.clone(), range.start.0..end, projection.clone(), page)
    }

    /// The parsed files, for [`crate::inspect`].
    pub(crate) fn files(&self) -> impl Iterator<Item = &ParquetFile> {
        self.0.files.iter().map(|file| &file.parquet)
    }
}

/// What was fetched for the batch before: consecutive batches share data pages.
#[derive(Debug, Default)]
struct Kept(Vec<(usize, Fetched)>);

impl Inner {
    fn absent(&self, rows: &[RowId]) -> ReadError {
        ReadError::RowsAbsent {
            path: self.path.clone(),
            rows: rows.iter().take(ABSENT_NAMED_MAX).map(|row| row.0).collect(),
            row_count: self.row_map.row_count(),
        }
    }

    fn check_rows(&self, rows: &[RowId]) -> Result<()> {
        let count = self.row_map.row_count();
        let absent: Vec<_> = rows.iter().copied().filter(|row| row.0 >= count).collect();
        if absent.is_empty() {
            Ok(())
        } else {
            Err(self.absent(&absent))
        }
    }

    fn index_generation(&self) -> u64 {
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
    fn lookup(
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
        plan: &crate::plan::FilePlan,
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
                    true => Ok(arrow_array::new_null_array(column.data_type(), places.len())),
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

fn batch_of(
    schema: SchemaRef,
    columns: Vec<arrow_array::ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

fn all_nullable(schema: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
    let fields: Vec<_> = schema.fields().iter().map(nullable).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
