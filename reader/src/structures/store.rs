//! [`Store`]: entries under a budget, of which those stay that are cheap to keep and dear to make.
//!
//! Owns the eviction. What an entry is worth is what it costs to make, for each byte that it takes and for the time between two
//! uses: the mean of its last ones, or the time since the last if that is longer by now. Time is counted in what is looked for. An entry that
//! is new is taken for a rare one until it has shown what it is. Where more is asked for than fits, in no order, the same entries
//! stay, and all that misses costs little; what is not used any more goes. The least of a sample is evicted, so that a use
//! costs no lock that another use waits for.
//! Room is made before an entry comes, so that the weight is never more than the budget.
//! Called by [`super`].

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::RwLock;

/// Parts with a lock each.
const SHARDS: usize = 16;

/// Entries of which the least is evicted.
const SAMPLES: usize = 32;

/// Samples taken of a shard before the next is looked at.
const SAMPLES_OF_SHARD: usize = 8;

/// Uses are counted into the mean time between them with this share.
const MEAN_OF: u64 = 8;

/// Parts of a use, so that the mean of short times is not rounded away.
const FINE: u64 = 16;

/// How many times more seldom than the average entry a new one is taken to be used.
const NEW_IS_RARER: u64 = 8;

pub(super) struct Store<K, V> {
    shards: Box<[RwLock<Shard<K, V>>]>,
    seeds: Seeds,
    budget_bytes: u64,
    bytes: AtomicU64,
    random: AtomicU64,
}

struct Shard<K, V> {
    /// Times that something was looked for here.
    now: AtomicU64,
    places: HashMap<K, usize, Seeds>,
    slots: Vec<Slot<K, V>>,
}

struct Slot<K, V> {
    key: K,
    value: V,
    weight: u64,
    cost: u64,
    last_use: AtomicU64,
    /// Between two uses, in sixteenths of a use.
    interval: AtomicU64,
}

impl<K: Copy + Eq + Hash, V: Clone> Store<K, V> {
    pub(super) fn new(budget_bytes: u64) -> Store<K, V> {
        Store::with_seeds(budget_bytes, Seeds::random())
    }

    fn with_seeds(budget_bytes: u64, seeds: Seeds) -> Store<K, V> {
        let shard = || {
            RwLock::new(Shard {
                now: AtomicU64::new(0),
                places: HashMap::with_hasher(seeds),
                slots: Vec::new(),
            })
        };
        Store {
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            seeds,
            budget_bytes,
            bytes: AtomicU64::new(0),
            random: AtomicU64::new(1),
        }
    }

    /// Bytes that are held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes that may be held.
    pub(super) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let shard = self.shard(key).read();
        // Also where it is not here: else what is in a shard that nobody finds anything in would never grow old.
        let now = shard.now.fetch_add(1, Relaxed) + 1;
        let slot = &shard.slots[*shard.places.get(key)?];
        slot.used(now);
        Some(slot.value.clone())
    }

    /// Keeps `value`, which takes `weight` bytes, and took as much as reading and inflating `cost` bytes does. What is larger
    /// than a quarter of the budget would push out everything else, and is not kept.
    pub(super) fn put(&self, key: K, value: V, weight: u64, cost: u64) {
        if weight > self.budget_bytes / 4 || !self.reserve(weight) {
            return;
        }
        let replaced = {
            let mut shard = self.shard(&key).write();
            let Shard { now, places, slots } = &mut *shard;
            let slot = Slot {
                key,
                value,
                weight,
                cost,
                last_use: AtomicU64::new(*now.get_mut()),
                interval: AtomicU64::new(NEW_IS_RARER * FINE * (slots.len() as u64 + 1)),
            };
            match places.entry(key) {
                Entry::Occupied(place) => Some(std::mem::replace(&mut slots[*place.get()], slot)),
                Entry::Vacant(place) => {
                    place.insert(slots.len());
                    slots.push(slot);
                    None
                }
            }
        };
        if let Some(replaced) = replaced {
            self.bytes.fetch_sub(replaced.weight, Relaxed);
        }
    }

    /// Makes room for so many bytes, and counts them as held; false if there is none and nothing to evict.
    fn reserve(&self, weight: u64) -> bool {
        loop {
            let with = self.bytes().saturating_add(weight);
            if with > self.budget_bytes {
                if !self.evict_one() {
                    return false;
                }
                continue;
            }
            let before = with - weight;
            let counted = self.bytes.compare_exchange(before, with, Relaxed, Relaxed);
            if counted.is_ok() {
                return true;
            }
        }
    }

    /// Evicts the least of a sample; false if there is nothing.
    fn evict_one(&self) -> bool {
        let mut least: Option<(f64, K)> = None;
        let mut seen = 0;
        let first = self.random_below(SHARDS);
        for number in (first..SHARDS).chain(0..first) {
            let shard = self.shards[number].read();
            let now = shard.now.load(Relaxed);
            for _ in 0..SAMPLES_OF_SHARD.min(shard.slots.len()) {
                let slot = &shard.slots[self.random_below(shard.slots.len())];
                let worth = slot.worth(now);
                if least.is_none_or(|(least, _)| worth < least) {
                    least = Some((worth, slot.key));
                }
                seen += 1;
            }
            if seen >= SAMPLES {
                break;
            }
        }
        let Some((_, key)) = least else {
            return false;
        };
        // Dropped when the lock is gone.
        let evicted = self.shard(&key).write().remove(&key);
        if let Some(evicted) = &evicted {
            self.bytes.fetch_sub(evicted.weight, Relaxed);
        }
        true
    }

    fn shard(&self, key: &K) -> &RwLock<Shard<K, V>> {
        // The map takes the lowest and the highest bits of the hash.
        &self.shards[(self.seeds.hash_one(key) >> 32) as usize % SHARDS]
    }

    fn random_below(&self, end: usize) -> usize {
        let step = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        (fold(step, self.seeds.0) % end as u64) as usize
    }
}

impl<K: Copy + Eq + Hash, V> Shard<K, V> {
    fn remove(&mut self, key: &K) -> Option<Slot<K, V>> {
        let place = self.places.remove(key)?;
        let slot = self.slots.swap_remove(place);
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.key, place);
        }
        // Many small entries may have made way for few large ones: their places are memory too.
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
            self.places.shrink_to(self.slots.len() * 2);
        }
        Some(slot)
    }
}

impl<K, V> Slot<K, V> {
    fn used(&self, now: u64) {
        let since = now.saturating_sub(self.last_use.load(Relaxed));
        let interval = self.interval.load(Relaxed);
        self.last_use.store(now, Relaxed);
        self.interval
            .store((interval * (MEAN_OF - 1) + since * FINE) / MEAN_OF, Relaxed);
    }

    /// What it saves, by what it takes.
    fn worth(&self, now: u64) -> f64 {
        let since = now.saturating_sub(self.last_use.load(Relaxed));
        let interval = self.interval.load(Relaxed).max(since * FINE).max(1);
        self.cost as f64 / self.weight.max(1) as f64 / interval as f64
    }
}

/// Numbers that nobody outside of this process knows, so that no file can choose offsets that hash alike.
#[derive(Clone, Copy)]
struct Seeds(u64, u64);

impl Seeds {
    fn random() -> Seeds {
        let random = RandomState::new();
        Seeds(random.hash_one(0) | 1, random.hash_one(1))
    }
}

impl BuildHasher for Seeds {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded {
            seed: self.0,
            state: self.1,
        }
    }
}

/// A multiplication for each number of a key.
struct Folded {
    seed: u64,
    state: u64,
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for eight in bytes.chunks(8) {
            let number = eight.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
            self.write_u64(number);
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.state = fold(self.state ^ number, self.seed).wrapping_add(self.seed);
    }

    // What tells the variants of an enum apart.
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is evicted follows from them, so each run is the same.
    const SEEDS: u64 = 50;

    fn seeds(number: u64) -> Seeds {
        let mixed = |number: u64| number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Seeds(mixed(2 * number) | 1, mixed(2 * number + 1))
    }

    fn sum<K: Copy + Eq + Hash, V: Clone>(store: &Store<K, V>) -> u64 {
        let shards = store.shards.iter().map(RwLock::read);
        shards
            .map(|shard| {
                assert_eq!(shard.places.len(), shard.slots.len());
                for (place, slot) in shard.slots.iter().enumerate() {
                    assert_eq!(shard.places.get(&slot.key), Some(&place));
                }
                shard.slots.iter().map(|slot| slot.weight).sum::<u64>()
            })
            .sum()
    }

    #[test]
    fn the_budget_holds_and_nothing_is_counted_twice() {
        let store = Store::new(1000);
        for number in 0..5000u64 {
            store.put(number % 700, number, number % 13 * 20, number % 7 * 100);
            assert!(store.bytes() <= 1000);
            if number % 100 == 0 {
                assert_eq!(sum(&store), store.bytes());
            }
            assert!(store.get(&(number % 700)).is_none_or(|got| got == number));
        }
        store.put(1, 1, 251, 1_000_000);
        assert!(store.get(&1).is_none_or(|got| got != 1), "more than a quarter");
        let nothing = Store::new(0);
        nothing.put(1, 1, 1, 1);
        assert_eq!((nothing.get(&1), nothing.bytes()), (None, 0));
    }

    #[test]
    fn what_is_dear_for_its_size_stays() {
        let mut missed = [0, 0];
        for seed in 0..SEEDS {
            let store = Store::with_seeds(100_000, seeds(seed));
            // Half of all is dear; all of that fits, with a third of the rest.
            for pass in 0..50 {
                for number in 0..300u64 {
                    let number = number * 7 % 300;
                    let dear = number % 2 == 0;
                    if store.get(&number).is_none() {
                        store.put(number, (), 500, if dear { 50_000 } else { 1000 });
                        missed[usize::from(dear)] += u64::from(pass >= 5);
                    }
                }
            }
        }
        println!("missed of the cheap and the dear: {missed:?}");
        let missed = missed.map(|count| count / SEEDS);
        // 45 passes of 150 dear ones, of which none should miss, and of 150 cheap ones, of which 100 have to.
        assert!(missed[1] < 45 * 150 / 20, "{missed:?}");
        assert!(missed[0] < 45 * 142, "{missed:?}");
    }

    #[test]
    fn what_is_not_used_any_more_goes() {
        (0..SEEDS).for_each(what_is_not_used_any_more_goes_with);
    }

    fn what_is_not_used_any_more_goes_with(seed: u64) {
        let store = Store::with_seeds(100_000, seeds(seed));
        for number in 0..200u64 {
            store.put(number, (), 500, 50_000);
        }
        for _ in 0..1000 {
            (0..200).for_each(|number| assert!(store.get(&number).is_some()));
        }
        // Another set that fits, and costs half. Victims are sampled, so that one of the old may stay for long.
        let missing = || (1000..1200).filter(|number| store.get(number).is_none());
        for _ in 0..200 {
            let missing: Vec<u64> = missing().collect();
            missing
                .iter()
                .for_each(|number| store.put(*number, (), 500, 25_000));
        }
        let left = missing().count();
        assert!(left <= 10, "seed {seed}: {left} of 200 still missing");
    }

    #[test]
    fn threads_keep_the_books_right() {
        let store = Store::new(10_000);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..20_000u64 {
                        let key = (number * 31 + thread * 7) % 400;
                        match store.get(&key) {
                            Some(got) => assert_eq!(got, key),
                            None => store.put(key, key, 20 + key % 90, key),
                        }
                    }
                });
            }
        });
        assert_eq!(sum(&store), store.bytes());
        assert!(store.bytes() <= 10_000);
    }
}
