//! What `stat` shows, and for how long the kernel may show it again without asking.

use std::time::{Duration, Instant};

use lookupfs_cache::namespace::MaxAge;
use lookupfs_cache::source::FileKind;
use serde::{Deserialize, Serialize};

use crate::owner::Ownership;

/// "Never again", in a length of time that the kernel's arithmetic survives.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long answers may be used; see fs/CONFIG.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ttl {
    /// What is there.
    pub positive: Duration,
    /// That nothing is there.
    pub negative: Duration,
}

impl Ttl {
    /// What is there never changes; only new names are looked for.
    pub fn immutable(negative: Duration) -> Ttl {
        Ttl {
            positive: FOREVER,
            negative,
        }
    }

    /// What is left of the time for an answer that the source gave at `asked`.
    pub fn left(&self, asked: Instant, now: Instant) -> Duration {
        self.positive.saturating_sub(now.saturating_duration_since(asked))
    }

    /// The same for the answer that nothing is there.
    pub fn negative_left(&self, asked: Instant, now: Instant) -> Duration {
        self.negative.saturating_sub(now.saturating_duration_since(asked))
    }

    /// As the namespace wants it.
    pub fn max_age(&self) -> MaxAge {
        MaxAge {
            positive: self.positive,
            negative: self.negative,
        }
    }
}

/// What `stat` shows of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub number: u64,
    /// File, directory or symbolic link.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Modification time, milliseconds since 1970.
    pub mtime_ms: u64,
    /// Owner, group and mode.
    pub ownership: Ownership,
    /// Preferred length of a read: the page size of the cache.
    pub block_bytes: u32,
}

/// An answer that carries attributes.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// What `stat` shows.
    pub attributes: Attributes,
    /// For how long the kernel may show it again.
    pub ttl: Duration,
}

/// The answer to a lookup.
#[derive(Clone, Copy, Debug)]
pub enum LookedUp {
    /// Something is there; the kernel now holds its inode.
    Found(Shown),
    /// Nothing is there, and the kernel may say so by itself for that long.
    Nothing(Duration),
}
