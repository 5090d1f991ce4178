//! Single flight: one answer under way for a key, shared by everyone who asks meanwhile.
//!
//! Owns the slots of what is under way. Refuses to run anything: whoever gets the [`Lead`] runs the work as a task of
//! its own and lands the answer, so a waiter that is cancelled cancels nobody else. A lead that is dropped without an
//! answer (a panic, a runtime that shuts down) lands an error, so no waiter hangs. Called by `page_cache.rs` for pages
//! and by `handles.rs` for opened files. `cache/tests/races.rs` compiles this file with another [`crate::sync`] and runs it in every
//! order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use ahash::RandomState;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;

const SHARDS: usize = 64;

struct Slot<T> {
    answer: Mutex<Option<Result<T>>>,
    landed: Notify,
}

type Shard<K, T> = Mutex<HashMap<K, Arc<Slot<T>>, RandomState>>;

/// All that is under way.
pub(crate) struct Flights<K, T> {
    shards: Box<[Shard<K, T>]>,
    hasher: RandomState,
}

/// What [`Flights::claim`] found.
pub(crate) enum Claim<K: Eq + Hash, T> {
    /// Nobody is at it: the caller does the work and lands the answer.
    Lead(Lead<K, T>),
    /// Somebody is at it: wait for the answer.
    Join(Waiter<T>),
}

/// The duty to land an answer; dropping it lands an error.
pub(crate) struct Lead<K: Eq + Hash, T> {
    flights: Arc<Flights<K, T>>,
    key: K,
    slot: Arc<Slot<T>>,
}

/// A share in the answer.
pub(crate) struct Waiter<T>(Arc<Slot<T>>);

impl<K: Eq + Hash, T> Flights<K, T> {
    pub(crate) fn new() -> Arc<Flights<K, T>> {
        Arc::new(Flights {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
        })
    }

    /// Leads the work for `key`, or joins who does.
    pub(crate) fn claim(self: &Arc<Self>, key: K) -> Claim<K, T>
    where
        K: Clone,
    {
        match self.shard(&key).lock().entry(key.clone()) {
            Entry::Occupied(slot) => Claim::Join(Waiter(slot.get().clone())),
            Entry::Vacant(vacant) => {
                let slot = Arc::new(Slot {
                    answer: Mutex::new(None),
                    landed: Notify::new(),
                });
                vacant.insert(slot.clone());
                Claim::Lead(Lead {
                    flights: self.clone(),
                    key,
                    slot,
                })
            }
        }
    }

    /// How many keys are under way.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, key: &K) -> &Shard<K, T> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl<K: Eq + Hash, T> Lead<K, T> {
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// A share in the answer, for the leader's own reader.
    pub(crate) fn waiter(&self) -> Waiter<T> {
        Waiter(self.slot.clone())
    }

    /// Hands the answer to everyone. What it stands for is in the cache already, so that whoever comes after the slot
    /// has gone finds it there.
    pub(crate) fn land(self, answer: Result<T>) {
        *self.slot.answer.lock() = Some(answer);
    }
}

impl<K: Eq + Hash, T> Drop for Lead<K, T> {
    fn drop(&mut self) {
        self.slot.answer.lock().get_or_insert_with(|| {
            Err(Error::new(
                ErrorKind::Unavailable,
                "the fetch was abandoned; read again",
            ))
        });
        self.flights.shard(&self.key).lock().remove(&self.key);
        self.slot.landed.notify_waiters();
    }
}

impl<T: Clone> Waiter<T> {
    fn answer(&self) -> Option<Result<T>> {
        self.0.answer.lock().clone()
    }

    /// The answer, once it has landed.
    pub(crate) async fn wait(self) -> Result<T> {
        // A `Notified` made before the answer is looked for misses no `notify_waiters` after it.
        let landed = self.0.landed.notified();
        if let Some(answer) = self.answer() {
            return answer;
        }
        landed.await;
        self.answer().unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::Unavailable,
                "the fetch landed without an answer; read again",
            ))
        })
    }
}

impl<K: Eq + Hash, T> fmt::Debug for Flights<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("len", &self.len()).finish()
    }
}
