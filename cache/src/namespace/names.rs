//! How many names of one directory are looked up, and so whether listing it is cheaper than asking for each of them.
//!
//! Owns the rule: a directory is listed in place of a status once at least [`NAMES_MIN`] of its names, and twice as many as
//! the listing costs requests, were looked up within the lifetime of an answer; never if it has more than [`ENTRIES_MAX`]
//! entries, nor again while its last listing would still be young. Decides by counts alone; asks nothing. Called by
//! `namespace.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Fewer names are asked for one by one.
const NAMES_MIN: u32 = 8;
/// Entries that one request lists: the NameNode's default.
pub(super) const ENTRIES_PER_REQUEST: usize = 1000;
/// Larger directories are never listed for the sake of single names.
pub(super) const ENTRIES_MAX: usize = 64_000;
/// Names looked up longer ago say nothing of those to come, however long answers live.
const WINDOW_MAX: Duration = Duration::from_secs(60);

/// Names as bits of their hashes: never more bits than names.
type Names = [u64; 4];

/// The names of one directory that were looked up of late.
#[derive(Debug, Default)]
pub(super) struct NamesOfDirectory(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    begun: Option<Instant>,
    now: Names,
    before: Names,
    /// Of the last listing.
    entries: usize,
    listed: Option<Instant>,
    /// It is too large, or the source does not let us.
    is_unlistable: bool,
}

impl Recent {
    /// Begins a new window if this one is as old as answers live.
    fn roll(&mut self, now: Instant, window: Duration) {
        let begun = *self.begun.get_or_insert(now);
        let age = now.saturating_duration_since(begun);
        if age < window {
            return;
        }
        self.before = if age < window * 2 {
            self.now
        } else {
            Names::default()
        };
        self.now = Names::default();
        self.begun = Some(now);
    }
}

impl NamesOfDirectory {
    /// Notes that `name` was looked up. `lifetime`: how long an answer may be used.
    pub(super) fn note(&self, name: &[u8], now: Instant, lifetime: Duration) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let bit = hasher.finish() as u8;
        let mut recent = self.0.lock();
        recent.roll(now, lifetime.min(WINDOW_MAX));
        recent.now[usize::from(bit / 64)] |= 1 << (bit % 64);
    }

    /// Whether to list the directory rather than to ask for one more of its names.
    pub(super) fn call_for_listing(&self, now: Instant, lifetime: Duration) -> bool {
        // Answers that are old at once answer nothing else.
        if lifetime.is_zero() {
            return false;
        }
        let recent = self.0.lock();
        let count = |names: &Names| names.iter().map(|bits| bits.count_ones()).sum::<u32>();
        let names = count(&recent.now).max(count(&recent.before));
        // It was pushed out of memory, or forgotten: listing again and again would be dearer than any status.
        let is_young = recent
            .listed
            .is_some_and(|listed| now.saturating_duration_since(listed) < lifetime.min(WINDOW_MAX) * 3 / 4);
        let requests = u32::try_from(recent.entries / ENTRIES_PER_REQUEST + 1).unwrap_or(u32::MAX);
        !recent.is_unlistable && !is_young && names >= NAMES_MIN.max(requests.saturating_mul(2))
    }

    /// Notes a listing, whatever it was made for.
    pub(super) fn note_listing(&self, entries: usize, asked: Instant) {
        let mut recent = self.0.lock();
        recent.entries = entries;
        recent.listed = Some(asked);
        recent.is_unlistable = entries > ENTRIES_MAX;
    }

    /// Notes that it cannot be listed, or is too large: not tried again until somebody else lists it.
    pub(super) fn give_up(&self) {
        self.0.lock().is_unlistable = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(5);

    fn note(names: &NamesOfDirectory, count: u32, now: Instant) {
        for name in 0..count {
            names.note(name.to_string().as_bytes(), now, TTL);
        }
    }

    #[test]
    fn a_few_names_are_asked_for_one_by_one_and_many_call_for_a_listing() {
        let (names, begun) = (NamesOfDirectory::default(), Instant::now());
        note(&names, 5, begun);
        note(&names, 5, begun);
        assert!(!names.call_for_listing(begun, TTL), "the same five names");
        note(&names, 40, begun);
        assert!(names.call_for_listing(begun, TTL));
        assert!(!names.call_for_listing(begun, Duration::ZERO));
        names.note_listing(100, begun);
        assert!(!names.call_for_listing(begun + TTL / 2, TTL), "listed just now");
        assert!(names.call_for_listing(begun + TTL, TTL));
    }

    #[test]
    fn the_more_a_listing_costs_the_more_names_it_must_answer() {
        let (names, begun) = (NamesOfDirectory::default(), Instant::now());
        names.note_listing(50_000, begun);
        let later = begun + TTL;
        note(&names, 60, later);
        assert!(!names.call_for_listing(later, TTL), "51 requests in place of 60");
        note(&names, 2000, later);
        assert!(names.call_for_listing(later, TTL));
        names.note_listing(ENTRIES_MAX + 1, begun);
        assert!(!names.call_for_listing(later, TTL), "huge");
        names.note_listing(10, begun);
        assert!(names.call_for_listing(later, TTL));
        names.give_up();
        assert!(!names.call_for_listing(later, TTL));
    }

    #[test]
    fn names_of_two_lifetimes_ago_do_not_count() {
        let (names, begun) = (NamesOfDirectory::default(), Instant::now());
        note(&names, 100, begun);
        let later = begun + TTL * 3 / 2;
        names.note(b"one", later, TTL);
        assert!(names.call_for_listing(later, TTL));
        let much_later = begun + TTL * 4;
        names.note(b"one", much_later, TTL);
        assert!(!names.call_for_listing(much_later, TTL));
    }
}
