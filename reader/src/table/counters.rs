//! [`LookupCounters`]: what a table did, for people and for tests.
//!
//! Owns the counts and the times of stages, and their text. Called by [`super::Table`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::decode::parquet::GatherCounts;

/// What a table did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupCounters {
    /// Files opened.
    pub opens: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Page indexes that disagreed with the data pages they describe, and were given up.
    pub indexes_given_up: u64,
    /// Footers that were known already.
    pub footers_hit: u64,
    /// Data pages that were mapped already.
    pub pages_hit: u64,
    /// Of these, data pages whose maps came from a sidecar.
    pub pages_restored: u64,
    /// Data pages that were read whole and mapped.
    pub pages_mapped: u64,
    /// Dictionaries that were known already.
    pub dictionaries_hit: u64,
    /// Dictionaries that were read.
    pub dictionaries_mapped: u64,
    /// Values that were read by their own bytes.
    pub exact_values: u64,
    /// Data pages of a key column that were searched and in order already.
    pub key_pages_hit: u64,
    /// Data pages of a key column that were put in order to be searched.
    pub key_pages_made: u64,
    /// Microseconds spent opening: footers and page indexes.
    pub open_us: u64,
    /// Microseconds spent planning.
    pub plan_us: u64,
    /// Microseconds spent waiting for bytes.
    pub fetch_us: u64,
    /// Microseconds spent decoding, checks of the page index included.
    pub decode_us: u64,
}

impl LookupCounters {
    /// What `lookup get --explain` prints, two lines, three if keys were looked for; `rows` is how many were printed.
    pub fn explain(&self, rows: usize) -> String {
        let keys = match (self.key_pages_hit, self.key_pages_made) {
            (0, 0) => String::new(),
            (hit, made) => format!("keys: data pages known {hit}  made {made}\n"),
        };
        format!(
            "rows {rows}  opens {}  reads {}  bytes {}  open {} us  plan {} us  fetch {} us  decode {} us\n\
             known: footers {}  data pages {} ({} from the sidecar)  dictionaries {}   made: data pages {}  dictionaries {}   \
             values read by their own bytes {}  indexes given up {}\n{keys}",
            self.opens,
            self.reads,
            self.bytes,
            self.open_us,
            self.plan_us,
            self.fetch_us,
            self.decode_us,
            self.footers_hit,
            self.pages_hit,
            self.pages_restored,
            self.dictionaries_hit,
            self.pages_mapped,
            self.dictionaries_mapped,
            self.exact_values,
            self.indexes_given_up,
        )
    }
}

#[derive(Clone, Copy)]
pub(super) enum Stage {
    Open,
    Plan,
    Fetch,
    Decode,
}

/// What was done, for [`LookupCounters`].
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) times_us: [AtomicU64; 4],
    footers_hit: AtomicU64,
    pages_hit: AtomicU64,
    pages_restored: AtomicU64,
    pages_mapped: AtomicU64,
    dictionaries_hit: AtomicU64,
    dictionaries_mapped: AtomicU64,
    exact_values: AtomicU64,
    key_pages_hit: AtomicU64,
    key_pages_made: AtomicU64,
}

impl Done {
    /// After opening, for which so many footers were known.
    pub(super) fn opened(footers_hit: u64) -> Done {
        Done {
            footers_hit: footers_hit.into(),
            ..Done::default()
        }
    }

    pub(super) fn add(&self, counts: GatherCounts) {
        self.pages_hit.fetch_add(counts.pages_hit, Relaxed);
        self.pages_restored.fetch_add(counts.pages_restored, Relaxed);
        self.pages_mapped.fetch_add(counts.pages_mapped, Relaxed);
        self.dictionaries_hit.fetch_add(counts.dictionaries_hit, Relaxed);
        self.dictionaries_mapped
            .fetch_add(counts.dictionaries_mapped, Relaxed);
        self.exact_values.fetch_add(counts.exact_values, Relaxed);
    }

    pub(super) fn add_key_page(&self, known: bool) {
        let count = if known {
            &self.key_pages_hit
        } else {
            &self.key_pages_made
        };
        count.fetch_add(1, Relaxed);
    }

    pub(super) fn counters(&self) -> LookupCounters {
        let [open_us, plan_us, fetch_us, decode_us] =
            [0, 1, 2, 3].map(|stage| self.times_us[stage].load(Relaxed));
        LookupCounters {
            footers_hit: self.footers_hit.load(Relaxed),
            pages_hit: self.pages_hit.load(Relaxed),
            pages_restored: self.pages_restored.load(Relaxed),
            pages_mapped: self.pages_mapped.load(Relaxed),
            dictionaries_hit: self.dictionaries_hit.load(Relaxed),
            dictionaries_mapped: self.dictionaries_mapped.load(Relaxed),
            exact_values: self.exact_values.load(Relaxed),
            key_pages_hit: self.key_pages_hit.load(Relaxed),
            key_pages_made: self.key_pages_made.load(Relaxed),
            open_us,
            plan_us,
            fetch_us,
            decode_us,
            ..LookupCounters::default()
        }
    }
}
