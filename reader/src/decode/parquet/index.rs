//! [`CheckedIndex`]: offset indexes that agree with themselves and with the footer.
//!
//! Owns the decision whether a column's data pages may be found through its offset index. An index
//! that is absent, malformed or in disagreement is left out, and the column is then read whole:
//! slower, never wrong. The column index (minima and maxima) is not read. [`super::footer`] makes it;
//! [`super::mapped`] and [`super::inflated`] check the rest of what it claims, against the data pages that are read.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parquet::file::metadata::page_index::PageIndexProvider;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::index_reader::decode_offset_index;
use parquet::file::page_index::offset_index::{OffsetIndexMetaData, PageLocation};

use super::footer::column_bytes;

/// Bytes between offset indexes that are read for nothing before the index is not worth reading.
const GAPS_BYTES_MAX: u64 = 4 << 20;

/// One entry a row group and leaf column.
#[derive(Debug)]
pub(crate) struct CheckedIndex {
    columns: Vec<Vec<ColumnIndex>>,
    /// Grows with every index that is not trusted any more.
    generation: AtomicU64,
    /// Set where an index is only used once the headers of its data pages were found to agree.
    unverified_is_absent: AtomicBool,
}

#[derive(Debug)]
struct ColumnIndex {
    offsets: Option<OffsetIndexMetaData>,
    /// Set once a data page was found not to be what the index says.
    distrusted: AtomicBool,
    /// Set once all headers were walked, and agreed with it.
    verified: AtomicBool,
}

impl From<Option<OffsetIndexMetaData>> for ColumnIndex {
    fn from(offsets: Option<OffsetIndexMetaData>) -> ColumnIndex {
        ColumnIndex {
            offsets,
            distrusted: AtomicBool::new(false),
            verified: AtomicBool::new(false),
        }
    }
}

impl CheckedIndex {
    /// No index at all.
    pub(super) fn absent(metadata: &ParquetMetaData) -> CheckedIndex {
        let none = |row_group: &RowGroupMetaData| (0..row_group.num_columns()).map(|_| None.into()).collect();
        CheckedIndex::of(metadata.row_groups().iter().map(none).collect())
    }

    fn of(columns: Vec<Vec<ColumnIndex>>) -> CheckedIndex {
        CheckedIndex {
            columns,
            generation: AtomicU64::new(0),
            unverified_is_absent: AtomicBool::new(false),
        }
    }

    /// One range that holds all offset indexes. None if there are none, or if what the footer
    /// states about them is not believable; `end` is where they must end.
    pub(super) fn bytes_wanted(metadata: &ParquetMetaData, end: u64) -> Option<Range<u64>> {
        let mut all: Option<Range<u64>> = None;
        let mut sum = 0u64;
        for column in metadata.row_groups().iter().flat_map(RowGroupMetaData::columns) {
            let Some(range) = believable_range(column, end) else {
                continue;
            };
            sum = sum.saturating_add(range.end - range.start);
            all = Some(match all {
                None => range,
                Some(all) => all.start.min(range.start)..all.end.max(range.end),
            });
        }
        all.filter(|all| (all.end - all.start).saturating_sub(sum) <= GAPS_BYTES_MAX.max(sum))
    }

    /// Decodes the indexes in `bytes`, which lie at `start` in the file.
    pub(super) fn decode(metadata: &ParquetMetaData, start: u64, bytes: &[u8]) -> CheckedIndex {
        let end = start + bytes.len() as u64;
        let decode = |column: &ColumnChunkMetaData, rows: i64| {
            let range = believable_range(column, end)?;
            let from = usize::try_from(range.start.checked_sub(start)?).ok()?;
            let thrift = bytes.get(from..from + (range.end - range.start) as usize)?;
            if !list_fits(thrift) {
                return None;
            }
            let index = decode_offset_index(thrift).ok()?;
            agrees(index.page_locations(), column, rows).then_some(index)
        };
        let decode_group = |group: &RowGroupMetaData| {
            let columns = group.columns().iter();
            columns
                .map(|column| decode(column, group.num_rows()).into())
                .collect()
        };
        CheckedIndex::of(metadata.row_groups().iter().map(decode_group).collect())
    }

    /// The data pages of a column, if they are known.
    pub(crate) fn locations(&self, row_group: usize, column: usize) -> Option<&[PageLocation]> {
        Some(self.offset_index(row_group, column)?.page_locations())
    }

    /// From now on the column is one without an index.
    pub(super) fn distrust(&self, row_group: usize, column: usize) {
        if let Some(column) = self.column(row_group, column) {
            column.distrusted.store(true, SeqCst);
            self.generation.fetch_add(1, SeqCst);
        }
    }

    fn column(&self, row_group: usize, column: usize) -> Option<&ColumnIndex> {
        self.columns.get(row_group)?.get(column)
    }

    /// From now on an index is only used once it was compared with the headers of all its data pages.
    pub(super) fn verify(&self) {
        self.unverified_is_absent.store(true, SeqCst);
    }

    /// Whether the file has an index of the column, right or wrong.
    pub(super) fn is_stated(&self, row_group: usize, column: usize) -> bool {
        self.column(row_group, column)
            .is_some_and(|column| column.offsets.is_some())
    }

    /// Compares the column's index with what its headers say. Whether it can be used; one that says something else is not
    /// used any more.
    pub(super) fn confirm(&self, row_group: usize, column: usize, walked: &[PageLocation]) -> bool {
        let Some((stated, offsets)) = self
            .column(row_group, column)
            .and_then(|stated| Some((stated, stated.offsets.as_ref()?)))
        else {
            return false;
        };
        if stated.distrusted.load(SeqCst) {
            return false;
        }
        let agrees = offsets.page_locations() == walked;
        match agrees {
            true => stated.verified.store(true, SeqCst),
            false => self.distrust(row_group, column),
        }
        agrees
    }

    /// Bytes that it takes.
    pub(super) fn weight(&self) -> usize {
        let pages = |column: &ColumnIndex| column.offsets.as_ref().map_or(0, |o| o.page_locations().len());
        let columns = self.columns.iter().flatten();
        // A location, and the size that writers of BYTE_ARRAY add to it.
        columns
            .map(|column| size_of::<ColumnIndex>() + pages(column) * (size_of::<PageLocation>() + 8))
            .sum()
    }

    /// Grows with every index that is not trusted any more.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }
}

fn believable_range(column: &ColumnChunkMetaData, end: u64) -> Option<Range<u64>> {
    let start = u64::try_from(column.offset_index_offset()?).ok()?;
    let len = u64::try_from(column.offset_index_length()?)
        .ok()
        .filter(|len| *len > 0)?;
    let range = start..start.checked_add(len)?;
    (range.end <= end).then_some(range)
}

/// The library reserves memory for as many locations as the list's header states, whatever the
/// length of the bytes. A location takes at least 4 bytes.
fn list_fits(thrift: &[u8]) -> bool {
    let [field, header, rest @ ..] = thrift else {
        return false;
    };
    // Field 1, a list. Every writer has it first, as the format numbers it so.
    if *field != 0x19 {
        return false;
    }
    if header >> 4 != 15 {
        return true;
    }
    let mut count = 0u64;
    for (position, byte) in rest.iter().take(5).enumerate() {
        count |= u64::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            return count <= thrift.len() as u64 / 4;
        }
    }
    false
}

/// Whether the data pages follow one another, fill the column to its end, and divide its rows.
fn agrees(locations: &[PageLocation], column: &ColumnChunkMetaData, rows: i64) -> bool {
    let Some(bytes) = column_bytes(column) else {
        return false;
    };
    let (Some(first), Some(last)) = (locations.first(), locations.last()) else {
        return false;
    };
    let end_of = |l: &PageLocation| l.offset.checked_add(i64::from(l.compressed_page_size));
    first.first_row_index == 0
        && u64::try_from(first.offset).is_ok_and(|offset| offset >= bytes.start)
        && last.first_row_index < rows
        && end_of(last).is_some_and(|end| u64::try_from(end) == Ok(bytes.end))
        && locations.iter().all(|l| l.compressed_page_size > 0)
        && locations.windows(2).all(|pair| {
            pair[0].first_row_index < pair[1].first_row_index && end_of(&pair[0]) == Some(pair[1].offset)
        })
}

impl PageIndexProvider for CheckedIndex {
    fn has_offset_indexes(&self) -> bool {
        self.columns
            .iter()
            .flatten()
            .any(|column| column.offsets.is_some())
    }

    fn has_column_indexes(&self) -> bool {
        false
    }

    fn column_index(&self, _: usize, _: usize) -> Option<&ColumnIndexMetaData> {
        None
    }

    fn offset_index(&self, row_group: usize, column: usize) -> Option<&OffsetIndexMetaData> {
        let column = self.column(row_group, column)?;
        let is_usable = !column.distrusted.load(SeqCst)
            && (column.verified.load(SeqCst) || !self.unverified_is_absent.load(SeqCst));
        column.offsets.as_ref().filter(|_| is_usable)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::{Repetition, Type as PhysicalType};
    use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};
    use std::sync::Arc;

    fn column(start: i64, len: i64) -> ColumnChunkMetaData {
        let primitive = Type::primitive_type_builder("c", PhysicalType::INT64)
            .with_repetition(Repetition::REQUIRED)
            .build()
            .unwrap();
        let path = ColumnPath::new(vec!["c".into()]);
        let descriptor = ColumnDescriptor::new(Arc::new(primitive), 0, 0, path);
        ColumnChunkMetaData::builder(Arc::new(descriptor))
            .set_data_page_offset(start)
            .set_total_compressed_size(len)
            .build()
            .unwrap()
    }

    fn at(offset: i64, size: i32, row: i64) -> PageLocation {
        PageLocation {
            offset,
            compressed_page_size: size,
            first_row_index: row,
        }
    }

    #[test]
    fn an_index_that_fits_is_believed() {
        let column = column(100, 50);
        assert!(agrees(&[at(100, 20, 0), at(120, 30, 7)], &column, 10));
        assert!(
            agrees(&[at(110, 10, 0), at(120, 30, 7)], &column, 8),
            "a dictionary before it"
        );
    }

    #[test]
    fn an_index_that_disagrees_is_not() {
        let column = column(100, 50);
        let bad: [(&str, &[PageLocation], i64); 10] = [
            ("empty", &[], 10),
            ("first row is not 0", &[at(100, 20, 1), at(120, 30, 7)], 10),
            ("a gap", &[at(100, 19, 0), at(120, 30, 7)], 10),
            ("an overlap", &[at(100, 21, 0), at(120, 30, 7)], 10),
            (
                "rows go back",
                &[at(100, 10, 0), at(110, 10, 7), at(120, 30, 7)],
                10,
            ),
            ("more rows than there are", &[at(100, 20, 0), at(120, 30, 10)], 10),
            ("before the column", &[at(99, 21, 0), at(120, 30, 7)], 10),
            ("beyond the column", &[at(100, 20, 0), at(120, 31, 7)], 10),
            ("short of its end", &[at(100, 20, 0), at(120, 29, 7)], 10),
            ("overflow", &[at(100, 20, 0), at(i64::MAX, 30, 7)], 10),
        ];
        for (why, locations, rows) in bad {
            assert!(!agrees(locations, &column, rows), "{why}");
        }
    }

    #[test]
    fn a_list_longer_than_its_bytes_is_not_decoded() {
        assert!(list_fits(&[0x19, 0x1c, 0, 0, 0, 0]));
        assert!(!list_fits(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0]));
        assert!(!list_fits(&[0x19, 0xfc, 0xff]));
        assert!(!list_fits(&[0x29, 0x1c, 0, 0]));
        assert!(!list_fits(&[]));
    }
}
