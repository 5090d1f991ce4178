//! [`Rest`]: the wanted rows of one file's columns that cannot be mapped: all that are repeated, and what [`super::mapped`]
//! refuses.
//!
//! Owns which inflated pages of these are at hand, which bytes are needed for the others, and where their data pages are
//! where no index says so. Data pages that no wanted row is in are neither read nor inflated. Rows come out of the format
//! library's readers ([`feed`]), which see pages that are inflated and checked, and nothing else. Called by [`crate::table`].

mod feed;
mod rows;
mod spans;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use parquet::arrow::FieldLevels;
use parquet::file::page_index::offset_index::PageLocation;

use super::gather::{Stop, Walked};
use super::inflated::Inflated;
use super::{Columns, FileRows, GatherCounts, Shape};
use crate::decode::guarded;
use crate::fetch::Fetched;
use crate::plan::Layout;
use crate::structures::{ColumnKey, StructureCache};
pub(crate) use spans::Span;
use spans::{WalkedColumn, walk};

/// Columns that the format library's readers take.
#[derive(Debug)]
pub(crate) struct RestColumns {
    pub(super) columns: Columns,
    /// What the Arrow readers are built of, in files of this shape.
    pub(super) levels: FieldLevels,
    pub(super) shape: Arc<Shape>,
}

impl RestColumns {
    /// The schema of the rows, in the order asked.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }
}

/// Pages of columns whose records do not all begin with a data page, found during this lookup.
pub(crate) type Spanned = HashMap<ColumnKey, Arc<[Span]>>;

/// One lookup of such columns in one file.
#[derive(Debug)]
pub(crate) struct Rest<'a> {
    rows: FileRows<'a>,
    columns: &'a RestColumns,
    cache: &'a StructureCache,
    groups: Vec<Group>,
    needed: Vec<Range<u64>>,
    /// Columns whose data pages have to be looked for before anything else.
    walks: Vec<ColumnKey>,
    counts: GatherCounts,
}

/// The wanted rows of a row group.
#[derive(Debug)]
struct Group {
    row_group: usize,
    /// Which of the file's wanted rows.
    wanted: Range<usize>,
    /// One for each leaf.
    columns: Vec<Column>,
}

/// What is needed of a column of a row group.
#[derive(Debug)]
struct Column {
    key: ColumnKey,
    dictionary: Option<Piece>,
    pages: Pages,
}

#[derive(Debug)]
enum Pages {
    /// Those with wanted rows, as each says how many rows it has and which is its first in the row group.
    Wanted(Vec<WantedPage>),
    /// All of them, since nobody knows which records are in which.
    All(Vec<(Span, Option<Arc<Inflated>>)>),
}

#[derive(Debug)]
struct WantedPage {
    piece: Piece,
    first_row: u64,
    rows: u64,
}

/// A page, and what is known of it. It stays at hand, whatever the cache drops meanwhile.
#[derive(Debug)]
struct Piece {
    bytes: Range<u64>,
    held: Option<Arc<Inflated>>,
}

impl<'a> Rest<'a> {
    /// Looks for what is at hand of `columns` in the rows of a file.
    pub(crate) fn plan(
        rows: FileRows<'a>,
        columns: &'a RestColumns,
        cache: &'a StructureCache,
        walked: &Walked,
        spanned: &Spanned,
    ) -> Rest<'a> {
        let mut rest = Rest {
            rows,
            columns,
            cache,
            groups: Vec::new(),
            needed: Vec::new(),
            walks: Vec::new(),
            counts: GatherCounts::default(),
        };
        let starts = &rows.file.structure.row_group_starts;
        let mut at = 0;
        while let Some(first) = rows.rows.get(at) {
            let row_group = starts.partition_point(|start| *start <= *first) - 1;
            let end = at + rows.rows[at..].partition_point(|row| *row < starts[row_group + 1]);
            let leaves = columns.columns.leaves.iter();
            let columns = leaves.filter_map(|leaf| {
                let key = ColumnKey {
                    file: rows.file.structure.id,
                    row_group: row_group as u32,
                    leaf: *leaf as u32,
                };
                rest.plan_column(key, at..end, walked, spanned)
            });
            let columns = columns.collect();
            rest.groups.push(Group {
                row_group,
                wanted: at..end,
                columns,
            });
            at = end;
        }
        rest
    }

    /// `None` if nobody knows where its data pages are.
    fn plan_column(
        &mut self,
        key: ColumnKey,
        wanted: Range<usize>,
        walked: &Walked,
        spanned: &Spanned,
    ) -> Option<Column> {
        let file = self.rows.file;
        let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
        if let Some(stated) = file.structure.index.locations(row_group, leaf) {
            return Some(self.plan_pages(key, wanted, stated));
        }
        let known = walked
            .get(&key)
            .cloned()
            .or_else(|| file.known_locations(self.cache, key));
        if let Some(locations) = known {
            return Some(self.plan_pages(key, wanted, &locations));
        }
        if let Some(spans) = spanned.get(&key).cloned().or_else(|| self.cache.spans(key)) {
            return Some(self.plan_all(key, &spans));
        }
        self.needed.push(file.column_bytes(row_group, leaf));
        self.walks.push(key);
        None
    }

    /// The data pages with wanted rows.
    fn plan_pages(&mut self, key: ColumnKey, wanted: Range<usize>, locations: &[PageLocation]) -> Column {
        let FileRows { file, rows } = self.rows;
        let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
        let start = file.structure.row_group_starts[row_group];
        let column_start = file.column_bytes(row_group, leaf).start;
        let first = locations.first().map_or(column_start, |l| l.offset as u64);
        let dictionary = (column_start < first).then(|| self.piece(key, column_start..first));
        let mut pages = Vec::new();
        let (mut at, mut page) = (wanted.start, 0);
        while at < wanted.end {
            let row = rows[at] - start;
            let after = locations[page..].partition_point(|l| l.first_row_index as u64 <= row);
            page = (page + after).max(1) - 1;
            let here = &locations[page];
            let end = locations.get(page + 1);
            let end = end.map_or(file.rows(row_group), |next| next.first_row_index as u64);
            let bytes = here.offset as u64..here.offset as u64 + here.compressed_page_size.max(0) as u64;
            pages.push(WantedPage {
                piece: self.piece(key, bytes),
                first_row: here.first_row_index as u64,
                rows: end - here.first_row_index as u64,
            });
            at += rows[at..wanted.end]
                .partition_point(|row| row - start < end)
                .max(1);
        }
        Column {
            key,
            dictionary,
            pages: Pages::Wanted(pages),
        }
    }

    /// All pages.
    fn plan_all(&mut self, key: ColumnKey, spans: &[Span]) -> Column {
        let mut dictionary = None;
        let mut pages = Vec::new();
        for span in spans {
            let piece = self.piece(key, span.bytes.clone());
            match span.is_dictionary {
                true => dictionary = Some(piece),
                false => pages.push((span.clone(), piece.held)),
            }
        }
        Column {
            key,
            dictionary,
            pages: Pages::All(pages),
        }
    }

    fn piece(&mut self, key: ColumnKey, bytes: Range<u64>) -> Piece {
        let held = self.cache.inflated(key, bytes.start);
        if held.is_none() {
            self.needed.push(bytes.clone());
        }
        Piece { bytes, held }
    }

    /// Whether columns have to be walked first: what is needed is for that.
    pub(crate) fn must_walk(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Byte ranges that the file has to be read for.
    pub(crate) fn take_needed(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.needed)
    }

    /// Walks the columns of which nobody knows where their data pages are, and remembers it.
    pub(crate) fn walk(
        &self,
        fetched: &Fetched,
        walked: &mut Walked,
        spanned: &mut Spanned,
    ) -> Result<(), Stop> {
        let file = self.rows.file;
        for key in &self.walks {
            let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
            let range = file.column_bytes(row_group, leaf);
            let bytes = fetched.get(&range).ok_or_else(|| self.outside_of_plan())?;
            let column = file.metadata().row_group(row_group).column(leaf);
            let keep = |offset: u64, page: Inflated| self.cache.put_inflated(*key, offset, Arc::new(page));
            let found = guarded(&file.path, "looking for data pages", || {
                Ok(walk(&bytes, &range, column, file.rows(row_group), keep))
            });
            let found = found
                .map_err(Stop::Failed)?
                .map_err(|what| self.failed(*key, &what))?;
            match found {
                WalkedColumn::Locations(locations) => {
                    let locations: Arc<[PageLocation]> = locations.into();
                    file.keep_locations(self.cache, *key, &locations);
                    walked.insert(*key, locations);
                }
                WalkedColumn::Spans(spans) => {
                    let spans: Arc<[Span]> = spans.into();
                    self.cache.put_spans(*key, spans.clone());
                    spanned.insert(*key, spans);
                }
            }
        }
        Ok(())
    }
}
