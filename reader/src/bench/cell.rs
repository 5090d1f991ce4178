//! [`Cell`]: one condition, measured in rounds in which every side does the same, in turn.
//!
//! Owns the order (each round begins with the next side, so that no side always comes after the same other) and the
//! rule that all sides of a round must have read the same bytes. Called by the measurements; read by the report.

use serde::Serialize;

use super::error::{BenchError, Result};
use super::pread::Run;
use super::statistics::{self, Estimate};

/// One condition.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// What is measured, such as `warm`.
    pub condition: String,
    /// Bytes of a read; 0 where it is no matter of size.
    pub size_bytes: usize,
    /// Reads under way at once.
    pub threads: usize,
    /// The sides; the first is what the others are held against.
    pub sides: Vec<SideSummary>,
    /// The raw samples: in each round one run for each side, in the order of `sides`.
    pub rounds: Vec<Vec<Run>>,
    /// What else was counted, or kept the cell from being judged.
    pub notes: Vec<String>,
}

/// All runs of one side.
#[derive(Debug, Clone, Serialize)]
pub struct SideSummary {
    /// Its name.
    pub name: String,
    /// Median of operations a second.
    pub median_per_second: f64,
    /// The slowest and the fastest run.
    pub spread_per_second: [f64; 2],
    /// Standard deviation over mean.
    pub cv: f64,
    /// Median over the runs of their median latency, in microseconds.
    pub p50_us: f64,
    /// Median over the runs of their 99th percentile.
    pub p99_us: f64,
    /// The longest of all.
    pub max_us: f64,
    /// Failed reads and wrong bytes of all runs.
    pub errors: u64,
    /// Against the first side, in pairs of one round; the first side has none.
    pub ratio: Option<Estimate>,
}

/// How one side does its part of a round.
pub(super) type Act<'a> = Box<dyn FnMut(&[u64]) -> Result<Run> + 'a>;

/// A name, and how it is done.
pub(super) struct Side<'a> {
    pub(super) name: String,
    pub(super) act: Act<'a>,
}

impl<'a> Side<'a> {
    pub(super) fn new(name: impl Into<String>, act: impl FnMut(&[u64]) -> Result<Run> + 'a) -> Side<'a> {
        Side {
            name: name.into(),
            act: Box::new(act),
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub(super) name: &'static str,
    pub(super) size_bytes: usize,
    pub(super) threads: usize,
}

impl Condition {
    /// Runs every side once for each element of `rounds`, the offsets of that round.
    pub(super) fn measure(self, mut sides: Vec<Side<'_>>, rounds: &[Vec<u64>], seed: u64) -> Result<Cell> {
        let count = sides.len();
        let mut all = Vec::with_capacity(rounds.len());
        for (number, offsets) in rounds.iter().enumerate() {
            let mut runs: Vec<Option<Run>> = vec![None; count];
            for turn in 0..count {
                let which = (number + turn) % count;
                runs[which] = Some((sides[which].act)(offsets)?);
            }
            let mut runs: Vec<Run> = runs.into_iter().flatten().collect();
            compare(&mut runs);
            all.push(runs);
        }
        let names = sides.into_iter().map(|side| side.name).collect();
        self.summarise(names, all, seed)
    }

    fn summarise(self, names: Vec<String>, rounds: Vec<Vec<Run>>, seed: u64) -> Result<Cell> {
        let rates = |side: usize| -> Vec<f64> { rounds.iter().map(|runs| runs[side].rate()).collect() };
        let base = rates(0);
        let mut sides = Vec::new();
        for (side, name) in names.into_iter().enumerate() {
            let own = rates(side);
            let of =
                |pick: fn(&Run) -> f64| -> Vec<f64> { rounds.iter().map(|runs| pick(&runs[side])).collect() };
            let none = || {
                BenchError::Invalid(format!(
                    "{}: no round was measured; ask for one pair or more",
                    self.name
                ))
            };
            sides.push(SideSummary {
                name,
                median_per_second: statistics::median(&own).ok_or_else(none)?,
                spread_per_second: statistics::spread(&own).ok_or_else(none)?,
                cv: statistics::coefficient_of_variation(&own).ok_or_else(none)?,
                p50_us: statistics::median(&of(|run| run.p50_us)).ok_or_else(none)?,
                p99_us: statistics::median(&of(|run| run.p99_us)).ok_or_else(none)?,
                max_us: of(|run| run.max_us).into_iter().fold(0.0, f64::max),
                errors: rounds.iter().map(|runs| runs[side].errors).sum(),
                ratio: (side > 0).then(|| statistics::ratio(&own, &base, seed)).flatten(),
            });
        }
        Ok(Cell {
            condition: self.name.to_owned(),
            size_bytes: self.size_bytes,
            threads: self.threads,
            sides,
            rounds,
            notes: Vec::new(),
        })
    }
}

/// Whoever has read other bytes than the first side has read wrongly.
fn compare(runs: &mut [Run]) {
    let Some((first, others)) = runs.split_first_mut() else {
        return;
    };
    for run in others
        .iter_mut()
        .filter(|run| run.errors == 0 && first.errors == 0)
    {
        if (run.checksum, run.bytes) != (first.checksum, first.bytes) {
            run.errors = 1;
        }
    }
}

impl Cell {
    /// The place of a side.
    pub(super) fn side(&self, name: &str) -> Option<usize> {
        self.sides.iter().position(|side| side.name == name)
    }

    /// One side against another, with the sum of their errors.
    pub(super) fn ratio(&self, ours: &str, base: &str, seed: u64) -> Option<(Estimate, u64)> {
        let (ours, base) = (self.side(ours)?, self.side(base)?);
        let rates = |side: usize| -> Vec<f64> { self.rounds.iter().map(|runs| runs[side].rate()).collect() };
        let estimate = statistics::ratio(&rates(ours), &rates(base), seed)?;
        Some((estimate, self.sides[ours].errors + self.sides[base].errors))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn run(seconds: f64, checksum: u64) -> Run {
        Run {
            seconds,
            operations: 1,
            checksum,
            ..Run::default()
        }
    }

    const CONDITION: Condition = Condition {
        name: "test",
        size_bytes: 1,
        threads: 1,
    };

    #[test]
    fn rounds_begin_with_each_side_in_turn_and_ratios_are_of_one_round() {
        let order = RefCell::new(Vec::new());
        // The machine becomes ten times slower; the ratio of a round stays.
        let side = |name: &'static str, factor: f64| {
            let order = &order;
            Side::new(name, move |offsets| {
                order.borrow_mut().push(name);
                Ok(run(factor * offsets[0] as f64, 0))
            })
        };
        let cell = CONDITION
            .measure(
                vec![side("a", 1.0), side("b", 2.0)],
                &[vec![1], vec![10], vec![100]],
                1,
            )
            .unwrap();
        assert_eq!(*order.borrow(), ["a", "b", "b", "a", "a", "b"]);
        let ratio = cell.sides[1].ratio.unwrap();
        assert_eq!((ratio.figure, ratio.interval, ratio.pairs), (0.5, [0.5, 0.5], 3));
        assert_eq!(cell.ratio("a", "b", 1).unwrap().0.figure, 2.0);
        assert!(cell.ratio("a", "c", 1).is_none() && cell.sides[0].ratio.is_none());
        assert_eq!(cell.sides[0].spread_per_second, [0.01, 1.0]);
    }

    #[test]
    fn other_bytes_are_an_error() {
        let sides = vec![
            Side::new("a", |_| Ok(run(1.0, 7))),
            Side::new("b", |_| Ok(run(1.0, 8))),
        ];
        let cell = CONDITION.measure(sides, &[vec![], vec![]], 1).unwrap();
        assert_eq!((cell.sides[0].errors, cell.sides[1].errors), (0, 2));
        assert!(
            CONDITION
                .measure(vec![Side::new("a", |_| Ok(run(1.0, 7)))], &[], 1)
                .is_err()
        );
    }
}
