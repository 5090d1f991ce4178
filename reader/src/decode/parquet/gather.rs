//! [`Gather`]: the wanted values of columns that are not repeated, out of mapped data pages.
//!
//! Owns one lookup of such columns: which mapped pages and dictionaries are at hand, and which bytes are needed for the
//! rest; [`rows`] makes the rows of both. With all at hand no byte is read but values that lie in the file as they are.
//! Refuses pages that are not what their index says. Called by [`crate::table`].

mod rows;
mod touch;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parquet::file::page_index::offset_index::PageLocation;

use super::mapped::{MappedPage, Place};
use super::page_header::walk;
use super::plain::Dictionary;
use super::values::TooMany;
use super::{FlatColumns, ParquetFile};
use crate::error::ReadError;
use crate::fetch::Fetched;
use crate::plan::Layout;
use crate::structures::{ColumnKey, StructureCache};

/// Rows of one file: sorted, different, counted from its beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileRows<'a> {
    pub(crate) file: &'a ParquetFile,
    pub(crate) rows: &'a [u64],
}

/// Indexes that were made during this lookup.
pub(crate) type Walked = HashMap<ColumnKey, Arc<[PageLocation]>>;

/// Why a lookup cannot go on as it is.
#[derive(Debug)]
pub(crate) enum Stop {
    /// An index was found to lie: plan again without it.
    Again,
    /// The format library has to read this leaf column.
    Fallback(usize),
    /// The rows are more than the limit.
    TooMany,
    /// Nothing helps.
    Failed(ReadError),
}

/// What was at hand, and what had to be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GatherCounts {
    pub(crate) pages_hit: u64,
    pub(crate) pages_mapped: u64,
    /// Of the hits, those whose maps came from a sidecar.
    pub(crate) pages_restored: u64,
    pub(crate) dictionaries_hit: u64,
    pub(crate) dictionaries_mapped: u64,
    /// Values that are read by their own bytes.
    pub(crate) exact_values: u64,
}

/// One lookup.
#[derive(Debug)]
pub(crate) struct Gather<'a> {
    files: &'a [FileRows<'a>],
    columns: &'a FlatColumns,
    cache: &'a StructureCache,
    pieces: Vec<Piece>,
    dictionaries: Vec<DictionarySlot>,
    /// Columns without an index that can be used, which have to be walked before anything else.
    walks: Vec<(usize, ColumnKey)>,
    needed: Vec<Vec<Range<u64>>>,
    /// Where the last column had the first of the rows: columns often have their data pages at the same ones.
    first_page: usize,
    counts: GatherCounts,
}

/// The wanted rows of one data page.
#[derive(Debug)]
struct Piece {
    file: usize,
    slot: usize,
    key: ColumnKey,
    bytes: Range<u64>,
    page_rows: u64,
    /// Which of the file's wanted rows.
    wanted: Range<usize>,
    /// The page's first row, counted from the beginning of the file.
    first_row: u64,
    mapped: Option<Arc<MappedPage>>,
    dictionary: Option<usize>,
}

#[derive(Debug)]
struct DictionarySlot {
    file: usize,
    key: ColumnKey,
    bytes: Range<u64>,
    held: Option<Arc<Dictionary>>,
}

pub(super) enum Locations<'a> {
    Stated(&'a [PageLocation]),
    Walked(Arc<[PageLocation]>),
}

impl std::ops::Deref for Locations<'_> {
    type Target = [PageLocation];

    fn deref(&self) -> &[PageLocation] {
        match self {
            Locations::Stated(locations) => locations,
            Locations::Walked(locations) => locations,
        }
    }
}

impl<'a> Gather<'a> {
    /// Looks for what is at hand of `columns` in the rows of `files`, which are all of one shape.
    pub(crate) fn plan(
        files: &'a [FileRows<'a>],
        columns: &'a FlatColumns,
        cache: &'a StructureCache,
        walked: &Walked,
    ) -> Result<Gather<'a>, Stop> {
        let mut gather = Gather {
            files,
            columns,
            cache,
            pieces: Vec::with_capacity(columns.leaves.len()),
            dictionaries: Vec::new(),
            walks: Vec::new(),
            needed: vec![Vec::new(); files.len()],
            first_page: 0,
            counts: GatherCounts::default(),
        };
        for (number, FileRows { file, rows }) in files.iter().enumerate() {
            let starts = &file.structure.row_group_starts;
            let mut at = 0;
            while let Some(first) = rows.get(at) {
                let row_group = starts.partition_point(|start| *start <= *first) - 1;
                let end = at + rows[at..].partition_point(|row| *row < starts[row_group + 1]);
                for slot in 0..columns.leaves.len() {
                    gather.plan_column(number, row_group, slot, at..end, walked)?;
                }
                at = end;
            }
        }
        Ok(gather)
    }

    fn plan_column(
        &mut self,
        number: usize,
        row_group: usize,
        slot: usize,
        wanted: Range<usize>,
        walked: &Walked,
    ) -> Result<(), Stop> {
        let FileRows { file, rows } = self.files[number];
        let leaf = self.columns.leaves[slot];
        let key = ColumnKey {
            file: file.structure.id,
            row_group: row_group as u32,
            leaf: leaf as u32,
        };
        let Some(locations) = self.locations(file, key, walked) else {
            self.needed[number].push(file.column_bytes(row_group, leaf));
            self.walks.push((number, key));
            return Ok(());
        };
        let start = file.structure.row_group_starts[row_group];
        let column_start = file.column_bytes(row_group, leaf).start;
        let dictionary = column_start..locations.first().map_or(column_start, |l| l.offset as u64);
        let (mut at, mut page) = (wanted.start, 0);
        let mut likely = self.first_page;
        let mut dictionary_slot = None;
        while at < wanted.end {
            let row = (rows[at] - start) as i64;
            page = page_of(&locations, row, page, likely);
            if at == wanted.start {
                self.first_page = page;
            }
            likely = page + 1;
            let location = &locations[page];
            let end_row = locations
                .get(page + 1)
                .map_or(file.rows(row_group), |next| next.first_row_index as u64);
            let until = at + rows[at..wanted.end].partition_point(|row| row - start < end_row);
            let bytes =
                location.offset as u64..location.offset as u64 + location.compressed_page_size.max(0) as u64;
            let page_rows = end_row - location.first_row_index as u64;
            let known = file.known_page(self.cache, key, &bytes, page_rows);
            self.counts.pages_restored += u64::from(known.as_ref().is_some_and(|(_, restored)| *restored));
            let mut piece = Piece {
                file: number,
                slot,
                key,
                bytes,
                page_rows,
                wanted: at..until.max(at + 1),
                first_row: start + location.first_row_index as u64,
                mapped: known.map(|(page, _)| page),
                dictionary: None,
            };
            self.need(&piece)?;
            if piece.mapped.as_ref().is_none_or(|page| page.needs_dictionary()) && !dictionary.is_empty() {
                let place = *dictionary_slot
                    .get_or_insert_with(|| self.need_dictionary(number, key, dictionary.clone()));
                piece.dictionary = Some(place);
            }
            at = piece.wanted.end;
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// Where the data pages of a column are, if anybody knows.
    fn locations(&self, file: &'a ParquetFile, key: ColumnKey, walked: &Walked) -> Option<Locations<'a>> {
        let index = &file.structure.index;
        if let Some(stated) = index.locations(key.row_group as usize, key.leaf as usize) {
            return Some(Locations::Stated(stated));
        }
        let walked = walked.get(&key).cloned();
        let walked = walked.or_else(|| file.known_locations(self.cache, key));
        walked.map(Locations::Walked)
    }

    /// The bytes that a piece needs beside a dictionary.
    fn need(&mut self, piece: &Piece) -> Result<(), Stop> {
        let needed = &mut self.needed[piece.file];
        let Some(page) = &piece.mapped else {
            needed.push(piece.bytes.clone());
            return Ok(());
        };
        if page.rows() != piece.page_rows {
            return Err(disagrees(&self.files[piece.file], piece.key));
        }
        self.counts.pages_hit += 1;
        if page.body().is_none() {
            page.used_exactly(piece.wanted.len());
            for row in &self.files[piece.file].rows[piece.wanted.clone()] {
                if let Some(Place::Body(part, _)) = page.place((row - piece.first_row) as usize) {
                    needed.extend(page.range_in_file(&part));
                    self.counts.exact_values += 1;
                }
            }
        }
        Ok(())
    }

    fn need_dictionary(&mut self, file: usize, key: ColumnKey, bytes: Range<u64>) -> usize {
        let held = self.cache.dictionary(key);
        match held {
            Some(_) => self.counts.dictionaries_hit += 1,
            None => self.needed[file].push(bytes.clone()),
        }
        self.dictionaries.push(DictionarySlot {
            file,
            key,
            bytes,
            held,
        });
        self.dictionaries.len() - 1
    }

    /// Whether columns have to be walked first: what is needed is for that.
    pub(crate) fn must_walk(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Byte ranges that each file has to be read for.
    pub(crate) fn take_needed(&mut self) -> Vec<Vec<Range<u64>>> {
        std::mem::take(&mut self.needed)
    }

    /// Walks the columns without an index, and remembers where their data pages are.
    pub(crate) fn walk(&self, fetched: &[Fetched], walked: &mut Walked) -> Result<(), Stop> {
        for (number, key) in &self.walks {
            let file = self.files[*number].file;
            let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
            let range = file.column_bytes(row_group, leaf);
            let locations = fetched[*number]
                .get(&range)
                .and_then(|bytes| walk(&bytes, &range, file.rows(row_group)));
            let locations: Arc<[PageLocation]> = locations.ok_or(Stop::Fallback(leaf))?.into();
            file.keep_locations(self.cache, *key, &locations);
            walked.insert(*key, locations);
        }
        Ok(())
    }
}

/// The data page of a row of the row group, `from` or later: the `likely` one if that is it, which saves a search through memory that
/// nobody has touched.
fn page_of(locations: &[PageLocation], row: i64, from: usize, likely: usize) -> usize {
    let begins_by = |page: usize| locations.get(page).is_some_and(|l| l.first_row_index <= row);
    if likely >= from && begins_by(likely) && !begins_by(likely + 1) {
        return likely;
    }
    from + locations[from..]
        .partition_point(|l| l.first_row_index <= row)
        .max(1)
        - 1
}

impl From<TooMany> for Stop {
    fn from(_: TooMany) -> Stop {
        Stop::TooMany
    }
}

/// A data page is not what its index says. What the column's own headers said cannot be made better.
fn disagrees(rows: &FileRows<'_>, key: ColumnKey) -> Stop {
    let (row_group, leaf) = (key.row_group as usize, key.leaf as usize);
    let index = &rows.file.structure.index;
    match index.locations(row_group, leaf) {
        Some(_) => {
            index.distrust(row_group, leaf);
            Stop::Again
        }
        None => Stop::Fallback(leaf),
    }
}
