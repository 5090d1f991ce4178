//! The memory tier: pages by version and index, weighed in bytes.
//!
//! Two shares with budgets of their own. **Data** has three parts. A small *window* is entered by every new page, so that
//! what was fetched ahead of its reader is not refused before it is read. The *main* part is entered by a page which
//! leaves the window only if it is asked for more often than what it would push out. The *protected* part is entered by a
//! page that was read again and again at moments well apart; what it pushes out goes back to the main part. As long as
//! much of the protected part is empty, what leaves the window may use that room. A scan passes through the window, fills
//! the main part and what is empty, and pushes nothing out of the protected one, however small its reads are. **Metadata** is the share for footers, page indexes, manifests: no amount of data pushes it out.
//!
//! moka frees what it drops some epochs later, and a thread that is not scheduled can hold an epoch for long. So moka is
//! given slots, and a slot is emptied the moment its page is pushed out.
//!
//! Owns the count of living page bytes. Pages own their bytes, so that no extent is pinned by one of them; and a page lives, and counts, until the last reader that holds a slice of it lets go.
//! Refuses to fetch. Called by `page_cache.rs` and `fetch.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use bytes::Bytes;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;
use moka::sync::SegmentedCache;

use crate::page::{PageKey, PageSize};
use crate::version::VersionId;

mod place;
mod protected;

use place::{APART_MIN, GONE, MAIN, METADATA, PROTECTED, Place, Slot, WINDOW};
use protected::Protected;

/// What one entry costs beside the bytes of its page: key, hash table, queue nodes, counters, allocator.
pub(crate) const ENTRY_OVERHEAD: u64 = 512;

/// Room for so many entries is made at once, at most: a MiB for each part.
const FIRST_ENTRIES_MAX: u64 = 64 << 10;

/// Which share a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Anything that is no metadata range.
    Data,
    /// Part of a metadata range.
    Metadata,
}

/// Keyed by strangers' choices, so the hash is seeded; a faster one than the standard library's, since every hit pays for it.
type Pages = SegmentedCache<PageKey, Slot, RandomState>;

/// Living bytes and evictions of one share.
#[derive(Debug, Default)]
struct Gauge {
    live: AtomicU64,
    evictions: AtomicU64,
}

/// The bytes of one page. Counted from birth to death, in the cache or out of it.
struct OwnedPage {
    bytes: Box<[u8]>,
    gauge: Arc<Gauge>,
}

impl OwnedPage {
    fn weight(len: usize) -> u64 {
        len as u64 + ENTRY_OVERHEAD
    }
}

impl AsRef<[u8]> for OwnedPage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for OwnedPage {
    fn drop(&mut self) {
        let weight = OwnedPage::weight(self.bytes.len());
        self.gauge.live.fetch_sub(weight, Ordering::Relaxed);
    }
}

/// The memory tier.
#[derive(Debug)]
pub(crate) struct Memory {
    protected: Protected,
    main: Pages,
    window: Pages,
    metadata: Pages,
    data_budget: u64,
    metadata_budget: u64,
    /// Up to here the protected part takes in pages that nobody has read yet. Less than all of it, since its segments are
    /// not filled evenly.
    wanted_capacity: u64,
    data_gauge: Arc<Gauge>,
    metadata_gauge: Arc<Gauge>,
    /// Pages read or kept so far.
    reads: AtomicU64,
    /// Reads that lie between two uses of a page: more where more is read at once.
    apart: u64,
}

impl Memory {
    /// At most so many bytes of each kind, overhead included.
    pub(crate) fn new(data_budget: u64, metadata_budget: u64, page_size: PageSize) -> Memory {
        let data_gauge = Arc::new(Gauge::default());
        let metadata_gauge = Arc::new(Gauge::default());
        // moka evicts late, after a number of writes. What is alive is checked against the budget on every insert,
        // and the caches aim lower so that the check seldom has to act.
        let part = |sixteenths: u64| data_budget / 16 * sixteenths;
        let main = pages(part(5), page_size, EvictionPolicy::tiny_lfu())
            .eviction_listener(count_evictions(MAIN, data_gauge.clone()))
            .build_with_hasher(RandomState::new());
        let protected = Protected::new(part(8), page_size, main.clone());
        let window = pages(part(2), page_size, EvictionPolicy::lru())
            .eviction_listener(leave_window(main.clone(), protected.clone()))
            .build_with_hasher(RandomState::new());
        let metadata = pages(metadata_budget / 16 * 15, page_size, EvictionPolicy::lru())
            .eviction_listener(count_evictions(METADATA, metadata_gauge.clone()))
            .build_with_hasher(RandomState::new());
        Memory {
            protected,
            main,
            window,
            metadata,
            data_budget,
            metadata_budget,
            wanted_capacity: part(6),
            data_gauge,
            metadata_gauge,
            reads: AtomicU64::new(0),
            apart: APART_MIN.max(data_budget / page_size.bytes() / 16),
        }
    }

    /// The page, and which share has it.
    pub(crate) fn get(&self, key: &PageKey) -> Option<(Bytes, Kind)> {
        if let Some(slot) = self.protected.pages.get(key)
            && let Some(page) = slot.page()
        {
            return Some((page, Kind::Data));
        }
        // The main part is asked even for what is in the window: it counts who asks, and admits by that count.
        for (part, share) in [(MAIN, &self.main), (WINDOW, &self.window)] {
            let Some(slot) = share.get(key) else {
                continue;
            };
            let Some(page) = slot.page() else {
                continue;
            };
            let now = self.reads.fetch_add(1, Ordering::Relaxed);
            if slot.note_use(now, self.apart) && slot.move_on(part, PROTECTED) {
                self.protected.enter(*key, slot);
                share.invalidate(key);
            }
            return Some((page, Kind::Data));
        }
        let slot = self.metadata.get(key)?;
        Some((slot.page()?, Kind::Metadata))
    }

    /// Whether the page is here; counts as no use of it.
    pub(crate) fn contains(&self, key: &PageKey) -> bool {
        [&self.protected.pages, &self.main, &self.window, &self.metadata]
            .iter()
            .any(|share| share.contains_key(key))
    }

    /// The pages of a version that are here, each once; counts as no use of them.
    pub(crate) fn held(&self, version: VersionId) -> Vec<u64> {
        let shares = [&self.protected.pages, &self.main, &self.window, &self.metadata];
        let keys = shares.iter().flat_map(|share| share.iter().map(|(key, _)| *key));
        let mut held: Vec<u64> = keys
            .filter(|key| key.version == version)
            .map(|key| key.index.0)
            .collect();
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Keeps a page as far as the budget allows. It is returned for those who wait for it, kept or not.
    pub(crate) fn insert(&self, key: PageKey, bytes: Box<[u8]>, kind: Kind) -> Bytes {
        let (gauge, budget) = match kind {
            Kind::Data => (&self.data_gauge, self.data_budget),
            Kind::Metadata => (&self.metadata_gauge, self.metadata_budget),
        };
        let weight = OwnedPage::weight(bytes.len());
        let live = gauge.live.fetch_add(weight, Ordering::Relaxed) + weight;
        let page = Bytes::from_owner(OwnedPage {
            bytes,
            gauge: gauge.clone(),
        });
        let part = match kind {
            Kind::Data => WINDOW,
            Kind::Metadata => METADATA,
        };
        let now = self.reads.fetch_add(1, Ordering::Relaxed);
        let slot = Arc::new(Place::new(page.clone(), part, now));
        match kind {
            Kind::Data => self.window.insert(key, slot),
            Kind::Metadata => self.metadata.insert(key, slot),
        }
        if live > budget {
            self.trim(kind);
        }
        page
    }

    /// Drops a page, wherever it is. Whoever holds a slice of it keeps that.
    pub(crate) fn remove(&self, key: &PageKey) {
        // What leaves the window or the protected part on its own enters the main part, so that comes after them.
        for share in [&self.window, &self.protected.pages, &self.main, &self.metadata] {
            share.invalidate(key);
        }
    }

    /// Protects pages that were wanted ahead of their readers, as long as that takes the place of no others: what was
    /// read again and again comes first.
    pub(crate) fn protect(&self, keys: impl Iterator<Item = PageKey>) {
        let mut room = self.wanted_capacity.saturating_sub(self.protected.bytes());
        for key in keys {
            if room == 0 {
                return;
            }
            for (part, share) in [(WINDOW, &self.window), (MAIN, &self.main)] {
                if let Some(slot) = share.get(&key)
                    && slot.move_on(part, PROTECTED)
                {
                    room = room.saturating_sub(OwnedPage::weight(slot.len()));
                    self.protected.enter(key, slot);
                    share.invalidate(&key);
                    break;
                }
            }
        }
    }

    /// Bytes of pages alive, overhead included: in the shares and in the hands of readers.
    pub(crate) fn live_bytes(&self, kind: Kind) -> u64 {
        self.gauge(kind).live.load(Ordering::Relaxed)
    }

    /// Pages pushed out or refused for want of room.
    pub(crate) fn evictions(&self, kind: Kind) -> u64 {
        self.gauge(kind).evictions.load(Ordering::Relaxed)
    }

    /// Drops every page.
    pub(crate) fn clear(&self) {
        for share in [&self.window, &self.protected.pages, &self.main, &self.metadata] {
            share.invalidate_all();
        }
        // Bounded, since a reader may hold a slice for as long as it likes.
        for _ in 0..8 {
            self.trim(Kind::Data);
            self.trim(Kind::Metadata);
            if self.live_bytes(Kind::Data) + self.live_bytes(Kind::Metadata) == 0 {
                break;
            }
        }
    }

    fn trim(&self, kind: Kind) {
        match kind {
            Kind::Data => {
                // In the order in which pages go from one part to the next.
                self.window.run_pending_tasks();
                self.protected.pages.run_pending_tasks();
                self.main.run_pending_tasks();
            }
            Kind::Metadata => self.metadata.run_pending_tasks(),
        }
    }

    fn gauge(&self, kind: Kind) -> &Gauge {
        match kind {
            Kind::Data => &self.data_gauge,
            Kind::Metadata => &self.metadata_gauge,
        }
    }
}

fn pages(
    capacity: u64,
    page_size: PageSize,
    policy: EvictionPolicy,
) -> moka::sync::CacheBuilder<PageKey, Slot, SegmentedCache<PageKey, Slot>> {
    // Each segment has its part of the capacity: enough segments that threads do not meet, and enough pages in each
    // that an uneven spread does not matter.
    let pages = capacity / (page_size.bytes() + ENTRY_OVERHEAD);
    let segments = (pages / 128).clamp(1, 16) as usize;
    SegmentedCache::builder(segments)
        // A table that grows is hashed anew each time, by the thread that happens to insert.
        .initial_capacity(pages.min(FIRST_ENTRIES_MAX) as usize)
        .max_capacity(capacity)
        .eviction_policy(policy)
        .weigher(|_, slot: &Slot| {
            let weight = OwnedPage::weight(slot.len());
            u32::try_from(weight).unwrap_or(u32::MAX)
        })
}

/// What leaves the part for want of room is the end of it.
fn count_evictions(part: u8, gauge: Arc<Gauge>) -> impl Fn(Arc<PageKey>, Slot, RemovalCause) + Send + Sync {
    move |_, slot, cause| {
        if !slot.move_on(part, GONE) {
            return;
        }
        slot.empty();
        if cause == RemovalCause::Size {
            gauge.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What leaves the window for want of room takes room that is lent, or asks for a place in the main part.
fn leave_window(
    main: Pages,
    protected: Protected,
) -> impl Fn(Arc<PageKey>, Slot, RemovalCause) + Send + Sync {
    move |key, slot, cause| {
        if cause != RemovalCause::Size {
            if slot.move_on(WINDOW, GONE) {
                slot.empty();
            }
        } else if protected.lends() {
            if slot.move_on(WINDOW, PROTECTED) {
                protected.enter(*key, slot);
            }
        } else if slot.move_on(WINDOW, MAIN) {
            slot.forget_uses();
            main.insert(*key, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageIndex;
    use crate::version::{FileVersion, SourceId, SourcePath};

    fn keys(name: &str) -> impl Fn(u64) -> PageKey {
        let path = SourcePath::root().join(name.as_bytes()).unwrap();
        let version = FileVersion::new(SourceId::new("memory://m"), path, 0, 0, 0).id();
        move |index| PageKey {
            version,
            index: PageIndex(index),
        }
    }

    fn page_size() -> PageSize {
        PageSize::new(16 << 10).unwrap()
    }

    #[test]
    fn wanted_pages_fill_the_protected_part_and_push_nobody_out_of_it() {
        let data = 64 << 20;
        let memory = Memory::new(data, 2 << 20, page_size());
        let (hot, wanted) = (keys("hot"), keys("wanted"));
        let bytes = vec![7; 16 << 10];
        let fill = |keys: &dyn Fn(u64) -> PageKey, count| {
            for index in 0..count {
                memory.insert(keys(index), bytes[..].into(), Kind::Data);
                if index % 100 == 99 {
                    memory.protect((index - 99..=index).map(keys));
                }
            }
        };
        fill(&hot, 500);
        // Twice what the data share holds.
        fill(&wanted, 8000);
        for share in [&memory.window, &memory.protected.pages, &memory.main] {
            share.run_pending_tasks();
        }
        let kept =
            |keys: &dyn Fn(u64) -> PageKey, count| (0..count).filter(|i| memory.contains(&keys(*i))).count();
        assert!(kept(&hot, 500) >= 490, "{} of 500", kept(&hot, 500));
        // What is wanted has most of what the protected part leaves free, and its turn in the others.
        assert!(kept(&wanted, 8000) >= 1800, "{}", kept(&wanted, 8000));
        assert!(memory.live_bytes(Kind::Data) <= data);
        memory.remove(&hot(0));
        assert!(!memory.contains(&hot(0)) && memory.get(&hot(0)).is_none());
    }

    #[test]
    fn what_is_alive_stays_under_the_budget_and_metadata_survives_a_scan() {
        let (data, metadata) = (6 << 20, 2 << 20);
        let memory = Memory::new(data, metadata, page_size());
        let (scan, footer) = (keys("scan"), keys("footer"));
        let bytes = vec![7; 16 << 10];
        for index in 0..32 {
            memory.insert(footer(index), bytes[..].into(), Kind::Metadata);
        }
        for index in 0..10_000 {
            memory.insert(scan(index), bytes[..].into(), Kind::Data);
            assert!(memory.live_bytes(Kind::Data) <= data, "after page {index}");
        }
        let live = memory.live_bytes(Kind::Data);
        assert!(
            live > data / 4 * 3,
            "{live} of {data} bytes are used, though nothing is read twice"
        );
        for index in 0..32 {
            assert_eq!(memory.get(&footer(index)).map(|hit| hit.1), Some(Kind::Metadata));
        }
        assert!(memory.evictions(Kind::Data) > 9_000);
        assert_eq!(memory.evictions(Kind::Metadata), 0);
        memory.clear();
        assert_eq!(memory.live_bytes(Kind::Data), 0);
        assert_eq!(memory.live_bytes(Kind::Metadata), 0);
    }

    #[test]
    fn pages_that_are_asked_for_survive_a_scan() {
        let memory = Memory::new(6 << 20, 1 << 20, page_size());
        let (scan, hot) = (keys("scan"), keys("hot"));
        let bytes = vec![7; 16 << 10];
        for index in 0..64 {
            memory.insert(hot(index), bytes[..].into(), Kind::Data);
        }
        let mut hits = 0;
        for index in 0..8_000 {
            memory.insert(scan(index), bytes[..].into(), Kind::Data);
            hits += u64::from(memory.get(&hot(index % 64)).is_some());
        }
        assert!(hits > 7_600, "{hits} of 8000 hot reads were hits");
    }

    #[test]
    fn pages_that_were_read_several_times_survive_a_scan_during_which_nobody_reads_them() {
        let memory = Memory::new(6 << 20, 1 << 20, page_size());
        let (scan, hot) = (keys("scan"), keys("hot"));
        let bytes = vec![7; 16 << 10];
        let survive = |reads_of_a_page: u64| {
            for index in 0..100 {
                memory.insert(hot(index), bytes[..].into(), Kind::Data);
            }
            for _ in 0..5 {
                (0..100).for_each(|index| assert!(memory.get(&hot(index)).is_some()));
            }
            for index in 0..5000 {
                memory.insert(scan(index), bytes[..].into(), Kind::Data);
                for _ in 0..reads_of_a_page {
                    memory.get(&scan(index));
                }
            }
            (0..100)
                .filter(|index| memory.get(&hot(*index)).is_some())
                .count()
        };
        assert_eq!(survive(1), 100);
        memory.clear();
        assert_eq!(survive(4), 100, "a scan by small reads");
        memory.clear();
        assert_eq!(memory.live_bytes(Kind::Data), 0);
    }

    #[test]
    fn what_was_protected_gives_way_to_what_is_read_now() {
        let memory = Memory::new(6 << 20, 1 << 20, page_size());
        let bytes = vec![7; 16 << 10];
        for name in ["old", "new"] {
            let pages = keys(name);
            for index in 0..150 {
                memory.insert(pages(index), bytes[..].into(), Kind::Data);
            }
            for _ in 0..4 {
                (0..150).for_each(|index| drop(memory.get(&pages(index))));
            }
            assert!(memory.live_bytes(Kind::Data) <= 6 << 20);
        }
        memory.trim(Kind::Data);
        let kept = |name| {
            let pages = keys(name);
            (0..150)
                .filter(|index| memory.get(&pages(*index)).is_some())
                .count()
        };
        assert!(
            kept("new") >= 140 && kept("old") >= 30,
            "{} {}",
            kept("new"),
            kept("old")
        );
    }

    #[test]
    fn a_page_larger_than_the_budget_is_served_and_dropped() {
        let memory = Memory::new(64 << 10, 64 << 10, page_size());
        let key = keys("large")(0);
        let page = memory.insert(key, vec![1; 1 << 20].into(), Kind::Data);
        assert_eq!(page.len(), 1 << 20);
        memory.clear();
        assert!(!memory.contains(&key));
        assert!(memory.live_bytes(Kind::Data) >= 1 << 20);
        drop(page);
        assert_eq!(memory.live_bytes(Kind::Data), 0);
    }
}
