//! [`ColumnValues`]: the wanted values of one column, and the synthetic data page made of them.
//!
//! Owns how values become a PLAIN data page in the order asked, duplicates included, so that the format library's
//! readers convert them and nothing is scattered afterwards. Refuses to grow beyond the limit of the result. Called by
//! [`super::gather`].

use parquet::basic::Encoding;
use parquet::column::page::Page;

use super::levels::encode_levels;
use super::plain::PlainType;

/// What is reserved ahead for the values of a column; more is reserved when there is more.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// The limit of the result was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany;

/// Values of different rows in the table's order.
#[derive(Debug)]
pub(super) struct ColumnValues {
    kind: PlainType,
    max_level: u8,
    /// A level a row; empty where no row can be null.
    levels: Vec<u8>,
    rows: usize,
    /// PLAIN values of the rows that have one; of booleans a byte each.
    bytes: Vec<u8>,
    /// Where each value ends in `bytes`. Empty unless lengths vary.
    ends: Vec<u32>,
}

impl ColumnValues {
    /// With room for `rows`.
    pub(super) fn new(kind: PlainType, max_level: u8, rows: usize) -> ColumnValues {
        let width = match kind {
            PlainType::Fixed(width) => width.min(16),
            PlainType::Lengths => 16,
            PlainType::Bits => 1,
        };
        let reserved = |rows: usize, width: usize| rows.min(RESERVED_BYTES_MAX / 16) * width;
        ColumnValues {
            kind,
            max_level,
            levels: Vec::with_capacity(reserved(rows, usize::from(max_level > 0))),
            rows: 0,
            bytes: Vec::with_capacity(reserved(rows, width)),
            ends: Vec::with_capacity(reserved(rows, usize::from(kind == PlainType::Lengths))),
        }
    }

    /// A row without a value.
    pub(super) fn push_null(&mut self, level: u8, left_bytes: &mut u64) -> Result<(), TooMany> {
        *left_bytes = left_bytes.checked_sub(1).ok_or(TooMany)?;
        self.rows += 1;
        self.levels.push(level);
        Ok(())
    }

    /// A row's value as PLAIN has it; of a boolean, a byte that is 0 or 1.
    #[inline]
    pub(super) fn push(&mut self, value: &[u8], left_bytes: &mut u64) -> Result<(), TooMany> {
        *left_bytes = left_bytes.checked_sub(value.len() as u64).ok_or(TooMany)?;
        self.rows += 1;
        if self.max_level > 0 {
            self.levels.push(self.max_level);
        }
        append(&mut self.bytes, value);
        if self.kind == PlainType::Lengths {
            self.ends
                .push(u32::try_from(self.bytes.len()).map_err(|_| TooMany)?);
        }
        Ok(())
    }

    /// A data page of these rows, or of the rows at the places of `order`.
    pub(super) fn into_page(self, order: Option<&[u64]>, left_bytes: &mut u64) -> Result<Page, TooMany> {
        let ordered = match order {
            Some(order) => self.in_order(order, left_bytes)?,
            None => self,
        };
        let values = match ordered.kind {
            PlainType::Bits => pack_bits(&ordered.bytes),
            _ => ordered.bytes,
        };
        let buf = match ordered.max_level {
            0 => values,
            max => {
                let mut buf = encode_levels(&ordered.levels, max, values.len());
                buf.extend_from_slice(&values);
                buf
            }
        };
        Ok(Page::DataPage {
            buf: buf.into(),
            num_values: u32::try_from(ordered.rows).map_err(|_| TooMany)?,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }

    fn in_order(&self, order: &[u64], left_bytes: &mut u64) -> Result<ColumnValues, TooMany> {
        // Which value each row has.
        let mut value_of = Vec::with_capacity(self.levels.len());
        let mut values = 0usize;
        for level in &self.levels {
            value_of.push(values);
            values += usize::from(*level == self.max_level);
        }
        let mut ordered = ColumnValues::new(self.kind, self.max_level, order.len());
        for place in order {
            let place = *place as usize;
            let number = match self.levels.get(place) {
                Some(level) if *level < self.max_level => {
                    ordered.push_null(*level, left_bytes)?;
                    continue;
                }
                Some(_) => value_of[place],
                None => place,
            };
            ordered.push(self.value(number), left_bytes)?;
        }
        Ok(ordered)
    }

    fn value(&self, number: usize) -> &[u8] {
        let range = match self.kind {
            PlainType::Fixed(width) => number * width..(number + 1) * width,
            PlainType::Bits => number..number + 1,
            PlainType::Lengths => {
                let start = number
                    .checked_sub(1)
                    .map_or(0, |before| self.ends[before] as usize);
                start..self.ends[number] as usize
            }
        };
        &self.bytes[range]
    }
}

/// The usual widths without a call, so that the processor reads on while it waits for the memory of the last value.
#[inline]
fn append(bytes: &mut Vec<u8>, value: &[u8]) {
    if let Ok(eight) = <&[u8; 8]>::try_from(value) {
        bytes.extend_from_slice(eight);
    } else if let Ok(four) = <&[u8; 4]>::try_from(value) {
        bytes.extend_from_slice(four);
    } else {
        bytes.extend_from_slice(value);
    }
}

fn pack_bits(bytes: &[u8]) -> Vec<u8> {
    let byte = |eight: &[u8]| eight.iter().rev().fold(0, |byte, bit| byte << 1 | (bit & 1));
    bytes.chunks(8).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(values: ColumnValues, order: Option<&[u64]>) -> Vec<u8> {
        match values.into_page(order, &mut 1000).unwrap() {
            Page::DataPage { buf, .. } => buf.to_vec(),
            page => panic!("{page:?}"),
        }
    }

    fn column(kind: PlainType, max_level: u8, rows: &[Option<&[u8]>]) -> ColumnValues {
        let mut values = ColumnValues::new(kind, max_level, 0);
        for row in rows {
            match row {
                Some(value) => values.push(value, &mut 1000).unwrap(),
                None => values.push_null(0, &mut 1000).unwrap(),
            }
        }
        values
    }

    #[test]
    fn rows_come_in_the_order_asked_with_duplicates() {
        let rows = [Some(&b"aa"[..]), Some(b"bb"), Some(b"cc")];
        let fixed = column(PlainType::Fixed(2), 0, &rows);
        assert_eq!(body(fixed, Some(&[2, 0, 2])), b"ccaacc");
        let strings = [Some(&b"\x01\0\0\0x"[..]), None, Some(b"\0\0\0\0")];
        let page = body(column(PlainType::Lengths, 1, &strings), Some(&[2, 1, 0, 2]));
        // 3 bytes of levels: one group, 1 0 1 1.
        assert_eq!(page[..6], [2, 0, 0, 0, 3, 0b1101]);
        assert_eq!(page[6..], *b"\0\0\0\0\x01\0\0\0x\0\0\0\0");
        let bits = [Some(&[1][..]), Some(&[0]), Some(&[1])];
        assert_eq!(body(column(PlainType::Bits, 0, &bits), None), [0b101]);
        assert_eq!(
            body(column(PlainType::Bits, 0, &bits), Some(&[1, 1, 2, 0])),
            [0b1100]
        );
    }

    #[test]
    fn values_beyond_the_limit_are_refused_before_they_are_copied() {
        let mut values = ColumnValues::new(PlainType::Fixed(8), 0, 1);
        assert_eq!(values.push(&[0; 8], &mut 7), Err(TooMany));
        values.push(&[0; 8], &mut 8).unwrap();
        assert_eq!(values.into_page(Some(&[0, 0]), &mut 15).unwrap_err(), TooMany);
    }
}
