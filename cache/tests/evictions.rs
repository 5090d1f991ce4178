//! Eviction beside readers, in thousands of random orders of their steps: the real `memory/place.rs`, compiled with locks and
//! atomics that a scheduler controls.
//!
//! The order under test is that of `memory.rs` and `memory/protected.rs`: a page leaves one part for another by moving its
//! place on first, and whoever fails to move it leaves it alone. The parts are plain maps here; moka's own order of
//! steps is moka's affair, but that it calls a listener late, and from any thread, is not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use place::{GONE, MAIN, PROTECTED, Place, Slot, WINDOW};
use shuttle::thread;
use sync::{AtomicU64, Mutex, Ordering};

#[path = "../src/memory/place.rs"]
#[expect(dead_code, reason = "the file has parts that this test does not call")]
mod place;

#[path = "sync/shuttle.rs"]
mod sync;

const ORDERS: usize = 3000;
const KEYS: u64 = 2;

type Part = Mutex<HashMap<u64, Slot>>;

/// The steps of the memory tier, with parts that hold what they are given until somebody pushes it out.
#[derive(Default)]
struct Memory {
    window: Part,
    main: Part,
    protected: Part,
    /// As `protected.rs` counts.
    protected_pages: AtomicU64,
    /// Whether a reader moves the place on before it enters the page elsewhere, as it should.
    is_careless: bool,
}

fn slot_of(part: &Part, key: u64) -> Option<Slot> {
    part.lock().get(&key).cloned()
}

impl Memory {
    fn insert(&self, key: u64) {
        let slot = Arc::new(Place::new(Bytes::from_static(b"page"), WINDOW, 0));
        let before = self.window.lock().insert(key, slot);
        if let Some(before) = before {
            end(WINDOW, &before);
        }
    }

    fn get(&self, key: u64) -> Option<Bytes> {
        if let Some(page) = slot_of(&self.protected, key).and_then(|slot| slot.page()) {
            return Some(page);
        }
        for (number, part) in [(MAIN, &self.main), (WINDOW, &self.window)] {
            let Some(slot) = slot_of(part, key) else {
                continue;
            };
            let Some(page) = slot.page() else {
                continue;
            };
            if slot.move_on(number, PROTECTED) || self.is_careless {
                self.protected_pages.fetch_add(1, Ordering::Relaxed);
                let before = self.protected.lock().insert(key, slot);
                if let Some(before) = before {
                    self.leave_protected(key, before, false);
                }
                let gone = part.lock().remove(&key);
                if let Some(gone) = gone {
                    end(number, &gone);
                }
            }
            return Some(page);
        }
        None
    }

    /// What moka's listeners do, for whatever is pushed out.
    fn push_out_of_window(&self, key: u64) {
        let slot = self.window.lock().remove(&key);
        if let Some(slot) = slot
            && slot.move_on(WINDOW, MAIN)
        {
            self.enter_main(key, slot);
        }
    }

    fn push_out_of_protected(&self, key: u64) {
        let slot = self.protected.lock().remove(&key);
        if let Some(slot) = slot {
            self.leave_protected(key, slot, true);
        }
    }

    fn leave_protected(&self, key: u64, slot: Slot, is_pushed_out: bool) {
        if !slot.move_on(PROTECTED, if is_pushed_out { MAIN } else { GONE }) {
            return;
        }
        self.protected_pages.fetch_sub(1, Ordering::Relaxed);
        if is_pushed_out {
            slot.forget_uses();
            self.enter_main(key, slot);
        } else {
            slot.empty();
        }
    }

    fn push_out_of_main(&self, key: u64) {
        let slot = self.main.lock().remove(&key);
        if let Some(slot) = slot {
            end(MAIN, &slot);
        }
    }

    fn enter_main(&self, key: u64, slot: Slot) {
        let before = self.main.lock().insert(key, slot);
        if let Some(before) = before {
            end(MAIN, &before);
        }
    }

    /// What is counted is what is there, and no place holds bytes that no part can give.
    fn check(&self) {
        let parts = [
            (WINDOW, &self.window),
            (MAIN, &self.main),
            (PROTECTED, &self.protected),
        ];
        let mut protected = 0;
        for (number, part) in parts {
            for slot in part.lock().values() {
                // A page that was moved on is in the part that it was moved to, or was pushed out of that since.
                assert!(
                    slot.move_on(number, number),
                    "in part {number}, and belongs to another"
                );
                assert!(slot.page().is_some(), "in part {number}, and without its bytes");
                protected += u64::from(number == PROTECTED);
            }
        }
        assert_eq!(
            self.protected_pages.load(Ordering::Relaxed),
            protected,
            "pages in part {PROTECTED}, as counted and as there"
        );
    }
}

/// The end of a page in `part`, if that still has it.
fn end(part: u8, slot: &Slot) {
    if slot.move_on(part, GONE) {
        slot.empty();
    }
}

fn readers_and_evictors(is_careless: bool) {
    let check = move || {
        let memory = Arc::new(Memory {
            is_careless,
            ..Memory::default()
        });
        for key in 0..KEYS {
            memory.insert(key);
        }
        let reader = |memory: Arc<Memory>| {
            move || {
                for key in 0..KEYS {
                    if let Some(page) = memory.get(key) {
                        assert_eq!(page, "page");
                    }
                }
            }
        };
        let evictor = |memory: Arc<Memory>| {
            move || {
                for key in 0..KEYS {
                    memory.push_out_of_window(key);
                    memory.push_out_of_protected(key);
                    memory.push_out_of_main(key);
                }
            }
        };
        let mut threads: Vec<_> = (0..2).map(|_| thread::spawn(reader(memory.clone()))).collect();
        threads.push(thread::spawn(evictor(memory.clone())));
        let writer = memory.clone();
        threads.push(thread::spawn(move || writer.insert(0)));
        for thread in threads {
            thread.join().unwrap();
        }
        memory.check();
    };
    shuttle::check_random(check, ORDERS);
}

#[test]
fn a_page_has_one_place_whoever_moves_it() {
    readers_and_evictors(false);
}

/// The test finds what it is for; by which of the checks depends on the order that is met first.
#[test]
#[should_panic(expected = "in part")]
fn a_page_that_is_entered_without_moving_its_place_on_is_found() {
    readers_and_evictors(true);
}
