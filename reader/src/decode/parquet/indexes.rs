//! [`Indexes`]: which entry of the dictionary each value of a data page is.
//!
//! Owns how these are kept: as runs where there are few, else packed with the bits that the data page gives them, so that any
//! of them is found by arithmetic. Refuses runs that end early, numbers wider than stated, and widths above 32. Pure. Called by [`super::mapped`].

use super::levels::decode_runs;

/// Bytes that a run takes: where it ends, and its number.
const RUN_BYTES: usize = 8;

/// Bytes behind the last number, so that 8 can be read of each, also where it has no bits.
const PADDING: usize = 8;

#[derive(Debug)]
pub(super) enum Indexes {
    /// So many bits each.
    Packed { bytes: Box<[u8]>, width: u8, count: u32 },
    /// Where each run ends, and its number.
    Runs { ends: Box<[u32]>, numbers: Box<[u32]> },
}

impl Indexes {
    /// Of `count` values: the width of an index in bits, then runs.
    pub(super) fn decode(bytes: &[u8], count: usize) -> Option<Indexes> {
        let total = u32::try_from(count).ok()?;
        let Some((width, encoded)) = bytes.split_first().filter(|_| count > 0) else {
            let none = Indexes::Runs {
                ends: Box::default(),
                numbers: Box::default(),
            };
            return (count == 0).then_some(none);
        };
        let width = *width;
        let (mut runs, mut last, mut fits) = (0usize, None, true);
        decode_runs(encoded, u32::from(width), count, |number, _| {
            runs += usize::from(last != Some(number));
            last = Some(number);
            // A run states its number in whole bytes: what it has too many would become part of its neighbours.
            fits &= u64::from(number) >> width == 0;
        })?;
        if !fits {
            return None;
        }
        let packed_len = count.checked_mul(usize::from(width))?.div_ceil(8) + PADDING;
        if runs.checked_mul(RUN_BYTES)? < packed_len {
            return Indexes::of_runs(encoded, width, count, runs);
        }
        let mut packed = vec![0u8; packed_len];
        let mut bit = 0;
        decode_runs(encoded, u32::from(width), count, |number, run| {
            for _ in 0..run {
                if let Some(eight) = packed[bit / 8..].first_chunk_mut::<8>() {
                    let word = u64::from_le_bytes(*eight) | u64::from(number) << (bit % 8);
                    *eight = word.to_le_bytes();
                }
                bit += usize::from(width);
            }
        })?;
        Some(Indexes::Packed {
            bytes: packed.into(),
            width,
            count: total,
        })
    }

    fn of_runs(encoded: &[u8], width: u8, count: usize, runs: usize) -> Option<Indexes> {
        let (mut ends, mut numbers) = (Vec::with_capacity(runs), Vec::with_capacity(runs));
        let mut end = 0u32;
        decode_runs(encoded, u32::from(width), count, |number, run| {
            end += run as u32;
            match ends.last_mut() {
                Some(last) if numbers.last() == Some(&number) => *last = end,
                _ => {
                    ends.push(end);
                    numbers.push(number);
                }
            }
        })?;
        Some(Indexes::Runs {
            ends: ends.into(),
            numbers: numbers.into(),
        })
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<usize> {
        match self {
            Indexes::Packed { bytes, width, count } => {
                if number >= *count as usize {
                    return None;
                }
                let bit = number * usize::from(*width);
                let word = u64::from_le_bytes(*bytes.get(bit / 8..)?.first_chunk::<8>()?);
                Some((word >> (bit % 8) & ((1u64 << *width) - 1)) as usize)
            }
            Indexes::Runs { ends, numbers } => {
                let run = ends.partition_point(|end| *end as usize <= number);
                numbers.get(run).map(|number| *number as usize)
            }
        }
    }

    /// Reads what [`Indexes::get`] will read first, and says nothing with it.
    #[inline]
    pub(super) fn touch(&self, number: usize) -> u64 {
        match self {
            Indexes::Packed { bytes, width, .. } => {
                let byte = bytes.get(number * usize::from(*width) / 8);
                byte.copied().map_or(0, u64::from)
            }
            // Few, and searched.
            Indexes::Runs { .. } => 0,
        }
    }

    /// Bytes that it takes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Indexes::Packed { bytes, .. } => bytes.len(),
            Indexes::Runs { ends, .. } => ends.len() * RUN_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packed run of these numbers.
    fn packed(numbers: &[u32], width: u32) -> Vec<u8> {
        let groups = numbers.len().div_ceil(8);
        let mut bits = Vec::new();
        for number in numbers
            .iter()
            .chain(std::iter::repeat_n(&0, groups * 8 - numbers.len()))
        {
            bits.extend((0..width).map(|bit| number >> bit & 1));
        }
        let bytes = bits
            .chunks(8)
            .map(|byte| byte.iter().rev().fold(0u8, |b, bit| b << 1 | *bit as u8));
        assert!(groups < 64);
        std::iter::once((groups as u8) << 1 | 1).chain(bytes).collect()
    }

    #[test]
    fn every_index_of_every_width_is_found() {
        for width in 0..=32u32 {
            let mask = ((1u64 << width) - 1) as u32;
            let mut numbers: Vec<u32> = (0..203u32).map(|n| n.wrapping_mul(0x9e37_79b9) & mask).collect();
            let mut bytes = vec![width as u8];
            bytes.extend(packed(&numbers, width));
            numbers.resize(numbers.len().next_multiple_of(8), 0);
            // 5 times the highest number behind it.
            bytes.push(5 << 1);
            bytes.extend(&mask.to_le_bytes()[..width.div_ceil(8) as usize]);
            numbers.extend([mask; 5]);
            let indexes = Indexes::decode(&bytes, numbers.len()).unwrap();
            for (place, number) in numbers.iter().enumerate() {
                assert_eq!(indexes.get(place), Some(*number as usize), "{width}: {place}");
            }
            assert_eq!(indexes.get(numbers.len()), None);
            assert!(
                indexes.weight() <= (numbers.len() * width as usize).div_ceil(8) + PADDING,
                "{width}"
            );
        }
        assert!(Indexes::decode(&[33, 2, 0], 1).is_none(), "too wide");
        // A run of one with all 8 bits of 1 set, then a group of zeros; and 16 bits where there are 9.
        assert!(Indexes::decode(&[1, 2, 0xff, 3, 0], 8).is_none());
        assert!(Indexes::decode(&[9, 2, 0xff, 0xff], 1).is_none());
        assert!(Indexes::decode(&[], 1).is_none() && Indexes::decode(&[8, 3], 8).is_none());
        assert_eq!(Indexes::decode(&[], 0).unwrap().get(0), None);
    }

    #[test]
    fn long_runs_take_no_more_than_they_are() {
        // 120 times 7, 120 times 300, 120 times 300 again.
        let bytes = [&[9][..], &[0xf0, 1, 7, 0], &[0xf0, 1, 44, 1], &[0xf0, 1, 44, 1]].concat();
        let indexes = Indexes::decode(&bytes, 360).unwrap();
        assert_eq!(indexes.weight(), 16);
        let got: Vec<_> = [0, 119, 120, 359, 360].map(|n| indexes.get(n)).into();
        assert_eq!(got, [Some(7), Some(7), Some(300), Some(300), None]);
    }
}
