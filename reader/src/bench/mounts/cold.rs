//! Cold random reads: bytes that were never read before through these mounts, against the HDFS client alone.
//!
//! Neither the kernel nor the daemon can have them, since no range is used twice in a run and the daemon must be new.
//! Both sides of a pair read the same ranges, the client first in one round and last in the next, so that whatever the
//! DataNode gains from the first reader both gain. The daemon's own count of bytes tells whether it was cold indeed.

use std::path::PathBuf;

use super::super::cell::{Cell, Condition, Side};
use super::super::error::Result;
use super::super::places::Places;
use super::super::pread::{self, Reads};
use super::super::statistics::Estimate;
use super::{COLD_FILE, SIZES, Session, THREADS, mounts_text, size_text, threads_text};

const NATIVE: &str = "hdfs-native";
/// Reads of one run of each size in `SIZES`; at least one a thread.
const RUN_READS: [usize; 3] = [500, 100, 4];
const RUN_READS_QUICK: [usize; 3] = [200, 48, 4];
/// What has to come from the source, of the bytes that were asked for.
const COLD_SHARE: f64 = 0.95;

/// Mount points, and under which name they are judged.
struct Mounts<'a> {
    directories: &'a [PathBuf],
    name: String,
    amplification: &'static str,
    is_judged: bool,
}

impl Session<'_> {
    pub(super) fn cold(&mut self) -> Result<()> {
        let Some(len) = self.local_len(COLD_FILE) else {
            self.findings.skip("cold reads", self.no_file(COLD_FILE));
            return Ok(());
        };
        if self.native.is_none() {
            self.findings
                .skip("cold reads", "no --native program was given to compare with");
            return Ok(());
        }
        let mounts = &self.options.mounts;
        let counts = if mounts.len() > 1 {
            vec![1, mounts.len()]
        } else {
            vec![1]
        };
        let wanted: Vec<(usize, usize)> = SIZES
            .iter()
            .map(|size| {
                (
                    *size,
                    THREADS
                        .iter()
                        .map(|threads| self.reads_of(*size, *threads))
                        .sum::<usize>()
                        * counts.len()
                        * self.options.pairs,
                )
            })
            .collect();
        let mut places = Places::divide(len, &wanted, &mut self.random);
        let enough = wanted
            .iter()
            .map(|(size, reads)| places.left(*size) as f64 / *reads as f64)
            .fold(1.0, f64::min);
        for size_bytes in SIZES {
            for threads in THREADS {
                for count in &counts {
                    let mounts = Mounts {
                        directories: &mounts[..*count],
                        name: mounts_text(*count),
                        amplification: "cold 4 KiB, source bytes / bytes asked",
                        is_judged: true,
                    };
                    self.cold_cell(&mounts, &mut places, enough, size_bytes, threads)?;
                }
            }
        }
        self.exact(len)
    }

    /// The lookup profile: a daemon of its own, for which every range is new again.
    fn exact(&mut self, len: u64) -> Result<()> {
        let Some(exact) = self.options.exact.clone() else {
            let what = "cold 4 KiB, source bytes / bytes asked, lookup profile";
            self.findings.skip(what, "no --exact-mount was given");
            return Ok(());
        };
        let (size_bytes, threads) = (SIZES[0], THREADS[1]);
        let wanted = self.reads_of(size_bytes, threads) * self.options.pairs;
        let mut places = Places::divide(len, &[(size_bytes, wanted)], &mut self.random);
        let enough = (places.left(size_bytes) as f64 / wanted as f64).min(1.0);
        let mounts = Mounts {
            directories: &[exact],
            name: "lookup profile".to_owned(),
            amplification: "cold 4 KiB, source bytes / bytes asked, lookup profile",
            is_judged: false,
        };
        self.cold_cell(&mounts, &mut places, enough, size_bytes, threads)
    }

    fn reads_of(&self, size_bytes: usize, threads: usize) -> usize {
        let reads = if self.options.quick {
            RUN_READS_QUICK
        } else {
            RUN_READS
        };
        let which = SIZES.iter().position(|size| *size == size_bytes).unwrap_or(0);
        reads[which].max(threads)
    }

    fn cold_cell(
        &mut self,
        mounts: &Mounts<'_>,
        places: &mut Places,
        enough: f64,
        size_bytes: usize,
        threads: usize,
    ) -> Result<()> {
        let what = format!(
            "cold {}: {}, {}",
            size_text(size_bytes),
            mounts.name,
            threads_text(threads)
        );
        // A small file is shared out: fewer reads a run, but never fewer than threads.
        let count = ((self.reads_of(size_bytes, threads) as f64 * enough) as usize).max(threads);
        let rounds: Option<Vec<Vec<u64>>> = (0..self.options.pairs)
            .map(|_| places.take(size_bytes, count))
            .collect();
        let Some(rounds) = rounds else {
            let text = format!(
                "{COLD_FILE} has no {count} ranges left for each of {} pairs; make it longer",
                self.options.pairs
            );
            self.findings.skip(&what, text);
            return Ok(());
        };
        let before = self.asked(&mounts.directories[0])?;
        let Some(native) = self.native.as_mut() else {
            return Ok(());
        };
        let sides = vec![
            Side::new(NATIVE, |offsets| {
                native.reads(&reads(size_bytes, threads, offsets))
            }),
            Side::new(mounts.name.clone(), |offsets| {
                pread::read(mounts.directories, &reads(size_bytes, threads, offsets))
            }),
        ];
        let cell = Condition {
            name: "cold",
            size_bytes,
            threads,
        }
        .measure(sides, &rounds, self.options.seed)?;
        let asked_bytes = (rounds.len() * count * size_bytes) as f64;
        let after = self.asked(&mounts.directories[0])?;
        let source_bytes = before
            .zip(after)
            .map(|(before, after)| after.saturating_sub(before) as f64);
        self.judge_cold(mounts, cell, &what, source_bytes.map(|bytes| bytes / asked_bytes))
    }

    fn judge_cold(
        &mut self,
        mounts: &Mounts<'_>,
        mut cell: Cell,
        what: &str,
        amplification: Option<f64>,
    ) -> Result<()> {
        let case = format!("{}, {}", mounts.name, threads_text(cell.threads));
        let is_cold = amplification.is_none_or(|share| share >= COLD_SHARE);
        match amplification {
            Some(share) if is_cold => cell
                .notes
                .push(format!("{share:.2} bytes from the source for each byte asked")),
            Some(share) => {
                let text = format!(
                    "not cold: only {share:.2} of the bytes asked came from the source; use a new daemon"
                );
                self.findings.skip(what, text.clone());
                cell.notes.push(text);
            }
            None => cell
                .notes
                .push("no --lookupfs program to ask: that no cache had the bytes is not proven".into()),
        }
        if cell.size_bytes == SIZES[0] && is_cold {
            if mounts.is_judged {
                let pair = (&*mounts.name, NATIVE);
                self.findings.judge_pair(
                    "cold 4 KiB, mount / hdfs-native",
                    &case,
                    &cell,
                    pair,
                    self.options.seed,
                )?;
            }
            match amplification {
                Some(share) => {
                    let case = if mounts.is_judged { &*case } else { "" };
                    self.findings
                        .judge(mounts.amplification, case, &Estimate::counted(share), 0, "")?;
                }
                None => self.findings.skip(
                    &format!("{}: {case}", mounts.amplification),
                    "no --lookupfs program was given",
                ),
            }
        }
        self.findings.cells.push(cell);
        Ok(())
    }

    /// Bytes that the daemon behind a mount point has had from its sources.
    fn asked(&self, mount_point: &std::path::Path) -> Result<Option<u64>> {
        Ok(self
            .stats(mount_point)?
            .and_then(|stats| stats.asked())
            .map(|asked| asked.bytes))
    }
}

/// Reads of the cold file; each is timed.
fn reads(size_bytes: usize, threads: usize, offsets: &[u64]) -> Reads<'_> {
    Reads {
        file: COLD_FILE,
        size_bytes,
        threads,
        offsets,
        timed_each: 1,
        direct: false,
    }
}
