//! What is warmed waits for the disk, but neither for ever nor in the way of others: a disk that is slow, or hangs.

use super::*;

/// A sixteenth of memory waits to be written.
const QUEUE_BYTES: u64 = MIB;

fn small_memory() -> CacheConfig {
    CacheConfig {
        memory_bytes: 16 * QUEUE_BYTES,
        ..CacheConfig::default()
    }
}

fn whole(file: &FileVersion) -> ByteRange {
    ByteRange::clamped(0, u64::MAX, file.len())
}

/// Bounds a wait that ought to end by itself.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it ends")
}

async fn until(is_so: impl Fn() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the writer hangs at this lock, and at nothing else"
)]
async fn a_disk_that_hangs_is_given_up_and_the_rest_is_fetched() {
    let place = Place::new(256 * MIB);
    let fixture = Fixture::with_disk(small_memory(), &place.config);
    let file = fixture.add_random("/a.bin", 12 << 20);
    let tier = fixture.cache.disk.as_ref().unwrap();
    let hung = tier.hang();
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let filled = soon(fixture.cache.fill(&fixture.source, &file, whole(&file))).await;
    assert_eq!(filled.unwrap(), 12 << 20);
    // Once for all of it, not once for each extent.
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(11), "{waited:?}");
    soon(fixture.cache.settle_disk()).await;
    let stats = disk(&fixture);
    assert_eq!((stats.on, stats.timeouts), (0, 1), "{stats:?}");
    assert_eq!(fixture.cache.disk_rests(), Some(Rest::Off));
    let pages = (12 << 20) / PageSize::DEFAULT.bytes();
    let queued = stats.queued_bytes / PageSize::DEFAULT.bytes();
    assert!(stats.queued_bytes <= QUEUE_BYTES, "{stats:?}");
    assert!(
        stats.skipped_pages >= pages - queued,
        "what was not written is counted: {stats:?}"
    );
    drop(hung);
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the writer hangs at this lock, and at nothing else"
)]
async fn a_disk_that_is_slow_is_waited_for_as_long_as_it_moves() {
    let place = Place::new(256 * MIB);
    let fixture = Fixture::with_disk(small_memory(), &place.config);
    let file = fixture.add_random("/a.bin", 12 << 20);
    let tier = fixture.cache.disk.as_ref().unwrap();
    let slow = tier.hang();
    let (cache, source, version) = (fixture.cache.clone(), fixture.source.clone(), file.clone());
    let filling = tokio::spawn(async move { cache.fill(&source, &version, whole(&version)).await });
    until(|| disk(&fixture).queued_bytes > QUEUE_BYTES / 2).await;
    fixture.settle().await;
    tokio::time::pause();
    for _ in 0..6 {
        tier.pretend_to_write();
        tokio::time::advance(Duration::from_secs(4)).await;
        tokio::task::yield_now().await;
        assert_eq!(disk(&fixture).on, 1, "it moves");
    }
    tokio::time::resume();
    drop(slow);
    assert_eq!(soon(filling).await.unwrap().unwrap(), 12 << 20);
    soon(fixture.cache.settle_disk()).await;
    let pages = (12 << 20) / PageSize::DEFAULT.bytes();
    assert_eq!(fixture.cache.count_on_disk(&file, whole(&file)), pages);
    assert_eq!(disk(&fixture).timeouts, 0);
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the writer hangs at this lock, and at nothing else"
)]
async fn who_waits_for_the_queue_takes_no_room_from_others() {
    let place = Place::new(256 * MIB);
    let fixture = Fixture::with_disk(small_memory(), &place.config);
    let (first, second) = (
        fixture.add_random("/a.bin", 100_000),
        fixture.add_random("/b.bin", 100_001),
    );
    let hung = fixture.cache.disk.as_ref().unwrap().hang();
    let fill = async |file| fixture.cache.fill(&fixture.source, file, whole(file)).await;
    fill(&first).await.unwrap();
    let cache = fixture.cache.clone();
    let settling = tokio::spawn(async move { cache.settle_disk().await });
    tokio::task::yield_now().await;
    soon(fill(&second)).await.unwrap();
    assert!(!settling.is_finished(), "the first is not written yet");
    let stats = disk(&fixture);
    assert_eq!(
        (stats.on, stats.timeouts, stats.skipped_pages),
        (1, 0, 0),
        "{stats:?}"
    );
    drop(hung);
    soon(settling).await.unwrap();
    soon(fixture.cache.settle_disk()).await;
    for file in [&first, &second] {
        assert_eq!(fixture.cache.count_on_disk(file, whole(file)), 7);
    }
}

#[tokio::test]
async fn small_ranges_are_fetched_side_by_side_though_they_wait_for_the_disk() {
    let place = Place::new(256 * MIB);
    let fixture = Fixture::with_disk(CacheConfig::default(), &place.config);
    let files: Vec<_> = (0..32)
        .map(|at| fixture.add_random(&format!("/{at}.bin"), 64 << 10))
        .collect();
    let gate = &fixture.log().gate;
    gate.forget_permits(gate.available_permits());
    let fills = files
        .iter()
        .map(|file| fixture.cache.fill(&fixture.source, file, whole(file)));
    let fills = futures::future::join_all(fills);
    let opens = async {
        until(|| fixture.log().requests() == 32).await;
        gate.add_permits(32);
    };
    let (filled, ()) = soon(async { futures::join!(fills, opens) }).await;
    assert!(filled.into_iter().all(|bytes| bytes.unwrap() == 64 << 10));
    soon(fixture.cache.settle_disk()).await;
    assert_eq!(disk(&fixture).pages, 32 * 4);
}
