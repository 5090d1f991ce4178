//! Medians, spread and the bootstrap interval of a ratio.
//!
//! Owns what a sample is turned into. Refuses to give a figure for no sample. Pure; called where a cell is judged and
//! where it is printed.

use serde::Serialize;

use super::random::Random;

/// Resamples of the bootstrap; the interval's ends move by less than a part in a hundred from seed to seed.
const RESAMPLES: usize = 10_000;
/// What is cut off at each end: the interval holds 95 of 100.
const TAIL: f64 = 0.025;

/// A figure and the range in which it lies, as far as the sample can tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The median of the pairs' ratios, or a count.
    pub figure: f64,
    /// Both ends of the 95 % interval; both are the figure where it is a count.
    pub interval: [f64; 2],
    /// How many pairs it comes from; 1 for a count.
    pub pairs: usize,
}

impl Estimate {
    /// A number that was counted and not sampled.
    pub fn counted(figure: f64) -> Estimate {
        Estimate {
            figure,
            interval: [figure, figure],
            pairs: 1,
        }
    }

    /// A number that was counted more than once: the middle one, and the least and the greatest.
    pub(super) fn spread(counts: &[f64]) -> Estimate {
        let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = counts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Estimate {
            figure: median(counts).unwrap_or(f64::NAN),
            interval: [least, greatest],
            pairs: counts.len(),
        }
    }
}

/// The middle of a sample, or half the sum of the two in the middle.
pub(super) fn median(sample: &[f64]) -> Option<f64> {
    let mut sorted = sample.to_vec();
    median_of(&mut sorted)
}

fn median_of(sample: &mut [f64]) -> Option<f64> {
    sample.sort_unstable_by(f64::total_cmp);
    let middle = sample.len() / 2;
    let upper = *sample.get(middle)?;
    if sample.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sample.get(middle.checked_sub(1)?)? + upper) / 2.0)
}

/// Standard deviation over mean, of the sample (n - 1); 0 for a single value.
pub(super) fn coefficient_of_variation(sample: &[f64]) -> Option<f64> {
    let count = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / count;
    match sample.len() {
        0 => None,
        1 => Some(0.0),
        _ => {
            let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
            Some((squares / (count - 1.0)).sqrt() / mean)
        }
    }
}

/// The smallest and the largest value.
pub(super) fn spread(sample: &[f64]) -> Option<[f64; 2]> {
    let low = sample.iter().copied().min_by(f64::total_cmp)?;
    let high = sample.iter().copied().max_by(f64::total_cmp)?;
    Some([low, high])
}

/// The median of the pairs' ratios `ours[i] / base[i]`, with its percentile bootstrap interval. The pairs are what is
/// drawn anew, never one side of them alone: both sides of a pair have met the same moment of the machine.
pub(super) fn ratio(ours: &[f64], base: &[f64], seed: u64) -> Option<Estimate> {
    let ratios: Vec<f64> = ours.iter().zip(base).map(|(ours, base)| ours / base).collect();
    let figure = median(&ratios)?;
    let mut random = Random::new(seed);
    let mut drawn = vec![0.0; ratios.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for place in &mut drawn {
            *place = ratios[random.below(ratios.len() as u64) as usize];
        }
        medians.push(median_of(&mut drawn)?);
    }
    medians.sort_unstable_by(f64::total_cmp);
    let low = (TAIL * RESAMPLES as f64) as usize;
    Some(Estimate {
        figure,
        interval: [medians[low], medians[RESAMPLES - 1 - low]],
        pairs: ratios.len(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some([1.0, 3.0]));
        // 2, 4, 4, 4, 5, 5, 7, 9: mean 5, squares 32, sample deviation sqrt(32/7).
        let cv = coefficient_of_variation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert!((cv - (32.0f64 / 7.0).sqrt() / 5.0).abs() < 1e-12, "{cv}");
        assert_eq!(coefficient_of_variation(&[3.0]), Some(0.0));
        let same = ratio(&[6.0, 3.0], &[2.0, 1.0], 1).unwrap();
        assert_eq!((same.figure, same.interval, same.pairs), (3.0, [3.0, 3.0], 2));
        assert_eq!(ratio(&[], &[], 1), None);
    }

    /// The exact distribution of the bootstrap's median, without drawing: of n values in order, the median of an odd
    /// n is at most the k-th if at least (n + 1) / 2 of n draws are among the first k.
    fn exact_interval(sorted: &[f64]) -> [f64; 2] {
        let n = sorted.len();
        let at_most = |k: usize| -> f64 {
            let p = k as f64 / n as f64;
            (n / 2 + 1..=n)
                .map(|hits| {
                    let ways: f64 = (0..hits).map(|i| (n - i) as f64 / (i + 1) as f64).product();
                    ways * p.powi(hits as i32) * (1.0 - p).powi((n - hits) as i32)
                })
                .sum()
        };
        let quantile = |q: f64| sorted[(1..=n).find(|k| at_most(*k) > q).unwrap_or(n) - 1];
        [quantile(TAIL), quantile(1.0 - TAIL)]
    }

    #[test]
    fn the_interval_is_that_of_the_exact_distribution() {
        // Distances of 1: the drawn end may differ by one place at most, where the exact one lies close to a step.
        for n in [5, 7, 9, 15, 31] {
            let sorted: Vec<f64> = (1..=n).map(f64::from).collect();
            let exact = exact_interval(&sorted);
            let drawn = ratio(&sorted, &vec![1.0; sorted.len()], 42).unwrap().interval;
            for end in 0..2 {
                assert!(
                    (exact[end] - drawn[end]).abs() <= 1.0,
                    "n {n}: {exact:?}, {drawn:?}"
                );
            }
        }
        // Five pairs can tell no less than the whole range, fifteen more.
        assert_eq!(exact_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]), [1.0, 5.0]);
        let drawn = ratio(&[1.0, 2.0, 3.0, 4.0, 5.0], &[1.0; 5], 42).unwrap();
        assert_eq!(drawn.interval, [1.0, 5.0]);
    }

    proptest! {
        /// Against a naive median: the value that no more than half of the sample is below or above.
        #[test]
        fn a_median_has_half_of_the_sample_on_each_side(sample in prop::collection::vec(0.0f64..1e9, 1..40)) {
            let middle = median(&sample).unwrap();
            let below = sample.iter().filter(|value| **value < middle).count();
            let above = sample.iter().filter(|value| **value > middle).count();
            prop_assert!(below <= sample.len() / 2 && above <= sample.len() / 2);
        }

        /// The figure lies in its interval and the interval among the ratios, whatever the sample.
        #[test]
        fn an_interval_holds_its_figure(
            pairs in prop::collection::vec((0.1f64..10.0, 0.1f64..10.0), 1..20), seed: u64,
        ) {
            let (ours, base): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let estimate = ratio(&ours, &base, seed).unwrap();
            let ratios: Vec<f64> = ours.iter().zip(&base).map(|(ours, base)| ours / base).collect();
            let [low, high] = spread(&ratios).unwrap();
            let [from, to] = estimate.interval;
            prop_assert!(low <= from && from <= estimate.figure && estimate.figure <= to && to <= high);
        }
    }
}
