//! Who pays for what the source was asked: compared with the source's own log.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::double::Fixture;
use crate::account::Account;
use crate::config::CacheConfig;
use crate::page::ByteRange;
use crate::version::FileVersion;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Reads as the filesystem does, for `account`.
async fn read_for(
    fixture: &Fixture,
    version: &Arc<FileVersion>,
    (offset, len): (u64, u64),
    account: &Arc<Account>,
) {
    let range = ByteRange::clamped(offset, len, version.len());
    let (cache, account) = (&fixture.cache, Some(account));
    let bytes = match cache.read_cached_for(version, range, account) {
        Some(bytes) => bytes,
        None => {
            let read = cache.read_for(&fixture.source, version, range, account);
            read.await.unwrap()
        }
    };
    assert!(bytes == fixture.expected(version, range.start(), range.len()));
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn every_extent_is_charged_to_one_file_of_one_mount() {
    let seed = 0x5eed_ac01;
    println!("seed {seed:#x}");
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = Fixture::new(CacheConfig {
        memory_bytes: 96 * MIB,
        ..CacheConfig::default()
    });
    let names = ["/a.bin", "/b.parquet", "/c.avro"];
    let files: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(index, name)| fixture.add_random(name, 24_000_000 * index + 54_321))
        .collect();
    let mounts = [Arc::<Account>::default(), Arc::default()];
    // By mount and file.
    let accounts: Vec<Vec<Arc<Account>>> = mounts
        .iter()
        .map(|mount| {
            let below = |_| Arc::new(Account::below(mount.clone()));
            files.iter().map(below).collect()
        })
        .collect();
    // A sequential reader of the largest file, now on one mount and now on the other, so that some is fetched ahead.
    for offset in (0..8 * MIB).step_by(128 << 10) {
        let mount = random.random_range(0..2);
        read_for(&fixture, &files[2], (offset, 128 * KIB), &accounts[mount][2]).await;
    }
    for _ in 0..1_000 {
        let (mount, file) = (random.random_range(0..2), random.random_range(0..3));
        let version = &files[file];
        let len = random.random_range(1..200 * KIB).min(version.len());
        // One in ten reads the end, so that a tail is fetched along.
        let last = version.len() - 1;
        let offset = random.random_range(0..last.max(1) * 10 / 9).min(last);
        read_for(&fixture, version, (offset, len), &accounts[mount][file]).await;
    }
    fixture.settle().await;
    let stats = fixture.cache.stats();
    assert!(stats.read_ahead_bytes > 0 && stats.tail_reads > 0, "{stats:?}");
    let fetched = |accounts: &[Arc<Account>]| -> u64 { accounts.iter().map(|a| a.fetched_bytes()).sum() };
    let extents = |accounts: &[Arc<Account>]| -> u64 { accounts.iter().map(|a| a.extents()).sum() };
    assert_eq!(fetched(&mounts), fixture.log().bytes());
    assert_eq!(extents(&mounts), fixture.log().requests() as u64);
    for (mount, files) in mounts.iter().zip(&accounts) {
        assert_eq!(fetched(files), mount.fetched_bytes());
        assert_eq!(extents(files), mount.extents());
    }
}

#[tokio::test]
async fn who_finds_bytes_in_memory_or_on_their_way_pays_nothing() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/f", MIB as usize);
    let (first, second) = (Arc::<Account>::default(), Arc::<Account>::default());
    tokio::join!(
        read_for(&fixture, &file, (0, 16 * KIB), &first),
        read_for(&fixture, &file, (0, 16 * KIB), &second),
    );
    read_for(&fixture, &file, (0, 16 * KIB), &second).await;
    fixture.settle().await;
    assert_eq!((first.fetched_bytes(), second.fetched_bytes()), (16 * KIB, 0));
}

#[tokio::test]
async fn what_fails_is_charged_to_nobody() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/f", MIB as usize);
    let account = Arc::<Account>::default();
    fixture
        .log()
        .read_errors
        .lock()
        .push(crate::error::ErrorKind::Unavailable);
    let range = ByteRange::clamped(0, 4096, file.len());
    let read = fixture
        .cache
        .read_for(&fixture.source, &file, range, Some(&account));
    read.await.unwrap_err();
    assert_eq!((account.fetched_bytes(), account.extents()), (0, 0));
}
