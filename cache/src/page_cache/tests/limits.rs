//! Memory stays under its budget, and everything returns to zero.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::double::Fixture;
use crate::config::CacheConfig;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[tokio::test]
async fn memory_stays_under_its_budget_and_gauges_return_to_zero() {
    let seed = 0x5eed_0003;
    println!("seed {seed:#x}");
    let mut random = StdRng::seed_from_u64(seed);
    let memory_bytes = 16 * MIB;
    let fixture = Fixture::new(CacheConfig {
        memory_bytes,
        ..CacheConfig::default()
    });
    let file = fixture.add_random("/a.bin", 64 << 20);
    let mut most = 0;
    for _ in 0..100_000 {
        let offset = random.random_range(0..file.len() - 4096);
        fixture.read(&file, offset, 4096).await;
        let stats = fixture.cache.stats();
        let held = stats.data.memory_bytes + stats.metadata.memory_bytes + stats.inflight_bytes;
        most = held.max(most);
    }
    println!("at most {most} of {memory_bytes} bytes");
    assert!(most <= memory_bytes);
    assert!(most > memory_bytes / 3, "the budget is used");
    fixture.settle().await;
    fixture.cache.clear();
    let stats = fixture.cache.stats();
    assert_eq!(stats.data.memory_bytes, 0);
    assert_eq!(stats.metadata.memory_bytes, 0);
    assert_eq!(stats.inflight_bytes, 0);
    assert_eq!(stats.inflight_pages, 0);
    assert_eq!(stats.open_files, 0);
    assert_eq!(stats.data.hits + stats.data.misses, {
        // A read of 4 KiB touches one page or two.
        let touched = stats.data.hits + stats.data.misses;
        assert!((100_000..=200_000).contains(&touched));
        touched
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_stays_under_its_budget_with_many_readers() {
    let memory_bytes = 16 * MIB;
    let fixture = std::sync::Arc::new(Fixture::new(CacheConfig {
        memory_bytes,
        ..CacheConfig::default()
    }));
    let file = fixture.add_random("/a.bin", 64 << 20);
    let mut readers = Vec::new();
    for seed in 0..16 {
        let (fixture, file) = (fixture.clone(), file.clone());
        readers.push(tokio::spawn(async move {
            let mut random = StdRng::seed_from_u64(seed);
            let mut most = 0;
            for _ in 0..2_000 {
                let offset = random.random_range(0..file.len());
                fixture.read(&file, offset, 64 * KIB).await;
                let stats = fixture.cache.stats();
                most = most.max(stats.data.memory_bytes + stats.inflight_bytes);
            }
            most
        }));
    }
    for reader in readers {
        let most = reader.await.unwrap();
        assert!(most <= memory_bytes, "{most} bytes");
    }
    fixture.settle().await;
}

#[tokio::test]
async fn metadata_survives_a_scan_larger_than_the_memory() {
    let fixture = Fixture::new(CacheConfig {
        memory_bytes: 16 * MIB,
        ..CacheConfig::default()
    });
    let manifest = fixture.add_random("/t/manifest/manifest-1", 300_000);
    let file = fixture.add_random("/t/a.bin", 64 << 20);
    // The first touch fetches all of it.
    fixture.read(&manifest, 0, 100).await;
    fixture.settle().await;
    assert_eq!(fixture.log().requests(), 1);
    assert_eq!(fixture.log().bytes(), manifest.len());
    for at in 0..file.len() / (128 * KIB) {
        fixture.read(&file, at * 128 * KIB, 128 * KIB).await;
    }
    fixture.settle().await;
    fixture.log().reset();
    fixture.read(&manifest, 0, manifest.len()).await;
    assert_eq!(fixture.log().requests(), 0);
    let stats = fixture.cache.stats();
    assert_eq!(stats.metadata.evictions, 0);
    assert!(stats.metadata.hits >= 19 && stats.data.evictions > 0, "{stats:?}");
}

#[tokio::test]
async fn a_page_larger_than_its_share_is_served_and_dropped() {
    let fixture = Fixture::new(CacheConfig {
        memory_bytes: 64 * MIB,
        page_size: crate::page::PageSize::new(16 * MIB).unwrap(),
        max_read_ahead_bytes: 0,
        ..CacheConfig::default()
    });
    let file = fixture.add_random("/a.bin", 40 << 20);
    for offset in [0, 20 * MIB, 39 * MIB] {
        fixture.read(&file, offset, MIB).await;
    }
    fixture.settle().await;
    assert!(fixture.cache.stats().data.memory_bytes <= 48 * MIB);
}
