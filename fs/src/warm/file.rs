//! One file: which ranges of it are meant, and what is done with them.
//!
//! Owns the steps in which a range is filled, so that the rate is kept and other readers have their turn. Refuses to give
//! up at the first replacement: the version that is there now is tried once. Called by `job.rs`.

use std::sync::Arc;
use std::time::Duration;

use lookupfs_cache::disk::Unready;
use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::{Kept, LOOK_PAGES_MAX};
use lookupfs_cache::version::FileVersion;

use super::job::Job;
use super::walk::{Found, look_again};
use super::{Action, What};
use crate::filesystem::has_gone;

/// Bytes of one step.
const STEP_BYTES: u64 = 4 << 20;
/// How long what is queued for the disk is waited for.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);
/// Files that wait to be counted, at most.
const NOTED_AT_ONCE: usize = 4096;
/// How long a file may take to be verified, beside what its length takes on a slow disk.
const VERIFY_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that a slow disk reads in a second.
const SLOW_DISK_BYTES: u64 = 20 << 20;
const VERIFY_POLL: Duration = Duration::from_millis(10);
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
            let next = ((at / step + 1) * step).min(range.end());
            let part = ByteRange::new(at, next)?;
            // Paid before it is fetched, so that many at once do not begin with a burst.
            let kept = job.pages.kept(version, part);
            job.pay((kept.pages - kept.kept) * page).await;
            job.fetched(job.pages.fill(source, version, part).await?);
            job.count(|totals| totals.bytes_done += next - at);
            at = next;
        }
    }
    if job.request.what == What::All {
        verify(job, found, version).await;
    }
    let waiting = job.note_when_settled(version, ranges);
    if waiting >= NOTED_AT_ONCE {
        note_settled(job).await;
    }
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!("it has no column {}", missing.join(", "));
    Err(Error::new(ErrorKind::Invalid, message))
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

/// Counts what is kept of the files that were filled, once what is queued for the disk is there or was refused.
pub(super) async fn note_settled(job: &Job) {
    // A disk that hangs is not waited for: what it has not taken by then counts as not there.
    let _ = tokio::time::timeout(SETTLE_PATIENCE, job.pages.settle_disk()).await;
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

/// Where the kernel is to read files by itself: has a file that is complete on disk checked now, so that already its first
/// reader is passed through.
async fn verify(job: &Job, found: &Found, version: &FileVersion) {
    if !found.mounted.filesystem.open_report.is_asked() {
        return;
    }
    let patience = VERIFY_PATIENCE + Duration::from_secs(version.len() / SLOW_DISK_BYTES);
    let verifying = async {
        job.pages.settle_disk().await;
        while job
            .pages
            .complete_file(version)
            .is_err_and(|why| why == Unready::Unverified)
        {
            tokio::time::sleep(VERIFY_POLL).await;
        }
    };
    // A disk that takes longer than this has the first reader wait for it, as without.
    let _ = tokio::time::timeout(patience, verifying).await;
    if job.pages.complete_file(version).is_ok() {
        job.count(|totals| totals.files_verified += 1);
    }
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
            let next = ((at / look + 1) * look).min(range.end());
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
    // A notification may wait for a READ of ours: not on a thread that answers those.
    let dropping = tokio::task::spawn_blocking(move || {
        let dropped = pages.evict(&version);
        for mounted in mounts {
            mounted.filesystem.drop_kernel_pages(&version);
        }
        dropped
    });
    let dropped = dropping.await.map_err(|error| {
        let message = format!("{}: its pages were not all dropped", found.version);
        Error::with_cause(ErrorKind::Unavailable, message, error)
    })?;
    job.count(|totals| {
        totals.bytes = totals.bytes.saturating_add(found.version.len());
        totals.pages_dropped += dropped;
    });
    Ok(())
}
