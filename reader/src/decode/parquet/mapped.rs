//! [`MappedPage`]: a data page with a map to each of its values.
//!
//! Owns what is kept of a data page between lookups: which rows are null, where each value lies, and the inflated body,
//! or where in the file the body is if that is cheaper. A mapped page answers for any of its rows without being walked
//! again. Owns the check that a data page has the rows that the index states. Refuses to inflate or index beyond the
//! limits below: such pages go through the format library. Called by [`super::gather`].

mod stored;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::Page;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::schema::types::ColumnDescriptor;

use super::decoded::decode_plain;
use super::indexes::Indexes;
use super::inflated::read_page;
use super::levels::{Levels, ROWS_MAX};
use super::page_header::{PageHeader, PageKind};
use super::plain::{Dictionary, PlainType, PlainValues, touch_byte};
use crate::structures::READ_COST;

/// What is decoded of one data page.
const DECODED_BYTES_MAX: usize = 64 << 20;

/// Bodies whose values have fewer bytes than this on average stay in memory where others do not, since each value would
/// be a read of its own.
const HELD_VALUE_BYTES: usize = 32;

/// By how much such bodies may be longer.
const HELD_TIMES: usize = 16;

/// What is kept of a data page.
#[derive(Debug)]
pub(crate) struct MappedPage {
    rows: u64,
    levels: Levels,
    values: Values,
    /// None where the values are indexes, or where the file has it as it is and it is not kept.
    body: Option<Bytes>,
    /// Where the body begins in the file, if the file has it as it is.
    base: Option<u64>,
    cost: u64,
    /// Lookups that may still read values by their own bytes before the body is kept after all; `ALWAYS` is any number.
    exact_lookups_left: AtomicU8,
}

/// Lookups that never end.
const ALWAYS: u8 = u8::MAX;

#[derive(Debug)]
enum Values {
    Plain(PlainValues),
    /// Into the dictionary.
    Indexes(Indexes),
}

/// What became of a data page.
pub(super) enum Mapping {
    /// The page, and its body, which the page may not keep.
    Mapped(Arc<MappedPage>, Bytes),
    /// It is not what the index says.
    Disagrees,
    /// The format library has to read this column.
    Unmappable,
}

/// Where the value of a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: the level of a null.
    Null(u8),
    /// In the body. Of a boolean, the byte with its bit, and which bit.
    Body(Range<usize>, Option<u8>),
    /// In the dictionary.
    Dictionary(usize),
}

impl MappedPage {
    /// Maps the data page in `bytes`, header included, which lies at `offset` in the file and should have `rows` rows. Its
    /// body stays in memory up to a length of about `held_bytes`, if the file has it as it is.
    pub(super) fn map(
        bytes: &Bytes,
        offset: u64,
        column: &ColumnChunkMetaData,
        rows: u64,
        held_bytes: usize,
    ) -> Result<Mapping> {
        let Some(header) = PageHeader::parse(bytes) else {
            return Ok(Mapping::Disagrees);
        };
        let PageKind::Data {
            values,
            rows: stated,
            compressed,
        } = header.kind
        else {
            return Ok(Mapping::Disagrees);
        };
        if header.header_len.checked_add(header.compressed_len) != Some(bytes.len())
            || values != rows
            || stated.is_some_and(|stated| stated != rows)
        {
            return Ok(Mapping::Disagrees);
        }
        let max_level = column.column_descr().max_def_level();
        if header.uncompressed_len > inflated_max(column) || rows > ROWS_MAX || max_level > i16::from(i8::MAX)
        {
            return Ok(Mapping::Unmappable);
        }
        let page = read_page(bytes, offset, column)?;
        let is_in_file = column.compression() == Compression::UNCOMPRESSED || !compressed;
        let base = is_in_file.then_some(offset + header.header_len as u64);
        MappedPage::of(page, base.map(|base| (base, held_bytes)), column, rows as usize)
    }

    /// Maps an inflated page; `base` is where its body is in the file, and how long it may be to stay in memory.
    fn of(
        page: Page,
        base: Option<(u64, usize)>,
        column: &ColumnChunkMetaData,
        rows: usize,
    ) -> Result<Mapping> {
        let max_level = column.column_descr().max_def_level() as u8;
        let Some((levels, start)) = levels_of(&page, max_level, rows) else {
            return Ok(Mapping::Unmappable);
        };
        let kind = PlainType::of(column.column_descr());
        let count = levels.value_count(rows);
        let body = page.buffer().clone();
        let rows_stated = rows as u64;
        let cost = cost_of(page.buffer().len(), count);
        let is_plain = page.encoding() == Encoding::PLAIN;
        let (values, kept, body) = match page.encoding() {
            Encoding::PLAIN => {
                let values = PlainValues::of(&body, start, kind, count)
                    .filter(|_| fills(&body[start..], column.column_descr(), count));
                let Some(values) = values else {
                    return Ok(Mapping::Unmappable);
                };
                let kept = match base {
                    Some((_, held)) if body.len() > held_bytes_max(count, held) => None,
                    // A copy: the bytes that were read may be many more.
                    Some(_) => Some(Bytes::copy_from_slice(&body)),
                    None => Some(body.clone()),
                };
                (Values::Plain(values), kept, body)
            }
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let Some(indexes) = body.get(start..).and_then(|body| Indexes::decode(body, count)) else {
                    return Ok(Mapping::Unmappable);
                };
                (Values::Indexes(indexes), Some(Bytes::new()), Bytes::new())
            }
            _ => {
                let decoded = decode_plain(page, column.column_descr_ptr(), rows, DECODED_BYTES_MAX)?;
                // Booleans come as a byte each.
                let kind = match kind {
                    PlainType::Bits => PlainType::Fixed(1),
                    kind => kind,
                };
                let Some(body) = decoded else {
                    return Ok(Mapping::Unmappable);
                };
                let Some(values) = PlainValues::of(&body, 0, kind, count) else {
                    return Ok(Mapping::Unmappable);
                };
                (Values::Plain(values), Some(body.clone()), body)
            }
        };
        let page = MappedPage {
            rows: rows_stated,
            levels,
            values,
            body: kept,
            base: base.filter(|_| is_plain).map(|(base, _)| base),
            cost,
            exact_lookups_left: ALWAYS.into(),
        };
        Ok(Mapping::Mapped(Arc::new(page), body))
    }

    /// Rows in the page.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether its values are in the dictionary.
    pub(super) fn needs_dictionary(&self) -> bool {
        matches!(self.values, Values::Indexes(_))
    }

    /// The body, if it is in memory.
    pub(super) fn body(&self) -> Option<&Bytes> {
        self.body.as_ref()
    }

    /// Where in the file a part of the body is, if that is where the body is.
    pub(super) fn range_in_file(&self, part: &Range<usize>) -> Option<Range<u64>> {
        let base = self.base.filter(|_| self.body.is_none())?;
        Some(base + part.start as u64..base + part.end as u64)
    }

    /// Whether it should be mapped anew, since so many of its values were read one by one that its body would have been cheaper.
    pub(super) fn is_worth_holding(&self) -> bool {
        self.exact_lookups_left.load(Relaxed) == 0
    }

    /// A lookup reads so many of its values by their own bytes.
    pub(super) fn used_exactly(&self, values: usize) {
        let left = self.exact_lookups_left.load(Relaxed);
        if left != ALWAYS {
            let values = u8::try_from(values).unwrap_or(u8::MAX);
            self.exact_lookups_left
                .store(left.saturating_sub(values), Relaxed);
        }
    }

    /// Where the value of a row of the page is; `None` if the page does not have it.
    #[inline]
    pub(super) fn place(&self, row: usize) -> Option<Place> {
        let number = match self.levels.value_of(row) {
            Ok(number) => number,
            Err(level) => return Some(Place::Null(level)),
        };
        match &self.values {
            Values::Plain(values) => {
                let bit = matches!(values, PlainValues::Bits { .. }).then_some((number % 8) as u8);
                Some(Place::Body(values.range(number)?, bit))
            }
            Values::Indexes(indexes) => indexes.get(number).map(Place::Dictionary),
        }
    }

    /// Reads what [`MappedPage::place`] will read first, and says nothing with it. So do the two below with what comes next.
    #[inline]
    pub(super) fn touch_levels(&self, row: usize) -> u64 {
        self.levels.touch(row)
    }

    #[inline]
    pub(super) fn touch_places(&self, row: usize) -> u64 {
        match (self.levels.value_of(row), &self.values) {
            (Ok(number), Values::Plain(values)) => values.touch(number),
            (Ok(number), Values::Indexes(indexes)) => indexes.touch(number),
            (Err(_), _) => 0,
        }
    }

    #[inline]
    pub(super) fn touch_value(&self, row: usize, dictionary: Option<&Dictionary>) -> u64 {
        match self.place(row) {
            Some(Place::Body(part, _)) => self.body().map_or(0, |body| touch_byte(body, Some(part))),
            Some(Place::Dictionary(index)) => dictionary.map_or(0, |dictionary| dictionary.touch(index)),
            _ => 0,
        }
    }

    /// Bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        let values = match &self.values {
            Values::Plain(values) => values.weight(),
            Values::Indexes(indexes) => indexes.weight(),
        };
        self.levels.weight() + values + self.body().map_or(0, |body| body.len()) + size_of::<MappedPage>()
    }

    /// What it takes to make, as bytes that are read and inflated.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }
}

/// The levels of a page, and where its values begin.
fn levels_of(page: &Page, max_level: u8, rows: usize) -> Option<(Levels, usize)> {
    match page {
        Page::DataPage { .. } if max_level == 0 => Some((Levels::AllPresent, 0)),
        Page::DataPage {
            buf,
            def_level_encoding: Encoding::RLE,
            ..
        } => {
            let (len, rest) = buf.split_first_chunk::<4>()?;
            let len = u32::from_le_bytes(*len) as usize;
            let levels = Levels::decode(rest.get(..len)?, max_level, rows)?;
            Some((levels, 4 + len))
        }
        Page::DataPageV2 {
            buf,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => {
            let from = *rep_levels_byte_len as usize;
            let to = from.checked_add(*def_levels_byte_len as usize)?;
            let levels = match max_level {
                0 => Levels::AllPresent,
                max => Levels::decode(buf.get(from..to)?, max, rows)?,
            };
            Some((levels, to))
        }
        _ => None,
    }
}

/// Whether values of a fixed length fill their body. Where they do not, an old writer may have put lengths before them,
/// which the format library knows how to mend.
fn fills(body: &[u8], column: &ColumnDescriptor, count: usize) -> bool {
    column.physical_type() != Type::FIXED_LEN_BYTE_ARRAY
        || count.checked_mul(column.type_length().max(0) as usize) == Some(body.len())
}

/// What a page takes to make: values are walked one by one, as much for each as for two bytes.
fn cost_of(body_len: usize, count: usize) -> u64 {
    READ_COST + body_len as u64 + 2 * count as u64
}

/// How long a body of `count` values may be to stay in memory.
fn held_bytes_max(count: usize, held_bytes: usize) -> usize {
    let small_values = count.saturating_mul(HELD_VALUE_BYTES);
    held_bytes.max(small_values.min(held_bytes.saturating_mul(HELD_TIMES)))
}

/// What a page of this column may inflate to: no more than the footer states for all of it.
fn inflated_max(column: &ColumnChunkMetaData) -> usize {
    usize::try_from(column.uncompressed_size()).unwrap_or(0)
}

/// Maps the dictionary in `bytes`, which lies at `offset`. `None` if it is none that can be mapped.
pub(super) fn map_dictionary(
    bytes: &Bytes,
    offset: u64,
    column: &ColumnChunkMetaData,
) -> Result<Option<Dictionary>> {
    let fits = PageHeader::parse(bytes).is_some_and(|header| {
        header.kind == PageKind::Dictionary && header.uncompressed_len <= inflated_max(column)
    });
    if !fits {
        return Ok(None);
    }
    Ok(match read_page(bytes, offset, column)? {
        Page::DictionaryPage {
            buf,
            num_values,
            encoding: Encoding::PLAIN | Encoding::PLAIN_DICTIONARY,
            ..
        } => {
            let body = match column.compression() {
                Compression::UNCOMPRESSED => Bytes::copy_from_slice(&buf),
                _ => buf,
            };
            let descriptor = column.column_descr();
            let count = num_values as usize;
            fills(&body, descriptor, count)
                .then(|| Dictionary::new(body, PlainType::of(descriptor), count))
                .flatten()
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::WriterProperties;

    /// The metadata of one column, and its only data page with where that begins.
    fn page(array: arrow_array::ArrayRef, codec: Compression) -> (ColumnChunkMetaData, Bytes, u64) {
        let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
        let properties = WriterProperties::builder()
            .set_compression(codec)
            .set_dictionary_enabled(false)
            .build();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let file = Bytes::from(file);
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).unwrap();
        let column = metadata.row_group(0).column(0).clone();
        let (start, len) = column.byte_range();
        let bytes = file.slice(start as usize..(start + len) as usize);
        (column, bytes, start)
    }

    fn numbers() -> arrow_array::ArrayRef {
        Arc::new(Int64Array::from_iter_values(0..100))
    }

    #[test]
    fn a_page_with_other_rows_or_bytes_than_stated_is_refused() {
        let (column, bytes, start) = page(numbers(), Compression::SNAPPY);
        let map = |bytes: &Bytes, rows| MappedPage::map(bytes, start, &column, rows, 0).unwrap();
        assert!(matches!(map(&bytes, 100), Mapping::Mapped(..)));
        assert!(matches!(map(&bytes, 99), Mapping::Disagrees), "rows");
        let len = bytes.len();
        assert!(
            matches!(map(&bytes.slice(..len - 1), 100), Mapping::Disagrees),
            "bytes"
        );
        assert!(
            matches!(map(&bytes.slice(1..), 100), Mapping::Disagrees),
            "no header"
        );
        assert!(matches!(map(&Bytes::new(), 100), Mapping::Disagrees), "nothing");
    }

    #[test]
    fn a_page_that_inflates_to_more_than_its_column_is_not_inflated() {
        let (column, bytes, start) = page(numbers(), Compression::SNAPPY);
        let small = column
            .into_builder()
            .set_total_uncompressed_size(700)
            .build()
            .unwrap();
        let mapping = MappedPage::map(&bytes, start, &small, 100, 0).unwrap();
        assert!(matches!(mapping, Mapping::Unmappable), "800 bytes of values");
    }

    #[test]
    fn only_what_the_file_has_as_it_is_stays_there() {
        let texts = || Arc::new(StringArray::from_iter_values((0..100).map(|n| "x".repeat(n)))) as _;
        let mapped = |codec, held_bytes| {
            let (column, bytes, start) = page(texts(), codec);
            match MappedPage::map(&bytes, start, &column, 100, held_bytes).unwrap() {
                Mapping::Mapped(page, _) => (page, bytes, start),
                _ => panic!("not mapped"),
            }
        };
        let (page, bytes, start) = mapped(Compression::UNCOMPRESSED, 0);
        assert!(page.body().is_none() && page.weight() < 1000, "{}", page.weight());
        let Some(Place::Body(part, None)) = page.place(7) else {
            panic!("{:?}", page.place(7));
        };
        let range = page.range_in_file(&part).unwrap();
        let value = &bytes[(range.start - start) as usize..(range.end - start) as usize];
        assert_eq!(value, [&[7, 0, 0, 0][..], b"xxxxxxx"].concat());
        assert_eq!(page.place(100), None);
        for (codec, held_bytes) in [(Compression::UNCOMPRESSED, 64 << 10), (Compression::SNAPPY, 0)] {
            let (page, ..) = mapped(codec, held_bytes);
            assert!(page.body().is_some() && page.weight() > 5000, "{codec}");
        }
    }
}
