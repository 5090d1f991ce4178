//! Right bytes, and no more of them asked of the source than need be.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::double::Fixture;
use crate::config::CacheConfig;
use crate::page::ByteRange;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[tokio::test]
async fn random_ranges_give_the_bytes_of_the_file() {
    let seed = 0x5eed_0001;
    println!("seed {seed:#x}");
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = Fixture::new(CacheConfig {
        memory_bytes: 4 * MIB,
        ..CacheConfig::default()
    });
    let names = ["/a.bin", "/b.parquet", "/c.avro", "/d.orc", "/e.lance"];
    let files: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| fixture.add_random(name, 3_000_000 * index + 12_345))
        .collect();
    for _ in 0..5_000 {
        let file = &files[random.random_range(0..files.len())];
        let offset = random.random_range(0..=file.len() + 1);
        let len = 1 << random.random_range(0..21);
        fixture.read(file, offset, random.random_range(0..=len)).await;
    }
    fixture.settle().await;
    let stats = fixture.cache.stats();
    assert!(
        stats.data.hits > 0 && stats.data.misses > 0 && stats.data.evictions > 0,
        "{stats:?}"
    );
    assert_eq!(stats.failed_extents, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_of_one_cold_page_make_one_request() {
    let fixture = Arc::new(Fixture::new(CacheConfig::default()));
    let file = fixture.add_random("/a.bin", 1 << 20);
    let mut readers = Vec::new();
    for reader in 0..64 {
        let (fixture, file) = (fixture.clone(), file.clone());
        readers.push(tokio::spawn(async move {
            fixture.read(&file, 32 * KIB + reader * 100, 100).await;
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(fixture.log().requests(), 1);
    assert_eq!(fixture.log().bytes(), 16 * KIB);
    let stats = fixture.cache.stats();
    assert_eq!(stats.opens, 1);
    assert_eq!(stats.data.hits + stats.data.joins + stats.data.misses, 64);
    assert_eq!(stats.data.misses, 1);
}

#[tokio::test]
async fn random_small_reads_fetch_exactly_their_pages() {
    let seed = 0x5eed_0002;
    println!("seed {seed:#x}");
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 64 << 20);
    let mut pages = std::collections::BTreeSet::new();
    for _ in 0..2_000 {
        let offset = random.random_range(0..file.len() / 4096) * 4096;
        fixture.read(&file, offset, 4096).await;
        pages.insert(offset / (16 * KIB));
    }
    fixture.settle().await;
    assert_eq!(fixture.log().requests(), pages.len());
    assert_eq!(fixture.log().bytes(), pages.len() as u64 * 16 * KIB);
    assert_eq!(fixture.cache.stats().read_ahead_bytes, 0);
}

/// Reads a file of 64 MiB from its first byte to its last, in the order that `order` gives to each eight reads.
async fn read_sequentially(order: [u64; 8]) -> Fixture {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 64 << 20);
    for group in 0..file.len() / MIB {
        for at in order {
            fixture.read(&file, group * MIB + at * 128 * KIB, 128 * KIB).await;
        }
    }
    fixture.settle().await;
    fixture
}

#[tokio::test]
async fn a_sequential_read_asks_for_large_extents_and_no_byte_twice() {
    for order in [[0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 1, 3, 5, 4, 7, 6]] {
        let fixture = read_sequentially(order).await;
        let log = fixture.log();
        assert!(!log.overlaps());
        assert_eq!(log.bytes(), 64 * MIB);
        assert!(log.requests() <= 56, "{} requests", log.requests());
        let largest = log.reads.lock().iter().map(|range| range.len()).max();
        assert_eq!(largest, Some(2 * MIB));
        assert_eq!(fixture.cache.stats().opens, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_sequential_readers_of_one_file_fetch_it_once() {
    let fixture = Arc::new(Fixture::new(CacheConfig::default()));
    let file = fixture.add_random("/a.bin", 16 << 20);
    let mut readers = Vec::new();
    for _ in 0..8 {
        let (fixture, file) = (fixture.clone(), file.clone());
        readers.push(tokio::spawn(async move {
            for at in 0..file.len() / (128 * KIB) {
                fixture.read(&file, at * 128 * KIB, 128 * KIB).await;
            }
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    fixture.settle().await;
    assert!(!fixture.log().overlaps());
    assert_eq!(fixture.log().bytes(), file.len());
}

#[tokio::test]
async fn missing_pages_around_cached_ones_are_coalesced() {
    let fixture = Fixture::new(CacheConfig {
        max_read_ahead_bytes: 0,
        ..CacheConfig::default()
    });
    let file = fixture.add_random("/a.bin", 16 << 20);
    fixture.read(&file, 64 * KIB, 16 * KIB).await;
    fixture.log().reset();
    // One page in the middle is here: one request bridges it. The extent has a limit: 5 MiB are two requests.
    fixture.read(&file, 0, 5 * MIB).await;
    let reads = fixture.log().reads.lock().clone();
    assert_eq!(
        reads,
        [
            ByteRange::new(0, 4 * MIB).unwrap(),
            ByteRange::new(4 * MIB, 5 * MIB).unwrap()
        ]
    );
}

#[tokio::test]
async fn what_is_cached_is_served_without_waiting_and_without_a_copy() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 100_000);
    let range = |start, end| ByteRange::new(start, end).unwrap();
    assert!(fixture.cache.read_cached(&file, range(0, 100)).is_none());
    fixture.read(&file, 0, 64 * KIB).await;
    let one = fixture.cache.read_cached(&file, range(100, 200)).unwrap();
    let same = fixture.cache.read_cached(&file, range(100, 200)).unwrap();
    assert_eq!(one, fixture.expected(&file, 100, 100));
    assert_eq!(one.as_ptr(), same.as_ptr());
    let two = fixture.cache.read_cached(&file, range(16_000, 17_000)).unwrap();
    assert_eq!(two, fixture.expected(&file, 16_000, 1_000));
    assert!(fixture.cache.read_cached(&file, range(60_000, 90_000)).is_none());
    assert!(fixture.cache.read_cached(&file, range(7, 7)).unwrap().is_empty());
    assert!(fixture.cache.read_cached(&file, range(99_000, 100_001)).is_none());
}
