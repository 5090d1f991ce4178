//! A place in the memory tier: a page, which part of the tier has it, and how often it was read at moments apart.
//!
//! Owns the rule of what is read often enough to be protected. Called by `memory.rs`.

use std::sync::Arc;

use bytes::Bytes;

use crate::sync::{AtomicU8, AtomicU64, Mutex, Ordering};

/// Reads of other pages between two of one that count as two, at least: a scan asks for a page several times too, by small
/// reads, or because a page beside it was missing, but nearly at once. Several scans at a time are fewer than this.
pub(super) const APART_MIN: u64 = 192;
/// So many reads apart, after the one that a page was fetched for, and it is protected. A page that was fetched ahead of
/// its reader has one when that reader comes.
const USES: u8 = 2;

/// A page as moka holds it.
#[derive(Debug)]
pub(super) struct Place {
    /// Empty, which no page is, once it was pushed out.
    bytes: Mutex<Bytes>,
    /// The part that has it, so that leaving one for another is no end: the part's own number, or [`GONE`].
    part: AtomicU8,
    uses: AtomicU8,
    /// When the last of them was, in reads of all pages.
    used: AtomicU64,
}

pub(super) type Slot = Arc<Place>;

pub(super) const WINDOW: u8 = 0;
pub(super) const MAIN: u8 = 1;
pub(super) const PROTECTED: u8 = 2;
pub(super) const METADATA: u8 = 3;
pub(super) const GONE: u8 = 4;

impl Place {
    /// A place in `part`, fetched at `now`.
    pub(super) fn new(page: Bytes, part: u8, now: u64) -> Place {
        Place {
            bytes: Mutex::new(page),
            part: AtomicU8::new(part),
            uses: AtomicU8::new(0),
            used: AtomicU64::new(now),
        }
    }

    /// The page, unless it was pushed out.
    pub(super) fn page(&self) -> Option<Bytes> {
        let page = self.bytes.lock().clone();
        (!page.is_empty()).then_some(page)
    }

    /// Its bytes; 0 once it was pushed out.
    pub(super) fn len(&self) -> usize {
        self.bytes.lock().len()
    }

    /// Goes from one part to another, unless somebody else has moved it meanwhile.
    pub(super) fn move_on(&self, from: u8, to: u8) -> bool {
        self.part
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(super) fn empty(&self) {
        drop(std::mem::take(&mut *self.bytes.lock()));
    }

    /// Counts a read at `now` if the last one counted is `apart` reads ago; whether that makes the page one to protect.
    pub(super) fn note_use(&self, now: u64, apart: u64) -> bool {
        if now.saturating_sub(self.used.load(Ordering::Relaxed)) < apart {
            return false;
        }
        self.used.store(now, Ordering::Relaxed);
        self.uses.fetch_add(1, Ordering::Relaxed) + 1 >= USES
    }

    /// Begins to count anew.
    pub(super) fn forget_uses(&self) {
        self.uses.store(0, Ordering::Relaxed);
    }
}
