//! [`Places`]: offsets of one file of which none is ever given twice, so that each read is the first of its bytes.
//!
//! Owns how a file is divided between sizes of reads, and the gaps that keep one read's read-ahead out of the next
//! place. Refuses to give a place again: `None` says that the file is used up. Called by the cold measurements.

use super::random::Random;

/// A read size and its place in the file. Places of small reads are far enough apart that no two share a cache page of
/// the daemon's default size. After larger ones a gap follows: where a neighbour was read before, the kernel takes two
/// reads for a sequence, and a read of 1 MiB reaches the daemon as one, which reads up to as much ahead.
const STRIDES: [(usize, u64); 3] = [(4 << 10, 16 << 10), (64 << 10, 128 << 10), (1 << 20, 2 << 20)];

/// Unused offsets by read size.
#[derive(Debug)]
pub(super) struct Places(Vec<(usize, Vec<u64>)>);

impl Places {
    /// Divides a file of `len` bytes in proportion to what is going to be asked for: `(read size, reads)`.
    pub(super) fn divide(len: u64, wanted: &[(usize, usize)], random: &mut Random) -> Places {
        let bytes_of = |(size, reads): &(usize, usize)| stride(*size) * *reads as u64;
        let total: u64 = wanted.iter().map(bytes_of).sum();
        let mut start = 0;
        let mut unused = Vec::new();
        for want in wanted {
            let share = u128::from(len) * u128::from(bytes_of(want)) / u128::from(total.max(1));
            let places = (share as u64).min(bytes_of(want)) / stride(want.0);
            let mut offsets: Vec<u64> = (0..places).map(|place| start + place * stride(want.0)).collect();
            random.shuffle(&mut offsets);
            start += places * stride(want.0);
            // The next region begins where the next size is aligned.
            start = start.next_multiple_of(128 << 10);
            offsets.retain(|offset| offset + want.0 as u64 <= len);
            unused.push((want.0, offsets));
        }
        Places(unused)
    }

    /// How many places are left for reads of this size.
    pub(super) fn left(&self, size_bytes: usize) -> usize {
        self.0
            .iter()
            .find(|(size, _)| *size == size_bytes)
            .map_or(0, |(_, offsets)| offsets.len())
    }

    /// `count` places, in random order.
    pub(super) fn take(&mut self, size_bytes: usize, count: usize) -> Option<Vec<u64>> {
        let (_, offsets) = self.0.iter_mut().find(|(size, _)| *size == size_bytes)?;
        let rest = offsets.len().checked_sub(count)?;
        Some(offsets.split_off(rest))
    }
}

fn stride(size_bytes: usize) -> u64 {
    let known = STRIDES.iter().find(|(size, _)| *size == size_bytes);
    known.map_or(size_bytes as u64, |(_, stride)| *stride)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is taken lies in the file, was never taken before, and shares no stride with anything else.
        #[test]
        fn no_place_is_given_twice(
            len in 0u64..1 << 28, wants in prop::collection::vec(0usize..300, 3), takes in prop::collection::vec(0usize..40, 1..40), seed: u64,
        ) {
            let wanted: Vec<(usize, usize)> = STRIDES.iter().zip(wants).map(|((size, _), reads)| (*size, reads)).collect();
            let mut places = Places::divide(len, &wanted, &mut Random::new(seed));
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (turn, count) in takes.into_iter().enumerate() {
                let (size, stride) = STRIDES[turn % 3];
                let left = places.left(size);
                match places.take(size, count) {
                    Some(offsets) => {
                        prop_assert_eq!(offsets.len(), count);
                        prop_assert!(offsets.iter().all(|offset| offset + size as u64 <= len && offset % 4096 == 0));
                        taken.extend(offsets.into_iter().map(|offset| (offset, stride)));
                    }
                    None => prop_assert!(left < count),
                }
            }
            taken.sort_unstable();
            prop_assert!(taken.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
        }
    }

    #[test]
    fn a_large_file_gives_all_that_is_wanted_and_a_small_one_its_share() {
        let wanted = [(4 << 10, 1000), (64 << 10, 100), (1 << 20, 10)];
        let places = Places::divide(1 << 30, &wanted, &mut Random::new(1));
        assert_eq!(wanted.map(|(size, _)| places.left(size)), [1000, 100, 10]);
        let places = Places::divide(10 << 20, &wanted, &mut Random::new(1));
        let left = wanted.map(|(size, _)| places.left(size));
        assert!(
            left[0] > 100 && left[0] < 1000 && left[1] > 10 && left[2] >= 1,
            "{left:?}"
        );
    }
}
