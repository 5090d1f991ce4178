//! Memory of a daemon after many random reads of a file that does not fit its budget. Reads bypass the kernel's memory,
//! so that the daemon answers each of them.

use super::super::error::Result;
use super::super::pread::{self, Reads};
use super::super::program;
use super::super::statistics::Estimate;
use super::super::target::Outcome;
use super::{COLD_FILE, Session};

const WHAT: &str = "memory above the budget";
/// What was agreed, and what a quick run does of it.
const READS: usize = 300_000;
const READS_QUICK: usize = 30_000;
const READ_BYTES: usize = 4096;
const THREADS: usize = 8;

impl Session<'_> {
    pub(super) fn memory(&mut self) -> Result<()> {
        let Some(len) = self.local_len(COLD_FILE) else {
            self.findings.skip(WHAT, self.no_file(COLD_FILE));
            return Ok(());
        };
        let Some(mount) = self.options.memory.clone() else {
            self.findings.skip(WHAT, "no --memory-mount was given");
            return Ok(());
        };
        let stats = self.stats(&mount)?;
        let known = stats
            .as_ref()
            .and_then(|stats| stats.pid().zip(stats.budget_bytes()));
        let Some((pid, budget)) = known else {
            self.findings.skip(
                WHAT,
                "no --lookupfs program was given, or it tells neither pid nor memory",
            );
            return Ok(());
        };
        let count = if self.options.quick { READS_QUICK } else { READS };
        let pages = (len / READ_BYTES as u64).max(1);
        let offsets: Vec<u64> = (0..count)
            .map(|_| self.random.below(pages) * READ_BYTES as u64)
            .collect();
        let reads = Reads {
            file: COLD_FILE,
            size_bytes: READ_BYTES,
            threads: THREADS,
            offsets: &offsets,
            timed_each: 1,
            direct: true,
        };
        let run = pread::read(&[mount], &reads)?;
        let (most, now) = program::resident_bytes(pid)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let above = Estimate::counted(mib(most) - mib(budget));
        let mut detail = format!(
            "most {:.0} MiB, now {:.0} MiB, budget {:.0} MiB, {count} reads over {:.0} MiB",
            mib(most),
            mib(now),
            mib(budget),
            mib(len)
        );
        if len < 2 * budget {
            detail.push_str(
                "; the file is shorter than twice the budget, so that the cache was not under pressure",
            );
        }
        self.findings.judge(WHAT, "", &above, run.errors, &detail)?;
        if (count < READS || len < 2 * budget)
            && let Some(verdict) = self.findings.verdicts.last_mut()
            && verdict.verdict == Outcome::Met
        {
            // Fewer reads than agreed can show that it is missed, never that it is met.
            verdict.verdict = Outcome::Undecided;
            verdict
                .detail
                .push_str(&format!("; {READS} reads under pressure were agreed"));
        }
        self.findings
            .count("daemon reads a second, O_DIRECT 4 KiB", run.rate(), "reads/s");
        self.findings
            .count("resident memory of the daemon, most", mib(most), "MiB");
        Ok(())
    }
}
