//! Between memory and disk: pages that come back are promoted to memory, pages that were fetched go to disk.
//!
//! Owns the rule for who may wait: an event loop never does. Refuses to fail: what the disk does not give is fetched.
//! Called by `page_cache.rs` and `fetch.rs`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::{PageCache, key};
use crate::config::CacheConfig;
use crate::disk::{CompleteFile, Disk, DiskConfig, DiskLimits, FoundPage, NewPage, Rest, Unready};
use crate::error::Result;
use crate::memory::Kind;
use crate::page::{ByteRange, PageIndex};
use crate::version::FileVersion;
use tokio::runtime;

/// The longest range that an event loop copies and checks itself: more of it would hold others up.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;
impl PageCache {
    /// As [`PageCache::new`], with a disk tier.
    ///
    /// # Errors
    /// `Invalid` where the memory does not hold a page, or the directory cannot be used: the text says what to do.
    pub fn with_disk(
        config: CacheConfig,
        disk: &DiskConfig,
        runtime: runtime::Handle,
    ) -> Result<Arc<PageCache>> {
        let limits = config.limits(true)?;
        let disk = Disk::open(
            disk,
            DiskLimits {
                page_size: limits.page_size,
                queue_bytes: limits.disk_queue_bytes,
                index_bytes: limits.disk_index_bytes,
                read_bytes: limits.disk_read_bytes,
            },
        )?;
        Ok(PageCache::build(&config, limits, Some(disk), runtime))
    }

    /// The version as one file on the local disk, if all of its pages are there and every checksum was verified since
    /// this cache was opened. Nothing of it is evicted while the answer lives. Never waits: where the version is
    /// complete but not verified yet, that is begun in the background, and the answer is [`Unready::Unverified`] for now.
    pub fn complete_file(self: &Arc<Self>, version: &FileVersion) -> Result<CompleteFile, Unready> {
        let disk = self.disk.as_ref().ok_or(Unready::Incomplete)?;
        disk.complete_file(version)
    }

    /// Waits until what was fetched so far is on disk, or was skipped. A disk that is known not to answer is not waited for;
    /// callers bound the wait for one of which that comes out yet.
    pub async fn settle_disk(&self) {
        if let Some(disk) = &self.disk {
            disk.settled().await;
        }
    }

    /// Why nothing is written to disk at the moment, if so. Never waits.
    pub fn disk_rests(&self) -> Option<Rest> {
        self.disk.as_ref()?.rests()
    }

    /// Has what of `range` is in memory written to disk, and waits for room in the queue before it.
    pub async fn bring_to_disk(&self, version: &FileVersion, range: ByteRange) {
        self.bring_pages(version, range, Vec::new()).await;
    }

    /// As [`PageCache::bring_to_disk`], with pages at hand that memory may have pushed out meanwhile.
    pub(super) async fn bring_pages(
        &self,
        version: &FileVersion,
        range: ByteRange,
        at_hand: Vec<(u64, Bytes)>,
    ) {
        let Some(disk) = &self.disk else {
            return;
        };
        let layout = self.tails.layout(version);
        let mut at_hand: HashMap<u64, Bytes> = at_hand.into_iter().collect();
        let mut pages = Vec::new();
        for page in self.page_size.pages_of(range) {
            if disk.contains(version.id(), page) {
                continue;
            }
            let found = match at_hand.remove(&page) {
                Some(bytes) => {
                    let kind = layout.kind_of(self.page_size.range_of(PageIndex(page), version.len()));
                    Some((bytes, kind))
                }
                None => self.memory.get(&key(version.id(), page)),
            };
            if let Some((bytes, kind)) = found {
                pages.push(NewPage { page, bytes, kind });
            }
        }
        disk.bring(version, pages).await;
    }

    /// How many pages of `range` are on disk; counts as no use of them. Reads the page map of a version that nobody has
    /// used since the start, so it may wait for the disk: not for event loops.
    pub fn count_on_disk(&self, version: &FileVersion, range: ByteRange) -> u64 {
        let pages = self.page_size.pages_of(range);
        self.disk
            .as_ref()
            .map_or(0, |disk| disk.count(version.id(), pages))
    }

    /// As [`PageCache::count_on_disk`], without waiting.
    pub(super) fn count_known_on_disk(&self, version: &FileVersion, pages: Range<u64>) -> u64 {
        self.disk
            .as_ref()
            .map_or(0, |disk| disk.count_known(version.id(), pages))
    }

    /// Takes a version off the disk, unless a [`CompleteFile`] of it is in use. May wait for the disk; `false` where that does
    /// not answer.
    pub fn evict_from_disk(&self, version: &FileVersion) -> bool {
        let disk = self.disk.as_ref();
        disk.is_none_or(|disk| disk.evict(version.id()))
    }

    /// All of `pages`, from memory and from what the disk gives without waiting. `None` where one is missing.
    pub(super) fn gather_at_once(
        &self,
        version: &FileVersion,
        range: ByteRange,
        pages: Range<u64>,
    ) -> Option<Vec<Bytes>> {
        let disk = self.disk.as_ref()?;
        if range.len() > AT_ONCE_BYTES_MAX {
            return None;
        }
        let first = pages.start;
        let mut hits = Vec::new();
        let mut missing = Vec::new();
        let mut found: Vec<Bytes> = pages
            .map(|page| match self.memory.get(&key(version.id(), page)) {
                Some((bytes, kind)) => {
                    hits.push(kind);
                    bytes
                }
                None => {
                    missing.push(page);
                    Bytes::new()
                }
            })
            .collect();
        // Whole pages are read and checked, however little of them is wanted.
        if missing.len() as u64 * self.page_size.bytes() > AT_ONCE_BYTES_MAX {
            return None;
        }
        let looked = disk.look_up_now(version.id(), &missing);
        for page in looked.pages {
            let at = (page.page - first) as usize;
            found[at] = self.promote(version, page);
        }
        if found.iter().any(Bytes::is_empty) {
            return None;
        }
        for kind in hits {
            self.counters.of(kind).hits.add(1);
        }
        Some(found)
    }

    /// Fills in what of `missing` the disk has, and leaves the rest in it. `pages` are those from `first` on.
    pub(super) async fn fill_from_disk(
        &self,
        version: &FileVersion,
        first: u64,
        missing: &mut Vec<u64>,
        pages: &mut [Bytes],
    ) {
        let Some(disk) = self.disk.as_ref().filter(|_| !missing.is_empty()) else {
            return;
        };
        for page in disk.look_up(version.id(), missing).await {
            let at = (page.page - first) as usize;
            pages[at] = self.promote(version, page);
        }
        missing.retain(|page| pages[(page - first) as usize].is_empty());
        disk.count_misses(missing.len() as u64);
    }

    /// Whether the page is known to be on disk.
    pub(super) fn is_on_disk(&self, version: &FileVersion, page: u64) -> bool {
        self.disk
            .as_ref()
            .is_some_and(|disk| disk.contains(version.id(), page))
    }

    /// Has pages that were just fetched written to disk.
    pub(crate) fn keep_on_disk(&self, version: &FileVersion, pages: Vec<NewPage>) {
        if let Some(disk) = &self.disk {
            disk.admit(version, pages);
        }
    }

    fn promote(&self, version: &FileVersion, found: FoundPage) -> Bytes {
        let FoundPage { page, bytes, kind } = found;
        let range = self.page_size.range_of(PageIndex(page), version.len());
        let bytes = self.memory.insert(key(version.id(), page), bytes, kind);
        // What an earlier daemon learned of a file's end is in the file's end.
        if kind == Kind::Metadata && range.end() == version.len() {
            self.learn(version, range, bytes.clone());
        }
        bytes
    }
}
