//! [`check_counts`]: whether the DELTA encodings of a data page state no more values than the page has levels.
//!
//! The format library reserves memory for as many lengths as these encodings state, which no header bounds, and a process that
//! asks for too much ends. Owns just that check. Pure. Called by [`super::inflated`].

use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescriptor;

/// Levels of a data page: as many as values of 8 bytes in the largest page that is inflated. A run of levels takes a few bytes,
/// however long it is.
const LEVELS_MAX: u32 = 1 << 27;

/// `Err` says what is wrong.
pub(super) fn check_counts(page: &Page, column: &ColumnDescriptor) -> Result<(), &'static str> {
    if matches!(page, Page::DictionaryPage { .. }) {
        return Ok(());
    }
    if page.num_values() > LEVELS_MAX {
        return Err("a data page states more levels than the largest has");
    }
    let streams = match page.encoding() {
        Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
        Encoding::DELTA_BYTE_ARRAY => 2,
        _ => return Ok(()),
    };
    let mut values = values_of(page, column).ok_or("a data page is shorter than its levels")?;
    // No values, and not even a header.
    if values.is_empty() {
        return Ok(());
    }
    for _ in 0..streams {
        let stream = Stream::of(values).ok_or("a DELTA encoding is malformed")?;
        if stream.count > u64::from(page.num_values()) {
            return Err("a DELTA encoding states more values than its data page has levels");
        }
        values = values.get(stream.len..).unwrap_or_default();
    }
    Ok(())
}

/// What follows the levels.
fn values_of<'a>(page: &'a Page, column: &ColumnDescriptor) -> Option<&'a [u8]> {
    match page {
        Page::DataPage {
            buf,
            num_values,
            def_level_encoding,
            rep_level_encoding,
            ..
        } => {
            let mut rest = &buf[..];
            for (max, encoding) in [
                (column.max_rep_level(), rep_level_encoding),
                (column.max_def_level(), def_level_encoding),
            ] {
                if max == 0 {
                    continue;
                }
                let len = match encoding {
                    Encoding::RLE => {
                        let (len, behind) = rest.split_first_chunk()?;
                        rest = behind;
                        u32::from_le_bytes(*len) as usize
                    }
                    // Of old writers: so many bits a level, and no length before them.
                    _ => {
                        let width = (16 - max.leading_zeros()) as usize;
                        (*num_values as usize).checked_mul(width)?.div_ceil(8)
                    }
                };
                rest = rest.get(len..)?;
            }
            Some(rest)
        }
        Page::DataPageV2 {
            buf,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } => buf.get((*def_levels_byte_len as usize).checked_add(*rep_levels_byte_len as usize)?..),
        Page::DictionaryPage { .. } => None,
    }
}

/// Numbers as DELTA_BINARY_PACKED has them.
#[derive(Debug, PartialEq, Eq)]
struct Stream {
    /// How many it states.
    count: u64,
    /// Bytes that it takes.
    len: usize,
}

impl Stream {
    /// That which `bytes` begin with. Blocks are passed over by their widths.
    fn of(bytes: &[u8]) -> Option<Stream> {
        let mut rest = bytes;
        let block = take_varint(&mut rest)?;
        let parts = take_varint(&mut rest)?;
        let count = take_varint(&mut rest)?;
        take_varint(&mut rest)?;
        let part_values = block.checked_div(parts)?;
        let parts = usize::try_from(parts).ok()?;
        let mut left = count.saturating_sub(1);
        while left > 0 {
            take_varint(&mut rest)?;
            let (widths, packed) = rest.split_at_checked(parts)?;
            rest = packed;
            for width in widths {
                // What comes after the last value has widths, and no bits.
                if left > 0 {
                    let len = u64::from(*width).checked_mul(part_values)? / 8;
                    // The last part may be cut after its last value.
                    let len = usize::try_from(len).ok()?.min(rest.len());
                    rest = &rest[len..];
                }
                left = left.saturating_sub(part_values);
            }
        }
        Some(Stream {
            count,
            len: bytes.len() - rest.len(),
        })
    }
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
    use std::sync::Arc;

    use bytes::Bytes;
    use parquet::basic::Type as PhysicalType;
    use parquet::schema::types::{ColumnPath, Type};

    use super::*;

    /// 128 values a block of 4 parts; the first is 7, and each of the rest is one more: no bits at all.
    fn stream(count: u64) -> Vec<u8> {
        let mut bytes = vec![0x80, 1, 4];
        let mut left = count;
        while left >= 0x80 {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.extend([left as u8, 14]);
        for _ in 0..count.saturating_sub(1).div_ceil(128).min(4) {
            bytes.extend([2, 0, 0, 0, 0]);
        }
        bytes
    }

    #[test]
    fn a_stream_ends_where_its_last_block_does() {
        for count in [0, 1, 2, 129, 130, 257] {
            let bytes = stream(count);
            let len = bytes.len();
            assert_eq!(
                Stream::of(&[&bytes[..], &[9; 5]].concat()),
                Some(Stream { count, len }),
                "{count}"
            );
        }
        // 40 values of 3 bits: the second part has 12 bytes too, and the widths behind it mean nothing.
        let bytes = [&[0x80, 1, 4, 40, 0, 0, 3, 3, 7, 7][..], &[0; 24], &[1, 2]].concat();
        assert_eq!(Stream::of(&bytes), Some(Stream { count: 40, len: 34 }));
        assert_eq!(Stream::of(&[0x80, 1, 0, 40, 0]), None, "no parts");
        assert_eq!(
            Stream::of(&[0, 4, 40, 0, 0, 3, 3, 3, 3]),
            None,
            "parts of no values"
        );
        assert_eq!(Stream::of(&stream(u64::MAX)), None, "blocks that are not there");
        assert_eq!(Stream::of(&[]), None);
    }

    #[test]
    fn more_values_than_levels_are_refused() {
        let column = |max_def, max_rep| {
            let a = Type::primitive_type_builder("a", PhysicalType::BYTE_ARRAY)
                .build()
                .unwrap();
            ColumnDescriptor::new(Arc::new(a), max_def, max_rep, ColumnPath::new(vec!["a".into()]))
        };
        let page = |levels: &[u8], encoding, streams: &[u64], num_values| Page::DataPage {
            buf: Bytes::from(
                [
                    levels,
                    &streams.iter().flat_map(|n| stream(*n)).collect::<Vec<_>>(),
                ]
                .concat(),
            ),
            num_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let (lengths, prefixes) = (Encoding::DELTA_LENGTH_BYTE_ARRAY, Encoding::DELTA_BYTE_ARRAY);
        let rle = [2, 0, 0, 0, 20, 1];
        let both = [rle, rle].concat();
        for (levels, max_def, max_rep) in [(&[][..], 0, 0), (&rle, 1, 0), (&both, 1, 1)] {
            let check = |page: Page| check_counts(&page, &column(max_def, max_rep)).is_ok();
            assert!(check(page(levels, lengths, &[10], 10)));
            assert!(!check(page(levels, lengths, &[11], 10)));
            assert!(check(page(levels, prefixes, &[10, 10], 10)));
            assert!(!check(page(levels, prefixes, &[10, 11], 10)));
            assert!(!check(page(levels, prefixes, &[11, 10], 10)));
            assert!(check(page(levels, lengths, &[], 10)), "no values");
            assert!(check(page(levels, Encoding::PLAIN, &[], LEVELS_MAX)));
            assert!(!check(page(levels, Encoding::PLAIN, &[], LEVELS_MAX + 1)));
        }
        assert!(check_counts(&page(&rle[..4], lengths, &[], 10), &column(1, 0)).is_err());
    }
}
