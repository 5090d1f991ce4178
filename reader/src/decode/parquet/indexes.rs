//! [`Indexes`]: a data page's values as indexes into the dictionary.
//!
//! Owns how they are kept: packed, so that pages with few different values take little memory. Refuses widths above 32 bits,
//! and runs that end early. Whether the dictionary has such a value is asked by who looks there. Pure. Called by
//! [`super::mapped`].

use super::levels::decode_runs;

/// Indexes into a dictionary, each of as many bits as the file has for it.
#[derive(Debug)]
pub(super) struct Indexes {
    width: u32,
    count: usize,
    /// The lowest bit first, and [`PADDING`] bytes more.
    packed: Box<[u8]>,
}

/// So that 8 bytes can be read wherever an index begins.
const PADDING: usize = 8;

impl Indexes {
    /// The width of an index in bits, then runs.
    pub(super) fn decode(bytes: &[u8], count: usize) -> Option<Indexes> {
        let (width, runs) = match count {
            0 => (0, bytes),
            _ => bytes
                .split_first()
                .map(|(width, runs)| (u32::from(*width), runs))?,
        };
        if width > u32::BITS {
            return None;
        }
        let bits = count.checked_mul(width as usize)?;
        let mut packed = vec![0; bits.div_ceil(8) + PADDING];
        let mut at = 0;
        decode_runs(runs, width, count, |index, run| {
            for _ in 0..run {
                if let Some(eight) = packed[at / 8..].first_chunk_mut::<8>() {
                    *eight = (u64::from_le_bytes(*eight) | u64::from(index) << (at % 8)).to_le_bytes();
                }
                at += width as usize;
            }
        })?;
        Some(Indexes {
            width,
            count,
            packed: packed.into(),
        })
    }

    /// The `number`-th of them.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<usize> {
        if number >= self.count {
            return None;
        }
        // 7 bits of shift and 32 of width lie within 8 bytes.
        let bit = number * self.width as usize;
        let eight = self.packed.get(bit / 8..)?.first_chunk::<8>()?;
        let mask = (1u64 << self.width) - 1;
        Some((u64::from_le_bytes(*eight) >> (bit % 8) & mask) as usize)
    }

    /// Bytes that they take.
    pub(super) fn weight(&self) -> usize {
        self.packed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs as the format has them (Parquet, encodings, RLE and bit-packing hybrid): of equal values, or packed by eights.
    fn encoded(width: u32, runs: &[(u32, usize)]) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut values) = (vec![width as u8], Vec::new());
        for (number, (value, run)) in runs.iter().enumerate() {
            if number % 2 == 0 {
                bytes.push((*run as u8) << 1);
                bytes.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
                values.extend(std::iter::repeat_n(*value as usize, *run));
                continue;
            }
            // Eight values that count up, within the width.
            let mask = (1u64 << width) - 1;
            let eight: Vec<u64> = (0..8).map(|n| u64::from(*value).wrapping_add(n) & mask).collect();
            bytes.push(1 << 1 | 1);
            let mut bits = vec![0u8; width as usize];
            for bit in 0..8 * width as usize {
                let is_set = eight[bit / width as usize] >> (bit % width as usize) & 1;
                bits[bit / 8] |= (is_set as u8) << (bit % 8);
            }
            bytes.extend_from_slice(&bits);
            values.extend(eight.iter().map(|value| *value as usize));
        }
        (bytes, values)
    }

    #[test]
    fn indexes_of_any_width_are_what_the_runs_say() {
        for width in 0..=32 {
            let most = ((1u64 << width) - 1) as u32;
            let runs = [(most, 3), (most / 3, 8), (most / 2, 13), (most, 8), (0, 1)];
            let (bytes, values) = encoded(width, &runs);
            let indexes = Indexes::decode(&bytes, values.len()).unwrap();
            let got: Vec<Option<usize>> = (0..values.len()).map(|number| indexes.get(number)).collect();
            assert_eq!(
                got,
                values.iter().copied().map(Some).collect::<Vec<_>>(),
                "{width}"
            );
            assert_eq!(indexes.get(values.len()), None);
            assert!(indexes.weight() <= values.len() * width as usize / 8 + 9);
            // One more than there are.
            assert!(Indexes::decode(&bytes, values.len() + 1).is_none());
        }
        assert!(Indexes::decode(&[33, 2, 0, 0, 0, 0, 0], 1).is_none());
        assert!(Indexes::decode(&[], 1).is_none());
        assert_eq!(Indexes::decode(&[], 0).unwrap().get(0), None);
    }
}
