//! [`ParquetFile`]: the structure of one Parquet file, and rows out of its bytes.
//!
//! Owns the use of the `parquet` crate: it parses footers, and its Arrow readers turn bytes into
//! arrays, so that every type conversion is theirs. Reads nothing itself: bytes come through a
//! closure when it is opened, and as [`Fetched`] when rows are decoded. Called by [`crate::table`].

mod footer;
mod index;
mod pages;
mod projection;
mod schema_guard;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelectionPolicy,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_schema_by_columns};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::decode::guarded;
use crate::error::{ReadError, Result};
use crate::fetch::Fetched;
use crate::plan::{ColumnPlan, DataPage, FilePlan, Layout};
use index::CheckedIndex;

/// Footer and checked offset index of one file version.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    path: PathBuf,
    len: u64,
    arrow: ArrowReaderMetadata,
    index: Arc<CheckedIndex>,
    footer_bytes: u64,
    tail_bytes: u64,
}

/// Which columns, resolved against one schema.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    /// Leaf columns in the file's order.
    pub(crate) leaves: Vec<usize>,
    /// The schema of the result, in the order asked.
    pub(crate) schema: SchemaRef,
    /// For each column of the result, its place among the chosen columns in the file's order.
    order: Vec<usize>,
}

impl ParquetFile {
    /// Reads the footer through `read`; `guess` is how many bytes of the tail to read at first.
    pub(crate) fn open(
        path: &Path,
        len: u64,
        guess: u64,
        read: &mut dyn FnMut(Range<u64>) -> Result<Bytes>,
    ) -> Result<ParquetFile> {
        let footer = footer::load(path, len, guess, read)?;
        let index = Arc::new(footer.index);
        let metadata = footer
            .metadata
            .into_builder()
            .set_page_index(Some(index.clone()))
            .build();
        let arrow = guarded(path, "reading the schema", || {
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        })?;
        Ok(ParquetFile {
            path: path.to_owned(),
            len,
            arrow,
            index,
            footer_bytes: footer.footer_bytes,
            tail_bytes: footer.tail_bytes,
        })
    }

    /// What errors name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The whole schema.
    pub(crate) fn schema(&self) -> &SchemaRef {
        self.arrow.schema()
    }

    /// The parsed footer.
    pub(crate) fn metadata(&self) -> &ParquetMetaData {
        self.arrow.metadata()
    }

    /// Footer with its 8 bytes of length and magic.
    pub(crate) fn footer_bytes(&self) -> u64 {
        self.footer_bytes
    }

    /// Page index and footer.
    pub(crate) fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Rows of all row groups.
    pub(crate) fn row_count(&self) -> u64 {
        (0..self.row_groups()).map(|row_group| self.rows(row_group)).sum()
    }

    /// Bytes a row of these columns takes on average once decoded, by what the footer states.
    pub(crate) fn row_bytes(&self, leaves: &[usize]) -> u64 {
        let sum: u64 = self
            .metadata()
            .row_groups()
            .iter()
            .flat_map(|g| {
                leaves
                    .iter()
                    .map(|leaf| g.column(*leaf).uncompressed_size().max(0) as u64)
            })
            .fold(0, u64::saturating_add);
        sum.checked_div(self.row_count()).unwrap_or(0) + leaves.len() as u64
    }

    /// Resolves column paths; `None` is all columns.
    pub(crate) fn project(&self, paths: Option<&[String]>) -> Result<Columns> {
        let descriptor = self.arrow.parquet_schema();
        let (leaves, roots) = match paths {
            None => {
                let roots = self.schema().fields().len();
                ((0..descriptor.num_columns()).collect(), (0..roots).collect())
            }
            Some(paths) => self.resolve(paths)?,
        };
        let all = paths.is_none();
        let schema = guarded(&self.path, "choosing columns", || {
            if all {
                return Ok(self.schema().clone());
            }
            let mask = ProjectionMask::leaves(descriptor, leaves.iter().copied());
            let key_values = self.metadata().file_metadata().key_value_metadata();
            parquet_to_arrow_schema_by_columns(descriptor, mask, key_values).map(Arc::new)
        })?;
        let mut in_file_order: Vec<usize> = roots.clone();
        in_file_order.sort_unstable();
        let order: Vec<usize> = roots
            .iter()
            .filter_map(|root| in_file_order.binary_search(root).ok())
            .collect();
        let schema = schema
            .project(&order)
            .map_err(|e| ReadError::corrupt(&self.path, format!("choosing columns: {e}")))?;
        Ok(Columns {
            leaves,
            schema: schema.into(),
            order,
        })
    }

    /// Sorted leaves, and the top-level columns in the order in which they are first named.
    fn resolve(&self, paths: &[String]) -> Result<(Vec<usize>, Vec<usize>)> {
        let descriptor = self.arrow.parquet_schema();
        let names = projection::leaves(self.schema().fields(), descriptor);
        let mut leaves: Vec<usize> = Vec::new();
        let mut roots: Vec<usize> = Vec::new();
        for path in paths {
            let named = projection::leaves_of(path, &names);
            if named.is_empty() {
                return Err(ReadError::UnknownColumn {
                    path: self.path.clone(),
                    column: path.clone(),
                    near: projection::near(path, &names),
                });
            }
            for leaf in named {
                let root = descriptor.get_column_root_idx(leaf);
                if !roots.contains(&root) {
                    roots.push(root);
                }
                leaves.push(leaf);
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        Ok((leaves, roots))
    }

    /// Grows when [`ParquetFile::check_pages`] finds an index that lies.
    pub(crate) fn index_generation(&self) -> u64 {
        self.index.generation()
    }

    /// Checks the data pages that were read for `plan`. Offset indexes that disagree with them are
    /// not used any more, and the caller has to plan again: `Ok(false)`.
    pub(crate) fn check_pages(&self, plan: &FilePlan, fetched: &Fetched) -> Result<bool> {
        let bytes = FetchedReader {
            fetched: fetched.clone(),
            len: self.len,
        };
        let mut agrees = true;
        for group in &plan.row_groups {
            let last_row = group.rows.last().map_or(0, |range| range.end - 1);
            for column in &group.columns {
                match column {
                    ColumnPlan::Pages { column, pages, .. } => {
                        if !self.holds_rows(&bytes, group.row_group, *column, pages) {
                            self.index.distrust(group.row_group, *column);
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

    fn holds_rows(
        &self,
        bytes: &FetchedReader,
        row_group: usize,
        column: usize,
        pages: &[usize],
    ) -> bool {
        let group = self.metadata().row_group(row_group);
        let locations = self.index.locations(row_group, column).unwrap_or_default();
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
        let checked = self.index.rows_checked(row_group, column);
        if descriptor.max_rep_level() == 0 || checked > last_row {
            return Ok(());
        }
        let right = guarded(&self.path, "checking repetition levels", || {
            pages::has_all_levels(bytes, group, column, last_row)
        })?;
        if !right {
            let name = descriptor.path().string();
            let what = format!("column '{name}' has fewer repetition levels than it states");
            return Err(ReadError::corrupt(&self.path, what));
        }
        self.index.set_rows_checked(row_group, column, last_row + 1);
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
            len: self.len,
        };
        let (row_groups, selection) = self.selection(plan);
        let batch = guarded(&self.path, "decoding rows", || {
            let mask = ProjectionMask::leaves(self.arrow.parquet_schema(), columns.leaves.iter().copied());
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, self.arrow.clone())
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

impl Layout for &ParquetFile {
    fn row_groups(&self) -> usize {
        self.metadata().num_row_groups()
    }

    fn rows(&self, row_group: usize) -> u64 {
        self.metadata().row_group(row_group).num_rows() as u64
    }

    fn column_bytes(&self, row_group: usize, column: usize) -> Range<u64> {
        // Checked when the footer was read; a row group without rows is never asked for.
        footer::column_bytes(self.metadata().row_group(row_group).column(column)).unwrap_or(0..0)
    }

    fn data_pages(&self, row_group: usize, column: usize) -> Option<usize> {
        Some(self.index.locations(row_group, column)?.len())
    }

    fn data_page(&self, row_group: usize, column: usize, page: usize) -> DataPage {
        let locations = self.index.locations(row_group, column).unwrap_or_default();
        match locations.get(page) {
            Some(l) => DataPage {
                first_row: l.first_row_index as u64,
                bytes: l.offset as u64..l.offset as u64 + l.compressed_page_size as u64,
            },
            None => DataPage {
                first_row: u64::MAX,
                bytes: 0..0,
            },
        }
    }
}

/// The format library's door to the bytes: what was fetched, and nothing else.
#[derive(Debug, Clone)]
struct FetchedReader {
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
