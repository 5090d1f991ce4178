//! Counts the records of a data page of a repeated column: how often its repetition level is 0.
//!
//! Owns the check that a page has as many repetition levels as it states. Refuses levels that are not RLE, and pages
//! of version 2 that are not what they state. Pure. Called by [`super::inflated`].

use parquet::basic::Encoding;
use parquet::column::page::Page;

/// Records of a data page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Records {
    /// How many begin in it: how often the repetition level is 0.
    pub(super) count: usize,
    /// Whether one begins with it. Else it begins with what is left of the last record of the page before.
    pub(super) begin_with_it: bool,
}

/// Records that begin in a data page. `None` if there are fewer levels than stated, or if a page of version 2 does not begin with
/// a record or has other records than it states.
pub(super) fn count_records(page: &Page, max_level: i16) -> Option<Records> {
    match page {
        Page::DataPage {
            buf,
            num_values,
            rep_level_encoding: Encoding::RLE,
            ..
        } => {
            let (len, rest) = buf.split_at_checked(4)?;
            let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
            count_zeros(rest.get(..len)?, *num_values, max_level)
        }
        Page::DataPageV2 {
            buf,
            num_values,
            num_rows,
            rep_levels_byte_len,
            ..
        } => {
            let levels = buf.get(..*rep_levels_byte_len as usize)?;
            let records = count_zeros(levels, *num_values, max_level)?;
            (records.begin_with_it && records.count == *num_rows as usize).then_some(records)
        }
        _ => None,
    }
}

/// Zeros among the first `values` of RLE / bit-packed levels.
fn count_zeros(mut levels: &[u8], values: u32, max_level: i16) -> Option<Records> {
    let width = (16 - max_level.leading_zeros()) as usize;
    let (mut left, mut count, mut first) = (values as usize, 0, None);
    while left > 0 {
        let header = take_varint(&mut levels)?;
        let run = usize::try_from(header >> 1).ok().filter(|run| *run > 0)?;
        if header & 1 == 0 {
            let (level, rest) = levels.split_at_checked(width.div_ceil(8))?;
            levels = rest;
            let zero = level.iter().all(|byte| *byte == 0);
            first.get_or_insert(zero);
            let here = run.min(left);
            count += if zero { here } else { 0 };
            left -= here;
        } else {
            // The last group may be cut after the last level.
            let len = run.checked_mul(width)?.min(levels.len());
            let (packed, rest) = levels.split_at(len);
            levels = rest;
            let here = run.checked_mul(8)?.min(left);
            if here > packed.len() * 8 / width {
                return None;
            }
            for position in 0..here {
                let zero = level_is_zero(packed, position * width, width);
                first.get_or_insert(zero);
                count += usize::from(zero);
            }
            left -= here;
        }
    }
    Some(Records {
        count,
        begin_with_it: first.unwrap_or(true),
    })
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

    fn count(levels: &[u8], values: u32, max_level: i16) -> Option<(usize, bool)> {
        count_zeros(levels, values, max_level).map(|records| (records.count, records.begin_with_it))
    }

    #[test]
    fn records_begin_where_the_repetition_level_is_zero() {
        // A run of 3 zeros, then 8 packed levels 0 1 1 0 0 0 0 0, of which 4 count.
        assert_eq!(count(&[6, 0, 3, 0b0000_0110], 7, 1), Some((5, true)));
        // Two bits a level: 0, 2, 1, 0; and the same with its last group cut.
        assert_eq!(count(&[3, 0b00_01_10_00, 0], 4, 3), Some((2, true)));
        assert_eq!(count(&[3, 0b00_01_10_00], 4, 3), Some((2, true)));
        assert_eq!(count(&[], 0, 1), Some((0, true)));
        // The rest of a record comes first.
        assert_eq!(count(&[6, 1], 3, 1), Some((0, false)));
        assert_eq!(count(&[3, 0b0000_0001], 3, 1), Some((2, false)));
    }

    #[test]
    fn cut_levels_are_not_counted() {
        assert_eq!(count(&[6, 0], 4, 1), None, "too few levels");
        assert_eq!(count(&[3, 0], 9, 1), None, "too few packed levels");
        assert_eq!(count(&[0, 0, 0, 0], 4, 1), None, "an empty run");
        assert_eq!(count(&[], 4, 1), None);
    }
}
