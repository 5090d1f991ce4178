//! Arrow rows out of synthetic data pages, through readers that are kept.
//!
//! Owns the format library's readers between lookups: a few a thread, each for one schema, projection and number of rows.
//! Building one costs more than a row. A reader is fed through its page iterator, and dropped if it fails, since nobody
//! knows what it holds then. Called by [`super::gather`].

use std::cell::RefCell;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use parquet::arrow::FieldLevels;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups};
use parquet::column::page::{Page, PageIterator, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::SchemaDescPtr;

use super::decoded::OnePage;

/// Readers that a thread keeps.
const READERS_MAX: usize = 8;

/// A reader still holds the pages that it was fed last; one that was fed more than this is not kept.
const FED_BYTES_MAX: usize = 4 << 20;

/// A file's schema in both forms. Files of one table share it, and so the readers for it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(super) parquet: SchemaDescPtr,
    pub(super) arrow: SchemaRef,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        // Metadata of the schema as a whole says nothing about values.
        self.parquet.root_schema() == other.parquet.root_schema()
            && self.arrow.fields() == other.arrow.fields()
    }
}

/// What a reader is built of.
#[derive(Debug)]
pub(super) struct ReaderParts<'a> {
    pub(super) shape: &'a Arc<Shape>,
    /// Leaves that are read, none of them repeated.
    pub(super) leaves: &'a [usize],
    pub(super) levels: &'a FieldLevels,
    pub(super) metadata: &'a ParquetMetaData,
}

/// Where a page waits until the reader takes it.
type Slot = Arc<Mutex<Option<Page>>>;

struct KeptReader {
    shape: Arc<Shape>,
    leaves: Vec<usize>,
    rows: usize,
    reader: ParquetRecordBatchReader,
    slots: Vec<Slot>,
}

thread_local!(static READERS: RefCell<Vec<KeptReader>> = const { RefCell::new(Vec::new()) });

/// The `rows` rows of `pages`, one page a leaf. In the order of the file's columns.
pub(super) fn read_rows(parts: &ReaderParts<'_>, pages: Vec<Page>, rows: usize) -> Result<RecordBatch> {
    let kept = READERS.with_borrow_mut(|readers| {
        let fits = |kept: &KeptReader| {
            kept.rows == rows && Arc::ptr_eq(&kept.shape, parts.shape) && kept.leaves == parts.leaves
        };
        let place = readers.iter().position(fits)?;
        Some(readers.remove(place))
    });
    let mut kept = match kept {
        Some(kept) => kept,
        None => KeptReader::new(parts, rows)?,
    };
    let fed_bytes: usize = pages.iter().map(|page| page.buffer().len()).sum();
    for (slot, page) in kept.slots.iter().zip(pages) {
        *slot.lock() = Some(page);
    }
    let batch = kept
        .reader
        .next()
        .ok_or_else(|| ParquetError::EOF("no rows in synthetic data pages".into()))??;
    if fed_bytes > FED_BYTES_MAX {
        return Ok(batch);
    }
    READERS.with_borrow_mut(|readers| {
        if readers.len() >= READERS_MAX {
            readers.remove(0);
        }
        readers.push(kept);
    });
    Ok(batch)
}

impl KeptReader {
    fn new(parts: &ReaderParts<'_>, rows: usize) -> Result<KeptReader> {
        let slots: Vec<Slot> = parts.leaves.iter().map(|_| Slot::default()).collect();
        let feed = Feed {
            leaves: parts.leaves,
            slots: &slots,
            metadata: parts.metadata,
            rows,
        };
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(parts.levels, &feed, rows, None)?;
        Ok(KeptReader {
            shape: parts.shape.clone(),
            leaves: parts.leaves.to_vec(),
            rows,
            reader,
            slots,
        })
    }
}

/// A pretended row group, as long as a reader is built.
struct Feed<'a> {
    leaves: &'a [usize],
    slots: &'a [Slot],
    metadata: &'a ParquetMetaData,
    rows: usize,
}

impl RowGroups for Feed<'_> {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>> {
        let slot = self
            .leaves
            .binary_search(&leaf)
            .map_err(|_| ParquetError::General(format!("leaf column {leaf} was not chosen")))?;
        Ok(Box::new(SlotPages {
            slot: self.slots[slot].clone(),
            rows: self.rows,
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

/// A column chunk for each page that is put into the slot.
struct SlotPages {
    slot: Slot,
    rows: usize,
}

impl Iterator for SlotPages {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = self.slot.lock().take()?;
        Some(Ok(Box::new(OnePage::new(page, self.rows))))
    }
}

impl PageIterator for SlotPages {}
