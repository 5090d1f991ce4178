//! The protected part of the memory tier: pages that were read several times, by last use.
//!
//! Owns the count of its bytes, so that room that is not needed yet is lent to pages that nobody has read again; they are
//! the first to go. Called by `memory.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use moka::notification::RemovalCause;
use moka::policy::EvictionPolicy;

use super::place::{GONE, MAIN, PROTECTED, Slot};
use super::{OwnedPage, Pages, pages};
use crate::page::{PageKey, PageSize};

/// The part.
#[derive(Clone, Debug)]
pub(super) struct Protected {
    pub(super) pages: Pages,
    bytes: Arc<AtomicU64>,
    lent_max: u64,
}

impl Protected {
    /// What it pushes out asks for a place in `main`.
    pub(super) fn new(capacity: u64, page_size: PageSize, main: Pages) -> Protected {
        let bytes = Arc::new(AtomicU64::new(0));
        let left = bytes.clone();
        let listener = move |key: Arc<PageKey>, slot: Slot, cause| {
            let weight = OwnedPage::weight(slot.len());
            let is_pushed_out = cause == RemovalCause::Size;
            if !slot.move_on(PROTECTED, if is_pushed_out { MAIN } else { GONE }) {
                return;
            }
            left.fetch_sub(weight, Ordering::Relaxed);
            if is_pushed_out {
                slot.forget_uses();
                main.insert(*key, slot);
            } else {
                slot.empty();
            }
        };
        Protected {
            pages: pages(capacity, page_size, EvictionPolicy::lru())
                .eviction_listener(listener)
                .build_with_hasher(RandomState::new()),
            bytes,
            // Pages spread unevenly over the segments: a full one would push out what is protected.
            lent_max: capacity / 4 * 3,
        }
    }

    /// Takes a page that belongs to this part by now.
    pub(super) fn enter(&self, key: PageKey, slot: Slot) {
        self.bytes
            .fetch_add(OwnedPage::weight(slot.len()), Ordering::Relaxed);
        self.pages.insert(key, slot);
    }

    /// Bytes of its pages, overhead included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is so much room that a page may have it that has not earned it.
    pub(super) fn lends(&self) -> bool {
        self.bytes() < self.lent_max
    }
}
