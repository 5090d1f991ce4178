//! What fails fails alone, is not remembered, and leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::double::Fixture;
use crate::config::CacheConfig;
use crate::error::ErrorKind;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn drain(fixture: &Fixture) {
    let permits = fixture.log().gate.available_permits();
    fixture.log().gate.forget_permits(permits);
}

#[tokio::test]
async fn an_error_is_not_remembered_and_the_file_is_opened_again() {
    for kind in [
        ErrorKind::Unavailable,
        ErrorKind::TimedOut,
        ErrorKind::Changed,
        ErrorKind::Corrupt,
    ] {
        let fixture = Fixture::new(CacheConfig::default());
        let file = fixture.add_random("/a.bin", 1 << 20);
        fixture.log().read_errors.lock().push(kind);
        let error = fixture.try_read(&file, 0, 10).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        fixture.read(&file, 0, 10).await;
        assert_eq!(fixture.log().opens.load(Ordering::Relaxed), 2, "{kind:?}");
        assert_eq!(fixture.cache.stats().failed_extents, 1);
    }
}

#[tokio::test]
async fn a_failed_open_is_tried_again_by_the_next_read() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 1 << 20);
    fixture.log().open_errors.lock().push(ErrorKind::Changed);
    let error = fixture.try_read(&file, 0, 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    fixture.read(&file, 0, 10).await;
    assert_eq!(fixture.cache.stats().opens, 2);
}

#[tokio::test]
async fn an_extent_that_fails_fails_only_its_own_pages() {
    let fixture = Fixture::new(CacheConfig {
        max_read_ahead_bytes: 0,
        ..CacheConfig::default()
    });
    let file = fixture.add_random("/a.bin", 16 << 20);
    *fixture.log().bad_byte.lock() = Some((5 * MIB, ErrorKind::Corrupt));
    let error = fixture.try_read(&file, 0, 8 * MIB).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    fixture.settle().await;
    fixture.log().reset();
    fixture.read(&file, 0, 4 * MIB).await;
    assert_eq!(fixture.log().requests(), 0, "the first extent was kept");
}

#[tokio::test]
async fn an_answer_of_the_wrong_length_and_a_panic_are_errors() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 1 << 20);
    *fixture.log().short.lock() = true;
    let error = fixture.try_read(&file, 0, 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    *fixture.log().short.lock() = false;
    *fixture.log().panic.lock() = true;
    let error = fixture.try_read(&file, 0, 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    *fixture.log().panic.lock() = false;
    fixture.read(&file, 0, 10).await;
    fixture.settle().await;
}

#[tokio::test]
async fn a_cancelled_reader_cancels_nobody_else() {
    let fixture = Arc::new(Fixture::new(CacheConfig::default()));
    let file = fixture.add_random("/a.bin", 1 << 20);
    drain(&fixture);
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (fixture, file) = (fixture.clone(), file.clone());
        readers.push(tokio::spawn(async move { fixture.read(&file, 0, 100).await }));
        tokio::task::yield_now().await;
    }
    while fixture.log().requests() == 0 {
        tokio::task::yield_now().await;
    }
    // The first of them leads.
    readers.remove(0).abort();
    tokio::task::yield_now().await;
    fixture.log().gate.add_permits(10);
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(fixture.log().requests(), 1);
}

#[tokio::test]
async fn a_fetch_that_every_reader_left_still_lands() {
    let fixture = Arc::new(Fixture::new(CacheConfig::default()));
    let file = fixture.add_random("/a.bin", 1 << 20);
    drain(&fixture);
    let reader = {
        let (fixture, file) = (fixture.clone(), file.clone());
        tokio::spawn(async move { fixture.read(&file, 0, 100).await })
    };
    while fixture.log().requests() == 0 {
        tokio::task::yield_now().await;
    }
    reader.abort();
    fixture.log().gate.add_permits(10);
    fixture.settle().await;
    fixture.read(&file, 0, 100).await;
    assert_eq!(fixture.log().requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_never_answers_ends_in_a_timeout() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 1 << 20);
    drain(&fixture);
    let started = tokio::time::Instant::now();
    let error = fixture.try_read(&file, 0, 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(started.elapsed().as_secs(), 60);
    fixture.settle().await;
    fixture.log().gate.add_permits(10);
    fixture.read(&file, 0, 100).await;
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_ends_in_a_timeout_for_who_waits_and_frees_itself() {
    let fixture = Arc::new(Fixture::new(CacheConfig {
        memory_bytes: 1 << 20,
        max_inflight_bytes: 64 * KIB,
        max_read_ahead_bytes: 0,
        deadline: Duration::from_secs(5),
        ..CacheConfig::default()
    }));
    let file = fixture.add_random("/a.bin", 8 << 20);
    drain(&fixture);
    let mut readers = Vec::new();
    for reader in 0..100 {
        let (fixture, file) = (fixture.clone(), file.clone());
        readers.push(tokio::spawn(async move {
            fixture.try_read(&file, reader * 64 * KIB, 64 * KIB).await
        }));
    }
    for reader in readers {
        let error = reader.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    assert_eq!(fixture.log().requests(), 1, "the others never had their turn");
    fixture.settle().await;
    // Who got the turn in the very last moment may have opened the file again; those who had none did not.
    assert!(fixture.cache.stats().opens <= 2);
    fixture.log().gate.add_permits(1000);
    for reader in 0..100 {
        fixture.read(&file, reader * 64 * KIB, 64 * KIB).await;
    }
}

#[tokio::test]
async fn a_version_that_has_gone_is_closed_and_its_pages_stay_true() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 1 << 20);
    fixture.read(&file, 0, 100).await;
    assert_eq!(fixture.cache.stats().open_files, 1);
    fixture.cache.invalidate(file.id());
    assert_eq!(fixture.cache.stats().open_files, 0);
    fixture.read(&file, 0, 100).await;
    assert_eq!(fixture.log().requests(), 1, "what is cached needs no file");
    fixture.log().open_errors.lock().push(ErrorKind::Changed);
    let error = fixture.try_read(&file, 500_000, 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
}

#[tokio::test]
async fn ranges_outside_of_the_file_are_the_callers_mistake() {
    let fixture = Fixture::new(CacheConfig::default());
    let file = fixture.add_random("/a.bin", 1000);
    let error = fixture.try_read(&file, 900, 200).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(fixture.try_read(&file, 1000, 0).await.unwrap().is_empty());
    let empty = fixture.add_random("/empty", 0);
    assert!(fixture.try_read(&empty, 0, 0).await.unwrap().is_empty());
    assert_eq!(fixture.log().requests(), 0);
}
