//! [`Levels`]: which rows of a data page have a value, and which value that is.
//!
//! Owns the decoding of RLE / bit-packed runs, for definition levels here and for dictionary indexes in
//! [`super::indexes`], and the rank of a row among those that are not null. Refuses levels above the column's
//! highest, and runs that end early. Pure.

/// Rows of a data page that are indexed; larger ones go through the format library.
pub(super) const ROWS_MAX: u64 = 1 << 24;

/// The definition levels of a data page of a column that is not repeated: one a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Levels {
    /// Every row has a value.
    AllPresent,
    /// Some have none.
    Some(Box<Ranks>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranks {
    /// A bit a row, the lowest first: whether it has a value.
    present: Vec<u64>,
    /// Values before the first row of each word of `present`.
    before: Vec<u32>,
    /// The levels themselves, where there are more than two.
    levels: Vec<u8>,
    value_count: u32,
}

impl Levels {
    /// Decodes RLE / bit-packed levels of `rows` rows; `max` is the level of a value.
    pub(super) fn decode(bytes: &[u8], max: u8, rows: usize) -> Option<Levels> {
        let words = rows.div_ceil(64);
        let mut ranks = Ranks {
            present: vec![0; words],
            before: Vec::with_capacity(words),
            levels: Vec::with_capacity(if max > 1 { rows } else { 0 }),
            value_count: 0,
        };
        let (mut row, mut valid) = (0, true);
        decode_runs(bytes, bit_width(max), rows, |level, run| {
            valid &= level <= u32::from(max);
            if max > 1 {
                ranks.levels.resize(row + run, level as u8);
            }
            if level == u32::from(max) {
                (row..row + run).for_each(|row| ranks.present[row / 64] |= 1 << (row % 64));
            }
            row += run;
        })?;
        if !valid {
            return None;
        }
        ranks.count();
        match ranks.value_count as usize == rows {
            true => Some(Levels::AllPresent),
            false => Some(Levels::Some(Box::new(ranks))),
        }
    }

    /// The bits of who has a value, and the levels where there are more than two; `None` if all have one.
    pub(super) fn parts(&self) -> Option<(&[u64], &[u8])> {
        match self {
            Levels::AllPresent => None,
            Levels::Some(ranks) => Some((&ranks.present, &ranks.levels)),
        }
    }

    /// Of the parts of another one. `None` if they are not those of `rows` rows whose highest level is `max`.
    pub(super) fn from_parts(present: Vec<u64>, levels: Vec<u8>, max: u8, rows: usize) -> Option<Levels> {
        let expected = if max > 1 { rows } else { 0 };
        if max == 0 || present.len() != rows.div_ceil(64) || levels.len() != expected {
            return None;
        }
        let bit = |row: usize| present[row / 64] >> (row % 64) & 1 == 1;
        let levels_agree = levels
            .iter()
            .enumerate()
            .all(|(row, level)| *level <= max && (*level == max) == bit(row));
        let behind = present.last().map_or(0, |last| match rows % 64 {
            0 => 0,
            used => last >> used,
        });
        if !levels_agree || behind != 0 {
            return None;
        }
        let mut ranks = Ranks {
            present,
            before: Vec::new(),
            levels,
            value_count: 0,
        };
        ranks.count();
        Some(Levels::Some(Box::new(ranks)))
    }

    /// How many of `rows` rows have a value.
    pub(super) fn value_count(&self, rows: usize) -> usize {
        match self {
            Levels::AllPresent => rows,
            Levels::Some(ranks) => ranks.value_count as usize,
        }
    }

    /// Which value a row has, or the level of its null.
    #[inline]
    pub(super) fn value_of(&self, row: usize) -> Result<usize, u8> {
        let Levels::Some(ranks) = self else {
            return Ok(row);
        };
        let (word, bit) = (row / 64, row % 64);
        let present = ranks.present.get(word).copied().unwrap_or(0);
        if present >> bit & 1 == 0 {
            return Err(ranks.levels.get(row).copied().unwrap_or(0));
        }
        let here = (present & ((1 << bit) - 1)).count_ones();
        Ok((ranks.before[word] + here) as usize)
    }

    /// Reads what [`Levels::value_of`] will read first, and says nothing with it.
    #[inline]
    pub(super) fn touch(&self, row: usize) -> u64 {
        let Levels::Some(ranks) = self else {
            return 0;
        };
        let present = ranks.present.get(row / 64).copied().unwrap_or(0);
        present.wrapping_add(u64::from(ranks.before.get(row / 64).copied().unwrap_or(0)))
    }

    /// Bytes that it takes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Levels::AllPresent => 0,
            Levels::Some(ranks) => 64 + ranks.present.len() * 12 + ranks.levels.len(),
        }
    }
}

impl Ranks {
    /// Counts the values before each word.
    fn count(&mut self) {
        for word in &self.present {
            self.before.push(self.value_count);
            self.value_count += word.count_ones();
        }
    }
}

/// Bits that a level takes if `max` is the highest.
pub(super) fn bit_width(max: u8) -> u32 {
    8 - max.leading_zeros()
}

/// Decodes `count` numbers of `width` bits, at most 32, out of RLE / bit-packed runs: each call of `push` has a
/// number and how often it stands here. `None` if the bytes end early.
pub(super) fn decode_runs(
    mut bytes: &[u8],
    width: u32,
    count: usize,
    mut push: impl FnMut(u32, usize),
) -> Option<()> {
    if width > 32 {
        return None;
    }
    let mut left = count;
    while left > 0 {
        let header = take_varint(&mut bytes)?;
        let run = usize::try_from(header >> 1).ok().filter(|run| *run > 0)?;
        if header & 1 == 0 {
            let (value, rest) = bytes.split_at_checked(width.div_ceil(8) as usize)?;
            bytes = rest;
            let here = run.min(left);
            push(number(value), here);
            left -= here;
        } else {
            let here = run.checked_mul(8)?.min(left);
            // The last group may be cut after the last number.
            let len = run.checked_mul(width as usize)?.min(bytes.len());
            let (packed, rest) = bytes.split_at(len);
            bytes = rest;
            if here.checked_mul(width as usize)?.div_ceil(8) > packed.len() {
                return None;
            }
            unpack(packed, width as usize, here, &mut push);
            left -= here;
        }
    }
    Some(())
}

fn unpack(packed: &[u8], width: usize, count: usize, push: &mut impl FnMut(u32, usize)) {
    let mask = (1u64 << width) - 1;
    for position in 0..count {
        let bit = position * width;
        let from = bit / 8;
        // 7 bits of shift and 32 of width lie within 8 bytes.
        let word = match packed.get(from..from + 8) {
            Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
            None => packed[from.min(packed.len())..]
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        push((word >> (bit % 8) & mask) as u32, 1);
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
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

/// Levels of the rows of a synthetic data page, as a data page of version 1 has them: their length, and runs. There is
/// room for `values_len` bytes of values behind them.
pub(super) fn encode_levels(levels: &[u8], max: u8, values_len: usize) -> Vec<u8> {
    let width = bit_width(max);
    // A length, the header of a run, and all levels packed.
    let mut out = Vec::with_capacity(4 + 10 + levels.len().div_ceil(8) * width as usize + values_len);
    out.extend_from_slice(&[0; 4]);
    match levels.split_first() {
        Some((first, rest)) if rest.iter().any(|level| level != first) => {
            put_varint(&mut out, (levels.len().div_ceil(8) as u64) << 1 | 1);
            for group in levels.chunks(8) {
                let packed = group
                    .iter()
                    .rev()
                    .fold(0u64, |word, level| word << width | u64::from(*level));
                out.extend_from_slice(&packed.to_le_bytes()[..width as usize]);
            }
        }
        Some((first, _)) => {
            put_varint(&mut out, (levels.len() as u64) << 1);
            out.push(*first);
        }
        None => {}
    }
    let len = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_levels_decode_to_the_same_rows(
            max in 1u8..=7,
            raw in prop::collection::vec((0u8..8, 1usize..70), 1..40),
        ) {
            let levels: Vec<u8> = raw
                .iter()
                .flat_map(|(level, run)| std::iter::repeat_n(level % (max + 1), *run))
                .collect();
            let encoded = encode_levels(&levels, max, 0);
            let decoded = Levels::decode(&encoded[4..], max, levels.len()).unwrap();
            let mut next = 0;
            for (row, level) in levels.iter().enumerate() {
                let want = if *level == max { Ok(next) } else { Err(*level) };
                prop_assert_eq!(decoded.value_of(row), want);
                next += usize::from(*level == max);
            }
            prop_assert_eq!(decoded.value_count(levels.len()), next);
            for len in 0..encoded.len() - 4 {
                let cut = Levels::decode(&encoded[4..4 + len], max, levels.len());
                // The padding of the last group may be missing, and nothing else.
                prop_assert!(cut.is_none_or(|cut| cut == decoded && len + 8 > encoded.len() - 4));
            }
        }
    }

    #[test]
    fn numbers_of_every_width_come_out_of_runs() {
        for width in 0..=32u32 {
            let mask = ((1u64 << width) - 1) as u32;
            let numbers: Vec<u32> = (0..24u32).map(|n| n.wrapping_mul(0x9e37_79b9) & mask).collect();
            let mut bits = Vec::new();
            for number in &numbers {
                bits.extend((0..width).map(|bit| number >> bit & 1));
            }
            let packed = bits
                .chunks(8)
                .map(|byte| byte.iter().rev().fold(0u8, |b, bit| b << 1 | *bit as u8));
            let mut bytes = vec![3 << 1 | 1];
            bytes.extend(packed);
            // Then 5 times the highest number.
            bytes.push(5 << 1);
            bytes.extend(&mask.to_le_bytes()[..width.div_ceil(8) as usize]);
            let mut got = Vec::new();
            decode_runs(&bytes, width, 29, |n, run| {
                got.extend(std::iter::repeat_n(n, run))
            })
            .unwrap();
            assert_eq!(got[..24], numbers, "{width}");
            assert_eq!(got[24..], [mask; 5], "{width}");
            if width > 0 {
                assert!(decode_runs(&bytes[..bytes.len() - 1], width, 29, |_, _| ()).is_none());
            }
        }
        assert!(decode_runs(&[2, 0], 33, 1, |_, _| ()).is_none(), "too wide");
        assert!(decode_runs(&[0, 0], 1, 1, |_, _| ()).is_none(), "an empty run");
        assert!(decode_runs(&[], 1, 1, |_, _| ()).is_none());
    }
}
