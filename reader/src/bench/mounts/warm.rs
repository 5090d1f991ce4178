//! Warm reads: what is read has been read before through the same mount, and is in the kernel's memory on every side.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::cell::{Cell, Condition, Side};
use super::super::error::{BenchError, Result};
use super::super::pread::{self, Reads, STRIPE_BYTES};
use super::super::program::Opens;
use super::{SIZES, Session, THREADS, WARM_FILE, mounts_text, size_text, threads_text};

/// Bytes that one run reads, and the reads that it has at least and at most.
const RUN_BYTES: usize = 1 << 30;
const RUN_BYTES_QUICK: usize = 256 << 20;
const RUN_READS_MIN: usize = 64;
const RUN_READS_MAX: usize = 60_000;
const EXT4: &str = "ext4";
/// What the names of such sides begin with.
const PASSTHROUGH: &str = "passthrough, ";

/// How long the daemon may take to verify a file.
const PASSED_WAIT: Duration = Duration::from_secs(60);

/// One side: a name and its directories.
type Roots = (String, Vec<PathBuf>);

impl Session<'_> {
    pub(super) fn warm(&mut self) -> Result<()> {
        let Some(len) = self.local_len(WARM_FILE) else {
            self.findings.skip("warm reads", self.no_file(WARM_FILE));
            return Ok(());
        };
        let sides = self.warm_sides()?;
        for (_, directories) in &sides {
            touch(directories, len)?;
        }
        let before = self.kept_opens()?;
        for size_bytes in SIZES {
            for threads in THREADS {
                self.warm_cell(&sides, len, size_bytes, threads)?;
            }
        }
        if sides.iter().any(|(name, _)| name.starts_with(PASSTHROUGH)) {
            let kept = self.kept_opens()?.saturating_sub(before);
            self.findings.count(
                "opens of passthrough mounts that were not passed through",
                kept as f64,
                "opens",
            );
        }
        Ok(())
    }

    /// ext4 first: what the others are held against.
    fn warm_sides(&mut self) -> Result<Vec<Roots>> {
        let mut sides: Vec<Roots> = vec![(EXT4.to_owned(), vec![self.options.local.clone()])];
        let mut add = |prefix: &str, directories: &[PathBuf]| {
            sides.extend(
                directories
                    .first()
                    .map(|first| (format!("{prefix}1 mount"), vec![first.clone()])),
            );
            if directories.len() > 1 {
                sides.push((
                    format!("{prefix}{}", mounts_text(directories.len())),
                    directories.to_vec(),
                ));
            }
        };
        add("", &self.options.mounts);
        let passthrough = match self.passed_through()? {
            Ok(()) => self.options.passthrough.clone(),
            Err(reason) => {
                self.findings.skip("warm 4 KiB, passthrough / ext4", reason);
                Vec::new()
            }
        };
        add(PASSTHROUGH, &passthrough);
        if self.options.mounts.len() == 1 {
            self.findings
                .skip("warm reads through many mounts", "only one --mount was given");
        }
        Ok(sides)
    }

    /// Sees to it that the file is passed through on every mount that is to be, or says why it is not. It has to lie
    /// complete on the local disk, which one reading brings about, and be verified, which goes on in the background.
    fn passed_through(&self) -> Result<Result<(), String>> {
        let mounts = &self.options.passthrough;
        let Some(first) = mounts.first() else {
            return Ok(Err("no --passthrough-mount was given".into()));
        };
        if self.options.lookupfs.is_none() {
            return Ok(Err(
                "no --lookupfs program to ask whether files are passed through".into(),
            ));
        }
        pread::read_through(&first.join(WARM_FILE))?;
        for mount in mounts {
            let deadline = Instant::now() + PASSED_WAIT;
            let before = self.opens(mount)?;
            loop {
                let path = mount.join(WARM_FILE);
                // Whoever has it open the old way keeps it so: it is closed at once.
                drop(File::open(&path).map_err(|error| BenchError::file(&path, error))?);
                match (self.opens(mount)?, &before) {
                    (Some(now), Some(before)) if now.passed > before.passed => break,
                    (
                        Some(Opens {
                            refusal: Some(why), ..
                        }),
                        _,
                    ) => {
                        return Ok(Err(format!("{}: {why}", mount.display())));
                    }
                    (Some(_), Some(_)) if Instant::now() < deadline => {}
                    _ => {
                        let text =
                            "its daemon has passed no open through; is the file complete in its cache_dir?";
                        return Ok(Err(format!("{}: {text}", mount.display())));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    /// How the files of a mount were opened so far, by its daemon's words. Asking takes some milliseconds.
    fn opens(&self, mount: &Path) -> Result<Option<Opens>> {
        Ok(self.stats(mount)?.and_then(|stats| stats.opens(mount)))
    }

    /// Opens of the passthrough mounts that were served by the daemon.
    fn kept_opens(&self) -> Result<u64> {
        let mut kept = 0;
        for mount in &self.options.passthrough {
            kept += self.opens(mount)?.map_or(0, |opens| opens.kept);
        }
        Ok(kept)
    }

    fn warm_cell(&mut self, sides: &[Roots], len: u64, size_bytes: usize, threads: usize) -> Result<()> {
        let budget = if self.options.quick {
            RUN_BYTES_QUICK
        } else {
            RUN_BYTES
        };
        let count = (budget / size_bytes).clamp(RUN_READS_MIN, RUN_READS_MAX);
        let Some(places) = (len / size_bytes as u64)
            .checked_sub(1)
            .filter(|places| *places > 0)
        else {
            self.findings.skip(
                &format!("warm {}", size_text(size_bytes)),
                format!("{WARM_FILE} is shorter than two reads"),
            );
            return Ok(());
        };
        let rounds: Vec<Vec<u64>> = (0..self.options.pairs)
            .map(|_| {
                (0..count)
                    .map(|_| self.random.below(places) * size_bytes as u64)
                    .collect()
            })
            .collect();
        let read = |directories: &[PathBuf], offsets: &[u64]| {
            // Every read is timed where a read takes long; each eighth where the clock would show.
            let timed_each = if size_bytes > 4 << 10 { 1 } else { 8 };
            let reads = Reads {
                file: WARM_FILE,
                size_bytes,
                threads,
                offsets,
                timed_each,
                direct: false,
            };
            pread::read(directories, &reads)
        };
        let acts = sides.iter().map(|(name, directories)| {
            Side::new(name.clone(), move |offsets: &[u64]| read(directories, offsets))
        });
        let condition = Condition {
            name: "warm",
            size_bytes,
            threads,
        };
        let cell = condition.measure(acts.collect(), &rounds, self.options.seed)?;
        self.judge_warm(&cell)?;
        self.findings.cells.push(cell);
        Ok(())
    }

    /// Reads of 4 KiB have targets; the others are shown.
    fn judge_warm(&mut self, cell: &Cell) -> Result<()> {
        if cell.size_bytes != SIZES[0] {
            return Ok(());
        }
        let (threads, seed) = (threads_text(cell.threads), self.options.seed);
        for side in &cell.sides[1..] {
            let mounts = side.name.trim_start_matches(PASSTHROUGH);
            let what = if mounts.len() < side.name.len() {
                "warm 4 KiB, passthrough / ext4"
            } else {
                "warm 4 KiB, mount / ext4"
            };
            let case = format!("{mounts}, {threads}");
            self.findings
                .judge_pair(what, &case, cell, (&side.name, EXT4), seed)?;
        }
        if self.options.mounts.len() > 1 {
            let all = mounts_text(self.options.mounts.len());
            let (what, case) = ("warm 4 KiB, 1 mount / all mounts", format!("{all}, {threads}"));
            self.findings
                .judge_pair(what, &case, cell, ("1 mount", &all), seed)?;
        }
        Ok(())
    }
}

/// Brings each stripe of the file into the kernel's memory through the directory that its reads will go through.
fn touch(directories: &[PathBuf], len: u64) -> Result<()> {
    let size = STRIPE_BYTES.min(len);
    let mut offsets: Vec<u64> = (0..len / size).map(|stripe| stripe * size).collect();
    let rest = len.saturating_sub(size);
    if !len.is_multiple_of(size) {
        offsets.push(rest);
    }
    let reads = Reads {
        file: WARM_FILE,
        size_bytes: size as usize,
        threads: 4,
        offsets: &offsets,
        timed_each: 1,
        direct: false,
    };
    // Twice: what a full memory has dropped in the meantime shows in the runs' spread, not in the first of them.
    pread::read(directories, &reads)?;
    pread::read(directories, &reads).map(drop)
}
