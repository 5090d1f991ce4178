//! The rows of a [`Rest`]: what was missing is inflated, checked and kept, and the format library's readers take the wanted
//! rows from it.
//!
//! Owns what happens between fetched bytes and arrays. An index that does not agree with its data pages is not used any more.
//! Called by [`crate::table`].

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};
use parquet::errors::ParquetError;

use super::super::gather::Stop;
use super::super::inflated::Inflated;
use super::super::{FileRows, GatherCounts};
use super::feed::{Entry, Feed, Pending};
use super::{Column, Group, Pages, Piece, Rest, WantedPage};
use crate::decode::guarded;
use crate::error::ReadError;
use crate::fetch::{Deadline, Fetched};
use crate::plan::Layout;
use crate::structures::ColumnKey;

/// The format library reads the rows between wanted ones too where selections are shorter than this on average. Behind the
/// last one a selection may skip as many as it likes, and is cut there.
const SELECTION_ROWS_MIN: usize = 32;

impl Rest<'_> {
    /// The wanted rows, in the file's order.
    pub(crate) fn finish(
        mut self,
        fetched: &Fetched,
        deadline: &Deadline,
    ) -> Result<(RecordBatch, GatherCounts), Stop> {
        let FileRows { file, rows } = self.rows;
        let columns = &self.columns.columns;
        if columns.leaves.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let batch = RecordBatch::try_new_with_options(columns.schema.clone(), vec![], &options)
                .map_err(|error| Stop::Failed(ReadError::corrupt(&file.path, error.to_string())))?;
            return Ok((batch, self.counts));
        }
        let groups = std::mem::take(&mut self.groups);
        let mut chunks: Vec<Vec<Vec<Entry>>> = columns.leaves.iter().map(|_| Vec::new()).collect();
        for group in &groups {
            for (column, chunks) in group.columns.iter().zip(&mut chunks) {
                deadline.check("decoding").map_err(Stop::Failed)?;
                chunks.push(self.entries(column, group.row_group, fetched)?);
            }
        }
        let (selection, total) = self.selection(&groups);
        let feed = Feed {
            leaves: &columns.leaves,
            chunks,
            row_groups: groups
                .iter()
                .map(|group| file.metadata().row_group(group.row_group))
                .collect(),
            metadata: file.metadata(),
            rows: total,
        };
        let batch = self.decode(&feed, selection)?;
        Ok((batch, self.counts))
    }

    /// What the format library's reader makes of the wanted rows.
    fn decode(&self, feed: &Feed<'_>, selection: RowSelection) -> Result<RecordBatch, Stop> {
        let FileRows { file, rows } = self.rows;
        let columns = &self.columns.columns;
        // Files of one table may write the same types in different ways.
        let own_levels = match Arc::ptr_eq(&file.structure.shape, &self.columns.shape) {
            true => None,
            false => Some(file.field_levels(&columns.leaves).map_err(Stop::Failed)?),
        };
        let levels = own_levels.as_ref().unwrap_or(&self.columns.levels);
        let batch = guarded(&file.path, "decoding rows", || {
            let count = rows.len();
            let reader =
                ParquetRecordBatchReader::try_new_with_row_groups(levels, feed, count, Some(selection))?;
            let batches = reader.collect::<std::result::Result<Vec<_>, _>>()?;
            let batch = match &batches[..] {
                [] => return Ok(RecordBatch::new_empty(columns.schema.clone())),
                [one] => one.clone(),
                [first, ..] => concat_batches(&first.schema(), &batches)?,
            };
            Ok(batch.project(&columns.order)?)
        })
        .map_err(Stop::Failed)?;
        let corrupt =
            |what: String| Stop::Failed(ReadError::corrupt(&file.path, format!("decoding rows: {what}")));
        if batch.num_rows() != rows.len() {
            let what = format!("{} rows planned, {} found", rows.len(), batch.num_rows());
            return Err(corrupt(what));
        }
        RecordBatch::try_new(columns.schema.clone(), batch.columns().to_vec())
            .map_err(|error| corrupt(error.to_string()))
    }

    /// The wanted rows of the row groups one after the other, and how many rows these have.
    fn selection(&self, groups: &[Group]) -> (RowSelection, usize) {
        let FileRows { file, rows } = self.rows;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        for group in groups {
            let first = file.structure.row_group_starts[group.row_group];
            for row in &rows[group.wanted.clone()] {
                let row = start + (row - first) as usize;
                match ranges.last_mut() {
                    Some(last) if last.end == row => last.end += 1,
                    _ => ranges.push(row..row + 1),
                }
            }
            start += file.rows(group.row_group) as usize;
        }
        let selectors = 2 * ranges.len() + 1;
        let padded = start + selectors * SELECTION_ROWS_MIN;
        (
            RowSelection::from_consecutive_ranges(ranges.into_iter(), padded),
            start,
        )
    }

    /// What the format library's reader gets to see of a column of a row group.
    fn entries(&mut self, column: &Column, row_group: usize, fetched: &Fetched) -> Result<Vec<Entry>, Stop> {
        let mut entries = Vec::new();
        if let Some(piece) = &column.dictionary {
            entries.extend(
                self.dictionary(column.key, piece, fetched)?
                    .map(Entry::Dictionary),
            );
        }
        match &column.pages {
            Pages::Wanted(pages) => {
                let mut row = 0;
                for page in pages {
                    if page.first_row > row {
                        entries.push(Entry::Gap((page.first_row - row) as usize));
                    }
                    entries.push(Entry::Page(self.data_page(column.key, page, fetched)?));
                    row = page.first_row + page.rows;
                }
                let left = self.rows.file.rows(row_group).saturating_sub(row);
                if left > 0 {
                    entries.push(Entry::Gap(left as usize));
                }
            }
            Pages::All(pages) => {
                for (span, held) in pages {
                    let (levels, rows) = (span.levels as usize, span.rows.map(|rows| rows as usize));
                    let page = match held {
                        Some(page) => {
                            self.counts.pages_hit += 1;
                            Pending::Made(page.clone())
                        }
                        None => {
                            self.counts.pages_mapped += 1;
                            self.pending(column.key, span.bytes.clone(), fetched)?
                        }
                    };
                    entries.push(Entry::Pending { page, levels, rows });
                }
            }
        }
        Ok(entries)
    }

    /// A page that is inflated once it is its turn: all of a column may be more than memory.
    fn pending(&self, key: ColumnKey, bytes: Range<u64>, fetched: &Fetched) -> Result<Pending, Stop> {
        let raw = fetched.get(&bytes).ok_or_else(|| self.outside_of_plan())?;
        let structure = self.rows.file.structure.clone();
        let cache = self.cache.clone();
        Ok(Pending::ToMake(Arc::new(move || {
            let row_group = structure.arrow.metadata().row_group(key.row_group as usize);
            let column = row_group.column(key.leaf as usize);
            let page = Inflated::data_page(&raw, bytes.start, column)?.ok_or_else(|| {
                let name = column.column_path().string();
                ParquetError::General(format!(
                    "column '{name}' has repetition levels that end early, or are not RLE"
                ))
            })?;
            let page = Arc::new(page);
            cache.put_inflated(key, bytes.start, page.clone());
            Ok(page)
        })))
    }

    /// `None` if what lies before the data pages with rows is no dictionary, but a data page without any.
    fn dictionary(
        &mut self,
        key: ColumnKey,
        piece: &Piece,
        fetched: &Fetched,
    ) -> Result<Option<Arc<Inflated>>, Stop> {
        let made = match &piece.held {
            Some(held) if held.is_dictionary() => {
                self.counts.dictionaries_hit += 1;
                return Ok(Some(held.clone()));
            }
            // Known as a data page.
            Some(_) => Ok(None),
            None => self.inflate(key, piece, fetched, |bytes, column| {
                Inflated::dictionary(bytes, piece.bytes.start, column)
            })?,
        };
        let index = &self.rows.file.structure.index;
        match made {
            Ok(Some(dictionary)) => {
                self.counts.dictionaries_mapped += 1;
                Ok(Some(self.keep(key, piece, dictionary)))
            }
            // An index of the file's own names all data pages.
            Ok(None)
                if index
                    .locations(key.row_group as usize, key.leaf as usize)
                    .is_none() =>
            {
                Ok(None)
            }
            Ok(None) => Err(self.disagrees(key, "what lies before its data pages is no dictionary")),
            Err(error) => Err(self.disagrees(key, &error)),
        }
    }

    fn data_page(
        &mut self,
        key: ColumnKey,
        page: &WantedPage,
        fetched: &Fetched,
    ) -> Result<Arc<Inflated>, Stop> {
        let piece = &page.piece;
        let found = match &piece.held {
            Some(held) => {
                self.counts.pages_hit += 1;
                held.clone()
            }
            None => {
                let made = self.inflate(key, piece, fetched, |bytes, column| {
                    Inflated::data_page(bytes, piece.bytes.start, column)
                })?;
                self.counts.pages_mapped += 1;
                match made {
                    Ok(Some(made)) if made.is_records(page.rows) => self.keep(key, piece, made),
                    Ok(_) => return Err(self.disagrees(key, "a data page has other rows than it states")),
                    Err(error) => return Err(self.disagrees(key, &error)),
                }
            }
        };
        match found.is_records(page.rows) {
            true => Ok(found),
            false => Err(self.disagrees(key, "a data page has other rows than it states")),
        }
    }

    fn keep(&self, key: ColumnKey, piece: &Piece, page: Inflated) -> Arc<Inflated> {
        let page = Arc::new(page);
        self.cache.put_inflated(key, piece.bytes.start, page.clone());
        page
    }

    /// What `make` gives; the inner error is a page that cannot be read.
    fn inflate(
        &self,
        key: ColumnKey,
        piece: &Piece,
        fetched: &Fetched,
        make: impl FnOnce(
            &Bytes,
            &parquet::file::metadata::ColumnChunkMetaData,
        ) -> parquet::errors::Result<Option<Inflated>>,
    ) -> Result<Result<Option<Inflated>, String>, Stop> {
        let file = self.rows.file;
        let bytes = fetched.get(&piece.bytes).ok_or_else(|| self.outside_of_plan())?;
        let column = file
            .metadata()
            .row_group(key.row_group as usize)
            .column(key.leaf as usize);
        let made = guarded(&file.path, "inflating a page", || make(&bytes, column));
        Ok(made.map_err(|error| error.to_string()))
    }

    /// A page is not what its index says. What the column's own headers said cannot be made better.
    fn disagrees(&self, key: ColumnKey, what: &str) -> Stop {
        let index = &self.rows.file.structure.index;
        let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
        match index.locations(row_group, leaf) {
            Some(_) => {
                index.distrust(row_group, leaf);
                Stop::Again
            }
            None => self.failed(key, what),
        }
    }

    pub(super) fn failed(&self, key: ColumnKey, what: &str) -> Stop {
        let file = self.rows.file;
        let row_group = file.metadata().row_group(key.row_group as usize);
        let name = row_group.column(key.leaf as usize).column_path().string();
        Stop::Failed(ReadError::corrupt(&file.path, format!("column '{name}': {what}")))
    }

    pub(super) fn outside_of_plan(&self) -> Stop {
        Stop::Failed(ReadError::corrupt(
            &self.rows.file.path,
            "bytes outside of the plan of this lookup were needed",
        ))
    }
}
