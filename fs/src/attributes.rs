//! What `stat` shows, and for how long the kernel may show it again without asking.

use std::time::{Duration, Instant};

use lookupfs_cache::clock::Jitter;
use lookupfs_cache::mutability::{is_mutable, is_unique};
use lookupfs_cache::namespace::MaxAge;
use lookupfs_cache::source::FileKind;
use lookupfs_cache::version::SourcePath;
use serde::{Deserialize, Serialize};

use crate::owner::Ownership;

/// "Never again", in a length of time that the kernel's arithmetic survives.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// By how much the kernel believes an answer longer than it is told to: it counts in ticks, of 10 ms at most, and rounds up
/// at both ends.
const KERNEL_LATE: Duration = Duration::from_millis(20);

/// What the operator says of the files of a mount: which never change once they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Immutable {
    /// None.
    #[default]
    Nothing,
    /// Those whose names hold a UUID.
    Unique,
    /// All but those that are written again by their nature, such as `LATEST` and `snapshot-7`.
    AllButMutable,
}

/// How long answers may be used; see fs/CONFIG.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ttl {
    /// What is there.
    pub positive: Duration,
    /// That nothing is there.
    pub negative: Duration,
    /// For which names `positive` is for ever. Listings are none of them: new names come to every table.
    pub immutable: Immutable,
}

/// [`Ttl`] as one mount applies it: each name's is a little shorter, so that they do not all end at once.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    ttl: Ttl,
    jitter: Jitter,
}

impl Lifetimes {
    /// The lifetimes of a mount.
    pub fn new(ttl: Ttl, jitter: Jitter) -> Lifetimes {
        Lifetimes { ttl, jitter }
    }

    /// How old answers about `path` may be.
    pub fn of(&self, path: &SourcePath) -> MaxAge {
        let is_for_ever = match self.ttl.immutable {
            Immutable::Nothing => false,
            Immutable::Unique => is_unique(path),
            Immutable::AllButMutable => !is_mutable(path),
        };
        let positive = if is_for_ever { FOREVER } else { self.ttl.positive };
        MaxAge {
            positive: self.jitter.shorten(positive, path),
            negative: self.jitter.shorten(self.ttl.negative, path),
        }
    }

    /// How old the listing of the directory `path` may be.
    pub fn of_listing(&self, path: &SourcePath) -> Duration {
        self.jitter.shorten(self.ttl.positive, path)
    }

    /// For how long the kernel may believe an answer about `path` that the source gave at `asked`.
    pub fn left(&self, path: &SourcePath, asked: Instant, now: Instant) -> Duration {
        let age = now.saturating_duration_since(asked) + KERNEL_LATE;
        self.of(path).positive.saturating_sub(age)
    }

    /// The same for the answer that nothing is there.
    pub fn negative_left(&self, path: &SourcePath, asked: Instant, now: Instant) -> Duration {
        let age = now.saturating_duration_since(asked) + KERNEL_LATE;
        self.of(path).negative.saturating_sub(age)
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

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Ttl = Ttl {
        positive: Duration::from_secs(5),
        negative: Duration::from_secs(1),
        immutable: Immutable::Nothing,
    };
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn path(text: &str) -> SourcePath {
        SourcePath::parse(text.as_bytes()).unwrap()
    }

    fn lifetimes(immutable: Immutable) -> Lifetimes {
        Lifetimes::new(Ttl { immutable, ..TTL }, Jitter::seeded(1))
    }

    #[test]
    fn mutable_names_keep_their_ttl_on_an_immutable_mount() {
        let (unique, plain) = (
            path("/t/data-0e1d2c3b-4a59-6877-8695-a4b3c2d1e0f9-0.orc"),
            path("/t/part-0.orc"),
        );
        let all = lifetimes(Immutable::AllButMutable);
        for name in [
            "snapshot-7",
            "LATEST",
            "EARLIEST",
            "version-hint.text",
            "v3.metadata.json",
            "_metadata",
        ] {
            assert!(
                all.of(&path("/t").join(name.as_bytes()).unwrap()).positive <= TTL.positive,
                "{name}"
            );
        }
        assert!(all.of(&unique).positive > DAY && all.of(&plain).positive > DAY);
        assert!(all.of_listing(&path("/t")) <= TTL.positive && all.of(&plain).negative <= TTL.negative);
        let some = lifetimes(Immutable::Unique);
        assert!(some.of(&unique).positive > DAY && some.of(&plain).positive <= TTL.positive);
        assert!(lifetimes(Immutable::Nothing).of(&unique).positive <= TTL.positive);
    }

    /// P2: never above the ttl.
    #[test]
    fn ten_thousand_names_do_not_get_old_in_one_instant_p2() {
        let lifetimes = lifetimes(Immutable::Nothing);
        let mut ends: Vec<Duration> = (0..10_000)
            .map(|i| lifetimes.of(&path(&format!("/t/{i}"))).positive)
            .collect();
        ends.sort_unstable();
        assert!(ends[0] >= TTL.positive * 9 / 10 && ends[9999] <= TTL.positive);
        let most = ends.windows(501).map(|some| some[500] - some[0]).min().unwrap();
        assert!(
            most > Duration::from_millis(15),
            "500 of 10,000 ended within {most:?}"
        );
    }
}
