//! Counts the records of a data page of a repeated column: how often its repetition level is 0.
//!
//! Owns the check that a page has as many repetition levels as it states. Refuses levels that are not RLE, and records that do
//! not begin where they should. Pure. Called by [`super::inflated`].

use parquet::basic::Encoding;
use parquet::column::page::Page;

/// Records that begin in a data page: how often the repetition level is 0. `None` if there are fewer
/// levels than stated, or if a record should begin with the page and does not.
pub(super) fn count_records(page: &Page, max_level: i16, begins: bool) -> Option<usize> {
    match page {
        Page::DataPage {
            buf,
            num_values,
            rep_level_encoding: Encoding::RLE,
            ..
        } => {
            let (len, rest) = buf.split_at_checked(4)?;
            let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
            count_zeros(rest.get(..len)?, *num_values, max_level, begins)
        }
        Page::DataPageV2 {
            buf,
            num_values,
            num_rows,
            rep_levels_byte_len,
            ..
        } => {
            let levels = buf.get(..*rep_levels_byte_len as usize)?;
            let records = count_zeros(levels, *num_values, max_level, true)?;
            (records == *num_rows as usize).then_some(records)
        }
        _ => None,
    }
}

/// Zeros among the first `values` of RLE / bit-packed levels.
fn count_zeros(mut levels: &[u8], values: u32, max_level: i16, begins: bool) -> Option<usize> {
    let width = (16 - max_level.leading_zeros()) as usize;
    let (mut left, mut records, mut first) = (values as usize, 0, begins);
    while left > 0 {
        let header = take_varint(&mut levels)?;
        let count = usize::try_from(header >> 1).ok().filter(|count| *count > 0)?;
        if header & 1 == 0 {
            let (level, rest) = levels.split_at_checked(width.div_ceil(8))?;
            levels = rest;
            let zero = level.iter().all(|byte| *byte == 0);
            if first && !zero {
                return None;
            }
            let here = count.min(left);
            records += if zero { here } else { 0 };
            left -= here;
        } else {
            // The last group may be cut after the last level.
            let len = count.checked_mul(width)?.min(levels.len());
            let (packed, rest) = levels.split_at(len);
            levels = rest;
            let here = count.checked_mul(8)?.min(left);
            if here > packed.len() * 8 / width {
                return None;
            }
            for position in 0..here {
                let zero = level_is_zero(packed, position * width, width);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn count(levels: &[u8], values: u32, max_level: i16) -> Option<usize> {
        count_zeros(levels, values, max_level, true)
    }

    #[test]
    fn records_begin_where_the_repetition_level_is_zero() {
        // A run of 3 zeros, then 8 packed levels 0 1 1 0 0 0 0 0, of which 4 count.
        assert_eq!(count(&[6, 0, 3, 0b0000_0110], 7, 1), Some(5));
        // Two bits a level: 0, 2, 1, 0; and the same with its last group cut.
        assert_eq!(count(&[3, 0b00_01_10_00, 0], 4, 3), Some(2));
        assert_eq!(count(&[3, 0b00_01_10_00], 4, 3), Some(2));
        assert_eq!(count(&[], 0, 1), Some(0));
    }

    #[test]
    fn cut_levels_and_split_records_are_not_counted() {
        assert_eq!(count(&[6, 1], 3, 1), None, "begins within a record");
        assert_eq!(count_zeros(&[6, 1], 3, 1, false), Some(0));
        assert_eq!(count(&[3, 0b0000_0001], 3, 1), None);
        assert_eq!(count(&[6, 0], 4, 1), None, "too few levels");
        assert_eq!(count(&[3, 0], 9, 1), None, "too few packed levels");
        assert_eq!(count(&[0, 0, 0, 0], 4, 1), None, "an empty run");
        assert_eq!(count(&[], 4, 1), None);
    }
}
