//! Checks what an offset index claims against the data pages that were read.
//!
//! An index can agree with itself and still number the rows wrongly. Before rows are decoded, the
//! header of each planned data page must state the rows that the index states. Owns that comparison
//! and nothing else. What it does not believe is read whole by [`crate::table`], without the index.

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::SerializedPageReader;

use super::FetchedReader;

/// Whether one data page holds the rows that the index says. `Err` if it cannot even be read.
pub(super) fn holds_rows(
    bytes: &FetchedReader,
    row_group: &RowGroupMetaData,
    column: usize,
    location: &PageLocation,
    rows: u64,
) -> Result<bool> {
    let column = row_group.column(column);
    // As if the column were this data page alone: else the library takes what lies before the page
    // for a dictionary.
    let this_page = column
        .clone()
        .into_builder()
        .set_dictionary_page_offset(None)
        .set_data_page_offset(location.offset)
        .set_total_compressed_size(i64::from(location.compressed_page_size))
        .build()?;
    let mut pages = SerializedPageReader::new(Arc::new(bytes.clone()), &this_page, 0, None)?;
    let Some(header) = pages.peek_next_page()? else {
        return Ok(false);
    };
    if header.is_dict {
        return Ok(false);
    }
    let rows = usize::try_from(rows)?;
    if column.column_descr().max_rep_level() == 0 {
        // One level a row.
        return Ok(header.num_levels == Some(rows) && header.num_rows.is_none_or(|r| r == rows));
    }
    if let Some(stated) = header.num_rows {
        return Ok(stated == rows);
    }
    match pages.get_next_page()? {
        Some(Page::DataPage {
            buf,
            num_values,
            rep_level_encoding: Encoding::RLE,
            ..
        }) => {
            let max_level = column.column_descr().max_rep_level();
            Ok(count_records(&buf, num_values, max_level) == Some(rows))
        }
        _ => Ok(false),
    }
}

/// Records in a V1 data page: how often the repetition level is 0. `None` if the levels are cut, or
/// the page begins in the middle of a record.
fn count_records(body: &[u8], values: u32, max_level: i16) -> Option<usize> {
    let (len, rest) = body.split_at_checked(4)?;
    let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
    let mut levels = rest.get(..len)?;
    let width = 16 - max_level.leading_zeros();
    let (mut left, mut records, mut first) = (values as usize, 0, true);
    while left > 0 {
        let header = take_varint(&mut levels)?;
        let count = usize::try_from(header >> 1).ok()?;
        if header & 1 == 0 {
            let (level, rest) = levels.split_at_checked(width.div_ceil(8) as usize)?;
            levels = rest;
            let zero = level.iter().all(|byte| *byte == 0);
            if (first && !zero) || count == 0 {
                return None;
            }
            let here = count.min(left);
            records += if zero { here } else { 0 };
            left -= here;
        } else {
            let (packed, rest) = levels.split_at_checked(count.checked_mul(width as usize)?)?;
            levels = rest;
            if count == 0 {
                return None;
            }
            let here = count.checked_mul(8)?.min(left);
            for position in 0..here {
                let zero = level_is_zero(packed, position * width as usize, width as usize);
                if first && position == 0 && !zero {
                    return None;
                }
                records += usize::from(zero);
            }
            left -= here;
        }
        first = false;
    }
    Some(records)
}

/// Whether the `width` bits at `bit` are all 0; the lowest bit of a byte comes first.
fn level_is_zero(packed: &[u8], bit: usize, width: usize) -> bool {
    (bit..bit + width).all(|bit| packed[bit / 8] >> (bit % 8) & 1 == 0)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The error for a read that the plan did not foresee.
pub(super) fn outside_of_plan(start: u64, len: usize) -> ParquetError {
    ParquetError::General(format!(
        "bytes {start}..+{len} are outside of the plan of this lookup"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(levels: &[u8]) -> Vec<u8> {
        [&(levels.len() as u32).to_le_bytes()[..], levels, b"values"].concat()
    }

    #[test]
    fn records_begin_where_the_repetition_level_is_zero() {
        // A run of 3 zeros, then 8 packed levels 0 1 1 0 0 0 0 0, of which 4 count.
        assert_eq!(count_records(&body(&[6, 0, 3, 0b0000_0110]), 7, 1), Some(5));
        // Two bits a level: 0, 2, 1, 0.
        assert_eq!(count_records(&body(&[3, 0b00_01_10_00, 0]), 4, 3), Some(2));
        assert_eq!(count_records(&body(&[]), 0, 1), Some(0));
    }

    #[test]
    fn cut_levels_and_split_records_are_not_counted() {
        assert_eq!(
            count_records(&body(&[6, 1]), 3, 1),
            None,
            "begins within a record"
        );
        assert_eq!(count_records(&body(&[3, 0b0000_0001]), 3, 1), None);
        assert_eq!(count_records(&body(&[6, 0]), 4, 1), None, "too few levels");
        assert_eq!(count_records(&body(&[0, 0, 0, 0]), 4, 1), None, "an empty run");
        assert_eq!(count_records(&[9, 0, 0, 0, 6], 4, 1), None);
        assert_eq!(count_records(&[], 4, 1), None);
    }
}
