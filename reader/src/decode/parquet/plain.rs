//! [`PlainValues`]: where each value of a PLAIN body lies; and [`Dictionary`], which is one.
//!
//! Owns the arithmetic of PLAIN: fixed widths, lengths before the values of BYTE_ARRAY, bits of BOOLEAN. Refuses
//! bodies that end early. Pure. Called by [`super::mapped`].

use std::ops::Range;

use bytes::Bytes;
use parquet::basic::Type;
use parquet::schema::types::ColumnDescriptor;

/// How a physical type is laid out in PLAIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainType {
    /// So many bytes each.
    Fixed(usize),
    /// A length of 4 bytes, then so many bytes.
    Lengths,
    /// A bit each.
    Bits,
}

impl PlainType {
    pub(super) fn of(column: &ColumnDescriptor) -> PlainType {
        match column.physical_type() {
            Type::BOOLEAN => PlainType::Bits,
            Type::INT32 | Type::FLOAT => PlainType::Fixed(4),
            Type::INT64 | Type::DOUBLE => PlainType::Fixed(8),
            Type::INT96 => PlainType::Fixed(12),
            Type::FIXED_LEN_BYTE_ARRAY => PlainType::Fixed(column.type_length().max(0) as usize),
            Type::BYTE_ARRAY => PlainType::Lengths,
        }
    }
}

/// Where each value begins in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlainValues {
    /// All of one width: arithmetic, no memory. Lengths count as part of the values.
    Stride { start: u32, width: u32, count: u32 },
    /// The beginning of each, and the end of the last.
    Offsets(Box<[u32]>),
    /// A bit each, from this byte on.
    Bits { start: u32, count: u32 },
}

impl PlainValues {
    /// The `count` values of `body` from `start` on.
    pub(super) fn of(body: &[u8], start: usize, kind: PlainType, count: usize) -> Option<PlainValues> {
        let fits = |bytes: usize| start.checked_add(bytes).is_some_and(|end| end <= body.len());
        let (first, number) = (u32::try_from(start).ok()?, u32::try_from(count).ok()?);
        match kind {
            PlainType::Bits => fits(count.div_ceil(8)).then_some(PlainValues::Bits {
                start: first,
                count: number,
            }),
            PlainType::Fixed(width) => fits(count.checked_mul(width)?).then_some(PlainValues::Stride {
                start: first,
                width: u32::try_from(width).ok()?,
                count: number,
            }),
            PlainType::Lengths => PlainValues::of_lengths(body, start, count),
        }
    }

    fn of_lengths(body: &[u8], start: usize, count: usize) -> Option<PlainValues> {
        u32::try_from(body.len()).ok()?;
        if count > body.len() / 4 {
            return None;
        }
        let mut offsets = Vec::with_capacity(count + 1);
        let mut at = start;
        let mut stride = None;
        let mut same = true;
        for _ in 0..count {
            offsets.push(at as u32);
            let len = body
                .get(at..)?
                .first_chunk::<4>()
                .copied()
                .map(u32::from_le_bytes)?;
            let end = at.checked_add(4)?.checked_add(len as usize)?;
            if end > body.len() {
                return None;
            }
            same &= *stride.get_or_insert(end - at) == end - at;
            at = end;
        }
        offsets.push(at as u32);
        Some(match stride {
            Some(width) if same => PlainValues::Stride {
                start: start as u32,
                width: width as u32,
                count: count as u32,
            },
            _ => PlainValues::Offsets(offsets.into()),
        })
    }

    /// Whether these can be `count` values of this type in a body of `body_len` bytes.
    pub(super) fn is_of(&self, kind: PlainType, count: usize, body_len: usize) -> bool {
        let ends_by = |start: u32, len: Option<usize>| {
            let end = len.and_then(|len| len.checked_add(start as usize));
            end.is_some_and(|end| end <= body_len)
        };
        match (self, kind) {
            (
                PlainValues::Stride {
                    start,
                    width,
                    count: n,
                },
                PlainType::Fixed(_) | PlainType::Lengths,
            ) => {
                let fits = match kind {
                    PlainType::Fixed(fixed) => *width as usize == fixed,
                    _ => *width >= 4,
                };
                fits && *n as usize == count && ends_by(*start, count.checked_mul(*width as usize))
            }
            (PlainValues::Offsets(offsets), PlainType::Lengths) => {
                offsets.len() == count + 1
                    && offsets
                        .windows(2)
                        .all(|pair| pair[1].checked_sub(pair[0]) >= Some(4))
                    && offsets.last().is_some_and(|last| *last as usize <= body_len)
            }
            (PlainValues::Bits { start, count: n }, PlainType::Bits) => {
                *n as usize == count && ends_by(*start, Some(count.div_ceil(8)))
            }
            _ => false,
        }
    }

    /// Where the `number`-th value lies, its length included; a boolean is the byte that holds its bit.
    #[inline]
    pub(super) fn range(&self, number: usize) -> Option<Range<usize>> {
        match self {
            PlainValues::Stride { start, width, count } => {
                let from = *start as usize + number.checked_mul(*width as usize)?;
                (number < *count as usize).then(|| from..from + *width as usize)
            }
            PlainValues::Offsets(offsets) => {
                Some(*offsets.get(number)? as usize..*offsets.get(number + 1)? as usize)
            }
            PlainValues::Bits { start, count } => {
                let byte = *start as usize + number / 8;
                (number < *count as usize).then_some(byte..byte + 1)
            }
        }
    }

    /// Reads what [`PlainValues::range`] will read first, and says nothing with it.
    #[inline]
    pub(super) fn touch(&self, number: usize) -> u64 {
        match self {
            PlainValues::Offsets(offsets) => offsets.get(number).copied().map_or(0, u64::from),
            _ => 0,
        }
    }

    /// Bytes that it takes.
    pub(super) fn weight(&self) -> usize {
        match self {
            PlainValues::Offsets(offsets) => offsets.len() * 4,
            _ => 0,
        }
    }
}

/// The dictionary of a column in a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dictionary {
    body: Bytes,
    values: PlainValues,
}

impl Dictionary {
    pub(super) fn new(body: Bytes, kind: PlainType, count: usize) -> Option<Dictionary> {
        let values = PlainValues::of(&body, 0, kind, count)?;
        Some(Dictionary { body, values })
    }

    /// A value as PLAIN has it.
    #[inline]
    pub(super) fn value(&self, index: usize) -> Option<&[u8]> {
        self.body.get(self.values.range(index)?)
    }

    /// Reads what [`Dictionary::value`] will read first, and says nothing with it.
    #[inline]
    pub(super) fn touch(&self, index: usize) -> u64 {
        match &self.values {
            PlainValues::Offsets(_) => self.values.touch(index),
            values => touch_byte(&self.body, values.range(index)),
        }
    }

    /// Bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        self.body.len() + self.values.weight() + 64
    }
}

/// The first byte of `part`.
#[inline]
pub(super) fn touch_byte(body: &[u8], part: Option<Range<usize>>) -> u64 {
    let byte = part.and_then(|part| body.get(part.start));
    byte.copied().map_or(0, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(values: &[&str]) -> Vec<u8> {
        let mut body = vec![9, 9];
        for value in values {
            body.extend((value.len() as u32).to_le_bytes());
            body.extend(value.bytes());
        }
        body
    }

    #[test]
    fn values_are_found_by_their_lengths() {
        let body = strings(&["a", "", "bcd"]);
        let values = PlainValues::of(&body, 2, PlainType::Lengths, 3).unwrap();
        let got: Vec<_> = (0..3).map(|n| &body[values.range(n).unwrap()][4..]).collect();
        assert_eq!(got, [&b"a"[..], b"", b"bcd"]);
        assert_eq!(values.range(3), None);
        for len in 0..body.len() {
            assert_eq!(
                PlainValues::of(&body[..len], 2, PlainType::Lengths, 3),
                None,
                "{len}"
            );
        }
        let huge = u32::MAX.to_le_bytes();
        assert_eq!(PlainValues::of(&huge, 0, PlainType::Lengths, 1), None);
    }

    #[test]
    fn values_of_one_length_take_no_memory() {
        let body = strings(&["ab", "cd"]);
        let values = PlainValues::of(&body, 2, PlainType::Lengths, 2).unwrap();
        assert_eq!(values.weight(), 0);
        assert_eq!(values.range(1), Some(8..14));
        assert_eq!(values.range(2), None);
    }

    #[test]
    fn fixed_widths_and_bits_must_fit() {
        assert_eq!(PlainValues::of(&[0; 15], 0, PlainType::Fixed(8), 2), None);
        let two = PlainValues::of(&[0; 16], 0, PlainType::Fixed(8), 2).unwrap();
        assert_eq!((two.range(1), two.range(2)), (Some(8..16), None));
        assert_eq!(PlainValues::of(&[0; 1], 0, PlainType::Bits, 9), None);
        let bits = PlainValues::of(&[0; 2], 0, PlainType::Bits, 9).unwrap();
        assert_eq!((bits.range(8), bits.range(9)), (Some(1..2), None));
        assert_eq!(PlainValues::of(&[0; 8], usize::MAX, PlainType::Fixed(8), 1), None);
    }
}
