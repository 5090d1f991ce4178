//! [`walk`]: where the pages of a column are, by their headers and, where these do not tell its records, by its levels.
//!
//! Owns the choice between an index, which is as good as the file's own, and mere [`Span`]s, where a record goes on in the next
//! data page, as old writers let it. Pure but for pages that it inflates, which are kept. Called by [`super::Rest`].

use std::ops::Range;

use bytes::Bytes;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;

use super::super::inflated::Inflated;
use super::super::page_header::{PageHeader, PageKind};

/// A page of a column whose records do not all begin with one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where it lies in the file, header included.
    pub(crate) bytes: Range<u64>,
    pub(super) is_dictionary: bool,
    /// Levels in it, as its header states.
    pub(super) levels: u64,
    /// Rows, where version 2 states them; records begin and end with these pages.
    pub(super) rows: Option<u64>,
}

/// What a walk has found.
#[derive(Debug)]
pub(super) enum WalkedColumn {
    /// Each data page begins with a record, and all together have the rows of the row group. Before the first is a dictionary, or
    /// nothing.
    Locations(Vec<PageLocation>),
    /// They do not.
    Spans(Vec<Span>),
}

/// Looks through `bytes`, which are all of a column and lie at `range` in the file. `keep` gets what was inflated for it, with its
/// place in the file. `Err` says what is wrong, which is also where the pages have more or fewer than the `rows` of the row group:
/// readers would give rows of one column beside others of the next.
pub(super) fn walk(
    bytes: &Bytes,
    range: &Range<u64>,
    column: &ColumnChunkMetaData,
    rows: u64,
    keep: impl Fn(u64, Inflated),
) -> Result<WalkedColumn, String> {
    let spans = spans_of(bytes, range.start).ok_or("its page headers do not add up")?;
    let is_repeated = column.column_descr().max_rep_level() > 0;
    let mut locations = Vec::new();
    let (mut row, mut all_begin) = (0u64, true);
    for span in spans.iter().filter(|span| !span.is_dictionary) {
        let (here, begins) = match span.rows {
            // What its header says is compared with its levels when it is inflated.
            Some(rows) => (rows, true),
            None if !is_repeated => (span.levels, true),
            None => {
                let from = (span.bytes.start - range.start) as usize;
                let page = bytes.slice(from..from + (span.bytes.end - span.bytes.start) as usize);
                let page = Inflated::data_page(&page, span.bytes.start, column)
                    .map_err(|error| error.to_string())?
                    .ok_or("it has repetition levels that end early, or are not RLE")?;
                let found = (page.rows(), page.begins());
                keep(span.bytes.start, page);
                found
            }
        };
        if row == 0 && !begins {
            return Err("its first data page begins within a record".into());
        }
        all_begin &= begins;
        if here > 0 {
            locations.push(PageLocation {
                offset: span.bytes.start as i64,
                compressed_page_size: i32::try_from(span.bytes.end - span.bytes.start)
                    .map_err(|_| "a data page is larger than 2 GiB")?,
                first_row_index: row as i64,
            });
        }
        row = row.saturating_add(here);
    }
    if row != rows {
        return Err(format!(
            "its data pages have {row} rows, and its row group {rows}"
        ));
    }
    // What lies before the first location is taken for a dictionary: not so where that is an empty data page.
    let first_data = spans.iter().find(|span| !span.is_dictionary);
    let begins_with_rows = spans.first().is_some_and(|span| span.is_dictionary)
        || first_data.map(|span| span.bytes.start as i64) == locations.first().map(|first| first.offset);
    match all_begin && begins_with_rows && !locations.is_empty() {
        true => Ok(WalkedColumn::Locations(locations)),
        false => Ok(WalkedColumn::Spans(spans)),
    }
}

/// The pages of a column that begins at `start` in the file. A dictionary comes before all data pages.
fn spans_of(bytes: &[u8], start: u64) -> Option<Vec<Span>> {
    let mut spans: Vec<Span> = Vec::new();
    let mut at = 0usize;
    while at < bytes.len() {
        let header = PageHeader::parse(&bytes[at..])?;
        let len = header.header_len.checked_add(header.compressed_len)?;
        let end = at.checked_add(len).filter(|end| *end <= bytes.len())?;
        let (is_dictionary, levels, rows) = match header.kind {
            PageKind::Data { values, rows, .. } => (false, values, rows),
            PageKind::Dictionary if spans.is_empty() => (true, 0, None),
            _ => return None,
        };
        spans.push(Span {
            bytes: start + at as u64..start + end as u64,
            is_dictionary,
            levels,
            rows,
        });
        at = end;
    }
    Some(spans)
}
