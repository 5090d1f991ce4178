//! [`Feed`]: pages that are inflated, in the shape in which the format library's readers want row groups.
//!
//! Owns the order in which pages are seen, and that a reader that asks for one that was not planned gets an error. Called by
//! [`super::rows`].

use std::fmt;
use std::sync::Arc;

use parquet::arrow::arrow_reader::RowGroups;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::super::inflated::Inflated;

/// What comes next in a column of a row group.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Dictionary(Arc<Inflated>),
    /// Begins and ends with a record.
    Page(Arc<Inflated>),
    /// So many rows of data pages that are not wanted: readers can only skip them, all at once.
    Gap(usize),
    /// A page of which nobody knows the rows before it is inflated, unless version 2 states them.
    Pending {
        page: Pending,
        levels: usize,
        rows: Option<usize>,
    },
}

/// Inflates a page.
type Make = dyn Fn() -> Result<Arc<Inflated>> + Send + Sync;

/// A page, or how to make it.
#[derive(Clone)]
pub(super) enum Pending {
    Made(Arc<Inflated>),
    ToMake(Arc<Make>),
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

/// The wanted row groups of a file.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    pub(super) leaves: &'a [usize],
    /// For each leaf, and then for each row group.
    pub(super) chunks: Vec<Vec<Vec<Entry>>>,
    pub(super) row_groups: Vec<&'a RowGroupMetaData>,
    pub(super) metadata: &'a ParquetMetaData,
    /// Of all row groups.
    pub(super) rows: usize,
}

impl RowGroups for Feed<'_> {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>> {
        let place = self
            .leaves
            .binary_search(&leaf)
            .map_err(|_| ParquetError::General(format!("leaf column {leaf} was not chosen")))?;
        Ok(Box::new(Chunks(self.chunks[place].clone().into_iter())))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.row_groups.iter().copied())
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

struct Chunks(std::vec::IntoIter<Vec<Entry>>);

impl Iterator for Chunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let entries = self.0.next()?;
        Some(Ok(Box::new(Entries(entries.into_iter()))))
    }
}

impl PageIterator for Chunks {}

struct Entries(std::vec::IntoIter<Entry>);

impl Iterator for Entries {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Entries {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(entry) = self.0.next() else {
            return Ok(None);
        };
        Ok(Some(match entry {
            Entry::Dictionary(page) | Entry::Page(page) => page.page(),
            Entry::Pending {
                page: Pending::Made(page),
                ..
            } => page.page(),
            Entry::Pending {
                page: Pending::ToMake(make),
                ..
            } => make()?.page(),
            Entry::Gap(rows) => {
                return Err(ParquetError::General(format!(
                    "{rows} rows outside of the plan of this lookup were asked for"
                )));
            }
        }))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        Ok(self.0.as_slice().first().map(|entry| {
            let (num_rows, num_levels) = match entry {
                Entry::Dictionary(_) => (None, None),
                Entry::Page(page) => (Some(page.rows() as usize), None),
                Entry::Gap(rows) => (Some(*rows), None),
                Entry::Pending { levels, rows, .. } => (*rows, Some(*levels)),
            };
            PageMetadata {
                num_rows,
                num_levels,
                is_dict: matches!(entry, Entry::Dictionary(_)),
            }
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.0.next();
        Ok(())
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        // A record goes on in the next page where nobody knows that one begins there.
        Ok(!matches!(
            self.0.as_slice().first(),
            Some(Entry::Pending { rows: None, .. })
        ))
    }
}
