//! Warming: nothing is fetched twice, what was warmed costs no request afterwards, and figures equal a naive count.

use std::sync::Arc;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::double::Fixture;
use crate::config::CacheConfig;
use crate::error::ErrorKind;
use crate::page::ByteRange;
use crate::page_cache::Kept;
use crate::version::FileVersion;

const PAGE: u64 = 16 << 10;
const NESTED: &[u8] = include_bytes!("../../../tests/data/nested.parquet");
/// Where the page index of [`NESTED`] begins.
const NESTED_INDEX: u64 = 140_218;
/// A file of [`WIDE_LEN`] bytes from its byte 196,608 on.
const WIDE_TAIL: &[u8] = include_bytes!("../../../tests/data/wide400.parquet.tail");
const WIDE_LEN: u64 = 345_237;
const WIDE_INDEX: u64 = 198_100;

fn wide() -> Vec<u8> {
    let mut file = vec![0; WIDE_LEN as usize - WIDE_TAIL.len()];
    file.extend(WIDE_TAIL);
    file
}

fn fixture() -> Fixture {
    Fixture::new(CacheConfig::default())
}

async fn fill(fixture: &Fixture, file: &Arc<FileVersion>, range: ByteRange) -> u64 {
    fixture.cache.fill(&fixture.source, file, range).await.unwrap()
}

fn whole(file: &FileVersion) -> ByteRange {
    ByteRange::clamped(0, u64::MAX, file.len())
}

#[tokio::test]
async fn random_fills_fetch_each_page_once_and_kept_equals_a_naive_count() {
    let seed: u64 = StdRng::from_os_rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // A reader may fetch kept pages again rather than spend a second request on what lies behind them: not here.
    let fixture = Fixture::new(CacheConfig {
        max_gap_bytes: 0,
        ..CacheConfig::default()
    });
    let len: u64 = 3_000_001;
    let file = fixture.add_random("/t/plain.csv", len as usize);
    let pages = len.div_ceil(PAGE);
    let mut kept = vec![false; pages as usize];
    for _ in 0..60 {
        let range = ByteRange::clamped(random.random_range(0..len), random.random_range(0..400_000), len);
        let touched = fixture.cache.page_size().pages_of(range);
        let mut expected = 0;
        for page in touched.clone() {
            if !std::mem::replace(&mut kept[page as usize], true) {
                expected += ((page + 1) * PAGE).min(len) - page * PAGE;
            }
        }
        if random.random_bool(0.3) && !range.is_empty() {
            // A reader may get there first; it reads ahead, so what it fetches is counted by what is kept then.
            fixture.read(&file, range.start(), range.len().min(50_000)).await;
            fixture.settle().await;
            fill(&fixture, &file, range).await;
            for page in 0..pages {
                let range = ByteRange::clamped(page * PAGE, PAGE, len);
                kept[page as usize] |= fixture.cache.kept(&file, range).in_memory == 1;
            }
        } else {
            assert_eq!(fill(&fixture, &file, range).await, expected, "{range:?}");
        }
        let look = ByteRange::clamped(random.random_range(0..len), random.random_range(0..900_000), len);
        let looked = fixture.cache.page_size().pages_of(look);
        let count = looked.clone().filter(|page| kept[*page as usize]).count() as u64;
        let expected = Kept {
            pages: looked.end - looked.start,
            kept: count,
            in_memory: count,
            on_disk: 0,
        };
        assert_eq!(fixture.cache.kept(&file, look), expected);
    }
    assert!(!fixture.log().overlaps(), "a byte was fetched twice");
    fill(&fixture, &file, whole(&file)).await;
    assert_eq!(fixture.log().bytes(), len);
    fixture.log().reset();
    for at in (0..len).step_by(100_000) {
        fixture.read(&file, at, 100_000).await;
    }
    assert_eq!(fixture.log().requests(), 0, "warm");
}

#[tokio::test]
async fn metadata_is_found_and_filled_in_few_requests_and_reading_it_costs_none() {
    let fixture = fixture();
    for (path, bytes, from, requests) in [
        // 64 KiB do not hold the footer of the wide file, nor that its page index.
        ("/t/a.parquet", wide(), WIDE_INDEX, 3),
        ("/t/b.parquet", wide(), WIDE_INDEX, 1),
        ("/u/n.parquet", NESTED.to_vec(), NESTED_INDEX, 1),
        (
            "/u/s.orc",
            include_bytes!("../../../tests/data/small.orc").to_vec(),
            2318,
            1,
        ),
        (
            "/u/s.lance",
            include_bytes!("../../../tests/data/small.lance").to_vec(),
            704,
            1,
        ),
        ("/u/manifest-1", vec![7; 100_000], 0, 1),
    ] {
        let file = fixture.add(path, bytes);
        fixture.log().reset();
        assert!(
            fixture
                .cache
                .known_metadata(&file)
                .await
                .is_none_or(|range| range.start() == 0)
        );
        let fetched = fixture.cache.fill_metadata(&fixture.source, &file).await.unwrap();
        assert_eq!(fetched, fixture.log().bytes(), "{path}");
        assert!(
            fixture.log().requests() <= requests,
            "{path}: {:?}",
            fixture.log().reads
        );
        assert!(!fixture.log().overlaps());
        // With what readers ask for first.
        let from = from.min(file.len().saturating_sub(64 << 10));
        let metadata = ByteRange::new(from, file.len()).unwrap();
        assert_eq!(
            fixture.cache.known_metadata(&file).await,
            Some(metadata),
            "{path}"
        );
        let kept = fixture.cache.kept(&file, metadata);
        assert_eq!(kept.kept, kept.pages, "{path}");
        fixture.log().reset();
        assert_eq!(
            fixture.cache.fill_metadata(&fixture.source, &file).await.unwrap(),
            0
        );
        fixture.read(&file, from, file.len() - from).await;
        assert_eq!(fixture.log().requests(), 0, "{path}: warm");
    }
}

#[tokio::test]
async fn what_was_learned_may_be_forgotten_since_the_footer_says_it_again() {
    let fixture = fixture();
    let file = fixture.add("/t/a.parquet", wide());
    fixture.cache.fill_metadata(&fixture.source, &file).await.unwrap();
    fixture.cache.tails.clear();
    let metadata = ByteRange::new(WIDE_INDEX, WIDE_LEN).unwrap();
    assert_eq!(fixture.cache.known_metadata(&file).await, Some(metadata));
    assert_eq!(
        fixture.cache.fill_metadata(&fixture.source, &file).await.unwrap(),
        0
    );
    let plain = fixture.add("/t/plain.csv", vec![1; 100_000]);
    assert_eq!(
        fixture
            .cache
            .fill_metadata(&fixture.source, &plain)
            .await
            .unwrap(),
        0
    );
    assert!(fixture.cache.known_metadata(&plain).await.unwrap().is_empty());
}

#[tokio::test]
async fn files_that_lie_about_their_metadata_cost_little() {
    let fixture = fixture();
    let torn = fixture.add("/t/torn.parquet", vec![0; 3_000_000]);
    assert!(fixture.cache.fill_metadata(&fixture.source, &torn).await.unwrap() <= 96 << 10);
    let names = ["a".to_owned()];
    let error = fixture
        .cache
        .find_columns(&fixture.source, &torn, &names)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);

    let mut liar = vec![0; 80 << 20];
    let len = liar.len();
    liar[len - 8..len - 4].copy_from_slice(&(70u32 << 20).to_le_bytes());
    liar[len - 4..].copy_from_slice(b"PAR1");
    let liar = fixture.add("/t/liar.parquet", liar);
    fixture.log().reset();
    let error = fixture
        .cache
        .fill_metadata(&fixture.source, &liar)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(fixture.log().bytes() <= 96 << 10);
    for len in 0..12 {
        let short = fixture.add(&format!("/t/{len}.parquet"), vec![b'P'; len]);
        fixture
            .cache
            .fill_metadata(&fixture.source, &short)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn columns_are_filled_with_their_metadata_and_nothing_else() {
    use parquet::file::metadata::ParquetMetaDataReader;
    let fixture = fixture();
    let file = fixture.add("/t/n.parquet", NESTED.to_vec());
    let at = NESTED.len() - 8;
    let footer = u32::from_le_bytes(NESTED[at..at + 4].try_into().unwrap()) as usize;
    let metadata = ParquetMetaDataReader::decode_metadata(&NESTED[at - footer..at]).unwrap();
    let column = metadata.row_group(0).columns().last().unwrap();
    let names = [column.column_path().string(), "nowhere".to_owned()];
    assert!(fixture.cache.known_columns(&file, &names).await.is_none());
    let found = fixture
        .cache
        .find_columns(&fixture.source, &file, &names)
        .await
        .unwrap();
    assert_eq!(found.value.missing, ["nowhere"]);
    assert_eq!(found.fetched, fixture.log().bytes());
    for range in &found.value.ranges {
        fill(&fixture, &file, *range).await;
    }
    assert_eq!(
        fixture.cache.known_columns(&file, &names).await,
        Some(found.value)
    );
    fixture.log().reset();
    for group in metadata.row_groups() {
        let (start, len) = group.columns().last().unwrap().byte_range();
        fixture.read(&file, start, len).await;
    }
    fixture
        .read(&file, NESTED_INDEX, NESTED.len() as u64 - NESTED_INDEX)
        .await;
    assert_eq!(fixture.log().requests(), 0);
}

#[tokio::test]
async fn columns_are_found_even_where_memory_holds_hardly_any_footer() {
    let fixture = Fixture::new(CacheConfig {
        memory_bytes: 600 << 10,
        ..CacheConfig::default()
    });
    let names = ["c000".to_owned(), "nowhere".to_owned()];
    let files: Vec<_> = (0..40)
        .map(|at| fixture.add(&format!("/t/{at}.parquet"), wide()))
        .collect();
    let found = files
        .iter()
        .map(|file| fixture.cache.find_columns(&fixture.source, file, &names));
    let found = join_all(found).await;
    let first = found[0].as_ref().unwrap().value.clone();
    assert!(first.missing.contains(&names[1]));
    for found in found {
        assert_eq!(found.unwrap().value, first);
    }
    assert!(fixture.cache.stats().data.evictions > 0, "memory held all of it");
    fixture.settle().await;
}

#[tokio::test]
async fn many_who_warm_the_same_fetch_it_once() {
    let fixture = fixture();
    let file = fixture.add_random("/t/plain", 5_000_000);
    let fills = (0..8).map(|_| fill(&fixture, &file, whole(&file)));
    let fetched: u64 = join_all(fills).await.into_iter().sum();
    assert_eq!(fetched, 5_000_000);
    assert_eq!(fixture.log().bytes(), 5_000_000);
    assert!(!fixture.log().overlaps());
}

#[tokio::test]
async fn what_failed_half_way_goes_on_from_there() {
    let fixture = fixture();
    let file = fixture.add_random("/t/plain", 20_000_000);
    *fixture.log().bad_byte.lock() = Some((9_000_000, ErrorKind::Unavailable));
    let failed = fixture.cache.fill(&fixture.source, &file, whole(&file)).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
    fixture.settle().await;
    let kept = fixture.cache.kept(&file, whole(&file)).kept * PAGE;
    assert!(kept >= 4 << 20, "{kept}");
    *fixture.log().bad_byte.lock() = None;
    fixture.log().reset();
    assert_eq!(fill(&fixture, &file, whole(&file)).await, 20_000_000 - kept);
    assert_eq!(fixture.log().bytes(), 20_000_000 - kept);
}

#[tokio::test]
async fn what_was_evicted_costs_again_and_its_memory_is_free() {
    let fixture = fixture();
    let file = fixture.add("/t/a.parquet", wide());
    let other = fixture.add_random("/t/plain", 100_000);
    fill(&fixture, &other, whole(&other)).await;
    let before = fixture.cache.stats();
    fixture.cache.fill_metadata(&fixture.source, &file).await.unwrap();
    fill(&fixture, &file, whole(&file)).await;
    assert_eq!(fixture.cache.evict(&file).unwrap(), WIDE_LEN.div_ceil(PAGE));
    fixture.settle().await;
    let after = fixture.cache.stats();
    assert_eq!(after.data.memory_bytes, before.data.memory_bytes);
    assert_eq!(after.metadata.memory_bytes, before.metadata.memory_bytes);
    assert_eq!(
        after.data.evictions + after.metadata.evictions,
        0,
        "nobody pushed it out"
    );
    assert_eq!(fixture.cache.kept(&file, whole(&file)).kept, 0);
    assert_eq!(fixture.cache.evict(&file).unwrap(), 0);
    fixture.log().reset();
    fixture.read(&file, 0, WIDE_LEN).await;
    assert_eq!(fixture.log().bytes(), WIDE_LEN);
    fixture.read(&other, 0, 100_000).await;
    assert_eq!(fixture.log().bytes(), WIDE_LEN, "the others stay");
}

/// P7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_warmed_is_on_disk_after_a_restart_and_not_fetched_again_p7() {
    let directory = tempfile::tempdir().unwrap();
    let disk = crate::disk::DiskConfig {
        cache_dir: directory.path().to_owned(),
        cache_bytes: Some(256 << 20),
        owner: "test".to_owned(),
    };
    let config = CacheConfig::default();
    let fixture = Fixture::with_disk(config, &disk);
    let file = fixture.add_random("/t/plain", 10_000_000);
    let table = fixture.add("/t/n.parquet", NESTED.to_vec());
    assert_eq!(fill(&fixture, &file, whole(&file)).await, 10_000_000);
    let metadata = fixture
        .cache
        .fill_metadata(&fixture.source, &table)
        .await
        .unwrap();
    assert_ne!(metadata, 0);
    fixture.settle().await;
    fixture.cache.settle_disk().await;
    let known = fixture.cache.known_metadata(&table).await;
    let fixture = fixture.restarted(config, &disk);
    fixture.log().reset();
    fixture.cache.load_page_map(&file).await;
    let kept = fixture.cache.kept(&file, whole(&file));
    let pages = 10_000_000u64.div_ceil(PAGE);
    assert_eq!((kept.kept, kept.in_memory, kept.on_disk), (pages, 0, pages));
    assert_eq!(fill(&fixture, &file, whole(&file)).await, 0);
    assert_eq!(
        fixture
            .cache
            .fill_metadata(&fixture.source, &table)
            .await
            .unwrap(),
        0
    );
    assert_eq!(fixture.cache.known_metadata(&table).await, known);
    assert_eq!(fixture.log().requests(), 0, "after a restart");
    assert_eq!(fixture.cache.evict(&file).unwrap(), pages);
    assert_eq!(fixture.cache.kept(&file, whole(&file)).kept, 0);
    assert_eq!(fill(&fixture, &file, whole(&file)).await, 10_000_000);
}
