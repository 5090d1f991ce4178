//! The page cache: memory → disk → single flight → coalesce → byte budget → source. The only orchestrator.
//!
//! Owns the order of these steps and nothing else. Refuses to guess: a read gives the bytes of exactly the version it
//! names, or the source's error, and an error is remembered by nobody. Called by the filesystem: [`PageCache::read_cached`]
//! on threads that must not wait, [`PageCache::read`] in tasks.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime;

use crate::account::Account;
use crate::budget::Budget;
use crate::coalesce::ExtentRule;
use crate::config::{CacheConfig, Limits};
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result};
use crate::fetch::Opening;
use crate::flight::Flights;
use crate::handles::Handles;
use crate::memory::{Kind, Memory};
use crate::page::{ByteRange, PageIndex, PageKey, PageSize};
use crate::read_ahead::Streams;
use crate::source::Source;
use crate::stats::{CacheStats, Counters, KindStats};
use crate::tails::Tails;
use crate::version::{FileVersion, VersionId};

mod find;
mod from_disk;
mod missing;
mod warm;

pub use crate::disk::CompleteFile;

pub use find::{ColumnRanges, Found, METADATA_BYTES_MAX};
use missing::Arrival;
pub use warm::{Kept, LOOK_PAGES_MAX};

/// The longest range of one read. The kernel asks for 1 MiB at most.
pub const MAX_READ_BYTES: u64 = 64 << 20;

/// Pages of many versions, shared by all mounts of a daemon.
#[derive(Debug)]
pub struct PageCache {
    pub(crate) page_size: PageSize,
    pub(crate) deadline: Duration,
    pub(crate) memory: Memory,
    disk: Option<Disk>,
    pub(crate) budget: Budget,
    pub(crate) handles: Arc<Handles>,
    pub(crate) tails: Tails,
    pub(crate) counters: Counters,
    flights: Arc<Flights<PageKey, Bytes>>,
    streams: Streams,
    extent_rule: ExtentRule,
    tail_pages: u64,
    /// Bytes of pages at hand that wait for the disk: few at once, so that memory has room for them.
    filling: Budget,
    /// Held by who looks at metadata that memory does not hold.
    looking: tokio::sync::Mutex<()>,
    runtime: runtime::Handle,
}

impl PageCache {
    /// A cache that fetches on `runtime`, which needs tokio's timers.
    ///
    /// # Errors
    /// `Invalid` where the memory does not hold a page.
    pub fn new(config: CacheConfig, runtime: runtime::Handle) -> Result<Arc<PageCache>> {
        let limits = config.limits(false)?;
        Ok(PageCache::build(&config, limits, None, runtime))
    }

    fn build(
        config: &CacheConfig,
        limits: Limits,
        disk: Option<Disk>,
        runtime: runtime::Handle,
    ) -> Arc<PageCache> {
        let page = limits.page_size.bytes();
        Arc::new(PageCache {
            page_size: limits.page_size,
            deadline: config.deadline,
            memory: Memory::new(limits.data_bytes, limits.metadata_bytes, limits.page_size),
            disk,
            budget: Budget::new(limits.inflight_bytes),
            handles: Arc::new(Handles::new(
                config.max_open_files,
                config.open_idle,
                config.deadline,
                runtime.clone(),
            )),
            tails: Tails::new(limits.tail_bytes, limits.page_size),
            counters: Counters::default(),
            flights: Flights::new(),
            streams: Streams::new(
                limits.read_ahead_bytes,
                limits.page_size,
                limits.extent_pages * page,
            ),
            extent_rule: ExtentRule {
                gap_pages: limits.gap_pages,
                max_pages: limits.extent_pages,
            },
            filling: Budget::new(limits.filling_bytes),
            looking: tokio::sync::Mutex::default(),
            tail_pages: (limits.inflight_bytes.min(limits.tail_bytes + page) / page).max(1),
            runtime,
        })
    }

    /// The bytes of `range` if all of them are in memory now, or on disk and in the kernel's page cache. Never waits. One
    /// page is given without a copy; more are gathered into one.
    ///
    /// `None` too for a range that [`PageCache::read`] would refuse.
    pub fn read_cached(self: &Arc<Self>, version: &FileVersion, range: ByteRange) -> Option<Bytes> {
        self.read_cached_for(version, range, None)
    }

    /// [`PageCache::read_cached`]; what is fetched ahead is charged to `account`.
    pub fn read_cached_for(
        self: &Arc<Self>,
        version: &FileVersion,
        range: ByteRange,
        account: Option<&Arc<Account>>,
    ) -> Option<Bytes> {
        if range.is_empty() {
            return Some(Bytes::new());
        }
        check_range(version, range).ok()?;
        let pages = self.page_size.pages_of(range);
        let in_memory = if pages.end - pages.start == 1 {
            self.memory
                .get(&key(version.id(), pages.start))
                .map(|(page, kind)| {
                    self.counters.of(kind).hits.add(1);
                    self.slice(&page, range)
                })
        } else {
            self.gather_cached(version, range, pages.clone())
        };
        let bytes = match in_memory {
            Some(bytes) => bytes,
            None => {
                let first = pages.start;
                let found = self.gather_at_once(version, range, pages)?;
                self.join(range, first, &found)
            }
        };
        self.counters.served_bytes.add(range.len());
        if let Some(ahead) = self.streams.observe(version.id(), version.len(), range) {
            self.read_ahead_later(version, ahead, account);
        }
        Some(bytes)
    }

    /// The bytes of `range` of exactly `version`, from memory, from disk or from `source`. Dropping the future leaves the fetch to
    /// those who wait for the same pages, and to the cache.
    ///
    /// # Errors
    /// `Invalid` for a range that is not inside of the version, or longer than [`MAX_READ_BYTES`]; otherwise those of
    /// [`Source::open`] and [`OpenFile::read`](crate::source::OpenFile::read), and `TimedOut` where the deadline ends
    /// first.
    pub async fn read(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
        range: ByteRange,
    ) -> Result<Bytes> {
        self.read_for(source, version, range, None).await
    }

    /// [`PageCache::read`]; what this read has fetched, ahead and along with it too, is charged to `account`.
    ///
    /// # Errors
    /// As [`PageCache::read`].
    pub async fn read_for(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
        range: ByteRange,
        account: Option<&Arc<Account>>,
    ) -> Result<Bytes> {
        check_range(version, range)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let first = self.page_size.pages_of(range).start;
        let (mut pages, mut missing) = self.look_up(version, range);
        self.fill_from_disk(version, first, &mut missing, &mut pages)
            .await;
        let opening = Opening::at(source.clone(), version.clone()).charged_to(account);
        let waiters = self.claim_missing(&opening, &missing);
        if let Some(ahead) = self.streams.observe(version.id(), version.len(), range) {
            self.read_ahead(&opening, &ahead);
        }
        for (page, waiter) in missing.into_iter().zip(waiters) {
            let bytes = match waiter {
                Arrival::Here(bytes) => bytes,
                Arrival::Coming(waiter) => waiter.wait().await?,
            };
            pages[(page - first) as usize] = bytes;
        }
        self.counters.served_bytes.add(range.len());
        Ok(self.join(range, first, &pages))
    }

    /// Unit of the cache.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Closes the file of a version that has gone. Its pages stay true, are asked for by nobody, and leave memory as
    /// others need the room.
    pub fn invalidate(&self, version: VersionId) {
        self.handles.close(version);
        self.streams.forget(version);
    }

    /// Drops all pages from memory, closes all files and forgets what was learned. Fetches under way land nonetheless.
    pub fn clear(&self) {
        self.handles.clear();
        self.memory.clear();
        self.streams.clear();
        self.tails.clear();
    }

    /// What the cache has done and holds.
    pub fn stats(&self) -> CacheStats {
        let counters = &self.counters;
        CacheStats {
            data: self.kind_stats(Kind::Data),
            metadata: self.kind_stats(Kind::Metadata),
            served_bytes: counters.served_bytes.get(),
            extents: counters.extents.get(),
            extent_bytes: counters.extent_bytes.get(),
            read_ahead_bytes: counters.read_ahead_bytes.get(),
            tail_reads: counters.tail_reads.get(),
            failed_extents: counters.failed_extents.get(),
            opens: self.handles.opens(),
            open_files: self.handles.len(),
            inflight_bytes: self.budget.in_flight(),
            inflight_pages: self.flights.len() as u64,
            disk: self.disk.as_ref().map(Disk::stats),
        }
    }

    /// Learns what it can of the version's layout from `bytes`, those of `range`, and from what is in memory.
    pub(crate) fn learn(&self, version: &FileVersion, range: ByteRange, bytes: Bytes) {
        self.tails.learn(version, range, || bytes);
        if let Some(footer) = self.tails.unread_footer(version)
            && let Some(bytes) = self.peek(version, footer)
        {
            self.tails.learn(version, footer, || bytes);
        }
    }

    /// The bytes of `range` if all are in memory; counts as no read.
    pub(crate) fn peek(&self, version: &FileVersion, range: ByteRange) -> Option<Bytes> {
        let pages = self.page_size.pages_of(range);
        let first = pages.start;
        let found: Option<Vec<Bytes>> = pages
            .map(|page| Some(self.memory.get(&key(version.id(), page))?.0))
            .collect();
        Some(self.gather(range, first, &found?))
    }

    fn kind_stats(&self, kind: Kind) -> KindStats {
        let counters = self.counters.of(kind);
        KindStats {
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            joins: counters.joins.get(),
            evictions: self.memory.evictions(kind),
            memory_bytes: self.memory.live_bytes(kind),
        }
    }

    fn gather_cached(&self, version: &FileVersion, range: ByteRange, pages: Range<u64>) -> Option<Bytes> {
        let first = pages.start;
        // Nothing is counted until all of them are here: a read of what is missing counts them then.
        let found: Option<Vec<(Bytes, Kind)>> = pages
            .map(|page| self.memory.get(&key(version.id(), page)))
            .collect();
        let (found, kinds): (Vec<Bytes>, Vec<Kind>) = found?.into_iter().unzip();
        for kind in kinds {
            self.counters.of(kind).hits.add(1);
        }
        Some(self.gather(range, first, &found))
    }

    /// The pages of `range`, empty where they are missing, and the missing ones.
    fn look_up(&self, version: &FileVersion, range: ByteRange) -> (Vec<Bytes>, Vec<u64>) {
        let mut missing = Vec::new();
        let pages = self
            .page_size
            .pages_of(range)
            .map(|page| match self.memory.get(&key(version.id(), page)) {
                Some((bytes, kind)) => {
                    self.counters.of(kind).hits.add(1);
                    bytes
                }
                None => {
                    missing.push(page);
                    Bytes::new()
                }
            })
            .collect();
        (pages, missing)
    }

    /// `range` out of the pages from `first` on; out of one page without a copy.
    fn join(&self, range: ByteRange, first: u64, pages: &[Bytes]) -> Bytes {
        match pages {
            [page] => self.slice(page, range),
            _ => self.gather(range, first, pages),
        }
    }

    /// `range` out of the one page it lies in.
    fn slice(&self, page: &Bytes, range: ByteRange) -> Bytes {
        let from = (range.start() % self.page_size.bytes()) as usize;
        page.slice(from..from + range.len() as usize)
    }

    /// `range` out of the pages from `first` on.
    fn gather(&self, range: ByteRange, first: u64, pages: &[Bytes]) -> Bytes {
        let mut bytes = Vec::with_capacity(range.len() as usize);
        let mut skip = (range.start() - first * self.page_size.bytes()) as usize;
        for page in pages {
            let left = range.len() as usize - bytes.len();
            let page = &page[skip..];
            bytes.extend_from_slice(&page[..page.len().min(left)]);
            skip = 0;
        }
        bytes.into()
    }
}

fn key(version: VersionId, page: u64) -> PageKey {
    PageKey {
        version,
        index: PageIndex(page),
    }
}

fn check_range(version: &FileVersion, range: ByteRange) -> Result<()> {
    if range.end() > version.len() || range.len() > MAX_READ_BYTES {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "{version}: bytes {}..{} are not inside, or more than {MAX_READ_BYTES}",
                range.start(),
                range.end()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
