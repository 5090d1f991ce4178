//! [`read`]: many threads that `pread` one file through directories, and what that took.
//!
//! Owns the clock round the reads: threads stand at a barrier with their files open before it starts. Every byte asked
//! for must come, and the first and last word of each read enter a sum that all sides of a round must agree on.
//! Called by every measurement of random and sequential reads.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::error::{BenchError, Result};
use super::random::mix;

/// Bytes of a file that stay on one mount, whatever is read of them: a multiple of every read's size.
pub(super) const STRIPE_BYTES: u64 = 1 << 20;
/// The longest latency that is told apart, 60 s; longer ones count as that.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// What O_DIRECT asks of offsets and buffers.
const ALIGNMENT: usize = 4096;

/// What is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads<'a> {
    /// The file, below each directory.
    pub(super) file: &'a str,
    pub(super) size_bytes: usize,
    pub(super) threads: usize,
    pub(super) offsets: &'a [u64],
    /// Each how many reads one is timed: the clock costs a twentieth of a warm read of 4 KiB.
    pub(super) timed_each: usize,
    /// With O_DIRECT, so that the kernel keeps nothing.
    pub(super) direct: bool,
}

/// What one side of a round did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Run {
    /// From the first read's begin to the last one's end.
    pub seconds: f64,
    /// Reads, or whatever is counted.
    pub operations: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Reads that failed, or that brought other bytes than the first side of the round.
    pub errors: u64,
    /// Sum over what came; equal on all sides.
    pub checksum: u64,
    /// Latencies of the timed reads, in microseconds; 0 where none were timed.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub max_us: f64,
}

impl Run {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    pub(super) fn with_latencies(mut self, latencies_ns: &Histogram<u64>) -> Run {
        let us = |ns: u64| ns as f64 / 1e3;
        if !latencies_ns.is_empty() {
            self.p50_us = us(latencies_ns.value_at_quantile(0.5));
            self.p99_us = us(latencies_ns.value_at_quantile(0.99));
            self.max_us = us(latencies_ns.max());
        }
        self
    }
}

/// An empty histogram of nanoseconds.
pub(super) fn latencies() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|error| BenchError::Invalid(error.to_string()))
}

/// The directory that a read at `offset` goes through: the same for all sizes of reads, so that each kernel page is
/// held by one mount and not by all of them.
pub(super) fn directory_of(offset: u64, directories: usize) -> usize {
    (mix(offset / STRIPE_BYTES) % directories.max(1) as u64) as usize
}

/// What a read adds to the sum.
pub(super) fn check(bytes: &[u8]) -> u64 {
    let word = |at: &[u8]| at.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    word(bytes).wrapping_add(word(&bytes[bytes.len().saturating_sub(8)..]))
}

struct Part {
    began: Instant,
    ended: Instant,
    latencies: Histogram<u64>,
    run: Run,
}

/// Reads all offsets, each once, through the directories that they belong to.
pub(super) fn read(directories: &[PathBuf], reads: &Reads<'_>) -> Result<Run> {
    let share = reads.offsets.len().div_ceil(reads.threads).max(1);
    let shares: Vec<&[u64]> = reads.offsets.chunks(share).collect();
    let barrier = Barrier::new(shares.len());
    let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
        let spawn = |offsets| {
            let barrier = &barrier;
            scope.spawn(move || read_share(directories, reads, offsets, barrier))
        };
        let threads: Vec<_> = shares.into_iter().map(spawn).collect();
        let died = |_| Err(BenchError::Invalid("a reading thread panicked".into()));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(died))
            .collect()
    });
    let mut all = latencies()?;
    let mut sum = Run::default();
    let mut span: Option<(Instant, Instant)> = None;
    for part in parts {
        let part = part?;
        sum.operations += part.run.operations;
        sum.bytes += part.run.bytes;
        sum.errors += part.run.errors;
        sum.checksum = sum.checksum.wrapping_add(part.run.checksum);
        all += part.latencies;
        let (began, ended) = span.unwrap_or((part.began, part.ended));
        span = Some((began.min(part.began), ended.max(part.ended)));
    }
    if let Some((began, ended)) = span {
        sum.seconds = (ended - began).as_secs_f64();
    }
    Ok(sum.with_latencies(&all))
}

fn open(directory: &Path, reads: &Reads<'_>) -> Result<File> {
    let path = directory.join(reads.file);
    let flags = if reads.direct { libc::O_DIRECT } else { 0 };
    let file = File::options().read(true).custom_flags(flags).open(&path);
    file.map_err(|error| BenchError::file(&path, error))
}

fn read_share(
    directories: &[PathBuf],
    reads: &Reads<'_>,
    offsets: &[u64],
    barrier: &Barrier,
) -> Result<Part> {
    let files: Result<Vec<File>> = directories
        .iter()
        .map(|directory| open(directory, reads))
        .collect();
    let mut memory = vec![0u8; reads.size_bytes + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[start..start + reads.size_bytes];
    let mut latencies = latencies();
    // Whoever fails stands at the barrier all the same: the others wait for it.
    barrier.wait();
    let (files, latencies_ns) = (files?, latencies.as_mut());
    let mut latencies_ns = latencies_ns
        .map_err(|error| BenchError::Invalid(error.to_string()))?
        .clone();
    let mut run = Run::default();
    let began = Instant::now();
    for (number, offset) in offsets.iter().enumerate() {
        let file = &files[directory_of(*offset, files.len())];
        let timed = number.is_multiple_of(reads.timed_each).then(Instant::now);
        match file.read_exact_at(buffer, *offset) {
            Ok(()) => {
                run.bytes += buffer.len() as u64;
                run.checksum = run.checksum.wrapping_add(check(buffer));
            }
            Err(_) => run.errors += 1,
        }
        if let Some(timed) = timed {
            latencies_ns.saturating_record(nanoseconds(timed.elapsed()));
        }
    }
    run.operations = offsets.len() as u64;
    Ok(Part {
        began,
        ended: Instant::now(),
        latencies: latencies_ns,
        run,
    })
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads a file from its begin to its end, as `cat` does.
pub(super) fn read_through(path: &Path) -> Result<Run> {
    use std::io::Read;
    let failed = |error| BenchError::file(path, error);
    let mut buffer = vec![0u8; 1 << 20];
    let mut run = Run {
        operations: 1,
        ..Run::default()
    };
    let began = Instant::now();
    let mut file = File::open(path).map_err(failed)?;
    loop {
        let read = file.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            break;
        }
        run.bytes += read as u64;
        run.checksum = run.checksum.wrapping_add(sum_of(&buffer[..read]));
    }
    run.seconds = began.elapsed().as_secs_f64();
    Ok(run)
}

/// The sum of bytes: the same however they come in pieces.
pub(super) fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(offsets: &[u64]) -> Reads<'_> {
        Reads {
            file: "f",
            size_bytes: 4096,
            threads: 3,
            offsets,
            timed_each: 2,
            direct: false,
        }
    }

    #[test]
    fn every_offset_is_read_once_and_the_sum_is_that_of_the_bytes() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let bytes: Vec<u8> = (0..4u64 << 20).map(|i| mix(i) as u8).collect();
        let roots: Vec<PathBuf> = directories
            .iter()
            .map(|directory| directory.path().to_owned())
            .collect();
        roots
            .iter()
            .for_each(|root| std::fs::write(root.join("f"), &bytes).unwrap());
        let offsets: Vec<u64> = (0..1000).map(|i| i * 4096).collect();
        let run = read(&roots, &reads(&offsets)).unwrap();
        assert_eq!((run.operations, run.bytes, run.errors), (1000, 4_096_000, 0));
        let naive = bytes[..4_096_000].chunks(4096).fold(0u64, |sum, page| {
            let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
            sum.wrapping_add(word(0)).wrapping_add(word(4088))
        });
        assert_eq!(run.checksum, naive);
        assert!(
            run.seconds > 0.0 && run.p50_us > 0.0 && run.p50_us <= run.p99_us && run.p99_us <= run.max_us
        );
        // Past the end: an error each, no panic and no short read that counts.
        let run = read(&roots, &reads(&[4 << 20, 0])).unwrap();
        assert_eq!((run.operations, run.bytes, run.errors), (2, 4096, 1));
        assert!(read(&["/no/such".into()], &reads(&[0, 4096])).is_err());
        let through = read_through(&roots[0].join("f")).unwrap();
        assert_eq!((through.bytes, through.checksum), (4 << 20, sum_of(&bytes)));
    }

    #[test]
    fn all_directories_are_used_and_a_stripe_stays_on_one() {
        let of = |offset| directory_of(offset, 16);
        let mut used = [false; 16];
        (0..200).for_each(|stripe| used[of(stripe * STRIPE_BYTES)] = true);
        assert_eq!(used, [true; 16]);
        assert_eq!(of(5 * STRIPE_BYTES), of(5 * STRIPE_BYTES + STRIPE_BYTES - 4096));
    }
}
