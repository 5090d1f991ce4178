//! [`Table`]: open once, look rows up as often as you like, from as many threads as you like.
//!
//! Owns the public shape of a table: how it is opened, what can be asked, what was done. Called by the
//! command line and by tools that link this crate; `lookup` does the work.

mod attempt;
mod counters;
mod handles;
mod keys;
mod lookup;
mod open;
mod search;
mod stream;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::cancel::CancelToken;
use crate::decode::parquet::ParquetFile;
use crate::error::Result;
pub use crate::fetch::ReadThreads;
use crate::fetch::{Deadline, Fetcher};
use crate::mounts::{MountedFile, Opener, Spread, Target};
use crate::plan::{Coalesce, RowMap};
use crate::read_at::ReadCounts;
use crate::row::{RowId, RowRange};
use crate::sidecar::Sidecars;
use crate::structures::StructureCache;
pub use counters::LookupCounters;
use counters::{Done, Stage};
use handles::Handles;
pub use keys::FoundKeys;
pub(crate) use keys::KeyedRow;
use lookup::Kept;
pub use stream::RowStream;

/// How a table is read.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How reads are spread over mounts.
    pub spread: Spread,
    /// Reads that are under way at once.
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
    /// What is known of files between lookups. Clones of these options share it, so that a file that is opened again
    /// with a clone needs no read for what is known of it.
    pub structures: StructureCache,
    /// What stays known on disk, so that a program that starts anew reads values by their own bytes from the beginning; `None`
    /// is nothing. Files that `structures` knows already keep what they were opened with.
    pub sidecars: Option<Sidecars>,
    /// Offset indexes are compared with the headers of all data pages of a column before they are used, which costs a read
    /// of the whole column once. Without it, only the data pages that are read are held against them.
    pub verify: bool,
    /// Threads that read, for all tables that are opened with clones of these options.
    pub threads: ReadThreads,
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
            structures: StructureCache::default(),
            sidecars: None,
            verify: false,
            threads: ReadThreads::default(),
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

/// A Parquet file, or a directory of these: the versions that were there when it was opened. `Send` and `Sync`; cheap to
/// clone, and clones share everything.
///
/// Lookups are synchronous, and start no thread for what is known. What they cost is told at each of them, in reads,
/// bytes and processor time; [`Table::counters`] says what it was.
#[derive(Debug, Clone)]
pub struct Table(Arc<Inner>, Option<CancelToken>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    target: Target,
    files: Vec<TableFile>,
    row_map: RowMap,
    schema: SchemaRef,
    options: OpenOptions,
    fetcher: Fetcher,
    handles: Handles,
    done: Done,
}

#[derive(Debug)]
struct TableFile {
    mounted: Arc<MountedFile>,
    parquet: ParquetFile,
}

impl Table {
    /// Opens a file, or all files of a directory in the order of their names, through one path or
    /// through several mounts.
    ///
    /// Costs for each file one open and one `fstat`, or one `stat` alone where a lookupfs mount has shown this version
    /// before: it is opened for its first read then, which fails with `Changed` if it was replaced meanwhile. Where its
    /// footer is not known, one to three reads. A known file takes some 3 µs.
    ///
    /// # Errors
    /// `Open` and `NotAFile` for the path, `Corrupt` and `Unsupported` for what it holds, `SchemaDiffers` for a directory of
    /// different tables, `Deadline`.
    pub fn open(target: impl Into<Target>, options: OpenOptions) -> Result<Table> {
        let fetcher = options.threads.of(options.parallel_reads);
        let inner = open::open(&target.into(), options, fetcher, None)?;
        Ok(Table(Arc::new(inner), None))
    }

    /// The table as it is now: this one again if every file is still the version that was opened, else the new versions
    /// under the same options. Rows of this table stay what they were.
    ///
    /// Costs what [`Table::open`] costs. On a lookupfs mount a change shows once its `ttl` has passed.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub fn refresh(&self) -> Result<Table> {
        let inner = &self.0;
        let fetcher = inner.fetcher.clone();
        let now = open::open(&inner.target, inner.options.clone(), fetcher, self.1.clone())?;
        if now.has_versions_of(inner) {
            return Ok(self.clone());
        }
        Ok(Table(Arc::new(now), self.1.clone()))
    }

    /// The same table, whose requests end with [`ReadError::Cancelled`](crate::ReadError::Cancelled) once `token` is
    /// cancelled. While they wait for a read they see it within [`CANCEL_SEEN_WITHIN`](crate::cancel::CANCEL_SEEN_WITHIN);
    /// reads then go through the table's threads, which costs a hop of some 20 µs each.
    pub fn cancelled_by(&self, token: &CancelToken) -> Table {
        Table(self.0.clone(), Some(token.clone()))
    }

    fn deadline(&self) -> Deadline {
        Deadline::starting_now(self.0.options.deadline, self.1.clone())
    }

    /// All columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    /// The columns of `projection`.
    pub fn projected_schema(&self, projection: &Projection) -> Result<SchemaRef> {
        Ok(self.0.files[0]
            .parquet
            .project(projection.0.as_deref())?
            .schema
            .clone())
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
        let counts = &self.0.options.counts;
        LookupCounters {
            opens: counts.opens(),
            reads: counts.reads(),
            bytes: counts.bytes(),
            indexes_given_up: self.0.index_generation(),
            ..self.0.done.counters()
        }
    }

    /// The rows asked for, in the order asked, duplicates included. A row id that does not exist is
    /// an error that names it.
    ///
    /// Costs no read for data pages that are known, but one for each value that lies in the file as it is (near ones
    /// together); else one for each data page and dictionary, near ones together. One row that is known takes some 6 µs with
    /// 2 columns and 70 µs with 42; 1,024 rows of 42 columns about 3.5 ms.
    ///
    /// # Errors
    /// `RowsAbsent`, `UnknownColumn`, `TooLarge` beyond `max_result_bytes` or `max_fetch_bytes`, `Changed`, `Corrupt`, `Read`,
    /// `Deadline`, `Cancelled`.
    pub fn get(&self, rows: &[RowId], projection: &Projection) -> Result<RecordBatch> {
        self.get_with(rows, projection, Missing::Error)
    }

    /// As [`Table::get`], with a choice of what becomes of row ids that do not exist.
    pub fn get_with(&self, rows: &[RowId], projection: &Projection, missing: Missing) -> Result<RecordBatch> {
        self.0
            .lookup(rows, projection, missing, &self.deadline(), &mut Kept::default())
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

    /// Bytes of one of the files, within the deadline of a request.
    pub(crate) fn read_file(&self, number: usize, range: Range<u64>) -> Result<Bytes> {
        self.0
            .fetcher
            .read(&self.0.files[number].mounted, range, &self.deadline())
    }

    /// Fails if one of the files was changed in place since it was opened.
    pub(crate) fn check_file_unchanged(&self, number: usize) -> Result<()> {
        self.0.files[number].mounted.check_unchanged()
    }

    /// The parsed files, for [`crate::inspect`].
    pub(crate) fn files(&self) -> impl Iterator<Item = &ParquetFile> {
        self.0.files.iter().map(|file| &file.parquet)
    }
}
