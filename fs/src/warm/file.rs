//! One file: which ranges of it are meant, and what is done with them.
//!
//! Owns the steps in which a range is filled, so that the rate is kept and other readers have their turn. Refuses to give
//! up at the first replacement: the version that is there now is tried once. Called by `job.rs`.

use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::{Kept, LOOK_PAGES_MAX};
use lookupfs_cache::version::FileVersion;

use super::job::Job;
use super::walk::{Found, look_again};
use super::{Action, DiskTrouble, What};
use crate::filesystem::has_gone;

/// Bytes of one step.
const STEP_BYTES: u64 = 4 << 20;
/// How long what is queued for the disk is waited for, beside what its bytes take on the slowest disk.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// How long one file may take to be dropped: the cache itself waits 5 s for its turn.
const EVICT_PATIENCE: Duration = Duration::from_secs(15);
/// Bytes that the slowest disk writes in a second.
const SLOWEST_DISK_BYTES: u64 = 1 << 20;
/// Files that wait to be counted, at most.
const NOTED_AT_ONCE: usize = 4096;
/// Pages looked for before others have their turn.
const LOOK_PAGES: u64 = 16_384;

/// Does what was asked for with one file.
pub(super) async fn work(job: &Job, found: &Found) -> Result<()> {
    match job.request.action {
        Action::Check => {
            check(job, &found.version).await;
            Ok(())
        }
        Action::Evict => evict(job, found).await,
        Action::Fill => match fill(job, found, &found.version).await {
            Err(error) if has_gone(error.kind()) => {
                job.pages.invalidate(found.version.id());
                let version = look_again(found).await?;
                if version.id() == found.version.id() {
                    return Err(error);
                }
                fill(job, found, &version).await
            }
            done => done,
        },
    }
}

async fn fill(job: &Job, found: &Found, version: &Arc<FileVersion>) -> Result<()> {
    let source = found.mounted.filesystem.namespace().source();
    let whole = ByteRange::clamped(0, u64::MAX, version.len());
    let mut missing = Vec::new();
    let (ranges, fetched) = match &job.request.what {
        What::Metadata => {
            let found = job.pages.find_metadata(source, version).await?;
            (vec![found.value], found.fetched)
        }
        What::Columns(names) => {
            let found = job.pages.find_columns(source, version, names).await?;
            missing = found.value.missing;
            (found.value.ranges, found.fetched)
        }
        // The end of the file first: then it is known which of its pages are metadata when they arrive.
        What::All => match job.pages.find_metadata(source, version).await {
            Ok(found) => (vec![whole], found.fetched),
            Err(error) if error.kind() == ErrorKind::Unsupported => (vec![whole], 0),
            Err(error) => return Err(error),
        },
    };
    job.fetched(fetched);
    job.pay(fetched).await;
    job.pages.load_page_map(version).await;
    let page = job.pages.page_size().bytes();
    let step = job.step_bytes(STEP_BYTES).div_ceil(page) * page;
    for range in &ranges {
        let mut at = range.start();
        while at < range.end() {
            // Steps end where pages do.
            let next = next_stop(at, step, range.end());
            let part = ByteRange::new(at, next)?;
            // Paid before it is fetched, so that many at once do not begin with a burst.
            let kept = job.pages.kept(version, part);
            job.pay((kept.pages - kept.kept) * page).await;
            job.fetched(job.pages.fill(source, version, part).await?);
            job.count(|totals| totals.bytes_done = totals.bytes_done.saturating_add(next - at));
            at = next;
        }
    }
    // An empty file has no page to be passed through.
    let is_some = version.len() > 0 && job.request.what == What::All;
    if is_some && found.mounted.filesystem.open_report.is_in_use() {
        let is_verified = settle(job).await && job.verifying.verify(&job.pages, version).await;
        job.count(|totals| match is_verified {
            true => totals.files_verified += 1,
            false => totals.files_unverified += 1,
        });
    }
    let waiting = job.note_when_settled(version, ranges);
    if waiting >= NOTED_AT_ONCE {
        note_settled(job).await;
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "it has no column {}; `lookup inspect FILE` lists them",
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Where a step from `at` on ends: at the next multiple of `step`, whatever length a file claims.
fn next_stop(at: u64, step: u64, end: u64) -> u64 {
    (at / step + 1).saturating_mul(step).min(end)
}

async fn check(job: &Job, version: &FileVersion) {
    let ranges = match &job.request.what {
        What::Metadata => job.pages.known_metadata(version).await.map(|range| vec![range]),
        What::Columns(names) => job
            .pages
            .known_columns(version, names)
            .await
            .map(|found| found.ranges),
        What::All => Some(vec![ByteRange::clamped(0, u64::MAX, version.len())]),
    };
    match ranges {
        Some(ranges) => note_kept(job, version, &ranges).await,
        None => job.count(|totals| totals.files_unknown += 1),
    }
}

/// Waits until what is queued for the disk is there or was refused. A disk that hangs is waited for once: what it has not taken
/// by then counts as not there.
pub(super) async fn settle(job: &Job) -> bool {
    if job.disk.is_silent() {
        return false;
    }
    let queued = job.pages.stats().disk.map_or(0, |disk| disk.queued_bytes);
    let patience = SETTLE_PATIENCE + Duration::from_secs(queued / SLOWEST_DISK_BYTES);
    let settled = tokio::time::timeout(patience, job.pages.settle_disk()).await;
    if settled.is_err() {
        job.disk.note(DiskTrouble::Silent);
    }
    settled.is_ok()
}

/// Counts what is kept of the files that were filled.
pub(super) async fn note_settled(job: &Job) {
    settle(job).await;
    for (version, ranges) in job.take_unsettled() {
        note_kept(job, &version, &ranges).await;
    }
}

fn add(sum: &mut Kept, more: Kept) {
    sum.pages = sum.pages.saturating_add(more.pages);
    sum.kept = sum.kept.saturating_add(more.kept);
    sum.in_memory = sum.in_memory.saturating_add(more.in_memory);
    sum.on_disk = sum.on_disk.saturating_add(more.on_disk);
}

/// Counts what is kept of the ranges.
async fn note_kept(job: &Job, version: &FileVersion, ranges: &[ByteRange]) {
    let look = LOOK_PAGES * job.pages.page_size().bytes();
    let mut sum = Kept::default();
    job.pages.load_page_map(version).await;
    let mut bytes: u64 = 0;
    for range in ranges {
        bytes = bytes.saturating_add(range.len());
        let mut at = range.start();
        if range.len() / job.pages.page_size().bytes() > LOOK_PAGES_MAX {
            add(&mut sum, job.pages.kept(version, *range));
            continue;
        }
        while at < range.end() {
            let next = next_stop(at, look, range.end());
            let part = ByteRange::clamped(at, next - at, version.len());
            add(&mut sum, job.pages.kept(version, part));
            at = next;
            tokio::task::yield_now().await;
        }
    }
    job.count(|totals| {
        totals.bytes = totals.bytes.saturating_add(bytes);
        totals.pages = totals.pages.saturating_add(sum.pages);
        totals.pages_kept = totals.pages_kept.saturating_add(sum.kept);
        totals.pages_in_memory = totals.pages_in_memory.saturating_add(sum.in_memory);
        totals.pages_on_disk = totals.pages_on_disk.saturating_add(sum.on_disk);
        totals.files_plain += u64::from(bytes == 0);
        totals.files_kept += u64::from(bytes > 0 && sum.kept == sum.pages);
    });
}

async fn evict(job: &Job, found: &Found) -> Result<()> {
    let (pages, version) = (job.pages.clone(), found.version.clone());
    let mounts = job.mounts_of(found);
    pages.load_page_map(&version).await;
    // What waits to be written would be there again a moment later.
    settle(job).await;
    // A notification may wait for a READ of ours: not on a thread that answers those.
    let dropping = tokio::task::spawn_blocking(move || {
        let dropped = pages.evict(&version);
        for mounted in mounts {
            mounted.filesystem.drop_kernel_pages(&version);
        }
        dropped
    });
    let dropped = tokio::time::timeout(EVICT_PATIENCE, dropping).await;
    let dropped = dropped.map_err(|_| {
        job.disk.note(DiskTrouble::Silent);
        let message = format!("{}: the disk of cache_dir does not answer", found.version);
        Error::new(ErrorKind::Unavailable, message)
    })?;
    let dropped = dropped.map_err(|error| {
        let message = format!("{}: its pages were not all dropped", found.version);
        Error::with_cause(ErrorKind::Unavailable, message, error)
    })??;
    job.count(|totals| {
        totals.bytes = totals.bytes.saturating_add(found.version.len());
        totals.pages_dropped += dropped;
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_multiples_and_at_the_end_of_the_longest_file() {
        assert_eq!(next_stop(0, 10, 25), 10);
        assert_eq!(next_stop(10, 10, 25), 20);
        assert_eq!(next_stop(13, 10, 25), 20);
        assert_eq!(next_stop(20, 10, 25), 25);
        for step in [1, 16 << 10, STEP_BYTES] {
            assert_eq!(next_stop(u64::MAX - 1, step, u64::MAX), u64::MAX);
        }
    }
}
