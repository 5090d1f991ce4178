//! [`TARGETS`]: what mounts are to reach, and what a measured figure says of it.
//!
//! The one table of figures that a run is held against; each line carries the words it was agreed in. Owns the rule of
//! the verdict. Refuses to decide where the interval holds the target. Called by the measurements.

use serde::Serialize;

use super::statistics::Estimate;

/// On which side of a number a figure has to lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// The number or more.
    AtLeast(f64),
    /// The number or less.
    AtMost(f64),
}

/// What is to be reached.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// What is measured; the key of the table.
    pub what: &'static str,
    /// What is to be reached.
    pub bound: Bound,
    /// Unit of the figure; a ratio has none.
    pub unit: &'static str,
    /// The words of the agreement.
    pub agreed: &'static str,
}

const WARM: &str =
    "warm 4 KiB random reads through the mount: >= 0.8 x ext4; passthrough >= 0.9; 1 mount no slower than 16";
const COLD: &str = "cold 4 KiB random reads: >= 0.7 x hdfs-native alone at the same concurrency; source bytes / bytes asked <= 4 \
                    with defaults, <= 1.1 in the lookup profile";
const SEQUENTIAL: &str = "cold sequential: >= 0.8 x hdfs-native streaming; >= rclone mount";
const LISTING: &str = "`ls -l` of 10,000 files, cold: N/1000 requests at the source, rounded up; time within 3 x `ls -l` on ext4 + \
                       hdfs-native's own listing";
const REQUESTS: &str = "requests: warm lookup 0 NameNode, 0 DataNode; cold Parquet lookup <= 2 NameNode where the attributes are \
                        known (3 otherwise), <= 2 DataNode where a sibling's footer has been read";
const MEMORY: &str = "memory: RSS <= `memory` + 128 MiB after 300,000 random reads";

const fn line(what: &'static str, bound: Bound, unit: &'static str, agreed: &'static str) -> Target {
    Target {
        what,
        bound,
        unit,
        agreed,
    }
}

const POINT: &str = "W1, uncompressed, file opened per lookup, 16 mounts, C=64: >= 50 x the plain arrow-rs reader over the same mounts; \
                     handle kept: >= 100 x; P99 at C=2 <= 1/20";
const PEER: &str = "W1, against rclone mount (full cache) + arrow-rs, C=64: >= 1,000 x";
const POINT_LIMIT: &str =
    "W1, limit: >= 1/3 of the rate at which the same threads open, pread 1 KiB and close a local ext4 file";
const WIDE: &str = "42 columns, zstd + dictionary, warm, open included: one row a request >= 12,000/s a core; 1,024 rows a request >= \
                    200,000 rows/s a core; one row >= 100 x arrow-rs with cached metadata";

/// Every target of the workload `point`.
pub const POINT_TARGETS: &[Target] = &[
    line(
        "point, file opened / parquet crate",
        Bound::AtLeast(50.0),
        "",
        POINT,
    ),
    line(
        "point, table kept / parquet crate",
        Bound::AtLeast(100.0),
        "",
        POINT,
    ),
    line(
        "point, P99 of file opened / parquet crate",
        Bound::AtMost(0.05),
        "",
        POINT,
    ),
    line(
        "point, file opened / open, pread, close",
        Bound::AtLeast(0.3333),
        "",
        POINT_LIMIT,
    ),
    line("point, file opened / peer", Bound::AtLeast(1000.0), "", PEER),
    line(
        "42 columns, one row, file opened / parquet crate, metadata kept",
        Bound::AtLeast(100.0),
        "",
        WIDE,
    ),
    line(
        "42 columns, one row a request, file opened",
        Bound::AtLeast(12_000.0),
        "rows/s",
        WIDE,
    ),
    line(
        "42 columns, 1,024 rows a request, file opened",
        Bound::AtLeast(200_000.0),
        "rows/s",
        WIDE,
    ),
];

/// Every target of the workload `get-scan`.
pub const GET_SCAN_TARGETS: &[Target] = &[line(
    "get-scan, get / scan of one row",
    Bound::AtLeast(10.0),
    "",
    "W5: Get >= 10 x Scan (the published rates stand beside it, unjudged)",
)];

/// Every target of the workload `writer`.
pub const WRITER_TARGETS: &[Target] = &[line(
    "writer, size statistics / page-level write",
    Bound::AtMost(2.0),
    "%",
    "W4: size-statistics code <= 2 % of the instructions of a page-level write (callgrind); wall time reported",
)];

/// Every target of the workload `instructions`.
pub const INSTRUCTIONS_TARGETS: &[Target] = &[line(
    "instructions a lookup / recorded",
    Bound::AtMost(1.05),
    "",
    "instructions per warm lookup, narrow and wide: no more than a twentieth above what was recorded",
)];

/// Every target of the workload `mounts`.
pub const TARGETS: &[Target] = &[
    line("warm 4 KiB, mount / ext4", Bound::AtLeast(0.8), "", WARM),
    line("warm 4 KiB, passthrough / ext4", Bound::AtLeast(0.9), "", WARM),
    line("warm 4 KiB, 1 mount / all mounts", Bound::AtLeast(1.0), "", WARM),
    line("cold 4 KiB, mount / hdfs-native", Bound::AtLeast(0.7), "", COLD),
    line(
        "cold 4 KiB, source bytes / bytes asked",
        Bound::AtMost(4.0),
        "",
        COLD,
    ),
    line(
        "cold 4 KiB, source bytes / bytes asked, lookup profile",
        Bound::AtMost(1.1),
        "",
        COLD,
    ),
    line(
        "cold sequential, mount / hdfs-native",
        Bound::AtLeast(0.8),
        "",
        SEQUENTIAL,
    ),
    line(
        "cold sequential, mount / peer",
        Bound::AtLeast(1.0),
        "",
        SEQUENTIAL,
    ),
    // N = 10,000 by the agreement; a run with fewer files is held to its own N by `scaled`.
    line(
        "cold ls -l, listings at the source",
        Bound::AtMost(10.0),
        "requests",
        LISTING,
    ),
    line(
        "cold ls -l, mount / (ext4 + hdfs-native)",
        Bound::AtMost(3.0),
        "",
        LISTING,
    ),
    line("warm lookup, NameNode", Bound::AtMost(0.0), "requests", REQUESTS),
    line("warm lookup, DataNode", Bound::AtMost(0.0), "requests", REQUESTS),
    line(
        "cold lookup, attributes known, NameNode",
        Bound::AtMost(2.0),
        "requests",
        REQUESTS,
    ),
    line("cold lookup, NameNode", Bound::AtMost(3.0), "requests", REQUESTS),
    line(
        "cold lookup, sibling's footer read, DataNode",
        Bound::AtMost(2.0),
        "requests",
        REQUESTS,
    ),
    line("memory above the budget", Bound::AtMost(128.0), "MiB", MEMORY),
];

/// What a figure says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The whole interval is on the right side.
    Met,
    /// The whole interval is on the wrong side, or reads failed.
    Missed,
    /// The interval holds the target: more pairs, or a quieter machine.
    Undecided,
}

impl Outcome {
    /// The word that is printed.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            Outcome::Undecided => "undecided",
        }
    }
}

fn all_targets() -> impl Iterator<Item = &'static Target> {
    let lookups = POINT_TARGETS.iter().chain(GET_SCAN_TARGETS);
    let counted = WRITER_TARGETS.iter().chain(INSTRUCTIONS_TARGETS);
    TARGETS.iter().chain(lookups).chain(counted)
}

/// The target with this name; a test asks for every name that the measurements use.
pub(super) fn target(what: &str) -> Option<&'static Target> {
    all_targets().find(|target| target.what == what)
}

impl Target {
    /// The target for a run of another size.
    pub(super) fn scaled(&self, limit: f64) -> Target {
        let bound = match self.bound {
            Bound::AtLeast(_) => Bound::AtLeast(limit),
            Bound::AtMost(_) => Bound::AtMost(limit),
        };
        Target { bound, ..*self }
    }

    /// The bound as it is printed.
    pub fn text(&self) -> String {
        let (sign, limit) = match self.bound {
            Bound::AtLeast(limit) => (">=", limit),
            Bound::AtMost(limit) => ("<=", limit),
        };
        format!("{sign} {limit} {}", self.unit).trim_end().to_owned()
    }

    /// The number of the bound.
    pub fn limit(&self) -> f64 {
        match self.bound {
            Bound::AtLeast(limit) | Bound::AtMost(limit) => limit,
        }
    }

    /// What an estimate says.
    pub fn judge(&self, estimate: &Estimate) -> Outcome {
        let [low, high] = estimate.interval;
        let (met, missed) = match self.bound {
            Bound::AtLeast(limit) => (low >= limit, high < limit),
            Bound::AtMost(limit) => (high <= limit, low > limit),
        };
        // An interval of NaN is on no side.
        match (met, missed) {
            (true, _) => Outcome::Met,
            (_, true) => Outcome::Missed,
            _ => Outcome::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(bound: Bound, interval: [f64; 2]) -> Outcome {
        let estimate = Estimate {
            figure: interval[0],
            interval,
            pairs: 15,
        };
        line("", bound, "", "").judge(&estimate)
    }

    #[test]
    fn a_verdict_is_met_missed_or_undecided() {
        use Outcome::{Met, Missed, Undecided};
        for (interval, at_least, at_most) in [
            ([0.8, 0.9], Met, Undecided),
            ([0.81, 0.9], Met, Missed),
            ([0.7, 0.9], Undecided, Undecided),
            ([0.7, 0.8], Undecided, Met),
            ([0.7, 0.79], Missed, Met),
            ([0.8, 0.8], Met, Met),
            ([f64::NAN, f64::NAN], Undecided, Undecided),
        ] {
            assert_eq!(outcome(Bound::AtLeast(0.8), interval), at_least, "{interval:?}");
            assert_eq!(outcome(Bound::AtMost(0.8), interval), at_most, "{interval:?}");
        }
    }

    #[test]
    fn every_target_can_be_missed() {
        for target in all_targets() {
            let wrong = match target.bound {
                Bound::AtLeast(limit) => limit * 0.99 - 0.01,
                Bound::AtMost(limit) => limit * 1.01 + 1.0,
            };
            assert_eq!(
                target.judge(&Estimate::counted(wrong)),
                Outcome::Missed,
                "{}",
                target.what
            );
            assert_eq!(
                target.judge(&Estimate::counted(target.limit())),
                Outcome::Met,
                "{}",
                target.what
            );
        }
    }

    #[test]
    fn names_are_unique_and_a_run_of_another_size_has_its_own_limit() {
        for target in all_targets() {
            assert_eq!(
                all_targets().filter(|other| other.what == target.what).count(),
                1,
                "{}",
                target.what
            );
        }
        let listings = target("cold ls -l, listings at the source").unwrap();
        assert_eq!(listings.text(), "<= 10 requests");
        assert_eq!(listings.scaled(2.0).text(), "<= 2 requests");
    }
}
