//! Single flight beside eviction, in thousands of random orders of their steps: the real `flight.rs`, compiled with locks
//! that a scheduler controls, and a memory that forgets at any moment.
//!
//! The order under test is that of `page_cache/missing.rs` and `fetch.rs`: look, claim, look again, fetch, keep, land.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flight::{Claim, Flights};
use shuttle::future;

#[path = "../src/flight.rs"]
#[expect(dead_code, reason = "the file has parts that this test does not call")]
mod flight;

mod error {
    //! As `flight.rs` knows it.
    pub(crate) use lookupfs_cache::error::{Error, ErrorKind, Result};
}

#[path = "sync/shuttle.rs"]
#[expect(unused_imports, reason = "the door has more than this test goes through")]
mod sync;

const ORDERS: usize = 3000;
const KEY: u32 = 7;
const BYTES: u32 = 42;

/// What a fetch does with its bytes, and when.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// As in `fetch.rs`.
    KeepThenLand,
    /// The bug that the order prevents.
    LandThenKeep,
}

struct Cache {
    flights: Arc<Flights<u32, u32>>,
    memory: sync::Mutex<Option<u32>>,
    /// Fetches so far, and evictions that took something.
    fetches: AtomicU32,
    evictions: AtomicU32,
    looks_again: bool,
    order: Order,
}

impl Cache {
    fn new(order: Order, looks_again: bool) -> Arc<Cache> {
        Arc::new(Cache {
            flights: Flights::new(),
            memory: sync::Mutex::new(None),
            fetches: AtomicU32::new(0),
            evictions: AtomicU32::new(0),
            looks_again,
            order,
        })
    }

    async fn read(self: Arc<Cache>) -> u32 {
        if let Some(bytes) = *self.memory.lock() {
            return bytes;
        }
        match self.flights.claim(KEY) {
            Claim::Join(waiter) => waiter.wait().await.unwrap(),
            Claim::Lead(lead) => {
                let again = *self.memory.lock();
                if let Some(bytes) = again.filter(|_| self.looks_again) {
                    lead.land(Ok(bytes));
                    return bytes;
                }
                let waiter = lead.waiter();
                let cache = self.clone();
                future::spawn(async move {
                    cache.fetches.fetch_add(1, Ordering::Relaxed);
                    future::yield_now().await;
                    match cache.order {
                        Order::KeepThenLand => {
                            *cache.memory.lock() = Some(BYTES);
                            lead.land(Ok(BYTES));
                        }
                        Order::LandThenKeep => {
                            lead.land(Ok(BYTES));
                            *cache.memory.lock() = Some(BYTES);
                        }
                    }
                });
                waiter.wait().await.unwrap()
            }
        }
    }

    fn evict(&self) {
        if self.memory.lock().take().is_some() {
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Readers and an evictor at once; afterwards every reader has the bytes, nothing is under way, and each fetch but the
/// first was made necessary by an eviction.
fn readers_and_an_evictor(order: Order, looks_again: bool, evictions: u32) {
    let check = move || {
        let cache = Cache::new(order, looks_again);
        let readers: Vec<_> = (0..3).map(|_| future::spawn(cache.clone().read())).collect();
        let evictor = {
            let cache = cache.clone();
            future::spawn(async move {
                for _ in 0..evictions {
                    cache.evict();
                    future::yield_now().await;
                }
            })
        };
        future::block_on(async {
            for reader in readers {
                assert_eq!(reader.await.unwrap(), BYTES);
            }
            evictor.await.unwrap();
            // Readers may have their answer a moment before the slot goes. One that stays is a schedule without end.
            while cache.flights.len() > 0 {
                future::yield_now().await;
            }
        });
        let (fetches, taken) = (
            cache.fetches.load(Ordering::Relaxed),
            cache.evictions.load(Ordering::Relaxed),
        );
        assert!(fetches <= 1 + taken, "{fetches} fetches, {taken} evictions");
    };
    shuttle::check_random(check, ORDERS);
    shuttle::check_pct(check, ORDERS, 3);
}

#[test]
fn bytes_are_fetched_once_unless_they_are_evicted_in_every_order() {
    readers_and_an_evictor(Order::KeepThenLand, true, 0);
    readers_and_an_evictor(Order::KeepThenLand, true, 3);
}

#[test]
#[should_panic(expected = "fetches")]
fn the_orders_find_a_fetch_that_lands_before_it_keeps() {
    readers_and_an_evictor(Order::LandThenKeep, true, 0);
}

#[test]
#[should_panic(expected = "fetches")]
fn the_orders_find_a_leader_that_does_not_look_again() {
    readers_and_an_evictor(Order::KeepThenLand, false, 0);
}

#[test]
fn nobody_waits_for_a_lead_that_is_dropped_in_any_order() {
    let check = || {
        let flights = Flights::<u32, u32>::new();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let flights = flights.clone();
                future::spawn(async move {
                    match flights.claim(KEY) {
                        Claim::Join(waiter) => waiter.wait().await.is_err(),
                        Claim::Lead(lead) => {
                            future::yield_now().await;
                            let waiter = lead.waiter();
                            drop(lead);
                            waiter.wait().await.is_err()
                        }
                    }
                })
            })
            .collect();
        future::block_on(async {
            for reader in readers {
                assert!(reader.await.unwrap(), "an abandoned fetch is an error");
            }
        });
        assert_eq!(flights.len(), 0);
    };
    shuttle::check_random(check, ORDERS);
}
