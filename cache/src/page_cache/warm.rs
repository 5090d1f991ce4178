//! Pages that are kept ahead of any reader, looked for without using them, and dropped on demand.
//!
//! Owns the steps of warming a range that is known; `find.rs` finds those of metadata and columns. Refuses to fetch a page
//! that is kept or on its way already, so that whatever was begun goes on where it stopped. Called by the daemon for
//! `lookupfs warm`, and by `find.rs`.

use std::ops::Range;
use std::sync::Arc;

use super::missing::Arrival;
use super::{PageCache, key};
use crate::coalesce::ExtentRule;
use crate::error::{Error, ErrorKind, Result};
use crate::fetch::Opening;
use crate::page::{ByteRange, PageIndex};
use crate::source::Source;
use crate::version::FileVersion;

/// Pages of a version that are looked for one by one; of one that claims more, what is held is walked instead.
const WALK_PAGES_MAX: u64 = 16_384;
/// The same, for whoever asks for a range of it.
pub const LOOK_PAGES_MAX: u64 = 1 << 20;

/// How many pages of a range are kept, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Pages that the range touches.
    pub pages: u64,
    /// Those kept anywhere.
    pub kept: u64,
    /// Those in memory.
    pub in_memory: u64,
    /// Those on disk, in memory or not.
    pub on_disk: u64,
}

impl PageCache {
    /// Makes sure that the pages of `range` are kept, as far as there is room for them; answers how many bytes it had
    /// fetched for that. No page is fetched that is kept, or on its way for somebody else.
    ///
    /// # Errors
    /// `Invalid` for a range that is not inside of the version; otherwise as [`PageCache::read`]. What was fetched before
    /// stays.
    pub async fn fill(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
        range: ByteRange,
    ) -> Result<u64> {
        if range.end() > version.len() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "bytes {}..{} are not inside {version}",
                    range.start(),
                    range.end()
                ),
            ));
        }
        let opening = Opening::at(source.clone(), version.clone());
        let pages = self.page_size.pages_of(range);
        let step = self.extent_rule.max_pages.max(1);
        let (mut fetched, mut at) = (0, pages.start);
        while at < pages.end {
            let next = (at + step).min(pages.end);
            fetched += self.fill_pages(&opening, at..next, step).await?;
            at = next;
        }
        Ok(fetched)
    }

    /// Fetches those of `pages` that are not kept, in requests of at most `max_pages`; answers how many bytes it asked
    /// for. Those that are on their way for somebody else are waited for. With a disk tier no more is held at once than
    /// there is a share of memory for.
    pub(super) async fn fill_pages(
        self: &Arc<Self>,
        opening: &Opening,
        pages: Range<u64>,
        max_pages: u64,
    ) -> Result<u64> {
        let step = match &self.disk {
            Some(_) => (self.filling.total() / self.page_size.bytes()).max(1),
            None => u64::MAX,
        };
        let (mut fetched, mut at) = (0, pages.start);
        while at < pages.end {
            let next = at.saturating_add(step).min(pages.end);
            fetched += self.fill_step(opening, at..next, max_pages).await?;
            at = next;
        }
        Ok(fetched)
    }

    /// Makes sure that the metadata range of a recognised file is kept: a footer with what belongs to it, or the whole of
    /// a manifest. Nothing of a plain file. Answers the bytes that were fetched.
    ///
    /// # Errors
    /// As [`PageCache::find_metadata`] and [`PageCache::fill`].
    pub async fn fill_metadata(
        self: &Arc<Self>,
        source: &Arc<dyn Source>,
        version: &Arc<FileVersion>,
    ) -> Result<u64> {
        let found = self.find_metadata(source, version).await?;
        Ok(found.fetched + self.fill(source, version, found.value).await?)
    }

    /// How many pages of `range` are kept; counts as no use of them. Waits for nothing: of a version
    /// that nobody has used since the start it knows what is on disk once [`PageCache::load_page_map`] was called.
    pub fn kept(&self, version: &FileVersion, range: ByteRange) -> Kept {
        let pages = self.page_size.pages_of(range);
        let mut kept = Kept {
            pages: pages.end - pages.start,
            on_disk: self.count_known_on_disk(version, pages.clone()),
            ..Kept::default()
        };
        // What a file claims to hold may be more than could ever be looked for.
        if kept.pages > LOOK_PAGES_MAX {
            let mut in_memory = self.memory.held(version.id());
            in_memory.retain(|page| pages.contains(page));
            let only_there = in_memory.iter().filter(|page| !self.is_on_disk(version, **page));
            kept.kept = kept.on_disk + only_there.count() as u64;
            kept.in_memory = in_memory.len() as u64;
            return kept;
        }
        for page in pages {
            let in_memory = self.memory.contains(&key(version.id(), page));
            kept.in_memory += u64::from(in_memory);
            kept.kept += u64::from(in_memory || self.is_on_disk(version, page));
        }
        kept
    }

    /// Drops the pages of a version from memory and disk, and closes its file; answers how many pages are kept no longer. What is
    /// being fetched for it lands nonetheless. May wait for the local disk, though not for one that is known to hang.
    ///
    /// # Errors
    /// `Unavailable` where the disk does not answer: what is there of the version stays, and is used again once it does.
    pub fn evict(&self, version: &FileVersion) -> Result<u64> {
        let whole = ByteRange::clamped(0, u64::MAX, version.len());
        let pages = self.page_size.pages_of(whole);
        let is_here = |page: &u64| self.memory.contains(&key(version.id(), *page));
        let on_disk = self.count_known_on_disk(version, pages.clone());
        let in_memory: Vec<u64> = if pages.end - pages.start <= WALK_PAGES_MAX {
            pages.clone().filter(is_here).collect()
        } else {
            self.memory.held(version.id())
        };
        let only_there = in_memory.iter().filter(|page| !self.is_on_disk(version, **page));
        let only_there = only_there.count() as u64;
        for page in in_memory {
            self.memory.remove(&key(version.id(), page));
        }
        let is_dropped = self.evict_from_disk(version);
        self.invalidate(version.id());
        if !is_dropped {
            let message =
                format!("{version}: the disk of cache_dir does not answer, so its pages there stay");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        // What is pinned has stayed.
        Ok(only_there + on_disk.saturating_sub(self.count_known_on_disk(version, pages)))
    }

    /// As [`PageCache::fill_pages`], of few enough to be held.
    async fn fill_step(
        self: &Arc<Self>,
        opening: &Opening,
        pages: Range<u64>,
        max_pages: u64,
    ) -> Result<u64> {
        let version = opening.version();
        self.load_page_map(version).await;
        let page = self.page_size.bytes();
        let range = ByteRange::clamped(
            pages.start * page,
            (pages.end - pages.start) * page,
            version.len(),
        );
        let _turn = match &self.disk {
            Some(_) => Some(self.filling.acquire(range.len()).await?),
            None => None,
        };
        let (mut leads, mut waiters, mut bytes) = (Vec::new(), Vec::new(), 0);
        // Held until the disk has them: what is warmed may be more than memory keeps.
        let mut arrived = Vec::new();
        for page in pages.clone() {
            if self.memory.contains(&key(version.id(), page)) || self.is_on_disk(version, page) {
                continue;
            }
            let (arrival, lead) = self.claim(version.id(), page);
            match arrival {
                Arrival::Coming(waiter) => waiters.push((page, waiter)),
                Arrival::Here(bytes) => arrived.push((page, bytes)),
            }
            if let Some(lead) = lead {
                bytes += self.page_size.range_of(PageIndex(page), version.len()).len();
                leads.push(lead);
            }
        }
        // No gaps: what lies between two missing pages is kept already.
        let exact = ExtentRule {
            gap_pages: 0,
            max_pages,
        };
        self.fetch(&opening.clone().brought_to_disk(), leads, &[], exact);
        for (page, waiter) in waiters {
            let bytes = waiter.wait().await?;
            if self.disk.is_some() {
                arrived.push((page, bytes));
            }
        }
        self.memory
            .protect(pages.clone().map(|page| key(version.id(), page)));
        self.bring_pages(version, range, arrived).await;
        Ok(bytes)
    }

    /// Has the disk tier look at what an earlier daemon left of a version; waits for it, though not for ever.
    pub async fn load_page_map(&self, version: &FileVersion) {
        if let Some(disk) = &self.disk {
            disk.load_map(version.id()).await;
        }
    }
}
