//! The memory of namespaces: what all sources of a daemon have answered, under one budget.
//!
//! Three shares, each by last use, since an answer is worth nothing once it is old: statuses, names that are absent (a
//! sixteenth, and at most so many, so that a search for what is not there pushes out nothing else), and listings. An entry
//! carries its owner, who counts its bytes. Refuses to judge an answer's age. Called by `namespace.rs`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::Known;
use super::names::NamesOfDirectory;
use crate::source::{FileStatus, Listing};
use crate::stats::{AnswerStats, Counter};
use crate::version::SourcePath;

/// Rough memory of one answer beside its path, in bytes: key, hash table, queue nodes, owner and group.
const ANSWER_BYTES: usize = 320;
/// Rough memory of one entry of a listing beside its name, in bytes.
const ENTRY_BYTES: usize = 192;
/// Absent names remembered at most.
const ABSENT_MAX: u64 = 65_536;
/// No mount believes for longer that nothing is there, so memory need not either.
const ABSENT_AGE_MAX: Duration = Duration::from_secs(60);
/// Directories of which it is remembered how many of their names are looked up.
const DIRECTORIES_MAX: u64 = 4096;

/// Counters and gauge of one kind of answer.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    evictions: Counter,
    bytes: AtomicU64,
}

impl Tally {
    pub(super) fn stats(&self) -> AnswerStats {
        AnswerStats {
            hits: self.hits.get(),
            misses: self.misses.get(),
            evictions: self.evictions.get(),
            memory_bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// One source's part in the memory.
#[derive(Debug, Default)]
pub(super) struct Owner {
    number: u64,
    pub(super) statuses: Tally,
    pub(super) absent: Tally,
    pub(super) listings: Tally,
}

/// A path of one source.
#[derive(Clone, Debug)]
pub(super) struct Key {
    owner: Arc<Owner>,
    path: SourcePath,
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.owner.number == other.owner.number && self.path == other.path
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.owner.number.hash(state);
        self.path.hash(state);
    }
}

/// Statuses, absent names and listings of any number of namespaces.
#[derive(Debug)]
pub struct NamespaceMemory {
    pub(super) statuses: Cache<Key, Known<FileStatus>>,
    /// When the source was asked.
    pub(super) absent: Cache<Key, Instant>,
    pub(super) listings: Cache<Key, Known<Arc<Listing>>>,
    pub(super) directories: Cache<Key, Arc<NamesOfDirectory>>,
    /// What an absent name weighs at least, which bounds their number.
    absent_bytes_min: u32,
    listing_bytes: u64,
    owners: AtomicU64,
}

impl NamespaceMemory {
    /// For at most `memory_bytes` of answers, by estimate.
    pub fn new(memory_bytes: u64) -> Arc<NamespaceMemory> {
        let absent_bytes = memory_bytes / 16;
        let status_bytes = memory_bytes / 16 * 7;
        let listing_bytes = memory_bytes / 2;
        let absent_bytes_min = u32::try_from(absent_bytes / ABSENT_MAX).unwrap_or(u32::MAX);
        Arc::new(NamespaceMemory {
            statuses: share(status_bytes, |key, _| answer_bytes(key), |owner| &owner.statuses).build(),
            absent: share(
                absent_bytes,
                move |key, _| answer_bytes(key).max(absent_bytes_min),
                |owner| &owner.absent,
            )
            .time_to_live(ABSENT_AGE_MAX)
            .build(),
            listings: share(
                listing_bytes,
                |key, known: &Known<Arc<Listing>>| listing_bytes_of(key, &known.value),
                |owner| &owner.listings,
            )
            .build(),
            directories: Cache::builder()
                .max_capacity(DIRECTORIES_MAX)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            absent_bytes_min,
            listing_bytes,
            owners: AtomicU64::new(0),
        })
    }

    /// How many entries a listing may have so that keeping it is no burden on the others.
    pub(super) fn listing_entries_max(&self) -> usize {
        usize::try_from(self.listing_bytes / 4).unwrap_or(usize::MAX) / (ENTRY_BYTES + 32)
    }

    pub(super) fn new_owner(&self) -> Arc<Owner> {
        Arc::new(Owner {
            number: self.owners.fetch_add(1, Ordering::Relaxed),
            ..Owner::default()
        })
    }

    pub(super) fn key(owner: &Arc<Owner>, path: &SourcePath) -> Key {
        Key {
            owner: owner.clone(),
            path: path.clone(),
        }
    }

    pub(super) fn insert_status(&self, key: Key, known: Known<FileStatus>) {
        add(&key.owner.statuses, answer_bytes(&key));
        self.absent.invalidate(&key);
        self.statuses.insert(key, known);
    }

    pub(super) fn insert_absent(&self, key: Key, asked: Instant) {
        add(&key.owner.absent, answer_bytes(&key).max(self.absent_bytes_min));
        self.statuses.invalidate(&key);
        self.absent.insert(key, asked);
    }

    pub(super) fn insert_listing(&self, key: Key, known: Known<Arc<Listing>>) {
        add(&key.owner.listings, listing_bytes_of(&key, &known.value));
        self.listings.insert(key, known);
        // A listing may be large: what it pushes out goes now, and not some hundred listings later.
        self.listings.run_pending_tasks();
    }

    /// Drops what `owner` has.
    pub(super) fn clear(&self, owner: &Arc<Owner>) {
        clear(&self.statuses, owner);
        clear(&self.absent, owner);
        clear(&self.listings, owner);
        clear(&self.directories, owner);
    }

    /// Ends what insertions have put off, so that gauges are exact.
    pub(super) fn settle(&self) {
        self.statuses.run_pending_tasks();
        self.absent.run_pending_tasks();
        self.listings.run_pending_tasks();
    }
}

fn answer_bytes(key: &Key) -> u32 {
    u32::try_from(ANSWER_BYTES + 2 * key.path.as_bytes().len()).unwrap_or(u32::MAX)
}

fn listing_bytes_of(key: &Key, listing: &Listing) -> u32 {
    let names: usize = listing
        .entries
        .iter()
        .map(|entry| ENTRY_BYTES + entry.name.len())
        .sum();
    u32::try_from(answer_bytes(key) as usize + names).unwrap_or(u32::MAX)
}

fn add(tally: &Tally, bytes: u32) {
    tally.bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
}

type Builder<V> = moka::sync::CacheBuilder<Key, V, Cache<Key, V>>;

/// A cache whose owners' tallies lose what leaves it, whyever it does.
fn share<V: Clone + Send + Sync + 'static>(
    bytes: u64,
    weigh: impl Fn(&Key, &V) -> u32 + Send + Sync + Clone + 'static,
    tally: fn(&Owner) -> &Tally,
) -> Builder<V> {
    let weigh_again = weigh.clone();
    Cache::builder()
        .max_capacity(bytes)
        .eviction_policy(EvictionPolicy::lru())
        .weigher(weigh)
        .eviction_listener(move |key: Arc<Key>, value, cause| {
            let tally = tally(&key.owner);
            let bytes = u64::from(weigh_again(&key, &value));
            tally.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if cause == moka::notification::RemovalCause::Size {
                tally.evictions.add(1);
            }
        })
}

fn clear<V: Clone + Send + Sync + 'static>(cache: &Cache<Key, V>, owner: &Arc<Owner>) {
    for (key, _) in cache {
        if key.owner.number == owner.number {
            cache.invalidate(&*key);
        }
    }
    cache.run_pending_tasks();
}
