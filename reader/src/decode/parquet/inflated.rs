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
}

impl Inflated {
    /// The data page in `bytes`, header included, which lies at `offset` in the file; with `begins`, its first record begins
    /// in it. `None` if it is no such page, or has not all its levels.
    pub(super) fn data_page(
        bytes: &Bytes,
        offset: u64,
        column: &ColumnChunkMetaData,
        begins: bool,
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
            0 => rows.is_none_or(|rows| rows == values).then_some(values),
            _ => count_records(&page, max_level, begins).map(|records| records as u64),
        };
        Ok(found.map(|rows| Inflated { page, rows }))
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
        Ok(page.is_dictionary_page().then_some(Inflated { page, rows: 0 }))
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
/// were this page alone: else the library takes what lies before a data page for a dictionary.
pub(super) fn read_page(bytes: &Bytes, offset: u64, column: &ColumnChunkMetaData) -> Result<Page> {
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
    };
    let page = SerializedPageReader::new(Arc::new(reader), &this_page, 0, None)?
        .get_next_page()?
        .ok_or_else(|| ParquetError::EOF("no page where one should be".into()))?;
    if !is_unbounded {
        return Ok(page);
    }
    let header = PageHeader::parse(bytes);
    let header = header.ok_or_else(|| ParquetError::General("the header of a page is malformed".into()))?;
    codec::inflate(page, codec, header.uncompressed_len)
}

/// The bytes of one page, at their place in the file.
struct PageBytes {
    start: u64,
    bytes: Bytes,
}

impl PageBytes {
    fn from(&self, start: u64) -> Result<Bytes> {
        let skip = start
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok());
        match skip.filter(|skip| *skip <= self.bytes.len()) {
            Some(skip) => Ok(self.bytes.slice(skip..)),
            None => Err(ParquetError::EOF("a page ends early".into())),
        }
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
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, len: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        match len <= bytes.len() {
            true => Ok(bytes.slice(..len)),
            false => Err(ParquetError::EOF("a page ends early".into())),
        }
    }
}
