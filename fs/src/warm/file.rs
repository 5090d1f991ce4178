//! One file: which ranges of it are meant, and what is done with them.
//!
//! Owns the steps in which a range is filled, so that the rate is kept and other readers have their turn. Refuses to give
//! up at the first replacement: the version that is there now is tried once. Called by `job.rs`.

use std::sync::Arc;

use lookupfs_cache::error::{Error, ErrorKind, Result};
use lookupfs_cache::page::ByteRange;
use lookupfs_cache::page_cache::Kept;
use lookupfs_cache::version::FileVersion;

use super::job::Job;
use super::walk::{Found, look_again};
use super::{Action, What};
use crate::filesystem::has_gone;

/// Bytes of one step.
const STEP_BYTES: u64 = 4 << 20;
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
    note_kept(job, version, &ranges).await;
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

/// Counts what is kept of the ranges.
async fn note_kept(job: &Job, version: &FileVersion, ranges: &[ByteRange]) {
    let look = LOOK_PAGES * job.pages.page_size().bytes();
    let mut sum = Kept::default();
    job.pages.load_page_map(version).await;
    let mut bytes = 0;
    for range in ranges {
        bytes += range.len();
        let mut at = range.start();
        while at < range.end() {
            let next = ((at / look + 1) * look).min(range.end());
            let part = ByteRange::clamped(at, next - at, version.len());
            let kept = job.pages.kept(version, part);
            sum.pages += kept.pages;
            sum.kept += kept.kept;
            sum.in_memory += kept.in_memory;
            sum.on_disk += kept.on_disk;
            at = next;
            tokio::task::yield_now().await;
        }
    }
    job.count(|totals| {
        totals.bytes = totals.bytes.saturating_add(bytes);
        totals.pages += sum.pages;
        totals.pages_kept += sum.kept;
        totals.pages_in_memory += sum.in_memory;
        totals.pages_on_disk += sum.on_disk;
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
