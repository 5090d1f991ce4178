//! Lookups from many threads, closed-loop: each thread sends its next request when it has the rows of the last.
//!
//! Owns the clock round them: threads stand at a barrier before it starts. Every request's rows enter a sum that all sides of a
//! round must agree on. Called by every measurement of lookups.

use std::sync::Barrier;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::error::{BenchError, Result};
use super::pread::{self, Run};

/// How a side is driven.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) threads: usize,
    /// Row ids of one request.
    pub(super) rows_a_request: usize,
    /// How often a side does the same requests, so that a fast one runs long enough to be timed.
    pub(super) repeats: usize,
}

/// Where a thread is in its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Which of the threads, from 0 on.
    pub(super) thread: usize,
    /// How often it has done all of its requests before. Only the rows of the first time are compared between sides.
    pub(super) repeat: usize,
}

/// Looks the rows of a request up, and gives the sum of what came.
pub(super) type LookUp<'a> = &'a (dyn Fn(Turn, &[u64]) -> Result<u64> + Sync);

struct Part {
    began: Instant,
    ended: Instant,
    latencies: Histogram<u64>,
    run: Run,
}

/// Sends the rows in requests.
pub(super) fn drive(load: Load, rows: &[u64], look_up: LookUp<'_>) -> Result<Run> {
    let requests: Vec<&[u64]> = rows.chunks(load.rows_a_request.max(1)).collect();
    let shares: Vec<&[&[u64]]> = requests
        .chunks(requests.len().div_ceil(load.threads).max(1))
        .collect();
    let barrier = Barrier::new(shares.len());
    let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .into_iter()
            .enumerate()
            .map(|(thread, share)| {
                let barrier = &barrier;
                scope.spawn(move || run_share(load, (thread, share), look_up, barrier))
            })
            .collect();
        let died = |_| Err(BenchError::Invalid("a thread of lookups panicked".into()));
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(died))
            .collect()
    });
    let mut all = pread::latencies()?;
    let mut sum = Run::default();
    let mut span: Option<(Instant, Instant)> = None;
    for part in parts {
        let part = part?;
        sum.operations += part.run.operations;
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

fn run_share(
    load: Load,
    (thread, requests): (usize, &[&[u64]]),
    look_up: LookUp<'_>,
    barrier: &Barrier,
) -> Result<Part> {
    let latencies = pread::latencies();
    // Whoever fails stands at the barrier all the same: the others wait for it.
    barrier.wait();
    let mut latencies = latencies?;
    let mut run = Run::default();
    let began = Instant::now();
    for repeat in 0..load.repeats.max(1) {
        for rows in requests {
            let sent = Instant::now();
            match look_up(Turn { thread, repeat }, rows) {
                // The same rows again must sum up to the same; only once do they count for the comparison of sides.
                Ok(sum) if repeat == 0 => run.checksum = run.checksum.wrapping_add(sum),
                Ok(_) => {}
                // A wrong value fails the side; the others go on.
                Err(_) => run.errors += 1,
            }
            latencies.saturating_record(pread::nanoseconds(sent.elapsed()));
            run.operations += rows.len() as u64;
        }
    }
    Ok(Part {
        began,
        ended: Instant::now(),
        latencies,
        run,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_row_is_asked_for_as_often_as_said_and_errors_are_counted() {
        let asked = AtomicU64::new(0);
        let rows: Vec<u64> = (0..100).collect();
        let load = Load {
            threads: 7,
            rows_a_request: 4,
            repeats: 3,
        };
        let run = drive(load, &rows, &|turn, rows| {
            assert!(turn.thread < 7 && turn.repeat < 3);
            asked.fetch_add(rows.iter().sum(), Ordering::Relaxed);
            match rows.contains(&50) {
                true => Err(BenchError::Invalid("told to".into())),
                false => Ok(rows.iter().sum()),
            }
        })
        .unwrap();
        assert_eq!(asked.into_inner(), 3 * 4950);
        assert_eq!((run.operations, run.errors), (300, 3));
        assert_eq!(run.checksum, 4950 - (48 + 49 + 50 + 51));
        assert!(run.seconds > 0.0 && run.p99_us >= run.p50_us);
    }
}
