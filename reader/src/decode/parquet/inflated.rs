//! [`Inflated`]: a data page or a dictionary as the format library has it once its codec is undone.
//!
//! Owns what is kept of columns whose rows the format library's readers take, all that are repeated among them, and the checks
//! that a page has to pass once before these readers see it: its length, its rows, and that it has all its repetition
//! levels, since the library skips records in a loop that never ends where there are fewer than stated. Refuses to inflate
//! beyond the limit below. Called by [`super::rest`]; [`read_page`] by [`super::mapped`] too.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::Compression;
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};

use super::codec;
use super::delta::check_counts;
use super::page_header::{PageHeader, PageKind};
use super::records::count_records;
use crate::structures::READ_COST;

/// What any page may inflate to, whatever the footer states: some writers state nothing there.
const INFLATED_BYTES_MIN: usize = 64 << 20;

/// What no page may inflate to, whatever the footer states.
const INFLATED_BYTES_MAX: usize = 1 << 30;

/// A page whose codec is undone.
#[derive(Debug)]
pub(crate) struct Inflated {
    page: Page,
    /// Records that begin in it; 0 of a dictionary.
    rows: u64,
    /// Whether one begins with it.
    begins: bool,
}

impl Inflated {
    /// The data page in `bytes`, header included, which lies at `offset` in the file. `None` if it is no data page, or has not all
    /// its levels.
    pub(super) fn data_page(
        bytes: &Bytes,
        offset: u64,
        column: &ColumnChunkMetaData,
    ) -> Result<Option<Inflated>> {
        let Some(header) = PageHeader::parse(bytes) else {
            return Ok(None);
        };
        let PageKind::Data { values, rows, .. } = header.kind else {
            return Ok(None);
        };
        if header.header_len.checked_add(header.compressed_len) != Some(bytes.len()) {
            return Ok(None);
        }
        check_length(header.uncompressed_len, column)?;
        let page = read_owned(bytes, offset, column)?;
        let max_level = column.column_descr().max_rep_level();
        let found = match max_level {
            // One level a row.
            0 => rows.is_none_or(|rows| rows == values).then_some((values, true)),
            _ => count_records(&page, max_level).map(|r| (r.count as u64, r.begin_with_it)),
        };
        Ok(found.map(|(rows, begins)| Inflated { page, rows, begins }))
    }

    /// The dictionary in `bytes`, header included, which lies at `offset` in the file. `None` if it is none.
    pub(super) fn dictionary(
        bytes: &Bytes,
        offset: u64,
        column: &ColumnChunkMetaData,
    ) -> Result<Option<Inflated>> {
        let header = PageHeader::parse(bytes).filter(|header| header.kind == PageKind::Dictionary);
        let Some(header) = header else {
            return Ok(None);
        };
        check_length(header.uncompressed_len, column)?;
        let page = read_owned(bytes, offset, column)?;
        Ok(page.is_dictionary_page().then_some(Inflated {
            page,
            rows: 0,
            begins: false,
        }))
    }

    /// As the format library's readers take it. Cheap: its bytes are shared.
    pub(super) fn page(&self) -> Page {
        self.page.clone()
    }

    pub(super) fn is_dictionary(&self) -> bool {
        self.page.is_dictionary_page()
    }

    /// Records that begin in it.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether it is so many whole records, but for the end of the last.
    pub(super) fn is_records(&self, rows: u64) -> bool {
        self.begins && self.rows == rows
    }

    /// Whether it begins with a record.
    pub(super) fn begins(&self) -> bool {
        self.begins
    }

    /// Bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Inflated>() + self.page.buffer().len()
    }

    /// What it takes to make, as bytes that are read and inflated.
    pub(crate) fn cost(&self) -> u64 {
        READ_COST + self.page.buffer().len() as u64
    }
}

fn check_length(inflated: usize, column: &ColumnChunkMetaData) -> Result<()> {
    let stated = usize::try_from(column.uncompressed_size()).unwrap_or(0);
    let limit = stated.clamp(INFLATED_BYTES_MIN, INFLATED_BYTES_MAX);
    match inflated <= limit {
        true => Ok(()),
        false => Err(ParquetError::General(format!(
            "a page of column '{}' states {inflated} bytes once inflated, its column {stated}; {limit} at most",
            column.column_path().string()
        ))),
    }
}

/// The page without what its bytes were cut from, and without statistics, which nobody asks for.
fn read_owned(bytes: &Bytes, offset: u64, column: &ColumnChunkMetaData) -> Result<Page> {
    let mut page = read_page(bytes, offset, column)?;
    let (Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } | Page::DictionaryPage { buf, .. }) =
        &mut page;
    if column.compression() == Compression::UNCOMPRESSED || bytes.as_ptr_range().contains(&buf.as_ptr()) {
        *buf = Bytes::copy_from_slice(buf);
    }
    if let Page::DataPage { statistics, .. } | Page::DataPageV2 { statistics, .. } = &mut page {
        *statistics = None;
    }
    Ok(page)
}

/// The page in `bytes`, its checksum compared by the format library and inflated to no more than it states. As if the column
/// were this page alone: else the library takes what lies before a data page for a dictionary. `Err` too if the library reads
/// another page than [`PageHeader`] does: what is decided by one would be about the other.
pub(super) fn read_page(bytes: &Bytes, offset: u64, column: &ColumnChunkMetaData) -> Result<Page> {
    let header = PageHeader::parse(bytes).ok_or_else(malformed)?;
    let codec = column.compression();
    let is_unbounded = codec::is_unbounded(codec);
    let this_page = column
        .clone()
        .into_builder()
        .set_compression(if is_unbounded {
            Compression::UNCOMPRESSED
        } else {
            codec
        })
        .set_dictionary_page_offset(None)
        .set_data_page_offset(i64::try_from(offset)?)
        .set_total_compressed_size(i64::try_from(bytes.len())?)
        .build()?;
    let reader = PageBytes {
        start: offset,
        bytes: bytes.clone(),
        header_len: header.header_len,
        compressed_len: header.compressed_len,
    };
    let page = SerializedPageReader::new(Arc::new(reader), &this_page, 0, None)?
        .get_next_page()?
        .ok_or_else(malformed)?;
    let is_same = match (&page, header.kind) {
        (
            Page::DataPage { num_values, .. },
            PageKind::Data {
                values, rows: None, ..
            },
        ) => u64::from(*num_values) == values,
        (
            Page::DataPageV2 {
                num_values, num_rows, ..
            },
            PageKind::Data {
                values,
                rows: Some(rows),
                ..
            },
        ) => u64::from(*num_values) == values && u64::from(*num_rows) == rows,
        (Page::DictionaryPage { .. }, PageKind::Dictionary) => true,
        _ => false,
    };
    if !is_same {
        return Err(malformed());
    }
    let page = match is_unbounded {
        true => codec::inflate(page, codec, header.uncompressed_len)?,
        false => page,
    };
    check_counts(&page, column.column_descr()).map_err(|what| ParquetError::General(what.into()))?;
    Ok(page)
}

fn malformed() -> ParquetError {
    ParquetError::General("the header of a page is malformed".into())
}

/// The bytes of one page, at their place in the file.
struct PageBytes {
    start: u64,
    bytes: Bytes,
    header_len: usize,
    compressed_len: usize,
}

impl PageBytes {
    /// How far a place in the file is into the page.
    fn within(&self, at: u64) -> Option<usize> {
        let within = usize::try_from(at.checked_sub(self.start)?).ok()?;
        (within <= self.bytes.len()).then_some(within)
    }
}

impl Length for PageBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for PageBytes {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let within = self.within(start).ok_or_else(malformed)?;
        Ok(self.bytes.slice(within..).reader())
    }

    /// The body, which is all that the library asks for in this way.
    fn get_bytes(&self, start: u64, len: usize) -> Result<Bytes> {
        let body = self.within(start).filter(|within| *within == self.header_len);
        let end = body.and_then(|body| body.checked_add(len));
        match (body, end) {
            (Some(body), Some(end)) if len == self.compressed_len && end <= self.bytes.len() => {
                Ok(self.bytes.slice(body..end))
            }
            _ => Err(malformed()),
        }
    }
}
