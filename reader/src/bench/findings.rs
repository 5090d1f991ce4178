//! [`Findings`]: what a run has found so far: cells, verdicts, and what could not be measured and why.
//!
//! Owns the names under which a verdict is shown. Refuses to leave a target out: what is not judged is skipped with a
//! reason. Called by the measurements; becomes the report.

use serde::Serialize;

use super::cell::Cell;
use super::error::{BenchError, Result};
use super::statistics::Estimate;
use super::target::{self, Outcome, Target};

/// A figure beside its target.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What, and in which case of it.
    pub name: String,
    /// The bound, as text.
    pub target: String,
    /// The bound's number.
    pub limit: f64,
    /// What was measured.
    pub figure: f64,
    /// Its 95 % interval; twice the figure for a count.
    pub interval: [f64; 2],
    /// What it says.
    pub verdict: Outcome,
    /// Pairs that it comes from.
    pub pairs: usize,
    /// The words of the agreement.
    pub source: &'static str,
    /// What a reader of the figure has to know.
    pub detail: String,
}

/// What could not be measured.
#[derive(Debug, Clone, Serialize)]
pub struct Skipped {
    /// What.
    pub name: String,
    /// Why, and what would mend it.
    pub reason: String,
}

/// A number that was counted and has no target.
#[derive(Debug, Clone, Serialize)]
pub struct Count {
    /// What.
    pub name: String,
    /// How many.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) cells: Vec<Cell>,
    pub(super) counts: Vec<Count>,
}

/// The target of this name.
pub(super) fn target_of(what: &str) -> Result<&'static Target> {
    target::target(what).ok_or_else(|| BenchError::Invalid(format!("there is no target '{what}'")))
}

impl Findings {
    /// Holds a figure against the target `what`. Errors make it missed, whatever the figure.
    pub(super) fn judge(
        &mut self,
        what: &str,
        case: &str,
        estimate: &Estimate,
        errors: u64,
        detail: &str,
    ) -> Result<()> {
        self.judge_by(target_of(what)?, case, estimate, errors, detail);
        Ok(())
    }

    /// The same by a target of this run's size.
    pub(super) fn judge_by(
        &mut self,
        target: &Target,
        case: &str,
        estimate: &Estimate,
        errors: u64,
        detail: &str,
    ) {
        let outcome = if errors > 0 {
            Outcome::Missed
        } else {
            target.judge(estimate)
        };
        let detail = match errors {
            0 => detail.to_owned(),
            _ => format!("{errors} reads failed or brought other bytes; {detail}"),
        };
        self.verdicts.push(Verdict {
            name: name(target.what, case),
            target: target.text(),
            limit: target.limit(),
            figure: estimate.figure,
            interval: estimate.interval,
            verdict: outcome,
            pairs: estimate.pairs,
            source: target.agreed,
            detail: detail.trim_end_matches("; ").to_owned(),
        });
    }

    /// One side of a cell against another.
    pub(super) fn judge_pair(
        &mut self,
        what: &str,
        case: &str,
        cell: &Cell,
        pair: (&str, &str),
        seed: u64,
    ) -> Result<()> {
        match cell.ratio(pair.0, pair.1, seed) {
            Some((estimate, errors)) => self.judge(what, case, &estimate, errors, &cell.notes.join("; ")),
            None => {
                self.skip(&name(what, case), "one of its sides was not measured");
                Ok(())
            }
        }
    }

    /// Says that something is not measured.
    pub(super) fn skip(&mut self, what: &str, reason: impl Into<String>) {
        self.skipped.push(Skipped {
            name: what.to_owned(),
            reason: reason.into(),
        });
    }

    /// A number beside the verdicts.
    pub(super) fn count(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.counts.push(Count {
            name: name.into(),
            value,
            unit,
        });
    }
}

fn name(what: &str, case: &str) -> String {
    match case {
        "" => what.to_owned(),
        case => format!("{what}: {case}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_can_come_out_missed_and_errors_never_pass() {
        let mut findings = Findings::default();
        let good = Estimate {
            figure: 0.9,
            interval: [0.85, 0.95],
            pairs: 15,
        };
        let bad = Estimate {
            figure: 0.5,
            interval: [0.4, 0.6],
            pairs: 15,
        };
        let what = "warm 4 KiB, mount / ext4";
        findings.judge(what, "1 mount", &good, 0, "").unwrap();
        findings.judge(what, "1 mount", &bad, 0, "").unwrap();
        findings.judge(what, "1 mount", &good, 3, "").unwrap();
        assert!(findings.judge("no such target", "", &good, 0, "").is_err());
        let outcomes: Vec<_> = findings.verdicts.iter().map(|verdict| verdict.verdict).collect();
        assert_eq!(outcomes, [Outcome::Met, Outcome::Missed, Outcome::Missed]);
        assert_eq!(findings.verdicts[0].name, "warm 4 KiB, mount / ext4: 1 mount");
        assert_eq!(
            findings.verdicts[2].detail,
            "3 reads failed or brought other bytes"
        );
    }
}
