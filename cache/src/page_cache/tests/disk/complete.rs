//! Complete files: verified, pinned, and not believed when they are damaged.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_read_is_verified_once() {
    let place = Place::new(16 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    let data = fs::File::options().write(true).open(&place.files("data")[0]);
    data.unwrap().set_len(1000).unwrap();
    for _ in 0..3 {
        let failed = async {
            while fixture.cache.complete_file(&file).is_err() && disk(&fixture).failed_reads == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), failed)
            .await
            .unwrap();
        assert!(fixture.cache.complete_file(&file).is_err());
    }
    assert_eq!((disk(&fixture).failed_reads, disk(&fixture).pages), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_file_has_the_bytes_and_is_pinned() {
    let place = Place::new(16 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 5_000_001);
    read_all(&fixture, &file).await;
    // The restart takes what was verified before with it.
    let fixture = fixture.restarted(CacheConfig::default(), &place.config);
    let complete = complete_file(&fixture, &file).await;
    assert_eq!((disk(&fixture).verified_files, disk(&fixture).pinned), (1, 1));
    let mut bytes = vec![0; 5_000_001];
    complete.file().read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == fixture.expected(&file, 0, 5_000_001));
    assert!(complete.file().write_at(&[1], 0).is_err(), "for reading alone");

    // More than fits passes by, and the pinned version stays.
    let scan = fixture.add_random("/scan.bin", 40 << 20);
    read_all(&fixture, &scan).await;
    fixture.cache.evict_from_disk(&file);
    assert_eq!(
        fixture
            .cache
            .count_on_disk(&file, ByteRange::clamped(0, u64::MAX, file.len())),
        306
    );
    drop(complete);
    assert_eq!(disk(&fixture).pinned, 0);
    fixture.cache.evict_from_disk(&file);
    assert_eq!(
        fixture
            .cache
            .count_on_disk(&file, ByteRange::clamped(0, u64::MAX, file.len())),
        0
    );
    assert!(fixture.cache.complete_file(&file).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_to_a_pinned_file() {
    let place = Place::new(16 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    let complete = complete_file(&fixture, &file).await;
    let path = place.files("data").remove(0);
    damage(&path, 500_000);
    let damaged = fs::read(&path).unwrap();
    fixture.cache.clear();
    read_all(&fixture, &file).await;
    let stats = disk(&fixture);
    assert_eq!((stats.corrupt_pages, stats.written_pages), (1, 64), "{stats:?}");
    assert!(stats.skipped_pages > 0, "{stats:?}");
    assert!(fs::read(&path).unwrap() == damaged);
    // The page comes back once nobody reads behind our back.
    drop(complete);
    fixture.cache.clear();
    read_all(&fixture, &file).await;
    assert_eq!(disk(&fixture).written_pages, 65);
    assert!(fs::read(&path).unwrap() == fixture.expected(&file, 0, 1 << 20));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_not_complete() {
    let place = Place::new(16 * MIB);
    let fixture = place.open();
    let file = fixture.add_random("/a.bin", 1 << 20);
    read_all(&fixture, &file).await;
    damage(&place.files("data")[0], 700_000);
    assert!(fixture.cache.complete_file(&file).is_err());
    let found = async {
        while disk(&fixture).corrupt_pages == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found)
        .await
        .unwrap();
    assert!(fixture.cache.complete_file(&file).is_err());
    assert_eq!(disk(&fixture).verified_files, 0);
}

/// Several files at once, each larger than memory: pages that memory pushes out before their turn are written nonetheless.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_warmed_reaches_the_disk_however_small_memory_is_p6() {
    let place = Place::new(256 * MIB);
    let config = CacheConfig {
        memory_bytes: 4 * MIB,
        ..CacheConfig::default()
    };
    let fixture = Fixture::with_disk(config, &place.config);
    let files: Vec<_> = (0..6)
        .map(|number| fixture.add_random(&format!("/{number}.bin"), 12 << 20))
        .collect();
    let fills = files.iter().map(|file| {
        let whole = ByteRange::clamped(0, u64::MAX, file.len());
        fixture.cache.fill(&fixture.source, file, whole)
    });
    for filled in futures::future::join_all(fills).await {
        assert_eq!(filled.unwrap(), 12 << 20);
    }
    fixture.cache.settle_disk().await;
    for file in &files {
        let whole = ByteRange::clamped(0, u64::MAX, file.len());
        assert_eq!(
            fixture.cache.count_on_disk(file, whole),
            (12 << 20) / (16 << 10),
            "{:?}",
            disk(&fixture)
        );
    }
}
