//! Footers: one request for all metadata of a file once a sibling has been read, and a protected place for it.

use super::double::Fixture;
use crate::config::CacheConfig;

const KIB: u64 = 1 << 10;

const NESTED: &[u8] = include_bytes!("../../../tests/data/nested.parquet");
/// A file of [`WIDE_LEN`] bytes from its byte 196,608 on. What is before is data that no test looks into.
const WIDE_TAIL: &[u8] = include_bytes!("../../../tests/data/wide400.parquet.tail");
const WIDE_LEN: u64 = 345_237;
/// Where its page index and footer begin.
const WIDE_INDEX: u64 = 198_100;
const WIDE_FOOTER: u64 = 231_808;

fn wide() -> Vec<u8> {
    let mut file = vec![0; WIDE_LEN as usize - WIDE_TAIL.len()];
    file.extend(WIDE_TAIL);
    file
}

/// Reads as Parquet readers do: the last 8 bytes, the footer, the page index.
async fn read_metadata(fixture: &Fixture, file: &std::sync::Arc<crate::version::FileVersion>) {
    let len = file.len();
    fixture.read(file, len - 8, 8).await;
    fixture.read(file, WIDE_FOOTER, len - WIDE_FOOTER).await;
    fixture.read(file, WIDE_INDEX, WIDE_FOOTER - WIDE_INDEX).await;
}

#[tokio::test]
async fn one_row_of_a_cold_file_takes_two_requests_once_a_sibling_was_read() {
    let fixture = Fixture::new(CacheConfig::default());
    let sibling = fixture.add("/t/day=1/bucket-0/a.parquet", wide());
    read_metadata(&fixture, &sibling).await;
    fixture.settle().await;
    // 64 KiB of tail did not hold the footer, so its reader fetched the rest of it, and the page index.
    assert_eq!(fixture.log().requests(), 3);
    assert!(!fixture.log().overlaps());

    for (path, opens) in [
        ("/t/day=1/bucket-0/b.parquet", 2),
        ("/t/day=2/bucket-1/c.parquet", 3),
    ] {
        let file = fixture.add(path, wide());
        fixture.log().reset();
        read_metadata(&fixture, &file).await;
        fixture.read(&file, 100 * KIB, 1000).await;
        fixture.settle().await;
        let reads = fixture.log().reads.lock().clone();
        assert_eq!(reads.len(), 2, "{path}: {reads:?}");
        let metadata = WIDE_LEN - WIDE_INDEX;
        let asked = fixture.log().bytes();
        assert!(asked <= metadata + metadata / 8 + 3 * 16 * KIB, "{asked} bytes");
        assert_eq!(fixture.cache.stats().opens, opens);
        fixture.log().reset();
        read_metadata(&fixture, &file).await;
        fixture.read(&file, 100 * KIB, 1000).await;
        assert_eq!(fixture.log().requests(), 0, "warm");
    }
}

#[tokio::test]
async fn the_first_file_of_a_directory_has_its_small_metadata_in_one_request() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add("/t/a.parquet", NESTED);
    let len = file.len();
    fixture.read(&file, len - 8, 8).await;
    fixture.read(&file, 152_943, len - 152_943).await;
    fixture.read(&file, 140_218, 152_943 - 140_218).await;
    assert_eq!(fixture.log().requests(), 1);
    let stats = fixture.cache.stats();
    assert_eq!(stats.tail_reads, 1);
    // Three pages hold metadata; the others that the guess took along are data.
    assert!(stats.metadata.memory_bytes < 4 * 16 * KIB, "{stats:?}");
    assert!(stats.data.memory_bytes > 0);
    assert!(stats.metadata.hits > 0);
}

#[tokio::test]
async fn a_small_file_is_one_request_altogether() {
    let fixture = Fixture::new(CacheConfig::default());
    // Not Parquet inside: what the name promises is a guess, and the bytes are the file's own.
    let file = fixture.add_random("/t/a.parquet", 128 << 10);
    for offset in [file.len() - 8, 0, 70_000] {
        // Compares what it reads.
        fixture.read(&file, offset, 8).await;
    }
    assert_eq!(fixture.log().requests(), 1);
    let larger = fixture.add_random("/t/b.parquet", (128 << 10) + 1);
    fixture.log().reset();
    fixture.read(&larger, larger.len() - 8, 8).await;
    fixture.read(&larger, 0, 8).await;
    assert_eq!(fixture.log().requests(), 2);
}

#[tokio::test]
async fn metadata_of_many_files_survives_a_scan() {
    let fixture = Fixture::new(CacheConfig {
        memory_bytes: 32 << 20,
        ..CacheConfig::default()
    });
    let files: Vec<_> = (0..20)
        .map(|number| fixture.add(&format!("/t/{number}.parquet"), wide()))
        .collect();
    for file in &files {
        read_metadata(&fixture, file).await;
    }
    let scan = fixture.add_random("/t/scan.bin", 64 << 20);
    for at in 0..scan.len() / (128 * KIB) {
        fixture.read(&scan, at * 128 * KIB, 128 * KIB).await;
    }
    fixture.settle().await;
    fixture.log().reset();
    for file in &files {
        read_metadata(&fixture, file).await;
    }
    assert_eq!(fixture.log().requests(), 0);
}

#[tokio::test]
async fn a_small_metadata_file_is_fetched_whole_at_the_first_touch() {
    let fixture = Fixture::new(CacheConfig::default());
    let manifest = fixture.add_random("/t/metadata/ab-m0.avro", 5_000_000);
    let large = fixture.add_random("/t/data/large.avro", 9 << 20);
    fixture.read(&manifest, 4_000_000, 10).await;
    fixture.settle().await;
    assert_eq!(fixture.log().requests(), 1);
    assert_eq!(fixture.log().bytes(), manifest.len());
    fixture.read(&large, 4_000_000, 10).await;
    fixture.settle().await;
    assert_eq!(fixture.log().requests(), 2);
    assert_eq!(fixture.log().bytes(), manifest.len() + 16 * KIB);
}

#[tokio::test]
async fn files_that_are_not_what_their_name_says_cost_one_guess() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/t/noise.parquet", 1 << 20);
    fixture.read(&file, file.len() - 8, 8).await;
    fixture.settle().await;
    assert_eq!(fixture.log().bytes(), 64 * KIB);
    fixture.read(&file, 0, 10).await;
    fixture.read(&file, 500_000, 10).await;
    assert_eq!(fixture.log().bytes(), 64 * KIB + 2 * 16 * KIB);
    assert_eq!(fixture.cache.stats().metadata.memory_bytes, 0);
}

#[tokio::test]
async fn without_tails_only_what_is_asked_for_is_fetched() {
    let fixture = Fixture::new(CacheConfig {
        max_tail_bytes: 0,
        ..CacheConfig::default()
    });
    let file = fixture.add("/t/a.parquet", wide());
    let manifest = fixture.add_random("/t/snapshot/snapshot-1", 100_000);
    fixture.read(&file, file.len() - 8, 8).await;
    fixture.read(&manifest, 0, 8).await;
    assert_eq!(fixture.log().requests(), 2);
    assert!(fixture.log().bytes() <= 2 * 16 * KIB);
}
